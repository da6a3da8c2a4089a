"""Rows of the activation functions and of softmax. The other families of torch.nn are in the nn_*.py beside."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._C import _core as core
from mindtorch_v2._dtype import finfo
from mindtorch_v2._ops import batching
from mindtorch_v2._ops.infer import binary, unary
from mindtorch_v2._ops.pointwise import conj
from mindtorch_v2._ops.reduce import word
from mindtorch_v2._ops.table import Spec, alias, composite, op, ops
from mindtorch_v2._ops.view import wrap
from mindtorch_v2._tensor import Tensor

_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
_INV_SQRT_2PI = 1 / math.sqrt(2 * math.pi)


# ---- second derivatives ------------------------------------------------------------------------------------------
def _flat(g: Tensor) -> Tensor:
    """The second derivative of a piecewise linear function."""
    return ops.zeros_like(g)


core._name_loops({"gelu": "GeluKernelImpl", "celu": "elu_cpu", "selu": "elu_cpu", "_softshrink": "softshrink_check",
                  "hardtanh": "clamp_scalar_cpu", "relu6": "clamp_scalar_cpu", "relu": "clamp_min_scalar_cpu",
                  "_bce": "binary_cross_entropy", "mse_loss": "mse_cpu", "_bce_logits": "log_sigmoid_cpu",
                  "_smooth_l1": "smooth_l1_cpu"})
_NO_BOOL = {"bool": "Bool inputs not supported for hardtanh"}


def _gelu_2(x: Tensor, approximate: str) -> Tensor:
    if approximate == "none":
        return (x * x * -0.5).exp() * (2 - x * x) * _INV_SQRT_2PI
    k, c = math.sqrt(2 / math.pi), 0.044715
    t, slope = (k * x * (1 + c * x * x)).tanh(), k * (1 + 3 * c * x * x)
    return (1 - t * t) * (slope + 0.5 * x * (6 * k * c * x - 2 * t * slope * slope))


def _silu_2(x: Tensor) -> Tensor:
    s = x.sigmoid()
    return s * (1 - s) * (2 + x * (1 - 2 * s))


def _mish_2(x: Tensor) -> Tensor:
    t, s = ops.softplus(x).tanh(), x.sigmoid()
    slope = (1 - t * t) * s
    return 2 * slope + x * slope * ((1 - s) - 2 * t * s)


def _elu_2(x: Tensor, alpha: float, scale: float, input_scale: float) -> Tensor:
    return ops.where(x > 0, 0, (x * input_scale).exp() * (alpha * scale * input_scale ** 2))


def _softplus_2(x: Tensor, beta: int, threshold: float) -> Tensor:
    s = (x * beta).sigmoid()
    return ops.where(x * beta > threshold, 0, s * (1 - s) * beta)


# ---- one row a function ------------------------------------------------------------------------------------------
# (name, parameters beside self, slope as g -> gradient, curve as the gradient of that to self (None: it has none), where
# the in-place form is, aclnn's arguments). NAME_backward(grad_output, self, parameters) is a kernel of its own; torch's ops
# of that name take other arguments in elu's and leaky_relu's case (backward.py).
for _name, _params, _slope, _curve, _inplace, _npu, _npu_back in (
    ("gelu", ", *, str approximate='none'",
     lambda g, self, approximate: ops.gelu_backward(g, self, approximate=approximate),
     lambda g, grad_output, self, approximate: g * grad_output * _gelu_2(self, approximate), "nn",
     "GeluV2(self, approximate[none|tanh], out)", "GeluBackwardV2(grad_output, self, approximate, out)"),
    ("silu", "", lambda g, self: ops.silu_backward(g, self),
     lambda g, grad_output, self: g * conj(grad_output * _silu_2(self)), "nn",
     "Silu(self, out)", "SiluBackward(grad_output, self, out)"),
    ("mish", "", lambda g, self: ops.mish_backward(g, self),
     lambda g, grad_output, self: g * grad_output * _mish_2(self), "nn",
     "Mish(self, out)", "MishBackward(grad_output, self, out)"),
    ("elu", ", Scalar alpha=1, Scalar scale=1, Scalar input_scale=1",
     lambda g, self, alpha, scale, input_scale: ops._elu_backward(g, self, alpha, scale, input_scale),
     lambda g, grad_output, self, alpha, scale, input_scale:
     g * grad_output * _elu_2(self, alpha, scale, input_scale), "nn",
     "Elu(self, alpha, scale, input_scale, out)", "EluBackward(grad_output, alpha, scale, input_scale, 0, self, out)"),
    ("leaky_relu", ", Scalar negative_slope=0.01",
     lambda g, self, negative_slope: ops._leaky_relu_backward(g, self, negative_slope), _flat, "nn",
     "LeakyRelu(self, negative_slope, out)", "LeakyReluBackward(grad_output, self, negative_slope, 0, out)"),
    ("hardtanh", ", Scalar min_val=-1, Scalar max_val=1",
     lambda g, self, min_val, max_val: ops.hardtanh_backward(g, self, min_val, max_val), _flat, "nn",
     "Hardtanh(self, min_val, max_val, out)", "HardtanhBackward(grad_output, self, min_val, max_val, out)"),
    ("hardswish", "", lambda g, self: ops.hardswish_backward(g, self),
     lambda g, grad_output, self: (g * grad_output / 3).masked_fill((self <= -3) | (self >= 3), 0), "nn",
     "Hardswish(self, out)", "HardswishBackward(grad_output, self, out)"),
    ("hardsigmoid", "", lambda g, self: ops.hardsigmoid_backward(g, self), None, "nn",
     "Hardsigmoid(self, out)", "HardsigmoidBackward(grad_output, self, out)"),
    ("softplus", ", Scalar beta=1, Scalar threshold=20",
     lambda g, self, beta, threshold: ops.softplus_backward(g, self, beta, threshold),
     lambda g, grad_output, self, beta, threshold: g * grad_output * _softplus_2(self, beta, threshold), False,
     "Softplus(self, beta, threshold, out)", "SoftplusBackward(grad_output, self, beta, threshold, out)"),
    ("log_sigmoid", "", lambda g, self: ops.log_sigmoid_backward(g, self),
     lambda g, grad_output, self: g * grad_output * -ops.sigmoid_backward(ops.ones_like(self), self.sigmoid()), False,
     "LogSigmoid(self, out)", "LogSigmoidBackward(grad_output, self, self, out)"),    # a buffer that is not read
):
    _own = "_" if _name in ("elu", "leaky_relu") else ""
    op(f"{_own}{_name}_backward(Tensor grad_output, Tensor self{_params}) -> Tensor", rule=binary, variants="",
       inplace=False, kernel=f"{_name}_backward", npu="aclnn" + _npu_back,
       grad={"grad_output": _slope, "self": _curve} if _curve is not None else None)
    op(f"{_name}(Tensor self{_params}) -> Tensor", rule=unary, variants="nn", inplace=_inplace, npu="aclnn" + _npu,
       kernel="clamp" if _name == "hardtanh" else None, refuses=_NO_BOOL if _name == "hardtanh" else None,
       grad={"self": _slope, **({"complex": "silu"} if _name == "silu" else {})}, guard="result" if _name == "hardtanh" else None,
       autocast={"npu": "float32"} if _name == "softplus" else None)
for _name, _text in (
    ("gelu", "x times the normal distribution's cumulative at x; approximate='tanh' for its approximation."),
    ("silu", "x * sigmoid(x)."), ("mish", "x * tanh(softplus(x))."), ("elu", "x, or alpha * (exp(x) - 1) below zero."),
    ("leaky_relu", "x, or negative_slope * x below zero."), ("hardtanh", "x limited to [min_val, max_val]."),
    ("hardswish", "x * relu6(x + 3) / 6."), ("hardsigmoid", "relu6(x + 3) / 6."),
    ("softplus", "log(1 + exp(beta * x)) / beta; x itself above the threshold."), ("log_sigmoid", "log(sigmoid(x))."),
):
    getattr(ops, _name).doc = _text

op("relu6(Tensor self) -> Tensor", rule=unary, variants="nn", npu="aclnnHardtanh(self, 0, 6, out)", refuses=_NO_BOOL,
   grad={"self": lambda g, self: ops.hardtanh_backward(g, self, 0, 6)}, doc="x limited to [0, 6].")
op("celu(Tensor self, Scalar alpha=1.0) -> Tensor", out=False, rule=unary, variants="function", inplace="function",
   npu="aclnnCelu(self, alpha, out)",
   grad={"self": lambda g, self, alpha: ops._elu_backward(g, self, alpha, 1, 1 / alpha)},
   doc="x, or alpha * (exp(x / alpha) - 1) below zero.")
op("threshold(Tensor self, Scalar threshold, Scalar value) -> Tensor", rule=unary, variants="function", guard="result",
   inplace="function", npu="aclnnThreshold(self, threshold, value, out)",
   grad={"self": lambda g, self, threshold: ops.threshold_backward(g, self, threshold)},
   doc="x where it is above the threshold, else value.")


def _shrink_backward(grad_output: Tensor, self: Tensor, lambd: float) -> Tensor:
    return grad_output.masked_fill((self >= -lambd) & (self <= lambd), 0)


def _shrink_slope(grad_output: Tensor, self: Tensor, lambd: complex) -> Spec | None:
    """The rule of a shrink's gradient where CANN has it: of one shape and dtype."""
    same = grad_output.shape == self.shape and grad_output.dtype is self.dtype
    return (self.shape, self.dtype) if same else None


