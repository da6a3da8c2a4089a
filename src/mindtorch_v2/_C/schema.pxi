# Ops and their overloads: what a schema row becomes, and how the arguments of a call are bound to it.

cdef enum:
    K_TENSOR, K_TENSORS, K_SCALAR, K_INT, K_INTS, K_FLOAT, K_FLOATS, K_BOOL, K_BOOLS, K_STR
    K_DTYPE, K_DEVICE, K_LAYOUT, K_FORMAT, K_GENERATOR, K_SCALARS, K_ANY
    MAX_PARAMS = 24
    MAX_SAVED = 16
    VIEW_WORDS = 4                               # sizes of View and Attr in 8-byte words; asserted in _core.pyx
    ATTR_WORDS = 8

KINDS = ("Tensor", "Tensor[]", "Scalar", "int", "int[]", "float", "float[]", "bool", "bool[]", "str",
         "ScalarType", "Device", "Layout", "MemoryFormat", "Generator", "Scalar[]", "any")
# What an error message calls each kind.
KIND_WORDS = ("Tensor", "tuple of Tensors", "Number", "int", "tuple of ints", "float", "tuple of floats", "bool",
              "tuple of bools", "str", "torch.dtype", "torch.device", "torch.layout", "torch.memory_format",
              "torch.Generator", "tuple of Scalars", "object")
# NumPy's words, accepted in place of torch's.
cdef dict keyword_aliases = {"input": "self", "axis": "dim", "keepdims": "keepdim", "x": "self", "x1": "self",
                             "x2": "other", "a": "self"}

cdef enum:
    F_COMPOSITE, F_POINTWISE, F_KERNEL, F_VIEW, F_NATIVE
    # dtype rules of pointwise ops
    P_PROMOTE = 0
    P_FLOAT = 1
    P_BOOL = 2
    P_REAL = 3
    P_FLOAT_REAL = 4


cdef class Formula:
    """A backward formula: a Python function, the inputs whose gradients it gives and where its arguments come from."""
    cdef object fn
    cdef int ninputs
    cdef int inputs[8]                           # ordinals among the op's tensor parameters
    cdef int nargs
    cdef int source[MAX_SAVED]                   # an A_ code, or an index into the node's saved values
    cdef uint64_t needs                          # the same as bits
    cdef uint64_t mask                           # saved values it needs
    cdef bint joint                              # gives a tuple, one gradient per input

cdef enum:
    A_GRADS = -1
    A_NEEDS = -2
    A_GRAD = -3                                  # of the first result; below it those of the others
    # what is saved of a parameter or a result
    S_VALUE = 0
    S_SHAPE = 1
    S_DTYPE = 2
    S_RESULT = 3
    S_RESULTS = 4
    S_DEVICE = 5
    S_GEOMETRY = 6                               # sizes, strides, offset


cdef class Overload:
    """One schema row: its parameters, how its result follows, its kernels and its gradient."""
    cdef readonly str name, schema, overload_name
    cdef readonly int nparams, npositional, nreturns
    cdef int kind[MAX_PARAMS]
    cdef bint optional[MAX_PARAMS]
    cdef bint required[MAX_PARAMS]
    cdef int list_size[MAX_PARAMS]               # > 0: a single int stands for a list of that length
    cdef readonly tuple names, defaults, return_names
    cdef int ntensors
    cdef int tensor_at[MAX_PARAMS]
    cdef bint has_list                           # a Tensor[] is among the parameters
    cdef bint one_int                            # a single int may stand for its int[]
    cdef readonly bint mutates                   # the schema changes self in place (uniform_)
    cdef bint numbers                            # Tensor parameters accept Python numbers
    cdef bint prefill                            # the kernel's output starts as a copy of self
    cdef int family, mode, native_id
    cdef int pin_at                              # where a composite has pin_memory; -1: nowhere
    cdef int guard                               # which pointwise op refuses some operands: see check_operands
    cdef object rule
    cdef readonly object body                    # the composite
    cdef const Pointwise* pw
    cdef Attr* default_attr                      # of a pointwise op: its non-tensor arguments when all are defaults
    cdef Kernel kernel
    cdef readonly list kernels                   # per device type: callable(outs, args) or None
    cdef readonly str npu
    cdef readonly object grad
    cdef list formulas
    cdef bint differentiable
    cdef int nsaved
    cdef bint saves_results                      # some of them are outputs
    cdef uint64_t reads_grads                    # the results whose gradients formulas take, as bits
    cdef int saved_kind[MAX_SAVED]
    cdef int saved_param[MAX_SAVED]
    cdef readonly str node_name
    cdef object returns_class

    def signature(self):
        """The parameters as an error message shows them."""
        shown = []
        for i, name in enumerate(self.names):
            if i == self.npositional:
                shown.append("*")
            word = KIND_WORDS[self.kind[i]] + ("" if self.required[i] else f" {name} = {self.defaults[i]}")
            shown.append(word if not self.required[i] else f"{word} {'input' if name == 'self' else name}")
        return ", ".join(shown)


