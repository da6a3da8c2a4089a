"""ASGD, Rprop, Adafactor and Muon."""

from __future__ import annotations

import math
from typing import Any, Callable

import mindtorch_v2 as torch
from mindtorch_v2.optim.optimizer import (
    Optimizer,
    PerParameter,
    check_lr,
    check_range,
    like,
    new_step,
    number,
)

Tensor = torch.Tensor

__all__ = ["ASGD", "Adafactor", "Muon", "Rprop"]


class ASGD(PerParameter):
    """Averaged stochastic gradient descent."""

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

    def _init_state(self, param: Tensor, group: dict) -> dict[str, Any]:
        eta = new_step().fill_(number(group["lr"]))
        return {"eta": eta, "mu": new_step().fill_(1.0), "ax": like(param)}

    def _update(
        self, param: Tensor, grad: Tensor, state: dict, step: float, lr: float, group: dict
    ) -> None:
        lambd, eta, mu, ax = group["lambd"], state["eta"], state["mu"], state["ax"]
        if group["weight_decay"] != 0:
            grad = grad.add(param, alpha=group["weight_decay"])
        rate = eta.item()
        param.mul_(1 - lambd * rate)
        param.add_(grad, alpha=-rate)
        weight = mu.item()
        if weight == 1:
            ax.copy_(param)
        else:
            ax.add_(param.sub(ax).mul(weight))
        eta.fill_(number(lr) / (1 + lambd * number(lr) * step) ** group["alpha"])
        mu.fill_(1 / max(1, step - group["t0"]))


class Rprop(PerParameter):
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

    def _init_state(self, param: Tensor, group: dict) -> dict[str, Any]:
        lr = number(group["lr"])
        lr = complex(lr, lr) if param.is_complex() else lr
        return {"prev": like(param), "step_size": torch.full_like(param, lr)}

    def _update(
        self, param: Tensor, grad: Tensor, state: dict, step: float, lr: float, group: dict
    ) -> None:
        minus, plus = group["etas"]
        low, high = group["step_sizes"]
        prev, size = state["prev"], state["step_size"]
        agree = grad.mul(prev.clone()).sign()
        factor = torch.ones_like(agree)
        factor = factor.masked_fill(agree.gt(0), plus).masked_fill(agree.lt(0), minus)
        size.mul_(factor).clamp_(low, high)
        # Where the sign has turned the step is taken back: no move, and no memory of it.
        grad = grad.masked_fill(agree.lt(0), 0)
        param.addcmul_(grad.sign(), size, value=-1)
        prev.copy_(grad)


class Adafactor(PerParameter):
    """Adam's second moment kept as a product of a row and a column."""

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        if isinstance(lr, torch.Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        check_range("lr", lr, f"Learning rate should be >= 0 but is: {lr}")
        if not beta2_decay <= 0.0:
            raise ValueError(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        if eps[0] is not None:
            check_range("eps", eps[0], f"epsilon1 should be >= 0 but is: {eps[0]}")
        check_range("eps", eps[1], f"epsilon2 should be >= 0 but is: {eps[1]}")
        if not d >= 1.0:
            raise ValueError(f"Clipping threshold d should be >= 1 but is: {d}")
        message = f"weight_decay should be >= 0 but is: {weight_decay}"
        check_range("weight_decay", weight_decay, message)
        defaults = {
            "lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d,
            "weight_decay": weight_decay, "foreach": foreach, "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _init_state(self, param: Tensor, group: dict) -> dict[str, Any]:
        if param.is_complex():
            raise RuntimeError("Adafactor does not support complex parameters")
        grad = param.grad
        if grad.dim() <= 1:
            return {"variance": like(grad)}
        *lead, rows, cols = grad.shape
        return {
            "row_var": grad.new_zeros((*lead, rows, 1)),
            "col_var": grad.new_zeros((*lead, 1, cols)),
        }

    def _update(
        self, param: Tensor, grad: Tensor, state: dict, step: float, lr: float, group: dict
    ) -> None:
        eps1, eps2 = group["eps"]
        eps1 = torch.finfo(param.dtype).eps if eps1 is None else eps1
        fresh = step ** group["beta2_decay"]
        size = param.norm(2).item() / param.numel() ** 0.5
        alpha = max(eps2, size) * min(lr, 1 / step**0.5)
        if group["weight_decay"] != 0:
            param.mul_(1 - lr * group["weight_decay"])
        if grad.dim() > 1:
            row, col = state["row_var"], state["col_var"]
            row.lerp_(grad.square().mean(-1, keepdim=True), fresh)
            col.lerp_(grad.square().mean(-2, keepdim=True), fresh)
            variance = (row @ col) / row.mean(-2, keepdim=True).clamp(min=eps1)
        else:
            variance = state["variance"].lerp_(grad.square(), fresh)
        update = variance.clamp(min=eps1 * eps1).rsqrt() * grad
        spread = update.norm(2).item() / (update.numel() ** 0.5 * group["d"])
        param.add_(update, alpha=-alpha / max(1.0, spread))


def _orthogonalized(grad: Tensor, coefficients: tuple, steps: int, eps: float) -> Tensor:
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


class Muon(Optimizer):
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

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update all parameters that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            for group in self.param_groups:
                for param in group["params"]:
                    if param.grad is not None:
                        self._update(param, param.grad, group)
        return loss

    def _update(self, param: Tensor, grad: Tensor, group: dict) -> None:
        if param.is_complex():
            raise RuntimeError("Muon does not support complex parameters")
        state, lr, momentum = self.state[param], number(group["lr"]), group["momentum"]
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
        param.add_(update, alpha=-rate)
