# Tensors that get other memory, or another shape in more of it.

cdef object take_source(TensorBase self, object source, object storage_offset, object size, object stride):
    """Tensor.set_: self takes over another tensor's or storage's memory."""
    cdef StorageBase storage
    cdef TensorBase t
    cdef int64_t sizes[MAX_DIMS]
    cdef int64_t strides[MAX_DIMS]
    cdef int64_t start, need
    cdef int rank, i
    cdef object items = 1, given = source
    check_writable(self, True)
    if modes().grad and self.requires and self.fn is None:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
    if isinstance(source, TensorBase):
        t = <TensorBase>source
        if t.dt != self.dt:
            raise RuntimeError(f"Could not set tensor of type {cpp_name(t.dt)} to a tensor of type {cpp_name(self.dt)}")
        if t.dev != self.dev:
            raise RuntimeError(f"Attempted to set the storage of a tensor on device \"{self.device}\" to a storage on "
                               f"different device \"{t.device}\".  This is no longer allowed; the devices must match.")
        if size is None:
            take_memory(self, t)
            bump_version(self)
            return self
        source = t.untyped_storage()
    if source is None:
        source = storage_class(0)
    typed = getattr(source, "dtype", None)
    if typed is not None and dtype_id(typed) != self.dt:
        raise RuntimeError(f"Expected a Storage of type {cpp_name(self.dt)} or an UntypedStorage, but got type "
                           f"{type_word(dtype_id(typed))} for argument 1 'storage'")
    source = getattr(source, "_untyped_storage", source)
    if not isinstance(source, StorageBase):
        raise TypeError(f"set_(): argument 'source' must be Storage or Tensor, not {type(source).__name__}")
    storage = <StorageBase>source
    if (storage.s.device != self.dev or storage.s.index != self.dev_index) and storage.s.nbytes:
        raise RuntimeError(f"Attempted to set the storage of a tensor on device \"{self.device}\" to a storage on different "
                           f"device \"{storage.device}\".  This is no longer allowed; the devices must match.")
    if size is None:
        size = (storage.s.nbytes // itemsize(<DType>self.dt),)
    rank = read_ints_or_one(size, sizes, 1)
    if stride is None:
        row_major(rank, sizes, strides)
    elif read_ints_or_one(stride, strides, 1) != rank:
        raise RuntimeError(f"unequal size length ({rank}) and stride length ({len(stride)})")
    start = read_int(storage_offset)
    need = extent_of(rank, sizes, strides, start)
    for i in range(rank):
        items *= sizes[i]
    if items > INT64_MAX:
        raise RuntimeError("numel: integer multiplication overflow")
    if need * itemsize(<DType>self.dt) > storage.s.nbytes and (start or stride is not None or isinstance(given, TensorBase)):
        raise RuntimeError(f"setStorage: sizes {[sizes[i] for i in range(rank)]}, strides "
                           f"{[] if stride is None else [strides[i] for i in range(rank)]}, storage offset {start}, and itemsize "
                           f"{itemsize(<DType>self.dt)} requiring a storage size of {need * itemsize(<DType>self.dt)} are out of "
                           f"bounds for storage of size {storage.s.nbytes}")
    if need * itemsize(<DType>self.dt) > storage.s.nbytes:
        storage_resize(storage.s, need * itemsize(<DType>self.dt))
    set_memory(self, storage.s, self.dt, rank, sizes, strides, start)
    bump_version(self)
    return self


cdef object resize_self(TensorBase self, tuple sizes, object memory_format):
    """Tensor.resize_: another shape in place, in more memory where it needs it."""
    cdef int64_t dims[MAX_DIMS]
    cdef int64_t strides[MAX_DIMS]
    cdef int n = read_ints(sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes, dims)
    cdef int format = CONTIGUOUS if memory_format is None else (<memory_format_type?>memory_format).code
    cdef int spatial = 2 if format == CHANNELS_LAST else 3
    cdef size_t was
    if not sizes:
        raise TypeError('resize_() missing 1 required positional arguments: "size"')
    if needs_grad(self):
        raise RuntimeError("cannot resize variables that require grad")
    check_writable(self, True)
    if format == PRESERVE:
        raise RuntimeError("Unsupported memory formatPreserve")
    if format == CONTIGUOUS and n == self.rank and memcmp(dims, self.sizes, n * sizeof(int64_t)) == 0:
        return self                          # strides stay as they are
    was = 0 if self.st == NULL else self.st.nbytes
    if format != CONTIGUOUS and n != spatial + 2:
        raise RuntimeError(f"required rank {spatial + 2} tensor to use channels_last{'_3d' if spatial == 3 else ''} format")
    resize_tensor(self, n, dims)
    if format != CONTIGUOUS:
        channels_last_strides(n, dims, strides)
        set_geometry(self, n, dims, strides, self.offset)
    if fills_memory and self.st.nbytes > was:
        fill_unset(self, was // itemsize(<DType>self.dt))
    bump_version(self)
    return self
