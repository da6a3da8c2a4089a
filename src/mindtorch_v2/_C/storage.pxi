# Storages: blocks of bytes shared by tensors, and the Python object that stands for one.

_LEVELS = ("base", "avx2", "avx512")


def _load_kernels(str folder) -> str:
    """Opens the best kernel library in folder that this processor runs; returns its level. ATEN_CPU_CAPABILITY (default,
    avx2, avx512), which PyTorch reads too, asks for a lower one."""
    global lib
    cdef int most = processor_level()
    asked = os.environ.get("ATEN_CPU_CAPABILITY", "avx512")
    if asked in ("default", "avx2", "avx512"):
        most = min(most, ("default", "avx2", "avx512").index(asked))
    else:
        warnings.warn(f"ignoring invalid value for ATEN_CPU_CAPABILITY: {asked}", stacklevel=2)
    for level in reversed(_LEVELS[:most + 1]):
        file = f"{folder}/libmt_kernels_{level}.so"
        if level == "base" or os.path.exists(file):
            lib = open_library(file.encode())
            return level


cdef Storage* nothing = new Storage()
nothing.refs = <int64_t>1 << 60                  # shared by all shells, never freed


cdef int no_host_memory(size_t nbytes) except -1:
    raise RuntimeError(f"[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate {nbytes} bytes.")


cdef Storage* empty_storage(int dev, int index) except NULL:
    """A storage without a block."""
    cdef Storage* s = storage_shell()
    if s == NULL:
        raise MemoryError()
    s.device, s.index = dev, index
    return s


cdef Storage* storage_foreign(void* data, size_t nbytes, int dev, int index, object owner) except NULL:
    cdef Storage* s = storage_shell()
    if s == NULL:
        raise MemoryError()
    s.data, s.nbytes, s.device, s.index = data, nbytes, dev, index
    s.resizable = False
    Py_INCREF(owner)
    s.owner = <PyObject*>owner
    return s


cdef void storage_free_block(Storage* s) noexcept:
    """Frees the block. An owner's end may run Python, which must not find the block in s any more."""
    cdef PyObject* owner = s.owner
    cdef void* data = s.data
    cdef bint managed = s.managed
    s.owner = NULL
    s.data = NULL
    s.managed = s.copy_on_write = False
    if owner != NULL:
        if managed:
            (<Memory>owner).free_block(<size_t>data)
        Py_DECREF(<object>owner)
    elif s.device == CPU and data != NULL:
        lib.release(data, s.nbytes)


cdef inline void storage_decref(Storage* s) noexcept:
    s.refs -= 1
    if s.refs == 1 and s.keeps_seen:             # only its own object uses it now
        s.keeps_seen = False
        Py_DECREF(<object>s.seen)
    elif s.refs == 0:
        storage_free_block(s)
        storage_drop(s)


cdef void storage_hold(Storage* s) noexcept:
    """The block of s stays until storage_let_go(), even if s gets another."""
    s.refs += 1
    s.users += 1


cdef void storage_let_go(Storage* s) noexcept:
    cdef Storage* old
    s.users -= 1
    while s.users == 0 and s.former != NULL:
        old = s.former
        s.former = old.former
        old.former = NULL
        storage_decref(old)
    storage_decref(s)


cdef void storage_swap(Storage* s, Storage* fresh) noexcept:
    """s gets the block of fresh, which is used up. The old block goes at once, or with the last kernel that runs over it.
    It goes last: its end may run Python, which must find s whole."""
    s.data, fresh.data = fresh.data, s.data
    s.nbytes, fresh.nbytes = fresh.nbytes, s.nbytes
    s.owner, fresh.owner = fresh.owner, s.owner
    s.managed, fresh.managed = fresh.managed, s.managed
    s.copy_on_write, fresh.copy_on_write = fresh.copy_on_write, s.copy_on_write
    if s.users:
        fresh.former = s.former
        s.former = fresh
    else:
        storage_decref(fresh)


cdef int check_movable(Storage* s) except -1:
    """Raises torch's error where others have the block's address."""
    if s.exports:
        raise RuntimeError("Trying to resize storage that is not resizable")
    return 0


