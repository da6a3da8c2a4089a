# Pointwise ops: broadcast, promote, allocate, run the loop.

cdef enum:
    DIRECT_ITEMS = 4096                          # up to here contiguous tensors go straight to the loop
    SMALL_ITEMS = 64                             # the same where a number takes part


cdef object run_pointwise(Overload ov, PyObject** s, TensorBase out):
    """Broadcast, promote, allocate (or write to out), run the loop."""
    cdef int64_t views[6 * VIEW_WORDS]           # raw memory, as in cpu_kernel
    cdef int64_t attrs[8 * ATTR_WORDS]
    cdef View* v = <View*>views
    cdef Attr* attr = <Attr*>attrs
    cdef double numbers[6][2]
    cdef int64_t shape[MAX_DIMS]
    cdef Promotion pr
    cdef TensorBase t, ref = None, result
    cdef PyObject* o
    cdef int i, n = ov.ntensors, compute, out_dt, dev = CPU, index = -1
    cdef bint grad = False, same = True, all_contig = True, numbers_in = False
    if out is None and is_plain(ov, s, n):
        return run_plain(ov, s, n)
    pr.dims = pr.zero = pr.wrapped = -1
    for i in range(n):
        o = s[ov.tensor_at[i]]
        if is_tensor(o):
            t = <TensorBase>o
            if i > 0 or ov.pw == NULL or ov.pw.first < 0:
                promotion_add(&pr, t.dt, t.rank, False)
            grad = grad or t.requires
            if ref is None:
                ref, dev, index = t, t.dev, t.dev_index
            else:
                if t.dev != dev or t.dev_index != index:
                    if t.rank == 0 and t.dev == CPU:
                        pass
                    elif ref.rank == 0 and dev == CPU:
                        dev, index = t.dev, t.dev_index
                    else:
                        raise device_error(ref, t)
                if same and not same_shape(ref, t):
                    same = False
            all_contig = all_contig and t.contig
        else:
            numbers_in = True
            promotion_add(&pr, number_dtype(o), 0, True)
    if ref is None:
        raise TypeError(f"{ov.name}(): argument 'input' (position 1) must be Tensor, not {type(<object>s[0]).__name__}")
    compute = promotion_result(&pr)
    if compute < kHalf and (ov.mode == P_FLOAT or ov.mode == P_FLOAT_REAL):
        compute = default_dtype
    out_dt = compute
    if ov.mode == P_BOOL:
        out_dt = kBool
    elif ov.mode >= P_REAL:
        out_dt = real_of(compute)
    if ov.guard:
        check_operands(ov, s, compute)
    grad = grad and modes().grad and is_differentiable(out_dt)
    if grad and ov.formulas is None:
        raise no_gradient(ov)
    # the output
    if out is None:
        result = pointwise_output(ov, s, n, same, all_contig, ref, out_dt, dev, index, shape)
    else:
        result = out
        if out.dev != dev or out.dev_index != index:
            raise device_error(out, ref)
        if not same or not same_shape(ref, out):
            check_inplace_shape(ov, s, n, out, shape)
        if not castable(out_dt, out.dt):
            raise RuntimeError(f"result type {type_word(out_dt)} can't be cast to the desired output type "
                               f"{type_word(out.dt)}")
    # the kernel
    if dev == CPU:
        if result.count:
            if ov.pw == NULL:
                raise no_kernel(ov, dev)
            cpu_pointwise(ov, s, n, same and all_contig and (out is None or (out.contig and out.dt == out_dt)) and
                          result.count <= (SMALL_ITEMS if numbers_in else DIRECT_ITEMS), compute, result, v, attr, numbers)
    elif dev != META:
        device_kernel(ov, dev, (result,), s)
    if grad and out is None:
        attach(record(ov, s), result, 0, ov)
    return result


cdef enum:
    G_SUB = 1
    G_NEG, G_POW


cdef bint is_bool(PyObject* o) noexcept:
    return (<TensorBase>o).dt == kBool if is_tensor(o) else PyBool_Check(<object>o)


