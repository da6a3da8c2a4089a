"""NAdam: Adam with Nesterov momentum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.optim._foreach import Batch, MomentsOptimizer, add_quotient_, each, update_lists
from mindtorch_v2.optim.optimizer import check_betas, check_lr, check_range, new_step

Tensor = torch.Tensor

__all__ = ["NAdam", "nadam"]


class NAdam(MomentsOptimizer):
    """Adam with Nesterov momentum."""

    counters = ("step", "mu_product")

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
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
        check_range("momentum_decay", momentum_decay)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "momentum_decay": momentum_decay, "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize, "foreach": foreach, "capturable": capturable,
            "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _init_state(self, param: Tensor, group: dict[Any, Any]) -> dict[str, Any]:
        return {"mu_product": new_step().fill_(1.0), **super()._init_state(param, group)}

    def _update(self, batch: Batch) -> None:
        beta1, beta2 = batch.group["betas"]
        decay, step, lr = batch.group["momentum_decay"], batch.count(), batch.lr
        grads = self._move(batch)
        mu = beta1 * (1.0 - 0.5 * 0.96 ** (step * decay))
        mu_next = beta1 * (1.0 - 0.5 * 0.96 ** ((step + 1) * decay))
        product = batch.count("mu_product") * mu
        batch.set_count("mu_product", product)
        below: Sequence[Tensor] = torch._foreach_sqrt(batch.state["exp_avg_sq"])
        below = batch.change("div", below, each((1 - beta2**step) ** 0.5))
        below = batch.change("add", below, batch.group["eps"])
        add_quotient_(batch.params, grads, below, -lr * (1.0 - mu) / (1.0 - product))
        rate = -lr * mu_next / (1.0 - product * mu_next)
        add_quotient_(batch.params, batch.state["exp_avg"], below, rate)


def nadam(
    params: list[Tensor], grads: list[Tensor], exp_avgs: list[Tensor], exp_avg_sqs: list[Tensor],
    mu_products: list[Tensor], state_steps: list[Tensor], decoupled_weight_decay: bool = False,
    foreach: bool | None = None, capturable: bool = False, differentiable: bool = False,
    has_complex: bool = False, maximize: bool = False, *, beta1: float, beta2: float, lr: float | Tensor,
    weight_decay: float, momentum_decay: float, eps: float,
) -> None:  # fmt: skip
    """NAdam's update of parameters by gradients and state that are given."""
    update_lists(
        NAdam, params, grads,
        {"exp_avg": exp_avgs, "exp_avg_sq": exp_avg_sqs, "mu_product": mu_products, "step": state_steps},
        betas=(beta1, beta2), decoupled_weight_decay=decoupled_weight_decay, foreach=foreach, capturable=capturable,
        differentiable=differentiable, maximize=maximize, lr=lr, weight_decay=weight_decay,
        momentum_decay=momentum_decay, eps=eps,
    )  # fmt: skip
