"""spawn and start_processes: functions run in several processes, with the first failure raised in the parent."""
from __future__ import annotations

import multiprocessing as _multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing import connection
from typing import Any

import mindtorch_v2 as torch

__all__ = ["ProcessContext", "ProcessException", "ProcessExitedException", "ProcessRaisedException", "SpawnContext", "spawn",
           "start_processes"]


class ProcessException(Exception):
    """A spawned process failed."""

    def __init__(self, msg: str, error_index: int, pid: int) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, pid

    def __reduce__(self) -> Any:
        return type(self), (self.msg, self.error_index, self.pid)


class ProcessRaisedException(ProcessException):
    """A spawned process raised."""


class ProcessExitedException(ProcessException):
    """A spawned process ended by itself or by a signal."""

    def __init__(self, msg: str, error_index: int, pid: int, exit_code: int, signal_name: str | None = None) -> None:
        super().__init__(msg, error_index, pid)
        self.exit_code, self.signal_name = exit_code, signal_name

    def __reduce__(self) -> Any:
        return type(self), (self.msg, self.error_index, self.pid, self.exit_code, self.signal_name)


def _wrapped(fn: Callable[..., Any], index: int, args: tuple[Any, ...], errors: Any, parent: int) -> None:
    torch.distributed._process.die_with_parent(signal.SIGINT, parent)
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        pass                                      # the parent was interrupted, and says it
    except Exception:
        errors.send(traceback.format_exc())
        sys.exit(1)


class ProcessContext:
    """The processes of one spawn() call."""

    def __init__(self, processes: list[Any], errors: list[Any]) -> None:
        self.processes, self._errors = processes, errors
        self._left = {process.sentinel: index for index, process in enumerate(processes)}

    def pids(self) -> list[int]:
        return [int(p.pid) for p in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Waits for one process, or for none left (True); when one failed, ends the others and raises."""
        if not self._left:
            return True
        failed = None
        for sentinel in connection.wait(list(self._left), timeout):
            index = self._left.pop(sentinel)
            self.processes[index].join()
            if self.processes[index].exitcode != 0:
                failed = index if failed is None else failed
        if failed is None:
            return not self._left
        self._end(grace_period)
        raise self._failure(failed)

    def _end(self, grace_period: float | None) -> None:
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        deadline = time.monotonic() + (30 if grace_period is None else grace_period)
        for process in self.processes:
            process.join(max(deadline - time.monotonic(), 0))
            if process.is_alive():
                process.kill()
                process.join()

    def _failure(self, index: int) -> ProcessException:
        process = self.processes[index]
        try:
            text = f"\n\n-- Process {index} terminated with the following error:\n{self._errors[index].recv()}"
            return ProcessRaisedException(text, index, process.pid)
        except EOFError:                          # it said nothing, and its end of the pipe is closed
            pass
        if process.exitcode < 0:
            name = signal.Signals(-process.exitcode).name
            return ProcessExitedException(f"process {index} terminated with signal {name}", index, process.pid,
                                          process.exitcode, name)
        return ProcessExitedException(f"process {index} terminated with exit code {process.exitcode}", index, process.pid,
                                      process.exitcode)


SpawnContext = ProcessContext


def start_processes(fn: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
                    start_method: str = "spawn") -> ProcessContext | None:
    """Runs fn(i, *args) in nprocs processes."""
    context: Any = _multiprocessing.get_context(start_method)
    errors, processes = [], []
    for i in range(nprocs):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_wrapped, args=(fn, i, args, theirs, os.getpid()), daemon=daemon)
        process.start()
        theirs.close()
        errors.append(ours)
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
