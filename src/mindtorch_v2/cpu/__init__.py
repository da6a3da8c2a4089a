"""torch.cpu: the CPU as one device among others, for code that is written for any; and torch.cpu.amp."""
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from mindtorch_v2.cpu import amp as amp


class Stream:
    """The CPU's one stream: work is done when its op returns."""

    def __init__(self, priority: int = -1) -> None:
        pass

    def wait_stream(self, stream: Any) -> None:
        """Nothing: there is nothing to wait for."""

    def record_event(self) -> None:
        """Nothing: every event is done."""

    def wait_event(self, event: Any) -> None:
        """Nothing: every event is done."""


_default_stream = Stream()


def is_available() -> bool:
    """True."""
    return True


def is_initialized() -> bool:
    """True."""
    return True


def device_count() -> int:
    """1."""
    return 1


def current_device() -> str:
    """"cpu"."""
    return "cpu"


def set_device(device: Any) -> None:
    """Nothing: there is one."""


def synchronize(device: Any = None) -> None:
    """Nothing: work is done when its op returns."""


def current_stream(device: Any = None) -> Stream:
    """The CPU's one stream."""
    return _default_stream


@contextlib.contextmanager
def stream(stream: Any) -> Iterator[None]:
    """A with block that changes nothing."""
    yield
