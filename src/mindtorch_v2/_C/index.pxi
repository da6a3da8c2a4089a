# x[...] and x[...] = v: basic indexing by view ops, the rest through the index ops.

cdef object get_item(TensorBase self, object index):
    cdef object value
    cdef list indices
    cdef int mask = NO_MASK
    cdef bint layers = layered(self)
    if layers and foreign(self):
        return override_call("__getitem__", (self, index))
    if PyLong_CheckExact(index):
        if self.rank == 0:
            raise scalar_index_error(index)
        check_index(self, 0, index, 0)
        return hot_call3(hot.select, self, 0, index) if layers else plain_select(self, 0, index)
    if type(index) is slice and self.rank and not layers:
        value = slice_item(self, 0, <slice>index)
        return value if value is not self else hot_call1(hot.alias, self)
    if self.rank and not layers and isinstance(index, TensorBase) and is_places(<TensorBase>index):
        return hot_call2(hot.index, self, on_device_of(self, [index]))
    value, indices = apply_basic(self, index, &mask)
    if indices is None:
        return value if value is not self else hot_call1(hot.alias, self)
    return hot_call2(hot.index, value, on_device_of(<TensorBase>value, indices))


cdef object LAST_BOUND = 2**63 - 1

# What the advanced indices of a call are: nothing, one mask (of bool or of uint8) and nothing else, or anything else.
cdef enum:
    NO_MASK = 0, BOOL_MASK = 1, BYTE_MASK = 2, MANY_INDICES = 3


cdef object scalar_index_error(object index):
    """What torch says of an index alone, number or slice, into a tensor without dims."""
    if isinstance(index, slice):
        return IndexError("slice() cannot be applied to a 0-dim tensor.")
    if plain_int(index) != 0:
        return IndexError(f"index {plain_int(index)} is out of bounds for dimension 0 with size 0")
    return IndexError("invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ "
                      "to convert a 0-dim tensor to a number")


cdef object not_an_index(object item):
    return IndexError("only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid "
                      f"indices (got {said_type(item)})")


cdef int note_mask(int* mask, int kind) except -1:
    """Another advanced index of that kind was met."""
    mask[0] = kind if mask[0] == NO_MASK else MANY_INDICES
    return 0


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


cdef object added_by_other(object self, object other):
    """self += other where self cannot: what other makes of it."""
    cdef object add = getattr(type(other), "__radd__", None)
    cdef object result = NotImplemented if add is None else add(other, self)
    if result is NotImplemented:
        raise TypeError(f"unsupported operand type(s) for +=: '{type(self).__name__}' and '{type(other).__name__}'")
    return result


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


cdef tuple index_items(TensorBase self, object index):
    """The indices that an index stands for: a tuple's items, or itself."""
    if isinstance(index, TensorBase):
        return (index,)
    if isinstance(index, tuple):
        return index if type(index) is tuple else tuple(index)
    if isinstance(index, str) or is_index_sequence(index):
        warnings.warn("Using a non-tuple sequence for multidimensional indexing is deprecated and will be changed in pytorch "
                      "2.9; use x[tuple(seq)] instead of x[seq]. In pytorch 2.9 this will be interpreted as tensor index, "
                      "x[torch.tensor(seq)], which will result either in an error or a different result", UserWarning)
        return (index,) if isinstance(index, str) else tuple(index)
    if self.rank == 0:
        if isinstance(index, slice):
            slice_step(index)
            slice_bound(index.start)
            slice_bound(index.stop)
            raise scalar_index_error(index)
        if index is not True and index is not False and (PyLong_Check(index) or is_scalar_index(index)):
            raise scalar_index_error(index)
    return (index,)


cdef tuple apply_basic(TensorBase self, object index, int* mask):
    """Applies ints, slices, None and Ellipsis as views. Tensors, masks and lists are returned as a second value: a
    list with one entry (or None) per dim of the view, or None; mask: what they are."""
    cdef tuple items = index_items(self, index)
    cdef TensorBase value = self
    cdef int dim = 0, consumed = 0, d, rank, position
    cdef object entry
    cdef list late = None                        # (dim, index tensor): looked at when all else has been applied, as in torch
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
            late = with_late(late, dim, index_tensor(item))
            dim += 1
        elif PyLong_Check(item) or (is_scalar_index(item)):
            if not PyLong_CheckExact(item) and is_symint(item):
                item = item.__index__()          # notes that the size is this number
            entry = read_int(item)               # runs the object's own __index__: before value is looked at
            if dim >= value.rank:
                raise IndexError(f"too many indices for tensor of dimension {rank}")
            check_index(value, dim, entry, position)
            value = select_item(value, dim, entry)
        elif isinstance(item, str):
            raise TypeError("new(): invalid data type 'str'")
        elif not isinstance(item, TensorBase) and not PySequence_Check(item):
            raise not_an_index(item)
        else:
            entry = item if isinstance(item, TensorBase) else index_tensor(item)
            if is_of_samples(<TensorBase>entry):
                entry._check_index()
            if is_mask(<TensorBase>entry) and (<TensorBase>entry).rank == 0:
                value = tensor_arg(hot_call2(hot.unsqueeze, value, dim))
            late = with_late(late, dim, entry)
            dim += (<TensorBase>entry).rank if is_mask(<TensorBase>entry) and (<TensorBase>entry).rank else 1
    return value, None if late is None else advanced_indices(value, late, mask)


