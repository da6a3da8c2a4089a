"""The caching allocator of an npu: where memory comes from, when it is freed, and the out of memory error.
Not here: the books of pools, blocks and statistics, which are native (_C/caching.h), and torch.npu's own names."""
from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, MutableMapping
from typing import Any, NamedTuple, NoReturn

from mindtorch_v2 import _C, _config
from mindtorch_v2._backends.npu import alloc_conf, errors, out_of_memory, runtime, streams
from mindtorch_v2._backends.npu.memory_history import MemoryHistory, PoolId, write_snapshot
from mindtorch_v2._backends.npu.memory_stats import Statistics, size_text
from mindtorch_v2._backends.npu.pluggable import PluggableAllocator
from mindtorch_v2._backends.npu.virtual_memory import VirtualMemory

_MB = 1 << 20
_HBM = 1                                          # ACL_HBM_MEM
_HUGE_FIRST, _HUGE_1G = 0, 6                      # ACL_MEM_MALLOC_HUGE_FIRST, ACL_MEM_MALLOC_HUGE1G_ONLY
_MAPPED, _RESERVED, _NOTHING = 1, 2, 3            # kinds of a plan or a chunk; 0 is a segment
_NO_LIMIT = (1 << 64) - 1
_LOOK_AGAIN = (0, 0)
COMMON_POOL: PoolId = (0, 0)


class _Pool(NamedTuple):
    """What a private pool was made with."""
    source: PluggableAllocator | None
    use_on_oom: bool


def _try(failures: list[Exception], act: Callable[..., Any], *args: Any) -> None:
    """One of several steps that all have to be tried."""
    try:
        act(*args)
    except Exception as failure:
        failures.append(failure)


