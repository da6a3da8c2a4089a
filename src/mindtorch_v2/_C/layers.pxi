# Layers: whatever stands between the call of an op and its kernel, per thread. From the outside in: function modes and
# __torch_function__, transforms (vmap, forward mode), autocast, autograd, dispatch modes and __torch_dispatch__.
# A thread without any pays one test for all of them; autograd looks at its inputs where the op runs.

cdef object run_layers(Op op, Overload ov, Binding* b, PyObject** args, Py_ssize_t nargs, PyObject* kwnames):
    """The call, offered to each layer from the outside in."""
    if not modes().function_off and (b.foreign or has_function_modes()):
        result = call_override(op, args, nargs, kwnames)
        if result is not NotImplemented:
            return result
    if modes().transforms:
        result = call_transforms(op, ov, b)
        if result is not NotImplemented:
            return result
    if modes().autocast and b.out == NULL and op.inplace_of is None and not ov.mutates:
        return run_autocast(op, ov, b)
    return run_inner(op, ov, b)


cdef object run_inner(Op op, Overload ov, Binding* b):
    """The layers below autocast, then the op."""
    if b.foreign and has_marks(ov, b):
        return run_marked(op, ov, b)
    return run_dispatched(op, ov, b)


cdef object run_dispatched(Op op, Overload ov, Binding* b):
    if b.foreign or modes().dispatch_mode_count:
        result = call_dispatch(op, ov, b)
        if result is not NotImplemented:
            return result
    return run(op, ov, b)


# ---- function modes -------------------------------------------------------------------------------------------------
cdef bint has_function_modes():
    """Counts anew: another thread may have taken out a mode that it did not open."""
    if modes().function_mode_count:
        modes().function_mode_count = count_modes(own_stacks().function_modes)
    return modes().function_mode_count > 0


cdef unsigned char count_modes(list stack) except 0xff:
    if len(stack) > 254:
        raise RecursionError("more than 254 nested modes")
    return <unsigned char>len(stack)


def _push_function_mode(mode):
    cdef list stack = own_stacks().function_modes
    modes().function_mode_count = count_modes(stack + [mode])
    stack.append(mode)


def _pop_function_mode():
    cdef list stack = own_stacks().function_modes
    mode = stack.pop()
    modes().function_mode_count = count_modes(stack)
    return mode


def _function_mode_stack():
    """The running thread's list of active modes, innermost last; others may take modes out of it, not put them in."""
    return own_stacks().function_modes


# ---- transforms -----------------------------------------------------------------------------------------------------
cdef object call_transforms(Op op, Overload ov, Binding* b):
    """Asks the open transforms from the innermost out. What a transform calls is seen by those outside it only."""
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
                return result
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


cdef int bind_slots(Op op, Overload ov, tuple slots, object out, Binding* b) except -1:
    """Binds one value to each parameter of an overload, the keyword-only ones too."""
    cdef PyObject* o
    cdef int p
    if ov not in op.rows:
        raise ValueError(f"{ov.name} is not a row of {op.name}")
    if len(slots) != ov.nparams:
        raise TypeError(f"{op.name}() has {ov.nparams} parameters, got {len(slots)} values")
    b.out = NULL
    b.foreign = False
    if out is not None:
        b.out = <PyObject*>out
        b.foreign = is_odd_out(b.out)
    for p in range(ov.nparams):
        o = PyTuple_GET_ITEM_(slots, p)
        if not fits(ov, p, o) and (ov.required[p] or <object>o is not ov.defaults[p]) and \
                not (ov.one_int and ov.kind[p] == K_INTS and PyLong_CheckExact(<object>o)):
            raise TypeError(f"{op.name}(): argument '{ov.names[p]}' must be {KIND_WORDS[ov.kind[p]]}, "
                            f"not {type(<object>o).__name__}")
        accept(ov, p, o, b)
    return 0


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


cdef object call_at(object answer, unsigned char depth):
    """answer() where only the outer `depth` transforms are seen."""
    cdef unsigned char here = modes().transforms
    modes().transforms = depth
    try:
        return answer()
    finally:
        modes().transforms = here


