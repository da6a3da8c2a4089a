# How a plan reads the arguments of an op row into a call of launch.h. The launch itself: launch.pxi.

cdef list marshal(NpuPlan plan, NpuCall* call, tuple results, PyObject** s, int device):
    """Reads every argument into call; returns what has to stay alive.

    First everything that may run Python (numbers that say themselves what they are, copies, allocations), then the
    tensors: what Python does to a tensor in between (resize_, set_) is seen, and nothing runs between the look at its
    storage and the call."""
    cdef PyObject* given[MAX_NPU_ARGS]
    cdef list keep = None
    cdef int i, kind
    cdef PyObject* o
    cdef TensorArg t
    for i in range(plan.n):
        given[i] = slot_of(plan, i, results, s)
        if plan.reading[i] or not is_settled(plan, i, given[i]):
            keep = settle(plan, i, &given[i], keep, results, s, device)
    bind_device(device)                          # what ran may have used other devices
    for i in range(plan.n):
        kind, o = plan.kind[i], given[i]
        if kind <= kInout:
            if o == <PyObject*>None:
                t.ndim = -1
            else:
                describe_tensor(plan, <TensorBase>o, device, &t)
            call.tensor(kind, t)
        elif kind <= kInouts:
            marshal_list(plan, call, kind, o, device)
        else:
            marshal_value(plan, call, kind, <object>o, results)
    return keep


cdef inline bint is_settled(NpuPlan plan, int i, PyObject* o) noexcept:
    """Whether argument i can be read as it is; False does not mean that it cannot."""
    cdef int kind = plan.kind[i]
    if o == <PyObject*>None:
        return plan.instead[i] < 0
    if kind <= kInout:
        # A dense copy serves what is read only: CANN refuses an output that is not dense.
        return is_tensor(o) and (<TensorBase>o).dev == NPU and \
            (kind != kTensor or not plan.dense[i] or (<TensorBase>o).contig)
    if kind == kInts:
        return PyTuple_CheckExact(<object>o) and all_plain_ints(<tuple>o)
    if kind == kDtype:
        return Py_TYPE(o) == <PyTypeObject*>dtype
    return (PyLong_CheckExact(<object>o) or PyFloat_CheckExact(<object>o) or PyBool_Check(<object>o)) and \
        (kind == kScalar or kind > kString)


cdef list settle(NpuPlan plan, int i, PyObject** o, list keep, tuple results, PyObject** s, int device):
    """Makes of argument i what can be read without running Python: a tensor on an npu, a tuple of such tensors, or a
    plain number, word or tuple. keep, and what was made."""
    cdef int kind = plan.kind[i]
    cdef object made = None
    if plan.reading[i] or (o[0] == <PyObject*>None and plan.instead[i] >= 0):
        made = read_source(plan, i, results, s, device)
        keep = kept_with(keep, made)
        o[0] = <PyObject*>made
    if o[0] == <PyObject*>None or is_settled(plan, i, o[0]):
        return keep
    if kind <= kInout:
        if kind != kTensor:
            raise RuntimeError(f"[{plan.name}] expected a tensor on npu:{device} to write to, got {in_short(<object>o[0])}")
        made = tensor_on_npu(<object>o[0], device, results)
    elif kind <= kInouts:
        made = tensors_on_npu(plan, kind, <object>o[0], device)
    else:
        made = plain_value(plan, kind, <object>o[0])
        if <PyObject*>made == o[0]:
            return keep
    o[0] = <PyObject*>made
    return kept_with(keep, made)


cdef str in_short(object o):
    """What an argument is, for a message."""
    if isinstance(o, TensorBase):
        return f"one on {device_object((<TensorBase>o).dev, (<TensorBase>o).dev_index)}"
    return type(o).__name__


cdef inline list kept_with(list keep, object made):
    if keep is None:
        return [made]
    keep.append(made)
    return keep


cdef inline PyObject* slot_of(NpuPlan plan, int k, tuple results, PyObject** s) noexcept:
    if plan.source[k] == FROM_PARAM:
        return s[plan.at[k]]
    if plan.source[k] == FROM_RESULT:
        return PyTuple_GET_ITEM_(results, plan.at[k])
    return PyList_GET_ITEM_(plan.constants, plan.at[k])


