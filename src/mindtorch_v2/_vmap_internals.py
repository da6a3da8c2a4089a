"""torch._vmap_internals: the vmap from before torch.func, by torch.func's."""
from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch

in_dims_t, out_dims_t = torch._functorch.vmap.in_dims_t, torch._functorch.vmap.out_dims_t


def vmap(func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0) -> Callable[..., Any]:
    """torch.vmap"""
    warnings.warn("Please use torch.vmap instead of torch._vmap_internals.vmap.", FutureWarning, stacklevel=2)
    return _vmap(func, in_dims, out_dims)


def _vmap(func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0,
          allow_none_pass_through: bool = False) -> Callable[..., Any]:
    """torch.vmap; None as a result may pass through it."""
    if not allow_none_pass_through:
        return torch.vmap(func, in_dims, out_dims)
    tree = torch.utils._pytree

    def mapped(*args: Any) -> Any:
        shape: list[Any] = []

        def present(*given: Any) -> tuple[Any, ...]:
            leaves, spec = tree.tree_flatten(func(*given))
            shape[:] = [spec, [x is None for x in leaves]]
            return tuple(x for x in leaves if x is not None)

        found = iter(torch.vmap(present, in_dims, out_dims)(*args))
        spec, absent = shape
        return tree.tree_unflatten([None if gone else next(found) for gone in absent], spec)

    return mapped
