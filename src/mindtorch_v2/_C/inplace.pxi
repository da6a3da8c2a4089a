# Writing into tensors that exist: out=, in-place forms, and torch's rules for them.

cdef dict C_WORDS = {"Byte": "unsigned char", "Char": "signed char", "Short": "short int", "Int": "int", "Long": "long int",
                     "Float": "float", "Double": "double", "Bool": "bool", "ComplexHalf": "c10::complex<c10::Half>",
                     "ComplexFloat": "c10::complex<float>", "ComplexDouble": "c10::complex<double>"}


cdef str c_word(int dt):
    """What torch's structured ops call a dtype in their messages: its type in C++."""
    cdef str word = type_word(dt)
    return C_WORDS.get(word, "c10::" + word)


def _c_word(kind) -> str:
    """The same, of a dtype's object."""
    return c_word(dtype_id(kind))


cdef object run_out(Op op, Overload ov, PyObject** s, object out):
    """Writes the result to the tensor(s) the user gave, resized when the shape differs."""
    cdef TensorBase o, r
    cdef tuple outs
    cdef int i
    if ov.family == F_POINTWISE and is_tensor(<PyObject*>out) and not isinstance(ov.out_body, tuple):
        check_out(op, ov, s, out)
        if out_ready(ov, s, <TensorBase>out):
            run_pointwise(ov, s, <TensorBase>out)
            bump_version(<TensorBase>out)
            return out
    outs = tuple(out) if isinstance(out, (tuple, list)) else (out,)    # a list may change meanwhile
    for item in outs:
        check_out(op, ov, s, item)
        if ov.out_apart:
            check_apart(ov, s, <TensorBase>item)
    if ov.ntensors == 0 and outs:
        take_options(ov, s, <TensorBase>outs[0])
    if ov.out_body is None or isinstance(ov.out_body, (str, tuple)):
        result = run_family(ov, s)               # not autocast: the user says where the result goes
    else:
        result = ov.out_body(outs[0], *[<object>s[i] for i in range(ov.nparams)])
    results = result if isinstance(result, (tuple, list)) else (result,)
    if len(results) != len(outs):
        raise TypeError(f"expected tuple of {len(results)} elements but got {len(outs)}" if isinstance(out, (tuple, list)) else
                        f"{op.name}(): expected a tuple of {len(results)} tensors for 'out', got {len(outs)}")
    for item, given in zip(results, outs):
        if not isinstance(item, TensorBase):
            raise TypeError(f"{op.name}() got an unexpected keyword argument 'out'")
        r, o = <TensorBase>item, <TensorBase>given
        if r is o:                               # written already
            continue
        if o.dev != r.dev:
            raise device_error(o, r)
        if r.dt != o.dt and (isinstance(ov.out_body, str) or isinstance(ov.out_body, tuple) and not castable(r.dt, o.dt)):
            words = ov.out_body if isinstance(ov.out_body, str) else ov.out_body[0]
            raise RuntimeError(words.format(result=type_word(r.dt), out=type_word(o.dt), result_c=c_word(r.dt),
                                            out_c=c_word(o.dt)))
        if not castable(r.dt, o.dt):
            raise RuntimeError(f"result type {type_word(r.dt)} can't be cast to the desired output type {type_word(o.dt)}")
        if not same_shape(o, r):
            resize_out(o, r, ov.ntensors != 0)       # what only makes tensors resizes without a word
            if ov.out_apart:
                check_apart(ov, s, o)            # now that it reaches further
        if modes().dispatch_mode_count or is_wrapper(o):     # modes see what is written, and a class writes it
            hot_call2(hot.copy_, o, r)
            continue
        copy_into(o, r)
        bump_version(o)
    if len(outs) == 1 or not isinstance(result, tuple):
        return out
    return (ov.written_class if type(result) is ov.returns_class else type(result))(outs)


cdef int take_options(Overload ov, PyObject** s, TensorBase out) except -1:
    """A function that makes tensors makes them of out's dtype."""
    cdef int p
    for p in range(ov.nparams):
        if ov.kind[p] == K_DTYPE:
            if <object>s[p] is None:
                s[p] = <PyObject*>dtypes[out.dt]
            elif dtype_id(<object>s[p]) != out.dt:
                raise RuntimeError(f"dtype {type_word(dtype_id(<object>s[p]))} does not match dtype of out parameter "
                                   f"({type_word(out.dt)})")
    return 0


