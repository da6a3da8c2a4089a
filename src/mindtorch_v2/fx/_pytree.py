"""Containers taken apart by a structure that is known beforehand: what the code of a traced function does with its inputs."""
from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch

PyTree = Any
TreeSpec = torch.utils._pytree.TreeSpec
FlattenFuncSpec = Callable[[PyTree, Any], list]
FlattenFuncExactMatchSpec = Callable[[PyTree, Any], bool]
FlattenFnSpec, FlattenFnExactMatchSpec = FlattenFuncSpec, FlattenFuncExactMatchSpec

SUPPORTED_NODES: dict[Any, FlattenFuncSpec] = {}
SUPPORTED_NODES_EXACT_MATCH: dict[Any, FlattenFuncExactMatchSpec | None] = {}


def register_pytree_flatten_spec(cls: type[Any], flatten_fn_spec: FlattenFuncSpec,
                                 flatten_fn_exact_match_spec: FlattenFuncExactMatchSpec | None = None) -> None:
    """Says how objects of a class are taken apart by a structure."""
    SUPPORTED_NODES[cls] = flatten_fn_spec
    SUPPORTED_NODES_EXACT_MATCH[cls] = flatten_fn_exact_match_spec


def _deregister_pytree_flatten_spec(cls: type[Any]) -> None:
    del SUPPORTED_NODES[cls]
    del SUPPORTED_NODES_EXACT_MATCH[cls]


def tree_flatten_spec(pytree: PyTree, spec: Any) -> list[Any]:
    """The leaves of a tree, in the order of a structure that it has."""
    if spec.is_leaf():
        return [pytree]
    if spec.type not in SUPPORTED_NODES:
        raise RuntimeError(f"{type(pytree)} does not have a flatten_fn_spec associated with it. Please register one with "
                           "torch.fx._pytree.register_pytree_flatten_spec.  If you have serialized your model, make sure "
                           "that any custom pytrees have been registered before loading it.")
    children = SUPPORTED_NODES[spec.type](pytree, spec)
    return [leaf for child, child_spec in zip(children, spec.children_specs)
            for leaf in tree_flatten_spec(child, child_spec)]


def _dict_flatten_spec(d: dict[Any, Any], spec: Any) -> list[Any]:
    return [d[key] for key in spec.context]


def _list_flatten_spec(d: list[Any], spec: Any) -> list[Any]:
    return [d[i] for i in range(spec.num_children)]


def _tuple_flatten_spec(d: tuple[Any, ...], spec: Any) -> list[Any]:
    return [d[i] for i in range(spec.num_children)]


def _namedtuple_flatten_spec(d: Any, spec: Any) -> list[Any]:
    return [d[i] for i in range(spec.num_children)]


def _dict_flatten_spec_exact_match(d: dict[Any, Any], spec: Any) -> bool:
    return len(d) == spec.num_children


def _list_flatten_spec_exact_match(d: list[Any], spec: Any) -> bool:
    return len(d) == spec.num_children


_tuple_flatten_spec_exact_match = _namedtuple_flatten_spec_exact_match = _list_flatten_spec_exact_match

register_pytree_flatten_spec(dict, _dict_flatten_spec, _dict_flatten_spec_exact_match)
register_pytree_flatten_spec(list, _list_flatten_spec, _list_flatten_spec_exact_match)
register_pytree_flatten_spec(tuple, _tuple_flatten_spec, _tuple_flatten_spec_exact_match)
register_pytree_flatten_spec(namedtuple, _namedtuple_flatten_spec, _tuple_flatten_spec_exact_match)   # type: ignore
