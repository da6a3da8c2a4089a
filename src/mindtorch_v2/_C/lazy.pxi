# Tensors that are read conjugated or negated: a mark on a view, no work. Kernels never see them (see marks.pxi); what is
# copied out of them, or into them, is changed on the way.

cdef const Pointwise* flips[2]                   # the loops of conj_physical and neg, found at the first use


cdef TensorBase unmarked(TensorBase t):
    """The memory of t as it lies."""
    cdef TensorBase r = alias(t)
    r.marks = 0
    return r


cdef TensorBase resolved(TensorBase t):
    """The items of t as they are read, in memory of their own (no autograd)."""
    cdef TensorBase r = new_like_format(t, t.dt, PRESERVE, t.dev, t.dev_index)
    copy_into(r, t)
    return r


cdef int copy_lazy(TensorBase dst, TensorBase src, bint non_blocking) except -1:
    """copy_into() where marks take part: memory becomes memory, changed by the marks that only one of both has."""
    cdef int marks = dst.marks ^ src.marks
    cdef TensorBase staged = unmarked(src)
    if dst.dt < kComplexFloat or src.dt < kComplexFloat:
        marks &= ~MARK_CONJ                      # a real number is its conjugate
    if marks and src.dev != META:
        staged = empty_like(src, src.dt)
        copy_into(staged, unmarked(src))
        if src.dev == CPU:
            flip_here(staged, marks)
        else:
            backend_of(src.dev).flip_items(staged, marks)
    return copy_into(unmarked(dst), staged, non_blocking)


cdef int flip_here(TensorBase t, int marks) except -1:
    """Conjugates and negates the items of t, which is contiguous and on the CPU, in place."""
    cdef View v[2]
    cdef Storage* storages[2]
    cdef int i
    if flips[0] == NULL:
        flips[1] = lib.find_pointwise(b"neg")
        flips[0] = lib.find_pointwise(b"conj_physical")
    for i in range(2):
        if t.count == 0 or not marks >> i & 1:
            continue
        if flips[i].loop[<int>loop_dtype(flips[i], <DType>t.dt)] == NULL:
            raise NotImplementedError(f"\"{flips[i].name.decode()}\" not implemented for '{type_word(t.dt)}'")
        v[0] = v[1] = view_of(t)
        if t.count > NOGIL_ITEMS:
            storages[0] = storages[1] = t.st
            pointwise_unlocked(flips[i], t.dt, v, storages, 2, NULL)
        else:
            lib.pointwise(flips[i], <DType>t.dt, v, NULL)
    return 0
