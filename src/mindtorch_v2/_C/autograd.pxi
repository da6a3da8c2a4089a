# Recording: nodes of the backward graph, what they save, and what in-place changes do to history.

cdef enum:
    META_DIMS = 6

cdef struct OutMeta:                             # of one forward output: what its gradient must look like
    int rank, dt, dev, index
    int64_t sizes[META_DIMS]
    int64_t* many                                # the sizes when rank > META_DIMS

cdef uint64_t next_sequence = 1
cdef bint anomaly = False
cdef list saved_hooks = []                       # (pack, unpack) pairs, innermost last


@cython.trashcan(True)
cdef class Node:
    """One recorded op: its inputs' nodes, what backward needs, and the formulas that use it."""
    cdef readonly Overload op
    cdef tuple targets                           # per input: Node, leaf Tensor or None
    cdef int32_t* target_nr
    cdef list saved
    cdef uint32_t versions[MAX_SAVED]
    cdef uint64_t mask                           # which saved values are filled
    cdef uint64_t needs                          # which inputs need a gradient
    cdef uint64_t sequence
    cdef int noutputs, saved_outputs
    cdef OutMeta* metas
    cdef OutMeta meta0
    cdef bint released
    cdef list pre_hooks                          # per output: list of dicts of hooks, or None
    cdef dict post_hooks
    cdef dict node_pre_hooks
    cdef public object metadata
    cdef str trace

    def __cinit__(self):
        global next_sequence
        self.sequence = next_sequence
        next_sequence += 1
        self.metas = &self.meta0
        if anomaly:
            self.trace = "".join(traceback.format_stack())

    def __dealloc__(self):
        cdef int i
        if self.target_nr != NULL:
            free(self.target_nr)
        for i in range(self.noutputs):
            if self.metas[i].many != NULL:
                free(self.metas[i].many)
        if self.metas != &self.meta0:
            free(self.metas)

    def name(self):
        return self.op.node_name if self.op is not None else builtin_type(self).__name__

    def __repr__(self):
        return f"<{self.name()} object at {hex(id(self))}>"

    @property
    def next_functions(self):
        return tuple([(AccumulateGrad(t) if isinstance(t, TensorBase) else t, self.target_nr[i])
                      for i, t in enumerate(self.targets or ())])

    def _sequence_nr(self):
        return self.sequence

    @property
    def _input_metadata(self):
        return [meta_shape(&self.metas[i]) for i in range(self.noutputs)]

    def register_hook(self, fn):
        if self.post_hooks is None:
            self.post_hooks = {}
        return add_hook(self.post_hooks, fn)

    def register_prehook(self, fn):
        if self.node_pre_hooks is None:
            self.node_pre_hooks = {}
        return add_hook(self.node_pre_hooks, fn)

    def __getattr__(self, name):
        if name.startswith("_saved_") and self.op is not None:
            return saved_attribute(self, name[7:])
        raise AttributeError(f"'{self.name()}' object has no attribute '{name}'")

    # For custom functions: Python classes derive from Node and give apply(self, *grads).
    def _set_inputs(self, tuple inputs):
        """Connects the node to the tensors (or other objects, which get no gradient) it was computed from."""
        cdef int i
        self.target_nr = <int32_t*>calloc(max(1, len(inputs)), sizeof(int32_t))
        targets = []
        for i, item in enumerate(inputs):
            if isinstance(item, TensorBase) and (<TensorBase>item).requires:
                targets.append(edge_of(<TensorBase>item, &self.target_nr[i]))
                if i < 64:
                    self.needs |= <uint64_t>1 << i
            else:
                targets.append(None)
        self.targets = tuple(targets)

    def _attach(self, TensorBase out, int nr):
        """Makes out the node's output number nr."""
        attach(self, out, nr, None)

    def _needs_input_grad(self, int i):
        return i < len(self.targets) and self.targets[i] is not None


class AccumulateGrad:
    """What stands for a leaf tensor among a node's next_functions."""

    def __init__(self, variable):
        self.variable = variable

    def name(self):
        return "torch::autograd::AccumulateGrad"

    def __eq__(self, other):
        return isinstance(other, AccumulateGrad) and other.variable is self.variable

    def __hash__(self):
        return hash(id(self.variable))

    @property
    def next_functions(self):
        return ()

    def register_hook(self, fn):
        return self.variable.register_post_accumulate_grad_hook(lambda t: fn((), (t.grad,)) and None)


class RemovableHandle:
    """Removes a hook."""
    _next_id = 0

    def __init__(self, hooks):
        self.hooks = hooks
        self.id = RemovableHandle._next_id
        RemovableHandle._next_id += 1

    def remove(self):
        self.hooks.pop(self.id, None)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.remove()


cdef object add_hook(dict hooks, object fn):
    handle = RemovableHandle(hooks)
    hooks[handle.id] = fn
    return handle


