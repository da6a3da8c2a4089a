"""Handlers of signals by which PyTorch's loaders notice that a worker ended, for loaders of packages: here they ask the workers."""
from __future__ import annotations

from typing import Any


def _set_SIGCHLD_handler() -> None:
    """Nothing to install: a loader that waits asks whether its workers are alive."""


def _set_worker_signal_handlers() -> None:
    """Nothing to install: a worker that dies of a signal is seen by its loader."""


def _set_worker_pids(loader_id: int, worker_pids: Any) -> None:
    """Nothing to remember."""


def _remove_worker_pids(loader_id: int) -> None:
    """Nothing to forget."""


def _error_if_any_worker_fails() -> None:
    """Nothing to raise."""
