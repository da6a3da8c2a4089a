# The way of one op: bind, look for overrides, infer, allocate, run the kernel, record for autograd.

cdef enum:
    NOGIL_ITEMS = 16384                          # release the GIL around kernels over more items than this

cdef list function_modes = []                    # active TorchFunctionMode objects, innermost last


cdef PyObject* op_vectorcall(PyObject* self, PyObject** args, size_t nargsf, PyObject* kwnames) except NULL:
    cdef Op op = <Op>self
    cdef Py_ssize_t nargs = <Py_ssize_t>(nargsf & ~(<size_t>1 << (8 * sizeof(size_t) - 1)))
    cdef Binding b
    cdef Overload ov
    cdef Py_ssize_t i, n = PyList_GET_SIZE(op.overloads)
    cdef object result
    b.temp = NULL
    try:
        for i in range(n):
            ov = <Overload>PyList_GET_ITEM_(op.overloads, i)
            if bind(ov, args, nargs, kwnames, &b):
                if (b.foreign or function_modes) and not modes().function_off:
                    result = call_override(op, args, nargs, kwnames)
                    if result is not NotImplemented:
                        break
                result = run(op, ov, &b)
                break
            if b.temp != NULL:
                Py_DECREF(<object>b.temp)
                b.temp = NULL
        else:
            result = call_override(op, args, nargs, kwnames)
            if result is NotImplemented:
                if n == 0:
                    raise NotImplementedError(f"[{op.name}] is not in the op table")
                raise bind_error(op, <Overload>op.overloads[0], args, nargs, kwnames, &b)
    finally:
        if b.temp != NULL:
            Py_DECREF(<object>b.temp)
    Py_INCREF(result)
    return <PyObject*>result


cdef object run(Op op, Overload ov, Binding* b):
    if op.inplace_of is not None or ov.mutates:
        if b.out != NULL:
            raise TypeError(f"{op.name}() got an unexpected keyword argument 'out'")
        return run_inplace(op, ov, b.slot)
    if b.out != NULL:
        return run_out(op, ov, b.slot, <object>b.out)
    if ov.family == F_POINTWISE:
        return run_pointwise(ov, b.slot, None)
    if ov.family == F_VIEW:
        return run_view(ov, b.slot)
    if ov.family == F_KERNEL:
        return run_kernel(ov, b.slot, None)
    if ov.family == F_NATIVE:
        return run_native(ov, b.slot)
    return run_composite(ov, b.slot)


# ---- overriding -----------------------------------------------------------------------------------------------
cdef object disabled_function = None             # Tensor's marker for "no overriding"


def _set_disabled_torch_function(fn):
    """The object that a class sets as __torch_function__ to opt out of overriding."""
    global disabled_function
    disabled_function = fn


cdef int collect_overrides(object arg, list found, int depth) except -1:
    if isinstance(arg, (tuple, list)) and depth < 2:
        for item in arg:
            collect_overrides(item, found, depth + 1)
        return 0
    tp = builtin_type(arg)
    if <PyTypeObject*>tp == tensor_type or <PyTypeObject*>tp == parameter_type:
        return 0
    fn = getattr(tp, "__torch_function__", None)
    if fn is None or fn is disabled_function or tp in [builtin_type(x) for x in found]:
        return 0
    for i in range(len(found)):
        if issubclass(tp, builtin_type(found[i])):
            found.insert(i, arg)
            return 0
    found.append(arg)
    return 0


cdef object call_override(object func, PyObject** args, Py_ssize_t nargs, PyObject* kwnames):
    """Asks active modes, then the arguments' classes; NotImplemented when nobody overrides."""
    cdef list found = []
    cdef tuple positional = tuple([<object>args[i] for i in range(nargs)])
    cdef dict keywords = {}
    if kwnames != NULL:
        keywords = {name: <object>args[nargs + i] for i, name in enumerate(<tuple>kwnames)}
    if modes().function_off:
        return NotImplemented
    for arg in positional:
        collect_overrides(arg, found, 0)
    for arg in keywords.values():
        collect_overrides(arg, found, 0)
    types = tuple([builtin_type(x) for x in found])
    if function_modes:
        mode = function_modes.pop()
        try:
            result = mode.__torch_function__(func, types, positional, keywords)
        finally:
            function_modes.append(mode)
        if result is not NotImplemented:
            return result
    for arg in found:
        result = arg.__torch_function__(func, types, positional, keywords)
        if result is not NotImplemented:
            return result
    if found:
        raise TypeError(f"Multiple dispatch failed for 'torch.{getattr(func, '__name__', func)}'; all "
                        f"__torch_function__ handlers returned NotImplemented: {list(types)}")
    return NotImplemented


