"""The engine of npu tensors (backend hccl): HCCL's collectives on streams."""
from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed._engine import After, Engine, Tensor
from mindtorch_v2.distributed._errors import DistBackendError
from mindtorch_v2.distributed._hccl_watch import Mark, Watch, watchdog
from mindtorch_v2.distributed._stores import PrefixStore, Store
from mindtorch_v2.distributed._work import Call, RedOpType, Work


class HcclWork(Work):
    """What was queued on a stream. To wait is the work of streams; the host waits only for a barrier or with a timeout."""

    def __init__(self, engine: HcclEngine, call: Call, stream: Any, result: list[Tensor], host_waits: bool) -> None:
        super().__init__(call, result)
        self.engine, self.stream, self._host_waits = engine, stream, host_waits
        self._event = stream.record_event()
        engine.watch.add(Mark(call, stream, self._event, time.monotonic()))

    def wait(self, timeout: timedelta | None = None) -> bool:
        self.engine.watch.check(self._call)
        if self.engine.hccl.current_stream(self.stream.device_index) != self.stream.npu_stream:
            torch.npu.current_stream(self.stream.device).wait_event(self._event)
        if timeout is not None:
            self._wait_on_host(timeout.total_seconds())
        elif self._host_waits:
            self._wait_on_host(None)
        return True

    def _wait_on_host(self, seconds: float | None) -> None:
        try:
            if seconds is None:
                self._event.synchronize()
                self.engine.watch.left()          # drops what is done while the device can still be queried
                return
            deadline = time.monotonic() + seconds
            while not self._event.query():
                self.engine.watch.check(self._call)
                if time.monotonic() > deadline:
                    raise DistBackendError(f"Timed out after {seconds:g} s: {self._call}")
                time.sleep(0.001)
        except torch.AcceleratorError as error:   # of the device: the watchdog knows which rank it was
            self.engine.watch.explain()
            self.engine.watch.check(self._call)
            raise DistBackendError(f"{self._call}: {error}") from error

    def is_completed(self) -> bool:
        return self.engine.watch.failure is not None or self._event.query()

    def exception(self) -> BaseException | None:
        return self.engine.watch.failure

    def get_future(self) -> Any:
        """Done at once, as torch's is: what it holds is ready for the stream that waits for the work."""
        self.wait()
        future = torch.futures.Future()
        future.set_result(self._result)
        return future


