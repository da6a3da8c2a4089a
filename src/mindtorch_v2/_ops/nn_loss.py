"""Rows of the losses. Those of pairs and triples (margins, distances) and CTC are in nn_margin.py.

A reduction is torch's number: 0 keeps every loss, 1 takes the mean, 2 the sum."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._ops import batching_nn, forward
from mindtorch_v2._ops.infer import binary, unary
from mindtorch_v2._ops.reduce import INT64, is_float, word
from mindtorch_v2._ops.table import Spec, composite, op, ops
from mindtorch_v2._ops.view import is_plain
from mindtorch_v2._shape import broadcast
from mindtorch_v2._tensor import Tensor

_UINT8 = _C._dtype_named("uint8")
_WIDE = (_C._dtype_named("float32"), _C._dtype_named("float64"))


def reduced_loss(loss: Tensor, reduction: int) -> Tensor:
    """The losses as the reduction says."""
    return loss.mean() if reduction == 1 else loss.sum() if reduction == 2 else loss


# ---- item by item ----------------------------------------------------------------------------------------------------
# On an npu each of these losses and its gradient is one op of CANN, where that takes the dtypes; the bodies serve the rest.
def pair_loss(self: Tensor, target: Tensor, reduction: int, *_: object) -> Spec | None:
    """The rule of a loss of pairs that CANN has; it promotes otherwise than torch, and has no mean of integers."""
    if self.dtype is not target.dtype or not self.is_floating_point() or reduction not in (0, 1, 2):
        return None
    return broadcast(self.shape, target.shape) if reduction == 0 else (), self.dtype


def _pair(kernel: str, self: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Both in their common dtype, so that a bool may be subtracted too."""
    dtype = ops.result_type(self, target)
    if not is_float(dtype):
        raise NotImplementedError(f'"{kernel}" not implemented for \'{word(dtype)}\'')
    return self.to(dtype), target.to(dtype)


_SQUARE, _SIZE, _SMOOTH, _HUBER = range(4)
op("_pair_loss(Tensor self, Tensor target, int kind, float width, int reduction) -> Tensor", variants="", inplace=False,
   kernel="pair_loss", rule=lambda self, target, kind, width, reduction: ((), self.dtype))


def _reduced(kind: int, self: Tensor, target: Tensor, reduction: int, width: float = 0.0) -> Tensor | None:
    """The sum or mean of the losses of plain numbers, in one pass without a tensor of them; None of all else."""
    if reduction in (1, 2) and self.is_cpu and self.dtype is target.dtype and self.dtype in _WIDE and self.shape == target.shape \
            and self._readable and target._readable and self.is_contiguous() and target.is_contiguous():
        return ops._pair_loss(self, target, kind, width, reduction)
    return None


def pair_slope(grad_output: Tensor, self: Tensor, target: Tensor, reduction: int, *_: object) -> Spec | None:
    """The rule of the gradient of such a loss."""
    if pair_loss(self, target, reduction) is None or grad_output.dtype is not self.dtype:
        return None
    return broadcast(self.shape, target.shape), self.dtype


def share(grad_output: Tensor, self: Tensor, target: Tensor, reduction: Any) -> Any:
    """The part of the gradient that each item gets."""
    if reduction != 1:
        return grad_output
    items = 1
    for size in broadcast(self.shape, target.shape):
        items *= size
    return grad_output / items


@composite("mse_loss_backward(Tensor grad_output, Tensor self, Tensor target, int reduction) -> Tensor", variants="",
           rule=pair_slope, npu="aclnnMseLossBackward(grad_output, self, target, reduction, out)")
def _mse_loss_backward(grad_output: Tensor, self: Tensor, target: Tensor, reduction: int) -> Tensor:
    items = math.prod(broadcast(self.shape, target.shape)) if reduction == 1 else 1
    return (self - target) * (grad_output * (2 / max(items, 1)))


