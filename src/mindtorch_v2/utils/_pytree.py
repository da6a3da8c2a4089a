"""Nested containers as trees of leaves: flatten, unflatten, map."""
from __future__ import annotations

import functools
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.utils import _pytree_nodes
from mindtorch_v2.utils._pytree_nodes import (  # noqa: F401  (torch has all of them here)
    BUILTIN_TYPES,
    CONSTANT_NODES,
    SERIALIZED_TYPE_TO_PYTHON_TYPE,
    STANDARD_DICT_TYPES,
    SUPPORTED_NODES,
    SUPPORTED_SERIALIZED_TYPES,
    ConstantNode,
    Context,
    DumpableContext,
    FlattenFn,
    FlattenFunc,
    FlattenWithKeysFn,
    FlattenWithKeysFunc,
    FromDumpableContextFn,
    GetAttrKey,
    KeyEntry,
    KeyPath,
    MappingKey,
    NodeDef,
    PyTree,
    SequenceKey,
    ToDumpableContextFn,
    UnflattenFn,
    UnflattenFunc,
    _defaultdict_deserialize,
    _defaultdict_flatten,
    _defaultdict_flatten_with_keys,
    _defaultdict_serialize,
    _defaultdict_unflatten,
    _deque_flatten,
    _deque_flatten_with_keys,
    _deque_unflatten,
    _deregister_pytree_node,
    _dict_flatten,
    _dict_flatten_with_keys,
    _dict_unflatten,
    _get_node_type,
    _list_flatten,
    _list_flatten_with_keys,
    _list_unflatten,
    _namedtuple_deserialize,
    _namedtuple_flatten,
    _namedtuple_flatten_with_keys,
    _namedtuple_serialize,
    _namedtuple_unflatten,
    _odict_flatten,
    _odict_unflatten,
    _ordereddict_flatten,
    _ordereddict_flatten_with_keys,
    _ordereddict_unflatten,
    _private_register_pytree_node,
    _register_namedtuple,
    _register_pytree_node,
    _tuple_flatten,
    _tuple_flatten_with_keys,
    _tuple_unflatten,
    is_constant_class,
    is_namedtuple,
    is_namedtuple_class,
    is_namedtuple_instance,
    is_structseq,
    is_structseq_class,
    is_structseq_instance,
    register_constant,
    register_dataclass,
    register_pytree_node,
)

DEFAULT_TREESPEC_SERIALIZATION_PROTOCOL = 1
register_pytree_node(torch.Size, lambda size: (list(size), None), lambda sizes, _: tuple(sizes),
                     serialized_type_name="torch.Size")


class TreeSpec:
    """The structure of a tree without its leaves."""

    def __init__(self, type: Any, context: Any, children_specs: list[TreeSpec]) -> None:
        self.type, self.context, self.children_specs = type, context, children_specs
        self.num_leaves: int = sum(c.num_leaves for c in children_specs) if type is not None else 1
        self.num_nodes: int = 1 + sum(c.num_nodes for c in children_specs)
        self.num_children = len(children_specs)

    def is_leaf(self) -> bool:
        return self.type is None

    def children(self) -> list[TreeSpec]:
        """The structures of what it holds."""
        return list(self.children_specs)

    def child(self, index: int) -> TreeSpec:
        """The structure of one thing that it holds."""
        return self.children_specs[index]

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """A tree of this structure with the given leaves."""
        items = list(leaves)
        if len(items) != self.num_leaves:
            raise ValueError(f"treespec.unflatten(leaves): `leaves` has length {len(items)} but the spec refers to a "
                             f"pytree that holds {self.num_leaves} items ({self}).")
        return self._build(iter(items))

    def _build(self, items: Any) -> Any:
        if self.type is None:
            return next(items)
        return SUPPORTED_NODES[self.type].unflatten_fn([c._build(items) for c in self.children_specs], self.context)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """The subtrees of tree at this structure's leaves."""
        if self.type is None:
            return [tree]
        if _get_node_type(tree) is not self.type:
            raise ValueError(f"Node type mismatch; expected {self.type!r}, but got {type(tree)!r}.")
        children, context = SUPPORTED_NODES[self.type].flatten_fn(tree)
        if len(children) != self.num_children:
            raise ValueError(f"Node arity mismatch; expected {self.num_children}, but got {len(children)}.")
        if self.type in STANDARD_DICT_TYPES and context != self.context:
            keys = self.context[1] if self.type is defaultdict else self.context
            if set(keys) != set(tree):
                words = [f"{word} key(s): {names}" for word, names in (("missing", set(keys) - set(tree)),
                                                                       ("extra", set(tree) - set(keys))) if names]
                raise ValueError(f"Node keys mismatch; {'; '.join(words)}.")
            children = [tree[k] for k in keys]
        return [leaf for spec, child in zip(self.children_specs, children) for leaf in spec.flatten_up_to(child)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TreeSpec) and (self.type, self.context, self.children_specs) == \
            (other.type, other.context, other.children_specs)

    def __hash__(self) -> int:
        return hash((self.type, str(self.context), len(self.children_specs)))

    def __repr__(self, indent: int = 0) -> str:
        if self.type is None:
            return "*"
        inside = (",\n" + " " * (indent + 2)).join(child.__repr__(indent + 2) for child in self.children_specs)
        return f"TreeSpec({self.type.__name__}, {self.context}, [{inside}])"


