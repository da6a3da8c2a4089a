# The collectives of one group on npus: argument checks of the common ones, the streams, HCCL's call, the event behind it.

cdef enum:
    MOST_ARGUMENTS = 10                          # of HCCL's functions
    REDUCTIONS = 16                              # at least as many as torch has
    UNASKED = 8                                  # so many records may be left before the device is queried
    ASK_EVERY = 4                                # records; one query serves several

cdef extern from "time.h" nogil:
    cdef struct timespec:
        int64_t tv_sec
        long tv_nsec
    int clock_gettime(int, timespec*)
    int CLOCK_MONOTONIC

cdef int32_t HCCL_DTYPES[<int>kNumDTypes]        # -1: HCCL has no such dtype
cdef int32_t HCCL_BYTE = -1                      # what is only moved is moved as bytes


def _set_hccl_dtypes(dict numbers not None) -> None:
    """HCCL's number of each dtype that it has, by torch's name."""
    global HCCL_BYTE
    for i in range(<int>kNumDTypes):
        HCCL_DTYPES[i] = numbers.get(DTYPE_NAMES[i], -1)
    HCCL_BYTE = numbers["uint8"]


cdef double monotonic() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <double>now.tv_sec + 1e-9 * <double>now.tv_nsec


cdef class CommunicatorBase:
    """One rank's end of a communicator, as collectives are queued on it."""
    cdef public size_t handle                    # 0: it has been destroyed
    cdef public int device_id
    cdef public size_t last_stream               # the stream of the latest work; 0: none yet


