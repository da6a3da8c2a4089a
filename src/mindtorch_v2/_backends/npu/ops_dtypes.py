"""What rows do in dtypes that their aclnn ops do not take, made of ops that take them: float64, complex64 and integers.

Only where the result has the precision of the dtype; what is missing here CANN rejects by name."""
from __future__ import annotations

import math
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._backends.npu import aclnn
from mindtorch_v2._backends.npu.body import Body
from mindtorch_v2._backends.npu.torch_ops import ops

_INT32, _INT64 = _C._dtype_named("int32"), _C._dtype_named("int64")
_TEMPORARY = 2 ** 22                                         # items of a product that are summed at once


# ---- products --------------------------------------------------------------------------------------------------------
def in_cube(x: Any) -> bool:
    """Whether CANN multiplies matrices of x's dtype."""
    return x.dtype._name in ("float32", "float16", "bfloat16")


def product(self: Any, mat2: Any) -> Any:
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


def _addr(self: Any, vec1: Any, vec2: Any, beta: Any, alpha: Any) -> Any:
    return _plus_product(self, vec1.unsqueeze(-1) * vec2, beta, alpha)


# ---- items that only move: an item of 8 bytes is an int64 ------------------------------------------------------------
def bits(x: Any) -> Any:
    """The items as int64, of a dtype of 8 bytes."""
    return x.detach().view(_INT64)


_OF_SIZE = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}


def _as_integers(x: Any) -> Any:
    return x.detach().view(_C._dtype_named(_OF_SIZE[x.dtype.itemsize]))


def _zero(self: Any) -> Any:
    _as_integers(self).zero_()
    return self


def _fill(self: Any, value: Any) -> Any:
    _as_integers(self).fill_(_as_integers(_C._from_data(value, self.dtype, False)).item())
    return self


def _copy(self: Any, src: Any, _non_blocking: bool) -> Any:
    """copy_ of dtypes that CANN's copy does not take: as bits where none is cast, else by its cast."""
    if self.dtype == src.dtype:
        _as_integers(self).copy_(_as_integers(src))
        return self
    source, _, target = aclnn.signature("aclnnCast")
    if src.dtype._name not in aclnn.dtypes_of(source) or self.dtype._name not in aclnn.dtypes_of(target):
        raise NotImplementedError(f"[copy_] CANN casts no {src.dtype} to {self.dtype}; cast it on the cpu")
    dense = self if self.is_contiguous() else ops.empty(self.shape, dtype=self.dtype, device=self.device)
    aclnn.call("aclnnCast", src.detach().expand(self.shape), self.dtype, dense.detach())
    return self if dense is self else self.copy_(dense)


def _roll(self: Any, shifts: Any, dims: Any) -> Any:
    return bits(self).roll(shifts, dims).view(self.dtype)


def _gather(self: Any, dim: int, index: Any, _sparse_grad: bool) -> Any:
    return bits(self).gather(dim, index).view(self.dtype)


def _masked_fill(self: Any, mask: Any, value: Any) -> Any:
    return ops.where(mask, ops.full((), value, dtype=self.dtype, device=self.device), self)


def _masked_scatter(self: Any, mask: Any, source: Any) -> Any:
    return bits(self).masked_scatter(mask, bits(source)).view(self.dtype)


def _cat(tensors: Any, dim: int) -> Any:
    parts = [ops.view_as_real(x.to(_C._dtype_named("complex128"))) for x in tensors if x.dim() > 1 or x.numel()]
    return ops.view_as_complex(ops.cat(parts, dim if dim >= 0 else dim - 1))


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


def _sort(self: Any, dim: int, descending: bool, stable: bool | None) -> tuple[Any, Any]:
    places = ops.sort(_keys(self), dim, descending, stable=bool(stable))[1]
    return (self.gather(dim, places) if self.dim() else self), places


def _kthvalue(self: Any, k: int, dim: int, keepdim: bool) -> tuple[Any, Any]:
    return _picked(self, dim, keepdim, ops.kthvalue(_keys(self), k, dim, True)[1])


def _max_dim(self: Any, dim: int, keepdim: bool) -> tuple[Any, Any]:
    return self.amax(dim, keepdim), self.argmax(dim, keepdim)


def _min_dim(self: Any, dim: int, keepdim: bool) -> tuple[Any, Any]:
    return self.amin(dim, keepdim), self.argmin(dim, keepdim)


def _median(self: Any) -> Any:
    return self.reshape(-1).median(0)[0] if self.numel() else ops.full((), math.nan, device=self.device)


def _nanmedian(self: Any) -> Any:
    return self.reshape(-1).nanmedian(0)[0] if self.numel() else ops.full((), math.nan, device=self.device)


def _median_dim(self: Any, dim: int, keepdim: bool) -> tuple[Any, Any]:
    first = self.isnan().to(_INT32).argmax(dim, True)        # of equal items: where the first NaN stands, if any does
    return _picked(self, dim, keepdim, ops.where(self.isnan().any(dim, True), first, _middle(self, dim)))


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
def _vector_norm(self: Any, ord: Any, dims: Any, keepdim: bool, _dtype: Any) -> Any:
    size = self.abs()
    dims = (dims,) if isinstance(dims, int) else tuple(dims or range(self.dim()))
    if ord == 0:
        return (size != 0).sum(dims, keepdim)
    if math.isinf(ord):
        return size.amax(dims, keepdim) if ord > 0 else size.amin(dims, keepdim)
    return size.sum(dims, keepdim) if ord == 1 else size.pow(ord).sum(dims, keepdim).pow(1 / ord)