class LeafSpec(TreeSpec):
    """The structure of a single leaf."""

    def __init__(self) -> None:
        super().__init__(None, None, [])


def treespec_leaf() -> LeafSpec:
    """The structure of a single leaf."""
    return LeafSpec()


def treespec_tuple(iterable: Iterable[TreeSpec] = (), /) -> TreeSpec:
    """The structure of a tuple of trees."""
    return TreeSpec(tuple, None, list(iterable))


def treespec_dict(mapping: Any = (), /, **kwargs: TreeSpec) -> TreeSpec:
    """The structure of a dict of trees."""
    given = dict(mapping, **kwargs)
    return TreeSpec(dict, list(given), list(given.values()))


def tree_flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], TreeSpec]:
    """The leaves of a tree, and its structure."""
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves, is_leaf)


def _flatten(tree: Any, leaves: list[Any], is_leaf: Any) -> TreeSpec:
    kind = _get_node_type(tree)
    if kind not in SUPPORTED_NODES or (is_leaf is not None and is_leaf(tree)):
        leaves.append(tree)
        return LeafSpec()
    children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    return TreeSpec(kind, context, [_flatten(c, leaves, is_leaf) for c in children])


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """A tree from leaves and structure."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"tree_unflatten(leaves, treespec): Expected `treespec` to be instance of TreeSpec but got item "
                        f"of type {type(treespec)}.")
    return treespec.unflatten(leaves)


def tree_leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves of a tree."""
    return tree_flatten(tree, is_leaf)[0]


