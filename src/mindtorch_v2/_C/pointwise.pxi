# Pointwise ops: broadcast, promote, allocate, run the loop.

cdef enum:
    DIRECT_ITEMS = 4096                          # up to here contiguous tensors go straight to the loop
    SMALL_ITEMS = 64                             # the same where a single value is repeated for it
    MAX_LOOP_TENSORS = 5                         # that a loop reads
    MAX_LOOP_ATTRS = 8                           # its other arguments


cdef struct Operands:                            # what one look at the arguments tells
    PyObject* first                              # the first tensor
    int compute, dev, index
    bint grad, same, dense, numbers              # same: one shape; dense: all contiguous


cdef object run_pointwise(Overload ov, PyObject** s, TensorBase out):
    """Broadcast, promote, allocate (or write to out), run the loop."""
    cdef Operands x
    cdef TensorBase result
    cdef int out_dt
    if read_operands(ov, s, &x):
        return run_on_numbers(ov, s, out)
    if x.compute < kHalf and (ov.mode == P_FLOAT or ov.mode == P_FLOAT_REAL):
        x.compute = default_dtype
    out_dt = kBool if ov.mode == P_BOOL else real_of(x.compute) if ov.mode >= P_REAL else x.compute
    if ov.guard:
        check_operands(ov, s, x.compute)
    if x.grad:
        x.grad = modes().grad and is_differentiable(out_dt) and ov.formulas is not None
    if out is None:
        result = pointwise_output(ov, s, &x, out_dt)
    else:
        check_output(ov, s, &x, out, out_dt)
        result = out
    if x.dev == CPU:
        if result.count:
            cpu_pointwise(ov, s, x.compute, result, out_dt)
        elif not has_loop(ov, x.compute):
            raise no_dtype(ov, x.compute)
    elif x.dev != META:
        device_kernel(ov, x.dev, (result,), s)
    if x.grad and out is None:
        attach(record(ov, s), result, 0, ov)
    return result


cdef object run_on_numbers(Overload ov, PyObject** s, TensorBase out):
    """torch.add(1, 2): a 0-dim tensor."""
    cdef PyObject* slots[MAX_PARAMS]
    if ov.number_first != 2:
        raise TypeError(f"{ov.name}(): argument 'input' (position 1) must be Tensor, not {type(<object>s[0]).__name__}")
    memcpy(slots, s, ov.nparams * sizeof(PyObject*))
    first = scalar_tensor(<object>s[0])
    slots[0] = <PyObject*>first
    return run_pointwise(ov, slots, out)


cdef inline int read_operands(Overload ov, PyObject** s, Operands* x) except -1:
    """Looks at the operands: where they are, their common dtype, whether they are alike; 1: there is no tensor."""
    cdef PyObject* o
    cdef int i
    cdef bint mixed = ov.pw != NULL and ov.pw.first >= 0     # of more than one dtype
    x.first = NULL
    x.same = x.dense = True
    x.grad = x.numbers = False
    for i in range(ov.ntensors):
        o = s[ov.tensor_at[i]]
        if not is_tensor(o):
            x.numbers = True
            continue
        x.grad = x.grad or needs_grad(<TensorBase>o)
        x.dense = x.dense and (<TensorBase>o).contig
        if x.first == NULL:
            x.first, x.compute = o, (<TensorBase>o).dt
            x.dev, x.index = (<TensorBase>o).dev, (<TensorBase>o).dev_index
            continue
        mixed = mixed or (<TensorBase>o).dt != x.compute
        x.same = x.same and same_shape(<TensorBase>x.first, <TensorBase>o)
        if (<TensorBase>o).dev != x.dev or (<TensorBase>o).dev_index != x.index:
            check_same_device(x, <TensorBase>o)
    if x.first == NULL:
        return 1
    if mixed or x.numbers:
        x.compute = common_dtype(ov, s)
    return 0


cdef int check_same_device(Operands* x, TensorBase t) except -1:
    """A 0-dim CPU tensor goes where the others are."""
    if t.rank == 0 and t.dev == CPU:
        return 0
    if (<TensorBase>x.first).rank != 0 or x.dev != CPU:
        raise device_error(<TensorBase>x.first, t)
    x.dev, x.index = t.dev, t.dev_index
    return 0


cdef int common_dtype(Overload ov, PyObject** s) except -2:
    """What torch's promotion makes of the operands; a mask that comes first has no say."""
    cdef Promotion pr
    cdef PyObject* o
    cdef int i
    pr.dims = pr.zero = pr.wrapped = -1
    for i in range(ov.ntensors):
        o = s[ov.tensor_at[i]]
        if not is_tensor(o):
            promotion_add(&pr, number_dtype(o), 0, True)
        elif i > 0 or ov.pw == NULL or ov.pw.first < 0:
            promotion_add(&pr, (<TensorBase>o).dt, (<TensorBase>o).rank, False)
    return promotion_result(&pr)


