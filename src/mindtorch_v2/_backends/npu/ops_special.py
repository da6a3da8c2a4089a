"""Special functions of the npu, which CANN has no ops for: approximations made of ops it has, good to float32.

float64 is refused by name where a function is not that exact. The incomplete gamma functions are in ops_gamma.py."""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._backends.npu.body import Body
from mindtorch_v2._backends.npu.torch_ops import ops

_FLOAT32, _FLOAT64 = _C._dtype_named("float32"), _C._dtype_named("float64")
_INT64 = _C._dtype_named("int64")


def _floats(numbers: Sequence[Any]) -> list[Any]:
    """The arguments as tensors of one device and float dtype: float32, or float64 where one is."""
    tensors = [x for x in numbers if isinstance(x, _C.TensorBase)]
    double = any(x.dtype is _FLOAT64 for x in tensors)
    dtype, device = _FLOAT64 if double else _FLOAT32, tensors[0].device
    return [x.to(dtype) if isinstance(x, _C.TensorBase) else ops.full((), x, dtype=dtype, device=device)
            for x in numbers]


def _exact(function: Callable[..., Any]) -> Body:
    """A function of float tensors that is as good in float64."""
    return Body(value=lambda *given: function(*_floats(given)))


def _in_float32(function: Callable[..., Any]) -> Body:
    return _exact(function)._replace(refuses=frozenset({"float64"}))


def _polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """c0 + c1 x + c2 x² …"""
    *rest, last = coefficients
    value = x * last + rest.pop()
    for c in reversed(rest):
        value = value * x + c
    return value


# ---- Bessel functions: Abramowitz and Stegun 9.4 and 9.8, polynomials near zero and far from it ----------------------
_I0_NEAR = (1, 3.5156229, 3.0899424, 1.2067492, 0.2659732, 0.0360768, 0.0045813)
_I0_FAR = (0.39894228, 0.01328592, 0.00225319, -0.00157565, 0.00916281, -0.02057706,
           0.02635537, -0.01647633, 0.00392377)
_I1_NEAR = (0.5, 0.87890594, 0.51498869, 0.15084934, 0.02658733, 0.00301532, 0.00032411)
_I1_FAR = (0.39894228, -0.03988024, -0.00362018, 0.00163801, -0.01031555, 0.02282967,
           -0.02895312, 0.01787654, -0.00420059)
_K0_NEAR = (-0.57721566, 0.42278420, 0.23069756, 0.03488590, 0.00262698, 0.00010750, 0.00000740)
_K0_FAR = (1.25331414, -0.07832358, 0.02189568, -0.01062446, 0.00587872, -0.00251540, 0.00053208)
_K1_NEAR = (1, 0.15443144, -0.67278579, -0.18156897, -0.01919402, -0.00110404, -0.00004686)
_K1_FAR = (1.25331414, 0.23498619, -0.03655620, 0.01504268, -0.00780353, 0.00325614, -0.00068245)
_J0_NEAR = (1, -2.2499997, 1.2656208, -0.3163866, 0.0444479, -0.0039444, 0.0002100)
_J1_NEAR = (0.5, -0.56249985, 0.21093573, -0.03954289, 0.00443319, -0.00031761, 0.00001109)
_Y0_NEAR = (0.36746691, 0.60559366, -0.74350384, 0.25300117, -0.04261214, 0.00427916, -0.00024846)
_Y1_NEAR = (-0.6366198, 0.2212091, 2.1682709, -1.3164827, 0.3123951, -0.0400976, 0.0027873)
_SIZE = ((0.79788456, -0.00000077, -0.00552740, -0.00009512, 0.00137237, -0.00072805, 0.00014476),
         (0.79788456, 0.00000156, 0.01659667, 0.00017105, -0.00249511, 0.00113653, -0.00020033))
_PHASE = ((-0.78539816, -0.04166397, -0.00003954, 0.00262573, -0.00054125, -0.00029333, 0.00013558),
          (-2.35619449, 0.12499612, 0.00005650, -0.00637879, 0.00074348, 0.00079824, -0.00029166))