for _name in ("hardshrink", "softshrink"):
    op(f"{_name}_backward(Tensor grad_output, Tensor self, Scalar lambd) -> Tensor", variants="",
       body=_shrink_backward, rule=_shrink_slope,
       npu=f"aclnn{_name.capitalize()}Backward(grad_output, self, lambd, out)")
op("hardshrink(Tensor self, Scalar lambd=0.5) -> Tensor", rule=unary, inplace=False,
   npu="aclnnHardshrink(self, lambd, out)",
   grad={"self": lambda g, self, lambd: ops.hardshrink_backward(g, self, lambd)},
   doc="x, and 0 between -lambd and lambd.")
op("_softshrink(Tensor self, Scalar lambd) -> Tensor", rule=unary, kernel="softshrink", variants="", inplace=False,
   npu="aclnnSoftshrink(self, lambd, out)",
   grad={"self": lambda g, self, lambd: ops.softshrink_backward(g, self, lambd)})


@composite("softshrink(Tensor self, Scalar lambd=0.5) -> Tensor", variants="nn")
def _softshrink(self: Tensor, lambd: float) -> Tensor:
    """x moved toward zero by lambd, and 0 between -lambd and lambd."""
    core._check_fits(lambd, _C._dtype_named("float64"))
    if self.is_floating_point() and not 0 <= lambd.real <= finfo(self.dtype).max:
        raise RuntimeError(f"lambda must be in range [0, {finfo(self.dtype).max:g}] for input dtype {word(self.dtype)}, "
                           f"but found {lambd.real:g}")
    return ops._softshrink(self, lambd.real)


