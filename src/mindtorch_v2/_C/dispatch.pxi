# The call of an op: bind the arguments to a row, then run it, or offer it to the layers.

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
