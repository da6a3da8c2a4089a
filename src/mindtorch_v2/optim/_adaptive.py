"""The optimizers with moments of their own: Adagrad, Adadelta, Adamax, NAdam, RAdam, RMSprop."""

from __future__ import annotations

import math
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.optim.optimizer import (
    PerParameter,
    check_betas,
    check_fused,
    check_lr,
    check_range,
    like,
    new_step,
)

Tensor = torch.Tensor

__all__ = ["Adadelta", "Adagrad", "Adamax", "NAdam", "RAdam", "RMSprop"]


class Adadelta(PerParameter):
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

    def _init_state(self, param: Tensor, group: dict) -> dict[str, Any]:
        return {"square_avg": like(param), "acc_delta": like(param)}

    def _update(
        self, param: Tensor, grad: Tensor, state: dict, step: float, lr: float, group: dict
    ) -> None:
        rho, eps = group["rho"], group["eps"]
        square_avg, acc_delta = state["square_avg"], state["acc_delta"]
        if group["weight_decay"] != 0:
            grad = grad.add(param, alpha=group["weight_decay"])
        square_avg.mul_(rho).addcmul_(grad, grad, value=1 - rho)
        delta = acc_delta.add(eps).sqrt() / square_avg.add(eps).sqrt() * grad
        acc_delta.mul_(rho).addcmul_(delta, delta, value=1 - rho)
        param.add_(delta, alpha=-lr)


class Adagrad(PerParameter):
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
                state = self.state[param]
                state["step"] = new_step()
                state.update(self._init_state(param, group))

    def _init_state(self, param: Tensor, group: dict) -> dict[str, Any]:
        value = group["initial_accumulator_value"]
        value = complex(value, value) if param.is_complex() else value
        return {"sum": torch.full_like(param, value, memory_format=torch.preserve_format)}

    def share_memory(self) -> None:
        """Move the state into shared memory."""
        for state in self.state.values():
            state["sum"].share_memory_()

    def _update(
        self, param: Tensor, grad: Tensor, state: dict, step: float, lr: float, group: dict
    ) -> None:
        if group["weight_decay"] != 0:
            grad = grad.add(param, alpha=group["weight_decay"])
        total = state["sum"].addcmul_(grad, grad, value=1)
        rate = lr / (1 + (step - 1) * group["lr_decay"])
        param.addcdiv_(grad, total.sqrt() + group["eps"], value=-rate)


class Adamax(PerParameter):
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

    def _init_state(self, param: Tensor, group: dict) -> dict[str, Any]:
        return {"exp_avg": like(param), "exp_inf": like(param)}

    def _update(
        self, param: Tensor, grad: Tensor, state: dict, step: float, lr: float, group: dict
    ) -> None:
        beta1, beta2 = group["betas"]
        if group["weight_decay"] != 0:
            grad = grad.add(param, alpha=group["weight_decay"])
        exp_avg, exp_inf = state["exp_avg"], state["exp_inf"]
        exp_avg.lerp_(grad, 1 - beta1)
        exp_inf.copy_(torch.maximum(exp_inf * beta2, grad.abs().add(group["eps"])))
        param.addcdiv_(exp_avg, exp_inf.clone(), value=-lr / (1 - beta1**step))


def _moments(state: dict, grad: Tensor, beta1: float, beta2: float) -> tuple[Tensor, Tensor]:
    """Update both moments of the Adam family and give copies of them."""
    first, second = state["exp_avg"], state["exp_avg_sq"]
    first.lerp_(grad, 1 - beta1)
    second.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    return first, second


class _Decayed(PerParameter):
    """Both moments, and weight decay in the gradient or apart from it."""

    def _init_state(self, param: Tensor, group: dict) -> dict[str, Any]:
        return {"exp_avg": like(param), "exp_avg_sq": like(param)}

    @staticmethod
    def _decay(param: Tensor, grad: Tensor, lr: float, group: dict) -> Tensor:
        if group["weight_decay"] == 0:
            return grad
        if group["decoupled_weight_decay"]:
            param.mul_(1 - lr * group["weight_decay"])
            return grad
        return grad.add(param, alpha=group["weight_decay"])


class NAdam(_Decayed):
    """Adam with Nesterov momentum."""

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

    def _init_state(self, param: Tensor, group: dict) -> dict[str, Any]:
        return {"mu_product": new_step().fill_(1.0), **super()._init_state(param, group)}

    def _update(
        self, param: Tensor, grad: Tensor, state: dict, step: float, lr: float, group: dict
    ) -> None:
        beta1, beta2 = group["betas"]
        decay = group["momentum_decay"]
        grad = self._decay(param, grad, lr, group)
        mu = beta1 * (1.0 - 0.5 * 0.96 ** (step * decay))
        mu_next = beta1 * (1.0 - 0.5 * 0.96 ** ((step + 1) * decay))
        product = state["mu_product"]
        product *= mu
        product = product.item()
        first, second = _moments(state, grad, beta1, beta2)
        denominator = second.div(1 - beta2**step).sqrt().add(group["eps"])
        param.addcdiv_(grad, denominator, value=-lr * (1.0 - mu) / (1.0 - product))
        param.addcdiv_(first, denominator, value=-lr * mu_next / (1.0 - product * mu_next))


class RAdam(_Decayed):
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

    def _update(
        self, param: Tensor, grad: Tensor, state: dict, step: float, lr: float, group: dict
    ) -> None:
        beta1, beta2 = group["betas"]
        grad = self._decay(param, grad, lr, group)
        first, second = _moments(state, grad, beta1, beta2)
        correction2 = 1 - beta2**step
        update = first / (1 - beta1**step)
        limit = 2 / (1 - beta2) - 1
        rho = limit - 2 * step * beta2**step / correction2
        if rho > 5.0:
            above = (rho - 4) * (rho - 2) * limit
            below = (limit - 4) * (limit - 2) * rho
            scale = math.sqrt(above / below) * math.sqrt(correction2)
            update = update * (scale / second.sqrt().add(group["eps"]))
        param.add_(update, alpha=-lr)


class RMSprop(PerParameter):
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

    def _init_state(self, param: Tensor, group: dict) -> dict[str, Any]:
        state = {"square_avg": like(param)}
        if group["momentum"] > 0:
            state["momentum_buffer"] = like(param)
        if group["centered"]:
            state["grad_avg"] = like(param)
        return state

    def _update(
        self, param: Tensor, grad: Tensor, state: dict, step: float, lr: float, group: dict
    ) -> None:
        alpha, momentum = group["alpha"], group["momentum"]
        if group["weight_decay"] != 0:
            grad = grad.add(param, alpha=group["weight_decay"])
        square_avg = state["square_avg"]
        square_avg.mul_(alpha).addcmul_(grad, grad, value=1 - alpha)
        average = square_avg
        if group["centered"]:
            mean = state["grad_avg"]
            mean.lerp_(grad, 1 - alpha)
            average = square_avg.addcmul(mean, mean, value=-1)
        average = average.sqrt().add(group["eps"])
        if momentum > 0:
            buffer = state["momentum_buffer"]
            buffer.mul_(momentum).addcdiv_(grad, average)
            param.add_(buffer, alpha=-lr)
        else:
            param.addcdiv_(grad, average, value=-lr)
