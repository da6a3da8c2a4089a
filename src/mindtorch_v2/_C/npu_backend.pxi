# Ascend as the core's backend: storages, copies within a device, the current device. The rest of the interface is Python:
# _backends/npu/backend.py.

cdef extern from *:
    """
    // The npu that "npu" without an index means in the running thread.
    static thread_local int npu_current_device __attribute__((tls_model("initial-exec"))) = 0;
    static inline int npu_current() { return npu_current_device; }
    static inline void npu_set_current(int index) { npu_current_device = index; }
    """
    int npu_current()
    void npu_set_current(int)


cdef class NpuBackend(Backend):
    """The native half of the npu's backend. Its subclass gives load, attach, move, copy_between, kernel, list_kernel,
    make_constant, pinned, aclnn_available and symbols_ok."""
    cdef public object captures                  # a container; while it is not empty, graphs are captured

    def __cinit__(self, *args, **kwargs):
        self.max_rank, self.captures = MAX_RANK, ()

    cdef Storage* new_storage(self, size_t nbytes, int index) except NULL:
        """Its owner is the heap that frees the block."""
        cdef size_t address = 0
        cdef NpuHeap heap = npu_heap(index)      # held here: the device may end while it looks for memory
        cdef Storage* s
        if nbytes:
            address = heap.allocate(nbytes, npu_stream_of(index))
        s = storage_shell()
        if s == NULL:
            if nbytes:
                npu_heap_free(heap, address)
            raise MemoryError()
        s.data, s.nbytes, s.device, s.index = <void*>address, nbytes, NPU, index
        if nbytes:
            Py_INCREF(heap)
            s.owner, s.managed = <PyObject*>heap, True
        return s

    cdef int move_block(self, Storage* to, Storage* source, size_t nbytes) except -1:
        """On the current stream; the old block may be of another, which must not reuse it before."""
        self.move(to.index, <size_t>to.data, <size_t>source.data, nbytes)
        return record_use(source, npu_stream_of(source.index))

    cdef int copy_items(self, TensorBase dst, TensorBase src, bint non_blocking) except -1:
        """Within one device a copy is an op."""
        cdef PyObject* slots[3]
        if dst.dev == src.dev and dst.dev_index == src.dev_index:
            slots[0], slots[1], slots[2] = <PyObject*>dst, <PyObject*>src, <PyObject*>None
            return device_kernel(<Overload>hot.copy_.rows[0], NPU, (dst,), slots)
        self.copy(dst, src, non_blocking)
        return 0

    cdef int flip_items(self, TensorBase t, int marks) except -1:
        """By the ops: nothing is recorded, for t has no history."""
        if marks & MARK_CONJ:
            self.copy_items(t, tensor_arg(_op_named("conj_physical")(t)), False)
        if marks & MARK_NEG:
            self.copy_items(t, tensor_arg(hot_call1(hot.neg, t)), False)
        return 0

    cdef int current_index(self) except -1:
        return npu_current()

    def current_device(self) -> int:
        return npu_current()

    def current_stream(self, index):
        return npu_stream_of(npu_index(index))


cdef bint graphs_are_captured() except -1:
    """Whether work of any thread goes into a graph instead of to a device."""
    return bool((<NpuBackend?>backend_of(NPU)).captures)


def _npu_current_device() -> int:
    """The index of the npu that the calling thread uses where none is named."""
    return npu_current()


def _npu_set_current_device(int index) -> None:
    npu_set_current(index)


def _npu_aclnn_available() -> bool:
    """Whether CANN's op library can be loaded on this machine."""
    return backend_of(NPU).aclnn_available()


def _npu_aclnn_symbols_ok() -> bool:
    """Whether every function of CANN that the launcher needs is there."""
    return backend_of(NPU).symbols_ok()


# ---- random state, which touches no device and loads no backend -----------------------------------------------------
def _npu_default_generator(int index):
    """The default generator of an npu."""
    return _registered_backend("npu").default_generator(index)


def _npu_manual_seed_all(seed):
    """Seeds the default generators of all npus, those not yet seen included."""
    _registered_backend("npu").manual_seed_all(seed)


def _npu_rng_states():
    """What _npu_set_rng_states takes to bring all npus' default generators back to where they are now."""
    return _registered_backend("npu").rng_states()


def _npu_set_rng_states(saved):
    """Brings the default generators back; those that were not seen then start from the seed of then."""
    _registered_backend("npu").set_rng_states(saved)
