# Recording: nodes of the backward graph and what they save.


cdef uint64_t next_sequence = 0
cdef bint anomaly = False, anomaly_nan = True


@cython.freelist(64)
@cython.trashcan(True)
cdef class Node:
    """One recorded op: its inputs' nodes, what backward needs, and the formulas that use it."""

    def __cinit__(self):
        global next_sequence
        self.sequence = next_sequence
        next_sequence += SEQUENCE_STEP
        self.metas = &self.meta0
        if anomaly:
            self.trace = "".join(traceback.format_stack())

    def __dealloc__(self):
        cdef int i
        if self.target_nr != NULL and self.target_nr != self.few_nr:
            free(self.target_nr)
        for i in range(self.noutputs):
            if self.metas[i].many != NULL:
                free(self.metas[i].many)
        if self.metas != &self.meta0:
            free(self.metas)

    def name(self):
        return self.op.node_name if self.op is not None else type(self).__name__

    def __repr__(self):
        return f"<{self.name().rpartition('::')[2]} object at {hex(id(self))}>"

    @property
    def next_functions(self):
        return tuple([(accumulator_of(<TensorBase>t) if isinstance(t, TensorBase) else t, self.target_nr[i])
                      for i, t in enumerate((self.links or ())[:self.ntargets])])

    @property
    def metadata(self):
        """A dict for whoever watches the graph."""
        if self.metadata_object is None:
            self.metadata_object = {}
        return self.metadata_object

    @metadata.setter
    def metadata(self, value):
        self.metadata_object = value

    @property
    def requires_grad(self):
        return True

    def _sequence_nr(self):
        return self.sequence // SEQUENCE_STEP

    @property
    def _input_metadata(self):
        return tuple([_InputMetadata(meta_shape(&self.metas[i]), dtypes[self.metas[i].dt],
                                     device_object(self.metas[i].dev, self.metas[i].index))
                      for i in range(self.noutputs)])

    def register_hook(self, fn):
        if self.post_hooks is None:
            self.post_hooks = {}
        return add_hook(self.post_hooks, fn)

    def register_prehook(self, fn):
        if self.node_pre_hooks is None:
            self.node_pre_hooks = {}
        return add_hook(self.node_pre_hooks, fn)

    def __call__(self, *grads):
        """The gradients of the inputs, given those of the outputs."""
        return call_node(self, grads)

    def __dir__(self):
        return object.__dir__(self) + saved_attributes(self)

    def __getattr__(self, name):
        if self.op is not None and name.startswith("_saved_"):
            return saved_attribute(self, name[7:])
        if self.op is not None and name.startswith("_raw_saved_"):
            return raw_saved_attribute(self, name[11:])
        raise AttributeError(f"'{self.name()}' object has no attribute '{name}'")

    # For custom functions: Python classes derive from Node and give apply(self, *grads).
    def _set_inputs(self, tuple inputs):
        """Connects the node to the tensors (or other objects, which get no gradient) it was computed from."""
        check_custom(self)
        if self.links is not None:
            raise RuntimeError(f"{self.name()} is connected to its inputs already")
        make_links(self, <int>len(inputs), 0)
        for i, item in enumerate(inputs):
            if isinstance(item, TensorBase) and needs_grad(<TensorBase>item):
                connect(self, i, <TensorBase>item)

    def _attach(self, TensorBase out, int nr):
        """Makes out the node's output number nr."""
        check_custom(self)
        attach(self, out, nr, None)

    def _needs_input_grad(self, int i):
        return 0 <= i < self.ntargets and self.links[i] is not None


cdef int check_custom(Node node) except -1:
    """Only the node of a custom function is connected from Python."""
    if node.op is not None or isinstance(node, (CopySlices, AccumulateGrad)):
        raise RuntimeError(f"{node.name()} is not the node of a custom function")
    return 0


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


cdef int make_links(Node node, int ntargets, int nsaved) except -1:
    """Room for the inputs' targets and the saved values, all None."""
    cdef tuple links = PyTuple_New(ntargets + nsaved)
    cdef int i
    for i in range(ntargets + nsaved):
        Py_INCREF(None)
        PyTuple_SET_ITEM(links, i, None)
    node.target_nr = node.few_nr
    if ntargets > 4:
        node.target_nr = <int32_t*>calloc(ntargets, sizeof(int32_t))
        if node.target_nr == NULL:
            raise MemoryError()
    node.links, node.ntargets = links, ntargets
    return 0


cdef inline void set_link(Node node, int at, object value) noexcept:
    """The tuple is the node's alone, so it may change."""
    cdef PyObject* was = PyTuple_GET_ITEM_(node.links, at)
    Py_INCREF(value)
    PyTuple_SET_ITEM(node.links, at, value)
    Py_DECREF(<object>was)


cdef inline void set_saved(Node node, int j, object value) noexcept:
    set_link(node, node.ntargets + j, value)


cdef inline object saved_at(Node node, int j):
    return <object>PyTuple_GET_ITEM_(node.links, node.ntargets + j)


