"""RMSprop, plain or centered, with or without momentum."""

from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.optim._foreach import Batch, ForeachOptimizer, add_quotient_, add_scaled_, update_lists
from mindtorch_v2.optim.optimizer import check_lr, check_range, like

Tensor = torch.Tensor

__all__ = ["RMSprop", "rmsprop"]


class RMSprop(ForeachOptimizer):
    """Steps scaled by a running mean of squares."""

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        check_range("epsilon", eps)
        check_range("momentum", momentum)
        check_range("weight_decay", weight_decay)
        check_range("alpha", alpha)
        defaults = {
            "lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered,
            "weight_decay": weight_decay, "capturable": capturable, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _init_state(self, param: Tensor, group: dict[Any, Any]) -> dict[str, Any]:
        state = {"square_avg": like(param)}
        if group["momentum"] > 0:
            state["momentum_buffer"] = like(param)
        if group["centered"]:
            state["grad_avg"] = like(param)
        return state

    def _update(self, batch: Batch) -> None:
        alpha, momentum = batch.group["alpha"], batch.group["momentum"]
        grads, square_avgs = batch.decayed_grads(), batch.state["square_avg"]
        torch._foreach_mul_(square_avgs, alpha)
        torch._foreach_addcmul_(square_avgs, grads, grads, 1 - alpha)
        if batch.group["centered"]:
            means = batch.state["grad_avg"]
            torch._foreach_lerp_(means, grads, 1 - alpha)
            below = batch.change("sqrt", torch._foreach_addcmul(square_avgs, means, means, -1))
        else:
            below = torch._foreach_sqrt(square_avgs)
        below = batch.change("add", below, batch.group["eps"])
        if momentum > 0:
            buffers = batch.state["momentum_buffer"]
            torch._foreach_mul_(buffers, momentum)
            torch._foreach_addcdiv_(buffers, grads, below)
            add_scaled_(batch.params, buffers, -batch.lr)
        else:
            add_quotient_(batch.params, grads, below, -batch.lr)


def rmsprop(
    params: list[Tensor], grads: list[Tensor], square_avgs: list[Tensor], grad_avgs: list[Tensor],
    momentum_buffer_list: list[Tensor], state_steps: list[Tensor], foreach: bool | None = None,
    maximize: bool = False, differentiable: bool = False, capturable: bool = False, has_complex: bool = False, *,
    lr: float | Tensor, alpha: float, eps: float, weight_decay: float, momentum: float, centered: bool,
) -> None:  # fmt: skip
    """RMSprop's update of parameters by gradients and state that are given."""
    update_lists(
        RMSprop, params, grads,
        {"square_avg": square_avgs, "grad_avg": grad_avgs, "momentum_buffer": momentum_buffer_list, "step": state_steps},
        foreach=foreach, maximize=maximize, differentiable=differentiable, capturable=capturable, lr=lr, alpha=alpha,
        eps=eps, weight_decay=weight_decay, momentum=momentum, centered=centered,
    )  # fmt: skip
