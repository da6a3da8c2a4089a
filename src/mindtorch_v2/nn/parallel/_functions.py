"""Broadcast, Scatter and Gather with the calls of autograd functions: ops record their own gradients here."""

from __future__ import annotations

from typing import Any

from mindtorch_v2.nn.parallel import comm


class Broadcast:
    """Tensors on each of several devices, one after another in one tuple."""

    @staticmethod
    def apply(target_gpus: Any, *inputs: Any) -> tuple[Any, ...]:
        return tuple(tensor for copies in comm.broadcast_coalesced(inputs, target_gpus) for tensor in copies)


class Scatter:
    """Parts of a tensor, one on each device."""

    @staticmethod
    def apply(target_gpus: Any, chunk_sizes: Any, dim: int, input: Any) -> tuple[Any, ...]:
        return comm.scatter(input, target_gpus, chunk_sizes, dim)


class Gather:
    """One tensor of several; scalars become a vector."""

    @staticmethod
    def apply(target_device: Any, dim: int, *inputs: Any) -> Any:
        if all(tensor.dim() == 0 for tensor in inputs) and dim == 0:
            inputs = tuple(tensor.view(1) for tensor in inputs)
        return comm.gather(inputs, dim, target_device)