cdef object record_around(Op op, Overload ov, Binding* b, bint grad, object answer, unsigned char depth):
    """The result that answer() gives for an op, with the history that the op would have given it."""
    cdef bint changes = op.inplace_of is not None or ov.mutates
    cdef TensorBase self, r
    cdef Node node = None
    cdef object original = None
    if changes and is_tensor(b.slot[0]):
        self = <TensorBase>b.slot[0]
        grad = grad and is_differentiable(self.dt) and ov.formulas is not None
        check_inplace(self, grad)
        if grad:
            original = keep_original(ov, self, b.slot)
            if original is not None:
                b.slot[0] = <PyObject*>original
            node = record(ov, b.slot)
        result = call_at(answer, depth)
        bump_version(self)
        if node is not None:
            finish_inplace(node, ov, self)
        return result
    result = call_at(answer, depth)
    if b.out != NULL:
        return result
    if ov.family == F_VIEW and ov.native_id == V_DETACH:
        return result
    if ov.family == F_VIEW and is_tensor(<PyObject*>result) and is_tensor(b.slot[0]):
        self, r = <TensorBase>b.slot[0], <TensorBase>result
        r.creation = self.creation if modes().grad else VIEW_NO_GRAD
        if r.base is None and r is not self:
            r.base = self if self.base is None else self.base
            if self.shared_version == NULL:
                make_version(self)
            share_version(r, self)
            r.view_version = version_of(r)
    if grad:
        if ov.nreturns > 1 and not (isinstance(result, (tuple, list)) and len(result) == ov.nreturns):
            raise TypeError(f"{op.name} has {ov.nreturns} results, but a handler gave {type(result).__name__}"
                            + (f" of {len(result)}" if isinstance(result, (tuple, list)) else ""))
        record_results(ov, b.slot, without_history(result))
    return result


cdef tuple without_history(object result):
    """The tensors of a result that have no history yet; None in the place of everything else."""
    cdef list found = []
    for item in result if isinstance(result, (tuple, list)) else (result,):
        found.append(item if isinstance(item, TensorBase) and not (<TensorBase>item).requires else None)
    return tuple(found)


# ---- dispatch modes -------------------------------------------------------------------------------------------------
def _push_dispatch_mode(mode):
    cdef list stack = own_stacks().dispatch_modes
    modes().dispatch_mode_count = count_modes(stack + [mode])
    stack.append(mode)


def _pop_dispatch_mode():
    cdef list stack = own_stacks().dispatch_modes
    mode = stack.pop()
    modes().dispatch_mode_count = count_modes(stack)
    return mode


def _dispatch_mode_stack():
    """The running thread's dispatch modes, innermost last."""
    return own_stacks().dispatch_modes[:]


cdef list dispatch_classes(Overload ov, PyObject** s):
    """The tensors among the arguments whose classes have a __torch_dispatch__, one of each class, subclasses first."""
    cdef list found = []
    cdef int i
    for i in range(ov.ntensors):
        o = <object>s[ov.tensor_at[i]]
        for item in o if isinstance(o, (tuple, list)) else (o,):
            tp = type(item)
            if not isinstance(item, TensorBase) or <PyTypeObject*>tp == tensor_type or \
                    <PyTypeObject*>tp == parameter_type or tp in [type(x) for x in found]:
                continue
            fn = getattr(tp, "__torch_dispatch__", None)
            if fn is None or fn is disabled_function:
                continue
            at = len(found)
            for k in range(len(found)):
                if issubclass(tp, type(found[k])):
                    at = k
                    break
            found.insert(at, item)
    return found