# ---- composites -------------------------------------------------------------------------------------------------
cdef object run_composite(Overload ov, PyObject** s):
    cdef int dev = device_of_slots(ov, s)
    if dev > META and ov.kernels[dev] is not None and (ov.formulas is not None or not wants_grad(ov, s)):
        return run_kernel(ov, s, None)
    return PyObject_Vectorcall(ov.body, s, ov.nparams, NULL)


cdef int device_of_slots(Overload ov, PyObject** s) noexcept:
    cdef int i
    for i in range(ov.ntensors):
        if is_tensor(s[ov.tensor_at[i]]) and (<TensorBase>s[ov.tensor_at[i]]).dev != CPU:
            return (<TensorBase>s[ov.tensor_at[i]]).dev
    return CPU


cdef bint wants_grad(Overload ov, PyObject** s):
    """Whether this call is to be recorded."""
    cdef int i
    cdef PyObject* o
    if not modes().grad:
        return False
    for i in range(ov.ntensors):
        o = s[ov.tensor_at[i]]
        if ov.has_list and ov.kind[ov.tensor_at[i]] == K_TENSORS:
            if <object>o is None:
                continue
            for t in <object>o:
                if t is not None and (<TensorBase>t).requires:
                    return True
        elif is_tensor(o) and (<TensorBase>o).requires:
            return True
    return False


# ---- pointwise --------------------------------------------------------------------------------------------------
cdef object run_pointwise(Overload ov, PyObject** s, TensorBase out):
    """Broadcast, promote, allocate (or write to out), run the loop."""
    cdef View v[6]
    cdef Attr attr[8]
    cdef double numbers[6][2]
    cdef int64_t shape[MAX_DIMS]
    cdef Promotion pr
    cdef TensorBase t, ref = None, result
    cdef PyObject* o
    cdef int i, n = ov.ntensors, compute, out_dt, dev = CPU, index = -1
    cdef bint grad = False, simple = True, all_contig = True
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
                if simple and not same_shape(ref, t):
                    simple = False
            all_contig = all_contig and t.contig
        else:
            simple = False
            promotion_add(&pr, number_dtype(as_number(s, ov.tensor_at[i])), 0, True)
    compute = promotion_result(&pr)
    if compute < kHalf and (ov.mode == P_FLOAT or ov.mode == P_FLOAT_REAL):
        compute = default_dtype
    out_dt = compute
    if ov.mode == P_BOOL:
        out_dt = kBool
    elif ov.mode >= P_REAL:
        out_dt = real_of(compute)
    grad = grad and modes().grad and is_differentiable(out_dt)
    if grad and ov.formulas is None:
        raise no_gradient(ov)
    # the output
    if out is None:
        result = pointwise_output(ov, s, n, simple, all_contig, ref, out_dt, dev, index, shape)
    else:
        result = out
        if not simple or not same_shape(ref, out):
            check_inplace_shape(ov, s, n, out, shape)
        if not castable(out_dt, out.dt):
            raise RuntimeError(f"result type {type_word(out_dt)} can't be cast to the desired output type "
                               f"{type_word(out.dt)}")
    # the kernel
    if dev == CPU:
        if result.count:
            if ov.pw == NULL:
                raise no_kernel(ov, dev)
            cpu_pointwise(ov, s, n, simple and all_contig and out is None, compute, result, v, attr, numbers)
    elif dev != META:
        device_kernel(ov, dev, (result,), s)
    if grad and out is None:
        attach(record(ov, s), result, 0, ov)
    return result


