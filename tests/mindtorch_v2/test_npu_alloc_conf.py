"""Settings of the npu allocator over a fake device: what is refused, and what each one does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fake_acl import GB, KB, MB, RESERVED, FakeDevice, install, size_of

import mindtorch_v2 as torch
from mindtorch_v2._backends.npu import alloc_conf
from mindtorch_v2._backends.npu.allocator import NpuAllocator


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    return install(monkeypatch)


@pytest.fixture
def configured(device: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], NpuAllocator]:
    def make(conf: str) -> NpuAllocator:
        monkeypatch.setenv("PYTORCH_NPU_ALLOC_CONF", conf)
        return NpuAllocator()

    return make


# ---- settings ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("conf", "text"),
    [
        ("max_split_size_mb:20", "CachingAllocator option max_split_size_mb too small, must be > 20"),
        ("max_split_size_mb:x", "CachingAllocator option max_split_size_mb is invalid."),
        ("max_split_size_mb:", "Error, expecting max_split_size_mb value"),
        ("max_split_size_mb", "Error parsing CachingAllocator settings, expected :"),
        ("garbage_collection_threshold:0", "garbage_collect_threshold too small, set it 0.0~1.0"),
        ("garbage_collection_threshold:1.0", "garbage_collect_threshold too big, set it 0.0~1.0"),
        ("expandable_segments:yes", "Expected a single True/False argument for expandable_segments"),
        ("nonsense:1", "Unrecognized CachingAllocator option: nonsense"),
        ("expandable_segments:True,max_split_size_mb:64", "cannot be enabled with `expandable_segments`"),
        ("page_size:2g", "Unsupported page_size value: 2g"),
        ("segment_size_mb:19", "must be [20, 512]"),
        ("roundup_power2_divisions:3", "has to be power of 2"),
        ("roundup_power2_divisions:[3:4]", "intervals have to be power of 2"),
        ("roundup_power2_divisions:[4:4", "Expected closing bracket"),
        ("per_process_memory_fraction:1.5", "[0.0, 1.0]"),
    ],
)
def test_settings_that_are_refused(configured: Callable, conf: str, text: str) -> None:
    alloc = configured(conf)
    with pytest.raises(ValueError) as caught:
        alloc.malloc(8)
    assert text in str(caught.value) and isinstance(caught.value, RuntimeError)


def test_two_variables_are_one_too_many(configured: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    alloc = configured("expandable_segments:True")
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    with pytest.raises(RuntimeError, match="both set"):
        alloc.malloc(8)


def test_all_settings_are_read() -> None:
    conf = alloc_conf.parse(" max_split_size_mb : 64 , roundup_power2_divisions:[1:2,4:8,>:16],segment_size_mb:40 ")
    assert (conf.max_split_size_mb, conf.segment_size_mb) == (64, 40)
    assert conf.roundup_power2_divisions == (2, 0, 8) + (16,) * 13
    assert alloc_conf.parse("roundup_power2_divisions:[256:1,512:2]").roundup_power2_divisions[:10] == (1,) * 9 + (2,)
    assert alloc_conf.parse("") == alloc_conf.AllocConf()


@pytest.mark.parametrize(
    ("divisions", "asked", "block"),
    [(4, 1200, 1536), (4, 5000, 5120), (4, 5200, 6 * KB), (8, 9000, 9 * KB), (1, 5000, 5120), (2, 513 * KB, 768 * KB)],
)
def test_roundup_power2_divisions(configured: Callable, divisions: int, asked: int, block: int) -> None:
    alloc = configured(f"roundup_power2_divisions:{divisions}")
    assert size_of(alloc, alloc.malloc(asked)) == block


def test_max_split_size(configured: Callable, device: FakeDevice) -> None:
    alloc = configured("max_split_size_mb:32")
    big = alloc.malloc(60 * MB)
    assert alloc.memory_stats()["oversize_segments.current"] == 1
    alloc.free(big)
    small = alloc.malloc(30 * MB)
    assert small != big  # an oversize block is not split for it
    assert alloc.malloc(59 * MB) == big  # within max_non_split_rounding_mb
    assert alloc.memory_stats()["oversize_allocations.current"] == 1
    assert alloc.memory_stats()["max_split_size"] == 32 * MB
    other = alloc.malloc(40 * MB)
    alloc.free(big)
    alloc.free(other)
    device.capacity = device.used
    assert alloc.malloc(90 * MB)  # the oversize segments go, the rest of the cache stays
    stats = alloc.memory_stats()
    assert stats["num_alloc_retries"] == 0 and stats["oversize_segments.freed"] == stats["num_device_free"] == 2


def test_garbage_collection_frees_the_least_recently_used(configured: Callable, device: FakeDevice) -> None:
    alloc = configured("garbage_collection_threshold:0.5")
    device.capacity = 520 * MB  # 260 may be reserved; 356 are
    old = alloc.malloc(100 * MB, stream=1)
    young = alloc.malloc(120 * MB, stream=1)
    alloc.free(old)
    for _ in range(50):
        alloc.free(alloc.malloc(130 * MB, stream=1))
    alloc.free(young)
    alloc.malloc(12 * MB, stream=2)
    assert old not in device.memory and young in device.memory


def test_preemptive_rejection(configured: Callable, device: FakeDevice) -> None:
    alloc = configured("throw_on_npumalloc_oom:True")
    with pytest.raises(torch.OutOfMemoryError):
        alloc.malloc(5 * GB)
    assert device.mallocs == 0 and alloc.memory_stats()["num_oom_rejections"] == 2


def test_the_fraction_can_be_a_setting(configured: Callable) -> None:
    alloc = configured("per_process_memory_fraction:0.25")
    with pytest.raises(torch.OutOfMemoryError, match="allowed"):
        alloc.malloc(2 * GB)
    assert alloc.memory_fraction == 0.25


def test_without_caching_memory_goes_back_at_once(device: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_NO_NPU_MEMORY_CACHING", "1")
    alloc = NpuAllocator()
    first, second = alloc.malloc(1000), alloc.malloc(1000)
    assert device.memory == {first: 1536, second: 1536}
    alloc.free(first)
    assert device.memory == {second: 1536} and alloc.memory_stats()[RESERVED] == 1536


# ---- expandable segments ----------------------------------------------------------------------------------------------
def test_expandable_segments_grow_in_place(configured: Callable, device: FakeDevice) -> None:
    alloc = configured("expandable_segments:True")
    first = alloc.malloc(30 * MB)
    second = alloc.malloc(30 * MB)
    assert len(device.reserved) == 1 and device.memory == {}
    assert second == first + 30 * MB + 16 * KB  # next to it, in 16 KB steps
    assert alloc.memory_stats()[RESERVED] == 80 * MB == device.used
    alloc.free(first)
    alloc.free(second)
    assert alloc.malloc(70 * MB) == first  # no fragmentation
    (segment,) = alloc.snapshot()["segments"]
    assert segment["is_expandable"] and segment["total_size"] == 80 * MB


def test_small_and_large_have_their_own_addresses(configured: Callable, device: FakeDevice) -> None:
    alloc = configured("expandable_segments:True")
    alloc.malloc(100)
    alloc.malloc(5 * MB)
    assert len(device.reserved) == 2 and device.used == 22 * MB
    sizes = sorted(device.physical.values())
    assert sizes == [2 * MB, 20 * MB]


def test_free_pieces_are_unmapped_around_live_blocks(configured: Callable, device: FakeDevice) -> None:
    alloc = configured("expandable_segments:True")
    held = [alloc.malloc(20 * MB - 32) for _ in range(5)]
    for place in (0, 1, 3):
        alloc.free(held[place])
    alloc.empty_cache()
    assert alloc.memory_stats()[RESERVED] == device.used == 40 * MB
    assert [s["address"] for s in alloc.snapshot()["segments"]] == [held[2], held[4]]
    again = alloc.malloc(39 * MB)
    assert again == held[0]
    for address in (again, held[2], held[4]):
        alloc.free(address)
    alloc.empty_cache()
    assert device.used == 0 and device.reserved == {} and alloc.memory_stats()[RESERVED] == 0


def test_expandable_out_of_memory(configured: Callable, device: FakeDevice) -> None:
    alloc = configured("expandable_segments:True")
    device.capacity = 100 * MB
    held = alloc.malloc(70 * MB)
    with pytest.raises(torch.OutOfMemoryError):
        alloc.malloc(50 * MB)
    with pytest.raises(torch.OutOfMemoryError):
        alloc.malloc(1 * GB)  # more than the addresses
    alloc.free(held)
    assert alloc.malloc(95 * MB)
    alloc.memory_fraction = 0.5
    with pytest.raises(torch.OutOfMemoryError):
        alloc.malloc(8 * MB)


def test_expandable_where_the_device_cannot(configured: Callable, device: FakeDevice) -> None:
    alloc = configured("expandable_segments:True")
    device.rt.reserve_mem_address = lambda *_: (0, 207000)
    with pytest.warns(UserWarning, match="expandable_segments setting failure"):
        alloc.malloc(8)
    assert list(device.memory.values()) == [2 * MB]


def test_lazy_reclaim_looks_only_when_nothing_fits(configured: Callable, device: FakeDevice) -> None:
    alloc = configured("multi_stream_lazy_reclaim:True")
    address = alloc.malloc(1000, stream=1)
    alloc.record_stream(address, 2)
    alloc.free(address)
    assert alloc.malloc(1000, stream=1) != address and alloc._heap.pending == 1
    alloc.malloc(5 * MB, stream=1)
    assert not alloc._heap.pending
