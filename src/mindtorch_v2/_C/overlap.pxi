# What may be written to: memory that is shared, expanded, or that autograd needs as it is.

cdef object shared_memory_error():
    return RuntimeError("unsupported operation: some elements of the input tensor and the written-to tensor refer to a "
                        "single memory location. Please clone() the tensor before performing the operation.")


cdef bint ranges_meet(TensorBase a, TensorBase b) noexcept:
    """Whether the address ranges of two views of one storage overlap."""
    cdef int64_t first_a = a.offset, last_a = a.offset, first_b = b.offset, last_b = b.offset
    cdef int d
    if a.count == 0 or b.count == 0:
        return False
    for d in range(a.rank):
        last_a += (a.sizes[d] - 1) * a.strides[d]
    for d in range(b.rank):
        last_b += (b.sizes[d] - 1) * b.strides[d]
    return first_a * itemsize(<DType>a.dt) < (last_b + 1) * itemsize(<DType>b.dt) and \
        first_b * itemsize(<DType>b.dt) < (last_a + 1) * itemsize(<DType>a.dt)


def _check_apart(TensorBase written not None, TensorBase t not None):
    """Refuses a tensor of which a part is to be written."""
    if t.st == written.st and (same_place(t, written) or is_dense(written) and is_dense(t)) and ranges_meet(t, written):
        raise shared_memory_error()


cdef int check_partial_overlap(TensorBase out, TensorBase t) except -1:
    """As torch: refused where both are dense and share a part of their memory; other overlaps are copied around."""
    if is_dense(out) and is_dense(t) and ranges_meet(out, t):
        raise shared_memory_error()
    return 0


cdef object self_overlap_error():
    return RuntimeError("unsupported operation: more than one element of the written-to tensor refers to a single "
                        "memory location. Please clone() the tensor before performing the operation.")


cdef int check_writable(TensorBase self, bint may_overlap=False) except -1:
    """torch's rules for what may be changed in place, those of autograd left out."""
    if not may_overlap and has_overlap(self):
        raise self_overlap_error()
    if self.inference and not modes().inference:
        raise RuntimeError("Inplace update to inference tensor outside InferenceMode is not allowed."
                           "You can make a clone to get a normal tensor before doing inplace update."
                           "See https://github.com/pytorch/rfcs/pull/17 for more details.")
    return 0


cdef int check_captured(Op op, Overload ov, PyObject** s) except -1:
    """Refuses to change what a function of torch.func found outside, and so does not differentiate."""
    cdef TensorBase self = <TensorBase>s[0]
    if modes().level and self.birth < modes().level and is_captured(self):
        args = tuple([<object>s[i] for i in range(ov.npositional)])
        overload = op.description.overload_of_call(op, ov, args, {}) or ov.overload_name
        name = f"{op.name}.{overload}" if overload and overload != "default" else op.name
        raise RuntimeError(f"During a grad (vjp, jvp, grad, etc) transform, the function provided attempted to call in-place "
                           f"operation (aten::{name}) that would mutate a captured Tensor. This is not supported; please rewrite "
                           "the function being transformed to explicitly accept the mutated Tensor(s) as inputs.")
    return 0


cdef int check_inplace(TensorBase self, bint grad, bint may_overlap=False) except -1:
    """torch's rules for what may be changed in place."""
    check_writable(self, True)
    if modes().grad:
        check_history(self, grad)
    if not may_overlap and has_overlap(self):
        raise self_overlap_error()
    return 0


cdef int check_history(TensorBase self, bint grad) except -1:
    """What autograd refuses to change in place: leaves that need a gradient, their views, and views it cannot follow."""
    if self.base is not None and (grad or self.base.requires):
        if self.creation >= VIEW_MULTI_OUTPUT or self.creation != VIEW_NORMAL and grad:
            raise view_error(self, "is being modified inplace")
    if self.requires and self.fn is None:
        raise RuntimeError(f"a {'' if self.base is None else 'view of a '}leaf Variable that requires grad is being used in "
                           "an in-place operation.")
    if self.base is not None and (grad or self.base.requires):
        if self.base.fn is None and (self.base.requires or self.requires):    # of the base, or of a view that is a leaf
            raise RuntimeError("a view of a leaf Variable that requires grad is being used in an in-place operation.")
    return 0
