# Composites: the one op that a backend may have for one, else its Python body. And the choice between the families of rows.

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
    if t.st.shrunk and not t.st.nbytes:          # it has no memory: see _make_wrapper
        return False
    if t.dev <= META or t.marks:                 # no backend has more than the body there, and kernels know no marks
        return False
    if first[0] == NULL:
        first[0] = o
    return t.count > 0 and t.rank <= backend_of(t.dev).max_rank and t.dev == (<TensorBase>first[0]).dev and \
        t.dev_index == (<TensorBase>first[0]).dev_index


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


cdef object run_as_node(Overload ov, PyObject** s):
    """The body computes new tensors without history; what is recorded is one node of the row's formulas."""
    modes().grad = False
    try:
        result = PyObject_Vectorcall(ov.body, s, ov.nparams, NULL)
    finally:
        modes().grad = True
    results = result if type(result) is tuple else (result,)
    for item in results:
        tensor_arg(item).base = None             # a view of what the body has made is all that is left of it
    record_results(ov, s, results)
    return wrap_results(ov, results)


cdef object run_composite(Overload ov, PyObject** s):
    cdef tuple results
    if ov.rule is not None:
        results = run_fused(ov, s, None)
        if results is not None:
            return wrap_results(ov, results)
    elif not ov.one_node and ov.formulas is not None and wants_grad(ov, s):
        return run_many_views(ov, s)
    if ov.one_node and not modes().transforms and wants_grad(ov, s) and has_formulas(ov, s):
        return run_as_node(ov, s)
    result = PyObject_Vectorcall(ov.body, s, ov.nparams, NULL)
    if ov.pin_at >= 0 and <object>s[ov.pin_at] is True:
        pin_new(tensor_arg(result))
    if ov.returns_class is not None and type(result) is tuple:
        return ov.returns_class(result)
    return result


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
