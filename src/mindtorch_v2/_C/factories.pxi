# Ops that need no kernel of the library: factories, copies, casts, reshape. And the output rules of the hottest ops.


NATIVE_IDS = {"empty": N_EMPTY, "zeros": N_ZEROS, "ones": N_ONES, "full": N_FULL, "clone": N_CLONE,
              "contiguous": N_CONTIGUOUS, "_to_copy": N_TO_COPY, "copy": N_COPY_, "reshape": N_RESHAPE,
              "zero_": N_ZERO_, "empty_like": N_EMPTY_LIKE, "zeros_like": N_ZEROS_LIKE, "ones_like": N_ONES_LIKE,
              "empty_strided": N_EMPTY_STRIDED}


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
    else:
        r = to_copy(ov, self, s)
    if needs_grad(self) and modes().grad and is_differentiable(r.dt):
        attach(record(ov, s), r, 0, None)
    return r


cdef object contiguous_op(TensorBase self, PyObject** s):
    cdef int format = CONTIGUOUS if <object>s[1] is None else (<memory_format>s[1]).code
    if format == PRESERVE:
        raise RuntimeError("preserve memory format is unsupported by the contiguous operator")
    if (format == CONTIGUOUS and self.contig) or (format == CHANNELS_LAST and is_channels_last(self, 2)) or \
            (format == CHANNELS_LAST_3D and is_channels_last(self, 3)):
        return self
    return clone_as(self, constants["contiguous_format"] if <object>s[1] is None else <object>s[1])


cdef bint has_dispatch(TensorBase self) noexcept:
    """Whether a dispatch mode or the tensor's class may answer for ops of self."""
    cdef PyTypeObject* tp = Py_TYPE(<PyObject*>self)
    return modes().dispatch_mode_count > 0 or tp != tensor_type and tp != parameter_type


cdef object run_part(Op op, tuple slots):
    """An op that another one is made of: dispatch modes see it, what stands above them has seen the whole."""
    cdef Binding b
    cdef Overload ov = <Overload>op.rows[0]
    b.temp = NULL
    bind_slots(op, ov, slots, None, &b)
    return run_inner(op, ov, &b)


cdef object clone_as(TensorBase self, object format):
    cdef PyObject* s[2]
    if self.marks or has_dispatch(self):
        return run_part(hot.clone, (self, format))
    s[0], s[1] = <PyObject*>self, <PyObject*>format
    return run_native(<Overload>hot.clone.rows[0], s)


cdef object reshape_op(TensorBase self, PyObject** s):
    cdef int64_t sizes[MAX_DIMS]
    cdef int64_t strides[MAX_DIMS]
    cdef TensorBase copy
    cdef int n = read_ints(<object>s[1], sizes)
    infer_size(self, sizes, n)
    if has_dispatch(self):
        shape = tuple([sizes[i] for i in range(n)])
        if not view_strides(self, sizes, n, strides):
            self = <TensorBase?>clone_as(self, constants["contiguous_format"])
        return run_part(hot.view, (self, shape))
    if view_strides(self, sizes, n, strides):
        return view_as(self, <object>s[1])
    copy = view_as(clone_as(self, constants["contiguous_format"]), <object>s[1])
    copy.base = None                             # nobody else has the clone
    return copy


cdef TensorBase view_as(TensorBase self, object shape):
    """view(), asked of nobody else: within reshape it is not overridden."""
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
    for d in range(src.rank):
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
        check_room(t)
        memset(ptr_of(t), 0, n)
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
    if dt < kComplexFloat and self.dt >= kComplexFloat and dt != kBool:
        warnings.warn("Casting complex values to real discards the imaginary part", UserWarning)
    r = new_like_format(self, dt, format, dev, index)
    if <object>s[4] is True or (non_blocking and dev == CPU and self.dev > META):
        pin_new(r)                               # as torch: only into pinned memory can a copy be left to itself
    copy_into(r, self, non_blocking)
    return r


def _to(TensorBase self not None, d, device, bint non_blocking, bint copy, memory_format):
    """Tensor.to with its arguments sorted out: self when nothing changes, else a copy."""
    cdef int dt = self.dt if d is None else dtype_id(d)
    cdef object place = None if device is None else as_device(device)
    cdef bint same = dt == self.dt and (place is None or ((<device_type>place).code == self.dev and
                                        ((<device_type>place).number == self.dev_index or self.dev == CPU)))
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


cdef int fill_new(TensorBase r, object value, int id) except -1:
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
        if sizes[d] < 0 or strides[d] < 0:
            raise RuntimeError("empty_strided: sizes and strides must not be negative")
    r = new_strided(rank, sizes, strides, dt, place.code, place.number)
    if <object>s[5] is True:
        pin_new(r)
    if <object>s[6] is True:
        set_requires(r, True)
    return r


# ---- rules --------------------------------------------------------------------------------------------------------
cdef enum:
    R_LIKE = 1
    R_LIKE_FLOAT, R_SUM, R_REDUCE, R_REDUCE_BOOL, R_MEAN, R_MATMUL, R_MM, R_LINEAR, R_REDUCE_REAL, R_LAYER