def _first_kind(x: Any, order: int, scaled: bool) -> Any:
    """I0 or I1, times exp(-|x|) where scaled."""
    near, far = (_I1_NEAR, _I1_FAR) if order else (_I0_NEAR, _I0_FAR)
    size = x.abs()
    small, large = size.clamp(max=3.75), size.clamp(min=3.75)        # each formula sees only what it is good for
    inner, outer = _polynomial((small / 3.75).square(), near), _polynomial(3.75 / large, far) / large.sqrt()
    if order:
        inner, outer = inner * x.clamp(-3.75, 3.75), ops.where(x < 0, -outer, outer)
    decay = (-size).exp()
    return ops.where(size < 3.75, inner * decay if scaled else inner, outer if scaled else outer * size.exp())


def _second_kind(x: Any, order: int, scaled: bool) -> Any:
    """K0 or K1, times exp(x) where scaled; infinite at 0, undefined below."""
    near, far = (_K1_NEAR, _K1_FAR) if order else (_K0_NEAR, _K0_FAR)
    small, large = x.clamp(max=2), x.clamp(min=2)
    log = (small / 2).log()
    inner = _polynomial((small / 2).square(), near)
    inner = log * _first_kind(small, 1, False) + inner / small if order else inner - log * _first_kind(small, 0, False)
    outer = _polynomial(2 / large, far) / large.sqrt()
    found = ops.where(x <= 2, inner * small.exp() if scaled else inner, outer if scaled else outer * (-large).exp())
    return ops.where(x == 0, math.inf, found)


def _wave(size: Any, order: int) -> tuple[Any, Any]:
    """(size, phase) of the oscillation far from zero."""
    large = size.clamp(min=3)
    inverse = 3 / large
    return _polynomial(inverse, _SIZE[order]) / large.sqrt(), large + _polynomial(inverse, _PHASE[order])


def _j0(x: Any) -> Any:
    size, phase = _wave(x.abs(), 0)
    return ops.where(x.abs() < 3, _polynomial((x.clamp(-3, 3) / 3).square(), _J0_NEAR), size * phase.cos())


def _j1(x: Any) -> Any:
    size, phase = _wave(x.abs(), 1)
    small, outer = x.clamp(-3, 3), size * phase.cos()
    return ops.where(x.abs() < 3, small * _polynomial((small / 3).square(), _J1_NEAR), ops.where(x < 0, -outer, outer))


def _neumann(x: Any, order: int) -> Any:
    small = x.clamp(max=3)
    log, square = (small / 2).log() * (2 / math.pi), (small / 3).square()
    inner = log * _j1(small) + _polynomial(square, _Y1_NEAR) / small if order else \
        log * _j0(small) + _polynomial(square, _Y0_NEAR)
    size, phase = _wave(x, order)
    return ops.where(x == 0, -math.inf, ops.where(x < 3, inner, size * phase.sin()))


def _spherical_j0(x: Any) -> Any:
    return (x / math.pi).sinc().masked_fill(x.abs() == math.inf, 0)


# ---- Airy's function: its power series near zero, in float64 for they cancel; the asymptotic ones far from it --------
_AI_0, _AI_SLOPE = 0.355028053887817239, -0.258819403792806798           # Ai(0) and Ai'(0)
_AI_FAR = [1.0]                                                          # u(k): the coefficients of 1 / zeta ** k
for _k in range(1, 11):
    _AI_FAR.append(_AI_FAR[-1] * (6 * _k - 5) * (6 * _k - 3) * (6 * _k - 1) / (216 * _k * (2 * _k - 1)))


def _airy_near(x: Any) -> Any:
    cube = x * x * x
    f, g = ops.ones_like(x), x
    total = _AI_0 * f + _AI_SLOPE * g
    for k in range(3, 120, 3):
        f, g = f * cube / ((k - 1) * k), g * cube / (k * (k + 1))
        total = total + (_AI_0 * f + _AI_SLOPE * g)
    return total


