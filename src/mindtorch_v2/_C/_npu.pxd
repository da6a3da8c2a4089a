# Ascend: how an aclnn op takes the arguments of a row; contexts and streams. Nothing below knows of it.
from mindtorch_v2._C.python cimport *
from mindtorch_v2._C.library cimport *
from mindtorch_v2._C._tensor cimport *
from mindtorch_v2._C._row cimport *
from mindtorch_v2._C._graph cimport *
from mindtorch_v2._C._dispatch cimport *
from mindtorch_v2._C._autograd cimport *

cdef extern from "launch.h" namespace "mt::npu":
    enum:
        kTensor, kOut, kInout, kTensors, kOuts, kInouts, kScalar, kScalars, kInts, kFloats, kBools, kString, kDtype
        kUint64, kDoubleValue, kFloatValue
        kInt64Value "mt::npu::kInt64"            # these four are dtypes too
        kInt32Value "mt::npu::kInt32"
        kInt8Value "mt::npu::kInt8"
        kBoolValue "mt::npu::kBool"

cdef enum:
    MAX_NPU_ARGS = 64
    MAX_SOURCES = 80                             # of one plan: its arguments, and what those are made of
    MAX_RANK = 8                                 # of CANN's tensors
    FROM_PARAM = 0                               # where an argument comes from
    FROM_RESULT, FROM_CONSTANT
    READ_PLAIN = 0                               # how it is read
    READ_TURNED, READ_ROW, READ_ROWS, READ_SIZE, READ_CHOICE, READ_SEED, READ_OFFSET, READ_ONES, READ_CAUSAL
    READ_SCRATCH


# ---- classes
cdef class NpuPlan(DeviceKernel):
    cdef readonly str name
    cdef uint64_t id                             # what prepared calls are kept under: an address would be used again
    cdef int params, results                     # how many of them the arguments name
    cdef void* first
    cdef void* second
    cdef int n
    cdef int32_t kind[MAX_NPU_ARGS]
    cdef bint dense[MAX_NPU_ARGS]
    cdef uint64_t takes[MAX_NPU_ARGS]            # the dtypes that it takes, as bits; 0: no tensor, or not known
    cdef uint32_t ranks[MAX_NPU_ARGS]            # the same of the ranks
    cdef int32_t source[MAX_SOURCES]             # of every argument, and behind them of what those are made of
    cdef int32_t at[MAX_SOURCES]
    cdef int32_t reading[MAX_SOURCES]
    cdef int32_t detail[MAX_SOURCES]             # the dim of READ_SIZE, the constant of READ_CHOICE, else a source
    cdef int32_t instead[MAX_SOURCES]            # the source that stands for None; -1: there is none
    cdef int sources
    cdef list constants
    cdef bint kept                               # whether prepared calls are kept
    cdef list with_number                        # of each parameter the plan for a number there, or None
    cdef bint takes_numbers                      # there is one
    cdef int32_t needed                          # a parameter that must not be None; -1: there is none such
    cdef readonly NpuPlan without_optional       # the plan where it is
    cdef public NpuPlan in_place                 # the plan where the result is self
    cdef public object fallback                  # fn(outs, args) for dtypes or ranks that the op does not take
    cdef public object on_empty                  # fn(outs, args) where the first tensor has no items
    cdef public object on_capture                # fn(outs, args) of a random op while a graph is captured

    cdef int set_source(self, int i, source) except -1
    cdef int add_source(self, source) except -1
    cdef int launch(self, Overload ov, tuple results, PyObject** s) except -1
    cdef bint takes_tensors(self, tuple results, PyObject** s) except -1

# ---- functions
cdef int bind_device(int device) except -1
cdef uint64_t stream_of(int device) noexcept
cdef uint64_t start_of(int device) noexcept
cdef bint graphs_are_captured() except -1
