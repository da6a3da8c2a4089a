# Nodes as Python sees them; what stands for a leaf.

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
        return add_hook(leaf_hooks(self.variable, "node_post"), fn)

    def register_prehook(self, fn):
        return add_hook(leaf_hooks(self.variable, "node_pre"), fn)

    def __call__(self, grad):
        accumulate(tensor_arg(self.variable), tensor_arg(grad), modes().grad, 0)
        return ()


cdef dict leaf_hooks(TensorBase leaf, str kind):
    """The hooks of a leaf's AccumulateGrad, which lives no longer than it is asked for."""
    if leaf.extra is None:
        leaf.extra = {}
    return leaf.extra.setdefault(kind, {})


cdef object accumulator_of(TensorBase leaf):
    """The one AccumulateGrad of a leaf, as long as it is referenced."""
    found = None if leaf.extra is None else leaf.extra.get("accumulator")
    made = None if found is None else found()
    if made is None:
        made = AccumulateGrad(leaf)
        if leaf.extra is None:
            leaf.extra = {}
        leaf.extra["accumulator"] = weakref.ref(made)
    return made


cdef object next_function(object target):
    return accumulator_of(<TensorBase>target) if isinstance(target, TensorBase) else seen_node(target)


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
    if node.op is not None and not [g for g in given if g is not None]:
        return None if node.ntargets == 1 else (None,) * node.ntargets      # nothing came: nothing goes on
    results.make(node.ntargets)
    compute(node, node.needs, &grads, &results)
    found = list_of_refs(&results)
    return found[0] if len(found) == 1 else tuple(found)


cdef extern from *:
    """
    // A node becomes an instance of a subclass that adds nothing to it; like every instance it owns a reference to that.
    static void mt_become(PyObject* o, PyObject* type) {
        Py_INCREF(type);
        Py_SET_TYPE(o, (PyTypeObject*)type);
    }
    """
    void mt_become(object, object)


cdef dict node_types = {}                        # the classes that Python sees nodes as, by name, each made when one is seen


def refuse_node(cls, *args, **kwargs):
    raise TypeError(f"cannot create '{cls.__name__}' instances")


cdef object seen_node(object o):
    """A node as Python sees it: of a class that is called as torch calls it (AddBackward0). Only who looks pays for that."""
    cdef Node node
    if Py_TYPE(<PyObject*>o) != <PyTypeObject*>Node:
        return o
    node = <Node>o
    if node.op is not None and node.op.node_name:
        name = node.name().rpartition("::")[2]
        if name not in node_types:
            node_types[name] = builtin_type(name, (Node,), {"__slots__": (), "__module__": "builtins",
                                                            "__new__": refuse_node})
        mt_become(node, node_types[name])
    return o


cdef int check_custom(Node node) except -1:
    """Only the node of a custom function is connected from Python."""
    if node.op is not None or isinstance(node, (CopySlices, AccumulateGrad)):
        raise RuntimeError(f"{node.name()} is not the node of a custom function")
    return 0


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
            self.metadata_object = {"traceback_": traceback.format_stack()}
            if getattr(evaluated, "node", None) is not None:
                self.metadata_object["parent_"] = evaluated.node

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
        if self.op is None:
            return type(self).__name__
        return self.op.node_name if self.op.several is None else self.op.several(self)

    @property
    def _op_name(self):
        return self.op.name

    def _value(self, str name):
        """What a parameter of the recorded call was, where the node has saved it; else None."""
        cdef int j
        for j in range(self.op.nsaved):
            if self.mask >> j & 1 and self.op.saved_kind[j] == S_VALUE and self.op.names[self.op.saved_param[j]] == name:
                return saved_at(self, j)
        return None

    def __repr__(self):
        return f"<{self.name().rpartition('::')[2]} object at {hex(id(self))}>"

    @property
    def next_functions(self):
        cdef uint64_t taken = 0
        cdef Formula f
        cdef int i
        if self.op is None or self.op.has_list or self.op.formulas is None:
            taken = ~taken
        else:                                    # an index or a mask has no gradient in any call
            for f in self.op.formulas:
                taken |= f.needs
        return tuple([(next_function(<object>self.links[i]), self.target_nr[i]) for i in range(self.ntargets)
                      if i >= 64 or taken >> i & 1])

    @property
    def metadata(self):
        """A dict for tools that watch the graph."""
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

    def _set_sequence_nr(self, uint64_t number):
        self.sequence = number * SEQUENCE_STEP

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
        if self.links != NULL:
            raise RuntimeError(f"{self.name()} is connected to its inputs already")
        make_links(self, <int>len(inputs), 0)
        for i, item in enumerate(inputs):
            if isinstance(item, TensorBase) and needs_grad(<TensorBase>item):
                connect(self, i, <TensorBase>item)

    def _attach(self, TensorBase out, int nr, bint several=False):
        """Makes out the node's output number nr; several: one of a function that returns more than one."""
        check_custom(self)
        attach(self, out, nr, None)
        note_maker(out, several)

    def _needs_input_grad(self, int i):
        return 0 <= i < self.ntargets and <object>self.links[i] is not None


cdef int note_maker(TensorBase out, bint several) except -1:
    """A view that a custom function gave may not be changed in place; several: one of more than one."""
    if out.base is not None:
        out.creation = VIEW_MULTI_OUTPUT if several else VIEW_CUSTOM
    return 0


def _note_maker(TensorBase out not None, bint several):
    note_maker(out, several)


def _check_dirty(TensorBase t not None):
    """Refuses the change that a custom function has made to a view which may not be changed."""
    if t.base is not None and t.creation != VIEW_NORMAL and (t.requires or t.base.requires):
        raise view_error(t, "is being modified inplace")


def _rebase(Node node, TensorBase t, int nr):
    """t was changed in place by the node's forward."""
    if t.fn is None and t.requires and t.base is None:
        raise RuntimeError("a leaf Variable that requires grad has been used in an in-place operation.")
    if t.base is not None and t.base.fn is None and (t.base.requires or t.requires):
        raise RuntimeError("a view of a leaf Variable that requires grad is being used in an in-place operation.")
    check_custom(node)
    if t.base is None:
        attach(node, t, nr, None)
    else:
        note_output(node, t, nr)                 # though it is the base's history: saved outputs lead here
        rebase_view(node, t, t.base)
