"""Pinned memory of the host, which devices copy to and from while the host goes on; cached, because making it is slow."""
from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any

from mindtorch_v2 import _config
from mindtorch_v2._backends.npu import alloc_conf, errors, runtime, streams

_MB = 1 << 20
_KINDS = ("current", "peak", "allocated", "freed")
_COUNTERS = ("allocations", "allocated_bytes", "active_requests", "active_bytes")
_TIMES = ("host_alloc_time", "host_free_time")    # microseconds in CANN
_MOMENTS = ("total", "max", "min", "count", "avg")
_DEVICE_TO_DEVICE = 3                             # ACL_MEMCPY_DEVICE_TO_DEVICE


class _Block:
    """A piece of pinned memory, and the streams that have copies of it queued."""

    def __init__(self, address: int, size: int) -> None:
        self.address, self.size = address, size
        self.uses: dict[tuple[int, int], None] = {}   # (device, stream), each once
        self.events: list[tuple[int, int]] = []       # (device, event) that the block waits for


class Lease:
    """Owns a piece of pinned memory for a storage. It may go wherever Python drops an object, in the midst of the
    allocator's own work too, so it only leaves a note there."""

    def __init__(self, allocator: PinnedAllocator, block: _Block) -> None:
        self._returned, self._block = allocator._returned, block
        self.address = block.address

    def __del__(self) -> None:
        self._returned.append(self._block)


