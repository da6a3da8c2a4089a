# Backends: what the core needs of a device type. The core calls the C methods; those of Backend call the Python method of
# the same purpose, so that a backend may be written in either.

cdef class Memory:
    """Where a block is freed; the owner of a storage that is `managed`."""

    cdef int free_block(self, size_t address) noexcept:
        return 0

    cdef int record_use(self, size_t address, uint64_t stream) except -1:
        """Another stream uses the block: it is not reused before the work queued there is done."""
        return 0

    cdef object lost(self, int index):
        """The error for a block of a device that has ended."""
        return RuntimeError(f"the memory of a tensor on device {index} is lost: its device has ended")


cdef class Backend:
    """What a device type is for the core: memory, copies, kernels, streams, random state. A subclass is registered with
    _register_backend(). Until `ready` nothing but load() is called."""

    def __cinit__(self, *args, **kwargs):
        self.code, self.max_rank = -1, MAX_DIMS
        self.generators, self.seed = {}, DEFAULT_SEED

    # ---- for the core
    cdef Storage* new_storage(self, size_t nbytes, int index) except NULL:
        cdef Storage* s
        if not nbytes:
            return empty_storage(self.code, index)
        address, owner = self.allocate(nbytes, index)
        s = storage_foreign(<void*><size_t>address, nbytes, self.code, index, owner)
        s.resizable = True
        return s

    cdef int move_block(self, Storage* to, Storage* source, size_t nbytes) except -1:
        self.move(to.index, <size_t>to.data, <size_t>source.data, nbytes)
        return 0

    cdef int copy_items(self, TensorBase dst, TensorBase src, bint non_blocking) except -1:
        self.copy(dst, src, non_blocking)
        return 0

    cdef int flip_items(self, TensorBase t, int marks) except -1:
        """Conjugates and negates the items of t, which is contiguous. By the host, where a backend has no better way."""
        cdef TensorBase here = host_copy(t)
        flip_here(here, marks)
        return self.copy_items(t, here, False)

    cdef int current_index(self) except -1:
        return self.current_device()

    # ---- for a subclass to give
    def load(self) -> None:
        """Makes the backend ready, or registers the one that serves in its place."""
        raise RuntimeError(f"no backend is registered for device type {device_types.names[self.code]}; tensors can be made "
                           "on cpu and meta")

    def allocate(self, nbytes, index):
        """(address, owner) of a new block; the block lives as long as its owner."""
        raise NotImplementedError(f"{type(self).__name__}.allocate")

    def move(self, index, to, source, nbytes):
        """Copies bytes within a device, by address; both blocks stay until it is done."""
        raise NotImplementedError(f"{type(self).__name__}.move")

    def copy(self, dst, src, non_blocking):
        """dst's items become src's, cast and broadcast; at least one of them is on a device of this type."""
        raise NotImplementedError(f"{type(self).__name__}.copy")

    def kernel(self, row, optional):
        """What computes a row: fn(outs, args), a DeviceKernel, or None. optional: the caller does without, and wants None
        where the device lacks what the row names."""
        return None

    def list_kernel(self, schema, calls):
        """A ListKernel that serves a row over lists, or None."""
        return None

    def current_device(self) -> int:
        """The index that the calling thread means where it names none."""
        return 0

    def current_stream(self, index):
        """The handle of the stream that the calling thread uses on a device."""
        return 0

    def pinned(self, nbytes):
        """(address, owner) of memory of the host that the device reads without a copy; None: there is none such."""
        return None

    # ---- random state
    def default_generator(self, int index):
        """The default generator of a device; it touches no device."""
        if self.code < 0:
            raise RuntimeError("the backend is not registered")
        found = self.generators.get(index)
        if found is None:
            found = type(default_generator)(device_object(self.code, index)).manual_seed(self.seed)
            self.generators[index] = found
        return found

    def manual_seed_all(self, seed) -> None:
        """Seeds the default generators of all devices, those not yet seen included."""
        for found in self.generators.values():
            found.manual_seed(seed)
        self.seed = seed

    def rng_states(self):
        """What set_rng_states() takes to bring all default generators back to where they are now."""
        return self.seed, {index: g.get_state() for index, g in self.generators.items()}

    def set_rng_states(self, saved) -> None:
        """Brings the default generators back; those that were not seen then start from the seed of then."""
        self.seed, states = saved
        for index, g in self.generators.items():
            if index in states:
                g.set_state(states[index])
            else:
                g.manual_seed(self.seed)


def _register_backend(str type, Backend backend not None, bint ready=True):
    """From now on backend serves the devices of a type. Not ready: its load() is called at the first use."""
    cdef int code = device_code(type)
    cdef Backend before = device_types.backends[code]
    if code <= META:
        raise ValueError(f"the core serves {type} itself")
    if backend.code >= 0 and backend.code != code:
        raise ValueError(f"the backend serves {device_types.names[backend.code]} already")
    if before is not None and before is not backend:
        backend.generators, backend.seed = before.generators, before.seed      # random state is the device's
    backend.code, backend.ready = code, ready
    device_types.backends[code] = backend


def _backend(str type):
    """The backend of a device type, loaded."""
    return backend_of(device_code(type))


def _registered_backend(str type):
    """The backend of a device type, loaded or not."""
    return device_types.backends[device_code(type)]


cdef Backend loaded_backend(int code):
    """The backend of a device type, which is made ready at the first use of a device."""
    cdef Backend backend = device_types.backends[code]
    if not backend.ready:
        backend.load()
        backend = device_types.backends[code]
        if not backend.ready:
            raise RuntimeError(f"the backend of device type {device_types.names[code]} is not ready")
    return backend


def _rename_privateuse1_backend(str name):
    """The name of the device type that backends from outside this package share; "npu" changes nothing."""
    given = _get_privateuse1_backend_name()
    if name == given:
        return
    if given != "npu":
        raise RuntimeError(f"torch.register_privateuse1_backend() has already been set! Current backend: {given}")
    if name in device_types.names:
        raise RuntimeError(f"Cannot register privateuse1 backend with in-tree device type: {name}")
    device_types.names[PRIVATE] = name
    device_types.read.clear()


def _get_privateuse1_backend_name() -> str:
    """What the device type of backends from outside is called: as with torch_npu, "npu" where no other name was given."""
    return "npu" if device_types.names[PRIVATE] == "privateuseone" else device_types.names[PRIVATE]


for _code in range(NUM_DEVICES):                 # the core serves the first two; the others wait for theirs
    _served = Backend()
    (<Backend>_served).code, (<Backend>_served).ready = _code, _code <= META
    device_types.backends[_code] = _served
del _code, _served
