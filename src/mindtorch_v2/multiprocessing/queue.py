"""Queues of torch.multiprocessing: Python's, whose pickler sends tensors as shared memory."""
from __future__ import annotations

import multiprocessing.queues
from multiprocessing import get_context
from typing import Any


class Queue(multiprocessing.queues.Queue):
    """A queue with a feeding thread."""

    def __init__(self, maxsize: int = 0, *, ctx: Any = None) -> None:
        super().__init__(maxsize, ctx=ctx or get_context())


class SimpleQueue(multiprocessing.queues.SimpleQueue):
    """A queue over a pipe, without a thread."""

    def __init__(self, *, ctx: Any = None) -> None:
        super().__init__(ctx=ctx or get_context())
