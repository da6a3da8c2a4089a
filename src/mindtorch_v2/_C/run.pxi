# The op itself: what is left of a call when no layer answers.

cdef object run(Op op, Overload ov, Binding* b):
    """The op itself: what is left when no layer answers."""
    if op.inplace_of is not None or ov.mutates:
        if b.out != NULL:
            raise TypeError(f"{op.name}() got an unexpected keyword argument 'out'")
        return run_inplace(op, ov, b.slot)
    if b.out != NULL:
        return run_out(op, ov, b.slot, <object>b.out)
    return run_family(ov, b.slot)
