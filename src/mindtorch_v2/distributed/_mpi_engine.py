"""The engine of cpu tensors (backends gloo and mpi): MPI's non-blocking collectives, one thread that keeps them moving."""
from __future__ import annotations

import atexit
import sys
import threading
import time
import weakref
import zlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed import _mpi, _mpi_world
from mindtorch_v2.distributed._engine import After, Engine, Tensor
from mindtorch_v2.distributed._errors import DistBackendError
from mindtorch_v2.distributed._work import Call, HostWork, RedOpType, Work

# MPI's handles by the standard ABI.
_DTYPES = {torch.int8: 0x240, torch.uint8: 0x241, torch.bool: 0x241, torch.int16: 0x248, torch.int32: 0x250,
           torch.int64: 0x258, torch.float32: 0x210, torch.float64: 0x214, torch.float16: 0x249, torch.bfloat16: 0x249}
_DTYPES |= {getattr(torch, name): handle for name, handle in
            (("uint16", 0x249), ("uint32", 0x251), ("uint64", 0x259)) if hasattr(torch, name)}
_OPS = {RedOpType.SUM: 0x21, RedOpType.MIN: 0x22, RedOpType.MAX: 0x23, RedOpType.PRODUCT: 0x24, RedOpType.BAND: 0x28,
        RedOpType.BOR: 0x29, RedOpType.BXOR: 0x2a}
_BOOL_OPS = {RedOpType.SUM: 0x31, RedOpType.MAX: 0x31, RedOpType.PRODUCT: 0x30, RedOpType.MIN: 0x30}   # logical or, and
_HALF_OPS = {RedOpType.SUM: 0, RedOpType.PRODUCT: 1, RedOpType.MIN: 2, RedOpType.MAX: 3}
_LOOK = 0.2                                       # seconds between looks for dead peers and Ctrl-C
_ANY = -1                                         # MPI_ANY_SOURCE
_MOST_TAGS = 1 << 20


class MpiWork(HostWork):
    """A request of MPI, what it uses, and what is to do when it is done."""

    def __init__(self, engine: MpiEngine, call: Call, request: Any, keep: list[Tensor], after: After,
                 result: list[Tensor]) -> None:
        super().__init__(call, result)
        self.engine, self.request, self.after = engine, request, after
        self._keep: Any = keep                    # MPI writes into them until the request is done
        self._lock = threading.Lock()
        self._done = False
        self._error: Exception | None = None
        self._future: Any = None
        self.deadline = time.monotonic() + engine.timeout

    def wait(self, timeout: timedelta | None = None) -> bool:
        if not self._done:
            deadline = time.monotonic() + timeout.total_seconds() if timeout else self.deadline
            while not self._done and not self._test(min(_LOOK, max(deadline - time.monotonic(), 0))):
                self._look(deadline)
        if self._error is not None:
            raise self._error
        return True

    def _test(self, seconds: float) -> bool:
        try:
            if not self.request.wait(seconds):
                return False
        except _mpi.MpiError as error:
            self.fail(DistBackendError(f"{self._call}: {error}"))
            return True
        self.complete()
        return True

    def _look(self, deadline: float) -> None:
        """Checks, while a call waits, that all ranks are alive and that the timeout has not passed."""
        gone = self.engine.world.peers.dead(self.engine.members)
        if gone and not self.request.wait(_LOOK):     # what it sent before its end may still come
            self.fail(DistBackendError(f"{gone}: {self._call}"))
        elif time.monotonic() > deadline:
            self.fail(self.engine.late(self._call))

    def complete(self) -> None:
        with self._lock:
            if self._done:
                return
            try:
                if self.after is not None:
                    self.after()
            except Exception as error:            # the caller gets it in wait(), wherever it is run
                self._error = error
            self._keep, self.after, self._done = None, None, True
        self._tell()

    def fail(self, error: Exception) -> None:
        """MPI cannot take a collective back: its memory is kept for good, and the world is not used again."""
        with self._lock:
            if self._done:
                return
            self.engine.world.broken = self.engine.world.broken or str(error)
            _abandoned.append((self.request, self._keep))
            self._error, self._done = error, True
        self._tell()

    def _tell(self) -> None:
        if self._future is not None and not self._future.done():
            if self._error is None:
                self._future.set_result(self._result)
            else:
                self._future.set_exception(self._error)

    def is_completed(self) -> bool:
        return self._done or self._test(0)

    def exception(self) -> BaseException | None:
        return self._error

    def source_rank(self) -> int:
        return self.request.source

    def get_future(self) -> Any:
        if self._future is None:
            self._future = torch.futures.Future()
            if self._done:
                self._tell()
            else:
                _progress.add(self)
        return self._future