RULE_IDS = {"like": R_LIKE, "like_float": R_LIKE_FLOAT, "sum": R_SUM, "reduce": R_REDUCE, "reduce_bool": R_REDUCE_BOOL,
            "mean": R_MEAN, "matmul": R_MATMUL, "mm": R_MM, "linear": R_LINEAR, "reduce_real": R_REDUCE_REAL, "layer_norm": R_LAYER}


cdef int native_rule(int id, Overload ov, PyObject** s, OutSpec* out) except -1:
    """Shape and dtype of the one output."""
    cdef TensorBase a = <TensorBase>s[0], b
    cdef int i
    out.dt = a.dt
    if id == R_LIKE or id == R_LIKE_FLOAT:
        out.rank = a.rank
        memcpy(out.sizes, a.sizes, a.rank * sizeof(int64_t))
        if id == R_LIKE_FLOAT and a.dt < kHalf:
            out.dt = default_dtype
        return 0
    if id == R_MATMUL or id == R_MM:
        b = <TensorBase>s[1]
        if a.dt != b.dt:
            raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {type_name(a.dt)} != {type_name(b.dt)}")
        return matmul_rule(id, a, b, out)
    if id == R_LINEAR:
        return linear_rule(a, <TensorBase>s[1], <object>s[2], out)
    return reduce_rule(id, ov, a, s, out)


cdef int reduce_rule(int id, Overload ov, TensorBase a, PyObject** s, OutSpec* out) except -1:
    """(self, dim?, keepdim, dtype?) in that order, later ones absent in some rows."""
    cdef int64_t dims[MAX_DIMS]
    cdef bint drop[MAX_DIMS]
    cdef int n = 0, i, d
    cdef bint keep, all_dims
    dim = <object>s[1]
    all_dims = dim is None
    if not all_dims:
        n = read_ints_or_one(dim, dims, 1)
        all_dims = n == 0 and id != R_REDUCE_BOOL      # torch's any and all take no dims for none
    for d in range(a.rank):
        drop[d] = all_dims
    for i in range(n):
        d = wrap_dim(dims[i], a.rank)
        if a.rank == 0:
            continue
        if drop[d]:
            raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
        drop[d] = True
    keep = ov.nparams > 2 and <object>s[2] is True
    out.rank = 0
    for d in range(a.rank):
        if not drop[d]:
            out.sizes[out.rank] = a.sizes[d]
            out.rank += 1
        elif keep:
            out.sizes[out.rank] = 1
            out.rank += 1
    if ov.nparams > 3 and <object>s[3] is not None:
        out.dt = dtype_id(<object>s[3])
    elif id == R_SUM and a.dt < kHalf:
        out.dt = kInt64
    elif id == R_REDUCE_BOOL:
        out.dt = kUInt8 if a.dt == kUInt8 else kBool
    elif id == R_REDUCE_REAL:
        out.dt = real_of(a.dt)
    if id == R_MEAN and out.dt < kHalf:
        raise RuntimeError(f"mean(): could not infer output dtype. Input dtype must be either a floating point or complex "
                           f"dtype. Got: {type_word(a.dt)}")
    return 0


cdef int matmul_rule(int id, TensorBase a, TensorBase b, OutSpec* out) except -1:
    cdef int ra = a.rank, rb = b.rank, d, n, ba, bb
    cdef int64_t x, y
    if id == R_MM and (ra != 2 or rb != 2):
        raise RuntimeError("self must be a matrix" if ra != 2 else "mat2 must be a matrix")
    if ra == 0 or rb == 0:
        raise RuntimeError("both arguments to matmul need to be at least 1D, but they are "
                           f"{ra}D and {rb}D")
    if a.sizes[ra - 1] != b.sizes[rb - 2 if rb > 1 else 0]:
        if ra == 1 and rb == 1:
            raise RuntimeError(f"inconsistent tensor size, expected tensor [{a.sizes[0]}] and src [{b.sizes[0]}] to have "
                               f"the same number of elements, but got {a.sizes[0]} and {b.sizes[0]} elements respectively")
        rows = 1 if ra == 1 else a.sizes[ra - 2] if rb > 2 or ra <= 2 else a.count // max(a.sizes[ra - 1], 1)
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({rows}x{a.sizes[ra - 1]} and "
                           f"{b.sizes[rb - 2] if rb > 1 else b.sizes[0]}x{b.sizes[rb - 1] if rb > 1 else 1})")
    ba, bb = max(ra - 2, 0), max(rb - 2, 0)
    n = max(ba, bb)
    for d in range(n):
        x = a.sizes[d - (n - ba)] if d >= n - ba else 1
        y = b.sizes[d - (n - bb)] if d >= n - bb else 1
        if x != y and x != 1 and y != 1:
            raise RuntimeError(f"The size of tensor a ({x}) must match the size of tensor b ({y}) at non-singleton "
                               f"dimension {d}")
        out.sizes[d] = y if x == 1 else x
    if ra > 1:
        out.sizes[n] = a.sizes[ra - 2]
        n += 1
    if rb > 1:
        out.sizes[n] = b.sizes[rb - 1]
        n += 1
    out.rank = n
    return 0


