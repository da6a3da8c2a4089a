"""Arguments spread over devices and results brought together, inside tuples, lists and dicts too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.nn.parallel._functions import Gather, Scatter

__all__ = ["gather", "is_namedtuple", "scatter", "scatter_kwargs"]


def is_namedtuple(obj: Any) -> bool:
    """Whether it is an object of a named tuple's class."""
    return isinstance(obj, tuple) and hasattr(obj, "_asdict") and hasattr(obj, "_fields")


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> Any:
    """A part of every tensor for each device; anything else goes to all of them."""
    def spread(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return Scatter.apply(target_gpus, None, dim, value)
        if is_namedtuple(value):
            return [type(value)(*args) for args in zip(*map(spread, value))]
        if isinstance(value, tuple) and value:
            return list(zip(*map(spread, value)))
        if isinstance(value, list) and value:
            return [list(items) for items in zip(*map(spread, value))]
        if isinstance(value, dict) and value:
            return [type(value)(items) for items in zip(*map(spread, value.items()))]
        return [value for _ in target_gpus]
    return spread(inputs)


def scatter_kwargs(inputs: tuple[Any, ...], kwargs: dict[str, Any] | None, target_gpus: Sequence[Any],
                   dim: int = 0) -> tuple[tuple[Any, ...], tuple[dict[str, Any], ...]]:
    """Positional and named arguments for each device, as many of both."""
    spread = scatter(inputs, target_gpus, dim) if inputs else []
    named = scatter(kwargs, target_gpus, dim) if kwargs else []
    count = max(len(spread), len(named))
    spread += [() for _ in range(count - len(spread))]
    named += [{} for _ in range(count - len(named))]
    return tuple(spread), tuple(named)


def gather(outputs: Any, target_device: Any, dim: int = 0) -> Any:
    """Results of devices on one of them."""
    first = outputs[0]
    if isinstance(first, torch.Tensor):
        return Gather.apply(target_device, dim, *outputs)
    if first is None:
        return None
    if isinstance(first, dict):
        if not all(len(first) == len(other) for other in outputs):
            raise ValueError("All dicts must have the same number of keys")
        return type(first)((key, gather([other[key] for other in outputs], target_device, dim)) for key in first)
    parts = [gather(items, target_device, dim) for items in zip(*outputs)]
    return type(first)._make(parts) if is_namedtuple(first) else type(first)(parts)
