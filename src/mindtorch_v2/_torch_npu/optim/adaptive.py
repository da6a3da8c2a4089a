"""The optimizers of torch_npu that torch does not have: Lamb, AdamP, BERT's Adam, and RMSprop as TensorFlow computes it."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch

from .base import NpuFusedOptimizerBase


def _check(lr: float, eps: float, weight_decay: float, betas: tuple[float, float] = (0.0, 0.0)) -> None:
    for name, value in (("learning rate", lr), ("epsilon value", eps), ("weight_decay value", weight_decay)):
        if value < 0.0:
            raise ValueError(f"Invalid {name}: {value}")
    for index, beta in enumerate(betas):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {index}: {beta}")


class _Stepping(NpuFusedOptimizerBase):
    """An optimizer whose step is a function of one parameter."""

    def _update(self, p: Any, grad: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        raise NotImplementedError

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step; the closure, if given, computes the loss again."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in self._with_grads(group):
                if p.grad.is_sparse:
                    raise RuntimeError(f"{type(self).__name__} does not support sparse gradients")
                state = self.state[p]
                state["step"] = state.get("step", 0) + 1
                self._update(p, p.grad, state, group)
        return loss


def _moments(p: Any, grad: Any, state: dict[str, Any], betas: tuple[float, float]) -> tuple[Any, Any]:
    """The averages of the gradient and of its square, moved on."""
    for name in ("exp_avg", "exp_avg_sq"):
        if name not in state:
            state[name] = torch.zeros_like(p)
    mean, square = state["exp_avg"], state["exp_avg_sq"]
    mean.mul_(betas[0]).add_(grad, alpha=1 - betas[0])
    square.mul_(betas[1]).addcmul_(grad, grad, value=1 - betas[1])
    return mean, square


class NpuFusedLamb(_Stepping):
    """Lamb: Adam's step, scaled by the norm of a parameter over that of its step."""

    def __init__(self, params: Any, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-6,
                 weight_decay: float = 0, adam: bool = False, use_global_grad_norm: bool = False) -> None:
        _check(lr, eps, weight_decay, betas)
        self.adam, self.use_global_grad_norm, self._norm = adam, use_global_grad_norm, 1.0
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step, with all gradients scaled down to a common norm of 1 where that option is set."""
        if self.use_global_grad_norm:
            grads = [p.grad for group in self.param_groups for p in self._with_grads(group)]
            self._norm = max(float(torch.nn.utils.get_total_norm(grads)), 1.0)
        return super().step(closure)

    def _update(self, p: Any, grad: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        mean, square = _moments(p, grad / self._norm if self.use_global_grad_norm else grad, state, group["betas"])
        step = mean / square.sqrt().add(group["eps"])
        if group["weight_decay"]:
            step.add_(p, alpha=group["weight_decay"])
        size, length = p.norm().clamp(0, 10), step.norm()
        ratio = torch.where((size == 0) | (length == 0) | self.adam, torch.ones_like(size), size / length)
        p.sub_(step * ratio * group["lr"])


class NpuFusedAdamP(_Stepping):
    """AdamP: Adam's step without the part that only makes a weight longer."""

    def __init__(self, params: Any, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, delta: float = 0.1, wd_ratio: float = 0.1, nesterov: bool = False) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "delta": delta,
                                  "wd_ratio": wd_ratio, "nesterov": nesterov})

    def _update(self, p: Any, grad: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        mean, square = _moments(p, grad, state, group["betas"])
        denominator = (square.sqrt() / math.sqrt(1 - beta2 ** state["step"])).add_(group["eps"])
        ahead = mean * beta1 + grad * (1 - beta1) if group["nesterov"] else mean
        step, ratio = ahead / denominator, 1.0
        if p.dim() > 1:
            step, ratio = self._projected(p, grad, step, group)
        if group["weight_decay"] > 0:
            p.mul_(1 - group["lr"] * group["weight_decay"] * ratio)
        p.sub_(step * (group["lr"] / (1 - beta1 ** state["step"])))

    @staticmethod
    def _projected(p: Any, grad: Any, step: Any, group: dict[str, Any]) -> tuple[Any, float]:
        """The step across the weight, by channel or by layer, where the gradient hardly points along it."""
        for shape in ((p.size(0), -1), (1, -1)):
            flat, eps = p.reshape(shape), group["eps"]
            cosine = torch.nn.functional.cosine_similarity(grad.reshape(shape), flat, dim=1, eps=eps).abs()
            if bool(cosine.max() < group["delta"] / math.sqrt(flat.size(1))):
                unit = flat / flat.norm(dim=1, keepdim=True).add(eps)
                along = (unit * step.reshape(shape)).sum(1, keepdim=True)
                return step - (unit * along).reshape(p.shape), group["wd_ratio"]
        return step, 1.0


def _schedules() -> dict[str, Callable[[float, float], float]]:
    def warm(x: float, warmup: float, then: float) -> float:
        return x / warmup if x < warmup else then
    return {"warmup_cosine": lambda x, w: warm(x, w, 0.5 * (1.0 + math.cos(math.pi * x))),
            "warmup_constant": lambda x, w: warm(x, w, 1.0),
            "warmup_linear": lambda x, w: warm(x, w, max((x - 1.0) / (w - 1.0), 0.0)),
            "warmup_poly": lambda x, w: warm(x, w, (1.0 - x) ** 0.5)}


SCHEDULES = _schedules()


class NpuFusedBertAdam(_Stepping):
    """BERT's Adam: no correction of the first steps, weight decay in the step, and a schedule of the rate."""

    def __init__(self, params: Any, lr: float, warmup: float = -1, t_total: int = -1, schedule: str = "warmup_linear",
                 b1: float = 0.9, b2: float = 0.999, e: float = 1e-6, weight_decay: float = 0.01,
                 max_grad_norm: float = 1.0) -> None:
        _check(lr, e, weight_decay, (b1, b2))
        if schedule not in SCHEDULES:
            raise ValueError(f"Invalid schedule parameter: {schedule}")
        if not 0.0 <= warmup < 1.0 and warmup != -1:
            raise ValueError(f"Invalid warmup: {warmup}")
        super().__init__(params, {"lr": lr, "schedule": schedule, "warmup": warmup, "t_total": t_total, "b1": b1, "b2": b2,
                                  "e": e, "weight_decay": weight_decay, "max_grad_norm": max_grad_norm})

    def _rate(self, group: dict[str, Any], step: int) -> float:
        if group["t_total"] == -1:
            return float(group["lr"])
        return float(group["lr"]) * SCHEDULES[group["schedule"]](step / group["t_total"], group["warmup"])

    def _update(self, p: Any, grad: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        if group["max_grad_norm"] > 0:
            grad = grad * (group["max_grad_norm"] / (grad.norm() + 1e-6)).clamp(max=1.0)
        mean, square = _moments(p, grad, state, (group["b1"], group["b2"]))
        step = mean / (square.sqrt() + group["e"])
        if group["weight_decay"] > 0:
            step = step + group["weight_decay"] * p
        p.sub_(step * self._rate(group, state["step"] - 1))


class NpuFusedRMSpropTF(_Stepping):
    """RMSprop as TensorFlow computes it: the average starts at 1, eps is under the root, the rate is within the momentum."""

    def __init__(self, params: Any, lr: float = 1e-2, alpha: float = 0.9, eps: float = 1e-10, weight_decay: float = 0,
                 momentum: float = 0.0, centered: bool = False, decoupled_decay: bool = False,
                 lr_in_momentum: bool = True) -> None:
        _check(lr, eps, weight_decay)
        super().__init__(params, {"lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered,
                                  "weight_decay": weight_decay, "decoupled_decay": decoupled_decay,
                                  "lr_in_momentum": lr_in_momentum})

    def _update(self, p: Any, grad: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        if "square_avg" not in state:
            state["square_avg"] = torch.ones_like(p)
            state["momentum_buffer"], state["grad_avg"] = torch.zeros_like(p), torch.zeros_like(p)
        if group["weight_decay"]:
            if group["decoupled_decay"]:
                p.mul_(1 - group["lr"] * group["weight_decay"])
            else:
                grad = grad + group["weight_decay"] * p
        rest, square = 1 - group["alpha"], state["square_avg"]
        square.add_(grad.square() - square, alpha=rest)
        mean = square
        if group["centered"]:
            state["grad_avg"].add_(grad - state["grad_avg"], alpha=rest)
            mean = square - state["grad_avg"].square()
        step = grad / (mean + group["eps"]).sqrt()
        if not group["momentum"]:
            p.sub_(step * group["lr"])
            return
        buffer = state["momentum_buffer"].mul_(group["momentum"])
        buffer.add_(step, alpha=group["lr"] if group["lr_in_momentum"] else 1.0)
        p.sub_(buffer if group["lr_in_momentum"] else buffer * group["lr"])
