# Ops on an npu: the launch of CANN's two phases (launch.h). What a plan is stands in plan.pxi, how it reads a row's
# arguments in marshal.pxi; which aclnn op serves which row, and what CANN is, is decided in _backends/npu.

cdef extern from "launch.h" namespace "mt::npu":
    cdef cppclass NpuApi "mt::npu::Api":
        int32_t (*synchronize)(void*) noexcept nogil
        int32_t (*set_repeatable)(void*) noexcept
        int32_t (*view_shape)(void*, int64_t**, uint64_t*) noexcept
    cdef struct TensorArg:
        const int64_t* sizes
        const int64_t* strides
        int64_t offset, storage_items
        void* base
        int32_t ndim, dtype
        cbool dense, whole
    cdef struct Number "mt::npu::Number":
        int32_t dtype
        int64_t i
        double re, im
    cdef cppclass CallKey "mt::Key":
        uint64_t& operator[](size_t)
        void swap(CallKey&)
    cdef cppclass NpuCall "mt::npu::Call":
        NpuCall() except +
        void begin(uint64_t) except +
        void tensor(int32_t, const TensorArg&) except +
        void list(int32_t, int32_t, cbool) except +
        void add(const TensorArg&) except +
        void scalars(int32_t, int32_t, cbool) except +
        void scalar(const Number&) except +
        void integers(int32_t, const int64_t*, int32_t, cbool) except +
        void reals(const double*, int32_t, cbool) except +
        void plain(int32_t, int64_t, double) except +
        void string(const char*) except +
        uint64_t end() except +
        void own_dims() except +
        CallKey key
    cdef cppclass PreparedSlot "mt::npu::Prepared::Slot":
        int32_t output
        void* object
    cdef cppclass Prepared:
        Prepared(const NpuApi&) except +
        int32_t first_phase(const NpuCall&, void*) except +
        void* executor
        uint64_t workspace
        cbool repeatable
        const char* refused
        vector[PreparedSlot] slots
    cdef cppclass PreparedOwner "std::unique_ptr<mt::npu::Prepared>":
        PreparedOwner()
        PreparedOwner(Prepared*)
        Prepared* get()
    cdef cppclass Launched:
        void* plan
        int32_t device
        CallKey key
    cdef cppclass Prepareds:
        Prepared* find(const CallKey&, uint64_t)
        void clear()
        size_t size()
    void (*destroy_failed)(const char*, int32_t) noexcept
    ctypedef int32_t (*SecondPhase)(void*, uint64_t, void*, void*) noexcept
    cbool move_to(const NpuApi&, Prepared&, const NpuCall&)

cdef extern from *:
    """
    // The npu whose context the running thread has, -1: none yet. A runtime that ended took all contexts with it, so what
    // a thread noted counts for the runtime of that time only.
    static int npu_lifetime = 0;
    static thread_local int npu_bound_device __attribute__((tls_model("initial-exec"))) = -1;
    static thread_local int npu_bound_lifetime __attribute__((tls_model("initial-exec"))) = 0;
    static inline int npu_bound() { return npu_bound_lifetime == npu_lifetime ? npu_bound_device : -1; }
    static inline void npu_set_bound(int device) { npu_bound_device = device; npu_bound_lifetime = npu_lifetime; }
    static inline void npu_end_lifetime() { ++npu_lifetime; }
    static inline void npu_keep(mt::npu::Prepareds& all, mt::npu::Call& call, uint64_t hash,
                                std::unique_ptr<mt::npu::Prepared>& p) {
        all.keep(call.key, hash, std::move(p));
    }
    // Never destroyed: at the end of a process that did not end the runtime (a forked one) CANN must not be called.
    static mt::npu::Prepareds* const npu_prepared = new mt::npu::Prepareds[16];
    // Calls whose stream could not be waited for: the device may still write into their tensors, by stream.
    static auto* const npu_unfinished = new std::vector<std::pair<void*, std::unique_ptr<mt::npu::Prepared>>>;
    static inline void npu_leave_unfinished(void* stream, std::unique_ptr<mt::npu::Prepared>& p) {
        npu_unfinished->emplace_back(stream, std::move(p));
    }
    static inline void npu_finished(void* stream) {  // nullptr: every stream
        if (npu_unfinished->empty()) return;
        auto is_done = [=](const auto& left) { return !stream || left.first == stream; };
        npu_unfinished->erase(std::remove_if(npu_unfinished->begin(), npu_unfinished->end(), is_done), npu_unfinished->end());
    }
    """
    int npu_bound() nogil
    void npu_set_bound(int) nogil
    void npu_end_lifetime()
    void npu_keep(Prepareds&, NpuCall&, uint64_t, PreparedOwner&) except +
    Prepareds* npu_prepared                      # of each device
    void npu_leave_unfinished(void*, PreparedOwner&) except +
    void npu_finished(void*)

