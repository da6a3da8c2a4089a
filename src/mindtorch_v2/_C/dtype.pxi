# dtypes, layouts and memory formats as Python objects, and torch's type promotion.

cdef class dtype:
    """The type of a tensor's items."""

    @property
    def is_signed(self) -> bool:
        if kBits1x8 <= self._id <= kBits16:
            raise RuntimeError("Bits types are undefined")
        if kQInt8 <= self._id <= kQUInt2x4:
            raise RuntimeError("isSignedType not supported for quantized types")
        return not (self._id <= kUInt8 or kUInt16 <= self._id <= kUInt7 or self._id == kFloat8_e8m0fnu)

    @property
    def abbr(self) -> str:
        """The short name that PyTorch prints in tables: f32, bf16, i64, b8."""
        name = self._name
        if kBits1x8 <= self._id <= kBits16:
            return name.replace("bits", "b") + ("" if "x" in name else "x1")
        if self._id == kBool:
            return "b8"
        if name.lstrip("uint") in "1234567":                 # of less than a byte
            return name
        for word, letter in (("float", "f"), ("complex", "c"), ("uint", "u"), ("int", "i")):
            if name.removeprefix("b").startswith(word):
                return name.replace(word, letter).replace("_", "")
        return name

    def __repr__(self) -> str:
        return "torch." + self._name

    @property
    def __module__(self):
        return package_name             # a pickle names torch.float32

    def __reduce__(self) -> str:
        return self._name

    def to_complex(self) -> "dtype":
        return dtypes[checked_complex_of(self._id)]

    def to_real(self) -> "dtype":
        return dtypes[real_of(self._id)]


DTYPE_NAMES = tuple([dtype_name(<DType>i).decode() for i in range(kNumDTypes)])
TYPE_WORDS = tuple([dtype_word(<DType>i).decode() for i in range(kNumDTypes)])         # torch's names of scalar types
TYPE_NAMES = tuple([dtype_type(<DType>i).decode() for i in range(kNumDTypes)])         # what C++ calls the items

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
        dtypes.append(d)

_make_dtypes()


cdef int checked_complex_of(int d) except -1:
    if d < kHalf or is_float8(<DType>d) or d == kFloat4_e2m1fn_x2:
        raise RuntimeError(f"Unknown Complex ScalarType for {TYPE_WORDS[d]}")
    return complex_of(d)


cdef int promote(int a, int b) except -1:
    """The smallest dtype that holds both, as torch.promote_types."""
    cdef int t
    if a == b:
        return a
    if rare(<DType>a) or rare(<DType>b):
        return promote_rare(a, b)
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


cdef int promote_rare(int a, int b) except -1:
    """promote() where one of two dtypes, which differ, is none of the common ones. As torch, most of them promote to none."""
    cdef int t
    cdef str words = f"{TYPE_WORDS[a]} and {TYPE_WORDS[b]}"
    if kQInt8 <= a <= kQUInt2x4 or kQInt8 <= b <= kQUInt2x4:
        raise RuntimeError("promoteTypes with quantized numbers is not handled yet; figure out what the correct rules should "
                           f"be, offending types: {TYPE_WORDS[a]} {TYPE_WORDS[b]}")
    if kBits1x8 <= a <= kBits16 or kBits1x8 <= b <= kBits16:
        raise RuntimeError(f"Promotion from {words} is unsupported.")
    if is_float8(<DType>a) or is_float8(<DType>b):
        raise RuntimeError(f"Promotion for Float8 Types is not supported, attempted to promote {words}")
    if kUInt16 <= a <= kUInt7 or kUInt16 <= b <= kUInt7:
        if is_float_id(b) or is_float_id(a):
            return b if is_float_id(b) else a
        raise RuntimeError(f"Promotion for uint16, uint32, uint64 types is not supported, attempted to promote {words}")
    if a != kComplexHalf:
        t = a
        a = b
        b = t
    if a != kComplexHalf or rare(<DType>b):
        raise RuntimeError(f"Promotion from {words} is unsupported.")
    if b == kDouble or b == kComplexDouble:
        return kComplexDouble
    return kComplexFloat if b == kBFloat16 or b >= kFloat else kComplexHalf


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
        raise TypeError("invalid dtype object: only floating-point types are supported as the default type")
    if not (<dtype>d).is_floating_point:
        raise TypeError("only floating-point types are supported as the default type")
    if rare((<DType>(<dtype>d)._id)):
        raise TypeError(f"couldn't find storage object {TYPE_WORDS[(<dtype>d)._id]}Storage")
    default_dtype = (<dtype>d)._id


# ---- layouts and memory formats -----------------------------------------------------------------------------
cdef class layout:
    """How a tensor's items are kept."""
    def __repr__(self) -> str:
        return "torch." + self.name
    @property
    def __module__(self):
        return package_name
    def __reduce__(self) -> str:
        return self.name

cdef class memory_format:
    """In which order the dims of a tensor lie in memory."""
    def __repr__(self) -> str:
        return "torch." + self.name
    @property
    def __module__(self):
        return package_name
    def __reduce__(self) -> str:
        return self.name


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


cdef str type_word(int dt):
    return TYPE_WORDS[dt]


cdef str type_name(int dt):
    return TYPE_NAMES[dt]


cdef str cpp_name(int dt):
    """What C++ calls the type of the items."""
    return {"long": "long int", "short": "short int"}.get(TYPE_NAMES[dt], TYPE_NAMES[dt])


def _cpp_name(dtype d) -> str:
    return cpp_name(d._id)