cdef inline bint is_mask(TensorBase index) noexcept:
    return index.dt == kBool or index.dt == kUInt8


cdef inline bint is_places(TensorBase index) noexcept:
    """Whether a tensor, alone, lists places of dim 0; a tensor without dims may be a number."""
    return index.dt == kInt64 and index.rank > 0 and not layered(index)


cdef list with_late(list late, int dim, object entry):
    if late is None:
        late = []
    late.append((dim, entry))
    return late


cdef list advanced_indices(TensorBase value, list late, int* mask):
    """One entry (or None) for each dim that index tensors reach; mask: what they are."""
    cdef TensorBase entry
    cdef list found = None
    cdef int d
    for dim, given in late:
        entry = tensor_arg(given)
        if not is_mask(entry) and entry.dt != kInt64 and entry.dt != kInt32:
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
    for dim, given in late:
        entry = <TensorBase>given
        if not is_mask(entry) or entry.rank == 0:
            found = note_advanced(found, dim, entry)
            note_mask(mask, MANY_INDICES)
            continue
        note_mask(mask, BYTE_MASK if entry.dt == kUInt8 else BOOL_MASK)
        if entry.dt == kUInt8:
            warnings.warn("indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.")
        check_mask(value, entry, dim)
        for d, part in enumerate(_mask_indices(entry)):
            found = note_advanced(found, <int>dim + d, part)
    return found


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
    if type(item) is slice or PyLong_CheckExact(item):
        return 1
    if isinstance(item, TensorBase):
        return (<TensorBase>item).rank if (<TensorBase>item).dt == kBool or (<TensorBase>item).dt == kUInt8 else 1
    dt = getattr(item, "dtype", None)
    if dt is not None and str(dt) == "bool":
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
        if item is None or item is Ellipsis or isinstance(item, (slice, TensorBase, list, tuple, range, str)) or \
                (hasattr(item, "__array_interface__") and not is_numpy_scalar(item)):
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
    if isinstance(item, (list, tuple, range)) or not hasattr(item, "__index__"):
        return False
    if is_numpy_scalar(item):
        return True
    kind = getattr(getattr(item, "dtype", None), "kind", None)
    return (kind == "i" or kind == "u") and getattr(item, "shape", None) == ()     # an array of NumPy without dims


cdef object slice_step(slice item):
    cdef object step = 1 if item.step is None else slice_bound(item.step)
    if <int64_t>step <= 0:
        raise ValueError("slice step cannot be zero" if step == 0 else "step must be greater than zero")
    return step


cdef object slice_bound(object bound):
    """A bound of a slice as Python reads it: beyond 64 bits it is the last number that there is."""
    cdef int beyond = 0
    if bound is None or is_symint(bound):
        return bound
    if not PyLong_CheckExact(bound):
        if not PyLong_Check(bound) and not hasattr(type(bound), "__index__"):
            raise TypeError("slice indices must be integers or None or have an __index__ method")
        bound = operator.index(bound)
    PyLong_AsLongLongAndOverflow(bound, &beyond)
    return bound if beyond == 0 else LAST_BOUND if beyond > 0 else -LAST_BOUND


cdef object slice_item(TensorBase value, int dim, slice item):
    cdef PyObject* s[5]
    cdef object d = dim, step = slice_step(item)
    if item.start is None and item.stop is None and item.step is None:
        if dim >= value.rank:
            raise IndexError(f"too many indices for tensor of dimension {value.rank}")
        return value
    start, stop = slice_bound(item.start), slice_bound(item.stop)
    s[0], s[1], s[2], s[3], s[4] = <PyObject*>value, <PyObject*>d, <PyObject*>start, <PyObject*>stop, <PyObject*>step
    if layered(value):
        return steal(op_vectorcall(<PyObject*>hot.slice, s, 5, NULL))
    return run_view(<Overload>hot.slice.rows[0], s)


cdef int set_item(TensorBase self, object index, object value) except -1:
    cdef object v = value
    cdef int mask = NO_MASK
    if foreign(self) or (isinstance(value, TensorBase) and foreign(<TensorBase>value)):
        override_call("__setitem__", (self, index, value))
        return 0
    if index is False:                           # nothing is written
        if not isinstance(v, TensorBase):
            scalar_or_tensor(self, v)
        return 0
    if index is True:
        index = None
    mode = modes().grad
    if PyLong_CheckExact(index) and (PyFloat_CheckExact(v) or PyLong_CheckExact(v)) and self.rank and \
            not (mode and needs_grad(self)) and not layered(self):
        return set_number(self, index, v)
    if not isinstance(v, TensorBase):
        v = scalar_or_tensor(self, v)
    if not mode or not (needs_grad(<TensorBase>v) or needs_grad(self)):
        if isinstance(index, TensorBase) and is_filled(self, <TensorBase>index, <TensorBase>v):
            return fill_masked(self, <TensorBase>index, <TensorBase>v)
        modes().grad = False                     # views only to reach the place: nothing to record
        try:
            target, indices = apply_basic(self, index, &mask)
            return assign(target, indices, v, mask)
        finally:
            modes().grad = mode
    target, indices = apply_basic(self, index, &mask)
    return assign(target, indices, v, mask)


