# How tensor objects are made and freed: spare ones wait for the next result. What is in a tensor: tensor.pxi.

cdef extern from *:
    """
    static destructor mt_base_dealloc, mt_own_dealloc;

    // Whatever __new__ a subclass has: what makes the memory is the class with the slots, Tensor's base.
    static PyObject* mt_new_tensor(PyTypeObject* methods, PyObject* cls) {
        PyObject* none = PyTuple_New(0);
        PyObject* made = none ? methods->tp_new((PyTypeObject*)cls, none, nullptr) : nullptr;
        Py_XDECREF(none);
        return made;
    }
    // What is not kept for reuse. A subclass's own tp_dealloc calls ours last and leaves the type's reference to it.
    static void mt_free_tensor(PyObject* o) {
        PyTypeObject* t = Py_TYPE(o);
        PyObject_GC_UnTrack(o);
        Py_TRASHCAN_BEGIN(o, mt_own_dealloc)
        if (*(PyObject**)((char*)o + t->tp_weaklistoffset)) PyObject_ClearWeakRefs(o);
        Py_CLEAR(*(PyObject**)((char*)o + t->tp_dictoffset));
        mt_base_dealloc(o);
        Py_DECREF(t);
        Py_TRASHCAN_END
    }
    // The interpreter's own __dict__ of a Python class costs an allocation for every instance, so the class has none
    // (__slots__ = ()) and gets ours. Its traverse and clear find the dict by the offset.
    static void mt_take_life(PyTypeObject* t, PyTypeObject* base, destructor dealloc, Py_ssize_t dict, Py_ssize_t weakrefs) {
        mt_base_dealloc = base->tp_dealloc;
        t->tp_dealloc = mt_own_dealloc = dealloc;
        t->tp_dictoffset = dict;
        t->tp_weaklistoffset = weakrefs;
        PyType_Modified(t);
    }
    // A Python subclass calls Cython's binary operators by name; with the base's own slots it calls them directly.
    static void mt_take_slots(PyTypeObject* t, PyTypeObject* base) {
        void** to = (void**)t->tp_as_number;
        void** from = (void**)base->tp_as_number;
        for (size_t i = 0; i < sizeof(PyNumberMethods) / sizeof(void*); ++i)
            if (from[i]) to[i] = from[i];
        PyType_Modified(t);
    }
    """
    object mt_new_tensor(PyTypeObject* methods, PyObject* cls)
    void mt_free_tensor(PyObject*)
    void mt_take_life(PyTypeObject*, PyTypeObject*, void (*)(PyObject*) noexcept, Py_ssize_t, Py_ssize_t)
    void mt_take_slots(PyTypeObject*, PyTypeObject*)


cdef int take_tensor_class(object cls) except -1:
    """Makes cls, a Python subclass of TensorBase without slots of its own, the class of results."""
    global tensor_type, parameter_type
    cdef TensorBase probe = TensorBase.__new__(TensorBase)
    Py_INCREF(cls)
    tensor_type = parameter_type = <PyTypeObject*>cls
    mt_take_slots(tensor_type, tensor_type.tp_base)
    mt_take_life(tensor_type, tensor_type.tp_base, free_tensor, <char*>&probe.attributes - <char*><PyObject*>probe,
                 <char*>&probe.weakrefs - <char*><PyObject*>probe)
    return 0


cdef int take_parameter_class(object cls) except -1:
    """Makes cls the subclass of Tensor that overrides nothing, so that ops need not look."""
    global parameter_type
    if tensor_type == NULL:
        raise RuntimeError("the class of Tensor is not registered yet")
    check_class(cls, <object>tensor_type)
    Py_INCREF(cls)
    parameter_type = <PyTypeObject*>cls
    mt_take_slots(parameter_type, tensor_type.tp_base)
    return 0


cdef TensorBase tensor_of(object cls):
    """A new tensor of the class Tensor, or of a subclass."""
    if tensor_type == NULL:
        raise RuntimeError("the class of tensors is not set yet")
    cdef TensorBase t = <TensorBase>mt_new_tensor(tensor_type.tp_base, <PyObject*>cls)
    t.birth = modes().level
    return t


cdef void free_tensor(PyObject* o) noexcept:
    """tp_dealloc of Tensor: a plain one waits for the next result. Plain is what has no attributes, weak references,
    gradient or hooks, and is of no subclass."""
    global spare_tensor_count
    if Py_TYPE(o) != tensor_type or spare_tensor_count == SPARE_TENSORS or \
            (<TensorBase>o).attributes != NULL or (<TensorBase>o).weakrefs != NULL or \
            (<TensorBase>o).grad_object is not None or (<TensorBase>o).extra is not None or \
            (<TensorBase>o).sizes != (<TensorBase>o).inline_dims:
        mt_free_tensor(o)
        return
    PyObject_GC_UnTrack(o)
    # These may run user code, which frees tensors too: o joins the spare ones last.
    if (<TensorBase>o).fn is not None:
        (<TensorBase>o).fn = None
    if (<TensorBase>o).base is not None:
        (<TensorBase>o).base = None
    release_memory(<TensorBase>o)
    clean(<TensorBase>o)
    if spare_tensor_count == SPARE_TENSORS:
        PyObject_GC_Track(o)
        mt_free_tensor(o)
        return
    spare_tensors[spare_tensor_count] = o
    spare_tensor_count += 1
