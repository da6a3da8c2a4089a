# Ops with a kernel and a rule: infer the outputs, marshal the arguments, launch.

cdef struct OutSpec:
    int rank, dt
    int64_t sizes[MAX_DIMS]


cdef object run_kernel(Overload ov, PyObject** s, object outs):
    """Infer the outputs by the row's rule, allocate them (or take outs), marshal the arguments, run."""
    cdef int dev = CPU, index = -1
    cdef tuple results
    cdef bint grad
    place_of(ov, s, &dev, &index)
    grad = wants_grad(ov, s)
    if outs is None and ov.native_id and ov.nreturns == 1 and dev == CPU and ov.kernels[CPU] is None:
        return run_native_rule(ov, s, grad)
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


cdef int record_results(Overload ov, PyObject** s, tuple results) except -1:
    """Makes the results that can have a gradient outputs of one node."""
    cdef Node node = None
    cdef int i
    if ov.formulas is None:
        return 0
    for i in range(len(results)):
        if results[i] is not None and is_differentiable((<TensorBase>results[i]).dt):
            if node is None:
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
        r = new_like_format(like, like.dt, PRESERVE, dev, index)
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
        results.append(new_empty(spec.rank, spec.sizes, dtype_id(d), dev, index))
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


cdef enum:
    MAX_VIEWS = 16
    MAX_LISTS = 6


cdef struct AttrRoom:                            # raw memory: an array of Attr would be zeroed on every call
    int64_t attrs[MAX_PARAMS * ATTR_WORDS]
    int64_t lists[MAX_LISTS][MAX_DIMS]
    double floats[2][MAX_DIMS]


cdef int cpu_kernel(Overload ov, PyObject** outs, int nouts, PyObject** s) except -1:
    """Marshals the arguments in schema order and calls the kernel. The tensors are looked at last: from there on no Python
    runs, so that they are as the kernel is told."""
    cdef AttrRoom room
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
    numbers = fill_attrs(ov, s, &room, &args)
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
        args.nt = 0
        work = output_views(outs, nouts, v, storages, &args.nt)
        work += input_views(ov, s, numbers, v, storages, &args.nt)
        args.t, args.a = v, <Attr*>room.attrs
        check_rare(ov.name, ov.rare, v, args.nt)
        if work > NOGIL_ITEMS:
            if generator != NULL and not locked:
                locked = (<GeneratorBase>generator).acquire()    # nobody has it: no wait
            run_unlocked(ov.kernel, &args, v, storages)
        else:
            ov.kernel(args)                      # with the GIL, and so alone
    finally:
        if v != <View*>few:
            free(v)
        if locked:
            (<GeneratorBase>generator).release()
    return 0


cdef inline int check_rare(object name, int taken, const View* v, int n) except -1:
    """A kernel never sees a tensor of a rare dtype that it has not asked for."""
    cdef int i
    for i in range(n):
        if rare(v[i].dtype) & ~taken:
            raise NotImplementedError(f"\"{name.decode() if isinstance(name, bytes) else name}\" not implemented for "
                                      f"'{type_word(v[i].dtype)}'")
    return 0