API_NAMES = ("aclCreateTensor", "aclCreateScalar", "aclCreateIntArray", "aclCreateFloatArray", "aclCreateBoolArray",
             "aclCreateTensorList", "aclCreateScalarList", "aclDestroyTensor", "aclDestroyScalar", "aclDestroyIntArray",
             "aclDestroyFloatArray", "aclDestroyBoolArray", "aclDestroyTensorList", "aclDestroyScalarList",
             "aclDestroyAclOpExecutor", "aclSetAclOpExecutorRepeatable", "aclSetInputTensorAddr",
             "aclSetOutputTensorAddr", "aclSetDynamicInputTensorAddr", "aclSetDynamicOutputTensorAddr", "aclGetViewShape",
             "aclrtSynchronizeStream")

cdef int32_t ACL_DTYPES[<int>kNumDTypes]             # -1: CANN has no such dtype


def _set_acl_dtypes(dict numbers) -> None:
    """CANN's number of each dtype that it has, by torch's name."""
    for i in range(<int>kNumDTypes):
        ACL_DTYPES[i] = numbers.get(DTYPE_NAMES[i], -1)

_set_acl_dtypes({})

cdef enum:
    ACL_INT64 = 9
    ACL_DOUBLE = 11
    ACL_BOOL = 12
    ACL_COMPLEX128 = 17

cdef NpuApi npu_api
cdef bint npu_ready = False                      # npu_api is filled
cdef dict npu_environment = {}                   # the process's, as os.environ keeps it: read before every op
cdef tuple npu_blocking_names = ()               # its names that, being b"1", make every op waited for
cdef bint npu_blocking_paused = False            # while a graph is captured
cdef object npu_wait = None                      # callable(device): waits for its work
cdef object npu_failed = None                    # callable(op, code, arguments in words, function): the exception to raise
cdef object npu_failed_late = None               # callable(exception of npu_wait, name, arguments in words): the same
cdef object npu_not_destroyed = None             # callable(function, code): says that an object is leaked
cdef object npu_bind_thread = None               # callable(device): gives the calling thread the device's context
cdef vector[NpuCall*] npu_spare_calls            # not in use. A launch may wait, or run Python that launches: each has its own
cdef object npu_rebind = None                    # callable(): fills in CANN's functions again after the runtime ended
cdef dict npu_constants = {}                     # (reading, value, dtype, device) -> what it made


def _npu_bind(list addresses, bind_thread, failed, not_destroyed, rebind):
    """Fills in CANN's functions, in the order of API_NAMES, and the hooks of the backend."""
    global npu_ready, npu_bind_thread, npu_failed, npu_not_destroyed, npu_rebind, destroy_failed
    cdef vector[size_t] given = addresses        # all of them are numbers before one is used
    if given.size() != <size_t>len(API_NAMES):
        raise ValueError(f"expected {len(API_NAMES)} addresses, got {given.size()}")
    memcpy(&npu_api, given.data(), given.size() * sizeof(size_t))
    npu_bind_thread, npu_failed, npu_rebind, npu_ready = bind_thread, failed, rebind, True
    npu_not_destroyed = not_destroyed
    destroy_failed = tell_not_destroyed


cdef void tell_not_destroyed(const char* function, int32_t code) noexcept:
    """Objects go wherever a call is dropped, also while an exception comes: Python must not run with it set."""
    cdef PyObject* kind
    cdef PyObject* value
    cdef PyObject* trace
    PyErr_Fetch(&kind, &value, &trace)
    try:
        npu_not_destroyed(function.decode(), code)
    finally:
        PyErr_Restore(kind, value, trace)


def _npu_set_blocking(dict environment not None, tuple names not None, wait, failed_late):
    """Where the launcher looks whether an op is to be waited for, who waits, and who words the error of that wait."""
    global npu_environment, npu_blocking_names, npu_wait, npu_failed_late
    npu_environment, npu_blocking_names, npu_wait, npu_failed_late = environment, names, wait, failed_late


def _npu_pause_blocking(bint paused):
    """While paused no op is waited for, whatever the environment says."""
    global npu_blocking_paused
    npu_blocking_paused = paused


