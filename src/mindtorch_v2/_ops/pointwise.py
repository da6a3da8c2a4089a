"""Rows of the pointwise ops: arithmetic, comparison, logic, and the elementary functions."""
from __future__ import annotations

import math
from typing import Any

from mindtorch_v2 import _C, _config
from mindtorch_v2._C import _core as core
from mindtorch_v2._C._core import _conj as conj
from mindtorch_v2._ops import batching
from mindtorch_v2._ops.infer import (
    binary,
    binary_float,
    compare,
    unary,
    unary_float,
    unary_float_real,
    unary_real,
)
from mindtorch_v2._ops.table import alias, composite, op, ops
from mindtorch_v2._row import Npu
from mindtorch_v2._tensor import Tensor

_2_SQRTPI = 2 / math.sqrt(math.pi)

# ---- arithmetic -------------------------------------------------------------------------------------------------
op("add(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", numbers="all", rule=binary, guard="alpha",
   npu=Npu("aclnnAdd(self, other, alpha, out)", number={"other": "aclnnAdds(self, other, alpha, out)"}),
   grad={"self": core._grad_same, "other": core._grad_add})
op("sub(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", numbers="all", rule=binary, guard="minus",
   npu=Npu("aclnnSub(self, other, alpha, out)", number={"other": "aclnnSubs(self, other, alpha, out)"}),
   grad={"self": core._grad_same, "other": core._grad_sub})
op("rsub(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
   numbers="other", out=False, rule=binary, inplace=False, guard="minus",
   npu=Npu("aclnnRsub(self, other, alpha, out)", number={"other": "aclnnRsubs(self, other, alpha, out)"}),
   grad={"self": core._grad_sub, "other": core._grad_same})
op("mul(Tensor self, Tensor other) -> Tensor", numbers="all", rule=binary,
   npu=Npu("aclnnMul(self, other, out)", number={"other": "aclnnMuls(self, other, out)"}),
   grad={"self": core._grad_mul_self, "other": core._grad_mul_other})
op("div(Tensor self, Tensor other) -> Tensor", numbers="all", rule=binary_float,
   npu=Npu("aclnnDiv(self, other, out)", number={"other": "aclnnDivs(self, other, out)"}),
   grad={"self": core._grad_div_self, "other": lambda g, self, other: -g * conj((self / other) / other)})


op("_div_trunc(Tensor self, Tensor other) -> Tensor", rule=binary, kernel="div_trunc", variants="",
   npu="aclnnDivMod(self, other, 1, out)",
   grad={"self": lambda g, other: ops.zeros_like(g), "other": lambda g, self, other: ops.zeros_like(g)})
op("_div_floor(Tensor self, Tensor other) -> Tensor", rule=binary, kernel="div_floor", variants="",
   npu="aclnnDivMod(self, other, 2, out)",
   grad={"self": lambda g, other: ops.zeros_like(g), "other": lambda g, self, other: ops.zeros_like(g)})


def _div_mode(self: Tensor, other: Tensor, rounding_mode: str | None) -> Tensor:
    """True division, or its result rounded toward zero ('trunc') or down ('floor')."""
    if not hasattr(self, "dtype") and not hasattr(other, "dtype"):
        self = _C._from_data(self, None, False)
    if rounding_mode is None:
        return ops.div(self, other)
    if rounding_mode == "trunc":
        if ops.result_type(self, other).itemsize == 2 and ops.result_type(self, other).is_floating_point:
            return ops.div(self, other).trunc()      # torch rounds the quotient to 16 bits first
        return ops._div_trunc(self, other)
    if rounding_mode == "floor":
        return ops._div_floor(self, other)
    raise RuntimeError("div expected rounding_mode to be one of None, 'trunc', or 'floor' but found "
                       f"'{rounding_mode}'")


op("div.mode(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor", body=_div_mode, numbers="all")
op("floor_divide(Tensor self, Tensor other) -> Tensor", numbers="all", rule=binary, kernel="div_floor",
   npu=Npu("aclnnFloorDivide(self, other, out)", number={"other": "aclnnFloorDivides(self, other, out)"}))
op("remainder(Tensor self, Tensor other) -> Tensor", rule=binary,
   npu=Npu("aclnnRemainderTensorTensor(self, other, out)",
           number={"other": "aclnnRemainderTensorScalar(self, other, out)",
                   "self": "aclnnRemainderScalarTensor(self, other, out)"}),
   grad={"self": lambda g: g, "other": lambda g, self, other: -g * ops._div_floor(self, other)})
