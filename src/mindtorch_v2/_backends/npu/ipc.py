"""Memory of an npu that other processes of the host use too, by CANN's keys. No tensors."""
from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from mindtorch_v2._backends.npu import acl_loader, allocator, runtime
from mindtorch_v2._backends.npu.errors import MissingSymbolError, check

_KEY_BYTES = 65                                   # as CANN documents
_ANY_PROCESS = 1                                  # ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION
_ARGUMENTS = {
    "aclrtIpcMemGetExportKey": (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64),
    "aclrtIpcMemImportByKey": (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64), "aclrtIpcMemClose": (ctypes.c_char_p,)}


class Place(NamedTuple):
    """Where memory lies: a key for all of its segment, and how far behind the segment's beginning."""
    key: bytes
    offset: int


def _function(name: str) -> Callable[..., int]:
    return ctypes.CFUNCTYPE(ctypes.c_int32, *_ARGUMENTS[name])(acl_loader.symbol(name))


def export(device_id: int, address: int) -> Place | None:
    """What another process finds an address by; None where CANN shares no such memory: that of expandable segments, of an
    allocator from outside, or of a CANN without IPC. All work of the device is done then."""
    heap = allocator.get_allocator(device_id)
    found = next((s for s in heap.snapshot()["segments"] if 0 <= address - s["address"] < s["total_size"]), None)
    if found is None or found["is_expandable"] or heap._source_of(found["segment_pool_id"]) is not None:
        return None
    try:
        make = _function("aclrtIpcMemGetExportKey")
    except MissingSymbolError:
        return None
    runtime.get_runtime(device_id).synchronize()
    key = ctypes.create_string_buffer(_KEY_BYTES)
    check(make(found["address"], found["total_size"], key, _KEY_BYTES, _ANY_PROCESS), "aclrtIpcMemGetExportKey")
    return Place(key.value, address - found["address"])


def _runs(device_id: int, session: object) -> bool:
    """Whether a device is still in use since its start of then."""
    found = runtime._runtimes.get(device_id)
    return found is not None and found.session is session and not runtime.is_ending(device_id)


class _Import:
    """A segment of another process. A process may open a key once, so its users share one."""

    opened: weakref.WeakValueDictionary[tuple[int, bytes], _Import] = weakref.WeakValueDictionary()

    def __init__(self, device_id: int, key: bytes) -> None:
        self.device_id, self.key = device_id, key
        self.session = runtime.get_runtime(device_id).session
        address = ctypes.c_void_p()
        check(_function("aclrtIpcMemImportByKey")(ctypes.addressof(address), key, 0), "aclrtIpcMemImportByKey")
        self.address = address.value or 0
        _Import.opened[device_id, key] = self

    def __del__(self) -> None:
        if hasattr(self, "address") and _runs(self.device_id, self.session):
            runtime.get_runtime(self.device_id)
            check(_function("aclrtIpcMemClose")(self.key), "aclrtIpcMemClose")


class Received:
    """Memory of another process; `released` is called after the last use in this process."""

    alive: weakref.WeakSet[Received] = weakref.WeakSet()

    def __init__(self, device_id: int, place: Place, released: Callable[[], None]) -> None:
        runtime.get_runtime(device_id)
        self._import: Any = _Import.opened.get((device_id, place.key)) or _Import(device_id, place.key)
        self.device_id, self._released, self._process = device_id, released, os.getpid()
        self.address = self._import.address + place.offset
        Received.alive.add(self)

    def release(self) -> None:
        """Work that is queued here may use the memory: its owner gets it back when that is done."""
        if self._import is not None and self._process == os.getpid():
            session, self._import = self._import.session, None
            if _runs(self.device_id, session):
                runtime.get_runtime(self.device_id).synchronize()
            self._released()

    def __del__(self) -> None:
        if hasattr(self, "address"):
            self.release()


_sent: list[tuple[Any, Callable[[], bool]]] = []


def keep_sent(memory: Any, is_released: Callable[[], bool]) -> None:
    """Keeps what was sent until the other process no longer uses it; until then it must not become another tensor's."""
    collect()
    _sent.append((memory, is_released))


def collect() -> None:
    """Takes memory back that was sent to other processes and that they no longer use."""
    _sent[:] = [one for one in _sent if not one[1]()]


def _release_all(device_id: int) -> None:
    for memory in [memory for memory in Received.alive if memory.device_id == device_id]:
        memory.release()


runtime.on_close(_release_all)
