# dtypes, devices, layouts and memory formats as Python objects, and torch's type promotion.

cdef class dtype:
    """The type of a tensor's items."""
    cdef readonly int _id
    cdef readonly str _name
    cdef readonly int itemsize
    cdef readonly bint is_floating_point, is_complex, is_signed

    def __repr__(self) -> str:
        return "torch." + self._name

    def __reduce__(self) -> tuple:
        return _dtype_named, (self._name,)

    def to_complex(self) -> "dtype":
        return dtypes[complex_of(self._id)]

    def to_real(self) -> "dtype":
        return dtypes[real_of(self._id)]


DTYPE_NAMES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16",
               "float32", "float64", "complex64", "complex128")
cdef list dtypes = []
cdef int default_dtype = kFloat


def _dtype_named(name) -> "dtype":
    return dtypes[DTYPE_NAMES.index(name)]


cdef _make_dtypes():
    cdef dtype d
    cdef int i
    for i in range(kNumDTypes):
        d = dtype.__new__(dtype)
        d._id = i
        d._name = DTYPE_NAMES[i]
        d.itemsize = itemsize(<DType>i)
        d.is_floating_point = kHalf <= i <= kDouble
        d.is_complex = i >= kComplexFloat
        d.is_signed = i not in (kBool, kUInt8)
        dtypes.append(d)

_make_dtypes()


cdef inline bint is_float_id(int d) noexcept nogil:
    return kHalf <= d <= kDouble

cdef inline bint is_differentiable(int d) noexcept nogil:
    return d >= kHalf

cdef inline int complex_of(int d) noexcept nogil:
    if d >= kComplexFloat:
        return d
    return kComplexDouble if d == kDouble else kComplexFloat

cdef inline int real_of(int d) noexcept nogil:
    return kFloat if d == kComplexFloat else kDouble if d == kComplexDouble else d


cdef int promote(int a, int b) noexcept nogil:
    """The smallest dtype that holds both, as torch.promote_types."""
    cdef int t
    if a == b:
        return a
    if a > b:
        t = a
        a = b
        b = t
    if b >= kComplexFloat:                       # a < b
        if a == kDouble:
            return kComplexDouble
        return b
    if b >= kHalf:
        if a == kHalf and b == kBFloat16:
            return kFloat
        return b
    if a == kBool:
        return b
    if a == kUInt8:                              # with a signed integer
        return kInt16 if b == kInt8 else b
    return b


cdef struct Promotion:
    int dims, zero, wrapped                      # -1: none yet

cdef inline void promotion_add(Promotion* p, int d, int ndim, bint is_number) noexcept nogil:
    if is_number:
        if d >= kComplexFloat:
            d = complex_of(default_dtype)
        elif d >= kHalf:
            d = default_dtype
        p.wrapped = d if p.wrapped < 0 else promote(p.wrapped, d)
    elif ndim == 0:
        p.zero = d if p.zero < 0 else promote(p.zero, d)
    else:
        p.dims = d if p.dims < 0 else promote(p.dims, d)

cdef inline int combine(int higher, int lower) noexcept nogil:
    if higher < 0:
        return lower
    if lower < 0 or higher >= kComplexFloat:
        return higher
    if higher >= kHalf:
        return complex_of(higher) if lower >= kComplexFloat else higher
    if higher == kBool or lower >= kHalf:
        return promote(higher, lower)
    return higher

cdef inline int promotion_result(Promotion* p) noexcept nogil:
    return combine(combine(p.dims, p.zero), p.wrapped)


def promote_types(dtype type1, dtype type2) -> "dtype":
    """The smallest dtype that both can be cast to."""
    return dtypes[promote(type1._id, type2._id)]


cdef inline bint castable(int src, int dst) noexcept nogil:
    """Whether a result of dtype src may be written to an output of dtype dst."""
    if src >= kComplexFloat and dst < kComplexFloat:
        return False
    if src >= kHalf and dst < kHalf:
        return False
    return not (src != kBool and dst == kBool)


def can_cast(dtype from_, dtype to) -> bool:
    """Whether from_ may be cast to to under torch's rules."""
    return castable(from_._id, to._id)


def get_default_dtype() -> "dtype":
    """The dtype of new floating-point tensors."""
    return dtypes[default_dtype]


def set_default_dtype(d) -> None:
    """Sets the dtype of new floating-point tensors."""
    global default_dtype
    if not isinstance(d, dtype):
        raise TypeError(f"invalid dtype object: {d!r}")
    if not (<dtype>d).is_floating_point:
        raise TypeError("only floating-point types are supported as the default type")
    default_dtype = (<dtype>d)._id


# ---- devices ------------------------------------------------------------------------------------------------
DEVICE_TYPES = ("cpu", "meta", "npu")
cdef enum:
    CPU = 0
    META = 1
    NPU = 2
    NUM_DEVICES = 3
cdef dict device_cache = {}
cdef object load_backend = None                  # imports the backend of a device type, at the first use of a device


