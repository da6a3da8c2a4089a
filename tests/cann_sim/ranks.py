"""Several HCCL ranks in one process, a device each, for tests: tensors in, a collective on each, tensors out."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path
from typing import Any

import torch

import cann_sim

DTYPES = {
    torch.int8: 0, torch.int16: 1, torch.int32: 2, torch.float16: 3, torch.float32: 4, torch.int64: 5, torch.uint64: 6,
    torch.uint8: 7, torch.uint16: 8, torch.uint32: 9, torch.float64: 10, torch.bfloat16: 11,
}  # fmt: skip
SUM, PROD, MAX, MIN = range(4)
TO_DEVICE, TO_HOST = 1, 2


class Buffer:
    """Device memory of one rank with a tensor's content."""

    def __init__(self, ranks: Ranks, rank: int, content: torch.Tensor) -> None:
        self.ranks, self.rank, self.like = ranks, rank, content.contiguous()
        self.bytes = self.like.numel() * self.like.element_size()
        self.address = ctypes.c_void_p()
        ranks.on(rank)
        ranks.must("aclrtMalloc", ctypes.byref(self.address), ctypes.c_size_t(max(self.bytes, 1)), 0)
        self._copy(self.address, ctypes.c_void_p(self.like.data_ptr()), TO_DEVICE)

    def _copy(self, to: ctypes.c_void_p, source: ctypes.c_void_p, kind: int) -> None:
        if self.bytes:
            size = ctypes.c_size_t(self.bytes)
            self.ranks.must("aclrtMemcpy", to, size, source, size, kind)

    def read(self) -> torch.Tensor:
        out = torch.empty_like(self.like)
        self.ranks.on(self.rank)
        self._copy(ctypes.c_void_p(out.data_ptr()), self.address, TO_HOST)
        return out

    def free(self) -> None:
        self.ranks.must("aclrtFree", self.address)


class Ranks:
    """Communicators of one group over `count` devices, made by HcclCommInitAll, and a stream on each device."""

    def __init__(self, count: int, first: int = 0) -> None:
        self.count, self.first, self.streams = count, first, {}
        self._open()
        for rank in range(count):
            self._make_stream(rank)
        comms = (ctypes.c_void_p * count)()
        self.must("HcclCommInitAll", count, (ctypes.c_int32 * count)(*range(first, first + count)), comms)
        self.comms = {rank: ctypes.c_void_p(comm) for rank, comm in enumerate(comms)}

    def _open(self) -> None:
        lib64 = f"{cann_sim.home()}/lib64"
        self.acl, self.hccl = ctypes.CDLL(f"{lib64}/libascendcl.so"), ctypes.CDLL(f"{lib64}/libhccl.so")
        self.acl.aclGetRecentErrMsg.restype = ctypes.c_char_p
        self.acl.aclInit(None)  # another test may have done it
        self.contexts: dict[int, ctypes.c_void_p] = {}
        self.context = ctypes.c_void_p()  # of this thread, which close() brings back; null: it had none
        self.acl.aclrtGetCurrentContext(ctypes.byref(self.context))

    def _make_stream(self, rank: int) -> None:
        self.on(rank)
        self.streams[rank] = ctypes.c_void_p()
        self.must("aclrtCreateStream", ctypes.byref(self.streams[rank]))

    def on(self, rank: int) -> None:
        """Sets a rank's device once: close() resets it once, and other tests find it as it was."""
        if rank in self.contexts:
            self.must("aclrtSetCurrentContext", self.contexts[rank])
            return
        self.must("aclrtSetDevice", self.first + rank)
        self.contexts[rank] = ctypes.c_void_p()
        self.must("aclrtGetCurrentContext", ctypes.byref(self.contexts[rank]))

    def code(self, name: str, *args: Any) -> int:
        return getattr(self.hccl if name.startswith("Hccl") else self.acl, name)(*args)

    def must(self, name: str, *args: Any) -> None:
        code = self.code(name, *args)
        assert code == 0, f"{name} returned {code}: {self.message()}"

    def message(self) -> str:
        return (self.acl.aclGetRecentErrMsg() or b"").decode()

    def buffers(self, contents: list[torch.Tensor]) -> list[Buffer]:
        return [Buffer(self, rank, content) for rank, content in enumerate(contents)]

    def launch(self, rank: int, name: str, *args: Any) -> int:
        """The collective's own arguments; communicator and stream are added. Ints become 64-bit counts."""
        self.on(rank)
        cells = [a.address if isinstance(a, Buffer) else ctypes.c_uint64(a) if isinstance(a, int) else a for a in args]
        return self.code(name, *cells, self.comms[rank], self.streams[rank])

    def synchronize(self) -> list[int]:
        codes = []
        for rank, stream in self.streams.items():
            self.on(rank)
            codes.append(self.code("aclrtSynchronizeStream", stream))
        return codes

    def close(self) -> None:
        for rank in range(self.count):
            self.on(rank)
            self.must("HcclCommDestroy", self.comms[rank])
            self.must("aclrtDestroyStream", self.streams[rank])
            self.must("aclrtResetDevice", self.first + rank)
        if self.context:
            self.must("aclrtSetCurrentContext", self.context)


class OneRank(Ranks):
    """One rank of a group of several processes, which connect through the root's information in a file."""

    def __init__(self, rank: int, count: int, file: Path) -> None:
        self.count, self.first, self.streams, self.comms = count, 0, {}, {rank: ctypes.c_void_p()}
        self._open()
        self._make_stream(rank)
        root = (ctypes.c_char * 4108)()
        if rank == 0:
            self.must("HcclGetRootInfo", root)
            file.with_suffix(".new").write_bytes(bytes(root))
            file.with_suffix(".new").rename(file)  # it appears whole
        while not file.exists():
            time.sleep(0.01)
        root.raw = file.read_bytes()
        self.must("HcclCommInitRootInfo", count, root, rank, ctypes.byref(self.comms[rank]))
