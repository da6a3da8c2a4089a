"""Rprop: steps from the signs of gradients."""

from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.optim._foreach import Batch, ForeachOptimizer, update_lists
from mindtorch_v2.optim.optimizer import check_lr, like, number

Tensor = torch.Tensor

__all__ = ["Rprop", "rprop"]


class Rprop(ForeachOptimizer):
    """Resilient backpropagation: steps from the signs of gradients alone."""

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        defaults = {
            "lr": lr, "etas": etas, "step_sizes": step_sizes, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _init_state(self, param: Tensor, group: dict[Any, Any]) -> dict[str, Any]:
        lr = number(group["lr"])
        lr = complex(lr, lr) if param.is_complex() else lr
        return {"prev": like(param), "step_size": torch.full_like(param, lr)}

    def _update(self, batch: Batch) -> None:
        minus, plus = batch.group["etas"]
        low, high = batch.group["step_sizes"]
        prevs, sizes = batch.state["prev"], batch.state["step_size"]
        # A graph keeps what was multiplied, and prevs change below.
        agree = torch._foreach_mul(batch.grads, torch._foreach_clone(prevs) if batch.group["differentiable"] else prevs)
        torch._foreach_sign_(agree)
        turned = torch._foreach_clamp_max(agree, 0)  # -1 where the sign has turned, else 0
        # plus, minus or 1; one of the three terms is not zero, so that nothing is rounded
        factors = torch._foreach_abs(agree)
        torch._foreach_neg_(factors)
        torch._foreach_add_(factors, 1)
        torch._foreach_add_(factors, torch._foreach_clamp_min(agree, 0), alpha=plus)
        torch._foreach_add_(factors, turned, alpha=-minus)
        torch._foreach_mul_(sizes, factors)
        torch._foreach_clamp_min_(sizes, low)
        torch._foreach_clamp_max_(sizes, high)
        # Where the sign has turned the step is taken back: no move, and no memory of it.
        torch._foreach_add_(turned, 1)
        torch._foreach_mul_(turned, batch.grads)
        torch._foreach_addcmul_(batch.params, torch._foreach_sign(turned), sizes, -1)
        torch._foreach_copy_(prevs, turned)


def rprop(
    params: list[Tensor], grads: list[Tensor], prevs: list[Tensor], step_sizes: list[Tensor],
    state_steps: list[Tensor], foreach: bool | None = None, capturable: bool = False, maximize: bool = False,
    differentiable: bool = False, has_complex: bool = False, *, step_size_min: float, step_size_max: float,
    etaminus: float, etaplus: float,
) -> None:  # fmt: skip
    """Rprop's update of parameters by gradients and state that are given."""
    update_lists(
        Rprop, params, grads, {"prev": prevs, "step_size": step_sizes, "step": state_steps}, etas=(etaminus, etaplus),
        step_sizes=(step_size_min, step_size_max), lr=0.0, foreach=foreach, capturable=capturable, maximize=maximize,
        differentiable=differentiable,
    )  # fmt: skip
