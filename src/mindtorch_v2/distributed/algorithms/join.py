"""torch.distributed.algorithms.join: ranks that run out of input go on with empty collectives until all have."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed._collectives import all_reduce

__all__ = ["Join", "JoinHook", "Joinable"]


class JoinHook:
    """What a rank does in the place of an iteration, and when all are done."""

    def main_hook(self) -> None:
        """Matches the collectives of one iteration of the others."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Runs once when all ranks are done; is_last_joiner says whether this one went on to the end."""


class Joinable:
    """What can take part: it has a hook, a device and a group, and calls Join.notify_join_context in every iteration."""

    _joined: Any = None

    def join_hook(self, **kwargs: Any) -> JoinHook:
        raise NotImplementedError

    @property
    def join_device(self) -> Any:
        raise NotImplementedError

    @property
    def join_process_group(self) -> Any:
        raise NotImplementedError


class Join:
    """Around a loop in which ranks have different numbers of iterations."""

    def __init__(self, joinables: list[Any], enable: bool = True, throw_on_early_termination: bool = False,
                 **kwargs: Any) -> None:
        if not joinables:
            raise ValueError("The join context manager requires at least one joinable")
        self.joinables, self.enable, self.throws, self.kwargs = joinables, enable, throw_on_early_termination, kwargs
        self.hooks = [joinable.join_hook(**kwargs) for joinable in joinables]
        first = joinables[0]
        self.device, self.group = first.join_device, first.join_process_group

    def __enter__(self) -> Join:
        for joinable in self.joinables if self.enable else ():
            joinable._joined = self
            reducer = getattr(joinable, "reducer", None)
            if reducer is not None:
                reducer.rebuilt = True            # a rank may have no first pass to learn an order from
        return self

    def _active(self, here: int) -> int:
        """How many ranks still have input."""
        count = torch.tensor([here], dtype=torch.int64, device=self.device)
        all_reduce(count, group=self.group)
        return int(count)

    def notify(self, joinable: Any) -> None:
        """At the beginning of an iteration."""
        if joinable is not self.joinables[0]:
            return
        active = self._active(1)
        if self.throws and active < self.group.size():
            raise RuntimeError("Detected at least one rank that exhausted inputs. Throwing across all ranks.")
        if not self.kwargs.get("divide_by_initial_world_size", True) and hasattr(joinable, "reducer"):
            joinable.reducer.divide_by = active

    @staticmethod
    def notify_join_context(joinable: Any) -> None:
        if joinable._joined is not None:
            joinable._joined.notify(joinable)

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        if not self.enable:
            return
        for joinable in self.joinables:
            joinable._joined = None
        if kind is not None:
            return
        last = True
        while self._active(0):
            if self.throws:
                raise RuntimeError(f"Rank {self.group.rank()} exhausted all inputs.")
            for hook in self.hooks:
                hook.main_hook()
            last = False
        for hook in self.hooks:
            hook.post_hook(last)
