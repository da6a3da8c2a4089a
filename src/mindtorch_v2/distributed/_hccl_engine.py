"""The engine of npu tensors (backend hccl): HCCL's collectives on streams."""
from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed._engine import After, Engine, Tensor, refuse_sparse
from mindtorch_v2.distributed._errors import DistBackendError
from mindtorch_v2.distributed._hccl_watch import WatchedQueue, hccl_kind, watchdog
from mindtorch_v2.distributed._stores import PrefixStore, Store
from mindtorch_v2.distributed._work import RedOpType, Work


class HcclWork(torch.npu._hccl.CollectiveWork, Work):
    """What was queued on a stream. To wait is the work of streams; the host waits only for a barrier or with a timeout."""

    __slots__ = ()
    queue: WatchedQueue

    def wait_on_host(self, timeout: timedelta | None) -> None:
        """What wait() does besides, where the host is to wait."""
        try:
            if timeout is None:
                torch.npu._hccl.wait_for(self.record)
                self.queue.left()                 # drops what is done while the device can still be queried
                return
            seconds = timeout.total_seconds()
            deadline = time.monotonic() + seconds
            while not self.is_completed():
                if time.monotonic() > deadline:
                    raise DistBackendError(f"Timed out after {seconds:g} s: {self.record}")
                time.sleep(0.001)
            self.queue.check(self.record)
        except torch.AcceleratorError as error:   # of the device: the watchdog knows which rank it was
            self.queue.explain()
            self.queue.check(self.record)
            raise DistBackendError(f"{self.record}: {error}") from error

    def is_completed(self) -> bool:
        return self.queue.failure is not None or torch.npu._hccl.has_passed(self.record)

    def exception(self) -> BaseException | None:
        return self.queue.failure

    def get_future(self) -> Any:
        """Done at once, as torch's is: what it holds is ready for the stream that waits for the work."""
        self.wait()
        future = torch.futures.Future()
        future.set_result(self.result())
        return future


