# The way of one op: layers, rules, kernels, views, and what is recorded of it.
from mindtorch_v2._C.python cimport *
from mindtorch_v2._C.library cimport *
from mindtorch_v2._C._tensor cimport *
from mindtorch_v2._C._row cimport *
from mindtorch_v2._C._graph cimport *

cdef enum:
    N_EMPTY = 1
    N_ZEROS, N_ONES, N_FULL, N_CLONE, N_CONTIGUOUS, N_TO_COPY, N_COPY_, N_RESHAPE, N_ZERO_, N_LAZY_CLONE, N_EMPTY_LIKE
    N_ZEROS_LIKE, N_ONES_LIKE, N_EMPTY_STRIDED

cdef enum:                                       # the words of WHOLE (define.pxi), in its order
    W_PARTS, W_WHOLE, W_UNRECORDED, W_SINGLE

cdef enum:
    MAX_EACH_ARGS = 8

# ---- classes
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
    cdef list kernels                            # by device code: a ListKernel, None: not looked up yet, False: there is none

    cdef tuple own(self, tuple args)
    cdef Py_ssize_t length(self, tuple args) except -1
    cdef tuple one_by_one(self, tuple args, Py_ssize_t n)
    cdef tuple at_once(self, tuple args, Py_ssize_t n)


# ---- state
cdef object disabled_function
cdef bint fills_memory

# ---- functions
cdef PyObject* op_vectorcall(PyObject* self, PyObject** args, size_t nargsf, PyObject* kwnames) except NULL
cdef object call_override(object func, PyObject** args, Py_ssize_t nargs, PyObject* kwnames)
cdef bint has_function_modes()
cdef int device_kernel(Overload ov, int dev, tuple results, PyObject** s) except -1
cdef int resize_tensor(TensorBase t, int rank, const int64_t* sizes) except -1
cdef object run_view(Overload ov, PyObject** s)
cdef int set_zero(TensorBase t) except -1
cdef int fill_new(TensorBase r, object value, int id) except -1
cdef int fill_unset(TensorBase r, int64_t first) except -1

# ---- inlined
cdef inline bint same_place(TensorBase a, TensorBase b) noexcept:
    return ptr_of(a) == ptr_of(b) and a.dt == b.dt and same_shape(a, b) and \
        memcmp(a.strides, b.strides, a.rank * sizeof(int64_t)) == 0
cdef int check_writable(TensorBase self, bint may_overlap=*) except -1
