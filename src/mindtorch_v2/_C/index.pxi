# x[...] and x[...] = v: basic indexing by view ops, the rest through the index ops.

cdef object get_item(TensorBase self, object index):
    cdef object value
    cdef list indices
    cdef bint layers = layered(self)
    if layers and foreign(self):
        return override_call("__getitem__", (self, index))
    if PyLong_CheckExact(index):
        if self.rank == 0:
            raise IndexError("invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ "
                             "to convert a 0-dim tensor to a number")
        check_index(self, 0, index, 0)
        return hot_call3(hot.select, self, 0, index) if layers else plain_select(self, 0, index)
    value, indices = apply_basic(self, index)
    if indices is None:
        return value if value is not self else hot_call1(hot.alias, self)
    return hot_call2(hot.index, value, on_device_of(<TensorBase>value, indices))


cdef list on_device_of(TensorBase self, list indices):
    """Indices where self is: those on the CPU may index a tensor anywhere."""
    if self.dev == CPU:
        return indices
    return [i if i is None or (<TensorBase>i).dev != CPU else i.to(self.device) for i in indices]


cdef bint foreign(TensorBase self):
    """Whether a call on self is to be offered to __torch_function__ first."""
    cdef PyTypeObject* tp = Py_TYPE(<PyObject*>self)
    if tp == tensor_type or tp == parameter_type or modes().function_off:
        return has_function_modes() and not modes().function_off
    return getattr(type(self), "__torch_function__", None) is not disabled_function


cdef object override_call(str name, tuple args):
    cdef bint previous = modes().function_off
    func = getattr(<object>tensor_type, name)
    result = call_override(func, tuple_items(args), len(args), NULL)
    if result is not NotImplemented:
        return result
    modes().function_off = True
    try:
        return func(*args)
    finally:
        modes().function_off = previous


cdef inline bint layered(TensorBase self) noexcept:
    """Whether a layer may take part in what is done with self."""
    cdef PyTypeObject* tp = Py_TYPE(<PyObject*>self)
    return modes().interposed() or (tp != tensor_type and tp != parameter_type)


cdef int64_t dim_number(str name, object dim) except? -1:
    """The dim that a method was given."""
    if not fits_int(<PyObject*>dim):
        raise TypeError(f"{name}(): argument 'dim' (position 1) must be int, not {type(dim).__name__}")
    return read_int(dim)


cdef int refuse_integers(TensorBase self, bint requires_grad, str kinds) except -1:
    """Of integers there is no gradient."""
    if requires_grad and not is_differentiable(self.dt):
        raise RuntimeError(f"only Tensors of {kinds} can require gradients")
    return 0


cdef inline object select_item(TensorBase self, int64_t dim, object index):
    return hot_call3(hot.select, self, dim, index) if layered(self) else plain_select(self, dim, index)


cdef inline object plain_select(TensorBase self, int64_t dim, object index):
    """select() where no layer takes part."""
    cdef PyObject* s[3]
    cdef object d = dim
    s[0], s[1], s[2] = <PyObject*>self, <PyObject*>d, <PyObject*>index
    return run_view(<Overload>hot.select.rows[0], s)


cdef int check_index(TensorBase self, int dim, object index, int shown) except -1:
    """shown: what the message calls the dim; as in torch, where the index stands among others."""
    cdef int64_t i = read_int(index)
    if i < -self.sizes[dim] or i >= self.sizes[dim]:
        raise IndexError(f"index {i} is out of bounds for dimension {shown} with size {self.sizes[dim]}")
    return 0