cdef int storage_resize(Storage* s, size_t nbytes) except -1:
    cdef Storage* fresh
    if nbytes == s.nbytes:
        return 0
    if not s.resizable or s == nothing:
        raise RuntimeError("Trying to resize storage that is not resizable")
    check_movable(s)
    fresh = storage_new(nbytes, s.device, s.index)
    try:
        if s.data != NULL and fresh.data != NULL:
            if s.device > META:
                refuse_ended(s)
                backend_of(s.device).move_block(fresh, s, min(nbytes, s.nbytes))
            else:
                memcpy(fresh.data, s.data, min(nbytes, s.nbytes))
    except BaseException:
        storage_decref(fresh)
        raise
    s.shrunk = s.shrunk or nbytes < s.nbytes
    storage_swap(s, fresh)
    return 0


# ---- copy on write ----------------------------------------------------------------------------------------------------
cdef class SharedBlock:
    """Owns a block that several storages read. Each of them copies it before it writes (before_write), all but the last."""
    cdef Storage* block

    def __dealloc__(self):
        if self.block != NULL:
            storage_decref(self.block)


cdef bint is_shareable(Storage* s) noexcept:
    """Whether all who could write to the block go through s: it is of the CPU's allocator and nobody has its address."""
    return s.copy_on_write or s.device <= META and s.owner == NULL and s != nothing and not s.exports and not s.users


cdef Storage* share_block(Storage* s) except NULL:
    """Another storage over the block of s, which is shareable; both are copy-on-write from now on."""
    cdef Storage* made = empty_storage(s.device, s.index)
    cdef SharedBlock shared
    try:
        if not s.copy_on_write:
            shared = SharedBlock.__new__(SharedBlock)
            shared.block = empty_storage(s.device, s.index)
            shared.block.data, shared.block.nbytes = s.data, s.nbytes
            Py_INCREF(shared)
            s.owner, s.copy_on_write = <PyObject*>shared, True
    except MemoryError:
        storage_drop(made)
        raise
    Py_INCREF(<object>s.owner)
    made.data, made.nbytes, made.owner, made.copy_on_write, made.shrunk = s.data, s.nbytes, s.owner, True, s.shrunk
    return made


cdef int own_block(Storage* s) except -1:
    """A copy-on-write storage gets a block of its own: the shared one where no other storage has it any more, else a copy.
    Where there is no memory for that, all stay as they are."""
    cdef Storage* fresh
    cdef PyObject* shared = s.owner
    if not s.copy_on_write:
        return 0
    if Py_REFCNT(<object>shared) == 1:
        s.owner = NULL
        s.copy_on_write = False
        (<SharedBlock>shared).block.data = NULL
        Py_DECREF(<object>shared)
        return 0
    fresh = storage_new(s.nbytes, s.device, s.index)
    if s.data != NULL:
        memcpy(fresh.data, s.data, s.nbytes)
    storage_swap(s, fresh)
    return 0


cdef int record_use(Storage* s, uint64_t stream) except -1:
    if s.managed:
        (<Memory>s.owner).record_use(<size_t>s.data, stream)
    return 0


cdef int refuse_ended(Storage* s) except -1:
    """Memory of a runtime that ended is not ours any more, and its address may be another tensor's by now."""
    if s.managed and (<Memory>s.owner).ended:
        raise (<Memory>s.owner).lost(s.index)
    return 0


cdef int pin_storage(Storage* s) except -1:
    """Moves a storage of the CPU to pinned memory; where no device wants it so it is only marked."""
    cdef size_t nbytes = s.nbytes
    if s.pinned:
        return 0
    if s.device != CPU:
        raise RuntimeError("only storages on the CPU can be pinned")
    taken = backend_of(accelerator_code()).pinned(nbytes) if nbytes else None
    check_movable(s)
    if s.nbytes != nbytes:                       # taking pinned memory runs Python
        raise RuntimeError("a storage was resized while it was being pinned")
    if taken is not None:
        address, owner = taken
        memcpy(<void*><size_t>address, s.data, nbytes)
        storage_swap(s, storage_foreign(<void*><size_t>address, nbytes, CPU, -1, owner))
        s.resizable = False
    s.pinned = True
    return 0


cdef class StorageExport:
    """Holds the address of a storage's block: the block is not moved or freed while this exists."""
    cdef Storage* s

    cdef StorageExport hold(self, Storage* s):
        own_block(s)                             # whoever has the address may write
        s.refs += 1
        s.exports += 1
        self.s = s
        return self

    def __dealloc__(self):
        if self.s != NULL:
            self.s.exports -= 1
            storage_decref(self.s)


cdef class BufferHold:
    """The memory of a buffer, which its object may neither free nor move until this ends."""
    cdef Py_buffer view
    cdef bint held

    def __cinit__(self, buffer, bint writable):
        PyObject_GetBuffer(buffer, &self.view, PyBUF_WRITABLE if writable else PyBUF_SIMPLE)
        self.held = True

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


