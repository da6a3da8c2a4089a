"""Rows of indexing by masks, of where the nonzero items are, and of copies with a part replaced."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._C import _core as core
from mindtorch_v2._ops import batching, batching_nn, forward
from mindtorch_v2._ops.reduce import BOOL, word
from mindtorch_v2._ops.table import composite, op, ops
from mindtorch_v2._ops.view import wrap
from mindtorch_v2._shape import broadcast
from mindtorch_v2._tensor import Tensor

# ---- masks -------------------------------------------------------------------------------------------------------
op("_masked_select(Tensor self, Tensor mask) -> Tensor", variants="", batch=batching_nn.selected_by_mask,
   npu="aclnnMaskedSelect(self, mask, out)",
   grad={"self": lambda g, self, mask:
         g.new_zeros(broadcast(self.shape, mask.shape)).masked_scatter(mask, g)})


def _selected_into(out: Tensor, self: Tensor, mask: Tensor) -> Tensor:
    if out.dtype is not self.dtype:
        raise RuntimeError("masked_select(): self and result must have the same scalar type")
    if out is mask:
        raise RuntimeError("unsupported operation: some elements of the input tensor and the written-to tensor refer to a single "
                           "memory location. Please clone() the tensor before performing the operation.")
    return ops.masked_select(self, mask)


@composite("masked_select(Tensor self, Tensor mask) -> Tensor", out=("apart", _selected_into))
def _masked_select(self: Tensor, mask: Tensor) -> Tensor:
    """The items of self where mask is true, in one dim."""
    if mask.dtype is not BOOL:
        raise RuntimeError("masked_select: expected BoolTensor for mask")
    return ops._masked_select(self, mask)


def _check_mask(name: str, self: Tensor, mask: Tensor) -> None:
    if mask.dtype is not BOOL:
        raise RuntimeError(f"{name} only supports boolean masks, but got mask with dtype {core._c_word(mask.dtype)}")
    shape = broadcast(self.shape, mask.shape)
    if shape != tuple(self.shape):
        raise RuntimeError(f"output with shape {list(self.shape)} doesn't match the broadcast shape {list(shape)}")


def _check_fill(self: Tensor, mask: Tensor, value: complex) -> None:
    _check_mask("masked_fill_", self, mask)
    core._check_fits(value, self.dtype)


def widened(self: Tensor, mask: Tensor) -> Tensor:
    """self, expanded to what it and the mask broadcast to."""
    if mask.dim() <= self.dim() and mask.shape == self.shape:
        return self
    shape = broadcast(mask.shape, self.shape)
    return self if shape == tuple(self.shape) else self.expand(shape).contiguous()


op("_masked_fill(Tensor self, Tensor mask, Scalar value) -> Tensor",
   batch=batching.masked, kernel="masked_fill", copies_self=True, variants="", format="=self",
   rule=_check_fill, npu="aclnnInplaceMaskedFillScalar(out, mask, value)",
   grad={"self": lambda g, mask: g.masked_fill(mask, 0)})


def _check_value(self: Tensor, value: Tensor) -> None:
    if value.dim() != 0:
        raise RuntimeError("masked_fill_ only supports a 0-dimensional value tensor, but got tensor with "
                           f"{value.dim()} dimension(s).")
    if value.requires_grad and value.device.type == "cpu" and value._readable and self.numel():
        core._check_fits(value.item(), self.dtype)           # of others the number itself goes to the kernel


@composite("masked_fill_.Tensor(Tensor(a!) self, Tensor mask, Tensor value) -> Tensor(a!)", variants="method")
def _masked_fill_tensor_(self: Tensor, mask: Tensor, value: Tensor) -> Tensor:
    """Writes value where mask is true."""
    _check_value(self, value)
    if not value.requires_grad and value.device.type == "cpu" and value._readable:
        return self.masked_fill_(mask, value.item())
    _check_mask("masked_fill_", self, mask)
    return self.copy_(ops.where(mask, value.to(self.dtype), self))


@composite("masked_fill.Tensor(Tensor self, Tensor mask, Tensor value) -> Tensor", out=False)
def _masked_fill_tensor(self: Tensor, mask: Tensor, value: Tensor) -> Tensor:
    """A copy of self with value where mask is true."""
    _check_value(self, value)
    if not value.requires_grad and value.device.type == "cpu" and value._readable:
        return ops._masked_fill(widened(self, mask).contiguous(), mask, value.item())
    self = widened(self, mask)
    _check_mask("masked_fill", self, mask)
    return ops.where(mask, value.to(self.dtype), self.contiguous())


@composite("masked_fill.Scalar(Tensor self, Tensor mask, Scalar value) -> Tensor", out=False)
def _masked_fill(self: Tensor, mask: Tensor, value: float) -> Tensor:
    return ops._masked_fill(widened(self, mask).contiguous(), mask, value)      # in no other format, as torch's


op("masked_fill_.Scalar(Tensor(a!) self, Tensor mask, Scalar value) -> Tensor(a!)",
   batch=batching.pointwise, kernel="masked_fill",
   variants="method", rule=_check_fill, guard="mask", npu="aclnnInplaceMaskedFillScalar(self, mask, value)",
   grad={"self": lambda g, mask: g.masked_fill(mask, 0)})


def _check_scatter(self: Tensor, mask: Tensor, source: Tensor) -> None:
    if self.dtype is not source.dtype:
        raise RuntimeError(f"masked_scatter: expected self and source to have same dtypes but got{word(self.dtype)} and "
                           f"{word(source.dtype)}")
    if mask.dtype is not BOOL:
        raise RuntimeError(f"masked_scatter_ only supports boolean masks, but got mask with dtype {word(mask.dtype)}")
    _check_mask("masked_scatter_", self, mask)


def _scattered(g: Tensor, mask: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The gradient of masked_scatter's source: what stands under the mask, then zeros."""
    count = 1
    for n in shape:
        count *= n
    taken = g.masked_select(mask)
    if taken.numel() < count:
        taken = ops.cat([taken, taken.new_zeros((count - taken.numel(),))])
    return taken.reshape(shape)


