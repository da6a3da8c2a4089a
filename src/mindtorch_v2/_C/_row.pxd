# What an op row compiles to, once, and how the arguments of a call are bound to it.
from mindtorch_v2._C.python cimport *
from mindtorch_v2._C.library cimport *
from mindtorch_v2._C._tensor cimport *

cdef enum:
    K_TENSOR, K_TENSORS, K_SCALAR, K_INT, K_INTS, K_FLOAT, K_FLOATS, K_BOOL, K_BOOLS, K_STR
    K_DTYPE, K_DEVICE, K_LAYOUT, K_FORMAT, K_GENERATOR, K_SCALARS, K_ANY
    MAX_PARAMS = 48                              # torch_npu's attention has 45
    MAX_SAVED = 16
    KEEPS_CHANNELS_LAST = 1                      # channels last where an input named is, contiguous else
    KEEPS_STRIDES = 2                            # the order of memory of an input of the same shape
    KEEPS_COLUMNS = 3                            # matrices column by column, in the outputs that format_from names
    KEEPS_WALK = 4                               # the order in which a walk over self and the tensors that index it goes
    MAX_INPUTS = 8                               # of one formula
    MAX_FORMULA_ARGS = 24
    VIEW_WORDS = 4                               # sizes of View and Attr in 8-byte words; asserted in python.pxd
    ATTR_WORDS = 8

cdef enum:
    F_COMPOSITE, F_POINTWISE, F_KERNEL, F_VIEW, F_NATIVE
    # dtype rules of pointwise ops
    P_PROMOTE = 0
    P_FLOAT = 1
    P_BOOL = 2
    P_REAL = 3
    P_FLOAT_REAL = 4

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

cdef struct Binding:
    PyObject* slot[MAX_PARAMS]
    PyObject* temp                               # an owned tuple made of varargs, or NULL
    PyObject* out                                # borrowed, from out=
    bint foreign                                 # a tensor argument is of a subclass that may override

# ---- classes
cdef class Formula:
    cdef object fn
    cdef int ninputs
    cdef int inputs[MAX_INPUTS]                  # ordinals among the op's tensor parameters
    cdef int nargs
    cdef int source[MAX_FORMULA_ARGS]            # an A_ code, or an index into the node's saved values
    cdef uint64_t needs                          # the same as bits
    cdef uint64_t mask                           # saved values it needs
    cdef bint joint                              # gives a tuple, one gradient per input


cdef class Overload:
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
    cdef bint keeps_lists                        # its body returns the list that it got
    cdef bint holey                              # it is a Tensor?[]: None may stand for a tensor
    cdef bint one_int                            # a single int may stand for its int[]
    cdef readonly bint mutates                   # the schema changes self in place (uniform_)
    cdef readonly bint numbers                   # Tensor parameters accept Python numbers
    cdef bint copies_self                            # the kernel's output starts as a copy of self
    cdef int family, mode, native_id
    cdef readonly str view_kind                  # of a view: which one, a key of VIEW_IDS; else None
    cdef int generator_at                        # where it takes a Generator; -1: nowhere
    cdef int pin_at                              # where a composite has pin_memory; -1: nowhere
    cdef unsigned char keeps_format              # whether outputs lie in memory as an input does: a word of KEEPS
    cdef uint64_t format_from                    # the parameters that say so, as bits
    cdef int columns_if                          # the flag without which KEEPS_COLUMNS gives rows; -1: none
    cdef uint64_t writes                         # the parameters besides self whose memory a kernel changes, as bits
    cdef int guard                               # which arguments are refused: a word of GUARDS
    cdef object rule
    cdef readonly object body                    # the composite
    cdef dict refuses                            # kind of dtype -> what torch says there, or None: see no_dtype
    cdef const Pointwise* pw
    cdef Attr* default_attr                      # of a pointwise op: its non-tensor arguments when all are defaults
    cdef Kernel kernel
    cdef int32_t rare                            # the rare dtypes that the kernel takes, as bits
    cdef list kernels                            # per device type: callable(outs, args) or None
    cdef readonly object npu                     # its calls on an npu (_row.Npu), or None
    cdef bint tracked                            # the row has formulas of its own
    cdef readonly bint takes_out                 # whether torch offers out=
    cdef bint out_apart                          # out= must not share memory with an argument
    cdef object out_body                         # what serves out= in place of the op; None: the op, and a copy
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
    cdef object written_class                    # the same of what was written to out=
    # what few calls look at comes last: the fields before share cache lines
    cdef int number_first                        # a number may stand for the first tensor; 2: for all of them
    cdef unsigned char whole                     # dispatch modes and classes see the composite: a word of WHOLE
    cdef uint64_t fixed                          # the tensors that must not need a gradient, as bits
    cdef str fixed_name                          # the name of the op that is said to have none
    cdef str real_name                           # the name in which a history of complex numbers is refused, or None
    cdef bint bias_first                         # backward reaches its bias first, as that of torch's addmm(bias, …)
    cdef bint keeps                              # what it saves of its first argument outlives changes of that
    cdef bint one_node                           # the history of the composite is one node, not that of its parts
    cdef uint64_t lacks                          # dtypes that torch has no kernel for, as bits
    cdef object shown                            # what layers see in its place: (op, further arguments, by name); or None
    cdef object several                          # of a row that is several ops in torch: the name of a node; or None


