"""Layers that change what a function computes: batches (vmap) and, with autograd.forward_ad, forward derivatives."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._transforms.batched import BatchedTensor, Vmap
from mindtorch_v2.autograd.forward_ad import Forward

__all__ = ["BatchedTensor", "Vmap", "differentiated", "ended", "linked", "start"]


def _innermost() -> Vmap | None:
    return next((t for t in reversed(_C._transforms()) if isinstance(t, Vmap)), None)


def start(x: Any) -> Any:
    """x as the start of a graph of the innermost level, connected to the graph that it is part of."""
    level = _innermost()
    if level is not None and not level.owns(x):
        made = level.wrap(x, False)
    else:
        made = x.view_as(x) if x.requires_grad else x._fresh()
    _keep_tangents(x, made)
    return made if made.requires_grad else made.requires_grad_()


def linked(x: Any) -> Any:
    """Another tensor of x's value and history."""
    made = x.view_as(x)
    _keep_tangents(x, made)
    return made


def _keep_tangents(x: Any, made: Any) -> None:
    for layer in _C._transforms():
        if isinstance(layer, Forward):
            tangent = layer.tangent(x)
            if tangent is not None and layer.tangent(made) is None:
                layer.note(made, tangent)


def differentiated() -> bool:
    """Whether the open levels differentiate what is computed, gradients included: then those are recorded too."""
    return any(isinstance(t, Forward) or isinstance(t, Vmap) and t.differentiated for t in _C._transforms())


def ended(x: Any, kept: Callable[[list[Any]], bool]) -> Any:
    """x without its history; its tangents too, unless `kept` says that an outer level owns them."""
    made = x._fresh()
    for layer in _C._transforms():
        tangent = layer.tangent(x) if isinstance(layer, Forward) else None
        if tangent is not None:
            layer.note(made, tangent if not tangent.requires_grad or kept([tangent]) else ended(tangent, kept))
    return made
