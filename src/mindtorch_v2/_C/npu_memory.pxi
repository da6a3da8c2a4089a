# Memory of npus: the native half of NpuAllocator (malloc and free), and the current stream of a thread. Raw memory,
# events and everything else that is rare is Python: _backends/npu/allocator.py.

cdef extern from "caching.h" namespace "mt::caching":
    ctypedef pair[uint64_t, uint64_t] PoolId
    cdef enum Part:
        SMALL_POOL
    cdef enum Kind:
        NOTHING
    cdef cppclass HeapPool "mt::caching::Pool":
        uint64_t stream
        PoolId id
        Part part
    cdef cppclass HeapSegment "mt::caching::Segment"
    cdef cppclass Block:
        size_t address, size, requested
        HeapPool* pool
        HeapSegment* segment
        Block* prev
        Block* next
        uint32_t events
        cbool allocated, mapped
        vector[uint64_t] uses
    cdef cppclass HeapSegment "mt::caching::Segment":
        Block* head
        cbool expandable
    cdef cppclass HeapStats "mt::caching::Stats":
        pass
    cdef cppclass Settings:
        size_t max_split, max_non_split_rounding, large_segment, padding, large_round
        cbool expandable
        unsigned char power2_divisions[16]
    cdef cppclass Chunk:
        Kind kind
        size_t address, size
        uint64_t stream
        PoolId id
    cdef cppclass PrivatePool:
        int64_t users
    cdef cppclass SegmentPointer "std::unique_ptr<mt::caching::Segment>":
        HeapSegment* get()
    cdef cppclass Heap:
        HeapStats stats
        Settings settings
        uint32_t pending
        void make_room() except +
        size_t round(size_t)
        size_t segment_size(size_t)
        Block* take(size_t, size_t, uint64_t) except +
        Block* take_of(PoolId, size_t, size_t, uint64_t) except +
        Block* take_segment(size_t, size_t, size_t, size_t, uint64_t) except +
        Block* find(size_t)
        cbool release(Block*)
        void record(Block*, uint64_t) except +
        Block* waiting(size_t)
        void event_done(Block*)
        void release_free(vector[Chunk]&, const PoolId*) except +
        cbool release_oversize(size_t, uint64_t, vector[Chunk]&) except +
        void release_aged(size_t, vector[Chunk]&) except +
        size_t granule(size_t)
        Chunk plan(size_t, uint64_t) except +
        void reserve(size_t, size_t, size_t, uint64_t) except +
        cbool map(size_t, size_t, size_t, uint64_t) except +
        PrivatePool* private_pool(PoolId)
        void retain_pool(PoolId, cbool) except +
        void release_pool(PoolId)
        void begin_route(PoolId, uint64_t, uint64_t) except +
        cbool end_route(PoolId, uint64_t, uint64_t)
        PoolId routed(uint64_t)
        const vector[SegmentPointer]& segments()
        void reset_peak()
        void reset_accumulated()

cdef enum:
    MAX_NPUS = 16                                # on one host, as in torch_npu

cdef extern from *:
    """
    // The streams that the running thread chose, 0: none. The pointer, null in threads that never chose one, is read
    // without a call (initial-exec); the array would not fit the room that the loader keeps for such variables.
    // A choice counts until the device is started again: its streams ended with the start that they were made in.
    struct NpuChoice { uint64_t stream, start; };
    static thread_local NpuChoice npu_thread_choices[16];
    static thread_local NpuChoice* npu_choices __attribute__((tls_model("initial-exec"))) = nullptr;
    static NpuChoice npu_defaults[16];
    static inline uint64_t npu_stream_of(int device) {
        const NpuChoice& standard = npu_defaults[device];
        const NpuChoice* chosen = npu_choices ? npu_choices + device : nullptr;
        return chosen && chosen->stream && chosen->start == standard.start ? chosen->stream : standard.stream;
    }
    static inline void npu_choose_stream(int device, uint64_t stream) {
        npu_choices = npu_thread_choices;
        npu_thread_choices[device] = {stream, npu_defaults[device].start};
    }
    static inline uint64_t npu_start_of(int device) { return npu_defaults[device].start; }   // how often it was started
    static inline void npu_start_device(int device, uint64_t stream) {
        npu_defaults[device] = {stream, npu_defaults[device].start + 1};
    }
    """
    uint64_t npu_stream_of(int)
    uint64_t npu_start_of(int)
    void npu_start_device(int, uint64_t)
    void npu_choose_stream(int, uint64_t)