cdef enum:
    G_NONE, G_MINUS, G_NEGATIVE, G_POWER, G_ALPHA, G_FITS, G_SAME, G_MASK, G_FILL, G_PUT, G_RESULT, G_MATH, G_CHOICE, G_LACKS

# What a row says of arguments that torch refuses.
GUARDS = {None: G_NONE,
          "alpha": G_ALPHA,                      # alpha has to be of the result's kind
          "minus": G_MINUS,                      # no bools, and alpha as above
          "negative": G_NEGATIVE,                # no bools
          "power": G_POWER,                      # no integers to negative powers
          "fits": G_FITS,                        # a number has to fit the dtype of self, which it is written to
          "result": G_RESULT,                    # Scalars have to fit the result's dtype
          "math": G_MATH,                        # they have to fit what is computed in; so in rows that say nothing
          "choice": G_CHOICE,                    # the first has to be bools, and numbers to fit as a single item does
          "same dtypes": G_SAME,
          "mask": G_MASK,                        # what shares self's memory, unless it is self
          "fill": G_FILL, "put": G_PUT}          # nothing; as of masks there is a warning where self is expanded


cdef bint is_bool(PyObject* o) noexcept:
    return (<TensorBase>o).dt == kBool if is_tensor(o) else PyBool_Check(<object>o)


cdef int check_operands(Overload ov, PyObject** s, int compute) except -1:
    """What torch refuses: - with bools, integers to negative powers, numbers that the result's dtype cannot hold."""
    if ov.lacks >> compute & 1:
        raise no_dtype(ov, compute)
    if ov.guard == G_LACKS:
        return 0
    if ov.guard == G_ALPHA:
        return check_alpha(ov, s, compute)
    if ov.guard == G_MATH or ov.guard == G_RESULT:
        if has_loop(ov, compute):
            check_scalars(ov, s, math_dtype(compute) if ov.guard == G_MATH else compute)
    elif ov.guard == G_CHOICE:
        if is_tensor(s[0]) and (<TensorBase>s[0]).dt != kBool and (<TensorBase>s[0]).dt != kUInt8:
            raise RuntimeError("where expected condition to be a boolean tensor, but got a tensor with dtype "
                               f"{type_word((<TensorBase>s[0]).dt)}")
        for p in range(ov.nparams):
            if not is_tensor(s[p]):
                check_fits(<object>s[p], single_dtype(compute))
    elif ov.guard == G_SAME:
        if ov.ntensors > 2 and is_tensor(s[1]) and not is_tensor(s[2]) and (<TensorBase>s[0]).dt < kHalf and \
                (<TensorBase>s[0]).dt == (<TensorBase>s[1]).dt:
            raise NotImplementedError(f"\"lerp_kernel_scalar\" not implemented for '{type_word((<TensorBase>s[0]).dt)}'")
        for p in range(ov.nparams):
            if not is_tensor(s[p]):
                check_fits(<object>s[p], math_dtype(compute))
            elif (<TensorBase>s[p]).dt != (<TensorBase>s[0]).dt and (p < 2 or (<TensorBase>s[p]).rank):
                raise RuntimeError(
                    f"expected dtype {cpp_name((<TensorBase>s[0]).dt)} for `{ov.names[p]}` but got dtype "
                    f"{cpp_name((<TensorBase>s[p]).dt)}" if ov.ntensors > 2 else
                    f"{ov.name} is not yet implemented for tensors with different dtypes.")
    elif ov.guard == G_POWER:
        if compute < kHalf and PyLong_Check(<object>s[1]) and <object>s[1] < 0:
            raise RuntimeError("Integers to negative integer powers are not allowed.")
        if compute < kFloat and not is_tensor(s[1]) and (<TensorBase>s[0]).dt == compute:
            check_fits(<object>s[1], compute)
    elif ov.guard == G_NEGATIVE:
        if compute == kBool:
            raise RuntimeError("Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a "
                               "mask, use the `~` or `logical_not()` operator instead.")
    elif is_bool(s[0]) and is_bool(s[1]):
        raise RuntimeError("Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
                           "`logical_xor()` operator instead.")
    elif is_bool(s[0]) or is_bool(s[1]):
        raise RuntimeError("Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a "
                           "mask, use the `~` or `logical_not()` operator instead.")
    else:
        return check_alpha(ov, s, compute)
    return 0


