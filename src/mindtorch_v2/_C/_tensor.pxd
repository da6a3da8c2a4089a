# The lowest part of the core: dtypes, devices, storages, tensors, numbers, generators, and the interface of backends.
from mindtorch_v2._C.python cimport *
from mindtorch_v2._C.library cimport *
from mindtorch_v2._C.geometry cimport *
cdef enum:
    CONTIGUOUS = 0
    PRESERVE = 1
    CHANNELS_LAST = 2
    CHANNELS_LAST_3D = 3
cdef enum:
    CPU = 0
    META = 1
    NPU = 2
    PRIVATE = 3                                  # torch's PrivateUse1: a backend that is not of this package
    NUM_DEVICES = 4

cdef enum:
    INLINE_DIMS = 5
    MAX_DIMS = 128
    # how a view came to be, which decides whether it may be changed in place
    VIEW_NORMAL = 0
    VIEW_NO_GRAD = 1
    VIEW_INFERENCE = 2                           # made in inference mode of a normal tensor
    VIEW_MULTI_OUTPUT = 3
    VIEW_CUSTOM = 4                              # made in the forward of a custom Function, or an input that it returned
    # marks of a tensor: its items are read conjugated, negated (see copy.pxi)
    MARK_CONJ = 1
    MARK_NEG = 2

cdef enum:
    NOGIL_ITEMS = 16384                          # release the GIL around kernels over more items than this

cdef extern from "Python.h":
    void _Py_NewReference(PyObject*)
    void PyObject_GC_Track(PyObject*)
    void PyObject_GC_UnTrack(PyObject*)
    object PyObject_GenericGetDict(object, void*)
    int PyObject_GenericSetDict(object, object, void*) except -1

cdef extern from "pythread.h" nogil:
    ctypedef void* PyThread_type_lock
    PyThread_type_lock PyThread_allocate_lock()
    void PyThread_free_lock(PyThread_type_lock)
    int PyThread_acquire_lock(PyThread_type_lock, int)
    void PyThread_release_lock(PyThread_type_lock)
    int WAIT_LOCK, NOWAIT_LOCK

cdef struct Promotion:
    int dims, zero, wrapped                      # -1: none yet

# ---- classes
cdef class dtype:
    cdef readonly int _id
    cdef readonly str _name
    cdef readonly int itemsize
    cdef readonly bint is_floating_point, is_complex


cdef class layout:
    cdef str name
    cdef public object owner                     # the class that makes tensors of this layout; None: the core does


cdef class memory_format:
    cdef str name
    cdef int code


cdef class ThreadStacks:
    cdef list function_modes, dispatch_modes     # active TorchFunctionMode and TorchDispatchMode objects, innermost last
    cdef list transforms, levels                 # vmap's levels and the like: see layers.pxi; (number, transforms) of torch.func
    cdef list saved_hooks, watchers              # (pack, unpack) pairs; profilers, with begin and end; innermost last
    cdef list devices                            # what set_default_device has set, or None; then `with device` blocks
    cdef bint classes_off                        # tensors of classes with a __torch_dispatch__ are seen as plain ones
    cdef int nested_backwards                    # runs of backward inside of backward
    cdef object hooks_forbidden                  # why saved_tensors_hooks may not be used, when it may not


cdef class DeviceTypes:
    cdef list names
    cdef list backends                           # a Backend each
    cdef dict made                               # (code, index) -> the one device object
    cdef dict read                               # text that was read before -> device


cdef class device:
    cdef int code                                # -1: not made yet
    cdef int number                              # -1: not given


cdef class StorageBase:
    cdef Storage* s

    cdef void take(self, Storage* s)


cdef class TensorBase:
    cdef Storage* st
    cdef int64_t* sizes
    cdef int64_t* strides
    cdef int64_t inline_dims[2 * INLINE_DIMS]
    cdef int64_t offset, count
    cdef int32_t rank, dt, dev, dev_index
    cdef bint contig, requires, inference
    cdef int32_t output_nr
    cdef int16_t creation, marks                 # marks: MARK_ bits; whatever has any is `foreign` to binding
    cdef uint32_t version, view_version, birth   # birth: the level of torch.func that it was made in
    cdef Version* shared_version                 # NULL: not shared, and `version` counts
    cdef TensorBase base                         # the tensor this is a view of
    cdef object fn                               # grad_fn: a Node of the recorded graph
    cdef object grad_object
    cdef dict extra                              # hooks, retain_grad, names: what few tensors have
    cdef PyObject* attributes                    # __dict__ and weak references: see free_list.pxi
    cdef PyObject* weakrefs