# ---- sources that are not read as they are --------------------------------------------------------------------------
cdef object read_source(NpuPlan plan, int k, tuple results, PyObject** s, int device):
    """What source k of a plan stands for."""
    cdef PyObject* o = slot_of(plan, k, results, s)
    cdef int reading = plan.reading[k]
    cdef TensorBase t
    if reading >= READ_ONES:
        value = read_source(plan, plan.detail[k], results, s, device)
        return scratch(value, device) if reading == READ_SCRATCH else constant(reading, value, s, device)
    if reading == READ_SEED or reading == READ_OFFSET:
        return draw(reading, <object>o, <TensorBase?>results[0], device)
    if o == <PyObject*>None:
        return None if plan.instead[k] < 0 else read_source(plan, plan.instead[k], results, s, device)
    if reading == READ_PLAIN:
        return <object>o
    if reading == READ_CHOICE:
        return choice(<tuple>plan.constants[plan.detail[k]], <object>o)
    t = <TensorBase?>o
    if reading == READ_SIZE:
        return t.sizes[wrap_dim(plan.detail[k], t.rank)]
    return turned(t) if reading == READ_TURNED else with_dim(t) if reading == READ_ROW else rows_of(t)


cdef object choice(tuple known, object word):
    """The place of a word among those that the op knows; known: the parameter's name, and they."""
    if word not in known[1]:
        raise RuntimeError(f"{known[0]} argument must be either {' or '.join(known[1])}.")
    return known[1].index(word)


cdef TensorBase shown_as(TensorBase t, int rank, const int64_t* sizes, const int64_t* strides):
    """t's memory in another geometry, for one call: it shares no versions and no history."""
    cdef TensorBase r = blank_tensor()
    r.dt, r.dev, r.dev_index, r.st = t.dt, t.dev, t.dev_index, t.st
    t.st.refs += 1
    set_geometry(r, rank, sizes, strides, t.offset)
    return r


cdef TensorBase turned(TensorBase t):
    """The last two dims exchanged; a vector as it is."""
    cdef TensorBase r
    cdef int n = t.rank
    if n < 2:
        return t
    r = shown_as(t, n, t.sizes, t.strides)
    r.sizes[n - 1], r.sizes[n - 2] = r.sizes[n - 2], r.sizes[n - 1]
    r.strides[n - 1], r.strides[n - 2] = r.strides[n - 2], r.strides[n - 1]
    update_geometry(r)
    return r


cdef TensorBase with_dim(TensorBase t):
    """A number in a tensor as a vector of one item."""
    cdef int64_t one = 1
    return t if t.rank else shown_as(t, 1, &one, &one)


cdef TensorBase rows_of(TensorBase t):
    """A matrix: all dims but the last in one."""
    cdef int64_t sizes[2]
    cdef int64_t strides[2]
    cdef int d
    if t.rank == 2:
        return t
    sizes[0], sizes[1] = 1, t.sizes[t.rank - 1] if t.rank else 1
    for d in range(t.rank - 1):
        sizes[0] *= t.sizes[d]
    if not view_strides(t, sizes, 2, strides):
        t = contiguous_of(t)
        view_strides(t, sizes, 2, strides)
    return shown_as(t, 2, sizes, strides)


cdef object draw(int reading, object given, TensorBase out, int device):
    """The seed, or the offset of as many numbers as out has items, of the generator that was given or the device's."""
    cdef GeneratorBase g = backend_of(NPU).default_generator(device) if given is None else given
    if reading == READ_SEED:
        return <int64_t>g.philox_seed            # its bits
    return g.move_on(out.count)


cdef object constant(int reading, object value, PyObject** s, int device):
    """Ones in the dtype of the first tensor, or the mask of causal attention where value says so; made once."""
    cdef tuple key
    if reading == READ_CAUSAL and not value:
        return None
    key = (reading, tuple(value) if type(value) is list else value,
           reading == READ_ONES and (<TensorBase?>s[0]).dt, device)
    found = npu_constants.get(key)
    if found is None:
        found = npu_constants[key] = backend_of(NPU).make_constant("ones" if reading == READ_ONES else "causal", value,
                                                       dtypes[(<TensorBase>s[0]).dt], device)
    return found


