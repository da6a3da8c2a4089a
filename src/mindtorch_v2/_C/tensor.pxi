# The tensor: geometry over a storage, plus what autograd keeps of it. Ops live elsewhere.


cdef class TensorBase:

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
    t.output_nr = t.creation = t.marks = 0
    t.version = t.view_version = 0


cdef inline void release_memory(TensorBase t) noexcept:
    if t.st != nothing:
        storage_decref(t.st)
    if t.shared_version != NULL:
        version_decref(t.shared_version)


cdef int make_version(TensorBase source) except -1:
    """A counter that others can share, for a tensor that has none."""
    source.shared_version = new_version()
    if source.shared_version == NULL:
        raise MemoryError()
    source.shared_version.value = source.version
    return 0


cdef object size_class = tuple


cdef TensorBase no_tensor(object o):
    raise TypeError(f"expected a Tensor, got {builtin_type(o).__name__}")


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


cdef void strides_for(int rank, const int64_t* sizes, int64_t* strides) noexcept:
    cdef int64_t want = 1
    cdef int d
    for d in range(rank - 1, -1, -1):
        strides[d] = want
        want *= sizes[d] if sizes[d] > 1 else 1


cdef int set_requires(TensorBase t, bint value) except -1:
    if value and t.inference and not modes().inference:
        raise RuntimeError("Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.")
    if value and not is_differentiable(t.dt):
        raise RuntimeError("only Tensors of floating point and complex dtype can require gradients")
    if not value and t.fn is not None:
        raise RuntimeError("you can only change requires_grad flags of leaf variables. If you want to use a computed "
                           "variable in a subgraph that doesn't require differentiation use var_no_grad = var.detach().")
    t.requires = value
    return 0
