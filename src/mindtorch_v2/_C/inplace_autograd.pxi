# What in-place changes do to history: of the tensor itself, of its base, of the base's other views.

cdef object keep_original(Overload ov, TensorBase self, PyObject** s):
    """A copy of self with self's history, when a formula (or a composite's) reads self's value from before."""
    cdef int i, j
    cdef TensorBase copy
    cdef Formula f
    cdef uint64_t mask = 0
    cdef PyObject* o
    cdef bint reads = ov.formulas is None and not ov.mutates
    for f in ov.formulas or ():
        for i in range(f.ninputs):
            o = s[ov.tensor_at[f.inputs[i]]]
            if ov.has_list or (is_tensor(o) and needs_grad(<TensorBase>o)):
                mask |= f.mask
    for j in range(ov.nsaved):
        reads = reads or (mask >> j & 1 and ov.saved_kind[j] == S_VALUE and ov.saved_param[j] == 0)
    if not reads:
        return None
    refresh_view(self)
    if Py_TYPE(<PyObject*>self) != tensor_type and Py_TYPE(<PyObject*>self) != parameter_type:
        copy = tensor_arg(hot_call1(hot.clone, (<object>self)._fresh()))
    else:
        copy = new_like_format(self, self.dt, PRESERVE, self.dev, self.dev_index)
        copy_into(copy, self)
    copy.requires, copy.fn, copy.output_nr = self.requires, self.fn, self.output_nr
    return copy


cdef int finish_inplace(Node node, Overload ov, TensorBase self) except -1:
    """self's history is now node."""
    cdef TensorBase base
    cdef PyObject* result = <PyObject*>self
    if self.base is None:
        attach(node, self, 0, ov)
        return 0
    save_results(node, ov, &result, 1)
    base = self.base
    note_output(node, self, 0)
    rebase_view(node, self, base)
    return 0


cdef int rebase_view(Node node, TensorBase view, TensorBase base) except -1:
    """A view was changed in place: the base's history is 'its old value with that slice replaced'."""
    cdef CopySlices slices = CopySlices.__new__(CopySlices)
    cdef int i, n = node.ntargets
    if n == 0:
        raise RuntimeError(f"{node.name()} changes a view in place, but is connected to no input")
    slices.inner = node
    slices.view_shape, slices.view_strides, slices.view_offset = geometry_of(view)
    slices.view_dt, slices.view_marks, slices.base_marks = view.dt, view.marks, base.marks
    slices.view_offset -= base.offset * itemsize(<DType>base.dt) // itemsize(<DType>view.dt)
    make_links(slices, n, 0)
    if base.requires:
        connect(slices, 0, base)
    for i in range(1, n):
        set_link(slices, i, node.links[i])
        slices.target_nr[i] = node.target_nr[i]
    slices.base_strides = tuple([base.strides[i] for i in range(base.rank)])
    attach(slices, base, 0, None)
    view.requires = True
    view.view_version = version_of(view) - 1     # stale: refresh_view makes its history anew from the base
    refresh_view(view)
    return 0


