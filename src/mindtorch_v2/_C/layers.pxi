# Layers: whatever stands between the call of an op and its kernel, per thread. From the outside in: function modes and
# __torch_function__, profilers, transforms (vmap, forward mode), autocast, autograd, dispatch modes and __torch_dispatch__.
# A thread without any pays one test for all of them; autograd looks at its inputs where the op runs.

cdef object run_layers(Op called, Overload ov, Binding* b, PyObject** args, Py_ssize_t nargs, PyObject* kwnames):
    """The call, offered to each layer from the outside in."""
    cdef Op op = called.function
    if not modes().function_off and (b.foreign or has_function_modes()):
        result = call_override(called, args, nargs, kwnames)
        if result is not NotImplemented:
            return result
    if modes().watchers:
        return run_watched(op, ov, b)
    return run_below(op, ov, b)


cdef object run_watched(Op op, Overload ov, Binding* b):
    """The call, between begin and end of the profiler that runs."""
    cdef list watchers = own_stacks().watchers
    if not watchers:                             # another thread has closed the last
        modes().watchers = 0
        return run_below(op, ov, b)
    watcher = watchers[-1]
    slots = tuple([<object>b.slot[k] for k in range(ov.nparams)])
    begun = watcher.begin(op, ov, slots)
    result = None
    try:
        result = run_below(op, ov, b)
    finally:
        watcher.end(begun, result)
    return result


def _push_watcher(watcher):
    """Opens a profiler in this thread: every op that is called is told to it. Returns what _pop_watcher takes."""
    cdef list watchers = own_stacks().watchers
    modes().watchers = count_modes(watchers + [watcher])
    watchers.append(watcher)
    return watchers


def _pop_watcher(list watchers not None, watcher):
    """Closes it again; from another thread it is out of use, and the thread's next call finds none."""
    watchers.remove(watcher)
    if watchers is own_stacks().watchers:
        modes().watchers = count_modes(watchers)


cdef object run_below(Op op, Overload ov, Binding* b):
    """The call below profilers and functions: transforms, autocast and what is inside of them."""
    if modes().transforms:
        if modes().level and (op.inplace_of is not None or ov.mutates) and is_tensor(b.slot[0]):
            check_captured(op, ov, b.slot)
        result = call_transforms(op, ov, b)
        if result is not NotImplemented:
            return result
    if modes().autocast and b.out == NULL and op.inplace_of is None and not ov.mutates:
        return run_autocast(op, ov, b)
    return run_inner(op, ov, b)


# ---- transforms -----------------------------------------------------------------------------------------------------
cdef object call_transforms(Op op, Overload ov, Binding* b):
    """Offers the call to the open transforms, innermost first. What a transform calls is seen by those outside it only."""
    cdef list stack = own_stacks().transforms
    cdef unsigned char depth = modes().transforms
    cdef int i = min(<int>depth, <int>len(stack))
    cdef tuple slots = tuple([<object>b.slot[k] for k in range(ov.nparams)])
    out = None if b.out == NULL else <object>b.out
    try:
        while i > 0:
            i -= 1
            modes().transforms = <unsigned char>i
            result = stack[i].interpose(op, ov, slots, out)
            if result is not NotImplemented:
                return ov.returns_class(result) if type(result) is tuple and ov.returns_class is not None and out is None \
                    else result
    finally:
        modes().transforms = depth
    return NotImplemented


def _push_transform(transform):
    """Opens a transform inside those that the running code sees; returns what _pop_transform takes."""
    cdef ThreadStacks own = own_stacks()
    before = (own.transforms, modes().transforms)
    seen = own.transforms[:modes().transforms] + [transform]
    modes().transforms = count_modes(seen)
    own.transforms = seen
    return before


def _pop_transform(tuple before not None):
    cdef list stack
    cdef unsigned char depth
    stack, depth = before
    if depth > len(stack):
        raise ValueError(f"{depth} open transforms of {len(stack)}")
    own_stacks().transforms, modes().transforms = stack, depth


def _transforms():
    """The transforms that the running code sees, innermost last."""
    return own_stacks().transforms[:modes().transforms]


def _call_bound(Op op not None, Overload ov not None, tuple slots not None, out=None):
    """Calls one overload with a value for each of its parameters."""
    cdef Binding b
    b.temp = NULL
    try:
        bind_slots(op, ov, slots, out, &b)
        if b.foreign or modes().interposed():
            return run_layers(op, ov, &b, b.slot, ov.npositional, NULL)
        return run(op, ov, &b)
    finally:
        if b.temp != NULL:
            Py_DECREF(<object>b.temp)