def tree_iter(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Iterator[Any]:
    """The leaves of a tree, one by one."""
    if tree_is_leaf(tree, is_leaf):
        yield tree
        return
    for child in SUPPORTED_NODES[_get_node_type(tree)].flatten_fn(tree)[0]:
        yield from tree_iter(child, is_leaf)


def arg_tree_leaves(*args: Any, **kwargs: Any) -> list[Any]:
    """The leaves of a call's arguments."""
    return tree_leaves((args, kwargs))


def tree_structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> TreeSpec:
    """The structure of a tree."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """The tree with func of each leaf (and of the leaves of the others at the same place)."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [spec.flatten_up_to(r) for r in rests]
    return spec.unflatten([func(*items) for items in zip(leaves, *others)])


def tree_map_(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """Calls func for each leaf and returns the tree itself."""
    leaves, spec = tree_flatten(tree, is_leaf)
    for items in zip(leaves, *(spec.flatten_up_to(r) for r in rests)):
        func(*items)
    return tree


def _wanted(type_or_types: Any) -> Callable[[Any], bool]:
    if isinstance(type_or_types, (type, tuple)):
        return lambda x: isinstance(x, type_or_types)
    if callable(type_or_types):
        return type_or_types
    raise TypeError("Argument must be a type, a tuple of types, or a callable.")


def map_only(type_or_types: Any, /) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """A decorator: the function for objects of those types, others as they are."""
    wanted = _wanted(type_or_types)

    def decorate(func: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(func)
        def mapped(x: Any) -> Any:
            return func(x) if wanted(x) else x
        return mapped
    return decorate


def tree_map_only(type_or_types: Any, func: Callable[[Any], Any], tree: Any, is_leaf: Any = None) -> Any:
    """tree_map over the leaves of those types only."""
    return tree_map(map_only(type_or_types)(func), tree, is_leaf=is_leaf)


def tree_map_only_(type_or_types: Any, func: Callable[[Any], Any], tree: Any, is_leaf: Any = None) -> Any:
    """tree_map_ over the leaves of those types only."""
    return tree_map_(map_only(type_or_types)(func), tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: Any = None) -> bool:
    """Whether pred holds for every leaf."""
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: Any = None) -> bool:
    """Whether pred holds for a leaf."""
    return any(map(pred, tree_leaves(tree, is_leaf)))


def tree_all_only(type_or_types: Any, pred: Callable[[Any], bool], tree: Any, is_leaf: Any = None) -> bool:
    """Whether pred holds for every leaf of those types."""
    wanted = _wanted(type_or_types)
    return all(pred(x) for x in tree_leaves(tree, is_leaf) if wanted(x))


def tree_any_only(type_or_types: Any, pred: Callable[[Any], bool], tree: Any, is_leaf: Any = None) -> bool:
    """Whether pred holds for a leaf of those types."""
    wanted = _wanted(type_or_types)
    return any(pred(x) for x in tree_leaves(tree, is_leaf) if wanted(x))


def tree_is_leaf(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether the object is a leaf."""
    return (is_leaf is not None and is_leaf(tree)) or _get_node_type(tree) not in SUPPORTED_NODES


_is_leaf = tree_is_leaf


def _broadcast_to_and_flatten(tree: Any, treespec: TreeSpec, is_leaf: Any = None) -> list[Any] | None:
    """The leaves of tree repeated to fill treespec, or None where the two do not fit."""
    kind = _get_node_type(tree)
    if kind not in SUPPORTED_NODES or (is_leaf is not None and is_leaf(tree)):
        return [tree] * treespec.num_leaves
    if treespec.type is not kind:
        return None
    children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    if len(children) != treespec.num_children or context != treespec.context:
        return None
    found: list[Any] = []
    for child, spec in zip(children, treespec.children_specs):
        part = _broadcast_to_and_flatten(child, spec, is_leaf)
        if part is None:
            return None
        found += part
    return found


def tree_flatten_with_path(tree: Any, is_leaf: Any = None) -> tuple[list[tuple[tuple[Any, ...], Any]], TreeSpec]:
    """(path, leaf) pairs, and the structure."""
    return list(_generate_key_paths((), tree, is_leaf)), tree_structure(tree, is_leaf)


def _generate_key_paths(key_path: tuple[Any, ...], tree: Any,
                        is_leaf: Callable[[Any], bool] | None = None) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """(path, leaf) pairs of a tree that lies at a path."""
    if tree_is_leaf(tree, is_leaf):
        yield key_path, tree
        return
    kind = _get_node_type(tree)
    flatten = SUPPORTED_NODES[kind].flatten_with_keys_fn
    if flatten is None:
        raise ValueError(f"Did not find a flatten_with_keys_fn for type: {kind}. Please pass a flatten_with_keys_fn argument "
                         "to register_pytree_node.")
    for step, child in flatten(tree)[0]:
        yield from _generate_key_paths((*key_path, step), child, is_leaf)


def tree_leaves_with_path(tree: Any, is_leaf: Any = None) -> list[tuple[tuple[Any, ...], Any]]:
    """(path, leaf) pairs."""
    return tree_flatten_with_path(tree, is_leaf)[0]


def tree_map_with_path(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Any = None) -> Any:
    """tree_map whose func gets the path first."""
    pairs, spec = tree_flatten_with_path(tree, is_leaf)
    others = [spec.flatten_up_to(r) for r in rests]
    return spec.unflatten([func(path, leaf, *rest) for (path, leaf), *rest in zip(pairs, *others)])


def keystr(kp: tuple[Any, ...]) -> str:
    """A path as text."""
    return "".join(map(str, kp))


def key_get(obj: Any, kp: tuple[Any, ...]) -> Any:
    """What lies at a path."""
    for step in kp:
        obj = step.get(obj)
    return obj


# ---- structures as text ----------------------------------------------------------------------------------------------
def _to_json(spec: TreeSpec) -> dict[str, Any]:
    name, context = (None, None) if spec.is_leaf() else _pytree_nodes.written_node(spec.type, spec.context)
    return {"type": name, "context": context, "children_spec": [_to_json(child) for child in spec.children_specs]}


def _from_json(written: dict[str, Any]) -> TreeSpec:
    if written["type"] is None and written["context"] is None and not written["children_spec"]:
        return LeafSpec()
    kind, context = _pytree_nodes.read_node(written["type"], written["context"])
    return TreeSpec(kind, context, [_from_json(child) for child in written["children_spec"]])


def treespec_dumps(treespec: TreeSpec, protocol: int | None = None) -> str:
    """A structure as JSON, in torch's form."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError("treespec_dumps(treespec, protocol): Expected `treespec` to be instance of TreeSpec but got item of "
                        f"type {type(treespec)}.")
    protocol = DEFAULT_TREESPEC_SERIALIZATION_PROTOCOL if protocol is None else protocol
    if protocol != DEFAULT_TREESPEC_SERIALIZATION_PROTOCOL:
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: [{DEFAULT_TREESPEC_SERIALIZATION_PROTOCOL}]")
    return json.dumps((protocol, _to_json(treespec)))


def treespec_loads(serialized: str) -> TreeSpec:
    """The structure that treespec_dumps wrote."""
    protocol, written = json.loads(serialized)
    if protocol != DEFAULT_TREESPEC_SERIALIZATION_PROTOCOL:
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: [{DEFAULT_TREESPEC_SERIALIZATION_PROTOCOL}]")
    return _from_json(written)


class _Asterisk(str):
    """A leaf in the picture of a structure."""

    def __repr__(self) -> str:
        return "*"


def treespec_pprint(treespec: TreeSpec) -> str:
    """A structure as the repr of a tree with * for each leaf."""
    return repr(tree_unflatten([_Asterisk()] * treespec.num_leaves, treespec))
