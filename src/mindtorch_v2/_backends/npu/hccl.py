"""HCCL's C functions: communicators between the processes of npus, and what collectives on a stream call."""
from __future__ import annotations

import ctypes
import functools
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from mindtorch_v2 import _C
from mindtorch_v2._backends.npu import acl_loader, aclnn, errors, graph_random, runtime, streams
from mindtorch_v2._backends.npu.errors import MissingSymbolError, check
from mindtorch_v2._C import CollectiveQueue, CollectiveWork  # noqa: F401  for the engine, which is made of them

ROOT_INFO_BYTES = 4108                            # HCCL_ROOT_INFO_BYTES
SUM, PRODUCT, MAX, MIN = range(4)                 # HcclReduceOp
BYTE = 7                                          # HCCL_DATA_TYPE_UINT8: what is only moved is moved as bytes
DTYPES = {"int8": 0, "int16": 1, "int32": 2, "float16": 3, "float32": 4, "int64": 5, "uint64": 6, "uint8": 7, "uint16": 8,
          "uint32": 9, "float64": 10, "bfloat16": 11}   # HcclDataType
_CODES = """SUCCESS PARA PTR MEMORY INTERNAL NOT_SUPPORT NOT_FOUND UNAVAIL SYSCALL TIMEOUT OPEN_FILE_FAILURE TCP_CONNECT
ROCE_CONNECT TCP_TRANSFER ROCE_TRANSFER RUNTIME DRV PROFILING CCE NETWORK AGAIN REMOTE SUSPENDING""".split()

_KINDS = {"p": ctypes.c_void_p, "n": ctypes.c_uint64, "u": ctypes.c_uint32, "i": ctypes.c_int32}
# Parameters in C's order; every function returns an HcclResult.
_FUNCTIONS = {
    "HcclGetRootInfo": "p", "HcclCommInitRootInfo": "upup", "HcclCommDestroy": "p", "HcclGetCommAsyncError": "pp",
    "HcclAllReduce": "ppniipp", "HcclBroadcast": "pniupp", "HcclReduce": "ppniiupp", "HcclScatter": "ppniupp",
    "HcclAllGather": "ppnipp", "HcclReduceScatter": "ppniipp", "HcclAlltoAllV": "pppipppipp", "HcclBarrier": "pp",
    "HcclSend": "pniupp", "HcclRecv": "pniupp", "HcclBatchSendRecv": "pupp",
}


class HcclError(RuntimeError):
    """What HCCL refused, by its code."""

    def __init__(self, function: str, code: int) -> None:
        self.code = code
        name = f"HCCL_E_{_CODES[code]}" if 0 < code < len(_CODES) else "unknown"
        said = runtime.acl.get_recent_err_msg() if hasattr(runtime.acl, "get_recent_err_msg") else ""
        said = said[0] if isinstance(said, tuple) else said
        super().__init__(f"[{function}] error code {code} ({name}){': ' + str(said) if said else ''}")


class _Item(ctypes.Structure):
    """HcclSendRecvItem."""
    _fields_ = [("kind", ctypes.c_int32), ("buf", ctypes.c_void_p), ("count", ctypes.c_uint64),
                ("dtype", ctypes.c_int32), ("remote", ctypes.c_uint32)]


@functools.cache
def function(name: str) -> Any:
    """A function of libhccl."""
    library = acl_loader.further_library("libhccl.so")
    found = getattr(library, name, None)
    if found is None:
        raise MissingSymbolError(f"{name} is not in libhccl.so of CANN {acl_loader.cann_version()}")
    found.restype, found.argtypes = ctypes.c_int32, [_KINDS[kind] for kind in _FUNCTIONS[name]]
    return found


def must(name: str, *args: Any) -> None:
    code = function(name)(*args)
    if code:
        raise HcclError(name, code)


def set_timeouts(seconds: float) -> None:
    """How long HCCL waits for another rank, in a collective and when a communicator is made, where the environment does not say
    it. HCCL takes no connect timeout out of the range from 120 to 7200."""
    os.environ.setdefault("HCCL_EXEC_TIMEOUT", str(max(int(seconds), 1)))
    os.environ.setdefault("HCCL_CONNECT_TIMEOUT", str(min(max(int(seconds), 120), 7200)))


def recording() -> bool:
    """Whether a graph is being recorded: no thread may query an event then."""
    return bool(graph_random.active)


def has_passed(record: Any) -> bool:
    """Whether the device has come to the end of a collective."""
    passed = record.passed()
    if passed is None:
        _, code = runtime.acl.rt.query_event_status(record.event)
        check(code, "aclrtQueryEventStatus")
    return bool(passed)


def wait_for(record: Any) -> None:
    """The host waits for the end of a collective."""
    if record.passed() is not True:               # so its device is the one that it was queued on
        runtime.get_runtime(record.device)
        with streams.waiting("Work.wait"):
            check(runtime.acl.rt.synchronize_event(record.event), "aclrtSynchronizeEvent")