op("fmod(Tensor self, Tensor other) -> Tensor", numbers="other", rule=binary,
   npu=Npu("aclnnFmodTensor(self, other, out)", number={"other": "aclnnFmodScalar(self, other, out)"}),
   grad={"self": lambda g: g, "other": lambda g, self, other: -g * ops._div_trunc(self, other)})


def _pow_self(g: Tensor, self: Tensor, other: Tensor | float) -> Tensor:
    if not hasattr(other, "dtype"):
        return ops.zeros_like(g) if other == 0 else g * conj(other * self ** (other - 1))
    return ops.where(other == 0, 0, g * conj(other * self ** (other - 1)))


def _pow_other(g: Tensor, self: Any, other: Tensor, result: Tensor) -> Tensor:
    base = self if hasattr(self, "dtype") else ops.scalar_tensor(self, dtype=result.dtype)
    log = ops.where((base == 0) & (_real(other) >= 0), 0, base.log())
    return g * conj(result * log)


def _real(x: Tensor) -> Tensor:
    return x.real if hasattr(x, "is_complex") and x.is_complex() else x


def _power_name(node: Any) -> str:
    """A power of a tensor to a number, of two tensors, or of a number to a tensor."""
    kinds = [node._value(name) for name in ("self", "exponent")]
    return f"PowBackward{2 if isinstance(kinds[0], (int, float, complex)) else int(isinstance(kinds[1], _C.TensorBase))}"


op("pow(Tensor self, Tensor exponent) -> Tensor", autocast={"npu": "float32"}, rule=binary, guard="power", several=_power_name,
   npu=Npu("aclnnPowTensorTensor(self, exponent, out)",
           number={"exponent": "aclnnPowTensorScalar(self, exponent, out)",
                   "self": "aclnnPowScalarTensor(self, exponent, out)"}),
   grad={"self": lambda g, self, exponent: _pow_self(g, self, exponent),
         "exponent": lambda g, self, exponent, result: _pow_other(g, self, exponent, result)})
_SAME = "Found dtype {out} but expected {result}"          # of an out= of another dtype
op("neg(Tensor self) -> Tensor", rule=unary, out=_SAME, guard="negative", npu="aclnnNeg(self, out)", grad={"self": core._grad_neg})
op("reciprocal(Tensor self) -> Tensor", autocast={"npu": "float32"}, rule=unary_float, npu="aclnnReciprocal(self, out)",
   grad={"self": lambda g, result: -g * conj(result * result)})
op("_square(Tensor self) -> Tensor", rule=unary, kernel="square", variants="", npu="aclnnMul(self, self, out)",
   grad={"self": lambda g, self: g * conj(2 * self)})


@composite("square(Tensor self) -> Tensor", inplace=True)
def _square(self: Tensor) -> Tensor:
    """self times self; bool counts as 0 and 1."""
    return ops._square(self.to(_C._dtype_named("int64")) if self.dtype._name == "bool" else self)


op("abs(Tensor self) -> Tensor", lacks="bool", out=_SAME, rule=unary_real, npu="aclnnAbs(self, out)",
   grad={"self": lambda g, self: g * self.sgn()})
op("sign(Tensor self) -> Tensor", rule=unary, out=_SAME, npu="aclnnSign(self, out)",
   refuses={"complex": NotImplementedError("Unlike NumPy, torch.sign is not intended to support complex numbers. Please use "
                                           "torch.sgn instead.")},
   grad={"self": lambda g: ops.zeros_like(g)})


def _sgn_grad(g: Tensor, self: Tensor, result: Tensor) -> Tensor:
    if not g.is_complex():
        return ops.zeros_like(g)
    size = self.abs()
    inner = g / size
    return ops.where(size == 0, 0, inner - ((inner * conj(result)).real * result))


op("sgn(Tensor self) -> Tensor", rule=unary, out=_SAME, grad={"self": lambda g, self, result: _sgn_grad(g, self, result)})
op("signbit(Tensor self) -> Tensor", rule=compare, npu="aclnnSignbit(self, out)", inplace=False,
   refuses={"complex": NotImplementedError("signbit is not implemented for complex tensors.")})
alias("subtract", "sub")
alias("multiply", "mul")
alias("divide", "div")
alias("true_divide", "div")
alias("negative", "neg")
alias("absolute", "abs")
ops.div.doc = "Divides self by other."

op("maximum(Tensor self, Tensor other) -> Tensor", rule=binary, numbers=False, inplace=False,
   refuses={"complex": "maximum not implemented for complex tensors."},
   npu="aclnnMaximum(self, other, out)",
   grad={"self": lambda g, self, other: g.masked_fill(self < other, 0) / _tie(self, other),
         "other": lambda g, self, other: g.masked_fill(self > other, 0) / _tie(self, other)})
