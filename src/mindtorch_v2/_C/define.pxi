# From a schema row to an Overload, and the ops that the core itself calls.

POINTWISE_MODES = {"promote": P_PROMOTE, "float": P_FLOAT, "bool": P_BOOL, "real": P_REAL, "float_real": P_FLOAT_REAL}
# What dispatch modes and classes see of a composite: its parts, itself, or itself unless a gradient is wanted; "single": likewise,
# but classes that take parts (_takes_parts) see its parts.
WHOLE = (False, True, "unrecorded", "single")


cdef object out_words(object out, str family):
    """The words that refuse an out= of another dtype than the result's; None: it is cast to, a tuple: with words for those
    to which it cannot be."""
    cdef tuple given = out if isinstance(out, tuple) else (out,)
    for item in given:
        if isinstance(item, str) and " " in item:
            return (item,) if "casts" in given else item
    if "exact" in given or family == "kernel" and "casts" not in given:
        return "Expected out tensor to have dtype {result_c}, but got {out_c} instead"
    return None


def _define(str name, str overload_name, str schema, list params, list returns, *, str family, mode=None, kernel=None,
            rule=None, body=None, grad=None, numbers=False, bint copies_self=False, npu=None, returns_class=None, written_class=None,
            str namespace="torch", str node_name="", out=True, str guard=None, dict autocast=None,
            batching=None, forward=None, dict refuses=None, tuple lacks=(), OpDescription description=None, str format=None,
            whole=False, str writes="", bint node=False, several=None, shown=None, bint keeps=False):
    """Adds an overload to the op called name (made when new); returns the op."""
    cdef Overload ov = Overload.__new__(Overload)
    cdef Op op
    cdef int i
    cdef bytes encoded
    if len(params) > MAX_PARAMS:
        raise ValueError(f"{name}: at most {MAX_PARAMS} parameters")
    ov.name, ov.overload_name, ov.schema, ov.npu = name, overload_name, schema, npu
    ov.nparams, ov.nreturns, ov.returns_class, ov.written_class = len(params), len(returns), returns_class, written_class
    ov.names = tuple([sys.intern(p[0]) for p in params])
    ov.defaults = tuple([p[4] for p in params])
    ov.npositional = len([p for p in params if not p[5]])
    ov.numbers, ov.copies_self, ov.takes_out, ov.generator_at = bool(numbers), copies_self, out is not False, -1
    ov.number_first = 0 if numbers == "other" else 2 if numbers == "all" else 1
    for item in lacks:
        ov.lacks |= <uint64_t>1 << dtype_id(item)
    bodies = [o for o in (out if isinstance(out, tuple) else (out,)) if callable(o)]
    ov.out_body = bodies[0] if bodies else out_words(out, family)
    ov.out_apart = "apart" in (out if isinstance(out, tuple) else (out,))
    ov.whole = WHOLE.index(whole)
    ov.one_node, ov.keeps = node, keeps
    if guard not in GUARDS:
        raise ValueError(f"{name}: guard={guard!r} is none of {', '.join([g for g in GUARDS if g])}")
    ov.guard = GUARDS[guard]
    for word in (format or "").split():
        ov.keeps_format = KEEPS_COLUMNS if word[0] == "|" else KEEPS_STRIDES if word[0] == "=" else \
            KEEPS_WALK if word == "[indices]" else KEEPS_CHANNELS_LAST
        if word[0] == "|":
            word, _, flag = word[1:].partition("?")
            ov.columns_if = ov.names.index(flag) if flag else -1
            ov.format_from |= <uint64_t>1 << <int>int(word)
        else:
            ov.format_from |= <uint64_t>1 << <int>ov.names.index(word.strip("=[]"))
    for word in writes.split():
        ov.writes |= <uint64_t>1 << <int>ov.names.index(word)
    for i, (_, kind, optional, list_size, default, keyword_only, required, mutable) in enumerate(params):
        ov.kind[i] = KINDS.index(kind)
        ov.optional[i], ov.list_size[i], ov.required[i] = optional, list_size, required
        ov.mutates = ov.mutates or (mutable and i == 0 and kind == "Tensor")   # lists: see foreach.pxi
        if ov.kind[i] == K_TENSOR or ov.kind[i] == K_TENSORS:
            ov.tensor_at[ov.ntensors] = i
            ov.ntensors += 1
            ov.has_list = ov.has_list or ov.kind[i] == K_TENSORS
        elif ov.kind[i] == K_GENERATOR:
            ov.generator_at = i
    ov.holey = "Tensor?[]" in schema
    ov.kernels = [None] * NUM_DEVICES
    if callable(kernel):                         # written with ops, so it runs where they do
        ov.kernels[CPU] = ov.kernels[NPU] = ov.kernels[PRIVATE] = kernel
        kernel = None
    ov.keeps_lists = isinstance(body, Foreach)
    ov.body, ov.rule, ov.batching, ov.forward, ov.refuses = body, rule, batching, forward, refuses
    ov.pin_at = ov.names.index("pin_memory") if "pin_memory" in ov.names else -1
    ov.family = ("composite", "pointwise", "kernel", "view", "native").index(family)
    encoded = (kernel or name).encode()
    if ov.family == F_POINTWISE:
        if guard is None and "Scalar" in [p[1] for p in params]:
            ov.guard = G_MATH
        elif guard is None and lacks:
            ov.guard = G_LACKS
        ov.mode = POINTWISE_MODES[mode]
        ov.pw = lib.find_pointwise(encoded)
        if ov.ntensors > MAX_LOOP_TENSORS or ov.nparams - ov.ntensors > MAX_LOOP_ATTRS or ov.has_list:
            raise ValueError(f"{name}: a pointwise op takes at most {MAX_LOOP_TENSORS} tensors and {MAX_LOOP_ATTRS} other "
                             "arguments")
    elif ov.family == F_KERNEL or (ov.family == F_COMPOSITE and rule is not None):
        ov.kernel, ov.rare = lib.find(encoded), lib.rare(encoded)
        if isinstance(rule, str):
            ov.native_id = RULE_IDS[rule]
            ov.bias_first = ov.native_id == R_LINEAR
    elif ov.family == F_VIEW:
        ov.native_id, ov.view_kind = VIEW_IDS[mode], mode
        ov.one_int = ov.native_id == V_VIEW
    elif ov.family == F_NATIVE:
        ov.native_id = NATIVE_IDS[mode]
        ov.one_int = ov.native_id < N_FULL
    if ov.family == F_POINTWISE:
        set_default_attr(ov)
    if (ov.family == F_VIEW or copies_self or ov.family == F_NATIVE and N_FULL < ov.native_id < N_EMPTY_STRIDED or
            isinstance(rule, str)) and (ov.nparams == 0 or ov.kind[0] != K_TENSOR or ov.optional[0]):
        raise ValueError(f"{name}: the first parameter must be a Tensor")
    ov.node_name, ov.several, ov.shown = node_name, several, shown
    ov.tracked = bool(grad)
    if grad:
        set_formulas(ov, grad)
    elif grad is None and family in ("pointwise", "kernel", "view") and mode != "bool":
        set_formulas(ov, dict.fromkeys([p[0] for p in params if p[1] in ("Tensor", "Tensor[]")], no_derivative(name)))
        ov.node_name = "NotImplemented"
    op = all_ops.get((namespace, name))
    if op is None:
        op = Op(name, None, namespace)
        op.vectorcall = <vectorcallfunc>op_vectorcall
        all_ops[namespace, name] = op
    if description is not None:
        op.description = description
    if autocast:
        set_cast_policy(op, autocast)
    op.rows.append(ov)
    note_hot(op)
    return op