cdef int cpu_pointwise(Overload ov, PyObject** s, int n, bint direct, int compute, TensorBase result,
                       View* v, Attr* attr, double[2]* numbers) except -1:
    cdef void* ptr[6]
    cdef TensorBase t
    cdef PyObject* o
    cdef int i
    fill_attrs(ov, s, attr)
    if direct and result.count <= 4096 and ov.pw.loop[compute] != NULL:
        ptr[0] = ptr_of(result)
        for i in range(n):
            t = <TensorBase>s[ov.tensor_at[i]]
            if t.dt != compute:
                direct = ov.pw.first >= 0 and i == 0 and t.dt == ov.pw.first
                if not direct:
                    break
            ptr[1 + i] = ptr_of(t)
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
            v[1 + i].data, v[1 + i].ndim, v[1 + i].dtype = &numbers[i][0], 0, <DType>compute
    if result.count > NOGIL_ITEMS:
        with nogil:
            lib.pointwise(ov.pw, <DType>compute, v, attr)
    else:
        lib.pointwise(ov.pw, <DType>compute, v, attr)
    return 0


cdef PyObject* as_number(PyObject** s, int p) except NULL:
    """Slot p as a Python number; a NumPy scalar is replaced by one in the slot."""
    if not is_number(s[p]):
        number = python_number(<object>s[p])
        if number is None:
            raise TypeError(f"expected a Tensor or a number, got {builtin_type(<object>s[p]).__name__}")
        _keep_number(number)
        s[p] = <PyObject*>number
    return s[p]


cdef list recent_numbers = [None] * 64           # keeps converted numbers alive during their call
cdef int recent_at = 0

cdef void _keep_number(object number):
    global recent_at
    recent_at = (recent_at + 1) & 63
    recent_numbers[recent_at] = number


cdef TensorBase pointwise_output(Overload ov, PyObject** s, int n, bint simple, bint all_contig, TensorBase ref,
                                 int out_dt, int dev, int index, int64_t* shape):
    cdef TensorBase t
    cdef int i, rank
    if simple and all_contig:
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


# ---- kernels with a rule ----------------------------------------------------------------------------------------
cdef struct OutSpec:
    int rank, dt
    int64_t sizes[MAX_DIMS]


cdef object run_kernel(Overload ov, PyObject** s, object outs):
    """Infer the outputs by the row's rule, allocate them (or take outs), marshal the arguments, run."""
    cdef int dev = CPU, index = -1
    cdef TensorBase t, r
    cdef tuple results
    cdef Node node
    cdef int i
    place_of(ov, s, &dev, &index)
    grad = wants_grad(ov, s)
    if outs is None:
        results = infer(ov, s, dev, index)
        if results is None:                      # the kernel itself gives the results
            fn = ov.kernels[dev]
            if fn is None:
                raise no_kernel(ov, dev)
            given = fn(*[<object>s[i] for i in range(ov.nparams)])
            results = given if builtin_type(given) is tuple else (given,)
        else:
            launch(ov, dev, results, s)
    else:
        results = outs
        launch(ov, dev, results, s)
        grad = False
    if grad:
        node = None
        for i in range(len(results)):
            if results[i] is not None and is_differentiable((<TensorBase>results[i]).dt):
                if node is None:
                    if ov.formulas is None:
                        raise no_gradient(ov)
                    node = record(ov, s)
                attach(node, <TensorBase>results[i], i, ov)
        if node is not None:
            save_results(node, ov, results)
    return wrap_results(ov, results)


cdef object wrap_results(Overload ov, tuple results):
    if PyTuple_GET_SIZE(results) == 1:
        return <object>PyTuple_GET_ITEM_(results, 0)
    if ov.returns_class is None:
        return results
    return ov.returns_class(results)


cdef int place_of(Overload ov, PyObject** s, int* dev, int* index) except -1:
    """The device of the call: that of its tensors, which must agree (0-dim CPU tensors go anywhere)."""
    cdef TensorBase t, first = None
    cdef PyObject* o
    cdef int i
    for i in range(ov.ntensors):
        o = s[ov.tensor_at[i]]
        items = (<object>o,) if ov.kind[ov.tensor_at[i]] != K_TENSORS else <object>o
        if <object>o is None or is_number(o):
            continue
        for item in items:
            if item is None:
                continue
            t = <TensorBase>item
            if first is None or (first.rank == 0 and first.dev == CPU and t.dev != CPU):
                first = t
            elif (t.dev != first.dev or t.dev_index != first.dev_index) and not (t.rank == 0 and t.dev == CPU):
                raise device_error(first, t)
    if first is not None:
        dev[0], index[0] = first.dev, first.dev_index
    return 0


