# Numbers that do not fit: into 64 bits, or into the dtype that they are to become.

from libc.math cimport isinf, isnan


cdef int wide_attr(object v, Attr* a) except -1:
    """number_attr() of an int beyond int64: as torch, whatever fits in 64 bits without a sign is read as those bits."""
    cdef uint64_t bits = PyLong_AsUnsignedLongLong(v)
    a.i, a.f = <int64_t>bits, <double>bits
    return 0


# What torch calls each dtype where a number does not fit, and the largest number that does.
cdef tuple C_WORDS = ("bool", "uint8_t", "int8_t", "int16_t", "int", "int64_t", "c10::Half", "c10::BFloat16", "float", "double",
                      "c10::complex<float>", "c10::complex<double>")
cdef tuple LARGEST = (1, 255, 127, 32767, 2**31 - 1, 2**63 - 1, 65504.0, 3.3895313892515355e38, 3.4028234663852886e38,
                      sys.float_info.max, 3.4028234663852886e38, sys.float_info.max)


def _check_fits(v, dtype d not None, bint math=False):
    """Raises where torch refuses to write the number to a tensor of that dtype, or (math) to compute with it there."""
    check_fits(v, math_dtype(d._id) if math else d._id)


cdef inline int check_fits(object v, int dt) except -1:
    cdef int wide = 0
    if PyFloat_CheckExact(v):
        if dt >= kHalf and -65504.0 <= PyFloat_AS_DOUBLE(v) <= 65504.0:
            return 0
    elif PyLong_CheckExact(v) and 0 <= PyLong_AsLongLongAndOverflow(v, &wide) <= 127:     # every dtype holds these
        return 0
    return check_fits_closely(v, dt)


cdef int check_fits_closely(object v, int dt) except -1:
    cdef Attr a
    cdef bint bad
    number_attr(v, &a)
    if dt == kBool:
        return 0
    largest = LARGEST[dt]
    if dt >= kComplexFloat:
        bad = beyond(a.f, largest) or beyond(a.im, largest)
    elif a.im != 0:
        bad = True
    elif dt >= kHalf:
        bad = beyond(a.f, largest)
    elif PyLong_Check(v):                        # a negative number wraps around once where there is no sign
        bad = not (-largest if dt == kUInt8 else -largest - 1) <= v <= largest
    else:
        bad = isnan(a.f) or not (0 if dt == kUInt8 else -<double>largest - 1) <= a.f <= <double>largest
    if bad:
        raise RuntimeError(f"value cannot be converted to type {C_WORDS[dt]} without overflow")
    return 0


cdef inline bint beyond(double x, double largest) noexcept:
    """Whether a number turns into inf that is none."""
    return not (isnan(x) or isinf(x)) and not -largest <= x <= largest


cdef int math_dtype(int dt) noexcept:
    """What torch computes in: 16 bits in float32."""
    return kFloat if dt == kHalf or dt == kBFloat16 else dt


cdef int single_dtype(int dt) noexcept:
    """What a number has to fit that becomes a single item: of 16 bits torch takes any double, and makes inf of it."""
    return kDouble if dt == kHalf or dt == kBFloat16 else dt


cdef int check_scalars(Overload ov, PyObject** s, int dt) except -1:
    """check_fits() for every Scalar that is not the row's default."""
    cdef int p
    for p in range(ov.nparams):
        if ov.kind[p] == K_SCALAR and s[p] != PyTuple_GET_ITEM_(ov.defaults, p) and <object>s[p] is not None:
            check_fits(<object>s[p], dt)
    return 0


cdef inline int check_wide(object o) except -1:
    """An int that stands for a number of any kind may have 64 bits without a sign."""
    cdef int beyond = 0
    PyLong_AsLongLongAndOverflow(o, &beyond)
    if beyond:
        PyLong_AsUnsignedLongLong(o)
    return 0


cdef inline int check_int(object o) except -1:
    """No rule and no kernel sees an int that 64 bits do not hold."""
    cdef int beyond = 0
    PyLong_AsLongLongAndOverflow(o, &beyond)
    if beyond:
        raise ValueError("Overflow when unpacking long long")
    return 0


cdef int check_ints(Overload ov, int p, object o) except -1:
    cdef int beyond = 0
    cdef Py_ssize_t i
    if PyLong_Check(o) and ov.list_size[p] > 0:
        return check_int(o)
    if PyLong_Check(o):
        o = (o,)
    for i in range(len(o)):
        PyLong_AsLongLongAndOverflow(<object>PyTuple_GET_ITEM_(o, i) if PyTuple_Check(o) else o[i], &beyond)
        if beyond:
            raise unpack_error(ov, p, i)
    return 0


cdef object unpack_error(Overload ov, int p, Py_ssize_t at):
    return TypeError(f"{ov.name}(): argument '{ov.names[p]}' failed to unpack the object at pos {at + 1} with error "
                     "\"Overflow when unpacking long long\"")
