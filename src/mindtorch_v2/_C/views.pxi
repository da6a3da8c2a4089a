# View ops: new geometry over the same storage.

cdef enum:
    V_VIEW = 1
    V_TRANSPOSE, V_PERMUTE, V_EXPAND, V_SQUEEZE, V_SQUEEZE_DIM, V_UNSQUEEZE, V_SELECT, V_SLICE, V_AS_STRIDED
    V_UNFOLD, V_DIAGONAL, V_ALIAS, V_VIEW_DTYPE, V_REAL, V_COMPLEX, V_T, V_DETACH, V_CONJ, V_NEG

VIEW_IDS = {"view": V_VIEW, "transpose": V_TRANSPOSE, "permute": V_PERMUTE, "expand": V_EXPAND, "squeeze": V_SQUEEZE,
            "squeeze_dim": V_SQUEEZE_DIM, "unsqueeze": V_UNSQUEEZE, "select": V_SELECT, "slice": V_SLICE,
            "as_strided": V_AS_STRIDED, "unfold": V_UNFOLD, "diagonal": V_DIAGONAL, "alias": V_ALIAS,
            "view_dtype": V_VIEW_DTYPE, "view_as_real": V_REAL, "view_as_complex": V_COMPLEX, "t": V_T,
            "detach": V_DETACH, "conj": V_CONJ, "neg_view": V_NEG}


cdef TensorBase make_view(TensorBase self, int rank, const int64_t* sizes, const int64_t* strides, int64_t offset):
    """A view of self's storage, tracked as a view of self's base."""
    cdef TensorBase t = blank_tensor()
    t.dt, t.dev, t.dev_index = self.dt, self.dev, self.dev_index
    t.st = self.st
    self.st.refs += 1
    set_geometry(t, rank, sizes, strides, offset)
    t.base = self if self.base is None else self.base
    if self.shared_version == NULL:
        make_version(self)
    share_version(t, self)
    t.view_version = version_of(t)
    t.inference, t.marks = self.inference, self.marks
    t.creation = self.creation if modes().grad else VIEW_INFERENCE if modes().inference else VIEW_NO_GRAD
    return t


cdef object run_view(Overload ov, PyObject** s):
    cdef int64_t sizes[MAX_DIMS + 1]             # one more than fits, so that too many dims are seen, not written
    cdef int64_t strides[MAX_DIMS + 1]
    cdef TensorBase self = <TensorBase>s[0], r
    cdef int64_t offset = self.offset
    cdef int rank = geometry(ov.native_id, self, s, sizes, strides, &offset)
    r = make_view(self, rank, sizes, strides, offset)
    if ov.native_id >= V_VIEW_DTYPE:
        if ov.native_id >= V_CONJ:
            flip_mark(ov.native_id, r)
        elif ov.native_id != V_T and ov.native_id != V_DETACH:
            view_other_dtype(ov.native_id, self, r, s)
        if ov.native_id == V_DETACH or ov.native_id == V_VIEW_DTYPE:
            r.base = None                        # no history leads through these
            return r
    if needs_grad(self) and modes().grad and is_differentiable(r.dt) and ov.formulas is not None:
        attach(record(ov, s), r, 0, None)
    return r


cdef int flip_mark(int id, TensorBase r) except -1:
    """r is read conjugated, or negated, where it was not, and the other way round."""
    if id == V_CONJ and r.dt < kComplexFloat:
        raise RuntimeError(f"_conj is only supported for complex tensors, got {type_word(r.dt)}")
    r.marks ^= MARK_CONJ if id == V_CONJ else MARK_NEG
    return 0