op("minimum(Tensor self, Tensor other) -> Tensor", rule=binary, numbers=False, inplace=False,
   refuses={"complex": "minimum not implemented for complex tensors."},
   npu="aclnnMinimum(self, other, out)",
   grad={"self": lambda g, self, other: g.masked_fill(self > other, 0) / _tie(self, other),
         "other": lambda g, self, other: g.masked_fill(self < other, 0) / _tie(self, other)})


def _tie(self: Tensor, other: Tensor) -> Tensor:
    """2 where both are equal: they share the gradient."""
    return (self == other).to(self.dtype) + 1


op("fmax(Tensor self, Tensor other) -> Tensor", rule=binary, numbers=False, inplace=False,
   refuses={"complex": "fmax not implemented for complex tensors."},
   grad={"self": lambda g, self, other: g.masked_fill(~((self >= other) | other.isnan()), 0),
         "other": lambda g, self, other: g.masked_fill((self >= other) | other.isnan(), 0)})
op("fmin(Tensor self, Tensor other) -> Tensor", rule=binary, numbers=False, inplace=False,
   refuses={"complex": "fmin not implemented for complex tensors."},
   grad={"self": lambda g, self, other: g.masked_fill(~((self <= other) | other.isnan()), 0),
         "other": lambda g, self, other: g.masked_fill((self <= other) | other.isnan(), 0)})
op("atan2(Tensor self, Tensor other) -> Tensor", numbers=False, autocast={"npu": "widest"},
   rule=binary_float, npu="aclnnAtan2(self, other, out)",
   grad={"self": lambda g, self, other: g * other * _inverse_square(self, other),
         "other": lambda g, self, other: g * -self * _inverse_square(self, other)})


def _inverse_square(x: Tensor, y: Tensor) -> Tensor:
    """1 / (x² + y²), and 0 at the origin, where no direction is steepest."""
    size = x * x + y * y
    return ops.where(size == 0, 0, size.reciprocal())


alias("arctan2", "atan2")
op("hypot(Tensor self, Tensor other) -> Tensor", numbers=False, rule=binary,
   grad={"self": lambda g, self, result: g * (self / result),
         "other": lambda g, other, result: g * (other / result)})
op("copysign(Tensor self, Tensor other) -> Tensor", numbers="other", rule=binary_float,
   grad={"self": lambda g, self, result: g * ops.where(self == 0, 0, result / self),
         "other": lambda g: ops.zeros_like(g)})
op("nextafter(Tensor self, Tensor other) -> Tensor", rule=binary, numbers=False,
   grad={"self": lambda g, self, other: g * (self != other), "other": lambda g: ops.zeros_like(g)})
op("logaddexp(Tensor self, Tensor other) -> Tensor", rule=binary, numbers=False, inplace=False,
   npu="aclnnLogAddExp(self, other, out)",
   grad={"self": lambda g, self, other: g / conj(1 + (other - self).exp()),
         "other": lambda g, self, other: g / conj(1 + (self - other).exp())})
op("logaddexp2(Tensor self, Tensor other) -> Tensor", rule=binary, numbers=False, inplace=False,
   npu="aclnnLogAddExp2(self, other, out)",
   grad={"self": lambda g, self, other: g / (1 + (other - self).exp2()),
         "other": lambda g, self, other: g / (1 + (self - other).exp2())})
op("xlogy(Tensor self, Tensor other) -> Tensor", rule=binary_float, npu="aclnnXLogYTensor(self, other, out)",
   grad={"self": lambda g, self, other: ops.xlogy(g, other).masked_fill((self == 0) & (other <= 0), 0),
         "other": lambda g, self, other: g * self / other})
op("special_xlog1py(Tensor self, Tensor other) -> Tensor", rule=binary_float, variants="special", inplace=False,
   grad={"self": lambda g, self, other: ops.special_xlog1py(g, other).masked_fill((self == 0) & (other <= -1), 0),
         "other": lambda g, self, other: g * self / (other + 1)})
op("heaviside(Tensor self, Tensor values) -> Tensor", rule=binary, numbers=False, guard="same dtypes",
   npu="aclnnHeaviside(self, values, out)",
   refuses={"complex": "heaviside is not yet implemented for complex tensors."})
op("gcd(Tensor self, Tensor other) -> Tensor", rule=binary, numbers=False, npu="aclnnGcd(self, other, out)")
op("lcm(Tensor self, Tensor other) -> Tensor", rule=binary, numbers=False)