def _airy_ai(x: Any) -> Any:
    x = x.to(_FLOAT64)
    size = x.abs().clamp(min=5.5)
    zeta = size.pow(1.5) * (2 / 3)
    decay = _polynomial(-1 / zeta, _AI_FAR) * (-zeta).exp() / 2
    even = _polynomial(-1 / (zeta * zeta), _AI_FAR[::2])
    odd = _polynomial(-1 / (zeta * zeta), _AI_FAR[1::2]) / zeta
    phase = zeta - math.pi / 4
    wave = phase.cos() * even + phase.sin() * odd
    far = ops.where(x > 0, decay, wave) / (math.sqrt(math.pi) * size.pow(0.25))
    found = ops.where((x > 5.5) | (x < -7), far, _airy_near(x.clamp(-7, 5.5)))
    return ops.where(x.isfinite(), found, math.nan)


# ---- the normal distribution -----------------------------------------------------------------------------------------
_ERFCX = (-1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398,
          1.48851587, -0.82215223, 0.17087277)


def _erfcx_in_double(x: Any) -> Any:
    """exp(x²) erfc(x): the product up to 5, from there a continued fraction that 40 terms end to the last bit."""
    near, far = x.clamp(max=5), x.clamp(min=5)
    tail = far
    for k in range(40, 0, -1):
        tail = far + (k / 2) / tail
    return ops.where(x < 5, (near * near).exp() * near.erfc(), 1 / (math.sqrt(math.pi) * tail))


def _erfcx(x: Any) -> Any:
    """exp(x²) erfc(x), by a fit whose relative error is below 1.2e-7 for all x >= 0."""
    if x.dtype._name == "float64":
        return _erfcx_in_double(x)
    t = 1 / (1 + x.abs() / 2)
    right = t * _polynomial(t, _ERFCX).exp()
    return ops.where(x < 0, 2 * (x * x).exp() - right, right)


def _log_ndtr(x: Any) -> Any:
    left = x.clamp(max=-1) * math.sqrt(0.5)
    return ops.where(x < -1, (_erfcx(-left) / 2).log() - left * left, (-(x * math.sqrt(0.5)).erfc() / 2).log1p())


# Wichura's algorithm AS 241 (PPND7): numerator and denominator in the middle, in the tails, and far out.
_MIDDLE = (3.3871327179, 50.434271938, 159.29113202, 59.109374720), (1, 17.895169469, 78.757757664, 67.187563600)
_TAIL = (1.4234372777, 2.7568153900, 1.3067284816, 0.17023821103), (1, 0.73700164250, 0.12021132975)
_FAR = (6.6579051150, 3.0812263860, 0.42868294337, 0.017337203997), (1, 0.24197894225, 0.012258202635)


def _ratio(x: Any, parts: tuple[Sequence[float], Sequence[float]]) -> Any:
    return _polynomial(x, parts[0]) / _polynomial(x, parts[1])


def _ndtri(p: Any) -> Any:
    q = p - 0.5
    depth = (-ops.minimum(p, 1 - p).log()).sqrt()
    tail = ops.where(depth <= 5, _ratio(depth - 1.6, _TAIL), _ratio(depth - 5, _FAR))
    tail = tail.masked_fill((p == 0) | (p == 1), math.inf)
    return ops.where(q.abs() <= 0.425, q * _ratio(0.180625 - q * q, _MIDDLE), ops.where(q < 0, -tail, tail))


# ---- zeta ------------------------------------------------------------------------------------------------------------
_EULER_MACLAURIN = (12, -720, 30240, -1209600, 47900160, -1892437580.3183792)    # (2j)! / B(2j)