cdef inline int check_alpha(Overload ov, PyObject** s, int compute) except -1:
    """What add and sub multiply other with has to be of the result's kind."""
    if s[2] == PyTuple_GET_ITEM_(ov.defaults, 2):
        return 0
    alpha = <object>s[2]
    if PyBool_Check(alpha) and compute != kBool:
        raise RuntimeError("Boolean alpha only supported for Boolean results.")
    if compute < kHalf and not PyLong_Check(alpha) and isinstance(alpha, (float, complex)):
        raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number.")
    if compute < kComplexFloat and isinstance(alpha, complex):
        raise RuntimeError("For non-complex input tensors, argument alpha must not be a complex number.")
    return check_fits(alpha, compute)


cdef bint has_loop(Overload ov, int compute) noexcept:
    """Whether the kernel serves a dtype, which another's loop may compute."""
    return ov.pw != NULL and ov.pw.loop[<int>loop_dtype(ov.pw, <DType>compute)] != NULL


cdef object no_dtype(Overload ov, int dt):
    """The error for a dtype without a loop: a RuntimeError in the row's words, where torch has such."""
    kind = "bool" if dt == kBool else "int" if dt < kHalf else "float" if dt < kComplexFloat else "complex"
    words = None if ov.refuses is None else ov.refuses.get(kind)
    if words is not None:
        return type(words)(*words.args) if isinstance(words, Exception) else RuntimeError(words)
    return NotImplementedError(f"\"{loop_word(ov.name)}\" not implemented for '{type_word(dt)}'")


cdef dict loop_words = {}


def _name_loops(dict words):
    """What torch calls its loops where that is not the op's name and _cpu."""
    loop_words.update(words)


cdef str loop_word(str name):
    return loop_words.get(name) or name.removeprefix("special_").lstrip("_") + "_cpu"


cdef inline bint is_single(TensorBase t) noexcept:
    """Whether all items of t are one and the same place in memory."""
    cdef int d
    for d in range(t.rank):
        if t.strides[d] != 0 and t.sizes[d] != 1:
            return False
    return t.count != 0


cdef int cpu_pointwise(Overload ov, PyObject** s, int compute, TensorBase result, int out_dt) except -1:
    """Small contiguous operands go straight to the loop; the library brings every other case to it."""
    cdef int64_t attrs[MAX_LOOP_ATTRS * ATTR_WORDS]      # raw memory, as in cpu_kernel
    cdef int64_t repeated[2][2 * SMALL_ITEMS]    # single values, as often as the loop reads them
    cdef void* ptr[6]
    cdef const Attr* attr
    cdef PyObject* o
    cdef int i, want, used = 0
    cdef int64_t count = result.count
    cdef bint direct
    if ov.pw == NULL:
        raise no_kernel(ov, CPU)
    attr = pointwise_attrs(ov, s, <Attr*>attrs)
    before_write(result)
    direct = count <= DIRECT_ITEMS and result.contig and result.dt == out_dt and ov.pw.loop[compute] != NULL
    ptr[0] = ptr_of(result)
    for i in range(ov.ntensors if direct else 0):
        o = s[ov.tensor_at[i]]
        want = ov.pw.first if i == 0 and ov.pw.first >= 0 else compute
        if is_tensor(o):
            direct = (<TensorBase>o).dt == want
            check_room(<TensorBase>o)
            ptr[1 + i] = ptr_of(<TensorBase>o)
            if (<TensorBase>o).contig and (<TensorBase>o).count == count and direct:
                continue
            direct = direct and count <= SMALL_ITEMS and used < 2 and is_single(<TensorBase>o)
        else:
            direct = count <= SMALL_ITEMS and used < 2 and want == compute
            if direct:
                write_number(<object>o, compute, <char*>repeated[used])
                ptr[1 + i] = repeated[used]
        if not direct:
            break
        repeat_item(<char*>repeated[used], ptr[1 + i], itemsize(<DType>want), count)
        ptr[1 + i] = repeated[used]
        used += 1
    if direct:
        ov.pw.loop[compute](ptr, count, attr)
        return 0
    return library_pointwise(ov, s, compute, result, attr)


cdef int library_pointwise(Overload ov, PyObject** s, int compute, TensorBase result, const Attr* attr) except -1:
    """Operands of any strides, dtypes and shapes that broadcast."""
    if not has_loop(ov, compute):
        raise no_dtype(ov, compute)
    cdef int64_t views[6 * VIEW_WORDS]           # raw memory, as in cpu_kernel
    cdef double numbers[6][2]
    cdef Storage* storages[6]
    cdef View* v = <View*>views
    cdef PyObject* o
    cdef int i, wide
    v[0] = view_of(result)
    storages[0] = result.st
    for i in range(ov.ntensors):
        o = s[ov.tensor_at[i]]
        if is_tensor(o):
            v[1 + i] = view_of(<TensorBase>o)
            storages[1 + i] = (<TensorBase>o).st
        else:
            wide = kFloat if compute == kHalf or compute == kBFloat16 else compute    # the library rounds it where torch does
            write_number(<object>o, wide, <char*>&numbers[i][0])
            v[1 + i] = View()
            v[1 + i].data, v[1 + i].ndim, v[1 + i].dtype = &numbers[i][0], 0, <DType>wide
            storages[1 + i] = NULL
    if result.count > NOGIL_ITEMS:
        pointwise_unlocked(ov.pw, compute, v, storages, 1 + ov.ntensors, attr)
    else:
        lib.pointwise(ov.pw, <DType>compute, v, attr)
    return 0