cdef bytes storage_items(object items):
    """The items of a sequence as bytes, as torch cuts them."""
    if isinstance(items, (bytes, bytearray)):
        return bytes(items)
    if isinstance(items, (TensorBase, dict)) or not hasattr(items, "__len__") or not hasattr(items, "__getitem__"):
        raise RuntimeError(f"torch.UntypedStorage(): Expected a sequence type, but got {type(items).__name__}")
    for item in items:
        if not isinstance(item, int):
            raise RuntimeError(f"torch.UntypedStorage(): tried to construct a storage from a sequence ({type(items).__name__}), "
                               f"but one of the items was of type {type(item).__name__} instead of int")
    return bytes([item & 255 for item in items])


cdef int check_storage_size(object size) except -1:
    if size < 0:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:98] ((ptrdiff_t)nbytes) >= 0. alloc_cpu() seems to have been called "
                           f"with negative number: {size + (1 << 64)}")
    return 0


cdef class StorageBase:
    """A block of bytes on a device, shared by the tensors that view it."""

    def __cinit__(self, *args, **kwargs):
        self.s = new_storage()                   # empty until a maker fills it in
        if self.s == NULL:
            raise MemoryError()

    def __init__(self, size=0, *, device=None) -> None:
        cdef Storage* made
        cdef Py_ssize_t n
        cdef object place
        if type(self) is StorageBase:
            raise RuntimeError("Cannot directly construct StorageBase; subclass it and then construct that")
        if isinstance(size, StorageBase):        # a subclass's object of the same memory
            (<StorageBase>size).s.refs += 1
            self.take((<StorageBase>size).s)
            return
        place = as_device(device)
        if isinstance(size, int) and not PyBool_Check(size):
            check_storage_size(size)
            n = size
            self.take(storage_new(n, (<device_type>place).code, (<device_type>place).number))
        else:
            data = storage_items(size)
            made = storage_new(len(data), META if (<device_type>place).code == META else CPU, -1)
            if made.nbytes and made.device == CPU:
                memcpy(made.data, <char*>data, made.nbytes)
            self.take(made)

    def __del__(self):
        """Attributes and weak references live as long as the storage: what uses it keeps its object."""
        if self.s != NULL and self.s.refs > 1 and self.s.seen == <PyObject*>self and not self.s.keeps_seen:
            self.s.keeps_seen = True
            Py_INCREF(self)

    def __dealloc__(self):
        if self.s != NULL:
            if self.s.seen == <PyObject*>self:
                self.s.seen = NULL
            storage_decref(self.s)

    cdef void take(self, Storage* s):
        cdef Storage* was = self.s
        if was.seen == <PyObject*>self:
            was.seen = NULL
        self.s = s
        if s.object() == NULL:                   # also while the one before is ending
            s.seen = <PyObject*>self
        storage_decref(was)                      # may run Python

    @classmethod
    def _from_bytes(cls, data):
        """A CPU storage with a copy of a bytes-like object."""
        cdef BufferHold held = BufferHold(data, False)
        cdef Storage* made
        r = cls.__new__(cls)                     # not cls(size): a subclass may make it as large as it likes
        if not isinstance(r, StorageBase):
            raise TypeError(f"expected a storage from {cls.__name__}.__new__, got {type(r).__name__}")
        made = storage_new(held.view.len, CPU, -1)
        if made.nbytes:
            memcpy(made.data, held.view.buf, made.nbytes)
        (<StorageBase>r).take(made)
        return r

    def nbytes(self) -> int:
        return self.s.nbytes

    def size(self) -> int:
        return self.s.nbytes

    def __len__(self) -> int:
        return self.s.nbytes

    def data_ptr(self) -> int:
        refuse_ended(self.s)
        own_block(self.s)
        return <size_t>self.s.data

    @property
    def _cdata(self) -> int:
        return <size_t>self.s

    @property
    def device(self) -> "device":
        return device_object(self.s.device, self.s.index)

    @property
    def _pinned(self) -> bool:
        return self.s.pinned

    @_pinned.setter
    def _pinned(self, value) -> None:
        self.s.pinned = value

    def _pin(self):
        """Moves the bytes to pinned memory."""
        pin_storage(self.s)

    def _move_to(self, block):
        """Moves the bytes into a writable block, such as one of shared memory, which is kept alive."""
        cdef BufferHold held = BufferHold(block, True)
        cdef Storage* s = self.s
        if s.device != CPU:
            raise RuntimeError("only a storage on the CPU can move to shared memory")
        check_movable(s)
        if <size_t>held.view.len < s.nbytes:
            raise ValueError(f"the block has {held.view.len} bytes, the storage {s.nbytes}")
        if s.nbytes:
            memcpy(held.view.buf, s.data, s.nbytes)
        s.resizable = False
        storage_swap(s, storage_foreign(held.view.buf, s.nbytes, CPU, -1, (block, held)))

    @property
    def _owner(self):
        """What keeps foreign memory alive; None for a block of the allocator."""
        return None if self.s.owner == NULL or self.s.managed or self.s.copy_on_write else <object>self.s.owner

    def _record_stream(self, size_t stream) -> None:
        """Another stream of its device uses the bytes: they are not reused before the work queued there is done."""
        record_use(self.s, stream)

    def resizable(self) -> bool:
        return self.s.resizable

    def resize_(self, size):
        if not isinstance(size, int):
            raise RuntimeError(f"resize_ expects an int, but got {type(size).__name__}")
        check_storage_size(size)
        storage_resize(self.s, size)
        return self

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        if self.s.device != CPU:
            raise BufferError(f"a storage on {device_object(self.s.device, self.s.index)} has no host buffer")
        own_block(self.s)
        buffer.buf = self.s.data if self.s.data != NULL else <void*>zero_place
        buffer.format = b"B"
        buffer.internal = self.s
        buffer.itemsize = 1
        buffer.len = self.s.nbytes
        buffer.ndim = 1
        buffer.obj = self
        buffer.readonly = 0
        buffer.shape = &buffer.len
        buffer.strides = &buffer.itemsize
        buffer.suboffsets = NULL
        self.s.refs += 1
        self.s.exports += 1

    def __releasebuffer__(self, Py_buffer* buffer):
        cdef Storage* s = <Storage*>buffer.internal
        s.exports -= 1
        storage_decref(s)


