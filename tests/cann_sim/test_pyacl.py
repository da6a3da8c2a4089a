"""The `acl` module keeps pyACL's conventions: what goes in, what comes back, what raises, who holds the GIL."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tables

HUGE_FIRST = 0  # aclrtMemMallocPolicy
TO_DEVICE, TO_HOST = 1, 2  # aclrtMemcpyKind
MIB = 1 << 20


@pytest.fixture
def rt(acl: ModuleType) -> Iterator[ModuleType]:
    assert acl.rt.set_device(0) == 0
    yield acl.rt
    assert acl.rt.reset_device(0) == 0


@pytest.fixture
def stream(rt: ModuleType) -> Iterator[int]:
    handle, ret = rt.create_stream()
    assert ret == 0
    yield handle
    assert rt.destroy_stream(handle) == 0


# ---- the rows and C's declarations ---------------------------------------------------------------
SCALARS = {
    "int": "i32", "int32_t": "i32", "uint32_t": "u32", "int64_t": "i64", "uint64_t": "u64", "size_t": "size",
    "uint8_t": "u8", "aclFloat16": "u16", "float": "f32", "void": "none",
}  # fmt: skip
STRUCTS = {
    "aclCANNPackageVersion": "version", "aclrtUtilizationInfo": "utilization", "aclrtPtrAttributes": "attributes",
    "aclrtPhysicalMemProp": "property",
}  # fmt: skip


def kind_of(c: str) -> str:
    """The row's kind of a C argument (or result) that goes in."""
    c = c.removeprefix("const ")
    if c in SCALARS:
        return SCALARS[c]
    if c == "char*":
        return "str"
    if c.removesuffix("*") in STRUCTS:
        return STRUCTS[c.removesuffix("*")]
    handles = ("aclrtStream", "aclrtEvent", "aclrtContext", "aclrtDrvMemHandle")
    return "ptr" if c.endswith("*") or c in handles else "i32"  # the rest are enums


def test_rows_agree_with_the_declarations(acl: ModuleType) -> None:
    from acl import _rows

    wrong, rows = [], [row.split() for row in (_rows.ACL + _rows.RT + _rows.MDL + _rows.OP).splitlines() if row]
    for name, symbol, *cells in rows:
        result = None
        if "=" in cells:
            *cells, _, result = cells
        arguments = [cell.rstrip("?") for cell in cells if cell != "nogil"]
        declaration = tables.declared()[symbol]
        expected = [
            ">" + kind_of(c.removesuffix("*")) if cell.startswith(">") else kind_of(c)
            for c, cell in zip(declaration.arguments, arguments)
        ]
        if len(arguments) != len(declaration.arguments) or arguments != expected:
            wrong.append(f"{name}: {arguments}, C has {declaration.arguments}")
        if (result or "i32") != kind_of(declaration.result):  # aclError is an enum as well
            wrong.append(f"{name}: result {result}, C has {declaration.result}")
    assert wrong == []
    assert len(rows) > 100


# ---- calling -------------------------------------------------------------------------------------
BAD_CALLS: list[tuple[str, tuple[Any, ...]]] = [
    ("init", (1,)), ("init", ("a", "b")), ("init", (None,)), ("finalize", (0,)), ("get_version", (1,)),
    ("data_type_size", ("0",)), ("data_type_size", ()), ("create_data_buffer", (0,)),
    ("create_tensor_desc", (0, 3, 2)), ("create_tensor_desc", (0, [1])), ("create_tensor_desc", (0, ["a"], 2)),
    ("float_to_float16", ("1",)), ("get_version_str", (3,)), ("app_log", (1,)), ("rt.set_device", ()),
    ("rt.set_device", (0.0,)), ("rt.set_device", (0, 1)), ("rt.set_device", (None,)), ("rt.malloc", (64,)),
    ("rt.malloc", (64.0, 0)), ("rt.malloc", ("64", 0)), ("rt.free", ()), ("rt.free", (None,)),
    ("rt.memcpy", (0, 0, 0, 0)), ("rt.memcpy", (0, 0, b"", 0, 1)), ("rt.memcpy_async", (0, 0, 0, 0, 1)),
    ("rt.record_event", (0,)), ("rt.stream_wait_event", (0, "1")), ("rt.malloc_physical", (MIB, [], 0)),
    ("rt.malloc_physical", (MIB, {"unknown": 1}, 0)), ("rt.malloc_with_cfg", (64, 0, None)),
    ("rt.launch_callback", (1, [], 0, 0)), ("rt.launch_callback", (print, [], 0)),
    ("rt.set_exception_info_callback", (1,)), ("rt.mem_set_pid_to_shareable_handle", (1, 2)),
    ("rt.get_mem_uce_info", (0,)), ("rt.mem_uce_repair", (0,)), ("mdl.set_dump", (1,)), ("op.set_attr_int", (0, "a")),
    ("util.bytes_to_ptr", ("text",)), ("util.ptr_to_bytes", (0,)), ("util.start_thread", (1, [])),
    ("util.stop_thread", ()),
]  # fmt: skip


