# What each thread has of its own, as in torch: modes and transforms, hooks on saved tensors, default devices.

cdef extern from "Python.h":
    PyObject* PyThreadState_GetDict()


cdef class ThreadStacks:
    """The stacks of one thread. The interpreter's dict of the thread owns it; the thread's Modes borrow it."""

    def __cinit__(self):
        self.function_modes, self.dispatch_modes, self.transforms = [], [], []
        self.saved_hooks, self.devices, self.levels, self.watchers = [], [None], [], []

    def __dealloc__(self):
        if modes().stacks == <PyObject*>self:    # the thread ends, or Python's part of a thread of C
            modes().stacks = modes().saved_hooks = modes().devices = NULL
            modes().function_mode_count = modes().transforms = modes().dispatch_mode_count = modes().watchers = 0
            modes().level = 0


cdef ThreadStacks own_stacks():
    """The stacks of the running thread, made at their first use."""
    cdef ThreadStacks made
    cdef PyObject* place
    if modes().stacks != NULL:
        return <ThreadStacks>modes().stacks
    place = PyThreadState_GetDict()
    if place == NULL:
        raise RuntimeError("the running thread has no state in this interpreter")
    made = ThreadStacks.__new__(ThreadStacks)
    (<dict>place)["mindtorch_v2 stacks"] = made
    modes().saved_hooks, modes().devices, modes().stacks = <PyObject*>made.saved_hooks, <PyObject*>made.devices, <PyObject*>made
    return made


# ---- levels: the functions of torch.func that differentiate ------------------------------------------------------------
cdef uint32_t last_level = 0


def _open_level():
    """A function that torch.func differentiates starts to run: what exists already is captured by it, and may not be changed
    in place. Levels are numbered as they open, so a tensor that was born before one has a smaller number."""
    global last_level
    cdef ThreadStacks own = own_stacks()
    last_level += 1
    own.levels.append((last_level, modes().transforms))
    modes().level = last_level


def _close_level():
    cdef ThreadStacks own = own_stacks()
    own.levels.pop()
    modes().level = own.levels[-1][0] if own.levels else 0


def _level_count():
    """How many levels are open in this thread."""
    return len(own_stacks().levels) if modes().level else 0


cdef bint is_captured(TensorBase t) except -1:
    """Whether t is older than the innermost level that the running code sees: a transform that answers a call is outside of
    the levels that opened inside it."""
    for number, outside in reversed(own_stacks().levels):
        if outside <= modes().transforms:
            return t.birth < <uint32_t>number
    return False


def _in_level(TensorBase t not None):
    """Whether t was made in the innermost open level."""
    return modes().level != 0 and t.birth >= modes().level


def _outlived(TensorBase t not None):
    """Whether t was recorded in a level that has been closed since."""
    return t.birth != 0 and t.requires and t.birth not in [number for number, _ in own_stacks().levels]


def _levels_of(TensorBase t not None):
    """The open levels that t was made in, the innermost last, as (how many levels are outside, transforms seen there)."""
    return [(at, seen) for at, (number, seen) in enumerate(own_stacks().levels) if t.birth >= <uint32_t>number] if modes().level else []


cdef bint in_transform() except -1:
    """Whether a function runs that torch.func or vmap transforms; a dual level alone is none of them."""
    if modes().level:
        return True
    for transform in own_stacks().transforms[:modes().transforms]:
        if transform.of_a_function:
            return True
    return False


def _in_transform():
    return (modes().transforms or modes().level) and in_transform()


cdef int refuse_backward() except -1:
    """.grad of leaves has no meaning inside of a transform."""
    if in_transform():
        raise RuntimeError("backward() called inside a functorch transform. This is not supported, please use functorch.grad or "
                           "functorch.vjp instead or call backward() outside of functorch transforms.")
    return 0


cdef object unsupported_in_transform(str name, str more):
    """The error for a method that changes how a tensor takes part in autograd."""
    return RuntimeError(f"You are attempting to call Tensor.{name}(){more} inside of a function being transformed by a functorch "
                        "transform. This is unsupported, please attempt to use the functorch transforms (e.g. grad, vjp, jacrev, "
                        f"jacfwd, hessian) or call {name}() outside of a function being transformed instead.")


def _refuse_backward():
    if modes().transforms or modes().level:
        refuse_backward()


def _forbid_saved_hooks(why):
    """From now on saved_tensors_hooks are an error with this message (None: allowed); returns what was said before."""
    cdef ThreadStacks own = own_stacks()
    if why is not None and own.saved_hooks:
        raise RuntimeError(why)
    previous, own.hooks_forbidden = own.hooks_forbidden, why
    return previous


def _push_saved_hooks(pack, unpack):
    cdef ThreadStacks own = own_stacks()
    if own.hooks_forbidden is not None:
        raise RuntimeError(own.hooks_forbidden)
    own.saved_hooks.append((pack, unpack))


def _pop_saved_hooks():
    own_stacks().saved_hooks.pop()


def _current_saved_hooks():
    return own_stacks().saved_hooks[-1] if has_saved_hooks() else None


class _no_grad_and_hooks:
    """Inside: nothing recorded, no saved-tensor hooks."""

    def __enter__(self):
        cdef list hooks = own_stacks().saved_hooks
        self.grad = modes().grad
        self.hooks = hooks[:]
        modes().grad = False
        del hooks[:]

    def __exit__(self, *exc):
        modes().grad = self.grad
        own_stacks().saved_hooks[:] = self.hooks