class HcclEngine(Engine):
    """One group; a communicator for each device that it is used with, and for each pair that sends and receives."""

    name = "hccl"

    def __init__(self, group: Any, store: Store, timeout: timedelta) -> None:
        super().__init__(group)
        self.hccl, self.store, self.timeout = torch.npu._hccl, PrefixStore("hccl", store), timeout
        self.hccl.set_timeouts(timeout.total_seconds())
        self.watch = Watch(group, timeout)
        self.comms: dict[tuple[int, tuple[int, ...]], Any] = self.watch.comms
        self.sides: dict[int, Any] = {}           # by device: the stream of async collectives
        self.used: dict[tuple[int, int], Any] = {}   # by device and handle: the streams of the other ones
        self.everybody = tuple(range(self.size))
        self.blocking = torch._config.hccl_blocking_wait()

    # ---- communicators ----
    def comm(self, device: int, members: tuple[int, ...], call: Call) -> Any:
        made = self.comms.get((device, members))
        if made is None:
            self.watch.check(call)                # the other ranks will not take part
            made = self.comms[device, members] = self._meet(device, members, call)
            watchdog.add(self.watch)
        return made

    def _meet(self, device: int, members: tuple[int, ...], call: Call) -> Any:
        """All members come here; the first tells the others through the store how they find it."""
        me, key = members.index(self.rank), "root/" + "-".join(map(str, members))
        if me == 0:
            self.store.set(key, self.hccl.root_info(device))
        what = f"no communicator on npu:{device} for {call}"
        self.watch.peers.wait_for(self.store, key, list(members), self.timeout, what)
        try:
            return self.hccl.Communicator(device, len(members), me, self.store.get(key))
        except self.hccl.HcclError as error:
            gone = self.watch.peers.dead(members)
            raise DistBackendError(f"{what}: {gone + ': ' if gone else ''}{error}") from error

    def side(self, device: int) -> Any:
        stream = self.sides.get(device)
        if stream is None:
            stream = self.sides[device] = torch.npu.Stream(device)
        return stream

    # ---- launching ----
    def _launch(self, call: Call, start: Callable[..., Any], keep: list[Tensor], after: After, result: list[Tensor],
                async_op: bool) -> Work:
        device = keep[0].device.index if keep else self._own_device()
        comm = self.comm(device, self.everybody, call)
        return self._queue(call, device, [(comm, start)], keep, after, result, async_op, not keep)

    def _own_device(self) -> int:
        bound = self.group.bound_device_id
        return torch.npu.current_device() if bound is None else bound.index

    def _queue(self, call: Call, device: int, starts: list[tuple[Any, Callable[..., Any]]], keep: list[Tensor], after: After,
               result: list[Tensor], async_op: bool, host_waits: bool = False) -> Work:
        self.watch.check(call)
        self.watch.last = call
        handle = self.hccl.current_stream(device)
        if async_op:
            side = self.side(device)
            self.hccl.order(device, handle, side.npu_stream)
            handle = side.npu_stream
            for tensor in keep:
                tensor.record_stream(side)
        else:
            side = self.used.get((device, handle))
            if side is None:
                side = self.used[device, handle] = torch.npu.current_stream(device)
        try:
            for comm, start in starts:
                comm.follow(handle)
                start(comm, handle)
        except self.hccl.HcclError as error:
            raise DistBackendError(f"{call}: {error}") from error
        if after is not None:
            with torch.npu.stream(side):
                after()
        return HcclWork(self, call, side, result, host_waits or self.blocking)

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
        """HCCL has no gather: every rank sends to the root only."""
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
    def _pair(self, device: int, peer: int, call: Call) -> tuple[Any, int]:
        """(the communicator of two ranks, the other's rank in it)."""
        members = (min(self.rank, peer), max(self.rank, peer))
        return self.comm(device, members, call), members.index(peer)

    def send(self, data: Tensor, to: int, tag: int, async_op: bool) -> Work:
        call, dense = self.call("send", data), self._dense(data)
        comm, peer = self._pair(data.device.index, to, call)
        start = lambda comm, stream: comm.send(dense.data_ptr(), dense.nbytes, peer, stream)
        return self._queue(call, data.device.index, [(comm, start)], [dense], None, [data], async_op)

    def recv(self, data: Tensor, source: int | None, tag: int, async_op: bool) -> Work:
        if source is None:
            raise RuntimeError("HCCL cannot receive from any rank: say which with src")
        call, dense = self.call("recv", data), self._dense(data)
        comm, peer = self._pair(data.device.index, source, call)
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
            starts.append((self.comm(device, key, call), lambda comm, stream, part=pairs[key]: comm.batch(part, stream)))
        backs = [back for (sends, tensor, _), data in zip(items, dense, strict=True)
                 if not sends and (back := self._put_back_plain(tensor, data))]
        after = (lambda: [back() for back in backs]) if backs else None
        keep = [*dense, *(tensor for _, tensor, _ in items)]
        return self._queue(call, device, starts, keep, after, [t for _, t, _ in items], True)

    def abort(self) -> None:
        """Destroys the communicators without waiting for what is queued: streams go on, and every later call raises."""
        self.watch.failure = self.watch.failure or DistBackendError(
            f"rank {self.rank} has aborted group {self.group.group_name}; the latest collective was {self.watch.last}")
        self._end()

    def close(self) -> None:
        for device in {comm.device_id for comm in self.comms.values()}:
            if self.watch.failure is None:
                torch.npu.synchronize(device)
        self._end()

    def _end(self) -> None:
        with self.watch.lock:                     # the watchdog may be asking them
            for comm in self.comms.values():
                comm.destroy()
            self.comms.clear()
            self.watch.marks.clear()
