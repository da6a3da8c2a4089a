"""torch.nested: tensors of sequences of different lengths, in the jagged layout."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch

__all__ = ["as_nested_tensor", "masked_select", "narrow", "nested_tensor", "nested_tensor_from_jagged", "to_padded_tensor"]


def _check_layout(layout: Any) -> None:
    if layout is not None and layout != torch.jagged:
        raise NotImplementedError(f"torch.nested: layout {layout} is not available here; use layout=torch.jagged")


def nested_tensor(tensor_list: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
                  requires_grad: bool = False, pin_memory: bool = False) -> Any:
    """A nested tensor with copies of the tensors, without their history. The layout is jagged, whether given or not."""
    _check_layout(layout)
    tensors = [torch.tensor(t, dtype=dtype, device=device) if not isinstance(t, torch.Tensor) else
               t.detach().to(dtype=dtype, device=device) for t in tensor_list]
    made = torch._nested.from_list(tensors, requires_grad)
    return made.pin_memory() if pin_memory else made


def as_nested_tensor(ts: Any, dtype: Any = None, device: Any = None, layout: Any = None) -> Any:
    """A nested tensor of tensors, with their history."""
    _check_layout(layout)
    tensors = ts.unbind(0) if isinstance(ts, torch.Tensor) else ts
    return torch._nested.from_list([torch.as_tensor(t).to(dtype=dtype, device=device) for t in tensors])


def nested_tensor_from_jagged(values: Any, offsets: Any = None, lengths: Any = None, jagged_dim: int | None = None,
                              min_seqlen: int | None = None, max_seqlen: int | None = None) -> Any:
    """A nested tensor over values, whose sequences begin at offsets or have these lengths."""
    if offsets is None and lengths is None:
        raise RuntimeError("nested_tensor_from_jagged(): At least one of offsets or lengths is required.")
    if offsets is None:
        offsets, lengths = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)), None
    return torch._nested.make(values, offsets, lengths, 1 if jagged_dim is None else jagged_dim)


def narrow(tensor: Any, dim: int, start: Any, length: Any, layout: Any = torch.strided) -> Any:
    """The part of each row of a dense tensor that begins at start and has length items along dim 1."""
    if layout != torch.jagged:
        if not (isinstance(start, int) and isinstance(length, int)):
            raise RuntimeError("start and length must be integers for the strided layout NT impl")
        _check_layout(layout)
    if dim != 1:
        raise RuntimeError("jagged layout only supports dim=1")
    starts, lengths = (torch.as_tensor(t, dtype=torch.int64, device=tensor.device) for t in (start, length))
    return torch._nested.narrowed(tensor, starts, lengths)


def masked_select(tensor: Any, mask: Any) -> Any:
    """What a mask keeps of each row of a dense tensor, as a nested tensor."""
    if tensor.layout != torch.strided:
        raise RuntimeError(f"torch.nested.masked_select requires a strided tensor, given {tensor.layout}")
    if mask.layout != torch.strided:
        raise RuntimeError(f"torch.nested.masked_select requires a strided mask, given: {mask.layout}")
    kept = mask.expand(tensor.shape)
    counts = kept.reshape(tensor.shape[0], -1).sum(1) if tensor.dim() > 1 else kept
    offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    return torch._nested.make(tensor.masked_select(mask), offsets)


def to_padded_tensor(input: Any, padding: float, output_size: Any = None, out: Any = None) -> Any:
    """A nested tensor as a dense one, padded at the end of each sequence."""
    if out is not None:
        raise NotImplementedError("to_padded_tensor: out= is not available")
    return input.to_padded_tensor(padding, output_size)
