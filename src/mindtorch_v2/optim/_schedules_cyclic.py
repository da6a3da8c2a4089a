"""Schedules that go in cycles or along a cosine."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Callable

from mindtorch_v2.optim._schedule_base import (
    LRScheduler,
    _format_param,
    _update_param_group_val,
    check_optimizer,
    pack_callables,
)
from mindtorch_v2.optim.optimizer import Optimizer


class CosineAnnealingLR(LRScheduler):
    """Along half a cosine to eta_min in T_max steps, and back."""

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        low, t, turn = self.eta_min, self.last_epoch, self.T_max
        groups = self.optimizer.param_groups
        if self._is_initial:
            return self._current()
        if self._step_count == 1 and t > 0:
            return self._get_closed_form_lr()
        if (t - 1 - turn) % (2 * turn) == 0:
            # At the lowest point the ratio below is 0/0: go up from it by the first step.
            rise = (1 - math.cos(math.pi / turn)) / 2
            return [g["lr"] + (base - low) * rise for base, g in zip(self.base_lrs, groups)]
        ratio = (1 + math.cos(math.pi * t / turn)) / (1 + math.cos(math.pi * (t - 1) / turn))
        return [ratio * (group["lr"] - low) + low for group in groups]

    def _get_closed_form_lr(self) -> list[Any]:
        low = self.eta_min
        share = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [low + (base - low) * share for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Along half a cosine to eta_min, again and again, in cycles that grow by T_mult."""

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, int)):
            raise ValueError(
                f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}"
            )
        self.T_0 = T_0
        self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        share = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]

    def _go_to(self, epoch: float) -> None:
        """Find the cycle that an epoch lies in."""
        if epoch < 0:
            raise ValueError(f"Expected non-negative epoch, but got {epoch}")
        if epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            n = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult**n - 1) / (self.T_mult - 1)
            self.T_i = self.T_0 * self.T_mult**n

    def step(self, epoch: float | None = None) -> None:
        """Go one step on, or to an epoch, which may be a fraction."""
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur = self.T_cur + 1
            if self.T_cur >= self.T_i:
                self.T_cur = self.T_cur % self.T_i
                self.T_i = self.T_i * self.T_mult
        else:
            self._go_to(epoch)
        self.last_epoch = math.floor(epoch)
        with self._computing():
            values = self.get_lr()
        self._set_lrs(values)


class _Momentum(LRScheduler):
    """A schedule that moves momentum (or the first beta) against the learning rate."""

    def _init_momentum(self, base: Any, highest: Any, last_epoch: int) -> tuple[list[Any], list]:
        options = self.optimizer.defaults
        if "momentum" not in options and "betas" not in options:
            raise ValueError(
                "optimizer must support momentum or beta1 with `cycle_momentum` option enabled"
            )
        self.use_beta1 = "betas" in options
        lows = _format_param("base_momentum", self.optimizer, base)
        highs = _format_param("max_momentum", self.optimizer, highest)
        if last_epoch == -1:
            for low, high, group in zip(lows, highs, self.optimizer.param_groups):
                self._set_momentum(group, high)
                group["max_momentum"] = high
                group["base_momentum"] = low
        return lows, highs

    def _set_momentum(self, group: dict[Any, Any], value: float) -> None:
        if self.use_beta1:
            group["betas"] = (value, *group["betas"][1:])
        else:
            group["momentum"] = value


