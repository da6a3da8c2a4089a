"""A fake acl module that allocates addresses and checks every free: for tests of the allocator without CANN."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mindtorch_v2 import _C
from mindtorch_v2._backends.npu import allocator, pinned, runtime

OK, INVALID, NO_MEMORY = 0, 100000, 207001
KB, MB, GB = 1 << 10, 1 << 20, 1 << 30
RESERVED = "reserved_bytes.all.current"


class FakeDevice:
    """pyACL's memory and event calls over one device; freeing what is not allocated or still in use is an error."""

    def __init__(self, capacity: int = 4 * GB, base: int = 0x100000000) -> None:
        self.capacity, self.base = capacity, base
        self.next_address, self.next_handle = base, 1
        self.memory: dict[int, int] = {}  # address: size
        self.physical: dict[int, int] = {}  # handle: size
        self.mapped: dict[int, int] = {}  # address: handle
        self.reserved: dict[int, int] = {}
        self.recorded: dict[int, int] = {}  # event: how much of its stream has to be done
        self.event_stream: dict[int, int] = {}
        self.queued: dict[int, int] = {}  # stream: how much was queued
        self.done: dict[int, int] = {}
        self.mallocs = self.frees = self.synchronized = 0
        self.rt = SimpleNamespace(**{name: getattr(self, name) for name in dir(self) if not name.startswith("_")})
        self.rt.set_device = self.rt.destroy_event = self.rt.set_context = lambda *_: OK
        self.rt.destroy_stream = self.rt.destroy_context = self.rt.reset_device = lambda *_: OK
        self.rt.create_context = self.rt.create_stream = lambda *_: (self.handle(), OK)
        self.init = self.finalize = lambda: OK

    def handle(self) -> int:
        self.next_handle += 1
        return self.next_handle

    @property
    def used(self) -> int:
        return sum(self.memory.values()) + sum(self.physical.values())

    def work(self, stream: int) -> None:
        """Queues something on a stream."""
        self.queued[stream] = self.queued.get(stream, 0) + 1

    def finish(self, stream: int) -> None:
        """The device has done what a stream holds."""
        self.done[stream] = self.queued.get(stream, 0)

    # ---- pyACL
    def get_mem_info(self, attr: int) -> tuple[int, int, int]:
        assert attr == 1
        return self.capacity - self.used, self.capacity, OK

    def malloc_align32(self, size: int, policy: int) -> tuple[int, int]:
        self.mallocs += 1
        if size <= 0 or self.used + size > self.capacity:
            return 0, NO_MEMORY
        address, self.next_address = self.next_address, self.next_address + size + (2 << 20)
        self.memory[address] = size
        return address, OK

    def free(self, address: int) -> int:
        self.frees += 1
        assert self.synchronized, "freed while work may be in flight"
        return OK if self.memory.pop(address, None) else INVALID

    def synchronize_device(self) -> int:
        self.synchronized += 1
        for stream in self.queued:
            self.finish(stream)
        return OK

    def reserve_mem_address(self, size: int, alignment: int, expect: int, flags: int) -> tuple[int, int]:
        address, self.next_address = self.next_address, self.next_address + size + (2 << 20)
        self.reserved[address] = size
        return address, OK

    def release_mem_address(self, address: int) -> int:
        size = self.reserved.pop(address)
        assert not any(address <= place < address + size for place in self.mapped)
        return OK

    def malloc_physical(self, size: int, prop: dict[str, Any], flags: int) -> tuple[int, int]:
        assert prop["location"]["type"] == 1 and prop["memAttr"] == 4
        if self.used + size > self.capacity:
            return 0, NO_MEMORY
        handle = self.handle()
        self.physical[handle] = size
        return handle, OK

    def free_physical(self, handle: int) -> int:
        assert handle not in self.mapped.values()
        return OK if self.physical.pop(handle, None) else INVALID

    def map_mem(self, address: int, size: int, offset: int, handle: int, flags: int) -> int:
        assert offset == 0 and self.physical[handle] == size and address not in self.mapped
        assert any(start <= address and address + size <= start + room for start, room in self.reserved.items())
        self.mapped[address] = handle
        return OK

    def unmap_mem(self, address: int) -> int:
        return OK if self.mapped.pop(address, None) else INVALID

    def create_event_ex_with_flag(self, flag: int) -> tuple[int, int]:
        return self.handle(), OK

    def record_event(self, event: int, stream: int) -> int:
        self.recorded[event], self.event_stream[event] = self.queued.get(stream, 0), stream
        return OK

    def query_event_status(self, event: int) -> tuple[int, int]:
        return int(self.done.get(self.event_stream[event], 0) >= self.recorded[event]), OK

    def synchronize_event(self, event: int) -> int:
        self.finish(self.event_stream[event])
        return OK

    def malloc_host(self, size: int) -> tuple[int, int]:
        return self.malloc_align32(size, 0)

    def free_host(self, address: int) -> int:
        return OK if self.memory.pop(address, None) else INVALID


def install(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    """Puts a fake device under a process that has not used an npu."""
    fake = FakeDevice()
    fake.rt.get_device_count = lambda: (2, OK)
    monkeypatch.setattr(runtime, "acl", fake)
    monkeypatch.setattr(runtime, "_runtimes", {})
    monkeypatch.setattr(runtime, "_started", None)
    monkeypatch.setattr(runtime, "_counted", (None, 0))
    monkeypatch.setattr(runtime, "_thread", runtime._Thread())
    monkeypatch.setattr(runtime, "_RUNTIME_CLEANUP_REGISTERED", True)
    for name in ("_npu_set_default_stream", "_npu_set_bound"):  # the launcher must not believe in the fake
        monkeypatch.setattr(_C, name, lambda *_: None)
    monkeypatch.setattr(allocator, "_ALLOCATORS", {})
    monkeypatch.setattr(allocator, "_recording", ())
    monkeypatch.setattr(allocator, "_source", None)
    monkeypatch.setattr(pinned, "host", pinned.PinnedAllocator())
    for name in ("PYTORCH_NPU_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_NO_NPU_MEMORY_CACHING"):
        monkeypatch.delenv(name, raising=False)
    return fake


def size_of(alloc: allocator.NpuAllocator, address: int) -> int:
    """The size of the block at an address."""
    blocks = [b for s in alloc.snapshot()["segments"] for b in s["blocks"]]
    return next(b["size"] for b in blocks if b["address"] == address)