cdef TensorBase scratch(object like, int device):
    """Memory for a result that is not wanted, as large as a tensor or as a list says; in float32 where that is a list,
    which is how CANN sums."""
    cdef int64_t sizes[MAX_DIMS]
    if isinstance(like, TensorBase):
        return new_empty((<TensorBase>like).rank, (<TensorBase>like).sizes, (<TensorBase>like).dt, NPU, device)
    return new_empty(read_ints(like, sizes), sizes, kFloat, NPU, device)


# ---- tensors and values ---------------------------------------------------------------------------------------------
cdef inline int describe_tensor(NpuPlan plan, TensorBase t, int device, TensorArg* a) except -1:
    """Runs no Python but to raise: see marshal()."""
    if t.dev_index != device or t.dev != NPU:
        raise RuntimeError(f"[{plan.name}] expected tensors on npu:{device}, got {in_short(t)}")
    if t.rank > MAX_RANK:
        raise RuntimeError(f"[{plan.name}] expected tensors of at most {MAX_RANK} dims, got {t.rank}")
    if t.st.owner != npu_heaps[device]:
        refuse_ended(t.st)
    a.sizes, a.strides, a.offset = t.sizes, t.strides, t.offset
    a.storage_items = <int64_t>(t.st.nbytes // itemsize(<DType>t.dt))
    # Not only where the storage is known to have shrunk: a device reads another tensor's memory and says nothing.
    if not is_within(t, a.storage_items):
        beyond_storage(t)
    if ACL_DTYPES[t.dt] < 0:
        raise no_data_type(plan, t.dt)
    a.base, a.ndim, a.dtype, a.dense = t.st.data, t.rank, ACL_DTYPES[t.dt], t.contig
    a.whole = t.contig and not t.offset and a.storage_items == t.count
    return 0


class NoDataType(RuntimeError):
    """CANN has no number for the dtype of a tensor."""


cdef object no_data_type(NpuPlan plan, int dt):
    return NoDataType(f"[{plan.name}] CANN has no data type for {dtypes[dt]!r}")


cdef int acl_number(NpuPlan plan, int dt) except -1:
    if ACL_DTYPES[dt] < 0:
        raise no_data_type(plan, dt)
    return ACL_DTYPES[dt]


cdef inline bint is_within(TensorBase t, int64_t items) noexcept:
    """Whether a storage of so many items holds t; False where beyond_storage() has to look."""
    cdef int64_t last = t.offset
    cdef int d
    if t.contig:
        return t.offset <= items - t.count
    for d in range(t.rank):                      # no size is 0: that counts as contiguous
        last += (t.sizes[d] - 1) * t.strides[d]
    return 0 <= last < items


cdef class DenseSpan:
    """Where the bytes of a contiguous tensor are, for a copy by address. Its storage holds it, and the block stays as long
    as this object, whatever other threads do to the storage while the copy is waited for."""
    cdef Storage* s
    cdef readonly size_t address
    cdef readonly int64_t nbytes

    def __cinit__(self, TensorBase t not None):
        if not t.contig:
            raise RuntimeError(f"expected a contiguous tensor, got strides {[t.strides[d] for d in range(t.rank)]}")
        refuse_ended(t.st)
        beyond_storage(t)
        self.address, self.nbytes = <size_t>ptr_of(t), t.count * <int64_t>itemsize(<DType>t.dt)
        storage_hold(t.st)
        self.s = t.st

    def __dealloc__(self):
        if self.s != NULL:
            storage_let_go(self.s)


cdef TensorBase tensor_on_npu(object o, int device, tuple results):
    """A number or a 0-dim CPU tensor as a tensor of the device; a tensor there as a dense one."""
    cdef TensorBase t, made
    if isinstance(o, TensorBase):
        t = <TensorBase>o
        if t.dev == NPU:
            if t.dev_index != device:
                raise RuntimeError(f"expected tensors on npu:{device}, got one on npu:{t.dev_index}")
            made = new_empty(t.rank, t.sizes, t.dt, NPU, device)
            copy_into(made, t)
            return made
        if t.rank:
            raise RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, "
                               f"npu:{device} and {device_object(t.dev, t.dev_index)}!")
        made = new_empty(0, NULL, t.dt, NPU, device)
        hot_call2(hot.fill_, made, item_of(t))
        return made
    made = new_empty(0, NULL, dtype_beside(o, results), NPU, device)
    hot_call2(hot.fill_, made, o)
    return made