cdef inline int connect(Node node, int i, TensorBase t) except -1:
    """Input number i is t, which needs a gradient."""
    target = edge_of(t, &node.target_nr[i])
    if target is t and not t.requires:           # a view made before its leaf asked for a gradient: it has nowhere to go
        return 0
    set_link(node, i, target)
    if i < 64:
        node.needs |= <uint64_t>1 << i
    return 0


cdef Node record(Overload ov, PyObject** s):
    """A node for this call: edges to the inputs, and what the needed formulas will read."""
    cdef Node node = Node.__new__(Node)
    cdef PyObject* o
    cdef int i
    node.op = ov
    if ov.has_list:
        return record_lists(node, ov, s)
    make_links(node, ov.ntensors, ov.nsaved)
    for i in range(ov.ntensors):
        o = s[ov.tensor_at[i]]
        if is_tensor(o) and needs_grad(<TensorBase>o):
            connect(node, i, <TensorBase>o)
    save_inputs(node, ov, s)
    return node


cdef Node record_lists(Node node, Overload ov, PyObject** s):
    """record() for an op with a Tensor[]: every item of the list is an input."""
    cdef list flat = []
    cdef int i, at = 0, k
    cdef uint64_t needs = 0
    cdef list ordinals = []                      # which parameter each input belongs to
    for i in range(ov.ntensors):
        o = <object>s[ov.tensor_at[i]]
        items = list(o or ()) if ov.kind[ov.tensor_at[i]] == K_TENSORS else [o]
        flat += items
        ordinals += [i] * len(items)
    make_links(node, <int>len(flat), ov.nsaved)
    for at, item in enumerate(flat):
        if isinstance(item, TensorBase) and needs_grad(<TensorBase>item):
            connect(node, at, <TensorBase>item)
            k = ordinals[at]
            needs |= <uint64_t>1 << k
    node.needs = needs                           # counts parameters here, not list items
    save_inputs(node, ov, s)
    return node


cdef int save_inputs(Node node, Overload ov, PyObject** s) except -1:
    cdef Formula f
    cdef uint64_t mask = 0
    cdef int j, p
    for f in ov.formulas:
        if node.needs & f.needs:
            mask |= f.mask
    node.mask = mask
    if mask == 0:
        return 0
    for j in range(ov.nsaved):
        if not (mask >> j & 1):
            continue
        p = ov.saved_param[j]
        if ov.saved_kind[j] == S_VALUE:
            if is_tensor(s[p]):
                save_tensor(node, j, <TensorBase>s[p])
            else:
                set_saved(node, j, <object>s[p])
        elif ov.saved_kind[j] == S_SHAPE:
            set_saved(node, j, shapes_of(<object>s[p]))
        elif ov.saved_kind[j] == S_DTYPE:
            set_saved(node, j, dtypes[(<TensorBase>s[p]).dt] if is_tensor(s[p]) else None)
        elif ov.saved_kind[j] == S_GEOMETRY:
            set_saved(node, j, geometry_of(<TensorBase>s[p]))
        elif ov.saved_kind[j] == S_DEVICE:
            set_saved(node, j, device_object((<TensorBase>s[p]).dev, (<TensorBase>s[p]).dev_index))
    return 0


cdef tuple geometry_of(TensorBase t):
    """(sizes, strides, offset)"""
    return shape_of(t), mt_ints(<PyTypeObject*>tuple, t.rank, t.strides), t.offset


cdef object shapes_of(object value):
    if isinstance(value, TensorBase):
        return shape_of(<TensorBase>value)
    if isinstance(value, (tuple, list)):
        return [shape_of(<TensorBase>v) if isinstance(v, TensorBase) else () for v in value]
    return ()


cdef int save_tensor(Node node, int j, TensorBase t) except -1:
    node.versions[j] = version_of(t)
    if t.inference:
        raise RuntimeError("Inference tensors cannot be saved for backward. Please do not use Tensors created in "
                           "inference mode in computation tracked by autograd. To work around this, you can make a "
                           "clone to get a normal tensor and use it in autograd, or use `torch.no_grad()` instead of "
                           "`torch.inference_mode()`.")
    set_saved(node, j, _pack(t, node.op.saved_kind[j] == S_VALUE) if has_saved_hooks() else t)
    return 0


cdef int save_results(Node node, Overload ov, PyObject** results, int n) except -1:
    """Saves outputs that formulas read: as aliases without history, so that no cycle keeps the graph alive."""
    cdef int j
    if not ov.saves_results:
        return 0
    for j in range(ov.nsaved):
        if not (node.mask >> j & 1):
            continue
        if ov.saved_kind[j] == S_RESULT and ov.saved_param[j] >= n:
            raise RuntimeError(f"{ov.name} has a gradient that reads its result {ov.saved_param[j]}, but gave {n}")
        if ov.saved_kind[j] == S_RESULT and <object>results[ov.saved_param[j]] is not None:
            save_tensor(node, j, result_alias(<TensorBase>results[ov.saved_param[j]]))
        elif ov.saved_kind[j] == S_RESULTS:
            set_saved(node, j, [None if <object>results[i] is None else result_alias(<TensorBase>results[i])
                                for i in range(n)])
    return 0


