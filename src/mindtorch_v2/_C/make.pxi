# How tensors come to be: fresh ones, views of the memory of others, copies of a layout.

cdef TensorBase new_empty(int rank, const int64_t* sizes, int dt, int dev, int index):
    """A fresh contiguous tensor, memory not set."""
    cdef TensorBase t = blank_tensor()
    cdef int64_t n = set_contiguous(t, rank, sizes)
    t.dt, t.dev, t.dev_index = dt, dev, index
    t.st = storage_new(<size_t>n * itemsize(<DType>dt), dev, index)
    t.inference = modes().inference
    return t


cdef TensorBase new_strided(int rank, const int64_t* sizes, const int64_t* strides, int dt, int dev, int index):
    """A fresh tensor with the given strides (dense or not), memory not set."""
    cdef TensorBase t = blank_tensor()
    cdef int64_t items = extent_of(rank, sizes, strides, 0)
    reserve_dims(t, rank)
    t.dt, t.dev, t.dev_index = dt, dev, index
    t.st = storage_new(<size_t>items * itemsize(<DType>dt), dev, index)
    set_geometry(t, rank, sizes, strides, 0)
    t.inference = modes().inference
    return t


cdef TensorBase alias(TensorBase a):
    """The same memory and geometry in a new tensor, without autograd; shares the version counter."""
    cdef TensorBase t = blank_tensor()
    t.dt, t.dev, t.dev_index = a.dt, a.dev, a.dev_index
    t.st = a.st
    a.st.refs += 1
    set_geometry(t, a.rank, a.sizes, a.strides, a.offset)
    if a.shared_version == NULL:
        make_version(a)
    share_version(t, a)
    t.inference, t.marks = a.inference, a.marks
    return t


def _is_cow_tensor(TensorBase t not None) -> bool:
    """Whether the memory of t is copied before it is written to: see Tensor._lazy_clone."""
    return t.st.copy_on_write


def _has_storage(t not None) -> bool:
    """Whether t has memory of its own, as strided tensors have."""
    return tensor_arg(t).layout is constants["strided"]


def _data_address(TensorBase t not None) -> int:
    """The address of the storage's first byte, for reading only."""
    refuse_ended(t.st)
    return <size_t>t.st.data


def _storage_address(TensorBase t not None) -> int:
    """The address of the storage itself, which tensors over one storage share."""
    own_storage(t)
    return <size_t>t.st


cdef int take_memory(TensorBase t, TensorBase source) except -1:
    """t becomes a view of source's memory, with its dtype and geometry."""
    set_memory(t, source.st, source.dt, source.rank, source.sizes, source.strides, source.offset)
    t.marks = source.marks
    return 0


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
    made.birth = source.birth
    take_memory(made, source)
    made.requires, made.output_nr = source.requires, source.output_nr
    made.fn, made.base = source.fn, source.base  # last: the end of what was there may run Python


cdef TensorBase new_formatted(int rank, const int64_t* sizes, int dt, int format, int dev, int index):
    """An empty tensor; C is innermost where the format is one of channels last, whose rank the caller has looked at."""
    cdef int64_t strides[MAX_DIMS]
    if format != CHANNELS_LAST and format != CHANNELS_LAST_3D:
        return new_empty(rank, sizes, dt, dev, index)
    channels_last_strides(rank, sizes, strides)
    return new_strided(rank, sizes, strides, dt, dev, index)


cdef TensorBase new_columns(int rank, const int64_t* sizes, int dt, int dev, int index):
    """An empty batch of matrices, each column by column, as LAPACK has them."""
    cdef int64_t turned[MAX_DIMS]
    cdef TensorBase t
    if rank < 2:
        return new_empty(rank, sizes, dt, dev, index)
    copy_dims(turned, sizes, rank)
    turned[rank - 2], turned[rank - 1] = sizes[rank - 1], sizes[rank - 2]
    t = new_empty(rank, turned, dt, dev, index)
    copy_dims(turned, t.strides, rank)
    turned[rank - 2], turned[rank - 1] = t.strides[rank - 1], t.strides[rank - 2]
    set_geometry(t, rank, sizes, turned, 0)
    return t


cdef TensorBase new_like_format(TensorBase a, int dt, int format, int dev, int index):
    """An empty tensor of a's shape, laid out as the memory format says."""
    cdef int64_t strides[MAX_DIMS]
    cdef int spatial = 2 if format == CHANNELS_LAST else 3
    cdef const int64_t* operand
    if format == PRESERVE and (is_dense(a) if not a.contig else not has_plain_strides(a.rank, a.sizes, a.strides)):
        return new_strided(a.rank, a.sizes, a.strides, dt, dev, index)
    if format == PRESERVE and not a.contig and packed_strides(a, strides):
        return new_strided(a.rank, a.sizes, strides, dt, dev, index)
    if format == PRESERVE and not a.contig and a.count:      # expanded: in the order in which a walk over it goes
        operand = a.strides
        walked_strides(a.rank, a.sizes, 1, &operand, strides)
        return new_strided(a.rank, a.sizes, strides, dt, dev, index)
    if format == CHANNELS_LAST or format == CHANNELS_LAST_3D:
        if a.rank != spatial + 2:
            raise RuntimeError(f"required rank {spatial + 2} tensor to use channels_last"
                               f"{'_3d' if spatial == 3 else ''} format")
        return new_formatted(a.rank, a.sizes, dt, format, dev, index)
    return new_empty(a.rank, a.sizes, dt, dev, index)


cdef int pin_new(TensorBase r) except -1:
    """A new tensor goes to pinned memory."""
    if r.dev != CPU:
        raise RuntimeError("Only dense CPU tensors can be pinned")
    return pin_storage(r.st)