def _npu_is_blocking():
    """Whether every op is waited for at this moment."""
    return is_blocking()


cdef inline bint is_blocking() except -1:
    cdef PyObject* value
    cdef Py_ssize_t i
    if npu_blocking_paused:
        return False
    for i in range(PyTuple_GET_SIZE(npu_blocking_names)):
        value = PyDict_GetItemWithError(npu_environment, <object>PyTuple_GET_ITEM_(npu_blocking_names, i))
        if value != NULL and <object>value == b"1":
            return True
    return False


cdef int wait_for_op(NpuPlan plan, NpuCall* call, int device) except -1:
    """Waits as torch.npu.synchronize() does; a failure is that of the op."""
    try:
        npu_wait(device)
    except AcceleratorError as error:
        raise npu_failed_late(error, plan.name, call_in_words(plan, call.key))
    return 0


def _npu_is_bound():
    """Whether the launcher has CANN's functions: kept here alone, so that Ctrl-C leaves no two opinions about it."""
    return npu_ready


def _npu_unbind():
    """Forgets prepared calls, constants and CANN's functions: the runtime is about to end."""
    global npu_ready
    npu_constants.clear()
    for i in range(MAX_NPUS):
        npu_prepared[i].clear()
    npu_finished(NULL)                           # CANN's streams end with their work done
    npu_end_lifetime()
    npu_ready = False


def _npu_end_lifetime():
    """No thread has a context any more, whatever it noted."""
    npu_end_lifetime()


def _npu_set_bound(int device):
    """Notes which npu's context the calling thread has now; -1: not known."""
    npu_set_bound(device)


def _npu_prepared_count(int device):
    """How many prepared calls are kept for a device."""
    return npu_prepared[npu_index(device)].size()


# ---- launching --------------------------------------------------------------------------------------------------
cdef NpuCall* take_call() except NULL:
    cdef NpuCall* call
    if npu_spare_calls.empty():
        return new NpuCall()
    call = npu_spare_calls.back()
    npu_spare_calls.pop_back()
    return call


cdef int bind_device(int device) except -1:
    """The calling thread has the device's context, and the launcher CANN's functions."""
    if npu_bound() != device or not npu_ready:
        if npu_bind_thread is None:
            raise RuntimeError("no npu backend is loaded")
        npu_bind_thread(device)
        if not npu_ready:
            npu_rebind()
            if not npu_ready:
                raise RuntimeError("the npu backend has not bound CANN's functions")
        npu_set_bound(device)
    return 0


cdef int bind_again(int device, uint64_t start, NpuHeap heap, size_t workspace) except -1:
    """bind_device() in the middle of a launch, after the heap of its workspace has run Python. Another thread may have
    ended the device meanwhile, and the bind started it again: then the launch has addresses and a stream of the past."""
    bind_device(device)
    if is_past(device, start):
        if workspace:
            npu_heap_free(heap, workspace)
        raise launch_of_the_past(device)
    return 0


cdef inline bint is_past(int device, uint64_t start) noexcept:
    """Whether a device was started again since; start is 0 where the launch itself is its first use."""
    return start != 0 and npu_start_of(device) != start


cdef object launch_of_the_past(int device):
    return RuntimeError(f"npu:{device}: the npu runtime has ended during the launch; make its tensors again")


cdef int npu_launch(NpuPlan plan, tuple results, PyObject** s, int device, bint any_dtype) except -1:
    """1 marshal the arguments  2 find or make a prepared call  3 workspace from the allocator  4 enqueue.
    Returns 0 without a launch where CANN does not take the tensors' dtypes, unless any_dtype; else 1."""
    cdef NpuCall* call
    cdef list keep                               # what must live until the op is queued
    cdef uint64_t hash
    cdef Prepared* known
    cdef uint64_t start = npu_start_of(device)
    any_dtype = any_dtype or plan.fallback is None
    if not plan.kept and not any_dtype and not takes_dtypes(plan, results, s):   # before numbers are drawn for it
        return 0
    call = take_call()
    try:
        call.begin(plan.id)
        keep = marshal(plan, call, results, s, device)
        if is_past(device, start):
            raise launch_of_the_past(device)
        hash = call.end()
        known = npu_prepared[device].find(call.key, hash) if plan.kept else NULL
        if known == NULL and plan.kept and not any_dtype and not takes_dtypes(plan, results, s):
            return 0
        enqueue_call(plan, call, hash, known, device, start)
    except NoDataType:
        if any_dtype:
            raise
        return 0
    finally:
        npu_spare_calls.push_back(call)
    return 1


