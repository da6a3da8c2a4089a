# Plans: how an aclnn op takes the arguments of an op row. They are made in _backends/npu/aclnn.py, launched in launch.pxi.

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

    def set_constant(self, int i, value):
        """Argument i, a constant, is this from now on; what was prepared with the former one is not found again."""
        global npu_plans
        if not 0 <= i < self.n or self.source[i] != FROM_CONSTANT:
            raise ValueError(f"argument {i} of {self!r} is no constant")
        self.constants[self.at[i]] = value
        npu_plans += 1
        self.id = npu_plans

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
