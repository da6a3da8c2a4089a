# What a node saved, as Python sees it: packed by hooks, by name, and the node that stands for a leaf.

cdef class Packed:
    """A saved tensor that saved_tensors_hooks has packed, and the history that it gets back when unpacked."""
    cdef object value, unpack
    cdef Node fn
    cdef TensorBase leaf
    cdef int output_nr


def _pack(TensorBase t, bint keep_history=True):
    """t packed by the innermost saved_tensors_hooks; None where there are none."""
    if not has_saved_hooks():
        return None
    pack, unpack = own_stacks().saved_hooks[-1]
    return pack_tensor(t, pack, unpack, keep_history)


cdef Packed pack_tensor(TensorBase t, object pack, object unpack, bint keep_history):
    cdef Packed packed = Packed.__new__(Packed)
    cdef uint32_t version = version_of(t)
    with _no_grad_and_hooks():
        packed.value, packed.unpack = pack(t), unpack
    if version_of(t) != version:
        raise RuntimeError("A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack "
                           "hook cannot be modified by in-place operations as this can lead to unexpected side-effects. "
                           "Please open an issue if you need to perform in-place operations on the input to a pack hook.")
    if keep_history and needs_grad(t):
        refresh_view(t)
        packed.fn, packed.output_nr = <Node>t.fn, t.output_nr
        if t.fn is None:
            packed.leaf = t
    return packed


def _unpack(Packed packed not None):
    """What the hooks give back, with the history of what they were given."""
    cdef TensorBase r
    cdef PyObject* s[1]
    value = packed.unpack(packed.value)
    if not isinstance(value, TensorBase):
        raise TypeError("unpack_hook of saved_tensors_hooks must return a Tensor, got "
                        f"{type(value).__name__}")
    if not modes().grad or (packed.fn is None and packed.leaf is None) or value is packed.leaf:
        return value
    r = alias(<TensorBase>value)
    if packed.fn is not None:
        r.fn, r.output_nr, r.requires = packed.fn, packed.output_nr, True
    else:
        s[0] = <PyObject*>packed.leaf
        attach(record(<Overload>hot.alias.rows[0], s), r, 0, None)
    return r


cdef list saved_names(Overload ov, int j):
    """The names under which torch shows a saved value, each with the part of it that is meant; -1: all of it."""
    cdef int p = ov.saved_param[j], kind = ov.saved_kind[j]
    if kind == S_RESULT:
        if ov.nreturns == 1:
            return [("result", -1)]
        return [(f"result{p}" if ov.returns_class is None else ov.returns_class._fields[p], -1)]
    if kind == S_RESULTS:
        return []
    name = ov.names[p]
    if kind == S_SHAPE:
        return [(name + "_sym_sizes", -1)]
    if kind == S_DTYPE:
        return [(name + "_scalar_type", -1)]
    if kind == S_GEOMETRY:
        return [(name + "_sym_sizes", 0), (name + "_sym_strides", 1), (name + "_sym_storage_offset", 2)]
    return [(name if kind == S_VALUE else name + "_device", -1)]


cdef tuple find_saved(Node node, str name, str prefix):
    """Which saved value has that name, and which part of it."""
    cdef int j
    if node.released:
        raise RuntimeError(RELEASED)
    for j in range(node.op.nsaved):
        if node.mask >> j & 1:
            for found, part in saved_names(node.op, j):
                if found == name:
                    return j, part
    raise AttributeError(f"'{node.name()}' object has no attribute '{prefix}{name}'")


cdef list saved_attributes(Node node):
    cdef int j
    cdef list found = []
    if node.op is None:
        return found
    for j in range(node.op.nsaved):
        if node.mask >> j & 1:
            for name, part in saved_names(node.op, j):
                found.append("_saved_" + name)
                if is_saved_tensor(node, j):
                    found.append("_raw_saved_" + name)
    return found


cdef bint is_saved_tensor(Node node, int j):
    """Whether a tensor was saved, or the lack of one; not the number that may stand in a tensor's place."""
    cdef Overload ov = node.op
    value = saved_at(node, j)
    return (ov.saved_kind[j] == S_RESULT or ov.saved_kind[j] == S_VALUE and ov.kind[ov.saved_param[j]] == K_TENSOR) and \
        (value is None or isinstance(value, (TensorBase, Packed)))


cdef object saved_attribute(Node node, str name):
    j, part = find_saved(node, name, "_saved_")
    value = unpack_saved(node, j)
    value = value if part < 0 else value[part]
    return tuple(value) if isinstance(value, list) else value


cdef object raw_saved_attribute(Node node, str name):
    j, _ = find_saved(node, name, "_raw_saved_")
    if not is_saved_tensor(node, j):
        raise AttributeError(f"'{node.name()}' object has no attribute '_raw_saved_{name}'")
    return raw_saved(node, j)


cdef SavedTensor raw_saved(Node node, int j):
    cdef SavedTensor s = SavedTensor.__new__(SavedTensor)
    s.node, s.j = node, j
    return s