cdef TensorBase result_alias(TensorBase t):
    """t without history; of a class that computes for itself, that class's own."""
    cdef PyTypeObject* tp = Py_TYPE(<PyObject*>t)
    if tp == tensor_type or tp == parameter_type:
        return alias(t)
    return tensor_arg((<object>t)._fresh())


cdef int note_output(Node node, TensorBase out, int nr) except -1:
    """What a gradient of the node's output number nr must look like."""
    cdef OutMeta* m
    cdef OutMeta* grown
    cdef int64_t* many = NULL
    cdef int i
    if nr < 0 or nr >= MAX_OUTPUTS:
        raise ValueError(f"a node has outputs 0 to {MAX_OUTPUTS - 1}, got {nr}")
    if out.rank > META_DIMS:                     # what may fail comes first
        many = <int64_t*>malloc(out.rank * sizeof(int64_t))
        if many == NULL:
            raise MemoryError()
        memcpy(many, out.sizes, out.rank * sizeof(int64_t))
    if nr >= node.noutputs:
        if nr > 0:
            grown = <OutMeta*>calloc(nr + 1, sizeof(OutMeta))
            if grown == NULL:
                free(many)
                raise MemoryError()
            for i in range(node.noutputs):
                grown[i] = node.metas[i]
            if node.metas != &node.meta0:
                free(node.metas)
            node.metas = grown
        node.noutputs = nr + 1
    m = &node.metas[nr]
    m.rank, m.dt, m.dev, m.index = out.rank, out.dt, out.dev, out.dev_index
    if m.many != NULL:
        free(m.many)
    m.many = many
    if many == NULL:
        memcpy(m.sizes, out.sizes, out.rank * sizeof(int64_t))
    return 0


cdef int attach(Node node, TensorBase out, int nr, Overload ov) except -1:
    """out becomes the node's output number nr."""
    cdef PyObject* result = <PyObject*>out
    note_output(node, out, nr)
    if out.extra is not None and out.fn is not None and "retain" in out.extra:
        move_retain(out, node, nr)
    out.output_nr = nr
    out.requires = True
    out.fn = node                                # last: the end of the node that was there may run Python
    if ov is not None and ov.nreturns == 1:
        save_results(node, ov, &result, 1)
    return 0


cdef int move_retain(TensorBase t, Node node, int nr) except -1:
    """retain_grad follows the tensor to its new node; its other hooks stay with the value from before."""
    hooks = None
    if (<Node>t.fn).pre_hooks is not None and t.output_nr < len((<Node>t.fn).pre_hooks):
        hooks = (<Node>t.fn).pre_hooks[t.output_nr]
    if hooks and RETAIN in hooks:
        hooks_at(node, nr)[RETAIN] = hooks.pop(RETAIN)
    return 0


RETAIN = -1                                      # the key of retain_grad's hook, which runs after all others


cdef dict hooks_at(Node node, int nr):
    """The dict of hooks on the gradient of the node's output nr."""
    if node.pre_hooks is None:
        node.pre_hooks = []
    while len(node.pre_hooks) <= nr:
        node.pre_hooks.append(None)
    if node.pre_hooks[nr] is None:
        node.pre_hooks[nr] = {}
    return node.pre_hooks[nr]


def _is_grad_enabled():
    return modes().grad


def _set_grad_enabled(bint enabled):
    modes().grad = enabled


def _is_inference_mode():
    return modes().inference


def _set_inference_mode(bint enabled):
    modes().inference = enabled


def _set_anomaly(bint enabled, bint check_nan=True):
    global anomaly, anomaly_nan
    anomaly, anomaly_nan = enabled, check_nan


def _is_anomaly():
    return anomaly


def _is_anomaly_nan():
    return anomaly_nan


def _set_function_off(bint off):
    previous = modes().function_off
    modes().function_off = off
    return previous


def _is_function_off():
    return modes().function_off


# ---- for custom functions -------------------------------------------------------------------------------------------
def _changed(TensorBase t, expected):
    return changed_in_place(t, expected)


def _bump(TensorBase t):
    bump_version(t)


def _give_history(TensorBase t, Node node, int nr):
    """t becomes the output number nr of node, which has one."""
    if not 0 <= nr < node.noutputs:
        raise IndexError(f"{node.name()} has {node.noutputs} outputs, got number {nr}")
    t.output_nr, t.requires = nr, True
    t.fn = node


def _rebase(Node node, TensorBase t, int nr):
    """t was changed in place by the node's forward."""
    if t.fn is None and t.requires and t.base is None:
        raise RuntimeError("a leaf Variable that requires grad has been used in an in-place operation.")
    check_custom(node)
    if t.base is None:
        attach(node, t, nr, None)
    else:
        note_output(node, t, nr)                 # though it is the base's history: saved outputs lead here
        rebase_view(node, t, t.base)


cdef inline TensorBase with_tangents(TensorBase made, TensorBase source):
    """made, which stands for source, with what forward mode has noted for source."""
    if source.extra is not None and "tangents" in source.extra:
        made.extra = {"tangents": source.extra["tangents"]}
    return made