cdef class OpDescription:
    pass


cdef class Op:
    cdef vectorcallfunc vectorcall
    cdef readonly str name
    cdef list rows                               # its overloads; shared with the in-place form, only ever added to
    cdef readonly Op inplace_of                  # the functional op whose in-place form this is, or None
    cdef readonly str namespace
    cdef readonly Op function                    # what is called: the op itself; of a method, the op that it is
    cdef unsigned char cast_policy[NUM_DEVICES]            # per device type: what autocast does, in any overload
    cdef OpDescription description
    cdef public object doc                       # a sentence that says what it does, or None


cdef class OpMethod(Op):
    pass


cdef class _HotOps:
    cdef public Op add, add_, sub, sub_, rsub, mul, mul_, div, div_, floor_divide, remainder, pow, matmul, mm, mv, dot, neg, abs
    cdef public Op bitwise_and, bitwise_or, bitwise_xor, bitwise_not, bitwise_left_shift, bitwise_right_shift
    cdef public Op floor_divide_, remainder_, pow_, bitwise_and_, bitwise_or_, bitwise_xor_, bitwise_left_shift_
    cdef public Op bitwise_right_shift_
    cdef public Op lt, le, eq, ne, gt, ge
    cdef public Op copy_, zero_, fill_, masked_fill_, clone, view, as_strided, select, slice, unsqueeze, expand, alias, detach
    cdef public Op _to_copy, index, _index_put_list_, view_as_real, view_as_complex, _conj, _neg_view, _local_scalar_dense


# ---- state
cdef dict all_ops
cdef frozenset hot_names
cdef _HotOps hot

# ---- functions
cdef bint fits_int(PyObject* o)
cdef bint fits(Overload ov, int p, PyObject* o)
cdef int bind(Overload ov, PyObject** args, Py_ssize_t nargs, PyObject* kwnames, Binding* b) except -1
cdef int accept(Overload ov, int p, PyObject* o, Binding* b) except -1
cdef int bind_slots(Op op, Overload ov, tuple slots, object out, Binding* b) except -1
cdef object plain_int(object o)
cdef int hold(Binding* b, object o) except -1
cdef int plain(Binding* b, int p, object value) except -1
cdef bint suits_out(Overload ov, PyObject* out)
cdef int check_scalars(Overload ov, PyObject** s, int dt) except -1


# ---- inlined
cdef inline object hot_call1(Op op, object a):
    cdef PyObject* args[1]
    args[0] = <PyObject*>a
    return steal(op.vectorcall(<PyObject*>op, args, 1, NULL))


cdef inline object hot_call2(Op op, object a, object b):
    cdef PyObject* args[2]
    args[0], args[1] = <PyObject*>a, <PyObject*>b
    return steal(op.vectorcall(<PyObject*>op, args, 2, NULL))


cdef inline object hot_call3(Op op, object a, object b, object c):
    cdef PyObject* args[3]
    args[0], args[1], args[2] = <PyObject*>a, <PyObject*>b, <PyObject*>c
    return steal(op.vectorcall(<PyObject*>op, args, 3, NULL))


cdef inline PyObject** items_of(PyObject* o) noexcept:
    """The items of a tuple or list."""
    return PySequence_Fast_ITEMS(<object>o)


cdef inline Py_ssize_t count_items(PyObject* o) noexcept:
    """Of a Tensor[], which binding has made a tuple, or autocast a list."""
    return 0 if <object>o is None else PyTuple_GET_SIZE(<object>o) if PyTuple_Check(<object>o) else \
        PyList_GET_SIZE(<object>o)
