"""How objects with tensors become pickles in PyTorch's words; _unpickling.py has the way back.

Globals are pickled under PyTorch's module names, so that either library reads what the other wrote.
"""

from __future__ import annotations

import io
import pickle
import re
import sys
import types
from functools import cache
from typing import IO, Any

import mindtorch_v2 as torch

from ._file_options import registered_tag, skipping, source_of
from ._rebuilding import StorageType, _get_layout, torch_globals

_PythonPickler: Any = pickle._Pickler  # the C pickler insists on a global's own name
_STORAGES = (torch.TypedStorage, torch.UntypedStorage)


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


def _reduced(obj: Any) -> Any:
    """The call that makes the object, where it is another than its own."""
    if isinstance(obj, torch.Tensor):
        torch.utils.hooks.warn_if_has_hooks(obj)
        return _blank(obj).__reduce_ex__(2) if skipping.materialize and hasattr(obj, "fake_mode") else NotImplemented
    if isinstance(obj, torch.Size):
        return torch.Size, (tuple(obj),)
    return (_get_layout, (str(obj),)) if isinstance(obj, torch.layout) else NotImplemented


class _StorageIds:
    """Storages get ids instead of a place in the pickle; collects them."""

    def __init__(self, file: IO[bytes], protocol: int, legacy: bool) -> None:
        super().__init__(file, protocol=protocol)      # type: ignore[call-arg]
        self.legacy = legacy         # before PyTorch 1.6: keys are addresses, and an id ends in the view that a storage is
        self.storages: list[Any] = []
        self.kinds: dict[str, StorageType] = {}
        self._keys: dict[tuple[Any, ...], str] = {}
        self._classes: set[type] = set()
        self._dtypes: dict[tuple[Any, ...], Any] = {}

    def persistent_id(self, obj: Any) -> tuple[Any, ...] | None:
        if not isinstance(obj, _STORAGES):       # most objects
            if self.legacy and isinstance(obj, type) and issubclass(obj, torch.nn.Module) and obj not in self._classes:
                self._classes.add(obj)       # the class itself follows inside the id
                return "module", obj, *source_of(obj)
            return None
        storage, dtype = (obj, None) if isinstance(obj, torch.UntypedStorage) else (obj._untyped_storage, obj.dtype)
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

class _NamingPickler(_StorageIds, _PythonPickler):
    """Writes each global under PyTorch's name for it, at the pace of Python."""

    dispatch = dict(_PythonPickler.dispatch)

    def reducer_override(self, obj: Any) -> Any:
        return _names()[id(obj)] if id(obj) in _names() else _reduced(obj)

    def save_global(self, obj: Any, name: str | None = None) -> None:
        if id(obj) in _names():
            module, _, name = _names()[id(obj)].rpartition(".")
        elif getattr(obj, "__module__", None) and obj.__module__.split(".")[0] == "mindtorch_v2":
            module, name = "torch" + obj.__module__[len("mindtorch_v2") :], name or obj.__qualname__
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


class _NotingPickler(_StorageIds):
    """Globals have this library's names, which are noted and replaced afterwards."""

    def __init__(self, file: IO[bytes], protocol: int, legacy: bool) -> None:
        super().__init__(file, protocol, legacy)
        self.own: list[bytes] = []

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, _GLOBALS):
            module = getattr(obj, "__module__", None)        # None: of a method of a builtin object
            if isinstance(module, str) and module.partition(".")[0] in _PACKAGES:
                name = obj.__reduce__() if isinstance(obj, _NAMED_BY_REDUCE) else obj.__qualname__
                self.own.append(f"c{module}\n{name}\n".encode())
        return _reduced(obj)

    def renamed(self, text: bytes) -> bytes | None:
        """The pickle with PyTorch's names; None where they cannot be replaced with certainty."""
        if sorted(found[0] for found in _OWN_GLOBAL.finditer(text)) != sorted(self.own):     # such a text stands in the data too
            return None
        return _OWN_GLOBAL.sub(_renamed, text)


class _CompiledPickler(_NotingPickler, pickle.Pickler):
    """Python's compiled pickler."""


@cache
def _pickler_over(theirs: type) -> Any:
    """A pickler of the program's own choice, whose reductions come first."""
    class Pickler(_NotingPickler, theirs):
        def reducer_override(self, obj: Any) -> Any:
            own = getattr(theirs, "reducer_override", None)
            found = NotImplemented if own is None else own(self, obj)
            return super().reducer_override(obj) if found is NotImplemented else found
    return Pickler


class TensorPickler:
    """Writes an object with tensors in PyTorch's words, by a module such as pickle; collects the storages."""

    def __init__(self, file: IO[bytes], protocol: int, legacy: bool = False, module: Any = pickle) -> None:
        self.file, self.protocol, self.legacy, self.module = file, protocol, legacy, module
        self.storages: list[Any] = []
        self.kinds: dict[str, StorageType] = {}

    def dump(self, obj: Any) -> None:
        """Write the object."""
        if self.module is not pickle:
            self._by_module(obj)
            return
        pickler: _StorageIds | None = self._compiled(obj) if self.protocol < 4 else None     # later ones count bytes of names
        if pickler is None:
            pickler = _NamingPickler(self.file, self.protocol, self.legacy)
            pickler.dump(obj)
        self.storages, self.kinds = pickler.storages, pickler.kinds

    def _compiled(self, obj: Any) -> _StorageIds | None:
        """The fast pickler after its work; None where its names cannot be replaced with certainty."""
        body = io.BytesIO()
        pickler = _CompiledPickler(body, self.protocol, self.legacy)
        try:
            pickler.dump(obj)
        except pickle.PicklingError:             # a global that only PyTorch's name leads to
            return None
        text = pickler.renamed(body.getvalue())
        if text is None:
            return None
        self.file.write(text)
        return pickler

    def _by_module(self, obj: Any) -> None:
        """As the module writes it; where its names cannot be replaced, only this library reads them."""
        body = io.BytesIO()
        pickler = _pickler_over(self.module.Pickler)(body, self.protocol, self.legacy)
        pickler.dump(obj)
        text = pickler.renamed(body.getvalue()) if self.protocol < 4 else None
        self.file.write(body.getvalue() if text is None else text)
        self.storages, self.kinds = pickler.storages, pickler.kinds


_PACKAGES = ("mindtorch_v2", "torch")        # this library's names: the second as the drop-in
_NAMED_BY_REDUCE = (torch.dtype, torch.memory_format, StorageType)
_GLOBALS = (type, types.FunctionType, types.BuiltinFunctionType, type(torch._C._dtype_named), *_NAMED_BY_REDUCE)
_OWN_GLOBAL = re.compile(rb"c((?:mindtorch_v2|torch)(?:\.[\w.]*)?)\n([\w.]+)\n")


def _renamed(found: re.Match[bytes]) -> bytes:
    """A global of this library by PyTorch's name."""
    module, name = found[1].decode(), found[2].decode()
    listed = _names().get(id(getattr(sys.modules.get(module), name, None)))
    if listed:
        module, _, name = listed.rpartition(".")
    return f"ctorch{module[len(module.partition('.')[0]):]}\n{name}\n".encode()


@cache
def _storage_type(dtype: Any) -> StorageType | None:
    """PyTorch's storage of a dtype (None: untyped); None where it has no such."""
    kinds = (kind for kind in torch_globals().values() if isinstance(kind, StorageType))
    return next((kind for kind in kinds if kind.dtype is dtype), None)
