# dtypes, devices, layouts and memory formats as Python objects, and torch's type promotion.

cdef class dtype:
    """The type of a tensor's items."""

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


def promote_types(dtype type1, dtype type2) -> "dtype":
    """The smallest dtype that both can be cast to."""
    return dtypes[promote(type1._id, type2._id)]


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


# ---- layouts and memory formats -----------------------------------------------------------------------------
cdef class layout:
    """How a tensor's items are kept."""
    def __repr__(self) -> str:
        return "torch." + self.name
    def __reduce__(self) -> tuple:
        return _named_constant, (self.name,)

cdef class memory_format:
    """In which order the dims of a tensor lie in memory."""
    def __repr__(self) -> str:
        return "torch." + self.name
    def __reduce__(self) -> tuple:
        return _named_constant, (self.name,)


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
        l = layout.__new__(layout)
        l.name = name
        constants[name] = l

_make_constants()


TYPE_WORDS = ("Bool", "Byte", "Char", "Short", "Int", "Long", "Half", "BFloat16", "Float", "Double",
              "ComplexFloat", "ComplexDouble")


cdef str type_word(int dt):
    return TYPE_WORDS[dt]


TYPE_NAMES = ("bool", "unsigned char", "signed char", "short", "int", "long", "c10::Half", "c10::BFloat16", "float",
              "double", "c10::complex<float>", "c10::complex<double>")


cdef str type_name(int dt):
    return TYPE_NAMES[dt]


cdef str cpp_name(int dt):
    """What C++ calls the type of the items."""
    return {"long": "long int", "short": "short int"}.get(TYPE_NAMES[dt], TYPE_NAMES[dt])