cdef inline list fill_attrs(Overload ov, PyObject** s, AttrRoom* room, Args* args):
    """What is no tensor, in schema order; returns the tensors that stand for numbers, None where there are none."""
    cdef Attr* attr = <Attr*>room.attrs
    cdef list numbers = None
    cdef PyObject* o
    cdef int p, nl = 0, nf = 0
    for p in range(ov.nparams):
        o = s[p]
        if ov.kind[p] == K_TENSOR:
            if not (p == 0 and ov.copies_self) and <object>o is not None and not is_tensor(o):
                if numbers is None:
                    numbers = []
                numbers.append(scalar_tensor(<object>o))
            continue
        if ov.kind[p] == K_GENERATOR:
            continue
        attr[args.na] = Attr()
        if ov.kind[p] == K_TENSORS:
            attr[args.na].i = count_items(o)
            attr[args.na].given = <object>o is not None
        elif ov.kind[p] == K_INTS or ov.kind[p] == K_BOOLS:
            if <object>o is not None:
                if nl == MAX_LISTS:
                    raise RuntimeError(f"[{ov.name}] a kernel takes at most {MAX_LISTS} lists")
                attr[args.na].n = read_ints_or_one(<object>o, room.lists[nl], ov.list_size[p])
                attr[args.na].list = room.lists[nl]
                attr[args.na].given = True
                nl += 1
        elif ov.kind[p] == K_FLOATS:
            if <object>o is not None:
                if nf == 2:
                    raise RuntimeError(f"[{ov.name}] a kernel takes at most 2 lists of {MAX_DIMS} floats")
                attr[args.na].n = read_floats(ov, <object>o, room.floats[nf])
                attr[args.na].flist = room.floats[nf]
                attr[args.na].given = True
                nf += 1
        else:
            fill_attr(ov.kind[p], <object>o, &attr[args.na])
        args.na += 1
    return numbers


cdef int read_floats(Overload ov, object o, double* out) except -1:
    cdef Py_ssize_t i, n = len(o)
    if n > MAX_DIMS:
        raise RuntimeError(f"[{ov.name}] a kernel takes at most 2 lists of {MAX_DIMS} floats")
    for i in range(n):
        out[i] = o[i]
    return <int>n


cdef inline PyObject** items_of(PyObject* o) noexcept:
    """The items of a tuple or list."""
    return PySequence_Fast_ITEMS(<object>o)


cdef inline Py_ssize_t count_items(PyObject* o) noexcept:
    """Of a Tensor[], which binding has made a tuple, or autocast a list."""
    return 0 if <object>o is None else PyTuple_GET_SIZE(<object>o) if PyTuple_Check(<object>o) else \
        PyList_GET_SIZE(<object>o)


cdef Py_ssize_t count_listed(Overload ov, PyObject** s) noexcept:
    """How many tensors are in lists."""
    cdef Py_ssize_t total = 0
    cdef int i
    for i in range(ov.ntensors):
        if ov.kind[ov.tensor_at[i]] == K_TENSORS:
            total += count_items(s[ov.tensor_at[i]])
    return total


cdef inline int64_t add_view(PyObject* o, View* v, Storage** storages, int32_t* nt) except -1:
    """The next view; returns how many items it has. None stands for a tensor that was not given."""
    cdef int at = nt[0]
    nt[0] = at + 1
    if <object>o is None:
        v[at] = View()
        storages[at] = NULL
        return 0
    check_room(<TensorBase>o)
    v[at].data, v[at].dtype = ptr_of(<TensorBase>o), <DType>(<TensorBase>o).dt
    v[at].sizes, v[at].strides, v[at].ndim = (<TensorBase>o).sizes, (<TensorBase>o).strides, (<TensorBase>o).rank
    storages[at] = (<TensorBase>o).st
    return (<TensorBase>o).count


cdef inline int64_t output_views(PyObject** outs, int nouts, View* v, Storage** storages, int32_t* nt) except -1:
    cdef int64_t work = 0
    cdef int i
    for i in range(nouts):
        work += add_view(outs[i], v, storages, nt)
    return work


cdef inline int64_t input_views(Overload ov, PyObject** s, list numbers, View* v, Storage** storages, int32_t* nt) except -1:
    cdef PyObject* o
    cdef int64_t work = 0
    cdef Py_ssize_t k, used = 0
    cdef int i, p
    for i in range(ov.ntensors):
        p = ov.tensor_at[i]
        o = s[p]
        if ov.kind[p] == K_TENSORS:
            for k in range(count_items(o)):
                work += add_view(items_of(o)[k], v, storages, nt)
        elif p == 0 and ov.copies_self:
            continue
        elif <object>o is None or is_tensor(o):
            work += add_view(o, v, storages, nt)
        else:
            add_view(PyList_GET_ITEM_(numbers, used), v, storages, nt)
            used += 1
    return work


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
