# Recording: edges, what a node saves, and the history of views whose base was changed in place.

cdef uint64_t next_sequence = 0
cdef bint anomaly = False, anomaly_nan = True


class RemovableHandle:
    """Removes a hook."""
    __module__ = "mindtorch_v2.utils.hooks"
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


cdef extern from *:
    """
    enum { FEW_LINKS = 6 };
    #define few_links(node) (&(node)->link0)     /* link0 to link5 lie in a row */
    """
    int FEW_LINKS
    PyObject** few_links(Node)


cdef int make_links(Node node, int ntargets, int nsaved) except -1:
    """Room for the inputs' targets and the saved values, all None."""
    if ntargets + nsaved <= FEW_LINKS:
        node.links = few_links(node)
    else:
        node.many_links = (None,) * (ntargets + nsaved)      # the node's alone, so it may change
        node.links = tuple_items(node.many_links)
    node.target_nr = node.few_nr
    if ntargets > 4:
        node.target_nr = <int32_t*>calloc(ntargets, sizeof(int32_t))
        if node.target_nr == NULL:
            raise MemoryError()
    node.ntargets = ntargets
    return 0


cdef inline void set_link(Node node, int at, object value) noexcept:
    cdef PyObject* was = node.links[at]
    Py_INCREF(value)
    node.links[at] = <PyObject*>value
    Py_DECREF(<object>was)


cdef inline void set_saved(Node node, int j, object value) noexcept:
    set_link(node, node.ntargets + j, value)


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
    if ov.fixed:
        check_fixed(ov, s)
    if ov.real_name is not None:
        check_real(ov, s)
    if ov.has_list:
        return record_lists(node, ov, s)
    make_links(node, ov.ntensors, ov.nsaved)
    for i in range(ov.ntensors):
        o = s[ov.tensor_at[i]]
        if is_tensor(o) and needs_grad(<TensorBase>o):
            connect(node, i, <TensorBase>o)
    save_inputs(node, ov, s)
    return node


def _fixed_slots(Overload ov not None) -> tuple:
    """The places of the arguments that must not need a gradient."""
    return tuple([ov.tensor_at[i] for i in range(ov.ntensors) if ov.fixed >> i & 1])


cdef int check_fixed(Overload ov, PyObject** s) except -1:
    """Refuses a gradient where the op has none."""
    cdef int i
    for i in range(ov.ntensors):
        if ov.fixed >> i & 1 and requires_any(s[ov.tensor_at[i]]):
            raise RuntimeError(f"The function '{ov.fixed_name}' is not differentiable with respect to argument "
                               f"'{ov.names[ov.tensor_at[i]]}'. This input cannot have requires_grad True.")
    return 0


cdef int check_real(Overload ov, PyObject** s) except -1:
    """Refuses a history of complex numbers where torch has the op's derivative of real numbers only."""
    cdef PyObject* o
    cdef int i
    for i in range(ov.ntensors):
        o = s[ov.tensor_at[i]]
        if is_tensor(o) and dtypes[(<TensorBase>o).dt].is_complex:
            raise RuntimeError(f"{ov.real_name} does not support automatic differentiation for outputs with complex dtype.")
    return 0


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
            if p == 0 and ov.keeps and is_plain(s[p]) and not has_saved_hooks():
                set_saved(node, j, kept_value(<TensorBase>s[p]))
            elif is_tensor(s[p]):
                save_tensor(node, j, <TensorBase>s[p])
            else:
                set_saved(node, j, <object>s[p])
                if ov.kind[p] == K_TENSORS:
                    node.versions[j] = versions_of(<object>s[p])
        elif ov.saved_kind[j] == S_SHAPE:
            set_saved(node, j, shapes_of(<object>s[p]))
        elif ov.saved_kind[j] == S_DTYPE:
            set_saved(node, j, dtypes[(<TensorBase>s[p]).dt] if is_tensor(s[p]) else None)
        elif ov.saved_kind[j] == S_GEOMETRY:
            set_saved(node, j, geometry_of(<TensorBase>s[p]))
        elif ov.saved_kind[j] == S_DEVICE:
            set_saved(node, j, device_object((<TensorBase>s[p]).dev, (<TensorBase>s[p]).dev_index))
    return 0


cdef uint32_t versions_of(object items) except? 0:
    """The versions of a list's tensors, added up."""
    cdef uint32_t total = 0
    for item in items or ():
        if isinstance(item, TensorBase):
            total += version_of(<TensorBase>item)
    return total