def _nansum(self: Any, dim: Any, keepdim: bool, _dtype: Any) -> Any:
    return ops.where(self != self, 0.0, self).sum(dim, keepdim)


def _logsumexp(self: Any, dim: Any, keepdim: bool) -> Any:
    if not self.numel():
        return self.sum(dim, keepdim).log()
    top = self.amax(dim, True)
    top = ops.where(top.isfinite(), top, 0.0)
    made = (self - top).exp().sum(dim, True).log() + top
    return made if keepdim else made.reshape(self.sum(dim).shape)


def _equal(self: Any, other: Any) -> Any:
    same = tuple(self.shape) == tuple(other.shape)
    return (self == other).all() if same else ops.zeros((), dtype=_C._dtype_named("bool"), device=self.device)


# ---- item by item ----------------------------------------------------------------------------------------------------
def _logical_not(self: Any) -> Any:
    return self == 0


def _isfinite(self: Any) -> Any:
    return ops.view_as_real(self).isfinite().all(-1)


def _isinf(self: Any) -> Any:
    return ops.view_as_real(self).isinf().any(-1)


def _abs(self: Any) -> Any:
    return ops.hypot(*ops.view_as_real(self).unbind(-1))


def _addcmul(self: Any, tensor1: Any, tensor2: Any, value: Any) -> Any:
    return self + value * tensor1 * tensor2


def _addcdiv(self: Any, tensor1: Any, tensor2: Any, value: Any) -> Any:
    return self + value * tensor1 / tensor2


def _lerp(self: Any, end: Any, weight: Any) -> Any:
    return self + weight * (end - self)


def _relu(self: Any) -> Any:
    return self.clamp(min=0)


def _frac(self: Any) -> Any:
    return self - self.trunc()


def _tanh(self: Any) -> Any:
    """sinh / cosh, held where both are finite: beyond 20 tanh is 1 to the last digit."""
    if self.is_complex():
        real, imag = ops.view_as_real(self).unbind(-1)
        self = ops.complex(real.clamp(-20, 20), imag)
    else:
        self = self.clamp(-20, 20)
    return self.sinh() / self.cosh()


def _expm1(self: Any) -> Any:
    if self.is_complex():
        real, imag = ops.view_as_real(self).unbind(-1)
        half = (imag / 2).sin()
        return ops.complex(real.expm1() * imag.cos() - 2 * half * half, real.exp() * imag.sin())
    power = self.exp()                                       # Kahan's way: the error of power - 1 is that of its log
    found = (power - 1) * self / ops.where(power == 1, 1.0, power.log())
    return ops.where(power == 1, self, ops.where((power == 0) | (power == math.inf), power - 1, found))


def _log10(self: Any) -> Any:
    return self.log() / math.log(10)


def _log1p(self: Any) -> Any:
    real, imag = ops.view_as_real(self).unbind(-1)
    return ops.complex((real * (2 + real) + imag * imag).log1p() / 2, ops.atan2(imag, 1 + real))


def _exp2(self: Any) -> Any:
    return (self * math.log(2)).exp()


def _logaddexp(self: Any, other: Any) -> Any:
    least = -(self - other).abs()
    return ops.where(self == other, self + math.log(2), ops.maximum(self, other) + least.exp().log1p())


def _logaddexp2(self: Any, other: Any) -> Any:
    least = -(self - other).abs()
    return ops.where(self == other, self + 1, ops.maximum(self, other) + least.exp2().log1p() / math.log(2))


def _logit(self: Any, eps: float | None) -> Any:
    self = self if eps is None or eps < 0 else self.clamp(eps, 1 - eps)
    return (self / (1 - self)).log()


BODIES = {name: Body(fallback=function) for name, function in {   # type: ignore[arg-type]
    "_equal": _equal, "_logsumexp": _logsumexp, "_masked_fill": _masked_fill, "_masked_scatter": _masked_scatter,
    "_masked_scatter_": _masked_scatter, "_median": _median, "_nanmedian": _nanmedian, "abs": _abs,
    "addcdiv": _addcdiv, "addcmul": _addcmul, "addmm": plus_product, "addr": _addr, "baddbmm": plus_product,
    "bmm": product, "cat": _cat, "copy_": _copy, "dot": product, "exp2": _exp2, "expm1": _expm1,
    "fill_.Scalar": _fill, "frac": _frac, "gather": _gather, "index_add": _index_add,
    "isfinite": _isfinite, "isinf": _isinf, "kthvalue": _kthvalue, "lerp.Tensor": _lerp,
    "linalg_vector_norm": _vector_norm, "log10": _log10, "log1p": _log1p, "logaddexp": _logaddexp,
    "logaddexp2": _logaddexp2, "logical_not": _logical_not, "logit": _logit, "masked_fill_.Scalar": _masked_fill,
    "matmul": product, "max.dim": _max_dim, "median.dim": _median_dim, "min.dim": _min_dim, "mm": product,
    "mv": product, "nanmedian.dim": _nanmedian_dim, "nansum": _nansum, "relu": _relu, "roll": _roll, "sort": _sort,
    "tanh": _tanh, "zero_": _zero,
}.items()}
