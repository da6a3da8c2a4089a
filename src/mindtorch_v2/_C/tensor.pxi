# The tensor: geometry over a storage, plus what autograd keeps of it. Ops live elsewhere.

cdef enum:
    INLINE_DIMS = 5
    MAX_DIMS = 64
    # how a view came to be, which decides whether it may be changed in place
    VIEW_NORMAL = 0
    VIEW_NO_GRAD = 1
    VIEW_MULTI_OUTPUT = 2

cdef class TensorBase:
    cdef Storage* st
    cdef int64_t* sizes
    cdef int64_t* strides
    cdef int64_t inline_dims[2 * INLINE_DIMS]
    cdef int64_t offset, count
    cdef int32_t rank, dt, dev, dev_index
    cdef bint contig, requires, inference
    cdef int32_t output_nr, creation
    cdef uint32_t version, view_version
    cdef Version* shared_version                 # NULL: nobody shares, and `version` counts
    cdef TensorBase base                         # the tensor this is a view of
    cdef Node fn                                 # grad_fn
    cdef object grad_object
    cdef dict extra                              # hooks, retain_grad, names: what few tensors have
    cdef PyObject* attributes                    # __dict__ and weak references: see free_list.pxi
    cdef PyObject* weakrefs

    def __cinit__(self):
        self.sizes = self.inline_dims
        self.strides = self.inline_dims + INLINE_DIMS
        self.rank = self.strides[0] = 1
        clean(self)

    def __dealloc__(self):
        release_memory(self)
        if self.sizes != self.inline_dims:
            free(self.sizes)


cdef inline void clean(TensorBase t) noexcept:
    """An empty tensor until a maker fills it in."""
    t.st = nothing
    t.shared_version = NULL
    t.offset = t.count = 0
    t.dt, t.dev, t.dev_index = default_dtype, CPU, -1
    t.contig, t.requires, t.inference = True, False, False
    t.output_nr = t.creation = 0
    t.version = t.view_version = 0


cdef inline void release_memory(TensorBase t) noexcept:
    if t.st != nothing:
        storage_decref(t.st)
    if t.shared_version != NULL:
        version_decref(t.shared_version)


cdef inline void version_decref(Version* v) noexcept:
    v.refs -= 1
    if v.refs == 0:
        del v


cdef int make_version(TensorBase source) except -1:
    """A counter that others can share, for a tensor that has none."""
    source.shared_version = new_version()
    if source.shared_version == NULL:
        raise MemoryError()
    source.shared_version.value = source.version
    return 0


cdef inline void share_version(TensorBase t, TensorBase source) noexcept:
    """From now on t and source count in-place changes together; source has a counter for that."""
    source.shared_version.refs += 1
    if t.shared_version != NULL:
        version_decref(t.shared_version)
    t.shared_version = source.shared_version


cdef Storage* nothing = new Storage()
nothing.refs = <int64_t>1 << 60                  # shared by all shells, never freed

cdef inline bint is_tensor(PyObject* o) noexcept:
    return Py_TYPE(o) == tensor_type or PyObject_TypeCheck(<object>o, <PyTypeObject*>TensorBase)


cdef inline TensorBase tensor_arg(object o):
    """o, which others made, as a tensor; a TypeError where it is none."""
    if not is_tensor(<PyObject*>o):
        raise TypeError(f"expected a Tensor, got {builtin_type(o).__name__}")
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


cdef int reserve_many_dims(TensorBase t, int rank) except -1:
    cdef int64_t* block
    if rank > MAX_DIMS:
        raise RuntimeError(f"tensors have at most {MAX_DIMS} dimensions, got {rank}")
    if t.sizes == t.inline_dims or rank > t.rank:
        block = <int64_t*>malloc(2 * rank * sizeof(int64_t))
        if block == NULL:
            raise MemoryError()
        if t.sizes != t.inline_dims:
            free(t.sizes)
        t.sizes = block
        t.strides = block + rank
    return 0


cdef inline char* ptr_of(TensorBase t) noexcept:
    """The first item; asked each time, for a storage may move when it is resized or shared."""
    return <char*>t.st.data + t.offset * itemsize(<DType>t.dt) if t.st.data != NULL else NULL