cdef tuple geometry_of(TensorBase t):
    """(sizes, strides, offset)"""
    return open_shape_of(t), new_ints(<PyTypeObject*>tuple, t.rank, t.strides), t.offset


cdef object open_shape_of(TensorBase t):
    """The sizes, as the tensor's class has them where they follow from symbols."""
    return tuple((<object>t).shape) if is_wrapper(t) and (<object>t)._has_symbolic_sizes_strides else shape_of(t)


cdef object shapes_of(object value):
    return [shapes_of(v) for v in value] if isinstance(value, (tuple, list)) else \
        open_shape_of(<TensorBase>value) if isinstance(value, TensorBase) else ()


cdef object saved_inference_tensor():
    return RuntimeError("Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in "
                        "computation tracked by autograd. To work around this, you can make a clone to get a normal tensor and "
                        "use it in autograd, or use `torch.no_grad()` instead of `torch.inference_mode()`.")


cdef int save_tensor(Node node, int j, TensorBase t) except -1:
    node.versions[j] = version_of(t)
    if t.inference:
        raise saved_inference_tensor()
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
        copy_dims(m.sizes, out.sizes, out.rank)
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


cdef inline TensorBase with_tangents(TensorBase made, TensorBase source):
    """made, which stands for source, with what forward mode has noted for source."""
    if source.extra is not None and "tangents" in source.extra:
        made.extra = {"tangents": source.extra["tangents"]}
    return made


cdef bint has_formulas(Overload ov, PyObject** s):
    """Whether every input that needs a gradient has a formula."""
    cdef Formula f
    cdef uint64_t known = 0
    cdef int i
    if ov.formulas is None:
        return False
    for f in ov.formulas:
        known |= f.needs
    known |= ov.fixed
    for i in range(ov.ntensors):
        if not known >> i & 1 and requires_any(s[ov.tensor_at[i]]):
            return False
    return True


cdef bint requires_any(PyObject* o) noexcept:
    """Whether a tensor, or one in a list, needs a gradient."""
    cdef Py_ssize_t i
    if is_tensor(o):
        return needs_grad(<TensorBase>o)
    if PyTuple_Check(<object>o) or PyList_Check(<object>o):
        for i in range(count_items(o)):
            if is_tensor(items_of(o)[i]) and needs_grad(<TensorBase>items_of(o)[i]):
                return True
    return False


