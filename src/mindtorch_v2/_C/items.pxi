# Items as Python numbers: one of them, or all as nested lists.

cdef object read_item(const char* p, int dt):
    cdef float f
    if dt == kFloat:
        return <double>(<float*>p)[0]
    if dt == kInt64:
        return (<int64_t*>p)[0]
    if dt == kDouble:
        return (<double*>p)[0]
    if dt == kBool:
        return (<char*>p)[0] != 0
    if dt == kInt32:
        return (<int32_t*>p)[0]
    if dt == kUInt8:
        return (<unsigned char*>p)[0]
    if dt == kInt8:
        return <int>(<signed char*>p)[0]
    if dt == kInt16:
        return (<short*>p)[0]
    if dt == kComplexFloat:
        return complex((<float*>p)[0], (<float*>p)[1])
    if dt == kComplexDouble:
        return complex((<double*>p)[0], (<double*>p)[1])
    if dt == kBFloat16:
        return <double>bf16_to_float((<unsigned short*>p)[0])
    if dt == kHalf:
        return <double>f16_to_float((<unsigned short*>p)[0])
    return read_rare_item(p, dt)


cdef object read_rare_item(const char* p, int dt):
    """read_item() of the dtypes that few kernels know."""
    global copy_kernel
    cdef double wide[2]
    cdef View v[2]
    cdef Args args
    if dt == kUInt16:
        return (<unsigned short*>p)[0]
    if dt == kUInt32:
        return (<unsigned int*>p)[0]
    if dt == kUInt64:
        return (<uint64_t*>p)[0]
    if is_only_stored(<DType>dt):
        raise NotImplementedError(f"\"_local_scalar_dense_cpu\" not implemented for '{type_word(dt)}'")
    if copy_kernel == NULL:
        copy_kernel = kernel_named(b"copy")
    v[0].data, v[0].ndim, v[0].dtype = &wide[0], 0, kComplexDouble
    v[1].data, v[1].ndim, v[1].dtype = <void*>p, 0, <DType>dt
    args.t, args.nt = v, 2
    copy_kernel(args)
    return complex(wide[0], wide[1]) if dt == kComplexHalf else wide[0]


cdef object item_of(TensorBase t):
    """The one item as a Python number; dispatch modes and classes are asked for it."""
    if modes().dispatch_mode_count or Py_TYPE(<PyObject*>t) != tensor_type and Py_TYPE(<PyObject*>t) != parameter_type:
        return (<object>t).item()
    return stored_item(t)


def _stored_item(TensorBase t not None):
    """The one item in the memory of a tensor."""
    return stored_item(t)


cdef object stored_item(TensorBase t):
    if t.dev == META:
        raise RuntimeError("Tensor.item() cannot be called on meta tensors")
    if t.count != 1:
        raise RuntimeError(f"a Tensor with {t.count} elements cannot be converted to Scalar")
    if t.dev != CPU or t.marks:
        t = host_copy(t)
    check_room(t)
    return read_item(ptr_of(t), t.dt)


cdef object single_item(TensorBase t):
    """item_of() for Python's conversions to a number."""
    if t.count != 1:
        raise ValueError("only one element tensors can be converted to Python scalars")
    return item_of(t)


cdef object real_number(TensorBase t, int dt):
    """The one item, which becomes an int or float of Python; a complex one has to fit what torch makes of it."""
    number = single_item(t)
    if t.dt < kComplexFloat:
        return number
    check_fits(number, dt)
    return number.real


cdef TensorBase host_copy(TensorBase t):
    cdef TensorBase r = new_empty(t.rank, t.sizes, t.dt, CPU, -1)
    copy_into(r, t)
    return r


cdef object list_of(TensorBase t):
    if t.dev == META:
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")
    if t.dev != CPU or t.marks:
        t = host_copy(t)
    t = alias(t)                                 # its own: making lists may run the garbage collector, and so Python
    check_room(t)
    storage_hold(t.st)
    try:
        return list_level(t, 0, ptr_of(t))
    finally:
        storage_let_go(t.st)


cdef object list_level(TensorBase t, int dim, const char* p):
    cdef int64_t i, n, step
    cdef list r
    if dim == t.rank:
        return read_item(p, t.dt)
    n, step = t.sizes[dim], t.strides[dim] * itemsize(<DType>t.dt)
    r = PyList_New(n)
    for i in range(n):
        v = list_level(t, dim + 1, p + i * step)
        Py_INCREF(v)
        PyList_SET_ITEM(r, i, v)
    return r
