"""Rows of torch.special: gamma and Bessel functions, the normal distribution, orthogonal polynomials."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn

from mindtorch_v2 import _C
from mindtorch_v2._ops import forward
from mindtorch_v2._ops.infer import binary, binary_float, unary_float
from mindtorch_v2._ops.table import alias, composite, op, ops
from mindtorch_v2._tensor import Tensor


def _no_gradient(name: str, argument: str) -> Callable[..., Any]:
    def formula(g: Tensor) -> NoReturn:
        raise NotImplementedError(f"the derivative for '{name}: {argument}' is not implemented.")
    return formula


_HALF = "half"                      # torch computes most of these in no narrow dtype


def _limit(x: Tensor, at_zero: float, slope: Callable[..., Any]) -> Tensor:
    """A slope whose expression divides by x: at 0 its limit."""
    zero = x == 0
    return ops.where(zero, at_zero, slope(x.masked_fill(zero, 1)))


def _wide(name: str, x: Tensor) -> Tensor:
    """x, unless it is of 16 bits, in which torch computes this slope nowhere."""
    if x.dtype.itemsize == 2 and x.is_cpu:
        raise NotImplementedError(f'"{name}_backward" not implemented for \'{_C.TYPE_WORDS[x.dtype._id]}\'')
    return x


# ---- one input -----------------------------------------------------------------------------------
for _name, _grad in (
    ("i0e", lambda g, self, result: g * (ops.special_i1e(self) - self.sgn() * result)),
    ("i1", lambda g, self, result: g * _limit(_wide("i1", self), 0.5, lambda x: ops.i0(x) - ops.special_i1(x) / x)),
    ("i1e", lambda g, self, result: g * _limit(_wide("i1e", self), 0.5, lambda x: ops.special_i0e(x) - ops.special_i1e(x)
                                       * (x.sgn() + x.reciprocal()))),
    ("entr", lambda g, self: g * (-1 - self.log())),
    ("ndtri", lambda g, result: g * math.sqrt(2 * math.pi) * (result.square() / 2).exp()),
    ("log_ndtr", lambda g, self, result: g / ops.special_erfcx(self * -math.sqrt(0.5)) * math.sqrt(2 / math.pi)),
    ("erfcx", lambda g, self, result: g * (2 * self * result - 2 / math.sqrt(math.pi))),
):
    op(f"special_{_name}(Tensor self) -> Tensor", rule=unary_float, variants="special", inplace=False, numbers=False,
       lacks=_HALF if _name in ("ndtri", "log_ndtr", "erfcx") else "", grad={"self": _grad})
# torch has no derivatives of these: what they give has no history.
for _name in ("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "modified_bessel_i0", "modified_bessel_i1",
              "modified_bessel_k0", "modified_bessel_k1"):
    op(f"special_{_name}(Tensor self) -> Tensor", rule=unary_float, variants="special", inplace=False, numbers=False,
       lacks=_HALF, grad={})
for _name in ("scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "spherical_bessel_j0", "airy_ai"):
    op(f"special_{_name}(Tensor x) -> Tensor", rule=unary_float, variants="special", inplace=False, numbers=False,
       lacks=_HALF, grad={})


@composite("special_ndtr(Tensor self) -> Tensor", variants="special")
def _ndtr(self: Tensor) -> Tensor:
    """The area under the normal curve up to each item."""
    return ops.erfc(self * -math.sqrt(0.5)) * 0.5


# ---- gamma functions -----------------------------------------------------------------------------
_ZETA_GRAD = {"self": _no_gradient("zeta", "self"), "other": lambda g, self, other: g * -self * ops._zeta(self + 1, other)}
op("_zeta(Tensor self, Tensor other) -> Tensor", rule=binary_float, kernel="special_zeta", variants="", inplace=False,
   grad=_ZETA_GRAD)                              # in half precision too, which the derivatives of digamma need
op("special_zeta(Tensor self, Tensor other) -> Tensor",
   forward=forward.refused("special_zeta"), lacks=_HALF, rule=binary_float, variants="special", inplace=False,
   grad=_ZETA_GRAD)


def _gamma_density(a: Any, x: Any) -> Any:
    """The slope of igamma in x."""
    return ((a - 1) * x.log() - x - a.lgamma()).exp()


for _name, _slope in (("igamma", lambda g, self, other: g * _gamma_density(self, other)),
                      ("igammac", lambda g, self, other: -g * _gamma_density(self, other))):
    op(f"{_name}(Tensor self, Tensor other) -> Tensor", rule=binary, numbers=False, inplace="method",
       forward=forward.refused(_name), grad={"self": _no_gradient(_name, "input"), "other": _slope})


op("_trigamma(Tensor self) -> Tensor", rule=unary_float, numbers=False, kernel="trigamma", variants="", inplace=False,
   grad={"self": lambda g, self: g * ops.polygamma(2, self)})


def _polygamma(n: int, self: Tensor) -> Tensor:
    """The nth derivative of digamma."""
    if n < 0:
        raise RuntimeError("polygamma(n, x) does not support negative n.")
    if n == 0:
        return ops.digamma(self)
    x = self if self.is_floating_point() else self.to(ops.result_type(self, 1.0))
    if n == 1 and x.is_cpu:
        return ops._trigamma(x)
    factorial = float(math.factorial(n)) if n <= 170 else math.inf     # 171! is beyond float64
    return ops._zeta(n + 1.0, x) * (factorial if n % 2 else -factorial)


op("polygamma.method(Tensor self, int n) -> Tensor", body=lambda self, n: _polygamma(n, self), inplace="method")
op("polygamma(int n, Tensor self) -> Tensor", body=_polygamma, doc=_polygamma.__doc__)


@composite("mvlgamma(Tensor self, int p) -> Tensor", inplace="method", node=True,
           grad={"self": lambda g, self, p: g * (self.unsqueeze(-1) + _half_steps(self, p)).digamma().sum(-1)})
def _mvlgamma(self: Tensor, p: int) -> Tensor:
    """The logarithm of the multivariate gamma function."""
    if p < 1:
        raise RuntimeError("p has to be greater than or equal to 1")
    if self.dtype._name == "bool":
        raise RuntimeError("The input tensor may not be a boolean tensor.")
    x = self if self.is_floating_point() else self.to(ops.result_type(self, 1.0))
    return (x.unsqueeze(-1) + _half_steps(x, p)).lgamma().sum(-1) + p * (p - 1) / 4 * math.log(math.pi)


def _half_steps(x: Tensor, p: int) -> Tensor:
    return ops.arange(0, -p, -1, dtype=x.dtype, device=x.device) / 2


# ---- polynomials: (x, n) -------------------------------------------------------------------------
for _name in (*(f"{shifted}chebyshev_polynomial_{kind}" for shifted in ("", "shifted_") for kind in "tuvw"),
              "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"):
    op(f"special_{_name}(Tensor x, Tensor n) -> Tensor",
       lacks=_HALF, rule=binary_float, variants="special", inplace=False, grad={})

for _name, _target in (("psi", "digamma"), ("expit", "sigmoid"), ("gammaln", "lgamma"), ("gammainc", "igamma"),
                       ("gammaincc", "igammac"), ("multigammaln", "mvlgamma")):
    alias("special_" + _name, _target, "special")
for _name in ("digamma", "erf", "erfc", "erfinv", "exp2", "expm1", "i0", "log1p", "logit", "polygamma", "round", "sinc",
              "xlogy"):
    alias("special_" + _name, _name, "special")
