"""What aclnn ops do in dtypes that CANN does not take, made of ops that take them: float64, complex64 and integers.

Only where the result is as good as the dtype; what is missing here CANN refuses by name."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._backends.npu import aclnn
from mindtorch_v2._backends.npu.ops import ops

_INT32, _INT64 = _C._dtype_named("int32"), _C._dtype_named("int64")
_TEMPORARY = 2 ** 22                                         # items of a product that are summed at once


def substitute(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function of an aclnn op's inputs, in CANN's order, that gives what its outputs become."""
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            aclnn.SUBSTITUTES[name] = lambda *given, name=name: _run(function, aclnn.signature(name), given)
        return function
    return register


def _run(function: Callable[..., Any], signature: tuple[aclnn.Argument, ...], given: tuple[Any, ...]) -> None:
    outs = [x for argument, x in zip(signature, given, strict=True) if argument.kind in ("out", "inout")]
    before = _C._is_grad_enabled()
    _C._set_grad_enabled(False)                              # the row records its own gradient
    try:
        made = function(*(x for argument, x in zip(signature, given, strict=True) if argument.kind != "out"))
        for out, value in zip(outs, made if isinstance(made, tuple) else (made,), strict=True):
            if out is not None:
                out.copy_(value)
    finally:
        _C._set_grad_enabled(before)


# ---- products --------------------------------------------------------------------------------------------------------
def in_cube(x: Any) -> bool:
    """Whether CANN multiplies matrices of x's dtype."""
    return x.dtype._name in ("float32", "float16", "bfloat16")


