# How the arguments of a call are bound to an overload. After binding a slot holds a tensor, a tuple of them, or a plain
# value whose reading runs no Python.

cdef bint fits_int(PyObject* o):
    if PyLong_Check(<object>o):
        return not PyBool_Check(<object>o)               # as torch: True is no dim and no size
    if PyFloat_Check(<object>o) or PyUnicode_Check(<object>o):
        return False
    if is_tensor(o):
        return (<TensorBase>o).count == 1 and (<TensorBase>o).dt < kHalf
    return hasattr(type(<object>o), "__index__")         # of the class: a proxy of torch.fx has every attribute


cdef bint stands_for_number(PyObject* o):
    """A 0-dim tensor whose value may be taken: it has one (see _make_wrapper), and no gradient or tangent is lost."""
    cdef TensorBase t
    if not is_tensor(o):
        return False
    t = <TensorBase>o
    return t.rank == 0 and not needs_grad(t) and t.dev != META and (t.st.nbytes > 0 or not t.st.shrunk) and \
        (t.extra is None or not t.extra.get("tangents"))


cdef bint fits_ints(PyObject* o):
    cdef Py_ssize_t i
    if PyTuple_Check(<object>o):
        for i in range(PyTuple_GET_SIZE(<object>o)):
            if not fits_int(PyTuple_GET_ITEM_(<object>o, i)):
                return False
        return True
    if PyList_Check(<object>o):
        for item in <list>o:
            if not fits_int(<PyObject*>item):
                return False
        return True
    return False


cdef bint fits(Overload ov, int p, PyObject* o):
    """Whether an argument suits parameter p. Looks, converts nothing."""
    cdef int kind = ov.kind[p]
    if <object>o is None:
        return ov.optional[p] or (kind == K_INTS and not ov.required[p] and not ov.defaults[p])   # [] by default
    if kind == K_TENSOR:
        return is_tensor(o) or (ov.numbers and (p > 0 or ov.number_first) and (is_number(o) or is_numpy_scalar(<object>o)))
    if kind == K_TENSORS:
        if not (PyTuple_Check(<object>o) or PyList_Check(<object>o)):
            return False
        for item in <object>o:
            if not isinstance(item, TensorBase) and (item is not None or not ov.holey):
                return False
        return True
    if kind == K_INT:
        return fits_int(o)
    if kind == K_INTS:
        return fits_ints(o) or (ov.list_size[p] > 0 and fits_int(o))
    if kind == K_SCALAR:
        return is_number(o) or is_numpy_scalar(<object>o) or stands_for_number(o)
    if kind == K_BOOL:
        return PyBool_Check(<object>o) or is_numpy_scalar(<object>o)
    if kind == K_FLOAT:
        return PyFloat_Check(<object>o) or PyLong_Check(<object>o) or is_numpy_scalar(<object>o) or stands_for_number(o)
    if kind == K_DTYPE:
        return isinstance(<object>o, dtype) or <object>o in python_dtypes
    if kind == K_STR:
        return PyUnicode_Check(<object>o)
    if kind == K_DEVICE:
        return isinstance(<object>o, (device, str)) or PyLong_Check(<object>o)
    if kind == K_LAYOUT:
        return isinstance(<object>o, layout)
    if kind == K_FORMAT:
        return isinstance(<object>o, memory_format)
    if kind == K_GENERATOR:
        return isinstance(<object>o, GeneratorBase)
    if kind in (K_FLOATS, K_BOOLS, K_SCALARS):
        return PyTuple_Check(<object>o) or PyList_Check(<object>o) or (kind == K_FLOATS and is_number(o))
    return True


