"""Muon: momentum made orthogonal."""

from __future__ import annotations

import math
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.optim._foreach import add_scaled_, option_for
from mindtorch_v2.optim.optimizer import OneByOneOptimizer, check_range, like

Tensor = torch.Tensor

__all__ = ["Muon", "muon"]


def _orthogonalized(grad: Tensor, coefficients: tuple[Any, ...], steps: int, eps: float) -> Tensor:
    """The nearest orthogonal matrix, roughly, by Newton-Schulz iterations in bfloat16."""
    if steps >= 100:
        raise ValueError("Number of steps must be less than 100 for computational efficiency")
    if grad.dim() != 2:
        raise ValueError("Input tensor gradient must be a 2D matrix")
    if len(coefficients) != 3:
        raise ValueError("Coefficients must be a tuple of exactly 3 values")
    a, b, c = coefficients
    x = grad.bfloat16()
    tall = grad.size(0) > grad.size(1)
    x = x.t() if tall else x
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.t()
        inner = torch.addmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.addmm(x, inner, x, beta=a)
    return x.t() if tall else x


class Muon(OneByOneOptimizer):
    """Momentum whose updates of matrices are made orthogonal."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        if isinstance(lr, torch.Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        check_range("lr", lr, f"Learning rate should be >= 0 but is: {lr}")
        check_range("momentum", momentum, f"momentum should be >= 0 but is: {momentum}")
        message = f"weight decay should be >= 0 but is: {weight_decay}"
        check_range("weight_decay", weight_decay, message)
        if adjust_lr_fn is not None and adjust_lr_fn not in ("original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        defaults = {
            "lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov,
            "ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        }  # fmt: skip
        super().__init__(params, defaults)
        for group in self.param_groups:
            for param in group["params"]:
                if param.dim() != 2:
                    raise ValueError(
                        "Muon only supports 2D parameters whereas we found a parameter with "
                        f"size: {param.size()}"
                    )

    def _update(self, param: Tensor, grad: Tensor, group: dict[Any, Any]) -> None:
        if param.is_complex():
            raise RuntimeError("Muon does not support complex parameters")
        if grad.is_sparse:
            raise RuntimeError("Muon does not support sparse gradients")
        state, lr, momentum = self.state[param], option_for(param, group, group["lr"]), group["momentum"]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = like(grad)
        buffer = state["momentum_buffer"]
        buffer.lerp_(grad, 1 - momentum)
        update = grad.lerp(buffer, momentum) if group["nesterov"] else buffer
        update = _orthogonalized(
            update, group["ns_coefficients"], group["ns_steps"], group["eps"]
        )
        rows, cols = param.shape[:2]
        if group["adjust_lr_fn"] == "match_rms_adamw":
            rate = lr * 0.2 * math.sqrt(max(rows, cols))
        else:
            rate = lr * math.sqrt(max(1, rows / cols))
        param.mul_(1 - lr * group["weight_decay"])
        add_scaled_([param], [update], -rate)


def muon(
    params: list[Tensor], grads: list[Tensor], muon_momentum_bufs: list[Tensor], *, foreach: bool | None = None,
    lr: float, weight_decay: float, momentum: float, nesterov: bool, ns_coefficients: tuple[float, float, float],
    ns_steps: int, eps: float, adjust_lr_fn: str | None, has_complex: bool,
) -> None:  # fmt: skip
    """Muon's update of parameters by gradients and momentum that are given."""
    if foreach:
        raise RuntimeError("Foreach is not supported for Muon yet")
    made = Muon.__new__(Muon)
    made.state = {  # type: ignore[assignment]
        param: {"momentum_buffer": buffer} for param, buffer in zip(params, muon_momentum_bufs)
    }
    group = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov, "eps": eps,
             "ns_coefficients": ns_coefficients, "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn}
    for param, grad in zip(params, grads):
        made._update(param, grad, group)