# ---- comparison and logic -------------------------------------------------------------------------------------
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    op(f"{_name}(Tensor self, Tensor other) -> Tensor", rule=compare, numbers="other",
       npu=Npu(f"aclnn{_name.capitalize()}Tensor(self, other, out)",
               number={"other": f"aclnn{_name.capitalize()}Scalar(self, other, out)"}),
       grad={"self": lambda g: ops.zeros_like(g), "other": lambda g: ops.zeros_like(g)})     # of the in-place form
for _name, _target in (("not_equal", "ne"), ("less", "lt"), ("less_equal", "le"), ("greater", "gt"),
                       ("greater_equal", "ge")):
    alias(_name, _target)
for _name in ("and", "or", "xor"):
    op(f"logical_{_name}(Tensor self, Tensor other) -> Tensor", rule=compare, numbers=False,
       npu=f"aclnnLogical{_name.capitalize()}(self, other, out)")
    op(f"bitwise_{_name}(Tensor self, Tensor other) -> Tensor", rule=binary,
       npu=Npu(f"aclnnBitwise{_name.capitalize()}Tensor(self, other, out)",
               number={"other": f"aclnnBitwise{_name.capitalize()}Scalar(self, other, out)"}))
op("bitwise_left_shift(Tensor self, Tensor other) -> Tensor", rule=binary, npu="aclnnLeftShift(self, other, out)")
op("bitwise_right_shift(Tensor self, Tensor other) -> Tensor", rule=binary, npu="aclnnRightShift(self, other, out)")
op("bitwise_not(Tensor self) -> Tensor", rule=unary, out=_SAME, npu="aclnnBitwiseNot(self, out)")
op("logical_not(Tensor self) -> Tensor", rule=compare, npu="aclnnLogicalNot(self, out)")
for _name, _npu in (("isnan", None), ("isinf", "aclnnIsInf"), ("isfinite", "aclnnIsFinite"),
                    ("isposinf", "aclnnIsPosInf"), ("isneginf", "aclnnIsNegInf")):
    op(f"{_name}(Tensor self) -> Tensor", rule=compare, inplace=False, npu=_npu and f"{_npu}(self, out)",
       out=_name in ("isposinf", "isneginf") and f"{_name} does not support non-boolean outputs.",
       refuses={"complex": f"{_name} does not support complex inputs."})

# ---- rounding ---------------------------------------------------------------------------------------------------
for _name in ("floor", "ceil", "trunc"):
    op(f"{_name}(Tensor self) -> Tensor", rule=unary, out=_SAME, npu=f"aclnn{_name.capitalize()}(self, out)",
       refuses={"complex": NotImplementedError(f"{_name} is not supported for complex inputs")},
       grad={"self": lambda g: ops.zeros_like(g)})
op("round(Tensor self) -> Tensor", rule=unary, out=_SAME,
   npu="aclnnRound(self, out)", grad={"self": lambda g: ops.zeros_like(g)})
op("round.decimals(Tensor self, *, int decimals) -> Tensor", rule=unary, out=_SAME, lacks="int",
   npu="aclnnRoundDecimals(self, decimals, out)", grad={"self": lambda g: ops.zeros_like(g)})
op("frac(Tensor self) -> Tensor", rule=unary, out=_SAME, npu="aclnnFrac(self, out)", grad={"self": lambda g: g})
alias("fix", "trunc")

