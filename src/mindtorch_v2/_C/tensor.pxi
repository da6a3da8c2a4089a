# The tensor: geometry over a storage, plus what autograd keeps of it. Ops live elsewhere.

cdef class TensorBase:

    def __cinit__(self):
        self.sizes = self.inline_dims
        self.strides = self.inline_dims + INLINE_DIMS
        self.rank = self.strides[0] = 1
        clean(self)

    def __init__(self, *args, **kwargs):
        if type(self) is TensorBase:
            raise RuntimeError("Cannot directly construct TensorBase; subclass it and then construct that")

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
    t.version = t.view_version = t.birth = 0


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
cdef object symint_class = None                  # numbers that stay what they are in a call's arguments
cdef object symfloat_class = None


cdef bint is_symint(object o):
    return symint_class is not None and PyObject_TypeCheck(o, <PyTypeObject*>symint_class)


cdef bint is_symfloat(object o):
    return symfloat_class is not None and PyObject_TypeCheck(o, <PyTypeObject*>symfloat_class)


cdef ShapeCache seen_tuples, seen_sizes


cdef object shape_of(TensorBase t):
    return seen_tuples.get(<PyTypeObject*>tuple, t.rank, t.sizes)


cdef object size_of(TensorBase t):
    return seen_sizes.get(<PyTypeObject*>size_class, t.rank, t.sizes)


cdef TensorBase no_tensor(object o):
    raise TypeError(f"expected a Tensor, got {builtin_type(o).__name__}")


def _swap_tensor_impl(TensorBase a not None, TensorBase b not None) -> None:
    """Two tensors change places: memory, geometry, history and hooks; attributes and weak references stay."""
    cdef char* first = <char*>&a.st
    cdef char* second = <char*>&b.st
    cdef size_t n = <size_t>(<char*>&a.attributes - first)
    cdef char kept[1024]
    cdef bint a_inline = a.sizes == a.inline_dims, b_inline = b.sizes == b.inline_dims
    if n > sizeof(kept):
        raise SystemError(f"a tensor has {n} bytes")
    memcpy(kept, first, n)
    memcpy(first, second, n)
    memcpy(second, kept, n)
    if a_inline:
        b.sizes, b.strides = b.inline_dims, b.inline_dims + INLINE_DIMS
    if b_inline:
        a.sizes, a.strides = a.inline_dims, a.inline_dims + INLINE_DIMS


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


cdef object no_room(int rank, const int64_t* sizes, const int64_t* strides):
    """The error of a geometry that no storage has room for."""
    return RuntimeError(f"Storage size calculation overflowed with sizes={[sizes[i] for i in range(rank)]} and "
                        f"strides={[strides[i] for i in range(rank)]}")


cdef int64_t extent_of(int rank, const int64_t* sizes, const int64_t* strides, int64_t offset) except -1:
    """How many items a storage must have for this geometry; raises on what no storage can have."""
    cdef double last = <double>offset
    cdef int d
    for d in range(rank):
        if sizes[d] < 0 or strides[d] < 0:
            raise no_room(rank, sizes, strides)
    if offset < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {offset}")
    for d in range(rank):
        if sizes[d] == 0:
            return 0
        last += <double>(sizes[d] - 1) * <double>strides[d]
    if last >= 1e17:
        raise no_room(rank, sizes, strides)
    cdef int64_t exact = offset + 1
    for d in range(rank):
        exact += (sizes[d] - 1) * strides[d]
    return exact


cdef int beyond_storage(TensorBase t) except -1:
    """Raises when the storage was made too small for t."""
    cdef int64_t need = extent_of(t.rank, t.sizes, t.strides, t.offset)
    if need > <int64_t>(t.st.nbytes // itemsize(<DType>t.dt)):
        why = getattr(type(t), "_no_memory", None)
        raise RuntimeError(why if why is not None else f"the storage of this tensor was resized to {t.st.nbytes} bytes, less than its shape "
                           f"{list(shape_of(t))} needs")
    return 0


cdef int64_t set_contiguous(TensorBase t, int rank, const int64_t* sizes) except -1:
    """Sizes with row-major strides; returns the number of items."""
    reserve_dims(t, rank)
    t.count = row_major(rank, sizes, t.strides)
    if rank:                                     # sizes may be null where there are none
        copy_dims(t.sizes, sizes, rank)
    t.contig = True
    t.offset = 0
    return t.count


cdef object negative_dimension(int rank, const int64_t* sizes, int64_t n):
    return RuntimeError(f"Trying to create tensor with negative dimension {n}: {[sizes[i] for i in range(rank)]}")


cdef int64_t row_major(int rank, const int64_t* sizes, int64_t* strides) except -1:
    """Fills the strides of a contiguous tensor; returns the number of items."""
    cdef int64_t n = 1, want = 1
    cdef int d
    for d in range(rank - 1, -1, -1):
        strides[d] = want
        if sizes[d] < 0:
            raise negative_dimension(rank, sizes, sizes[d])
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


def _suggested_format(TensorBase t not None) -> "memory_format":
    """The memory format that an op keeps for a tensor."""
    return constants[("contiguous_format", "", "channels_last", "channels_last_3d")[suggested_format(t)]]


cdef int set_requires(TensorBase t, bint value) except -1:
    if value and t.inference and not modes().inference:
        raise RuntimeError("Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.")
    if value and not is_differentiable(t.dt):
        raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
    if not value and t.fn is not None:
        raise RuntimeError("you can only change requires_grad flags of leaf variables. If you want to use a computed "
                           "variable in a subgraph that doesn't require differentiation use var_no_grad = var.detach().")
    t.requires = value
    return 0


cdef int too_many_items(TensorBase t) except -1:
    t.rank, t.sizes[0], t.strides[0], t.count = 1, 0, 1, 0
    raise RuntimeError("numel: integer multiplication overflow")
