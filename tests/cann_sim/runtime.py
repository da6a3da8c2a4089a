"""libascendcl for tests: its functions with the C types of the tables, and short names for what every test does."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import tables

import cann_sim

TO_DEVICE, TO_HOST, DEVICE_TO_DEVICE, DEFAULT_KIND = 1, 2, 3, 4  # aclrtMemcpyKind
SYNC, PROGRESS, TIME_LINE, EXTERNAL = 1, 2, 8, 0x20  # event flags
GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2  # aclmdlRICaptureMode
HUGE_PAGE = 2 << 20
HOST_FUNC = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

PLAIN = {
    "int": ctypes.c_int, "int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32, "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64, "size_t": ctypes.c_size_t, "uint8_t": ctypes.c_uint8, "float": ctypes.c_float,
    "aclFloat16": ctypes.c_uint16, "void": None,
}  # fmt: skip
POINTERS = {
    "aclrtStream", "aclrtEvent", "aclrtContext", "aclrtDrvMemHandle", "aclmdlRI", "aclrtCallback", "aclrtHostFunc",
    "aclrtExceptionInfoCallback", "aclrtDeviceStateCallback", "aclrtStreamStateCallback", "aclrtTaskGrp",
    "aclrtDeviceTaskAbortCallback", "aclrtNotify", "aclrtMemPool", "aclmdlRICondHandle",
    "aclrtAllocatorDesc", "aclrtAllocator", "aclrtAllocatorAllocFunc", "aclrtAllocatorFreeFunc",
    "aclrtAllocatorAllocAdviseFunc", "aclrtAllocatorGetAddrFromBlockFunc",
}  # fmt: skip


class CondTaskParams(ctypes.Structure):
    _fields_ = [("handle", ctypes.c_void_p), ("type", ctypes.c_int32), ("size", ctypes.c_uint32), ("models", ctypes.c_void_p)]


def c_type(text: str) -> Any:
    text = text.replace("const", "").strip()
    if text == "char*":
        return ctypes.c_char_p
    if text.endswith("*") or text in POINTERS:
        return ctypes.c_void_p
    if text == "aclmdlRICondTaskParams":
        return CondTaskParams
    return PLAIN.get(text, ctypes.c_int32)  # the rest are enums


class PhysicalMemProp(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int32) for name in ("handle", "allocation", "attr")] + [
        ("device", ctypes.c_uint32), ("location", ctypes.c_int32), ("reserve", ctypes.c_uint64)
    ]  # fmt: skip


def physical_prop(device: int = 0) -> PhysicalMemProp:
    return PhysicalMemProp(0, 0, 4, device, 1, 0)  # pinned, HBM huge pages, on a device


class AclError(RuntimeError):
    def __init__(self, code: int, name: str, message: str) -> None:
        super().__init__(f"{name} answered {code}: {message}")
        self.code = code


class Runtime:
    """`rt.aclrtMalloc(...)` answers the code; `rt.must("aclrtMalloc", ...)` raises unless it is 0."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(str(Path(cann_sim.home()) / "lib64" / "libascendcl.so"), mode=ctypes.RTLD_GLOBAL)

    @cache  # noqa: B019 - there is one Runtime a process
    def __getattr__(self, name: str) -> Any:
        function, declared = getattr(self.library, name), tables.declared()[name]
        function.restype = c_type(declared.result)
        function.argtypes = [c_type(a) for a in declared.arguments]
        return function

    def message(self) -> str:
        return (self.aclGetRecentErrMsg() or b"").decode()

    def must(self, name: str, *args: Any) -> None:
        if code := getattr(self, name)(*args):
            raise AclError(code, name, self.message())

    def made(self, name: str, *args: Any, ctype: Any = ctypes.c_void_p) -> Any:
        """The value that a function writes through its first argument."""
        out = ctype()
        self.must(name, ctypes.byref(out), *args)
        return out.value

    # ---- what tests make
    def stream(self) -> int:
        return self.made("aclrtCreateStream")

    def event(self, flags: int = SYNC | TIME_LINE) -> int:
        return self.made("aclrtCreateEventExWithFlag", flags)

    def malloc(self, size: int) -> int:
        return self.made("aclrtMalloc", size, 0)

    def malloc_host(self, size: int) -> int:
        return self.made("aclrtMallocHost", size)

    def write(self, device: int, data: bytes) -> None:
        self.must("aclrtMemcpy", device, len(data), data_pointer(data), len(data), TO_DEVICE)

    def read(self, device: int, size: int) -> bytes:
        out = ctypes.create_string_buffer(size)
        self.must("aclrtMemcpy", out, size, device, size, TO_HOST)
        return out.raw

    def fill(self, device: int, value: int, size: int, stream: int | None) -> None:
        self.must("aclrtMemsetAsync", device, size, value, size, stream)

    def move(self, to: int, source: int, size: int, stream: int | None, kind: int = DEVICE_TO_DEVICE) -> None:
        self.must("aclrtMemcpyAsync", to, size, source, size, kind, stream)

    def sync(self, stream: int | None = None) -> None:
        self.must("aclrtSynchronizeStream", stream)

    def memory(self) -> tuple[int, int]:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.must("aclrtGetMemInfo", 1, ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    @contextmanager
    def blocked(self, stream: int | None) -> Iterator[None]:
        """The stream gets to nothing that is queued inside before the block ends."""
        gate = self.made("aclrtCreateEventWithFlag", SYNC)
        helper = self.stream()
        self.must("aclrtStreamWaitEvent", stream, gate)
        try:
            yield
        finally:
            self.must("aclrtRecordEvent", gate, helper)
            self.sync(stream)
            self.must("aclrtDestroyStream", helper)
            self.must("aclrtDestroyEvent", gate)

    def capture(self, stream: int, mode: int, record: Callable[[], None]) -> int:
        self.must("aclmdlRICaptureBegin", stream, mode)
        record()
        graph = ctypes.c_void_p()
        self.must("aclmdlRICaptureEnd", stream, ctypes.byref(graph))
        assert graph.value
        return graph.value


def data_pointer(data: bytes) -> ctypes.c_void_p:
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p)


def out(ctype: Any = ctypes.c_void_p) -> Any:
    """A cell for an output that the test does not look at."""
    return ctypes.byref(ctype())


def repeat(pattern: Sequence[int], size: int) -> bytes:
    return bytes(pattern) * (size // len(pattern))


def in_thread(work: Callable[[], object]) -> object:
    """What `work` returns in a new thread, which has no context yet."""
    answers: list[object] = []
    thread = threading.Thread(target=lambda: answers.append(work()))
    thread.start()
    thread.join()
    return answers[0]
