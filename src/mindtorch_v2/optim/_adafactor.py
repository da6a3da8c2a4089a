"""Adafactor: a second moment of rows and columns."""

from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.optim._foreach import Batch, ForeachOptimizer, update_lists
from mindtorch_v2.optim.optimizer import check_range, like

Tensor = torch.Tensor

__all__ = ["Adafactor", "adafactor"]


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


def adafactor(
    params: list[Tensor], grads: list[Tensor], row_vars: list[Tensor | None], col_vars: list[Tensor | None],
    variances: list[Tensor | None], state_steps: list[Tensor], foreach: bool | None = None,
    grad_scale: Tensor | None = None, found_inf: Tensor | None = None, has_complex: bool = False, *, d: float,
    lr: float | Tensor, beta2_decay: float, weight_decay: float, eps1: float | None, eps2: float, maximize: bool,
) -> None:  # fmt: skip
    """Adafactor's update of parameters by gradients and state that are given."""
    lists: dict[str, Any] = {"row_var": row_vars, "col_var": col_vars, "variance": variances, "step": state_steps}
    update_lists(
        Adafactor, params, grads, lists, foreach=foreach, grad_scale=grad_scale, found_inf=found_inf, d=d, lr=lr,
        beta2_decay=beta2_decay, weight_decay=weight_decay, eps=(eps1, eps2), maximize=maximize,
    )  # fmt: skip