cdef tuple meta_shape(OutMeta* m):
    cdef int64_t* sizes = m.many if m.many != NULL else m.sizes
    return tuple([sizes[i] for i in range(m.rank)])


cdef object edge_of(TensorBase t, int32_t* nr):
    """Where a gradient for t goes: a node and output number, or the leaf itself."""
    refresh_view(t)
    if t.fn is None:
        nr[0] = 0
        return t
    nr[0] = t.output_nr
    return t.fn


cdef Node record(Overload ov, PyObject** s):
    """A node for this call: edges to the inputs, and what the needed formulas will read."""
    cdef Node node = Node.__new__(Node)
    cdef PyObject* o
    cdef int i, j, p, at = 0, total = ov.ntensors
    cdef uint64_t mask = 0
    cdef Formula f
    cdef tuple targets
    cdef object target
    node.op = ov
    if ov.has_list:
        return record_lists(node, ov, s)
    targets = PyTuple_New(total)
    node.target_nr = <int32_t*>malloc(max(1, total) * sizeof(int32_t))
    for i in range(total):
        o = s[ov.tensor_at[i]]
        target = None
        node.target_nr[i] = 0
        if is_tensor(o) and (<TensorBase>o).requires:
            target = edge_of(<TensorBase>o, &node.target_nr[i])
            node.needs |= <uint64_t>1 << i
        Py_INCREF(target)
        PyTuple_SET_ITEM(targets, i, target)
    node.targets = targets
    save_inputs(node, ov, s)
    return node


cdef Node record_lists(Node node, Overload ov, PyObject** s):
    """record() for an op with a Tensor[]: every item of the list is an input."""
    cdef list flat = []
    cdef int i
    for i in range(ov.ntensors):
        o = <object>s[ov.tensor_at[i]]
        if ov.kind[ov.tensor_at[i]] == K_TENSORS:
            flat.extend(o or ())
        else:
            flat.append(o)
    node._set_inputs(tuple(flat))
    # needs counts parameters here, not list items
    node.needs = 0
    at = 0
    for i in range(ov.ntensors):
        o = <object>s[ov.tensor_at[i]]
        width = len(o or ()) if ov.kind[ov.tensor_at[i]] == K_TENSORS else 1
        if any([t is not None for t in node.targets[at:at + width]]):
            node.needs |= <uint64_t>1 << i
        at += width
    save_inputs(node, ov, s)
    return node


cdef int save_inputs(Node node, Overload ov, PyObject** s) except -1:
    cdef Formula f
    cdef uint64_t mask = 0
    cdef int i, j, p
    cdef TensorBase t
    for f in ov.formulas:
        for i in range(f.ninputs):
            if node.needs >> f.inputs[i] & 1:
                mask |= f.mask
                break
    node.mask = mask
    if mask == 0:
        return 0
    node.saved = [None] * ov.nsaved
    for j in range(ov.nsaved):
        if not (mask >> j & 1):
            continue
        p = ov.saved_param[j]
        if ov.saved_kind[j] == S_VALUE:
            value = <object>s[p]
            if isinstance(value, TensorBase):
                save_tensor(node, j, <TensorBase>value)
            else:
                node.saved[j] = value
        elif ov.saved_kind[j] == S_SHAPE:
            node.saved[j] = shapes_of(<object>s[p])
        elif ov.saved_kind[j] == S_DTYPE:
            value = <object>s[p]
            node.saved[j] = dtypes[(<TensorBase>value).dt] if isinstance(value, TensorBase) else None
        elif ov.saved_kind[j] == S_DEVICE:
            value = <object>s[p]
            node.saved[j] = device_object((<TensorBase>value).dev, (<TensorBase>value).dev_index)
    return 0


cdef object shapes_of(object value):
    if isinstance(value, TensorBase):
        return shape_of(<TensorBase>value)
    if isinstance(value, (tuple, list)):
        return [shapes_of(v) for v in value]
    return ()


cdef class Packed:
    """A saved tensor that saved_tensors_hooks has packed."""
    cdef object value, unpack


cdef int save_tensor(Node node, int j, TensorBase t) except -1:
    cdef Packed packed
    node.versions[j] = version_of(t)
    if t.inference:
        raise RuntimeError("Inference tensors cannot be saved for backward. To work around you can make a clone to "
                           "get a normal tensor and use it in autograd.")
    if saved_hooks:
        pack, unpack = saved_hooks[-1]
        packed = Packed.__new__(Packed)
        with _no_grad_and_hooks():
            packed.value, packed.unpack = pack(t), unpack
        node.saved[j] = packed
    else:
        node.saved[j] = t
    return 0


