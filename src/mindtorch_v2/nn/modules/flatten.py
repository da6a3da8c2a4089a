"""Flatten and Unflatten."""

from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.nn.modules.module import Module

Tensor = torch.Tensor

__all__ = ["Flatten", "Unflatten"]


class Flatten(Module):
    """Makes one dimension of several."""

    __constants__ = ["start_dim", "end_dim"]

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Makes several dimensions of one."""

    __constants__ = ["dim", "unflattened_size"]

    def __init__(self, dim: Any, unflattened_size: Any) -> None:
        super().__init__()
        if not isinstance(unflattened_size, (tuple, list)):
            kind = type(unflattened_size).__name__
            what = "ints" if isinstance(dim, int) else "tuples"
            raise TypeError(f"unflattened_size must be a tuple of {what}, but found type {kind}")
        for i, size in enumerate(unflattened_size):
            if isinstance(dim, int) and not isinstance(size, int):
                raise TypeError(
                    "unflattened_size must be tuple of ints, but found element of type "
                    f"{type(size).__name__} at pos {i}"
                )
        self.dim = dim
        self.unflattened_size = unflattened_size

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
