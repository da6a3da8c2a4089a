"""ASGD: averaged stochastic gradient descent."""

from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.optim._foreach import Batch, ForeachOptimizer, add_scaled_, each, update_lists
from mindtorch_v2.optim.optimizer import check_lr, check_range, like, new_step

Tensor = torch.Tensor

__all__ = ["ASGD", "asgd"]


class ASGD(ForeachOptimizer):
    """Averaged stochastic gradient descent."""

    counters = ("step", "eta", "mu")

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_lr(lr)
        check_range("weight_decay", weight_decay)
        defaults = {
            "lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay,
            "foreach": foreach, "maximize": maximize, "differentiable": differentiable,
            "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _init_state(self, param: Tensor, group: dict[Any, Any]) -> dict[str, Any]:
        eta = new_step().copy_(torch.as_tensor(group["lr"]).reshape(()))
        return {"eta": eta, "mu": new_step().fill_(1.0), "ax": like(param)}

    def _update(self, batch: Batch) -> None:
        lambd, lr, step = batch.group["lambd"], batch.lr, batch.count()
        eta, mu, axs = batch.count("eta"), batch.count("mu"), batch.state["ax"]
        grads = batch.decayed_grads()
        torch._foreach_mul_(batch.params, each(1 - lambd * eta))
        add_scaled_(batch.params, grads, -eta)
        if isinstance(mu, float) and mu == 1:
            torch._foreach_copy_(axs, batch.params)
        else:
            add_scaled_(axs, torch._foreach_sub(batch.params, axs), mu)
        since = step - batch.group["t0"]
        since = since.clamp(min=1) if isinstance(since, torch.Tensor) else max(1, since)
        batch.set_count("eta", lr / (1 + lambd * lr * step) ** batch.group["alpha"])
        batch.set_count("mu", 1 / since)


def asgd(
    params: list[Tensor], grads: list[Tensor], axs: list[Tensor], mus: list[Tensor], etas: list[Tensor],
    state_steps: list[Tensor], foreach: bool | None = None, maximize: bool = False, differentiable: bool = False,
    capturable: bool = False, has_complex: bool = False, *, lambd: float, lr: float | Tensor, t0: float,
    alpha: float, weight_decay: float,
) -> None:  # fmt: skip
    """ASGD's update of parameters by gradients and state that are given."""
    update_lists(
        ASGD, params, grads, {"ax": axs, "mu": mus, "eta": etas, "step": state_steps}, foreach=foreach,
        maximize=maximize, differentiable=differentiable, capturable=capturable, lambd=lambd, lr=lr, t0=t0,
        alpha=alpha, weight_decay=weight_decay,
    )  # fmt: skip
