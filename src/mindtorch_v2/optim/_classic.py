"""ASGD, Rprop, Adafactor and Muon."""

from __future__ import annotations

import math
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.optim._foreach import (
    Batch,
    ForeachOptimizer,
    add_scaled_,
    each,
    option_for,
)
from mindtorch_v2.optim.optimizer import (
    OneByOneOptimizer,
    check_lr,
    check_range,
    like,
    new_step,
    number,
)

Tensor = torch.Tensor

__all__ = ["ASGD", "Adafactor", "Muon", "Rprop"]


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
        agree = torch._foreach_mul(batch.grads, prevs)
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


class Adafactor(ForeachOptimizer):
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

    def _init_state(self, param: Tensor, group: dict[Any, Any]) -> dict[str, Any]:
        if param.is_complex():
            raise RuntimeError("Adafactor does not support complex parameters")
        grad: Any = param.grad
        if grad.dim() <= 1:
            return {"variance": like(grad)}
        *lead, rows, cols = grad.shape
        return {
            "row_var": grad.new_zeros((*lead, rows, 1)),
            "col_var": grad.new_zeros((*lead, 1, cols)),
        }

    def _update(self, batch: Batch) -> None:
        eps1, eps2 = batch.group["eps"]
        eps1 = torch.finfo(batch.params[0].dtype).eps if eps1 is None else eps1
        step, lr, decay = batch.count(), batch.lr, batch.group["weight_decay"]
        fresh, latest = step ** batch.group["beta2_decay"], 1 / step**0.5
        rate = lr.clamp(max=latest) if isinstance(lr, torch.Tensor) else min(lr, latest)
        for i, (param, grad) in enumerate(zip(batch.params, batch.grads)):
            # Norms stay tensors: the host waits for none of them.
            size = param.norm(2) / param.numel() ** 0.5
            if decay != 0:
                param.mul_(1 - lr * decay)
            if grad.dim() > 1:
                row, col = batch.state["row_var"][i], batch.state["col_var"][i]
                row.lerp_(grad.square().mean(-1, keepdim=True), fresh)
                col.lerp_(grad.square().mean(-2, keepdim=True), fresh)
                variance = (row @ col) / row.mean(-2, keepdim=True).clamp(min=eps1)
            else:
                variance = batch.state["variance"][i].lerp_(grad.square(), fresh)
            update = variance.clamp(min=eps1 * eps1).rsqrt() * grad
            spread = update.norm(2) / (update.numel() ** 0.5 * batch.group["d"])
            param.sub_(update * (size.clamp(min=eps2) * rate / spread.clamp(min=1.0)))


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