cdef class SavedTensor:
    """One tensor that a node saved, before it is unpacked."""
    cdef Node node
    cdef int j

    def __init__(self):
        raise RuntimeError("Trying to create a SavedTensor object from Python is forbidden.")

    @property
    def data(self):
        """The tensor as it was saved; None where hooks packed it or backward has freed it."""
        value = None if self.node is None else saved_at(self.node, self.j)
        return value if isinstance(value, TensorBase) else None

    @property
    def unpack_hook(self):
        value = None if self.node is None else saved_at(self.node, self.j)
        return (<Packed>value).unpack if isinstance(value, Packed) else None

    def unpack(self):
        """The saved tensor with its history."""
        if self.node is None or self.node.released:
            raise RuntimeError(RELEASED)
        return unpack_saved(self.node, self.j)

    def register_hooks(self, pack, unpack):
        """Keeps pack(tensor) in the tensor's place until unpack is asked for it back."""
        if not callable(pack) or not callable(unpack):
            raise TypeError("register_hooks(): incompatible function arguments: expected two callables, got "
                            f"{builtin_type(pack).__name__} and {builtin_type(unpack).__name__}")
        if self.node is None or self.node.released:
            raise RuntimeError("Calling register_hooks on a saved tensor after it has been freed. Saved intermediate values "
                               "of the graph are freed when you call .backward() or autograd.grad(). Specify "
                               "retain_graph=True if you need to backward through the graph a second time or if you need "
                               "to access saved variables after calling backward.")
        value = saved_at(self.node, self.j)
        if isinstance(value, Packed):
            raise RuntimeError("Calling register_hooks on a saved tensor whose hooks have already been set. Hint: only one "
                               "pair of hooks is allowed at a time.")
        if not isinstance(value, TensorBase):
            raise RuntimeError("Calling register_hooks on a saved tensor with value None is forbidden")
        packed = pack_tensor(<TensorBase>unpack_checked(self.node, self.j), pack, unpack,
                             self.node.op.saved_kind[self.j] == S_VALUE)
        set_saved(self.node, self.j, packed)


class _InputMetadata:
    """What a gradient that comes into a node must look like."""
    is_nested_tensor = is_cpp_nested_tensor = False

    def __init__(self, shape, dtype, device):
        self.shape, self.dtype, self.device = shape, dtype, device


class AccumulateGrad(Node):
    """What stands for a leaf tensor among a node's next_functions."""

    def __init__(self, variable):
        self.variable = variable

    def name(self):
        return "torch::autograd::AccumulateGrad"

    @property
    def next_functions(self):
        return ()

    def _sequence_nr(self):
        return (1 << 64) - 1

    @property
    def _input_metadata(self):
        return (_InputMetadata(self.variable.shape, self.variable.dtype, self.variable.device),)

    def register_hook(self, fn):
        return self.variable.register_post_accumulate_grad_hook(lambda t: fn((), (t.grad,)) and None)

    def register_prehook(self, fn):
        def one(grad):
            changed = fn((grad,))
            return changed[0] if isinstance(changed, tuple) else changed
        return self.variable.register_hook(one)

    def __call__(self, grad):
        accumulate(tensor_arg(self.variable), tensor_arg(grad), modes().grad)
        return ()


cdef object accumulator_of(TensorBase leaf):
    """The one AccumulateGrad of a leaf, as long as anybody has it."""
    found = None if leaf.extra is None else leaf.extra.get("accumulator")
    made = None if found is None else found()
    if made is None:
        made = AccumulateGrad(leaf)
        if leaf.extra is None:
            leaf.extra = {}
        leaf.extra["accumulator"] = weakref.ref(made)
    return made


def _accumulator(TensorBase leaf not None):
    return accumulator_of(leaf)


cdef object call_node(Node node, tuple given):
    """node(*grads): what backward would compute there."""
    cdef Refs grads, results
    cdef int i
    if len(given) != max(node.noutputs, 1):
        raise TypeError(f"expected {max(node.noutputs, 1)} arguments, got {len(given)} instead")
    grads.make(<int>len(given))
    for i, grad in enumerate(given):
        if grad is not None:
            if not isinstance(grad, TensorBase):
                raise TypeError(f"argument {i} is not a Variable")
            grads.set(i, <PyObject*>grad)
    results.make(node.ntargets)
    compute(node, &grads, &results)
    found = list_of_refs(&results)
    return found[0] if len(found) == 1 else tuple(found)


RELEASED = ("Trying to backward through the graph a second time (or directly access saved tensors after they have "
            "already been freed). Saved intermediate values of the graph are freed when you call .backward() or "
            "autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time or if "
            "you need to access saved tensors after calling backward.")


cdef object unpack_checked(Node node, int j):
    cdef TensorBase t
    value = saved_at(node, j)
    if isinstance(value, Packed):
        return _unpack(<Packed>value)
    if isinstance(value, TensorBase):
        t = <TensorBase>value
        if version_of(t) != node.versions[j]:
            raise changed_in_place(t, node.versions[j])
    return value


cdef object unpack_saved(Node node, int j):
    """A saved value, checked against later in-place changes."""
    cdef TensorBase t, r
    cdef Overload ov = node.op
    value = unpack_checked(node, j)
    if not isinstance(value, TensorBase):
        return value
    t = <TensorBase>value
    if ov.saved_kind[j] == S_RESULT and modes().grad and is_differentiable(t.dt):
        r = with_tangents(result_alias(t), t)
        r.fn, r.output_nr, r.requires = node, ov.saved_param[j], True
        return r
    return t


cdef object changed_in_place(TensorBase t, uint32_t expected):
    fn = "" if t.fn is None else f", which is output {t.output_nr} of {forward_name(<Node>t.fn)},"
    hint = "" if anomaly else (" Hint: enable anomaly detection to find the operation that failed to compute its "
                               "gradient, with torch.autograd.set_detect_anomaly(True, check_nan=False).")
    return RuntimeError("one of the variables needed for gradient computation has been modified by an inplace "
                        f"operation: [torch.{type_word(t.dt)}Tensor {list(shape_of(t))}]{fn} is at version "
                        f"{version_of(t)}; expected version {expected} instead.{hint}")
