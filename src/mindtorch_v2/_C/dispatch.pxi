# The way of one op: bind, look for overrides, infer, allocate, run the kernel, record for autograd.

cdef PyObject* op_vectorcall(PyObject* self, PyObject** args, size_t nargsf, PyObject* kwnames) except NULL:
    cdef Op op = <Op>self
    cdef Py_ssize_t nargs = <Py_ssize_t>(nargsf & ~(<size_t>1 << (8 * sizeof(size_t) - 1)))
    cdef Binding b
    cdef Overload ov
    cdef Py_ssize_t i, n = PyList_GET_SIZE(op.rows)      # rows are only ever added
    cdef object result
    b.temp = NULL
    try:
        for i in range(n):
            ov = <Overload>PyList_GET_ITEM_(op.rows, i)
            if bind(ov, args, nargs, kwnames, &b):
                if b.foreign or modes().interposed():
                    result = run_layers(op, ov, &b, args, nargs, kwnames)
                else:
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
                raise bind_error(op.name, op.rows, args, nargs, kwnames, &b)
    finally:
        if b.temp != NULL:
            Py_DECREF(<object>b.temp)
    Py_INCREF(result)
    return <PyObject*>result


cdef object run(Op op, Overload ov, Binding* b):
    """The op itself: what is left when no layer answers."""
    if op.inplace_of is not None or ov.mutates:
        if b.out != NULL:
            raise TypeError(f"{op.name}() got an unexpected keyword argument 'out'")
        return run_inplace(op, ov, b.slot)
    if b.out != NULL:
        return run_out(op, ov, b.slot, <object>b.out)
    return run_family(ov, b.slot)


cdef inline object run_family(Overload ov, PyObject** s):
    if ov.family == F_POINTWISE:
        return run_pointwise(ov, s, None)
    if ov.family == F_VIEW:
        return run_view(ov, s)
    if ov.family == F_KERNEL:
        return run_kernel(ov, s, None)
    if ov.family == F_NATIVE:
        return run_native(ov, s)
    return run_composite(ov, s)


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
    tp = type(arg)
    if <PyTypeObject*>tp == tensor_type or <PyTypeObject*>tp == parameter_type:
        return 0
    fn = getattr(tp, "__torch_function__", None)
    if fn is None or fn is disabled_function or tp in [type(x) for x in found]:
        return 0
    for i in range(len(found)):
        if issubclass(tp, type(found[i])):
            found.insert(i, arg)
            return 0
    found.append(arg)
    return 0


cdef object call_override(object func, PyObject** args, Py_ssize_t nargs, PyObject* kwnames):
    """ask_overrides for the arguments of a vectorcall."""
    cdef dict keywords = {}
    if kwnames != NULL:
        keywords = {name: <object>args[nargs + i] for i, name in enumerate(<tuple>kwnames)}
    return ask_overrides(func, tuple([<object>args[i] for i in range(nargs)]), keywords)


cdef object ask_overrides(object func, tuple positional, dict keywords):
    """Asks active modes, then the arguments' classes; NotImplemented when nobody overrides."""
    cdef list found = []
    if modes().function_off:
        return NotImplemented
    for arg in positional:
        collect_overrides(arg, found, 0)
    for arg in keywords.values():
        collect_overrides(arg, found, 0)
    types = tuple([type(x) for x in found])
    if has_function_modes():
        mode = _pop_function_mode()              # it does not see what its own handler calls
        try:
            result = mode.__torch_function__(func, types, positional, keywords)
        finally:
            _push_function_mode(mode)
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
    cdef tuple results
    if ov.rule is not None:
        results = run_fused(ov, s, None)
        if results is not None:
            return wrap_results(ov, results)
    elif ov.formulas is not None and wants_grad(ov, s):
        return run_many_views(ov, s)
    result = PyObject_Vectorcall(ov.body, s, ov.nparams, NULL)
    if ov.pin_at >= 0 and <object>s[ov.pin_at] is True:
        pin_new(tensor_arg(result))
    if ov.returns_class is not None and type(result) is tuple:
        return ov.returns_class(result)
    return result


cdef tuple run_fused(Overload ov, PyObject** s, TensorBase self):
    """What the one op gives that a backend has for a composite (written to self, where that is given); None where it has
    none for these arguments, and the body serves."""
    cdef PyObject* first = NULL
    cdef tuple results
    cdef bint grad
    cdef int i
    for i in range(ov.ntensors):
        if not find_place(s[ov.tensor_at[i]], &first):
            return None
    if first == NULL:
        return None
    fn = fused_kernel(ov, (<TensorBase>first).dev)
    grad = wants_grad(ov, s)
    if fn is None or grad and (self is not None or not has_formulas(ov, s)):
        return None
    if self is None:
        results = infer(ov, s, (<TensorBase>first).dev, (<TensorBase>first).dev_index)
    else:
        results = None if ask_rule(ov, s) is None else (self,)
    if results is None:
        return None
    if isinstance(fn, DeviceKernel):
        if not (<DeviceKernel>fn).takes_tensors(results, s):
            return None
        (<DeviceKernel>fn).launch(ov, results, s)
    elif fn(results, tuple([<object>s[i] for i in range(ov.nparams)])) is NotImplemented:
        return None
    if grad:
        record_results(ov, s, results)
    return results


cdef bint find_place(PyObject* o, PyObject** first):
    """Sets first to the first tensor met; whether all are on its device and have what any fused op takes: items, and
    as many dims as the backend knows. Else the body serves, or says what is wrong."""
    cdef TensorBase t
    if not is_tensor(o):
        if isinstance(<object>o, (tuple, list)):
            for item in <object>o:
                if not find_place(<PyObject*>item, first):
                    return False
            return True
        return <object>o is None
    t = <TensorBase>o
    if t.dev <= META or t.marks:                 # no backend has more than the body there, and kernels know no marks
        return False
    if first[0] == NULL:
        first[0] = o
    return t.count > 0 and t.rank <= backend_of(t.dev).max_rank and t.dev == (<TensorBase>first[0]).dev and \
        t.dev_index == (<TensorBase>first[0]).dev_index


cdef object fused_kernel(Overload ov, int dev):
    """A backend's kernel for a composite, looked for once; None: it has none."""
    fn = ov.kernels[dev]
    if fn is None:
        fn = backend_of(dev).kernel(ov, True)
        ov.kernels[dev] = False if fn is None else fn
    return None if fn is False else fn


cdef bint has_formulas(Overload ov, PyObject** s):
    """Whether every input that needs a gradient has a formula."""
    cdef Formula f
    cdef uint64_t known = 0
    cdef int i
    if ov.formulas is None:
        return False
    for f in ov.formulas:
        known |= f.needs
    for i in range(ov.ntensors):
        if not known >> i & 1 and requires_any(s[ov.tensor_at[i]]):
            return False
    return True


cdef bint requires_any(PyObject* o):
    if is_tensor(o):
        return needs_grad(<TensorBase>o)
    if isinstance(<object>o, (tuple, list)):
        for item in <object>o:
            if requires_any(<PyObject*>item):
                return True
    return False


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
                if t is not None and needs_grad(<TensorBase>t):
                    return True
        elif is_tensor(o) and needs_grad(<TensorBase>o):
            return True
    return False
