"""RAdam: Adam with a rectified variance."""

from __future__ import annotations

import math
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.optim._foreach import Batch, MomentsOptimizer, add_quotient_, add_scaled_, each, update_lists
from mindtorch_v2.optim.optimizer import check_betas, check_lr, check_range

Tensor = torch.Tensor

__all__ = ["RAdam", "radam"]


class RAdam(MomentsOptimizer):
    """Adam with a rectified variance."""

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        check_range("epsilon", eps)
        check_betas(betas)
        check_range("weight_decay", weight_decay)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "maximize": maximize, "foreach": foreach, "capturable": capturable,
            "decoupled_weight_decay": decoupled_weight_decay, "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _update(self, batch: Batch) -> None:
        beta1, beta2 = batch.group["betas"]
        step = batch.count()
        self._move(batch)
        exp_avgs, rate = batch.state["exp_avg"], -batch.lr / (1 - beta1**step)
        limit, correction = 2 / (1 - beta2) - 1, 1 - beta2**step
        rho = limit - 2 * step * beta2**step / correction
        above, below = (rho - 4) * (rho - 2) * limit, (limit - 4) * (limit - 2) * rho
        scales = batch.change("add", torch._foreach_sqrt(batch.state["exp_avg_sq"]), batch.group["eps"])
        if not isinstance(step, torch.Tensor):
            if rho > 5.0:
                rate = rate * math.sqrt(above / below * correction)
                add_quotient_(batch.params, exp_avgs, scales, rate)
            else:  # the variance is not yet to be trusted
                add_scaled_(batch.params, exp_avgs, rate)
            return
        trusted = rho > 5.0
        adapted = torch.where(trusted, (above / below * correction).clamp(min=0).sqrt(), 0.0)
        torch._foreach_div_(scales, each(adapted))
        torch._foreach_reciprocal_(scales)
        torch._foreach_add_(scales, each(torch.where(trusted, 0.0, 1.0)))
        torch._foreach_mul_(scales, exp_avgs)
        add_scaled_(batch.params, scales, rate)


def radam(
    params: list[Tensor], grads: list[Tensor], exp_avgs: list[Tensor], exp_avg_sqs: list[Tensor],
    state_steps: list[Tensor], decoupled_weight_decay: bool = False, foreach: bool | None = None,
    differentiable: bool = False, capturable: bool = False, has_complex: bool = False, maximize: bool = False, *,
    beta1: float, beta2: float, lr: float | Tensor, weight_decay: float, eps: float,
) -> None:  # fmt: skip
    """RAdam's update of parameters by gradients and state that are given."""
    update_lists(
        RAdam, params, grads, {"exp_avg": exp_avgs, "exp_avg_sq": exp_avg_sqs, "step": state_steps},
        betas=(beta1, beta2), decoupled_weight_decay=decoupled_weight_decay, foreach=foreach,
        differentiable=differentiable, capturable=capturable, maximize=maximize, lr=lr, weight_decay=weight_decay,
        eps=eps,
    )  # fmt: skip