@composite("mse_loss(Tensor self, Tensor target, int reduction=0) -> Tensor", lacks="complex", autocast="float32",
           variants="nn", rule=pair_loss, node=True,
           npu="aclnnMseLoss(self, target, reduction, out)",
           grad={"self": lambda g, self, target, reduction: ops.mse_loss_backward(g, self, target, reduction),
                 "target": lambda g, self, target, reduction: ops.mse_loss_backward(g, target, self, reduction)})
def _mse_loss(self: Tensor, target: Tensor, reduction: int) -> Tensor:
    """The square of self - target."""
    if (made := _reduced(_SQUARE, self, target, reduction)) is not None:
        return made
    self, target = _pair("mse_cpu", self, target)
    return reduced_loss((self - target).square(), reduction)


@composite("_l1_loss_backward(Tensor grad_output, Tensor self, Tensor target, int reduction) -> Tensor", variants="",
           rule=pair_slope, npu="aclnnL1LossBackward(grad_output, self, target, reduction, out)")
def _l1_loss_backward(grad_output: Tensor, self: Tensor, target: Tensor, reduction: int) -> Tensor:
    return share(grad_output, self, target, reduction) * (self - target).sign()


@composite("l1_loss(Tensor self, Tensor target, int reduction=0) -> Tensor", autocast="float32",
           variants="nn", rule=pair_loss,
           npu="aclnnL1Loss(self, target, reduction, out)",
           grad={"self": lambda g, self, target, reduction: ops._l1_loss_backward(g, self, target, reduction),
                 "target": lambda g, self, target, reduction: ops._l1_loss_backward(g, target, self, reduction)})
def _l1_loss(self: Tensor, target: Tensor, reduction: int) -> Tensor:
    """The size of self - target."""
    if is_plain(self, target) and (made := _reduced(_SIZE, self, target, reduction)) is not None:
        return made
    return reduced_loss((self - target).abs(), reduction)


op("_smooth_l1_backward(Tensor grad_output, Tensor self, float beta) -> Tensor", rule=binary,
   kernel="smooth_l1_backward", variants="", inplace=False,
   grad={"grad_output": lambda g, self, beta: ops._smooth_l1_backward(g, self, beta),
         "self": lambda g, grad_output, self, beta: (g * grad_output / beta).masked_fill(self.abs() >= beta, 0)})
op("_smooth_l1(Tensor self, float beta) -> Tensor", rule=unary, kernel="smooth_l1", variants="", inplace=False,
   grad={"self": lambda g, self, beta: ops._smooth_l1_backward(g, self, beta)})


@composite("smooth_l1_loss_backward(Tensor grad_output, Tensor self, Tensor target, int reduction, float beta) -> Tensor",
           variants="", rule=pair_slope,
           npu="aclnnSmoothL1LossBackward(grad_output, self, target, reduction, beta, out)")
def _smooth_l1_loss_backward(grad_output: Tensor, self: Tensor, target: Tensor, reduction: int, beta: float) -> Tensor:
    return ops._smooth_l1_backward(share(grad_output, self, target, reduction), self - target, beta)


@composite("smooth_l1_loss(Tensor self, Tensor target, int reduction=0, float beta=1.0) -> Tensor", autocast="float32",
           variants="nn",
           rule=lambda self, target, reduction, beta: pair_loss(self, target, reduction) if beta > 0 else None, node=True,
           npu="aclnnSmoothL1Loss(self, target, reduction, beta, out)",
           grad={"self": lambda g, self, target, reduction, beta:
                 ops.smooth_l1_loss_backward(g, self, target, reduction, beta),
                 "target": lambda g, self, target, reduction, beta:
                 ops.smooth_l1_loss_backward(g, target, self, reduction, beta)})
def _smooth_l1_loss(self: Tensor, target: Tensor, reduction: int, beta: float) -> Tensor:
    """The size of self - target, rounded off to a square where that is below beta."""
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    if beta == 0:
        return ops.l1_loss(self, target, reduction)
    if (made := _reduced(_SMOOTH, self, target, reduction, beta)) is not None:
        return made
    self, target = _pair("smooth_l1_cpu", self, target)
    return reduced_loss(ops._smooth_l1(self - target, beta), reduction)