cdef tuple infer(Overload ov, PyObject** s, int dev, int index):
    """Allocates the outputs as the row's rule says; None when only the kernel can tell."""
    cdef OutSpec spec
    cdef int i
    cdef TensorBase like
    if ov.rule is None:
        return None
    if ov.native_id:                             # a rule of this file, for the hottest ops
        native_rule(ov.native_id, ov, s, &spec)
        return (new_empty(spec.rank, spec.sizes, spec.dt, dev, index),)
    specs = PyObject_Vectorcall(ov.rule, s, ov.nparams, NULL)
    if ov.prefill:
        like = <TensorBase>s[0]
        r = new_like_format(like, like.dt, PRESERVE, dev, index)
        copy_into(r, like)
        return (r,)
    if builtin_type(specs) is not list:
        specs = [specs]
    results = []
    for item in specs:
        if item is None:
            results.append(None)
            continue
        shape, d = item
        spec.rank = read_ints(shape, spec.sizes)
        results.append(new_empty(spec.rank, spec.sizes, (<dtype>d)._id, dev, index))
    return tuple(results)


cdef int launch(Overload ov, int dev, tuple results, PyObject** s) except -1:
    if dev == CPU and ov.kernels[CPU] is None:
        cpu_kernel(ov, results, s)
    elif dev != META:
        device_kernel(ov, dev, results, s)
    return 0


cdef int device_kernel(Overload ov, int dev, tuple results, PyObject** s) except -1:
    fn = ov.kernels[dev]
    if fn is None:
        raise no_kernel(ov, dev)
    fn(results, tuple([<object>s[i] for i in range(ov.nparams)]))
    return 0


cdef enum:
    MAX_VIEWS = 16


cdef int cpu_kernel(Overload ov, tuple results, PyObject** s) except -1:
    cdef View few[MAX_VIEWS]
    cdef View* v = few
    cdef Attr attr[MAX_PARAMS]
    cdef int64_t lists[4][MAX_DIMS]
    cdef double flists[2][MAX_DIMS]
    cdef Args args
    cdef int i, p, nt = 0, nl = 0, nf = 0
    cdef Py_ssize_t total = len(results) + ov.ntensors
    cdef int64_t work = 0
    cdef PyObject* o
    cdef list keep = []
    if ov.kernel == NULL:
        raise no_kernel(ov, CPU)
    if ov.has_list:
        for i in range(ov.ntensors):
            if ov.kind[ov.tensor_at[i]] == K_TENSORS and <object>s[ov.tensor_at[i]] is not None:
                total += len(<object>s[ov.tensor_at[i]])
    if total > MAX_VIEWS:
        v = <View*>malloc(total * sizeof(View))
        if v == NULL:
            raise MemoryError()
    try:
        for item in results:
            if item is None:
                v[nt] = View()
            else:
                v[nt] = view_of(<TensorBase>item)
                work += (<TensorBase>item).count
            nt += 1
        args.generator = NULL
        args.na = 0
        for p in range(ov.nparams):
            o = s[p]
            if ov.kind[p] == K_TENSOR:
                if p == 0 and ov.prefill:
                    continue
                if <object>o is None:
                    v[nt] = View()
                elif is_tensor(o):
                    v[nt] = view_of(<TensorBase>o)
                    work += (<TensorBase>o).count
                else:
                    number = _scalar_tensor(<object>o)
                    keep.append(number)
                    v[nt] = view_of(<TensorBase>number)
                nt += 1
                continue
            if ov.kind[p] == K_GENERATOR:
                args.generator = generator_of(<object>o)
                continue
            attr[args.na] = Attr()
            if ov.kind[p] == K_TENSORS:
                for item in <object>o:
                    v[nt] = View() if item is None else view_of(<TensorBase>item)
                    if item is not None:
                        work += (<TensorBase>item).count
                    nt += 1
                attr[args.na].i = len(<object>o)
                attr[args.na].given = True
            elif ov.kind[p] == K_INTS or ov.kind[p] == K_BOOLS:
                if <object>o is not None:
                    if nl >= 4 and len(<object>o) > 0:
                        raise RuntimeError(f"[{ov.name}] too many lists")
                    attr[args.na].n = read_ints_or_one(<object>o, lists[nl], ov.list_size[p])
                    attr[args.na].list = lists[nl]
                    attr[args.na].given = True
                    nl += 1
            elif ov.kind[p] == K_FLOATS:
                if <object>o is not None:
                    attr[args.na].n = len(<object>o)
                    for i in range(attr[args.na].n):
                        flists[nf][i] = (<object>o)[i]
                    attr[args.na].flist = flists[nf]
                    attr[args.na].given = True
                    nf += 1
            else:
                fill_attr(ov.kind[p], <object>o, &attr[args.na])
            args.na += 1
        args.t, args.nt, args.a = v, nt, attr
        if work > NOGIL_ITEMS:
            with nogil:
                ov.kernel(args)
        else:
            ov.kernel(args)
    finally:
        if v != few:
            free(v)
    return 0


