# Autocast: where it is on for a device type, the tensors of an op with a policy are cast before the op runs.
# Which policy an op has is said in its first row (_ops).

cdef enum:
    CAST_LOWER = 1                               # to the dtype of the block
    CAST_FLOAT                                   # to float32
    CAST_RESULT                                  # nothing is cast, but dtype=float32 where the caller gave no dtype
    CAST_WIDEST                                  # to float32 if a tensor is float32, else to the dtype of the block
    CAST_REFUSED                                 # the op overflows in float16

CAST_POLICIES = {"lower": CAST_LOWER, "float32": CAST_FLOAT, "float32 result": CAST_RESULT, "widest": CAST_WIDEST,
                 "refused": CAST_REFUSED}
cdef dict cast_weights = {}                      # (id, dtype, grad mode) -> (tensor, its version, the cast)


cdef object run_autocast(Op op, Overload ov, Binding* b):
    """run_inner() with the tensors cast as the op's policy says; inside the op autocast is off for the device type."""
    cdef PyObject** s = b.slot
    cdef int dev = cast_device(ov, s)
    cdef int policy = op.cast_policy[dev]
    cdef int before = modes().autocast
    cdef list kept = []                          # owns the casts while the slots borrow them
    if not policy or not before >> dev & 1:
        return run_inner(op, ov, b)
    if policy == CAST_REFUSED:
        raise RuntimeError(f"torch.nn.functional.{op.name} and torch.nn.BCELoss are unsafe to autocast.\nMany models "
                           "use a sigmoid layer right before the binary cross entropy layer. In this case, combine the "
                           "two layers using torch.nn.functional.binary_cross_entropy_with_logits or "
                           "torch.nn.BCEWithLogitsLoss.")
    if policy == CAST_RESULT:
        set_result_dtype(ov, s, dev)
    else:
        cast_slots(ov, s, dev, cast_target(ov, s, dev, policy), kept)
    modes().autocast = before & ~(1 << dev)
    try:
        return run_inner(op, ov, b)
    finally:
        modes().autocast = before


cdef list cast_operands(Overload ov, PyObject** s):
    """The tensors of a call, those in lists too."""
    cdef list found = []
    cdef int i
    cdef PyObject* o
    for i in range(ov.ntensors):
        o = s[ov.tensor_at[i]]
        if is_tensor(o):
            found.append(<object>o)
        elif ov.kind[ov.tensor_at[i]] == K_TENSORS and <object>o is not None:
            found.extend([t for t in <object>o if t is not None])
    return found


cdef int cast_device(Overload ov, PyObject** s) except -1:
    """The device type of a call: another than the CPU where a tensor is there."""
    for t in cast_operands(ov, s):
        if (<TensorBase>t).dev != CPU:
            return (<TensorBase>t).dev
    return CPU


cdef inline bint can_cast_to(TensorBase t, int dev) noexcept:
    return t.dev == dev and kHalf <= t.dt <= kFloat


cdef int cast_target(Overload ov, PyObject** s, int dev, int policy) except -1:
    if policy == CAST_FLOAT:
        return kFloat
    if policy == CAST_WIDEST:
        for t in cast_operands(ov, s):
            if can_cast_to(<TensorBase>t, dev) and (<TensorBase>t).dt == kFloat:
                return kFloat
    return modes().autocast_dtype[dev]


cdef int cast_slots(Overload ov, PyObject** s, int dev, int dt, list kept) except -1:
    cdef int i
    cdef PyObject* o
    for i in range(ov.ntensors):
        o = s[ov.tensor_at[i]]
        if is_tensor(o):
            made = autocast_of(<TensorBase>o, dev, dt)
        elif ov.kind[ov.tensor_at[i]] == K_TENSORS and <object>o is not None:
            made = tuple([t if t is None else autocast_of(<TensorBase>t, dev, dt) for t in <object>o])
        else:
            continue
        kept.append(made)
        s[ov.tensor_at[i]] = <PyObject*>made
    return 0


cdef int set_result_dtype(Overload ov, PyObject** s, int dev) except -1:
    if is_tensor(s[0]) and can_cast_to(<TensorBase>s[0], dev) and "dtype" in ov.names:
        at = ov.names.index("dtype")
        if <object>s[at] is None:
            s[at] = <PyObject*>dtypes[kFloat]
    return 0


cdef object autocast_of(TensorBase t, int dev, int dt):
    """t in a dtype, by an op that is recorded. Weights are cast once a block: they are used many times there."""
    if not can_cast_to(t, dev) or t.dt == dt:
        return t
    if not (modes().autocast_cache and t.requires and t.fn is None and t.base is None and t.dt == kFloat):
        return tensor_arg(hot._to_copy(t, dtype=dtypes[dt]))
    key = (id(t), dt, modes().grad)
    found = cast_weights.get(key)
    if found is not None and found[1] == version_of(t):
        return found[2]
    made = tensor_arg(hot._to_copy(t, dtype=dtypes[dt]))
    cast_weights[key] = (t, version_of(t), made)
    return made


cdef int autocast_type(str device_type) except -1:
    cdef int dev = device_code(device_type) if device_type in device_types.names[:NUM_DEVICES] else META
    if dev == META:
        known = ", ".join([name for name in device_types.names[:NUM_DEVICES] if name != "meta"])
        raise RuntimeError(f"unknown device type for autocast: {device_type!r}; the types are {known}")
    return dev


def _autocast_state(str device_type):
    """(whether it is on, the dtype)"""
    cdef int dev = autocast_type(device_type)
    return bool(modes().autocast >> dev & 1), dtypes[modes().autocast_dtype[dev]]


def _set_autocast(str device_type, enabled, d):
    """Switches autocast of a device type, and sets its dtype; None leaves one as it is."""
    cdef int dev = autocast_type(device_type)
    if d is not None:
        modes().autocast_dtype[dev] = dtype_id(d)
    if enabled is not None:
        modes().autocast = modes().autocast | 1 << dev if enabled else modes().autocast & ~(1 << dev)


def _is_autocast_cache_enabled():
    """Whether casts of weights are kept."""
    return modes().autocast_cache


def _set_autocast_cache_enabled(bint enabled):
    """Whether casts of weights are kept."""
    modes().autocast_cache = enabled


def _autocast_nesting(int change):
    """Counts the open blocks; returns how many there are."""
    modes().autocast_depth = modes().autocast_depth + change   # not +=: Cython would add to a copy
    return modes().autocast_depth


def _clear_autocast_cache():
    """Forgets the casts of weights."""
    cast_weights.clear()


cdef int set_cast_policy(Op op, dict autocast) except -1:
    """autocast: device type -> a word of CAST_POLICIES."""
    if op.rows:
        raise ValueError(f"{op.name}: the first row says what autocast does, for all overloads")
    for device_type, policy in autocast.items():
        if policy not in CAST_POLICIES:
            raise ValueError(f"{op.name}: autocast={policy!r} is none of {', '.join(CAST_POLICIES)}")
        op.cast_policy[autocast_type(device_type)] = CAST_POLICIES[policy]
    op.cast_policy[PRIVATE] = op.cast_policy[NPU]      # a backend from outside is served as the npu is
    return 0
