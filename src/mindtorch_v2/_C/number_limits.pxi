# Numbers that do not fit: into 64 bits, or into the dtype that they are to become. And the fill that checks first.

from libc.math cimport isinf, isnan


# What torch calls an integer where a number does not fit, and the largest number that fits a dtype.
cdef dict C_WORDS = {kUInt8: "uint8_t", kInt8: "int8_t", kInt16: "int16_t", kInt64: "int64_t", kUInt16: "uint16_t",
                     kUInt32: "uint32_t", kUInt64: "uint64_t"}
cdef dict LARGEST = {kBool: 1, kUInt8: 255, kInt8: 127, kInt16: 2**15 - 1, kInt32: 2**31 - 1, kInt64: 2**63 - 1,
                     kUInt16: 2**16 - 1, kUInt32: 2**32 - 1, kUInt64: 2**64 - 1, kHalf: 65504.0,
                     kBFloat16: 3.3895313892515355e38, kFloat8_e4m3fn: 448.0, kFloat8_e5m2: 57344.0, kFloat8_e4m3fnuz: 240.0,
                     kFloat8_e5m2fnuz: 57344.0, kFloat8_e8m0fnu: 2.0**127, kFloat: 3.4028234663852886e38,
                     kDouble: sys.float_info.max, kComplexFloat: 3.4028234663852886e38, kComplexDouble: sys.float_info.max,
                     kComplexHalf: sys.float_info.max}


def _check_fits(v, dtype d not None, bint math=False):
    """Raises where torch refuses to write the number to a tensor of that dtype, or (math) to compute with it there."""
    check_fits(v, math_dtype(d._id) if math else d._id)


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
        bad = not (-largest if is_unsigned(dt) else -largest - 1) <= v <= largest
    else:
        bad = isnan(a.f) or not (0 if is_unsigned(dt) else -<double>largest - 1) <= a.f <= <double>largest
    if bad:
        raise RuntimeError(f"value cannot be converted to type {C_WORDS.get(dt, TYPE_NAMES[dt])} without overflow")
    return 0


cdef inline bint is_unsigned(int dt) noexcept:
    return dt == kUInt8 or kUInt16 <= dt <= kUInt64


cdef inline bint beyond(double x, double largest) noexcept:
    """Whether a number turns into inf that is none."""
    return not (isnan(x) or isinf(x)) and not -largest <= x <= largest


cdef int math_dtype(int dt) noexcept:
    """What torch computes in: 16 bits in float32."""
    return wide_of(<DType>dt)


cdef int single_dtype(int dt) noexcept:
    """What a number has to fit that becomes a single item: of 16 bits torch takes any double, and makes inf of it."""
    return kDouble if dt == kHalf or dt == kBFloat16 else dt


cdef int fill_with(TensorBase t, object value) except -1:
    """Every item of t becomes the number."""
    global fill_kernel
    cdef View v
    cdef Storage* storage
    cdef Attr attr
    cdef Args args
    if t.count == 0 or t.dev == META:
        return check_fits(value, t.dt)
    if t.dev != CPU:
        raise NotImplementedError("fill on a device goes through its own op")
    if fill_kernel == NULL:
        fill_kernel = kernel_named(b"fill")
    check_fits(value, single_dtype(t.dt) if t.count == 1 else t.dt)
    number_attr(value, &attr)
    before_write(t)
    v = view_of(t)
    args.t, args.nt, args.a, args.na = &v, 1, &attr, 1
    if t.count > NOGIL_ITEMS:
        storage = t.st
        run_unlocked(fill_kernel, &args, &v, &storage)
    else:
        fill_kernel(args)
    return 0