cdef int check_operands(Overload ov, PyObject** s, int compute) except -1:
    """What torch refuses: - with bools, and integers to negative powers."""
    if ov.guard == G_POW:
        if compute < kHalf and PyLong_Check(<object>s[1]) and <object>s[1] < 0:
            raise RuntimeError("Integers to negative integer powers are not allowed.")
    elif ov.guard == G_NEG:
        if compute == kBool:
            raise RuntimeError("Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a "
                               "mask, use the `~` or `logical_not()` operator instead.")
    elif is_bool(s[0]) and is_bool(s[1]):
        raise RuntimeError("Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
                           "`logical_xor()` operator instead.")
    elif is_bool(s[0]) or is_bool(s[1]):
        raise RuntimeError("Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a "
                           "mask, use the `~` or `logical_not()` operator instead.")
    return 0


cdef inline bint is_plain(Overload ov, PyObject** s, int n) noexcept:
    """The common case: one or two small contiguous CPU tensors of one shape and one dtype that has a loop."""
    cdef PyObject* a = s[0]
    cdef PyObject* b = s[1]
    if n > 2 or n == 0 or ov.tensor_at[0] != 0 or ov.guard or ov.pw == NULL or ov.pw.first >= 0 or not is_tensor(a):
        return False
    if (<TensorBase>a).dev != CPU or not (<TensorBase>a).contig or (<TensorBase>a).rank > INLINE_DIMS:
        return False
    if (<TensorBase>a).count == 0 or (<TensorBase>a).count > DIRECT_ITEMS or (<TensorBase>a).dt < kFloat or \
            ov.pw.loop[(<TensorBase>a).dt] == NULL:
        return False
    if n == 1:
        return True
    return ov.tensor_at[1] == 1 and is_tensor(b) and (<TensorBase>a).dt == (<TensorBase>b).dt and \
        (<TensorBase>b).contig and (<TensorBase>b).dev == CPU and same_shape(<TensorBase>a, <TensorBase>b)


cdef object run_plain(Overload ov, PyObject** s, int n):
    """run_pointwise() where is_plain(): nothing to broadcast or promote."""
    cdef int64_t attrs[8 * ATTR_WORDS]
    cdef void* ptr[3]
    cdef PyObject* a = s[0]
    cdef int dt = (<TensorBase>a).dt
    cdef int out_dt = kBool if ov.mode == P_BOOL else real_of(dt) if ov.mode >= P_REAL else dt
    cdef bint grad = modes().grad and is_differentiable(out_dt) and \
        ((<TensorBase>a).requires or (n == 2 and (<TensorBase>s[1]).requires))
    cdef TensorBase result
    if grad and ov.formulas is None:
        raise no_gradient(ov)
    result = new_same(<TensorBase>a, out_dt)
    fill_attrs(ov, s, <Attr*>attrs)
    ptr[0], ptr[1] = ptr_of(result), ptr_of(<TensorBase>a)
    if n == 2:
        ptr[2] = ptr_of(<TensorBase>s[1])
    ov.pw.loop[dt](ptr, result.count, <Attr*>attrs)
    if grad:
        attach(record(ov, s), result, 0, ov)
    return result


cdef int cpu_pointwise(Overload ov, PyObject** s, int n, bint direct, int compute, TensorBase result,
                       View* v, Attr* attr, double[2]* numbers) except -1:
    cdef void* ptr[6]
    cdef char spread[2][SMALL_ITEMS * 16]        # numbers, repeated to the tensors' length
    cdef TensorBase t
    cdef PyObject* o
    cdef int i, used = 0, size
    cdef int64_t j
    fill_attrs(ov, s, attr)
    if direct and ov.pw.loop[compute] != NULL:
        check_room(result)
        ptr[0] = ptr_of(result)
        for i in range(n):
            o = s[ov.tensor_at[i]]
            if is_tensor(o):
                t = <TensorBase>o
                if t.dt != (ov.pw.first if i == 0 and ov.pw.first >= 0 else compute):
                    direct = False
                    break
                check_room(t)
                ptr[1 + i] = ptr_of(t)
                continue
            if used == 2 or (i == 0 and ov.pw.first >= 0):
                direct = False
                break
            size = itemsize(<DType>compute)
            write_number(<object>o, compute, spread[used])
            for j in range(1, result.count):
                memcpy(spread[used] + j * size, spread[used], size)
            ptr[1 + i] = spread[used]
            used += 1
        if direct:
            ov.pw.loop[compute](ptr, result.count, attr)
            return 0
    v[0] = view_of(result)
    for i in range(n):
        o = s[ov.tensor_at[i]]
        if is_tensor(o):
            v[1 + i] = view_of(<TensorBase>o)
        else:
            write_number(<object>o, compute, <char*>&numbers[i][0])
            v[1 + i] = View()
            v[1 + i].data, v[1 + i].ndim, v[1 + i].dtype = &numbers[i][0], 0, <DType>compute
    if result.count > NOGIL_ITEMS:
        with nogil:
            lib.pointwise(ov.pw, <DType>compute, v, attr)
    else:
        lib.pointwise(ov.pw, <DType>compute, v, attr)
    return 0


