"""The incomplete gamma functions of the npu, which CANN has no ops for: in float64, for their factors cancel."""
from __future__ import annotations

import functools
import math
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._backends.npu.body import Body
from mindtorch_v2._backends.npu.torch_ops import ops

_FLOAT64 = _C._dtype_named("float64")
_LARGE = 100.0                                               # from here on the integral itself is summed


@functools.cache
def _legendre(n: int) -> list[tuple[float, float]]:
    """Places in (0, 1) and weights of Gauss and Legendre's rule: the roots of a polynomial, by Newton's steps."""
    rule = []
    for i in range(n):
        x = math.cos(math.pi * (i + 0.75) / (n + 0.5))
        for _ in range(8):
            last, this = 1.0, x
            for k in range(2, n + 1):
                last, this = this, ((2 * k - 1) * x * this - (k - 1) * last) / k
            slope = n * (x * this - last) / (x * x - 1)
            x -= this / slope
        rule.append(((1 + x) / 2, 1 / ((1 - x * x) * slope * slope)))
    return rule


def _lower_series(a: Any, x: Any, terms: int) -> Any:
    """The sum of x ** n / (a (a + 1) … (a + n)), for x up to a + 1."""
    term = total = 1 / a
    for n in range(1, terms):
        term = term * x / (a + n)
        total = total + term
    return total


def _upper_fraction(a: Any, x: Any, terms: int) -> Any:
    """The continued fraction of the upper function, from its far end, for x above a + 1."""
    tail = ops.zeros_like(x)
    for n in range(terms, 0, -1):
        tail = n * (a - n) / (x - a + (2 * n + 1) + tail)
    return 1 / (x - a + 1 + tail)


def _upper_of_large(a: Any, x: Any) -> Any:
    """The integral from x on to where nothing is left of it; below the peak, one less that from x down."""
    peak, width = a - 1, (a - 1).sqrt()
    end = ops.where(x > peak, ops.maximum(peak + 11.5 * width, x + 6 * width),
                    ops.minimum(peak - 7.5 * width, x - 5 * width).clamp(min=0))
    total = ops.zeros_like(x)
    for place, weight in _legendre(32):
        t = x + (end - x) * place
        total = total + weight * (peak - t + peak * (t / peak).log()).exp()
    area = total * (end - x) * (peak * (peak.log() - 1) - a.lgamma()).exp()
    return ops.where(x > peak, area, 1 + area)


def _both(a: Any, x: Any) -> tuple[Any, Any]:
    """The lower and the upper regularised function of a > 0 and x > 0."""
    small = a.clamp(max=_LARGE)
    top = small.max().item() if small.numel() else 1.0
    terms = 30 + math.ceil(9 * math.sqrt(top))
    factor = (small * x.log() - x - small.lgamma()).exp()
    low = x < small + 1
    lower = factor * _lower_series(small, ops.where(low, x, small), terms)
    upper = factor * _upper_fraction(small, ops.where(low, small + 1, x), terms)
    lower, upper = ops.where(low, lower, 1 - upper), ops.where(low, 1 - lower, upper)
    if top < _LARGE:
        return lower, upper
    far = _upper_of_large(a.clamp(min=_LARGE), x)
    return ops.where(a < _LARGE, lower, 1 - far), ops.where(a < _LARGE, upper, far)


def _gamma(a: Any, x: Any, upper: bool) -> Any:
    a, x = (v.to(_FLOAT64) if isinstance(v, _C.TensorBase) else ops.full((), v, dtype=_FLOAT64, device=like.device)
            for v, like in ((a, x), (x, a)))
    plain = (a > 0) & (x > 0) & (a < math.inf) & (x < math.inf)
    found = _both(ops.where(plain, a, 1.0), ops.where(plain, x, 1.0))[upper]
    all_below = ((a == 0) & (x > 0)) | ((x == math.inf) & (a < math.inf) & (a >= 0))
    none_below = ((x == 0) & (a > 0)) | ((a == math.inf) & (x >= 0) & (x < math.inf))
    edge = ops.where(all_below, float(not upper), ops.where(none_below, float(upper), math.nan))
    return ops.where(plain, found, edge)


BODIES = {
    "igamma": Body(value=lambda self, other: _gamma(self, other, False)),
    "igammac": Body(value=lambda self, other: _gamma(self, other, True)),
}
