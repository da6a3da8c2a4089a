"""Rows of torch_npu's losses and of their gradients."""
from __future__ import annotations

from collections.abc import Sequence

from mindtorch_v2._ops.npu.rows import FLOAT32, INT32, INT64, UINT8, grad_of, row, wide
from mindtorch_v2._ops.table import Spec, ops
from mindtorch_v2._tensor import Tensor

_REDUCTIONS = ("none", "mean", "sum")


def _reduced(each: Tensor, reduction: str, total: Tensor | int) -> Tensor:
    return each if reduction == "none" else each.sum() if reduction == "sum" else each.sum() / total


# ---- cross entropy --------------------------------------------------------------------------------------------------
def _shares(log_prob: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int,
            label_smoothing: float) -> tuple[Tensor, Tensor]:
    """(samples, classes): what every class counts in the loss; and what the target of each sample does."""
    classes = log_prob.size(1)
    counts = (target != ignore_index).unsqueeze(1)
    own = ops.zeros_like(log_prob, dtype=FLOAT32).scatter_(1, target.clamp(min=0).to(INT64).unsqueeze(1), 1.0)
    w = ops.ones([classes], device=log_prob.device) if weight is None else wide(weight)
    shares = (own * (1 - label_smoothing) + label_smoothing / classes) * w * counts
    return shares, (own * w * counts).sum()


def _cross_rule(input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, ignore_index: int,
                label_smoothing: float, lse_square_scale_for_zloss: float, return_zloss: bool) -> Sequence[Spec] | None:
    if return_zloss or lse_square_scale_for_zloss:
        return None
    loss = (input.shape[:1] if reduction == "none" else (1,), input.dtype)
    return [loss, (input.shape, input.dtype), ((1,), input.dtype), ((1,), input.dtype)]


def _cross_grad(g: Tensor, target: Tensor, weight: Tensor, reduction: str, ignore_index: int, label_smoothing: float,
                log_prob: Tensor) -> Tensor:
    return npu_cross_entropy_loss_backward(g, log_prob, target, weight, None, None, reduction, ignore_index, label_smoothing, 0.0)


@row(rule=lambda grad_loss, log_prob, target, weight, grad_zloss, lse, reduction, ignore_index, smoothing, square_scale:
     None if square_scale or grad_zloss is not None else (log_prob.shape, log_prob.dtype),
     npu="aclnnCrossEntropyLossGrad(grad_loss, log_prob, target, weight, None, None, reduction, ignore_index, label_smoothing, "
         "lse_square_scale_for_zloss, out)")
def npu_cross_entropy_loss_backward(grad_loss: Tensor, log_prob: Tensor, target: Tensor, weight: Tensor | None,
                                    grad_zloss: Tensor | None, lse_for_zloss: Tensor | None, reduction: str,
                                    ignore_index: int, label_smoothing: float,
                                    lse_square_scale_for_zloss: float) -> Tensor:
    """The gradient of npu_cross_entropy_loss, from its log_prob."""
    shares, total = _shares(log_prob, target, weight, ignore_index, label_smoothing)
    g = wide(grad_loss).reshape(-1, 1)
    g = g / total if reduction == "mean" else g
    prob = wide(log_prob).exp()
    made = g * (prob * shares.sum(1, True) - shares)
    if grad_zloss is not None and lse_square_scale_for_zloss:
        z = wide(grad_zloss).reshape(-1, 1) * 2 * lse_square_scale_for_zloss * wide(lse_for_zloss).reshape(-1, 1)
        made = made + prob * (z / log_prob.size(0) if reduction == "mean" else z)
    return made.to(log_prob.dtype)


@row(rule=_cross_rule,
     npu="aclnnCrossEntropyLoss(input, target, weight, reduction, ignore_index, label_smoothing, lse_square_scale_for_zloss, "
         "return_zloss, out0, out1, out2, out3)",
     grad={"input": lambda g, target, weight, reduction, ignore_index, label_smoothing, result1:
           _cross_grad(g, target, weight, reduction, ignore_index, label_smoothing, result1)})