class NpuAllocator:
    """The memory of one device. Making one touches no device: the first malloc does.

    The native heap serves malloc and free from its cache and calls back for the rest: _provide, _record_events,
    _process_events, _release_uncached, _traced.
    """

    def __init__(self, device_id: int = 0) -> None:
        self.device_id = device_id
        self.history = MemoryHistory()
        self._heap = _C.NpuHeap(self, device_id)
        self._stats: MutableMapping[str, int] = Statistics(self._heap)
        self._lock = threading.RLock()            # of everything below; re-entered when a collection frees tensors
        self._conf: alloc_conf.AllocConf | None = None
        self._fraction: float | None = None       # None: no limit was set
        self._virtual = VirtualMemory(device_id)
        self._pools: dict[PoolId, _Pool] = {}
        self._waiting: dict[int, deque[tuple[int, int]]] = {}   # by stream: (event, block), oldest first
        self._captures = 0                        # graphs being captured: events can then not be recorded or queried
        self._unrecorded: list[tuple[int, list[int]]] = []   # freed blocks, and the streams they are to wait for
        self._unfreed: list[int] = []             # what aclrtFree refused once
        self._closed = False

    # ---- the front ------------------------------------------------------------------------------------------------
    def malloc(self, size: int, stream: Any = None) -> int:
        """Memory for work on a stream (None: the thread's current one); 0 for a size of 0."""
        if size < 0:
            raise RuntimeError(f"invalid size of an allocation: {size}")
        return self._heap.malloc(size, self._handle(stream)) if size else 0

    def free(self, ptr: int, stream: Any = None) -> None:
        """Gives memory back to the stream that it was allocated on. With another stream, once that one has passed."""
        if ptr and stream is not None:
            self._heap.record(ptr, self._handle(stream))
        if ptr:
            self._heap.free(ptr)

    def record_stream(self, ptr: int, stream: Any) -> None:
        """Another stream uses an allocation: its memory is not reused before the work queued there is done."""
        self._heap.record(ptr, self._handle(stream))

    def empty_cache(self, pool: PoolId | None = None) -> None:
        """Gives the cached memory back to the device; of one private pool, or of all that are not in use. Not while a graph
        is captured: that forbids the wait for the work that still uses the memory."""
        with self._lock:
            if not self._captures:
                self._release_cached(pool)

    @property
    def expandable(self) -> bool:
        """Whether segments grow in place (expandable_segments)."""
        return self._heap.expandable

    def memory_stats(self) -> dict[str, int]:
        """All counters, by torch's flat names."""
        return dict(self._stats)

    def reset_peak_memory_stats(self) -> None:
        self._heap.reset_peak()

    def reset_accumulated_memory_stats(self) -> None:
        self._heap.reset_accumulated()

    def snapshot(self, pool: PoolId | None = None) -> dict[str, Any]:
        """Segments, blocks and the recorded history in torch's format; of one private pool, or of all memory."""
        segments = [s for s in self._heap.segments() if pool is None or s["segment_pool_id"] == tuple(pool)]
        traces: list[list[dict[str, Any]]] = [[] for _ in range(self.device_id)] + [self.history.trace()]
        return {"segments": self.history.annotate(segments), "device_traces": traces}

    def record_history(self, enabled: str | None, context: str | None, max_entries: int, clear: bool,
                       skipped: frozenset[str]) -> None:
        """Switches the recording of allocations on or off."""
        self.history.start(enabled, context, max_entries, clear, skipped)
        self._heap.tracing = enabled is not None

    def _handle(self, stream: Any) -> int:
        if stream is None:
            return _C._npu_current_stream(self.device_id)
        return int(getattr(stream, "npu_stream", stream))

    # ---- the limit of this process ----------------------------------------------------------------------------------
    @property
    def memory_fraction(self) -> float:
        """The share of the device's memory that this process may take."""
        return 1.0 if self._fraction is None else self._fraction

    @memory_fraction.setter
    def memory_fraction(self, fraction: float) -> None:
        self._fraction = fraction

    def _mem_get_info(self) -> tuple[int, int]:
        """(free, total) bytes of the device."""
        runtime.get_runtime(self.device_id)
        free, total, code = runtime.acl.rt.get_mem_info(_HBM)
        errors.check(code, "aclrtGetMemInfo")
        return free, total

    def _enforce_memory_fraction(self, requested: int) -> None:
        """Raises when requested more bytes would exceed the share of the device that this process may have."""
        if self._fraction is None:
            return
        allowed = self._fraction * self._mem_get_info()[1]
        if self._stats["reserved_bytes.all.current"] + requested > allowed:
            raise _C.OutOfMemoryError(self._out_of_memory_text(requested))

    def _out_of_memory_text(self, requested: int) -> str:
        free, total = self._mem_get_info()
        limit = "" if self._fraction is None else f"{size_text(int(self._fraction * total))} allowed; "
        stats = self._stats
        # torch_npu's words up to the full stop; its advice, fragmentation, is given only where that is the reason.
        return (f"NPU out of memory. Tried to allocate {size_text(requested)} (NPU {self.device_id}; "
                f"{size_text(total)} total capacity; {size_text(stats['allocated_bytes.all.current'])} already "
                f"allocated; {size_text(stats['active_bytes.all.current'])} current active; {size_text(free)} free; "
                f"{limit}{size_text(stats['reserved_bytes.all.current'])} reserved in total by PyTorch). "
                + self._why_out_of_memory(requested, free, total))

    def _why_out_of_memory(self, requested: int, free: int, total: int) -> str:
        largest = max((block["size"] for segment in self._heap.segments() for block in segment["blocks"]
                       if block["state"] == "inactive"), default=0)
        return out_of_memory.reason(self.device_id, out_of_memory.Books(
            requested, free, total, self._stats["reserved_bytes.all.current"], self._stats["active_bytes.all.current"], largest,
            self._fraction))

    # ---- more memory ------------------------------------------------------------------------------------------------
    def _provide(self, nbytes: int, size: int, stream: int) -> tuple[int, int]:
        """Memory for a block that nothing cached can serve: (address, bytes) of a new segment, (address, 0) of a block
        that is taken already, or (0, 0): the heap is to look again. Raises when there is none."""
        with self._lock:
            if self._conf is None:
                self._configure()
                return _LOOK_AGAIN
            self._process_events()
            if not self._heap.uncached and self._heap.fits(size, stream):
                return _LOOK_AGAIN
            self._collect_garbage()
            found = self._grow(size, stream)
            if found is None and not self._captures:   # a capture forbids the wait that giving memory back begins with
                found = self._grow_after_release(size, stream)
            found = found or self._take_of_pools(nbytes, stream)
            if found is None:
                self._refuse(self._heap.segment_size(size), stream)
            return found

    def _grow_after_release(self, size: int, stream: int) -> tuple[int, int] | None:
        found = self._grow(size, stream) if self._release_oversize(size, stream) else None
        if found is None:
            self._release_cached()
            self._stats["num_alloc_retries"] += 1
            found = self._grow(size, stream)
        return found

    def _refuse(self, wanted: int, stream: int) -> NoReturn:
        self._stats["num_ooms"] += 1
        self._traced("oom", self._mem_get_info()[0], wanted, stream, self._heap.routed(stream))
        text = self._out_of_memory_text(wanted)
        recorded, folder = _config.npu_oom_snapshot()
        if recorded:
            text += "\n" + write_snapshot(snapshot_of_all(), folder)
        raise _C.OutOfMemoryError(text)

    def _configure(self, text: str | None = None) -> None:
        conf = alloc_conf.parse(_config.npu_alloc_conf() if text is None else text)
        large = (conf.segment_size_mb or conf.large_segment_size_mb) * _MB
        aligned = conf.base_addr_aligned_kb * 1024 if conf.expandable_segments else 0
        self._heap.configure(conf.max_split_size_mb * _MB or _NO_LIMIT, conf.max_non_split_rounding_mb * _MB, large,
                             max(aligned, 512), conf.expandable_segments, conf.roundup_power2_divisions)
        self._heap.lazy_reclaim = conf.multi_stream_lazy_reclaim
        self._heap.uncached = _source is not None or not _config.npu_memory_caching()
        self._virtual.pages_1g = conf.page_size == "1g"
        if self._fraction is None and conf.per_process_memory_fraction < 1:
            self._fraction = conf.per_process_memory_fraction
        recorded, _ = _config.npu_oom_snapshot()
        if recorded and self._conf is None and not self._heap.tracing:
            self.record_history(recorded, "all", sys.maxsize, False, frozenset())
        self._conf = conf

    def _grow(self, size: int, stream: int) -> tuple[int, int] | None:
        """More memory from the device; None: it has none, or not for this process."""
        pool = self._heap.routed(stream)
        source = self._source_of(pool)
        if self._heap.expandable and source is None and not self._heap.uncached:
            found = self._expand(size, stream)
            if self._heap.expandable:
                return _LOOK_AGAIN if found else None
        nbytes = size if self._heap.uncached else self._heap.segment_size(size)
        if not self._may_ask_for(nbytes):
            return None
        address = source.malloc(nbytes, self.device_id, stream) if source else self._raw_malloc(nbytes)
        if not address:
            return None
        self._traced("segment_alloc", address, nbytes, stream, pool)
        return address, nbytes

    def _source_of(self, pool: PoolId) -> PluggableAllocator | None:
        return self._pools[pool].source if pool in self._pools else _source

    def _may_ask_for(self, nbytes: int) -> bool:
        try:
            self._enforce_memory_fraction(nbytes)
        except _C.OutOfMemoryError:               # giving cached memory back may help; if not, _refuse says the same
            return False
        if self._conf is not None and self._conf.throw_on_npumalloc_oom and nbytes > self._mem_get_info()[0]:
            self._stats["num_oom_rejections"] += 1
            return False
        return True

    def _raw_malloc(self, nbytes: int) -> int:
        """Memory straight from the device; 0: it has no more."""
        runtime.get_runtime(self.device_id)
        rt = runtime.acl.rt
        # The padding that aclrtMalloc adds is in our own sizes already.
        ask, name = (rt.malloc_align32, "Align32") if hasattr(rt, "malloc_align32") else (rt.malloc, "")
        address, code = ask(nbytes, _HUGE_1G if self._conf is not None and self._conf.page_size else _HUGE_FIRST)
        if code in errors.OUT_OF_MEMORY:
            return 0
        errors.check(code, f"aclrtMalloc{name} of {nbytes} bytes")
        return address

    def _raw_free(self, address: int) -> None:
        code = runtime.acl.rt.free(address)
        if code:
            self._unfreed.append(address)         # it is in no books any more
            errors.check(code, "aclrtFree")

    def _free_again(self) -> None:
        """What aclrtFree refused is tried once more; a second refusal is the same news."""
        again, self._unfreed = self._unfreed, []
        for address in again:
            runtime.get_runtime(self.device_id)
            runtime.acl.rt.free(address)

    def _expand(self, size: int, stream: int) -> bool:
        """Maps memory into an expandable segment until a block of this size fits."""
        runtime.get_runtime(self.device_id)
        piece = self._heap.granule(size)
        while True:
            kind, address, missing = self._heap.plan(size, stream)
            if kind == _NOTHING:
                return True
            if kind == _MAPPED:
                if not self._may_ask_for(missing) or not self._virtual.map(address, missing, piece):
                    return False
                self._heap.map(address, missing, size, stream)
                self._traced("segment_map", address, missing, stream, self._heap.routed(stream))
                continue
            room = self._mem_get_info()[1] * 9 // 8 // piece * piece
            if size > room:
                return False
            address = self._virtual.reserve(room)
            if not address:
                self._heap.expandable = False
                return False
            self._heap.reserve(address, room, size, stream)

    def _take_of_pools(self, nbytes: int, stream: int) -> tuple[int, int] | None:
        """A block of a private pool that was made to help out."""
        for pool, made in self._pools.items():
            address = self._heap.take_of(pool, nbytes, stream) if made.use_on_oom else 0
            if address:
                return address, 0
        return None

    # ---- less memory ------------------------------------------------------------------------------------------------
    def _collect_garbage(self) -> None:
        """Above garbage_collection_threshold, frees large segments, least recently used first."""
        threshold = self._conf.garbage_collection_threshold if self._conf else 0.0
        if not threshold or self._captures:
            return
        limit = int(threshold * self.memory_fraction * self._mem_get_info()[1])
        excess = self._stats["reserved_bytes.all.current"] - limit
        if excess > 0:
            self._free_chunks(self._heap.release_aged(excess))

    def _release_oversize(self, size: int, stream: int) -> bool:
        enough, chunks = self._heap.release_oversize(size, stream)
        self._free_chunks(chunks)
        return enough

    def _release_cached(self, pool: PoolId | None = None) -> None:
        self._wait_for_events()
        self._free_chunks(self._heap.release_free(pool))
        self._pools = {pool: made for pool, made in self._pools.items() if self._heap.has_pool(pool)}

    def _release_uncached(self) -> None:
        """Without a cache a freed block goes back at once; during a capture, with the next one after it."""
        if not runtime.is_forked() and not self._captures:
            self._process_events()
            self._free_chunks(self._heap.release_free())

    def _free_chunks(self, chunks: list[tuple[int, int, int, int, PoolId]]) -> None:
        """Frees what the heap has released. aclrtFree does not wait for work in flight, so we do.

        A failure is raised at the end: no chunk is in the books any more, so each is freed now or never."""
        if self._closed:
            return
        failures: list[Exception] = []
        self._free_again()
        if any(self._source_of(pool) is None for *_, pool in chunks):
            _try(failures, self._synchronize)
        for chunk in chunks:
            _try(failures, self._free_chunk, *chunk)
        if failures:
            raise failures[0]

    def _free_chunk(self, kind: int, address: int, size: int, stream: int, pool: PoolId) -> None:
        source = self._source_of(pool)
        if kind == _MAPPED:
            self._virtual.unmap(address, size)
            self._traced("segment_unmap", address, size, stream, pool)
        elif kind == _RESERVED:
            self._virtual.release(address)
        else:
            if source is None:
                runtime.get_runtime(self.device_id)
                self._raw_free(address)
            else:
                source.free(address, size, self.device_id, stream)
            self._traced("segment_free", address, size, stream, pool)

    def _synchronize(self) -> None:
        runtime.get_runtime(self.device_id)
        errors.check(runtime.acl.rt.synchronize_device(), "aclrtSynchronizeDevice")
        self._stats["num_sync_all_streams"] += 1

    def close(self) -> None:
        """Gives everything back, live blocks too: the device is about to go. Blocks that are freed later stay books."""
        with self._lock:
            self._heap.detach()
            self._heap.tracing = False            # blocks that are freed later are in no trace
            segments = [] if self._closed else self._heap.segments()
            failures: list[Exception] = []
            if segments:
                _try(failures, self._synchronize)
            for segment in segments:
                if self._source_of(segment["segment_pool_id"]) is None and not segment["is_expandable"]:
                    _try(failures, self._raw_free, segment["address"])
            self._free_again()
            _try(failures, self._virtual.close)
            self._closed = True                   # whatever failed: blocks that go later must not start the device again
            if failures:
                raise failures[0]

    # ---- blocks that several streams use ----------------------------------------------------------------------------
    def _record_events(self, block: int, used: list[int]) -> None:
        """A freed block waits for the work that other streams have queued until now."""
        if runtime.is_forked():                   # the memory is the parent's, and so may be the lock
            return
        with self._lock:
            if self._closed or runtime.is_ending(self.device_id):
                for _ in used:
                    self._heap.event_done(block)
            elif self._captures:
                self._unrecorded.append((block, used))
            else:
                failures: list[Exception] = []
                for stream in used:
                    _try(failures, self._record_event, block, stream)
                if failures:
                    raise failures[0]

    def _record_event(self, block: int, stream: int) -> None:
        try:
            event = streams.record_new_event(self.device_id, stream)
        except RuntimeError:                      # no more events, or the stream is gone: then this raises
            try:
                streams.wait(self.device_id, stream, "a block that the stream used")
            except RuntimeError:                  # the stream may still use the block: tried again
                self._unrecorded.append((block, [stream]))
                raise
            self._heap.event_done(block)
        else:
            self._waiting.setdefault(stream, deque()).append((event, block))

    def _record_again(self) -> None:
        """The events that could not be recorded when their blocks were freed."""
        waiting, self._unrecorded = self._unrecorded, []
        failures: list[Exception] = []
        for block, used in waiting:
            _try(failures, self._record_events, block, used)
        if failures:
            raise failures[0]

    def _process_events(self) -> None:
        """Frees the blocks whose events are complete. Nothing waits here: neither for events nor for another thread."""
        if not self._heap.pending or self._captures or self._closed or not self._lock.acquire(blocking=False):
            return
        try:
            self._collect_events(self._is_complete)
        finally:
            self._lock.release()

    def _wait_for_events(self) -> None:
        if not self._captures and not self._closed:
            self._collect_events(self._wait_for_event)

    def _collect_events(self, is_complete: Callable[[int], bool]) -> None:
        """Frees the blocks at the front of every stream's queue as long as their events are complete."""
        owner = runtime.get_runtime(self.device_id)
        if self._unrecorded:
            self._record_again()
        for queue in list(self._waiting.values()):
            while queue:
                event, block = queue.popleft()    # first: an object that goes meanwhile may bring us here again
                complete = False
                try:
                    complete = is_complete(event)
                finally:
                    if not complete:
                        queue.appendleft((event, block))
                if not complete:
                    break
                streams.give_event(owner, owner.session, streams.EVENT_SYNC, event)
                self._heap.event_done(block)

    def _is_complete(self, event: int) -> bool:
        runtime.get_runtime(self.device_id)
        status, code = runtime.acl.rt.query_event_status(event)
        errors.check(code, "aclrtQueryEventStatus")
        return status == 1                        # ACL_EVENT_RECORDED_STATUS_COMPLETE

    def _wait_for_event(self, event: int) -> bool:
        runtime.get_runtime(self.device_id)
        errors.check(runtime.acl.rt.synchronize_event(event), "aclrtSynchronizeEvent")
        return True

    # ---- private pools: torch.npu.MemPool and captured graphs -------------------------------------------------------
    def create_pool(self, pool: PoolId, source: PluggableAllocator | None = None, use_on_oom: bool = False,
                    no_split: bool = False) -> None:
        """Makes a pool, or adds a user to it."""
        with self._lock:
            self._heap.retain_pool(pool, no_split)
            self._pools.setdefault(pool, _Pool(source, use_on_oom))

    def release_pool(self, pool: PoolId) -> None:
        """Takes a user away. The memory of a pool without users goes with the next empty_cache()."""
        self._heap.release_pool(pool)

    def pool_use_count(self, pool: PoolId) -> int:
        return self._heap.pool_users(pool)

    def begin_allocate_to_pool(self, pool: PoolId, stream: Any = None) -> None:
        """Sends the calling thread's allocations to a pool; with a stream, on which a graph is captured, that stream's."""
        self.create_pool(pool)
        with self._lock:
            self._heap.begin_route(pool, *self._route(stream))
            self._captures += stream is not None

    def end_allocate_to_pool(self, pool: PoolId, stream: Any = None) -> None:
        """Ends what begin_allocate_to_pool began with the same arguments; the pool keeps its user."""
        with self._lock:
            self._heap.end_route(pool, *self._route(stream))
            self._captures -= stream is not None
            if not self._captures:
                self._record_again()

    def _route(self, stream: Any) -> tuple[int, int]:
        """(thread, stream) whose requests go to a pool."""
        return (threading.get_ident(), 0) if stream is None else (0, self._handle(stream))

    def _traced(self, action: str, address: int, size: int, stream: int, pool: PoolId) -> None:
        if self._heap.tracing:
            self.history.record(action, address, size, stream, pool)