cdef class CollectiveQueue:
    """What one group queues on its devices. Its subclass gives refuse(record), which raises because the group has failed;
    failed(record, function, code), which raises what CANN said; side(device), the stream of async collectives; run_on(device,
    call), which runs call on that stream; follow(device, first, then), which puts a stream behind another one while graphs are captured. Works
    are of work_class, a subclass of CollectiveWork."""
    cdef readonly object group
    cdef readonly int rank, size
    cdef public object failure                   # why the group cannot be used any more; None: it can
    cdef public int64_t sequence
    cdef readonly CollectiveRecord last          # the latest
    cdef dict lanes                              # by stream: the records that are not known to be passed, in their order
    cdef list latest_lane
    cdef uint64_t latest_stream
    cdef list communicators                      # of all members, by device
    cdef uint64_t sides[MAX_DEVICES]
    cdef uint64_t sides_start[MAX_DEVICES]
    cdef bint host_waits
    cdef object work_class, reduction_class
    cdef int32_t kinds[REDUCTIONS]               # HCCL's op of torch's, -1: it has none such
    cdef int32_t bool_kinds[REDUCTIONS]

    def __init__(self, group, bint host_waits, work_class, reduction_class, list kinds, list bool_kinds):
        cdef int i
        self.group, self.rank, self.size, self.host_waits = group, group.rank(), group.size(), host_waits
        self.lanes, self.communicators = {}, [None] * MAX_DEVICES
        self.work_class, self.reduction_class = work_class, reduction_class
        for i in range(REDUCTIONS):
            self.kinds[i] = kinds[i] if i < len(kinds) else -1
            self.bool_kinds[i] = bool_kinds[i] if i < len(bool_kinds) else -1

    # ---- records --------------------------------------------------------------------------------------------------
    def note(self, str name, TensorBase tensor=None) -> CollectiveRecord:
        """The record of a collective that begins: the next number of the group."""
        return self.noted(name, tensor)

    cdef CollectiveRecord noted(self, str name, TensorBase t):
        cdef CollectiveRecord r = CollectiveRecord.__new__(CollectiveRecord)
        self.sequence += 1
        r.name, r.group, r.sequence, r.rank = name, self.group, self.sequence, -1
        if t is not None:
            r.measure(t)
        return r

    def left(self) -> list:
        """The records that are not known to be passed, oldest first."""
        cdef list lane
        cdef list found = []
        for lane in list(self.lanes.values()):
            if lane and not (<CollectiveRecord>lane[0]).is_past():
                bind_device((<CollectiveRecord>lane[0]).device)
            while lane and (<CollectiveRecord>lane[0]).state() == 1:
                del lane[0]
            found += lane
        return sorted(found, key=lambda record: record.began)

    def forget(self) -> None:
        """Drops all records and communicators."""
        self.lanes, self.latest_lane, self.last = {}, None, None
        self.communicators = [None] * MAX_DEVICES

    cdef int keep(self, CollectiveRecord r) except -1:
        """Few are to be left when the device fails and cannot tell any more."""
        cdef list lane = self.latest_lane
        self.last = r
        if graphs_are_captured():                # nothing runs, and its event is a node of a graph
            return 0
        if lane is None or self.latest_stream != r.stream:
            lane = self.lanes.setdefault(r.stream, [])
            self.latest_lane, self.latest_stream = lane, r.stream
        lane.append(r)
        if r.sequence % ASK_EVERY == 0:
            while PyList_GET_SIZE(lane) > UNASKED and (<CollectiveRecord>lane[ASK_EVERY]).state() == 1:
                del lane[:ASK_EVERY + 1]
        return 0

    # ---- queueing -------------------------------------------------------------------------------------------------
    cdef uint64_t enter(self, CollectiveRecord r, int device, bint async_op) except 0:
        """Decides on the stream. The calling thread has the device's context then."""
        bind_device(device)
        if self.failure is not None:
            self.refuse(r)
        r.device, r.start, r.stream = device, start_of(device), stream_of(device)
        if async_op:
            if self.sides_start[device] != r.start:
                self.sides[device], self.sides_start[device] = self.side(device), r.start
            r.stream = self.sides[device]
        r.event = take_event(device)
        r.began = monotonic()
        return r.stream

    cdef int order(self, CollectiveRecord r, uint64_t first, uint64_t then) except -1:
        """Work given to the second stream from now on waits for what the first has now."""
        cdef uint64_t event = take_event(r.device)
        cdef int32_t code = 0
        cdef int step = order_streams(event, first, then, &code)
        give_event(r.device, r.start, event)
        if step:
            self.failed(r, STEPS[step], code)
        return 0

    cdef int use(self, CommunicatorBase comm, CollectiveRecord r) except -1:
        """Puts the stream behind the communicator's latest work: its ranks must see one order, whatever streams they use."""
        cdef uint64_t before = comm.last_stream
        comm.last_stream = r.stream
        if before != 0 and before != r.stream:
            if graphs_are_captured():
                self.follow(comm.device_id, before, r.stream)
            else:
                self.order(r, before, r.stream)
        return 0

    cdef int call(self, CollectiveRecord r, str function, uint64_t address, uint64_t* a, uint64_t event) except -1:
        """HCCL's call, which may connect to other ranks and then takes its time, and the event behind it (0: not yet)."""
        cdef int32_t code = 0
        cdef int step
        cdef uint64_t stream = r.stream
        with nogil:
            step = run_collective(address, a, &code)
            if not step and event:
                step = record_behind(event, stream, &code)
        if step:
            self.failed(r, function if step == kCollective else STEPS[step], code)
        return 0

    cdef object work(self, CollectiveRecord r, object results, bint host_waits):
        cdef CollectiveWork made = <CollectiveWork?>self.work_class()
        self.keep(r)
        made.record, made.queue, made.results, made.host_waits = r, self, results, host_waits or self.host_waits
        return made

    cdef object start(self, str name, str function, int n, uint64_t* a, TensorBase out, TensorBase source, bint async_op):
        """A collective of tensors that need no preparing. The arguments but for communicator and stream are in a."""
        cdef CommunicatorBase comm = self.communicators[out.dev_index]
        cdef CollectiveRecord r = self.noted(name, source)
        cdef uint64_t stream = self.enter(r, out.dev_index, async_op)
        if async_op:
            self.order(r, stream_of(r.device), stream)
            record_use(out.st, stream)
            if source is not out:
                record_use(source.st, stream)
        self.use(comm, r)
        a[n], a[n + 1] = comm.handle, stream
        self.call(r, function, collective_function(function), a, r.event)
        return self.work(r, out, False)

    def launch(self, CollectiveRecord r not None, int device, list starts not None, list keep not None, after, list results,
               bint async_op, bint host_waits):
        """A collective whose tensors were prepared. starts: (communicator, function, its arguments but for communicator and
        stream) each. keep: what they use. after: runs behind them on their stream."""
        cdef uint64_t a[MOST_ARGUMENTS]
        cdef CommunicatorBase comm
        cdef TensorBase t
        cdef int i
        cdef int32_t code = 0
        cdef int step
        cdef uint64_t stream = self.enter(r, npu_ordinal(device), async_op)
        if async_op:
            self.order(r, stream_of(device), stream)
            for t in keep:
                record_use(t.st, stream)
        for comm, function, arguments in starts:
            if len(arguments) + 2 > MOST_ARGUMENTS:
                raise TypeError(f"[{function}] {len(arguments)} arguments")
            self.use(comm, r)
            memset(a, 0, sizeof(a))
            for i, argument in enumerate((*arguments, comm.handle, stream)):
                a[i] = argument
            self.call(r, function, collective_function(function), a, 0)
        if after is not None:
            if async_op:
                self.run_on(device, after)
            else:
                after()
            bind_device(device)
        step = record_behind(r.event, stream, &code)
        if step:
            self.failed(r, STEPS[step], code)
        return self.work(r, results, host_waits)

    # ---- collectives of dense tensors; None: the tensors or the op have to be prepared, or are refused, by the caller ----
    def set_communicator(self, CommunicatorBase communicator not None) -> None:
        """The communicator of all members on its device."""
        self.communicators[npu_ordinal(communicator.device_id)] = communicator

    cdef bint is_plain(self, object tensor) except -1:
        cdef TensorBase t
        if not isinstance(tensor, TensorBase) or modes().interposed():
            return False
        t = <TensorBase>tensor
        if t.dev != NPU or not t.contig or t.marks or t.st == NULL or t.st.device != NPU or t.st.shrunk or t.st.data == NULL:
            return False
        refuse_ended(t.st)
        return self.communicators[t.dev_index] is not None

    cdef bint is_plain_pair(self, object large, object small) except -1:
        """Whether one is as large as the other for each rank."""
        cdef TensorBase a, b
        if not self.is_plain(large) or not self.is_plain(small):
            return False
        a, b = <TensorBase>large, <TensorBase>small
        return a.dt == b.dt and a.dev_index == b.dev_index and a.count == b.count * self.size

    cdef int reduction(self, TensorBase t, object op, uint64_t* a) except -1:
        """Fills in dtype and op. Whether HCCL has both."""
        cdef int kind = -1
        cdef int64_t number = PyLong_AsLongLong(op) if type(op) is self.reduction_class else -1
        if 0 <= number < REDUCTIONS:
            kind = self.bool_kinds[number] if t.dt == kBool else self.kinds[number]
        a[0] = HCCL_BYTE if t.dt == kBool else <uint64_t>HCCL_DTYPES[t.dt]
        a[1] = kind
        return kind >= 0 and (t.dt == kBool or HCCL_DTYPES[t.dt] >= 0)

    def all_reduce(self, tensor, op, bint async_op):
        cdef uint64_t a[MOST_ARGUMENTS]
        cdef TensorBase t
        memset(a, 0, sizeof(a))
        if not self.is_plain(tensor):
            return None
        t = <TensorBase>tensor
        if not self.reduction(t, op, a + 3):
            return None
        a[0] = a[1] = <uint64_t>ptr_of(t)
        a[2] = t.count
        return self.start("all_reduce", "HcclAllReduce", 5, a, t, t, async_op)

    def broadcast(self, tensor, int64_t root, bint async_op):
        cdef uint64_t a[MOST_ARGUMENTS]
        cdef TensorBase t
        memset(a, 0, sizeof(a))
        if not self.is_plain(tensor) or not 0 <= root < self.size:
            return None
        t = <TensorBase>tensor
        a[0], a[1], a[2], a[3] = <uint64_t>ptr_of(t), t.count * itemsize(<DType>t.dt), HCCL_BYTE, root
        return self.start("broadcast", "HcclBroadcast", 4, a, t, t, async_op)

    def all_gather_into_tensor(self, out, tensor, bint async_op):
        cdef uint64_t a[MOST_ARGUMENTS]
        cdef TensorBase t
        memset(a, 0, sizeof(a))
        if not self.is_plain_pair(out, tensor):
            return None
        t = <TensorBase>tensor
        a[0], a[1] = <uint64_t>ptr_of(t), <uint64_t>ptr_of(<TensorBase>out)
        a[2], a[3] = t.count * itemsize(<DType>t.dt), HCCL_BYTE
        return self.start("all_gather_into_tensor", "HcclAllGather", 4, a, <TensorBase>out, t, async_op)

    def reduce_scatter_tensor(self, out, tensor, op, bint async_op):
        cdef uint64_t a[MOST_ARGUMENTS]
        cdef TensorBase t
        memset(a, 0, sizeof(a))
        if not self.is_plain_pair(tensor, out):
            return None
        t = <TensorBase>out
        if not self.reduction(t, op, a + 3):
            return None
        a[0], a[1] = <uint64_t>ptr_of(<TensorBase>tensor), <uint64_t>ptr_of(t)
        a[2] = t.count
        return self.start("reduce_scatter_tensor", "HcclReduceScatter", 5, a, t, <TensorBase>tensor, async_op)


cdef inline int npu_ordinal(int device) except -1:
    if not 0 <= device < MAX_DEVICES:
        raise RuntimeError(f"invalid device ordinal: npu:{device}")
    return device