def _call_recorded(Op op not None, Overload ov not None, tuple slots not None, answer):
    """The result of answer(), which a transform gives for an op: its history is that of the op. Only tensors of the
    transform's own class count, for plain ones are recorded below it."""
    cdef Binding b
    cdef unsigned char depth = modes().transforms
    if depth >= len(own_stacks().transforms):
        raise RuntimeError("only a transform that answers a call may record it")
    b.temp = NULL
    modes().transforms = depth + 1               # what is saved of the transform's tensors is its own business
    try:
        bind_slots(op, ov, slots, None, &b)
        return record_around(op, ov, &b, modes().grad and wrapper_requires(ov, b.slot), answer, depth)
    finally:
        modes().transforms = depth
        if b.temp != NULL:
            Py_DECREF(<object>b.temp)


cdef bint wrapper_requires(Overload ov, PyObject** s):
    cdef PyTypeObject* tp
    cdef int i
    for i in range(ov.ntensors):
        o = <object>s[ov.tensor_at[i]]
        for item in o if isinstance(o, (tuple, list)) else (o,):
            tp = Py_TYPE(<PyObject*>item)
            if isinstance(item, TensorBase) and needs_grad(<TensorBase>item) and tp != tensor_type and tp != parameter_type:
                return True
    return False


# ---- tensors that are not memory ------------------------------------------------------------------------------------
def _make_wrapper(cls, size, strides, d, place, bint requires_grad=False, offset=0):
    """A tensor of a subclass with a shape, a dtype and a device, and no memory: its class computes with it."""
    cdef TensorBase t
    cdef int64_t sizes[MAX_DIMS]
    cdef int64_t steps[MAX_DIMS]
    cdef device_type where = as_device(place)
    cdef int rank, dt = dtype_id(d)
    cdef int64_t start
    check_class(cls, <object>tensor_type)
    rank = read_ints(size, sizes)
    if strides is None:
        row_major(rank, sizes, steps)
    elif read_ints(strides, steps) != rank:
        raise ValueError(f"{rank} sizes and {len(strides)} strides")
    start = read_int(offset)
    extent_of(rank, sizes, steps, start)         # refuses what no tensor can have
    t = tensor_of(cls)
    t.st = storage_new(0, CPU, -1)               # there need be no such device
    t.st.shrunk = True                           # a reader of its memory has to check whether there is any
    t.dt, t.dev, t.dev_index = dt, where.code, where.number
    set_geometry(t, rank, sizes, steps, start)
    if requires_grad:
        set_requires(t, True)
    return t


def _take_wrapper(TensorBase t not None, TensorBase source not None):
    """t, a tensor without memory, becomes what source is: its shape, dtype and device, and its history where it has any."""
    if not t.st.shrunk or t.st.nbytes:
        raise RuntimeError("only a tensor without memory can become another")
    set_geometry(t, source.rank, source.sizes, source.strides, source.offset)
    t.dt, t.dev, t.dev_index = source.dt, source.dev, source.dev_index
    bump_version(t)
    if source.requires:
        t.requires, t.output_nr = True, source.output_nr
        t.fn = source.fn                         # last: the end of what was there may run Python


# ---- forward mode ---------------------------------------------------------------------------------------------------
def _tangent(TensorBase t not None, level):
    """What forward mode has noted for t at a level; None: nothing."""
    if t.extra is None:
        return None
    noted = t.extra.get("tangents")
    return None if noted is None else noted.get(level)


def _has_tangents(TensorBase t not None):
    """Whether forward mode has noted anything for t."""
    return t.extra is not None and bool(t.extra.get("tangents"))


def _set_tangent(TensorBase t not None, level, tangent):
    """Notes a tangent (None: takes it out), also for what t's node has saved of t."""
    cdef Node node = <Node>t.fn
    cdef int j
    note_tangent(t, level, tangent)
    if node is None or node.op is None or not node.op.saves_results or node.released:
        return
    for j in range(node.op.nsaved):
        if not node.mask >> j & 1:
            continue
        saved = saved_at(node, j)
        if node.op.saved_kind[j] == S_RESULTS and isinstance(saved, list):
            saved = saved[t.output_nr] if t.output_nr < len(saved) else None
        elif node.op.saved_kind[j] != S_RESULT or node.op.saved_param[j] != t.output_nr:
            continue
        if isinstance(saved, TensorBase):
            note_tangent(<TensorBase>saved, level, tangent)


cdef int note_tangent(TensorBase t, object level, object tangent) except -1:
    if t.extra is None:
        t.extra = {}
    noted = t.extra.setdefault("tangents", {})
    if tangent is None:
        noted.pop(level, None)
    else:
        noted[level] = tangent_arg(t, tangent)
    return 0


cdef object tangent_arg(TensorBase t, object tangent):
    if not same_shape(tensor_arg(tangent), t):
        raise RuntimeError("Trying to set a forward gradient that has a different size than that of the original Tensor, this is "
                           f"not supported. Tensor is of size {list(shape_of(t))} while the given forward gradient is of size "
                           f"{list(shape_of(<TensorBase>tangent))}.")
    return tangent
