# Ops that need no kernel of the library: factories, copies, casts, reshape.

NATIVE_IDS = {"empty": N_EMPTY, "zeros": N_ZEROS, "ones": N_ONES, "full": N_FULL, "clone": N_CLONE,
              "contiguous": N_CONTIGUOUS, "_to_copy": N_TO_COPY, "copy": N_COPY_, "reshape": N_RESHAPE,
              "zero_": N_ZERO_, "_lazy_clone": N_LAZY_CLONE, "empty_like": N_EMPTY_LIKE, "zeros_like": N_ZEROS_LIKE,
              "ones_like": N_ONES_LIKE, "empty_strided": N_EMPTY_STRIDED}


cdef object run_native(Overload ov, PyObject** s):
    cdef int id = ov.native_id
    cdef TensorBase self, r
    if id <= N_FULL:
        return factory(ov, id, s)
    if id == N_EMPTY_STRIDED:
        return strided_factory(ov, s)
    self = <TensorBase>s[0]
    if id == N_EMPTY_LIKE or id == N_ZEROS_LIKE or id == N_ONES_LIKE:
        return like_factory(ov, id, self, s)
    if id == N_CONTIGUOUS:
        return contiguous_op(self, s)
    if id == N_RESHAPE:
        return reshape_op(self, s)
    if id == N_COPY_:
        return copy_op(ov, self, s)
    if id == N_ZERO_:
        return zero_op(ov, self, s)
    if id == N_CLONE:
        r = new_like_format(self, self.dt, PRESERVE if <object>s[1] is None else (<memory_format>s[1]).code,
                            self.dev, self.dev_index)
        copy_into(r, self)
    elif id == N_LAZY_CLONE:
        r = lazy_clone(self)
    else:
        r = to_copy(ov, self, s)
    if needs_grad(self) and modes().grad and is_differentiable(r.dt):
        attach(record(ov, s), r, 0, None)
    return r


cdef bint is_in_format(TensorBase self, PyObject* wanted) except -1:
    """Whether contiguous() returns self: it has the memory format that is wanted, the contiguous one where None."""
    cdef int format = CONTIGUOUS if <object>wanted is None else (<memory_format>wanted).code
    if format == PRESERVE and not self.contig:
        raise RuntimeError("preserve memory format is unsupported by the contiguous operator")
    return (format in (CONTIGUOUS, PRESERVE) and self.contig) or (format == CHANNELS_LAST and is_channels_last(self, 2)) or \
        (format == CHANNELS_LAST_3D and is_channels_last(self, 3))


cdef object contiguous_op(TensorBase self, PyObject** s):
    if is_in_format(self, s[1]):
        return self
    return clone_as(self, constants["contiguous_format"] if <object>s[1] is None else <object>s[1])


cdef object clone_as(TensorBase self, object format):
    cdef PyObject* s[2]
    s[0], s[1] = <PyObject*>self, <PyObject*>format
    return run_native(<Overload>hot.clone.rows[0], s)


cdef object reshape_op(TensorBase self, PyObject** s):
    cdef int64_t sizes[MAX_DIMS]
    cdef int64_t strides[MAX_DIMS]
    cdef TensorBase copy
    cdef int n = read_ints(<object>s[1], sizes)
    infer_size(self, sizes, n)
    if view_strides(self, sizes, n, strides):
        return view_as(self, <object>s[1])
    copy = view_as(clone_as(self, constants["contiguous_format"]), <object>s[1])
    copy.base = None                             # no one else has the clone
    return copy


cdef TensorBase view_as(TensorBase self, object shape):
    """view() without layers: within reshape it is not overridden."""
    cdef PyObject* s[2]
    s[0], s[1] = <PyObject*>self, <PyObject*>shape
    return run_view(<Overload>hot.view.rows[0], s)


cdef object copy_op(Overload ov, TensorBase self, PyObject** s):
    """copy_ of (self, src, non_blocking)"""
    cdef TensorBase src
    cdef Node node = None
    cdef bint grad = wants_grad(ov, s) and is_differentiable(self.dt)
    if not is_tensor(s[1]):
        src = <TensorBase>scalar_tensor(<object>s[1])
        s[1] = <PyObject*>src
    src = <TensorBase>s[1]
    if src.dt >= kComplexFloat:
        warn_of_lost_part(src.dt, self.dt)
    check_inplace(self, grad)
    check_expandable(src, self)
    if self.st == src.st and not same_place(self, src) and ranges_meet(self, src):
        check_partial_overlap(self, src)
        kept = empty_like(src, src.dt)
        copy_into(kept, src)
        src = kept
    if grad:
        node = record(ov, s)
    copy_into(self, src, <object>s[2] is True)
    bump_version(self)
    if node is not None:
        finish_inplace(node, ov, self)
    return self


