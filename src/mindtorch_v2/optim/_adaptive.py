"""The optimizers with moments of their own: Adagrad, Adadelta, Adamax, NAdam, RAdam, RMSprop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.optim._foreach import (
    Batch,
    ForeachOptimizer,
    add_quotient_,
    add_scaled_,
    each,
)
from mindtorch_v2.optim.optimizer import (
    check_betas,
    check_fused,
    check_lr,
    check_range,
    like,
    new_step,
    number,
)

Tensor = torch.Tensor

__all__ = ["Adadelta", "Adagrad", "Adamax", "NAdam", "RAdam", "RMSprop"]


class Adadelta(ForeachOptimizer):
    """Steps scaled by the ratio of past updates to past gradients."""

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        check_range("epsilon", eps)
        check_range("weight_decay", weight_decay)
        defaults = {
            "lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay,
            "maximize": maximize, "capturable": capturable, "foreach": foreach,
            "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _init_state(self, param: Tensor, group: dict[Any, Any]) -> dict[str, Any]:
        return {"square_avg": like(param), "acc_delta": like(param)}

    def _update(self, batch: Batch) -> None:
        rho, eps = batch.group["rho"], batch.group["eps"]
        square_avgs, acc_deltas = batch.state["square_avg"], batch.state["acc_delta"]
        grads = batch.decayed_grads()
        torch._foreach_mul_(square_avgs, rho)
        torch._foreach_addcmul_(square_avgs, grads, grads, 1 - rho)
        deltas = batch.change("sqrt", torch._foreach_add(acc_deltas, eps))
        below = batch.change("sqrt", torch._foreach_add(square_avgs, eps))
        deltas = batch.change("mul", batch.change("div", deltas, below), grads)
        torch._foreach_mul_(acc_deltas, rho)
        torch._foreach_addcmul_(acc_deltas, deltas, deltas, 1 - rho)
        add_scaled_(batch.params, deltas, -batch.lr)


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


class Adamax(ForeachOptimizer):
    """Adam with the infinity norm for the second moment."""

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_lr(lr)
        check_range("epsilon", eps)
        check_betas(betas)
        check_range("weight_decay", weight_decay)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "foreach": foreach, "maximize": maximize, "differentiable": differentiable,
            "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _init_state(self, param: Tensor, group: dict[Any, Any]) -> dict[str, Any]:
        return {"exp_avg": like(param), "exp_inf": like(param)}

    def _update(self, batch: Batch) -> None:
        beta1, beta2 = batch.group["betas"]
        exp_avgs, exp_infs = batch.state["exp_avg"], batch.state["exp_inf"]
        grads = batch.decayed_grads()
        torch._foreach_lerp_(exp_avgs, grads, 1 - beta1)
        torch._foreach_mul_(exp_infs, beta2)
        sizes = torch._foreach_abs(grads)
        torch._foreach_add_(sizes, batch.group["eps"])
        torch._foreach_maximum_(exp_infs, sizes)
        add_quotient_(batch.params, exp_avgs, exp_infs, -batch.lr / (1 - beta1 ** batch.count()))


class _Moments(ForeachOptimizer):
    """Both moments of the Adam family."""

    def _init_state(self, param: Tensor, group: dict[Any, Any]) -> dict[str, Any]:
        return {"exp_avg": like(param), "exp_avg_sq": like(param)}

    @staticmethod
    def _move(batch: Batch) -> Sequence[Tensor]:
        """Decay the weights and move both moments; the gradients that they moved by."""
        beta1, beta2 = batch.group["betas"]
        grads = batch.decay_()
        torch._foreach_lerp_(batch.state["exp_avg"], grads, 1 - beta1)
        torch._foreach_mul_(batch.state["exp_avg_sq"], beta2)
        torch._foreach_addcmul_(batch.state["exp_avg_sq"], grads, grads, 1 - beta2)
        return grads


class NAdam(_Moments):
    """Adam with Nesterov momentum."""

    counters = ("step", "mu_product")

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        check_range("epsilon", eps)
        check_betas(betas)
        check_range("weight_decay", weight_decay)
        check_range("momentum_decay", momentum_decay)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "momentum_decay": momentum_decay, "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize, "foreach": foreach, "capturable": capturable,
            "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _init_state(self, param: Tensor, group: dict[Any, Any]) -> dict[str, Any]:
        return {"mu_product": new_step().fill_(1.0), **super()._init_state(param, group)}

    def _update(self, batch: Batch) -> None:
        beta1, beta2 = batch.group["betas"]
        decay, step, lr = batch.group["momentum_decay"], batch.count(), batch.lr
        grads = self._move(batch)
        mu = beta1 * (1.0 - 0.5 * 0.96 ** (step * decay))
        mu_next = beta1 * (1.0 - 0.5 * 0.96 ** ((step + 1) * decay))
        product = batch.count("mu_product") * mu
        batch.set_count("mu_product", product)
        below: Sequence[Tensor] = torch._foreach_sqrt(batch.state["exp_avg_sq"])
        below = batch.change("div", below, each((1 - beta2**step) ** 0.5))
        below = batch.change("add", below, batch.group["eps"])
        add_quotient_(batch.params, grads, below, -lr * (1.0 - mu) / (1.0 - product))
        rate = -lr * mu_next / (1.0 - product * mu_next)
        add_quotient_(batch.params, batch.state["exp_avg"], below, rate)


class RAdam(_Moments):
    """Adam with a rectified variance."""

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        check_range("epsilon", eps)
        check_betas(betas)
        check_range("weight_decay", weight_decay)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "maximize": maximize, "foreach": foreach, "capturable": capturable,
            "decoupled_weight_decay": decoupled_weight_decay, "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _update(self, batch: Batch) -> None:
        beta1, beta2 = batch.group["betas"]
        step = batch.count()
        self._move(batch)
        exp_avgs, rate = batch.state["exp_avg"], -batch.lr / (1 - beta1**step)
        limit, correction = 2 / (1 - beta2) - 1, 1 - beta2**step
        rho = limit - 2 * step * beta2**step / correction
        above, below = (rho - 4) * (rho - 2) * limit, (limit - 4) * (limit - 2) * rho
        scales = batch.change("add", torch._foreach_sqrt(batch.state["exp_avg_sq"]), batch.group["eps"])
        if not isinstance(step, torch.Tensor):
            if rho > 5.0:
                rate = rate * math.sqrt(above / below * correction)
                add_quotient_(batch.params, exp_avgs, scales, rate)
            else:  # the variance is not yet to be trusted
                add_scaled_(batch.params, exp_avgs, rate)
            return
        trusted = rho > 5.0
        adapted = torch.where(trusted, (above / below * correction).clamp(min=0).sqrt(), 0.0)
        torch._foreach_div_(scales, each(adapted))
        torch._foreach_reciprocal_(scales)
        torch._foreach_add_(scales, each(torch.where(trusted, 0.0, 1.0)))
        torch._foreach_mul_(scales, exp_avgs)
        add_scaled_(batch.params, scales, rate)


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
