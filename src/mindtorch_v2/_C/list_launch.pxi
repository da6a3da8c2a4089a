# Rows over lists on an npu: one aclnn call for many tensors where CANN takes them.

cdef enum:
    LIST_BUDGET = 48                             # tensors that CANN takes in one call over lists, all lists together


cdef class NpuLists(ListKernel):
    """The aclnn op that takes all tensors of a row over lists."""
    cdef NpuPlan plan
    cdef uint64_t takes                          # the dtypes of its lists, as bits

    def __init__(self, NpuPlan plan not None, uint64_t takes):
        if not plan.id:
            raise RuntimeError("the plan was not made")
        self.plan, self.takes = plan, takes

    cdef tuple launch(self, Foreach row, tuple args, Py_ssize_t n):
        """The results of one call for all tensors (of several, for many); None where CANN cannot take them."""
        cdef PyObject* o = PyTuple_GET_ITEM_(<object>PyTuple_GET_ITEM_(args, row.first), 0)
        cdef tuple outs, part
        cdef list items
        cdef Py_ssize_t i, step = LIST_BUDGET // row.lists
        cdef int device
        if self.plan is None:
            raise RuntimeError("the plan was not made")
        device = (<TensorBase>o).dev_index
        args = self.suited(row, args, <TensorBase>o)
        if args is None:
            return None
        outs = <tuple>args[row.first]
        if not row.changes:
            outs = tuple([self.new_result(row, t) for t in outs])
        for i in range(0, n, step):
            items = [a[i:i + step] if type(a) is tuple else a for a in args]
            self.pack_numbers(row, items, device)
            part = tuple(items)
            npu_launch(self.plan, (outs[i:i + step],), tuple_items(part), device, True)
        if row.changes:
            for t in outs:
                bump_version(<TensorBase>t)
        return outs

    cdef TensorBase new_result(self, Foreach row, TensorBase t):
        return new_empty(0 if row.norm else t.rank, t.sizes, t.dt, NPU, t.dev_index)

    cdef tuple suited(self, Foreach row, tuple args, TensorBase first):
        """The arguments as the call takes them; None where it does not."""
        cdef list made = []
        cdef int p, kind
        for p in range(row.nparams):
            a, kind = args[p], row.kind[p]
            if kind == K_TENSORS:
                if not self.alike(<tuple>a, <tuple>args[row.first], first):
                    return None
            elif self.place_of(p) < 0:
                if a is not row.defaults[p] and a != row.defaults[p]:
                    return None
            elif kind == K_TENSOR:
                a = self.one_number(p, a, first)
            elif kind == K_SCALARS:
                a = real_numbers(a)
            elif kind == K_SCALAR:
                a = real_numbers((a,))
                a = None if a is None or row.norm and a[0] not in (1, 2) else a[0]
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
                    t.inference or t.marks or not same_shape(t, <TensorBase>PyTuple_GET_ITEM_(others, i)):
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
        if t.dt < kHalf or t.dt > kFloat or t.rank or rare(<DType>t.dt):
            return None
        if t.dt != dt:                           # torch computes in the dtype of the lists
            t = hot._to_copy(t, dtype=dtypes[dt])
        return hot._to_copy(t, dtype=dtypes[kFloat]) if dt == kBFloat16 else t

    cdef int pack_numbers(self, Foreach row, list args, int device) except -1:
        """Numbers that the op takes as a tensor become one."""
        cdef TensorBase t
        cdef int64_t count, i
        cdef int p, dt
        for p in range(row.nparams):
            if row.kind[p] != K_SCALARS or self.plan.kind[self.place_of(p)] != kTensor:
                continue
            count, dt = len(args[p]), (<TensorBase>args[row.first][0]).dt
            t = new_empty(1, &count, dt, CPU, -1)
            for i in range(count):
                write_number(args[p][i], dt, ptr_of(t) + i * itemsize(<DType>dt))
            args[p] = hot._to_copy(t, device=device_object(NPU, device))
        return 0


cdef tuple real_numbers(object items):
    """The numbers as floats; None where one is complex, a bool (which some ops refuse), or no plain number."""
    for item in items:
        if PyBool_Check(item) or not PyFloat_Check(item) and not PyLong_Check(item):
            return None
    return tuple([float(item) for item in items])