class _no_grad_and_hooks:
    """Inside: nothing recorded, no saved-tensor hooks."""

    def __enter__(self):
        self.grad = modes().grad
        self.hooks = saved_hooks[:]
        modes().grad = False
        del saved_hooks[:]

    def __exit__(self, *exc):
        modes().grad = self.grad
        saved_hooks[:] = self.hooks


cdef int save_results(Node node, Overload ov, tuple results) except -1:
    """Saves outputs that formulas read: as aliases without history, so that no cycle keeps the graph alive."""
    cdef int j
    for j in range(ov.nsaved):
        if not (node.mask >> j & 1):
            continue
        if ov.saved_kind[j] == S_RESULT and results[ov.saved_param[j]] is not None:
            save_tensor(node, j, alias(<TensorBase>results[ov.saved_param[j]]))
        elif ov.saved_kind[j] == S_RESULTS:
            node.saved[j] = [None if r is None else alias(<TensorBase>r) for r in results]
    return 0


cdef int attach(Node node, TensorBase out, int nr, Overload ov) except -1:
    """out becomes the node's output number nr."""
    cdef OutMeta* m
    cdef OutMeta* grown
    cdef int i
    if nr >= node.noutputs:
        if nr > 0:
            grown = <OutMeta*>calloc(nr + 1, sizeof(OutMeta))
            for i in range(node.noutputs):
                grown[i] = node.metas[i]
            if node.metas != &node.meta0:
                free(node.metas)
            node.metas = grown
        node.noutputs = nr + 1
    m = &node.metas[nr]
    m.rank, m.dt, m.dev, m.index = out.rank, out.dt, out.dev, out.dev_index
    if out.rank <= META_DIMS:
        memcpy(m.sizes, out.sizes, out.rank * sizeof(int64_t))
    else:
        m.many = <int64_t*>malloc(out.rank * sizeof(int64_t))
        memcpy(m.many, out.sizes, out.rank * sizeof(int64_t))
    out.fn = node
    out.output_nr = nr
    out.requires = True
    if ov is not None and node.mask and ov.nreturns == 1:
        save_results(node, ov, (out,))
    return 0


# ---- in place -----------------------------------------------------------------------------------------------------
cdef object keep_original(Overload ov, TensorBase self):
    """A copy of self with self's history, when a formula (or a composite's) reads self's value from before."""
    cdef int j
    cdef TensorBase copy
    cdef bint reads = ov.formulas is None and not ov.mutates
    for j in range(ov.nsaved):
        reads = reads or (ov.saved_kind[j] == S_VALUE and ov.saved_param[j] == 0)
    if not reads:
        return None
    refresh_view(self)
    copy = new_like_format(self, self.dt, PRESERVE, self.dev, self.dev_index)
    copy_into(copy, self)
    copy.requires, copy.fn, copy.output_nr = self.requires, self.fn, self.output_nr
    return copy


cdef int finish_inplace(Node node, Overload ov, TensorBase self) except -1:
    """self's history is now node."""
    cdef TensorBase base
    if self.base is None:
        attach(node, self, 0, ov)
        return 0
    if node.mask:
        save_results(node, ov, (self,))
    base = self.base
    rebase_view(node, self, base)
    return 0


cdef int rebase_view(Node node, TensorBase view, TensorBase base) except -1:
    """A view was changed in place: the base's history is 'its old value with that slice replaced'."""
    cdef CopySlices slices = CopySlices.__new__(CopySlices)
    cdef int i, n = len(node.targets)
    cdef int32_t nr = 0
    slices.inner = node
    slices.view_shape, slices.view_strides = shape_of(view), tuple([view.strides[i] for i in range(view.rank)])
    slices.view_offset = view.offset - base.offset
    slices.target_nr = <int32_t*>calloc(n + 1, sizeof(int32_t))
    first = edge_of(base, &nr) if base.requires else None
    slices.target_nr[0] = nr
    for i in range(1, n):
        slices.target_nr[i] = node.target_nr[i]
    slices.targets = (first,) + tuple(node.targets[1:])
    slices.base_strides = tuple([base.strides[i] for i in range(base.rank)])
    attach(slices, base, 0, None)
    view.requires = True
    view.view_version = version_of(view) - 1     # stale: refresh_view makes its history anew from the base
    refresh_view(view)
    return 0


cdef class CopySlices(Node):
    """Backward of an in-place change through a view."""
    cdef Node inner
    cdef tuple view_shape, view_strides, base_strides
    cdef int64_t view_offset

    def name(self):
        return "CopySlices"

    def apply(self, grad):
        whole = grad.new_empty_strided(grad.shape, self.base_strides)
        whole.copy_(grad)
        part = whole.as_strided(self.view_shape, self.view_strides, self.view_offset)
        grads = apply_node(self.inner, [part.clone()])
        if grads[0] is None:
            part.zero_()
        else:
            part.copy_(grads[0])
        return (whole,) + tuple(grads[1:])


