"""Timer: timeit for tensors; it waits for the device, sets the number of threads, and repeats as long as needed."""
from __future__ import annotations

import enum
import textwrap
import time
import timeit
from collections.abc import Callable
from typing import Any, NoReturn

import mindtorch_v2 as torch
from mindtorch_v2.utils.benchmark.utils import common

__all__ = ["Timer", "timer", "Language"]


def timer() -> float:
    """The time, after all devices are synchronized."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    return time.perf_counter()


class Language(enum.Enum):
    """The language of a statement."""

    PYTHON = 0
    CPP = 1


class Timer:
    """Measures a statement."""

    _timer_cls: type[timeit.Timer] = timeit.Timer

    def __init__(self, stmt: str = "pass", setup: str = "pass", global_setup: str = "",
                 timer: Callable[[], float] = timer, globals: dict[str, Any] | None = None, label: str | None = None,
                 sub_label: str | None = None, description: str | None = None, env: str | None = None, num_threads: int = 1,
                 language: Language | str = Language.PYTHON) -> None:
        if not isinstance(stmt, str):
            raise ValueError("Currently only a `str` stmt is supported.")
        if language not in (Language.PYTHON, "py", "python"):
            raise NotImplementedError("[torch.utils.benchmark.Timer] only statements in Python are measured; mindtorch_v2 "
                                      "compiles no C++")
        if global_setup:
            raise ValueError(f"global_setup is C++ only, got `{global_setup}`. Most likely this code can simply be moved to "
                             "`setup`.")
        self._globals = {"torch": torch, **(globals or {})}
        stmt, setup = textwrap.dedent(stmt).strip("\n"), textwrap.dedent(setup).strip("\n")
        self._timer = self._timer_cls(stmt=stmt, setup=setup, timer=timer, globals=self._globals)
        self._task_spec = common.TaskSpec(stmt=stmt, setup=setup, global_setup=global_setup, label=label,
                                          sub_label=sub_label, description=description, env=env, num_threads=num_threads)

    def _timeit(self, number: int) -> float:
        return max(self._timer.timeit(number), 1e-9)

    def timeit(self, number: int = 1000000) -> common.Measurement:
        """One run of so many executions, after a short one that warms up."""
        with common.set_torch_threads(self._task_spec.num_threads):
            self._timeit(max(number // 100, 2))
            return common.Measurement(number, [self._timeit(number)], self._task_spec)

    def autorange(self, callback: Callable[[int, float], NoReturn] | None = None) -> None:
        """Refuses: blocked_autorange does more."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def repeat(self, repeat: int = -1, number: int = -1) -> None:
        """Refuses: blocked_autorange does more."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def _block_size(self, min_run_time: float) -> int:
        """So many executions that the clock does not matter and that there is more than one block."""
        clock = self._timer.timer                # type: ignore[attr-defined]  # typeshed does not know it
        overhead = sorted(self._timer_cls("pass", timer=clock).timeit(0) for _ in range(5))[2]
        number = 1
        while True:
            taken = self._timeit(number)
            if overhead / taken <= 1e-4 and taken >= min_run_time / 1000 or taken > min_run_time:
                return number
            number *= 10

    def blocked_autorange(self, callback: Callable[[int, float], NoReturn] | None = None,
                          min_run_time: float = 0.2) -> common.Measurement:
        """Blocks of executions, until they took so long in all."""
        with common.set_torch_threads(self._task_spec.num_threads):
            number = self._block_size(min_run_time)
            times: list[float] = []
            while sum(times) < min_run_time:
                times.append(self._timeit(number))
                if callback is not None:
                    callback(number, times[-1])
            return common.Measurement(number, times, self._task_spec)

    def adaptive_autorange(self, threshold: float = 0.1, *, min_run_time: float = 0.01, max_run_time: float = 10.0,
                           callback: Callable[[int, float], NoReturn] | None = None) -> common.Measurement:
        """Blocks of executions, until the times agree."""
        with common.set_torch_threads(self._task_spec.num_threads):
            number = self._block_size(0.05)
            times: list[float] = []
            while True:
                times.append(self._timeit(number))
                if callback is not None:
                    callback(number, times[-1])
                found = common.Measurement(number, times, self._task_spec)
                enough = len(times) >= 3 and sum(times) > min_run_time and found.meets_confidence(threshold)
                if enough or sum(times) > max_run_time:
                    return found

    def collect_callgrind(self, *args: Any, **kwargs: Any) -> None:
        """Refuses: instructions are not counted."""
        raise NotImplementedError("[Timer.collect_callgrind] mindtorch_v2 does not count instructions; run the program under "
                                  "valgrind --tool=callgrind")
