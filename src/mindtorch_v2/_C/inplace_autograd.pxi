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
        set_link(slices, i, <object>node.links[i])
        slices.target_nr[i] = node.target_nr[i]
    slices.base_strides = tuple([base.strides[i] for i in range(base.rank)])
    attach(slices, base, 0, None)
    view.requires = True
    view.view_version = version_of(view) - 1     # stale: refresh_view makes its history anew from the base
    refresh_view(view)
    return 0


cdef class CopySlices(Node):
    """Backward of an in-place change through a view."""

    def name(self):
        return "torch::autograd::CopySlices"

    def apply(self, grad):
        if self.inner is None:
            raise RuntimeError(RELEASED)
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
    if alike and (a.dt != b.dt or a.dev != b.dev or
                  was.layout is not got.layout and Py_TYPE(<PyObject*>a) == tensor_type):
        raise RuntimeError(f"hook '{name}' has changed the type of value (was {kind_word(a)} got {kind_word(b)})")
    if alike and not same_shape(a, b):
        raise RuntimeError(f"hook '{name}' has changed the size of value")
    return got


cdef str kind_word(TensorBase t):
    """What errors of the engine call the kind of a tensor."""
    cdef PyTypeObject* tp = Py_TYPE(<PyObject*>t)
    if tp != tensor_type and tp != parameter_type or t.dev != CPU and t.dev != META:
        return (<object>t).type()
    return tensor_word(t) if t.dev == CPU else f"Meta{type_word(t.dt)}Type"


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
    if RETAIN in hooks and grad is not None:
        hooks[RETAIN](grad)
    return grad
