# What every compiled part takes from CPython and C: names, and a few helpers over the C API.

from cpython.object cimport PyObject, PyTypeObject, PyObject_TypeCheck, PyObject_Call, Py_TYPE as _Py_TYPE
from cpython.object cimport Py_EQ, Py_GT, Py_LE, Py_LT, Py_NE
from cpython.ref cimport Py_INCREF, Py_DECREF
from cpython.buffer cimport PyObject_GetBuffer, PyBuffer_Release, PyBUF_SIMPLE, PyBUF_WRITABLE
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM, PyTuple_GET_SIZE, PyTuple_Check, PyTuple_CheckExact
from cpython.list cimport PyList_New, PyList_SET_ITEM, PyList_GET_SIZE, PyList_Check, PyList_AsTuple
from cpython.long cimport PyLong_Check, PyLong_CheckExact, PyLong_AsLongLong, PyLong_FromLongLong
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_AsUnsignedLongLong
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.float cimport PyFloat_Check, PyFloat_CheckExact, PyFloat_AS_DOUBLE
from cpython.bool cimport PyBool_Check
from cpython.exc cimport PyErr_CheckSignals
from cpython.complex cimport PyComplex_Check
from cpython.unicode cimport PyUnicode_Check
from cpython.pycapsule cimport PyCapsule_New, PyCapsule_IsValid, PyCapsule_GetPointer, PyCapsule_SetName, \
    PyCapsule_Destructor
from libc.limits cimport INT_MAX
from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t, INT64_MAX
from libc.stdlib cimport malloc, calloc, free
from libc.string cimport memcpy, memmove, memcmp, memset, strlen
from libcpp cimport bool as cbool
from libcpp.algorithm cimport sort
from libcpp.utility cimport pair
from libcpp.vector cimport vector

cdef extern from "Python.h":
    ctypedef PyObject* (*vectorcallfunc)(PyObject*, PyObject**, size_t, PyObject*) except NULL
    PyTypeObject* Py_TYPE(PyObject*)
    PyObject* PyTuple_GET_ITEM_ "PyTuple_GET_ITEM" (object, Py_ssize_t)
    PyObject* PyList_GET_ITEM_ "PyList_GET_ITEM" (object, Py_ssize_t)
    object PyObject_Vectorcall(object, PyObject**, size_t, PyObject*)
    object PyVectorcall_Call(object, object, object)
    object PyMethod_New(object, object)
    Py_ssize_t Py_REFCNT(object)
    const char* PyUnicode_AsUTF8(object) except NULL
    const char* PyUnicode_AsUTF8AndSize(object, Py_ssize_t*) except NULL
    object PyTuple_GetSlice(object, Py_ssize_t, Py_ssize_t)
    PyObject* PyDict_GetItemWithError(object, object)
    void PyType_Modified(type)
    unsigned long Py_TPFLAGS_HAVE_VECTORCALL, Py_TPFLAGS_METHOD_DESCRIPTOR, Py_TPFLAGS_HEAPTYPE
    PyObject** PySequence_Fast_ITEMS(object)

cdef extern from "shape_cache.h" namespace "mt":
    object new_ints(PyTypeObject*, int, const int64_t*)
    cppclass ShapeCache:
        object get(PyTypeObject*, int, const int64_t*)

cdef extern from *:
    """
    #include "scalar.h"
    static_assert(sizeof(mt::View) <= 4 * 8 && sizeof(mt::Attr) <= 8 * 8, "VIEW_WORDS, ATTR_WORDS in _row.pxd");
    static inline float bf16_to_float(unsigned short v) { return mt::to_float(mt::bf16{v}); }
    static inline float f16_to_float(unsigned short v) { return mt::to_float(mt::f16{v}); }
    template <class T> static void mt_repeat(char* to, const void* item, int64_t n) {
        const T value = *(const T*)item;
        for (int64_t i = 0; i < n; ++i) ((T*)to)[i] = value;
    }
    // n copies of one item; `to` is aligned for any of them and may begin with it.
    static inline void repeat_item(char* to, const void* item, int size, int64_t n) {
        struct Pair { uint64_t a, b; };
        size == 4 ? mt_repeat<uint32_t>(to, item, n) : size == 8 ? mt_repeat<uint64_t>(to, item, n) :
        size == 2 ? mt_repeat<uint16_t>(to, item, n) : size == 1 ? mt_repeat<uint8_t>(to, item, n) :
        mt_repeat<Pair>(to, item, n);
    }
    static inline PyObject** tuple_items(PyObject* t) { return ((PyTupleObject*)t)->ob_item; }
    static inline void mt_enable_vectorcall(PyTypeObject* t, Py_ssize_t offset) {
        t->tp_vectorcall_offset = offset;
        t->tp_call = PyVectorcall_Call;
        t->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR;
        PyType_Modified(t);
    }
    // A call site that has seen x.dim() run with tensors reads the first argument of whatever it calls next, also of
    // Tensor.dim(), which has none: CPython 3.11 to 3.13.3 crash there (python/cpython issue 131998). They do so only after
    // comparing the method's flags; this one means nothing for a method that no slot competes with, and makes them differ.
    static inline void mt_keep_general(PyObject* method) {
        if (!Py_IS_TYPE(method, &PyMethodDescr_Type)) return;
        PyMethodDef* def = ((PyMethodDescrObject*)method)->d_method;
        if (def->ml_flags & METH_FASTCALL) def->ml_flags |= METH_COEXIST;
    }
    """
    float bf16_to_float(unsigned short)
    float f16_to_float(unsigned short)
    void repeat_item(char*, const void*, int, int64_t)
    PyObject** tuple_items(tuple)
    void mt_enable_vectorcall(PyTypeObject*, Py_ssize_t)
    void mt_keep_general(object)
