# What a node saved, as Python sees it: packed by hooks, by name, and the node that stands for a leaf.

def _unpack(Packed packed not None):
    """What the hooks return, with the history of their argument."""
    cdef TensorBase r
    cdef PyObject* s[1]
    value = packed.unpack(packed.value)
    if not isinstance(value, TensorBase):
        raise TypeError("Output of saved tensor unpack_hook expected to be a Tensor but got result of type "
                        f"{type(value).__name__}")
    if not modes().grad or (packed.fn is None and packed.leaf is None) or value is packed.leaf:
        return value
    r = with_tangents(alias(<TensorBase>value), <TensorBase>value)
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
        return [(f"result{p}" if ov.returns_class is None else ov.returns_class.__match_args__[p], -1)]
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


cdef tuple find_saved(Node node, str name, str prefix, bint even_released=False):
    """Which saved value has that name, and which part of it."""
    cdef int j
    if node.released and not even_released:
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
    if node.op.saved_kind[j] == S_VALUE and node.op.kind[node.op.saved_param[j]] == K_INT and isinstance(value, int) and value < 0:
        return value + (1 << 64)                 # torch shows its integers without sign
    if isinstance(value, list):
        return tuple(value)
    if part < 0 and isinstance(value, int) and node.op.saved_kind[j] == S_VALUE and \
            node.op.kind[node.op.saved_param[j]] == K_INTS:
        return (value,)                          # one number for a list of one
    return value


cdef object raw_saved_attribute(Node node, str name):
    j, _ = find_saved(node, name, "_raw_saved_", True)
    if not is_saved_tensor(node, j):
        raise AttributeError(f"'{node.name()}' object has no attribute '_raw_saved_{name}'")
    return raw_saved(node, j)


cdef SavedTensor raw_saved(Node node, int j):
    cdef SavedTensor s = SavedTensor.__new__(SavedTensor)
    s.node, s.j = node, j
    return s


cdef class SavedTensor:
    """One tensor that a node saved, before it is unpacked; custom functions have a subclass."""
    cdef Node node
    cdef int j

    def __init__(self):
        raise RuntimeError("Trying to create a SavedTensor object from Python is forbidden.")

    @property
    def data(self):
        """The tensor as it was saved, or what the pack hook gave; None where backward has freed it."""
        value = None if self.node is None else saved_at(self.node, self.j)
        return (<Packed>value).value if isinstance(value, Packed) else value if isinstance(value, TensorBase) else None

    @property
    def unpack_hook(self):
        value = None if self.node is None else saved_at(self.node, self.j)
        return (<Packed>value).unpack if isinstance(value, Packed) else None

    def unpack(self):
        """The saved tensor with its history."""
        if self.node is None or self.node.released:
            raise RuntimeError(RELEASED)
        return unpack_saved(self.node, self.j)

    def register_hooks(self, *hooks):
        """Keeps pack(tensor) in the tensor's place until unpack gives it back."""
        pack, unpack = check_saved_hooks(self, hooks)
        cdef bint released = self.node is None or self.node.released
        value = None if released else saved_at(self.node, self.j)
        if isinstance(value, TensorBase):
            value = unpack_checked(self.node, self.j)
        packed = pack_with(value, released, pack, unpack, released or self.node.op.saved_kind[self.j] == S_VALUE)
        set_saved(self.node, self.j, packed)


cdef tuple check_saved_hooks(SavedTensor saved, tuple hooks):
    if len(hooks) != 2 or not callable(hooks[0]) or not callable(hooks[1]):
        raise TypeError("register_hooks(): incompatible function arguments. The following argument types are supported:\n"
                        "    1. (self: torch._C._autograd.SavedTensor, arg0: collections.abc.Callable, "
                        "arg1: collections.abc.Callable) -> None\n\n"
                        f"Invoked with: {', '.join([repr(x) for x in (saved, *hooks)])}")
    return hooks


def _check_saved_hooks(SavedTensor saved not None, tuple hooks):
    return check_saved_hooks(saved, hooks)


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
            is_result = (<Overload>node.op).saved_kind[j] == S_RESULT and is_differentiable(t.dt)
            raise changed_in_place(t, node.versions[j], node if is_result else None, (<Overload>node.op).saved_param[j])
    elif isinstance(value, (list, tuple)) and (<Overload>node.op).saved_kind[j] == S_VALUE and \
            (<Overload>node.op).kind[(<Overload>node.op).saved_param[j]] == K_TENSORS:
        check_versions(value, node.versions[j])
    return value


cdef int check_versions(object items, uint32_t expected) except -1:
    """Refuses a list of which a tensor was changed since it was saved, when its tensors' versions added up to `expected`."""
    cdef uint32_t changes = versions_of(items) - expected
    cdef TensorBase t
    if changes == 0:
        return 0
    for item in items:
        if isinstance(item, TensorBase) and version_of(<TensorBase>item) >= changes:
            t = <TensorBase>item
            raise changed_in_place(t, version_of(t) - changes)
    raise changed_in_place(tensor_arg([x for x in items if x is not None][0]), expected)


cdef object unpack_saved(Node node, int j):
    """A saved value, checked against later in-place changes."""
    cdef TensorBase t, r
    cdef Overload ov = node.op
    value = unpack_checked(node, j)
    if not isinstance(value, TensorBase):
        return value
    t = <TensorBase>value
    if ov.saved_kind[j] == S_RESULT and modes().grad and is_differentiable(t.dt) and takes_gradient(ov, ov.saved_param[j]):
        r = with_tangents(result_alias(t), t)
        r.fn, r.output_nr, r.requires = node, ov.saved_param[j], True
        return r
    return t


cdef str tensor_word(TensorBase t):
    """What torch calls such a tensor there: by the name from before there were devices, where there was one."""
    word = type_word(t.dt)
    return f"CPU{word}Type" if t.dt >= kComplexFloat or word in ("Bool", "BFloat16") else f"torch.{word}Tensor"


cdef object changed_in_place(TensorBase t, uint32_t expected, Node maker=None, int place=0):
    """A result is saved without its own node: `maker` made it, as output `place`."""
    refresh_view(t)                              # of a view the base may have changed
    if t.fn is not None:
        maker, place = <Node>t.fn, t.output_nr
    fn = "" if maker is None else f", which is output {place} of {forward_name(maker)},"
    hint = "" if anomaly else (" Hint: enable anomaly detection to find the operation that failed to compute its "
                               "gradient, with torch.autograd.set_detect_anomaly(True, check_nan=False).")
    return RuntimeError("one of the variables needed for gradient computation has been modified by an inplace "
                        f"operation: [{tensor_word(t)} {list(shape_of(t))}]{fn} is at version "
                        f"{version_of(t)}; expected version {expected} instead.{hint}")


def _changed(TensorBase t, expected, Node maker=None, place=0):
    return changed_in_place(t, expected, maker, place)