def _zeta(x: Any, q: Any) -> Any:
    """The sum of (q + k) ** -x: ten terms beyond zero one by one, the rest by Euler and Maclaurin."""
    if q.numel() == 0 or x.numel() == 0:
        return x + q
    lowest = q.masked_fill(~q.isfinite(), 0).min().item()
    terms = 10 + math.ceil(max(0, -lowest))
    steps = ops.arange(terms, dtype=_FLOAT32, device=q.device)
    total = (q.unsqueeze(-1) + steps).pow(-x.unsqueeze(-1)).sum(-1)
    end = q + terms
    power = end.pow(-x)
    total = total + power * end / (x - 1) + power / 2
    factor = x
    for j, divisor in enumerate(_EULER_MACLAURIN):
        power = power / end
        total = total + factor * power / divisor
        power, factor = power / end, factor * (x + 2 * j + 1) * (x + 2 * j + 2)
    return ops.where(x == 1, math.inf, ops.where(x < 1, math.nan, total))


# ---- orthogonal polynomials: the second one, and how the next follows from the last two ------------------------------
_TWICE: Callable[..., Any] = lambda k, x, p, q: 2 * x * p - q
_SECOND = {"t": lambda x: x, "u": lambda x: 2 * x, "v": lambda x: 2 * x - 1, "w": lambda x: 2 * x + 1}
_POLYNOMIALS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    **{f"chebyshev_polynomial_{kind}": (second, _TWICE) for kind, second in _SECOND.items()},
    "hermite_polynomial_h": (lambda x: 2 * x, lambda k, x, p, q: 2 * x * p - 2 * k * q),
    "hermite_polynomial_he": (lambda x: x, lambda k, x, p, q: x * p - k * q),
    "laguerre_polynomial_l": (lambda x: 1 - x, lambda k, x, p, q: ((2 * k + 1 - x) * p - k * q) / (k + 1)),
    "legendre_polynomial_p": (lambda x: x, lambda k, x, p, q: ((2 * k + 1) * x * p - k * q) / (k + 1)),
}


def _recurrence(name: str, x: Any, n: Any) -> Any:
    second, following = _POLYNOMIALS[name]
    n = n.to(_INT64)
    last, this = ops.ones_like(x), second(x)
    found = ops.where(n < 0, 0.0, last)
    for k in range(1, (int(n.max().item()) if n.numel() else 0) + 1):
        found = ops.where(n >= k, this, found)
        last, this = this, following(k, x, this, last)
    return found


def _orders(name: str, function: Callable[..., Any], *more: Any) -> dict[str, Body]:
    """The records of a function of order 0 and 1."""
    return {f"{name.replace('*', str(order))}": _in_float32(lambda x, order=order: function(x, order, *more))
            for order in (0, 1)}


BODIES = {
    "i0": _in_float32(lambda x: _first_kind(x, 0, False)),
    "special_airy_ai": _in_float32(_airy_ai),
    "special_bessel_j0": _in_float32(_j0),
    "special_bessel_j1": _in_float32(_j1),
    **_orders("special_bessel_y*", _neumann),
    "special_erfcx": _exact(_erfcx),
    "special_i1": _in_float32(lambda x: _first_kind(x, 1, False)),
    **_orders("special_i*e", _first_kind, True),
    "special_log_ndtr": _in_float32(_log_ndtr),
    **_orders("special_modified_bessel_i*", _first_kind, False),
    **_orders("special_modified_bessel_k*", _second_kind, False),
    "special_ndtri": _in_float32(_ndtri),
    **_orders("special_scaled_modified_bessel_k*", _second_kind, True),
    "special_spherical_bessel_j0": _exact(_spherical_j0),
    "special_zeta": _in_float32(_zeta),
    "_zeta": _in_float32(_zeta),
    **{"special_" + name: _exact(lambda x, n, name=name: _recurrence(name, x, n)) for name in _POLYNOMIALS},
    **{f"special_shifted_chebyshev_polynomial_{kind}": _exact(
        lambda x, n, kind=kind: _recurrence(f"chebyshev_polynomial_{kind}", 2 * x - 1, n)) for kind in _SECOND},
}
