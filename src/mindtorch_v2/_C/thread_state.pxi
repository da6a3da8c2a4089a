# What each thread has of its own, as in torch: modes and transforms, hooks on saved tensors, default devices.

cdef extern from "Python.h":
    PyObject* PyThreadState_GetDict()


cdef class ThreadStacks:
    """The stacks of one thread. The interpreter's dict of the thread owns it; the thread's Modes borrow it."""
    cdef list function_modes                     # active TorchFunctionMode objects, innermost last
    cdef list dispatch_modes                     # active TorchDispatchMode objects, innermost last
    cdef list transforms                         # vmap levels and the like, innermost last: see layers.pxi
    cdef list saved_hooks                        # (pack, unpack) pairs, innermost last
    cdef list devices                            # what set_default_device has set, or None; then `with device` blocks
    cdef object hooks_forbidden                  # why saved_tensors_hooks may not be used, when it may not

    def __cinit__(self):
        self.function_modes, self.dispatch_modes, self.transforms = [], [], []
        self.saved_hooks, self.devices = [], [None]

    def __dealloc__(self):
        if modes().stacks == <PyObject*>self:    # the thread ends, or Python's part of a thread of C
            modes().stacks = modes().saved_hooks = modes().devices = NULL
            modes().function_mode_count = modes().transforms = modes().dispatch_mode_count = 0


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


cdef inline bint has_saved_hooks() noexcept:
    cdef PyObject* stack = modes().saved_hooks
    return stack != NULL and PyList_GET_SIZE(<object>stack) > 0


def _forbid_saved_hooks(why):
    """From now on saved_tensors_hooks are an error with this message (None: allowed); returns what was said before."""
    cdef ThreadStacks own = own_stacks()
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


# ---- default devices ------------------------------------------------------------------------------------------------
cdef int push_device(device place) except -1:
    own_stacks().devices.append(place)
    return 0


cdef int pop_device() except -1:
    cdef list stack = own_stacks().devices
    if len(stack) < 2:
        raise RuntimeError("device.__exit__ without __enter__ in this thread")
    stack.pop()
    return 0


cdef device default_device():
    """Where the running thread makes tensors when it names no device; None: on the CPU."""
    return None if modes().devices == NULL else <device>(<list>modes().devices)[-1]


def set_default_device(d) -> None:
    """Sets where this thread makes new tensors; None: the CPU. Blocks of `with device` come first."""
    own_stacks().devices[0] = None if d is None else device(d)
