"""Rows of torch_npu's dropout: masks of one bit an item, eight to a byte, and masks of a byte an item."""
from __future__ import annotations

from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._ops.npu.rows import UINT8, row, wide
from mindtorch_v2._ops.table import ops
from mindtorch_v2._tensor import Tensor

_ALIGNED = 128                                   # bits; CANN's masks are whole multiples


def kept_of(mask: Any, count: int) -> Tensor:
    """The first bits of a mask as one bool each."""
    places = ops.arange(8, device=mask.device).to(UINT8)
    return (mask.reshape(-1, 1) >> places & 1).reshape(-1)[:count].bool()


def _kept(mask: Tensor, shape: Any) -> Tensor:
    return kept_of(mask, shape.numel()).reshape(shape)


def drawn_mask(count: int, p: float, device: str | _C.device | None, seed: int | None = None) -> Tensor:
    """A mask of bits that are 1 with probability 1 - p; those after the last item are 0. Of one seed it is always the same."""
    whole = (count + _ALIGNED - 1) // _ALIGNED * _ALIGNED
    generator = None if seed is None else _C.GeneratorBase(device).manual_seed(seed)
    kept = ops.rand([whole], device=device, generator=generator) >= p
    kept = kept & (ops.arange(whole, device=device) < count)
    places = ops.arange(8, device=device).to(UINT8)
    return (kept.reshape(-1, 8).to(UINT8) << places).sum(-1).to(UINT8)


def _applied(x: Tensor, kept: Tensor, p: float) -> Tensor:
    return ops.zeros_like(x) if p == 1 else (wide(x) * kept / (1 - p)).to(x.dtype)


@row()
def npu_dropout_gen_mask(size: list[int], p: float, dtype: Any, layout: _C.layout | None, device: str | None,
                         pin_memory: bool | None) -> Tensor:
    """A mask for a tensor of that size, one bit an item."""
    count = 1
    for n in size:
        count *= n
    return drawn_mask(count, p, device)


@row()
def npu_dropout_do_mask(input: Tensor, mask: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """The input without the items whose bit is 0, the others scaled; and the mask."""
    return _applied(input, _kept(mask, input.shape), p), mask


@row()
def npu_dropout_backward(grad_output: Tensor, mask: Tensor, p: float) -> Tensor:
    """The gradient of _npu_dropout."""
    return _applied(grad_output, _kept(mask, grad_output.shape), p)


@row()
def _npu_dropout(input: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """The input with items dropped at random, and the mask, one bit an item."""
    mask = drawn_mask(input.numel(), p, input.device)
    return _applied(input, _kept(mask, input.shape), p), mask


@row()
def _dropout_with_byte_mask(input: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """The input with items dropped at random, and the mask, a byte an item."""
    mask = (ops.rand(input.shape, device=input.device) >= p).to(UINT8)
    return _applied(input, mask, p), mask


@row()
def _dropout_with_byte_mask_backward(grad_output: Tensor, mask: Tensor, p: float) -> Tensor:
    """The gradient of _dropout_with_byte_mask."""
    return _applied(grad_output, mask, p)


@row()
def dropout_with_byte_mask(input: Tensor, p: float, train: bool) -> Tensor:
    """dropout."""
    return _dropout_with_byte_mask(input, p)[0] if train else input.clone()
