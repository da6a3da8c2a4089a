# Ops with a kernel and a rule: infer the outputs, run the kernel of the library or of a backend.

cdef object run_kernel(Overload ov, PyObject** s, object outs):
    """Infer the outputs by the row's rule, allocate them (or take outs), marshal the arguments, run."""
    cdef int dev = CPU, index = -1
    cdef tuple results
    cdef bint grad = False
    if outs is None and ov.native_id and ov.nreturns == 1 and on_cpu(ov, s, &grad) and ov.kernels[CPU] is None:
        return run_native_rule(ov, s, grad and modes().grad)
    place_of(ov, s, &dev, &index)
    grad = wants_grad(ov, s)
    if outs is None:
        results = infer(ov, s, dev, index)
        if results is None:                      # the kernel itself gives the results
            fn = kernel_of(ov, dev)
            given = fn(*[<object>s[i] for i in range(ov.nparams)])
            results = given if type(given) is tuple else (given,)
            for item in results:
                if item is not None:
                    tensor_arg(item)
        else:
            launch(ov, dev, results, s)
    else:
        results = outs
        launch(ov, dev, results, s)
        grad = False
    if grad:
        record_results(ov, s, results)
    return wrap_results(ov, results)


cdef inline bint on_cpu(Overload ov, PyObject** s, bint* grad) noexcept:
    """Whether all arguments are tensors of the CPU (or not given), looked at once; notes whether one needs a gradient."""
    cdef PyObject* o
    cdef int i
    if ov.has_list:
        return False
    for i in range(ov.ntensors):
        o = s[ov.tensor_at[i]]
        if is_tensor(o):
            if (<TensorBase>o).dev != CPU:
                return False
            grad[0] = grad[0] or needs_grad(<TensorBase>o)
        elif <object>o is not None:
            return False
    return True


cdef inline Overload recorded_row(Overload ov, PyObject** s):
    """The row whose node a call leaves: of matmul's products of vectors and matrices the op that it is."""
    cdef int a, b
    if ov.native_id != R_MATMUL or ov.family != F_KERNEL:
        return ov
    a, b = (<TensorBase>s[0]).rank, (<TensorBase>s[1]).rank
    if a == 2:
        return ov if b > 2 else <Overload>(hot.mm if b == 2 else hot.mv).rows[0]
    return <Overload>hot.dot.rows[0] if a == 1 and b == 1 else ov


cdef int record_results(Overload ov, PyObject** s, tuple results) except -1:
    """Makes the results whose gradients the formulas read outputs of one node."""
    cdef Node node = None
    cdef int i
    if ov.formulas is None:
        return 0
    for i in range(len(results)):
        if takes_gradient(ov, i) and results[i] is not None and is_differentiable((<TensorBase>results[i]).dt):
            if node is None:
                ov = recorded_row(ov, s)
                node = record(ov, s)
            attach(node, <TensorBase>results[i], i, None)
    if node is not None:
        save_results(node, ov, tuple_items(results), <int>PyTuple_GET_SIZE(results))
    return 0


cdef object run_native_rule(Overload ov, PyObject** s, bint grad):
    """run_kernel() for the hottest ops: one output, a compiled rule, the CPU."""
    cdef OutSpec spec
    cdef TensorBase r
    cdef PyObject* out
    native_rule(ov.native_id, ov, s, &spec)
    r = new_empty(spec.rank, spec.sizes, spec.dt, CPU, -1)
    out = <PyObject*>r
    cpu_kernel(ov, &out, 1, s)
    if grad and is_differentiable(r.dt) and ov.formulas is not None:
        ov = recorded_row(ov, s)
        attach(record(ov, s), r, 0, ov)
    return r


cdef object wrap_results(Overload ov, tuple results):
    if PyTuple_GET_SIZE(results) == 1:
        return <object>PyTuple_GET_ITEM_(results, 0)
    if ov.returns_class is None:
        return results
    return ov.returns_class(results)