cdef int fill_attr(int kind, object o, Attr* a) except -1:
    if o is None:
        a.given = False
    elif kind == K_STR:
        a.s = PyUnicode_AsUTF8(o)
        a.given = True
    elif kind == K_DTYPE:
        a.i = dtype_id(o)
        a.given = True
    elif kind in (K_DEVICE, K_LAYOUT, K_FORMAT, K_ANY):
        a.given = True
    else:
        number_attr(o, a)
    return 0


cdef int fill_attrs(Overload ov, PyObject** s, Attr* attr) except -1:
    """The non-tensor arguments of a pointwise op."""
    cdef int p, n = 0
    if ov.nparams == ov.ntensors:
        return 0
    for p in range(ov.nparams):
        if ov.kind[p] != K_TENSOR:
            attr[n] = Attr()
            fill_attr(ov.kind[p], <object>s[p], &attr[n])
            n += 1
    return n


cdef int dtype_id(object o) except -1:
    if isinstance(o, dtype):
        return (<dtype>o)._id
    name = python_dtypes.get(o)
    if name is None:
        raise TypeError(f"dtype must be a torch.dtype, got {o!r}")
    return dtype_id(_dtype_named(name))


cdef int64_t read_int(object o) except? -1:
    if PyLong_Check(o):
        return PyLong_AsLongLong(o)
    if isinstance(o, TensorBase):
        return item_of(<TensorBase>o)
    return o.__index__()


cdef int read_ints(object o, int64_t* out) except -1:
    """A tuple or list of ints into out; returns how many."""
    cdef Py_ssize_t i, n = len(o)
    if n > MAX_DIMS:
        raise RuntimeError(f"expected at most {MAX_DIMS} ints, got {n}")
    if PyTuple_Check(o):
        for i in range(n):
            out[i] = read_int(<object>PyTuple_GET_ITEM_(o, i))
    else:
        for i in range(n):
            out[i] = read_int(o[i])
    return <int>n


cdef int read_ints_or_one(object o, int64_t* out, int size) except -1:
    """As read_ints; a single int is repeated `size` times."""
    cdef int i
    if isinstance(o, (tuple, list)):
        return read_ints(o, out)
    out[0] = read_int(o)
    for i in range(1, size):
        out[i] = out[0]
    return max(size, 1)