cdef int32_t dtype_beside(object number, tuple results):
    """The dtype of a number among tensors: that of the result where it holds the number. Operands of one dtype are what
    CANN's documents state, and what torch_npu gives."""
    cdef int32_t own = number_dtype(<PyObject*>number), wide
    if PyTuple_GET_SIZE(results) != 1 or not isinstance(results[0], TensorBase):
        return own
    wide = (<TensorBase>results[0]).dt
    if wide >= kHalf:
        return wide if own < kComplexFloat or wide >= kComplexFloat else own
    return wide if wide != kBool and own < kHalf and 0 <= number <= 127 else own


cdef tuple tensors_on_npu(NpuPlan plan, int kind, object o, int device):
    """A list of tensors as a tuple of tensors of an npu, None among them."""
    cdef tuple items = own_items(o)
    cdef list made = None
    cdef Py_ssize_t k
    for k in range(PyTuple_GET_SIZE(items)):
        item = items[k]
        if item is None or (<TensorBase?>item).dev == NPU:
            continue
        if kind != kTensors:
            raise RuntimeError(f"[{plan.name}] expected tensors on npu:{device} to write to, got {in_short(item)}")
        if made is None:
            made = list(items)
        made[k] = tensor_on_npu(item, device, ())
    return items if made is None else tuple(made)


cdef int64_t no_items = 0, one_item = 1


cdef int marshal_list(NpuPlan plan, NpuCall* call, int kind, PyObject* o, int device) except -1:
    cdef TensorArg t
    cdef PyObject* item
    cdef Py_ssize_t k, n = 0 if o == <PyObject*>None else PyTuple_GET_SIZE(<object>o)
    call.list(kind, <int32_t>n, o != <PyObject*>None)
    for k in range(n):
        item = PyTuple_GET_ITEM_(<object>o, k)
        if item == <PyObject*>None:              # a dim that is not indexed: CANN reads a tensor without items
            t = TensorArg(&no_items, &one_item, 0, 0, NULL, 1, ACL_INT64, True, True)
        else:
            describe_tensor(plan, <TensorBase>item, device, &t)
        call.add(t)
    return 0


# ---- values: plain_value() may run Python, marshal_value() reads what it made ---------------------------------------
cdef object plain_value(NpuPlan plan, int kind, object o):
    """A value as an int, float, bool, complex, str, dtype, or a tuple of numbers; o itself where it is one."""
    if kind == kInts or kind == kBools:
        if PyTuple_CheckExact(o) and all_plain_ints(<tuple>o):
            return o
        if not isinstance(o, (tuple, list)):
            return (read_int(o),)
        return tuple([read_int(item) for item in own_items(o)])
    if kind == kScalars or kind == kFloats:
        return tuple([exact_number(item) for item in own_items(o)])
    if kind == kString:
        if not PyUnicode_Check(o):
            raise TypeError(f"[{plan.name}] expected a string, got {type(o).__name__}")
        return o
    if kind == kDtype:
        return o if isinstance(o, dtype) else dtypes[dtype_id(o)]
    return exact_number(o)


cdef tuple own_items(object o):
    """The items that a list or tuple has now, whatever a subclass says of them; those that anything else gives."""
    if PyTuple_CheckExact(o):
        return o
    if PyList_Check(o):
        return PyList_AsTuple(o)
    if PyTuple_Check(o):
        return PyTuple_GetSlice(o, 0, PyTuple_GET_SIZE(o))
    return tuple(o)