# ---- elementary functions ---------------------------------------------------------------------------------------
_FLOAT32 = {"npu": "float32"}                    # what autocast does with some of them
for _name, _npu, _grad, *_cast in (
    ("exp", "Exp", lambda g, result: g * conj(result), _FLOAT32),
    ("exp2", "Exp2", lambda g, result: g * conj(result) * math.log(2)),
    ("expm1", "Expm1", lambda g, result: g * conj(result + 1), _FLOAT32),
    ("log", "Log", lambda g, self: g / conj(self), _FLOAT32),
    ("log2", "Log2", lambda g, self: g / conj(self * math.log(2)), _FLOAT32),
    ("log10", "Log10", lambda g, self: g / conj(self * math.log(10)), _FLOAT32),
    ("log1p", "Log1p", lambda g, self: g / conj(self + 1), _FLOAT32),
    ("sqrt", "Sqrt", lambda g, result: g / conj(2 * result)),
    ("rsqrt", "Rsqrt", lambda g, result: -0.5 * g * conj(result ** 3), _FLOAT32),
    ("sin", "Sin", lambda g, self: g * conj(self.cos())),
    ("cos", "Cos", lambda g, self: g * -conj(self.sin())),
    ("tan", "Tan", lambda g, result: g * conj(1 + result * result), _FLOAT32),
    ("asin", "Asin", lambda g, self: g * conj((1 - self * self).rsqrt()), _FLOAT32),
    ("acos", "Acos", lambda g, self: g * -conj((1 - self * self).rsqrt()), _FLOAT32),
    ("atan", "Atan", lambda g, self: g / conj(self * self + 1)),
    ("sinh", "Sinh", lambda g, self: g * conj(self.cosh()), _FLOAT32),
    ("cosh", "Cosh", lambda g, self: g * conj(self.sinh()), _FLOAT32),
    ("tanh", "Tanh", lambda g, result: ops.tanh_backward(g, result)),
    ("asinh", "Asinh", lambda g, self: g * conj((self * self + 1).rsqrt())),
    ("acosh", "Acosh", lambda g, self: g * (conj((self - 1).rsqrt() * (self + 1).rsqrt()) if self.is_complex() else
                                            (self * self - 1).rsqrt())),
    ("atanh", "Atanh", lambda g, self: g / conj(1 - self * self)),
    ("erf", "Erf", lambda g, self: g * _2_SQRTPI * (-(self * self)).exp()),
    ("erfc", "Erfc", lambda g, self: g * -_2_SQRTPI * (-(self * self)).exp()),
    ("erfinv", "Erfinv", lambda g, self: g * (math.sqrt(math.pi) / 2) * self.erfinv().square().exp(), _FLOAT32),
    ("lgamma", "Lgamma", lambda g, self: g * self.digamma()),
    ("digamma", "Digamma", lambda g, self: g * ops.polygamma(1, self)),
    ("sigmoid", "Sigmoid", lambda g, result: ops.sigmoid_backward(g, result)),
    ("sinc", "Sinc", lambda g, self: g * conj(_sinc_slope(self))),
    ("i0", None, lambda g, self: g * ops.special_i1(self)),
):
    op(f"{_name}(Tensor self) -> Tensor", rule=unary_float, npu=_npu and f"aclnn{_npu}(self, out)",
       grad={"self": _grad}, autocast=_cast[0] if _cast else None)
for _name, _target in (("arcsin", "asin"), ("arccos", "acos"), ("arctan", "atan"), ("arcsinh", "asinh"),
                       ("arccosh", "acosh"), ("arctanh", "atanh")):
    alias(_name, _target)


def _sinc_slope(x: Tensor) -> Tensor:
    scaled = x * math.pi
    slope = (scaled * scaled.cos() - scaled.sin()) / (scaled * x)
    return ops.where(x == 0, 0, slope)


op("sigmoid_backward(Tensor grad_output, Tensor output) -> Tensor", rule=binary, variants="nn", inplace=False,
   npu="aclnnSigmoidBackward(grad_output, output, out)",
   grad={"grad_output": lambda g, output: g * (output * (1 - output)),
         "output": lambda g, grad_output, output: conj(g) * grad_output * conj(1 - 2 * output)})
op("tanh_backward(Tensor grad_output, Tensor output) -> Tensor", rule=binary, variants="", inplace=False,
   npu="aclnnTanhBackward(grad_output, output, out)",
   grad={"grad_output": lambda g, output: g * (1 - output * output),
         "output": lambda g, grad_output, output: conj(g) * grad_output * conj(-2 * output)})
op("angle(Tensor self) -> Tensor", rule=unary_float_real, inplace=False,
   grad={"self": lambda g, self: _angle_grad(g, self)})


def _angle_grad(g: Tensor, self: Tensor) -> Tensor:
    if not self.is_complex():
        return ops.zeros_like(g)
    size = self.abs()
    return ops.where(size == 0, 0, ops.complex(-self.imag, self.real) * (g / (size * size)))


@composite("conj(Tensor(a) self) -> Tensor(a)", out=False)
def _conj_op(self: Tensor) -> Tensor:
    """The complex conjugate, as a view that is read so; a real tensor as it is."""
    return ops._conj(self) if self.is_complex() else self


@composite("resolve_conj(Tensor(a) self) -> Tensor(a)", out=False)
def _resolve_conj(self: Tensor) -> Tensor:
    """A copy where self is read conjugated, else self."""
    return self.clone() if self.is_conj() else self


@composite("resolve_neg(Tensor(a) self) -> Tensor(a)", out=False)
def _resolve_neg(self: Tensor) -> Tensor:
    """A copy where self is read negated, else self."""
    return self.clone() if self.is_neg() else self