cdef int bind(Overload ov, PyObject** args, Py_ssize_t nargs, PyObject* kwnames, Binding* b) except -1:
    """Fills b.slot with borrowed references; returns 1, or 0 when the arguments do not suit."""
    cdef Py_ssize_t i, n = nargs, k
    cdef int p, np = ov.npositional
    cdef PyObject* o
    cdef PyTypeObject* tp
    memset(b.slot, 0, ov.nparams * sizeof(PyObject*))
    b.out = NULL
    b.foreign = False
    if nargs > np or (nargs > 0 and np > 0 and ov.kind[np - 1] == K_INTS and nargs >= np
                      and not PyTuple_Check(<object>args[np - 1]) and not PyList_Check(<object>args[np - 1])
                      and fits_int(args[np - 1])):
        # x.view(2, 3), torch.zeros(2, 3): the rest is the int[] that comes last among the positionals,
        # or first for a factory whose remaining parameters are keyword-only
        k = varargs_at(ov, nargs)
        if k < 0 and nargs > np:
            return 0
        if k >= 0 and k + 1 == nargs and ov.one_int and PyLong_CheckExact(<object>args[k]):
            check_ints(ov, <int>k, <object>args[k])
            b.slot[k] = args[k]                  # zeros(4), x.view(-1): these read a single int as it is
            n = k
        elif k >= 0 and (k + 1 < nargs or ov.list_size[k] == 0):
            if not bind_rest(ov, k, args, nargs, b):
                return 0
            n = k
    for i in range(n):
        o = args[i]
        if (ov.kind[i] == K_TENSOR and Py_TYPE(o) == tensor_type) or \
                (ov.kind[i] == K_INT and PyLong_CheckExact(<object>o)):
            if ov.kind[i] == K_INT:
                check_int(<object>o)
            elif (<TensorBase>o).marks:
                b.foreign = True
            b.slot[i] = o
            continue
        if not fits(ov, <int>i, o):
            return 0
        accept(ov, <int>i, o, b)
    if kwnames != NULL:
        for i in range(PyTuple_GET_SIZE(<object>kwnames)):
            name = <object>PyTuple_GET_ITEM_(<object>kwnames, i)
            o = args[nargs + i]
            p = param_named(ov, name)
            if p < 0:
                if name == "out" and ov.takes_out:
                    if <object>o is not None:
                        b.out = o
                        b.foreign = b.foreign or is_odd_out(o)
                    continue
                return 0
            if b.slot[p] != NULL:
                return 0
            if not fits(ov, p, o):
                return 0
            accept(ov, p, o, b)
    for p in range(ov.nparams):
        if b.slot[p] == NULL:
            if ov.required[p]:
                return 0
            b.slot[p] = PyTuple_GET_ITEM_(ov.defaults, p)
    return 1


cdef bint is_odd_out(PyObject* o):
    """Whether what is given as out= is, or has, a tensor with marks, or one whose class answers every op itself."""
    if PyTuple_Check(<object>o) or PyList_Check(<object>o):
        for item in <object>o:
            if is_tensor(<PyObject*>item) and (<TensorBase>item).marks:
                return True
        return False
    if is_tensor(o) and (<TensorBase>o).marks:
        return True
    return Py_TYPE(o) != tensor_type and is_tensor(o) and getattr(type(<object>o), "_owner", None) is not None


cdef int bind_rest(Overload ov, Py_ssize_t k, PyObject** args, Py_ssize_t nargs, Binding* b) except -1:
    """The positional arguments from k on as the int[] of parameter k."""
    cdef Py_ssize_t i
    cdef tuple packed = PyTuple_New(nargs - k)
    for i in range(k, nargs):
        if not fits_int(args[i]):
            return 0
        Py_INCREF(<object>args[i])
        PyTuple_SET_ITEM(packed, i - k, <object>args[i])
    hold(b, packed)
    accept(ov, <int>k, <PyObject*>packed, b)
    return 1


cdef int hold(Binding* b, object o) except -1:
    """Keeps an object that binding made alive until the call is over."""
    held = o if b.temp == NULL else (<object>b.temp, o)
    Py_INCREF(held)
    if b.temp != NULL:
        Py_DECREF(<object>b.temp)
    b.temp = <PyObject*>held
    return 0


