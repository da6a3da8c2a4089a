"""Pool of torch.multiprocessing: Python's, whose pickler sends tensors as shared memory."""
from __future__ import annotations

import multiprocessing.pool
from multiprocessing import get_context
from typing import Any


class Pool(multiprocessing.pool.Pool):
    """Worker processes; a worker frees what its garbage holds when it ends."""

    def __init__(self, processes: int | None = None, initializer: Any = None, initargs: Any = (),
                 maxtasksperchild: int | None = None, context: Any = None) -> None:
        super().__init__(processes, initializer, initargs, maxtasksperchild, context or get_context())