class PinnedAllocator:
    """Blocks of a power of two bytes. A freed one is used again when the copies recorded for it are done."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._conf: alloc_conf.AllocConf | None = None
        self._live: dict[int, _Block] = {}
        self._free: dict[int, list[_Block]] = {}      # by size
        self._waiting: deque[_Block] = deque()
        self._returned: deque[_Block] = deque()       # by storages that are gone; see Lease
        self._stats = {f"{name}.{kind}": 0 for name in _COUNTERS for kind in _KINDS}
        self._stats |= {f"{name}.{kind}": 0 for name in _TIMES for kind in _MOMENTS}

    def malloc(self, nbytes: int) -> int:
        """The address of pinned memory, on the current device's host."""
        with self._lock:
            size = self._rounded(nbytes)
            self._take_back()
            self._process_events()
            cached = self._free.get(size)
            block = cached.pop() if cached else self._new(size)
            self._live[block.address] = block
            self._change("active_requests", 1)
            self._change("active_bytes", size)
            return block.address

    def record(self, address: int, device_id: int, stream: int) -> bool:
        """A copy on a stream uses the memory at an address of malloc(); False: it is no such address."""
        with self._lock:
            block = self._live.get(address)
            if block is not None:
                block.uses[device_id, stream] = None
            return block is not None

    def lease(self, nbytes: int) -> Lease:
        """Memory that is freed when the last holder of the lease is gone."""
        with self._lock:
            return Lease(self, self._live[self.malloc(nbytes)])

    def free(self, address: int) -> None:
        """Gives memory back; it waits for the copies that were recorded."""
        with self._lock:
            self._release(self._live.pop(address))
            self._take_back()
            self._process_events()

    def close(self, device_id: int) -> None:
        """A device is about to go, its work done: frees what nothing uses. Live memory stays: tensors may read it."""
        with self._lock:
            self._take_back()
            for block in self._waiting:
                block.events = [(device, event) for device, event in block.events if device != device_id]
            for block in self._live.values():
                block.uses = {use: None for use in block.uses if use[0] != device_id}
            self.empty_cache()
            if not runtime.in_use_beside(device_id):
                self._live.clear()

    def empty_cache(self) -> None:
        """Frees what nothing uses."""
        with self._lock:
            self._take_back()
            self._process_events()
            cached, self._free = self._free, {}
            for block in sum(cached.values(), []):
                self._drop(block)

    def stats(self) -> dict[str, int]:
        with self._lock:
            self._take_back()
            self._process_events()
            made = dict(self._stats)
        for name in _TIMES:
            made[f"{name}.avg"] = made[f"{name}.total"] // max(made[f"{name}.count"], 1)
        return made | {"num_host_alloc": made["allocations.allocated"], "num_host_free": made["allocations.freed"]}

    def reset_peak(self) -> None:
        with self._lock:
            for name in _COUNTERS:
                self._stats[f"{name}.peak"] = self._stats[f"{name}.current"]
            for name in _TIMES:
                self._stats[f"{name}.max"] = self._stats[f"{name}.min"] = 0

    def reset_accumulated(self) -> None:
        with self._lock:
            for name in _COUNTERS:
                self._stats[f"{name}.allocated"] = self._stats[f"{name}.freed"] = 0
            for name in _TIMES:
                self._stats[f"{name}.total"] = self._stats[f"{name}.count"] = 0

    def _rounded(self, nbytes: int) -> int:
        if self._conf is None:
            self._conf = alloc_conf.parse(_config.npu_alloc_conf())
        threshold = self._conf.pinned_max_round_threshold_mb * _MB
        if threshold and nbytes > threshold:
            return -(-nbytes // 4096) * 4096
        return max(1 << (nbytes - 1).bit_length(), 512)

    def _new(self, size: int) -> _Block:
        runtime.get_runtime(runtime.current_device())
        address = self._timed("host_alloc_time", "aclrtMallocHost", lambda: runtime.acl.rt.malloc_host(size))
        self._change("allocations", 1)
        self._change("allocated_bytes", size)
        return _Block(address, size)

    def _drop(self, block: _Block) -> None:
        runtime.bind_some()
        self._timed("host_free_time", "aclrtFreeHost", lambda: (0, runtime.acl.rt.free_host(block.address)))
        self._change("allocations", -1)
        self._change("allocated_bytes", -block.size)

    def _timed(self, name: str, what: str, call: Any) -> int:
        start = time.perf_counter_ns()
        value, code = call()
        spent, stats = (time.perf_counter_ns() - start) // 1000, self._stats
        errors.check(code, what)
        first = not stats[f"{name}.count"]
        stats[f"{name}.total"] += spent
        stats[f"{name}.count"] += 1
        stats[f"{name}.max"] = max(stats[f"{name}.max"], spent)
        stats[f"{name}.min"] = spent if first else min(stats[f"{name}.min"], spent)
        return value

    def _release(self, block: _Block) -> None:
        try:
            for device_id, stream in list(block.uses):
                self._follow(block, device_id, stream)
                del block.uses[device_id, stream]
        except BaseException:                         # copies may be queued without an event: it is tried again
            self._live[block.address] = block
            self._returned.append(block)
            raise
        if block.events:
            self._waiting.append(block)
        else:                                         # no copy to wait for, nor for those of blocks freed before it
            self._keep(block)

    def _follow(self, block: _Block, device_id: int, stream: int) -> None:
        """Has a block wait for the copies that a stream has queued."""
        try:
            block.events.append((device_id, streams.record_new_event(device_id, stream)))
        except errors.AcceleratorError:               # no more events: the stream itself is waited for
            streams.wait(device_id, stream, "copies of pinned memory")

    def _take_back(self) -> None:
        for _ in range(len(self._returned)):          # not those that come back meanwhile
            block = self._returned.popleft()
            if self._live.get(block.address) is block:    # else the runtime it was of has ended
                self._release(self._live.pop(block.address))

    def _process_events(self) -> None:
        """Makes freed blocks usable whose copies are done, oldest first."""
        while self._waiting:
            block = self._waiting[0]
            while block.events:
                device_id, event = block.events[-1]
                owner = runtime.get_runtime(device_id)
                status, code = runtime.acl.rt.query_event_status(event)
                errors.check(code, "aclrtQueryEventStatus")
                if not status:                    # 1: complete
                    return
                block.events.pop()
                streams.give_event(owner, owner.session, streams.EVENT_SYNC, event)
            self._keep(self._waiting.popleft())

    def _keep(self, block: _Block) -> None:
        """Nothing uses a block any more: it goes to the cache, unless it is too large for that."""
        self._change("active_requests", -1)
        self._change("active_bytes", -block.size)
        limit = self._conf.pinned_max_cached_size_mb * _MB if self._conf else 0
        if limit and block.size > limit:
            self._drop(block)
        else:
            self._free.setdefault(block.size, []).append(block)

    def _change(self, name: str, amount: int) -> None:
        stats = self._stats
        stats[f"{name}.current"] += amount
        stats[f"{name}.{'allocated' if amount > 0 else 'freed'}"] += abs(amount)
        stats[f"{name}.peak"] = max(stats[f"{name}.peak"], stats[f"{name}.current"])


host = PinnedAllocator()


def take(nbytes: int) -> tuple[int, Lease] | None:
    """Pinned memory for a storage, and its owner; None where there is no npu."""
    try:
        available = runtime.device_count() > 0
    except errors.CannNotFoundError:
        available = False
    if not available:
        return None
    lease = host.lease(nbytes)
    return lease.address, lease


def move(device_id: int, target: int, source: int, nbytes: int) -> None:
    """Queues a copy within a device, by address."""
    stream = streams.current_stream_handle(device_id)
    code = runtime.acl.rt.memcpy_async(target, nbytes, source, nbytes, _DEVICE_TO_DEVICE, stream)
    errors.check(code, "aclrtMemcpyAsync: copy within an npu")


runtime.on_close(lambda device_id: host.close(device_id))   # looked up then: tests replace it
