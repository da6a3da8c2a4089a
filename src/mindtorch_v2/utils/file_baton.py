"""torch.utils.file_baton: a file by which one process at a time holds something."""
from __future__ import annotations

import os
import time
import warnings


class FileBaton:
    """Held by the process that made the file."""

    def __init__(self, lock_file_path: str, wait_seconds: float = 0.1, warn_after_seconds: float | None = None) -> None:
        self.lock_file_path, self.wait_seconds, self.warn_after_seconds = lock_file_path, wait_seconds, warn_after_seconds
        self.fd: int | None = None

    def try_acquire(self) -> bool:
        """Whether this process holds it now."""
        try:
            self.fd = os.open(self.lock_file_path, os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            return False
        return True

    def wait(self) -> None:
        """Until the process that holds it lets go."""
        begin, warned = time.monotonic(), False
        while os.path.exists(self.lock_file_path):
            time.sleep(self.wait_seconds)
            if self.warn_after_seconds is not None and not warned and time.monotonic() - begin > self.warn_after_seconds:
                warned = True
                warnings.warn(f"Waited on lock file: {self.lock_file_path} for {self.warn_after_seconds} seconds.", stacklevel=2)

    def release(self) -> None:
        """Let go."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None
        os.remove(self.lock_file_path)
