# What the launcher has of CANN and of the backend: functions, contexts of threads, whether ops are waited for.

cdef extern from "launch.h" namespace "mt::npu":
    cdef cppclass NpuApi "mt::npu::Api":
        int32_t (*synchronize)(void*) noexcept nogil
        int32_t (*set_repeatable)(void*) noexcept
        int32_t (*view_shape)(void*, int64_t**, uint64_t*) noexcept
    cdef struct TensorArg:
        const int64_t* sizes
        const int64_t* strides
        int64_t offset, storage_items
        void* base
        int32_t ndim, dtype
        cbool dense, whole
    cdef struct Number "mt::npu::Number":
        int32_t dtype
        int64_t i
        double re, im
    cdef cppclass CallKey "mt::Key":
        uint64_t& operator[](size_t)
        void swap(CallKey&)
    cdef cppclass NpuCall "mt::npu::Call":
        NpuCall() except +
        void begin(uint64_t) except +
        void tensor(int32_t, const TensorArg&) except +
        void list(int32_t, int32_t, cbool) except +
        void add(const TensorArg&) except +
        void scalars(int32_t, int32_t, cbool) except +
        void scalar(const Number&) except +
        void integers(int32_t, const int64_t*, int32_t, cbool) except +
        void reals(const double*, int32_t, cbool) except +
        void plain(int32_t, int64_t, double) except +
        void string(const char*) except +
        uint64_t end() except +
        void own_dims() except +
        CallKey key
    cdef cppclass PreparedSlot "mt::npu::Prepared::Slot":
        int32_t output
        void* object
    cdef cppclass Prepared:
        Prepared(const NpuApi&) except +
        int32_t first_phase(const NpuCall&, void*) except +
        void* executor
        uint64_t workspace
        cbool repeatable
        const char* refused
        vector[PreparedSlot] slots
    cdef cppclass PreparedOwner "std::unique_ptr<mt::npu::Prepared>":
        PreparedOwner()
        PreparedOwner(Prepared*)
        Prepared* get()
    cdef cppclass Launched:
        void* plan
        int32_t device
        CallKey key
    cdef cppclass Prepareds:
        Prepared* find(const CallKey&, uint64_t)
        void clear()
        size_t size()
    void (*destroy_failed)(const char*, int32_t) noexcept
    ctypedef int32_t (*SecondPhase)(void*, uint64_t, void*, void*) noexcept
    cbool move_to(const NpuApi&, Prepared&, const NpuCall&)

cdef extern from *:
    """
    // The npu whose context the running thread has, -1: none yet. A runtime that ended took all contexts with it, so what
    // a thread noted counts for the runtime of that time only.
    static int npu_lifetime = 0;
    static thread_local int npu_bound_device __attribute__((tls_model("initial-exec"))) = -1;
    static thread_local int npu_bound_lifetime __attribute__((tls_model("initial-exec"))) = 0;
    static inline int npu_bound() { return npu_bound_lifetime == npu_lifetime ? npu_bound_device : -1; }
    static inline void npu_set_bound(int device) { npu_bound_device = device; npu_bound_lifetime = npu_lifetime; }
    static inline void npu_end_lifetime() { ++npu_lifetime; }
    static inline void npu_keep(mt::npu::Prepareds& all, mt::npu::Call& call, uint64_t hash,
                                std::unique_ptr<mt::npu::Prepared>& p) {
        all.keep(call.key, hash, std::move(p));
    }
    // Never destroyed: at the end of a process that did not end the runtime (a forked one) CANN must not be called.
    static mt::npu::Prepareds* const npu_prepared = new mt::npu::Prepareds[16];
    // Calls whose stream could not be waited for: the device may still write into their tensors, by stream.
    static auto* const npu_unfinished = new std::vector<std::pair<void*, std::unique_ptr<mt::npu::Prepared>>>;
    static inline void npu_leave_unfinished(void* stream, std::unique_ptr<mt::npu::Prepared>& p) {
        npu_unfinished->emplace_back(stream, std::move(p));
    }
    static inline void npu_finished(void* stream) {  // nullptr: every stream
        if (npu_unfinished->empty()) return;
        auto is_done = [=](const auto& left) { return !stream || left.first == stream; };
        npu_unfinished->erase(std::remove_if(npu_unfinished->begin(), npu_unfinished->end(), is_done), npu_unfinished->end());
    }
    """
    int npu_bound() nogil
    void npu_set_bound(int) nogil
    void npu_end_lifetime()
    void npu_keep(Prepareds&, NpuCall&, uint64_t, PreparedOwner&) except +
    Prepareds* npu_prepared                      # of each device
    void npu_leave_unfinished(void*, PreparedOwner&) except +
    void npu_finished(void*)

API_NAMES = ("aclCreateTensor", "aclCreateScalar", "aclCreateIntArray", "aclCreateFloatArray", "aclCreateBoolArray",
             "aclCreateTensorList", "aclCreateScalarList", "aclDestroyTensor", "aclDestroyScalar", "aclDestroyIntArray",
             "aclDestroyFloatArray", "aclDestroyBoolArray", "aclDestroyTensorList", "aclDestroyScalarList",
             "aclDestroyAclOpExecutor", "aclSetAclOpExecutorRepeatable", "aclSetInputTensorAddr",
             "aclSetOutputTensorAddr", "aclSetDynamicInputTensorAddr", "aclSetDynamicOutputTensorAddr", "aclGetViewShape",
             "aclrtSynchronizeStream")