cdef int check_out(Op op, Overload ov, PyObject** s, object out) except -1:
    if not isinstance(out, TensorBase):
        raise TypeError(f"{op.name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    check_writable(<TensorBase>out)
    if modes().grad and (needs_grad(<TensorBase>out) or wants_grad(ov, s)) and (
            ov.tracked and ov.mode != P_BOOL if ov.family == F_POINTWISE else ov.tracked or ov.family != F_KERNEL):
        raise RuntimeError(f"{op.name}(): functions with out=... arguments don't support automatic "
                           "differentiation, but one of the arguments requires grad.")
    return 0


cdef int check_apart(Overload ov, PyObject** s, TensorBase out) except -1:
    """Refuses an out= that shares memory with an argument; self may be out where the op changes a copy of it."""
    cdef int i, p
    for i in range(ov.ntensors):
        p = ov.tensor_at[i]
        if p == 0 and ov.copies_self and ov.kind[p] == K_TENSOR:
            continue
        for item in <object>s[p] or () if ov.kind[p] == K_TENSORS else (<object>s[p],):
            if isinstance(item, TensorBase) and (<TensorBase>item).st == out.st and out.st != NULL:
                if item is out and (p == 0 or ov.copies_self):
                    raise shared_memory_error()
                if p == 0 or ov.copies_self or not same_place(<TensorBase>item, out):    # an index is read item by item
                    check_partial_overlap(out, <TensorBase>item)
    return 0


cdef bint out_ready(Overload ov, PyObject** s, TensorBase out):
    """Whether the loop may write to out directly: right shape, and no partial overlap with an input."""
    cdef int64_t shape[MAX_DIMS]
    cdef TensorBase t
    cdef int i, rank
    if not all_shaped(ov, s, out):
        rank = broadcast_slots(ov, s, ov.ntensors, shape)
        if rank != out.rank or memcmp(shape, out.sizes, rank * sizeof(int64_t)) != 0:
            return False
    for i in range(ov.ntensors):
        if is_tensor(s[ov.tensor_at[i]]):
            t = <TensorBase>s[ov.tensor_at[i]]
            if t.st == out.st and not same_place(t, out):
                check_partial_overlap(out, t)
                return False
    return True


cdef bint all_shaped(Overload ov, PyObject** s, TensorBase out) noexcept:
    """Whether all arguments are tensors of out's shape."""
    cdef int i
    for i in range(ov.ntensors):
        if not is_tensor(s[ov.tensor_at[i]]) or not same_shape(<TensorBase>s[ov.tensor_at[i]], out):
            return False
    return True


cdef int resize_out(TensorBase o, TensorBase like, bint warns) except -1:
    if warns and o.count != 0:
        warnings.warn(f"An output with one or more elements was resized since it had shape {list(shape_of(o))}, which "
                      f"does not match the required output shape {list(shape_of(like))}. This behavior is deprecated, and "
                      "in a future PyTorch release outputs will not be resized unless they have zero elements. You can "
                      "explicitly reuse an out tensor t by resizing it, inplace, to zero elements with t.resize_(0).",
                      UserWarning)
    resize_tensor(o, like.rank, like.sizes)
    if not has_plain_strides(like.rank, like.sizes, like.strides) and is_dense(like):    # and laid out as the result is
        set_geometry(o, like.rank, like.sizes, like.strides, o.offset)
    return 0


cdef int resize_tensor(TensorBase t, int rank, const int64_t* sizes) except -1:
    cdef int64_t strides[MAX_DIMS]
    cdef size_t need
    row_major(rank, sizes, strides)
    need = <size_t>extent_of(rank, sizes, strides, t.offset) * itemsize(<DType>t.dt)
    own_storage(t)
    if need > t.st.nbytes:
        storage_resize(t.st, need)
    return set_geometry(t, rank, sizes, strides, t.offset)


cdef object run_inplace(Op op, Overload ov, PyObject** s):
    """The op's result becomes self's new value, and self's history."""
    cdef TensorBase self, r
    cdef Node node = None
    cdef bint grad
    cdef object kept, kept_too                   # own what the slots then borrow
    if not is_tensor(s[0]):
        raise TypeError(f"{op.name}(): argument 'input' (position 1) must be Tensor, "
                        f"not {type(<object>s[0]).__name__}")
    self = <TensorBase>s[0]
    check_captured(op, ov, s)
    if ov.family == F_POINTWISE and ov.formulas is None: # logical_and_ and the like: no part of autograd, as in torch
        grad = False
        check_writable(self)
    else:
        grad = wants_grad(ov, s) and is_differentiable(self.dt)
        # native ops and the parts of a composite look for themselves, and fill_ writes the same everywhere
        check_inplace(self, grad, ov.family == F_NATIVE or ov.guard == G_FITS or G_MASK <= ov.guard <= G_PUT or
                      (ov.mutates and ov.family == F_COMPOSITE))
        if G_MASK <= ov.guard <= G_PUT and has_overlap(self):
            warnings.warn(f"Use of {'index_put_' if ov.guard == G_PUT else op.name} on expanded tensors is deprecated. Please "
                          "clone() the tensor before performing this operation. This also applies to advanced indexing e.g. "
                          f"tensor[{'indices] = tensor' if ov.guard == G_PUT else 'mask] = scalar'}", UserWarning)
    if grad:
        kept = keep_original(ov, self, s)           # formulas that read self need its value from before
        if kept is not None:
            s[0] = <PyObject*>kept
    if ov.family == F_POINTWISE:
        if grad:
            node = record(ov, s)
        if inplace_ready(ov, s, self):
            run_pointwise(ov, s, self)
        else:
            copy_into(self, run_pointwise_plain(ov, s, self))
        bump_version(self)
        if node is not None:
            finish_inplace(node, ov, self)
        return self
    if (ov.copies_self or ov.mutates) and ov.family == F_KERNEL:
        if grad and ov.formulas is not None:
            node = record(ov, s)
        kept_too = own_arguments(ov, s, self)
        if ov.guard == G_FITS:
            check_fits(<object>s[1], single_dtype(self.dt) if self.count == 1 else self.dt)
        elif ov.rule is not None:
            check_rule(ov, s)
        if self.count or self.dev != CPU:
            launch(ov, self.dev, (self,), s)
        bump_version(self)
        if node is not None:
            finish_inplace(node, ov, self)
        return self
    if ov.mutates:                               # a composite or native op that changes self on its own
        if ov.family == F_NATIVE:
            return run_native(ov, s)
        if ov.rule is not None and run_fused(ov, s, self) is not None:
            bump_version(self)
            return self
        return PyObject_Vectorcall(ov.body, s, ov.nparams, NULL)
    if grad and ov.formulas is not None and (ov.family == F_KERNEL or ov.one_node) and not modes().transforms and \
            has_formulas(ov, s):
        return inplace_as_node(ov, s, self)
    return hot_call2(hot.copy_, self, inplace_value(ov, s, self))


cdef object inplace_as_node(Overload ov, PyObject** s, TensorBase self):
    """The op's result becomes self's new value; its history is the op's own node, with what that saves, and no copy's."""
    cdef Node node = record(ov, s)
    cdef TensorBase r
    modes().grad = False
    try:
        r = inplace_value(ov, s, self)
    finally:
        modes().grad = True
    if r.dt != self.dt:                          # the copy that casts it has a history, too
        return hot_call2(hot.copy_, self, inplace_value(ov, s, self))
    copy_into(self, r)
    bump_version(self)
    finish_inplace(node, ov, self)
    return self


cdef list own_arguments(Overload ov, PyObject** s, TensorBase self):
    """Sees to it that no argument changes while self is written: of those that share its memory torch refuses the dense
    ones (but for a mask that is self), the others are copied. Returns the copies, which the slots only borrow."""
    cdef list copies = None
    cdef TensorBase t
    cdef int i, p, dev = self.dev, index = self.dev_index
    place_of(ov, s, &dev, &index)
    if dev != self.dev or index != self.dev_index:
        raise RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, "
                           f"{device_object(self.dev, self.dev_index)} and {device_object(dev, index)}!")
    for i in range(ov.ntensors):
        p = ov.tensor_at[i]
        if p == 0:
            continue
        if ov.kind[p] == K_TENSORS:
            for item in <object>s[p] or ():
                if item is not None and (<TensorBase>item).st == self.st and ranges_meet(<TensorBase>item, self):
                    raise shared_memory_error()
        elif is_tensor(s[p]) and (<TensorBase>s[p]).st == self.st and ranges_meet(<TensorBase>s[p], self):
            t = <TensorBase>s[p]
            if ov.guard != G_MASK or not same_place(t, self):
                check_partial_overlap(self, t)
            made = empty_like(t, t.dt)
            copy_into(made, t)
            copies = [made] if copies is None else copies + [made]
            s[p] = <PyObject*>made
    return copies


