"""The steps of save and load that all ranks take together: a failure of one is a CheckpointException of all."""
from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed import _objects as objects
from mindtorch_v2.distributed._errors import DistStoreError
from mindtorch_v2.distributed._world import _resolve, get_global_rank, is_initialized
from mindtorch_v2.distributed.checkpoint.api import CheckpointException


class _Failure:
    """An exception on its way to other ranks; one that cannot be pickled goes as its words."""

    def __init__(self, error: BaseException) -> None:
        stack = traceback.extract_tb(error.__traceback__)
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:                         # whatever a class of exceptions makes of it
            error = RuntimeError("".join(traceback.format_exception_only(type(error), error)).strip())
        self.wrapped = (error.with_traceback(None), stack)


def attempt(function: Callable[..., Any], *args: Any) -> Any:
    """What a function gives, or its failure."""
    try:
        return function(*args)
    except Exception as error:
        return _Failure(error)


def raise_failures(name: str, values: list[Any]) -> None:
    failures = {rank: value.wrapped for rank, value in enumerate(values) if isinstance(value, _Failure)}
    if failures:
        raise CheckpointException(name, failures)


class Alone:
    """One process."""
    rank, size, is_coordinator = 0, 1, True

    def exchange(self, name: str, value: Any, central: Callable[[list[Any]], list[Any]]) -> Any:
        """Every rank gives a value, the coordinator answers each; a failure anywhere is raised everywhere."""
        raise_failures(name, [value])
        answer = attempt(central, [value])
        raise_failures(name, [answer])
        return answer[0]


class Together(Alone):
    """The ranks of a group, by collectives."""

    def __init__(self, group: Any) -> None:
        self.group = _resolve(group)
        self.rank, self.size = self.group.rank(), self.group.size()
        self.is_coordinator = self.rank == 0
        self.coordinator = get_global_rank(self.group, 0)

    def exchange(self, name: str, value: Any, central: Callable[[list[Any]], list[Any]]) -> Any:
        values: list[Any] | None = [None] * self.size if self.is_coordinator else None
        objects.gather_object(value, values, dst=self.coordinator, group=self.group)
        answers: list[Any] = [None] * self.size
        if values is not None:
            answers = self._answers(name, values, central)
        mine = [None]
        objects.scatter_object_list(mine, answers if self.is_coordinator else None, src=self.coordinator, group=self.group)
        if isinstance(mine[0], CheckpointException):
            raise mine[0]
        return mine[0]

    def _answers(self, name: str, values: list[Any], central: Callable[[list[Any]], list[Any]]) -> list[Any]:
        try:
            raise_failures(name, values)
            answers = attempt(central, values)
            raise_failures(name, [answers])
        except CheckpointException as error:
            return [error] * self.size
        return answers


class ByStore(Together):
    """The same for a thread beside the program: through the store, since the group's collectives are the program's."""
    _saves = 0

    def __init__(self, group: Any) -> None:
        super().__init__(group)
        ByStore._saves += 1
        self.key, self.step = f"checkpoint/{ByStore._saves}", 0

    def exchange(self, name: str, value: Any, central: Callable[[list[Any]], list[Any]]) -> Any:
        self.step += 1
        store, stem = self.group.get_group_store(), f"{self.key}/{self.step}"
        store.set(f"{stem}/{self.rank}", pickle.dumps(value))
        if self.is_coordinator:
            values = [pickle.loads(self._get(store, f"{stem}/{rank}", name, rank)) for rank in range(self.size)]
            for rank, answer in enumerate(self._answers(name, values, central)):
                store.set(f"{stem}/answer/{rank}", pickle.dumps(answer))
        mine = pickle.loads(self._get(store, f"{stem}/answer/{self.rank}", name, 0))
        if isinstance(mine, CheckpointException):
            raise mine
        return mine

    def _get(self, store: Any, key: str, name: str, rank: int) -> bytes:
        limit: timedelta = self.group._timeout
        try:
            store.wait([key], limit)
            return store.get(key)
        except DistStoreError as error:
            raise RuntimeError(f"[async_save] step {name!r}: rank {rank} did not come within {limit}") from error


def ranks_of(process_group: Any, no_dist: bool) -> Alone:
    """Who takes part."""
    return Alone() if no_dist or not is_initialized() or torch.distributed.get_world_size(process_group) == 1 \
        else Together(process_group)