cdef object call_dispatch(Op op, Overload ov, Binding* b):
    """The result that a dispatch mode or a tensor class gives for an op, recorded where a gradient is needed;
    NotImplemented where none takes part, and for composites, whose parts come here."""
    cdef list found = []
    if b.foreign:
        result = ask_owner(op, ov, b)
        if result is not NotImplemented:
            return result
        found = dispatch_classes(ov, b.slot)
    if not found and not modes().dispatch_mode_count or ov.family == F_COMPOSITE and ov.body is not None:
        return NotImplemented
    if ov.family == F_NATIVE and (ov.native_id == N_RESHAPE or ov.native_id == N_CONTIGUOUS):
        return NotImplemented                    # composites too, but for their speed: they are views and clones
    args, kwargs = call_arguments(ov, b)
    return record_around(op, ov, b, wants_grad(ov, b.slot), lambda: ask_dispatch(op, ov, found, args, kwargs),
                         modes().transforms)


cdef object ask_owner(Op op, Overload ov, Binding* b):
    """The answer of a class that computes all ops of its tensors by itself, composites and history included (see _sparse);
    NotImplemented where no argument is of such a class, and where it leaves a composite to its parts."""
    cdef object owner = None
    cdef int p
    for p in range(ov.nparams):
        if ov.kind[p] == K_TENSOR or ov.kind[p] == K_TENSORS:
            owner = owner_of(<object>b.slot[p])
        elif ov.kind[p] == K_LAYOUT and <object>b.slot[p] is not None:
            owner = (<layout>b.slot[p]).owner
        if owner is not None:
            break
    else:
        owner = None if b.out == NULL else owner_of(<object>b.out)
    if owner is None:
        return NotImplemented
    return owner.interpose(op, ov, tuple([<object>b.slot[p] for p in range(ov.nparams)]),
                           None if b.out == NULL else <object>b.out)


cdef object owner_of(object value):
    """The class of a tensor, or of the first in a list, that answers every op itself; None: there is none."""
    if isinstance(value, TensorBase):
        return getattr(type(value), "_owner", None)
    if isinstance(value, (tuple, list)):
        for item in value:
            owner = getattr(type(item), "_owner", None) if isinstance(item, TensorBase) else None
            if owner is not None:
                return owner
    return None


cdef tuple call_arguments(Overload ov, Binding* b):
    """The arguments of a call without those that are defaults, as (args, kwargs)."""
    cdef int i, n = ov.npositional
    cdef dict keywords = {}
    while n > 0 and not ov.required[n - 1] and is_default(ov, n - 1, b.slot[n - 1]):
        n -= 1
    for i in range(ov.npositional, ov.nparams):
        if ov.required[i] or not is_default(ov, i, b.slot[i]):
            keywords[ov.names[i]] = <object>b.slot[i]
    if b.out != NULL:
        keywords["out"] = <object>b.out
    return tuple([<object>b.slot[i] for i in range(n)]), keywords


cdef bint is_default(Overload ov, int p, PyObject* o):
    if <object>o is ov.defaults[p]:
        return True
    return not is_tensor(o) and type(<object>o) is type(ov.defaults[p]) and <object>o == ov.defaults[p]


cdef object ask_dispatch(Op op, Overload ov, list found, tuple args, dict kwargs):
    """Nothing is recorded inside: autograd stands above."""
    cdef bint grad = modes().grad
    func = op_overload(op, ov)
    types = tuple([type(x) for x in found])
    modes().grad = False
    try:
        if modes().dispatch_mode_count:
            mode = _pop_dispatch_mode()          # it does not see what its own handler calls
            try:
                result = mode.__torch_dispatch__(func, types, args, kwargs)
            finally:
                _push_dispatch_mode(mode)
            if result is not NotImplemented:
                return result
        for x in found:
            result = type(x).__torch_dispatch__(func, types, args, kwargs)
            if result is not NotImplemented:
                return result
    finally:
        modes().grad = grad
    raise TypeError(f"Multiple dispatch failed for '{func}'; all __torch_dispatch__ handlers returned NotImplemented: "
                    f"{list(types)}")


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
    t.st.shrunk = True                           # whoever reads its memory must look whether there is any
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
        raise RuntimeError(f"Expected tangent of shape {list(shape_of(t))}, got {list(shape_of(<TensorBase>tangent))}")
    return tangent