cdef object as_viewed(TensorBase t, int dt):
    """All of t's memory in the dtype of a view of it; offsets count from t's first item."""
    if t.dt == dt:
        return t
    if t.dt >= kComplexFloat:
        return hot_call1(hot.view_as_real, t)
    return hot_call1(hot.view_as_complex, t.as_strided((t.st.nbytes // itemsize(<DType>t.dt) // 2, 2), (2, 1), 0))


cdef class CopySlices(Node):
    """Backward of an in-place change through a view."""
    cdef Node inner
    cdef tuple view_shape, view_strides, base_strides
    cdef int64_t view_offset
    cdef int view_dt, view_marks, base_marks

    def name(self):
        return "torch::autograd::CopySlices"

    def apply(self, grad):
        whole, part = self.parts(grad)
        grads = gradients_of(self.inner, part.clone())
        if modes().grad:                         # the part's own history reads whole: write to another copy
            whole, part = self.parts(grad)
        if grads[0] is None:
            part.zero_()
        else:
            part.copy_(grads[0])
        return (whole, *grads[1:])

    def parts(self, grad):
        """A copy of grad in the base's memory layout, and the view of it; both read as the marks of base and view say."""
        memory = grad.new_empty_strided(grad.shape, self.base_strides)
        whole = flipped(memory, self.base_marks)
        whole.copy_(grad)
        part = as_viewed(memory, self.view_dt).as_strided(self.view_shape, self.view_strides, self.view_offset)
        return whole, flipped(part, self.view_marks)


cdef int refresh_view(TensorBase t) except -1:
    """A view whose base was changed in place since gets its history anew: an as_strided of the base."""
    cdef PyObject* s[4]
    cdef Node node
    cdef TensorBase base = t.base
    cdef uint64_t number
    cdef bint mode
    if base is None or t.view_version == version_of(t) or not base.requires or base.fn is None:
        return 0
    if t.creation != VIEW_NORMAL:
        raise view_error(t, "its base or another view of its base has been modified inplace")
    shape, strides, offset = geometry_of(t)
    mode = modes().grad
    modes().grad = True
    try:
        source = tensor_arg(as_viewed(<TensorBase>flipped(base, base.marks), t.dt))
        s[0], s[1], s[2], s[3] = <PyObject*>source, <PyObject*>shape, <PyObject*>strides, <PyObject*>offset
        if t.marks:
            node = marking_node(t, run_view(<Overload>hot.as_strided.rows[0], s))
        else:
            node = record(<Overload>hot.as_strided.rows[0], s)
    finally:
        modes().grad = mode
    attach(node, t, 0, None)
    number = (<Node>base.fn).sequence + SEQUENCE_STEP - 1
    while node is not base.fn:                   # at most seven: as_strided, two where the dtype differs, four of marks
        node.sequence = number
        number -= 1
        node = node.links[0]
    t.view_version = version_of(t)
    return 0


cdef object view_error(TensorBase t, str what):
    """Why a view that is not VIEW_NORMAL has no history after an in-place change."""
    if t.fn is None:
        text = f"A view was created in no_grad mode and {what} with grad mode enabled."
    else:
        text = f"Output {t.output_nr} of {forward_name(<Node>t.fn)} is a view and {what}."
    if t.creation == VIEW_MULTI_OUTPUT:
        return RuntimeError(f"{text} This view is the output of a function that returns multiple views. Such functions do "
                            "not allow the output views to be modified inplace. You should replace the inplace operation "
                            "by an out-of-place one.")
    return RuntimeError(f"{text} Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify "
                        "your code by moving both the view and the inplace either both inside the no_grad block (if you "
                        "don't want the inplace to be tracked) or both outside (if you want the inplace to be tracked).")


cdef str forward_name(Node node):
    return node.name().rstrip("0123456789").removesuffix("Backward")


def _many_views(views):
    """Marks what one call gave as several views of one tensor: they may not be changed in place."""
    cdef TensorBase t
    for view in views:
        t = tensor_arg(view)
        if t.base is not None and t.creation == VIEW_NORMAL:
            t.creation = VIEW_MULTI_OUTPUT
    return views


cdef tuple run_many_views(Overload ov, PyObject** s):
    """A composite that gives several views of self and has a formula: made unrecorded, they are outputs of one node, so
    that their gradients are joined at once."""
    cdef TensorBase self = <TensorBase>s[0], t
    cdef Node node
    cdef tuple views
    cdef int i
    modes().grad = False
    try:
        views = PyObject_Vectorcall(ov.body, s, ov.nparams, NULL)
    finally:
        modes().grad = True
    node = record(ov, s) if views else None
    for i in range(<int>len(views) - 1, -1, -1):  # the last first: it makes room for all
        t = tensor_arg(views[i])
        attach(node, t, i, None)
        t.creation = VIEW_MULTI_OUTPUT if self.creation == VIEW_NORMAL else self.creation
    return views


# ---- hooks -----------------------------------------------------------------------------------------------------------
cdef object hook_value(object hook, object was, object got, bint alike):
    """A gradient that a hook put in the place of another; alike: it must be of the same kind."""
    cdef TensorBase a, b
    if got is None:
        return None
    if not isinstance(got, TensorBase):
        raise TypeError(f"expected Variable, but hook returned '{builtin_type(got).__name__}'")
    if was is None:
        raise RuntimeError("can't replace a None gradient with a non-None value")
    a, b = <TensorBase>was, <TensorBase>got
    name = getattr(hook, "__name__", builtin_type(hook).__name__)
    if alike and (a.dt != b.dt or a.dev != b.dev):
        raise RuntimeError(f"hook '{name}' has changed the type of value (was {was.type()} got {got.type()})")
    if alike and not same_shape(a, b):
        raise RuntimeError(f"hook '{name}' has changed the size of value")
    return got


cdef list hook_values(object hook, list were, object got, bint alike):
    if not isinstance(got, tuple):
        raise TypeError(f"expected tuple, but hook returned '{builtin_type(got).__name__}'")
    if len(got) != len(were):
        raise RuntimeError(f"hook '{getattr(hook, '__name__', builtin_type(hook).__name__)}' has returned an incorrect number "
                           f"of values (got {len(got)}, but expected {len(were)})")
    return [hook_value(hook, was, new, alike) for was, new in zip(were, tuple(got))]


cdef object run_tensor_hooks(dict hooks, object grad):
    for key, hook in list(hooks.items()):
        if key != RETAIN:
            changed = hook(grad)
            if changed is not None:
                grad = hook_value(hook, grad, changed, True)
    if RETAIN in hooks:
        hooks[RETAIN](grad)
    return grad