def _undefine(Op op not None):
    """The name of a program's own op is free again; those who hold the op keep it."""
    if all_ops.get((op.namespace, op.name)) is op:
        del all_ops[op.namespace, op.name]
    packets.pop(op, None)


cdef int set_default_attr(Overload ov) except -1:
    """The row's non-tensor defaults as a kernel reads them. An op lives as long as the process: never freed."""
    cdef int p, n = 0
    ov.default_attr = <Attr*>calloc(MAX_PARAMS, sizeof(Attr))
    if ov.default_attr == NULL:
        raise MemoryError()
    for p in range(ov.nparams):
        if ov.kind[p] != K_TENSOR:
            ov.default_attr[n] = Attr()
            if not ov.required[p]:
                fill_attr(ov.kind[p], ov.defaults[p], &ov.default_attr[n])
            n += 1
    return 0


def _define_inplace(str name, Op functional):
    """The in-place form of an op."""
    cdef Op op = Op(name, functional, functional.namespace)
    op.vectorcall = <vectorcallfunc>op_vectorcall
    all_ops[functional.namespace, name] = op
    note_hot(op)
    return op


cdef int note_hot(Op op) except -1:
    if op.namespace == "torch" and op.name in hot_names:
        setattr(hot, op.name, op)
    return 0


