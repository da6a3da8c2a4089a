"""SGD, with momentum and Nesterov momentum."""

from __future__ import annotations

from typing import Any, Callable

import mindtorch_v2 as torch
from mindtorch_v2.optim.optimizer import (
    Optimizer,
    check_fused,
    check_range,
    number,
)

Tensor = torch.Tensor

__all__ = ["SGD"]


class SGD(Optimizer):
    """Stochastic gradient descent."""

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float | Tensor = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        if isinstance(lr, torch.Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        check_range("lr", lr, f"Invalid learning rate: {lr}")
        check_range("momentum", momentum)
        check_range("weight_decay", weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        defaults = {
            "lr": lr, "momentum": momentum, "dampening": dampening,
            "weight_decay": weight_decay, "nesterov": nesterov, "maximize": maximize,
            "foreach": foreach, "differentiable": differentiable, "fused": fused,
        }  # fmt: skip
        super().__init__(params, defaults)
        check_fused(foreach, fused, differentiable)

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name in ("nesterov", "maximize", "differentiable", "fused"):
                group.setdefault(name, False)
            group.setdefault("foreach", None)

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update all parameters that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        native = torch._C._sgd_step
        states = self.state
        for group in self.param_groups:
            if group["differentiable"]:
                with torch.enable_grad():
                    self._step_slowly(group, group["lr"])
                continue
            lr, decay = number(group["lr"]), number(group["weight_decay"])
            momentum, dampening = group["momentum"], group["dampening"]
            nesterov, maximize = group["nesterov"], group["maximize"]
            rest = []
            for param in group["params"]:
                grad = param.grad
                if grad is None:
                    continue
                if not param.is_cpu or param.is_complex():
                    rest.append(param)
                    continue
                buffer, first = None, False
                if momentum != 0:
                    state = states[param]
                    buffer = state.get("momentum_buffer")
                    if buffer is None:
                        first = True
                        buffer = state["momentum_buffer"] = torch.empty_like(grad)
                native(
                    param, grad, buffer, lr, momentum, dampening, decay, nesterov, maximize, first
                )
            if rest:
                with torch.no_grad():
                    self._step_slowly({**group, "params": rest}, lr)
        return loss

    def _step_slowly(self, group: dict, lr: Any) -> None:
        """The same update in tensor operations: other devices, complex, differentiable."""
        decay, momentum = group["weight_decay"], group["momentum"]
        for param in group["params"]:
            grad = param.grad
            if grad is None:
                continue
            if group["maximize"]:
                grad = -grad
            if not isinstance(decay, (int, float)) or decay != 0:
                grad = grad.add(param, alpha=number(decay))
            if momentum != 0:
                state = self.state[param]
                buffer = state.get("momentum_buffer")
                if buffer is None:
                    buffer = state["momentum_buffer"] = grad.detach().clone()
                else:
                    buffer.mul_(momentum).add_(grad, alpha=1 - group["dampening"])
                grad = grad.add(buffer, alpha=momentum) if group["nesterov"] else buffer
            if isinstance(lr, torch.Tensor):
                param.addcmul_(grad, lr, value=-1)
            else:
                param.add_(grad, alpha=-lr)
