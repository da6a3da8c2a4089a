# One collective that was queued: the record that a watchdog reads, and the work that its caller waits for.

cdef class CollectiveQueue                       # collectives.pxi

cdef enum:
    RECORDED_DIMS = 8                            # as many as CANN's tensors have


@cython.freelist(32)
cdef class CollectiveRecord:
    """Which collective it is, where it was queued, and the event behind it, which is its own. It keeps no tensor."""
    cdef readonly str name
    cdef readonly object group
    cdef readonly int64_t sequence
    cdef readonly int device
    cdef readonly uint64_t stream, event         # 0: not queued yet
    cdef readonly double began                   # time.monotonic() when it was queued
    cdef uint64_t start                          # of the device, when it was queued
    cdef int rank, dt                            # rank -1: it has no tensor
    cdef int64_t sizes[RECORDED_DIMS]

    def __dealloc__(self):
        if self.event:
            give_event(self.device, self.start, self.event)

    @property
    def shape(self) -> "tuple[int, ...] | None":
        """Of its tensor; None: there is none."""
        return None if self.rank < 0 else tuple([self.sizes[i] for i in range(self.rank)])

    @property
    def dtype(self) -> "dtype | None":
        """Of its tensor; None: there is none."""
        return None if self.rank < 0 else dtypes[self.dt]

    def __str__(self) -> str:
        return self.group._describe(self.name, self.sequence, self.shape, self.dtype)

    cdef int measure(self, TensorBase t) except -1:
        cdef int i
        self.rank, self.dt = t.rank, t.dt
        if t.rank > RECORDED_DIMS:               # said as a row
            self.rank, self.sizes[0] = 1, t.count
            return 0
        for i in range(t.rank):
            self.sizes[i] = t.sizes[i]
        return 0

    cdef bint is_past(self) noexcept:
        """Whether its device has been started again since: then nothing is left to wait for."""
        return self.event == 0 or self.start != start_of(self.device)

    cdef int state(self) except -2:
        """1: passed, 0: not yet, -1: the device has failed and cannot tell. Its context is the calling thread's."""
        cdef int32_t status = 0
        if self.is_past():
            return 1
        return -1 if query_event(self.event, &status) else status == EVENT_COMPLETE

    def passed(self) -> "bool | None":
        """Whether the device has come to its end; None where the device has failed, and cannot tell any more."""
        cdef int state
        if not self.is_past():
            bind_device(self.device)
        state = self.state()
        return None if state < 0 else state == 1


cdef class CollectiveWork:
    """What a caller has of a collective. Its subclass gives wait_on_host(timeout)."""
    cdef readonly CollectiveRecord record
    cdef readonly CollectiveQueue queue
    cdef object results                          # a tensor, or a list of them
    cdef bint host_waits
    cdef object __weakref__

    def wait(self, timeout=None) -> bool:
        """The current stream waits; the host only for a barrier, with a timeout, or where it is to."""
        cdef CollectiveRecord r = self.record
        cdef uint64_t stream
        cdef int32_t code
        if self.queue.failure is not None:
            self.queue.refuse(r)
        if not r.is_past():
            bind_device(r.device)
            stream = stream_of(r.device)
            if stream != r.stream:
                code = wait_for_event(stream, r.event)
                if code:
                    self.queue.failed(r, "aclrtStreamWaitEvent", code)
        if timeout is not None or self.host_waits:
            self.wait_on_host(timeout)
        return True

    def result(self) -> list:
        """The tensors that it filled."""
        return self.results if isinstance(self.results, list) else [self.results]
