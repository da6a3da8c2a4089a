"""How objects with tensors become pickles in PyTorch's words; _unpickling.py has the way back.

Globals are pickled under PyTorch's module names, so that either library reads what the other wrote.
"""

from __future__ import annotations

import pickle
import types
from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from typing import IO, Any

import mindtorch_v2 as torch

from ._file_options import registered_tag
from ._rebuilding import (
    StorageType,
    _get_layout,
    _rebuild_from_type_v2,
    _rebuild_meta_tensor,
    _rebuild_parameter,
    _rebuild_parameter_with_state,
    _rebuild_sparse_tensor,
    _rebuild_tensor_v2,
    _rebuild_tensor_v3,
    _rebuild_wrapper_subclass,
    torch_globals,
)

_PythonPickler: Any = pickle._Pickler  # the C pickler insists on a global's own name


def _reduce_tensor(tensor: Any) -> tuple[Any, ...]:
    """The call that rebuilds a tensor, in PyTorch's words."""
    if torch._sparse.is_sparse(tensor):
        if isinstance(tensor, torch.nn.Parameter):
            return _rebuild_parameter, (tensor.data, tensor.requires_grad, OrderedDict())
        return _rebuild_sparse_tensor, _sparse_parts(tensor)
    kind, parameter = type(tensor), torch.nn.Parameter
    state = dict(getattr(tensor, "__dict__", {}))
    if isinstance(tensor, parameter) and issubclass(kind, parameter):
        args: tuple[Any, ...] = (tensor.data, tensor.requires_grad, OrderedDict())
        func: Callable[..., Any] = _rebuild_parameter
        if kind is parameter:
            return (_rebuild_parameter_with_state, (*args, state)) if state else (func, args)
    elif kind is not torch.Tensor and hasattr(kind, "__torch_dispatch__") and _is_empty_shell(tensor):
        func = _rebuild_wrapper_subclass
        args = (kind, tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), tensor.layout,
                tensor.device, tensor.requires_grad)
    elif tensor.device.type == "meta":
        func = _rebuild_meta_tensor
        args = (tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.requires_grad)
    else:
        marks = {bit: True for bit, is_set in (("conj", tensor.is_conj()), ("neg", tensor.is_neg())) if is_set}
        geometry = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
        rest: tuple[Any, ...] = (*geometry, tensor.requires_grad, OrderedDict())
        if _storage_type(tensor.dtype) is None:      # a dtype that came after PyTorch's typed storages
            func, args = _rebuild_tensor_v3, (tensor.untyped_storage(), *rest, tensor.dtype, *([marks] if marks else []))
        else:
            typed = torch.TypedStorage(wrap_storage=tensor.untyped_storage(), dtype=tensor.dtype, _internal=True)
            func, args = _rebuild_tensor_v2, (typed, *rest, *([marks] if marks else []))
    if kind is torch.Tensor and not state:
        return func, args
    return _rebuild_from_type_v2, (func, kind, args, state)


def _is_empty_shell(tensor: Any) -> bool:
    """Whether the class of a tensor has its values, and the tensor no memory."""
    return tensor.numel() > 0 and torch.Tensor.untyped_storage(tensor).nbytes() == 0


def _sparse_parts(tensor: Any) -> tuple[Any, Any]:
    """The layout and the parts of a sparse tensor, as PyTorch writes them."""
    tensor = tensor.detach()
    if tensor.is_sparse:
        return tensor.layout, (tensor._indices(), tensor._values(), tensor.size(), tensor.is_coalesced())
    rows = tensor.layout in (torch.sparse_csr, torch.sparse_bsr)
    first, second = (tensor.crow_indices, tensor.col_indices) if rows else (tensor.ccol_indices, tensor.row_indices)
    return tensor.layout, (first(), second(), tensor.values(), tensor.size())


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
        self._dtypes: dict[tuple[Any, ...], Any] = {}

    def persistent_id(self, obj: Any) -> tuple[Any, ...] | None:
        if isinstance(obj, torch.TypedStorage):
            storage, dtype = obj._untyped_storage, obj.dtype
        elif isinstance(obj, torch.UntypedStorage):
            storage, dtype = obj, None
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
            own = (torch.Tensor.__reduce_ex__, torch.nn.Parameter.__reduce_ex__, torch._sparse.SparseTensor.__reduce_ex__)
            return _reduce_tensor(obj) if type(obj).__reduce_ex__ in own else NotImplemented
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
