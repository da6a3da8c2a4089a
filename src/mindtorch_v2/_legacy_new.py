"""What torch.Tensor(…), torch.FloatTensor(…) and tensor.new(…) make of their arguments."""
from __future__ import annotations

from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._C import device as Device
from mindtorch_v2._C import dtype as DType
from mindtorch_v2._shape import Size
from mindtorch_v2._typed_storage import TypedStorage


def legacy_tensor(*args: Any, device: Any = None, dtype: Any = None, size: Any = None, other: Any = None, **kwargs: Any) -> Any:
    """torch.Tensor(2, 3), torch.Tensor([1, 2]), torch.Tensor(other), torch.Tensor(storage)."""
    given, dtype = dtype is not None, dtype or _C.get_default_dtype()
    if kwargs or (size is not None or other is not None) and args or None not in (size, other):
        named = {name: value for name, value in (("size", size), ("other", other)) if value is not None}
        raise legacy_error(args, {**named, **kwargs})
    args = (other,) if other is not None else args if size is None else tuple(size)
    if all(_is_count(a, len(args) > 1) for a in args) or len(args) == 1 and isinstance(args[0], Size):
        size = args[0] if len(args) == 1 and isinstance(args[0], Size) else args or (0,)
        return _C._op_named("empty")([int(n) for n in size], dtype=dtype, device=device)
    if len(args) != 1:
        if _is_count(args[0], True):
            place, wrong = next((i, a) for i, a in enumerate(args) if not _is_count(a, True))
            raise TypeError(f"new(): argument 'size' failed to unpack the object at pos {place + 1} with error \"type must be "
                            f"tuple of ints,but got {_C._said_type(wrong)}\"")
        raise legacy_error(args, {})
    data = args[0]
    if isinstance(data, _C.TensorMethods):
        if dtype != data.dtype and given:
            raise TypeError(f"expected {_options_text(dtype, data.device)} (got {_options_text(data.dtype, data.device)})")
        return _C._op_named("alias")(data)
    if isinstance(data, TypedStorage) and data.dtype is not dtype:
        wanted, found = _C.TYPE_WORDS[dtype._id], _C.TYPE_WORDS[data.dtype._id]
        raise RuntimeError(f"Expected a Storage of type {wanted} or an UntypedStorage, but got type {found} for argument 1 "
                           "'storage'")
    if isinstance(data, (_C.StorageBase, TypedStorage)):
        return _C._from_data([], dtype, False).set_(data)
    if isinstance(data, (str, bytes)):
        raise TypeError(f"new(): invalid data type '{type(data).__name__}'")
    if isinstance(data, (set, frozenset, dict)) or not hasattr(data, "__getitem__") or \
            getattr(data, "shape", None) == () and not hasattr(data, "__setitem__"):
        raise TypeError(f"new(): data must be a sequence (got {_C._said_type(data)})")
    made = _C._from_data(data, dtype, False)
    return made if device is None else _C._to(made, None, device, False, False, None)


def check_legacy_device(expected: str, device: Any) -> None:
    """Refuses a device other than the one that a legacy constructor makes its tensors on."""
    if device is not None and Device(device).type != expected:
        raise RuntimeError(f"legacy constructor expects device type: {expected} but device type: {Device(device).type} was passed")


def _is_count(value: Any, among_others: bool) -> bool:
    """Whether an argument is a length; a tensor of one integer is one among others only, by itself it is data."""
    if isinstance(value, _C.TensorMethods):
        return among_others and value.numel() == 1 and not (value.is_floating_point() or value.is_complex())
    return hasattr(value, "__index__") and not isinstance(value, bool) and not hasattr(value, "__setitem__")


def _options_text(dtype: DType, device: Device) -> str:
    """A dtype and a device as C++ prints the options of a tensor."""
    return (f"TensorOptions(dtype={_C._cpp_name(dtype)}, device={device}, layout=Strided, requires_grad=false (default), "
            "pinned_memory=false (default), memory_format=(nullopt))")


def legacy_error(args: tuple[Any, ...], kwargs: dict[str, Any]) -> TypeError:
    got = [_named_type(a) for a in args] + [f"{name}={_named_type(a)}" for name, a in kwargs.items()]
    return TypeError(f"new() received an invalid combination of arguments - got ({', '.join(got)}), but expected one of:\n"
                     " * (*, torch.device device = None)\n * (torch.Storage storage)\n * (Tensor other)\n"
                     " * (tuple of ints size, *, torch.device device = None)\n * (object data, *, torch.device device = None)")


def _named_type(value: Any) -> str:
    """The type of a value as torch's messages about arguments say it."""
    kind = type(value)
    return f"torch.{kind.__name__}" if isinstance(value, (_C.dtype, _C.device)) else kind.__name__


def check_class(cls: Any) -> None:
    """Raises torch's error for what no tensor can be an instance of."""
    if not isinstance(cls, type):
        raise TypeError(f"cls must be a type (got {type(cls).__name__})")
    if not issubclass(cls, _C.TensorBase):
        raise TypeError("Creating a Tensor subclass from a class that does not inherit from Tensor is not possible. Make sure "
                        "your class inherits from Tensor.")