@composite("huber_loss(Tensor self, Tensor target, int reduction=0, float delta=1.0) -> Tensor", autocast="float32",
           variants="nn", node=True,
           grad={"self": lambda g, self, target, reduction, delta: ops.huber_loss_backward(g, self, target, reduction, delta),
                 "target": lambda g, self, target, reduction, delta: ops.huber_loss_backward(g, target, self, reduction, delta)})
def _huber_loss(self: Tensor, target: Tensor, reduction: int, delta: float) -> Tensor:
    """Half the square of self - target, a line where its size is above delta."""
    if not delta > 0:                            # nor NaN
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    if (made := _reduced(_HUBER, self, target, reduction, delta)) is not None:
        return made
    self, target = _pair("huber_cpu", self, target)
    return ops.smooth_l1_loss(self, target, reduction, delta) * delta


@composite("_kl_div_backward(Tensor grad_output, Tensor self, Tensor target, int reduction, bool log_target) -> Tensor",
           variants="", rule=pair_slope, npu="aclnnKlDivBackward(grad_output, self, target, reduction, log_target, out)")
def _kl_div_backward(grad_output: Tensor, self: Tensor, target: Tensor, reduction: int, log_target: bool) -> Tensor:
    return -share(grad_output, self, target, reduction) * (target.exp() if log_target else target)


@composite("kl_div(Tensor self, Tensor target, int reduction=0, *, bool log_target=False) -> Tensor",
           autocast="float32", out=False,
           variants="function", rule=pair_loss, npu="aclnnKlDiv(self, target, reduction, log_target, out)",
           grad={"self": lambda g, self, target, reduction, log_target:
                 ops._kl_div_backward(g, self, target, reduction, log_target)})
def _kl_div(self: Tensor, target: Tensor, reduction: int, log_target: bool) -> Tensor:
    """target * (log(target) - self), of log-probabilities self."""
    if self.is_complex() or target.is_complex():
        raise RuntimeError("kl_div: Complex inputs not supported.")
    if not self.is_floating_point() or not target.is_floating_point():
        raise RuntimeError("kl_div: Integral inputs not supported.")
    loss = target.exp() * (target - self) if log_target else ops.xlogy(target, target) - target * self
    return reduced_loss(loss, reduction)


@composite("poisson_nll_loss(Tensor input, Tensor target, bool log_input, bool full, float eps, int reduction) "
           "-> Tensor", autocast="float32", out=False, variants="function")
def _poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int) -> Tensor:
    """Negative log likelihood of a Poisson distribution; full adds Stirling's term."""
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        stirling = target * target.log() - target + 0.5 * (2 * 3.141592653589793 * target).log()
        loss = loss + stirling.masked_fill(target <= 1, 0)
    return reduced_loss(loss, reduction)


# ---- binary cross entropy --------------------------------------------------------------------------------------------

op("_bce_backward(Tensor grad_output, Tensor self, Tensor target) -> Tensor", rule=binary, variants="", inplace=False,
   numbers=False, kernel="binary_cross_entropy_backward",
   npu="aclnnBinaryCrossEntropyBackward(grad_output, self, target, None, 0, out)",
   grad={"grad_output": lambda g, self, target: ops._bce_backward(g, self, target),
         "self": lambda g, grad_output, self, target: g * grad_output * _bce_curve(self, target),
         "target": lambda g, grad_output, self: -g * grad_output / ((1 - self) * self).clamp_min(1e-12)})
op("_bce(Tensor self, Tensor target) -> Tensor", rule=binary, kernel="binary_cross_entropy", variants="", inplace=False,
   numbers=False, npu="aclnnBinaryCrossEntropy(self, target, None, 0, out)",
   grad={"self": lambda g, self, target: ops._bce_backward(g, self, target),
                        "target": lambda g, self: g * (ops.log1p(-self) - self.log())})


def _bce_curve(p: Tensor, t: Tensor) -> Tensor:
    """The second derivative of the loss to the probability."""
    scale = ((1 - p) * p).clamp_min(1e-12)
    return (p * p - 2 * p * t + t) / (scale * scale)


