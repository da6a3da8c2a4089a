"""Copies of tensors to several devices and back, in one process; gradients go the way back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mindtorch_v2 as torch


def _device(device: Any) -> Any:
    """A device; a number is that of an npu, and -1 the CPU."""
    if isinstance(device, int):
        return torch.device("cpu") if device < 0 else torch.device("npu", device)
    return torch.device(device)


def broadcast(tensor: Any, devices: Sequence[Any]) -> tuple[Any, ...]:
    """The tensor on each device."""
    return tuple(tensor.to(_device(device)) for device in devices)


def broadcast_coalesced(tensors: Sequence[Any], devices: Sequence[Any], buffer_size: int = 10485760) -> list[tuple[Any, ...]]:
    """All tensors on each device."""
    return [tuple(tensor.to(_device(device)) for tensor in tensors) for device in devices]


def scatter(tensor: Any, devices: Sequence[Any], chunk_sizes: Sequence[int] | None = None, dim: int = 0) -> tuple[Any, ...]:
    """Parts of the tensor along a dimension, one on each device."""
    parts = tensor.chunk(len(devices), dim) if chunk_sizes is None else tensor.split(list(chunk_sizes), dim)
    return tuple(part.to(_device(device)) for part, device in zip(parts, devices))


def gather(tensors: Sequence[Any], dim: int = 0, destination: Any = None) -> Any:
    """One tensor of all of them along a dimension; on the first one's device if none is given."""
    target = tensors[0].device if destination is None else _device(destination)
    return torch.cat([tensor.to(target) for tensor in tensors], dim)


def reduce_add(inputs: Sequence[Any], destination: Any = None) -> Any:
    """Their sum on one device; on the first one's if none is given."""
    target = inputs[0].device if destination is None else _device(destination)
    total = inputs[0].to(target)
    for tensor in inputs[1:]:
        total = total + tensor.to(target)
    return total