cdef tuple apply_basic(TensorBase self, object index):
    """Applies ints, slices, None and Ellipsis as views. Tensors, masks and lists are returned as a second value: a
    list with one entry (or None) per dim of the view, or None."""
    cdef tuple items = index if isinstance(index, tuple) else ((index,) if not is_index_sequence(index) else tuple(index))
    cdef TensorBase value = self
    cdef int dim = 0, consumed = 0, d, rank, position
    cdef object entry
    cdef PyObject* s[5]
    cdef list found = None
    for item in items:
        consumed += index_width(item)
    rank = self.rank                             # an index that is an object of its own may change self
    if consumed > rank:
        raise IndexError(f"too many indices for tensor of dimension {rank}")
    for position, item in enumerate(items):
        if item is None:
            value = tensor_arg(hot_call2(hot.unsqueeze, value, dim))
            dim += 1
        elif item is Ellipsis:
            dim += rank - consumed
        elif isinstance(item, slice):
            value = slice_item(value, dim, <slice>item)
            dim += 1
        elif item is True or item is False:
            value = tensor_arg(hot_call2(hot.unsqueeze, value, dim))
            entry = index_tensor(item)
            found = note_advanced(found, dim, entry)
            dim += 1
        elif PyLong_Check(item) or (is_scalar_index(item)):
            entry = read_int(item)               # runs the object's own __index__: before value is looked at
            if dim >= value.rank:
                raise IndexError(f"too many indices for tensor of dimension {rank}")
            check_index(value, dim, entry, position)
            value = select_item(value, dim, entry)
        elif isinstance(item, str):
            raise TypeError("new(): invalid data type 'str'")
        elif isinstance(item, float):
            raise IndexError(f"only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid "
                             f"indices (got {type(item).__name__})")
        else:
            entry = item if isinstance(item, TensorBase) else index_tensor(item)
            if is_of_samples(<TensorBase>entry):
                entry._check_index()
            if (<TensorBase>entry).dt == kUInt8 or (<TensorBase>entry).dt == kBool:
                if (<TensorBase>entry).dt == kUInt8:
                    warnings.warn("indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.",
                                  stacklevel=2)
                if (<TensorBase>entry).rank == 0:
                    value = tensor_arg(hot_call2(hot.unsqueeze, value, dim))
                    found = note_advanced(found, dim, entry)
                    dim += 1
                    continue
                check_mask(value, <TensorBase>entry, dim)
                for d, part in enumerate(_mask_indices(entry)):
                    found = note_advanced(found, dim + d, part)
                dim += (<TensorBase>entry).rank
            else:
                if (<TensorBase>entry).dt != kInt64 and (<TensorBase>entry).dt != kInt32:
                    raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
                found = note_advanced(found, dim, entry)
                dim += 1
    return value, found


cdef list note_advanced(list found, int dim, object entry):
    tensor_arg(entry)
    if found is None:
        found = []
    while len(found) < dim:
        found.append(None)
    if (<TensorBase>entry).dt == kBool or (<TensorBase>entry).dt == kUInt8:      # a 0-dim mask: keep all or nothing
        entry = entry.nonzero().view(-1) if (<TensorBase>entry).rank else _scalar_mask_index(entry)
    elif (<TensorBase>entry).dt != kInt64:
        entry = entry.to(dtypes[kInt64])
    found.append(tensor_arg(entry))
    return found


cdef object _scalar_mask_index(object mask):
    cdef int64_t n = 1 if item_of(<TensorBase>mask) else 0
    cdef TensorBase t = new_empty(1, &n, kInt64, CPU, -1)
    set_zero(t)
    return t


cdef tuple _mask_indices(object mask):
    return mask.nonzero().unbind(1)


cdef int check_mask(TensorBase value, TensorBase mask, int dim) except -1:
    cdef int d
    for d in range(mask.rank):
        if dim + d >= value.rank or mask.sizes[d] != value.sizes[dim + d]:
            raise IndexError(f"The shape of the mask {list(shape_of(mask))} at index {d} does not match the shape of the "
                             f"indexed tensor {list(shape_of(value))} at index {dim + d}")
    return 0


cdef int index_width(object item):
    """How many dims of the tensor an index uses up."""
    if item is None or item is Ellipsis or item is True or item is False:
        return 0
    if isinstance(item, TensorBase) and ((<TensorBase>item).dt == kBool or (<TensorBase>item).dt == kUInt8):
        return (<TensorBase>item).rank
    dt = getattr(item, "dtype", None)
    if dt is not None and not isinstance(item, TensorBase) and str(dt) == "bool":
        return len(item.shape)
    if isinstance(item, list):
        n, inner = 0, item
        while isinstance(inner, list) and inner and n <= MAX_DIMS:
            n, inner = n + 1, inner[0]
        return n if isinstance(inner, bool) else 1
    return 1


cdef bint is_index_sequence(object index):
    """torch's old rule: a list that holds slices, tensors or lists is a tuple of indices."""
    if not isinstance(index, list) or len(<list>index) > 31:
        return False
    for item in <list>index:
        if item is None or item is Ellipsis or isinstance(item, (slice, TensorBase, list, tuple, range, str)):
            return True
    return False


cdef bint is_of_samples(TensorBase t):
    """Whether t stands for many tensors (see vmap), so that an op has to read it: there is no one number to index with."""
    cdef PyTypeObject* tp = Py_TYPE(<PyObject*>t)
    return tp != tensor_type and tp != parameter_type and hasattr(type(t), "_check_index")


cdef bint is_scalar_index(object item):
    if isinstance(item, TensorBase):
        return (<TensorBase>item).rank == 0 and kBool < (<TensorBase>item).dt < kHalf and (<TensorBase>item).dt != kUInt8 \
            and not (<TensorBase>item).requires and not is_of_samples(<TensorBase>item)
    return not isinstance(item, (list, tuple, range)) and is_numpy_scalar(item) and hasattr(item, "__index__")


