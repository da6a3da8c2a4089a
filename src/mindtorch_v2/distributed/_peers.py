"""Which process each rank is: how ranks exchange that through a store, and which of them no longer runs."""
from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from mindtorch_v2.distributed._errors import DistBackendError, DistStoreError
from mindtorch_v2.distributed._stores import Store

_SLICE = 1.0                                      # seconds at a store between two looks for dead processes


def process_start(pid: int) -> str:
    """When a process of this host began, in the kernel's ticks; "" if there is none. A pid alone may be used again.

    As its first thread has it: an emulator (qemu-user) answers a process that asks /proc/PID/stat of itself with zeros."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]    # a zombie is gone too


class Peers:
    """The processes of ranks, as far as they are known; rank is this process's."""

    def __init__(self, rank: int) -> None:
        self.rank, self.host = rank, socket.gethostname()
        self.known: dict[int, tuple[str, int, str]] = {}   # by rank: host, process, its start
        self.before_exit: Callable[[], None] = lambda: None   # gives back what would outlive the processes

    def dead(self, ranks: Iterable[int]) -> str:
        """Which of the ranks on this host no longer runs, or ""; those of other hosts are only found by a timeout."""
        for rank in ranks:
            host, pid, start = self.known.get(rank, ("", 0, ""))
            if host == self.host and rank != self.rank and process_start(pid) != start:
                return f"rank {rank} (process {pid}) is no longer running"
        return ""

    def wait_for(self, store: Store, key: str, ranks: list[int], timeout: timedelta, what: str) -> None:
        """Waits at a store until all ranks have arrived, and records their processes."""
        pid = os.getpid()
        store.set(f"{key}/{self.rank}", json.dumps([self.host, pid, process_start(pid)]))
        keys, deadline = [f"{key}/{rank}" for rank in ranks], time.monotonic() + timeout.total_seconds()
        while True:
            left = deadline - time.monotonic()
            try:
                store.wait(keys, timedelta(seconds=max(min(left, _SLICE), 0.001)))
                break
            except DistStoreError as error:
                missing = [rank for rank in ranks if not store.check([f"{key}/{rank}"])]
                gone = self.dead(missing)
                if gone:
                    raise DistBackendError(f"{what}: {gone}") from error
                if left <= _SLICE and missing:
                    raise DistBackendError(f"{what}: expected {len(ranks)} ranks within {timeout}, but of rank"
                                           f"{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))} nothing "
                                           "came") from error
        for rank, sent in zip(ranks, store.multi_get(keys), strict=True):
            self.known[rank] = tuple(json.loads(sent))
        gone = self.dead(ranks)                   # one that came first may have given up meanwhile
        if gone:
            raise DistBackendError(f"{what}: {gone}")

    @contextmanager
    def or_exit(self, ranks: list[int], timeout: timedelta, what: str, returns: bool = False) -> Iterator[None]:
        """Around a call of C that waits for other ranks and cannot be interrupted: this process ends, with a message, where one
        of them does, or where they do not come in time. returns: the call has a timeout of its own, longer than ours; so it ends
        the process only where a rank is gone and our timeout is over."""
        done, deadline = threading.Event(), time.monotonic() + timeout.total_seconds()

        def watch() -> None:
            suspect = ""
            while not done.wait(_SLICE):
                gone, late = self.dead(ranks), time.monotonic() > deadline
                why = gone if gone and gone == suspect and (late or not returns) else ""
                if not why and late and not returns:
                    why = f"the other ranks did not come within {timeout}"
                if why:
                    print(f"torch.distributed: rank {self.rank}: {what}: {why}. The call cannot be taken back, so this process "
                          "ends", file=sys.stderr, flush=True)
                    self.before_exit()
                    os._exit(1)
                suspect = gone

        threading.Thread(target=watch, name="torch.distributed start", daemon=True).start()
        try:
            yield
        finally:
            done.set()