cdef TensorBase pointwise_output(Overload ov, PyObject** s, int n, bint same, bint all_contig, TensorBase ref,
                                 int out_dt, int dev, int index, int64_t* shape):
    cdef TensorBase t
    cdef int64_t strides[MAX_DIMS]
    cdef int i, rank
    if same and all_contig:
        return new_empty(ref.rank, ref.sizes, out_dt, dev, index)
    rank = broadcast_slots(ov, s, n, shape)
    if not all_contig:
        # as TensorIterator: a dense, permuted input of the full shape gives the output its layout
        for i in range(n):
            if is_tensor(s[ov.tensor_at[i]]):
                t = <TensorBase>s[ov.tensor_at[i]]
                if t.rank == rank and memcmp(t.sizes, shape, rank * sizeof(int64_t)) == 0:
                    if not t.contig and is_dense(t):
                        return new_strided(rank, shape, t.strides, out_dt, dev, index)
                    if not t.contig and packed_strides(t, strides):
                        return new_strided(rank, shape, strides, out_dt, dev, index)
                    break
    return new_empty(rank, shape, out_dt, dev, index)


cdef int broadcast_slots(Overload ov, PyObject** s, int n, int64_t* shape) except -1:
    """The common shape of the tensor arguments; returns its rank."""
    cdef TensorBase t
    cdef int i, d, at, rank = 0
    for i in range(n):
        if is_tensor(s[ov.tensor_at[i]]):
            rank = max(rank, (<TensorBase>s[ov.tensor_at[i]]).rank)
    for d in range(rank):
        shape[d] = 1
    for i in range(n):
        if not is_tensor(s[ov.tensor_at[i]]):
            continue
        t = <TensorBase>s[ov.tensor_at[i]]
        for d in range(t.rank):
            at = rank - t.rank + d
            if t.sizes[d] == 1 or t.sizes[d] == shape[at]:
                continue
            if shape[at] != 1:
                raise RuntimeError(f"The size of tensor a ({shape[at]}) must match the size of tensor b "
                                   f"({t.sizes[d]}) at non-singleton dimension {at}")
            shape[at] = t.sizes[d]
    return rank


cdef int check_inplace_shape(Overload ov, PyObject** s, int n, TensorBase out, int64_t* shape) except -1:
    cdef int rank = broadcast_slots(ov, s, n, shape)
    if rank != out.rank or memcmp(shape, out.sizes, rank * sizeof(int64_t)) != 0:
        raise RuntimeError(f"output with shape {list(shape_of(out))} doesn't match the broadcast shape "
                           f"{[shape[i] for i in range(rank)]}")
    return 0


TYPE_WORDS = ("Bool", "Byte", "Char", "Short", "Int", "Long", "Half", "BFloat16", "Float", "Double",
              "ComplexFloat", "ComplexDouble")

cdef str type_word(int dt):
    return TYPE_WORDS[dt]


cdef object device_error(TensorBase a, TensorBase b):
    return RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, "
                        f"{device_object(a.dev, a.dev_index)} and {device_object(b.dev, b.dev_index)}!")


cdef object no_kernel(Overload ov, int dev):
    name = ov.name
    where = DEVICE_TYPES[dev]
    return NotImplementedError(f"[{name}] no kernel for {where}; add one in _backends/{where}/ops.py "
                               f"or write {name} as a composite")


cdef object no_gradient(Overload ov):
    return NotImplementedError(f"[{ov.name}] has no backward formula; call it under torch.no_grad() or on detached tensors")
