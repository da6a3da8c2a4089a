# Numbers that do not fit: into 64 bits, or into the dtype that they are to become.

from libc.math cimport isinf, isnan


cdef int wide_attr(object v, Attr* a) except -1:
    """number_attr() of an int beyond int64: as torch, whatever fits in 64 bits without a sign is read as those bits."""
    cdef uint64_t bits = PyLong_AsUnsignedLongLong(v)
    a.i, a.f = <int64_t>bits, <double>bits
    return 0


# What torch calls each dtype where a number does not fit, and the largest number that does.
cdef tuple C_WORDS = ("bool", "uint8_t", "int8_t", "int16_t", "int", "int64_t", "c10::Half", "c10::BFloat16", "float", "double")
cdef tuple LARGEST = (1, 255, 127, 32767, 2**31 - 1, 2**63 - 1, 65504.0, 3.3895313892515355e38, 3.4028234663852886e38,
                      sys.float_info.max)


def _check_fits(v, dtype d not None):
    """Raises where torch refuses to write the number to a tensor of that dtype."""
    check_fits(v, d._id)


cdef int check_fits(object v, int dt) except -1:
    cdef Attr a
    cdef bint bad
    number_attr(v, &a)
    if dt == kBool or (0 <= a.f <= 127 and a.im == 0):     # every dtype holds these
        return 0
    if dt >= kComplexFloat:
        check_fits(a.f, kFloat if dt == kComplexFloat else kDouble)
        if a.im != 0:
            check_fits(a.im, kFloat if dt == kComplexFloat else kDouble)
        return 0
    largest = LARGEST[dt]
    if a.im != 0:
        bad = True
    elif dt >= kHalf:
        bad = not (isnan(a.f) or isinf(a.f)) and not -largest <= a.f <= largest
    elif PyLong_Check(v):                        # a negative number wraps around once where there is no sign
        bad = not (-largest if dt == kUInt8 else -largest - 1) <= v <= largest
    else:
        bad = isnan(a.f) or not (0 if dt == kUInt8 else -largest - 1) <= a.f <= largest
    if bad:
        raise RuntimeError(f"value cannot be converted to type {C_WORDS[dt]} without overflow")
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
    if PyLong_Check(o):
        return check_int(o)
    for i in range(len(o)):
        PyLong_AsLongLongAndOverflow(<object>PyTuple_GET_ITEM_(o, i) if PyTuple_Check(o) else o[i], &beyond)
        if beyond:
            raise unpack_error(ov, p, i)
    return 0


cdef object unpack_error(Overload ov, int p, Py_ssize_t at):
    return TypeError(f"{ov.name}(): argument '{ov.names[p]}' failed to unpack the object at pos {at + 1} with error "
                     "\"Overflow when unpacking long long\"")
