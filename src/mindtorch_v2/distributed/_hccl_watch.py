"""The watchdog of npu collectives: finds the one that a dead, absent or disagreeing rank holds up, and ends the wait for it.

Waiting for a stream has no timeout, and a device has no notion of ranks and sequence numbers. So every collective leaves a mark
(an event behind it), and a thread polls which event is the first that has not completed.
"""
from __future__ import annotations

import sys
import threading
import time
import weakref
from collections import deque
from datetime import timedelta
from typing import Any, NamedTuple

import mindtorch_v2 as torch
from mindtorch_v2.distributed._errors import DistBackendError
from mindtorch_v2.distributed._peers import Peers
from mindtorch_v2.distributed._work import Call

_LONGEST_SLEEP = 1.0                              # seconds between two looks of the watchdog
_UNASKED = 8                                      # so many marks may be left before the device is queried


class Mark(NamedTuple):
    """What was queued, and where."""
    call: Call
    stream: Any                                   # torch.npu.Stream
    event: Any                                    # recorded behind it
    began: float                                  # time.monotonic() when it was queued


class Watch:
    """What one group has queued on its devices and is not known to be done."""

    def __init__(self, group: Any, timeout: timedelta) -> None:
        self.group, self.timeout, self.hccl = group, timeout.total_seconds(), torch.npu._hccl
        self.peers = Peers(group.rank())
        self.marks: dict[Any, deque[Mark]] = {}   # by stream, in its order
        self.comms: dict[Any, Any] = {}           # the communicators of the group
        self.failure: DistBackendError | None = None
        self.last: Call | None = None
        self._suspect = ""                        # a rank that was gone at the last look
        self.lock = threading.RLock()

    def add(self, mark: Mark) -> None:
        if self.hccl.recording():                 # nothing runs, and its event is a node of a graph
            return
        with self.lock:
            queue = self.marks.setdefault(mark.stream, deque())
            queue.append(mark)
            # Few are to be left when the device fails and cannot tell any more; one question serves several marks.
            if len(queue) > _UNASKED and self.hccl.passed(queue[_UNASKED // 2].event):
                for _ in range(_UNASKED // 2 + 1):
                    queue.popleft()

    def left(self) -> list[Mark]:
        """The marks that are not known to be passed, oldest first."""
        with self.lock:
            for queue in self.marks.values():
                while queue and self.hccl.passed(queue[0].event):
                    queue.popleft()
            return sorted((mark for queue in self.marks.values() for mark in queue), key=lambda mark: mark.began)

    def _where(self) -> str:
        """What the group was at: one collective, or several where the device has failed and cannot tell which."""
        left = self.left()
        if len(left) > 1 and self.hccl.passed(left[0].event) is None:
            return f"one of {len(left)} collectives, from {left[0].call} to {left[-1].call}"
        return str(left[0].call if left else self.last)

    def check(self, call: Any) -> None:
        if self.failure is not None:
            raise DistBackendError(f"{call}: {self.failure}")

    def look(self) -> None:
        """The watchdog's question. What it finds is said at once, and by every later call of the group."""
        with self.lock:
            if self.failure is not None or self.hccl.recording():   # while a graph is recorded, no event may be queried
                return
            error = self._error()
            if error:
                self.fail(error)
            elif left := self.left():
                self._judge(left[0])

    def _judge(self, mark: Mark) -> None:
        gone = self.peers.dead(range(self.group.size()))
        # What a rank sent before its end may still arrive, so a look that follows decides.
        if gone and gone == self._suspect:
            self.fail(gone)
            self._release()
        elif time.monotonic() - mark.began > self.timeout:
            self.fail(f"Timed out after {self.timeout:g} s", self.group._where_others_are(mark.call))
            self._release()
        self._suspect = gone

    def _error(self) -> str:
        for (device, _), comm in list(self.comms.items()):
            error = comm.error() if comm.handle else ""
            if error:
                return f"{error} on npu:{device}: a rank is gone, disagrees or came too late"
        return ""

    def fail(self, why: str, elsewhere: str = "") -> None:
        """From now on the group is of no use; its communicators stay until it is aborted or destroyed."""
        self.failure = DistBackendError(f"{why}: {self._where()}" + (f". {elsewhere}" if elsewhere else ""))
        print(f"torch.distributed: {self.failure}", file=sys.stderr, flush=True)

    def _release(self) -> None:
        """Ends what the streams wait for, and so the wait of a host for them."""
        for stream in {mark.stream for mark in self.left()}:
            self.hccl.abort_stream(stream.device_index, stream.npu_stream)

    def explain(self) -> DistBackendError | None:
        """Why work on a device failed, where it was this group's: the question of a wait that has failed."""
        with self.lock:
            if self.failure is None:
                error = self._error()
                if error:
                    self.fail(self.peers.dead(range(self.group.size())) or error)
            return self.failure


class _Watchdog:
    """One thread of the process for all groups."""

    def __init__(self) -> None:
        self.watches: weakref.WeakSet[Watch] = weakref.WeakSet()
        self.thread: threading.Thread | None = None

    def add(self, watch: Watch) -> None:
        self.watches.add(watch)
        if self.thread is None:
            torch.npu._hccl.ask_for_causes(self.explain)
            self.thread = threading.Thread(target=self._run, name="HCCL watchdog", daemon=True)
            self.thread.start()

    def _run(self) -> None:
        while True:
            shortest = min((watch.timeout for watch in self.watches), default=_LONGEST_SLEEP)
            time.sleep(max(min(_LONGEST_SLEEP, shortest / 4), 0.05))
            for watch in list(self.watches):
                try:
                    watch.look()
                except RuntimeError as error:     # the device or the communicator has ended in between
                    if not torch.npu._hccl.is_ending():
                        print(f"torch.distributed: the watchdog of group {watch.group.group_name} has failed: {error}",
                              file=sys.stderr, flush=True)
                        self.watches.discard(watch)

    def explain(self) -> DistBackendError | None:
        return next((failure for watch in list(self.watches) if (failure := watch.explain())), None)


watchdog = _Watchdog()