cdef int enqueue_call(NpuPlan plan, NpuCall* call, uint64_t hash, Prepared* p, int device, uint64_t start) except -1:
    """p: the prepared call that was found, or NULL. start: of the device, when the launch began."""
    cdef PreparedOwner owner
    cdef NpuHeap heap = None
    cdef size_t workspace = 0
    cdef uint64_t stream_number = npu_stream_of(device)
    cdef void* stream = <void*>stream_number
    cdef int32_t code = 0
    if p != NULL and p.workspace:
        call.own_dims()
        heap = npu_heap(device)
        workspace = heap.allocate(p.workspace, stream_number)
        bind_again(device, start, heap, workspace)
        p = npu_prepared[device].find(call.key, hash)    # the allocator may have let another thread run
    # From here on nothing gives the interpreter away, so that no other thread moves this prepared call.
    if p == NULL or not move_to(npu_api, p[0], call[0]):
        if workspace:
            npu_heap_free(heap, workspace)
            workspace = 0
            bind_again(device, start, heap, 0)
        owner = PreparedOwner(new Prepared(npu_api))
        p = owner.get()
        code = p.first_phase(call[0], plan.first)
        if code:
            raise launch_error(plan, code, call.key, p.refused)
        p.repeatable = plan.kept and npu_api.set_repeatable(p.executor) == 0
        if p.workspace:
            heap = npu_heap(device)
            workspace = heap.allocate(p.workspace, stream_number)
            bind_again(device, start, heap, workspace)
    code = second_phase(plan, p, workspace, stream)
    if workspace:
        npu_heap_free(heap, workspace)           # reused in stream order, after this op
    if code:
        raise launch_error(plan, code, call.key, b"")
    if owner.get() != NULL and p.repeatable and npu_prepared[device].find(call.key, hash) == NULL:
        npu_keep(npu_prepared[device], call[0], hash, owner)
    if is_blocking():
        wait_for_op(plan, call, device)
    note_launched(plan, call, device)
    return 0


cdef inline int32_t second_phase(NpuPlan plan, Prepared* p, size_t workspace, void* stream) noexcept:
    cdef void* executor = p.executor
    if not p.repeatable:
        p.executor = NULL                        # used up, also by a phase that fails
    return (<SecondPhase>plan.second)(<void*>workspace, p.workspace, executor, stream)


cdef object launch_error(NpuPlan plan, int32_t code, const CallKey& key, const char* function):
    """function: which one failed where it was neither phase of the op; else empty."""
    return npu_failed(plan.name, code, call_in_words(plan, key), function.decode())


# ---- the doors --------------------------------------------------------------------------------------------------
cdef int npu_kernel(Overload ov, NpuPlan plan, tuple results, PyObject** s) except -1:
    """An op row on an npu; which arguments are numbers or None chooses the plan."""
    cdef TensorBase t = None
    cdef bint any_items = False
    cdef int i
    for item in results:
        if item is not None:
            t = <TensorBase>item
            any_items = any_items or t.count
    if not any_items:
        return 0
    if plan.takes_numbers:
        for i in range(ov.ntensors):
            if is_number_slot(s[ov.tensor_at[i]]) and plan.with_number[ov.tensor_at[i]] is not None:
                plan = <NpuPlan>plan.with_number[ov.tensor_at[i]]
                break
    if plan.needed >= 0 and s[plan.needed] == <PyObject*>None:
        plan = plan.without_optional
    if plan.in_place is not None and PyTuple_GET_ITEM_(results, 0) == s[0]:
        plan = plan.in_place
    if plan.on_empty is not None and is_tensor(s[0]) and (<TensorBase>s[0]).count == 0:
        plan.on_empty(results, python_arguments(ov, s))
    elif plan.on_capture is not None and (<NpuBackend?>backend_of(NPU)).captures:
        plan.on_capture(results, python_arguments(ov, s))
    elif not npu_launch(plan, results, s, t.dev_index, False):
        plan.fallback(results, python_arguments(ov, s))
    return 0


cdef tuple python_arguments(Overload ov, PyObject** s):
    return tuple([<object>s[i] for i in range(ov.nparams)])