cdef int check_addend(TensorBase t, OutSpec* out) except -1:
    """Whether t expands to the output's shape."""
    cdef int d, lead = out.rank - t.rank
    for d in range(t.rank):
        if lead < 0 or (t.sizes[d] != 1 and t.sizes[d] != out.sizes[d + lead]):
            raise RuntimeError(f"The expanded size of the tensor ({out.sizes[d + lead] if lead >= 0 else 0}) must match the "
                               f"existing size ({t.sizes[d]}) at non-singleton dimension {d}")
    return 0


cdef int linear_rule(TensorBase a, TensorBase w, object bias, OutSpec* out) except -1:
    cdef int d
    if w.rank not in (1, 2) or a.rank == 0:
        raise RuntimeError(f"linear(): expected input of at least 1 dimension and weight of 1 or 2, got {a.rank} and {w.rank}")
    if a.sizes[a.rank - 1] != w.sizes[w.rank - 1]:
        rows = a.count // max(a.sizes[a.rank - 1], 1)
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({rows}x{a.sizes[a.rank - 1]} and "
                           f"{w.sizes[w.rank - 1]}x{w.sizes[0] if w.rank == 2 else 1})")
    if a.dt != w.dt or (bias is not None and (<TensorBase>bias).dt != a.dt):
        raise RuntimeError(f"mat1 and mat2 must have the same dtype, but got {type_word(a.dt)} and {type_word(w.dt)}")
    for d in range(a.rank - 1):
        out.sizes[d] = a.sizes[d]
    out.rank = a.rank - 1
    if w.rank == 2:
        out.sizes[out.rank] = w.sizes[0]
        out.rank += 1
    if bias is not None:
        check_addend(<TensorBase>bias, out)
    return 0


cdef tuple layer_norm_outputs(PyObject** s, int dev, int index):
    """(input, normalized_shape, weight, bias, eps) -> output, mean, rstd"""
    cdef TensorBase input = <TensorBase>s[0], stats
    cdef int64_t shape[MAX_DIMS]
    cdef int n = read_ints_or_one(<object>s[1], shape, 1), lead = input.rank - n, d, dt = input.dt
    if n == 0:
        raise RuntimeError("Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one "
                           "element, but got normalized_shape = []")
    check_norm_param("weight", s[2], n, shape)
    check_norm_param("bias", s[3], n, shape)
    if lead < 0 or memcmp(input.sizes + lead, shape, n * sizeof(int64_t)) != 0:
        raise RuntimeError(f"Given normalized_shape={[shape[d] for d in range(n)]}, expected input with shape "
                           f"[*, {', '.join([str(shape[d]) for d in range(n)])}], but got input of "
                           f"size{list(shape_of(input))}")
    if is_tensor(s[2]) and (<TensorBase>s[2]).dt != dt or is_tensor(s[3]) and (<TensorBase>s[3]).dt != dt:
        _check_mixed(input, <object>s[2], <object>s[3])
    if is_tensor(s[2]):
        dt = (<TensorBase>s[2]).dt               # statistics are kept in the type of the parameters
    memcpy(shape, input.sizes, lead * sizeof(int64_t))
    for d in range(lead, input.rank):
        shape[d] = 1
    return (new_empty(input.rank, input.sizes, input.dt, dev, index),
            new_empty(input.rank, shape, dt, dev, index), new_empty(input.rank, shape, dt, dev, index))


def _check_mixed(TensorBase input, *params):
    """torch's rule on the CPU: parameters have the input's dtype, or are all float32 beside an input of 16 bits."""
    given = [(<TensorBase>p).dt for p in params if p is not None]
    others = [dt for dt in given if dt != input.dt]
    if not others or input.dev > META:
        return
    if given[0] == input.dt:
        raise RuntimeError(f"expected scalar type {type_word(input.dt)} but found {type_word(others[0])}")
    if any(dt != kFloat for dt in given):
        raise RuntimeError("mixed dtype (CPU): expect parameter to have scalar type of Float")
    if input.dt != kHalf and input.dt != kBFloat16:
        raise RuntimeError("mixed dtype (CPU): all inputs must share same datatype.")


cdef int check_norm_param(str name, PyObject* o, int n, const int64_t* shape) except -1:
    if is_tensor(o) and ((<TensorBase>o).rank != n or memcmp((<TensorBase>o).sizes, shape, n * sizeof(int64_t)) != 0):
        raise RuntimeError(f"Expected {name} to be of same shape as normalized_shape, but got {name} of shape "
                           f"{list(shape_of(<TensorBase>o))} and normalized_shape = {[shape[i] for i in range(n)]}")
    return 0


def _from_data(data, d, bint share):
    """tensor() and as_tensor(): see tensor_from_data."""
    cdef int dt = -1 if d is None else dtype_id(d)
    if share and isinstance(data, TensorBase) and (dt < 0 or dt == (<TensorBase>data).dt):
        return hot_call1(hot.detach, data)
    return tensor_from_data(data, dt, share)