cdef int set_number(TensorBase self, object index, object number) except -1:
    """self[index] = number, where no layer and no history takes part."""
    cdef bint mode = modes().grad
    if PyLong_CheckExact(number):
        check_int(number)
    check_fits(number, single_dtype(self.dt))
    check_index(self, 0, index, 0)
    modes().grad = False
    try:
        hot_call2(hot.fill_, plain_select(self, 0, index), number)
    finally:
        modes().grad = mode
    return 0


cdef bint is_filled(TensorBase self, TensorBase mask, TensorBase v) noexcept:
    """Whether self[mask] = v fills a mask with one number: torch does that without looking for the mask's places."""
    return mask.dt == kBool and mask.rank > 0 and v.count == 1 and v.dev == CPU and mask.dev == self.dev and \
        mask.st != self.st and not has_overlap(self) and not layered(self) and not layered(mask) and not layered(v) and \
        not (self.marks or mask.marks or v.marks)


cdef int fill_masked(TensorBase self, TensorBase mask, TensorBase v) except -1:
    """self[mask] = v for one number v."""
    cdef object places = mask
    check_mask(self, mask, 0)
    while (<TensorBase>places).rank < self.rank:
        places = hot_call2(hot.unsqueeze, places, -1)
    hot_call3(hot.masked_fill_, self, places, item_of(cast_value(v, self.dt)))
    return 0


cdef TensorBase cast_value(TensorBase v, int dt):
    """One number as an item of dtype dt."""
    if v.dt == dt:
        return v
    if v.dt >= kComplexFloat and dt < kComplexFloat:
        check_fits(item_of(v), dt)
    return tensor_arg(v.to(dtypes[dt]))


cdef int assign(object target, list indices, object v, int mask) except -1:
    if indices is not None:
        if (<TensorBase>v).count == 1 and mask != MANY_INDICES and (<TensorBase>v).dev == CPU:    # torch fills the mask
            if mask == BYTE_MASK:
                raise RuntimeError("masked_fill_ only supports boolean masks, but got mask with dtype unsigned char")
            v = cast_value(<TensorBase>v, (<TensorBase>target).dt)
        while (<TensorBase>v).rank and (<TensorBase>v).sizes[0] == 1:      # leading dims of size 1 fall away
            v = tensor_arg(v.squeeze(0))
        hot_call3(hot._index_put_list_, target, on_device_of(<TensorBase>target, indices), v)
    elif (<TensorBase>v).rank == 0 and (<TensorBase>v).dev == CPU and not needs_grad(<TensorBase>v) and \
            not has_tangent(<TensorBase>v) and not (<TensorBase>v).st.shrunk and \
            ((<TensorBase>target).dt >= kComplexFloat or (<TensorBase>v).dt < kComplexFloat):
        hot_call2(hot.fill_, target, item_of(<TensorBase>v))
    else:
        value = drop_leading(<TensorBase>v, <TensorBase>target)
        if not same_shape(<TensorBase>value, <TensorBase>target):          # torch expands a value before it is copied
            target = without_leading(<TensorBase>target, (<TensorBase>value).rank)
            value = value.expand(shape_of(<TensorBase>target))
        hot_call2(hot.copy_, target, value)
    return 0


cdef inline bint has_tangent(TensorBase v) noexcept:
    return v.extra is not None and "tangents" in v.extra


cdef object drop_leading(TensorBase v, TensorBase target):
    """v without leading dims of size 1 that the target does not have."""
    cdef int d = 0
    while v.rank - d > target.rank and v.sizes[d] == 1:
        d += 1
    return v if d == 0 else v.view(shape_of(v)[d:])


cdef object without_leading(TensorBase target, int rank):
    """The target of x[None] = x without the leading dims of size 1 that the value has not: the same memory then, of which
    copy_ can tell that nothing moves."""
    cdef int d
    for d in range(target.rank - rank):
        if target.sizes[d] != 1:
            return target
    return target.view(shape_of(target)[target.rank - rank:]) if target.rank > rank else target


cdef object scalar_or_tensor(TensorBase self, object v):
    if not is_number(<PyObject*>v) and not is_numpy_scalar(v):
        raise TypeError(f"can't assign a {said_type(v)} to a torch.{type_word(self.dt)}Tensor")
    if PyLong_Check(v):
        check_int(v)
    check_fits(v, single_dtype(self.dt))
    if PyComplex_Check(v) and self.dt < kComplexFloat:
        v = v != 0 if self.dt == kBool else v.real
    return tensor_from_data(v, self.dt, False)