cdef int geometry(int id, TensorBase self, PyObject** s, int64_t* sizes, int64_t* strides, int64_t* offset) except -1:
    """Fills sizes, strides and offset of the view; returns its rank."""
    cdef int rank = self.rank, d, e, i, n = 0
    if id == V_VIEW:
        n = read_ints_or_one(<object>s[1], sizes, 1)
        infer_size(self, sizes, n)
        if not view_strides(self, sizes, n, strides):
            raise RuntimeError("view size is not compatible with input tensor's size and stride (at least one dimension "
                               "spans across two contiguous subspaces). Use .reshape(...) instead.")
        return n
    copy_dims(sizes, self.sizes, rank)
    copy_dims(strides, self.strides, rank)
    if id == V_TRANSPOSE:
        d, e = wrap_dim(read_int(<object>s[1]), rank), wrap_dim(read_int(<object>s[2]), rank)
        swap_dims(rank, sizes, strides, d, e)
        return rank
    if id == V_T:
        if rank > 2:
            raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {rank}D")
        swap_dims(rank, sizes, strides, 0, rank - 1)
        return rank
    if id == V_SELECT:
        return select_geometry(self, read_int(<object>s[1]), read_int(<object>s[2]), sizes, strides, offset)
    if id == V_UNSQUEEZE:
        d = wrap_dim(read_int(<object>s[1]), rank + 1)
        for i in range(rank, d, -1):
            sizes[i], strides[i] = sizes[i - 1], strides[i - 1]
        strides[d] = sizes[d] * strides[d] if d < rank else 1
        if d < rank:
            strides[d] = self.sizes[d] * self.strides[d]
        sizes[d] = 1
        return rank + 1
    if id == V_SQUEEZE or id == V_SQUEEZE_DIM:
        return squeeze_geometry(self, None if id == V_SQUEEZE else <object>s[1], sizes, strides)
    if id == V_SLICE:
        slice_geometry(self, s, sizes, strides, offset)
        return rank
    if id == V_PERMUTE:
        return permute_geometry(self, <object>s[1], sizes, strides)
    if id == V_EXPAND:
        return expand_geometry(self, <object>s[1], sizes, strides)
    if id == V_AS_STRIDED:
        return as_strided_geometry(self, s, sizes, strides, offset)
    if id == V_UNFOLD:
        return unfold_geometry(self, s, sizes, strides)
    if id == V_DIAGONAL:
        return diagonal_geometry(self, s, sizes, strides, offset)
    return rank                                  # alias, detach, and views as another dtype


cdef inline void swap_dims(int rank, int64_t* sizes, int64_t* strides, int d, int e) noexcept:
    if rank < 2:
        return
    sizes[d], sizes[e] = sizes[e], sizes[d]
    strides[d], strides[e] = strides[e], strides[d]


cdef int infer_size(TensorBase self, int64_t* sizes, int n) except -1:
    """Replaces a -1 among the sizes."""
    cdef int d, unknown = -1
    cdef int64_t known = 1
    for d in range(n):
        if sizes[d] == -1:
            if unknown >= 0:
                raise RuntimeError("only one dimension can be inferred")
            unknown = d
        elif sizes[d] < 0:
            raise RuntimeError(f"invalid shape dimension {sizes[d]} at index {d} of shape {[sizes[i] for i in range(n)]}")
        elif (known | sizes[d]) >> 31 and sizes[d] and known > INT64_MAX // sizes[d]:    # no division for small ones
            raise RuntimeError(f"shape '{[sizes[i] for i in range(n)]}' is invalid for input of size {self.count}")
        else:
            known *= sizes[d]
    if unknown >= 0 and known == 0 and self.count == 0:
        raise RuntimeError(f"cannot reshape tensor of 0 elements into shape {[sizes[i] for i in range(n)]} because the "
                           f"unspecified dimension size -1 can be any value and is ambiguous")
    if known == 0 and self.count or (self.count % known if unknown >= 0 else self.count != known):
        raise RuntimeError(f"shape '{[sizes[i] for i in range(n)]}' is invalid for input of size {self.count}")
    if unknown >= 0:
        sizes[unknown] = self.count // known
    return 0