def _bce_rule(self: Tensor, target: Tensor, weight: Tensor | None, reduction: int) -> Spec | None:
    """CANN's op takes one shape and one dtype."""
    if any(x is not None and (x.dtype is not self.dtype or x.shape != self.shape) for x in (target, weight)):
        return None
    return pair_loss(self, target, reduction)


def _weighted(x: Tensor, weight: Tensor | None) -> Tensor:
    return x if weight is None else x * weight


@composite("binary_cross_entropy_backward(Tensor grad_output, Tensor self, Tensor target, Tensor? weight=None, "
           "int reduction=0) -> Tensor", variants="",
           rule=lambda grad_output, self, target, weight, reduction:
           _bce_rule(self, target, weight, reduction) and (self.shape, self.dtype),
           npu="aclnnBinaryCrossEntropyBackward(grad_output, self, target, weight, reduction, out)")
def _binary_cross_entropy_backward(grad_output: Tensor, self: Tensor, target: Tensor, weight: Tensor | None,
                                   reduction: int) -> Tensor:
    return ops._bce_backward(_weighted(share(grad_output, self, target, reduction), weight), self, target)


def _bce_target_slope(g: Tensor, self: Tensor, target: Tensor, weight: Tensor | None, reduction: int) -> Any:
    odds = ops.log1p(-self) - self.log()
    return _weighted(share(g, self, target, reduction), weight) * odds


@composite("binary_cross_entropy(Tensor self, Tensor target, Tensor? weight=None, int reduction=0) -> Tensor",
           autocast={"cpu": "float32", "npu": "refused"},
           variants="nn", rule=_bce_rule, node=True, npu="aclnnBinaryCrossEntropy(self, target, weight, reduction, out)",
           grad={"weight": "binary_cross_entropy", "self": lambda g, self, target, weight, reduction:
                 ops.binary_cross_entropy_backward(g, self, target, weight, reduction),
                 "target": _bce_target_slope})
def _binary_cross_entropy(self: Tensor, target: Tensor, weight: Tensor | None, reduction: int) -> Tensor:
    """Cross entropy of probabilities and targets, both between 0 and 1."""
    if self.dtype is not target.dtype:
        raise RuntimeError(f"Found dtype {word(target.dtype)} but expected {word(self.dtype)}")
    return reduced_loss(_weighted(ops._bce(self, target), weight), reduction)


op("_bce_logits_backward(Tensor grad_output, Tensor self, Tensor target) -> Tensor", rule=binary, variants="",
   inplace=False, numbers=False, kernel="binary_cross_entropy_with_logits_backward",
   npu="aclnnBinaryCrossEntropyWithLogitsBackward(grad_output, self, target, None, None, 0, out)",
   grad={"grad_output": lambda g, self, target: g * (self.sigmoid() - target),
         "self": lambda g, grad_output, self: ops.sigmoid_backward(g * grad_output, self.sigmoid()),
         "target": lambda g, grad_output: -g * grad_output})
op("_bce_logits(Tensor self, Tensor target) -> Tensor", rule=binary, variants="", inplace=False, numbers=False,
   kernel="binary_cross_entropy_with_logits", npu="aclnnBinaryCrossEntropyWithLogits(self, target, None, None, 0, out)",
   grad={"self": lambda g, self, target: ops._bce_logits_backward(g, self, target),
         "target": lambda g, self: -g * self})


def _logits_rule(self: Tensor, target: Tensor, weight: Tensor | None, pos_weight: Tensor | None,
                 reduction: int) -> Spec | None:
    """CANN's op takes one dtype, and factors that broadcast to the logits."""
    if target.shape != self.shape or any(x is not None and (x.dtype is not self.dtype or
                                                            broadcast(x.shape, self.shape) != self.shape)
                                         for x in (weight, pos_weight)):
        return None
    return pair_loss(self, target, reduction)


def _logits_slope_rule(grad_output: Tensor, self: Tensor, *rest: Any) -> Spec | None:
    return _logits_rule(self, *rest) and (self.shape, self.dtype)


_LOGITS = "Tensor self, Tensor target, Tensor? weight, Tensor? pos_weight, int reduction) -> Tensor"
_LOGITS_NPU = "(grad_output, self, target, weight, pos_weight, reduction, out)"


