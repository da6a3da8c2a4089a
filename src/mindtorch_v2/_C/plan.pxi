# Plans: how an aclnn op takes the arguments of an op row. They are made in _backends/npu/aclnn.py, launched in launch.pxi.

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

# What NpuPlan takes, for who makes plans (_backends/npu/aclnn.py): sources; readings and kinds of arguments by their words.
PLAN_SOURCES = (FROM_PARAM, FROM_RESULT, FROM_CONSTANT)
PLAN_READINGS = {"": READ_PLAIN, "mT": READ_TURNED, "row": READ_ROW, "rows": READ_ROWS, "size": READ_SIZE,
                 "choice": READ_CHOICE, "seed": READ_SEED, "offset": READ_OFFSET, "ones": READ_ONES,
                 "causal": READ_CAUSAL, "scratch": READ_SCRATCH}
PLAN_KINDS = {"tensor": kTensor, "out": kOut, "inout": kInout, "tensors": kTensors, "outs": kOuts, "inouts": kInouts,
              "scalar": kScalar, "scalars": kScalars, "ints": kInts, "floats": kFloats, "bools": kBools,
              "string": kString, "int64": kInt64Value, "int32": kInt32Value, "int8": kInt8Value, "uint64": kUint64,
              "bool": kBoolValue, "dtype": kDtype, "double": kDoubleValue, "float": kFloatValue}

cdef uint64_t npu_plans = 0                      # made until now


cdef class NpuPlan(DeviceKernel):
    """How an aclnn op takes the arguments of an op row."""
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

    def __init__(self, str name, size_t first, size_t second, list arguments, bint kept=True):
        """arguments: (kind, Source, dense, dtypes as bits, ranks as bits) of each."""
        global npu_plans
        if self.id:
            raise RuntimeError(f"{self!r} is made already")
        if len(arguments) > MAX_NPU_ARGS:
            raise ValueError(f"{name} takes {len(arguments)} arguments; the launcher takes {MAX_NPU_ARGS}")
        if not first or not second:
            raise ValueError(f"{name} has no functions")
        self.name, self.kept, self.with_number, self.needed = name, kept, [None] * MAX_PARAMS, -1
        self.first, self.second, self.n, self.constants = <void*>first, <void*>second, len(arguments), []
        self.sources = self.n
        for i, (kind, source, dense, takes, ranks) in enumerate(arguments):
            self.kind[i], self.dense[i], self.takes[i], self.ranks[i] = kind, dense, takes, ranks
            self.set_source(i, source)
        npu_plans += 1
        self.id = npu_plans

    cdef int set_source(self, int i, source) except -1:
        """Writes a Source of aclnn.py to place i, and what it is made of behind the others."""
        kind, at, reading, detail, otherwise = source
        if i >= MAX_SOURCES:
            raise ValueError(f"{self.name} reads more than {MAX_SOURCES} sources")
        if not FROM_PARAM <= kind <= FROM_CONSTANT or not READ_PLAIN <= reading <= READ_SCRATCH or \
                (kind != FROM_CONSTANT and not 0 <= at < MAX_NPU_ARGS) or (reading >= READ_ONES and detail is None):
            raise ValueError(f"{self.name} cannot read {source}")
        self.source[i], self.reading[i] = kind, reading
        if kind == FROM_CONSTANT:
            self.constants.append(at)
            self.at[i] = len(self.constants) - 1
        else:
            self.at[i] = at
        if kind == FROM_PARAM:
            self.params = max(self.params, self.at[i] + 1)
        elif kind == FROM_RESULT:
            self.results = max(self.results, self.at[i] + 1)
        if reading == READ_SIZE:
            self.detail[i] = detail
        elif reading == READ_CHOICE:
            self.constants.append(detail)
            self.detail[i] = len(self.constants) - 1
        elif detail is not None:
            self.detail[i] = self.add_source(detail)
        self.instead[i] = -1 if otherwise is None else self.add_source(otherwise)
        return 0

    cdef int add_source(self, source) except -1:
        cdef int i = self.sources
        self.sources += 1
        self.set_source(i, source)
        return i

    cdef int launch(self, Overload ov, tuple results, PyObject** s) except -1:
        return npu_kernel(ov, self, results, s)

    cdef bint takes_tensors(self, tuple results, PyObject** s) except -1:
        return takes_dtypes(self, results, s)

    def for_number(self, int param, NpuPlan plan not None):
        """The plan that serves where parameter param is a number."""
        self.with_number[param], self.takes_numbers = plan, True

    def where_none(self, int param, NpuPlan plan not None):
        """The plan that serves where parameter param is None."""
        self.needed, self.without_optional = param, plan

    def __repr__(self):
        return f"<NpuPlan {self.name}>"
