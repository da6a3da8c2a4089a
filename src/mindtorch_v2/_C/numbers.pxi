# Numbers that callers give: what counts as one, and how it is read. Reading an exact one runs no Python.

cdef object python_number(object o):
    """A NumPy scalar, a 0-dim tensor or another number-like object as a Python number; None when it is none."""
    if isinstance(o, TensorBase):
        return item_of(<TensorBase>o) if (<TensorBase>o).count == 1 else None
    if isinstance(o, (str, bytes, list, tuple, dict)) or o is None:
        return None
    if getattr(o, "shape", ()) != ():
        return None
    item = getattr(o, "item", None)
    if item is not None and hasattr(o, "dtype"):
        item = item()
        if isinstance(item, (bool, complex)) and not isinstance(o, complex) or not is_number(<PyObject*>item):
            return float(o)                      # as torch: all that is no Python number is read as a float
        return item
    if hasattr(o, "__index__"):
        return int(o)
    if hasattr(o, "__float__"):
        return float(o)
    return None


cdef int number_dtype(PyObject* o) noexcept:
    if PyBool_Check(<object>o):
        return kBool
    if PyLong_Check(<object>o):
        return kInt64
    if PyFloat_Check(<object>o):
        return kDouble
    return kComplexDouble


cdef int number_attr(object v, Attr* a) except -1:
    """Fills f, im and i from a number."""
    cdef double complex c
    cdef int beyond = 0
    a.given = True
    if PyFloat_CheckExact(v):
        a.f = PyFloat_AS_DOUBLE(v)
        a.i = <int64_t>a.f if -9.2e18 < a.f < 9.2e18 else 0
    elif PyLong_Check(v):
        a.i = PyLong_AsLongLongAndOverflow(v, &beyond)
        if beyond:
            return wide_attr(v, a)
        a.f = <double>a.i
    elif PyComplex_Check(v):
        c = v
        a.f, a.im = c.real, c.imag
        a.i = <int64_t>a.f if -9.2e18 < a.f < 9.2e18 else 0
    elif PyFloat_Check(v):
        return number_attr(float(v), a)
    else:
        n = python_number(v)
        if n is None or not isinstance(n, (int, float, complex)):
            raise TypeError(f"expected a number, got {type(v).__name__}")
        return number_attr(n, a)
    return 0


cdef int write_number(object v, int dt, char* out) except -1:
    """The number as one item of dtype dt."""
    cdef Attr a
    cdef View t
    cdef Args args
    global fill_kernel
    number_attr(v, &a)
    if dt == kFloat:
        (<float*>out)[0] = <float>a.f
    elif dt == kDouble:
        (<double*>out)[0] = a.f
    elif dt == kInt64:
        (<int64_t*>out)[0] = a.i
    elif dt == kBool:
        (<char*>out)[0] = a.f != 0 or a.im != 0
    else:
        if fill_kernel == NULL:
            fill_kernel = kernel_named(b"fill")
        t.data, t.ndim, t.dtype = out, 0, <DType>dt
        args.t, args.nt, args.a, args.na = &t, 1, &a, 1
        fill_kernel(args)
    return 0


cdef dict python_dtypes = {float: "float64", int: "int64", bool: "bool", complex: "complex128"}


cdef bint is_numpy_scalar(object o):
    return not isinstance(o, TensorBase) and hasattr(type(o), "dtype") and hasattr(type(o), "item") \
        and not hasattr(type(o), "__setitem__") and getattr(o, "shape", None) == ()      # an array without dims is none


cdef str said_type(object o):
    """What torch calls an object's type: as CPython does, with the module of a type that C made."""
    cdef str name = (<bytes>Py_TYPE(<PyObject*>o).tp_name).decode()
    return type(o).__name__ if name.startswith("mindtorch_v2.") else name


def _said_type(o) -> str:
    """What torch's errors call an object's type."""
    return said_type(o)


cdef object exact_number(object o):
    """The number that an object stands for, as an int, float, complex or bool: reading it later runs no Python."""
    if is_exact_number(<PyObject*>o):
        return o
    if PyLong_Check(o):
        if is_symint(o):
            return o
        return int.__pos__(o)                    # not int(o): a subclass may say otherwise
    if PyFloat_Check(o):
        if is_symfloat(o):
            return o
        return float.__pos__(o)
    if PyComplex_Check(o):
        return complex.__pos__(o)
    number = python_number(o)
    if number is None or not is_number(<PyObject*>number):
        raise TypeError(f"expected a number, got {type(o).__name__}")
    return exact_number(number)


cdef int dtype_id(object o) except -1:
    if isinstance(o, dtype):
        return (<dtype>o)._id
    name = python_dtypes.get(o)
    if name is None:
        raise TypeError(f"dtype must be a torch.dtype, got {o!r}")
    return dtype_id(_dtype_named(name))


cdef int64_t read_odd_int(object o) except? -1:
    if isinstance(o, TensorBase):
        return item_of(<TensorBase>o)
    return o.__index__()


cdef int read_ints(object o, int64_t* out) except -1:
    """A tuple or list of ints into out; returns how many."""
    cdef Py_ssize_t i, n = PyTuple_GET_SIZE(o) if PyTuple_Check(o) else len(o)   # a subclass's __len__ may lie
    if n > MAX_DIMS:
        raise RuntimeError(f"expected at most {MAX_DIMS} ints, got {n}")
    if PyTuple_Check(o):
        for i in range(n):
            out[i] = read_int(<object>PyTuple_GET_ITEM_(o, i))
    else:
        for i in range(n):
            out[i] = read_int(o[i])
    return <int>n


cdef int read_ints_or_one(object o, int64_t* out, int size) except -1:
    """As read_ints; a single int is repeated `size` times."""
    cdef int i
    if isinstance(o, (tuple, list)):
        return read_ints(o, out)
    out[0] = read_int(o)
    for i in range(1, size):
        out[i] = out[0]
    return max(size, 1)


cdef int wide_attr(object v, Attr* a) except -1:
    """number_attr() of an int beyond int64: as torch, whatever fits in 64 bits without a sign is read as those bits."""
    cdef uint64_t bits = PyLong_AsUnsignedLongLong(v)
    a.i, a.f = <int64_t>bits, <double>bits
    return 0