cdef bint takes_dtypes(NpuPlan plan, tuple results, PyObject** s):
    """Whether CANN takes tensors of these dtypes and ranks."""
    cdef int i
    cdef PyObject* o
    for i in range(plan.n):
        if plan.source[i] != FROM_CONSTANT and (plan.takes[i] or plan.ranks[i]):
            o = s[plan.at[i]] if plan.source[i] == FROM_PARAM else PyTuple_GET_ITEM_(results, plan.at[i])
            if is_tensor(o) and (plan.takes[i] and not plan.takes[i] >> <int>(<TensorBase>o).dt & 1 or
                                 plan.ranks[i] and not plan.ranks[i] >> (<TensorBase>o).rank & 1):
                return False
    return True


cdef inline bint is_number_slot(PyObject* o):
    return (<TensorBase>o).rank == 0 and (<TensorBase>o).dev == CPU if is_tensor(o) else <object>o is not None


def _npu_call(NpuPlan plan not None, int device, tuple arguments, tuple results=()):
    """Launches a plan whose parameters are the items of arguments."""
    check_counts(plan, arguments, results)
    arguments = without_marks(plan, arguments, results)
    npu_launch(plan, results, tuple_items(arguments), npu_index(device), True)


cdef tuple without_marks(NpuPlan plan, tuple arguments, tuple results):
    """The arguments of a body's own launch, resolved: CANN reads memory."""
    cdef bint found = False
    for item in results:
        if isinstance(item, TensorBase) and (<TensorBase>item).marks:
            raise RuntimeError(f"[{plan.name}] writes to no tensor whose conjugate or negative bit is set")
    for item in arguments:
        found = found or isinstance(item, TensorBase) and (<TensorBase>item).marks
    if not found:
        return arguments
    return tuple([resolved(<TensorBase>item) if isinstance(item, TensorBase) and (<TensorBase>item).marks else item
                  for item in arguments])


cdef int check_counts(NpuPlan plan, tuple arguments, tuple results) except -1:
    if not plan.id:
        raise RuntimeError("the plan was not made")
    if arguments is None or len(arguments) < plan.params or results is None or len(results) < plan.results:
        raise TypeError(f"[{plan.name}] reads {plan.params} parameters and {plan.results} results, got "
                        f"{len(arguments or ())} and {len(results or ())}")
    return 0


def _npu_call_dynamic(NpuPlan plan not None, int device, tuple arguments, tuple results):
    """As _npu_call, for ops that find out how many results there are: waits, then returns the outputs' real shapes."""
    cdef NpuCall* call
    cdef uint64_t start
    check_counts(plan, arguments, results)
    arguments = without_marks(plan, arguments, results)
    start = npu_start_of(npu_index(device))
    call = take_call()
    try:
        call.begin(plan.id)
        keep = marshal(plan, call, results, tuple_items(arguments), device)
        if is_past(device, start):
            raise launch_of_the_past(device)
        call.own_dims()
        return shapes_found(plan, call, device, start)
    finally:
        npu_spare_calls.push_back(call)


cdef list shapes_found(NpuPlan plan, NpuCall* call, int device, uint64_t start):
    """Launches, waits, and reads the outputs' shapes from CANN's tensors."""
    cdef PreparedOwner owner = PreparedOwner(new Prepared(npu_api))
    cdef Prepared* p = owner.get()
    cdef PreparedSlot slot
    cdef int64_t* sizes = NULL
    cdef uint64_t rank = 0
    cdef size_t workspace = 0
    cdef NpuHeap heap = npu_heap(device)
    cdef uint64_t stream_number = npu_stream_of(device)
    cdef void* stream = <void*>stream_number
    cdef int32_t code = p.first_phase(call[0], plan.first)
    cdef bint waited = False
    cdef list shapes = []
    if code:
        raise launch_error(plan, code, call.key, p.refused)
    if p.workspace:
        workspace = heap.allocate(p.workspace, stream_number)
        bind_again(device, start, heap, workspace)
    code = second_phase(plan, p, workspace, stream)
    if not code:
        waited = True
        with nogil:
            code = npu_api.synchronize(stream)
        if code:
            npu_leave_unfinished(stream, owner)
        else:
            npu_finished(stream)
    if workspace:
        npu_heap_free(heap, workspace)
    if code:
        raise launch_error(plan, code, call.key, b"aclrtSynchronizeStream" if waited else b"")
    if is_blocking():
        wait_for_op(plan, call, device)
    for slot in p.slots:
        if slot.output < 0 or slot.object == NULL:
            continue
        code = npu_api.view_shape(slot.object, &sizes, &rank)
        if code:
            raise launch_error(plan, code, call.key, b"aclGetViewShape")
        shapes.append(tuple([sizes[d] for d in range(rank)]))
        free(sizes)                              # CANN allocates it with new[], which is malloc here
    return shapes
