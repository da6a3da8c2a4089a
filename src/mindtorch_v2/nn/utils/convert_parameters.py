"""Parameters as one vector and back."""

from __future__ import annotations

from typing import Iterable

import mindtorch_v2 as torch

Tensor = torch.Tensor

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def _check_device(param: Tensor, device: torch.device | None) -> torch.device:
    if device is not None and param.device != device:
        raise TypeError(
            "Found two parameters on different devices, this is currently not supported."
        )
    return param.device


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters, flattened, one after another."""
    device, parts = None, []
    for param in parameters:
        device = _check_device(param, device)
        parts.append(param.reshape(-1))
    return torch.cat(parts)


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Give each parameter its slice of a vector."""
    if not isinstance(vec, torch.Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {torch.typename(vec)}")
    device, offset = None, 0
    for param in parameters:
        device = _check_device(param, device)
        count = param.numel()
        param.data = vec[offset : offset + count].view_as(param).data
        offset += count
