"""LRScheduler, the base of all learning rate schedules."""

from __future__ import annotations

import functools
import types
import warnings
import weakref
from contextlib import contextmanager
from typing import Any, Iterator

import mindtorch_v2 as torch
from mindtorch_v2.optim.optimizer import Optimizer

Tensor = torch.Tensor

_ORDER_URL = (
    "See more details at "
    "https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"
)
EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being "
    "deprecated where possible. Please use `scheduler.step()` to step the "
    "scheduler. During the deprecation, if epoch is different from None, the "
    "closed form is used instead of the new chainable form, where available. "
    "Please open an issue if you are unable to replicate your use case: "
    "https://github.com/pytorch/pytorch/issues/new/choose."
)


def _format_param(name: str, optimizer: Optimizer, param: Any) -> list[Any]:
    """One value for each parameter group."""
    groups = len(optimizer.param_groups)
    if not isinstance(param, (list, tuple)):
        param = [param] * groups
    elif len(param) != groups:
        raise ValueError(
            f"{name} must have the same length as optimizer.param_groups. "
            f"{name} has {len(param)} values, param_groups has {groups}."
        )
    return [_copied(p) for p in param]


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def _param_groups_val_list(optimizer: Optimizer, key: str) -> list[Any]:
    """The value of an option in each group, copied if it is a tensor."""
    return [_copied(group[key]) for group in optimizer.param_groups]


def _update_param_group_val(param_group: dict[Any, Any], key: str, val: Any) -> None:
    """Set an option, in place where it is a tensor."""
    if isinstance(param_group[key], torch.Tensor):
        param_group[key].fill_(val)  # a tensor is copied: the host need not know it
    else:
        param_group[key] = val


def check_optimizer(optimizer: Any) -> None:
    """Refuse what is not an optimizer."""
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")


def _track_step(optimizer: Optimizer) -> None:
    """Wrap optimizer.step so that a schedule can tell that it was called."""
    if hasattr(optimizer.step, "_wrapped_by_lr_sched"):
        return
    # Weak, or optimizer and wrapper would keep each other alive.
    step: Any = optimizer.step
    owner, func = weakref.ref(optimizer), step.__func__

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        opt: Any = owner()
        opt._opt_called = True
        return func(opt, *args, **kwargs)

    wrapper._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    optimizer.step = wrapper  # type: ignore[method-assign]


class LRScheduler:
    """Sets the learning rate of each parameter group, step by step."""

    _get_lr_called_within_step: bool = False
    _is_initial: bool = False

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", _copied(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{i}] when resuming "
                    "scheduler with last_epoch >= 0.\n"
                    "This typically happens when:\n"
                    "1. You're trying to resume training from a checkpoint but haven't properly "
                    "loaded the optimizer state\n"
                    "2. You're using last_epoch >= 0 for a fresh training run (not recommended)"
                )
        self.base_lrs = _param_groups_val_list(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        _track_step(optimizer)
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what state_dict gave."""
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> list[Any]:
        """The learning rates of the last step."""
        return self._last_lr

    def get_lr(self) -> list[Any]:
        """The learning rates of the next step; every schedule defines it."""
        raise NotImplementedError

    @contextmanager
    def _computing(self) -> Iterator[None]:
        self._get_lr_called_within_step = True
        try:
            yield
        finally:
            self._get_lr_called_within_step = False

    def _warn_outside_step(self) -> None:
        if not self._get_lr_called_within_step:
            warnings.warn(
                "To get the last learning rate computed by the scheduler, "
                "please use `get_last_lr()`.",
                UserWarning,
                stacklevel=3,
            )

    def _current(self) -> list[Any]:
        """The learning rates as they stand."""
        return _param_groups_val_list(self.optimizer, "lr")

    def _scaled(self, factor: float) -> list[Any]:
        """The learning rates as they stand, times a factor."""
        return [group["lr"] * factor for group in self.optimizer.param_groups]

    def _set_lrs(self, values: list[Any]) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != len(values):
            raise ValueError(f"expected {len(groups)} learning rates, got {len(values)}")
        for group, lr in zip(groups, values):
            _update_param_group_val(group, "lr", lr)
        self._last_lr = self._current()

    def _check_order(self) -> None:
        """At the second step the optimizer should have made one."""
        if not hasattr(self.optimizer.step, "_wrapped_by_lr_sched"):
            warnings.warn(
                "Seems like `optimizer.step()` has been overridden after learning rate scheduler "
                "initialization. Please, make sure to call `optimizer.step()` before "
                f"`lr_scheduler.step()`. {_ORDER_URL}",
                UserWarning,
                stacklevel=3,
            )
        elif not getattr(self.optimizer, "_opt_called", False):
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`. "
                "In PyTorch 1.1.0 and later, you should call them in the opposite order: "
                "`optimizer.step()` before `lr_scheduler.step()`.  Failure to do this "
                "will result in PyTorch skipping the first value of the learning rate schedule. "
                f"{_ORDER_URL}",
                UserWarning,
                stacklevel=3,
            )

    def step(self, epoch: int | None = None) -> None:
        """Go one step on (or, by the old way, to an epoch)."""
        if self._step_count == 1:
            self._check_order()
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=2)
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        with self._computing():
            if epoch is None:
                self.last_epoch += 1
                values = self.get_lr()
            else:
                self.last_epoch = epoch
                closed = getattr(self, "_get_closed_form_lr", self.get_lr)
                values = closed()
        self._set_lrs(values)


class _LRScheduler(LRScheduler):
    """The old name of LRScheduler."""


def pack_callables(functions: list[Any]) -> list:
    """What of callables can be saved: the attributes of callable objects, not functions."""
    plain = types.FunctionType
    return [None if isinstance(fn, plain) else fn.__dict__.copy() for fn in functions]