cdef int place_of(Overload ov, PyObject** s, int* dev, int* index) except -1:
    """The device of the call: that of its tensors, which must agree (0-dim CPU tensors go anywhere)."""
    cdef PyObject* first = NULL
    cdef PyObject* o
    cdef int i
    for i in range(ov.ntensors):
        o = s[ov.tensor_at[i]]
        if is_tensor(o):
            first = same_place_as(first, o)
        elif ov.has_list and ov.kind[ov.tensor_at[i]] == K_TENSORS and <object>o is not None:
            for item in <object>o:
                if item is not None:
                    first = same_place_as(first, <PyObject*>item)
    if first != NULL:
        dev[0], index[0] = (<TensorBase>first).dev, (<TensorBase>first).dev_index
    return 0


cdef inline PyObject* same_place_as(PyObject* first, PyObject* t) except NULL:
    """The tensor that says where the call runs, t now looked at too."""
    if first == NULL:
        return t
    if (<TensorBase>t).dev == (<TensorBase>first).dev and (<TensorBase>t).dev_index == (<TensorBase>first).dev_index:
        return first
    if (<TensorBase>first).rank == 0 and (<TensorBase>first).dev == CPU:
        return t
    if (<TensorBase>t).rank != 0 or (<TensorBase>t).dev != CPU:
        raise device_error(<TensorBase>first, <TensorBase>t)
    return first


cdef tuple infer(Overload ov, PyObject** s, int dev, int index):
    """Allocates the outputs as the row's rule says; None when only the kernel can tell, or when a composite's rule leaves
    these arguments to its body."""
    cdef OutSpec spec
    cdef int i
    cdef TensorBase like
    if ov.rule is None:
        return None
    if ov.native_id == R_LAYER:
        return layer_norm_outputs(s, dev, index)
    if ov.native_id:                             # a compiled rule, for the hottest ops
        native_rule(ov.native_id, ov, s, &spec)
        return (new_empty(spec.rank, spec.sizes, spec.dt, dev, index),)
    if ov.copies_self:
        check_rule(ov, s)
        like = <TensorBase>s[0]
        r = new_like_format(like, like.dt, PRESERVE if ov.keeps_format else CONTIGUOUS, dev, index)
        copy_into(r, like)
        return (r,)
    known = known_outputs(ov, s, dev, index)
    if known is not None:
        return known
    specs = ask_rule(ov, s)
    if specs is None and ov.body is not None:
        return None
    note_outputs(ov, s, specs)
    if not isinstance(specs, list):
        specs = [specs]
    results = []
    for item in specs:
        if item is None:
            results.append(None)
            continue
        shape, d = item
        spec.rank = read_ints(shape, spec.sizes)
        results.append(new_output(ov, s, <int>len(results), spec.rank, spec.sizes, dtype_id(d), dev, index))
    return tuple(results)


cdef int launch(Overload ov, int dev, tuple results, PyObject** s) except -1:
    if dev == CPU and ov.kernels[CPU] is None:
        cpu_kernel(ov, tuple_items(results), <int>PyTuple_GET_SIZE(results), s)
    elif dev != META:
        device_kernel(ov, dev, results, s)
    return 0


cdef class DeviceKernel:
    """A kernel of a backend that reads the slots of a call itself; any other is called with Python arguments."""

    cdef int launch(self, Overload ov, tuple results, PyObject** s) except -1:
        raise NotImplementedError(f"{type(self).__name__} does not launch")

    cdef bint takes_tensors(self, tuple results, PyObject** s) except -1:
        """Whether it takes tensors of these dtypes and ranks."""
        return True


cdef object kernel_of(Overload ov, int dev):
    """The kernel that a backend has for an overload."""
    fn = ov.kernels[dev]
    if fn is None:
        fn = ov.kernels[dev] = backend_of(dev).kernel(ov, False)
    if fn is None or fn is False:
        raise no_kernel(ov, dev)
    return fn


def _has_kernel(Op op not None, str device):
    """Whether a backend has a kernel for an op's first overload here: with this CANN, on this SoC."""
    cdef Overload ov = op.rows[0]
    return fused_kernel(ov, device_code(device)) is not None


cdef int device_kernel(Overload ov, int dev, tuple results, PyObject** s) except -1:
    fn = kernel_of(ov, dev)
    if isinstance(fn, DeviceKernel):
        return (<DeviceKernel>fn).launch(ov, results, s)
    fn(results, tuple([<object>s[i] for i in range(ov.nparams)]))
    return 0


