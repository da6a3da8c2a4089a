# The layers below autocast: autograd records what dispatch modes and __torch_dispatch__ give for an op.

cdef object call_at(object answer, unsigned char depth):
    """answer() where only the outer `depth` transforms are seen."""
    cdef unsigned char here = modes().transforms
    modes().transforms = depth
    try:
        return answer()
    finally:
        modes().transforms = here


cdef tuple without_history(object result):
    """The tensors of a result that have no history yet; None in the place of everything else."""
    cdef list found = []
    for item in result if isinstance(result, (tuple, list)) else (result,):
        found.append(item if isinstance(item, TensorBase) and not (<TensorBase>item).requires else None)
    return tuple(found)


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
        return self if isinstance(result, TensorBase) else result    # as in torch, whatever tensor the handler gave
    result = call_at(answer, depth)
    if b.out != NULL:
        return result
    if ov.family == F_VIEW and ov.native_id == V_DETACH:
        return result
    if ov.family == F_VIEW and is_tensor(<PyObject*>result) and is_tensor(b.slot[0]):
        self, r = <TensorBase>b.slot[0], <TensorBase>result
        r.creation = self.creation if modes().grad else VIEW_INFERENCE if modes().inference else VIEW_NO_GRAD
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


def _set_classes_off(bint off):
    """Whether __torch_dispatch__ of classes is passed over in this thread; returns what was set before."""
    cdef ThreadStacks own = own_stacks()
    before, own.classes_off = own.classes_off, off
    return before


def _mark(TensorBase t not None, bint conj, bint neg):
    """Sets how the items of a tensor are read, without a view."""
    if conj and t.dt < kComplexFloat:
        raise RuntimeError("only complex tensors can be read conjugated")
    t.marks = (MARK_CONJ if conj else 0) | (MARK_NEG if neg else 0)


cdef list dispatch_classes(Overload ov, PyObject** s):
    """The tensors among the arguments whose classes have a __torch_dispatch__, one of each class, subclasses first."""
    cdef list found = []
    cdef int i
    if own_stacks().classes_off:
        return found
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


cdef bint is_default(Overload ov, int p, PyObject* o):
    if <object>o is ov.defaults[p]:
        return True
    return not is_tensor(o) and type(<object>o) is type(ov.defaults[p]) and <object>o == ov.defaults[p]


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


cdef object ask_dispatch(OpOverload func, list found, tuple args, dict kwargs):
    """Nothing is recorded inside: autograd stands above."""
    cdef bint grad = modes().grad
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
    raise TypeError(none_took(f"torch._ops.{func}", "__torch_dispatch__", types))


def _ask_dispatch(Op op not None, Overload ov not None, tuple slots not None):
    """What the dispatch modes or the classes of the arguments give for a call that a body has come to; NotImplemented where
    there are none."""
    cdef Binding b
    cdef list found
    b.temp = NULL
    try:
        bind_slots(op, ov, slots, None, &b)
        found = dispatch_classes(ov, b.slot) if b.foreign else []
        if not found and not modes().dispatch_mode_count:
            return NotImplemented
        args, kwargs = call_arguments(ov, &b)
        return ask_dispatch(op_overload(op, ov, args, kwargs), found, args, kwargs)
    finally:
        if b.temp != NULL:
            Py_DECREF(<object>b.temp)


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


cdef object call_dispatch(Op op, Overload ov, Binding* b):
    """The result that a dispatch mode or a tensor class gives for an op, recorded where a gradient is needed;
    NotImplemented where none takes part, and for composites, whose parts come here."""
    cdef list found = []
    if b.foreign:
        result = ask_owner(op, ov, b)
        if result is not NotImplemented:
            return result
        found = dispatch_classes(ov, b.slot)
    if not found and not modes().dispatch_mode_count:
        return NotImplemented
    parts = not modes().dispatch_mode_count and any([getattr(type(x), "_takes_parts", False) for x in found])
    if ov.family == F_COMPOSITE and ov.body is not None and \
            (ov.whole == W_PARTS or parts and ov.whole == W_SINGLE or ov.whole >= W_UNRECORDED and wants_grad(ov, b.slot)):
        return NotImplemented
    if ov.family == F_NATIVE and (ov.native_id == N_RESHAPE or ov.native_id == N_CONTIGUOUS):
        return run_in_parts(ov, <TensorBase>b.slot[0], b.slot)
    args, kwargs = call_arguments(ov, b)
    if ov.shown is None or parts:
        func = op_overload(op, ov, args, kwargs)
    else:
        name, more, by_name = ov.shown
        named = {**kwargs, **more}
        func = op_overload(all_ops["torch", name], ov, args, named)
        args, kwargs = (args, named) if by_name else (args + tuple(more.values()), kwargs)
    if ov.shown is not None or ov.whole == W_SINGLE:
        args = without_defaults(func, args)      # torch's may be others than the row's
    return record_around(op, ov, b, wants_grad(ov, b.slot), lambda: ask_dispatch(func, found, args, kwargs), modes().transforms)


cdef object run_part(Op op, tuple slots):
    """An op that another one is made of: dispatch modes see it; the layers above them have seen the whole."""
    cdef Binding b
    cdef Overload ov = <Overload>op.rows[0]
    b.temp = NULL
    try:
        bind_slots(op, ov, slots, None, &b)
        return run_dispatched(op, ov, &b)
    finally:
        if b.temp != NULL:
            Py_DECREF(<object>b.temp)


cdef object run_in_parts(Overload ov, TensorBase self, PyObject** s):
    """reshape() and contiguous(), which are composites of view() and clone() that the core runs as one for their speed."""
    cdef int64_t sizes[MAX_DIMS]
    cdef int64_t strides[MAX_DIMS]
    cdef int n
    contiguous = constants["contiguous_format"]
    if ov.native_id == N_CONTIGUOUS:
        return self if is_in_format(self, s[1]) else \
            run_part(hot.clone, (self, contiguous if <object>s[1] is None else <object>s[1]))
    n = read_ints(<object>s[1], sizes)
    infer_size(self, sizes, n)
    shape = tuple([sizes[i] for i in range(n)])
    if getattr(self, "_has_symbolic_sizes_strides", False):      # a size that follows from others stays open
        shape = tuple([plain_int(item) for item in <object>s[1]])
    if not view_strides(self, sizes, n, strides):
        self = <TensorBase?>run_part(hot.clone, (self, contiguous))
    return run_part(hot.view, (self, shape))


cdef object run_dispatched(Op op, Overload ov, Binding* b):
    """Dispatch modes and __torch_dispatch__, then the op."""
    if b.foreign or modes().dispatch_mode_count:
        result = call_dispatch(op, ov, b)
        if result is not NotImplemented:
            return result
    return run(op, ov, b)
