"""Adagrad, with sparse gradients too."""

from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.optim._foreach import Batch, ForeachOptimizer, add_quotient_, update_lists
from mindtorch_v2.optim.optimizer import check_fused, check_lr, check_range, number

Tensor = torch.Tensor

__all__ = ["Adagrad", "adagrad"]


class Adagrad(ForeachOptimizer):
    """Steps scaled by the sum of all past squares."""

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_lr(lr)
        check_range("lr_decay", lr_decay)
        check_range("weight_decay", weight_decay)
        check_range("initial_accumulator_value", initial_accumulator_value)
        check_range("epsilon", eps)
        defaults = {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "fused": fused,
        }  # fmt: skip
        super().__init__(params, defaults)
        check_fused(foreach, fused, differentiable)
        for group in self.param_groups:
            for param in group["params"]:
                self._first_state(param, group)

    def _init_state(self, param: Tensor, group: dict[Any, Any]) -> dict[str, Any]:
        value = group["initial_accumulator_value"]
        value = complex(value, value) if param.is_complex() else value
        return {"sum": torch.full_like(param, value, memory_format=torch.preserve_format)}

    def share_memory(self) -> None:
        """Move the state into shared memory."""
        for state in self.state.values():
            state["sum"].share_memory_()

    def _step_sparse(self, param: Tensor, grad: Tensor, group: dict[Any, Any]) -> None:
        if group["weight_decay"] != 0:
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")
        state = self.state[param] or self._first_state(param, group)
        state["step"] += 1
        grad = (-grad if group["maximize"] else grad).coalesce()  # the update is not linear
        indices, values, size = grad._indices(), grad._values(), grad.shape
        state["sum"].add_(torch.sparse_coo_tensor(indices, values.pow(2), size))
        below = state["sum"].sparse_mask(grad)._values().sqrt_().add_(group["eps"])
        rate = number(group["lr"]) / (1 + (state["step"].item() - 1) * group["lr_decay"])
        param.add_(torch.sparse_coo_tensor(indices, values / below, size), alpha=-rate)

    def _update(self, batch: Batch) -> None:
        grads, sums = batch.decayed_grads(), batch.state["sum"]
        torch._foreach_addcmul_(sums, grads, grads)
        below = batch.change("add", torch._foreach_sqrt(sums), batch.group["eps"])
        rate = batch.lr / (1 + (batch.count() - 1) * batch.group["lr_decay"])
        add_quotient_(batch.params, grads, below, -rate)


def adagrad(
    params: list[Tensor], grads: list[Tensor], state_sums: list[Tensor], state_steps: list[Tensor],
    fused: bool | None = None, grad_scale: Tensor | None = None, found_inf: Tensor | None = None,
    has_sparse_grad: bool = False, foreach: bool | None = None, differentiable: bool = False,
    has_complex: bool = False, *, lr: float | Tensor, weight_decay: float, lr_decay: float, eps: float,
    maximize: bool,
) -> None:  # fmt: skip
    """Adagrad's update of parameters by gradients and state that are given."""
    update_lists(
        Adagrad, params, grads, {"sum": state_sums, "step": state_steps}, fused=fused, grad_scale=grad_scale,
        found_inf=found_inf, foreach=foreach, differentiable=differentiable, lr=lr, weight_decay=weight_decay,
        lr_decay=lr_decay, eps=eps, maximize=maximize,
    )  # fmt: skip