_abandoned: list[Any] = []


class _Progress:
    """One thread of the process that polls MPI while collectives run that no thread waits for, and sleeps otherwise."""

    def __init__(self) -> None:
        self.works: list[MpiWork] = []
        self.changed = threading.Condition()
        self.thread: threading.Thread | None = None

    def add(self, work: MpiWork) -> None:
        with self.changed:
            if work in self.works:
                return
            self.works.append(work)
            if self.thread is None:
                self.thread = threading.Thread(target=self._run, name="MPI progress", daemon=True)
                self.thread.start()
            self.changed.notify()

    def _run(self) -> None:
        looked = time.monotonic()
        while True:
            with self.changed:
                self.works = [work for work in self.works if not work._done]
                while not self.works:
                    self.changed.wait()
                works = list(self.works)
            _mpi.wait_for_any([work.request for work in works], 0.02)   # a new one joins at the next turn
            for work in works:
                work.is_completed()
            if time.monotonic() - looked > _LOOK:
                looked = time.monotonic()
                for work in works:
                    if not work._done:
                        work._look(work.deadline)


_progress = _Progress()


class MpiEngine(Engine):
    """One group of ranks as a communicator of MPI."""

    name = "gloo"

    def __init__(self, group: Any, world: _mpi_world.MpiWorld, members: list[int], timeout: timedelta) -> None:
        super().__init__(group)
        self.world, self.members, self.timeout = world, members, timeout.total_seconds()
        self.under_way: weakref.WeakSet[MpiWork] = weakref.WeakSet()
        self.comm = self._join(timeout)

    def _join(self, timeout: timedelta) -> Any:
        name = self.group.group_name
        self.check_world(f"group {name}")         # making a communicator waits without end for a rank that is gone
        self.world.peers.wait_for(self.group._store, "mpi", self.members, timeout, f"group {name} of ranks {self.members}")
        tag = zlib.crc32(name.encode()) % (1 << 14)   # keeps two groups that are created at once apart
        with self.world.peers.or_exit(self.members, timeout, f"making group {name}"):
            if self.members == list(range(self.world.size)):
                return _mpi.Communicator.world()
            return _mpi.Communicator.of_ranks(self.members, tag)

    def check_world(self, what: Any) -> None:
        if self.world.broken:
            raise DistBackendError(f"{what}: MPI cannot be used any more in this process, because of an earlier failure: "
                                   f"{self.world.broken}")

    def late(self, call: Call | None) -> DistBackendError:
        return DistBackendError(f"Timed out after {self.timeout:g} s: {call}. {self.group._where_others_are(call)}")

    def _launch(self, call: Call, start: Callable[..., Any], keep: list[Tensor], after: After, result: list[Tensor],
                async_op: bool) -> Work:
        self.check_world(call)
        try:
            request = start(self.comm)
        except _mpi.MpiError as error:
            raise DistBackendError(f"{call}: {error}") from error
        work = MpiWork(self, call, request, keep, after, result)
        self.under_way.add(work)
        if async_op and not work.is_completed():
            _progress.add(work)
        return work

    def _typed(self, dtype: Any, op: RedOpType) -> tuple[int, int]:
        handle = _DTYPES.get(dtype)
        if handle is None:
            raise RuntimeError("Invalid scalar type")
        if dtype in (torch.float16, torch.bfloat16):
            return handle, self.world.half_op(dtype == torch.bfloat16, _HALF_OPS[op])
        return handle, (_BOOL_OPS.get(op) or _OPS[op]) if dtype == torch.bool else _OPS[op]

    def _all_reduce(self, data: Tensor, op: RedOpType) -> Callable[..., Any]:
        dtype, number = self._typed(data.dtype, op)
        return lambda comm: comm.all_reduce(data.data_ptr(), data.numel(), dtype, number)

    def _reduce(self, data: Tensor, root: int, op: RedOpType) -> Callable[..., Any]:
        dtype, number = self._typed(data.dtype, op)
        return lambda comm: comm.reduce(data.data_ptr(), data.numel(), dtype, number, root)

    def _reduce_scatter(self, out: Tensor, data: Tensor, op: RedOpType) -> Callable[..., Any]:
        dtype, number = self._typed(data.dtype, op)
        return lambda comm: comm.reduce_scatter(data.data_ptr(), out.data_ptr(), out.numel(), dtype, number)

    def _broadcast(self, data: Tensor, root: int) -> Callable[..., Any]:
        return lambda comm: comm.broadcast(data.data_ptr(), data.nbytes, root)

    def _all_gather(self, out: Tensor, data: Tensor) -> Callable[..., Any]:
        return lambda comm: comm.all_gather(data.data_ptr(), out.data_ptr(), data.nbytes)

    def _gather(self, out: Tensor | None, data: Tensor, root: int) -> Callable[..., Any]:
        return lambda comm: comm.gather(data.data_ptr(), 0 if out is None else out.data_ptr(), data.nbytes, root)

    def _scatter(self, out: Tensor, data: Tensor | None, root: int) -> Callable[..., Any]:
        return lambda comm: comm.scatter(0 if data is None else data.data_ptr(), out.data_ptr(), out.nbytes, root)

    def _all_to_all(self, out: Tensor, data: Tensor, received: list[int], sent: list[int]) -> Callable[..., Any]:
        size = data.element_size()
        return lambda comm: comm.all_to_all(data.data_ptr(), [size * n for n in sent], out.data_ptr(),
                                            [size * n for n in received])

    def _barrier(self) -> Callable[..., Any]:
        return lambda comm: comm.barrier()

    def send(self, data: Tensor, to: int, tag: int, async_op: bool) -> Work:
        call, dense = self.call("send", data), self._dense(data)
        start = lambda comm: comm.send(dense.data_ptr(), dense.nbytes, to, tag % _MOST_TAGS)
        return self._launch(call, start, [dense], None, [data], async_op)

    def recv(self, data: Tensor, source: int | None, tag: int, async_op: bool) -> Work:
        call, dense = self.call("recv", data), self._dense(data)
        start = lambda comm: comm.recv(dense.data_ptr(), dense.nbytes, _ANY if source is None else source, tag % _MOST_TAGS)
        return self._launch(call, start, [data, dense], self._put_back_plain(data, dense), [data], async_op)

    def abort(self) -> None:
        """Waiting calls raise; MPI cannot cancel what was started, so that nothing more can be exchanged."""
        why = f"rank {self.rank} has aborted group {self.group.group_name}"
        for work in list(self.under_way):
            if not work.is_completed():
                work.fail(DistBackendError(f"{why}: {work._call}"))
        self.world.broken = self.world.broken or why

    def close(self) -> None:
        if not self.world.broken:
            _mpi_world.flush(self.comm, 2.0)


@atexit.register
def _end() -> None:
    _mpi_world.finalize(wait=not hasattr(sys, "last_type"))   # after an exception the others may be anywhere
