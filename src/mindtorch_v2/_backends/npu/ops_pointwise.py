"""Pointwise kernels of the npu that CANN has no op for, made of ops it has; and those that take other arguments there.

Functions of torch.special are in ops_special.py."""
from __future__ import annotations

import math
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._backends.npu import aclnn
from mindtorch_v2._backends.npu.body import Body
from mindtorch_v2._backends.npu.torch_ops import ops
from mindtorch_v2._dtype import finfo
from mindtorch_v2._shape import broadcast

_FLOAT32, _FLOAT64 = _C._dtype_named("float32"), _C._dtype_named("float64")


def _tensor(x: Any, like: Any) -> Any:
    """A number as a tensor beside another one."""
    return x if isinstance(x, _C.TensorBase) else ops.full((), x, dtype=like.dtype, device=like.device)


def _both(self: Any, other: Any) -> tuple[Any, Any]:
    like = self if isinstance(self, _C.TensorBase) else other
    return _tensor(self, like), _tensor(other, like)


def _isnan(self: Any) -> Any:
    return self != self


def _fmax(self: Any, other: Any) -> Any:
    self, other = _both(self, other)
    return ops.where((self >= other) | (other != other), self, other)


def _fmin(self: Any, other: Any) -> Any:
    self, other = _both(self, other)
    return ops.where((self <= other) | (other != other), self, other)


def _hypot(self: Any, other: Any) -> Any:
    self, other = (x.abs() for x in _both(self, other))
    if not self.is_floating_point():
        raise NotImplementedError(f'"hypot" not implemented for {self.dtype}')
    large, small = ops.maximum(self, other), ops.minimum(self, other)
    ratio = ops.where(large == 0, 0.0, small / large)           # the squares of the items themselves could overflow
    found = large * (1 + ratio * ratio).sqrt()
    return ops.where((self == math.inf) | (other == math.inf), math.inf, found)


def _is_negative(x: Any) -> Any:
    """The sign bit of floats: 1 / -0. is -inf."""
    return (x < 0) | ((x == 0) & (1 / x < 0)) if x.is_floating_point() else x < 0


def _copysign(self: Any, other: Any) -> Any:
    self, other = _both(self, other)
    size = (self if self.is_floating_point() else self.to(_C.get_default_dtype())).abs()
    return ops.where(_is_negative(other), -size, size)


def _xlog1py(self: Any, other: Any) -> Any:
    self, other = _both(self, other)
    return ops.where((self == 0) & (other == other), 0.0, self * (other + 1).log() if not other.is_floating_point()
                     else self * other.log1p())


def _deg2rad(self: Any) -> Any:
    return self * (math.pi / 180)


def _rad2deg(self: Any) -> Any:
    return self * (180 / math.pi)


def _sgn(self: Any) -> Any:
    if not self.is_complex():
        return self.sign()
    size = self.abs()
    return ops.where(size == 0, 0.0, self / ops.where(size == 0, 1.0, size))


def _angle(outs: tuple[Any, ...], args: tuple[Any, ...]) -> None:
    (out,), (self,) = outs, args
    if self.is_complex():
        aclnn.call("aclnnAngleV2", self, out)
    else:
        out.copy_((self < 0).to(out.dtype) * math.pi)
        if self.is_floating_point():
            out.copy_(ops.where(self != self, self.detach(), out))


def _conj_physical(self: Any) -> Any:
    if not self.is_complex():
        return self
    parts = ops.view_as_real(self)
    return ops.view_as_complex(ops.stack([parts.select(-1, 0), -parts.select(-1, 1)], -1))


def _lcm(self: Any, other: Any) -> Any:
    self, other = _both(self, other)
    common = ops.gcd(self, other)
    return (ops.floor_divide(self, common.masked_fill(common == 0, 1)) * other).abs()


def _rounded_integers(self: Any, *_: Any) -> Any:
    return self                                              # CANN's ops take every float


