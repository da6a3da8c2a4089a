"""The step of an optimizer as one op; torch._foreach_* and the ops of loss scaling are in foreach.py."""
from __future__ import annotations

from typing import Any

from mindtorch_v2._ops.table import composite, ops
from mindtorch_v2._row import Npu


def _rule(self: Any, *_: Any) -> tuple[Any, Any] | None:
    return (self.shape, self.dtype) if self.dim() else None      # CANN's op has no 0-dim form


@composite("_apply_adam_w_(Tensor(a!) self, Tensor(b!) exp_avg, Tensor(c!) exp_avg_sq, Tensor(d!)? max_exp_avg_sq, "
           "Tensor grad, Tensor step, float lr, float beta1, float beta2, float weight_decay, float eps, bool amsgrad, "
           "bool maximize) -> Tensor(a!)", variants="", rule=_rule,
           npu=Npu("aclnnApplyAdamWV2(self, exp_avg, exp_avg_sq, max_exp_avg_sq, grad, step, lr, beta1, beta2, "
                   "weight_decay, eps, amsgrad, maximize)"))
def _apply_adam_w_(self: Any, exp_avg: Any, exp_avg_sq: Any, max_exp_avg_sq: Any, grad: Any, step: Any, lr: float,
                   beta1: float, beta2: float, weight_decay: float, eps: float, amsgrad: bool, maximize: bool) -> Any:
    """One step of AdamW, where `step` counts those that were done before."""
    grad = -grad if maximize else grad
    now = step.reshape(()) + 1
    self.mul_(1 - lr * weight_decay)
    exp_avg.lerp_(grad, 1 - beta1)
    exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    if amsgrad:
        ops.maximum(max_exp_avg_sq, exp_avg_sq, out=max_exp_avg_sq)
    root = (max_exp_avg_sq if amsgrad else exp_avg_sq).sqrt() / (1 - beta2**now).sqrt()
    self.addcdiv_(exp_avg * (lr / (1 - beta1**now)), root + eps, value=-1)
    return self
