"""Rows of the activation functions and of softmax. The other families of torch.nn are in the nn_*.py beside."""
from __future__ import annotations

import math

from mindtorch_v2 import _C
from mindtorch_v2._ops.infer import binary, unary
from mindtorch_v2._ops.pointwise import conj
from mindtorch_v2._ops.reduce import word
from mindtorch_v2._ops.table import alias, composite, op, ops
from mindtorch_v2._ops.view import wrap

_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
_INV_SQRT_2PI = 1 / math.sqrt(2 * math.pi)


# ---- second derivatives ------------------------------------------------------------------------------------------
def _flat(x, *_):
    """The second derivative of a piecewise linear function."""
    return ops.zeros_like(x)


def _gelu_2(x, approximate):
    if approximate == "none":
        return (x * x * -0.5).exp() * (2 - x * x) * _INV_SQRT_2PI
    k, c = math.sqrt(2 / math.pi), 0.044715
    t, slope = (k * x * (1 + c * x * x)).tanh(), k * (1 + 3 * c * x * x)
    return (1 - t * t) * (slope + 0.5 * x * (6 * k * c * x - 2 * t * slope * slope))


def _silu_2(x):
    s = x.sigmoid()
    return s * (1 - s) * (2 + x * (1 - 2 * s))


def _mish_2(x):
    t, s = ops.softplus(x).tanh(), x.sigmoid()
    slope = (1 - t * t) * s
    return 2 * slope + x * slope * ((1 - s) - 2 * t * s)


def _elu_2(x, alpha, scale, input_scale):
    return ops.where(x > 0, 0, (x * input_scale).exp() * (alpha * scale * input_scale ** 2))


def _softplus_2(x, beta, threshold):
    s = (x * beta).sigmoid()
    return ops.where(x * beta > threshold, 0, s * (1 - s) * beta)


def _log_sigmoid_2(x):
    s = x.sigmoid()
    return -s * (1 - s)


# ---- one row a function: its parameters beside self, where it lives, its second derivative and aclnn names ---------
# The backward is a kernel of its own, NAME_backward(grad_output, self, parameters).
_nn, _function = ("nn", "nn"), ("function", "function")
for _name, _params, (_where, _inplace), _second, _npu, _npu_back in (
    ("gelu", "*, str approximate='none'", _nn, _gelu_2, "aclnnGeluV2(self, approximate, out)",
     "aclnnGeluBackwardV2(grad_output, self, approximate, out)"),
    ("silu", "", _nn, _silu_2, "aclnnSilu(self, out)", "aclnnSiluBackward(grad_output, self, out)"),
    ("mish", "", _nn, _mish_2, "aclnnMish(self, out)", "aclnnMishBackward(grad_output, self, out)"),
    ("elu", "Scalar alpha=1, Scalar scale=1, Scalar input_scale=1", _nn, _elu_2,
     "aclnnElu(self, alpha, scale, input_scale, out)",
     "aclnnEluBackward(grad_output, alpha, scale, input_scale, 0, self, out)"),
    ("leaky_relu", "Scalar negative_slope=0.01", _nn, _flat, "aclnnLeakyRelu(self, negative_slope, out)",
     "aclnnLeakyReluBackward(grad_output, self, negative_slope, 0, out)"),
    ("hardtanh", "Scalar min_val=-1, Scalar max_val=1", _nn, _flat, "aclnnHardtanh(self, min_val, max_val, out)",
     "aclnnHardtanhBackward(grad_output, self, min_val, max_val, out)"),
    ("hardswish", "", _nn, lambda x: ops.where((x > -3) & (x < 3), 1 / 3, 0.0).to(x.dtype),
     "aclnnHardswish(self, out)", "aclnnHardswishBackward(grad_output, self, out)"),
    ("hardsigmoid", "", _nn, _flat, "aclnnHardsigmoid(self, out)", "aclnnHardsigmoidBackward(grad_output, self, out)"),
    ("softplus", "Scalar beta=1, Scalar threshold=20", ("nn", False), _softplus_2,
     "aclnnSoftplus(self, beta, threshold, out)", "aclnnSoftplusBackward(grad_output, self, beta, threshold, out)"),
    ("log_sigmoid", "", ("nn", False), _log_sigmoid_2, "aclnnLogSigmoid(self, out)", None),
):
    _args = [p.split("=")[0].split()[-1] for p in _params.replace("*, ", "").split(", ") if p]
    _named = ", ".join(f"{a}={a}" for a in _args) if "*" in _params else ", ".join(_args)
    _all = ", ".join(["self", *_args])
    _space = dict(globals(), second=_second, ops=ops)     # formulas whose parameters are named as the row's
    op(f"{_name}_backward(Tensor grad_output, Tensor self{', ' * bool(_params)}{_params}) -> Tensor", rule=binary,
       variants="", inplace=False, npu=_npu_back, grad={
           "grad_output": eval(f"lambda g, {_all}: ops.{_name}_backward(g, self, {_named})", _space),
           "self": eval(f"lambda g, grad_output, {_all}: g * grad_output * conj(second({_all}))", _space)})
    op(f"{_name}(Tensor self{', ' * bool(_params)}{_params}) -> Tensor", rule=unary, variants=_where,
       inplace=_inplace, npu=_npu,
       grad={"self": eval(f"lambda g, {_all}: ops.{_name}_backward(g, self, {_named})", _space)})
for _name, _text in (
    ("gelu", "x times the normal distribution's cumulative at x; approximate='tanh' for its approximation."),
    ("silu", "x * sigmoid(x)."), ("mish", "x * tanh(softplus(x))."), ("elu", "x, or alpha * (exp(x) - 1) below zero."),
    ("leaky_relu", "x, or negative_slope * x below zero."), ("hardtanh", "x limited to [min_val, max_val]."),
    ("hardswish", "x * relu6(x + 3) / 6."), ("hardsigmoid", "relu6(x + 3) / 6."),
    ("softplus", "log(1 + exp(beta * x)) / beta; x itself above the threshold."), ("log_sigmoid", "log(sigmoid(x))."),
):
    getattr(ops, _name).doc = _text