cdef class GeneratorBase:
    cdef CGenerator* g                           # NULL on accelerators
    cdef uint64_t philox_seed, philox_offset     # of those
    cdef readonly object device
    cdef PyThread_type_lock lock                 # one thread at a time draws without the GIL
    cdef int users                               # threads that have it or wait for it

    cdef int acquire(self) except -1
    cdef void release(self) noexcept
    cdef object move_on(self, uint64_t increment)


cdef class Memory:
    cdef readonly bint ended                     # the device took back all memory, live blocks too

    cdef int free_block(self, size_t address) noexcept
    cdef int record_use(self, size_t address, uint64_t stream) except -1
    cdef object lost(self, int index)


cdef class Backend:
    cdef readonly int code
    cdef readonly bint ready
    cdef readonly int max_rank                   # dims that any kernel takes
    cdef dict generators                         # the default generator of each device, by index
    cdef object seed                             # what a device that is seen for the first time starts from

    cdef Storage* new_storage(self, size_t nbytes, int index) except NULL
    cdef int move_block(self, Storage* to, Storage* source, size_t nbytes) except -1
    cdef int copy_items(self, TensorBase dst, TensorBase src, bint non_blocking) except -1
    cdef int flip_items(self, TensorBase t, int marks) except -1
    cdef int current_index(self) except -1

ctypedef memory_format memory_format_type
ctypedef device device_type

# ---- state
cdef str package_name
cdef list dtypes
cdef int default_dtype
cdef dict constants
cdef DeviceTypes device_types
cdef device cpu_device
cdef object storage_class
cdef object size_class
cdef bint is_symint(object o)
cdef dict python_dtypes

# ---- functions
cdef object shape_of(TensorBase t)
cdef object size_of(TensorBase t)
cdef int promote(int a, int b) except -1
cdef int checked_complex_of(int d) except -1
cdef str type_word(int dt)
cdef str type_name(int dt)
cdef str cpp_name(int dt)
cdef ThreadStacks own_stacks()
cdef bint is_captured(TensorBase t) except -1
cdef bint in_transform() except -1
cdef object unsupported_in_transform(str name, str more)
cdef int refuse_backward() except -1
cdef int device_code(str name) except -1
cdef device device_object(int code, int number)
cdef device as_device(object d)
cdef int no_host_memory(size_t nbytes) except -1
cdef void storage_hold(Storage* s) noexcept
cdef void storage_let_go(Storage* s) noexcept
cdef int storage_resize(Storage* s, size_t nbytes) except -1
cdef int own_block(Storage* s) except -1
cdef int record_use(Storage* s, uint64_t stream) except -1
cdef int refuse_ended(Storage* s) except -1
cdef object storage_object(Storage* s)
cdef int check_class(object cls, object base) except -1
cdef int make_version(TensorBase source) except -1
cdef TensorBase no_tensor(object o)
cdef TensorBase tensor_of(object cls)
cdef object no_room(int rank, const int64_t* sizes, const int64_t* strides)
cdef object negative_dimension(int rank, const int64_t* sizes, int64_t n)
cdef int64_t extent_of(int rank, const int64_t* sizes, const int64_t* strides, int64_t offset) except -1
cdef int beyond_storage(TensorBase t) except -1
cdef int reserve_many_dims(TensorBase t, int rank) except -1
cdef int too_many_items(TensorBase t) except -1
cdef int64_t row_major(int rank, const int64_t* sizes, int64_t* strides) except -1
cdef int dim_out_of_range(int64_t d, int n) except -1
cdef int set_requires(TensorBase t, bint value) except -1
cdef TensorBase new_empty(int rank, const int64_t* sizes, int dt, int dev, int index)
cdef TensorBase new_strided(int rank, const int64_t* sizes, const int64_t* strides, int dt, int dev, int index)
cdef TensorBase alias(TensorBase a)
cdef TensorBase lazy_clone(TensorBase a)
cdef int take_memory(TensorBase t, TensorBase source) except -1
cdef int set_memory(TensorBase t, Storage* s, int dt, int rank, const int64_t* sizes, const int64_t* strides,
                    int64_t offset) except -1