cdef inline bint all_plain_ints(tuple items) noexcept:
    cdef Py_ssize_t k
    for k in range(PyTuple_GET_SIZE(items)):
        if not PyLong_CheckExact(<object>PyTuple_GET_ITEM_(items, k)):
            return False
    return True


cdef int read_number(object o, Number* n) except -1:
    cdef Attr a
    number_attr(o, &a)
    n.i, n.re, n.im = a.i, a.f, a.im
    n.dtype = ACL_BOOL if PyBool_Check(o) else ACL_INT64 if PyLong_Check(o) else \
        ACL_COMPLEX128 if PyComplex_Check(o) else ACL_DOUBLE
    return 0


cdef int marshal_value(NpuPlan plan, NpuCall* call, int kind, object o, tuple results) except -1:
    cdef Number n
    cdef int64_t ints[MAX_DIMS]
    cdef double reals[MAX_DIMS]
    cdef tuple items
    cdef int count = 0
    if kind == kScalar:
        call.scalars(kind, 1, o is not None)
        if o is not None:
            read_number(o, &n)
            call.scalar(n)
        else:
            call.scalar(Number(ACL_DOUBLE, 0, 0, 0))
    elif kind == kScalars:
        if o is None:
            raise TypeError(f"[{plan.name}] expected a list of numbers, got None")
        items = <tuple>o
        call.scalars(kind, <int32_t>len(items), True)
        for item in items:
            read_number(item, &n)
            call.scalar(n)
    elif kind == kInts or kind == kBools:
        count = 0 if o is None else read_ints(o, ints)
        call.integers(kind, ints, count, True)   # no dims given: an empty array, which CANN reads as all of them
    elif kind == kFloats:
        items = () if o is None else <tuple>o
        if len(items) > MAX_DIMS:
            raise RuntimeError(f"[{plan.name}] takes at most {MAX_DIMS} floats in a list, got {len(items)}")
        count = <int>len(items)
        for i in range(count):
            reals[i] = items[i]
        call.reals(reals, count, o is not None)
    elif kind == kString:
        marshal_string(plan, call, o)
    elif kind == kDtype:
        if o is None and not results:
            raise TypeError(f"[{plan.name}] expected a dtype, got None")
        call.plain(kind, acl_number(plan, (<TensorBase?>results[0]).dt if o is None else (<dtype>o)._id), 0)
    else:
        marshal_plain(plan, call, kind, o)
    return 0


cdef int marshal_plain(NpuPlan plan, NpuCall* call, int kind, object o) except -1:
    """A number that goes to C as one: what its C type does not hold is refused, not cut."""
    cdef Number n
    if o is None or PyComplex_Check(o):
        raise TypeError(f"[{plan.name}] expected a number, got {o}")
    if kind == kUint64 and PyLong_Check(o) and 0 < o < 1 << 64:
        call.plain(kind, <int64_t><uint64_t>o, 0)
        return 0
    read_number(o, &n)
    if kind == kDoubleValue or kind == kFloatValue:
        call.plain(kind, 0, n.re)
    elif kind == kBoolValue:
        call.plain(kind, n.re != 0, 0)
    elif PyFloat_Check(o) and n.re != <double>n.i:
        raise TypeError(f"[{plan.name}] expected an integer, got {o}")
    elif kind == kInt32Value and n.i != <int32_t>n.i or kind == kInt8Value and not -128 <= n.i < 128:
        raise OverflowError(f"[{plan.name}] {o} does not fit an int{32 if kind == kInt32Value else 8}")
    else:
        call.plain(kind, n.i, 0)
    return 0


cdef int marshal_string(NpuPlan plan, NpuCall* call, object o) except -1:
    cdef Py_ssize_t size = 0
    cdef const char* text = NULL
    if o is not None:
        text = PyUnicode_AsUTF8AndSize(o, &size)
        if <Py_ssize_t>strlen(text) != size:     # C would read the part before it
            raise ValueError(f"[{plan.name}] expected a string without null characters, got {o!r}")
    call.string(text)
    return 0