cdef int select_geometry(TensorBase self, int64_t dim, int64_t index, int64_t* sizes, int64_t* strides,
                         int64_t* offset) except -1:
    cdef int d, i
    if self.rank == 0:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    d = wrap_dim(dim, self.rank)
    if index < -self.sizes[d] or index >= self.sizes[d]:
        raise IndexError(f"select(): index {index} out of range for tensor of size {list(shape_of(self))} at dimension {d}")
    if index < 0:
        index += self.sizes[d]
    offset[0] += index * self.strides[d]
    for i in range(d, self.rank - 1):
        sizes[i], strides[i] = sizes[i + 1], strides[i + 1]
    return self.rank - 1


cdef int squeeze_geometry(TensorBase self, object dims, int64_t* sizes, int64_t* strides) except -1:
    cdef bint drop[MAX_DIMS]
    cdef int d, n = 0
    for d in range(self.rank):
        drop[d] = dims is None
    if dims is not None:
        for item in (dims if isinstance(dims, (tuple, list)) else (dims,)):
            d = wrap_dim(read_int(item), self.rank)
            if self.rank:
                if drop[d]:
                    raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
                drop[d] = True
    for d in range(self.rank):
        if not (drop[d] and self.sizes[d] == 1):
            sizes[n], strides[n] = self.sizes[d], self.strides[d]
            n += 1
    return n


cdef int slice_geometry(TensorBase self, PyObject** s, int64_t* sizes, int64_t* strides, int64_t* offset) except -1:
    """slice(self, dim, start?, end?, step)"""
    cdef int64_t start, end, step = read_int(<object>s[4]), size
    cdef int d
    if self.rank == 0:
        raise IndexError("slice() cannot be applied to a 0-dim tensor.")
    d = wrap_dim(read_int(<object>s[1]), self.rank)
    if step <= 0:
        raise RuntimeError("slice step must be positive")
    size = self.sizes[d]
    start = 0 if <object>s[2] is None else clip_int(<object>s[2])
    end = size if <object>s[3] is None else clip_int(<object>s[3])
    if start < 0:
        start += size
    if end < 0:
        end += size
    start = min(max(start, 0), size)
    end = min(max(end, start), size)
    offset[0] += start * strides[d]
    sizes[d] = (end - start - 1) // step + 1 if end > start else 0
    strides[d] *= min(step, <int64_t>1 << 31)    # a longer step has but one item, whose stride does not matter
    return 0


cdef int64_t clip_int(object o) except? -1:
    """An int, clipped to 64 bits (slices may name sys.maxsize and beyond)."""
    cdef int overflow = 0
    cdef int64_t v
    if PyLong_Check(o):
        v = PyLong_AsLongLongAndOverflow(o, &overflow)
        if overflow:
            return INT64_MAX if overflow > 0 else -INT64_MAX
        return v
    return read_int(o)


cdef int permute_geometry(TensorBase self, object dims, int64_t* sizes, int64_t* strides) except -1:
    cdef int64_t order[MAX_DIMS]
    cdef bint seen[MAX_DIMS]
    cdef int i, d, n = read_ints(dims, order)
    if n != self.rank:
        raise RuntimeError(f"permute(sparse_coo): number of dimensions in the tensor input does not match the length of "
                           f"the desired ordering of dimensions i.e. input.dim() = {self.rank} is not equal to "
                           f"len(dims) = {n}")
    memset(seen, 0, sizeof(seen))
    for i in range(n):
        d = wrap_dim(order[i], n)
        if seen[d]:
            raise RuntimeError("permute(): duplicate dims are not allowed.")
        seen[d] = True
        sizes[i], strides[i] = self.sizes[d], self.strides[d]
    return n


