"""torch._utils: what packages read of torch's own helpers, such as how an error travels between processes."""
from __future__ import annotations

import logging
import os
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
