"""torch.accelerator: the accelerator of this machine, which is the npu where there is one."""
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import mindtorch_v2 as torch


def _npu() -> Any:
    module = getattr(torch, "npu", None)
    return module if module is not None and module.is_available() else None


def _needed() -> Any:
    module = _npu()
    if module is None:
        raise RuntimeError("Cannot access accelerator device when none is available.")
    return module


def is_available() -> bool:
    """Whether an npu is there."""
    return _npu() is not None


def current_accelerator(check_available: bool = False) -> Any:
    """The device type of the accelerator; None without one."""
    return torch.device("npu") if _npu() is not None else None


def device_count() -> int:
    """How many npus there are."""
    module = _npu()
    return 0 if module is None else module.device_count()


def current_device_index() -> int:
    """The index of the current npu."""
    return _needed().current_device()


current_device_idx = current_device_index


def set_device_index(device: Any, /) -> None:
    """Makes an npu the current one."""
    _needed().set_device(device)


set_device_idx = set_device_index


def current_stream(device: Any = None, /) -> Any:
    """The current stream of an npu."""
    return _needed().current_stream(device)


def set_stream(stream: Any) -> None:
    """Makes a stream the current one."""
    _needed().set_stream(stream)


def synchronize(device: Any = None, /) -> None:
    """Waits for all work of an npu."""
    _needed().synchronize(device)


def empty_cache() -> None:
    """Returns cached memory of the npu to the system; nothing without one."""
    module = _npu()
    if module is not None:
        module.empty_cache()


def get_memory_info(device: Any = None, /) -> tuple[int, int]:
    """(free, total) bytes of an npu."""
    return _needed().mem_get_info(device)


@contextlib.contextmanager
def device_index(device: int | None, /) -> Iterator[None]:
    """A with block on another npu; None changes nothing."""
    if device is None:
        yield
        return
    before = current_device_index()
    set_device_index(device)
    try:
        yield
    finally:
        set_device_index(before)
