# Storages, versions and what belongs to a thread or to the process, in C++ (storage.h, state.h), as Cython sees it.
from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport int32_t, int64_t, uint32_t
from libcpp cimport bool as cbool
from mindtorch_v2._C.library cimport Library

cdef extern from "storage.h" namespace "mt":
    cdef cppclass Storage:
        Storage()
        int64_t refs
        void* data
        size_t nbytes
        int32_t device, index
        PyObject* owner
        Storage* former
        int32_t exports, users
        cbool pinned, resizable, shrunk, managed, copy_on_write, keeps_seen
        PyObject* seen
        PyObject* object()
    cdef cppclass Version:
        int64_t refs
        uint32_t value
    cdef cppclass Modes:
        cbool grad, inference, function_off, autocast_cache
        unsigned char function_mode_count, transforms, autocast, dispatch_mode_count, watchers, autocast_dtype[4]
        int32_t autocast_depth
        uint32_t level
        PyObject *backward, *stacks, *saved_hooks, *devices
        cbool interposed()
    Storage* new_storage()
    Version* new_version()
    const Library* open_library(const char*) except +
    void* allocate_or_null(const Library*, size_t)
    int processor_level()

cdef extern from "state.h" namespace "mt":
    const Library* lib "mt::kernels"
    Modes& modes() nogil
    Storage* storage_shell "mt::take_storage"() noexcept
    void storage_drop "mt::drop_storage"(Storage*) noexcept
    PyTypeObject* tensor_type
    PyTypeObject* parameter_type
    PyObject* spare_tensors[1024]
    int spare_tensor_count
    enum:
        SPARE_TENSORS "mt::kSpareTensors"
