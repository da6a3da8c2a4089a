# The C++ below every part, as Cython sees it: the kernel library's interface (csrc/kernels), and the core's own headers.
from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libcpp cimport bool as cbool

cdef extern from "storage.h" namespace "mt":
    void raise_kernel_error()

cdef extern from "view.h" namespace "mt" nogil:
    cdef enum DType:
        kBool, kUInt8, kInt8, kInt16, kInt32, kInt64, kUInt16, kUInt32, kUInt64, kUInt1, kUInt7, kInt1, kInt7
        kBits1x8, kBits16, kQInt8, kQUInt2x4, kQInt32, kHalf, kBFloat16, kFloat8_e4m3fn, kFloat8_e5m2, kFloat8_e4m3fnuz
        kFloat8_e5m2fnuz, kFloat8_e8m0fnu, kFloat4_e2m1fn_x2, kFloat, kDouble, kComplexFloat, kComplexDouble, kComplexHalf
        kNumDTypes
    int itemsize(DType)
    const char* dtype_name(DType)
    const char* dtype_word(DType)
    const char* dtype_type(DType)
    int rare(DType)
    cbool is_only_stored(DType)
    cbool is_float8(DType)
    DType wide_of(DType)
    DType real_dtype(DType)
    cdef cppclass View:
        View()
        void* data
        const int64_t* sizes
        const int64_t* strides
        int32_t ndim
        DType dtype
    cdef cppclass Attr:
        Attr()
        double f, im
        int64_t i
        const int64_t* list
        const double* flist
        const char* s
        int32_t n
        cbool given
    cdef cppclass CGenerator "mt::Generator":
        pass
    cdef cppclass Args:
        Args()
        const View* t
        int32_t nt
        const Attr* a
        int32_t na
        CGenerator* generator
    ctypedef void (*Kernel)(const Args&) except +raise_kernel_error

cdef extern from "library.h" namespace "mt" nogil:
    ctypedef void (*Loop)(void* const* ptr, int64_t n, const Attr* attr) except +raise_kernel_error
    cdef cppclass Pointwise:
        const char* name
        int32_t nout, nin, out, first
        Loop* loop
    DType loop_dtype(const Pointwise*, DType)
    cdef cppclass AllocatorStats:
        int64_t allocated_bytes, peak_allocated_bytes, reserved_bytes, peak_reserved_bytes
        int64_t cached_bytes, allocations, cache_hits, bound_bytes, limit_bytes, idle_ms
    cdef cppclass Library:
        const char* level
        Kernel (*find)(const char*) except +
        int32_t (*rare)(const char*)
        const Pointwise* (*find_pointwise)(const char*) except +
        void (*pointwise)(const Pointwise*, DType, const View*, const Attr*) except +raise_kernel_error
        void* (*allocate)(size_t) except +
        void (*release)(void*, size_t)
        void (*empty_cache)()
        void (*allocator_stats)(AllocatorStats*)
        int64_t (*memory_limit)(const char*) except +
        int (*get_num_threads)()
        void (*set_num_threads)(int)
        CGenerator* (*generator_new)(uint64_t) except +
        void (*generator_delete)(CGenerator*)
        void (*generator_seed)(CGenerator*, uint64_t)
        uint64_t (*generator_initial_seed)(CGenerator*)
        size_t (*generator_state)(CGenerator*, void*)
        void (*generator_set_state)(CGenerator*, const void*, size_t) except +
        uint64_t (*generator_random64)(CGenerator*)
        void (*set_blas_path)(const char*) except +
        const char* (*bf16_unit)()

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
        cbool grad, inference, grad_wanted, function_off, autocast_cache
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
