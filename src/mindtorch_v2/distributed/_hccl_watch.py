"""The watchdog of npu collectives: finds the one that a dead, absent or disagreeing rank holds up, and ends the wait for it.

Waiting for a stream has no timeout, and a device has no notion of ranks and sequence numbers. So every collective leaves a
record with an event behind it, and a thread polls which event is the first that has not completed.
"""
from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed._errors import DistBackendError
from mindtorch_v2.distributed._peers import Peers
from mindtorch_v2.distributed._work import RedOpType

_LONGEST_SLEEP = 1.0                              # seconds between two looks of the watchdog
# HCCL's op by its name there; of bools, which travel as bytes of 0 and 1, the one that gives the same.
_KINDS = {RedOpType.SUM: "SUM", RedOpType.PRODUCT: "PRODUCT", RedOpType.MAX: "MAX", RedOpType.MIN: "MIN"}
_BOOL_KINDS = {RedOpType.SUM: "MAX", RedOpType.PRODUCT: "MIN", RedOpType.MAX: "MAX", RedOpType.MIN: "MIN"}


def _numbers(hccl: Any, kinds: dict[RedOpType, str]) -> list[int]:
    """By torch's number, -1: HCCL has none such."""
    return [getattr(hccl, kinds[op]) if op in kinds else -1 for op in RedOpType]


def hccl_kind(op: RedOpType, of_bools: bool) -> int:
    """HCCL's number of a reduction."""
    kinds = _BOOL_KINDS if of_bools else _KINDS
    if op not in kinds:
        raise RuntimeError(f"Cannot use ReduceOp.{op.name} with HCCL")
    return getattr(torch.npu._hccl, kinds[op])


class WatchedQueue(torch.npu._hccl.CollectiveQueue):
    """What one group has queued on its devices and is not known to be done."""

    def __init__(self, group: Any, timeout: timedelta, work_class: type) -> None:
        hccl = torch.npu._hccl
        super().__init__(group, torch._config.hccl_blocking_wait(), work_class, RedOpType, _numbers(hccl, _KINDS),
                         _numbers(hccl, _BOOL_KINDS))
        self.timeout, self.hccl = timeout.total_seconds(), hccl
        self.peers = Peers(group.rank())
        self.comms: dict[tuple[int, tuple[int, ...]], Any] = {}   # by device and members
        self.sides: dict[int, Any] = {}           # by device: the stream of async collectives
        self._suspect = ""                        # a rank that was gone at the last look
        self.lock = threading.RLock()

    # ---- what the native half asks ----
    def refuse(self, call: Any) -> None:
        raise DistBackendError(f"{call}: {self.failure}")

    def failed(self, call: Any, function: str, code: int) -> None:
        if function.startswith("Hccl"):
            error = self.hccl.HcclError(function, code)
            raise DistBackendError(f"{call}: {error}") from error
        self.hccl.check(code, function)

    def side(self, device: int) -> int:
        """The stream of async collectives on a device."""
        stream = self.sides[device] = torch.npu.Stream(device)
        return stream.npu_stream

    def run_on(self, device: int, call: Callable[[], Any]) -> None:
        with torch.npu.stream(self.sides[device]):
            call()

    def follow(self, device: int, first: int, then: int) -> None:
        self.hccl.order(device, first, then)

    # ---- the watchdog ----
    def _where(self) -> str:
        """What the group was at: one collective, or several where the device has failed and cannot tell which."""
        left = self.left()
        if len(left) > 1 and left[0].passed() is None:
            return f"one of {len(left)} collectives, from {left[0]} to {left[-1]}"
        return str(left[0] if left else self.last)

    def check(self, call: Any) -> None:
        if self.failure is not None:
            self.refuse(call)

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

    def _judge(self, oldest: Any) -> None:
        gone = self.peers.dead(range(self.group.size()))
        # What a rank sent before its end may still arrive, so a look that follows decides.
        if gone and gone == self._suspect:
            self.fail(gone)
            self._release()
        elif time.monotonic() - oldest.began > self.timeout:
            self.fail(f"Timed out after {self.timeout:g} s", self.group._where_others_are(oldest))
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
        for device, stream in {(record.device, record.stream) for record in self.left()}:
            self.hccl.abort_stream(device, stream)

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
        self.queues: weakref.WeakSet[WatchedQueue] = weakref.WeakSet()
        self.thread: threading.Thread | None = None

    def add(self, queue: WatchedQueue) -> None:
        self.queues.add(queue)
        if self.thread is None:
            torch.npu._hccl.ask_for_causes(self.explain)
            self.thread = threading.Thread(target=self._run, name="HCCL watchdog", daemon=True)
            self.thread.start()

    def _run(self) -> None:
        while True:
            shortest = min((queue.timeout for queue in self.queues), default=_LONGEST_SLEEP)
            time.sleep(max(min(_LONGEST_SLEEP, shortest / 4), 0.05))
            for queue in list(self.queues):
                try:
                    queue.look()
                except RuntimeError as error:     # the device or the communicator has ended in between
                    if not torch.npu._hccl.is_ending():
                        print(f"torch.distributed: the watchdog of group {queue.group.group_name} has failed: {error}",
                              file=sys.stderr, flush=True)
                        self.queues.discard(queue)

    def explain(self) -> DistBackendError | None:
        return next((failure for queue in list(self.queues) if (failure := queue.explain())), None)


watchdog = _Watchdog()