@composite("real(Tensor(a) self) -> Tensor(a)", out=False, variants="function")
def _real_part(self: Tensor) -> Tensor:
    """The real part, a view of self; a real tensor as it is."""
    return self.real


@composite("imag(Tensor(a) self) -> Tensor(a)", out=False, variants="function")
def _imaginary_part(self: Tensor) -> Tensor:
    """The imaginary part, a view of self."""
    return self.imag


@composite("isreal(Tensor self) -> Tensor", out=False)
def _isreal(self: Tensor) -> Tensor:
    """Where the imaginary part is zero."""
    return self.imag == 0 if self.is_complex() else ops.ones_like(self, dtype=_C._dtype_named("bool"))


def _power_dtype(self: Any, exponent: Any) -> _C.dtype:
    wide = any(isinstance(x, complex) or (hasattr(x, "is_complex") and x.is_complex()) for x in (self, exponent))
    return _C._dtype_named("complex128" if wide else "float64")


@composite("float_power(Tensor self, Tensor exponent) -> Tensor", numbers=True,
           out="the output given to float_power has dtype {out} but the operation's result requires dtype {result}")
def _float_power(self: Any, exponent: Any) -> Tensor:
    """self ** exponent in double precision."""
    dtype = _power_dtype(self, exponent)
    base, power = (x.to(dtype) if hasattr(x, "dtype") else x for x in (self, exponent))
    return base ** power if hasattr(base, "dtype") else ops.pow(base, power)


@composite("float_power_(Tensor(a!) self, Tensor exponent) -> Tensor(a!)", numbers=True, variants="method")
def _float_power_(self: Tensor, exponent: Tensor) -> Tensor:
    dtype = _power_dtype(self, exponent)
    if self.dtype is not dtype:
        raise RuntimeError(f"the base given to float_power_ has dtype {_C.TYPE_WORDS[self.dtype._id]} but the "
                           f"operation's result requires dtype {_C.TYPE_WORDS[dtype._id]}")
    return self.pow_(exponent)


op("conj_physical(Tensor self) -> Tensor", rule=unary, out=_SAME, grad={"self": lambda g: conj(g)})
op("nan_to_num(Tensor self, float? nan=None, float? posinf=None, float? neginf=None) -> Tensor",
   lacks="complex32", rule=unary, out="nan_to_num: dtype of out: {out} should be same as input: {result}",
   npu="aclnnNanToNum(self, nan, posinf, neginf, out)",
   grad={"self": lambda g, self: g * (self.isfinite()), "complex": "nan_to_num"})
op("logit(Tensor self, float? eps=None) -> Tensor", rule=unary_float, npu="aclnnLogit(self, eps=-1.0, out)",
   grad={"self": lambda g, self, eps: ops.logit_backward(g, self, eps)})


@composite("logit_backward(Tensor grad_output, Tensor self, float? eps=None) -> Tensor", variants="",
           rule=lambda grad_output, self, eps: None if grad_output.dtype is not self.dtype else (self.shape, self.dtype),
           npu="aclnnLogitGrad(self, grad_output, eps=-1.0, out)")
def _logit_backward(grad_output: Tensor, self: Tensor, eps: float | None) -> Tensor:
    slope = grad_output / (self * (1 - self))
    if eps is None or eps < 0:                   # no limit, as None
        return ops.where((self < 0) | (self > 1), math.nan, slope)
    return ops.where((self < eps) | (self > 1 - eps), 0, slope)


op("deg2rad(Tensor self) -> Tensor", rule=unary_float, refuses={"complex": "deg2rad is not supported for complex tensors."},
   grad={"self": lambda g: g * (math.pi / 180)})
op("rad2deg(Tensor self) -> Tensor", rule=unary_float, refuses={"complex": "rad2deg is not supported for complex tensors."},
   grad={"self": lambda g: g * (180 / math.pi)})

# ---- three inputs ------------------------------------------------------------------------------------------------
op("where.self(Tensor condition, Tensor self, Tensor other) -> Tensor", rule=binary, kernel="where", guard="choice",
   out="Expected out type to be {result} but got {out}",
   variants="function", inplace=False, npu="aclnnSWhere(condition, self, other, out)",
   grad={"self": lambda g, condition: ops.where(condition, g, 0),
         "other": lambda g, condition: ops.where(condition, 0, g)})


@composite("where(Tensor self, Tensor condition, Tensor other) -> Tensor", numbers=True, variants="method",
           namespace="Tensor")
def _where_method(self: Tensor, condition: Tensor, other: Tensor) -> Tensor:
    """self where the condition holds, else other."""
    return ops.where(condition, self, other)


