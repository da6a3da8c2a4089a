# The output rules of the hottest ops, compiled; all others are Python (_ops/infer.py).

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
        copy_dims(out.sizes, a.sizes, a.rank)
        if id == R_LIKE_FLOAT and a.dt < kHalf:
            out.dt = default_dtype
        return 0
    if id == R_MATMUL or id == R_MM:
        b = <TensorBase>s[1]
        if a.dt != b.dt:
            if a.rank == 0 or b.rank == 0:
                return matmul_rule(id, a, b, out)        # which refuses that first
            if a.rank == 2 and b.rank == 1:
                raise RuntimeError(f"addmv input tensors must have the same dtype, but got {type_word(b.dt)}, {type_word(a.dt)}, "
                                   f"and {type_word(b.dt)}")
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
        if a.rank > 64:
            raise RuntimeError("only tensors with up to 64 dims are supported")
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
        which = "Input" if out.dt == a.dt else "Optional"
        raise RuntimeError(f"mean(): could not infer output dtype. {which} dtype must be either a floating point or complex "
                           f"dtype. Got: {type_word(out.dt)}")
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
    if lead < 0:
        raise RuntimeError(f"expand(torch.{type_word(t.dt)}Tensor{{{list((<object>t).shape)}}}, size="
                           f"{[out.sizes[i] for i in range(out.rank)]}): the number of sizes provided ({out.rank}) must be "
                           f"greater or equal to the number of dimensions in the tensor ({t.rank})")
    for d in range(t.rank):
        if t.sizes[d] != 1 and t.sizes[d] != out.sizes[d + lead]:
            raise RuntimeError(f"The expanded size of the tensor ({out.sizes[d + lead]}) must match the existing size "
                               f"({t.sizes[d]}) at non-singleton dimension {d + lead}.  Target sizes: "
                               f"{[out.sizes[i] for i in range(out.rank)]}.  Tensor sizes: {list((<object>t).shape)}")
    return 0


cdef int linear_rule(TensorBase a, TensorBase w, object bias, OutSpec* out) except -1:
    if w.rank == 0 or a.rank == 0:
        raise RuntimeError(f"both arguments to linear need to be at least 1D, but they are {a.rank}D and {w.rank}D")
    if w.rank > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {w.rank}D")
    if a.sizes[a.rank - 1] != w.sizes[w.rank - 1]:
        rows = a.count // max(a.sizes[a.rank - 1], 1)
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({rows}x{a.sizes[a.rank - 1]} and "
                           f"{w.sizes[w.rank - 1]}x{w.sizes[0] if w.rank == 2 else 1})")
    if a.dt != w.dt and bias is None:
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {type_name(a.dt)} != {type_name(w.dt)}")
    if a.dt != w.dt:
        raise RuntimeError(f"mat1 and mat2 must have the same dtype, but got {type_word(a.dt)} and {type_word(w.dt)}")
    if bias is not None and (<TensorBase>bias).dt != w.dt:
        raise RuntimeError(f"self and mat2 must have the same dtype, but got {type_word((<TensorBase>bias).dt)} and "
                           f"{type_word(w.dt)}")
    if bias is not None and w.rank == 1 and (a.rank == 2 or (<TensorBase>bias).rank > 0):
        raise RuntimeError("mat2 must be a matrix, got 1-D tensor")
    copy_dims(out.sizes, a.sizes, a.rank - 1)
    out.rank = a.rank - 1
    if w.rank == 2:
        out.sizes[out.rank] = w.sizes[0]
        out.rank += 1
    if bias is not None:
        check_addend(<TensorBase>bias, out)
    return 0


cdef int check_normalized(TensorBase input, object sizes, PyObject* weight, PyObject* bias, int64_t* shape) except -1:
    """Reads normalized_shape into shape; raises where the input does not end with it, or a parameter differs from it."""
    cdef int n = read_ints_or_one(sizes, shape, 1), lead = input.rank - n, d
    if n == 0:
        raise RuntimeError("Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one "
                           "element, but got normalized_shape = []")
    check_norm_param("weight", weight, n, shape)
    check_norm_param("bias", bias, n, shape)
    if lead < 0 or memcmp(input.sizes + lead, shape, n * sizeof(int64_t)) != 0:
        raise RuntimeError(f"Given normalized_shape={[shape[d] for d in range(n)]}, expected input with shape "
                           f"[*, {', '.join([str(shape[d]) for d in range(n)])}], but got input of "
                           f"size{list(shape_of(input))}")
    return n


def _check_normalized(TensorBase input not None, normalized_shape, TensorBase weight=None, TensorBase bias=None) -> None:
    """The same for rules in Python: of rms_norm."""
    cdef int64_t shape[MAX_DIMS]
    check_normalized(input, normalized_shape, <PyObject*>weight, <PyObject*>bias, shape)