_ALLOCATORS: dict[int, NpuAllocator] = {}
_source: PluggableAllocator | None = None         # serves every device instead of CANN, and nothing is cached
_recording: tuple[Any, ...] = ()                  # of record_history, for allocators that are yet to be made


def get_allocator(device_id: int = 0) -> NpuAllocator:
    """The allocator of a device; touches no device."""
    found = _ALLOCATORS.get(device_id)
    if found is None:
        made = NpuAllocator(device_id)
        if _recording:
            made.record_history(*_recording)
        found = _ALLOCATORS.setdefault(device_id, made)
    return found


def all_allocators() -> list[NpuAllocator]:
    """The allocators created until now, by device."""
    return [allocator for _, allocator in sorted(_ALLOCATORS.items())]


def snapshot_of_all() -> dict[str, Any]:
    """The snapshots of all devices in one; the history of a device stands at its index in "device_traces"."""
    made: dict[str, Any] = {"segments": [], "device_traces": []}
    for allocator in all_allocators():
        part = allocator.snapshot()
        made["segments"] += part["segments"]
        made["device_traces"] += part["device_traces"][len(made["device_traces"]):]
    return made


def owner_of(ptr: int) -> NpuAllocator:
    """The allocator that an allocation comes from."""
    for allocator in all_allocators():
        if allocator._heap.owns(ptr):
            return allocator
    raise RuntimeError(f"invalid device pointer: {ptr:#x} is not an allocation of any npu")


def record_history(*how: Any) -> None:
    """NpuAllocator.record_history of every device, those not yet used included."""
    global _recording
    _recording = how
    for allocator in all_allocators():
        allocator.record_history(*how)


def change_settings(text: str) -> None:
    """New settings, in the form of PYTORCH_NPU_ALLOC_CONF, for the devices that were used until now."""
    alloc_conf.parse(text)                        # refused as a whole
    for allocator in all_allocators():
        allocator._configure(text)


def change_source(source: PluggableAllocator) -> None:
    """Takes all memory from a user's allocator; only before the first allocation."""
    global _source
    if _source is not None or any(allocator._conf is not None for allocator in all_allocators()):
        raise RuntimeError("Can't swap an already initialized allocator")
    _source = source


def current_source() -> PluggableAllocator | None:
    """The user's allocator that serves every device; None: the caching allocator does."""
    return _source


def attach(device_id: int) -> None:
    """Called by the core at the first tensor on a device."""
    runtime.get_runtime(device_id)
    get_allocator(device_id)._heap.attach()


def _close(device_id: int) -> None:
    allocator = _ALLOCATORS.pop(device_id, None)
    if allocator is not None:
        allocator.close()


runtime.on_close(_close)