@composite("where(Tensor condition) -> Tensor[]", variants="function", batch=batching.dynamic)
def _where_indices(condition: Tensor) -> tuple[Tensor, ...]:
    return condition.nonzero().unbind(1)


op("lerp.Tensor(Tensor self, Tensor end, Tensor weight) -> Tensor", rule=binary, guard="same dtypes",
   npu=Npu("aclnnLerp(self, end, weight, out)", number={"weight": "aclnnLerps(self, end, weight, out)"}),
   grad={"self": lambda g, weight: g * conj(1 - weight), "end": lambda g, weight: g * conj(weight),
         "weight": lambda g, self, end: g * conj(end - self)})
op("addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor", autocast={"npu": "widest"},
   rule=binary, numbers=False,
   npu="aclnnAddcmul(self, tensor1, tensor2, value, out)",
   grad={"self": lambda g: g, "tensor1": lambda g, tensor2, value: g * conj(tensor2 * value),
         "tensor2": lambda g, tensor1, value: g * conj(tensor1 * value)})
core._name_loops({
    "add": "add_stub", "sub": "add_stub", "rsub": "add_stub", "digamma": "digamma", "pow": "pow",
    "bitwise_left_shift": "lshift_cpu", "bitwise_right_shift": "rshift_cpu",
    "floor_divide": "div_floor_cpu", "fmax": "maximum_cpu", "fmin": "minimum_cpu", "sgn": "sign_cpu",
    "addcmul": "addcmul_cpu_out", "lerp": "lerp_kernel_tensor",
    "_clamp_min_tensor": "maximum_cpu", "_clamp_max_tensor": "minimum_cpu", "_clamp_tensor": "clamp_cpu", "_square": "pow",
    **{name: name + "_vml_cpu" for name in "ceil erf erfc erfinv exp floor i0 lgamma round trunc".split()}})
_DIVISION = ("Integer division with addcdiv is no longer supported, and in a future  release addcdiv will perform a true "
             "division of tensor1 and tensor2.")
op("addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor", autocast={"npu": "widest"},
   rule=binary, numbers=False,
   refuses={"bool": _DIVISION, "int": _DIVISION},
   npu="aclnnAddcdiv(self, tensor1, tensor2, value, out)",
   grad={"self": lambda g: g, "tensor1": lambda g, tensor2, value: g * conj(value / tensor2),
         "tensor2": lambda g, tensor1, tensor2, value: -g * conj((value * tensor1) / (tensor2 * tensor2))})


_VALUE_FIRST = ("Tensor input, Number value, Tensor tensor1, Tensor tensor2",
                "Tensor input, Tensor tensor1, Tensor tensor2, *, Number value = 1")


@composite("addcmul.deprecated(Tensor self, Scalar value, Tensor tensor1, Tensor tensor2) -> Tensor")
def _addcmul_value_first(self: Tensor, value: float, tensor1: Tensor, tensor2: Tensor) -> Tensor:
    warn_overload("addcmul", *_VALUE_FIRST)
    return ops.addcmul(self, tensor1, tensor2, value=value)


def warn_overload(name: str, old: str, new: str) -> None:
    """Of a form that torch still takes: whichever is called first is the one that is warned of."""
    _config.warn_once(f"This overload of {name} is deprecated:\n\t{name}({old}, *, Tensor out = None)\nConsider using one of the "
                      f"following signatures instead:\n\t{name}({new}, Tensor out = None)", 4, "overload")


for _name in ("add", "sub"):
    def _alpha_first(self: Tensor, alpha: complex, other: Tensor, _name: str = _name) -> Tensor:
        warn_overload(_name, "Tensor input, Number alpha, Tensor other", "Tensor input, Tensor other, *, Number alpha = 1")
        return getattr(ops, _name)(self, other, alpha=alpha)
    op(f"{_name}.deprecated(Tensor self, Scalar alpha, Tensor other) -> Tensor", numbers="other", body=_alpha_first)


@composite("addcdiv.deprecated(Tensor self, Scalar value, Tensor tensor1, Tensor tensor2) -> Tensor")
def _addcdiv_value_first(self: Tensor, value: float, tensor1: Tensor, tensor2: Tensor) -> Tensor:
    warn_overload("addcdiv", *_VALUE_FIRST)
    return ops.addcdiv(self, tensor1, tensor2, value=value)


# ---- clamp --------------------------------------------------------------------------------------------------------
op("_clamp_number(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor", rule=unary, kernel="clamp",
   variants="", npu="aclnnClamp(self, min, max, out)", inplace=False, guard="result",
   grad={"self": lambda g, self, min, max: ops.where(_inside(self, min, max), g, 0)})
