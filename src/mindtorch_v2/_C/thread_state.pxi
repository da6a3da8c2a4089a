# What each thread has of its own, as in torch: modes and transforms, hooks on saved tensors, default devices.

cdef extern from "Python.h":
    PyObject* PyThreadState_GetDict()


cdef class ThreadStacks:
    """The stacks of one thread. The interpreter's dict of the thread owns it; the thread's Modes borrow it."""

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
