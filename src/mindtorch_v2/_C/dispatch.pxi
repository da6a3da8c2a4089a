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
    if modes().autocast:
        return run_autocast(op, ov, b.slot)
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
    types = tuple([type(x) for x in found])
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
    result = PyObject_Vectorcall(ov.body, s, ov.nparams, NULL)
    if ov.pin_at >= 0 and <object>s[ov.pin_at] is True:
        pin_new(<TensorBase?>result)
    if ov.returns_class is not None and type(result) is tuple:
        return ov.returns_class(result)
    return result


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
