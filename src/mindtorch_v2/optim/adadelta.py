"""Adadelta."""

from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.optim._foreach import Batch, ForeachOptimizer, add_scaled_, update_lists
from mindtorch_v2.optim.optimizer import check_lr, check_range, like

Tensor = torch.Tensor

__all__ = ["Adadelta", "adadelta"]


class Adadelta(ForeachOptimizer):
    """Steps scaled by the ratio of past updates to past gradients."""

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        check_range("epsilon", eps)
        check_range("weight_decay", weight_decay)
        defaults = {
            "lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay,
            "maximize": maximize, "capturable": capturable, "foreach": foreach,
            "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _init_state(self, param: Tensor, group: dict[Any, Any]) -> dict[str, Any]:
        return {"square_avg": like(param), "acc_delta": like(param)}

    def _update(self, batch: Batch) -> None:
        rho, eps = batch.group["rho"], batch.group["eps"]
        square_avgs, acc_deltas = batch.state["square_avg"], batch.state["acc_delta"]
        grads = batch.decayed_grads()
        torch._foreach_mul_(square_avgs, rho)
        torch._foreach_addcmul_(square_avgs, grads, grads, 1 - rho)
        deltas = batch.change("sqrt", torch._foreach_add(acc_deltas, eps))
        below = batch.change("sqrt", torch._foreach_add(square_avgs, eps))
        deltas = batch.change("mul", batch.change("div", deltas, below), grads)
        torch._foreach_mul_(acc_deltas, rho)
        torch._foreach_addcmul_(acc_deltas, deltas, deltas, 1 - rho)
        add_scaled_(batch.params, deltas, -batch.lr)


def adadelta(
    params: list[Tensor], grads: list[Tensor], square_avgs: list[Tensor], acc_deltas: list[Tensor],
    state_steps: list[Tensor], capturable: bool = False, foreach: bool | None = None,
    differentiable: bool = False, has_complex: bool = False, *, lr: float | Tensor, rho: float, eps: float,
    weight_decay: float, maximize: bool,
) -> None:  # fmt: skip
    """Adadelta's update of parameters by gradients and state that are given."""
    update_lists(
        Adadelta, params, grads, {"square_avg": square_avgs, "acc_delta": acc_deltas, "step": state_steps},
        capturable=capturable, foreach=foreach, differentiable=differentiable, lr=lr, rho=rho, eps=eps,
        weight_decay=weight_decay, maximize=maximize,
    )  # fmt: skip