cdef object storage_class = StorageBase          # what untyped_storage() gives


cdef double zero_place[2]                        # what has no items has this address


cdef object storage_object(Storage* s):
    """What Python sees of a storage: the same object as long as it is referenced."""
    cdef StorageBase r
    if s.object() != NULL:
        return <object>s.object()
    r = storage_class.__new__(storage_class)
    s.refs += 1
    r.take(s)
    return r


# ---- the CPU's caching allocator ------------------------------------------------------------------------------
def _cpu_memory_stats() -> dict:
    """Statistics of the CPU's caching allocator."""
    cdef AllocatorStats a
    lib.allocator_stats(&a)
    return {"allocated_bytes": a.allocated_bytes, "peak_allocated_bytes": a.peak_allocated_bytes,
            "reserved_bytes": a.reserved_bytes, "peak_reserved_bytes": a.peak_reserved_bytes,
            "cached_bytes": a.cached_bytes, "allocations": a.allocations, "cache_hits": a.cache_hits,
            "bound_bytes": a.bound_bytes, "limit_bytes": a.limit_bytes, "idle_ms": a.idle_ms}


def _cpu_empty_cache() -> None:
    """Returns the CPU allocator's cached blocks to the system."""
    with nogil:
        lib.empty_cache()


def _cpu_memory_limit(str root=""):
    """How much memory this process may use: the machine's, or its control groups' limit. root: a folder for tests, that
    holds proc/self/cgroup and sys/fs/cgroup."""
    encoded = root.encode()
    return lib.memory_limit(encoded)


def get_num_threads() -> int:
    """How many threads large CPU work is split over."""
    return lib.get_num_threads()


def set_num_threads(n) -> None:
    """Sets how many threads large CPU work is split over."""
    if not PyLong_Check(n):
        raise RuntimeError(f"set_num_threads expects an int, but got {type(n).__name__}")
    if n <= 0:
        raise RuntimeError(f"set_num_threads expects a positive integer, got {n}")
    lib.set_num_threads(n)


def _bf16_unit() -> str:
    """What multiplies bfloat16 on this processor without a way through float: amx, avx512_bf16, neon_bf16, or nothing."""
    return lib.bf16_unit().decode()


def _set_blas_path(str file) -> None:
    """Where the BLAS library is; it is opened at the first matmul."""
    encoded = file.encode()
    lib.set_blas_path(encoded)


cdef int check_class(object cls, object base) except -1:
    if not isinstance(cls, builtin_type) or not issubclass(cls, base):
        raise TypeError(f"expected a subclass of {base.__name__}, got {cls!r}")
    return 0
