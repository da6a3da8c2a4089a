"""The npu caching allocator over a fake device: rounding, pools, streams, limits, expandable segments, a model."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import threading
import weakref
from types import SimpleNamespace

import pytest
from fake_acl import GB, KB, MB, RESERVED, FakeDevice, install, size_of

import mindtorch_v2 as torch
from mindtorch_v2 import _C
from mindtorch_v2._backends.npu import allocator
from mindtorch_v2._backends.npu.allocator import NpuAllocator

ALLOCATED = "allocated_bytes.all.current"


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    return install(monkeypatch)


# ---- what is allocated ------------------------------------------------------------------------------------------------
def test_making_one_touches_nothing() -> None:
    code = (
        "import sys, mindtorch_v2\n"
        "from mindtorch_v2._backends.npu import allocator, runtime\n"
        "alloc = allocator.NpuAllocator(device_id=0)\n"
        "assert runtime.acl is None and not runtime.is_initialized() and 'acl' not in sys.modules\n"
        "assert alloc.memory_stats()['num_ooms'] == 0 and alloc.snapshot()['segments'] == []\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("asked", "block"),
    [(1, 512), (480, 512), (481, 1024), (512, 1024), (992, 1024), (MB - 32, MB), (MB, MB + 512), (12 * MB, 12 * MB + 512),
     (13 * MB, 14 * MB)],  # a segment of 14 MB is not split for the rest of less than 1 MB
)  # fmt: skip
def test_a_request_is_padded_then_rounded(device: FakeDevice, asked: int, block: int) -> None:
    alloc = NpuAllocator()
    alloc.malloc(asked)
    stats = alloc.memory_stats()
    assert stats[ALLOCATED] == block
    assert stats["requested_bytes.all.current"] == asked


@pytest.mark.parametrize(
    ("asked", "segment", "kind"),
    [(1, 2 * MB, "small"), (MB - 32, 2 * MB, "small"), (MB, 20 * MB, "large"), (9 * MB, 20 * MB, "large"),
     (10 * MB, 12 * MB, "large"), (33 * MB, 34 * MB, "large")],
)  # fmt: skip
def test_segments(device: FakeDevice, asked: int, segment: int, kind: str) -> None:
    alloc = NpuAllocator()
    address = alloc.malloc(asked)
    (found,) = alloc.snapshot()["segments"]
    assert (found["total_size"], found["segment_type"], found["address"]) == (segment, kind, address)
    assert device.memory == {address: segment}


def test_best_fit_takes_the_smallest_block_then_the_lowest_address(device: FakeDevice) -> None:
    alloc = NpuAllocator()
    held = [alloc.malloc(n * KB - 32) for n in (8, 1, 4, 1, 4, 1, 16, 1)]
    for place in (0, 2, 4, 6):
        alloc.free(held[place])
    assert alloc.malloc(4 * KB - 32) == held[2]
    assert alloc.malloc(3 * KB) == held[4]
    assert alloc.malloc(5 * KB) == held[0]
    assert alloc.malloc(9 * KB) == held[6]


def test_adjacent_blocks_merge_into_the_full_segment(device: FakeDevice) -> None:
    alloc = NpuAllocator()
    held = [alloc.malloc(1000) for _ in range(50)]
    random.Random(0).shuffle(held)
    for address in held:
        alloc.free(address)
    (segment,) = alloc.snapshot()["segments"]
    assert [(b["size"], b["state"]) for b in segment["blocks"]] == [(2 * MB, "inactive")]
    assert alloc.memory_stats()["inactive_split.all.current"] == 0
    alloc.empty_cache()
    assert device.memory == {} and alloc.memory_stats()[RESERVED] == 0


def test_large_blocks_are_split_when_more_than_1_mb_is_left(device: FakeDevice) -> None:
    alloc = NpuAllocator()
    address = alloc.malloc(9 * MB)
    assert size_of(alloc, address) == 9 * MB + 512
    alloc.malloc(2 * MB)
    last = alloc.malloc(8 * MB)
    assert len(device.memory) == 1 and size_of(alloc, last) == 9 * MB - 1024


def test_size_zero_and_less(device: FakeDevice) -> None:
    alloc = NpuAllocator()
    assert alloc.malloc(0) == 0
    alloc.free(0)
    assert device.mallocs == 0
    with pytest.raises(RuntimeError, match="invalid size"):
        alloc.malloc(-1)


def test_free_of_what_is_not_allocated(device: FakeDevice) -> None:
    alloc = NpuAllocator()
    address = alloc.malloc(8)
    with pytest.raises(RuntimeError, match="invalid device pointer"):
        alloc.free(address + 512)
    alloc.free(address)
    with pytest.raises(RuntimeError, match="invalid device pointer"):
        alloc.free(address)


# ---- streams ----------------------------------------------------------------------------------------------------------
def test_a_block_is_reused_on_its_own_stream_only(device: FakeDevice) -> None:
    alloc = NpuAllocator()
    address = alloc.malloc(1000, stream=7)
    alloc.free(address)
    assert alloc.malloc(1000, stream=8) != address
    assert alloc.malloc(1000, stream=SimpleNamespace(npu_stream=7)) == address


def test_record_stream_delays_the_reuse(device: FakeDevice) -> None:
    alloc = NpuAllocator()
    address = alloc.malloc(1000, stream=7)
    alloc.record_stream(address, 7)  # its own: nothing to wait for
    alloc.record_stream(address, 8)
    alloc.record_stream(address, 8)
    device.work(8)
    alloc.free(address)
    stats = alloc.memory_stats()
    assert stats[ALLOCATED] == 0 and stats["active_bytes.all.current"] == 1536
    assert alloc.snapshot()["segments"][0]["blocks"][0]["state"] == "active_pending_free"
    other = alloc.malloc(1000, stream=7)
    assert other != address
    device.finish(8)
    assert alloc.malloc(1000, stream=7) == address
    assert alloc.memory_stats()["active_bytes.all.current"] == 2 * 1536


def test_free_on_another_stream_waits_for_it(device: FakeDevice) -> None:
    alloc = NpuAllocator()
    address = alloc.malloc(1000, stream=7)
    device.work(9)
    alloc.free(address, stream=9)
    assert alloc.malloc(1000, stream=7) != address


def test_a_block_waits_for_all_streams(device: FakeDevice) -> None:
    alloc = NpuAllocator()
    address = alloc.malloc(1000, stream=1)
    for stream in (2, 3):
        alloc.record_stream(address, stream)
        device.work(stream)
    alloc.free(address)
    device.finish(2)
    assert alloc.malloc(8, stream=1) != address
    device.finish(3)
    alloc.malloc(8, stream=1)
    assert not alloc._heap.pending


def test_empty_cache_waits_for_events(device: FakeDevice) -> None:
    alloc = NpuAllocator()
    address = alloc.malloc(1000, stream=1)
    alloc.record_stream(address, 2)
    device.work(2)
    alloc.free(address)
    alloc.empty_cache()
    assert device.memory == {} and not alloc._heap.pending


def test_the_current_stream_belongs_to_the_thread() -> None:
    seen = []
    _C._npu_set_default_stream(15, 5)
    _C._npu_set_current_stream(15, 6)
    thread = threading.Thread(target=lambda: seen.append(_C._npu_current_stream(15)))
    thread.start()
    thread.join()
    assert seen == [5] and _C._npu_current_stream(15) == 6
    _C._npu_set_current_stream(15, 0)
    assert _C._npu_current_stream(15) == 5
    with pytest.raises(RuntimeError, match="Invalid device argument"):
        _C._npu_current_stream(16)


# ---- limits -----------------------------------------------------------------------------------------------------------
def test_out_of_memory_says_what_torch_npu_says(device: FakeDevice) -> None:
    alloc = NpuAllocator()
    alloc.malloc(100)
    with pytest.raises(torch.OutOfMemoryError) as caught:
        alloc.malloc(32 * GB)
    assert str(caught.value) == (
        "NPU out of memory. Tried to allocate 32.00 GiB (NPU 0; 4.00 GiB total capacity; 512 bytes already allocated; "
        "512 bytes current active; 4.00 GiB free; 2.00 MiB reserved in total by PyTorch). "
        "That is more than the device has."
    )
    assert isinstance(caught.value, RuntimeError)
    stats = alloc.memory_stats()
    assert (stats["num_ooms"], stats["num_alloc_retries"]) == (1, 1)
    assert alloc.malloc(100)


def test_more_than_an_exabyte(device: FakeDevice) -> None:
    with pytest.raises(torch.OutOfMemoryError, match="more than 1EB"):
        NpuAllocator().malloc((1 << 64) - 1)


def test_cached_memory_is_freed_before_an_allocation_fails(device: FakeDevice) -> None:
    device.capacity = 64 * MB
    alloc = NpuAllocator()
    for address in [alloc.malloc(30 * MB, stream=1), alloc.malloc(20 * MB, stream=1)]:
        alloc.free(address)
    assert alloc.malloc(40 * MB, stream=2)
    stats = alloc.memory_stats()
    assert stats["num_alloc_retries"] == 1 and stats["num_ooms"] == 0 and stats["num_device_free"] == 2
    assert device.synchronized == 1


def test_the_fraction_is_enforced_before_aclrt_malloc(
    device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    alloc = NpuAllocator()
    monkeypatch.setattr(alloc, "_mem_get_info", lambda: (0, 100))
    alloc.memory_fraction = 0.5
    alloc._stats[RESERVED] = 40
    alloc._enforce_memory_fraction(10)
    with pytest.raises(torch.OutOfMemoryError, match="50 bytes allowed"):
        alloc._enforce_memory_fraction(11)
    alloc._stats[RESERVED] = 90
    assert alloc.memory_stats()[RESERVED] == 90
    with pytest.raises(RuntimeError):
        alloc._enforce_memory_fraction(0)


def test_the_fraction_makes_room_from_the_cache(device: FakeDevice) -> None:
    alloc = NpuAllocator()
    alloc.memory_fraction = 0.25
    alloc.free(alloc.malloc(900 * MB, stream=1))
    held = alloc.malloc(1000 * MB, stream=2)
    assert len(device.memory) == 1 and alloc.memory_stats()["num_alloc_retries"] == 1
    with pytest.raises(torch.OutOfMemoryError, match="1024.00 MiB allowed"):
        alloc.malloc(100 * MB)
    alloc.free(held)
    assert alloc.malloc(100 * MB)


def test_other_errors_of_the_device_are_not_out_of_memory(device: FakeDevice) -> None:
    device.rt.malloc_align32 = lambda *_: (0, 507899)
    with pytest.raises(RuntimeError, match="507899") as caught:
        NpuAllocator().malloc(8)
    assert not isinstance(caught.value, torch.OutOfMemoryError)


def test_plain_malloc_where_align32_is_missing(device: FakeDevice) -> None:
    device.rt.malloc = device.rt.malloc_align32
    del device.rt.malloc_align32
    assert NpuAllocator().malloc(8)


# ---- private pools ----------------------------------------------------------------------------------------------------
def test_a_private_pool_keeps_its_memory(device: FakeDevice) -> None:
    alloc = NpuAllocator()
    common = alloc.malloc(1000)
    alloc.begin_allocate_to_pool((0, 1))
    inside = alloc.malloc(1000)
    alloc.end_allocate_to_pool((0, 1))
    assert len(device.memory) == 2
    assert [s["segment_pool_id"] for s in alloc.snapshot((0, 1))["segments"]] == [(0, 1)]
    alloc.free(inside)
    alloc.free(common)
    assert alloc.malloc(1000) == common
    alloc.empty_cache()
    assert len(device.memory) == 2  # the pool still has a user
    alloc.release_pool((0, 1))
    alloc.empty_cache()
    assert list(device.memory) == [common] and not alloc._heap.has_pool((0, 1))
    with pytest.raises(RuntimeError, match="not in use"):
        alloc.release_pool((0, 1))


def test_only_the_thread_that_opened_the_pool_is_routed(device: FakeDevice) -> None:
    alloc = NpuAllocator()
    alloc.begin_allocate_to_pool((0, 1))
    thread = threading.Thread(target=alloc.malloc, args=(1000,))
    thread.start()
    thread.join()
    alloc.malloc(1000)
    alloc.end_allocate_to_pool((0, 1))
    assert sorted(s["segment_pool_id"] for s in alloc.snapshot()["segments"]) == [(0, 0), (0, 1)]


def test_capture_routes_a_stream_and_defers_events(device: FakeDevice) -> None:
    alloc = NpuAllocator()
    address = alloc.malloc(1000, stream=1)
    alloc.record_stream(address, 2)
    alloc.begin_allocate_to_pool((1, 0), stream=3)
    alloc.free(address)  # no event may be recorded now
    assert device.recorded == {}
    alloc.malloc(1000, stream=3)
    alloc.malloc(1000, stream=1)
    alloc.end_allocate_to_pool((1, 0), stream=3)
    assert len(device.recorded) == 1
    pools = {s["stream"]: s["segment_pool_id"] for s in alloc.snapshot()["segments"]}
    assert pools == {1: (0, 0), 3: (1, 0)}
    assert alloc.malloc(1000, stream=1) == address


def test_a_pool_that_helps_out(device: FakeDevice) -> None:
    alloc = NpuAllocator()
    alloc.create_pool((0, 1), use_on_oom=True)
    alloc.begin_allocate_to_pool((0, 1))
    spare = alloc.malloc(100 * MB)
    alloc.end_allocate_to_pool((0, 1))
    alloc.free(spare)
    device.capacity = device.used
    assert alloc.malloc(90 * MB) == spare
    with pytest.raises(torch.OutOfMemoryError):
        alloc.malloc(90 * MB)


def test_no_split(device: FakeDevice) -> None:
    alloc = NpuAllocator()
    alloc.create_pool((0, 1), no_split=True)
    alloc.begin_allocate_to_pool((0, 1))
    assert size_of(alloc, alloc.malloc(8)) == 2 * MB


# ---- tensors ----------------------------------------------------------------------------------------------------------
def test_storages_come_from_the_attached_heap(device: FakeDevice) -> None:
    alloc = allocator.get_allocator(0)
    allocator.attach(0)
    try:
        storage = torch.UntypedStorage(1000, device="npu:0")
        assert alloc.memory_stats()[ALLOCATED] == 1536 and storage.data_ptr() in device.memory
        address = storage.data_ptr()
        assert torch.UntypedStorage(0, device="npu:0").data_ptr() == 0
        del storage
        assert alloc.memory_stats()[ALLOCATED] == 0
        storage = torch.UntypedStorage(1000, device="npu:0")
        storage._record_stream(99)
        device.work(99)
        del storage
        other = torch.UntypedStorage(1000, device="npu:0")
        assert other.data_ptr() != address
    finally:
        alloc.close()
    del other  # after its device has gone: only the books change
    assert device.memory == {}


def test_a_failed_allocation_leaves_nothing_behind(device: FakeDevice) -> None:
    allocator.attach(0)
    try:
        with pytest.raises(torch.OutOfMemoryError):
            torch.UntypedStorage(8 * GB, device="npu:0")
        assert torch.UntypedStorage(8, device="npu:0").nbytes() == 8
    finally:
        allocator.get_allocator(0).close()


def test_allocating_from_many_threads(device: FakeDevice) -> None:
    alloc = NpuAllocator()
    failures: list[BaseException] = []

    def run(seed: int) -> None:
        draw, held = random.Random(seed), []
        try:
            for _ in range(400):
                held.append((alloc.malloc(draw.randrange(1, 3 * MB), stream=seed), seed))
                if len(held) > 8:
                    alloc.free(held.pop(draw.randrange(len(held)))[0])
            for address, _ in held:
                alloc.free(address)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and alloc.memory_stats()[ALLOCATED] == 0
    alloc.empty_cache()
    assert device.memory == {}


# ---- history ----------------------------------------------------------------------------------------------------------
def test_history_keeps_stacks_and_events(device: FakeDevice) -> None:
    alloc = NpuAllocator()
    alloc.record_history("all", "all", 100, False, frozenset({"segment_free"}))
    address = alloc.malloc(1000)
    snapshot = alloc.snapshot()
    block = snapshot["segments"][0]["blocks"][0]
    names = [frame["name"] for frame in block["frames"]]
    assert "test_history_keeps_stacks_and_events" in names and set(block["frames"][0]) == {"filename", "line", "name"}
    assert snapshot["segments"][0]["frames"]
    alloc.free(address)
    alloc.empty_cache()
    with pytest.raises(torch.OutOfMemoryError):
        alloc.malloc(8 * GB)
    trace = alloc.snapshot()["device_traces"][0]
    assert [event["action"] for event in trace] == ["segment_alloc", "alloc", "free_requested", "free_completed", "oom"]
    assert {"addr", "size", "stream", "pool_id", "time_us", "frames", "action"} == set(trace[1])
    assert trace[1]["addr"] == address and trace[1]["size"] == 1000
    alloc.record_history(None, None, 100, False, frozenset())
    alloc.malloc(1000)
    assert len(alloc.snapshot()["device_traces"][0]) == 5 and not alloc.snapshot()["segments"][0]["blocks"][0]["frames"]


def test_history_of_state_only_and_its_limit(device: FakeDevice) -> None:
    alloc = NpuAllocator()
    alloc.record_history("state", "state", 100, False, frozenset())
    alloc.malloc(8)
    assert alloc.snapshot()["device_traces"] == [[]]
    assert alloc.snapshot()["segments"][0]["blocks"][0]["frames"]
    alloc.record_history("all", None, 3, True, frozenset())
    for _ in range(9):
        alloc.free(alloc.malloc(8))
    assert len(alloc.snapshot()["device_traces"][0]) == 3


# ---- a model ----------------------------------------------------------------------------------------------------------
SETTINGS = ("", "max_split_size_mb:24", "garbage_collection_threshold:0.3", "expandable_segments:True",
            "roundup_power2_divisions:4", "expandable_segments:True,large_segment_size_mb:40")  # fmt: skip


@pytest.mark.parametrize("conf", SETTINGS)
@pytest.mark.parametrize("seed", range(4))
def test_against_a_model(device: FakeDevice, monkeypatch: pytest.MonkeyPatch, conf: str, seed: int) -> None:
    """Random requests on three streams: live blocks never overlap and never move to another stream, the counters say
    what is live, nothing leaks."""
    monkeypatch.setenv("PYTORCH_NPU_ALLOC_CONF", conf)
    draw, alloc = random.Random(f"{seed}{conf}"), NpuAllocator()
    device.capacity = 600 * MB
    live: dict[int, tuple[int, int]] = {}  # address: (size, stream)
    for step in range(1500):
        if live and (draw.random() < 0.48 or len(live) > 60):
            address = draw.choice(list(live))
            stream = live.pop(address)[1]
            if draw.random() < 0.15:
                other = draw.choice((1, 2, 3))
                alloc.record_stream(address, other)
                device.work(other)
            alloc.free(address)
        elif draw.random() < 0.1:
            device.finish(draw.choice((1, 2, 3)))
        elif draw.random() < 0.01:
            alloc.empty_cache()
        else:
            size = draw.choice((1, 480, 481, 3000, 50 * KB, MB, 3 * MB, 9 * MB, 12 * MB, 40 * MB)) + draw.randrange(200)
            stream = draw.choice((1, 2, 3))
            try:
                live[alloc.malloc(size, stream)] = (size, stream)
            except torch.OutOfMemoryError:
                assert sum(n for n, _ in live.values()) + size > 100 * MB
        if step % 50 == 0:
            check_books(alloc, device, live)
    check_books(alloc, device, live)
    for address in live:
        alloc.free(address)
    alloc.empty_cache()
    assert device.used == 0 and device.reserved == {} and alloc.snapshot()["segments"] == []
    stats = alloc.memory_stats()
    assert {key: value for key, value in stats.items() if key.endswith(".current") and value} == {}
    assert stats["allocation.all.allocated"] == stats["allocation.all.freed"] > 0


def check_books(alloc: NpuAllocator, device: FakeDevice, live: dict[int, tuple[int, int]]) -> None:
    stats, segments = alloc.memory_stats(), alloc.snapshot()["segments"]
    blocks = {b["address"]: (b, s) for s in segments for b in s["blocks"]}
    for address, (size, stream) in live.items():
        block, segment = blocks[address]
        assert block["state"] == "active_allocated" and block["requested_size"] == size <= block["size"] - 32
        assert segment["stream"] == stream and address % 512 == 0
    for segment in segments:
        place, free_before = segment["address"], False
        for block in segment["blocks"]:
            assert block["address"] == place and block["size"] % 512 == 0
            assert not (free_before and block["state"] == "inactive"), "free neighbours that did not merge"
            place, free_before = place + block["size"], block["state"] == "inactive"
        assert place == segment["address"] + segment["total_size"]
    states = [block["state"] for block, _ in blocks.values()]
    assert stats["allocation.all.current"] == states.count("active_allocated") == len(live)
    assert stats["active.all.current"] == len(states) - states.count("inactive")
    assert stats[ALLOCATED] == sum(s["allocated_size"] for s in segments)
    assert stats["active_bytes.all.current"] == sum(s["active_size"] for s in segments)
    assert stats["requested_bytes.all.current"] == sum(s["requested_size"] for s in segments)
    assert stats[RESERVED] == sum(s["total_size"] for s in segments) == device.used
    plain = [s for s in segments if not s["is_expandable"]]
    split = [b for s in plain if len(s["blocks"]) > 1 for b in s["blocks"] if b["state"] == "inactive"]
    assert stats["inactive_split.all.current"] == len(split)
    assert stats["inactive_split_bytes.all.current"] == sum(b["size"] for b in split)
    for kind in ("allocation", "allocated_bytes", "active", "active_bytes", "reserved_bytes", "requested_bytes"):
        parts = [stats[f"{kind}.{part}.current"] for part in ("all", "small_pool", "large_pool")]
        assert parts[0] == parts[1] + parts[2] and stats[f"{kind}.all.peak"] >= parts[0]


def test_an_allocator_is_collected(device: FakeDevice) -> None:
    made = NpuAllocator()
    made.malloc(8)
    gone = weakref.ref(made)
    del made
    gc.collect()
    assert gone() is None