cdef int check_expandable(TensorBase src, TensorBase dst) except -1:
    cdef int d, lead = dst.rank - src.rank
    for d in range(src.rank - 1, -1, -1):
        if d + lead >= 0 and (src.sizes[d] == 1 or src.sizes[d] == dst.sizes[d + lead]):
            continue
        if d + lead >= 0:
            raise RuntimeError(f"The size of tensor a ({dst.sizes[d + lead]}) must match the size of tensor b "
                               f"({src.sizes[d]}) at non-singleton dimension {d + lead}")
        raise RuntimeError(f"output with shape {list(shape_of(dst))} doesn't match the broadcast shape "
                           f"{list(shape_of(src))}")
    return 0


cdef object zero_op(Overload ov, TensorBase self, PyObject** s):
    cdef Node node = None
    cdef bint grad = wants_grad(ov, s)
    check_inplace(self, grad, True)
    if grad:
        node = record(ov, s)
    set_zero(self)
    bump_version(self)
    if node is not None:
        finish_inplace(node, ov, self)
    return self


cdef int set_zero(TensorBase t) except -1:
    cdef PyObject* slot[1]
    if t.dev == CPU:
        if t.contig:
            zero_block(t)
        else:
            fill_with(t, 0)
    elif t.dev != META:
        slot[0] = <PyObject*>t
        device_kernel(<Overload>hot.zero_.rows[0], t.dev, (t,), slot)
    return 0


cdef int zero_block(TensorBase t) except -1:
    cdef size_t n = t.count * itemsize(<DType>t.dt)
    if n > 1 << 20:
        fill_with(t, 0)                          # threaded
    elif n:
        before_write(t)
        memset(ptr_of(t), 0, n)
    return 0


cdef int warn_of_lost_part(int src, int dst) except -1:
    if dst < kComplexFloat and src >= kComplexFloat and dst != kBool:
        warnings.warn("Casting complex values to real discards the imaginary part", UserWarning)
    return 0


cdef TensorBase to_copy(Overload ov, TensorBase self, PyObject** s):
    """_to_copy(self, *, dtype, layout, device, pin_memory, non_blocking, memory_format)"""
    cdef int dt = self.dt if <object>s[1] is None else dtype_id(<object>s[1])
    cdef int format = PRESERVE if <object>s[6] is None else (<memory_format>s[6]).code
    cdef device_type place
    cdef int dev = self.dev, index = self.dev_index
    cdef bint non_blocking = <object>s[5] is True
    cdef TensorBase r
    if <object>s[3] is not None:
        place = as_device(<object>s[3])
        dev, index = place.code, place.number
    if self.dt >= kComplexFloat:
        warn_of_lost_part(self.dt, dt)
    r = new_like_format(self, dt, format, dev, index)
    if <object>s[4] is True or (non_blocking and dev == CPU and self.dev > META):
        pin_new(r)                               # as torch: only into pinned memory can a copy be left to itself
    copy_into(r, self, non_blocking)
    return r


cdef bint is_format(object o):
    return isinstance(o, memory_format)


def _to(TensorBase self not None, d, device, bint non_blocking, bint copy, memory_format):
    """Tensor.to with its arguments sorted out: self when nothing changes, else a copy."""
    cdef int dt = self.dt if d is None else dtype_id(d)
    cdef object place = None if device is None else as_device(device)
    cdef bint same = dt == self.dt and (place is None or ((<device_type>place).code == self.dev and
                                        ((<device_type>place).number == self.dev_index or self.dev == CPU)))
    if memory_format is not None and not is_format(memory_format):                          # methods pass it on unseen
        raise TypeError(f"to(): argument 'memory_format' must be torch.memory_format, not {type(memory_format).__name__}")
    if same and not copy and (memory_format is None or (<memory_format_type>memory_format).code == PRESERVE or
                              self.is_contiguous(memory_format)):
        return self
    return hot._to_copy(self, dtype=dtypes[dt], device=place, non_blocking=non_blocking, memory_format=memory_format)


# ---- factories --------------------------------------------------------------------------------------------------
cdef int default_for(object value):
    """The dtype of full() with that fill value."""
    if PyBool_Check(value):
        return kBool
    if PyLong_Check(value):
        return kInt64
    if PyComplex_Check(value):
        return complex_of(default_dtype)
    return default_dtype


