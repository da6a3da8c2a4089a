"""torch.multiprocessing: Python's multiprocessing; tensors travel by copy, or by fork when share_memory_() was called."""
from __future__ import annotations

import multiprocessing as _multiprocessing
from collections.abc import Callable
from multiprocessing import *  # noqa: F403
from typing import Any

_strategy = "file_system"


class ProcessRaisedException(Exception):
    """A spawned process raised."""


class ProcessExitedException(Exception):
    """A spawned process ended by itself or by a signal."""


def get_all_sharing_strategies() -> set[str]:
    """How tensors may be shared; here only by name."""
    return {"file_system", "file_descriptor"}


def get_sharing_strategy() -> str:
    """The strategy that was set; tensors are copied whichever it is."""
    return _strategy


def set_sharing_strategy(new_strategy: str) -> None:
    """Kept for callers."""
    global _strategy
    if new_strategy not in get_all_sharing_strategies():
        raise AssertionError(f"unknown sharing strategy {new_strategy!r}")
    _strategy = new_strategy


def _wrapped(fn: Callable[..., Any], index: int, args: tuple[Any, ...], errors: Any) -> None:
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        pass
    except Exception as error:
        errors.put((index, f"{type(error).__name__}: {error}"))
        raise


class ProcessContext:
    """The processes of one spawn() call."""

    def __init__(self, processes: list[Any], errors: Any) -> None:
        self.processes, self._errors = processes, errors

    def pids(self) -> list[int]:
        return [p.pid for p in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Waits; raises when a process failed, after ending the others."""
        for process in self.processes:
            process.join(timeout)
            if process.exitcode not in (0, None):
                index = self.processes.index(process)
                for other in self.processes:
                    if other.is_alive():
                        other.terminate()
                if not self._errors.empty():
                    at, text = self._errors.get()
                    raise ProcessRaisedException(f"\n\n-- Process {at} terminated with the following error:\n{text}")
                raise ProcessExitedException(f"process {index} terminated with exit code {process.exitcode}")
        return all(p.exitcode == 0 for p in self.processes)


def start_processes(fn: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
                    start_method: str = "spawn") -> ProcessContext | None:
    """Runs fn(i, *args) in nprocs processes."""
    context: Any = _multiprocessing.get_context(start_method)
    errors, processes = context.SimpleQueue(), []
    for i in range(nprocs):
        process = context.Process(target=_wrapped, args=(fn, i, args, errors), daemon=daemon)
        process.start()
        processes.append(process)
    started = ProcessContext(processes, errors)
    if not join:
        return started
    while not started.join():
        pass
    return None


def spawn(fn: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
          start_method: str = "spawn") -> ProcessContext | None:
    """start_processes with the spawn method."""
    return start_processes(fn, args, nprocs, join, daemon, start_method)
