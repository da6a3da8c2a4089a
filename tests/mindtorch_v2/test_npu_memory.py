"""torch.npu's names for memory, over a fake device or a replaced allocator. What the allocator does: test_npu_allocator."""

from __future__ import annotations

import inspect
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from fake_acl import GB, MB, FakeDevice, install

import mindtorch_v2 as torch
from mindtorch_v2 import npu
from mindtorch_v2._backends.npu import allocator, pinned

# torch_npu's public names with their parameters.
SIGNATURES = """
caching_allocator_alloc(size, device, stream)
caching_allocator_delete(mem_ptr)
change_current_allocator(allocator)
empty_cache()
empty_virt_addr_cache()
get_allocator_backend()
get_per_process_memory_fraction(device)
host_empty_cache()
host_memory_stats()
host_memory_stats_as_nested_dict()
max_memory_allocated(device)
max_memory_cached(device)
max_memory_reserved(device)
mem_get_info(device)
memory_allocated(device)
memory_cached(device)
memory_reserved(device)
memory_snapshot(mempool_id)
memory_stats(device)
memory_stats_as_nested_dict(device)
memory_summary(device, abbreviated)
reset_accumulated_host_memory_stats()
reset_accumulated_memory_stats(device)
reset_max_memory_allocated(device)
reset_max_memory_cached(device)
reset_peak_host_memory_stats()
reset_peak_memory_stats(device)
set_per_process_memory_fraction(fraction, device)
use_mem_pool(pool, device)
MemPool(allocator, use_on_oom, no_split)
NPUPluggableAllocator(path_to_so_file, alloc_fn_name, free_fn_name)
"""


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    return install(monkeypatch)


@pytest.mark.parametrize("line", SIGNATURES.split("\n")[1:-1])
def test_names_and_parameters(line: str) -> None:
    name, _, parameters = line[:-1].partition("(")
    assert ", ".join(inspect.signature(getattr(torch.npu, name)).parameters) == parameters


def replaced(monkeypatch: pytest.MonkeyPatch, **methods: Any) -> list[Any]:
    """Replaces the allocator by one that only has these methods; returns the devices it was asked for."""
    asked: list[Any] = []
    made = type("Replaced", (), {name: lambda self, *a, _r=result: _r for name, result in methods.items()})()
    monkeypatch.setattr(torch.npu, "_get_allocator", lambda device=None: asked.append(device) or made)
    return asked