def _trunc(self: Any) -> Any:
    return ops.where(self < 0, self.ceil(), self.floor()) if self.is_floating_point() else self


def _entr(self: Any) -> Any:
    self = self if self.is_floating_point() else self.float()
    return ops.where(self < 0, -math.inf, ops.where(self == 0, 0.0, -self * self.log()))


def _nan_to_num(outs: tuple[Any, ...], args: tuple[Any, ...]) -> None:
    (out,), (self, nan, posinf, neginf) = outs, args
    if not self.is_floating_point():
        out.copy_(self)
        return
    limit, nan = finfo(self.dtype).max, nan or 0.0
    posinf, neginf = limit if posinf is None else posinf, -limit if neginf is None else neginf
    if self.dtype is not _FLOAT64:
        aclnn.call("aclnnNanToNum", self, nan, posinf, neginf, out)
        return
    self = self.detach()
    made = ops.where(self == math.inf, posinf, ops.where(self == -math.inf, neginf, self))
    out.copy_(ops.where(self != self, nan, made))


# ---- ranges ----------------------------------------------------------------------------------------------------------
def _linspace(self: Any, start: Any, end: Any, steps: int) -> Any:
    """Of complex numbers and int64: doubles on the way."""
    if self.is_complex():
        return ops.complex(*(ops.linspace(a, b, steps, dtype=self.dtype.to_real(), device=self.device) for a, b in (
            (complex(start).real, complex(end).real), (complex(start).imag, complex(end).imag))))
    return ops.linspace(int(start), int(end), steps, dtype=_FLOAT64, device=self.device)


def _logspace(self: Any, start: Any, end: Any, steps: int, base: float) -> Any:
    dtype = self.dtype if self.is_floating_point() or self.is_complex() else _FLOAT64
    return ops.pow(base, ops.linspace(start, end, steps, dtype=dtype, device=self.device))


def _eye(self: Any, n: int, m: int) -> Any:
    return ops.eye(n, m, dtype=_FLOAT32, device=self.device)


# ---- steps between floats --------------------------------------------------------------------------------------------
_BITS = {"float16": ("int16", 15), "bfloat16": ("int16", 15), "float32": ("int32", 31), "float64": ("int64", 63)}


def _nextafter(self: Any, other: Any) -> Any:
    name, sign = _BITS[self.dtype._name]
    self = self.expand(broadcast(self.shape, other.shape))
    bits = self.contiguous().view(_C._dtype_named(name))
    away = (other > self) == (self > 0)                      # from zero: the next number has the next bits
    bits = ops.where(self == 0, ops.where(other > 0, 1, 1 - 2 ** sign), ops.where(away, bits + 1, bits - 1))
    moved = bits.to(_C._dtype_named(name)).view(self.dtype)
    return ops.where(self == other, other, ops.where((self != self) | (other != other), math.nan, moved))


BODIES = {
    "_eye_": Body(fallback=_eye),
    "_linspace_": Body(fallback=_linspace),
    "_logspace_": Body(value=_logspace),
    "angle": Body(kernel=_angle),
    "ceil": Body(fallback=_rounded_integers),
    "conj_physical": Body(value=_conj_physical),
    "copysign": Body(value=_copysign),
    "deg2rad": Body(value=_deg2rad),
    "fmax": Body(value=_fmax),
    "fmin": Body(value=_fmin),
    "hypot": Body(value=_hypot),
    "isnan": Body(value=_isnan),
    "lcm": Body(value=_lcm),
    "nan_to_num": Body(kernel=_nan_to_num),
    "nextafter": Body(value=_nextafter),
    "rad2deg": Body(value=_rad2deg),
    "round": Body(fallback=_rounded_integers),
    "round.decimals": Body(fallback=_rounded_integers),
    "sgn": Body(value=_sgn),
    "special_entr": Body(value=_entr),
    "special_xlog1py": Body(value=_xlog1py),
    "trunc": Body(fallback=_trunc),
}
