"""torch.utils._filelock: one process at a time, by a lock on a file."""
from __future__ import annotations

import fcntl
import os
import time
from typing import Any


class Timeout(TimeoutError):
    """Another one holds the lock."""


class FileLock:
    """`with FileLock(path):` holds the lock; a thread or process that has it may take it again."""

    def __init__(self, lock_file: str | os.PathLike[str], timeout: float = -1) -> None:
        self.lock_file, self.timeout = os.fspath(lock_file), timeout
        self._descriptor, self._held = -1, 0

    @property
    def is_locked(self) -> bool:
        """Whether this object holds it."""
        return self._held > 0

    def acquire(self, timeout: float | None = None, poll_interval: float = 0.05) -> FileLock:
        """Take it; Timeout after so many seconds, never if they are negative."""
        if not self._held:
            self._descriptor = os.open(self.lock_file, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                self._wait(self.timeout if timeout is None else timeout, poll_interval)
            except BaseException:
                os.close(self._descriptor)
                raise
        self._held += 1
        return self

    def _wait(self, timeout: float, poll_interval: float) -> None:
        end = time.monotonic() + timeout
        while True:
            try:
                return fcntl.flock(self._descriptor, fcntl.LOCK_EX | (fcntl.LOCK_NB if timeout >= 0 else 0))
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise Timeout(f"The file lock '{self.lock_file}' could not be acquired.") from None
                time.sleep(poll_interval)

    def release(self, force: bool = False) -> None:
        """Give it back once, or altogether."""
        if self._held:
            self._held = 0 if force else self._held - 1
            if not self._held:
                os.close(self._descriptor)      # the lock goes with it

    def __enter__(self) -> FileLock:
        return self.acquire()

    def __exit__(self, *exc: Any) -> None:
        self.release()