cdef class Op:
    """A torch function: callable as torch.f(x), and as x.f() once it is an attribute of Tensor."""
    cdef vectorcallfunc vectorcall
    cdef readonly str name
    cdef readonly list overloads
    cdef readonly Op inplace_of                  # the functional op whose in-place form this is, or None
    cdef readonly str namespace
    cdef unsigned char cast_policy[3]            # per device type: what autocast does with the arguments
    cdef public object doc

    def __init__(self, str name, Op inplace_of=None, str namespace="torch"):
        self.name = name
        self.inplace_of = inplace_of
        self.overloads = [] if inplace_of is None else inplace_of.overloads
        self.vectorcall = <vectorcallfunc>op_vectorcall
        self.namespace = namespace

    def __get__(self, instance, owner):
        return self if instance is None else PyMethod_New(self, instance)

    def __repr__(self):
        return f"<built-in function {self.name}>"

    @property
    def __name__(self):
        return self.name

    @property
    def __qualname__(self):
        return self.name

    @property
    def __doc__(self):
        return self.doc

    def __reduce__(self):
        return _op_named, (self.name, self.namespace)

    def __call__(self, *args, **kwargs):         # replaced by the vectorcall slot; kept for introspection
        return PyObject_Call(self, args, kwargs)


cdef dict all_ops = {}                           # (namespace, name) -> Op


def _op_named(name, namespace="torch"):
    return all_ops[namespace, name]


cdef void _enable_vectorcall():
    """Op calls go through the vectorcall slot, and a method call on a tensor makes no bound method."""
    cdef Op probe = Op("probe")
    mt_enable_vectorcall(<PyTypeObject*>Op, <char*>&probe.vectorcall - <char*><PyObject*>probe)

_enable_vectorcall()


# ---- numbers ------------------------------------------------------------------------------------------------
cdef inline bint is_number(PyObject* o) noexcept:
    return PyFloat_Check(<object>o) or PyLong_Check(<object>o) or PyComplex_Check(<object>o)


cdef object python_number(object o):
    """A NumPy scalar, a 0-dim tensor or another number-like object as a Python number; None when it is none."""
    if isinstance(o, TensorBase):
        return item_of(<TensorBase>o) if (<TensorBase>o).count == 1 else None
    if isinstance(o, (str, bytes, list, tuple, dict)) or o is None:
        return None
    if getattr(o, "shape", ()) != ():
        return None
    item = getattr(o, "item", None)
    if item is not None and hasattr(o, "dtype"):
        return item()
    if hasattr(o, "__index__"):
        return int(o)
    if hasattr(o, "__float__"):
        return float(o)
    return None


cdef int number_dtype(PyObject* o) noexcept:
    if PyBool_Check(<object>o):
        return kBool
    if PyLong_Check(<object>o):
        return kInt64
    if PyFloat_Check(<object>o):
        return kDouble
    return kComplexDouble


cdef int number_attr(object v, Attr* a) except -1:
    """Fills f, im and i from a number."""
    cdef double complex c
    a.given = True
    if PyFloat_CheckExact(v):
        a.f = PyFloat_AS_DOUBLE(v)
        a.i = <int64_t>a.f if -9.2e18 < a.f < 9.2e18 else 0
    elif PyLong_Check(v):
        a.i = PyLong_AsLongLong(v)
        a.f = <double>a.i
    elif PyComplex_Check(v):
        c = v
        a.f, a.im = c.real, c.imag
        a.i = <int64_t>a.f if -9.2e18 < a.f < 9.2e18 else 0
    elif PyFloat_Check(v):
        return number_attr(float(v), a)
    else:
        n = python_number(v)
        if n is None or not isinstance(n, (int, float, complex)):
            raise TypeError(f"expected a number, got {type(v).__name__}")
        return number_attr(n, a)
    return 0