cdef int own_storage(TensorBase t) except -1
cdef TensorBase new_columns(int rank, const int64_t* sizes, int dt, int dev, int index)
cdef TensorBase new_formatted(int rank, const int64_t* sizes, int dt, int format, int dev, int index)
cdef TensorBase new_like_format(TensorBase a, int dt, int format, int dev, int index)
cdef int pin_new(TensorBase r) except -1
cdef int run_unlocked(Kernel kernel, Args* args, View* v, Storage** storages) except -1
cdef int pointwise_unlocked(const Pointwise* pw, int compute, View* v, Storage** storages, int n,
                            const Attr* attr) except -1
cdef Kernel kernel_named(bytes name) except? NULL
cdef int copy_into(TensorBase dst, TensorBase src, bint non_blocking=*) except -1
cdef TensorBase contiguous_of(TensorBase t)
cdef TensorBase resolved(TensorBase t)
cdef TensorBase unmarked(TensorBase t)
cdef object item_of(TensorBase t)
cdef object stored_item(TensorBase t)
cdef object single_item(TensorBase t)
cdef object real_number(TensorBase t, int dt)
cdef object list_of(TensorBase t)
cdef int number_dtype(PyObject* o) noexcept
cdef int number_attr(object v, Attr* a) except -1
cdef int write_number(object v, int dt, char* out) except -1
cdef bint is_numpy_scalar(object o)
cdef str said_type(object o)
cdef object exact_number(object o)
cdef int dtype_id(object o) except -1
cdef int64_t read_odd_int(object o) except? -1
cdef int read_ints(object o, int64_t* out) except -1
cdef int read_ints_or_one(object o, int64_t* out, int size) except -1
cdef int check_fits_closely(object v, int dt) except -1
cdef int math_dtype(int dt) noexcept
cdef int single_dtype(int dt) noexcept
cdef int fill_with(TensorBase t, object value) except -1
cdef object scalar_tensor(object number)
cdef object index_tensor(object data)
cdef object tensor_from_data(object data, int dt, bint share)
cdef TensorBase from_interface(object array, bint quiet)
cdef PyObject* generator_of(object o) except NULL
cdef Backend loaded_backend(int code)

# ---- inlined
cdef inline bint is_float_id(int d) noexcept nogil:
    return kHalf <= d <= kDouble


cdef inline bint is_differentiable(int d) noexcept nogil:
    return d >= kHalf


cdef inline int complex_of(int d) noexcept nogil:
    if d >= kComplexFloat:
        return d
    return kComplexDouble if d == kDouble else kComplexHalf if d == kHalf else kComplexFloat


cdef inline int real_of(int d) noexcept nogil:
    return real_dtype(<DType>d)


cdef inline int promotion_add(Promotion* p, int d, int ndim, bint is_number) except -1:
    if is_number:
        if d >= kComplexFloat:
            d = complex_of(default_dtype)
        elif d >= kHalf:
            d = default_dtype
        p.wrapped = d if p.wrapped < 0 else promote(p.wrapped, d)
    elif ndim == 0:
        p.zero = d if p.zero < 0 else promote(p.zero, d)
    else:
        p.dims = d if p.dims < 0 else promote(p.dims, d)
    return 0


cdef inline int combine(int higher, int lower) except -2:
    if higher < 0:
        return lower
    if lower < 0 or higher >= kComplexFloat:
        return higher
    if higher >= kHalf:
        return checked_complex_of(higher) if lower >= kComplexFloat else higher
    if lower >= kComplexFloat and rare(<DType>higher):
        return lower                             # of a number: torch.promote_types refuses the same of two dtypes
    if higher == kBool or lower >= kHalf:
        return promote(higher, lower)
    return higher


cdef inline int promotion_result(Promotion* p) except -2:
    return combine(combine(p.dims, p.zero), p.wrapped)


cdef inline bint castable(int src, int dst) noexcept nogil:
    """Whether a result of dtype src may be written to an output of dtype dst."""
    if src >= kComplexFloat and dst < kComplexFloat:
        return False
    if src >= kHalf and dst <= kUInt64:          # torch checks nothing of dtypes that are only stored
        return False
    return not (src != kBool and dst == kBool)


cdef inline bint has_saved_hooks() noexcept:
    cdef PyObject* stack = modes().saved_hooks
    return stack != NULL and PyList_GET_SIZE(<object>stack) > 0


cdef inline Storage* storage_new(size_t nbytes, int dev, int index) except NULL:
    cdef Storage* s
    if dev > META:
        return backend_of(dev).new_storage(nbytes, index)
    s = storage_shell()
    if s == NULL:
        raise MemoryError()
    s.nbytes = nbytes
    s.device = dev
    s.index = index
    if dev == CPU and nbytes:
        s.data = allocate_or_null(lib, nbytes)
        if s.data == NULL:
            storage_drop(s)
            no_host_memory(nbytes)
    return s