@composite(f"_binary_cross_entropy_with_logits_backward(Tensor grad_output, {_LOGITS}", variants="",
           rule=_logits_slope_rule, npu="aclnnBinaryCrossEntropyWithLogitsBackward" + _LOGITS_NPU)
def _logits_backward(grad_output: Tensor, self: Tensor, target: Tensor, weight: Tensor | None,
                     pos_weight: Tensor | None, reduction: int) -> Tensor:
    g = _weighted(share(grad_output, self, target, reduction), weight)
    if pos_weight is None:
        return ops._bce_logits_backward(g, self, target)
    return g * (((pos_weight - 1) * target + 1) * self.sigmoid() - pos_weight * target)


@composite(f"_binary_cross_entropy_with_logits_target_backward(Tensor grad_output, {_LOGITS}", variants="",
           rule=lambda grad_output, self, *rest: _logits_slope_rule(grad_output, self, *rest) if self.dim() else None,
           npu="aclnnBinaryCrossEntropyWithLogitsTargetBackward" + _LOGITS_NPU)
def _logits_target_backward(grad_output: Tensor, self: Tensor, target: Tensor, weight: Tensor | None,
                            pos_weight: Tensor | None, reduction: int) -> Tensor:
    g = _weighted(share(grad_output, self, target, reduction), weight)
    if pos_weight is None:
        return -g * self
    return g * (ops.log_sigmoid(-self) - pos_weight * ops.log_sigmoid(self))


@composite("binary_cross_entropy_with_logits(Tensor self, Tensor target, Tensor? weight=None, Tensor? pos_weight=None, "
           "int reduction=0) -> Tensor", autocast="float32", out=False, variants="function", rule=_logits_rule, node=True,
           npu="aclnnBinaryCrossEntropyWithLogits(self, target, weight, pos_weight, reduction, out)",
           grad={"weight, pos_weight": "binary_cross_entropy_with_logits",
                 "self": lambda g, self, target, weight, pos_weight, reduction:
                 ops._binary_cross_entropy_with_logits_backward(g, self, target, weight, pos_weight, reduction),
                 "target": lambda g, self, target, weight, pos_weight, reduction:
                 ops._binary_cross_entropy_with_logits_target_backward(g, self, target, weight, pos_weight, reduction)})
def _binary_cross_entropy_with_logits(self: Tensor, target: Tensor, weight: Tensor | None, pos_weight: Tensor | None,
                                      reduction: int) -> Tensor:
    """Cross entropy of logits and targets between 0 and 1; pos_weight multiplies the positive part."""
    if pos_weight is None:
        loss = ops._bce_logits(self, target)
    else:
        loss = (1 - target) * self - ((pos_weight - 1) * target + 1) * ops.log_sigmoid(self)
    loss = _weighted(loss, weight)
    if target.is_floating_point():               # torch multiplies 1 - target in place
        loss = loss.to(target.dtype)
    return reduced_loss(loss, reduction)


# ---- negative log likelihood -----------------------------------------------------------------------------------------
def _nll_rule(self: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int) -> Sequence[Spec]:
    shape, targets, dtype = self.shape, target.shape, self.dtype
    rank = len(shape)
    if not 0 < rank <= 2:
        raise RuntimeError("input tensor should be 1D or 2D")
    if len(targets) > 1:
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if rank == 2 and not targets:
        raise RuntimeError(f"size mismatch (got input: {list(shape)}, target: [])")
    if targets and shape[0] != targets[0]:
        raise RuntimeError(f"size mismatch (got input: {list(shape)}, target: {list(targets)})")
    _check_class_weight(weight, shape[-1], self.dtype)
    return [(targets if reduction == 0 and rank == 2 else (), dtype), ((), dtype)]


def _check_class_weight(weight: Tensor | None, classes: int, dtype: _C.dtype) -> None:
    if weight is not None and (weight.dim() != 1 or weight.numel() != classes):
        raise RuntimeError(f"weight tensor should be defined either for all {classes} classes or no classes but got "
                           f"weight tensor of shape: {list(weight.shape)}")
    if weight is not None and weight.dtype is not dtype:
        raise RuntimeError(f"expected scalar type {_C.TYPE_WORDS[dtype._id]} but found {_C.TYPE_WORDS[weight.dtype._id]}")