NPU_LIMIT = MAX_NPUS                             # for Python

cdef PyObject* npu_heaps[MAX_NPUS]               # the NpuHeap that tensors on a device use; NULL until it is attached


class OutOfMemoryError(RuntimeError):
    """A device has no memory left for what was asked."""


class AcceleratorError(RuntimeError):
    """A device or its runtime has failed; error_code is its own number for that."""
    error_code = 0

OutOfMemoryError.__module__ = AcceleratorError.__module__ = package_name   # the front door, where pickles find them


cdef inline int npu_index(int device) except -1:
    if not 0 <= device < MAX_NPUS:
        raise RuntimeError(f"Invalid device argument {device}: npus are numbered from 0 to {MAX_NPUS - 1}")
    return device


cdef uint64_t stream_of(int device) noexcept:
    """The stream that the calling thread uses on a device."""
    return npu_stream_of(device)


cdef uint64_t start_of(int device) noexcept:
    """How often a device was started: what was made in an earlier start has ended."""
    return npu_start_of(device)


def _npu_set_current_stream(int device, size_t stream):
    """Which stream of a device the calling thread uses from now on; 0: the device's default stream."""
    npu_choose_stream(npu_index(device), stream)


def _npu_set_default_stream(int device, size_t stream):
    """The stream of a device that was started now; what threads chose before is forgotten."""
    npu_start_device(npu_index(device), stream)


def _npu_current_stream(int device):
    """The handle of the stream that the calling thread uses on a device."""
    return npu_stream_of(npu_index(device))


# ---- statistics: mt::caching::Stats is a row of int64 in this order --------------------------------------------------
cdef dict stat_places(tuple metrics, tuple plain, tuple counts):
    names = [f"{metric}.{part}" for metric in metrics for part in ("all", "small_pool", "large_pool")] + list(plain)
    keys = [f"{name}.{kind}" for name in names for kind in ("current", "peak", "allocated", "freed")] + list(counts)
    places = {key: place for place, key in enumerate(keys)}
    # torch's documentation says "allocated" where its dict has "allocation": both are served.
    places.update({"allocated" + key[len("allocation"):]: place for key, place in places.items()
                   if key.startswith("allocation.")})
    return places

cdef dict STAT_PLACES = stat_places(
    ("allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes", "active_bytes",
     "inactive_split_bytes", "requested_bytes"),
    ("oversize_allocations", "oversize_segments"),
    ("num_alloc_retries", "num_ooms", "num_oom_rejections", "num_sync_all_streams", "num_device_alloc",
     "num_device_free", "max_split_size"))
NPU_STAT_KEYS = tuple(sorted(STAT_PLACES))


cdef PoolId as_pool(object id) except *:
    return PoolId(id[0], id[1])


cdef list chunk_list(vector[Chunk]& chunks):
    cdef Chunk c
    cdef list made = []
    for c in chunks:
        made.append((<int>c.kind, c.address, c.size, c.stream, (c.id.first, c.id.second)))
    return made