@composite("selu(Tensor self) -> Tensor", out=False, variants="function", inplace="function")
def _selu(self: Tensor) -> Tensor:
    """elu with the alpha and scale that keep mean 0 and variance 1."""
    return ops.elu(self, _SELU_ALPHA, _SELU_SCALE)


def _channel_weight(self: Tensor, weight: Tensor) -> Tensor:
    """prelu's weight in a shape that broadcasts along the channels, which are dim 1."""
    if self.dtype is not weight.dtype:
        raise RuntimeError(f"prelu: Type promoting not supported. Got {word(self.dtype)} and {word(weight.dtype)}")
    if weight.numel() != 1:
        if self.dim() == 0:
            raise RuntimeError("Not allow zero-dim input tensor.")
        channels = self.size(1) if self.dim() > 1 else 1
        if channels != weight.numel():
            raise RuntimeError(f"Mismatch of parameter numbers and input channel size. Found parameter numbers = "
                               f"{weight.numel()} and channel size = {channels}.")
    if weight.dim() > 1:
        raise RuntimeError(f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.dim()}")
    if self.dim() > 1 and weight.dim() == 1:
        return weight.reshape([-1 if d == 1 else 1 for d in range(self.dim())])
    return weight.reshape(()) if self.dim() == 0 else weight


def _prelu_rule(self: Tensor, weight: Tensor) -> Spec | None:
    """CANN takes weights of one dim."""
    _channel_weight(self, weight)
    return (self.shape, self.dtype) if weight.dim() == 1 and self.dim() else None


@composite("_prelu_backward(Tensor grad_output, Tensor self, Tensor weight) -> (Tensor, Tensor)", variants="",
           rule=lambda grad_output, self, weight:
           _prelu_rule(self, weight) and [(self.shape, self.dtype), (weight.shape, weight.dtype)],
           npu="aclnnPreluBackward(grad_output, self, weight, out0, out1)")