def _nll2d_rule(self: Tensor, target: Tensor, weight: Tensor | None, reduction: int,
                ignore_index: int) -> Sequence[Spec]:
    if target.dim() != 3:
        raise RuntimeError(f"only batches of spatial targets supported (3D tensors) but got targets of dimension: "
                           f"{target.dim()}")
    if self.dim() != 4:
        raise RuntimeError(f"only batches of spatial inputs supported (4D tensors), but got input of dimension: "
                           f"{self.dim()}")
    if (self.size(0), *self.shape[2:]) != tuple(target.shape):
        raise RuntimeError(f"size mismatch (got input: {list(self.shape)} , target: {list(target.shape)}")
    _check_class_weight(weight, self.size(1), self.dtype)
    return [(target.shape if reduction == 0 else (), self.dtype), ((), self.dtype)]


_NLL = "Tensor self, Tensor target, Tensor? weight, int reduction, SymInt ignore_index"
for _name, _camel, _rule, _slope, _curve in (
    ("nll_loss", "NLLLoss", _nll_rule, lambda g, self, target, weight, reduction, ignore_index, result1:
     ops.nll_loss_backward(g, self, target, weight, reduction, ignore_index, result1),
     lambda g, target, weight, reduction, ignore_index:
     ops.nll_loss_forward(g, target, weight, reduction, ignore_index)[0]),
    ("nll_loss2d", "NLLLoss2d", _nll2d_rule, lambda g, self, target, weight, reduction, ignore_index, result1:
     ops.nll_loss2d_backward(g, self, target, weight, reduction, ignore_index, result1),
     lambda g, target, weight, reduction, ignore_index:
     ops.nll_loss2d_forward(g, target, weight, reduction, ignore_index)[0]),
):
    _weight = f"weight=ones(self.size({1 if _name == 'nll_loss2d' else -1}))"
    op(f"{_name}_backward(Tensor grad_output, {_NLL}, Tensor total_weight) -> Tensor", variants="",
       batch=batching_nn.likelihood_slope,
       rule=lambda grad_output, self, *_: (self.shape, self.dtype), grad={"grad_output": _curve},
       npu=f"aclnn{_camel}Backward(grad_output, self, target, {_weight}, reduction, ignore_index, total_weight, out)")
    op(f"{_name}_forward({_NLL}) -> (Tensor output, Tensor total_weight)",
       batch=batching_nn.likelihood, forward=forward.likelihood, variants="", rule=_rule,
       grad={"self": _slope, "weight": _name + "_forward"},
       npu=f"aclnn{_camel}(self, target, {_weight}, reduction, ignore_index, output, total_weight)")
    op(f"{_name}(Tensor self, Tensor target, Tensor? weight=None, int reduction=0, SymInt ignore_index=-100) -> Tensor",
       variants="nn", autocast="float32", doc="Minus the log-probability of the target class, times its weight.",
       body=lambda self, target, weight, reduction, ignore_index, _forward=getattr(ops, _name + "_forward"):
       _forward(self, _as_classes(target, self), weight, reduction, ignore_index)[0])


def _as_classes(target: Tensor, self: Tensor) -> Tensor:
    """Class indices as int64, which torch also takes as bytes; one index for an input of one dim."""
    if target.dtype not in (INT64, _UINT8):
        raise RuntimeError(f"expected target dtype to be Long or Byte, but got {word(target.dtype)}")
    if self.dim() != 1 or target.dim() != 1:
        return target
    if target.numel() != 1:
        raise ValueError(f"For 1D input, 1D target must have size 1, but got target size: {target.numel()}")
    return target.reshape(())


@composite("nll_loss_nd(Tensor self, Tensor target, Tensor? weight=None, int reduction=0, SymInt ignore_index=-100) "
           "-> Tensor", variants="nn")