cdef int set_formulas(Overload ov, dict grad) except -1:
    """Reads the parameter names of each formula: they say what to save."""
    cdef Formula f
    cdef list plan = []                          # (kind, index) of each saved value
    ov.formulas = []
    tensor_names = [ov.names[ov.tensor_at[i]] for i in range(ov.ntensors)]
    for inputs, fn in grad.items():
        if isinstance(fn, str):
            if inputs == "complex":
                ov.real_name = fn
                continue
            ov.fixed_name = fn
            for n in inputs.split(","):
                ov.fixed |= <uint64_t>1 << <int>tensor_names.index(n.strip())
            continue
        f = Formula.__new__(Formula)
        f.fn = fn
        names = [n.strip() for n in inputs.split(",")]
        if len(names) > MAX_INPUTS:
            raise ValueError(f"{ov.name}: a formula gives at most {MAX_INPUTS} gradients")
        f.ninputs, f.joint = len(names), len(names) > 1
        for i, n in enumerate(names):
            f.inputs[i] = tensor_names.index(n)
            f.needs |= <uint64_t>1 << f.inputs[i]
        code = fn.__code__
        arguments = code.co_varnames[:code.co_argcount]
        if len(arguments) > MAX_FORMULA_ARGS:
            raise ValueError(f"{ov.name}: a formula takes at most {MAX_FORMULA_ARGS} arguments")
        f.nargs = len(arguments)
        for i, n in enumerate(arguments):
            f.source[i] = formula_source(ov, n, plan, f)
        ov.formulas.append(f)
    ov.nsaved = len(plan)
    for i, (kind, index) in enumerate(plan):
        ov.saved_kind[i], ov.saved_param[i] = kind, index
        ov.saves_results = ov.saves_results or kind in (S_RESULT, S_RESULTS)
    return 0


cdef object no_derivative(str name):
    """The formula of a row without one: as in torch the op is recorded, and backward says what is missing."""
    @cython.binding(True)                        # set_formulas reads its parameters
    def refuse(gs):
        raise RuntimeError(f"derivative for aten::{name} is not implemented")
    return refuse


cdef int formula_source(Overload ov, str name, list plan, Formula f) except? -9:
    if name == "gs":
        ov.reads_grads = ~<uint64_t>0
        return A_GRADS
    if name[0] == "g" and (name == "g" or name[1:].isdigit()):
        number = result_number(ov, name[1:])
        ov.reads_grads |= <uint64_t>1 << <int>number
        return A_GRAD - number
    if name == "needs":
        return A_NEEDS
    if name == "result":
        entry = (S_RESULT, 0)
    elif name == "results":
        entry = (S_RESULTS, 0)
    elif name.startswith("result") and name[6:].isdigit():
        entry = (S_RESULT, result_number(ov, name[6:]))
    elif name in ov.names:
        entry = (S_VALUE, ov.names.index(name))
    else:
        stem, _, what = name.rpartition("_")
        if stem not in ov.names or what not in ("shape", "dtype", "device", "geometry"):
            raise ValueError(f"{ov.name}: formula argument {name!r} is no parameter, result, g, gs or needs")
        entry = ({"shape": S_SHAPE, "dtype": S_DTYPE, "device": S_DEVICE, "geometry": S_GEOMETRY}[what], ov.names.index(stem))
    if entry not in plan:
        if len(plan) == MAX_SAVED:
            raise ValueError(f"{ov.name}: a node saves at most {MAX_SAVED} values")
        plan.append(entry)
    f.mask |= <uint64_t>1 << plan.index(entry)
    return plan.index(entry)


cdef int result_number(Overload ov, str digits) except -1:
    """Of g2 or result2 the 2, which must be one of the row's results."""
    number = int(digits or 0)
    if number >= min(max(ov.nreturns, 1), 64):
        raise ValueError(f"{ov.name}: no result {number}")
    return number


def _set_kernel(Op op, int overload, str device, fn):
    """Gives an overload its kernel on a device: fn(outs, args), or fn(*args) where the row has no rule."""
    cdef Overload ov = op.rows[overload]
    ov.kernels[device_code(device)] = fn


def _has_cpu_kernel(Op op, int overload=0):
    """Whether the library has a kernel for this overload."""
    cdef Overload ov = op.rows[overload]
    return ov.pw != NULL or ov.kernel != NULL or ov.kernels[CPU] is not None


# The kernels that Python calls by name: whether each output must be given; how many inputs.
cdef dict named_kernels = {"count_true": ((True,), 1), "nonzero": ((True,), 1), "masked_select": ((True,), 2),
                           "unique_sort": ((True, False, False, True), 1), "unique_runs": ((True, False, False, True), 1)}