cdef int expand_geometry(TensorBase self, object shape, int64_t* sizes, int64_t* strides) except -1:
    cdef int64_t want[MAX_DIMS]
    cdef int n = read_ints(shape, want), d, lead = n - self.rank
    if lead < 0:
        raise RuntimeError(f"expand(torch.{type_word(self.dt)}Tensor{{{list(shape_of(self))}}}, size={list(shape)}): the "
                           f"number of sizes provided ({n}) must be greater or equal to the number of dimensions in the "
                           f"tensor ({self.rank})")
    for d in range(n - 1, -1, -1):               # from the last: torch names the last dimension that does not fit
        if d < lead:
            if want[d] < 0:
                raise RuntimeError(f"The expanded size of the tensor ({want[d]}) isn't allowed in a leading, "
                                   f"non-existing dimension {d}")
            sizes[d], strides[d] = want[d], 0
            continue
        sizes[d], strides[d] = self.sizes[d - lead], self.strides[d - lead]
        if want[d] == -1 or want[d] == sizes[d]:
            continue
        if sizes[d] != 1 or want[d] < 0:
            raise RuntimeError(f"The expanded size of the tensor ({want[d]}) must match the existing size ({sizes[d]}) at "
                               f"non-singleton dimension {d}.  Target sizes: {list(shape)}.  "
                               f"Tensor sizes: {list(shape_of(self))}")
        sizes[d], strides[d] = want[d], 0
    return n


