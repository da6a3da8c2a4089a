"""Rows of torch_npu's steps of optimizers: they write over the variable and its moments, which are given as out=."""
from __future__ import annotations

from typing import Any

from mindtorch_v2._ops.npu.rows import row, wide
from mindtorch_v2._ops.table import ops
from mindtorch_v2._tensor import Tensor


def _written(out: tuple[Tensor, ...], *values: Tensor) -> tuple[Tensor, ...]:
    for into, value in zip(out, values, strict=True):
        into.copy_(value)
    return tuple(out)


def _moments(m: Tensor, v: Tensor, grad: Tensor, beta1: float, beta2: float) -> tuple[Tensor, Tensor]:
    return wide(m) * beta1 + grad * (1 - beta1), wide(v) * beta2 + grad.square() * (1 - beta2)


@row("npu_apply_adam.out")
def npu_apply_adam(beta1_power: float, beta2_power: float, lr: float, beta1: float, beta2: float, epsilon: float,
                   grad: Tensor, use_locking: bool | None, use_nesterov: bool | None,
                   out: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """A step of Adam on out = (var, m, v); the powers are those of this step."""
    g = wide(grad)
    m, v = _moments(out[1], out[2], g, beta1, beta2)
    rate = lr * (1 - beta2_power) ** 0.5 / (1 - beta1_power)
    ahead = m * beta1 + g * (1 - beta1) if use_nesterov else m
    return _written(out, wide(out[0]) - rate * ahead / (v.sqrt() + epsilon), m, v)


@row("npu_apply_adam_w.out")
def npu_apply_adam_w(beta1_power: float, beta2_power: float, lr: float, weight_decay: float, beta1: float, beta2: float,
                     epsilon: float, grad: Tensor, max_grad_norm: Any, amsgrad: bool | None, maximize: bool | None,
                     out: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """A step of AdamW on out = (var, m, v); the powers are those of the step before."""
    if amsgrad and max_grad_norm is None:
        raise RuntimeError("if amsgrad is true, max_grad_norm input must be entered")
    g = -wide(grad) if maximize else wide(grad)
    m, v = _moments(out[1], out[2], g, beta1, beta2)
    largest = v
    if amsgrad:
        largest = ops.maximum(wide(max_grad_norm), v)
        max_grad_norm.copy_(largest)
    denominator = (largest / (1 - beta2_power * beta2)).sqrt() + epsilon
    var = wide(out[0]) * (1 - lr * weight_decay) - lr * (m / (1 - beta1_power * beta1)) / denominator
    return _written(out, var, m, v)


@row("npu_bert_apply_adam.out")
def npu_bert_apply_adam(lr: float, beta1: float, beta2: float, epsilon: float, grad: Tensor, max_grad_norm: float,
                        global_grad_norm: float, weight_decay: float, step_size: complex | None, adam_mode: int,
                        out: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """A step of BERT's Adam on out = (var, m, v): the gradient is scaled down to max_grad_norm; no correction of the moments."""
    g = wide(grad)
    if adam_mode == 0:
        limit = max(1.0, float(global_grad_norm) / float(max_grad_norm)) if max_grad_norm > 0 else 1.0
        g = g / limit
    m, v = _moments(out[1], out[2], g, beta1, beta2)
    step = m / (v.sqrt() + epsilon) + wide(out[0]) * weight_decay
    return _written(out, wide(out[0]) - lr * step, m, v)
