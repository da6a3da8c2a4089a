"""How objects with tensors become pickles in PyTorch's words; _unpickling.py has the way back.

Globals are pickled under PyTorch's module names, so that either library reads what the other wrote.
"""

from __future__ import annotations

import pickle
import types
from functools import cache
from typing import IO, Any

import mindtorch_v2 as torch

from ._file_options import registered_tag, skipping, source_of
from ._rebuilding import (
    StorageType,
    _get_layout,
    torch_globals,
)

_PythonPickler: Any = pickle._Pickler  # the C pickler insists on a global's own name


def _blank(fake: Any) -> Any:
    """A tensor with memory in the place of a fake one; what stands in it is not written."""
    items = fake.storage_offset() + 1 + sum((size - 1) * step for size, step in zip(fake.shape, fake.stride()))
    storage = torch.UntypedStorage(max(items, 0) * fake.element_size())
    made = torch.empty(0, dtype=fake.dtype, device="cpu").set_(storage, fake.storage_offset(), tuple(fake.shape), fake.stride())
    made.requires_grad_(fake.requires_grad)
    return torch.nn.Parameter(made, fake.requires_grad) if isinstance(fake, torch.nn.Parameter) else made


@cache
def _names() -> dict[int, str]:
    return {id(value): name for name, value in torch_globals().items()}


def location_tag(storage: Any) -> str:
    """The name of a storage's place in a file: "cpu", "npu:0"."""
    return registered_tag(storage, True) or str(storage.device)


class TensorPickler(_PythonPickler):
    """Writes tensors and this library's globals in PyTorch's words; collects the storages."""

    dispatch = dict(_PythonPickler.dispatch)

    def __init__(self, file: IO[bytes], protocol: int, legacy: bool = False) -> None:
        super().__init__(file, protocol=protocol)
        self.legacy = legacy         # before PyTorch 1.6: keys are addresses, and an id ends in the view that a storage is
        self.storages: list[Any] = []
        self.kinds: dict[str, StorageType] = {}
        self._keys: dict[tuple[Any, ...], str] = {}
        self._classes: set[type] = set()
        self._dtypes: dict[tuple[Any, ...], Any] = {}

    def persistent_id(self, obj: Any) -> tuple[Any, ...] | None:
        if isinstance(obj, torch.TypedStorage):
            storage, dtype = obj._untyped_storage, obj.dtype
        elif isinstance(obj, torch.UntypedStorage):
            storage, dtype = obj, None
        elif self.legacy and isinstance(obj, type) and issubclass(obj, torch.nn.Module) and obj not in self._classes:
            self._classes.add(obj)       # the class itself follows inside the id
            return "module", obj, *source_of(obj)
        else:
            return None
        place = (str(storage.device), storage.data_ptr())
        empty = storage.nbytes() == 0
        if not empty and self._dtypes.setdefault(place, dtype) is not dtype:
            raise RuntimeError(
                "Cannot save multiple tensors or storages that view the same data as different "
                f"types, got {self._dtypes[place]} and {dtype}; clone one of them"
            )
        key = None if empty else self._keys.get(place)
        if key is None:
            key = self._keys[place] = str(storage._cdata if self.legacy else len(self.storages))
            self.storages.append(storage)
        kind = _storage_type(dtype)
        if kind is None:
            raise RuntimeError(f"PyTorch's files have no typed storage of {dtype}; save its untyped() instead")
        self.kinds[key] = kind
        return "storage", kind, key, location_tag(storage), storage.nbytes() // kind.itemsize, *((None,) if self.legacy else ())

    def reducer_override(self, obj: Any) -> Any:
        if id(obj) in _names():
            return _names()[id(obj)]
        if isinstance(obj, torch.Tensor):
            torch.utils.hooks.warn_if_has_hooks(obj)
            return _blank(obj).__reduce_ex__(self.proto) if skipping.materialize and hasattr(obj, "fake_mode") else NotImplemented
        if isinstance(obj, torch.Size):
            return torch.Size, (tuple(obj),)
        if isinstance(obj, torch.layout):
            return _get_layout, (str(obj),)
        return NotImplemented

    def save_global(self, obj: Any, name: str | None = None) -> None:
        if id(obj) in _names():
            module, _, name = _names()[id(obj)].rpartition(".")
        elif getattr(obj, "__module__", None) and obj.__module__.split(".")[0] == "mindtorch_v2":
            module, name = "torch" + obj.__module__[len("mindtorch_v2") :], obj.__qualname__
        else:
            super().save_global(obj, name)
            return
        if self.proto >= 4:
            self.save(module)
            self.save(name)
            self.write(pickle.STACK_GLOBAL)
        else:
            self.write(pickle.GLOBAL + f"{module}\n{name}\n".encode())
        self.memoize(obj)

    dispatch[types.FunctionType] = save_global


@cache
def _storage_type(dtype: Any) -> StorageType | None:
    """PyTorch's storage of a dtype (None: untyped); None where it has no such."""
    kinds = (kind for kind in torch_globals().values() if isinstance(kind, StorageType))
    return next((kind for kind in kinds if kind.dtype is dtype), None)