cdef class device:
    """Where a tensor lives: a type and, for accelerators, an index."""
    cdef readonly str type
    cdef int code
    cdef int number                              # -1: not given

    def __init__(self, type, index=None) -> None:
        if self.type is not None:
            return                               # made before, and shared: a device never changes
        if isinstance(type, device):
            self.type, self.code, self.number = (<device>type).type, (<device>type).code, (<device>type).number
            return
        if isinstance(type, int):
            type, index = "npu", type
        if not isinstance(type, str):
            raise TypeError(f"Device must be a string, an int or a torch.device, got {builtin_type(type).__name__}")
        if not type:
            raise RuntimeError("Device string must not be empty")
        if index is not None and not isinstance(index, int):
            raise TypeError(f"device(): argument 'index' (position 2) must be int, not {builtin_type(index).__name__}")
        name, colon, number = type.partition(":")
        if colon:
            if index is not None:
                raise RuntimeError(f"type (string) must not include an index because index was passed explicitly: {type}")
            if not (number.isascii() and number.isdigit()) or (len(number) > 1 and number[0] == "0"):
                raise RuntimeError(f"Invalid device string: '{type}'")
            if len(number) > 10 or int(number) > INT_MAX:
                raise RuntimeError(f"Could not parse device index '{number}' in device string '{type}'")
            index = int(number)
        if name not in DEVICE_TYPES:
            raise RuntimeError(f"Expected one of {', '.join(DEVICE_TYPES)} device type at start of device string: {name}")
        if index is not None and index < 0:
            raise RuntimeError(f"Device index must not be negative, got {index}")
        if index is not None and index > INT_MAX:
            raise RuntimeError(f"Device index must fit in 32 bits, got {index}")
        self.type, self.code = name, DEVICE_TYPES.index(name)
        self.number = -1 if index is None else index

    @property
    def index(self) -> "int | None":
        return None if self.number < 0 else self.number

    def __repr__(self) -> str:
        return f"device(type='{self.type}')" if self.number < 0 else f"device(type='{self.type}', index={self.number})"

    def __str__(self) -> str:
        return self.type if self.number < 0 else f"{self.type}:{self.number}"

    def __eq__(self, other) -> bool:
        if not isinstance(other, device):
            return NotImplemented
        return self.code == (<device>other).code and self.number == (<device>other).number

    def __hash__(self) -> int:
        return hash((self.code, self.number))

    def __reduce__(self) -> tuple:
        return device, (self.type,) if self.number < 0 else (self.type, self.number)

    def __enter__(self) -> "device":
        push_device(self)
        return self

    def __exit__(self, *exc) -> None:
        pop_device()


builtin_type = type


cdef device device_object(int code, int number):
    key = (code, number)
    d = device_cache.get(key)
    if d is None:
        d = device.__new__(device)
        (<device>d).type, (<device>d).code, (<device>d).number = DEVICE_TYPES[code], code, number
        device_cache[key] = d
    return d


cdef extern from *:
    """
    // The npu that "npu" without an index means in the running thread.
    static thread_local int npu_current_device __attribute__((tls_model("initial-exec"))) = 0;
    static inline int npu_current() { return npu_current_device; }
    static inline void npu_set_current(int index) { npu_current_device = index; }
    """
    int npu_current()
    void npu_set_current(int)

cdef dict named_devices = {}                     # the device of a string that was read before
cdef bint npu_loaded = False


def _npu_current_device() -> int:
    """The index of the npu that the calling thread uses where none is named."""
    return npu_current()


def _npu_set_current_device(int index) -> None:
    npu_set_current(index)


cdef device as_device(object d):
    """A device from what the user gave (None: the default); accelerators get their index."""
    cdef device r
    if builtin_type(d) is str:
        r = <device>named_devices.get(d)
        if r is None:
            r = named_devices[d] = device(d)
    elif d is None:
        r = default_device()
        if r is None:
            return cpu_device
    elif isinstance(d, device):
        r = <device>d
    else:
        r = device(d)
    if r.code == NPU:
        if not npu_loaded:
            load_backend("npu")                  # it says when all of it is there
        return device_object(NPU, npu_current()) if r.number < 0 else r
    return cpu_device if r.code == CPU else r    # tensors do not keep an index of the CPU

cdef device cpu_device = device_object(CPU, -1)


def _set_backend_loader(loader) -> None:
    """What is called with a device type at its first use."""
    global load_backend
    load_backend = loader


def _npu_aclnn_available() -> bool:
    """Whether CANN's op library can be loaded on this machine."""
    return load_backend("npu").aclnn.available()


def _npu_aclnn_symbols_ok() -> bool:
    """Whether every function of CANN that the launcher needs is there."""
    return load_backend("npu").aclnn.symbols_ok()


def _set_backend_loaded(str type) -> None:
    """Says that a backend has put its hooks into the core."""
    global npu_loaded
    npu_loaded = type == "npu"


def get_default_device() -> "device":
    """Where new tensors are made."""
    return as_device(None)


# ---- layouts and memory formats -----------------------------------------------------------------------------
cdef class layout:
    """How a tensor's items are kept; only torch.strided has tensors here."""
    cdef str name
    def __repr__(self) -> str:
        return "torch." + self.name
    def __reduce__(self) -> tuple:
        return _named_constant, (self.name,)

cdef class memory_format:
    """In which order the dims of a tensor lie in memory."""
    cdef str name
    cdef int code
    def __repr__(self) -> str:
        return "torch." + self.name
    def __reduce__(self) -> tuple:
        return _named_constant, (self.name,)

cdef enum:
    CONTIGUOUS = 0
    PRESERVE = 1
    CHANNELS_LAST = 2
    CHANNELS_LAST_3D = 3

cdef dict constants = {}


def _named_constant(name):
    return constants[name]


cdef _make_constants():
    cdef memory_format f
    cdef layout l
    for code, name in enumerate(("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")):
        f = memory_format.__new__(memory_format)
        f.name, f.code = name, code
        constants[name] = f
    for name in ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged"):
        l = layout.__new__(layout)               # only strided tensors are made; the others are there to compare with
        l.name = name
        constants[name] = l

_make_constants()