# ---- out= and in place --------------------------------------------------------------------------------------------
cdef object run_out(Op op, Overload ov, PyObject** s, object out):
    """Writes the result to the tensor(s) the user gave, resized when the shape differs."""
    cdef TensorBase o, r
    cdef tuple outs = out if isinstance(out, (tuple, list)) and not isinstance(out, TensorBase) else (out,)
    cdef Binding b
    cdef int i
    for item in outs:
        if not isinstance(item, TensorBase):
            raise TypeError(f"{op.name}(): argument 'out' must be Tensor, not {builtin_type(item).__name__}")
        if modes().grad and ((<TensorBase>item).requires or wants_grad(ov, s)):
            raise RuntimeError(f"{op.name}(): functions with out=... arguments don't support automatic "
                               "differentiation, but one of the arguments requires grad.")
    if ov.family == F_POINTWISE and out_ready(ov, s, <TensorBase>outs[0]):
        run_pointwise(ov, s, <TensorBase>outs[0])
        bump_version(<TensorBase>outs[0])
        return outs[0]
    for i in range(ov.nparams):
        b.slot[i] = s[i]
    b.out = NULL
    result = run(op, ov, &b)
    results = result if isinstance(result, (tuple, list)) else (result,)
    if len(results) != len(outs):
        raise TypeError(f"{op.name}(): expected a tuple of {len(results)} tensors for 'out', got {len(outs)}")
    for item, given in zip(results, outs):
        r, o = <TensorBase>item, <TensorBase>given
        if o.dev != r.dev:
            raise device_error(o, r)
        if not castable(r.dt, o.dt):
            raise RuntimeError(f"result type {type_word(r.dt)} can't be cast to the desired output type {type_word(o.dt)}")
        if not same_shape(o, r):
            resize_out(o, r)
        copy_into(o, r)
        bump_version(o)
    return out if len(outs) == 1 or not isinstance(result, tuple) else builtin_type(result)(outs)


cdef bint out_ready(Overload ov, PyObject** s, TensorBase out):
    """Whether the loop may write to out directly: right shape, and no partial overlap with an input."""
    cdef int64_t shape[MAX_DIMS]
    cdef TensorBase t
    cdef int i, rank = broadcast_slots(ov, s, ov.ntensors, shape)
    if rank != out.rank or memcmp(shape, out.sizes, rank * sizeof(int64_t)) != 0 or has_overlap(out):
        return False
    for i in range(ov.ntensors):
        if is_tensor(s[ov.tensor_at[i]]):
            t = <TensorBase>s[ov.tensor_at[i]]
            if t.st == out.st and not same_place(t, out):
                return False
    return True


cdef inline bint same_place(TensorBase a, TensorBase b) noexcept:
    return ptr_of(a) == ptr_of(b) and a.dt == b.dt and same_shape(a, b) and \
        memcmp(a.strides, b.strides, a.rank * sizeof(int64_t)) == 0


cdef bint ranges_meet(TensorBase a, TensorBase b) noexcept:
    """Whether the address ranges of two views of one storage meet."""
    cdef int64_t first_a = a.offset, last_a = a.offset, first_b = b.offset, last_b = b.offset
    cdef int d
    if a.count == 0 or b.count == 0:
        return False
    for d in range(a.rank):
        last_a += (a.sizes[d] - 1) * a.strides[d]
    for d in range(b.rank):
        last_b += (b.sizes[d] - 1) * b.strides[d]
    return first_a * itemsize(<DType>a.dt) < (last_b + 1) * itemsize(<DType>b.dt) and \
        first_b * itemsize(<DType>b.dt) < (last_a + 1) * itemsize(<DType>a.dt)


cdef int resize_out(TensorBase o, TensorBase like) except -1:
    if o.count != 0:
        warnings.warn(f"An output with one or more elements was resized since it had shape {list(shape_of(o))}, which "
                      f"does not match the required output shape {list(shape_of(like))}. This behavior is deprecated",
                      UserWarning)
    resize_tensor(o, like.rank, like.sizes)
    return 0


cdef int resize_tensor(TensorBase t, int rank, const int64_t* sizes) except -1:
    cdef int64_t offset = t.offset
    cdef int64_t n = set_contiguous(t, rank, sizes)
    cdef size_t need = <size_t>(n + offset) * itemsize(<DType>t.dt)
    if n and need > t.st.nbytes:
        storage_resize(t.st, need)
    t.offset = offset
    update_geometry(t)
    return 0


