"""What torch.Tensor(…), torch.FloatTensor(…) and tensor.new(…) make of their arguments."""
from __future__ import annotations

from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._C import device as Device
from mindtorch_v2._C import dtype as DType
from mindtorch_v2._shape import Size
from mindtorch_v2._typed_storage import TypedStorage


def legacy_tensor(*args: Any, device: Any = None, dtype: Any = None, size: Any = None, **kwargs: Any) -> Any:
    """torch.Tensor(2, 3), torch.Tensor([1, 2]), torch.Tensor(other), torch.Tensor(storage)."""
    given, dtype = dtype is not None, dtype or _C.get_default_dtype()
    if kwargs or size is not None and args:
        raise legacy_error(args, {**({} if size is None else {"size": size}), **kwargs})
    args = args if size is None else tuple(size)
    if all(hasattr(a, "__index__") and not isinstance(a, bool) and not hasattr(a, "__setitem__") for a in args) or \
            len(args) == 1 and isinstance(args[0], Size):
        size = args[0] if len(args) == 1 and isinstance(args[0], Size) else args or (0,)
        return _C._op_named("empty")([int(n) for n in size], dtype=dtype, device=device)
    if len(args) != 1:
        raise legacy_error(args, {})
    data = args[0]
    if isinstance(data, _C.TensorMethods):
        if dtype != data.dtype and given:
            raise TypeError(f"expected {_options_text(dtype, data.device)} (got {_options_text(data.dtype, data.device)})")
        return _C._op_named("alias")(data)
    if isinstance(data, (_C.StorageBase, TypedStorage)):
        return _C._from_data([], dtype, False).set_(data)
    if isinstance(data, (str, bytes)):
        raise TypeError(f"new(): invalid data type '{type(data).__name__}'")
    if isinstance(data, (float, complex, bool, set, frozenset)) or data is None:
        raise TypeError(f"new(): data must be a sequence (got {type(data).__name__})")
    if getattr(data, "shape", None) == () and not hasattr(data, "__setitem__"):
        raise TypeError(f"new(): data must be a sequence (got {type(data).__module__}.{type(data).__name__})")
    made = _C._from_data(data, dtype, False)
    return made if device is None else _C._to(made, None, device, False, False, None)


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