def _nll_loss_nd(self: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int) -> Tensor:
    """nll_loss of inputs (C), (N, C) or (N, C, positions …)."""
    if self.dim() < 1:
        raise ValueError(f"Expected 1 or more dimensions (got {self.dim()})")
    if self.dim() != 1 and self.size(0) != target.size(0):
        raise ValueError(f"Expected input batch_size ({self.size(0)}) to match target batch_size ({target.size(0)}).")
    if self.dim() <= 2:
        return ops.nll_loss(self, target, weight, reduction, ignore_index)
    if self.dim() == 4:
        return ops.nll_loss2d(self, target, weight, reduction, ignore_index)
    n, classes, *rest = self.shape
    if tuple(target.shape[1:]) != tuple(rest):
        raise RuntimeError(f"Expected target size {[n, *rest]}, got {list(target.shape)}")
    places = 1
    for size in rest:
        places *= size
    out = ops.nll_loss2d(self.reshape(n, classes, 1, places), target.reshape(n, 1, places), weight, reduction,
                         ignore_index)
    return out.reshape(n, *rest) if reduction == 0 else out


# ---- cross entropy ---------------------------------------------------------------------------------------------------
def _cross_entropy_rule(self: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int,
                        label_smoothing: float) -> Sequence[Spec]:
    _nll_rule(self, target, weight, reduction, ignore_index)
    wide = self.dtype if self.dtype.itemsize > 2 else _C._dtype_named("float32")
    rows = tuple(self.shape[:-1])
    return [(rows if reduction == 0 else (), self.dtype), ((), wide), ((*rows, 2), wide)]


def _cross_entropy_grad(g: Tensor, self: Tensor, target: Tensor, weight: Tensor | None, reduction: int,
                        ignore_index: int, label_smoothing: float, total_weight: Tensor, powers: Tensor) -> Tensor:
    if not _C._is_grad_enabled():
        return ops._cross_entropy_backward(g, self, target, weight, total_weight, powers, reduction, ignore_index,
                                           label_smoothing)
    return _cross_entropy_slope(g, self, target, weight, total_weight, powers, reduction, ignore_index,
                                label_smoothing)


def _cross_entropy_slope(g: Tensor, self: Tensor, target: Tensor, weight: Any, total_weight: Tensor, powers: Tensor,
                         reduction: int, ignore_index: int, label_smoothing: float) -> Tensor:
    """The kernel's formula in ops: for gradients of the gradient."""
    classes, kept = self.size(-1), target != ignore_index
    index = target.masked_fill(~kept, 0).to(INT64)
    hot = ops.zeros_like(self).scatter(-1, index.unsqueeze(-1), 1.0)
    weights = ops.ones((classes,), dtype=self.dtype, device=self.device) if weight is None else weight
    a = (1 - label_smoothing) * weights.gather(0, index.reshape(-1)).view(index.shape).unsqueeze(-1)
    b = label_smoothing / classes
    grad = (a + b * weights.sum()) * ops.softmax(self, -1) - a * hot - b * weights
    g = g / total_weight.to(g.dtype) if reduction == 1 else g
    return grad * ops.where(kept, g, 0.0).unsqueeze(-1)


_CROSS = "int reduction, int ignore_index, float label_smoothing"
op(f"_cross_entropy_backward(Tensor grad_output, Tensor self, Tensor target, Tensor? weight, Tensor total_weight, "
   f"Tensor powers, {_CROSS}) -> Tensor", batch=batching_nn.entropy_slope, variants="",
   kernel="cross_entropy_backward",
   rule=lambda grad_output, self, *_: (self.shape, self.dtype))
# Log-softmax and nll_loss in one pass; of logits (N, C) or (C).
op(f"_cross_entropy(Tensor self, Tensor target, Tensor? weight, {_CROSS}) -> (Tensor, Tensor, Tensor)",
   batch=batching_nn.entropy, variants="",
   kernel="cross_entropy_forward", rule=_cross_entropy_rule, keeps=True,
   grad={"weight": "nll_loss_forward",
         "self": lambda g, self, target, weight, reduction, ignore_index, label_smoothing, result1, result2:
         _cross_entropy_grad(g, self, target, weight, reduction, ignore_index, label_smoothing, result1, result2)})


