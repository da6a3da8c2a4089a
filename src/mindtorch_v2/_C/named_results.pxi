# The classes of torch.return_types: struct sequences, as torch has them.

cdef extern from "structseq.h":
    ctypedef struct PyStructSequence_Field:
        const char* name
        const char* doc

    ctypedef struct PyStructSequence_Desc:
        const char* name
        const char* doc
        PyStructSequence_Field* fields
        int n_in_sequence

    PyTypeObject* PyStructSequence_NewType(PyStructSequence_Desc*) except NULL

cdef extern from *:
    """
    static void mt_set_repr(PyTypeObject* type, reprfunc repr) { type->tp_repr = repr; }
    """
    ctypedef PyObject* (*reprfunc)(PyObject*) except NULL
    void mt_set_repr(PyTypeObject*, reprfunc)

cdef enum:
    MAX_RESULTS = 16

cdef list result_names = []                      # what the classes point to, alive as long as they


cdef PyObject* named_results_repr(PyObject* self) except NULL:
    """One line for each result, under the class's name."""
    kind = type(<object>self)
    text = ",\n".join([f"{name}={value!r}" for name, value in zip(kind.__match_args__, <tuple>self)])
    text = f"{kind.__module__}.{kind.__name__}(\n{text})"
    Py_INCREF(text)
    return <PyObject*>text


def _named_results(str name not None, tuple fields not None) -> type:
    """The class torch.return_types.<name> of results with these names."""
    cdef PyStructSequence_Field members[MAX_RESULTS + 1]
    cdef PyStructSequence_Desc desc
    cdef PyTypeObject* made
    cdef int i
    if len(fields) > MAX_RESULTS:
        raise ValueError(f"{name}: at most {MAX_RESULTS} results")
    memset(members, 0, sizeof(members))
    memset(&desc, 0, sizeof(desc))
    words = [("torch.return_types." + name).encode(), *[field.encode() for field in fields]]
    result_names.append(words)
    for i in range(len(fields)):
        members[i].name = <const char*><bytes>words[i + 1]
    desc.name, desc.fields, desc.n_in_sequence = <const char*><bytes>words[0], members, len(fields)
    made = PyStructSequence_NewType(&desc)
    mt_set_repr(made, named_results_repr)
    kind = <object>made
    Py_DECREF(kind)
    return kind