cdef object factory(Overload ov, int id, PyObject** s):
    """empty/zeros/ones(size, *, dtype, layout, device, pin_memory, requires_grad, memory_format) and
    full(size, fill_value, *, …)"""
    cdef int64_t sizes[MAX_DIMS]
    cdef int at = 2 if id == N_FULL else 1
    cdef int rank = read_ints_or_one(<object>s[0], sizes, 1)
    cdef int dt
    cdef device_type place = cpu_device
    cdef TensorBase r
    if <object>s[at] is not None:
        dt = dtype_id(<object>s[at])
    elif id == N_FULL:
        dt = (<TensorBase>s[1]).dt if is_tensor(s[1]) else default_for(<object>s[1])
    else:
        dt = default_dtype
    if <object>s[at + 2] is not None or modes().devices != NULL:
        place = as_device(<object>s[at + 2])
    r = new_empty(rank, sizes, dt, place.code, place.number)
    if <object>s[at + 5] is not None:
        r = new_like_format(r, dt, (<memory_format>s[at + 5]).code, place.code, place.number)
    if <object>s[at + 3] is True:
        pin_new(r)
    fill_new(r, 0 if id == N_ZEROS else 1 if id == N_ONES else <object>s[1] if id == N_FULL else None, id)
    if <object>s[at + 4] is True:
        set_requires(r, True)
    return r


cdef bint fills_memory = False                   # torch.use_deterministic_algorithms: memory that is not set is filled


def _set_fills_memory(bint value) -> None:
    """Whether empty() and its like give memory that holds NaN, or the largest number."""
    global fills_memory
    fills_memory = value


cdef int fill_unset(TensorBase r, int64_t first) except -1:
    """Fills the items of a storage, from the first that is given, as torch fills memory that is not set."""
    cdef TensorBase items = new_empty(0, NULL, r.dt, r.dev, r.dev_index)
    cdef int64_t one = 1, count
    if r.dev == META or r.dt == kBool and r.dev != CPU:
        return 0
    count = <int64_t>(r.st.nbytes // itemsize(<DType>r.dt)) - first
    set_memory(items, r.st, r.dt, 1, &count, &one, first)
    kind = dtypes[r.dt]
    value = True if r.dt == kBool else float("nan") if kind.is_floating_point or kind.is_complex else \
        (1 << 8 * kind.itemsize - kind.is_signed) - 1
    fill_new(items, value, N_FULL)
    return 0


cdef int fill_new(TensorBase r, object value, int id) except -1:
    if fills_memory and (id == N_EMPTY or id == N_EMPTY_LIKE or id == N_EMPTY_STRIDED) and r.count:
        fill_unset(r, 0)
    if id == N_ZEROS or id == N_ZEROS_LIKE:
        set_zero(r)
    elif id == N_ONES or id == N_FULL or id == N_ONES_LIKE:
        if r.dev == CPU:
            fill_with(r, value)
        elif r.dev != META:
            hot_call2(hot.fill_, r, value)
    return 0


cdef object like_factory(Overload ov, int id, TensorBase self, PyObject** s):
    """*_like(self, *, dtype, layout, device, pin_memory, requires_grad, memory_format)"""
    cdef int dt = self.dt if <object>s[1] is None else dtype_id(<object>s[1])
    cdef int format = PRESERVE if <object>s[6] is None else (<memory_format>s[6]).code
    cdef device_type place
    cdef int dev = self.dev, index = self.dev_index
    cdef TensorBase r
    if <object>s[3] is not None:
        place = as_device(<object>s[3])
        dev, index = place.code, place.number
    r = new_like_format(self, dt, format, dev, index)
    if <object>s[4] is True:
        pin_new(r)
    fill_new(r, 1, id)
    if <object>s[5] is True:
        set_requires(r, True)
    return r


cdef object strided_factory(Overload ov, PyObject** s):
    """empty_strided(size, stride, *, dtype, layout, device, pin_memory, requires_grad)"""
    cdef int64_t sizes[MAX_DIMS]
    cdef int64_t strides[MAX_DIMS]
    cdef int rank = read_ints(<object>s[0], sizes), d
    cdef int dt = default_dtype if <object>s[2] is None else dtype_id(<object>s[2])
    cdef device_type place = as_device(<object>s[4])
    cdef TensorBase r
    if read_ints(<object>s[1], strides) != rank:
        raise RuntimeError(f"dimensionality of sizes ({rank}) must match dimensionality of strides ({len(<object>s[1])})")
    for d in range(rank):
        if sizes[d] < 0:
            raise negative_dimension(rank, sizes, sizes[d])
        if strides[d] < 0:
            raise no_room(rank, sizes, strides)
    r = new_strided(rank, sizes, strides, dt, place.code, place.number)
    fill_new(r, None, N_EMPTY_STRIDED)
    if <object>s[5] is True:
        pin_new(r)
    if <object>s[6] is True:
        set_requires(r, True)
    return r


def _from_data(data, d, bint share):
    """tensor() and as_tensor(): see tensor_from_data."""
    cdef int dt = -1 if d is None else dtype_id(d)
    if share and isinstance(data, TensorBase) and (dt < 0 or dt == (<TensorBase>data).dt):
        return hot_call1(hot.detach, data)
    return tensor_from_data(data, dt, share)
