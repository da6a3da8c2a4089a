"""Averages of weights: AveragedModel, update_bn and SWALR."""

from __future__ import annotations

import itertools
import math
from copy import deepcopy
from typing import Any, Callable, Iterable

import mindtorch_v2 as torch
from mindtorch_v2.optim._schedule_base import LRScheduler, _format_param
from mindtorch_v2.optim.optimizer import Optimizer

Tensor = torch.Tensor
Module = torch.nn.Module
_BatchNorm = torch.nn.modules.batchnorm._BatchNorm

__all__ = [
    "AveragedModel", "SWALR", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn",
    "get_swa_multi_avg_fn", "update_bn",
]  # fmt: skip


def _check_decay(decay: float) -> None:
    if decay < 0.0 or decay > 1.0:
        raise ValueError(
            f"Invalid decay value {decay} provided. Please provide a value in [0,1] range."
        )


def get_ema_avg_fn(decay: float = 0.999) -> Callable[..., Any]:
    """The exponential moving average of one parameter."""
    _check_decay(decay)

    def ema_update(ema_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        with torch.no_grad():
            return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn() -> Callable[..., Any]:
    """The plain average of one parameter."""

    def swa_update(averaged_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        with torch.no_grad():
            return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[..., Any]:
    """The exponential moving average of a list of parameters, in place."""
    _check_decay(decay)
    one = get_ema_avg_fn(decay)

    def ema_update(ema_params: list[Any], current_params: list, num_averaged: Any) -> None:
        with torch.no_grad():
            if ema_params[0].is_floating_point() or ema_params[0].is_complex():
                torch._foreach_lerp_(ema_params, current_params, 1 - decay)
            else:
                for ema, current in zip(ema_params, current_params):
                    ema.copy_(one(ema, current, num_averaged))

    return ema_update


def get_swa_multi_avg_fn() -> Callable[..., Any]:
    """The plain average of a list of parameters, in place."""
    one = get_swa_avg_fn()

    def swa_update(averaged_params: list[Any], current_params: list, num_averaged: Any) -> None:
        with torch.no_grad():
            if averaged_params[0].is_floating_point() or averaged_params[0].is_complex():
                part = torch._foreach_sub(current_params, averaged_params)
                count = num_averaged + 1
                if isinstance(count, torch.Tensor):
                    count = count.to(averaged_params[0].dtype)
                torch._foreach_div_(part, count)
                torch._foreach_add_(averaged_params, part)
            else:
                for averaged, current in zip(averaged_params, current_params):
                    averaged.copy_(one(averaged, current, num_averaged))

    return swa_update


class AveragedModel(Module):
    """A copy of a model whose parameters are averages over its training."""

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Callable[..., Any] | None = None,
        multi_avg_fn: Callable[..., Any] | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        count = torch.tensor(0, dtype=torch.long, device=device)
        self.register_buffer("n_averaged", count)
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def _tensors(self, model: Module) -> Iterable[Tensor]:
        if self.use_buffers:
            return itertools.chain(model.parameters(), model.buffers())
        return model.parameters()

    def update_parameters(self, model: Module) -> None:
        """Take the parameters of a model into the average."""
        mine = [p.detach() for p in self._tensors(self.module)]
        theirs = [
            p.detach().to(a.device) for a, p in zip(mine, self._tensors(model))
        ]
        if self.n_averaged == 0:
            for a, p in zip(mine, theirs):
                a.copy_(p)
        elif self.multi_avg_fn is not None:
            kinds: dict[Any, Any] = {}
            for a, p in zip(mine, theirs):
                kinds.setdefault((a.device, a.dtype), ([], []))
                kinds[a.device, a.dtype][0].append(a)
                kinds[a.device, a.dtype][1].append(p)
            for (device, _), (ours, new) in kinds.items():
                self.multi_avg_fn(ours, new, self.n_averaged.to(device))
        else:
            average = get_swa_avg_fn() if self.avg_fn is None else self.avg_fn
            for a, p in zip(mine, theirs):
                a.copy_(average(a, p, self.n_averaged.to(a.device)))
        if not self.use_buffers:
            for ours, new in zip(self.module.buffers(), model.buffers()):
                ours.detach().copy_(new.detach().to(ours.device))
        self.n_averaged += 1


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Compute the running statistics of all batch norms anew from some data."""
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm)]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    was_training = model.training
    model.train()
    with torch.no_grad():
        for batch in loader:
            if isinstance(batch, (list, tuple)):
                batch = batch[0]
            if device is not None:
                batch = batch.to(device)
            model(batch)
    for norm, momentum in zip(norms, momenta):
        norm.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """Anneals the learning rate to a constant one, for weight averaging."""

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: Any,
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        for lr, group in zip(_format_param("swa_lr", optimizer, swa_lr), optimizer.param_groups):
            group["swa_lr"] = lr
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                "anneal_strategy must be one of 'cos' or 'linear', "
                f"instead got {anneal_strategy}"
            )
        self._anneal_strategy = anneal_strategy
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(
                f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}"
            )
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def anneal_func(self, t: float) -> float:
        """How far the annealing has come, from 0 to 1."""
        if self._anneal_strategy == "cos":
            return (1 - math.cos(math.pi * t)) / 2
        return t

    def _share(self, step: int) -> float:
        return self.anneal_func(max(0, min(1, step / max(1, self.anneal_epochs))))

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._share(step - 1), self._share(step)
        lrs = []
        for group in self.optimizer.param_groups:
            lr, goal = group["lr"], group["swa_lr"]
            start = goal if before == 1 else (lr - before * goal) / (1 - before)
            lrs.append(goal * now + start * (1 - now))
        return lrs
