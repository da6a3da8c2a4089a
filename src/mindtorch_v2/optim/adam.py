"""Adam; AdamW is the same with decoupled weight decay."""

from __future__ import annotations

from typing import Any, Callable

import mindtorch_v2 as torch
from mindtorch_v2.optim.optimizer import (
    Optimizer,
    check_betas,
    check_fused,
    check_lr,
    check_range,
    like,
    new_step,
    number,
)

Tensor = torch.Tensor

__all__ = ["Adam"]


class Adam(Optimizer):
    """Adaptive moments."""

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        check_lr(lr, foreach, capturable)
        check_range("epsilon", eps)
        check_betas(betas)
        check_range("weight_decay", weight_decay)
        self._check_tensor_betas(betas, foreach, capturable)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "amsgrad": amsgrad, "maximize": maximize, "foreach": foreach,
            "capturable": capturable, "differentiable": differentiable, "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }  # fmt: skip
        super().__init__(params, defaults)
        check_fused(foreach, fused, differentiable)

    @staticmethod
    def _check_tensor_betas(betas: tuple, foreach: bool | None, capturable: bool) -> None:
        tensors = [isinstance(beta, torch.Tensor) for beta in betas]
        if any(tensors) and not all(tensors):
            raise ValueError("betas must be either both floats or both Tensors")
        for i, beta in enumerate(betas):
            if not tensors[i]:
                continue
            if not capturable and foreach:
                raise ValueError(
                    f"betas[{i}] as a Tensor is not supported for capturable=False and foreach=True"
                )
            if beta.numel() != 1:
                raise ValueError(f"Tensor betas[{i}] must be 1-element")

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name in ("amsgrad", "maximize", "capturable", "differentiable"):
                group.setdefault(name, False)
            group.setdefault("decoupled_weight_decay", False)
            group.setdefault("foreach", None)
            group.setdefault("fused", None)
        for value in self.state.values():
            if "step" in value and not isinstance(value["step"], torch.Tensor):
                value["step"] = new_step().fill_(float(value["step"]))

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update all parameters that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            if group["differentiable"]:
                with torch.enable_grad():
                    self._step_group(group, group["lr"])
            else:
                with torch.no_grad():
                    self._step_group(group, number(group["lr"]))
        return loss

    def _init_group(self, param: Tensor, amsgrad: bool) -> dict[str, Tensor]:
        state = self.state[param]
        state["step"] = new_step()
        state["exp_avg"] = like(param)
        state["exp_avg_sq"] = like(param)
        if amsgrad:
            state["max_exp_avg_sq"] = like(param)
        return state

    def _step_group(self, group: dict, lr: Any) -> None:
        native, states = torch._C._adam_step, self.state
        beta1, beta2 = group["betas"]
        beta1, beta2 = number(beta1), number(beta2)
        eps, decay, decoupled = group["eps"], group["weight_decay"], group["decoupled_weight_decay"]
        amsgrad, maximize = group["amsgrad"], group["maximize"]
        differentiable = group["differentiable"]
        for param in group["params"]:
            grad = param.grad
            if grad is None:
                continue
            state = states[param]
            if not state:
                state = self._init_group(param, amsgrad)
            count = state["step"]
            count += 1
            largest = state["max_exp_avg_sq"] if amsgrad else None
            args = (
                param, grad, state["exp_avg"], state["exp_avg_sq"], largest, count.item(), lr,
                beta1, beta2, eps, decay, decoupled, amsgrad, maximize,
            )  # fmt: skip
            if param.is_cpu and not differentiable and not param.is_complex():
                native(*args)
            else:
                _step_slowly(*args, differentiable)


def _step_slowly(
    param: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    largest: Tensor | None,
    step: float,
    lr: Any,
    beta1: float,
    beta2: float,
    eps: float,
    decay: float,
    decoupled: bool,
    amsgrad: bool,
    maximize: bool,
    differentiable: bool,
) -> None:
    """The same update in tensor operations: other devices, complex, differentiable."""
    if maximize:
        grad = -grad
    if decay != 0 and decoupled:
        param.mul_(1 - lr * decay)
    elif decay != 0:
        grad = grad.add(param, alpha=decay)
    if param.is_complex():
        real = torch.view_as_real
        param, grad, exp_avg, exp_avg_sq = (real(t) for t in (param, grad, exp_avg, exp_avg_sq))
        largest = None if largest is None else real(largest)
    exp_avg.lerp_(grad, 1 - beta1)
    exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    # In differentiable mode the state goes on being changed in place: use copies of it.
    second = exp_avg_sq.clone() if differentiable else exp_avg_sq
    if amsgrad:
        largest.copy_(torch.maximum(largest.clone() if differentiable else largest, second))
        second = largest.clone() if differentiable else largest
    denominator = (second.sqrt() / (1 - beta2**step) ** 0.5).add_(eps)
    if isinstance(lr, torch.Tensor):
        first = exp_avg.clone() if differentiable else exp_avg
        param.addcmul_(first / denominator, lr, value=-1 / (1 - beta1**step))
    else:
        first = exp_avg.clone() if differentiable else exp_avg
        param.addcdiv_(first, denominator, value=-lr / (1 - beta1**step))