cdef class NpuHeap(Memory):
    """The caching allocator's books for one device. What it cannot do itself it leaves to its owner, an NpuAllocator:
    _provide (memory), _record_events and _process_events (blocks used on several streams), _traced (history)."""
    cdef Heap heap
    cdef readonly object owner
    cdef readonly int device
    cdef public bint tracing                     # tell the owner about every allocation
    cdef public bint lazy_reclaim                # look at pending events only when nothing else fits
    cdef public bint uncached                    # give every block back at once

    def __init__(self, owner, int device):
        self.owner, self.device = owner, npu_index(device)

    # ---- malloc and free ------------------------------------------------------------------------------------------
    cdef size_t allocate(self, size_t nbytes, uint64_t stream) except 0:
        cdef Block* b
        if nbytes >= <size_t>1 << 60:            # also keeps the rounding from overflowing
            raise OutOfMemoryError("NPU out of memory. Tried to allocate more than 1EB memory.")
        if self.heap.pending and not self.lazy_reclaim:
            self.owner._process_events()
        b = self.heap.take(nbytes, self.heap.round(nbytes), stream)
        if b == NULL:
            b = self.grow(nbytes, stream)
        if self.tracing:
            try:
                self.trace("alloc", b)
            except BaseException:                # KeyboardInterrupt: the block would have no owner
                self.heap.release(b)
                raise
        return b.address

    cdef Block* grow(self, size_t nbytes, uint64_t stream) except NULL:
        cdef Block* b
        cdef size_t address, size, rounded
        while True:
            rounded = self.heap.round(nbytes)    # once: another thread may change the settings meanwhile
            self.heap.make_room()                # before there is a segment without an owner
            # (address, bytes) of a new segment; (address, 0) of a block that is ours already; (0, 0): look again.
            address, size = self.owner._provide(nbytes, rounded, stream)
            if 0 < size < rounded:
                raise RuntimeError(f"a segment of {size} bytes cannot hold {rounded}")
            if size:
                return self.heap.take_segment(address, size, nbytes, rounded, stream)
            b = self.heap.find(address) if address else self.heap.take(nbytes, self.heap.round(nbytes), stream)
            if b != NULL:
                return b

    cdef int release(self, size_t address) except -1:
        cdef Block* b = self.block(address)
        try:
            if self.tracing:
                self.trace("free_requested", b)
                if self.block(address).uses.empty():   # reported first: the block may be gone once it is free
                    self.trace("free_completed", b)
        finally:                                 # found again: Python has run
            if self.heap.release(self.block(address)):
                if self.ended:                   # perhaps at the end of the interpreter, where the owner's modules are gone
                    for _ in range(b.events):
                        self.heap.event_done(b)
                else:
                    self.owner._record_events(<size_t>b, list(b.uses))
        if self.uncached:
            self.owner._release_uncached()
        return 0

    cdef int trace(self, str action, Block* b) except -1:
        self.owner._traced(action, b.address, b.requested, b.pool.stream, (b.pool.id.first, b.pool.id.second))
        return 0

    cdef Block* block(self, size_t address) except NULL:
        cdef Block* b = self.heap.find(address)
        if b == NULL:
            raise RuntimeError(f"invalid device pointer: {address:#x} is not an allocation of npu:{self.device}")
        return b

    cdef int free_block(self, size_t address) noexcept:
        npu_heap_free(self, address)
        return 0

    cdef int record_use(self, size_t address, uint64_t stream) except -1:
        self.heap.record(self.block(address), stream)
        return 0

    cdef object lost(self, int index):
        return RuntimeError(f"a tensor on npu:{index} has lost its memory: the npu runtime that it was made in has ended "
                            "(finalize() or restart_device()); make it again")

    def malloc(self, size_t nbytes, size_t stream):
        return self.allocate(nbytes, stream)

    def free(self, size_t address):
        self.release(address)

    def attach(self):
        """From now on tensors on the device live in this heap."""
        cdef PyObject* before = npu_heaps[self.device]
        Py_INCREF(self)
        npu_heaps[self.device] = <PyObject*>self
        if before != NULL:
            Py_DECREF(<object>before)

    def detach(self):
        """The device is about to go, and all memory with it: tensors that live here may only be freed."""
        self.ended = True
        if npu_heaps[self.device] == <PyObject*>self:
            npu_heaps[self.device] = NULL
            Py_DECREF(self)

    # ---- for the owner --------------------------------------------------------------------------------------------
    def configure(self, size_t max_split, size_t max_non_split_rounding, size_t large_segment, size_t large_round,
                  bint expandable, tuple power2_divisions):
        cdef Settings* s = &self.heap.settings
        if large_segment < 1 << 20 or not large_round or len(power2_divisions) > 16:
            raise ValueError(f"settings that no heap can have: {large_segment}, {large_round}, {power2_divisions}")
        divisions_log2 = [max(int(divisions).bit_length() - 1, 0) for divisions in power2_divisions]
        s.max_split, s.max_non_split_rounding, s.large_segment = max_split, max_non_split_rounding, large_segment
        s.large_round, s.expandable = large_round, expandable
        for i, log2 in enumerate(divisions_log2):
            s.power2_divisions[i] = log2
        self.set_stat("max_split_size", <int64_t>max_split)

    @property
    def expandable(self):
        return self.heap.settings.expandable

    @expandable.setter
    def expandable(self, bint value):
        self.heap.settings.expandable = value

    @property
    def pending(self):
        return self.heap.pending

    def stat(self, str key):
        return (<int64_t*>&self.heap.stats)[STAT_PLACES[key]]

    def set_stat(self, str key, int64_t value):
        (<int64_t*>&self.heap.stats)[STAT_PLACES[key]] = value

    def stats(self):
        cdef int64_t* row = <int64_t*>&self.heap.stats
        return {key: row[STAT_PLACES[key]] for key in NPU_STAT_KEYS}

    def reset_peak(self):
        self.heap.reset_peak()

    def reset_accumulated(self):
        self.heap.reset_accumulated()

    def segment_size(self, size_t size):
        """How much is allocated on the device where a block of this rounded size is wanted."""
        return self.heap.segment_size(size)

    def take_of(self, pool, size_t nbytes, size_t stream):
        """An allocation from the free blocks of a private pool; 0: it has none."""
        cdef Block* b = self.heap.take_of(as_pool(pool), nbytes, self.heap.round(nbytes), stream)
        return 0 if b == NULL else b.address

    def owns(self, size_t address):
        """Whether an address is that of a live allocation."""
        return self.heap.find(address) != NULL

    def record(self, size_t address, size_t stream):
        """Another stream uses an allocation: after its free the block waits for that stream."""
        self.heap.record(self.block(address), stream)

    def event_done(self, size_t handle):
        """One event that _record_events made for a block is complete."""
        cdef Block* b = self.heap.waiting(handle)
        if b == NULL:
            raise RuntimeError(f"{handle:#x} is no block of npu:{self.device} that waits for an event")
        if self.tracing and b.events == 1:
            self.trace("free_completed", b)
        self.heap.event_done(b)

    # Lists of (kind, address, size, stream, pool), to be freed by the caller. Kinds: 0 a segment, 1 a mapped piece of
    # an expandable segment, 2 the addresses of one.
    def release_free(self, pool=None):
        """Of one private pool, or of all that are not in use and the common one."""
        cdef vector[Chunk] chunks
        cdef PoolId id
        cdef PoolId* only = NULL
        if pool is not None:
            id = as_pool(pool)
            only = &id
        self.heap.release_free(chunks, only)
        return chunk_list(chunks)

    def release_oversize(self, size_t size, size_t stream):
        """(whether it is enough, chunks)"""
        cdef vector[Chunk] chunks
        enough = self.heap.release_oversize(size, stream, chunks)
        return enough, chunk_list(chunks)

    def release_aged(self, size_t target):
        cdef vector[Chunk] chunks
        self.heap.release_aged(target, chunks)
        return chunk_list(chunks)

    def plan(self, size_t size, size_t stream):
        """What an allocation lacks: (kind, address, size); kind 3: nothing, 1: a mapping, 2: a reservation."""
        cdef Chunk c = self.heap.plan(size, stream)
        return <int>c.kind, c.address, c.size

    def granule(self, size_t size):
        """The size of the pieces that an expandable segment for blocks of this rounded size is mapped in."""
        return self.heap.granule(size)

    def fits(self, size_t size, size_t stream):
        """Whether a free block can serve a request."""
        return self.heap.plan(size, stream).kind == NOTHING

    def reserve(self, size_t address, size_t nbytes, size_t size, size_t stream):
        self.heap.reserve(address, nbytes, size, stream)

    def map(self, size_t address, size_t nbytes, size_t size, size_t stream):
        if not self.heap.map(address, nbytes, size, stream):
            raise RuntimeError(f"{nbytes} bytes at {address:#x} are not an unmapped piece of npu:{self.device}")

    # ---- private pools --------------------------------------------------------------------------------------------
    def retain_pool(self, pool, bint no_split=False):
        self.heap.retain_pool(as_pool(pool), no_split)

    def release_pool(self, pool):
        if self.pool_users(pool) < 1:
            raise RuntimeError(f"memory pool {pool} is not in use on npu:{self.device}")
        self.heap.release_pool(as_pool(pool))

    def has_pool(self, pool):
        """Whether a pool has users or memory."""
        return self.heap.private_pool(as_pool(pool)) != NULL

    def pool_users(self, pool):
        cdef PrivatePool* found = self.heap.private_pool(as_pool(pool))
        return 0 if found == NULL else found.users

    def begin_route(self, pool, size_t thread, size_t stream):
        """Sends the requests of a thread, of a stream or (both 0) all to a pool."""
        self.heap.begin_route(as_pool(pool), thread, stream)

    def end_route(self, pool, size_t thread, size_t stream):
        """Ends what begin_route began with the same arguments."""
        if not self.heap.end_route(as_pool(pool), thread, stream):
            raise RuntimeError(f"nothing is routed to memory pool {pool} on npu:{self.device}")

    def routed(self, size_t stream):
        """The pool that serves the calling thread's requests on a stream; (0, 0): the common one."""
        cdef PoolId id = self.heap.routed(stream)
        return id.first, id.second

    # ---- snapshot -------------------------------------------------------------------------------------------------
    def segments(self):
        """The segments in torch's snapshot format, by address, without stack traces. Of an expandable segment every
        run of mapped blocks counts as one."""
        cdef list found = []
        cdef Block* b
        cdef size_t i
        for i in range(self.heap.segments().size()):
            b = self.heap.segments()[i].get().head
            while b != NULL:
                if b.mapped and (b.prev == NULL or not b.prev.mapped):
                    found.append(self.segment(b))
                b = b.next
        return sorted(found, key=lambda segment: segment["address"])

    cdef dict segment(self, Block* b):
        cdef HeapPool* pool = b.pool
        cdef list blocks = []
        made = {"device": self.device, "address": b.address, "total_size": 0, "allocated_size": 0, "active_size": 0,
                "requested_size": 0, "stream": pool.stream, "segment_pool_id": (pool.id.first, pool.id.second),
                "segment_type": "small" if pool.part == SMALL_POOL else "large",
                "is_expandable": bool(b.segment.expandable), "frames": [], "blocks": blocks}
        while b != NULL and b.mapped:
            active = b.allocated or b.events > 0
            made["total_size"] += b.size
            if b.allocated:
                made["allocated_size"] += b.size
            if active:
                made["active_size"] += b.size
                made["requested_size"] += b.requested
            blocks.append({
                "address": b.address, "size": b.size, "requested_size": b.requested if active else 0,
                "state": "active_allocated" if b.allocated else "active_pending_free" if active else "inactive",
                "frames": []})
            b = b.next
        return made


# ---- what storages and the launcher call ----------------------------------------------------------------------------
cdef NpuHeap npu_heap(int device):
    """The heap of a device; it is made at its first use."""
    if npu_heaps[npu_index(device)] == NULL:
        backend_of(NPU).attach(device)
        if npu_heaps[device] == NULL:
            raise RuntimeError(f"the npu backend has not attached an allocator to npu:{device}")
    return <NpuHeap>npu_heaps[device]


cdef extern from "Python.h":
    PyObject* PyErr_Occurred()
    void PyErr_Fetch(PyObject**, PyObject**, PyObject**)
    void PyErr_Restore(PyObject*, PyObject*, PyObject*)


cdef void npu_heap_free(NpuHeap heap, size_t address) noexcept:
    cdef PyObject* kind
    cdef PyObject* value
    cdef PyObject* trace
    if PyErr_Occurred() == NULL:
        heap.release(address)
        return
    PyErr_Fetch(&kind, &value, &trace)           # a tensor goes while an exception comes: Python must not run with it set
    heap.release(address)
    PyErr_Restore(kind, value, trace)