class HcclEngine(Engine):
    """One group; a communicator for each device that it is used with, and for each pair that sends and receives.

    Collectives of dense tensors are queued natively, in one call; what has to be prepared first comes by Engine's methods to
    _launch, and so to the same queue."""

    name = "hccl"

    def __init__(self, group: Any, store: Store, timeout: timedelta) -> None:
        self.queue = WatchedQueue(group, timeout, HcclWork)
        super().__init__(group)
        self.hccl, self.store, self.timeout = torch.npu._hccl, PrefixStore("hccl", store), timeout
        self.hccl.set_timeouts(timeout.total_seconds())
        self.everybody = tuple(range(self.size))

    @property
    def sequence(self) -> int:
        return self.queue.sequence

    @sequence.setter
    def sequence(self, value: int) -> None:
        self.queue.sequence = value

    @property
    def comms(self) -> dict[tuple[int, tuple[int, ...]], Any]:
        return self.queue.comms

    def call(self, name: str, tensor: Tensor | None) -> Any:
        refuse_sparse(name, tensor)
        return self.queue.note(name) if tensor is None else self.queue.note(name, tensor)

    # ---- communicators ----
    def comm(self, device: int, members: tuple[int, ...], call: Any) -> Any:
        made = self.comms.get((device, members))
        if made is None:
            self.queue.check(call)                # the other ranks will not take part
            made = self.comms[device, members] = self._meet(device, members, call)
            if members == self.everybody:
                self.queue.set_communicator(made)
            watchdog.add(self.queue)
        return made

    def _meet(self, device: int, members: tuple[int, ...], call: Any) -> Any:
        """All members come here; the first tells the others through the store how they find it."""
        me, key = members.index(self.rank), "root/" + "-".join(map(str, members))
        if me == 0:
            self.store.set(key, self.hccl.root_info(device))
        what = f"no communicator on npu:{device} for {call}"
        self.queue.peers.wait_for(self.store, key, list(members), self.timeout, what)
        try:
            with self.queue.peers.or_exit(list(members), self.timeout, what, returns=True):   # HCCL's is at least 120 s
                return self.hccl.Communicator(device, len(members), me, self.store.get(key))
        except self.hccl.HcclError as error:
            gone = self.queue.peers.dead(members)
            raise DistBackendError(f"{what}: {gone + ': ' if gone else ''}{error}") from error

    # ---- launching ----
    def _launch(self, call: Any, start: Any, keep: list[Tensor], after: After, result: list[Tensor], async_op: bool) -> Work:
        device = keep[0].device.index if keep else self._own_device()
        comm = self.comm(device, self.everybody, call)
        return self._queue(call, device, [(comm, start)], keep, after, result, async_op, not keep)

    def _own_device(self) -> int:
        bound = self.group.bound_device_id
        return torch.npu.current_device() if bound is None else bound.index

    def _queue(self, call: Any, device: int, starts: list[tuple[Any, Any]], keep: list[Tensor], after: After,
               result: list[Tensor], async_op: bool, host_waits: bool = False) -> Work:
        calls = [(comm, start.function, start.arguments) for comm, start in starts]
        return self.queue.launch(call, device, calls, keep, after, result, async_op, host_waits)

    # ---- collectives whose dense tensors need no preparing; the queue gives None for all others ----
    def all_reduce(self, tensor: Tensor, op: Any, async_op: bool) -> Work:
        return self.queue.all_reduce(tensor, op, async_op) or super().all_reduce(tensor, op, async_op)

    def broadcast(self, tensor: Tensor, root: int, async_op: bool) -> Work:
        return self.queue.broadcast(tensor, root, async_op) or super().broadcast(tensor, root, async_op)

    def all_gather_into_tensor(self, out: Tensor, tensor: Tensor, async_op: bool) -> Work:
        made = self.queue.all_gather_into_tensor(out, tensor, async_op)
        return made or super().all_gather_into_tensor(out, tensor, async_op)

    def reduce_scatter_tensor(self, out: Tensor, tensor: Tensor, op: Any, async_op: bool) -> Work:
        made = self.queue.reduce_scatter_tensor(out, tensor, op, async_op)
        return made or super().reduce_scatter_tensor(out, tensor, op, async_op)

    # ---- primitives ----
    def _check_op(self, op: RedOpType, dtype: Any) -> None:
        if op not in (RedOpType.AVG, RedOpType.PREMUL_SUM):
            hccl_kind(op, dtype == torch.bool)

    def _typed(self, data: Tensor, op: RedOpType) -> tuple[int, int]:
        kind = hccl_kind(op, data.dtype == torch.bool)
        dtype = self.hccl.BYTE if data.dtype == torch.bool else self.hccl.DTYPES.get(str(data.dtype).rpartition(".")[2])
        if dtype is None:
            raise TypeError(f"HCCL does not reduce {data.dtype}")
        return dtype, kind

    def _all_reduce(self, data: Tensor, op: RedOpType) -> Any:
        return self.hccl.Start("HcclAllReduce", (data.data_ptr(), data.data_ptr(), data.numel(), *self._typed(data, op)))

    def _reduce(self, data: Tensor, root: int, op: RedOpType) -> Any:
        return self.hccl.Start("HcclReduce", (data.data_ptr(), data.data_ptr(), data.numel(), *self._typed(data, op), root))

    def _reduce_scatter(self, out: Tensor, data: Tensor, op: RedOpType) -> Any:
        return self.hccl.Start("HcclReduceScatter", (data.data_ptr(), out.data_ptr(), out.numel(), *self._typed(data, op)))

    def _broadcast(self, data: Tensor, root: int) -> Any:
        return self.hccl.Start("HcclBroadcast", (data.data_ptr(), data.nbytes, self.hccl.BYTE, root))

    def _all_gather(self, out: Tensor, data: Tensor) -> Any:
        return self.hccl.Start("HcclAllGather", (data.data_ptr(), out.data_ptr(), data.nbytes, self.hccl.BYTE))

    def _gather(self, out: Tensor | None, data: Tensor, root: int) -> Any:
        """HCCL has no gather: every rank sends to the root only."""
        sent = [data.nbytes if rank == root else 0 for rank in range(self.size)]
        received = [data.nbytes if self.rank == root else 0] * self.size
        to = data.data_ptr() if out is None else out.data_ptr()   # not written to where nothing is received
        return self.hccl.all_to_all(data.data_ptr(), sent, to, received)

    def _scatter(self, out: Tensor, data: Tensor | None, root: int) -> Any:
        source = out if data is None else data
        return self.hccl.Start("HcclScatter", (source.data_ptr(), out.data_ptr(), out.nbytes, self.hccl.BYTE, root))

    def _all_to_all(self, out: Tensor, data: Tensor, received: list[int], sent: list[int]) -> Any:
        size = data.element_size()
        return self.hccl.all_to_all(data.data_ptr(), [size * n for n in sent], out.data_ptr(), [size * n for n in received])

    def _barrier(self) -> Any:
        return self.hccl.Start("HcclBarrier", ())

    # ---- point to point ----
    def _pair(self, device: int, peer: int, call: Any) -> tuple[Any, int]:
        """(the communicator of two ranks, the other's rank in it)."""
        members = (min(self.rank, peer), max(self.rank, peer))
        return self.comm(device, members, call), members.index(peer)

    def send(self, data: Tensor, to: int, tag: int, async_op: bool) -> Work:
        call, dense = self.call("send", data), self._dense(data)
        comm, peer = self._pair(data.device.index, to, call)
        start = self.hccl.Start("HcclSend", (dense.data_ptr(), dense.nbytes, self.hccl.BYTE, peer))
        return self._queue(call, data.device.index, [(comm, start)], [dense], None, [data], async_op)

    def recv(self, data: Tensor, source: int | None, tag: int, async_op: bool) -> Work:
        if source is None:
            raise RuntimeError("HCCL cannot receive from any rank: say which with src")
        call, dense = self.call("recv", data), self._dense(data)
        comm, peer = self._pair(data.device.index, source, call)
        start = self.hccl.Start("HcclRecv", (dense.data_ptr(), dense.nbytes, self.hccl.BYTE, peer))
        after = self._put_back_plain(data, dense)
        return self._queue(call, data.device.index, [(comm, start)], [data, dense], after, [data], async_op)

    def batch(self, items: list[tuple[bool, Tensor, int]]) -> Work:
        """Sends (True) and receives with peers, all at once. Pairs come in one order for all ranks, so that none waits in a
        circle."""
        device, call = items[0][1].device.index, self.call("batch_isend_irecv", items[0][1])
        dense = [self._dense(tensor) for _, tensor, _ in items]
        pairs: dict[tuple[int, int], list[tuple[bool, int, int, int]]] = {}
        for (sends, _, peer), data in zip(items, dense, strict=True):
            key = (min(self.rank, peer), max(self.rank, peer))
            pairs.setdefault(key, []).append((sends, data.data_ptr(), data.nbytes, key.index(peer)))
        starts = [(self.comm(device, key, call), self.hccl.batch(pairs[key])) for key in sorted(pairs)]
        backs = [back for (sends, tensor, _), data in zip(items, dense, strict=True)
                 if not sends and (back := self._put_back_plain(tensor, data))]
        after = (lambda: [back() for back in backs]) if backs else None
        keep = [*dense, *(tensor for _, tensor, _ in items)]
        return self._queue(call, device, starts, keep, after, [t for _, t, _ in items], True)

    def abort(self) -> None:
        """Destroys the communicators without waiting for what is queued: streams go on, and every later call raises."""
        self.queue.failure = self.queue.failure or DistBackendError(
            f"rank {self.rank} has aborted group {self.group.group_name}; the latest collective was {self.queue.last}")
        self._end()

    def close(self) -> None:
        for device in {comm.device_id for comm in self.comms.values()}:
            if self.queue.failure is None:
                torch.npu.synchronize(device)
        self._end()

    def _end(self) -> None:
        with self.queue.lock:                     # the watchdog may be asking them
            for comm in self.comms.values():
                comm.destroy()
            self.comms.clear()
            self.queue.forget()
