"""map: a function over the first dim of tensors, one item after the other."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch

_pytree = torch.utils._pytree


def _unstack_pytree(xs: Any) -> list[Any]:
    """The items of the first dim of a tree of tensors, each a tree."""
    leaves, spec = _pytree.tree_flatten(xs)
    if not all(isinstance(x, torch.Tensor) for x in leaves):
        raise RuntimeError(f"Leaves of xs must be Tensor {leaves}")
    if not all(x.shape[0] == leaves[0].shape[0] for x in leaves):
        raise RuntimeError(f"Leaves of xs must have same leading dimension size {[x.shape for x in leaves]}")
    return [_pytree.tree_unflatten(item, spec) for item in zip(*leaves)]


def _stack_pytree(pytrees: list[Any]) -> Any:
    """Trees of one structure as a tree of tensors."""
    specs = [_pytree.tree_flatten(tree) for tree in pytrees]
    columns = zip(*(leaves for leaves, _ in specs), strict=True)
    return _pytree.tree_unflatten([None if column[0] is None else torch.stack(column) for column in columns], specs[0][1])


def map(f: Callable[..., Any], xs: Any, *args: Any) -> Any:  # noqa: A001
    """f(x, *args) for every item x of the first dim of xs, stacked."""
    leaves = _pytree.tree_leaves(xs)
    if any(x.shape[0] == 0 for x in leaves):
        raise RuntimeError("map() cannot be mapped over zero number of xs")
    return _stack_pytree([f(item, *args) for item in _unstack_pytree(xs)])

torch._named.complete(__name__)