cdef int update_geometry(TensorBase t) except -1:
    """Recomputes what follows from sizes, strides and offset."""
    cdef int64_t want = 1
    cdef int d
    cdef bint contig = True, large = False
    for d in range(t.rank - 1, -1, -1):
        if t.sizes[d] != 1:
            if t.strides[d] != want:
                contig = False
            if (want | t.sizes[d]) >> 31 and t.sizes[d] > 0 and want > INT64_MAX // t.sizes[d]:
                large = True
                want = 1
            want *= t.sizes[d]
    t.count = want
    t.contig = contig or want == 0
    if large and want:
        t.rank, t.sizes[0], t.strides[0], t.count = 1, 0, 1, 0
        raise RuntimeError("numel: integer multiplication overflow")
    return 0


cdef int64_t extent_of(int rank, const int64_t* sizes, const int64_t* strides, int64_t offset) except -1:
    """How many items a storage must have for this geometry; raises on what no storage can have."""
    cdef double last = <double>offset
    cdef int d
    for d in range(rank):
        if sizes[d] < 0 or strides[d] < 0:
            raise RuntimeError(f"sizes and strides must not be negative, got sizes {[sizes[i] for i in range(rank)]} and "
                               f"strides {[strides[i] for i in range(rank)]}")
    if offset < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {offset}")
    for d in range(rank):
        if sizes[d] == 0:
            return 0
        last += <double>(sizes[d] - 1) * <double>strides[d]
    if last >= 1e17:
        raise RuntimeError(f"Storage size calculation overflowed with sizes={[sizes[i] for i in range(rank)]} and "
                           f"strides={[strides[i] for i in range(rank)]}")
    cdef int64_t exact = offset + 1
    for d in range(rank):
        exact += (sizes[d] - 1) * strides[d]
    return exact


cdef int beyond_storage(TensorBase t) except -1:
    """Raises when the storage was made too small for t."""
    cdef int64_t need = extent_of(t.rank, t.sizes, t.strides, t.offset)
    if need > <int64_t>(t.st.nbytes // itemsize(<DType>t.dt)):
        raise RuntimeError(f"the storage of this tensor was resized to {t.st.nbytes} bytes, less than its shape "
                           f"{list(shape_of(t))} needs")
    return 0


cdef inline int check_room(TensorBase t) except -1:
    """To be asked before memory is touched."""
    return beyond_storage(t) if t.st.shrunk else 0


cdef int set_geometry(TensorBase t, int rank, const int64_t* sizes, const int64_t* strides, int64_t offset) except -1:
    reserve_dims(t, rank)
    memmove(t.sizes, sizes, rank * sizeof(int64_t))
    memmove(t.strides, strides, rank * sizeof(int64_t))
    t.offset = offset
    update_geometry(t)
    return 0


cdef int64_t set_contiguous(TensorBase t, int rank, const int64_t* sizes) except -1:
    """Sizes with row-major strides; returns the number of items."""
    reserve_dims(t, rank)
    t.count = row_major(rank, sizes, t.strides)
    if rank:                                     # sizes may be null where there are none
        memmove(t.sizes, sizes, rank * sizeof(int64_t))
    t.contig = True
    t.offset = 0
    return t.count


cdef int64_t row_major(int rank, const int64_t* sizes, int64_t* strides) except -1:
    """Fills the strides of a contiguous tensor; returns the number of items."""
    cdef int64_t n = 1, want = 1
    cdef int d
    for d in range(rank - 1, -1, -1):
        strides[d] = want
        if sizes[d] < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {sizes[d]}: "
                               f"{[sizes[i] for i in range(rank)]}")
        if sizes[d] > 1:
            if want > (<int64_t>1 << 56) // sizes[d]:
                n = 1
                for i in range(rank):
                    n = 0 if sizes[i] == 0 else n
                if n:
                    raise RuntimeError("Storage size calculation overflowed with sizes="
                                       f"{[sizes[i] for i in range(rank)]}")
                want = 1                         # no items: any stride will do
            want *= sizes[d]
    n = 1
    for d in range(rank):
        n = 0 if sizes[d] == 0 else n
    return want if n else 0


