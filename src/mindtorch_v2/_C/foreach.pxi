# Ops over lists of tensors (torch._foreach_*): one aclnn call for many tensors where CANN takes them, else one each.

cdef enum:
    MAX_EACH_ARGS = 8
    LIST_BUDGET = 48                             # tensors that CANN takes in one call over lists, all lists together

cdef object foreach_resolver = None              # callable(schema, npu): a plan and its dtypes as bits, or None


def _set_foreach_resolver(resolve):
    """Who finds the aclnn op of a Foreach at its first use on an npu: resolve(schema, npu) gives a plan and the
    dtypes of its lists as bits, or None."""
    global foreach_resolver
    foreach_resolver = resolve


cdef class Foreach:
    """The body of a row over lists: `each` of the items, or one call of an npu for all of them."""
    cdef readonly object each                    # an op, or a function that takes the row's arguments as they are
    cdef readonly str schema
    cdef readonly object npu                     # its call for all items (_row.Npu), or None
    cdef int nparams, nargs
    cdef int first, lists                        # where the first list is; how many there are, new results among them
    cdef int kind[MAX_PARAMS]
    cdef int at[MAX_EACH_ARGS]                   # the parameter that each argument of `each` is
    cdef tuple keywords, defaults                # names of the last arguments; the row's defaults
    cdef bint changes                            # the first list is changed in place, and is the result
    cdef bint norm                               # one number a tensor is the result
    cdef bint asked                              # whether the backend was asked for a plan
    cdef NpuPlan plan
    cdef uint32_t takes                          # the dtypes of its lists, as bits

    def __init__(self, schema, list params, each, list arguments, npu=None, bint norm=False):
        """params: as in _define. arguments: (parameter, keyword or "") of each argument that `each` takes."""
        if len(arguments) > MAX_EACH_ARGS or len(params) > MAX_PARAMS:
            raise ValueError(f"{schema}: too many arguments")
        self.schema, self.npu, self.each, self.norm = schema, npu, each, norm
        self.nparams, self.nargs, self.first = len(params), len(arguments), -1
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
            made.append(steal(op_vectorcall(<PyObject*>self.each, given, self.nargs - named, names)))
        return tuple(made)

    # ---- all at once ------------------------------------------------------------------------------------------------
    cdef tuple at_once(self, tuple args, Py_ssize_t n):
        """The results of one call for all tensors (of several, for many); None where CANN cannot take them."""
        cdef PyObject* o = PyTuple_GET_ITEM_(<object>PyTuple_GET_ITEM_(args, self.first), 0)
        cdef tuple outs, part
        cdef list items
        cdef Py_ssize_t i, step = LIST_BUDGET // self.lists
        cdef int device
        if not is_tensor(o) or (<TensorBase>o).dev != NPU or not self.has_plan():
            return None
        device = (<TensorBase>o).dev_index
        args = self.suited(args, <TensorBase>o)
        if args is None:
            return None
        outs = <tuple>args[self.first]
        if not self.changes:
            outs = tuple([self.new_result(t) for t in outs])
        for i in range(0, n, step):
            items = [a[i:i + step] if type(a) is tuple else a for a in args]
            self.pack_numbers(items, device)
            part = tuple(items)
            npu_launch(self.plan, (outs[i:i + step],), tuple_items(part), device, True)
        if self.changes:
            for t in outs:
                bump_version(<TensorBase>t)
        return outs

    cdef bint has_plan(self) except -1:
        if not self.asked:
            found = foreach_resolver(self.schema, self.npu)
            if found is not None:
                self.plan, self.takes = found
            self.asked = True
        return self.plan is not None

    cdef TensorBase new_result(self, TensorBase t):
        return new_empty(0 if self.norm else t.rank, t.sizes, t.dt, NPU, t.dev_index)

    cdef tuple suited(self, tuple args, TensorBase first):
        """The arguments as the call takes them; None where it does not."""
        cdef list made = []
        cdef int p, kind
        for p in range(self.nparams):
            a, kind = args[p], self.kind[p]
            if kind == K_TENSORS:
                if not self.alike(<tuple>a, <tuple>args[self.first], first):
                    return None
            elif self.place_of(p) < 0:
                if a is not self.defaults[p] and a != self.defaults[p]:
                    return None
            elif kind == K_TENSOR:
                a = self.one_number(p, a, first)
            elif kind == K_SCALARS:
                a = real_numbers(a)
            elif kind == K_SCALAR:
                a = real_numbers((a,))
                a = None if a is None or self.norm and a[0] not in (1, 2) else a[0]
            if a is None and kind <= K_SCALAR or a is None and kind == K_SCALARS:
                return None
            made.append(a)
        return tuple(made)

    cdef bint alike(self, tuple items, tuple others, TensorBase first) except -1:
        """Whether these are dense tensors of first's dtype and device, as large as the others, and not recorded."""
        cdef TensorBase t
        cdef bint grad = modes().grad
        cdef Py_ssize_t i
        for i in range(PyTuple_GET_SIZE(items)):
            if items[i] is None:
                return False
            t = <TensorBase>PyTuple_GET_ITEM_(items, i)
            if t.dev != NPU or t.dev_index != first.dev_index or t.dt != first.dt or \
                    not self.takes >> <int>t.dt & 1 or not t.contig or not t.count or t.rank > MAX_RANK or \
                    t.inference or not same_shape(t, <TensorBase>PyTuple_GET_ITEM_(others, i)):
                return False
            if grad and needs_grad(t):
                return False
        return True

    cdef int place_of(self, int p) noexcept:
        """Which argument of the aclnn op parameter p is; -1: none."""
        cdef int i
        for i in range(self.plan.n):
            if self.plan.source[i] == FROM_PARAM and self.plan.at[i] == p:
                return i
        return -1

    cdef object one_number(self, int p, object o, TensorBase first):
        """A tensor of one number in a dtype that the op takes beside these lists (float32 for bfloat16), or None."""
        cdef TensorBase t = <TensorBase>o
        cdef int i = self.place_of(p), dt = first.dt
        if t.dev != NPU or t.dev_index != first.dev_index or t.count != 1 or needs_grad(t) and modes().grad:
            return None
        if not self.plan.takes[i]:               # the table has no dtypes for it: float32, as in loss scaling
            return t if t.dt == kFloat else None
        if t.dt < kHalf or t.dt > kFloat or t.rank:
            return None
        if t.dt != dt:                           # torch computes in the dtype of the lists
            t = to_copy_op(t, dtype=dtypes[dt])
        return to_copy_op(t, dtype=dtypes[kFloat]) if dt == kBFloat16 else t

    cdef int pack_numbers(self, list args, int device) except -1:
        """Numbers that the op takes as a tensor become one."""
        cdef TensorBase t
        cdef int64_t count, i
        cdef int p, dt
        for p in range(self.nparams):
            if self.kind[p] != K_SCALARS or self.plan.kind[self.place_of(p)] != kTensor:
                continue
            count, dt = len(args[p]), (<TensorBase>args[self.first][0]).dt
            t = new_empty(1, &count, dt, CPU, -1)
            for i in range(count):
                write_number(args[p][i], dt, ptr_of(t) + i * itemsize(<DType>dt))
            args[p] = to_copy_op(t, device=device_object(NPU, device))
        return 0


cdef tuple real_numbers(object items):
    """The numbers as floats; None where one is complex, a bool (which some ops refuse), or no plain number."""
    for item in items:
        if PyBool_Check(item) or not PyFloat_Check(item) and not PyLong_Check(item):
            return None
    return tuple([float(item) for item in items])