def npu_cross_entropy_loss(input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, ignore_index: int,
                           label_smoothing: float, lse_square_scale_for_zloss: float,
                           return_zloss: bool) -> tuple[Tensor, ...]:
    """Cross entropy of logits (samples, classes); log_softmax; the z-loss, and the logsumexp that it is made of."""
    lse = ops.logsumexp(wide(input), 1)
    log_prob = wide(input) - lse.unsqueeze(1)
    shares, total = _shares(log_prob, target, weight, ignore_index, label_smoothing)
    loss = _reduced(-(shares * log_prob).sum(1), reduction, total)
    if lse_square_scale_for_zloss:
        each = lse_square_scale_for_zloss * lse.square() * (target != ignore_index)
        zloss = _reduced(each, reduction, input.size(0))
        loss = loss + zloss
    else:
        zloss = ops.zeros([1], device=input.device)
    shape = [input.size(0)] if reduction == "none" else [1]
    zloss = zloss.reshape(shape) if lse_square_scale_for_zloss else zloss
    kept = lse if return_zloss or lse_square_scale_for_zloss else ops.zeros([1], device=input.device)
    return tuple(x.to(input.dtype) for x in (loss.reshape(shape), log_prob.detach(), zloss, kept.detach()))


@row()
def npu_softmax_cross_entropy_with_logits(input: Tensor, labels: Tensor) -> Tensor:
    """-(labels * log_softmax(input)), summed over the classes of each sample."""
    return -(wide(labels) * ops.log_softmax(wide(input), -1)).sum(-1).to(input.dtype)


@row()
def npu_softmax_cross_entropy_with_logits_backward(grad: Tensor, input: Tensor, labels: Tensor) -> Tensor:
    """The gradient of npu_softmax_cross_entropy_with_logits."""
    soft = ops.softmax(wide(input), -1)
    return (wide(grad).unsqueeze(-1) * (soft * wide(labels).sum(-1, True) - wide(labels))).to(input.dtype)


# ---- gradients of torch's losses ------------------------------------------------------------------------------------
@row()
def l1_loss_backward(grad_output: Tensor, input: Tensor, target: Tensor, reduction: int) -> Tensor:
    """The gradient of l1_loss."""
    return grad_of(lambda x: ops.l1_loss(x, target, reduction), (input,), (grad_output,))[0]


@row()
def kl_div_backward(grad_output: Tensor, input: Tensor, target: Tensor, reduction: int, log_target: bool) -> Tensor:
    """The gradient of kl_div."""
    return grad_of(lambda x: ops.kl_div(x, target, reduction, log_target=log_target), (input,), (grad_output,))[0]


@row()
def kl_div_target_backward(grad_output: Tensor, input: Tensor, target: Tensor, reduction: int,
                           log_target: bool) -> Tensor:
    """The gradient of kl_div with respect to its target."""
    return grad_of(lambda t: ops.kl_div(input, t, reduction, log_target=log_target), (target,), (grad_output,))[0]


@row()
def npu_binary_cross_entropy_with_logits_backward(grad_output: Tensor, input: Tensor, target: Tensor,
                                                  weight_opt: Tensor | None, pos_weight_opt: Tensor | None,
                                                  reduction: int) -> Tensor:
    """The gradient of binary_cross_entropy_with_logits."""
    return grad_of(lambda x: ops.binary_cross_entropy_with_logits(x, target, weight_opt, pos_weight_opt, reduction),
                   (input,), (grad_output,))[0]