cdef int refresh_view(TensorBase t) except -1:
    """A view whose base was changed in place since gets its history anew: an as_strided of the base."""
    cdef PyObject* s[4]
    cdef Node node
    cdef TensorBase base = t.base
    if base is None or t.view_version == version_of(t) or not base.requires or base.fn is None:
        return 0
    if t.creation == VIEW_NO_GRAD:
        return 0
    shape, strides, offset = shape_of(t), tuple([t.strides[i] for i in range(t.rank)]), t.offset
    s[0], s[1], s[2], s[3] = <PyObject*>base, <PyObject*>shape, <PyObject*>strides, <PyObject*>offset
    node = record(<Overload>(<Op>hot[HOT_AS_STRIDED]).overloads[0], s)
    if t.fn is not None and t.fn.pre_hooks is not None:
        node.pre_hooks = t.fn.pre_hooks
    attach(node, t, 0, None)
    t.view_version = version_of(t)
    return 0


# ---- what Python sees -------------------------------------------------------------------------------------------
cdef object saved_attribute(Node node, str name):
    cdef int j
    if node.released:
        raise RuntimeError(RELEASED)
    for j in range(node.op.nsaved):
        if node.op.saved_kind[j] == S_VALUE and node.op.names[node.op.saved_param[j]] == name:
            return unpack_saved(node, j)
        if node.op.saved_kind[j] == S_RESULT and name == "result":
            return unpack_saved(node, j)
    raise AttributeError(f"'{node.name()}' object has no attribute '_saved_{name}'")


RELEASED = ("Trying to backward through the graph a second time (or directly access saved tensors after they have "
            "already been freed). Saved intermediate values of the graph are freed when you call .backward() or "
            "autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time or if "
            "you need to access saved tensors after calling backward.")


cdef object unpack_saved(Node node, int j):
    """A saved value, checked against later in-place changes."""
    cdef TensorBase t, r
    cdef Overload ov = node.op
    value = node.saved[j]
    if isinstance(value, Packed):
        value = (<Packed>value).unpack((<Packed>value).value)
        if not isinstance(value, TensorBase):
            raise TypeError("unpack_hook of saved_tensors_hooks must return a Tensor, "
                            f"got {builtin_type(value).__name__}")
        t = <TensorBase>value
    elif isinstance(value, TensorBase):
        t = <TensorBase>value
        if version_of(t) != node.versions[j]:
            raise changed_in_place(t, node.versions[j])
    else:
        return value
    if ov.saved_kind[j] == S_RESULT and modes().grad:
        r = alias(t)
        r.fn, r.output_nr, r.requires = node, ov.saved_param[j], True
        return r
    return t


cdef object changed_in_place(TensorBase t, uint32_t expected):
    fn = "" if t.fn is None else f", which is output {t.output_nr} of {t.fn.name()},"
    hint = "" if anomaly else (" Hint: enable anomaly detection to find the operation that failed to compute its "
                               "gradient, with torch.autograd.set_detect_anomaly(True).")
    return RuntimeError("one of the variables needed for gradient computation has been modified by an inplace "
                        f"operation: [torch.{type_word(t.dt)}Tensor {list(shape_of(t))}]{fn} is at version "
                        f"{version_of(t)}; expected version {expected} instead.{hint}")


def _is_grad_enabled():
    return modes().grad


def _set_grad_enabled(bint enabled):
    modes().grad = enabled


def _is_inference_mode():
    return modes().inference


def _set_inference_mode(bint enabled):
    modes().inference = enabled


def _set_anomaly(bint enabled):
    global anomaly
    anomaly = enabled


def _is_anomaly():
    return anomaly


def _push_saved_hooks(pack, unpack):
    saved_hooks.append((pack, unpack))


def _pop_saved_hooks():
    saved_hooks.pop()


def _set_function_off(bint off):
    previous = modes().function_off
    modes().function_off = off
    return previous


def _is_function_off():
    return modes().function_off


def _push_function_mode(mode):
    function_modes.append(mode)


def _pop_function_mode():
    return function_modes.pop()


def _function_mode_stack():
    """The list of active modes itself, innermost last."""
    return function_modes


# ---- for custom functions -------------------------------------------------------------------------------------------
def _current_saved_hooks():
    return saved_hooks[-1] if saved_hooks else None


def _changed(TensorBase t, expected):
    return changed_in_place(t, expected)


def _bump(TensorBase t):
    bump_version(t)


def _give_history(TensorBase t, Node node, int nr):
    t.fn, t.output_nr, t.requires = node, nr, True


def _rebase(Node node, TensorBase t, int nr):
    """t was changed in place by the node's forward."""
    if t.fn is None and t.requires and t.base is None:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
    if t.base is None:
        attach(node, t, nr, None)
    else:
        rebase_view(node, t, t.base)