def _prelu_backward(grad_output: Tensor, self: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    weights = _channel_weight(self, weight)
    slope = ops.where(self > 0, grad_output, weights * grad_output)
    return slope, ops.where(self > 0, 0, self * grad_output).sum_to_size(weights.shape).reshape(weight.shape)


@composite("prelu(Tensor self, Tensor weight) -> Tensor", autocast="lower", out=False, lacks="int bool",
           rule=_prelu_rule, node=True, npu="aclnnPrelu(self, weight, out)",
           grad={"self, weight": lambda g, self, weight: ops._prelu_backward(g, self, weight)})
def _prelu(self: Tensor, weight: Tensor) -> Tensor:
    """x, or weight * x below zero, with one weight or one for each channel."""
    return ops.where(self > 0, self, _channel_weight(self, weight) * self)


def _halved(self: Tensor, dim: int) -> tuple[int, ...]:
    """The dim that glu halves, and its new size."""
    if self.dim() == 0:
        raise RuntimeError("glu does not support 0-dimensional tensors")
    dim = wrap(dim, self.dim())
    if self.size(dim) % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {dim} is size {self.size(dim)}")
    return dim, self.size(dim) // 2


def _glu_rule(self: Tensor, dim: int) -> Spec:
    dim, half = _halved(self, dim)
    return [half if d == dim else size for d, size in enumerate(self.shape)], self.dtype


@composite("glu_backward(Tensor grad_output, Tensor self, int dim) -> Tensor", variants="",
           rule=lambda grad_output, self, dim: (self.shape, self.dtype),
           npu="aclnnGluBackward(grad_output, self, dim, out)")
def _glu_backward(grad_output: Tensor, self: Tensor, dim: int) -> Tensor:
    dim, half = _halved(self, dim)
    gate = self.narrow(dim, half, half).sigmoid()
    first = grad_output * gate
    return ops.cat([first, first * (1 - gate) * self.narrow(dim, 0, half)], dim)


@composite("glu(Tensor self, int dim=-1) -> Tensor",
           variants="nn", rule=_glu_rule, npu="aclnnGlu(self, dim, out)", node=True,
           grad={"self": lambda g, self, dim: ops.glu_backward(g, self, dim)})
def _glu(self: Tensor, dim: int) -> Tensor:
    """The first half along dim times the sigmoid of the second."""
    dim, half = _halved(self, dim)
    if not self.is_floating_point():
        raise NotImplementedError(f'"glu_cpu" not implemented for \'{_C.TYPE_WORDS[self.dtype._id]}\'')
    return self.narrow(dim, 0, half) * self.narrow(dim, half, half).sigmoid()


# ---- randomly leaky relu -----------------------------------------------------------------------------------------
def _rrelu_noise(self: Tensor, lower: complex, upper: complex, generator: _C.GeneratorBase | None) -> Tensor:
    """The slope of every item: drawn for those not above zero, one number each in order; else 1."""
    below = self.detach() <= 0
    count = below.sum()._known()
    drawn = ops.empty((below.numel() if count is None else count,), dtype=_C._dtype_named("float64"), device=self.device)
    drawn.uniform_(lower, upper, generator=generator)
    return ops.ones_like(self.detach()).masked_scatter(below, drawn.to(self.dtype))


_KINDS = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}


def _middle(lower: complex, upper: complex) -> float:
    """The slope without training: PyTorch adds the bounds as tensors of their own kinds, so that True and True are True."""
    if isinstance(lower, float) and isinstance(upper, float):
        return (lower + upper) / 2
    made = [ops.scalar_tensor(b, dtype=_C._dtype_named("uint64" if isinstance(b, int) and b >= 2**63 else _KINDS[type(b)]))
            for b in (lower, upper)]
    return ((made[0] + made[1]) / 2).item()


def _rrelu_train(self: Tensor, lower: float, upper: float, training: bool,
                 generator: _C.GeneratorBase | None) -> Tensor:
    """Leaky relu; in training with a slope drawn from [lower, upper] for each item."""
    for bound in (lower, upper):
        core._check_fits(bound, _C._dtype_named("float64"))
    lower, upper = (b.real if isinstance(b, complex) else b for b in (lower, upper))
    for name, bound in (("lower", lower), ("upper", upper)):
        if not math.isfinite(bound):
            raise RuntimeError(f"rrelu: {name} bound must be finite, got {bound}")
    if lower > upper:
        raise RuntimeError("Lower bound should be less than or equal to the upper bound")
    if not training:
        return ops.leaky_relu(self, _middle(lower, upper))
    if self.dtype == _C._dtype_named("float16") and not self.is_npu:
        raise NotImplementedError("\"rrelu_with_noise_out_cpu\" not implemented for 'Half'")
    if self.is_npu:                              # CANN draws and multiplies at once, and leaves the slopes in a tensor
        return ops.rrelu_with_noise(self, ops.empty_like(self.detach()), lower, upper, True, generator)
    return self * _rrelu_noise(self, lower, upper, generator)