cdef int32_t ACL_DTYPES[<int>kNumDTypes]             # -1: CANN has no such dtype


def _set_acl_dtypes(dict numbers) -> None:
    """CANN's number of each dtype that it has, by torch's name."""
    for i in range(<int>kNumDTypes):
        ACL_DTYPES[i] = numbers.get(DTYPE_NAMES[i], -1)

_set_acl_dtypes({})

cdef enum:
    ACL_INT64 = 9
    ACL_DOUBLE = 11
    ACL_BOOL = 12
    ACL_COMPLEX128 = 17

cdef NpuApi npu_api
cdef bint npu_ready = False                      # npu_api is filled
cdef dict npu_environment = {}                   # the process's, as os.environ keeps it: read before every op
cdef tuple npu_blocking_names = ()               # its names that, being b"1", make every op waited for
cdef bint npu_blocking_paused = False            # while a graph is captured
cdef object npu_wait = None                      # callable(device): waits for its work
cdef object npu_failed = None                    # callable(op, code, arguments in words, function): the exception to raise
cdef object npu_failed_late = None               # callable(exception of npu_wait, name, arguments in words): the same
cdef object npu_not_destroyed = None             # callable(function, code): says that an object is leaked
cdef object npu_bind_thread = None               # callable(device): gives the calling thread the device's context
cdef vector[NpuCall*] npu_spare_calls            # not in use. A launch may wait, or run Python that launches: each has its own
cdef object npu_rebind = None                    # callable(): fills in CANN's functions again after the runtime ended
cdef dict npu_constants = {}                     # (reading, value, dtype, device) -> what it made


def _npu_bind(list addresses, bind_thread, failed, not_destroyed, rebind):
    """Fills in CANN's functions, in the order of API_NAMES, and the hooks of the backend."""
    global npu_ready, npu_bind_thread, npu_failed, npu_not_destroyed, npu_rebind, destroy_failed
    cdef vector[size_t] given = addresses        # all of them are numbers before one is used
    if given.size() != <size_t>len(API_NAMES):
        raise ValueError(f"expected {len(API_NAMES)} addresses, got {given.size()}")
    memcpy(&npu_api, given.data(), given.size() * sizeof(size_t))
    npu_bind_thread, npu_failed, npu_rebind, npu_ready = bind_thread, failed, rebind, True
    npu_not_destroyed = not_destroyed
    destroy_failed = tell_not_destroyed


cdef void tell_not_destroyed(const char* function, int32_t code) noexcept:
    """Objects go wherever a call is dropped, also while an exception comes: Python must not run with it set."""
    cdef PyObject* kind
    cdef PyObject* value
    cdef PyObject* trace
    PyErr_Fetch(&kind, &value, &trace)
    try:
        npu_not_destroyed(function.decode(), code)
    finally:
        PyErr_Restore(kind, value, trace)


def _npu_set_blocking(dict environment not None, tuple names not None, wait, failed_late):
    """Where the launcher looks whether an op is to be waited for, who waits, and who words the error of that wait."""
    global npu_environment, npu_blocking_names, npu_wait, npu_failed_late
    npu_environment, npu_blocking_names, npu_wait, npu_failed_late = environment, names, wait, failed_late


def _npu_pause_blocking(bint paused):
    """While paused no op is waited for, whatever the environment says."""
    global npu_blocking_paused
    npu_blocking_paused = paused


def _npu_is_blocking():
    """Whether every op is waited for at this moment."""
    return is_blocking()


cdef inline bint is_blocking() except -1:
    cdef PyObject* value
    cdef Py_ssize_t i
    if npu_blocking_paused:
        return False
    for i in range(PyTuple_GET_SIZE(npu_blocking_names)):
        value = PyDict_GetItemWithError(npu_environment, <object>PyTuple_GET_ITEM_(npu_blocking_names, i))
        if value != NULL and <object>value == b"1":
            return True
    return False


def _npu_is_bound():
    """Whether the launcher has CANN's functions: kept here alone, so that Ctrl-C leaves no two opinions about it."""
    return npu_ready


def _npu_unbind():
    """Forgets prepared calls, constants and CANN's functions: the runtime is about to end."""
    global npu_ready
    npu_constants.clear()
    for i in range(MAX_NPUS):
        npu_prepared[i].clear()
    npu_finished(NULL)                           # CANN's streams end with their work done
    npu_end_lifetime()
    npu_ready = False


def _npu_end_lifetime():
    """No thread has a context any more, whatever it noted."""
    npu_end_lifetime()


def _npu_set_bound(int device):
    """Notes which npu's context the calling thread has now; -1: not known."""
    npu_set_bound(device)


def _npu_prepared_count(int device):
    """How many prepared calls are kept for a device."""
    return npu_prepared[npu_index(device)].size()


cdef int bind_device(int device) except -1:
    """The calling thread has the device's context, and the launcher CANN's functions."""
    if npu_bound() != device or not npu_ready:
        if npu_bind_thread is None:
            raise RuntimeError("no npu backend is loaded")
        npu_bind_thread(device)
        if not npu_ready:
            npu_rebind()
            if not npu_ready:
                raise RuntimeError("the npu backend has not bound CANN's functions")
        npu_set_bound(device)
    return 0
