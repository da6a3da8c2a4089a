# Ops on an npu: the launch of CANN's two phases (launch.h). What a plan is stands in plan.pxi, how it reads a row's
# arguments in marshal.pxi; which aclnn op serves which row, and what CANN is, is decided in _backends/npu.

# ---- launching --------------------------------------------------------------------------------------------------
cdef NpuCall* take_call() except NULL:
    cdef NpuCall* call
    if npu_spare_calls.empty():
        return new NpuCall()
    call = npu_spare_calls.back()
    npu_spare_calls.pop_back()
    return call


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


cdef int wait_for_op(NpuPlan plan, NpuCall* call, int device) except -1:
    """Waits as torch.npu.synchronize() does; a failure is that of the op."""
    try:
        npu_wait(device)
    except AcceleratorError as error:
        raise npu_failed_late(error, plan.name, call_in_words(plan, call.key))
    return 0