def _by_class(self: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int,
              label_smoothing: float) -> Tensor:
    """Cross entropy of logits (N, C) or (C) against class indices."""
    if not self.is_npu and (weight is None or weight._readable):       # weights of each sample's own have rules one by one
        return ops._cross_entropy(self, target, weight, reduction, ignore_index, label_smoothing)[0]
    logs = ops.log_softmax(self, -1)             # CANN has no single pass for it that all its devices know
    loss, total_weight = ops.nll_loss_forward(logs, target, weight, reduction, ignore_index)
    if label_smoothing == 0:
        return loss
    spread = -(logs if weight is None else logs * weight).sum(-1).masked_fill(target == ignore_index, 0)
    spread = spread if reduction == 0 else spread.sum() if reduction == 2 else spread.sum() / total_weight
    return (1 - label_smoothing) * loss + label_smoothing / self.size(-1) * spread


def _by_probability(self: Tensor, target: Tensor, weight: Tensor | None, reduction: int,
                    label_smoothing: float) -> Tensor:
    """Cross entropy against a distribution over the classes, which are dim 1."""
    dim = 0 if self.dim() == 1 else 1
    if self.shape != target.shape:
        raise RuntimeError(f"input and target shapes do not match: {list(self.shape)} and {list(target.shape)}")
    _check_class_weight(weight, self.size(dim), self.dtype)
    if label_smoothing > 0:
        target = target * (1 - label_smoothing) + label_smoothing / self.size(dim)
    scores = ops.log_softmax(self, dim) * target
    if weight is not None:
        scores = scores * weight.reshape([-1 if d == dim else 1 for d in range(self.dim())])
    if reduction == 0:
        return -scores.sum(dim)
    total = -scores.sum()
    return total if reduction == 2 else total / (self.numel() / self.size(dim))


@composite("cross_entropy_loss(Tensor self, Tensor target, Tensor? weight=None, int reduction=0, "
           "SymInt ignore_index=-100, float label_smoothing=0.0) -> Tensor", autocast="float32", variants="nn")
def _cross_entropy_loss(self: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int,
                        label_smoothing: float) -> Tensor:
    """Minus the log of the softmax of the logits at the target: a class index, or a distribution over the classes."""
    if not label_smoothing <= 1:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing:g}")
    label_smoothing = max(label_smoothing, 0.0)
    rank = self.dim()
    if self.shape == target.shape:
        if not target.is_floating_point():
            raise RuntimeError(f"Expected floating point type for target with class probabilities, got {word(target.dtype)}")
        if ignore_index >= 0:
            raise RuntimeError("ignore_index is not supported for floating point target")
        return _by_probability(self, target, weight, reduction, label_smoothing)
    if rank < 1:
        raise ValueError(f"Expected 1 or more dimensions (got {rank})")
    if not self.is_floating_point() and self.numel():
        raise NotImplementedError(f'"log_softmax_lastdim_kernel_impl" not implemented for \'{word(self.dtype)}\'')
    target = _as_classes(target, self)
    if rank <= 2:
        count = target.size(0) if target.dim() else 0
        if rank == 2 and self.size(0) != count:
            raise ValueError(f"Expected input batch_size ({self.size(0)}) to match target batch_size ({count}).")
        return _by_class(self, target, weight, reduction, ignore_index, label_smoothing)
    n, classes, *rest = self.shape
    if tuple(target.shape) != (n, *rest):
        raise (ValueError if target.dim() == 0 or target.size(0) != n else RuntimeError)(
            f"Expected target size {[n, *rest]}, got {list(target.shape)}")
    if label_smoothing == 0:                     # classes stand one plane apart: no row of them to read in one pass
        return ops.nll_loss_nd(ops.log_softmax(self, 1), target, weight, reduction, ignore_index)
    rows = self.movedim(1, -1).reshape(target.numel(), classes)
    loss = _by_class(rows, target.reshape(-1), weight, reduction, ignore_index, label_smoothing)
    return loss.reshape(target.shape) if reduction == 0 else loss
