"""torch._utils: what packages read of torch's own helpers, such as how an error travels between processes."""
from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import sys
import traceback
import warnings
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


def cpu_count() -> int | None:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))


def render_call(fn: Any, args: Any, kwargs: dict[str, Any]) -> str:
    """A call as a program would write it."""
    given = [*map(repr, args), *(f"{key}={value!r}" for key, value in kwargs.items())]
    return f"{torch.overrides.resolve_name(fn) or fn}({', '.join(given)})"


class CallbackRegistry:
    """Functions that are called together; what one raises is logged, and the others still run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.callback_list: list[Any] = []

    def add_callback(self, cb: Any) -> None:
        """Call it from now on."""
        self.callback_list.append(cb)

    def fire_callbacks(self, *args: Any, **kwargs: Any) -> None:
        """Call all of them."""
        for cb in self.callback_list:
            try:
                cb(*args, **kwargs)
            except Exception:
                logging.getLogger(__name__).exception("Exception in callback for %s registered with gpu trace", self.name)


class _LazySeedTracker:
    """Which of two seeds waits for a device to start, in the order in which they were given."""

    def __init__(self) -> None:
        self.manual_seed_all_cb: Any = None
        self.manual_seed_cb: Any = None
        self.call_order: list[Any] = []

    def queue_seed_all(self, cb: Any, traceback: Any) -> None:
        """Seed all devices when they start."""
        self.manual_seed_all_cb = (cb, traceback)
        self.call_order = [self.manual_seed_cb, self.manual_seed_all_cb]

    def queue_seed(self, cb: Any, traceback: Any) -> None:
        """Seed the current device when it starts."""
        self.manual_seed_cb = (cb, traceback)
        self.call_order = [self.manual_seed_all_cb, self.manual_seed_cb]

    def get_calls(self) -> list[Any]:
        """The calls, the last one last."""
        return self.call_order


# ---- tensors and parameters, as pickles name these functions; torch.load has constructors of its own (_rebuilding.py) ------
_rebuild_tensor: Any = torch._tensor_pickling._rebuild_tensor
_rebuild_tensor_v2: Any = torch._tensor_pickling._rebuild_tensor_v2
_rebuild_tensor_v3: Any = torch._tensor_pickling._rebuild_tensor_v3
_rebuild_meta_tensor_no_storage: Any = torch._tensor_pickling._rebuild_meta_tensor_no_storage
_rebuild_wrapper_subclass: Any = torch._tensor_pickling._rebuild_wrapper_subclass
_rebuild_sparse_tensor: Any = torch._sparse.tensor._rebuild_sparse_tensor


def _rebuild_parameter(data: Any, requires_grad: bool, backward_hooks: Any) -> Any:
    """A parameter over a tensor."""
    made = torch.nn.Parameter(data, requires_grad)
    for hook in (backward_hooks or {}).values():
        made.register_hook(hook)
    return made


def _rebuild_parameter_with_state(data: Any, requires_grad: bool, backward_hooks: Any, state: Any) -> Any:
    """The same with attributes of its own."""
    made = _rebuild_parameter(data, requires_grad, backward_hooks)
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    for name, value in {**(attributes or {}), **(slots or {})}.items():
        setattr(made, name, value)
    return made


# ---- gradients of many tensors, in one buffer of each dtype ---------------------------------------------------------------
def _take_tensors(tensors: Any, size_limit: int) -> Any:
    """Lists of tensors of one type that together take no more than so many bytes, in order; what is left at the end."""
    held: dict[str, tuple[list[Any], int]] = {}
    for tensor in tensors:
        key = tensor.type()
        size = tensor.numel() * tensor.element_size()
        if tensor.is_sparse:
            size = sum(part.numel() * part.element_size() for part in (tensor._indices(), tensor._values()))
        found, total = held.get(key, ([], 0))
        if found and total + size > size_limit:
            yield found
            found, total = [], 0
        found.append(tensor)
        held[key] = found, total + size
    yield from (found for found, _ in held.values() if found)


def _reorder_tensors_as(tensors: Any, ordered_tensors: Any) -> Any:
    """Tensors that were sorted by type, in the order of others of the same types."""
    by_type: dict[str, list[Any]] = {}
    for tensor in tensors:
        by_type.setdefault(tensor.type(), []).append(tensor)
    each = {key: iter(found) for key, found in by_type.items()}
    return tuple(next(each[tensor.type()]) for tensor in ordered_tensors)


def _flatten_sparse_tensors(tensors: Any) -> tuple[Any, Any]:
    """The indices of all, and the values of all, as one vector each."""
    return (_flatten_dense_tensors([x._indices() for x in tensors]), _flatten_dense_tensors([x._values() for x in tensors]))


# ---- names, devices, rebuilding -----------------------------------------------------------------------------------------------
def _import_dotted_name(name: str) -> Any:
    """What a full name of an importable package leads to."""
    first, *others = name.split(".")
    found = __import__(first)
    for word in others:
        found = getattr(found, word)
    return found


def try_import(module_name: str) -> Any:
    """A module, None where there is none."""
    if (found := sys.modules.get(module_name)) is not None:
        return found
    try:
        return importlib.import_module(module_name) if importlib.util.find_spec(module_name) else None
    except ModuleNotFoundError:        # of a package above it
        return None


def is_compiling() -> bool:
    """False: nothing is compiled."""
    return False


def _get_async_or_non_blocking(function_name: str, non_blocking: bool, kwargs: dict[str, Any]) -> bool:
    """non_blocking, also under the name that it had once."""
    if not kwargs:
        return non_blocking
    if set(kwargs) != {"async"}:
        (unexpected,) = [name for name in kwargs if name != "async"][:1]
        raise TypeError(f"{function_name}() got an unexpected keyword argument '{unexpected}'")
    warnings.warn("'async' is deprecated; use 'non_blocking'", stacklevel=2)
    asynchronous: bool = kwargs["async"]
    return asynchronous


def _get_device_attr(get_member: Any) -> Any:
    """What a function reads of the module of the accelerator that is there; None without one."""
    kind = _get_available_device_type()
    return get_member(_get_device_module(kind)) if kind else None


def get_current_device_index() -> int:
    """The number of the current npu, -1 where there is none."""
    return int(torch.npu.current_device()) if torch.npu.is_available() else -1


def _handle_complex(tensor: Any) -> Any:
    """Complex numbers as pairs of real ones; another tensor as it is."""
    return torch.view_as_real(tensor) if not isinstance(tensor, torch.nn.UninitializedParameter) and tensor.is_complex() else tensor


def _maybe_view_chunk_cat(res: Any, group_size: int, gather_dim: int) -> Any:
    """torch.cat(torch.chunk(res, group_size), gather_dim), as views where only sizes of 1 lie before that dimension."""
    if gather_dim == 0:
        return res
    shape = list(res.shape)
    rows = shape[0] // group_size
    if shape[0] != rows * group_size:
        raise AssertionError("dim 0 of res must be a multiple of group_size")
    parts = res.view(group_size, rows, *shape[1:]).movedim(0, gather_dim)
    shape[0] = rows
    shape[gather_dim] *= group_size
    return parts.reshape(shape)


def _functionalize_sync(t: Any) -> None:
    """Nothing waits to be written back."""


def _rebuild_device_tensor_from_numpy(data: Any, dtype: Any, device: Any, requires_grad: bool) -> Any:
    """A tensor on a device that has no storage to pickle, from an array."""
    return torch.from_numpy(data).to(dtype=dtype, device=device).requires_grad_(requires_grad)


def _rebuild_device_tensor_from_cpu_tensor(data: Any, dtype: Any, device: Any, requires_grad: bool) -> Any:
    """The same from a tensor in host memory."""
    return data.to(device).requires_grad_(requires_grad)
