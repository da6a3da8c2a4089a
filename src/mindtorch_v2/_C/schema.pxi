# Ops and their overloads: what a schema row becomes. How the arguments of a call are bound to it: binding.pxi.

cdef enum:
    K_TENSOR, K_TENSORS, K_SCALAR, K_INT, K_INTS, K_FLOAT, K_FLOATS, K_BOOL, K_BOOLS, K_STR
    K_DTYPE, K_DEVICE, K_LAYOUT, K_FORMAT, K_GENERATOR, K_SCALARS, K_ANY
    MAX_PARAMS = 24
    MAX_SAVED = 16
    MAX_INPUTS = 8                               # of one formula
    MAX_FORMULA_ARGS = 24
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
    cdef int inputs[MAX_INPUTS]                  # ordinals among the op's tensor parameters
    cdef int nargs
    cdef int source[MAX_FORMULA_ARGS]            # an A_ code, or an index into the node's saved values
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
    cdef readonly tuple names, defaults
    cdef int ntensors
    cdef int tensor_at[MAX_PARAMS]
    cdef bint has_list                           # a Tensor[] is among the parameters
    cdef bint holey                              # it is a Tensor?[]: None may stand for a tensor
    cdef bint one_int                            # a single int may stand for its int[]
    cdef readonly bint mutates                   # the schema changes self in place (uniform_)
    cdef readonly bint numbers                   # Tensor parameters accept Python numbers
    cdef bint copies_self                            # the kernel's output starts as a copy of self
    cdef int family, mode, native_id
    cdef int generator_at                        # where it takes a Generator; -1: nowhere
    cdef int pin_at                              # where a composite has pin_memory; -1: nowhere
    cdef int guard                               # which arguments are refused: a word of GUARDS
    cdef object rule
    cdef readonly object body                    # the composite
    cdef dict refuses                            # kind of dtype -> what torch says there, or None: see no_dtype
    cdef const Pointwise* pw
    cdef Attr* default_attr                      # of a pointwise op: its non-tensor arguments when all are defaults
    cdef Kernel kernel
    cdef list kernels                            # per device type: callable(outs, args) or None
    cdef readonly object npu                     # its calls on an npu (_row.Npu), or None
    cdef bint tracked                            # the row has formulas of its own
    cdef readonly bint takes_out                 # whether torch offers out=
    cdef readonly object batching                # how vmap treats the op: see _ops/batching.py
    cdef readonly object forward                 # its forward derivative: see _ops/forward.py
    cdef list formulas
    cdef bint differentiable
    cdef int nsaved
    cdef bint saves_results                      # some of them are outputs
    cdef uint64_t reads_grads                    # the results whose gradients formulas take, as bits
    cdef int saved_kind[MAX_SAVED]
    cdef int saved_param[MAX_SAVED]
    cdef readonly str node_name
    cdef object returns_class

    @property
    def is_composite(self):
        return self.family == F_COMPOSITE and self.body is not None

    @property
    def is_pointwise(self):
        return self.family == F_POINTWISE

    @property
    def is_view(self):
        return self.family == F_VIEW

    @property
    def view_kind(self):
        """Which view it makes: a key of VIEW_IDS; None for other ops."""
        return next((k for k, v in VIEW_IDS.items() if v == self.native_id), None) if self.family == F_VIEW else None

    @property
    def is_random(self):
        """Whether it takes a generator."""
        return self.generator_at >= 0

    @property
    def has_gradient(self):
        """Whether the row has formulas of its own."""
        return self.tracked

    def gradients(self):
        """The formulas: the names of the inputs whose gradients each gives, the function, whether it gives a tuple."""
        cdef Formula f
        cdef int i
        cdef list found = [], names
        for f in self.formulas or ():
            names = []
            for i in range(f.ninputs):
                names.append(self.names[self.tensor_at[f.inputs[i]]])
            found.append((tuple(names), f.fn, f.joint))
        return found

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
    cdef list rows                               # its overloads; shared with the in-place form, only ever added to
    cdef readonly Op inplace_of                  # the functional op whose in-place form this is, or None
    cdef readonly str namespace
    cdef unsigned char cast_policy[3]            # per device type: what autocast does, in any overload
    cdef public object doc

    def __cinit__(self, str name, Op inplace_of=None, str namespace="torch"):
        self.name = name
        self.inplace_of = inplace_of
        self.rows = [] if inplace_of is None else inplace_of.rows
        self.vectorcall = <vectorcallfunc>op_vectorcall
        self.namespace = namespace

    @property
    def overloads(self) -> "tuple[Overload, ...]":
        return tuple(self.rows)

    def __get__(self, instance, owner) -> "Any":
        return self if instance is None else PyMethod_New(self, instance)

    def __repr__(self) -> str:
        return f"<built-in function {self.name}>"

    @property
    def __name__(self) -> str:
        return self.name

    @property
    def __qualname__(self) -> str:
        return self.name

    @property
    def __module__(self) -> str:
        prefix = self.name.partition("_")[0]
        below = "." + prefix if prefix in ("linalg", "fft", "special") else ""
        return package_name + ("" if self.namespace == "torch" else ".ops." + self.namespace) + below

    # For people and their tools; made from the rows when somebody asks.
    @property
    def __doc__(self) -> str:
        return describer.document(self)

    @property
    def __signature__(self) -> "Signature":
        return describer.signature(self)

    @property
    def __text_signature__(self) -> str:
        return describer.text_signature(self)

    def __reduce__(self) -> tuple:
        return _op_named, (self.name, self.namespace)

    def __call__(self, *args, **kwargs):         # replaced by the vectorcall slot; kept for introspection
        return PyObject_Call(self, args, kwargs)


cdef dict all_ops = {}                           # (namespace, name) -> Op
cdef object describer = None


def _set_describer(module) -> None:
    """Who writes document(op), signature(op) and text_signature(op) of an op."""
    global describer
    describer = module


def _served_by(Overload ov not None, str device) -> "Any":
    """What computes a row on a device: "core" (a view, a factory), "kernel", the row's calls of CANN, "composite" or ""."""
    cdef int dev = DEVICE_TYPES.index(device)
    if ov.family == F_VIEW or ov.family == F_NATIVE:
        return "core"
    if dev == NPU:
        if ov.npu is not None:
            return ov.npu
        if not npu_loaded:
            load_backend(device)                 # its modules: a row that names no aclnn op needs no CANN to be asked
        if fused_kernel(ov, dev) is not None:
            return "kernel"
    elif ov.pw != NULL or ov.kernel != NULL or ov.kernels[dev] is not None:
        return "kernel"
    return "" if ov.body is None else "composite"


def _op_named(name, namespace="torch") -> "Op":
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
    cdef int beyond = 0
    a.given = True
    if PyFloat_CheckExact(v):
        a.f = PyFloat_AS_DOUBLE(v)
        a.i = <int64_t>a.f if -9.2e18 < a.f < 9.2e18 else 0
    elif PyLong_Check(v):
        a.i = PyLong_AsLongLongAndOverflow(v, &beyond)
        if beyond:
            return wide_attr(v, a)
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
