"""torch.npu: the names of torch_npu for memory, graphs, mixed precision and settings, and what the settings do."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import call_recorder
import pytest

import mindtorch_v2 as torch
from mindtorch_v2._backends.npu import aclnn, capi, cube
from mindtorch_v2._backends.npu import runtime as npu_runtime

# torch_npu 2.13's names with their parameters.
PUBLIC = """
NPUGraph
graph npu_graph pool stream auto_dispatch_capture capture_error_mode
graph_pool_handle
graph_task_group_begin stream
graph_task_group_end stream
graph_task_update_begin stream handle
graph_task_update_end stream
is_current_stream_capturing
make_graphed_callables callables sample_args num_warmup_iters allow_unused_input pool
get_amp_supported_dtype
get_autocast_dtype
is_autocast_enabled
set_autocast_dtype dtype
set_autocast_enabled enable
is_bf16_supported including_emulation
get_soc_version
set_sync_debug_mode debug_mode
get_sync_debug_mode
set_compile_mode jit_compile
is_jit_compile_false
set_mm_bmm_format_nd is_nd
get_mm_bmm_format_nd
set_task_queue_enable mode
get_task_queue_enable
ipc_collect
check_uce_in_memory device_id
get_npu_overflow_flag
clear_npu_overflow_flag
init_dump
set_dump cfg_file
finalize_dump
host_empty_cache
host_memory_stats
caching_allocator_alloc size device stream
caching_allocator_delete mem_ptr
MemPool allocator use_on_oom no_split
"""
GRAPH_MEMBERS = ("capture_begin capture_end debug_dump enable_debug_mode get_currently_capturing_graph pool "
                 "register_generator_state replay reset").split()  # fmt: skip


@pytest.mark.parametrize("row", [row for row in PUBLIC.split("\n") if row])
def test_names_and_parameters_are_torch_npus(row: str) -> None:
    name, *parameters = row.split()
    assert list(inspect.signature(getattr(torch.npu, name)).parameters) == parameters


def test_members_of_a_graph(npu: ModuleType) -> None:
    assert not set(GRAPH_MEMBERS) - set(dir(npu.NPUGraph))
    assert set("autocast GradScaler custom_fwd custom_bwd".split()) <= set(dir(npu.amp))


@pytest.mark.parametrize("soc, number", [("Ascend910B2", 221), ("Ascend910A", 102), ("Ascend310P7", 205),
                                         ("Ascend910_9362", 255), ("Ascend950", 260), ("Ascend610", -1)])  # fmt: skip
def test_soc_version(monkeypatch: pytest.MonkeyPatch, soc: str, number: int) -> None:
    monkeypatch.setattr(torch.npu, "_get_device_name", lambda device: soc)
    assert torch.npu.get_soc_version() == number


# ---- waiting -------------------------------------------------------------------------------------------------------
@pytest.fixture
def quiet_afterwards(npu: ModuleType) -> Iterator[ModuleType]:
    yield npu
    npu.set_sync_debug_mode("default")


WAITS: list[Any] = [lambda x: x.sum().item(), lambda x: x.tolist(), lambda x: torch.ones(3).npu(),
                    lambda x: x.nonzero(), lambda x: x[x > 0], lambda x: bool(x[0])]  # fmt: skip


@pytest.mark.parametrize("number", range(len(WAITS)))
def test_ops_that_wait_are_found(quiet_afterwards: ModuleType, number: int) -> None:
    x = torch.ones(3, device="npu")
    quiet_afterwards.set_sync_debug_mode(1)
    with pytest.warns(UserWarning, match="called a synchronizing NPU operation"):
        WAITS[number](x)
    quiet_afterwards.set_sync_debug_mode("error")
    assert quiet_afterwards.get_sync_debug_mode() == 2
    with pytest.raises(RuntimeError, match="called a synchronizing NPU operation"):
        WAITS[number](x)


def test_what_does_not_wait_is_quiet(quiet_afterwards: ModuleType) -> None:
    x, pinned = torch.ones(3, device="npu"), torch.ones(3).pin_memory()
    quiet_afterwards.set_sync_debug_mode(2)
    kept = (x * 2 + pinned.to("npu", non_blocking=True)).to("cpu", non_blocking=True)
    quiet_afterwards.synchronize()                # said, so not found
    assert kept.tolist() == [3, 3, 3]
    for wrong in (3, "loud"):
        with pytest.raises(RuntimeError, match="invalid value of debug_mode"):
            quiet_afterwards.set_sync_debug_mode(wrong)


# ---- the rest ------------------------------------------------------------------------------------------------------
def test_choices_that_are_made_already(npu: ModuleType) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        npu.set_compile_mode(jit_compile=False)
        npu.set_mm_bmm_format_nd(True)
        npu.set_task_queue_enable(0)
        npu.config.allow_internal_format = False
    assert npu.is_jit_compile_false() and npu.get_mm_bmm_format_nd() and npu.get_task_queue_enable() == 0
    for name, other in (("set_compile_mode", True), ("set_mm_bmm_format_nd", False), ("set_task_queue_enable", 2)):
        with pytest.warns(UserWarning, match="has no effect"):
            getattr(npu, name)(other)


@pytest.fixture
def rounding(npu: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """torch.npu, whose settings of float32 products are as before afterwards."""
    before = dict(cube.allows_hf32)
    monkeypatch.setattr(cube, "forced", None)
    yield npu
    cube.allows_hf32.update(before)
    monkeypatch.undo()
    aclnn.allow_rounding()


def test_hf32_reaches_cann(rounding: ModuleType) -> None:
    """cubeMathType of launches, also of those that were prepared before, as torch_npu sends it on an Atlas A2."""
    a, b = torch.rand(4, 4, device="npu", requires_grad=True), torch.rand(2, 4, 4, device="npu")
    x, w = torch.rand(1, 3, 8, 8, device="npu", requires_grad=True), torch.rand(2, 3, 3, 3, device="npu")

    def sent() -> dict[str, set[str]]:
        record = call_recorder.Simulator()
        record.start()
        for made in (a @ a, torch.bmm(b, b), torch.addmm(a, a, a), torch.nn.functional.linear(a, a, a[0]), torch.mv(a, a[0]),
                     torch.addmv(a[0], a, a[0]), torch.baddbmm(b, b, b), torch.nn.functional.conv2d(x, w),
                     torch.nn.functional.avg_pool2d(x, 2)):
            made.sum().backward() if made.requires_grad else None
        torch.npu.synchronize()
        found: dict[str, set[str]] = {"matmul": set(), "conv": set(), "pool": set()}
        for call in record.launches():
            if "cubeMathType=" in call:
                op = call.partition("(")[0]
                kind = "conv" if "Conv" in op else "pool" if "Pool" in op else "matmul"
                found[kind].add(call.partition("cubeMathType=")[2][0])
        return found

    assert (rounding.matmul.allow_hf32, rounding.conv.allow_hf32, rounding.matmul.cube_math_type) == (False, True, None)
    assert sent() == {"matmul": {"0"}, "conv": {"3"}, "pool": {"0"}}
    rounding.matmul.allow_hf32, rounding.conv.allow_hf32 = True, False
    assert sent() == {"matmul": {"3"}, "conv": {"0"}, "pool": {"0"}}
    rounding.matmul.cube_math_type = rounding.npu_config._CubeMathType.USE_FP32_ADD
    assert sent() == {"matmul": {"4"}, "conv": {"0"}, "pool": {"0"}}
    rounding.set_option({"ALLOW_CONV_HF32": "enable"})
    assert sent() == {"matmul": {"4"}, "conv": {"3"}, "pool": {"0"}}
    with pytest.raises(TypeError, match="allow_hf32 must be a bool, but got int"):
        rounding.matmul.allow_hf32 = 1
    with pytest.raises(TypeError, match="should be one of Enum CubeMathType"):
        rounding.matmul.cube_math_type = 3


@pytest.mark.parametrize(("soc", "sent"), [("Ascend910B2", "0 3 0"), ("Ascend910A", "2 1 2"), ("", "0 3 0")])
def test_cores_that_multiply_no_float32(monkeypatch: pytest.MonkeyPatch, soc: str, sent: str) -> None:
    monkeypatch.setattr(cube.soc, "name", lambda: soc)
    assert " ".join(str(cube.math_type(op)) for op in ("aclnnMatmul", "aclnnConvolution", "aclnnAvgPool2d")) == sent


def test_versions_of_cann_are_compared(npu: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    order = "7.0.0 8.0.RC1 8.0.RC2.alpha001 8.0.RC2.beta1 8.0.RC2 8.0.0.alpha1 8.0.0 8.0.1 8.1.RC1 8.10.0".split()
    for at, version in enumerate(order):
        monkeypatch.setattr(npu.settings, "get_cann_version", lambda module, version=version: version)
        assert [npu.utils._is_gte_cann_version(other) for other in order] == [i <= at for i in range(len(order))]
    with pytest.raises(RuntimeError, match="expected a version of CANN such as 8.1.RC1 or 8.5.0, got 'new'"):
        npu.utils._is_gte_cann_version("new")


def test_options(rounding: ModuleType) -> None:
    with pytest.warns(UserWarning, match="ACL_PRECISION_MODE has no effect"):
        rounding.set_option({"ACL_PRECISION_MODE": "allow_fp32_to_fp16"})
    with pytest.raises(TypeError, match="npu option must be a dict"):
        rounding.set_option([])
    with pytest.raises(ValueError, match="value of ALLOW_MATMUL_HF32 should be in .* but got 1"):
        rounding.set_option({"ALLOW_MATMUL_HF32": "1"})


def test_tensor_types(npu: ModuleType) -> None:
    x = npu.FloatTensor([1, 2])
    assert x.device.type == "npu" and x.dtype is torch.float32 and x.tolist() == [1, 2]
    assert isinstance(x, npu.FloatTensor) and not isinstance(x, torch.FloatTensor)
    assert not isinstance(x.cpu(), npu.FloatTensor)
    assert npu.BFloat16Tensor(2, 3).shape == (2, 3)


def test_dump(npu: ModuleType, tmp_path: Any) -> None:
    npu.init_dump()
    npu.finalize_dump()
    with pytest.raises(RuntimeError, match="aclmdlSetDump"):
        npu.set_dump(tmp_path / "missing.json")


def test_devices_are_asked_for_infinities(npu: ModuleType) -> None:
    """As torch_npu asks at its start: another program may have set a card to saturate."""
    npu.synchronize()
    rt = npu_runtime.load_acl().rt
    assert rt.set_device_sat_mode(0) == 0
    for opener in npu_runtime._openers:                      # what every start of a device ends with
        opener(npu.current_device())
    assert rt.get_device_sat_mode() == (1, 0)


def test_overflow_is_seen_in_the_numbers(npu: ModuleType) -> None:
    huge = torch.tensor([6e4, 6e4], device="npu", dtype=torch.float16)
    assert npu.utils.npu_check_overflow(huge + huge) and not npu.utils.npu_check_overflow(huge)
    assert npu.utils.npu_check_overflow(float("nan")) and not npu.utils.npu_check_overflow(1.0)
    with pytest.raises(RuntimeError, match="npu_check_overflow"):
        npu.get_npu_overflow_flag()
    with pytest.warns(UserWarning, match="useless"):
        npu.clear_npu_overflow_flag()


def test_where_faulty_memory_lies(npu: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert npu.check_uce_in_memory(0) == 0
    kept = torch.ones(5 << 20, device="npu")
    cached = torch.ones(7 << 20, device="npu").data_ptr()
    for address, where in ((1, 1), (cached, 2), (kept.data_ptr(), 3)):
        monkeypatch.setattr(capi, "memory_faults", lambda device_id, address=address: [(address, 64)])
        assert npu.check_uce_in_memory(0) == where


def test_other_places_of_the_names(npu: ModuleType) -> None:
    assert npu.utils.synchronize is npu.synchronize and npu.npu_config.set_dump is npu.set_dump
    assert npu.graphs.make_graphed_callables is npu.make_graphed_callables
    assert npu.utils.get_cann_version("RUNTIME")
    with pytest.raises(ValueError, match="TOOLKIT"):
        npu.utils.get_cann_version("DRIVERS")


def test_typed_storages(npu: ModuleType) -> None:
    made = npu.HalfStorage([1.0, 2.0])
    assert isinstance(made, npu.HalfStorage) and not isinstance(made, (torch.HalfStorage, npu.HalfTensor, npu.IntStorage))
    assert (made.type(), made.device.type, made.cpu().size()) == ("torch.npu.HalfStorage", "npu", 2)
    assert npu.IntStorage(wrap_storage=made.untyped()).size() == npu.IntStorage(1).size() == 1
    for wrong, message in ((lambda: npu.IntStorage(1, 2), "Too many positional arguments"),
                           (lambda: npu.IntStorage(wrap_storage=torch.ones(1).untyped_storage()), "Device of 'wrap_storage' must be npu")):
        with pytest.raises(RuntimeError, match=message):
            wrong()
