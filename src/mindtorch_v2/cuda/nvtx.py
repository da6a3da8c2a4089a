"""torch.cuda.nvtx: ranges for NVIDIA's profiler; nothing listens, so that programs with ranges run as they are."""
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]


def range_push(msg: str) -> int:
    """Depth of the range: 0."""
    return 0


def range_pop() -> int:
    """Depth of the range that ends: 0."""
    return 0


def range_start(msg: str) -> int:
    """Handle of a range: 0."""
    return 0


def range_end(range_id: int) -> None:
    """End a range by its handle."""


def mark(msg: str) -> None:
    """Mark a moment."""


@contextlib.contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """A with block, or a decorator, whose time is a range. The message is formatted, as in torch."""
    msg.format(*args, **kwargs)
    yield