cdef const Attr* pointwise_attrs(Overload ov, PyObject** s, Attr* buffer) except? NULL:
    """The non-tensor arguments: those of the row when all are defaults, else filled into buffer."""
    cdef int p, n = 0
    cdef bint given = False
    if ov.nparams == ov.ntensors:
        return ov.default_attr
    for p in range(ov.nparams):
        if ov.kind[p] != K_TENSOR and s[p] != PyTuple_GET_ITEM_(ov.defaults, p):
            given = True
    if not given:
        return ov.default_attr
    for p in range(ov.nparams):
        if ov.kind[p] != K_TENSOR:
            buffer[n] = Attr()
            fill_attr(ov.kind[p], <object>s[p], &buffer[n])
            n += 1
    return buffer


cdef TensorBase pointwise_output(Overload ov, PyObject** s, Operands* x, int out_dt):
    cdef TensorBase t = <TensorBase>x.first
    cdef int64_t shape[MAX_DIMS]
    cdef int64_t strides[MAX_DIMS]
    cdef int i, rank
    if x.same and x.dense:
        if x.dev == CPU and t.count and t.sizes == t.inline_dims:
            return new_same(t, out_dt)
        return new_empty(t.rank, t.sizes, out_dt, x.dev, x.index)
    rank = broadcast_slots(ov, s, ov.ntensors, shape)
    if not x.dense:
        # as TensorIterator: a dense, permuted input of the full shape gives the output its layout
        for i in range(ov.ntensors):
            if is_tensor(s[ov.tensor_at[i]]):
                t = <TensorBase>s[ov.tensor_at[i]]
                if t.rank == rank and memcmp(t.sizes, shape, rank * sizeof(int64_t)) == 0:
                    if not t.contig and is_dense(t):
                        return new_strided(rank, shape, t.strides, out_dt, x.dev, x.index)
                    if not t.contig and packed_strides(t, strides):
                        return new_strided(rank, shape, strides, out_dt, x.dev, x.index)
                    if t.contig or not has_overlap(t):       # an expanded input says nothing of the order of memory
                        break
    return new_empty(rank, shape, out_dt, x.dev, x.index)


cdef int check_output(Overload ov, PyObject** s, Operands* x, TensorBase out, int out_dt) except -1:
    """Whether the result may be written to out."""
    cdef int64_t shape[MAX_DIMS]
    if out.dev != x.dev or out.dev_index != x.index:
        raise device_error(out, <TensorBase>x.first)
    if not x.same or not same_shape(<TensorBase>x.first, out):
        check_inplace_shape(ov, s, ov.ntensors, out, shape)
    if ov.mode >= P_REAL and out.dt >= kComplexFloat and <PyObject*>out == s[0]:
        raise RuntimeError(f"In-place {ov.name} is not supported for complex tensors.")
    if out_dt != out.dt and isinstance(ov.out_body, str):
        raise RuntimeError((<str>ov.out_body).format(result=type_word(out_dt), out=type_word(out.dt)))
    if not castable(out_dt, out.dt):
        raise RuntimeError(f"result type {type_word(out_dt)} can't be cast to the desired output type "
                           f"{type_word(out.dt)}")
    return 0


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
        if is_tensor(s[ov.tensor_at[i]]):
            t = <TensorBase>s[ov.tensor_at[i]]
            at = -1 - widen(rank, shape, t.rank, t.sizes)
            if at >= 0:
                raise RuntimeError(f"The size of tensor a ({shape[at]}) must match the size of tensor b "
                                   f"({t.sizes[at - rank + t.rank]}) at non-singleton dimension {at}")
    return rank


cdef int check_inplace_shape(Overload ov, PyObject** s, int n, TensorBase out, int64_t* shape) except -1:
    cdef int rank = broadcast_slots(ov, s, n, shape)
    if rank != out.rank or memcmp(shape, out.sizes, rank * sizeof(int64_t)) != 0:
        raise RuntimeError(f"output with shape {list(shape_of(out))} doesn't match the broadcast shape "
                           f"{[shape[i] for i in range(rank)]}")
    return 0