cdef TensorBase new_empty(int rank, const int64_t* sizes, int dt, int dev, int index):
    """A fresh contiguous tensor, memory not set."""
    cdef TensorBase t = tensor_shell()
    cdef int64_t n = set_contiguous(t, rank, sizes)
    t.dt, t.dev, t.dev_index = dt, dev, index
    t.st = storage_new(<size_t>n * itemsize(<DType>dt), dev, index)
    t.inference = modes().inference
    return t


cdef TensorBase new_strided(int rank, const int64_t* sizes, const int64_t* strides, int dt, int dev, int index):
    """A fresh tensor with the given strides (dense or not), memory not set."""
    cdef TensorBase t = tensor_shell()
    cdef int64_t items = extent_of(rank, sizes, strides, 0)
    reserve_dims(t, rank)
    t.dt, t.dev, t.dev_index = dt, dev, index
    t.st = storage_new(<size_t>items * itemsize(<DType>dt), dev, index)
    set_geometry(t, rank, sizes, strides, 0)
    t.inference = modes().inference
    return t


cdef inline TensorBase new_same(TensorBase a, int dt):
    """A fresh tensor in the shape of a, which is contiguous, on the CPU and of at most INLINE_DIMS dims."""
    cdef TensorBase t = tensor_shell()
    memcpy(t.inline_dims, a.inline_dims, sizeof(t.inline_dims))
    t.rank, t.count, t.dt = a.rank, a.count, dt
    t.st = storage_new(<size_t>a.count * itemsize(<DType>dt), CPU, -1)
    t.inference = modes().inference
    return t


cdef inline TensorBase empty_like(TensorBase a, int dt):
    return new_empty(a.rank, a.sizes, dt, a.dev, a.dev_index)


cdef TensorBase alias(TensorBase a):
    """The same memory and geometry in a new tensor, without autograd; shares the version counter."""
    cdef TensorBase t = tensor_shell()
    t.dt, t.dev, t.dev_index = a.dt, a.dev, a.dev_index
    t.st = a.st
    a.st.refs += 1
    set_geometry(t, a.rank, a.sizes, a.strides, a.offset)
    if a.shared_version == NULL:
        make_version(a)
    share_version(t, a)
    t.inference = a.inference
    return t


cdef int take_memory(TensorBase t, TensorBase source) except -1:
    """t becomes a view of source's memory, with its dtype and geometry."""
    return set_memory(t, source.st, source.dt, source.rank, source.sizes, source.strides, source.offset)


cdef int set_memory(TensorBase t, Storage* s, int dt, int rank, const int64_t* sizes, const int64_t* strides,
                    int64_t offset) except -1:
    """t becomes a view of s. What it was a view of goes last: its end may run Python, which must find t whole."""
    cdef Storage* was = t.st
    if rank > INLINE_DIMS:
        reserve_many_dims(t, rank)               # what may fail comes first
    s.refs += 1
    t.st = s
    t.dt, t.dev, t.dev_index = dt, s.device, s.index
    try:
        set_geometry(t, rank, sizes, strides, offset)
    finally:
        storage_decref(was)
    return 0


cdef int own_storage(TensorBase t) except -1:
    """A shell that shares `nothing` with all others gets an empty storage of its own."""
    if t.st == nothing:
        t.st = storage_new(0, t.dev, t.dev_index)
    return 0


def _adopt(TensorBase made, TensorBase source):
    """Gives a new shell of a subclass the memory and history of source."""
    if made is source:
        return
    if source.shared_version == NULL:
        make_version(source)
    share_version(made, source)
    made.view_version, made.creation, made.inference = source.view_version, source.creation, source.inference
    take_memory(made, source)
    made.requires, made.output_nr = source.requires, source.output_nr
    made.fn, made.base = source.fn, source.base  # last: the end of what was there may run Python


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


cdef inline object shape_of(TensorBase t):
    return mt_ints(<PyTypeObject*>tuple, t.rank, t.sizes)


