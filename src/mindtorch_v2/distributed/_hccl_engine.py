"""The engine of npu tensors (backend hccl): HCCL's collectives on streams, and a watchdog that tells of a dead rank."""
from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed._engine import After, Engine, Tensor
from mindtorch_v2.distributed._errors import DistBackendError, DistStoreError
from mindtorch_v2.distributed._stores import PrefixStore, Store
from mindtorch_v2.distributed._work import Call, RedOpType, Work

_WATCH = 1.0                                      # seconds between two looks of the watchdog


class HcclWork(Work):
    """What was queued on a stream. To wait is the work of streams; the host waits only for a barrier or with a timeout."""

    def __init__(self, engine: HcclEngine, call: Call, stream: Any, result: list[Tensor], host_waits: bool) -> None:
        super().__init__(call, result)
        self.engine, self.stream, self._host_waits = engine, stream, host_waits
        self._event = stream.record_event()

    def wait(self, timeout: timedelta | None = None) -> bool:
        self.engine.check(self._call)
        current = torch.npu.current_stream(self.stream.device)
        if current != self.stream:
            current.wait_event(self._event)
        if self._host_waits:
            self._event.synchronize()
        elif timeout is not None:
            self._wait_on_host(timeout.total_seconds())
        return True

    def _wait_on_host(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._event.query():
            self.engine.check(self._call)
            if time.monotonic() > deadline:
                raise DistBackendError(f"Timed out after {seconds:g} s: {self._call}")
            time.sleep(0.001)

    def is_completed(self) -> bool:
        return self._event.query() or self.engine.failure is not None

    def exception(self) -> BaseException | None:
        return self.engine.failure

    def get_future(self) -> Any:
        """Done at once, as torch's is: what it holds is ready for the stream that waits for the work."""
        self.wait()
        future = torch.futures.Future()
        future.set_result(self._result)
        return future


class _Watchdog:
    """One thread of the process that asks HCCL whether a collective has failed on the device."""

    def __init__(self) -> None:
        self.engines: weakref.WeakSet[HcclEngine] = weakref.WeakSet()
        self.thread: threading.Thread | None = None

    def add(self, engine: HcclEngine) -> None:
        self.engines.add(engine)
        if self.thread is None:
            self.thread = threading.Thread(target=self._run, name="HCCL watchdog", daemon=True)
            self.thread.start()

    def _run(self) -> None:
        while True:
            time.sleep(_WATCH)
            for engine in list(self.engines):
                engine.look()


_watchdog = _Watchdog()


class HcclEngine(Engine):
    """One group; a communicator for each device that it is used with, and for each pair that sends and receives."""

    name = "hccl"

    def __init__(self, group: Any, store: Store, timeout: timedelta) -> None:
        super().__init__(group)
        self.hccl, self.store, self.timeout = torch.npu._hccl, PrefixStore("hccl", store), timeout
        self.hccl.set_timeouts(timeout.total_seconds())
        self.comms: dict[tuple[int, tuple[int, ...]], Any] = {}
        self.sides: dict[int, Any] = {}           # by device: the stream of async collectives
        self.failure: DistBackendError | None = None
        self.last: Call | None = None
        self.everybody = tuple(range(self.size))
        self._lock = threading.Lock()

    # ---- communicators ----
    def comm(self, device: int, members: tuple[int, ...]) -> Any:
        made = self.comms.get((device, members))
        if made is None:
            if self.failure is not None:          # the other ranks will not take part
                raise self.failure
            made = self.comms[device, members] = self._meet(device, members)
            _watchdog.add(self)
        return made

    def _meet(self, device: int, members: tuple[int, ...]) -> Any:
        """All members come here; the first tells the others through the store how they find it."""
        me, key = members.index(self.rank), "root/" + "-".join(map(str, members))
        if me == 0:
            self.store.set(key, self.hccl.root_info(device))
        self.store.set(f"{key}/{me}", b"1")
        try:
            self.store.wait([f"{key}/{i}" for i in range(len(members))], self.timeout)
        except DistStoreError as error:
            missing = [members[i] for i in range(len(members)) if not self.store.check([f"{key}/{i}"])]
            raise DistBackendError(f"no communicator of group {self.group.group_name} on npu:{device}: after {self.timeout} "
                                   f"nothing has come of rank {', '.join(map(str, missing))}") from error
        try:
            return self.hccl.Communicator(device, len(members), me, self.store.get(key))
        except self.hccl.HcclError as error:
            raise DistBackendError(f"rank {self.rank} of group {self.group.group_name}: {error}") from error

    def side(self, device: int) -> Any:
        stream = self.sides.get(device)
        if stream is None:
            stream = self.sides[device] = torch.npu.Stream(device)
        return stream

    # ---- failures ----
    def check(self, call: Call | None) -> None:
        if self.failure is not None:
            raise DistBackendError(f"{call}: {self.failure}")

    def look(self) -> None:
        """The watchdog's question. What it finds is said at once, and by every later call of the group."""
        for (device, _), comm in list(self.comms.items()):
            if self.failure is not None or not comm.handle:
                return
            try:
                error = comm.error()
            except RuntimeError:                  # the device or the communicator has ended in between
                return
            if error:
                self.failure = DistBackendError(f"{error} on npu:{device}, rank {self.rank}: a rank is gone, disagrees or came too "
                                                f"late; the latest collective was {self.last}")
                print(f"torch.distributed: {self.failure}", file=sys.stderr)

    # ---- launching ----
    def _launch(self, call: Call, start: Callable[..., Any], keep: list[Tensor], after: After, result: list[Tensor],
                async_op: bool) -> Work:
        device = keep[0].device.index if keep else self._own_device()
        comm = self.comm(device, self.everybody)
        return self._queue(call, device, [(comm, start)], keep, after, result, async_op, not keep)

    def _own_device(self) -> int:
        bound = self.group.bound_device_id
        return torch.npu.current_device() if bound is None else bound.index

    def _queue(self, call: Call, device: int, starts: list[tuple[Any, Callable[..., Any]]], keep: list[Tensor], after: After,
               result: list[Tensor], async_op: bool, host_waits: bool = False) -> Work:
        self.check(call)
        self.last = call
        handle = self.hccl.current_stream(device)
        if async_op:
            side = self.side(device)
            self.hccl.order(device, handle, side.npu_stream)
            handle = side.npu_stream
            for tensor in keep:
                tensor.record_stream(side)
        else:
            side = torch.npu.current_stream(device)
        try:
            for comm, start in starts:
                comm.follow(handle)
                start(comm, handle)
        except self.hccl.HcclError as error:
            raise DistBackendError(f"{call}: {error}") from error
        if after is not None:
            with torch.npu.stream(side):
                after()
        return HcclWork(self, call, side, result, host_waits)

    # ---- primitives ----
    def _typed(self, data: Tensor, op: RedOpType) -> tuple[int, int]:
        if data.dtype == torch.bool:
            kind = {RedOpType.SUM: self.hccl.MAX, RedOpType.PRODUCT: self.hccl.MIN, RedOpType.MAX: self.hccl.MAX,
                    RedOpType.MIN: self.hccl.MIN}.get(op)
            dtype: int | None = self.hccl.BYTE
        else:
            kind = {RedOpType.SUM: self.hccl.SUM, RedOpType.PRODUCT: self.hccl.PRODUCT, RedOpType.MAX: self.hccl.MAX,
                    RedOpType.MIN: self.hccl.MIN}.get(op)
            dtype = self.hccl.DTYPES.get(str(data.dtype).rpartition(".")[2])
        if kind is None:
            raise ValueError(f"Cannot use ReduceOp.{op.name} with HCCL")
        if dtype is None:
            raise TypeError(f"HCCL does not reduce {data.dtype}")
        return dtype, kind

    def _all_reduce(self, data: Tensor, op: RedOpType) -> Callable[..., Any]:
        dtype, kind = self._typed(data, op)
        return lambda comm, stream: comm.all_reduce(data.data_ptr(), data.numel(), dtype, kind, stream)

    def _reduce(self, data: Tensor, root: int, op: RedOpType) -> Callable[..., Any]:
        dtype, kind = self._typed(data, op)
        return lambda comm, stream: comm.reduce(data.data_ptr(), data.numel(), dtype, kind, root, stream)

    def _reduce_scatter(self, out: Tensor, data: Tensor, op: RedOpType) -> Callable[..., Any]:
        dtype, kind = self._typed(data, op)
        return lambda comm, stream: comm.reduce_scatter(data.data_ptr(), out.data_ptr(), out.numel(), dtype, kind, stream)

    def _broadcast(self, data: Tensor, root: int) -> Callable[..., Any]:
        return lambda comm, stream: comm.broadcast(data.data_ptr(), data.nbytes, root, stream)

    def _all_gather(self, out: Tensor, data: Tensor) -> Callable[..., Any]:
        return lambda comm, stream: comm.all_gather(data.data_ptr(), out.data_ptr(), data.nbytes, stream)

    def _gather(self, out: Tensor | None, data: Tensor, root: int) -> Callable[..., Any]:
        """HCCL has no gather: everybody sends to the root only."""
        sent = [data.nbytes if rank == root else 0 for rank in range(self.size)]
        received = [data.nbytes if self.rank == root else 0] * self.size
        to = data.data_ptr() if out is None else out.data_ptr()   # not written to where nothing is received
        return lambda comm, stream: comm.all_to_all(data.data_ptr(), sent, to, received, stream)

    def _scatter(self, out: Tensor, data: Tensor | None, root: int) -> Callable[..., Any]:
        source = out if data is None else data
        return lambda comm, stream: comm.scatter(source.data_ptr(), out.data_ptr(), out.nbytes, root, stream)

    def _all_to_all(self, out: Tensor, data: Tensor, received: list[int], sent: list[int]) -> Callable[..., Any]:
        size = data.element_size()
        return lambda comm, stream: comm.all_to_all(data.data_ptr(), [size * n for n in sent], out.data_ptr(),
                                                    [size * n for n in received], stream)

    def _barrier(self) -> Callable[..., Any]:
        return lambda comm, stream: comm.barrier(stream)

    # ---- point to point ----
    def _pair(self, device: int, peer: int) -> tuple[Any, int]:
        """(the communicator of two ranks, the other's rank in it)."""
        members = (min(self.rank, peer), max(self.rank, peer))
        return self.comm(device, members), members.index(peer)

    def send(self, data: Tensor, to: int, tag: int, async_op: bool) -> Work:
        call, dense = self.call("send", data), self._dense(data)
        comm, peer = self._pair(data.device.index, to)
        start = lambda comm, stream: comm.send(dense.data_ptr(), dense.nbytes, peer, stream)
        return self._queue(call, data.device.index, [(comm, start)], [dense], None, [data], async_op)

    def recv(self, data: Tensor, source: int | None, tag: int, async_op: bool) -> Work:
        if source is None:
            raise RuntimeError("HCCL cannot receive from any rank: say which with src")
        call, dense = self.call("recv", data), self._dense(data)
        comm, peer = self._pair(data.device.index, source)
        start = lambda comm, stream: comm.recv(dense.data_ptr(), dense.nbytes, peer, stream)
        after = self._put_back_plain(data, dense)
        return self._queue(call, data.device.index, [(comm, start)], [data, dense], after, [data], async_op)

    def batch(self, items: list[tuple[bool, Tensor, int]]) -> Work:
        """Sends (True) and receives with peers, all at once. Pairs come in one order for all ranks, so that none waits in a
        circle."""
        device, call = items[0][1].device.index, self.call("batch_isend_irecv", items[0][1])
        dense = [self._dense(tensor) for _, tensor, _ in items]
        pairs: dict[tuple[int, int], list[tuple[bool, int, int, int]]] = {}
        starts: list[tuple[Any, Callable[..., Any]]] = []
        for (sends, _, peer), data in zip(items, dense, strict=True):
            key = (min(self.rank, peer), max(self.rank, peer))
            pairs.setdefault(key, []).append((sends, data.data_ptr(), data.nbytes, key.index(peer)))
        for key in sorted(pairs):
            starts.append((self.comm(device, key), lambda comm, stream, part=pairs[key]: comm.batch(part, stream)))
        backs = [back for (sends, tensor, _), data in zip(items, dense, strict=True)
                 if not sends and (back := self._put_back_plain(tensor, data))]
        after = (lambda: [back() for back in backs]) if backs else None
        keep = [*dense, *(tensor for _, tensor, _ in items)]
        return self._queue(call, device, starts, keep, after, [t for _, t, _ in items], True)

    def abort(self) -> None:
        """Gives the communicators back without waiting for what is queued: streams go on, and every later call is told."""
        self.failure = self.failure or DistBackendError(f"rank {self.rank} has aborted group {self.group.group_name}; the latest "
                                                        f"collective was {self.last}")
        for comm in list(self.comms.values()):
            comm.destroy()
        self.comms.clear()

    def close(self) -> None:
        for comm in self.comms.values():
            if self.failure is None:
                torch.npu.synchronize(comm.device_id)
            comm.destroy()
        self.comms.clear()
