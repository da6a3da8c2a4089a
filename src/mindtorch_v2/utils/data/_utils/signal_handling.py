"""The workers of PyTorch's loaders, by loader, for loaders of packages: whether one ended other than by its own will."""
from __future__ import annotations

import os
import signal
from typing import Any

_workers: dict[int, tuple[int, ...]] = {}


def _set_SIGCHLD_handler() -> None:
    """Nothing to install: a loader that waits asks whether its workers are alive."""


def _set_worker_signal_handlers() -> None:
    """Nothing to install: a worker that dies of a signal is seen by its loader."""


def _set_worker_pids(loader_id: int, worker_pids: Any) -> None:
    """The processes that work for a loader."""
    if not isinstance(loader_id, int):
        raise TypeError(f"an integer is required (got type {type(loader_id).__name__})")
    if not isinstance(worker_pids, tuple):
        raise TypeError(f"_set_worker_pids expects a tuple for child_pids, but got {type(worker_pids).__name__}.")
    if loader_id in _workers:
        raise ValueError("_set_worker_pids should be called only once for each _BaseDataLoaderIter.")
    _workers[loader_id] = worker_pids


def _remove_worker_pids(loader_id: int) -> None:
    """The loader is closed."""
    if loader_id not in _workers:
        raise ValueError(f"Cannot find worker information for _BaseDataLoaderIter with id {loader_id}")
    del _workers[loader_id]


def _error_if_any_worker_fails() -> None:
    """Raises where a process has died of a signal or ended with another code than 0."""
    for pids in _workers.values():
        for pid in pids:
            try:
                ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:             # of another process, or looked after already
                continue
            if ended is None:
                continue
            if ended.si_code == os.CLD_EXITED and ended.si_status != 0:
                raise RuntimeError(f"DataLoader worker (pid {pid}) exited unexpectedly with exit code {ended.si_status}. Details "
                                   "are lost due to multiprocessing. Rerunning with num_workers=0 may give better error trace.")
            if ended.si_code in (os.CLD_KILLED, os.CLD_DUMPED):
                raise RuntimeError(f"DataLoader worker (pid {pid}) is killed by signal: {signal.strsignal(ended.si_status)}. ")