cdef object as_viewed(TensorBase t, int dt):
    """All of t's memory in the dtype of a view of it; offsets count from t's first item."""
    if t.dt == dt:
        return t
    if t.dt >= kComplexFloat:
        return hot_call1(hot.view_as_real, t)
    return hot_call1(hot.view_as_complex, t.as_strided((t.st.nbytes // itemsize(<DType>t.dt) // 2, 2), (2, 1), 0))


cdef object flipped(object t, int marks):
    """t with marks turned over, by view ops."""
    if marks & MARK_NEG:
        t = hot_call1(hot._neg_view, t)
    return hot_call1(hot._conj, t) if marks & MARK_CONJ else t


cdef Node marking_node(TensorBase t, object source):
    """The node that makes t, which has marks, of an unmarked view of the same memory."""
    cdef PyObject* s[1]
    cdef Op last = hot._conj if t.marks & MARK_CONJ else hot._neg_view
    if t.marks == MARK_CONJ | MARK_NEG:
        source = hot_call1(hot._neg_view, source)
    s[0] = <PyObject*>source
    return record(<Overload>last.rows[0], s)


cdef int refresh_view(TensorBase t) except -1:
    """A view whose base was changed in place since gets its history anew: an as_strided of the base."""
    cdef PyObject* s[4]
    cdef Node node
    cdef TensorBase base = t.base
    cdef uint64_t number
    cdef bint mode
    if base is None or t.view_version == version_of(t) or not base.requires or base.fn is None and t.fn is None:
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
            node = marking_node(t, steal(hot.as_strided.vectorcall(<PyObject*>hot.as_strided, s, 4, NULL)))
        else:
            node = record(<Overload>hot.as_strided.rows[0], s)
    finally:
        modes().grad = mode
    attach(node, t, 0, None)
    if base.fn is None:                          # a leaf that was changed where nothing is recorded
        t.view_version = version_of(t)
        return 0
    number = (<Node>base.fn).sequence + SEQUENCE_STEP - 1
    while node is not base.fn:                   # at most seven: as_strided, two where the dtype differs, four of marks
        node.sequence = number
        number -= 1
        node = <Node>node.links[0]
    t.view_version = version_of(t)
    return 0


cdef object view_error(TensorBase t, str what):
    """Why a view that is not VIEW_NORMAL has no history after an in-place change."""
    if t.fn is None:
        text = f"A view was created in no_grad mode and {what} with grad mode enabled."
        if t.creation == VIEW_INFERENCE:
            text = f"A view was created in inference mode and {what} in normal mode."
    else:
        text = f"Output {t.output_nr} of {forward_name(<Node>t.fn)} is a view and {what}."
    if t.creation == VIEW_MULTI_OUTPUT:
        return RuntimeError(f"{text} This view is the output of a function that returns multiple views. Such functions do "
                            "not allow the output views to be modified inplace. You should replace the inplace operation "
                            "by an out-of-place one.")
    if t.creation == VIEW_CUSTOM:
        return RuntimeError(f"{text} This view was created inside a custom Function (or because an input was returned as-is) "
                            "and the autograd logic to handle view+inplace would override the custom backward associated with "
                            "the custom Function, leading to incorrect gradients. This behavior is forbidden. You can fix "
                            "this by cloning the output of the custom Function.")
    block = "inference_mode" if t.creation == VIEW_INFERENCE else "no_grad"
    return RuntimeError(f"{text} Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify "
                        f"your code by moving both the view and the inplace either both inside the {block} block (if you "
                        "don't want the inplace to be tracked) or both outside (if you want the inplace to be tracked).")


cdef str forward_name(Node node):
    name = node.name()
    before, found, number = name.rpartition("Backward")
    if not found or number and not number.isdigit():
        return name
    return before + number.removesuffix("0")


cdef class Packed:
    """A saved tensor that saved_tensors_hooks has packed, and the history that it gets back when unpacked."""
    cdef readonly object value, unpack
    cdef Node fn
    cdef TensorBase leaf
    cdef int output_nr


cdef Packed pack_tensor(TensorBase t, object pack, object unpack, bint keep_history):
    cdef Packed packed = Packed.__new__(Packed)
    cdef uint32_t version = version_of(t)
    with _no_grad_and_hooks():
        packed.value, packed.unpack = pack(t), unpack
    if version_of(t) != version:
        raise RuntimeError("A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack "
                           "hook cannot be modified by in-place operations as this can lead to unexpected side-effects. "
                           "Please open an issue if you need to perform in-place operations on the input to a pack hook.")
    if keep_history:
        note_history(packed, t)
    return packed


cdef inline bint is_plain(PyObject* o) noexcept:
    return Py_TYPE(o) == tensor_type or Py_TYPE(o) == parameter_type


def itself(value):
    return value


cdef Packed kept_value(TensorBase t):
    """t as it is now, whatever becomes of it: copied when it changes."""
    cdef Packed packed = Packed.__new__(Packed)
    if t.inference:
        raise saved_inference_tensor()
    packed.value, packed.unpack = with_tangents(lazy_clone(t), t), itself
    note_history(packed, t)
    return packed


cdef int note_history(Packed packed, TensorBase t) except -1:
    if needs_grad(t):
        refresh_view(t)
        packed.fn, packed.output_nr = <Node>t.fn, t.output_nr
        if t.fn is None:
            packed.leaf = t
    return 0


def _pack(TensorBase t, bint keep_history=True):
    """t packed by the innermost saved_tensors_hooks; None where there are none."""
    if not has_saved_hooks():
        return None
    pack, unpack = own_stacks().saved_hooks[-1]
    return pack_tensor(t, pack, unpack, keep_history)


cdef Packed pack_with(object value, bint released, object pack, object unpack, bint keep_history):
    """What register_hooks of a saved tensor puts in its place; refuses what cannot be packed."""
    if released:
        raise RuntimeError("Calling register_hooks on a saved tensor after it has been freed. Saved intermediate values "
                           "of the graph are freed when you call .backward() or autograd.grad(). Specify "
                           "retain_graph=True if you need to backward through the graph a second time or if you need "
                           "to access saved variables after calling backward.")
    if value is None:
        raise RuntimeError("Calling register_hooks on a saved tensor with value None is forbidden")
    if not isinstance(value, TensorBase):
        raise RuntimeError("Calling register_hooks on a saved tensor whose hooks have already been set. Hint: only one "
                           "pair of hooks is allowed at a time.")
    return pack_tensor(<TensorBase>value, pack, unpack, keep_history)


def _pack_with(value, bint released, pack, unpack, bint keep_history):
    return pack_with(value, released, pack, unpack, keep_history)