op("rrelu(Tensor self, Scalar lower=0.125, Scalar upper=0.3333333333333333, bool training=False, "
   "Generator? generator=None) -> Tensor",
   lacks="bool int", out=False, body=_rrelu_train, variants="function", inplace="function")


def _rrelu_rule(self: Tensor, noise: Tensor, lower: complex, upper: complex, training: bool,
                generator: _C.GeneratorBase | None) -> Spec | None:
    """CANN keeps the slopes in the shape and dtype of self; without training there is nothing to draw."""
    same = noise.dtype is self.dtype and noise.shape == self.shape
    return (self.shape, self.dtype) if training and same else None


@composite("rrelu_with_noise(Tensor self, Tensor noise, Scalar lower=0.125, Scalar upper=0.3333333333333333, "
           "bool training=False, Generator? generator=None) -> Tensor", variants="nn", inplace="nn", rule=_rrelu_rule,
           npu="aclnnRReluWithNoise(self, noise, lower, upper, training, seed, offset, out)",
           grad={"self": lambda g, noise: g * noise})
def _rrelu_with_noise(self: Tensor, noise: Tensor, lower: complex, upper: complex, training: bool,
                      generator: _C.GeneratorBase | None) -> Tensor:
    """rrelu that leaves the slopes it drew in noise."""
    if not training:
        return ops.leaky_relu(self, _middle(lower, upper))
    noise.copy_(_rrelu_noise(self, lower, upper, generator))
    return self * noise.detach().clone()


# ---- softmax -----------------------------------------------------------------------------------------------------
op("_softmax_backward_data(Tensor grad_output, Tensor output, int dim, ScalarType input_dtype) -> Tensor",
   batch=batching.dims, rule="like",
   variants="function", npu="aclnnSoftmaxBackward(grad_output, output, dim, out)",
   grad={"grad_output": lambda g, output, dim: ops._softmax_backward_data(g, output, dim, output.dtype),
         "output": lambda g, grad_output, output, dim:
         g * (grad_output - (output * grad_output).sum(dim, True)) - grad_output * (g * output).sum(dim, True)})
op("_log_softmax_backward_data(Tensor grad_output, Tensor output, int dim, ScalarType input_dtype) -> Tensor",
   batch=batching.dims,
   rule="like", variants="function", npu="aclnnLogSoftmaxBackward(grad_output, output, dim, out)",
   grad={"grad_output": lambda g, output, dim: g - (g * output.exp()).sum(dim, True),
         "output": lambda g, grad_output, output, dim: -g * output.exp() * grad_output.sum(dim, True)})


def _softmax_dtype(name: str) -> Callable[..., Any]:
    def body(self: Tensor, dim: int, dtype: _C.dtype | None) -> Tensor:
        return getattr(ops, name)(self if dtype is None else self.to(dtype), dim)
    return body


for _name, _camel, _slope in (
    ("softmax", "Softmax", lambda g, result, dim: ops._softmax_backward_data(g, result, dim, result.dtype)),
    ("log_softmax", "LogSoftmax", lambda g, result, dim: ops._log_softmax_backward_data(g, result, dim, result.dtype)),
):
    op(f"_{_name}(Tensor self, int dim, bool half_to_float) -> Tensor",
       batch=batching.dims, rule="like", variants="function",
       npu=f"aclnn{_camel}(self, dim, out)", grad={"self": _slope})
    op(f"{_name}(Tensor self, int dim) -> Tensor",
       batch=batching.dims, rule="like", kernel=f"_{_name}", autocast={"npu": "float32"},
       npu=f"aclnn{_camel}(self, dim, out)", grad={"self": _slope})
    op(f"{_name}.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor", body=_softmax_dtype(_name))
    alias("special_" + _name, _name, "special")
ops.softmax.doc = "exp(x) along dim, divided by its sum."
ops.log_softmax.doc = "log(softmax(x)) along dim."


@composite("_safe_softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor", variants="function")
def _safe_softmax(self: Tensor, dim: int, dtype: _C.dtype | None) -> Tensor:
    """softmax that gives zeros where a whole row is -inf."""
    dead = (self == -math.inf).all(dim, True)
    return ops.softmax(self.masked_fill(dead, 0), dim, dtype).masked_fill(dead, 0)
