# Ops over tensors that are read conjugated or negated (copy.pxi): views keep the mark, composites leave it to their parts,
# and whatever reads memory gets resolved copies. A layer of its own, below autocast: other calls do not pay for it.

cdef bint has_marks(Overload ov, Binding* b):
    """Whether an argument, or out=, has a mark."""
    cdef int i
    for i in range(ov.ntensors):
        if any_marked(<object>b.slot[ov.tensor_at[i]]):
            return True
    return b.out != NULL and any_marked(<object>b.out)


cdef bint any_marked(object o):
    if isinstance(o, TensorBase):
        return (<TensorBase>o).marks != 0
    if isinstance(o, (tuple, list)):
        for item in o:
            if isinstance(item, TensorBase) and (<TensorBase>item).marks:
                return True
    return False


cdef object run_marked(Op op, Overload ov, Binding* b):
    """The op on tensors as they are read."""
    cdef bint changes = op.inplace_of is not None or ov.mutates
    if b.out != NULL and any_marked(<object>b.out):
        return run_marked_out(op, ov, b)
    if ov.family == F_VIEW or ov.family == F_NATIVE or \
            ov.family == F_COMPOSITE and ov.body is not None and (ov.mutates or not changes):
        return run_dispatched(op, ov, b)         # native ops copy, and copies look at marks
    if changes and any_marked(<object>b.slot[0]):
        return change_marked(op, ov, b)
    resolve_slots(ov, b, 0)
    return run_dispatched(op, ov, b)


cdef int resolve_slots(Overload ov, Binding* b, int first) except -1:
    """Puts resolved copies, which have the history of what they stand for, into the slots from a tensor's number on."""
    cdef int i, p
    for i in range(first, ov.ntensors):
        p = ov.tensor_at[i]
        if not any_marked(<object>b.slot[p]):
            continue
        if is_tensor(b.slot[p]):
            plain(b, p, with_history(<TensorBase>b.slot[p]))
        else:
            plain(b, p, tuple([with_history(<TensorBase>t) if any_marked(t) else t for t in <object>b.slot[p]]))
    return 0


cdef TensorBase with_history(TensorBase t):
    """t resolved, with its tangents; gradients go where those of t go."""
    cdef TensorBase r = resolved_with_graph(t)
    if t.extra is not None and "tangents" in t.extra:
        r.extra = {"tangents": t.extra["tangents"]}      # what backward saves of it is differentiated forward too
    return r


cdef TensorBase resolved_by_ops(TensorBase t):
    cdef TensorBase r = tensor_arg(flipped(t, t.marks))
    if t.marks & MARK_CONJ:
        r = tensor_arg((<object>r).conj_physical())
    return tensor_arg(hot_call1(hot.neg, r)) if t.marks & MARK_NEG else r


cdef TensorBase resolved_with_graph(TensorBase t):
    cdef TensorBase r
    if is_wrapper(t):                            # its class has the values
        return resolved_by_ops(t)
    if modes().grad and needs_grad(t):
        refresh_view(t)
        if t.fn is None:                         # a leaf: only an op leads to it
            return resolved_by_ops(t)
        r = resolved(t)
        r.requires, r.output_nr = True, t.output_nr
        r.fn = t.fn
        return r
    return resolved(t)


cdef object change_marked(Op op, Overload ov, Binding* b):
    """An in-place op on a marked self: on a copy, which is then written back."""
    cdef TensorBase self = <TensorBase>b.slot[0]
    check_inplace(self, wants_grad(ov, b.slot) and is_differentiable(self.dt), True)
    plain(b, 0, with_history(self))
    resolve_slots(ov, b, 1)
    changed = run_dispatched(op, ov, b)
    return hot_call2(hot.copy_, self, changed)


cdef object run_marked_out(Op op, Overload ov, Binding* b):
    """The op into plain tensors, which are then copied to those that were given."""
    cdef object given = <object>b.out
    cdef tuple outs = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    cdef tuple fresh
    for item in outs:
        tensor_arg(item)
        check_out(op, ov, b.slot, item)
    fresh = tuple([resolved(<TensorBase>item) for item in outs])
    hold(b, fresh)
    b.out = <PyObject*>fresh if isinstance(given, (tuple, list)) else <PyObject*>fresh[0]
    resolve_slots(ov, b, 0)
    run_dispatched(op, ov, b)
    for item, result in zip(outs, fresh):
        if not same_shape(<TensorBase>item, <TensorBase>result):
            resize_tensor(<TensorBase>item, (<TensorBase>result).rank, (<TensorBase>result).sizes)
        hot_call2(hot.copy_, item, result)
    return given


cdef object run_inner(Op op, Overload ov, Binding* b):
    """The layers below autocast, then the op."""
    if b.foreign and has_marks(ov, b):
        return run_marked(op, ov, b)
    return run_dispatched(op, ov, b)
