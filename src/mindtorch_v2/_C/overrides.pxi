# Overriding: function modes and __torch_function__, which see a call before anything else does.

def _disabled_torch_function_impl(func, types, args=(), kwargs=None):
    """What a class sets as its __torch_function__ to opt out of overriding: func is called as on a plain tensor."""
    cdef bint previous = modes().function_off
    modes().function_off = True
    try:
        return func(*args, **(kwargs or {}))
    finally:
        modes().function_off = previous


cdef object disabled_function = _disabled_torch_function_impl


cdef unsigned char count_modes(list stack) except 0xff:
    if len(stack) > 254:
        raise RecursionError("more than 254 nested modes")
    return <unsigned char>len(stack)


cdef bint has_function_modes():
    """Counts anew: another thread may have taken out a mode that it did not open."""
    if modes().function_mode_count:
        modes().function_mode_count = count_modes(own_stacks().function_modes)
    return modes().function_mode_count > 0


def _push_function_mode(mode):
    cdef list stack = own_stacks().function_modes
    modes().function_mode_count = count_modes(stack + [mode])
    stack.append(mode)


def _pop_function_mode():
    cdef list stack = own_stacks().function_modes
    mode = stack.pop()
    modes().function_mode_count = count_modes(stack)
    return mode


def _function_mode_stack():
    """The running thread's list of active modes, innermost last; others may take modes out of it, not put them in."""
    return own_stacks().function_modes


cdef int collect_overrides(object arg, list found, int depth) except -1:
    if isinstance(arg, (tuple, list)) and depth < 2:
        for item in arg:
            collect_overrides(item, found, depth + 1)
        return 0
    tp = type(arg)
    if <PyTypeObject*>tp == tensor_type or <PyTypeObject*>tp == parameter_type:
        return 0
    fn = getattr(tp, "__torch_function__", None)
    if fn is None or fn is disabled_function or tp in [type(x) for x in found]:
        return 0
    for i in range(len(found)):
        if issubclass(tp, type(found[i])):
            found.insert(i, arg)
            return 0
    found.append(arg)
    return 0


cdef object call_override(object func, PyObject** args, Py_ssize_t nargs, PyObject* kwnames):
    """ask_overrides for the arguments of a vectorcall."""
    cdef dict keywords = {}
    if kwnames != NULL:
        keywords = {name: <object>args[nargs + i] for i, name in enumerate(<tuple>kwnames)}
    return ask_overrides(func, tuple([<object>args[i] for i in range(nargs)]), keywords)


cdef str none_took(str name, str handler, tuple types):
    """What torch says of a call that no class took."""
    return (f"Multiple dispatch failed for '{name}'; all {handler} handlers returned NotImplemented:\n\n" +
            "".join([f"  - tensor subclass {cls}\n" for cls in types]) +
            "\nFor more information, try re-running with TORCH_LOGS=not_implemented")


cdef object ask_overrides(object func, tuple positional, dict keywords):
    """Offers a call to the active modes, then to the arguments' classes; NotImplemented where none overrides."""
    cdef list found = []
    if modes().function_off:
        return NotImplemented
    for arg in positional:
        collect_overrides(arg, found, 0)
    for arg in keywords.values():
        collect_overrides(arg, found, 0)
    types = tuple([type(x) for x in found])
    if has_function_modes():
        mode = _pop_function_mode()              # it does not see what its own handler calls
        try:
            result = mode.__torch_function__(func, types, positional, keywords)
        finally:
            _push_function_mode(mode)
        if result is not NotImplemented:
            return result
    for arg in found:
        result = arg.__torch_function__(func, types, positional, keywords)
        if result is not NotImplemented:
            return result
    if found:
        raise TypeError(none_took(f"torch.{getattr(func, '__name__', func)}", "__torch_function__", types))
    return NotImplemented