cdef inline object size_of(TensorBase t):
    return mt_ints(<PyTypeObject*>size_class, t.rank, t.sizes)


cdef inline int wrap_dim(int64_t d, int rank) except -1:
    cdef int n = rank if rank > 0 else 1
    if d < -n or d >= n:
        return dim_out_of_range(d, n)
    return <int>(d + n if d < 0 else d)


cdef int dim_out_of_range(int64_t d, int n) except -1:
    raise IndexError(f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {d})")


cdef bint is_dense(TensorBase t) noexcept:
    """Non-overlapping and dense: some order of the dims makes it contiguous."""
    cdef int order[MAX_DIMS]
    cdef int64_t want = 1
    cdef int d, n
    if t.contig:
        return True
    n = stride_order(t, order)
    for d in range(n - 1, -1, -1):
        if t.strides[order[d]] != want:
            return False
        want *= t.sizes[order[d]]
    return True


cdef int stride_order(TensorBase t, int* order) noexcept:
    """Dims of size other than 1 by falling stride; returns how many."""
    cdef int n = 0, d, i
    for d in range(t.rank):
        if t.sizes[d] == 1:
            continue
        i = n
        while i > 0 and t.strides[order[i - 1]] < t.strides[d]:
            order[i] = order[i - 1]
            i -= 1
        order[i] = d
        n += 1
    return n


cdef bint has_overlap(TensorBase t) noexcept:
    """Whether two items of t surely share memory (an expanded dim)."""
    cdef int d
    if t.contig:
        return False
    for d in range(t.rank):
        if t.sizes[d] > 1 and t.strides[d] == 0:
            return True
    return False


cdef bint is_channels_last(TensorBase t, int spatial) noexcept:
    """N, C, then `spatial` dims, with C innermost in memory."""
    cdef int64_t want = 1
    cdef int i, d
    if t.rank != spatial + 2:
        return False
    for i in range(t.rank):
        d = 1 if i == 0 else (0 if i == t.rank - 1 else t.rank - i)
        if t.sizes[d] != 1:
            if t.strides[d] != want:
                return False
            want *= t.sizes[d]
    return True


cdef bint packed_strides(TensorBase t, int64_t* strides) noexcept:
    """The strides of a dense tensor whose dims lie in t's order of memory; False where an expanded dim has no place."""
    cdef int order[MAX_DIMS]
    cdef int64_t want = 1
    cdef int i, d, n
    if t.count == 0 or has_overlap(t):
        return False
    n = stride_order(t, order)
    for i in range(n - 1, -1, -1):
        strides[order[i]] = want
        want *= t.sizes[order[i]]
    want = 1
    for d in range(t.rank - 1, -1, -1):          # a dim of size 1 stands where a contiguous tensor would have it
        if t.sizes[d] == 1:
            strides[d] = want
        want = strides[d] * t.sizes[d]
    return True


cdef bint plain_strides(TensorBase t) noexcept:
    """Whether a contiguous tensor's strides are those of a fresh one (where a size is 0 or 1, others are possible)."""
    cdef int64_t want = 1
    cdef int d
    for d in range(t.rank - 1, -1, -1):
        if t.strides[d] != want:
            return False
        want *= t.sizes[d] if t.sizes[d] > 1 else 1
    return True


cdef TensorBase new_like_format(TensorBase a, int dt, int format, int dev, int index):
    """An empty tensor of a's shape, laid out as the memory format says."""
    cdef int64_t strides[MAX_DIMS]
    cdef int order[MAX_DIMS]
    cdef int64_t want = 1
    cdef int n, i, d, spatial = 2 if format == CHANNELS_LAST else 3
    if format == PRESERVE and (is_dense(a) if not a.contig else not plain_strides(a)):
        return new_strided(a.rank, a.sizes, a.strides, dt, dev, index)
    if format == PRESERVE and not a.contig and packed_strides(a, strides):
        return new_strided(a.rank, a.sizes, strides, dt, dev, index)
    if format == CHANNELS_LAST or format == CHANNELS_LAST_3D:
        if a.rank != spatial + 2:
            raise RuntimeError(f"required rank {spatial + 2} tensor to use channels_last"
                               f"{'_3d' if spatial == 3 else ''} format")
        for i in range(a.rank):
            d = 1 if i == 0 else (0 if i == a.rank - 1 else a.rank - i)
            strides[d] = want
            want *= a.sizes[d] if a.sizes[d] > 1 else 1
        return new_strided(a.rank, a.sizes, strides, dt, dev, index)
    return new_empty(a.rank, a.sizes, dt, dev, index)


