# The arguments of a call as a kernel of the library reads them, and what is said where there is no kernel.

cdef enum:
    MAX_VIEWS = 16
    MAX_LISTS = 6


cdef struct OutSpec:
    int rank, dt
    int64_t sizes[MAX_DIMS]


cdef struct AttrBuffer:                            # raw memory: an array of Attr would be zeroed on every call
    int64_t attrs[MAX_PARAMS * ATTR_WORDS]
    int64_t lists[MAX_LISTS][MAX_DIMS]
    double floats[2][MAX_DIMS]


cdef Py_ssize_t count_listed(Overload ov, PyObject** s) noexcept:
    """How many tensors are in lists."""
    cdef Py_ssize_t total = 0
    cdef int i
    for i in range(ov.ntensors):
        if ov.kind[ov.tensor_at[i]] == K_TENSORS:
            total += count_items(s[ov.tensor_at[i]])
    return total


cdef int fill_attr(int kind, object o, Attr* a) except -1:
    if o is None:
        a.given = False
    elif kind == K_STR:
        a.s = PyUnicode_AsUTF8(o)
        a.given = True
    elif kind == K_DTYPE:
        a.i = dtype_id(o)
        a.given = True
    elif kind in (K_DEVICE, K_LAYOUT, K_FORMAT, K_ANY):
        a.given = True
    else:
        number_attr(o, a)
    return 0


cdef int read_floats(Overload ov, object o, double* out) except -1:
    cdef Py_ssize_t i, n = len(o)
    if n > MAX_DIMS:
        raise RuntimeError(f"[{ov.name}] a kernel takes at most 2 lists of {MAX_DIMS} floats")
    for i in range(n):
        out[i] = o[i]
    return <int>n


cdef inline list fill_attrs(Overload ov, PyObject** s, AttrBuffer* buffer, Args* args):
    """What is no tensor, in schema order; returns the tensors that stand for numbers, None where there are none."""
    cdef Attr* attr = <Attr*>buffer.attrs
    cdef list numbers = None
    cdef PyObject* o
    cdef int p, nl = 0, nf = 0
    for p in range(ov.nparams):
        o = s[p]
        if ov.kind[p] == K_TENSOR:
            if not (p == 0 and ov.copies_self) and <object>o is not None and not is_tensor(o):
                if numbers is None:
                    numbers = []
                numbers.append(scalar_tensor(<object>o))
            continue
        if ov.kind[p] == K_GENERATOR:
            continue
        attr[args.na] = Attr()
        if ov.kind[p] == K_TENSORS:
            attr[args.na].i = count_items(o)
            attr[args.na].given = <object>o is not None
        elif ov.kind[p] == K_INTS or ov.kind[p] == K_BOOLS:
            if <object>o is not None:
                if nl == MAX_LISTS:
                    raise RuntimeError(f"[{ov.name}] a kernel takes at most {MAX_LISTS} lists")
                attr[args.na].n = read_ints_or_one(<object>o, buffer.lists[nl], ov.list_size[p])
                attr[args.na].list = buffer.lists[nl]
                attr[args.na].given = True
                nl += 1
        elif ov.kind[p] == K_FLOATS:
            if <object>o is not None:
                if nf == 2:
                    raise RuntimeError(f"[{ov.name}] a kernel takes at most 2 lists of {MAX_DIMS} floats")
                attr[args.na].n = read_floats(ov, <object>o, buffer.floats[nf])
                attr[args.na].flist = buffer.floats[nf]
                attr[args.na].given = True
                nf += 1
        else:
            fill_attr(ov.kind[p], <object>o, &attr[args.na])
        args.na += 1
    return numbers


cdef inline int64_t add_view(PyObject* o, View* v, Storage** storages, int32_t* nt) except -1:
    """The next view; returns how many items it has. None stands for a tensor that was not given."""
    cdef int at = nt[0]
    nt[0] = at + 1
    if <object>o is None:
        v[at] = View()
        storages[at] = NULL
        return 0
    check_room(<TensorBase>o)
    v[at].data, v[at].dtype = ptr_of(<TensorBase>o), <DType>(<TensorBase>o).dt
    v[at].sizes, v[at].strides, v[at].ndim = (<TensorBase>o).sizes, (<TensorBase>o).strides, (<TensorBase>o).rank
    storages[at] = (<TensorBase>o).st
    return (<TensorBase>o).count


cdef inline int64_t output_views(PyObject** outs, int nouts, View* v, Storage** storages, int32_t* nt) except -1:
    cdef int64_t work = 0
    cdef int i
    for i in range(nouts):
        if <object>outs[i] is not None:
            before_write(<TensorBase>outs[i])
        work += add_view(outs[i], v, storages, nt)
    return work


cdef int before_writes(Overload ov, PyObject** s) except -1:
    """before_write() of the arguments besides self that the kernel changes."""
    cdef int p
    for p in range(ov.nparams):
        if ov.writes >> p & 1 and is_tensor(s[p]):
            before_write(<TensorBase>s[p])
    return 0


cdef inline int64_t input_views(Overload ov, PyObject** s, list numbers, View* v, Storage** storages, int32_t* nt) except -1:
    cdef PyObject* o
    cdef int64_t work = 0
    cdef Py_ssize_t k, used = 0
    cdef int i, p
    for i in range(ov.ntensors):
        p = ov.tensor_at[i]
        o = s[p]
        if ov.kind[p] == K_TENSORS:
            for k in range(count_items(o)):
                work += add_view(items_of(o)[k], v, storages, nt)
        elif p == 0 and ov.copies_self:
            continue
        elif <object>o is None or is_tensor(o):
            work += add_view(o, v, storages, nt)
        else:
            add_view(PyList_GET_ITEM_(numbers, used), v, storages, nt)
            used += 1
    return work


cdef object device_error(TensorBase a, TensorBase b):
    return RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, "
                        f"{device_object(a.dev, a.dev_index)} and {device_object(b.dev, b.dev_index)}!")


cdef object no_kernel(Overload ov, int dev):
    name = ov.name
    where = device_types.names[dev]
    return NotImplementedError(f"[{name}] no kernel for {where}; add one in _backends/{where}/ops.py "
                               f"or write {name} as a composite")