cdef inline void version_decref(Version* v) noexcept:
    v.refs -= 1
    if v.refs == 0:
        del v


cdef inline void share_version(TensorBase t, TensorBase source) noexcept:
    """From now on t and source count in-place changes together; source has a counter for that."""
    source.shared_version.refs += 1
    if t.shared_version != NULL:
        version_decref(t.shared_version)
    t.shared_version = source.shared_version


cdef inline bint is_tensor(PyObject* o) noexcept:
    # The size first: an object of a subclass is no smaller, and numbers, lists and None, which are, need no search.
    return Py_TYPE(o) == tensor_type or Py_TYPE(o).tp_basicsize >= (<PyTypeObject*>TensorBase).tp_basicsize and \
        PyObject_TypeCheck(<object>o, <PyTypeObject*>TensorBase)


cdef inline TensorBase tensor_arg(object o):
    """o, which others made, as a tensor; a TypeError where it is none."""
    if not is_tensor(<PyObject*>o):
        return no_tensor(o)
    return <TensorBase>o


cdef inline bint needs_grad(TensorBase t) noexcept:
    """Whether ops on t are recorded. A view follows its base, which may have got its history after the view was made."""
    return t.requires or t.base is not None and t.base.requires and is_differentiable(t.dt)


cdef inline bint same_shape(TensorBase a, TensorBase b) noexcept:
    return a.rank == b.rank and memcmp(a.sizes, b.sizes, a.rank * sizeof(int64_t)) == 0


cdef inline int reserve_dims(TensorBase t, int rank) except -1:
    """Makes room for rank sizes and strides."""
    if rank > INLINE_DIMS:
        reserve_many_dims(t, rank)
    t.rank = rank
    return 0


cdef inline int update_geometry(TensorBase t) except -1:
    """Recomputes what follows from sizes and strides."""
    cdef Measure m = measure(t.rank, t.sizes, t.strides)
    t.count, t.contig = m.count, m.contiguous
    return too_many_items(t) if m.too_large else 0


cdef inline int set_geometry(TensorBase t, int rank, const int64_t* sizes, const int64_t* strides,
                             int64_t offset) except -1:
    reserve_dims(t, rank)
    copy_dims(t.sizes, sizes, rank)
    copy_dims(t.strides, strides, rank)
    t.offset = offset
    return update_geometry(t)


cdef inline bint is_dense(TensorBase t) noexcept:
    """Non-overlapping and dense: some order of the dims makes it contiguous."""
    return t.contig or dense_strides(t.rank, t.sizes, t.strides)


cdef inline bint has_overlap(TensorBase t) noexcept:
    """Whether two items of t surely share memory (an expanded dim)."""
    return not t.contig and expanded_strides(t.rank, t.sizes, t.strides)


cdef inline bint is_channels_last(TensorBase t, int spatial) noexcept:
    """N, C, then `spatial` dims, with C innermost in memory."""
    return channels_last_order(t.rank, t.sizes, t.strides, spatial)


cdef inline int suggested_format(TensorBase t) noexcept:
    """The memory format that torch reads from a tensor's strides."""
    if not suggests_channels_last(t.rank, t.sizes, t.strides):
        return CONTIGUOUS
    return CHANNELS_LAST if t.rank == 4 else CHANNELS_LAST_3D


cdef inline bint packed_strides(TensorBase t, int64_t* strides) noexcept:
    """The strides of a dense tensor whose dims lie in t's order of memory; False where an expanded dim has no place."""
    if t.count == 0 or has_overlap(t):
        return False
    pack_strides(t.rank, t.sizes, t.strides, strides)
    return True


cdef inline bint view_strides(TensorBase t, const int64_t* sizes, int n, int64_t* strides) noexcept:
    """The strides that show t in the new sizes without a copy; False when there are none."""
    return strides_as(t.rank, t.count, t.sizes, t.strides, n, sizes, strides)


cdef inline char* ptr_of(TensorBase t) noexcept:
    """The address of the first item; computed each time, for a storage may move when it is resized or shared."""
    return <char*>t.st.data + t.offset * itemsize(<DType>t.dt) if t.st.data != NULL else NULL


cdef inline int check_room(TensorBase t) except -1:
    """To be called before memory is touched."""
    return beyond_storage(t) if t.st.shrunk else 0


cdef inline bint is_wrapper(TensorBase t) noexcept:
    """Whether t has no memory and its class computes with it: see _make_wrapper."""
    return t.st.shrunk and not t.st.nbytes and Py_TYPE(<PyObject*>t) != tensor_type