# ---- copies ---------------------------------------------------------------------------------------------------
cdef Kernel copy_kernel = NULL
cdef Kernel fill_kernel = NULL
cdef object device_copy = None                   # callable(dst, src, non_blocking) where a device other than cpu takes part


def _set_device_copy(fn):
    """The callable that copies between devices: fn(dst, src, non_blocking)."""
    global device_copy
    device_copy = fn


cdef Kernel kernel_named(bytes name) except? NULL:
    cdef Kernel k = lib.find(name)
    if k == NULL:
        raise RuntimeError(f"the kernel library has no kernel {name.decode()}")
    return k


cdef int copy_into(TensorBase dst, TensorBase src, bint non_blocking=False) except -1:
    """dst's items become src's, cast and broadcast; no autograd, no version bump."""
    global copy_kernel
    cdef View v[2]
    cdef Storage* storages[2]
    cdef Args args
    cdef PyObject* slots[3]
    if dst.dev == META or src.dev == META:
        if dst.dev != META:
            raise NotImplementedError("Cannot copy out of meta tensor; no data!")
        return 0
    if dst.dev != CPU or src.dev != CPU:
        if dst.dev == src.dev and dst.dev_index == src.dev_index and dst.dev == NPU:
            slots[0], slots[1], slots[2] = <PyObject*>dst, <PyObject*>src, <PyObject*>None
            device_kernel(<Overload>hot.copy_.rows[0], NPU, (dst,), slots)
        else:
            device_copy(dst, src, non_blocking)
        return 0
    if dst.count == 0:
        return 0
    check_room(dst)
    check_room(src)
    if dst.dt == src.dt and dst.contig and src.contig and dst.count == src.count and dst.count < 4096:
        memmove(ptr_of(dst), ptr_of(src), dst.count * itemsize(<DType>dst.dt))
        return 0
    if copy_kernel == NULL:
        copy_kernel = kernel_named(b"copy")
    v[0] = view_of(dst)
    v[1] = view_of(src)
    args.t = v
    args.nt = 2
    if dst.count > NOGIL_ITEMS:
        storages[0], storages[1] = dst.st, src.st
        run_unlocked(copy_kernel, &args, v, storages)
    else:
        copy_kernel(args)
    return 0


cdef int fill_with(TensorBase t, object value) except -1:
    """Every item of t becomes the number."""
    global fill_kernel
    cdef View v
    cdef Storage* storage
    cdef Attr attr
    cdef Args args
    if t.count == 0 or t.dev == META:
        return check_fits(value, t.dt)
    if t.dev != CPU:
        raise NotImplementedError("fill on a device goes through its own op")
    if fill_kernel == NULL:
        fill_kernel = kernel_named(b"fill")
    check_fits(value, single_dtype(t.dt) if t.count == 1 else t.dt)
    number_attr(value, &attr)
    v = view_of(t)
    args.t, args.nt, args.a, args.na = &v, 1, &attr, 1
    if t.count > NOGIL_ITEMS:
        storage = t.st
        run_unlocked(fill_kernel, &args, &v, &storage)
    else:
        fill_kernel(args)
    return 0


cdef TensorBase contiguous_of(TensorBase t):
    """t itself when contiguous, else a contiguous copy (no autograd)."""
    cdef TensorBase r
    if t.contig:
        return t
    r = empty_like(t, t.dt)
    copy_into(r, t)
    return r


cdef TensorBase cast_of(TensorBase t, int dt):
    """t itself when of that dtype, else a cast copy (no autograd)."""
    cdef TensorBase r
    if t.dt == dt:
        return t
    r = new_like_format(t, dt, PRESERVE, t.dev, t.dev_index)
    copy_into(r, t)
    return r
