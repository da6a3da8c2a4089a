# Devices: where a tensor lives, and where the running thread makes tensors that name no device.

cdef class DeviceTypes:
    """The device types of this process by code: their names, and who serves them. No tensor is of a type from NUM_DEVICES
    on: programs name those, compare them and are refused when they want a tensor there."""

    def __cinit__(self):
        self.names = ["cpu", "meta", "npu", "privateuseone",
                      "cuda", "ipu", "xpu", "mkldnn", "opengl", "opencl", "ideep", "hip", "ve", "fpga", "maia", "xla", "lazy",
                      "vulkan", "mps", "hpu", "mtia"]
        self.backends = [None] * NUM_DEVICES
        self.made, self.read = {}, {}


cdef DeviceTypes device_types = DeviceTypes()


cdef dict device_aliases = {}                    # another device's name -> that of the type which stands for it


def _alias_device(str name, str meant) -> None:
    """From now on a device type's name means another type: programs written for cuda run on npu."""
    device_code(meant)
    device_aliases[name] = meant
    device_types.read.clear()


cdef int named_code(str name) except -1:
    """The code of a device type, which may be one that no tensor can be on."""
    name = device_aliases.get(name, name)
    if name not in device_types.names:
        raise RuntimeError(f"Expected one of {', '.join(device_types.names)} device type at start of device string: {name}")
    return <int>device_types.names.index(name)


cdef int device_code(str name) except -1:
    """The code of a device type that tensors can be on."""
    cdef int code = named_code(name)
    if code >= NUM_DEVICES:
        raise not_compiled(code)
    return code


cdef object not_compiled(int code):
    """What torch raises where it was built without a device type."""
    cdef str name = device_types.names[code]
    if name in ("cuda", "xpu", "mtia"):
        return AssertionError(f"Torch not compiled with {name.upper()} enabled")
    return NotImplementedError(f"PyTorch is not linked with support for {name} devices")


cdef class device:
    """Where a tensor lives: a type and, for accelerators, an index."""

    def __cinit__(self, *args, **kwargs):
        self.code = self.number = -1

    def __init__(self, type, index=None) -> None:
        if self.code >= 0:
            return                               # made before, and shared: a device never changes
        if isinstance(type, device):
            self.code, self.number = (<device>type).code, (<device>type).number
            return
        if isinstance(type, int):
            type, index = device_types.names[accelerator_code()], type
        if not isinstance(type, str):
            raise TypeError(f"Device must be a string, an int or a torch.device, got {builtin_type(type).__name__}")
        if not type:
            raise RuntimeError("Device string must not be empty")
        if index is not None and not isinstance(index, int):
            raise TypeError(f"device(): argument 'index' (position 2) must be int, not {builtin_type(index).__name__}")
        name, colon, number = type.partition(":")
        if colon:
            if index is not None:
                raise RuntimeError(f"type (string) must not include an index because index was passed explicitly: {type}")
            if not (number.isascii() and number.isdigit()) or (len(number) > 1 and number[0] == "0"):
                raise RuntimeError(f"Invalid device string: '{type}'")
            if len(number) > 10 or int(number) > INT_MAX:
                raise RuntimeError(f"Could not parse device index '{number}' in device string '{type}'")
            index = int(number)
        code = named_code(name)
        if index is not None and index < 0:
            raise RuntimeError("Device index must not be negative")
        if index is not None and index > INT_MAX:
            raise RuntimeError(f"Device index must fit in 32 bits, got {index}")
        self.number = -1 if index is None else index
        self.code = code

    @property
    def type(self) -> str:
        return device_types.names[self.code]

    @property
    def index(self) -> "int | None":
        return None if self.number < 0 else self.number

    def __repr__(self) -> str:
        return f"device(type='{self.type}')" if self.number < 0 else f"device(type='{self.type}', index={self.number})"

    def __str__(self) -> str:
        return self.type if self.number < 0 else f"{self.type}:{self.number}"

    def __eq__(self, other) -> bool:
        if not isinstance(other, device):
            return NotImplemented
        return self.code == (<device>other).code and self.number == (<device>other).number

    def __hash__(self) -> int:
        return hash((self.code, self.number))

    def __reduce__(self) -> tuple:
        return device, (self.type,) if self.number < 0 else (self.type, self.number)

    def __enter__(self) -> "device":
        push_device(self)
        return self

    def __exit__(self, *exc) -> None:
        pop_device()


builtin_type = type


cdef device device_object(int code, int number):
    key = (code, number)
    d = device_types.made.get(key)
    if d is None:
        d = device.__new__(device)
        (<device>d).code, (<device>d).number = code, number
        device_types.made[key] = d
    return d


cdef device as_device(object d):
    """A device from what the user gave (None: the default); accelerators get their index."""
    cdef device r
    if builtin_type(d) is str:
        r = <device>device_types.read.get(d)
        if r is None:
            r = device_types.read[d] = device(d)
    elif d is None:
        r = default_device()
        if r is None:
            return cpu_device
    elif isinstance(d, device):
        r = <device>d
    else:
        r = device(d)
    if r.code > META:
        if r.code >= NUM_DEVICES:
            raise not_compiled(r.code)
        return device_object(r.code, backend_of(r.code).current_index()) if r.number < 0 else r
    if r.code < 0:
        raise RuntimeError("the device was never made: __init__ was not called")
    return cpu_device if r.code == CPU else r    # tensors do not keep an index of the CPU

cdef device cpu_device = device_object(CPU, -1)


def get_default_device() -> "device":
    """Where new tensors are made."""
    return as_device(None)


# ---- default devices ------------------------------------------------------------------------------------------------
cdef int push_device(device place) except -1:
    own_stacks().devices.append(place)
    return 0


cdef int pop_device() except -1:
    cdef list stack = own_stacks().devices
    if len(stack) < 2:
        raise RuntimeError("device.__exit__ without __enter__ in this thread")
    stack.pop()
    return 0


cdef device default_device():
    """Where the running thread makes tensors when it names no device; None: on the CPU."""
    return None if modes().devices == NULL else <device>(<list>modes().devices)[-1]


def set_default_device(d) -> None:
    """Sets where this thread makes new tensors; None: the CPU. Blocks of `with device` come first."""
    own_stacks().devices[0] = None if d is None else device(d)


cdef int accelerator_code() noexcept:
    """The type that a bare index means, and that pinned memory is for: a backend from outside where one is registered."""
    return PRIVATE if (<Backend>device_types.backends[PRIVATE]).ready else NPU
