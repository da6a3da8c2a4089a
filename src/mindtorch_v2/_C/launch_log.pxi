# The last launches on an npu, and calls in words: for the message about a call that CANN or the device refused.

cdef extern from *:
    """
    static mt::npu::Launched npu_launched[32];   // the next takes the place of the oldest
    """
    Launched* npu_launched
cdef unsigned npu_launches = 0
cdef object npu_line_of_program = None           # says which line of the program launches, where a setting keeps that
cdef list npu_lines = [""] * 32


cdef inline int note_launched(NpuPlan plan, NpuCall* call, int device) except -1:
    global npu_launches
    cdef Launched* noted = &npu_launched[npu_launches % 32]
    cdef PyObject* before = <PyObject*>noted.plan
    npu_launches += 1
    Py_INCREF(plan)
    noted.plan, noted.device = <void*>plan, device
    noted.key.swap(call.key)                     # the call no longer needs it
    if npu_line_of_program is not None:
        npu_lines[(npu_launches - 1) % 32] = npu_line_of_program()
    if before != NULL:
        Py_DECREF(<object>before)
    return 0


def _npu_keep_launch_lines(line_of_program: object) -> None:
    """Keeps what a function says for every launch: the line of the program that it came from. None: keeps nothing."""
    global npu_line_of_program
    npu_line_of_program = line_of_program
    npu_lines[:] = [""] * 32


def _npu_last_launches(int device):
    """(op, a description of its arguments and, where recorded, the Python line) of the last launches on a device, the newest first."""
    cdef unsigned i
    cdef Launched* noted
    cdef list found = []
    for i in range(1, 33):
        noted = &npu_launched[(npu_launches - i) % 32]
        if noted.plan != NULL and noted.device == device:
            line = npu_lines[(npu_launches - i) % 32]
            found.append(((<NpuPlan>noted.plan).name, call_in_words(<NpuPlan>noted.plan, noted.key) + (line and f" at {line}")))
    return found


cdef str call_in_words(NpuPlan plan, const CallKey& key):
    """The arguments of a call as its key holds them (launch.h): "aclnnExp(float32[3, 4], float32[3, 4])"."""
    cdef size_t at = 1
    cdef int i, kind
    cdef list words = []
    for i in range(plan.n):
        kind = plan.kind[i]
        if kind <= kInout:
            words.append(tensor_in_words(key, &at))
        elif kind == kDoubleValue or kind == kFloatValue:
            words.append(repr(as_double(key[at])))
            at += 1
        elif kind == kString or kind <= kBools:
            words.append(list_in_words(kind, key, &at))
        else:
            words.append(str(<int64_t>key[at]))
            at += 1
    return f"{plan.name}({', '.join(words)})"


cdef str tensor_in_words(const CallKey& key, size_t* at):
    cdef uint64_t word = key[at[0]]              # rank + 1, dtype, whether it is dense, whether it is all of its storage
    cdef int32_t ndim = <int32_t>(word >> 32) - 1, dtype = <int32_t>(word & 0xFFFFFFFF) >> 2
    cdef int i
    if ndim < 0:
        at[0] += 1
        return "None"
    sizes = [<int64_t>key[at[0] + 1 + i] for i in range(ndim)]
    at[0] += 1 + ndim + (0 if word & 1 else 2) + (0 if word & 2 else ndim)   # sizes, offset and items, strides
    name = next((DTYPE_NAMES[i] for i in range(kNumDTypes) if ACL_DTYPES[i] == dtype), f"dtype {dtype}")
    return f"{name}{sizes}"


cdef str list_in_words(int kind, const CallKey& key, size_t* at):
    cdef size_t i, count = key[at[0]] >> 1
    cdef bint given = key[at[0]] & 1
    cdef list words = []
    at[0] += 1
    for i in range(count):
        if kind <= kInouts:
            words.append(tensor_in_words(key, at))
            continue
        if kind == kScalar or kind == kScalars:  # dtype, value, imaginary part
            words.append(str(<int64_t>key[at[0] + 1]) if key[at[0]] == ACL_INT64 or key[at[0]] == ACL_BOOL else
                         repr(as_double(key[at[0] + 1])))
            at[0] += 2
        else:
            words.append(repr(as_double(key[at[0]])) if kind == kFloats else chr(key[at[0]]) if kind == kString else
                         str(<int64_t>key[at[0]]))
        at[0] += 1
    if not given:
        return "None"
    if kind == kString:
        return repr("".join(words))
    if kind == kScalar:
        return words[0]
    if len(words) > 8:
        words[8:] = [f"and {len(words) - 8} more"]
    return f"[{', '.join(words)}]"


cdef inline double as_double(uint64_t bits) noexcept:
    cdef double x
    memcpy(&x, &bits, 8)
    return x