cdef int write_number(object v, int dt, char* out) except -1:
    """The number as one item of dtype dt."""
    cdef Attr a
    cdef View t
    cdef Args args
    global fill_kernel
    number_attr(v, &a)
    if dt == kFloat:
        (<float*>out)[0] = <float>a.f
    elif dt == kDouble:
        (<double*>out)[0] = a.f
    elif dt == kInt64:
        (<int64_t*>out)[0] = a.i
    elif dt == kBool:
        (<char*>out)[0] = a.f != 0 or a.im != 0
    else:
        if fill_kernel == NULL:
            fill_kernel = kernel_named(b"fill")
        t.data, t.ndim, t.dtype = out, 0, <DType>dt
        args.t, args.nt, args.a, args.na = &t, 1, &a, 1
        fill_kernel(args)
    return 0


# ---- binding ------------------------------------------------------------------------------------------------
cdef bint fits_int(PyObject* o):
    if PyLong_Check(<object>o):
        return True
    if PyFloat_Check(<object>o) or PyUnicode_Check(<object>o):
        return False
    if is_tensor(o):
        return (<TensorBase>o).count == 1 and (<TensorBase>o).dt < kHalf
    return hasattr(<object>o, "__index__")


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
        return ov.optional[p]
    if kind == K_TENSOR:
        return is_tensor(o) or (ov.numbers and (is_number(o) or is_numpy_scalar(<object>o)))
    if kind == K_TENSORS:
        if not (PyTuple_Check(<object>o) or PyList_Check(<object>o)):
            return False
        for item in <object>o:
            if not isinstance(item, TensorBase) and item is not None:
                return False
        return True
    if kind == K_INT:
        return fits_int(o)
    if kind == K_INTS:
        return fits_ints(o) or (ov.list_size[p] > 0 and fits_int(o))
    if kind == K_SCALAR:
        return is_number(o) or is_numpy_scalar(<object>o) or \
            (is_tensor(o) and (<TensorBase>o).rank == 0)
    if kind == K_BOOL:
        return PyBool_Check(<object>o) or is_numpy_scalar(<object>o)
    if kind == K_FLOAT:
        return PyFloat_Check(<object>o) or PyLong_Check(<object>o) or is_numpy_scalar(<object>o) or \
            (is_tensor(o) and (<TensorBase>o).rank == 0)
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


cdef dict python_dtypes = {float: "float64", int: "int64", bool: "bool", complex: "complex128"}


cdef bint is_numpy_scalar(object o):
    return not isinstance(o, TensorBase) and hasattr(o, "dtype") and getattr(o, "shape", None) == () \
        and hasattr(o, "item")


cdef struct Binding:
    PyObject* slot[MAX_PARAMS]
    PyObject* temp                               # an owned tuple made of varargs, or NULL
    PyObject* out                                # borrowed, from out=
    bint foreign                                 # a tensor argument is of a subclass that may override
    # where binding failed, for the message
    int bad
    int why


cdef enum:
    BAD_TYPE = 1
    BAD_MISSING = 2
    BAD_KEYWORD = 3
    BAD_MANY = 4
    BAD_TWICE = 5


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
                      and PyLong_Check(<object>args[np - 1])):
        # x.view(2, 3), torch.zeros(2, 3): the rest is the int[] that comes last among the positionals,
        # or first for a factory whose remaining parameters are keyword-only
        k = varargs_at(ov, nargs)
        if k < 0 and nargs > np:
            b.why = BAD_MANY
            return 0
        if k >= 0 and k + 1 == nargs and ov.one_int and PyLong_CheckExact(<object>args[k]):
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
            b.slot[i] = o
            continue
        if not fits(ov, <int>i, o):
            b.why, b.bad = BAD_TYPE, <int>i
            return 0
        accept(ov, <int>i, o, b)
    if kwnames != NULL:
        for i in range(PyTuple_GET_SIZE(<object>kwnames)):
            name = <object>PyTuple_GET_ITEM_(<object>kwnames, i)
            o = args[nargs + i]
            p = param_named(ov, name)
            if p < 0:
                if name == "out":
                    if <object>o is not None:
                        b.out = o
                    continue
                b.why, b.bad = BAD_KEYWORD, <int>i
                return 0
            if b.slot[p] != NULL:
                b.why, b.bad = BAD_TWICE, p
                return 0
            if not fits(ov, p, o):
                b.why, b.bad = BAD_TYPE, p
                return 0
            accept(ov, p, o, b)
    for p in range(ov.nparams):
        if b.slot[p] == NULL:
            if ov.required[p]:
                b.why, b.bad = BAD_MISSING, p
                return 0
            b.slot[p] = PyTuple_GET_ITEM_(ov.defaults, p)
    return 1


