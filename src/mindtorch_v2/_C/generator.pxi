# Random generators: on the CPU a Mersenne twister of the kernel library, on accelerators a seed and an offset, because a
# counter-based kernel on the device takes both. Drawing numbers is elsewhere.

cdef enum:
    PHILOX_STEP = 4                              # a counter gives four numbers; offsets keep to whole counters

cdef uint64_t DEFAULT_SEED = 67280421310721


cdef class GeneratorBase:
    """A stream of random numbers; on the CPU the same numbers as PyTorch's for the same seed."""

    def __cinit__(self, device="cpu"):
        self.device = as_device(device)
        self.lock = PyThread_allocate_lock()
        if self.lock == NULL:
            raise MemoryError()
        self.philox_seed = DEFAULT_SEED
        if (<device_type>self.device).code == CPU:
            self.g = lib.generator_new(DEFAULT_SEED)
        elif (<device_type>self.device).code == META:
            raise RuntimeError("META device type not an accelerator.")

    def __dealloc__(self):
        if self.g != NULL:
            lib.generator_delete(self.g)
        if self.lock != NULL:
            PyThread_free_lock(self.lock)

    cdef int acquire(self) except -1:
        """From here to release() no other thread draws; returns True. Waits for a kernel that runs without the GIL."""
        Py_INCREF(self)                          # the default generator may be replaced meanwhile
        self.users += 1
        if not PyThread_acquire_lock(self.lock, NOWAIT_LOCK):
            with nogil:
                PyThread_acquire_lock(self.lock, WAIT_LOCK)
        return True

    cdef void release(self) noexcept:
        self.users -= 1
        PyThread_release_lock(self.lock)
        Py_DECREF(self)

    def manual_seed(self, seed) -> "Generator":
        if not hasattr(seed, "__index__"):
            raise RuntimeError(f"manual_seed expected a long, but got {type(seed).__name__}")
        if not -(1 << 63) <= int(seed) < 1 << 64:
            raise ValueError("Overflow when unpacking long long")
        self.philox_seed, self.philox_offset = <uint64_t>(int(seed) & 0xFFFFFFFFFFFFFFFF), 0
        if self.g != NULL:
            self.acquire()
            lib.generator_seed(self.g, self.philox_seed)
            self.release()
        return self

    def initial_seed(self) -> int:
        return self.philox_seed if self.g == NULL else lib.generator_initial_seed(self.g)

    def seed(self) -> int:
        fresh = int.from_bytes(os.urandom(8), "little") & 0x1FFFFFFFFFFFFF
        self.manual_seed(fresh)
        return fresh

    def get_state(self) -> "Tensor":
        """The state as a uint8 tensor on the CPU; of an accelerator's generator its seed and offset."""
        cdef int64_t n = 16 if self.g == NULL else lib.generator_state(self.g, NULL)
        cdef TensorBase t = new_empty(1, &n, kUInt8, CPU, -1)
        if self.g == NULL:
            memcpy(ptr_of(t), &self.philox_seed, 8)
            memcpy(ptr_of(t) + 8, &self.philox_offset, 8)
        else:
            self.acquire()
            lib.generator_state(self.g, ptr_of(t))
            self.release()
        return t

    def set_state(self, new_state) -> "Generator":
        if not isinstance(new_state, TensorBase):
            raise TypeError(f"expected a torch.ByteTensor, but got {type(new_state).__name__}")
        cdef TensorBase t = contiguous_of(<TensorBase>new_state)
        if t.dt != kUInt8 or t.dev != CPU:
            raise TypeError("RNG state must be a torch.ByteTensor")
        if self.g == NULL:
            if t.count != 16:
                raise RuntimeError(f"RNG state is wrong size: expected 16 bytes, got {t.count}")
            check_room(t)
            memcpy(&self.philox_seed, ptr_of(t), 8)
            memcpy(&self.philox_offset, ptr_of(t) + 8, 8)
        else:
            self.acquire()                       # may wait: before the tensor is looked at
            try:
                check_room(t)
                lib.generator_set_state(self.g, ptr_of(t), t.count)
            finally:
                self.release()
        return self

    def __reduce__(self):
        return type(self), (self.device,), self.__getstate__()

    def __getstate__(self):
        """(seed, offset on accelerators, state), as torch has it."""
        return self.initial_seed(), None if self.g != NULL else self.philox_offset, self.get_state()

    def __setstate__(self, state):
        self.manual_seed(state[0])
        self.set_state(state[2])

    def clone_state(self) -> "Generator":
        other = type(self)(self.device)
        other.set_state(self.get_state())
        return other

    def get_offset(self) -> int:
        """How far an accelerator's generator has come."""
        if self.g != NULL:
            raise RuntimeError("CPU Generator does not use offset")
        return self.philox_offset

    def set_offset(self, offset) -> None:
        """Moves an accelerator's generator; a multiple of 4."""
        if self.g != NULL:
            raise RuntimeError("CPU Generator does not use offset")
        if offset % PHILOX_STEP:
            raise RuntimeError(f"offset must be a multiple of {PHILOX_STEP}, got {offset}")
        self.philox_offset = offset

    def _next_seed_offset(self, uint64_t increment) -> "tuple[int, int]":
        """(seed, offset) for one kernel of a device that draws up to increment numbers per lane; moves on behind them."""
        return self.philox_seed, self.move_on(increment)

    cdef object move_on(self, uint64_t increment):
        """The offset now; from here on it is behind as many numbers."""
        cdef uint64_t offset = self.philox_offset
        if self.g != NULL:
            raise RuntimeError(f"Expected a '{device_types.names[accelerator_code()]}' device type for generator but found 'cpu'")
        self.philox_offset += (increment + PHILOX_STEP - 1) // PHILOX_STEP * PHILOX_STEP
        return offset

    def _random64(self) -> int:
        if self.g == NULL:
            raise RuntimeError(f"Expected a 'cpu' device type for generator but found '{self.device.type}'")
        self.acquire()
        drawn = lib.generator_random64(self.g)
        self.release()
        return drawn


cdef GeneratorBase default_generator = None


def _default_generator() -> "Generator":
    """The CPU's, which ops draw from when they are given none."""
    return default_generator


cdef PyObject* generator_of(object o) except NULL:
    """The CPU generator that a call uses, borrowed: from the call's arguments, or the default one."""
    cdef PyObject* chosen = <PyObject*>o if o is not None else <PyObject*>default_generator
    if not isinstance(<object>chosen, GeneratorBase):
        raise TypeError(f"expected a torch.Generator, got {type(<object>chosen).__name__}")
    if (<GeneratorBase>chosen).g == NULL:
        raise RuntimeError(f"Expected a 'cpu' device type for generator but found '{(<GeneratorBase>chosen).device.type}'")
    return chosen