cdef object run_inplace(Op op, Overload ov, PyObject** s):
    """The op's result becomes self's new value, and self's history."""
    cdef TensorBase self, r
    cdef Node node = None
    cdef bint grad
    cdef object kept                             # owns what slot 0 then borrows
    if not is_tensor(s[0]):
        raise TypeError(f"{op.name}(): argument 'input' (position 1) must be Tensor, "
                        f"not {builtin_type(<object>s[0]).__name__}")
    self = <TensorBase>s[0]
    grad = wants_grad(ov, s) and is_differentiable(self.dt)
    check_inplace(self, grad)
    if grad:
        kept = keep_original(ov, self)           # formulas that read self need its value from before
        if kept is not None:
            s[0] = <PyObject*>kept
    if ov.family == F_POINTWISE and (ov.formulas is not None or not grad):
        if grad:
            node = record(ov, s)
        if inplace_ready(ov, s, self):
            run_pointwise(ov, s, self)
        else:
            with_no_grad_copy(self, run_pointwise_plain(ov, s, self))
        bump_version(self)
        if node is not None:
            finish_inplace(node, ov, self)
        return self
    if (ov.prefill or ov.mutates) and ov.family == F_KERNEL:
        if grad:
            if ov.formulas is None:
                raise no_gradient(ov)
            node = record(ov, s)
        if ov.rule is not None:
            PyObject_Vectorcall(ov.rule, s, ov.nparams, NULL)
        if self.count or self.dev != CPU:
            launch(ov, self.dev, (self,), s)
        bump_version(self)
        if node is not None:
            finish_inplace(node, ov, self)
        return self
    if ov.mutates:                               # a composite or native op that changes self on its own
        if ov.family == F_NATIVE:
            return run_native(ov, s)
        return PyObject_Vectorcall(ov.body, s, ov.nparams, NULL)
    return hot_call2(HOT_COPY_, self, inplace_value(ov, s, self))


cdef object inplace_value(Overload ov, PyObject** s, TensorBase self):
    """The functional result of an op that is about to be written over self."""
    cdef Binding b
    cdef int i
    cdef TensorBase r
    for i in range(ov.nparams):
        b.slot[i] = s[i]
    b.out = NULL
    r = <TensorBase>(run_kernel(ov, b.slot, None) if ov.family == F_KERNEL else
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


cdef int with_no_grad_copy(TensorBase self, TensorBase r) except -1:
    copy_into(self, r)
    return 0


cdef bint inplace_ready(Overload ov, PyObject** s, TensorBase self):
    """Whether the loop may run straight over self."""
    cdef TensorBase t
    cdef int i
    for i in range(ov.ntensors):
        if is_tensor(s[ov.tensor_at[i]]):
            t = <TensorBase>s[ov.tensor_at[i]]
            if t.st == self.st and t is not self and not same_place(t, self) and ranges_meet(t, self):
                return False
    return True


cdef int check_inplace(TensorBase self, bint grad) except -1:
    """torch's rules for what may be changed in place."""
    if has_overlap(self):
        raise RuntimeError("unsupported operation: more than one element of the written-to tensor refers to a single "
                           "memory location. Please clone() the tensor before performing the operation.")
    if self.inference and not modes().inference:
        raise RuntimeError("Inplace update to inference tensor outside InferenceMode is not allowed."
                           "You can make a clone to get a normal tensor before doing inplace update."
                           "See https://github.com/pytorch/rfcs/pull/17 for more details.")
    if not modes().grad:
        return 0
    if self.requires and self.fn is None and self.base is None:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
    if self.base is not None and (grad or self.base.requires):
        if self.base.requires and self.base.fn is None:
            raise RuntimeError("a view of a leaf Variable that requires grad is being used in an in-place operation.")
        if self.creation == VIEW_MULTI_OUTPUT:
            raise RuntimeError("Output 0 of a function that returns multiple views is a view and is being modified "
                               "inplace. This view is the output of a function that returns multiple views. Such "
                               "functions do not allow the output views to be modified inplace. You should replace "
                               "the inplace operation by an out-of-place one.")
        if self.creation == VIEW_NO_GRAD and grad:
            raise RuntimeError("A view was created in no_grad mode and is being modified inplace with grad mode "
                               "enabled. Given that this use case is ambiguous and error-prone, it is forbidden. You "
                               "can clarify your code by moving both the view and the inplace either both inside the "
                               "no_grad block (if you don't want the inplace to be tracked) or both outside (if you "
                               "want the inplace to be tracked).")
    return 0