# ---- through the seam -------------------------------------------------------------------------------------------------
def test_summary_of_whatever_the_allocator_says(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(monkeypatch, memory_stats={"allocated_bytes.all.current": 3 * MB, "num_ooms": 2})
    text = torch.npu.memory_summary()
    assert re.search(r"\| Allocated memory +\| +3072 KiB \| +0 B ", text)
    assert re.search(r"\| Reserved memory +\| +0 B ", text) and "NPU OOMs: 2" in text
    assert "PyTorch NPU memory summary, device ID 0" in text and "npuMalloc retries: 0" in text
    assert {len(line) for line in text.splitlines()} == {77}
    short = torch.npu.memory_summary(abbreviated=True)
    assert "from large pool" in text and "from large pool" not in short


def test_summary_has_torchs_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.cuda import memory as judge

    keys = torch.npu.memory_stats()
    stats = {key: number * 977 * 1013 for number, key in enumerate(keys)}
    replaced(monkeypatch, memory_stats=stats)
    monkeypatch.setattr(judge, "memory_stats", lambda device: stats)
    monkeypatch.setattr(judge, "_get_device_index", lambda device, optional: 0)
    ours, theirs = torch.npu.memory_summary().splitlines(), judge.memory_summary().splitlines()
    assert len(ours) == len(theirs)
    for mine, other in zip(ours[5:], theirs[5:]):  # the lines above name the device
        assert mine[24:] == other[24:]


def test_names_go_through_get_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    stats = {"allocated_bytes.all.current": 1, "allocated_bytes.all.peak": 2, "reserved_bytes.all.current": 3}
    asked = replaced(monkeypatch, memory_stats=stats, snapshot={"segments": [1]}, _mem_get_info=(4, 5))
    assert torch.npu.memory_allocated(1) == 1 and torch.npu.max_memory_allocated("npu:1") == 2
    assert torch.npu.memory_reserved() == 3 and torch.npu.max_memory_reserved() == 0
    assert torch.npu.memory_snapshot() == {"segments": [1]} and torch.npu.mem_get_info() == (4, 5)
    assert torch.npu.memory_stats() == stats
    assert asked[:2] == [1, "npu:1"]


def test_fraction_is_checked_and_set(device: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    alloc = allocator.NpuAllocator(device_id=0)
    monkeypatch.setattr(torch.npu, "_get_allocator", lambda device=None: alloc)
    monkeypatch.setattr(alloc, "_mem_get_info", lambda: (0, 100))
    torch.npu.set_per_process_memory_fraction(0.5)
    assert torch.npu.get_per_process_memory_fraction() == 0.5
    alloc._stats["reserved_bytes.all.current"] = 90
    with pytest.raises(torch.OutOfMemoryError):
        alloc._enforce_memory_fraction(1)
    with pytest.raises(TypeError, match="must be `float`"):
        torch.npu.set_per_process_memory_fraction(1)
    for value in (-0.1, 1.1):
        with pytest.raises(ValueError, match="Allowed range: 0~1"):
            torch.npu.set_per_process_memory_fraction(value)


# ---- over a fake device -----------------------------------------------------------------------------------------------
def test_statistics(device: FakeDevice) -> None:
    address = torch.npu.caching_allocator_alloc(1000)
    assert torch.npu.memory_allocated() == 1536 and torch.npu.memory_reserved() == 2 * MB
    assert torch.npu.mem_get_info() == (4 * GB - 2 * MB, 4 * GB)
    torch.npu.caching_allocator_delete(address)
    assert torch.npu.memory_allocated() == 0 and torch.npu.max_memory_allocated() == 1536
    nested = torch.npu.memory_stats_as_nested_dict()
    assert nested["allocated_bytes"]["all"] == {"current": 0, "peak": 1536, "allocated": 1536, "freed": 1536}
    assert nested["num_device_alloc"] == 1
    torch.npu.reset_peak_memory_stats()
    torch.npu.reset_accumulated_memory_stats()
    stats = torch.npu.memory_stats()
    assert stats["allocated_bytes.all.peak"] == stats["allocated_bytes.all.freed"] == stats["num_device_alloc"] == 0
    assert all(type(value) is int for value in stats.values())
    assert list(stats) == sorted(stats)
    torch.npu.empty_cache()
    assert torch.npu.memory_reserved() == 0 and device.memory == {}


def test_all_keys_of_torch_are_there() -> None:
    stats = torch.npu.memory_stats()
    metrics = (
        "allocation segment active inactive_split allocated_bytes reserved_bytes active_bytes inactive_split_bytes"
    )
    for metric in (*metrics.split(), "requested_bytes", "allocated"):
        for pool in ("all", "large_pool", "small_pool"):
            for kind in ("current", "peak", "allocated", "freed"):
                assert f"{metric}.{pool}.{kind}" in stats
    for key in ("num_alloc_retries num_ooms num_sync_all_streams num_device_alloc num_device_free num_oom_rejections "
                "max_split_size oversize_allocations.current oversize_segments.freed").split():  # fmt: skip
        assert key in stats
    assert len(stats) == 123 + 12  # torch_npu's, and "allocated" as torch's documentation has it


def test_old_names_warn(device: FakeDevice) -> None:
    with pytest.warns(FutureWarning, match="renamed to torch.npu.memory_reserved"):
        assert torch.npu.memory_cached() == 0
    with pytest.warns(FutureWarning, match="max_memory_reserved"):
        torch.npu.max_memory_cached()
    for name in ("reset_max_memory_allocated", "reset_max_memory_cached"):
        with pytest.warns(FutureWarning, match="resets all peak memory stats"):
            getattr(torch.npu, name)()


def test_caching_allocator_alloc_on_streams_and_devices(device: FakeDevice) -> None:
    address = torch.npu.caching_allocator_alloc(1000, device=1, stream=77)
    (segment,) = allocator.get_allocator(1).snapshot()["segments"]
    assert (segment["device"], segment["stream"]) == (1, 77)
    torch.npu.caching_allocator_delete(address)
    with pytest.raises(RuntimeError, match="invalid device pointer"):
        torch.npu.caching_allocator_delete(address)
    with pytest.raises(TypeError, match="Invalid type for stream"):
        torch.npu.caching_allocator_alloc(8, stream="s")


def test_snapshot_in_torchs_format(device: FakeDevice, tmp_path: Path) -> None:
    from torch.cuda import _memory_viz as judge

    npu._record_memory_history(max_entries=50)
    first = torch.npu.caching_allocator_alloc(1000, device=1)
    torch.npu.caching_allocator_alloc(5 * MB, device=1)
    torch.npu.caching_allocator_delete(first)
    file = tmp_path / "dump.pickle"
    npu._dump_snapshot(str(file))
    made = pickle.loads(file.read_bytes())
    assert [len(trace) for trace in made["device_traces"]] == [0, 6]
    assert "5.0MiB" in judge.segsum(made) and "alloc" in judge.trace(made)
    assert judge.trace_plot(made) and judge.segment_plot(made)
    npu._record_memory_history(None)
    torch.npu.caching_allocator_alloc(8, device=1)
    assert len(npu._snapshot()["device_traces"][1]) == 6
    for wrong in ({"enabled": "some"}, {"context": "none"}, {"stacks": "c"}):
        with pytest.raises(RuntimeError, match="expected"):
            npu._record_memory_history(**wrong)


def test_history_of_devices_that_come_later(device: FakeDevice) -> None:
    npu._record_memory_history(True)
    torch.npu.caching_allocator_alloc(8)
    assert npu._snapshot()["device_traces"][0][0]["action"] == "segment_alloc"


def test_settings_can_be_changed(device: FakeDevice) -> None:
    alloc = allocator.get_allocator(0)
    npu._set_allocator_settings("max_split_size_mb:64")
    assert alloc.memory_stats()["max_split_size"] == 64 * MB
    with pytest.raises(ValueError, match="Unrecognized"):
        npu._set_allocator_settings("foo:1")


# ---- pools ------------------------------------------------------------------------------------------------------------
def test_mem_pool(device: FakeDevice) -> None:
    pool = torch.npu.MemPool()
    assert pool.use_count() == 1 and pool.id[0] == 0 and pool.snapshot() == []
    with torch.npu.use_mem_pool(pool):
        assert pool.use_count() == 2
        inside = torch.npu.caching_allocator_alloc(1000)
    outside = torch.npu.caching_allocator_alloc(1000)
    assert pool.use_count() == 1
    assert [segment["address"] for segment in pool.snapshot()] == [inside]
    torch.npu.caching_allocator_delete(inside)
    torch.npu.empty_cache()
    assert inside in device.memory
    del pool
    assert list(device.memory) == [outside]


def test_a_pool_with_an_allocator_of_its_own(device: FakeDevice) -> None:
    # In C, further arguments are ignored: the C library is a pluggable allocator.
    own = torch.npu.NPUPluggableAllocator("libc.so.6", "malloc", "free").allocator()
    pool = torch.npu.MemPool(own)
    with torch.npu.use_mem_pool(pool):
        address = torch.npu.caching_allocator_alloc(1000)
    assert address and device.memory == {} and torch.npu.memory_reserved() == 2 * MB
    torch.npu.caching_allocator_delete(address)
    del pool
    assert torch.npu.memory_reserved() == 0 and device.frees == 0


def test_change_current_allocator(device: FakeDevice) -> None:
    own = torch.npu.NPUPluggableAllocator("libc.so.6", "malloc", "free")
    assert torch.npu.get_allocator_backend() == "native"
    torch.npu.change_current_allocator(own)
    assert torch.npu.get_allocator_backend() == "pluggable"
    address = torch.npu.caching_allocator_alloc(1000)
    assert device.memory == {} and torch.npu.memory_reserved() == 1536
    torch.npu.caching_allocator_delete(address)
    assert torch.npu.memory_reserved() == 0
    with pytest.raises(RuntimeError, match="Can't swap an already initialized allocator"):
        torch.npu.change_current_allocator(own)


def test_too_late_to_change_the_allocator(device: FakeDevice) -> None:
    torch.npu.caching_allocator_alloc(8)
    with pytest.raises(RuntimeError, match="Can't swap"):
        torch.npu.change_current_allocator(torch.npu.NPUPluggableAllocator("libc.so.6", "malloc", "free"))


# ---- pinned memory ----------------------------------------------------------------------------------------------------
def test_pinned_memory_is_cached(device: FakeDevice) -> None:
    first = pinned.host.malloc(1000)
    assert device.memory == {first: 1024}
    pinned.host.free(first)
    assert pinned.host.malloc(700) == first
    stats = torch.npu.host_memory_stats()
    assert stats["allocated_bytes.current"] == stats["active_bytes.current"] == 1024
    assert stats["num_host_alloc"] == 1 and stats["active_requests.allocated"] == 2
    pinned.host.free(first)
    torch.npu.host_empty_cache()
    assert device.memory == {} and torch.npu.host_memory_stats_as_nested_dict()["allocations"]["freed"] == 1
    torch.npu.reset_peak_host_memory_stats()
    torch.npu.reset_accumulated_host_memory_stats()
    stats = torch.npu.host_memory_stats()
    assert stats["allocations.peak"] == stats["num_host_free"] == stats["host_alloc_time.count"] == 0


def test_pinned_memory_waits_for_copies(device: FakeDevice) -> None:
    address = pinned.host.malloc(1000)
    assert pinned.host.record(address, 0, 7) and not pinned.host.record(address + 1, 0, 7)
    device.work(7)
    pinned.host.free(address)
    other = pinned.host.malloc(1000)
    assert other != address and torch.npu.host_memory_stats()["active_bytes.current"] == 2048
    device.finish(7)
    assert pinned.host.malloc(1000) == address


def test_pinned_settings(device: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_NPU_ALLOC_CONF", "pinned_max_round_threshold_mb:1,pinned_max_cached_size_mb:2")
    address = pinned.host.malloc(3 * MB + 1)
    assert device.memory == {address: 3 * MB + 4096}
    pinned.host.free(address)
    assert device.memory == {}
