# The name that ops and types say of themselves: a program that knows this package as torch reads torch everywhere.

cdef str package_name = __name__.partition(".")[0]
cdef list type_names = []                        # what renamed types point to; types live as long as the process


def _rename_package(str name):
    """Under which name ops say that they live."""
    global package_name
    package_name = name


def _rename_type(cls: type, str full_name):
    """Another full name for a type of the core, whose __module__ cannot be set from Python: it is no heap type."""
    if (<PyTypeObject*>cls).tp_flags & Py_TPFLAGS_HEAPTYPE or \
            cls.__module__.partition(".")[0] not in ("mindtorch_v2", "torch"):
        raise TypeError(f"[_rename_type] expected a type of this package's compiled core, got {cls}")
    text = full_name.encode()
    type_names.append(text)
    (<PyTypeObject*>cls).tp_name = text
    PyType_Modified(cls)