cdef int accept(Overload ov, int p, PyObject* o, Binding* b) except -1:
    """Puts an argument that fits into its slot; notes subclasses, turns NumPy scalars into numbers."""
    cdef PyTypeObject* tp = Py_TYPE(o)
    b.slot[p] = o
    if ov.kind[p] == K_TENSOR:
        if is_tensor(o):
            if tp != tensor_type and tp != parameter_type or (<TensorBase>o).marks:
                b.foreign = True
        elif <object>o is not None and not is_exact_number(o):
            plain(b, p, exact_number(<object>o))
    elif <object>o is None:
        if not ov.optional[p]:
            b.slot[p] = PyTuple_GET_ITEM_(ov.defaults, p)
    elif ov.kind[p] == K_INT:
        if not PyLong_CheckExact(<object>o) and not PyBool_Check(<object>o):
            plain(b, p, plain_int(<object>o))
        check_int(<object>b.slot[p])
    elif ov.kind[p] == K_INTS:
        if not plain_ints(<object>o):
            plain(b, p, tuple([plain_int(item) for item in <object>o]) if isinstance(<object>o, (tuple, list))
                  else plain_int(<object>o))
        check_ints(ov, p, <object>b.slot[p])
    elif ov.kind[p] == K_TENSORS:
        accept_tensors(ov, p, <object>o, b)
    elif ov.kind[p] == K_SCALAR or ov.kind[p] == K_FLOAT:
        if not is_exact_number(o):
            plain(b, p, item_of(<TensorBase>o) if is_tensor(o) else exact_number(<object>o))
        if PyLong_Check(<object>b.slot[p]):
            if ov.kind[p] == K_FLOAT:            # a body that adds it to integers must get floats
                plain(b, p, float(<object>b.slot[p]))
            else:
                check_wide(<object>b.slot[p])
    else:
        accept_odd(ov.kind[p], p, <object>o, b)
    return 0


cdef int accept_odd(int kind, int p, object o, Binding* b) except -1:
    """accept() for the kinds that few ops have."""
    if kind == K_BOOL:
        if not PyBool_Check(o):
            plain(b, p, bool(exact_number(o)))
    elif kind == K_BOOLS:
        plain(b, p, tuple([bool(item) for item in o]))
    elif kind == K_FLOATS or kind == K_SCALARS:
        if isinstance(o, (tuple, list)):
            plain(b, p, tuple([item if isinstance(item, TensorBase) else exact_number(item) for item in o]))
        else:
            plain(b, p, (exact_number(o),))
    elif kind == K_DTYPE and not isinstance(o, dtype):
        plain(b, p, dtypes[dtype_id(o)])
    elif kind == K_LAYOUT and (<layout>o).owner is not None:
        b.foreign = True                         # the class of that layout makes the result
    return 0


cdef int accept_tensors(Overload ov, int p, object o, Binding* b) except -1:
    """A Tensor[] as a tuple, which owns its tensors: a list may change before the op is done."""
    cdef PyTypeObject* tp
    cdef tuple items = o if type(o) is tuple else tuple(o)
    if items is not o and not ov.keeps_lists:
        plain(b, p, items)
    for item in items:
        tp = Py_TYPE(<PyObject*>item)
        if item is None or (tp == tensor_type or tp == parameter_type) and not (<TensorBase>item).marks:
            continue
        if not isinstance(item, TensorBase):
            raise TypeError(f"{ov.name}(): expected tensors, got {type(item).__name__}")
        b.foreign = True
    return 0


cdef int plain(Binding* b, int p, object value) except -1:
    """What an odd object stands for goes into the slot, so that a rule and its kernel read the same."""
    hold(b, value)
    b.slot[p] = <PyObject*>value
    return 0


cdef object plain_int(object o):
    if PyLong_CheckExact(o) or PyBool_Check(o):
        return o
    if isinstance(o, TensorBase):
        return int(item_of(<TensorBase>o))
    return o if is_symint(o) else operator.index(o)