cdef int cpu_kernel(Overload ov, PyObject** outs, int nouts, PyObject** s) except -1:
    """Marshals the arguments in schema order and calls the kernel. The tensors are looked at last: from there on no Python
    runs, so that they are what the kernel gets."""
    cdef AttrBuffer buffer
    cdef int64_t few[MAX_VIEWS * VIEW_WORDS]     # raw memory, as above
    cdef Storage* few_storages[MAX_VIEWS]
    cdef View* v = <View*>few
    cdef Storage** storages = few_storages
    cdef Args args
    cdef Py_ssize_t total
    cdef int64_t work
    cdef bint locked = False
    cdef list numbers                            # tensors made of numbers, alive until the kernel has run
    cdef PyObject* generator = NULL              # borrowed; held where other threads may run
    if ov.kernel == NULL:
        raise no_kernel(ov, CPU)
    args.na = 0
    args.generator = NULL
    numbers = fill_attrs(ov, s, &buffer, &args)
    if ov.generator_at >= 0:
        generator = generator_of(<object>s[ov.generator_at])
        args.generator = (<GeneratorBase>generator).g
        if (<GeneratorBase>generator).users:     # another thread draws: it is waited for before the tensors are looked at
            locked = (<GeneratorBase>generator).acquire()
    total = nouts + ov.ntensors
    if ov.has_list:
        total += count_listed(ov, s)
    try:
        if total > MAX_VIEWS:
            v = <View*>malloc(total * (sizeof(View) + sizeof(Storage*)))
            if v == NULL:
                raise MemoryError()
            storages = <Storage**>(v + total)
        if ov.writes:
            before_writes(ov, s)
        args.nt = 0
        work = output_views(outs, nouts, v, storages, &args.nt)
        work += input_views(ov, s, numbers, v, storages, &args.nt)
        args.t, args.a = v, <Attr*>buffer.attrs
        check_rare(ov.name, ov.rare, v, args.nt)
        if work > NOGIL_ITEMS:
            if generator != NULL and not locked:
                locked = (<GeneratorBase>generator).acquire()    # it is free: no wait
            run_unlocked(ov.kernel, &args, v, storages)
        else:
            ov.kernel(args)                      # with the GIL, and so alone
    finally:
        if v != <View*>few:
            free(v)
        if locked:
            (<GeneratorBase>generator).release()
    return 0


cdef uint64_t rare_dtypes() noexcept:
    """A bit for every dtype that only some kernels take."""
    cdef int dt
    cdef uint64_t found = 0
    for dt in range(kNumDTypes):
        found |= <uint64_t>(rare(<DType>dt) != 0) << dt
    return found


cdef uint64_t RARE_DTYPES = rare_dtypes()


cdef inline int check_rare(object name, int taken, const View* v, int n) except -1:
    """A kernel never sees a tensor of a rare dtype that its row does not declare."""
    cdef int i
    cdef uint64_t seen = 0
    for i in range(n):
        seen |= <uint64_t>1 << <int>v[i].dtype
    if not seen & RARE_DTYPES:
        return 0
    for i in range(n):
        if rare(v[i].dtype) & ~taken:
            raise NotImplementedError(f"\"{name.decode() if isinstance(name, bytes) else name}\" not implemented for "
                                      f"'{type_word(v[i].dtype)}'")
    return 0


def _served_by(Overload ov not None, str device) -> "Any":
    """What computes a row on a device: "core" (a view, a factory), "kernel", the row's calls of CANN, "composite" or ""."""
    cdef int dev = device_code(device)
    if ov.family == F_VIEW or ov.family == F_NATIVE:
        return "core"
    if dev > META:
        if dev == NPU and ov.npu is not None:
            return ov.npu
        if fused_kernel(ov, dev) is not None:
            return "kernel"
    elif ov.pw != NULL or ov.kernel != NULL or ov.kernels[dev] is not None:
        return "kernel"
    return "" if ov.body is None else "composite"


cdef object fused_kernel(Overload ov, int dev):
    """A backend's kernel for a composite, looked for once; None: it has none."""
    fn = ov.kernels[dev]
    if fn is None:
        fn = backend_of(dev).kernel(ov, True)
        ov.kernels[dev] = False if fn is None else fn
    return None if fn is False else fn