cdef object slice_item(TensorBase value, int dim, slice item):
    cdef PyObject* s[5]
    cdef object d = dim, step = 1 if item.step is None else read_int(item.step)
    if item.start is None and item.stop is None and item.step is None:
        if dim >= value.rank:
            raise IndexError(f"too many indices for tensor of dimension {value.rank}")
        return value
    if <int64_t>step <= 0:
        raise ValueError("slice step cannot be zero" if step == 0 else "step must be greater than zero")
    start, stop = item.start, item.stop
    if start is not None and not fits_int(<PyObject*>start) or stop is not None and not fits_int(<PyObject*>stop):
        raise TypeError("slice indices must be integers or None or have an __index__ method")
    start = None if start is None else plain_int(start)
    stop = None if stop is None else plain_int(stop)
    s[0], s[1], s[2], s[3], s[4] = <PyObject*>value, <PyObject*>d, <PyObject*>start, <PyObject*>stop, <PyObject*>step
    if layered(value):
        return steal(op_vectorcall(<PyObject*>hot.slice, s, 5, NULL))
    return run_view(<Overload>hot.slice.rows[0], s)


cdef int set_item(TensorBase self, object index, object value) except -1:
    cdef object v = value
    if foreign(self) or (isinstance(value, TensorBase) and foreign(<TensorBase>value)):
        override_call("__setitem__", (self, index, value))
        return 0
    if index is False:                           # nothing is written, and the value not looked at
        return 0
    if not isinstance(v, TensorBase):
        v = scalar_or_tensor(self, v)
    mode = modes().grad
    if not mode or not (needs_grad(<TensorBase>v) or needs_grad(self)):
        modes().grad = False                     # views only to reach the place: nothing to record
        try:
            target, indices = apply_basic(self, index)
            return assign(target, indices, v)
        finally:
            modes().grad = mode
    target, indices = apply_basic(self, index)
    return assign(target, indices, v)


cdef int assign(object target, list indices, object v) except -1:
    if indices is not None:
        if (<TensorBase>v).count == 1:           # a single value may be of another dtype
            v = tensor_arg(v.to(dtypes[(<TensorBase>target).dt]))
        while (<TensorBase>v).rank and (<TensorBase>v).sizes[0] == 1:      # leading dims of size 1 fall away
            v = tensor_arg(v.squeeze(0))
        hot_call3(hot._index_put_list_, target, on_device_of(<TensorBase>target, indices), v)
    elif (<TensorBase>v).rank == 0 and (<TensorBase>v).dev == CPU and not needs_grad(<TensorBase>v) and \
            not (<TensorBase>v).st.shrunk:
        hot_call2(hot.fill_, target, item_of(<TensorBase>v))
    else:
        value = drop_leading(<TensorBase>v, <TensorBase>target)
        check_sliced(<TensorBase>value, <TensorBase>target)
        hot_call2(hot.copy_, target, value)
    return 0


cdef int check_sliced(TensorBase v, TensorBase target) except -1:
    """What torch says of a value that does not fit the place: it is expanded before it is copied."""
    cdef int d, lead = target.rank - v.rank
    for d in range(v.rank - 1, -1, -1):
        if lead + d >= 0 and v.sizes[d] != 1 and v.sizes[d] != target.sizes[lead + d]:
            raise RuntimeError(f"The expanded size of the tensor ({target.sizes[lead + d]}) must match the existing size "
                               f"({v.sizes[d]}) at non-singleton dimension {lead + d}.  Target sizes: "
                               f"{list(shape_of(target))}.  Tensor sizes: {list(shape_of(v))}")
    return 0


cdef object drop_leading(TensorBase v, TensorBase target):
    """v without leading dims of size 1 that the target does not have."""
    cdef int d = 0
    while v.rank - d > target.rank and v.sizes[d] == 1:
        d += 1
    return v if d == 0 else v.view(shape_of(v)[d:])


cdef object scalar_or_tensor(TensorBase self, object v):
    if not is_number(<PyObject*>v) and not is_numpy_scalar(v):
        raise TypeError(f"can't assign a {type(v).__name__} to a torch.{type_word(self.dt)}Tensor")
    if PyLong_Check(v):
        check_int(v)
    check_fits(v, single_dtype(self.dt))
    if PyComplex_Check(v) and self.dt < kComplexFloat:
        v = v != 0 if self.dt == kBool else v.real
    return tensor_from_data(v, self.dt, False)