def _run_kernel(str name, tuple outs, tuple inputs, *attrs):
    """run_named() for kernels whose results only the data can size. Kernels do not count their arguments."""
    expected = named_kernels.get(name)
    if expected is None:
        raise ValueError(f"{name}: not called by name")
    if len(outs) != len(expected[0]) or len(inputs) != expected[1] or None in inputs or \
            any([needed and out is None for out, needed in zip(outs, expected[0])]):
        raise ValueError(f"{name}: expected {len(expected[0])} outputs and {expected[1]} inputs")
    run_named(name, outs, inputs, attrs)


cdef int run_named(str name, tuple outs, tuple inputs, tuple attrs) except -1:
    """Runs a kernel of the library by name: tensors as given (None: absent), then numbers, strings and int lists."""
    cdef View v[MAX_VIEWS]
    cdef Storage* storages[MAX_VIEWS]
    cdef Attr attr[MAX_PARAMS]
    cdef int64_t lists[MAX_LISTS][MAX_DIMS]
    cdef Args args
    cdef Kernel k
    cdef int nl = 0
    cdef int64_t work = 0
    cdef bytes encoded = name.encode()
    k = kernel_named(encoded)
    if len(outs) + len(inputs) > MAX_VIEWS or len(attrs) > MAX_PARAMS:
        raise ValueError(f"{name}: too many arguments")
    cdef tuple tensors = outs + inputs
    cdef Py_ssize_t i
    for t in tensors:
        if t is not None and tensor_arg(t).dev != CPU:
            raise RuntimeError(f"[{name}] is a CPU kernel, got a tensor on {(<TensorBase>t).device}")
        if t is not None and (<TensorBase>t).marks:
            raise RuntimeError(f"[{name}] takes no tensor whose conjugate or negative bit is set: see Tensor.resolve_conj()")
    args.na = 0
    for a in attrs:
        attr[args.na] = Attr()
        if isinstance(a, (tuple, list)):
            if nl == MAX_LISTS:
                raise ValueError(f"{name}: at most {MAX_LISTS} lists")
            attr[args.na].n = read_ints(a, lists[nl])
            attr[args.na].list, attr[args.na].given = lists[nl], True
            nl += 1
        elif isinstance(a, dtype):
            fill_attr(K_DTYPE, a, &attr[args.na])
        elif isinstance(a, str):
            fill_attr(K_STR, a, &attr[args.na])
        elif a is not None:
            number_attr(a, &attr[args.na])
        args.na += 1
    args.t, args.a, args.nt = v, attr, 0
    args.generator = NULL
    work = output_views(tuple_items(outs), <int>PyTuple_GET_SIZE(outs), v, storages, &args.nt)    # last, as in cpu_kernel
    for i in range(PyTuple_GET_SIZE(inputs)):
        work += add_view(PyTuple_GET_ITEM_(inputs, i), v, storages, &args.nt)
    check_rare(encoded, lib.rare(encoded), v, args.nt)
    if work > NOGIL_ITEMS:
        run_unlocked(k, &args, v, storages)
    else:
        k(args)
    return 0


cdef int check_step(tuple tensors, tuple optional) except -1:
    """A fused step reads and writes all its tensors in the shape of the first."""
    cdef TensorBase first = tensor_arg(tensors[0])
    for t in tensors + tuple([t for t in optional if t is not None]):
        if not same_shape(tensor_arg(t), first):
            raise RuntimeError(f"expected a parameter, its gradient and its state of one shape, got {list(shape_of(first))} "
                               f"and {list(shape_of(<TensorBase>t))}")
    return 0


def _sgd_step(param, grad, momentum_buffer, lr, momentum, dampening, weight_decay, nesterov, maximize, first_step):
    """One fused SGD step, in place."""
    check_step((param, grad), (momentum_buffer,))
    grad = resolved(<TensorBase>grad) if (<TensorBase>grad).marks else grad
    run_named("sgd_step", (param, grad, momentum_buffer), (), (lr, momentum, dampening, weight_decay, nesterov, maximize,
                                                               first_step))
    bump_version(<TensorBase>param)


def _adam_step(param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq, step, lr, beta1, beta2, eps, weight_decay, decoupled,
               amsgrad, maximize):
    """One fused Adam or AdamW step, in place."""
    check_step((param, grad, exp_avg, exp_avg_sq) + ((max_exp_avg_sq,) if amsgrad else ()), (max_exp_avg_sq,))
    grad = resolved(<TensorBase>grad) if (<TensorBase>grad).marks else grad
    run_named("adam_step", (param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq), (),
              (step, lr, beta1, beta2, eps, weight_decay, decoupled, amsgrad, maximize))
    bump_version(<TensorBase>param)
