# The call of an op: bind the arguments to a row, then run it, or offer it to the layers.

cdef tuple given_positional(PyObject** args, Py_ssize_t nargs):
    return tuple([<object>args[i] for i in range(nargs)])


cdef dict given_named(PyObject** args, Py_ssize_t nargs, PyObject* kwnames):
    return {} if kwnames == NULL else {name: <object>args[nargs + i] for i, name in enumerate(<tuple>kwnames)}


cdef object call_error(Op called, PyObject** args, Py_ssize_t nargs, PyObject* kwnames):
    """The exception of a call that suits no row."""
    return called.description.call_error(called, given_positional(args, nargs), given_named(args, nargs, kwnames),
                                         type(called) is OpMethod)


cdef PyObject* op_vectorcall(PyObject* self, PyObject** args, size_t nargsf, PyObject* kwnames) except NULL:
    cdef Op called = <Op>self                    # what layers of functions see
    cdef Op op = called.function
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
                if b.out != NULL and (type(called) is OpMethod or not suits_out(ov, b.out)):
                    raise call_error(called, args, nargs, kwnames)
                if b.foreign or modes().interposed():
                    result = run_layers(called, ov, &b, args, nargs, kwnames)
                else:
                    result = run(op, ov, &b)
                break
            if b.temp != NULL:
                Py_DECREF(<object>b.temp)
                b.temp = NULL
        else:
            result = call_override(called, args, nargs, kwnames)
            if result is NotImplemented:
                if n == 0:
                    raise NotImplementedError(f"[{op.name}] is not in the op table")
                raise call_error(called, args, nargs, kwnames)
    finally:
        if b.temp != NULL:
            Py_DECREF(<object>b.temp)
    Py_INCREF(result)
    return <PyObject*>result