cdef bint plain_ints(object o):
    """Whether this is an int, or a list, tuple or Size of ints, all of exactly these types."""
    cdef Py_ssize_t i
    cdef object item
    if PyLong_CheckExact(o):
        return True
    if type(o) is list:
        for item in <list>o:
            if not PyLong_CheckExact(item):
                return False
        return True
    if type(o) is not tuple and type(o) is not size_class:
        return False
    for i in range(PyTuple_GET_SIZE(o)):
        if not PyLong_CheckExact(<object>PyTuple_GET_ITEM_(o, i)):
            return False
    return True


cdef int varargs_at(Overload ov, Py_ssize_t nargs):
    """The position of the int[] that takes the rest of the positional arguments, or -1."""
    cdef int p
    for p in range(ov.npositional):
        if ov.kind[p] == K_INTS:
            # only right after self, or first of all; and nothing positional may follow
            if p > 1 or (p == 1 and ov.kind[0] != K_TENSOR) or p >= nargs or p + 1 < ov.npositional:
                return -1
            return p
    return -1


cdef str OUT = sys.intern("out")


cdef int param_named(Overload ov, object name):
    cdef int p
    for p in range(ov.nparams):
        if <PyObject*>name == PyTuple_GET_ITEM_(ov.names, p):
            return p
    if <PyObject*>name == <PyObject*>OUT:        # most often, and no op's parameter
        return -1
    for p in range(ov.nparams):
        if name == ov.names[p]:
            return p
    other = keyword_aliases.get(name)
    if other is not None:
        for p in range(ov.nparams):
            if other == ov.names[p]:
                return p
    return -1


cdef bint suits_out(Overload ov, PyObject* out):
    """Whether out= is one tensor, or several, as the op gives them."""
    return ov.nreturns != 1 or not (PyTuple_Check(<object>out) or PyList_Check(<object>out)) or ov.schema.endswith("[]")


cdef int check_scalars(Overload ov, PyObject** s, int dt) except -1:
    """check_fits() for every Scalar that is not the row's default."""
    cdef int p
    for p in range(ov.nparams):
        if ov.kind[p] == K_SCALAR and s[p] != PyTuple_GET_ITEM_(ov.defaults, p) and <object>s[p] is not None:
            check_fits(<object>s[p], dt)
    return 0


cdef int check_ints(Overload ov, int p, object o) except -1:
    cdef int beyond = 0
    cdef Py_ssize_t i
    if PyLong_Check(o):
        if ov.list_size[p] > 0:
            return check_int(o)
        PyLong_AsLongLongAndOverflow(o, &beyond)
        if beyond:
            raise unpack_error(ov, p, 0)
        return 0
    for i in range(len(o)):
        PyLong_AsLongLongAndOverflow(<object>PyTuple_GET_ITEM_(o, i) if PyTuple_Check(o) else o[i], &beyond)
        if beyond:
            raise unpack_error(ov, p, i)
    return 0


cdef object unpack_error(Overload ov, int p, Py_ssize_t at):
    return TypeError(f"{ov.name}(): argument '{ov.names[p]}' failed to unpack the object at pos {at + 1} with error "
                     "\"Overflow when unpacking long long\"")


cdef int bind_slots(Op op, Overload ov, tuple slots, object out, Binding* b) except -1:
    """Binds one value to each parameter of an overload, the keyword-only ones too."""
    cdef PyObject* o
    cdef int p
    if ov not in op.rows:
        raise ValueError(f"{ov.name} is not a row of {op.name}")
    if len(slots) != ov.nparams:
        raise TypeError(f"{op.name}() has {ov.nparams} parameters, got {len(slots)} values")
    b.out = NULL
    b.foreign = False
    if out is not None:
        b.out = <PyObject*>out
        b.foreign = is_odd_out(b.out)
    for p in range(ov.nparams):
        o = PyTuple_GET_ITEM_(slots, p)
        if not fits(ov, p, o) and (ov.required[p] or <object>o is not ov.defaults[p]) and \
                not (ov.one_int and ov.kind[p] == K_INTS and PyLong_CheckExact(<object>o)):
            raise TypeError(f"{op.name}(): argument '{ov.names[p]}' must be {KIND_WORDS[ov.kind[p]]}, "
                            f"not {type(<object>o).__name__}")
        accept(ov, p, o, b)
    return 0
