"""torch.npu's devices, streams, events, memory and random state."""

from __future__ import annotations

import gc

import pytest
import torch
import torch_npu

MIB = 1 << 20


def test_import() -> None:
    assert torch_npu.__version__.startswith("2.13")
    assert torch.npu.is_available()
    assert torch.npu.device_count() == 2


def test_properties() -> None:
    properties = torch.npu.get_device_properties(0)
    assert properties.name == torch.npu.get_device_name(0) == "Ascend910B2"
    assert properties.total_memory > 1 << 30
    free, total = torch.npu.mem_get_info(0)
    assert 0 < free <= total


def test_current_device() -> None:
    assert torch.npu.current_device() == 0
    with torch.npu.device(1):
        assert torch.npu.current_device() == 1
        assert torch.empty(2, device="npu").device.index == 1
    assert torch.npu.current_device() == 0


def test_two_devices() -> None:
    a = torch.arange(6.0).to("npu:0")
    b = a.to("npu:1")
    assert b.device.index == 1
    torch.testing.assert_close((b * 2).cpu(), torch.arange(6.0) * 2)
    torch.testing.assert_close((b * 2).to("npu:0") + a, a * 3)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool]
)
def test_copies(dtype: torch.dtype) -> None:
    source = torch.arange(24).reshape(2, 3, 4).to(dtype)
    assert torch.equal(source.npu().cpu(), source)
    assert torch.equal(source.transpose(0, 2).npu().cpu(), source.transpose(0, 2))
    assert torch.equal(source.npu().transpose(0, 2).contiguous().cpu(), source.transpose(0, 2))
    assert torch.equal(source.npu()[:, 1:, ::2].cpu(), source[:, 1:, ::2])
    assert torch.equal(source.npu().to(torch.float32).cpu(), source.to(torch.float32))


def test_pinned_memory() -> None:
    source = torch.randn(1000).pin_memory()
    assert source.is_pinned()
    moved = source.to("npu", non_blocking=True)
    back = torch.empty(1000).pin_memory()
    back.copy_(moved, non_blocking=True)
    torch.npu.synchronize()
    assert torch.equal(back, source)


def test_streams_and_events() -> None:
    side, main = torch.npu.Stream(), torch.npu.current_stream()
    a = torch.ones(256, 256, device="npu")
    start, end = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
    start.record()
    side.wait_stream(main)
    with torch.npu.stream(side):
        assert torch.npu.current_stream() == side
        b = a @ a
        done = side.record_event()
    main.wait_event(done)
    c = b + 1
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) >= 0
    assert end.query()
    main.synchronize()
    assert main.query() and side.query()
    assert torch.equal(c.cpu(), torch.full((256, 256), 257.0))


def test_memory_counters() -> None:
    gc.collect()  # what an earlier test left must not go away in between
    torch.npu.synchronize()
    torch.npu.empty_cache()
    before = torch.npu.memory_allocated()
    held = torch.empty(8 * MIB, dtype=torch.uint8, device="npu")
    assert torch.npu.memory_allocated() - before >= 8 * MIB
    assert torch.npu.memory_reserved() >= torch.npu.memory_allocated()
    assert torch.npu.max_memory_allocated() >= torch.npu.memory_allocated()
    assert torch.npu.memory_stats()["allocated_bytes.all.current"] == torch.npu.memory_allocated()
    del held
    assert torch.npu.memory_allocated() == before
    assert "NPU" in torch.npu.memory_summary()
    torch.npu.empty_cache()


def test_out_of_memory_is_recovered_from() -> None:
    with pytest.raises(torch.OutOfMemoryError, match="NPU out of memory"):
        torch.empty(1 << 40, dtype=torch.uint8, device="npu")
    assert torch.ones(4, device="npu").sum().item() == 4


def test_random_state() -> None:
    torch.npu.manual_seed(7)
    first = torch.randn(100, device="npu").cpu()
    state = torch.npu.get_rng_state()
    second = torch.randn(100, device="npu").cpu()
    assert not torch.equal(first, second)
    torch.npu.set_rng_state(state)
    assert torch.equal(torch.randn(100, device="npu").cpu(), second)
    torch.npu.manual_seed(7)
    assert torch.equal(torch.randn(100, device="npu").cpu(), first)


def test_printing_and_item() -> None:
    a = torch.tensor([1.5, 2.5], device="npu")
    assert repr(a) == "tensor([1.5000, 2.5000], device='npu:0')"
    assert a[1].item() == 2.5 and a.tolist() == [1.5, 2.5]