# ---- cross entropy of logits that are split over ranks --------------------------------------------------------------
def _packed_mask(outside: Tensor) -> Tensor:
    """Eight of a mask in a byte, the first in the highest bit; what is left of the last byte is set."""
    bits = ops.constant_pad_nd(outside.to(INT32), [0, -outside.size(0) % 8], 1).unflatten(0, (-1, 8))
    return (bits << ops.arange(7, -1, -1, dtype=INT32, device=outside.device)).sum(-1).to(UINT8)


@row()
def npu_fused_linear_online_max_sum(input: Tensor, weight: Tensor, target: Tensor, vocab_start_index: int,
                                    vocab_end_index: int, return_logits: bool) -> tuple[Tensor, ...]:
    """Of logits input @ weight^T: each row's maximum, sum of exponentials, the target's logit; which targets lie outside
    this part of the vocabulary, a bit each, where they are in it, and the logits where they are asked for."""
    logits = ops.matmul(wide(input), wide(weight).t())
    most = logits.amax(-1)
    total = (logits - most.unsqueeze(-1)).exp().sum(-1)
    outside = (target < vocab_start_index) | (target > vocab_end_index)
    place = (target - vocab_start_index).masked_fill(outside, 0)
    own = logits.gather(-1, place.to(INT64).unsqueeze(-1)).squeeze(-1) - most
    kept = logits if return_logits else ops.empty([0], device=input.device)
    return most, total, own.masked_fill(outside, 0), _packed_mask(outside), place, kept


@row()
def npu_fused_cross_entropy_loss_with_max_sum(logits_max: Tensor, sum_exp_logits: Tensor, predicted_logits: Tensor,
                                              label_smoothing: float | None, input: Tensor | None,
                                              weight: Tensor | None,
                                              vocab_parallel_logits: Tensor | None) -> tuple[Tensor, Tensor]:
    """log(sum) - predicted of each row; and the softmax, where the logits are given."""
    if label_smoothing:
        raise NotImplementedError("[npu_fused_cross_entropy_loss_with_max_sum] label_smoothing is not offered, as in CANN")
    loss = sum_exp_logits.log() - predicted_logits
    if vocab_parallel_logits is None:
        return loss, ops.empty([0], device=loss.device)
    soft = (wide(vocab_parallel_logits) - logits_max.unsqueeze(-1)).exp() / sum_exp_logits.unsqueeze(-1)
    return loss, soft


@row()
def npu_fused_linear_cross_entropy_loss_with_max_sum_backward(
        grad: Tensor, input: Tensor, weight: Tensor, target_mask: Tensor, masked_target: Tensor, label_smoothing: float,
        logits_max: Tensor | None, sum_exp_logits: Tensor | None, softmax: Tensor | None) -> tuple[Tensor, Tensor]:
    """The gradients of the loss of npu_fused_cross_entropy_loss_with_max_sum: of the input and the weight."""
    if label_smoothing:
        raise NotImplementedError("[npu_fused_linear_cross_entropy_loss_with_max_sum_backward] label_smoothing is not offered, "
                                  "as in CANN")
    x, w = wide(input), wide(weight)
    if softmax is None:
        if logits_max is None or sum_exp_logits is None:
            raise RuntimeError("[npu_fused_linear_cross_entropy_loss_with_max_sum_backward] expected softmax, or logits_max and "
                               "sum_exp_logits, got neither")
        softmax = (ops.matmul(x, w.t()) - logits_max.unsqueeze(-1)).exp() / sum_exp_logits.unsqueeze(-1)
    bits = target_mask.to(INT32).unsqueeze(-1) >> ops.arange(7, -1, -1, dtype=INT32, device=input.device)
    inside = bits.reshape(-1)[:x.size(0)] & 1 == 0
    places = ops.arange(w.size(0), device=input.device)
    hit = (places == masked_target.unsqueeze(-1)) & inside.unsqueeze(-1)
    slope = (wide(softmax) - hit.to(FLOAT32)) * wide(grad).unsqueeze(-1)
    return ops.matmul(slope, w).to(input.dtype), ops.matmul(slope.t(), x).to(weight.dtype)