def function(acl: ModuleType, path: str) -> Callable[..., Any]:
    found: Any = acl
    for name in path.split("."):
        found = getattr(found, name)
    return found


@pytest.mark.parametrize(("path", "args"), BAD_CALLS)
def test_wrong_arity_or_type_raises(acl: ModuleType, path: str, args: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        function(acl, path)(*args)


def test_keywords_are_refused(acl: ModuleType) -> None:
    with pytest.raises(TypeError):
        acl.rt.set_device(device_id=0)
    with pytest.raises(TypeError):
        acl.rt.malloc_with_cfg(64, 0, cfg={})


def test_an_integer_that_does_not_fit_is_not_cut(acl: ModuleType) -> None:
    for bad in (1 << 31, -(1 << 31) - 1):
        with pytest.raises(OverflowError):
            acl.rt.set_device(bad)
    with pytest.raises(OverflowError):
        acl.rt.free(-1)


def test_numpy_integers_are_integers(rt: ModuleType) -> None:
    pointer, ret = rt.malloc(np.int64(64), np.int32(HUGE_FIRST))
    assert ret == 0
    assert rt.free(np.uint64(pointer)) == 0


def test_failures_are_returned_and_have_a_message(acl: ModuleType) -> None:
    assert acl.rt.set_device(99) == 107001
    message = acl.get_recent_err_msg()
    assert "99" in message
    assert acl.get_recent_err_msg() is None


# ---- what comes back -----------------------------------------------------------------------------
def test_module_level(acl: ModuleType) -> None:
    assert acl.get_soc_name() == "Ascend910B2"
    *version, ret = acl.get_version()
    assert ret == 0 and all(isinstance(v, int) for v in version) and len(version) == 3
    info, ret = acl.get_cann_version(0)
    assert ret == 0
    assert list(info) == ["version", "major_version", "minor_version", "release_version", "patch_version", "reserved"]
    assert info["version"].startswith("8.5.0")
    attributes, count, ret = acl.get_cann_attribute_list()
    assert ret == 0 and len(attributes) == count > 0
    assert [acl.data_type_size(t) for t in (0, 1, 9, 12, 17, 27)] == [4, 2, 8, 1, 16, 2]
    assert acl.float16_to_float(acl.float_to_float16(1.5)) == 1.5


def test_data_buffer_and_tensor_desc(acl: ModuleType) -> None:
    buffer = acl.create_data_buffer(0x1000, 64)
    assert (acl.get_data_buffer_addr(buffer), acl.get_data_buffer_size_v2(buffer)) == (0x1000, 64)
    assert acl.update_data_buffer(buffer, 0x2000, 32) == 0
    assert (acl.get_data_buffer_addr(buffer), acl.get_data_buffer_size_v2(buffer)) == (0x2000, 32)
    assert acl.destroy_data_buffer(buffer) == 0
    desc = acl.create_tensor_desc(0, [2, 3, 4], 2)
    assert desc != 0
    assert (acl.get_tensor_desc_type(desc), acl.get_tensor_desc_num_dims(desc)) == (0, 3)
    assert acl.get_tensor_desc_dim_v2(desc, 1) == (3, 0)
    assert acl.get_tensor_desc_size(desc) == 96
    assert acl.destroy_tensor_desc(desc) is None


def test_devices_and_contexts(rt: ModuleType) -> None:
    assert rt.get_device_count() == (2, 0)
    assert rt.get_device() == (0, 0)
    assert rt.get_run_mode() == (1, 0)
    assert rt.device_can_access_peer(0, 1) == (1, 0)
    assert rt.device_enable_peer_access(1) == 0
    assert rt.device_disable_peer_access(1) == 0
    default, ret = rt.get_context()
    assert ret == 0 and default != 0
    context, ret = rt.create_context(0)
    assert ret == 0 and context != default
    assert rt.get_context() == (context, 0)
    assert rt.set_context(default) == 0
    assert rt.destroy_context(context) == 0


def test_memory_makes_a_round_trip(acl: ModuleType, rt: ModuleType, stream: int) -> None:
    data = bytes(range(256)) * 16
    device, ret = rt.malloc(len(data), HUGE_FIRST)
    assert ret == 0 and device % 64 == 0
    assert rt.memcpy(device, len(data), acl.util.bytes_to_ptr(data), len(data), TO_DEVICE) == 0
    host, ret = rt.malloc_host(len(data))
    assert ret == 0
    assert rt.memcpy_async(host, len(data), device, len(data), TO_HOST, stream) == 0
    assert rt.synchronize_stream(stream) == 0
    assert acl.util.ptr_to_bytes(host, len(data)) == data
    assert rt.memset(device, len(data), 7, 16) == 0
    assert rt.memcpy(host, 32, device, 32, TO_HOST) == 0
    assert acl.util.ptr_to_bytes(host, 32) == b"\7" * 16 + data[16:32]
    assert rt.free_host(host) == 0
    assert rt.free(device) == 0
    assert rt.malloc(0, HUGE_FIRST)[-1] == 100000


def test_free_memory_comes_first(rt: ModuleType) -> None:
    free, total, ret = rt.get_mem_info(1)
    assert ret == 0 and 0 < free <= total
    device, _ = rt.malloc(64 * MIB, HUGE_FIRST)
    assert rt.get_mem_info(1)[0] <= free - 64 * MIB
    assert rt.free(device) == 0


def test_structs_are_dicts(rt: ModuleType) -> None:
    device, _ = rt.malloc(4096, HUGE_FIRST)
    attributes, ret = rt.pointer_get_attributes(device)
    assert ret == 0
    assert list(attributes) == ["location", "page_size", "rsv"]
    assert attributes["location"] == {"id": 0, "type": 1}
    assert rt.free(device) == 0
    utilization, ret = rt.get_device_utilization_rate(0)
    assert ret == 0 and "cube_utilization" in utilization
    device, ret = rt.malloc_with_cfg(4096, HUGE_FIRST, {})
    assert ret == 0 and rt.free(device) == 0


def test_virtual_memory(rt: ModuleType) -> None:
    prop = {"handleType": 0, "allocationType": 0, "memAttr": 4, "location": {"id": 0, "type": 1}, "reserve": 0}
    granularity, ret = rt.mem_get_allocation_granularity(prop, 0)
    assert ret == 0 and granularity > 0
    address, ret = rt.reserve_mem_address(4 * granularity, 0, 0, 1)
    assert ret == 0 and address != 0
    handle, ret = rt.malloc_physical(granularity, prop, 0)
    assert ret == 0
    assert rt.map_mem(address, granularity, 0, handle, 0) == 0
    assert rt.memset(address, granularity, 1, granularity) == 0
    assert rt.unmap_mem(address) == 0
    assert rt.free_physical(handle) == 0
    assert rt.release_mem_address(address) == 0


def test_events(rt: ModuleType, stream: int) -> None:
    start, ret = rt.create_event_ex_with_flag(8)
    assert ret == 0
    end, _ = rt.create_event_ex_with_flag(8)
    assert rt.record_event(start, stream) == 0
    assert rt.record_event(end, stream) == 0
    assert rt.synchronize_event(end) == 0
    assert rt.query_event_status(end) == (1, 0)
    ms, ret = rt.event_elapsed_time(start, end)
    assert ret == 0 and ms >= 0
    assert rt.stream_query(stream) == (0, 0)
    assert [rt.destroy_event(event) for event in (start, end)] == [0, 0]


# ---- callbacks, threads, the GIL -----------------------------------------------------------------
def test_callbacks_run_in_order_in_their_thread(acl: ModuleType, rt: ModuleType, stream: int) -> None:
    context, _ = rt.get_context()
    seen: list[tuple[int, int]] = []
    stop = threading.Event()

    def serve(arguments: list[int]) -> None:
        rt.set_context(arguments[0])
        while not stop.is_set():
            rt.process_report(20)

    thread, ret = acl.util.start_thread(serve, [context])
    assert ret == 0
    assert rt.subscribe_report(thread, stream) == 0
    for i in range(10):
        assert rt.launch_callback(lambda args: seen.append((args[0], threading.get_ident())), [i], 1, stream) == 0
    assert rt.synchronize_stream(stream) == 0
    assert seen == [(i, thread) for i in range(10)]
    assert rt.unsubscribe_report(thread, stream) == 0
    stop.set()
    assert acl.util.stop_thread(thread) == 0
    assert acl.util.stop_thread(thread) == 100000
    assert rt.launch_callback(print, [], 1, stream) == 107015  # no thread serves the stream any more


def test_waiting_lets_other_threads_run(acl: ModuleType, rt: ModuleType) -> None:
    """A wait for a blocked stream must not hold the GIL that the blocking callback needs."""
    stream, _ = rt.create_stream()
    context, _ = rt.get_context()
    release, finished, released = threading.Event(), threading.Event(), []

    def serve(arguments: list[int]) -> None:
        rt.set_context(arguments[0])
        while not finished.is_set():
            rt.process_report(20)

    thread, _ = acl.util.start_thread(serve, [context])
    assert rt.subscribe_report(thread, stream) == 0
    assert rt.launch_callback(lambda _: released.append(release.wait(600)), [], 1, stream) == 0
    threading.Timer(0.05, release.set).start()  # needs the GIL while this thread waits
    assert rt.synchronize_stream(stream) == 0 and released == [True]
    assert rt.unsubscribe_report(thread, stream) == 0
    finished.set()
    assert acl.util.stop_thread(thread) == 0
    assert rt.destroy_stream(stream) == 0


def test_numpy_pointers(acl: ModuleType) -> None:
    array = np.arange(6, dtype=np.float32)
    with pytest.warns(DeprecationWarning):
        pointer = acl.util.numpy_to_ptr(array)
    with pytest.warns(DeprecationWarning):
        view = acl.util.ptr_to_numpy(pointer, (2, 3), array.dtype.num)
    view[1, 2] = 50
    assert array[5] == 50 and view.shape == (2, 3)


def test_a_second_finalize_is_refused(run_python: Callable[..., str]) -> None:
    assert (
        run_python("import acl; print(acl.init(), acl.init(), acl.finalize(), acl.finalize())") == "0 100002 0 100037\n"
    )