class CyclicLR(_Momentum):
    """Up and down between two rates."""

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: Any,
        max_lr: Any,
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float = 0.8,
        max_momentum: float = 0.9,
        last_epoch: int = -1,
    ) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        base_lrs = _format_param("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for lr, group in zip(base_lrs, optimizer.param_groups):
                _update_param_group_val(group, "lr", lr)
        self.max_lrs = _format_param("max_lr", optimizer, max_lr)
        up = float(step_size_up)
        down = float(step_size_down) if step_size_down is not None else up
        self.total_size = up + down
        self.step_ratio = up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode
        self._init_scale_fn()
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.base_momentums, self.max_momentums = self._init_momentum(
                base_momentum, max_momentum, last_epoch
            )
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def _init_scale_fn(self) -> None:
        if self._scale_fn_custom is not None:
            return
        if self.mode == "exp_range":
            self._scale_fn_ref: Callable[[float], float] = partial(self._exp_range_scale_fn, self.gamma)
            self.scale_mode = "iterations"
        else:
            one = self._triangular_scale_fn
            self._scale_fn_ref = one if self.mode == "triangular" else self._triangular2_scale_fn
            self.scale_mode = "cycle"

    def scale_fn(self, x: float) -> float:
        """The height of a cycle or an iteration, as a share of the full one."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        return self._scale_fn_ref(x)

    @staticmethod
    def _triangular_scale_fn(x: float) -> float:
        return 1.0

    @staticmethod
    def _triangular2_scale_fn(x: float) -> float:
        return 1 / (2.0 ** (x - 1))

    @staticmethod
    def _exp_range_scale_fn(gamma: float, x: float) -> float:
        return gamma**x

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        if x <= self.step_ratio:
            share = x / self.step_ratio
        else:
            share = (x - 1) / (self.step_ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            bounds = zip(self.optimizer.param_groups, self.base_momentums, self.max_momentums)
            for group, low, high in bounds:
                self._set_momentum(group, high - (high - low) * share * scale)
        pairs = zip(self.base_lrs, self.max_lrs)
        return [low + (high - low) * share * scale for low, high in pairs]

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        state.pop("_scale_fn_ref", None)
        custom = state["_scale_fn_custom"]
        state["_scale_fn_custom"] = None if custom is None else pack_callables([custom])[0]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        rest = dict(state_dict)
        saved = rest.pop("_scale_fn_custom")
        super().load_state_dict(rest)
        if saved is not None:
            self._scale_fn_custom.__dict__.update(saved)
        self._init_scale_fn()


def _phase(end: float, lr: str, momentum: str) -> dict[str, Any]:
    """One phase of OneCycleLR: where it ends, and what it leads from and to."""
    start_lr, end_lr = lr.split()
    start_momentum, end_momentum = momentum.split()
    return {
        "end_step": end, "start_lr": start_lr, "end_lr": end_lr,
        "start_momentum": start_momentum, "end_momentum": end_momentum,
    }  # fmt: skip


class OneCycleLR(_Momentum):
    """Up to max_lr once and far down again."""

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: Any,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: Any = 0.85,
        max_momentum: Any = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        self.total_steps = self._total(total_steps, epochs, steps_per_epoch)
        last = self.total_steps - 1
        up = _phase(
            float(pct_start * self.total_steps) - 1,
            "initial_lr max_lr", "max_momentum base_momentum",
        )  # fmt: skip
        if three_phase:
            middle = float(2 * pct_start * self.total_steps) - 2
            down = _phase(middle, "max_lr initial_lr", "base_momentum max_momentum")
            end = _phase(last, "initial_lr min_lr", "max_momentum max_momentum")
            self._schedule_phases = [up, down, end]
        else:
            down = _phase(last, "max_lr min_lr", "base_momentum max_momentum")
            self._schedule_phases = [up, down]
        if pct_start < 0 or pct_start > 1 or not isinstance(pct_start, float):
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                "anneal_strategy must be one of 'cos' or 'linear', "
                f"instead got {anneal_strategy}"
            )
        self._anneal_func_type = anneal_strategy
        max_lrs = _format_param("max_lr", optimizer, max_lr)
        if last_epoch == -1:
            for high, group in zip(max_lrs, optimizer.param_groups):
                group["initial_lr"] = high / div_factor
                group["max_lr"] = high
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._init_momentum(base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)

    @staticmethod
    def _total(total: int | None, epochs: int | None, steps: int | None) -> int:
        given: dict[str, Any] = {"total_steps": total}
        if total is None:
            if epochs is None or steps is None:
                raise ValueError(
                    "You must define either total_steps OR (epochs AND steps_per_epoch)"
                )
            given = {"epochs": epochs, "steps_per_epoch": steps}
        for name, value in given.items():
            if not isinstance(value, int) or value <= 0:
                raise ValueError(f"Expected positive integer {name}, but got {value}")
        return math.prod(given.values())

    def _anneal_func(self, start: float, end: float, pct: float) -> float:
        if self._anneal_func_type == "cos":
            return self._annealing_cos(start, end, pct)
        return self._annealing_linear(start, end, pct)

    @staticmethod
    def _annealing_cos(start: float, end: float, pct: float) -> float:
        return end + (start - end) / 2.0 * (math.cos(math.pi * pct) + 1)

    @staticmethod
    def _annealing_linear(start: float, end: float, pct: float) -> float:
        return (end - start) * pct + start

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(
                f"Tried to step {step} times. The specified number of total steps is "
                f"{self.total_steps}"
            )
        start, phase = 0.0, self._schedule_phases[0]
        for phase in self._schedule_phases:
            if step <= phase["end_step"] or phase is self._schedule_phases[-1]:
                break
            start = phase["end_step"]
        share = (step - start) / (phase["end_step"] - start)
        lrs = []
        for group in self.optimizer.param_groups:
            lr = self._anneal_func(group[phase["start_lr"]], group[phase["end_lr"]], share)
            lrs.append(lr)
            if self.cycle_momentum:
                ends = group[phase["start_momentum"]], group[phase["end_momentum"]]
                self._set_momentum(group, self._anneal_func(*ends, share))
        return lrs
