"""A backend from outside this package, as torch.utils.backend_registration: its name, and methods that follow from it."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch

__all__ = ["generate_methods_for_privateuse1_backend", "rename_privateuse1_backend"]


def rename_privateuse1_backend(backend_name: str) -> None:
    """Names the device type that backends from outside share, once in a process: torch.device(backend_name) is theirs. Who
    computes there is said with torch._C._register_backend(backend_name, torch._C.Backend())."""
    torch._C._rename_privateuse1_backend(backend_name)


def generate_methods_for_privateuse1_backend(for_tensor: bool = True, for_module: bool = True,
                                             for_packed_sequence: bool = True, for_storage: bool = False,
                                             unsupported_dtype: list[Any] | None = None) -> None:
    """Gives tensors, modules, packed sequences and storages the methods that follow from the name: x.name(), x.is_name."""
    name = torch._C._get_privateuse1_backend_name()
    if for_tensor:
        _add(torch.Tensor, f"is_{name}", property(lambda self: self.device.type == name))
        _add(torch.Tensor, name, _mover(name))
    if for_module:
        _add(torch.nn.Module, name, lambda self, device=None: self._apply(lambda t: _to(t, name, device)))
    if for_packed_sequence:
        packed = torch.nn.utils.rnn.PackedSequence
        _add(packed, f"is_{name}", property(lambda self: self.data.device.type == name))
        _add(packed, name, lambda self, *args, **kwargs: self.to(torch.device(name), *args, **kwargs))
    if for_storage:
        _add_storage_methods(name, unsupported_dtype or [])


def _mover(name: str) -> Any:
    def move(self: Any, device: Any = None, non_blocking: bool = False, memory_format: Any = torch.preserve_format) -> Any:
        """A copy on the device, or the tensor itself where it is there."""
        return self.to(_place(name, device), non_blocking=non_blocking, memory_format=memory_format)
    move.__name__ = name
    return move


def _place(name: str, device: Any) -> Any:
    """The device that an index, a name or nothing stands for; it must be of this type."""
    if device is None or isinstance(device, int):
        return torch.device(name) if device is None else torch.device(name, device)
    place = torch.device(device)
    if place.type != name:
        raise RuntimeError(f"Invalid device, must be {name} device")
    return place


def _to(t: Any, name: str, device: Any) -> Any:
    return t.to(_place(name, device))


def _add_storage_methods(name: str, unsupported: list[Any]) -> None:
    def move(self: Any, device: Any = None, non_blocking: bool = False) -> Any:
        """A copy of the bytes on the device, or the storage itself where it is there."""
        place = _place(name, device)
        if self.device.type == name and (place.index is None or self.device.index == place.index):
            return self
        return self.to(device=place, non_blocking=non_blocking)

    def move_typed(self: Any, device: Any = None, non_blocking: bool = False) -> Any:
        if self.dtype in unsupported:
            raise RuntimeError(f"Cannot create {self.dtype} storage as {self.dtype} is not supported by this backend")
        return torch.TypedStorage(wrap_storage=move(self._untyped_storage, device, non_blocking), dtype=self.dtype, _internal=True)

    for cls, function in ((torch.UntypedStorage, move), (torch.TypedStorage, move_typed)):
        _add(cls, f"is_{name}", property(lambda self: self.device.type == name))
        _add(cls, name, function)


def _add(cls: Any, name: str, value: Any) -> None:
    if hasattr(cls, name):
        raise RuntimeError(f"The custom device module of {cls.__name__} has already been registered with {name}")
    setattr(cls, name, value)

torch._named.complete(__name__)