_SCATTER: dict[str, Any] = {"self": lambda g, mask: g.masked_fill(mask, 0),
            "source": lambda g, mask, source_shape: _scattered(g, mask, source_shape)}
op("_masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor", kernel="masked_scatter", copies_self=True,
   variants="", rule=_check_scatter, npu="aclnnInplaceMaskedScatter(out, mask, source)", grad=_SCATTER,
   batch=batching_nn.scattered_by_mask)
op("_masked_scatter_(Tensor(a!) self, Tensor mask, Tensor source) -> Tensor(a!)", kernel="masked_scatter",
   variants="", rule=_check_scatter, npu="aclnnInplaceMaskedScatter(self, mask, source)", grad=_SCATTER,
   batch=batching_nn.scattered_by_mask)


@composite("masked_scatter_(Tensor(a!) self, Tensor mask, Tensor source) -> Tensor(a!)", variants="method")
def _masked_scatter_(self: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Writes source's items, one after the other, where mask is true."""
    _check_scatter(self, mask, source)
    return ops._masked_scatter_(self, mask.expand(self.shape), source)


@composite("masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor", lacks="complex32", out=False)
def _masked_scatter(self: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy of self with source's items, one after the other, where mask is true."""
    self = widened(self, mask)
    _check_scatter(self, mask, source)
    return ops._masked_scatter(self, mask.expand(self.shape), source)


# ---- where the items are -----------------------------------------------------------------------------------------
op("_nonzero(Tensor self) -> Tensor", variants="", npu="aclnnNonzeroV2(self, out)")


@composite("nonzero(Tensor self, *, bool as_tuple=False) -> Tensor", batch=batching.dynamic,
           out=("apart", "nonzero: Expected out tensor to have scalar type {result} but got scalar type{out}"))
def _nonzero(self: Tensor, as_tuple: bool) -> Tensor | tuple[Tensor, ...]:
    """The indices of the items that are not zero: one row each, or one tensor per dim."""
    if not as_tuple:
        return ops._nonzero(self)
    return ops._nonzero(self if self.dim() else self.unsqueeze(0)).t().contiguous().unbind(0)


@composite("argwhere(Tensor self) -> Tensor", out=False)
def _argwhere(self: Tensor) -> Tensor:
    """The indices of the items that are not zero, one row each."""
    return ops._nonzero(self)


@composite("nonzero_static(Tensor self, *, SymInt size, int fill_value=-1) -> Tensor")
def _nonzero_static(self: Tensor, size: int, fill_value: int) -> Tensor:
    """As nonzero, cut or filled up to a number of rows."""
    if size < 0:
        raise RuntimeError("nonzero_static: 'size' must be an non-negative integer")
    if self.is_meta:
        return ops.empty((size, self.dim()), dtype=_C._dtype_named("int64"), device=self.device)
    found = ops._nonzero(self)[:size]
    if found.size(0) == size:
        return found.contiguous()
    return ops.cat([found, found.new_full((size - found.size(0), self.dim()), fill_value)])


# ---- a part replaced ---------------------------------------------------------------------------------------------
def _refuse_complex_history(name: str, *tensors: Tensor) -> None:
    """torch has no derivative of these for complex numbers, and says so at once."""
    if _C._is_grad_enabled() and any(x.requires_grad and x.is_complex() for x in tensors):
        raise RuntimeError(f"{name} does not support automatic differentiation for outputs with complex dtype.")


def _replaced(self: Tensor, src: Tensor, part_of: Callable[..., Any], what: str) -> Tensor:
    result = batching.copied_beside(self, src)
    part = part_of(result)
    if part.shape != src.shape:
        raise RuntimeError(f"expected src to have a size equal to the {what} of self. src size = {list(src.shape)}, "
                           f"{what} size = {list(part.shape)}")
    part.copy_(src)
    return result


@composite("select_scatter(Tensor self, Tensor src, int dim, SymInt index) -> Tensor", out=False, forward=forward.linear,
           whole="unrecorded")
def _select_scatter(self: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy of self with src at index along dim."""
    _refuse_complex_history("select_scatter", self, src)
    return _replaced(self, src, lambda x: x.select(dim, index), "slice")


@composite("slice_scatter(Tensor self, Tensor src, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) "
           "-> Tensor", forward=forward.linear, out="exact", whole="unrecorded")
def _slice_scatter(self: Tensor, src: Tensor, dim: int, start: int | None, end: int | None, step: int) -> Tensor:
    """A copy of self with src in a slice along dim."""
    _refuse_complex_history("slice_scatter", self, src)
    wrap(dim, self.dim())
    return _replaced(self, src, lambda x: ops.slice(x, dim, start, end, step), "slice")


@composite("diagonal_scatter(Tensor self, Tensor src, int offset=0, int dim1=0, int dim2=1) -> Tensor", out=False,
           forward=forward.linear, whole="unrecorded")
def _diagonal_scatter(self: Tensor, src: Tensor, offset: int, dim1: int, dim2: int) -> Tensor:
    """A copy of self with src on a diagonal."""
    return _replaced(self, src, lambda x: x.diagonal(offset, dim1, dim2), "slice")


@composite("as_strided_scatter(Tensor self, Tensor src, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) "
           "-> Tensor", out=False, forward=forward.linear, whole="unrecorded")
def _as_strided_scatter(self: Tensor, src: Tensor, size: Sequence[int], stride: Sequence[int],
                        storage_offset: int | None) -> Tensor:
    """A copy of self with src at given strides."""
    return _replaced(self, src, lambda x: x.as_strided(size, stride, storage_offset), "slice")
