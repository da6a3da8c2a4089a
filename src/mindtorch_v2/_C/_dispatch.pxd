# The way of one op: layers, rules, kernels, views, and what is recorded of it.
from mindtorch_v2._C.python cimport *
from mindtorch_v2._C.library cimport *
from mindtorch_v2._C._tensor cimport *
from mindtorch_v2._C._row cimport *

cdef enum:
    META_DIMS = 6
    MAX_OUTPUTS = 1 << 20
    # Numbers grow along the graph: a node is later than what it reads. Those between are for refresh_view's nodes, which
    # come into being after their readers.
    SEQUENCE_STEP = 8

cdef enum:
    N_EMPTY = 1
    N_ZEROS, N_ONES, N_FULL, N_CLONE, N_CONTIGUOUS, N_TO_COPY, N_COPY_, N_RESHAPE, N_ZERO_, N_EMPTY_LIKE, N_ZEROS_LIKE
    N_ONES_LIKE, N_EMPTY_STRIDED

cdef enum:
    MAX_EACH_ARGS = 8

cdef extern from "graph.h" namespace "mt":
    cdef cppclass Refs:
        PyObject** at
        int n
        void make(int) except +
        void set(int, PyObject*)
        void put(int, PyObject*)
        PyObject* take(int)

cdef struct OutMeta:                             # of one forward output: what its gradient must look like
    int rank, dt, dev, index
    int64_t sizes[META_DIMS]
    int64_t* many                                # the sizes when rank > META_DIMS

# ---- classes
cdef class Node:
    cdef readonly Overload op
    cdef tuple links                             # per input: Node, leaf Tensor or None; then the saved values
    cdef int ntargets                            # how many of the links are inputs
    cdef int32_t* target_nr                      # few_nr, or a block of its own
    cdef int32_t few_nr[4]
    cdef uint32_t versions[MAX_SAVED]
    cdef uint64_t mask                           # which saved values are filled
    cdef uint64_t needs                          # which inputs need a gradient
    cdef uint64_t sequence
    cdef int noutputs, saved_outputs
    cdef OutMeta* metas
    cdef OutMeta meta0
    cdef bint released
    cdef list pre_hooks                          # per output: list of dicts of hooks, or None
    cdef dict post_hooks
    cdef dict node_pre_hooks
    cdef object metadata_object                  # made when asked for
    cdef str trace


cdef class DeviceKernel:
    cdef int launch(self, Overload ov, tuple results, PyObject** s) except -1
    cdef bint takes_tensors(self, tuple results, PyObject** s) except -1


cdef class ListKernel:
    cdef tuple launch(self, Foreach row, tuple args, Py_ssize_t n)


cdef class Foreach:
    cdef readonly object each                    # an op, or a function that takes the row's arguments as they are
    cdef readonly str schema
    cdef readonly object npu                     # its call for all items (_row.Npu), or None
    cdef int nparams, nargs
    cdef int first, lists                        # where the first list is; how many there are, new results among them
    cdef int kind[MAX_PARAMS]
    cdef int at[MAX_EACH_ARGS]                   # the parameter that each argument of `each` is
    cdef tuple keywords, defaults                # names of the last arguments; the row's defaults
    cdef bint changes                            # the first list is changed in place, and is the result
    cdef bint norm                               # one number a tensor is the result
    cdef list kernels                            # by device code: a ListKernel, None: not asked yet, False: there is none

    cdef tuple own(self, tuple args)
    cdef Py_ssize_t length(self, tuple args) except -1
    cdef tuple one_by_one(self, tuple args, Py_ssize_t n)
    cdef tuple at_once(self, tuple args, Py_ssize_t n)


cdef class Op:
    cdef vectorcallfunc vectorcall
    cdef readonly str name
    cdef list rows                               # its overloads; shared with the in-place form, only ever added to
    cdef readonly Op inplace_of                  # the functional op whose in-place form this is, or None
    cdef readonly str namespace
    cdef unsigned char cast_policy[NUM_DEVICES]            # per device type: what autocast does, in any overload
    cdef public object doc


cdef class _HotOps:
    cdef public Op add, add_, sub, sub_, rsub, mul, mul_, div, div_, floor_divide, remainder, pow, matmul, neg, abs
    cdef public Op bitwise_and, bitwise_or, bitwise_xor, bitwise_not, bitwise_left_shift, bitwise_right_shift
    cdef public Op lt, le, eq, ne, gt, ge
    cdef public Op copy_, zero_, fill_, clone, view, as_strided, select, slice, unsqueeze, expand, alias, detach
    cdef public Op _to_copy, index, _index_put_list_, view_as_real, view_as_complex, _conj, _neg_view

# ---- state
cdef object disabled_function
cdef _HotOps hot

# ---- functions
cdef object add_hook(dict hooks, object fn)
cdef tuple meta_shape(OutMeta* m)
cdef object edge_of(TensorBase t, int32_t* nr)
cdef Node record(Overload ov, PyObject** s)
cdef int attach(Node node, TensorBase out, int nr, Overload ov) except -1
cdef dict hooks_at(Node node, int nr)
cdef int refresh_view(TensorBase t) except -1
cdef list hook_values(object hook, list were, object got, bint alike)
cdef object run_tensor_hooks(dict hooks, object grad)
cdef list list_of_refs(Refs* refs)
cdef int refs_of_list(Refs* refs, list items) except -1
cdef int release(Node node) except -1
cdef int compute(Node node, Refs* grads, Refs* results) except -1
cdef int accumulate(TensorBase leaf, TensorBase grad, bint create_graph) except -1
cdef object sum_of(object a, object b)
cdef PyObject* op_vectorcall(PyObject* self, PyObject** args, size_t nargsf, PyObject* kwnames) except NULL
cdef object call_override(object func, PyObject** args, Py_ssize_t nargs, PyObject* kwnames)
cdef bint has_function_modes()
cdef int device_kernel(Overload ov, int dev, tuple results, PyObject** s) except -1
cdef int resize_tensor(TensorBase t, int rank, const int64_t* sizes) except -1
cdef object run_view(Overload ov, PyObject** s)
cdef bint view_strides(TensorBase self, const int64_t* sizes, int n, int64_t* strides) noexcept
cdef int set_zero(TensorBase t) except -1
cdef int fill_new(TensorBase r, object value, int id) except -1

# ---- inlined
cdef inline bint same_place(TensorBase a, TensorBase b) noexcept:
    return ptr_of(a) == ptr_of(b) and a.dt == b.dt and same_shape(a, b) and \
        memcmp(a.strides, b.strides, a.rank * sizeof(int64_t)) == 0


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