op("_clamp_tensor(Tensor self, Tensor min, Tensor max) -> Tensor", rule=binary, kernel="clamp_tensor",
   variants="", inplace=False, npu="aclnnClampTensor(self, min, max, out)",
   grad={"self": lambda g, self, min, max: ops.where((self >= min) & (self <= max), g, 0),
         "min": lambda g, self, min, max: ops.where((min < max) & (self < min), g, 0),
         "max": lambda g, self, min, max: ops.where((self > max) | (max < min), g, 0)})


op("_clamp_min_tensor(Tensor self, Tensor min) -> Tensor", rule=binary, variants="", inplace=False, kernel="maximum",
   npu="aclnnMaximum(self, min, out)",
   grad={"self": lambda g, self, min: ops.where(self >= min, g, 0), "min": lambda g, self, min: ops.where(self < min, g, 0)})
op("_clamp_max_tensor(Tensor self, Tensor max) -> Tensor", rule=binary, variants="", inplace=False, kernel="minimum",
   npu="aclnnMinimum(self, max, out)",
   grad={"self": lambda g, self, max: ops.where(self <= max, g, 0), "max": lambda g, self, max: ops.where(self > max, g, 0)})


def _inside(x: Tensor, low: float | None, high: float | None) -> Tensor:
    if low is None:
        return x <= high
    return x >= low if high is None else (x >= low) & (x <= high)


def _clamp(self: Any, min: Any, max: Any) -> Tensor:
    """Limits every item to [min, max]; a limit is a number, a tensor or None."""
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    if not hasattr(min, "dtype") and not hasattr(max, "dtype"):
        if not self.is_floating_point():
            for v in (min, max):
                if v is not None and (type(v) is not int or self.dtype._name == "bool"):  # of integers an int keeps the dtype
                    self = self.to(ops.result_type(self, v))
            if self.is_complex():
                raise NotImplementedError("clamp is not supported for complex types")
        return ops._clamp_number(self, min, max)
    if self.is_complex() or any(getattr(v, "is_complex", bool)() for v in (min, max)):
        raise NotImplementedError("clamp is not supported for complex types")
    if min is None:
        return ops._clamp_max_tensor(self, max)
    if max is None:
        return ops._clamp_min_tensor(self, min)
    if hasattr(min, "dtype") != hasattr(max, "dtype"):
        limit = min if hasattr(min, "dtype") else max
        if limit.dim() == 0 and not limit.requires_grad:      # a number, as torch takes it
            return _clamp(self, *(v.item() if v is limit else v for v in (min, max)))
        names = ("Tensor", type(max).__name__) if hasattr(min, "dtype") else (type(min).__name__, "Tensor")
        raise TypeError(f"clamp() received an invalid combination of arguments - got (Tensor, {', '.join(names)}), but expected "
                        "one of:\n * (Tensor input, Tensor min = None, Tensor max = None, *, Tensor out = None)\n"
                        " * (Tensor input, Number min = None, Number max = None, *, Tensor out = None)\n")
    if self.dtype._name == min.dtype._name == max.dtype._name == "bool":
        raise NotImplementedError("\"clamp_cpu\" not implemented for 'Bool'")
    return ops._clamp_tensor(self, min, max)


op("clamp(Tensor self, Tensor? min=None, Tensor? max=None) -> Tensor", body=_clamp, numbers="other", inplace=True,
   doc=_clamp.__doc__)
alias("clip", "clamp")


@composite("clamp_min(Tensor self, Tensor min) -> Tensor", numbers="other", inplace=True)
def _clamp_min(self: Tensor | int, min: Tensor | float) -> Tensor:
    return _clamp(self, min, None)


@composite("clamp_max(Tensor self, Tensor max) -> Tensor", numbers="other", inplace=True)
def _clamp_max(self: Tensor | int, max: Tensor | int) -> Tensor:
    return _clamp(self, None, max)


# ---- activations ---------------------------------------------------------------------------------------------------
op("threshold_backward(Tensor grad_output, Tensor self, Scalar threshold) -> Tensor", rule=binary, variants="nn",
   inplace=False, npu="aclnnThresholdBackward(grad_output, self, threshold, out)",
   grad={"grad_output": lambda g, self, threshold: ops.threshold_backward(g, self, threshold),
         "self": lambda g: ops.zeros_like(g)})
op("relu(Tensor self) -> Tensor", out=False, rule=unary, npu="aclnnRelu(self, out)",
   refuses={"bool": "Boolean inputs not supported for relu"},
   grad={"self": lambda g, result: ops.threshold_backward(g, result, 0)})