@substitute("aclnnMatmul", "aclnnMm", "aclnnBatchMatMul", "aclnnMv", "aclnnDot")
def product(self: Any, mat2: Any, *_: Any) -> Any:
    """torch.matmul. Integers wrap as torch's do, which no detour over floats would give."""
    if self.is_complex():
        (a, b), (c, d) = (ops.view_as_real(x).unbind(-1) for x in (self, mat2))
        return ops.complex(ops.matmul(a, c) - ops.matmul(b, d), ops.matmul(a, d) + ops.matmul(b, c))
    rows = self.unsqueeze(0) if self.dim() == 1 else self
    columns = (mat2.unsqueeze(-1) if mat2.dim() == 1 else mat2).unsqueeze(-3)
    one_row = max(1, columns.numel(), rows.numel() // max(1, rows.size(-2)) * columns.size(-1))
    parts = rows.split(max(1, _TEMPORARY // one_row), -2)
    made = ops.cat([(part.unsqueeze(-1) * columns).sum(-2, dtype=self.dtype) for part in parts], -2)
    made = made.squeeze(-2) if self.dim() == 1 else made
    return made.squeeze(-1) if mat2.dim() == 1 else made


def _plus_product(self: Any, made: Any, beta: Any, alpha: Any) -> Any:
    if not made.is_floating_point() and not made.is_complex():
        beta, alpha = int(beta), int(alpha)
    made = made if alpha == 1 else made * alpha
    return made if beta == 0 else self * beta + made         # 0 hides NaN in self


def plus_product(self: Any, mat1: Any, mat2: Any, beta: Any, alpha: Any) -> Any:
    """beta * self + alpha * (mat1 @ mat2)"""
    return _plus_product(self, product(mat1, mat2), beta, alpha)


@substitute("aclnnAddr")
def _addr(self: Any, vec1: Any, vec2: Any, beta: Any, alpha: Any) -> Any:
    return _plus_product(self, vec1.unsqueeze(-1) * vec2, beta, alpha)


# ---- items that only move: an item of 8 bytes is an int64 ------------------------------------------------------------
def bits(x: Any) -> Any:
    """The items as int64, of a dtype of 8 bytes."""
    return x.detach().view(_INT64)


@substitute("aclnnRoll")
def _roll(self: Any, shifts: Any, dims: Any) -> Any:
    return bits(self).roll(shifts, dims).view(self.dtype)


@substitute("aclnnGather")
def _gather(self: Any, dim: int, index: Any) -> Any:
    return bits(self).gather(dim, index).view(self.dtype)


@substitute("aclnnInplaceMaskedFillScalar")
def _masked_fill(self: Any, mask: Any, value: Any) -> Any:
    return ops.where(mask, ops.full((), value, dtype=self.dtype, device=self.device), self)


@substitute("aclnnInplaceMaskedScatter")
def _masked_scatter(self: Any, mask: Any, source: Any) -> Any:
    return bits(self).masked_scatter(mask, bits(source)).view(self.dtype)


@substitute("aclnnCat")
def _cat(tensors: Any, dim: int) -> Any:
    parts = [ops.view_as_real(x.to(_C._dtype_named("complex128"))) for x in tensors if x.dim() > 1 or x.numel()]
    return ops.view_as_complex(ops.cat(parts, dim if dim >= 0 else dim - 1))


@substitute("aclnnIndexAdd")
def _index_add(self: Any, dim: int, index: Any, source: Any, alpha: Any) -> Any:
    dim %= max(self.dim(), 1)
    if self.dim() == 0:
        return self + source.sum() * alpha
    parts = ops.view_as_real(self).index_add(dim, index, ops.view_as_real((source * alpha).contiguous()))
    return ops.view_as_complex(parts)


# ---- order -----------------------------------------------------------------------------------------------------------
def _keys(x: Any) -> Any:
    """Integers in the order of float64 items: NaN last, zeros equal. The map is its own inverse but for those."""
    x = ops.where(x == 0, 0.0, ops.where(x != x, math.nan, x))
    return _turned(bits(x))


def _turned(keys: Any) -> Any:
    return ops.where(keys < 0, keys ^ (2 ** 63 - 1), keys)


@substitute("aclnnSort")
def _sort(self: Any, stable: bool, dim: int, descending: bool) -> tuple[Any, Any]:
    places = ops.sort(_keys(self), dim, descending, stable=stable)[1]
    return (self.gather(dim, places) if self.dim() else self), places


@substitute("aclnnKthvalue")
def _kthvalue(self: Any, k: int, dim: int, keepdim: bool) -> tuple[Any, Any]:
    return _picked(self, dim, keepdim, ops.kthvalue(_keys(self), k, dim, True)[1])


@substitute("aclnnMaxDim")
def _max_dim(self: Any, dim: int, keepdim: bool) -> tuple[Any, Any]:
    return self.amax(dim, keepdim), self.argmax(dim, keepdim)


@substitute("aclnnMinDim")
def _min_dim(self: Any, dim: int, keepdim: bool) -> tuple[Any, Any]:
    return self.amin(dim, keepdim), self.argmin(dim, keepdim)


@substitute("aclnnMedian")
def _median(self: Any) -> Any:
    return self.reshape(-1).median(0)[0] if self.numel() else ops.full((), math.nan, device=self.device)


@substitute("aclnnNanMedian")
def _nanmedian(self: Any) -> Any:
    return self.reshape(-1).nanmedian(0)[0] if self.numel() else ops.full((), math.nan, device=self.device)


@substitute("aclnnMedianDim")
def _median_dim(self: Any, dim: int, keepdim: bool) -> tuple[Any, Any]:
    first = self.isnan().to(_INT32).argmax(dim, True)        # of equal items: where the first NaN stands, if any does
    return _picked(self, dim, keepdim, ops.where(self.isnan().any(dim, True), first, _middle(self, dim)))


@substitute("aclnnNanMedianDim")
def _nanmedian_dim(self: Any, dim: int, keepdim: bool) -> tuple[Any, Any]:
    count = (~self.isnan()).sum(dim, True)                   # sorted, NaN stands behind them
    order = ops.sort(_keys(self), dim, stable=True)[1]
    return _picked(self, dim, keepdim, order.gather(dim, ((count - 1) // 2).clamp(min=0)) if self.dim() else order)


def _middle(self: Any, dim: int) -> Any:
    return ops.median(_keys(self), dim, True)[1]


def _picked(self: Any, dim: int, keepdim: bool, places: Any) -> tuple[Any, Any]:
    values = self.gather(dim, places) if self.dim() else self
    return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))


# ---- reductions ------------------------------------------------------------------------------------------------------
@substitute("aclnnLinalgVectorNorm")
def _vector_norm(self: Any, ord: Any, dims: Any, keepdim: bool, _dtype: Any) -> Any:
    size = self.abs()
    dims = (dims,) if isinstance(dims, int) else tuple(dims or range(self.dim()))
    if ord == 0:
        return (size != 0).sum(dims, keepdim)
    if math.isinf(ord):
        return size.amax(dims, keepdim) if ord > 0 else size.amin(dims, keepdim)
    return size.sum(dims, keepdim) if ord == 1 else size.pow(ord).sum(dims, keepdim).pow(1 / ord)


@substitute("aclnnReduceNansum")
def _nansum(self: Any, dim: Any, keepdim: bool, _dtype: Any) -> Any:
    return ops.where(self != self, 0.0, self).sum(dim, keepdim)


@substitute("aclnnLogSumExp")
def _logsumexp(self: Any, dim: Any, keepdim: bool) -> Any:
    if not self.numel():
        return self.sum(dim, keepdim).log()
    top = self.amax(dim, True)
    top = ops.where(top.isfinite(), top, 0.0)
    made = (self - top).exp().sum(dim, True).log() + top
    return made if keepdim else made.reshape(self.sum(dim).shape)


@substitute("aclnnEqual")
def _equal(self: Any, other: Any) -> Any:
    same = tuple(self.shape) == tuple(other.shape)
    return (self == other).all() if same else ops.zeros((), dtype=_C._dtype_named("bool"), device=self.device)


# ---- item by item ----------------------------------------------------------------------------------------------------
@substitute("aclnnLogicalNot")
def _logical_not(self: Any) -> Any:
    return self == 0


@substitute("aclnnIsFinite")
def _isfinite(self: Any) -> Any:
    return ops.view_as_real(self).isfinite().all(-1)


@substitute("aclnnIsInf")
def _isinf(self: Any) -> Any:
    return ops.view_as_real(self).isinf().any(-1)


@substitute("aclnnAbs")
def _abs(self: Any) -> Any:
    return ops.hypot(*ops.view_as_real(self).unbind(-1))


@substitute("aclnnAddcmul")
def _addcmul(self: Any, tensor1: Any, tensor2: Any, value: Any) -> Any:
    return self + value * tensor1 * tensor2


@substitute("aclnnAddcdiv")
def _addcdiv(self: Any, tensor1: Any, tensor2: Any, value: Any) -> Any:
    return self + value * tensor1 / tensor2


@substitute("aclnnLerp", "aclnnLerps")
def _lerp(self: Any, end: Any, weight: Any) -> Any:
    return self + weight * (end - self)


@substitute("aclnnRelu")
def _relu(self: Any) -> Any:
    return self.clamp(min=0)


@substitute("aclnnFrac")
def _frac(self: Any) -> Any:
    return self - self.trunc()


@substitute("aclnnTanh")
def _tanh(self: Any) -> Any:
    """sinh / cosh, held where both are finite: beyond 20 tanh is 1 to the last digit."""
    if self.is_complex():
        real, imag = ops.view_as_real(self).unbind(-1)
        self = ops.complex(real.clamp(-20, 20), imag)
    else:
        self = self.clamp(-20, 20)
    return self.sinh() / self.cosh()


@substitute("aclnnExpm1")
def _expm1(self: Any) -> Any:
    if self.is_complex():
        real, imag = ops.view_as_real(self).unbind(-1)
        half = (imag / 2).sin()
        return ops.complex(real.expm1() * imag.cos() - 2 * half * half, real.exp() * imag.sin())
    power = self.exp()                                       # Kahan's way: the error of power - 1 is that of its log
    found = (power - 1) * self / ops.where(power == 1, 1.0, power.log())
    return ops.where(power == 1, self, ops.where((power == 0) | (power == math.inf), power - 1, found))


@substitute("aclnnLog10")
def _log10(self: Any) -> Any:
    return self.log() / math.log(10)


@substitute("aclnnLog1p")
def _log1p(self: Any) -> Any:
    real, imag = ops.view_as_real(self).unbind(-1)
    return ops.complex((real * (2 + real) + imag * imag).log1p() / 2, ops.atan2(imag, 1 + real))


@substitute("aclnnExp2")
def _exp2(self: Any) -> Any:
    return (self * math.log(2)).exp()


@substitute("aclnnLogAddExp")
def _logaddexp(self: Any, other: Any) -> Any:
    least = -(self - other).abs()
    return ops.where(self == other, self + math.log(2), ops.maximum(self, other) + least.exp().log1p())


@substitute("aclnnLogAddExp2")
def _logaddexp2(self: Any, other: Any) -> Any:
    least = -(self - other).abs()
    return ops.where(self == other, self + 1, ops.maximum(self, other) + least.exp2().log1p() / math.log(2))


@substitute("aclnnLogit")
def _logit(self: Any, eps: float) -> Any:
    self = self if eps < 0 else self.clamp(eps, 1 - eps)
    return (self / (1 - self)).log()