cdef object inplace_value(Overload ov, PyObject** s, TensorBase self):
    """The functional result of an op that is about to be written over self."""
    cdef Binding b
    cdef int i
    cdef TensorBase r
    for i in range(ov.nparams):
        b.slot[i] = s[i]
    b.out = NULL
    r = tensor_arg(run_kernel(ov, b.slot, None) if ov.family == F_KERNEL else
                   run_native(ov, b.slot) if ov.family == F_NATIVE else run_composite(ov, b.slot))
    if not same_shape(r, self):
        raise RuntimeError(f"output with shape {list(shape_of(self))} doesn't match the broadcast shape {list(shape_of(r))}")
    if not castable(r.dt, self.dt):
        raise RuntimeError(f"result type {type_word(r.dt)} can't be cast to the desired output type {type_word(self.dt)}")
    return r


cdef TensorBase run_pointwise_plain(Overload ov, PyObject** s, TensorBase self):
    """A fresh result for an in-place op whose inputs overlap self; not recorded."""
    cdef bint mode = modes().grad
    cdef int64_t shape[MAX_DIMS]
    cdef TensorBase r
    check_inplace_shape(ov, s, ov.ntensors, self, shape)
    modes().grad = False
    try:
        r = run_pointwise(ov, s, None)
    finally:
        modes().grad = mode
    if not castable(r.dt, self.dt):
        raise RuntimeError(f"result type {type_word(r.dt)} can't be cast to the desired output type {type_word(self.dt)}")
    return r


cdef bint inplace_ready(Overload ov, PyObject** s, TensorBase self):
    """Whether the loop may run straight over self."""
    cdef TensorBase t
    cdef int i
    for i in range(ov.ntensors):
        if is_tensor(s[ov.tensor_at[i]]):
            t = <TensorBase>s[ov.tensor_at[i]]
            if t.st == self.st and t is not self and not same_place(t, self) and ranges_meet(t, self):
                check_partial_overlap(self, t)
                return False
    return True