cdef int bind_rest(Overload ov, Py_ssize_t k, PyObject** args, Py_ssize_t nargs, Binding* b) except -1:
    """The positional arguments from k on as the int[] of parameter k."""
    cdef Py_ssize_t i
    cdef tuple packed = PyTuple_New(nargs - k)
    for i in range(k, nargs):
        if not fits_int(args[i]):
            b.why, b.bad = BAD_TYPE if i == k else BAD_MANY, <int>k
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
            if tp != tensor_type and tp != parameter_type:
                b.foreign = True
        elif <object>o is not None and not is_number(o):
            number = python_number(<object>o)
            hold(b, number)
            b.slot[p] = <PyObject*>number
    elif <object>o is None:
        return 0
    elif ov.kind[p] == K_INT:
        if not PyLong_CheckExact(<object>o) and not PyBool_Check(<object>o):
            plain(b, p, plain_int(<object>o))
    elif ov.kind[p] == K_INTS:
        if not plain_ints(<object>o):
            plain(b, p, tuple([plain_int(item) for item in <object>o]) if isinstance(<object>o, (tuple, list))
                  else plain_int(<object>o))
    elif ov.kind[p] == K_BOOLS:
        plain(b, p, tuple([bool(item) for item in <object>o]))
    elif ov.kind[p] == K_TENSORS:
        if type(<object>o) is not list and type(<object>o) is not tuple:
            items = tuple(<object>o)
            for item in items:
                if item is not None and not isinstance(item, TensorBase):
                    raise TypeError(f"{ov.name}(): expected tensors, got {type(item).__name__}")
            plain(b, p, items)
            o = b.slot[p]
        for item in <object>o:
            tp = Py_TYPE(<PyObject*>item)
            if tp != tensor_type and tp != parameter_type and item is not None:
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
    return operator.index(o)


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


cdef str describe(PyObject* o):
    if is_tensor(o):
        return "Tensor"
    name = type(<object>o).__name__
    if isinstance(<object>o, (tuple, list)):
        return f"{name} of ({', '.join(type(i).__name__ for i in list(<object>o)[:8])})"
    return name


cdef object bind_error(Op op, Overload ov, PyObject** args, Py_ssize_t nargs, PyObject* kwnames, Binding* b):
    """The TypeError that torch gives for arguments that do not suit."""
    cdef Py_ssize_t i
    cdef int p = b.bad
    cdef PyObject* o = NULL
    name = op.name
    if len(op.overloads) > 1:
        got = [describe(args[i]) for i in range(nargs)]
        if kwnames != NULL:
            got += [f"{k}={describe(args[nargs + i])}" for i, k in enumerate(<tuple>kwnames)]
        expected = "".join(f"\n * ({(<Overload>o).signature()})" for o in op.overloads)
        return TypeError(f"{name}() received an invalid combination of arguments - got ({', '.join(got)}), "
                         f"but expected one of:{expected}\n")
    if b.why == BAD_MANY:
        return TypeError(f"{name}() takes {ov.npositional} positional argument{'s' * (ov.npositional != 1)} "
                         f"but {nargs} were given")
    if b.why == BAD_KEYWORD:
        return TypeError(f"{name}() got an unexpected keyword argument '{(<tuple>kwnames)[p]}'")
    shown = "input" if ov.names[p] == "self" else ov.names[p]
    if b.why == BAD_MISSING:
        missing = [n for i, n in enumerate(ov.names) if ov.required[i] and b.slot[i] == NULL]
        quoted = ", ".join(f'"{"input" if n == "self" else n}"' for n in missing)
        return TypeError(f"{name}() missing {len(missing)} required positional arguments: {quoted}")
    if b.why == BAD_TWICE:
        return TypeError(f"{name}() got multiple values for argument '{shown}'")
    if p < nargs:
        o = args[p]
    elif kwnames != NULL:
        for i in range(PyTuple_GET_SIZE(<object>kwnames)):
            if param_named(ov, (<tuple>kwnames)[i]) == p:
                o = args[nargs + i]
    where = f" (position {p + 1})" if p < nargs else ""
    got_word = type(<object>o).__name__ if o != NULL else "nothing"
    if o != NULL and isinstance(<object>o, (tuple, list)) and ov.kind[p] in (K_INTS, K_TENSORS):
        bad = [(i, item) for i, item in enumerate(<object>o)
               if not (fits_int(<PyObject*>item) if ov.kind[p] == K_INTS else isinstance(item, TensorBase))]
        if bad:
            return TypeError(f"{name}(): argument '{shown}' must be {KIND_WORDS[ov.kind[p]]}, but found element of "
                             f"type {type(bad[0][1]).__name__} at pos {bad[0][0]}")
    return TypeError(f"{name}(): argument '{shown}'{where} must be {KIND_WORDS[ov.kind[p]]}, not {got_word}")
