"""Rows of the scans along one dim, and of what follows from neighbours: differences and trapezoids."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._dtype import finfo
from mindtorch_v2._ops import batching, forward
from mindtorch_v2._ops.pointwise import conj
from mindtorch_v2._ops.reduce import BOOL, INT64, in_out_dtype, is_float, refuse_complex, word
from mindtorch_v2._ops.table import Spec, alias, composite, op, ops
from mindtorch_v2._ops.view import wrap
from mindtorch_v2._tensor import Tensor


# ---- scans -------------------------------------------------------------------------------------------------------
def _scan_rule(self: Tensor, dim: int, dtype: _C.dtype | None) -> Spec:
    wrap(dim, self.dim())
    return self.shape, dtype if dtype is not None else self.dtype if is_float(self.dtype) else INT64


def _extreme_rule(name: str) -> Callable[..., Any]:
    def rule(self: Tensor, dim: int) -> Sequence[Spec]:
        wrap(dim, self.dim())
        refuse_complex(name + "_cpu", self)
        return [(self.shape, self.dtype), (self.shape, INT64)]
    return rule


def _logcumsumexp_rule(self: Tensor, dim: int) -> Spec:
    wrap(dim, self.dim())
    if not is_float(self.dtype):
        raise NotImplementedError(f'"logcumsumexp_out_cpu" not implemented for \'{word(self.dtype)}\'')
    return self.shape, self.dtype


def _from_the_end(x: Tensor, dim: int) -> Tensor:
    """The running sum from the other end."""
    return x.clone() if x.dim() == 0 else x.flip(dim).cumsum(dim).flip(dim)


def _cumprod_grad(g: Tensor, self: Tensor, dim: int, result: Tensor) -> Tensor:
    if self.numel() <= 1 or self.size(dim) == 1:
        return g.clone()
    zero = self == 0
    if zero._readable and not bool(zero.any()):
        return _from_the_end(g * conj(result), dim) / conj(self)
    if _C._is_grad_enabled():
        return _cumprod_slopes(g, self, dim)
    # Before the first zero as usual, after it nothing; at the first zero the product of the others counts.
    seen = zero.cumsum(dim)
    first = zero & (seen == 1)
    filled = self.masked_fill(first, 1)
    before = _from_the_end(g * conj(result), dim) / conj(self.masked_fill(zero, 1))
    at = _from_the_end((g * conj(filled.cumprod(dim))).masked_fill(seen == 0, 0), dim)
    return ops.where(first, at, before.masked_fill(seen > 0, 0))


def _cumprod_slopes(g: Tensor, x: Any, dim: Any) -> Any:
    """The same for gradients of gradients: one scan for every item along dim."""
    n, slopes = x.size(dim), []
    if x.numel() == 0:
        return ops.zeros_like(x)
    for k in range(n):
        rest = g.narrow(dim, k, n - k)
        head = x.narrow(dim, 0, k).prod(dim, True)
        if k + 1 < n:
            tail = ops.cat([ops.ones_like(head), x.narrow(dim, k + 1, n - k - 1)], dim).cumprod(dim)
            head = head * tail
        slopes.append((rest * conj(head)).sum(dim, True))
    return ops.cat(slopes, dim)


def _logcumsumexp_grad(g: Tensor, self: Tensor, dim: int, result: Tensor) -> Tensor:
    if self.numel() == 0:
        return g

    def back(log_g: Tensor) -> Tensor:
        if self.dim() == 0:
            return log_g.exp()
        return ((log_g - result).flip(dim).logcumsumexp(dim).flip(dim) + self).exp()

    if self.is_complex():
        return conj(back(conj(g).log()))
    log_g = g.abs().log()
    none = finfo(g.dtype).min                    # not -inf: inf - inf is NaN
    return back(ops.where(g > 0, log_g, none)) - back(ops.where(g < 0, log_g, none))


_SCALAR_TYPE = "expected scalar_type {result} but found {out}"     # of an out= of another dtype
op("cumsum(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor",
   batch=batching.dims, forward=forward.linear, autocast={"npu": "float32 result"},
   rule=_scan_rule, inplace="method", out=in_out_dtype("cumsum"),
   npu="aclnnCumsum(self, dim, dtype, out)", grad={"self": lambda g, dim: _from_the_end(g, dim)})
op("cumprod(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor",
   batch=batching.dims, autocast={"npu": "float32 result"},
   rule=_scan_rule, inplace="method", out=in_out_dtype("cumprod"),
   npu="aclnnCumprod(self, dim, dtype, out)",
   grad={"self": lambda g, self, dim, result: _cumprod_grad(g, self, dim, result)})
op("logcumsumexp(Tensor self, int dim) -> Tensor",
   batch=batching.dims, forward=forward.running_logsumexp, rule=_logcumsumexp_rule, out=_SCALAR_TYPE,
   grad={"self": lambda g, self, dim, result: _logcumsumexp_grad(g, self, dim, result)})
for _name, _camel in (("cummax", "Cummax"), ("cummin", "Cummin")):
    op(f"{_name}(Tensor self, int dim) -> (Tensor values, Tensor indices)",
       batch=batching.dims, rule=_extreme_rule(_name), out=_SCALAR_TYPE,
       npu=f"aclnn{_camel}(self, dim, values, indices)",
       grad={"self": lambda g, self, dim, result1:
             g.clone() if not self.dim() else g.new_zeros(self.shape).scatter_add(dim, result1, g)})


# ---- neighbours --------------------------------------------------------------------------------------------------
def _check_more(self: Tensor, dim: int, more: list[Tensor]) -> None:
    for x in more:
        if x.dim() != self.dim():
            raise RuntimeError("diff expects prepend or append to be the same dimension as input")
        for d, (theirs, ours) in enumerate(zip(x.shape, self.shape)):
            if d != dim and theirs != ours:
                raise RuntimeError("diff expects the shape of tensor to prepend or append to match that of input except along "
                                   f"the differencing dimension; input.size({d}) = {ours}, but got tensor.size({d}) = {theirs}")


@composite("diff(Tensor self, int n=1, int dim=-1, Tensor? prepend=None, Tensor? append=None) -> Tensor")
def _diff(self: Tensor, n: int, dim: int, prepend: Tensor | None, append: Tensor | None) -> Tensor:
    """The n-th difference of neighbours along dim."""
    if self.dim() < 1:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    more = [x for x in (prepend, append) if x is not None]
    if more:
        _check_more(self, wrap(dim, self.dim()), more)
    if n == 0:
        return self.clone()                      # whatever dim is
    dim = wrap(dim, self.dim())
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    parts = [x for x in (prepend, self, append) if x is not None]
    whole = self if len(parts) == 1 else ops.cat(parts, dim)
    for _ in range(min(n, whole.size(dim))):
        size = max(whole.size(dim) - 1, 0)
        high, low = whole.narrow(dim, whole.size(dim) - size, size), whole.narrow(dim, 0, size)
        whole = high.logical_xor(low) if whole.dtype is BOOL else high - low
    return whole


def _check_points(name: str, y: Tensor, x: Tensor | None = None) -> None:
    if BOOL in (y.dtype, y.dtype if x is None else x.dtype):
        raise RuntimeError(f"{name}: received a bool input for `y`, but bool is not supported" if x is None else
                           f"{name}: received a bool input for `x` or `y`, but bool is not supported")


def _steps(name: str, y: Tensor, x: Tensor, dim: int) -> Tensor:
    """The widths between the points of x, in a shape that multiplies y's."""
    if x.dim() == 0 or x.size(-1 if x.dim() == 1 else dim) != y.size(dim) and x.dim() == 1:
        raise RuntimeError(f"{name}: There must be one `x` value for each sample point")
    if x.dim() == 1:
        shape = [1] * y.dim()
        shape[dim] = x.size(0)
        x = x.view(shape)
    elif x.dim() < y.dim():
        x = x.view([1] * (y.dim() - x.dim()) + list(x.shape))
    return x.narrow(dim, 1, x.size(dim) - 1) - x.narrow(dim, 0, x.size(dim) - 1)


