# Ops over lists of tensors (torch._foreach_*): one call for many tensors where a backend takes them, else one each.

cdef class ListKernel:
    """A kernel of a backend that takes all tensors of a row over lists at once."""

    cdef tuple launch(self, Foreach row, tuple args, Py_ssize_t n):
        """The results; None where it does not take these tensors."""
        return None


cdef class Foreach:
    """The body of a row over lists: `each` of the items, or one call of a backend for all of them."""

    def __init__(self, schema, list params, each, list arguments, npu=None, bint norm=False):
        """params: as in _define. arguments: (parameter, keyword or "") of each argument that `each` takes."""
        if len(arguments) > MAX_EACH_ARGS or len(params) > MAX_PARAMS:
            raise ValueError(f"{schema}: too many arguments")
        self.schema, self.npu, self.each, self.norm = schema, npu, each, norm
        self.nparams, self.nargs, self.first = len(params), len(arguments), -1
        self.kernels = [None] * NUM_DEVICES
        self.defaults = tuple([p[4] for p in params])
        for i, (_, kind, *_, mutable) in enumerate(params):
            self.kind[i] = KINDS.index(kind)
            self.changes = self.changes or (mutable and i == 0)
            if self.kind[i] == K_TENSORS:
                self.lists += 1
                self.first = i if self.first < 0 else self.first
        self.lists += not self.changes
        for i, (at, _) in enumerate(arguments):
            if not 0 <= at < len(params):
                raise ValueError(f"{schema}: no parameter {at}")
            self.at[i] = at
        self.keywords = tuple([sys.intern(k) for _, k in arguments if k])

    def __call__(self, *args):
        cdef tuple owned = self.own(args)
        cdef Py_ssize_t n = self.length(owned)
        cdef tuple made = self.at_once(owned, n) if self.npu is not None and n > 1 else None
        if made is None:
            made = self.one_by_one(owned, n) if isinstance(self.each, Op) else self.each(*owned)
        return args[0] if self.changes else made

    cdef tuple own(self, tuple args):
        """The arguments with lists as tuples, which do not change meanwhile; a TypeError where one is of another kind."""
        cdef list owned = []
        cdef int p
        if len(args) != self.nparams or self.each is None:
            raise TypeError(f"{self.schema}: expected {self.nparams} arguments, got {len(args)}")
        for p in range(self.nparams):
            a = args[p]
            if self.kind[p] == K_TENSORS or self.kind[p] == K_SCALARS or isinstance(a, list):
                a = tuple(a)
            if self.kind[p] == K_TENSORS:
                for item in a:
                    if item is not None:
                        tensor_arg(item)
            elif self.kind[p] == K_TENSOR:
                tensor_arg(a)
            owned.append(a)
        return tuple(owned)

    cdef Py_ssize_t length(self, tuple args) except -1:
        """How many items every list has; torch's words where they differ."""
        cdef Py_ssize_t n = -1, m
        cdef int p
        for p in range(self.nparams):
            if self.kind[p] == K_TENSOR and (<TensorBase>args[p]).rank and isinstance(self.each, Op):
                raise RuntimeError(f"scalar tensor expected to be 0 dim but it has {(<TensorBase>args[p]).rank} "
                                   f"dimensions and {(<TensorBase>args[p]).count} elements.")
            if self.kind[p] != K_TENSORS and self.kind[p] != K_SCALARS:
                continue
            m = len(args[p])
            if m == 0 and self.kind[p] == K_TENSORS:
                raise RuntimeError("Tensor list must have at least one tensor.")
            if n >= 0 and m != n and self.kind[p] == K_SCALARS:
                raise RuntimeError("Tensor list must have same number of elements as scalar list.")
            if n >= 0 and m != n:
                raise RuntimeError(f"Tensor lists must have the same number of tensors, got {n} and {m}")
            n = m
        return n

    cdef tuple one_by_one(self, tuple args, Py_ssize_t n):
        cdef PyObject* given[MAX_EACH_ARGS]
        cdef Py_ssize_t i, named = PyTuple_GET_SIZE(self.keywords)
        cdef PyObject* names = <PyObject*>self.keywords if named else NULL
        cdef int k, p
        cdef list made = []
        for i in range(n):
            for k in range(self.nargs):
                p = self.at[k]
                given[k] = PyTuple_GET_ITEM_(args, p)
                if self.kind[p] == K_TENSORS or self.kind[p] == K_SCALARS:
                    given[k] = PyTuple_GET_ITEM_(<object>given[k], i)
            made.append(steal((<Op>self.each).vectorcall(<PyObject*>self.each, given, self.nargs - named, names)))
        return tuple(made)

    cdef tuple at_once(self, tuple args, Py_ssize_t n):
        """The results of one call for all tensors; None where the backend of the first has none for these."""
        cdef PyObject* o = PyTuple_GET_ITEM_(<object>PyTuple_GET_ITEM_(args, self.first), 0)
        cdef int dev, p
        if not is_tensor(o) or (<TensorBase>o).dev <= META:
            return None
        for p in range(self.nparams):
            if self.kind[p] == K_TENSORS:
                for item in <tuple>args[p]:
                    if item is not None and (<TensorBase>item).st.shrunk and not (<TensorBase>item).st.nbytes:
                        return None              # it has no memory: see _make_wrapper
        dev = (<TensorBase>o).dev
        found = self.kernels[dev]
        if found is None:
            found = backend_of(dev).list_kernel(self.schema, self.npu)
            self.kernels[dev] = False if found is None else found
        return None if found is False or found is None else (<ListKernel?>found).launch(self, args, n)