cdef inline int before_write(TensorBase t) except -1:
    """check_room() for memory that is to be written: what other storages read too is copied first. Runs no Python."""
    check_room(t)
    return own_block(t.st) if t.st.copy_on_write else 0


cdef inline uint32_t version_of(TensorBase t) noexcept:
    return t.version if t.shared_version == NULL else t.shared_version.value


cdef inline void bump_version(TensorBase t) noexcept:
    if t.shared_version == NULL:
        t.version += 1
    else:
        t.shared_version.value += 1


cdef inline View view_of(TensorBase t) except *:
    cdef View v
    check_room(t)
    v.data, v.sizes, v.strides, v.ndim, v.dtype = ptr_of(t), t.sizes, t.strides, t.rank, <DType>t.dt
    return v


cdef inline int wrap_dim(int64_t d, int rank) except -1:
    cdef int n = rank if rank > 0 else 1
    if d < -n or d >= n:
        return dim_out_of_range(d, n)
    return <int>(d + n if d < 0 else d)


cdef inline object steal(PyObject* o):
    """Takes over a new reference."""
    cdef object r = <object>o
    Py_DECREF(r)
    return r


cdef inline TensorBase blank_tensor():
    """A new tensor to be filled in."""
    global spare_tensor_count
    cdef PyObject* o
    if spare_tensor_count == 0:
        return tensor_of(<object>tensor_type)
    spare_tensor_count -= 1
    o = spare_tensors[spare_tensor_count]
    if modes().level:
        (<TensorBase>o).birth = modes().level
    _Py_NewReference(o)
    PyObject_GC_Track(o)
    return <TensorBase>steal(o)


cdef inline TensorBase new_same(TensorBase a, int dt):
    """A fresh tensor in the shape of a, which is contiguous, on the CPU and of at most INLINE_DIMS dims."""
    cdef TensorBase t = blank_tensor()
    memcpy(t.inline_dims, a.inline_dims, sizeof(t.inline_dims))
    t.rank, t.count, t.dt = a.rank, a.count, dt
    t.st = storage_new(<size_t>a.count * itemsize(<DType>dt), CPU, -1)
    t.inference = modes().inference
    return t


cdef inline TensorBase empty_like(TensorBase a, int dt):
    return new_empty(a.rank, a.sizes, dt, a.dev, a.dev_index)


cdef inline bint is_number(PyObject* o) noexcept:
    return PyFloat_Check(<object>o) or PyLong_Check(<object>o) or PyComplex_Check(<object>o)


cdef inline bint is_exact_number(PyObject* o) noexcept:
    return PyFloat_CheckExact(<object>o) or PyLong_CheckExact(<object>o) or PyBool_Check(<object>o) or \
        Py_TYPE(o) == <PyTypeObject*>complex


cdef inline int64_t read_int(object o) except? -1:
    cdef int beyond = 0
    cdef int64_t n
    if PyLong_Check(o):
        n = PyLong_AsLongLongAndOverflow(o, &beyond)
        if beyond:
            raise ValueError("Overflow when unpacking long long")
        return n
    return read_odd_int(o)


cdef inline int check_fits(object v, int dt) except -1:
    cdef int wide = 0
    if PyFloat_CheckExact(v):
        if dt >= kHalf and -240.0 <= PyFloat_AS_DOUBLE(v) <= 240.0:
            return 0
    elif PyLong_CheckExact(v) and 0 <= PyLong_AsLongLongAndOverflow(v, &wide) <= 127:     # every dtype holds these
        return 0
    if is_only_stored(<DType>dt):
        return 0                                 # nothing is known of what they hold
    return check_fits_closely(v, dt)


cdef inline int check_wide(object o) except -1:
    """An int that stands for a number of any kind may have 64 bits without a sign."""
    cdef int beyond = 0
    PyLong_AsLongLongAndOverflow(o, &beyond)
    if beyond:
        PyLong_AsUnsignedLongLong(o)
    return 0


cdef inline int check_int(object o) except -1:
    """No rule and no kernel sees an int that 64 bits do not hold."""
    cdef int beyond = 0
    PyLong_AsLongLongAndOverflow(o, &beyond)
    if beyond:
        raise ValueError("Overflow when unpacking long long")
    return 0


cdef inline Backend backend_of(int code):
    cdef Backend backend = <Backend>PyList_GET_ITEM_(device_types.backends, code)
    return backend if backend.ready else loaded_backend(code)