def abort_stream(device_id: int, stream: int) -> None:
    """Drops the queued tasks of a stream, so that waits for it return an error. Does nothing before CANN 8.0, which cannot: then
    HCCL's own timeout ends the wait."""
    runtime.get_runtime(device_id)
    abort = getattr(runtime.acl.rt, "stream_abort", None)
    if abort is not None:
        check(abort(stream), "aclrtStreamAbort")


def is_ending() -> bool:
    """Whether the program ends, and its devices with it."""
    return runtime.is_ending(runtime.current_device())


def ask_for_causes(ask: Callable[[], BaseException | None]) -> None:
    """ask() may know why work on a device failed; what it gives becomes part of the error of a wait."""
    errors.causes.append(ask)


def root_info(device_id: int) -> bytes:
    """What the ranks of a new communicator need to find each other; made by its first rank."""
    runtime.get_runtime(device_id)
    info = ctypes.create_string_buffer(ROOT_INFO_BYTES)
    must("HcclGetRootInfo", ctypes.addressof(info))
    return info.raw


class Communicator(_C.CommunicatorBase):
    """One rank's end of a communicator, on one device."""

    def __init__(self, device_id: int, ranks: int, rank: int, info: bytes) -> None:
        runtime.get_runtime(device_id)
        _bind()
        self.device_id = device_id
        handle, root = ctypes.c_void_p(), ctypes.create_string_buffer(info, ROOT_INFO_BYTES)
        must("HcclCommInitRootInfo", ranks, ctypes.addressof(root), rank, ctypes.addressof(handle))
        self.handle = handle.value or 0
        self._session = runtime.get_runtime(device_id).session
        _open.add(self)

    def error(self) -> str:
        """What went wrong on the device since, or ""."""
        code = ctypes.c_int32()
        runtime.get_runtime(self.device_id)
        must("HcclGetCommAsyncError", self.handle, ctypes.addressof(code))
        return "" if not code.value else f"HCCL_E_{_CODES[code.value]}" if code.value < len(_CODES) else str(code.value)

    def destroy(self) -> None:
        """Gives it back. Nothing if its device has ended since."""
        if self.handle and runtime.get_runtime(self.device_id).session is self._session:
            handle, self.handle = self.handle, 0
            must("HcclCommDestroy", handle)


_open: weakref.WeakSet[Communicator] = weakref.WeakSet()


def _destroy_all(device_id: int) -> None:
    for comm in [comm for comm in _open if comm.device_id == device_id]:
        comm.destroy()


def _give_up(device_id: int) -> None:
    """A program that ends by an exception must not wait for ranks that will never come to what it has queued."""
    if hasattr(sys, "last_type"):
        _destroy_all(device_id)


runtime.on_close(_destroy_all)
runtime.before_close(_give_up)


# ---- what a queue of collectives is told to start: a function, and its parameters but for communicator and stream ----------
class Start(NamedTuple):
    """One call of HCCL."""
    function: str
    arguments: tuple[int, ...]
    kept: Any = None                              # what the arguments point into on the host


def all_to_all(send: int, sent: list[int], recv: int, received: list[int]) -> Start:
    """sent and received: the bytes to and from each rank."""
    cells = [_counts(counts) for part in (sent, received) for counts in (part, _offsets(part))]
    at = [ctypes.addressof(cell) for cell in cells]
    return Start("HcclAlltoAllV", (send, at[0], at[1], BYTE, recv, at[2], at[3], BYTE), cells)


def batch(items: list[tuple[bool, int, int, int]]) -> Start:
    """Sends (True) and receives of (address, bytes, rank), which all move together."""
    cells = (_Item * len(items))(*(_Item(0 if sends else 1, data, count, BYTE, peer) for sends, data, count, peer in items))
    return Start("HcclBatchSendRecv", (ctypes.addressof(cells), len(items)), cells)


def _counts(counts: list[int]) -> Any:
    return (ctypes.c_uint64 * len(counts))(*counts)


def _offsets(counts: list[int]) -> list[int]:
    return [sum(counts[:i]) for i in range(len(counts))]


def _bind() -> None:
    """Gives the queues of collectives what they need of CANN."""
    def address(name: str) -> int:
        return ctypes.cast(function(name), ctypes.c_void_p).value or 0

    def new_event(device_id: int) -> int:
        return streams.take_event(device_id, streams.EVENT_SYNC)

    aclnn.bind()                                  # streams and contexts are the launcher's
    _C._set_hccl_dtypes(DTYPES)
    _C._hccl_bind(acl_loader.symbol("aclrtRecordEvent"), acl_loader.symbol("aclrtStreamWaitEvent"),
                  acl_loader.symbol("aclrtQueryEventStatus"), new_event, address)


def order(device_id: int, first: int, then: int) -> None:
    """While graphs are captured: work given to the second stream from now on waits for what the first has now. What is recorded
    into a graph cannot wait for what is not: beginning a recording has waited for that, and a replay is queued on a stream
    like any other work."""
    if streams.is_capturing(device_id, first) != streams.is_capturing(device_id, then):
        return
    owner = runtime.get_runtime(device_id)
    event = streams.record_new_event(device_id, first)
    try:
        check(runtime.acl.rt.stream_wait_event(then, event), "aclrtStreamWaitEvent")
    finally:
        streams.give_event(owner, owner.session, streams.EVENT_SYNC, event)
