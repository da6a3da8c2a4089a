# Copies and fills: items of one tensor become those of another, or a number.

cdef Kernel copy_kernel = NULL
cdef Kernel fill_kernel = NULL


cdef Kernel kernel_named(bytes name) except? NULL:
    cdef Kernel k = lib.find(name)
    if k == NULL:
        raise RuntimeError(f"the kernel library has no kernel {name.decode()}")
    return k


cdef int copy_on_device(TensorBase dst, TensorBase src, bint non_blocking) except -1:
    """copy_into() where an accelerator takes part; between two types of them it goes through the host."""
    cdef TensorBase staged = src
    if dst.dev > META and src.dev > META and dst.dev != src.dev:
        staged = new_empty(src.rank, src.sizes, src.dt, CPU, -1)
        backend_of(src.dev).copy_items(staged, src, False)
    return backend_of(dst.dev if dst.dev > META else src.dev).copy_items(dst, staged, non_blocking)


cdef int copy_into(TensorBase dst, TensorBase src, bint non_blocking=False) except -1:
    """dst's items become src's, cast and broadcast; no autograd, no version bump."""
    global copy_kernel
    cdef View v[2]
    cdef Storage* storages[2]
    cdef Args args
    if dst.marks | src.marks:
        return copy_lazy(dst, src, non_blocking)
    if dst.dev == META or src.dev == META:
        if dst.dev != META:
            raise NotImplementedError("Cannot copy out of meta tensor; no data!")
        return 0
    if dst.st.copy_on_write:
        own_block(dst.st)
    if dst.dev != CPU or src.dev != CPU:
        return copy_on_device(dst, src, non_blocking)
    if dst.count == 0:
        return 0
    check_room(dst)
    check_room(src)
    if dst.dt == src.dt and dst.contig and src.contig and dst.count == src.count and dst.count < 4096:
        memmove(ptr_of(dst), ptr_of(src), dst.count * itemsize(<DType>dst.dt))
        return 0
    if copy_kernel == NULL:
        copy_kernel = kernel_named(b"copy")
    v[0] = view_of(dst)
    v[1] = view_of(src)
    args.t = v
    args.nt = 2
    if dst.count > NOGIL_ITEMS:
        storages[0], storages[1] = dst.st, src.st
        run_unlocked(copy_kernel, &args, v, storages)
    else:
        copy_kernel(args)
    return 0


cdef TensorBase lazy_clone(TensorBase a):
    """A copy, made when one of both is first written to, or at once where others may write to a's memory (no autograd)."""
    cdef TensorBase t
    own_storage(a)
    if a.marks or not is_shareable(a.st):
        t = new_like_format(a, a.dt, PRESERVE, a.dev, a.dev_index)
        copy_into(t, a)
        return t
    t = blank_tensor()
    t.st = share_block(a.st)
    t.dt, t.dev, t.dev_index, t.inference = a.dt, a.dev, a.dev_index, modes().inference
    set_geometry(t, a.rank, a.sizes, a.strides, a.offset)
    return t


cdef TensorBase contiguous_of(TensorBase t):
    """t itself when contiguous, else a contiguous copy (no autograd)."""
    cdef TensorBase r
    if t.contig and not t.marks:
        return t
    r = empty_like(t, t.dt)
    copy_into(r, t)
    return r


cdef TensorBase cast_of(TensorBase t, int dt):
    """t itself when of that dtype, else a cast copy (no autograd)."""
    cdef TensorBase r
    if t.dt == dt and not t.marks:
        return t
    r = new_like_format(t, dt, PRESERVE, t.dev, t.dev_index)
    copy_into(r, t)
    return r


# ---- tensors that are read conjugated or negated: a mark on a view, no work. Kernels never see them (marks.pxi); what is
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
