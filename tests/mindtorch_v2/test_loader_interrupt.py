"""A Ctrl-C that comes while a DataLoader forks a worker ends the program: Python drops an exception of its fork hooks."""

from __future__ import annotations

import os
import signal

import pytest

from mindtorch_v2.utils.data import DataLoader

hits: list[int] = []


def interrupt() -> None:
    """After each fork, in the parent."""
    if hits:
        os.kill(hits.pop(), signal.SIGINT)


os.register_at_fork(after_in_parent=interrupt)


def test_ctrl_c_during_a_fork() -> None:
    before = signal.getsignal(signal.SIGINT)
    hits.append(os.getpid())
    with pytest.raises(KeyboardInterrupt):
        list(DataLoader(range(4), num_workers=1, multiprocessing_context="fork"))
    assert not hits and signal.getsignal(signal.SIGINT) is before
    assert len(list(DataLoader(range(4), num_workers=1, multiprocessing_context="fork"))) == 4