cdef int as_strided_geometry(TensorBase self, PyObject** s, int64_t* sizes, int64_t* strides, int64_t* offset) except -1:
    cdef int n = read_ints(<object>s[1], sizes), d
    cdef int64_t need
    if read_ints(<object>s[2], strides) != n:
        raise RuntimeError("mismatch in length of strides and shape")
    if <object>s[3] is not None:
        offset[0] = read_int(<object>s[3])
    for d in range(n):
        if strides[d] < 0:
            raise RuntimeError("as_strided: Negative strides are not supported at the moment, got strides: "
                               f"{[strides[i] for i in range(n)]}")
    need = extent_of(n, sizes, strides, offset[0])
    if need > <int64_t>(self.st.nbytes // itemsize(<DType>self.dt)) and not is_wrapper(self) and self.dev != META:
        raise RuntimeError(f"setStorage: sizes {[sizes[i] for i in range(n)]}, strides {[strides[i] for i in range(n)]}, "
                           f"storage offset {offset[0]}, and itemsize {itemsize(<DType>self.dt)} requiring a storage size "
                           f"of {need * itemsize(<DType>self.dt)} are out of bounds for storage of size "
                           f"{self.st.nbytes}")
    return n


cdef int unfold_geometry(TensorBase self, PyObject** s, int64_t* sizes, int64_t* strides) except -1:
    """unfold(self, dimension, size, step)"""
    cdef int64_t size = read_int(<object>s[2]), step = read_int(<object>s[3]), full
    cdef int d = wrap_dim(read_int(<object>s[1]), self.rank)
    full = self.sizes[d] if self.rank else 1
    if size < 0 or size > full:
        raise RuntimeError(f"maximum size for tensor at dimension {d} is {full} but size is {size}")
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    if self.rank == 0:
        sizes[0], strides[0] = size, 1
        return 1
    sizes[self.rank], strides[self.rank] = size, strides[d]
    sizes[d] = (full - size) // step + 1
    strides[d] *= min(step, <int64_t>1 << 31)
    return self.rank + 1


cdef int diagonal_geometry(TensorBase self, PyObject** s, int64_t* sizes, int64_t* strides, int64_t* offset) except -1:
    """diagonal(self, offset, dim1, dim2)"""
    cdef int64_t off = read_int(<object>s[1]), length
    cdef int a = wrap_dim(read_int(<object>s[2]), self.rank), b = wrap_dim(read_int(<object>s[3]), self.rank), d, n = 0
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {a}, {b}")
    if off >= 0:
        length = max(min(self.sizes[a], self.sizes[b] - off), 0)
        if length:
            offset[0] += off * self.strides[b]
    else:
        length = max(min(self.sizes[a] + off, self.sizes[b]), 0)
        if length:
            offset[0] -= off * self.strides[a]
    for d in range(self.rank):
        if d != a and d != b:
            sizes[n], strides[n] = self.sizes[d], self.strides[d]
            n += 1
    sizes[n], strides[n] = length, self.strides[a] + self.strides[b]
    return n + 1


cdef int view_other_dtype(int id, TensorBase self, TensorBase r, PyObject** s) except -1:
    """Reinterprets r's memory as another dtype, adjusting the last dim when the item sizes differ."""
    cdef int64_t sizes[MAX_DIMS + 1]
    cdef int64_t strides[MAX_DIMS + 1]
    cdef int rank = self.rank, old = itemsize(<DType>self.dt), new, dt, d
    cdef int64_t ratio, offset = self.offset
    copy_dims(sizes, self.sizes, rank)
    copy_dims(strides, self.strides, rank)
    if id == V_REAL:
        if self.dt < kComplexFloat:
            raise RuntimeError("view_as_real is only supported for complex tensors")
        if self.marks & MARK_CONJ:
            raise RuntimeError("view_as_real doesn't work on unresolved conjugated tensors.  To resolve the conjugate tensor "
                               "so you can view it as real, use self.resolve_conj(); however, be warned that the resulting "
                               "tensor will NOT alias the original.")
        dt = real_of(self.dt)
        sizes[rank], strides[rank] = 2, 1
        for d in range(rank):
            strides[d] *= 2
        r.dt = dt
        set_geometry(r, rank + 1, sizes, strides, offset * 2)
        return 0
    if id == V_COMPLEX:
        if self.dt != kFloat and self.dt != kDouble and self.dt != kHalf:
            raise RuntimeError(f"view_as_complex is only supported for half, float and double tensors, but got a tensor of "
                               f"scalar type: {type_word(self.dt)}")
        if rank == 0:
            raise RuntimeError("Input tensor must have one or more dimensions")
        if sizes[rank - 1] != 2:
            raise RuntimeError("Tensor must have a last dimension of size 2")
        if strides[rank - 1] != 1:
            raise RuntimeError("Tensor must have a last dimension with stride 1")
        for d in range(rank - 1):
            if strides[d] % 2:
                raise RuntimeError(f"Tensor must have a stride divisible by 2 for all but last dimension")
            strides[d] //= 2
        if offset % 2:
            raise RuntimeError("Tensor must have a storage_offset divisible by 2")
        r.dt = complex_of(self.dt)
        set_geometry(r, rank - 1, sizes, strides, offset // 2)
        return 0
    if self.marks:
        raise RuntimeError("torch.Tensor.view is not supported for " + (
            "conjugate view tensors" if self.marks & MARK_CONJ else "tensors with negative bit set") +
            " when converting to a different dtype.")
    dt = dtype_id(<object>s[1])
    new = itemsize(<DType>dt)
    if new != old:
        if rank == 0:
            raise RuntimeError(f"self.dim() cannot be 0 to view {type_word(self.dt)} as {type_word(dt)} "
                               "(different element sizes)")
        if strides[rank - 1] != 1:
            raise RuntimeError(f"self.stride(-1) must be 1 to view {type_word(self.dt)} as {type_word(dt)} (different element "
                               f"sizes), but got {strides[rank - 1]}")
        if new < old:
            ratio = old // new
            sizes[rank - 1] *= ratio
            for d in range(rank - 1):
                strides[d] *= ratio
            offset *= ratio
        else:
            ratio = new // old
            if sizes[rank - 1] % ratio:
                raise RuntimeError(f"self.size(-1) must be divisible by {ratio} to view {type_word(self.dt)} as "
                                   f"{type_word(dt)} (different element sizes), but got {sizes[rank - 1]}")
            if offset % ratio:
                raise RuntimeError(f"self.storage_offset() must be divisible by {ratio} to view {type_word(self.dt)} as "
                                   f"{type_word(dt)} (different element sizes), but got {offset}")
            sizes[rank - 1] //= ratio
            for d in range(rank - 1):
                if strides[d] % ratio:
                    raise RuntimeError(f"self.stride({d}) must be divisible by {ratio}")
                strides[d] //= ratio
            offset //= ratio
    r.dt = dt
    set_geometry(r, rank, sizes, strides, offset)
    return 0
