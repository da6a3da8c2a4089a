"""Adamax: Adam with the infinity norm."""

from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.optim._foreach import Batch, ForeachOptimizer, add_quotient_, update_lists
from mindtorch_v2.optim.optimizer import check_betas, check_lr, check_range, like

Tensor = torch.Tensor

__all__ = ["Adamax", "adamax"]


class Adamax(ForeachOptimizer):
    """Adam with the infinity norm for the second moment."""

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_lr(lr)
        check_range("epsilon", eps)
        check_betas(betas)
        check_range("weight_decay", weight_decay)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "foreach": foreach, "maximize": maximize, "differentiable": differentiable,
            "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _init_state(self, param: Tensor, group: dict[Any, Any]) -> dict[str, Any]:
        return {"exp_avg": like(param), "exp_inf": like(param)}

    def _update(self, batch: Batch) -> None:
        beta1, beta2 = batch.group["betas"]
        exp_avgs, exp_infs = batch.state["exp_avg"], batch.state["exp_inf"]
        grads = batch.decayed_grads()
        torch._foreach_lerp_(exp_avgs, grads, 1 - beta1)
        torch._foreach_mul_(exp_infs, beta2)
        sizes = torch._foreach_abs(grads)
        torch._foreach_add_(sizes, batch.group["eps"])
        torch._foreach_maximum_(exp_infs, sizes)
        add_quotient_(batch.params, exp_avgs, exp_infs, -batch.lr / (1 - beta1 ** batch.count()))


def adamax(
    params: list[Tensor], grads: list[Tensor], exp_avgs: list[Tensor], exp_infs: list[Tensor],
    state_steps: list[Tensor], foreach: bool | None = None, maximize: bool = False, differentiable: bool = False,
    capturable: bool = False, has_complex: bool = False, *, eps: float, beta1: float, beta2: float,
    lr: float | Tensor, weight_decay: float,
) -> None:  # fmt: skip
    """Adamax's update of parameters by gradients and state that are given."""
    update_lists(
        Adamax, params, grads, {"exp_avg": exp_avgs, "exp_inf": exp_infs, "step": state_steps}, betas=(beta1, beta2),
        foreach=foreach, maximize=maximize, differentiable=differentiable, capturable=capturable, eps=eps, lr=lr,
        weight_decay=weight_decay,
    )  # fmt: skip
