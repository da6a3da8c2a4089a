"""torch._utils: what packages read of torch's own helpers, such as how an error travels between processes."""
from __future__ import annotations

import sys
import traceback
from typing import Any

import mindtorch_v2 as torch


class KeyErrorMessage(str):
    """A text whose repr is itself: a KeyError shows the repr of what it was given."""

    def __repr__(self) -> str:
        return str(self)


class ExceptionWrapper:
    """An exception with its traceback as text, for another process to raise."""

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        kind, error, where_from = sys.exc_info() if exc_info is None else exc_info
        self.exc_type: Any = kind
        self.exc_msg = "".join(traceback.format_exception(kind, error, where_from))
        self.where = where

    def reraise(self) -> None:
        """Raise it here, with the text of the other traceback."""
        message = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        if self.exc_type is KeyError:
            message = KeyErrorMessage(message)
        elif getattr(self.exc_type, "message", None):
            raise self.exc_type(message=message)
        try:
            error = self.exc_type(message)
        except Exception:     # a class whose constructor takes other arguments
            raise RuntimeError(message) from None
        raise error


def _get_available_device_type() -> str | None:
    """The type of the first accelerator there is."""
    return "npu" if torch.npu.is_available() else None


def _get_device_module(device_type: str) -> Any:
    """The module of a type of device, such as torch.npu."""
    found = getattr(torch, device_type, None)
    if found is None:
        raise RuntimeError(f"Device '{device_type}' does not have a corresponding module registered as "
                           f"'torch.{device_type}'.")
    return found


def _is_privateuse1_backend_available() -> bool:
    """Whether the accelerator that torch keeps a place for, here the npu, has a device."""
    return torch.npu.is_available()


def _get_all_device_indices() -> list[int]:
    """The numbers of the devices there are."""
    return list(range(torch.npu.device_count())) if torch.npu.is_available() else []


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The number of a device; the current one where it says none and that is allowed."""
    device = torch.device(device) if isinstance(device, str) else device
    if isinstance(device, torch.device):
        if device.type == "cpu" and not allow_cpu:
            raise ValueError(f"Expected a non cpu device, but got: {device}")
        if device.index is not None or device.type == "cpu":
            return device.index if device.index is not None and device.type != "cpu" else -1
    if isinstance(device, int):
        return device
    if not optional:
        raise ValueError(f"Expected a torch.device with a specified index or an integer, but got:{device}")
    return torch.npu.current_device()


def _element_size(dtype: Any) -> int:
    """Bytes of one item."""
    return dtype.itemsize


def _flatten_dense_tensors(tensors: Any) -> Any:
    """One flat tensor of all of them."""
    return torch.cat([tensor.contiguous().view(-1) for tensor in tensors])


def _unflatten_dense_tensors(flat: Any, tensors: Any) -> tuple[Any, ...]:
    """Views of a flat tensor with the shapes of the tensors."""
    parts = flat.split([tensor.numel() for tensor in tensors])
    return tuple(part.view_as(tensor) for part, tensor in zip(parts, tensors))


def _dummy_type(name: str) -> type:
    """A class that cannot be made, for a device that is not there."""
    def refuse(self: Any, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(f"Tried to instantiate dummy base class {name}")
    return type(name, (), {"__init__": refuse})


class classproperty:
    """A property of a class."""

    def __init__(self, func: Any) -> None:
        self.func = func

    def __get__(self, instance: Any, owner: type) -> Any:
        return self.func(owner)


# ---- tensors of storages, as files name these functions; torch.load has constructors of its own (_rebuilding.py) ---------
def _rebuild_tensor(storage: Any, storage_offset: int, size: Any, stride: Any) -> Any:
    """A tensor over a typed storage."""
    made = torch.empty((0,), dtype=storage.dtype, device=storage._untyped_storage.device)
    return made.set_(storage._untyped_storage, storage_offset, size, stride)


def _rebuild_tensor_v2(storage: Any, storage_offset: int, size: Any, stride: Any, requires_grad: bool, backward_hooks: Any,
                       metadata: Any = None) -> Any:
    """The same with what it needs for backward."""
    made = _rebuild_tensor(storage, storage_offset, size, stride)
    made.requires_grad = requires_grad
    return _with_hooks(made, backward_hooks)


def _rebuild_parameter(data: Any, requires_grad: bool, backward_hooks: Any) -> Any:
    """A parameter over a tensor."""
    return _with_hooks(torch.nn.Parameter(data, requires_grad), backward_hooks)


def _with_hooks(made: Any, backward_hooks: Any) -> Any:
    for hook in (backward_hooks or {}).values():
        made.register_hook(hook)
    return made