def _areas(name: str, y: Tensor, x: Tensor | None, dim: int) -> Tensor:
    """The trapezoids between neighbours, each doubled."""
    n = y.size(dim)
    sides = y.narrow(dim, 0, n - 1) + y.narrow(dim, 1, n - 1)
    return sides if x is None else sides * _steps(name, y, x, dim)


@composite("trapezoid.x(Tensor y, Tensor x, *, int dim=-1) -> Tensor", out=False, variants="function")
def _trapezoid_x(y: Tensor, x: Tensor, dim: int) -> Tensor:
    """The integral along dim by the trapezoidal rule."""
    _check_points("trapezoid", y, x)
    if y.size(dim) == 0:
        return y.sum(dim) * 0.0
    dim = wrap(dim, y.dim())
    return _areas("trapezoid", y, x, dim).sum(dim) / 2.0


@composite("trapezoid(Tensor y, *, Scalar dx=1, int dim=-1) -> Tensor", out=False, variants="function")
def _trapezoid(y: Tensor, dx: float, dim: int) -> Tensor:
    _check_points("trapezoid", y)
    if y.size(dim) == 0:
        return y.sum(dim) * 0.0
    if isinstance(dx, (bool,)) or isinstance(dx, complex):
        raise RuntimeError("trapezoid: Currently, we only support dx as a real number.")
    dim = wrap(dim, y.dim())
    ends = y.narrow(dim, 0, 1) + y.narrow(dim, y.size(dim) - 1, 1)
    return (y.sum(dim) - ends.squeeze(dim) * 0.5) * dx


@composite("cumulative_trapezoid.x(Tensor y, Tensor x, *, int dim=-1) -> Tensor", out=False, variants="function")
def _cumulative_trapezoid_x(y: Tensor, x: Tensor, dim: int) -> Tensor:
    """The running integral along dim by the trapezoidal rule."""
    _check_points("cumulative_trapezoid", y, x)
    dim = wrap(dim, y.dim())
    return _areas("cumulative_trapezoid", y, x, dim).cumsum(dim) / 2.0


@composite("cumulative_trapezoid(Tensor y, *, Scalar dx=1, int dim=-1) -> Tensor", out=False, variants="function")
def _cumulative_trapezoid(y: Tensor, dx: float, dim: int) -> Tensor:
    _check_points("cumulative_trapezoid", y)
    if isinstance(dx, (bool, complex)):
        raise RuntimeError("cumulative_trapezoid: Currently, we only support dx as a real number.")
    dim = wrap(dim, y.dim())
    return (_areas("cumulative_trapezoid", y, None, dim) * (dx / 2.0)).cumsum(dim)


alias("trapz", "trapezoid", "function")