cdef tuple layer_norm_outputs(PyObject** s, int dev, int index):
    """(input, normalized_shape, weight, bias, eps) -> output, mean, rstd"""
    cdef TensorBase input = <TensorBase>s[0], stats
    cdef int64_t shape[MAX_DIMS]
    cdef int n = check_normalized(input, <object>s[1], s[2], s[3], shape)
    cdef int lead = input.rank - n, d, dt = input.dt
    if is_tensor(s[2]) and (<TensorBase>s[2]).dt != dt or is_tensor(s[3]) and (<TensorBase>s[3]).dt != dt:
        _check_mixed(input, <object>s[2], <object>s[3])
    if is_tensor(s[2]):
        dt = (<TensorBase>s[2]).dt               # statistics are kept in the type of the parameters
    memcpy(shape, input.sizes, lead * sizeof(int64_t))
    for d in range(lead, input.rank):
        shape[d] = 1
    return (new_empty(input.rank, input.sizes, input.dt, dev, index),
            new_empty(input.rank, shape, dt, dev, index), new_empty(input.rank, shape, dt, dev, index))


def _check_mixed(TensorBase input not None, *params):
    """torch's rule on the CPU: parameters have the input's dtype, or are all float32 beside an input of 16 bits."""
    given = [(<TensorBase?>p).dt for p in params if p is not None]
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


cdef TensorBase new_output(Overload ov, PyObject** s, int at, int rank, const int64_t* sizes, int dt, int dev, int index):
    """Output number `at` as the row's rule sized it. Devices other than the cpu keep no memory formats: their kernels write
    rows."""
    cdef int format = CONTIGUOUS, p
    cdef TensorBase like
    if not ov.keeps_format or dev > META:
        return new_empty(rank, sizes, dt, dev, index)
    if ov.keeps_format == KEEPS_COLUMNS:
        if ov.format_from >> at & 1 and (ov.columns_if < 0 or <object>s[ov.columns_if] is True):
            return new_columns(rank, sizes, dt, dev, index)
        return new_empty(rank, sizes, dt, dev, index)
    if ov.keeps_format == KEEPS_WALK:
        return new_indexed(<TensorBase>s[0], <object>s[1], rank, sizes, dt)
    for p in range(ov.nparams):
        if not ov.format_from >> p & 1 or <object>s[p] is None:
            continue
        if ov.kind[p] == K_TENSORS:
            format = common_format(s[p])
        elif is_tensor(s[p]):
            like = <TensorBase>s[p]
            if ov.keeps_format == KEEPS_STRIDES and rank == like.rank and memcmp(sizes, like.sizes, rank * sizeof(int64_t)) == 0:
                return new_like_format(like, dt, PRESERVE, dev, index)
            format = suggested_format(like)
        if format != CONTIGUOUS:
            break
    if ov.keeps_format == KEEPS_STRIDES or rank != (4 if format == CHANNELS_LAST else 5):
        return new_empty(rank, sizes, dt, dev, index)
    return new_formatted(rank, sizes, dt, format, dev, index)


cdef bint walks_in_rows(TensorBase self, object indices):
    """Whether self and all that index it are contiguous."""
    if not self.contig:
        return False
    for item in indices:
        if item is not None and not (<TensorBase>item).contig:
            return False
    return True


cdef TensorBase new_indexed(TensorBase self, object indices, int rank, const int64_t* sizes, int dt):
    """The result of self[indices]: its dims lie as a walk over self, which stands still along the dims of the indices, and over
    these goes."""
    cdef int64_t made[MAX_DIMS]
    cdef int64_t among[MAX_DIMS]                 # the sizes of an index with a 1 for each dim of self
    cdef int64_t count = 1
    cdef const int64_t* operands[MAX_DIMS + 1]
    cdef int64_t* strides
    cdef TensorBase index
    cdef bytearray room
    cdef int d, first = -1, last = -1, wide = 0, n = 1, at = 0, start
    if walks_in_rows(self, indices):
        return new_empty(rank, sizes, dt, self.dev, self.dev_index)
    for d, item in enumerate(indices):
        if item is not None:
            first = d if first < 0 else first
            last = d
            wide = max(wide, (<TensorBase>item).rank)
            n += 1
    start = first if last - first + 2 == n else 0
    room = bytearray(n * rank * sizeof(int64_t))
    strides = <int64_t*>PyByteArray_AS_STRING(room)
    for d in range(n):
        operands[d] = strides + d * rank
    for d in range(self.rank):
        if d >= len(indices) or indices[d] is None:
            strides[at + (wide if at >= start else 0)] = self.strides[d]
            at += 1
    for d in range(rank):
        among[d] = sizes[d] if start <= d < start + wide else 1
        count *= among[d]
    for item in indices:
        if item is not None:
            index = <TensorBase>item
            for d in range(wide):
                at = d - wide + index.rank
                made[d] = index.strides[at] if at >= 0 and index.sizes[at] == sizes[start + d] else 0
            strides += rank
            strides_as(wide, count, sizes + start, made, rank, among, strides)
            for d in range(rank):                # it stands still along the dims of self
                if among[d] != sizes[d]:
                    strides[d] = 0
    walked_strides(rank, sizes, n, operands, made)
    return new_strided(rank, sizes, made, dt, self.dev, self.dev_index)


cdef int common_format(PyObject* tensors):
    """The memory format that all tensors of a list have; contiguous where they differ."""
    cdef int format = -1, found
    cdef Py_ssize_t k
    for k in range(count_items(tensors)):
        if is_tensor(items_of(tensors)[k]):
            found = suggested_format(<TensorBase>items_of(tensors)[k])
            if format >= 0 and found != format:
                return CONTIGUOUS
            format = found
    return format if format >= 0 else CONTIGUOUS
