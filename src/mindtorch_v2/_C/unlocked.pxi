# Kernels that run without the GIL. Other threads may then resize, replace or free the tensors of the call: the kernel has
# a copy of their sizes and strides, and their blocks stay until it is done.

cdef extern from *:
    """
    // Gives the views sizes and strides of their own.
    static inline void mt_own_dims(mt::View* v, int n, std::vector<int64_t>& dims) {
        size_t words = 0;
        for (int i = 0; i < n; ++i) words += v[i].ndim > 0 ? 2 * v[i].ndim : 0;
        dims.resize(words);
        int64_t* at = dims.data();
        for (int i = 0; i < n; ++i) {
            if (v[i].ndim <= 0) continue;
            const size_t bytes = v[i].ndim * sizeof(int64_t);
            std::memcpy(at, v[i].sizes, bytes);
            std::memcpy(at + v[i].ndim, v[i].strides, bytes);
            v[i].sizes = at;
            v[i].strides = at + v[i].ndim;
            at += 2 * v[i].ndim;
        }
    }
    """
    void mt_own_dims(View*, int, vector[int64_t]&) except +


cdef inline void hold_all(Storage** storages, int n) noexcept:
    """NULL where a view has no storage."""
    cdef int i
    for i in range(n):
        if storages[i] != NULL:
            storage_hold(storages[i])


cdef inline void let_all_go(Storage** storages, int n) noexcept:
    cdef int i
    for i in range(n):
        if storages[i] != NULL:
            storage_let_go(storages[i])


cdef int run_unlocked(Kernel kernel, Args* args, View* v, Storage** storages) except -1:
    """Runs a kernel over the views v, which are of the storages, without the GIL."""
    cdef vector[int64_t] dims
    cdef int n = args.nt
    mt_own_dims(v, n, dims)
    hold_all(storages, n)
    try:
        with nogil:
            kernel(args[0])
    finally:
        let_all_go(storages, n)
    return 0


cdef int pointwise_unlocked(const Pointwise* pw, int compute, View* v, Storage** storages, int n,
                            const Attr* attr) except -1:
    """Runs the loop of a pointwise op over the views v, which are of the storages, without the GIL."""
    cdef vector[int64_t] dims
    mt_own_dims(v, n, dims)
    hold_all(storages, n)
    try:
        with nogil:
            lib.pointwise(pw, <DType>compute, v, attr)
    finally:
        let_all_go(storages, n)
    return 0
