# Values in and out: nested data, NumPy arrays, DLPack capsules, buffers.

# ---- tensors from data --------------------------------------------------------------------------------------------
cdef object scalar_tensor(object number):
    """A 0-dim CPU tensor of the number's own dtype (float: the default dtype)."""
    return tensor_from_data(number, -1, False)


cdef object index_tensor(object data):
    """An index that is a number or a sequence as a tensor: a mask, or integers, to which torch cuts other numbers."""
    cdef int found
    if isinstance(data, (list, tuple, range)):
        found = kInt64 if len(data) == 0 else dtype_from(data, -1)
        if found >= kComplexFloat:
            raise TypeError("'complex' object cannot be interpreted as an integer")
        return tensor_from_data(list(data), kInt64 if found >= kHalf else found, False)
    return tensor_from_data(data, -1, False)


cdef int shape_from(object data, int64_t* sizes) except -1:
    """The nesting of lists (and tensors and arrays inside them) as a shape; returns the rank."""
    cdef int n = 0
    while True:
        if isinstance(data, (list, tuple, range)):
            pass
        elif isinstance(data, (str, bytes)) and n:
            raise ValueError(f"too many dimensions '{type(data).__name__}'")
        elif isinstance(data, (TensorBase, str, bytes, dict, set)) or isinstance(data, builtin_type):
            return n                             # a tensor in a list counts as one number
        elif hasattr(data, "__array_interface__") or (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
            if getattr(data, "shape", None) == ():
                return n
        else:
            return n
        if n >= MAX_DIMS:
            raise ValueError(f"too many dimensions '{type(data).__name__}'")
        sizes[n] = len(data)
        n += 1
        if len(data) == 0:
            return n
        data = data[0]


cdef int going_on(int64_t n, int64_t i) except -1:
    """Between the items of a long sequence of n: Ctrl-C is heard, and the first time a length that no memory holds is
    refused before all of its items are asked for. A sequence that ends earlier than it says gets its IndexError."""
    if i == 0xFFFF:
        new_empty(1, &n, kBool, CPU, -1)
    PyErr_CheckSignals()
    return 0


cdef int dtype_from(object data, int best, int depth=0) except -2:
    """The dtype that holds every number of nested data; best starts at -1."""
    cdef int d
    cdef int64_t i, n
    if depth > MAX_DIMS:
        raise TypeError("new(): self-referential lists are incompatible")
    if PyFloat_Check(data) and (PyFloat_CheckExact(data) or not hasattr(data, "dtype")):
        d = default_dtype
    elif PyBool_Check(data):
        d = kBool
    elif PyLong_Check(data):
        d = kInt64
    elif PyComplex_Check(data):
        d = complex_of(default_dtype)
    elif isinstance(data, TensorBase):
        d = (<TensorBase>data).dt
    elif isinstance(data, (str, bytes, dict, set)) or data is None:
        if isinstance(data, (str, bytes)):
            raise TypeError(f"new(): invalid data type '{type(data).__name__}'")
        raise RuntimeError(f"Could not infer dtype of {type(data).__name__}")
    elif isinstance(getattr(data, "dtype", None), dtype):      # a typed storage
        d = dtype_id(data.dtype)
    elif hasattr(data, "dtype") and not isinstance(data, (list, tuple)):
        d = numpy_dtype_id(data)
    elif isinstance(data, builtin_type):
        raise RuntimeError(f"Could not infer dtype of {type(data).__name__}")
    elif hasattr(data, "__len__") and hasattr(data, "__getitem__"):
        n = len(data)
        for i in range(n):
            if i & 0xFFFF == 0xFFFF:
                going_on(n, i)
            best = dtype_from(data[i], best, depth + 1)
        return best
    else:
        raise RuntimeError(f"Could not infer dtype of {said_type(data)}")
    return d if best < 0 else promote(best, d)


cdef object fitting(object number, int dt):
    """The number as it may become an item of dtype dt; raises where torch says that it does not fit."""
    cdef int overflow = 0
    cdef int64_t v, high
    if is_only_stored(<DType>dt):
        raise RuntimeError("store_scalar: invalid type")
    if PyComplex_Check(number) and kBool < dt < kComplexFloat:
        raise TypeError("must be real number, not complex" if dt >= kHalf else
                        "'complex' object cannot be interpreted as an integer")
    if dt == kBool or dt >= kHalf:
        if PyLong_Check(number):
            PyLong_AsLongLongAndOverflow(number, &overflow)
        return float(number) if overflow else number
    if PyFloat_Check(number) and not -9.3e18 < number < 9.3e18:
        raise RuntimeError(f"value cannot be converted to type {DTYPE_NAMES[dt]} without overflow")
    if dt == kUInt64:
        if PyFloat_Check(number):
            raise TypeError("an integer is required")
        PyLong_AsUnsignedLongLong(int(number))   # its OverflowError is torch's
        return number
    high = INT64_MAX >> (64 - 8 * itemsize(<DType>dt))
    if is_unsigned(dt):
        high = 2 * high + 1
    v = PyLong_AsLongLongAndOverflow(int(number), &overflow)
    if overflow:
        raise ValueError("Overflow when unpacking long long")
    if not (-high if is_unsigned(dt) else -high - 1) <= v <= high or \
            is_unsigned(dt) and PyFloat_Check(number) and not 0 <= number <= high:
        raise RuntimeError(f"value cannot be converted to type {DTYPE_NAMES[dt]} without overflow")
    return number


cdef object not_a_number(object data, int dt):
    """The error of something that can be no item of a dtype."""
    name = said_type(data)
    return TypeError(f"'{name}' object cannot be interpreted as an integer" if dt < kHalf else f"must be real number, not {name}")


cdef int fill_from(TensorBase t, object data, int dim, char* p) except -1:
    cdef int64_t i, step
    if dim == t.rank:
        if isinstance(data, (list, tuple)):
            raise not_a_number(data, t.dt)
        if not is_number(<PyObject*>data):
            if isinstance(data, TensorBase) and (<TensorBase>data).count != 1:
                raise ValueError("only one element tensors can be converted to Python scalars") if t.dt >= kHalf else \
                    TypeError("only integer tensors of a single element can be converted to an index")
            number = python_number(data)
            if number is None:
                raise not_a_number(data, t.dt)
            data = number
        return write_number(fitting(data, t.dt), t.dt, p)
    step = t.strides[dim] * itemsize(<DType>t.dt)
    if not hasattr(data, "__len__") or len(data) != t.sizes[dim]:
        found = f"length {len(data)}" if hasattr(data, "__len__") else "not a sequence"
        if not hasattr(data, "__len__"):
            raise TypeError("not a sequence")
        raise ValueError(f"expected sequence of length {t.sizes[dim]} at dim {dim} (got {found[7:]})")
    for i in range(t.sizes[dim]):
        if i & 0xFFFF == 0xFFFF:
            PyErr_CheckSignals()
        fill_from(t, data[i], dim + 1, p + i * step)
    return 0


cdef object tensor_from_data(object data, int dt, bint share):
    """A CPU tensor from numbers, nested sequences, an array or a tensor; share: without a copy where possible."""
    cdef int64_t sizes[MAX_DIMS]
    cdef int rank
    cdef TensorBase t
    if isinstance(data, TensorBase):
        t = <TensorBase>data
        return detached_copy(t, dt)
    if hasattr(data, "__array_interface__") and not isinstance(data, (list, tuple)):
        t = from_interface(data, not share)
        if dt >= 0 and t.dt != dt:
            return cast_of(t, dt)
        return t if share else detached_copy(t, -1)
    rank = shape_from(data, sizes)
    if dt < 0:
        dt = dtype_from(data, -1)
        if dt < 0:
            dt = default_dtype
    t = new_empty(rank, sizes, dt, CPU, -1)
    if t.count:
        fill_from(t, data, 0, ptr_of(t))
    return t


cdef TensorBase detached_copy(TensorBase t, int dt):
    cdef TensorBase r = new_like_format(t, t.dt if dt < 0 else dt, PRESERVE, t.dev, t.dev_index)
    copy_into(r, t)
    return r


# ---- NumPy ----------------------------------------------------------------------------------------------------------
cdef dict typestr_ids = {"b1": kBool, "u1": kUInt8, "i1": kInt8, "i2": kInt16, "i4": kInt32, "i8": kInt64, "f2": kHalf,
                         "f4": kFloat, "f8": kDouble, "c8": kComplexFloat, "c16": kComplexDouble, "u2": kUInt16,
                         "u4": kUInt32, "u8": kUInt64}
cdef dict id_typestrs = {v: k for k, v in typestr_ids.items()}


cdef int numpy_dtype_id(object array) except -1:
    typestr = getattr(array.dtype, "str", None)
    dt = typestr_ids.get(typestr[1:]) if isinstance(typestr, str) and typestr[0] != ">" else None
    if dt is None:
        raise no_array_dtype(array)
    return dt


cdef object no_array_dtype(object array):
    kind = getattr(array.dtype, "type", None) if hasattr(array, "dtype") else None
    name = array.__array_interface__["typestr"] if kind is None else f"{kind.__module__}.{kind.__name__}"
    return TypeError(f"can't convert np.ndarray of type {name}. The only supported types are: float64, float32, float16, "
                     "complex64, complex128, int64, int32, int16, int8, uint64, uint32, uint16, uint8, and bool.")


cdef TensorBase from_interface(object array, bint quiet):
    """Shares the memory of an object with __array_interface__."""
    cdef int64_t sizes[MAX_DIMS]
    cdef int64_t strides[MAX_DIMS]
    cdef TensorBase t
    cdef int d, rank, dt, size
    info = array.__array_interface__
    if info["typestr"][0] == ">":
        raise ValueError("given numpy array has byte order different from the native byte order. "
                         "Conversion between byte orders is currently not supported.")
    code = typestr_ids.get(info["typestr"][1:])
    if code is None:
        raise no_array_dtype(array)
    dt = code
    size = itemsize(<DType>dt)
    address, readonly = info["data"]
    rank = read_ints(info["shape"], sizes)
    if info.get("strides") is None:
        strides_for(rank, sizes, strides)
    else:
        if read_ints(info["strides"], strides) != rank:
            raise ValueError("the array's shape and strides differ in length")
        for d in range(rank):
            if strides[d] < 0:
                raise ValueError("At least one stride in the given numpy array is negative, and tensors with negative "
                                 "strides are not currently supported. (You can probably work around this by making a "
                                 "copy of your array  with array.copy().) ")
            if strides[d] % size:
                raise ValueError("given numpy array strides not a multiple of the element byte size. "
                                 "Copy the numpy array to reallocate the memory.")
            strides[d] //= size
    if readonly and not quiet:
        warnings.warn("The given NumPy array is not writable, and PyTorch does not support non-writable tensors. This "
                      "means writing to this tensor will result in undefined behavior. You may want to copy the array to "
                      "protect its data or make it writable before converting it to a tensor. This type of warning will be "
                      "suppressed for the rest of this program.", UserWarning)
    t = blank_tensor()
    t.dt, t.dev, t.dev_index = dt, CPU, -1
    t.st = storage_foreign(<void*><size_t>address, <size_t>extent_of(rank, sizes, strides, 0) * size, CPU, -1, array)
    set_geometry(t, rank, sizes, strides, 0)
    return t


def _from_array(array):
    """Shares an array's memory."""
    return from_interface(array, False)


cdef class ArrayView(StorageExport):
    """What NumPy reads to share a tensor's memory, and keeps while it has it."""
    cdef readonly dict __array_interface__


def _array_view(TensorBase t):
    """An object with __array_interface__ over t's memory."""
    cdef ArrayView made = ArrayView.__new__(ArrayView)
    cdef int size = itemsize(<DType>t.dt)
    if t.dev != CPU:
        raise TypeError(f"can't convert {device_object(t.dev, t.dev_index)} device type tensor to numpy. Use Tensor.cpu() to "
                        "copy the tensor to host memory first.")
    if t.marks:
        bit = "conjugate" if t.marks & MARK_CONJ else "negative"
        raise RuntimeError(f"Can't call numpy() on Tensor that has {bit} bit set. "
                           f"Use tensor.resolve_{bit[:4 if bit[0] == 'c' else 3]}().numpy() instead.")
    if t.dt not in id_typestrs:
        raise TypeError(f"Got unsupported ScalarType {type_word(t.dt)}")
    made.hold(t.st)
    check_room(t)
    made.__array_interface__ = {
        "version": 3, "typestr": ("|" if size == 1 else "<") + id_typestrs[t.dt], "shape": shape_of(t),
        "data": (<size_t>(ptr_of(t) if ptr_of(t) != NULL else <char*>zero_place), False),
        "strides": tuple([t.strides[i] * size for i in range(t.rank)])}
    return made


cdef extern from "<unistd.h>":
    int close_descriptor "close"(int)


cdef class Descriptor:
    """Owns a file descriptor. No Python code runs at its end: a Ctrl-C that came there would be lost."""
    cdef readonly int number

    def __cinit__(self, int number):
        self.number = number

    def __dealloc__(self):
        if self.number >= 0:
            close_descriptor(self.number)


# ---- DLPack ---------------------------------------------------------------------------------------------------------
cdef extern from *:
    """
    struct MtDLTensor { void* data; struct { int32_t type; int32_t id; } device; int32_t ndim;
        struct { uint8_t code; uint8_t bits; uint16_t lanes; } dtype; int64_t* shape; int64_t* strides; uint64_t offset; };
    struct MtDLManaged {
        static constexpr const char* name = "dltensor";
        MtDLTensor t; void* ctx; void (*deleter)(MtDLManaged*);
    };
    struct MtDLVersioned {                       // since DLPack 1.0
        static constexpr const char* name = "dltensor_versioned";
        uint32_t major, minor; void* ctx; void (*deleter)(MtDLVersioned*); uint64_t flags; MtDLTensor t;
    };
    template <class M> void mt_dl_free(M* m) {
        PyGILState_STATE s = PyGILState_Ensure();
        Py_XDECREF((PyObject*)m->ctx);
        free(m->t.shape);
        free(m);
        PyGILState_Release(s);
    }
    template <class M> void mt_dl_capsule_free(PyObject* c) {
        if (PyCapsule_IsValid(c, M::name)) {
            M* m = (M*)PyCapsule_GetPointer(c, M::name);
            if (m->deleter) m->deleter(m);
        }
    }
    template <class M> void mt_dl_owner_free(PyObject* c) {
        M* m = (M*)PyCapsule_GetPointer(c, "mt_owner");
        if (m && m->deleter) m->deleter(m);
    }
    // A capsule over memory that `owner` keeps; t has its shape and strides in one block, which the capsule frees.
    template <class M> PyObject* mt_dl_wrap(M* m, const MtDLTensor& t, PyObject* owner) {
        m->t = t;
        Py_INCREF(owner);
        m->ctx = owner;
        m->deleter = mt_dl_free<M>;
        PyObject* made = PyCapsule_New(m, M::name, mt_dl_capsule_free<M>);
        if (!made) mt_dl_free(m);
        return made;
    }
    static PyObject* mt_dl_export(const MtDLTensor& t, PyObject* owner, bool versioned, bool copied) {
        if (!versioned) {
            MtDLManaged* m = (MtDLManaged*)calloc(1, sizeof(MtDLManaged));
            return m ? mt_dl_wrap(m, t, owner) : (free(t.shape), PyErr_NoMemory());
        }
        MtDLVersioned* m = (MtDLVersioned*)calloc(1, sizeof(MtDLVersioned));
        if (!m) return free(t.shape), PyErr_NoMemory();
        m->major = 1;
        m->flags = copied ? 2 : 0;
        return mt_dl_wrap(m, t, owner);
    }
    // The tensor of a capsule; NULL, without an exception, where it is no capsule of M or was used up.
    template <class M> MtDLTensor* mt_dl_tensor(PyObject* c) {
        return PyCapsule_IsValid(c, M::name) ? &((M*)PyCapsule_GetPointer(c, M::name))->t : nullptr;
    }
    static MtDLTensor* mt_dl_import(PyObject* c) {
        MtDLTensor* t = mt_dl_tensor<MtDLManaged>(c);
        return t ? t : mt_dl_tensor<MtDLVersioned>(c);
    }
    template <class M> PyObject* mt_dl_own(PyObject* c, const char* used) {
        PyObject* owner = PyCapsule_New(PyCapsule_GetPointer(c, M::name), "mt_owner", mt_dl_owner_free<M>);
        if (owner) PyCapsule_SetName(c, used);
        return owner;
    }
    // What keeps the memory of a capsule from now on; the capsule is used up.
    static PyObject* mt_dl_take(PyObject* c) {
        return PyCapsule_IsValid(c, MtDLManaged::name) ? mt_dl_own<MtDLManaged>(c, "used_dltensor")
                                                       : mt_dl_own<MtDLVersioned>(c, "used_dltensor_versioned");
    }
    """
    ctypedef struct DLDevice "decltype(MtDLTensor::device)":
        int32_t type, id
    ctypedef struct DLType "decltype(MtDLTensor::dtype)":
        unsigned char code, bits
        unsigned short lanes
    ctypedef struct DLTensor "MtDLTensor":
        void* data
        DLDevice device
        int32_t ndim
        DLType dtype
        int64_t* shape
        int64_t* strides
        uint64_t offset
    object mt_dl_export(DLTensor, object, bint, bint)
    DLTensor* mt_dl_import(object)
    object mt_dl_take(object)

# DLPack's type codes: 0 int, 1 uint, 2 float, 4 bfloat, 5 complex, 6 bool, from 7 on the 8-bit floats, 17 float4
cdef dict dlpack_types = {kBool: (6, 8), kUInt8: (1, 8), kInt8: (0, 8), kInt16: (0, 16), kInt32: (0, 32), kInt64: (0, 64),
                          kHalf: (2, 16), kBFloat16: (4, 16), kFloat: (2, 32), kDouble: (2, 64),
                          kComplexFloat: (5, 64), kComplexDouble: (5, 128), kComplexHalf: (5, 32), kUInt16: (1, 16),
                          kUInt32: (1, 32), kUInt64: (1, 64), kFloat8_e4m3fn: (10, 8), kFloat8_e4m3fnuz: (11, 8),
                          kFloat8_e5m2: (12, 8), kFloat8_e5m2fnuz: (13, 8), kFloat8_e8m0fnu: (14, 8)}


def _to_dlpack(TensorBase t, bint versioned=False, bint copied=False):
    """A DLPack capsule over t's memory; versioned: of DLPack 1.0, which tells whether the memory is a copy."""
    cdef StorageExport export = StorageExport.__new__(StorageExport)
    cdef DLTensor m
    cdef int d
    if t.dev != CPU:
        raise BufferError(f"Cannot pack tensors on {device_object(t.dev, t.dev_index)}")
    if t.dt not in dlpack_types:
        raise BufferError(f"{type_word(t.dt)} types are not supported by dlpack")
    code, bits = dlpack_types[t.dt]
    export.hold(t.st)                            # not the tensor: its memory may become another's
    check_room(t)
    memset(&m, 0, sizeof(m))
    m.shape = <int64_t*>malloc(max(1, 2 * t.rank) * sizeof(int64_t))
    if m.shape == NULL:
        raise MemoryError()
    m.strides = m.shape + t.rank
    m.data, m.ndim = ptr_of(t), t.rank
    m.device.type, m.device.id = 1, 0
    m.dtype.code, m.dtype.bits, m.dtype.lanes = code, bits, 1
    for d in range(t.rank):
        m.shape[d], m.strides[d] = t.sizes[d], t.strides[d]
    return mt_dl_export(m, export, versioned, copied)


def _from_dlpack(capsule):
    """A tensor over the memory of a DLPack capsule, which is used up."""
    cdef DLTensor* m = mt_dl_import(capsule)
    cdef TensorBase t
    cdef int64_t strides[MAX_DIMS]
    cdef int64_t extent
    cdef int d, dt = -1
    if m == NULL:
        raise RuntimeError("from_dlpack received an invalid capsule. Note that DLTensor capsules can be consumed only once, "
                           "so you might have already constructed a tensor from it once.")
    if m.device.type not in (1, 3):
        raise BufferError(f"DLPack import from device type {m.device.type} is not supported; copy to the CPU first")
    for key, value in dlpack_types.items():
        if value == (m.dtype.code, m.dtype.bits) and m.dtype.lanes == 1:
            dt = key
    if dt < 0 or not 0 <= m.ndim <= MAX_DIMS:
        raise RuntimeError(f"Unsupported DLPack type: code {m.dtype.code}, bits {m.dtype.bits}, lanes {m.dtype.lanes}")
    if m.ndim and m.shape == NULL:
        raise RuntimeError("from_dlpack received a tensor without a shape")
    if m.strides == NULL:
        row_major(m.ndim, m.shape, strides)
    else:
        memcpy(strides, m.strides, m.ndim * sizeof(int64_t))
    for d in range(m.ndim):
        if m.shape[d] < 0 or strides[d] < 0:
            raise RuntimeError(f"Storage size calculation overflowed with sizes={[m.shape[i] for i in range(m.ndim)]} "
                               f"and strides={[strides[i] for i in range(m.ndim)]}")
    extent = extent_of(m.ndim, m.shape, strides, 0)
    if extent and m.data == NULL:
        raise RuntimeError("from_dlpack received a tensor that has items but no memory")
    owner = mt_dl_take(capsule)
    t = blank_tensor()
    t.dt, t.dev, t.dev_index = dt, CPU, -1
    t.st = storage_foreign(<char*>m.data + m.offset, <size_t>extent * itemsize(<DType>dt), CPU, -1, owner)
    set_geometry(t, m.ndim, m.shape, strides, 0)
    return t


def _from_buffer(buffer, d, Py_ssize_t count, Py_ssize_t offset):
    """A 1-D tensor over a buffer's memory."""
    cdef int dt = dtype_id(d)
    cdef int size = itemsize(<DType>dt)
    cdef int64_t n, one = 1
    cdef TensorBase t
    cdef BufferHold held
    if not PyObject_CheckBuffer(buffer):
        raise ValueError("object does not implement Python buffer protocol.")
    raw = memoryview(buffer).cast("B")
    if raw.readonly:
        warnings.warn("The given buffer is not writable, and PyTorch does not support non-writable tensors. This means you can "
                      "write to the underlying (supposedly non-writable) buffer using the tensor. You may want to copy the buffer "
                      "to protect its data or make it writable before converting it to a tensor. This type of warning will be "
                      "suppressed for the rest of this program.", UserWarning)
    if raw.nbytes == 0 or count == 0:
        raise ValueError(f"both buffer length ({raw.nbytes}) and count ({count}) must not be 0")
    if offset < 0 or offset >= raw.nbytes:
        raise ValueError(f"offset ({offset} bytes) must be non-negative and no greater than buffer length "
                         f"({raw.nbytes} bytes) minus 1")
    if count < 0 and (raw.nbytes - offset) % size:
        raise ValueError(f"buffer length ({raw.nbytes - offset} bytes) after offset ({offset} bytes) must be a multiple of "
                         f"element size ({size})")
    n = (raw.nbytes - offset) // size if count < 0 else count
    if n <= 0 or n > (raw.nbytes - offset) // size:
        raise ValueError(f"requested buffer length ({n} * {size} bytes) after offset ({offset} bytes) must not be greater "
                         f"than actual buffer length ({raw.nbytes} bytes)")
    held = BufferHold(raw, False)                # not raw: Python code that gets hold of it could release it
    t = blank_tensor()
    t.dt, t.dev, t.dev_index = dt, CPU, -1
    t.st = storage_foreign(<char*>held.view.buf + offset, n * size, CPU, -1, (buffer, held))
    set_geometry(t, 1, &n, &one, 0)
    return t


def _from_device_memory(size_t address, int64_t nbytes, device place, owner):
    """A 1-D tensor of bytes over memory of a device that owner keeps."""
    cdef int64_t one = 1
    cdef TensorBase t = blank_tensor()
    t.dt, t.dev, t.dev_index = kUInt8, place.code, place.number
    t.st = storage_foreign(<void*>address, nbytes, place.code, place.number, owner)
    set_geometry(t, 1, &nbytes, &one, 0)
    return t


def _result_type(tuple operands):
    """The dtype that torch's promotion gives for tensors and numbers."""
    cdef Promotion p
    p.dims = p.zero = p.wrapped = -1
    for o in operands:
        if isinstance(o, TensorBase):
            promotion_add(&p, (<TensorBase>o).dt, (<TensorBase>o).rank, False)
        elif is_number(<PyObject*>o):
            promotion_add(&p, number_dtype(<PyObject*>o), 0, True)
        elif is_numpy_scalar(o):
            item = o.item()
            promotion_add(&p, number_dtype(<PyObject*>item), 0, True)
        else:
            raise TypeError(f"result_type() takes tensors and numbers, got {type(o).__name__}")
    return dtypes[promotion_result(&p)]


def _conj(x):
    """The conjugate of a tensor or number; a real one as it is."""
    if isinstance(x, TensorBase):
        return x if (<TensorBase>x).dt < kComplexFloat else x.conj_physical()
    return x.conjugate() if PyComplex_Check(x) else x
