"""NestedTensor and the functions that make one, as PyTorch's own programs import them."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch

NestedTensor = torch._nested.NestedTensor


def get_tensor_symint(tensor: Any, *, coeff: int = 1) -> Any:
    """The ragged size that goes with these offsets: the same for the same tensor."""
    return torch._nested.size_of(tensor, coeff)


class ViewBufferFromNested(torch.autograd.Function):
    """The values of a nested tensor, recorded."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.values()

    @staticmethod
    def backward(ctx: Any, gO: Any) -> Any:
        return gO


class ViewNestedFromBuffer(torch.autograd.Function):
    """A nested tensor over values. The values keep the history, so `apply` makes it directly."""

    @classmethod
    def apply(cls, values: Any, offsets: Any, metadata_cache: Any = None) -> Any:
        return torch._nested.make(values, offsets)


def buffer_from_jagged(jagged: Any) -> Any:
    """The values of a nested tensor with their history."""
    return jagged.values()


def jagged_from_list(tensors: list[Any], offsets: Any, dtype: Any = None, device: Any = None) -> tuple[Any, Any]:
    """A nested tensor of a list, and its offsets."""
    if len({t.device for t in tensors}) > 1:
        raise RuntimeError("When constructing a nested tensor, all tensors in list must be on the same device")
    made = torch._nested.from_list(list(tensors))
    values = made.values().to(dtype=dtype, device=device)
    offsets = made.offsets() if offsets is None else offsets
    return torch._nested.make(values, offsets, None, made._ragged_idx), offsets


def jagged_from_tensor_and_lengths(tensor: Any, starts: Any, lengths: Any) -> tuple[Any, Any, Any]:
    """The nested tensor that `torch.nested.narrow` makes of a dense one, its offsets and lengths."""
    made = torch._nested.narrowed(tensor, starts, lengths)
    return made, made.offsets(), made.lengths()


def nested_view_from_values_offsets(values: Any, offsets: Any, ragged_idx: int = 1, min_seqlen: Any = None,
                                    max_seqlen: Any = None) -> Any:
    """A nested tensor over values."""
    return torch._nested.make(values, offsets, None, ragged_idx)


def nested_view_from_values_offsets_lengths(values: Any, offsets: Any, lengths: Any, ragged_idx: int = 1,
                                            min_seqlen: Any = None, max_seqlen: Any = None) -> Any:
    """A nested tensor over values of which each sequence uses the first items only."""
    return torch._nested.make(values, offsets, lengths, ragged_idx)


def nested_from_padded(padded: Any, offsets: Any, ragged_idx: int = 1, min_seqlen: Any = None, max_seqlen: Any = None,
                       sum_S: Any = None) -> Any:
    """The sequences of a padded tensor as a nested one."""
    counts = (offsets[1:] - offsets[:-1]).tolist()
    rows = [row.narrow(ragged_idx - 1, 0, n) for row, n in zip(padded.unbind(0), counts)]
    return torch._nested.make(torch.cat(rows, ragged_idx - 1), offsets, None, ragged_idx)
