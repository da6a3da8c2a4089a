"""Bad calls of the runtime: each is refused with the documented code and a message that names the function."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import pytest
from runtime import EXTERNAL, HUGE_PAGE, PROGRESS, SYNC, TIME_LINE, TO_DEVICE, TO_HOST, Runtime, physical_prop

HOST_TO_HOST, DEVICE_TO_DEVICE = 0, 3
WILD = 0xDEAD0000


class World:
    """What bad calls are made of: live objects, destroyed ones, and those of another context."""

    def __init__(self, rt: Runtime) -> None:
        self.rt = rt
        rt.must("aclrtSetDevice", 0)
        self.default_context = rt.made("aclrtGetCurrentContext")
        self.foreign_stream = rt.stream()
        self.foreign_event = rt.event()
        self.context = rt.made("aclrtCreateContext", 0)
        self.stream, self.event = rt.stream(), rt.event()
        self.one_shot = rt.made("aclrtCreateEventWithFlag", SYNC)
        self.progress, self.timed = rt.event(PROGRESS), rt.event(TIME_LINE)
        self.device, self.pinned = rt.malloc(256), rt.malloc_host(256)
        self.host = ctypes.addressof(memory := ctypes.create_string_buffer(256))
        self.kept = memory
        self.reserved = rt.made("aclrtReserveMemAddress", 4 * HUGE_PAGE, 0, None, 0)
        self.prop = physical_prop()
        self.physical = rt.made("aclrtMallocPhysical", HUGE_PAGE, ctypes.byref(self.prop), 0)
        self.cell = ctypes.create_string_buffer(4096)  # for outputs
        self.gone_stream, self.gone_event, self.gone_device = rt.stream(), rt.event(), rt.malloc(64)
        self.gone_context = rt.made("aclrtCreateContext", 0)
        rt.must("aclrtDestroyContext", self.gone_context)
        rt.must("aclrtSetCurrentContext", self.context)
        rt.must("aclrtDestroyStream", self.gone_stream)
        rt.must("aclrtDestroyEvent", self.gone_event)
        rt.must("aclrtFree", self.gone_device)

    def close(self) -> None:
        rt = self.rt
        for name, what in (
            ("aclrtFreeHost", self.pinned), ("aclrtFree", self.device), ("aclrtFreePhysical", self.physical),
            ("aclrtReleaseMemAddress", self.reserved), ("aclrtDestroyContext", self.context),
            ("aclrtSetCurrentContext", self.default_context), ("aclrtDestroyStream", self.foreign_stream),
            ("aclrtDestroyEvent", self.foreign_event), ("aclrtResetDevice", 0),
        ):  # fmt: skip
            rt.must(name, what)


class W(str):
    """An argument with a public name."""


def bad_prop(**changed: int) -> Any:
    prop = physical_prop()
    for name, value in changed.items():
        setattr(prop, name, value)
    return ctypes.byref(prop)


OUT, STREAM, EVENT, DEVICE, HOST = W("cell"), W("stream"), W("event"), W("device"), W("host")
GONE_STREAM, GONE_EVENT, GONE_DEVICE = W("gone_stream"), W("gone_event"), W("gone_device")
FOREIGN, ONE_SHOT = W("foreign_stream"), W("one_shot")
CASES: list[tuple[Any, ...]] = [
    # ---- start and end
    (100003, "aclInit", b"/no/such/file.json"),
    # ---- devices
    (107001, "aclrtSetDevice", -1),
    (107001, "aclrtSetDevice", 99),
    (107001, "aclrtResetDevice", 99),
    (107002, "aclrtResetDevice", 1),
    (107002, "aclrtResetDeviceForce", 1),
    (107001, "aclrtResetDeviceForce", -5),
    (100000, "aclrtGetDevice", None),
    (100000, "aclrtGetDeviceCount", None),
    (100000, "aclrtGetRunMode", None),
    (100000, "aclrtDeviceCanAccessPeer", None, 0, 1),
    (107001, "aclrtDeviceCanAccessPeer", OUT, 0, 99),
    (107001, "aclrtDeviceCanAccessPeer", OUT, 99, 0),
    (107001, "aclrtDeviceEnablePeerAccess", 0, 0),
    (107001, "aclrtDeviceEnablePeerAccess", 99, 0),
    (100000, "aclrtDeviceEnablePeerAccess", 1, 1),
    (107000, "aclrtDeviceDisablePeerAccess", 1),
    (107001, "aclrtGetPrimaryCtxState", 99, OUT, OUT),
    (100000, "aclrtGetPrimaryCtxState", 0, OUT, None),
    (107000, "aclrtSynchronizeDeviceWithTimeout", -2),
    (107001, "aclrtDeviceTaskAbort", 99, 0),
    (107001, "aclrtQueryDeviceStatus", 99, OUT),
    (100000, "aclrtQueryDeviceStatus", 0, None),
    (107001, "aclrtGetDeviceUtilizationRate", 99, OUT),
    (100000, "aclrtGetDeviceUtilizationRate", 0, None),
    (107001, "aclrtGetDeviceInfo", 99, 301, OUT),
    (100000, "aclrtGetDeviceInfo", 0, 301, None),
    (207000, "aclrtGetDeviceInfo", 0, 12345, OUT),
    (107001, "aclGetDeviceCapability", 99, 0, OUT),
    (100000, "aclGetDeviceCapability", 0, 0, None),
    (100000, "aclGetDeviceCapability", 0, 77, OUT),
    (100000, "aclrtSetTsDevice", 7),
    (107001, "aclrtGetMemUceInfo", 99, OUT, 1, OUT),
    # ---- contexts
    (100000, "aclrtCreateContext", None, 0),
    (107001, "aclrtCreateContext", OUT, 99),
    (100000, "aclrtDestroyContext", None),
    (107002, "aclrtDestroyContext", WILD),
    (107002, "aclrtDestroyContext", W("gone_context")),
    (107000, "aclrtDestroyContext", W("default_context")),
    (100000, "aclrtSetCurrentContext", None),
    (107002, "aclrtSetCurrentContext", WILD),
    (107002, "aclrtSetCurrentContext", W("gone_context")),
    (107002, "aclrtSetCurrentContext", STREAM),
    (100000, "aclrtGetCurrentContext", None),
    (100000, "aclrtCtxGetCurrentDefaultStream", None),
    # ---- streams
    (100000, "aclrtCreateStream", None),
    (107000, "aclrtCreateStreamWithConfig", OUT, 8, 0),
    (107000, "aclrtCreateStreamWithConfig", OUT, 0, 0x1000),
    (100000, "aclrtDestroyStream", None),
    (107003, "aclrtDestroyStream", WILD),
    (107003, "aclrtDestroyStream", GONE_STREAM),
    (107003, "aclrtDestroyStream", FOREIGN),
    (107003, "aclrtDestroyStream", EVENT),
    (107003, "aclrtDestroyStreamForce", GONE_STREAM),
    (107003, "aclrtSynchronizeStream", GONE_STREAM),
    (107003, "aclrtSynchronizeStream", FOREIGN),
    (107000, "aclrtSynchronizeStreamWithTimeout", STREAM, -2),
    (107003, "aclrtStreamQuery", GONE_STREAM, OUT),
    (100000, "aclrtStreamQuery", STREAM, None),
    (100000, "aclrtStreamAbort", None),
    (107003, "aclrtStreamAbort", GONE_STREAM),
    (107000, "aclrtSetStreamFailureMode", STREAM, 9),
    (107000, "aclrtSetStreamFailureMode", None, 1),
    (107003, "aclrtSetStreamFailureMode", GONE_STREAM, 1),
    (100000, "aclrtStreamGetId", STREAM, None),
    (107003, "aclrtStreamGetId", GONE_STREAM, OUT),
    (107000, "aclrtSetStreamOverflowSwitch", STREAM, 2),
    (100000, "aclrtGetStreamOverflowSwitch", STREAM, None),
    # ---- events
    (100000, "aclrtCreateEvent", None),
    (107000, "aclrtCreateEventWithFlag", OUT, 0),
    (107000, "aclrtCreateEventWithFlag", OUT, 0x100),
    (107000, "aclrtCreateEventExWithFlag", OUT, 0),
    (107000, "aclrtCreateEventExWithFlag", OUT, EXTERNAL | SYNC),
    (100000, "aclrtDestroyEvent", None),
    (107000, "aclrtDestroyEvent", WILD),
    (107000, "aclrtDestroyEvent", GONE_EVENT),
    (100000, "aclrtRecordEvent", None, STREAM),
    (107000, "aclrtRecordEvent", GONE_EVENT, STREAM),
    (107000, "aclrtRecordEvent", STREAM, STREAM),
    (107003, "aclrtRecordEvent", EVENT, GONE_STREAM),
    (107003, "aclrtRecordEvent", EVENT, FOREIGN),
    (107003, "aclrtRecordEvent", W("foreign_event"), STREAM),
    (100000, "aclrtStreamWaitEvent", STREAM, None),
    (107000, "aclrtStreamWaitEvent", STREAM, GONE_EVENT),
    (107003, "aclrtStreamWaitEvent", GONE_STREAM, EVENT),
    (107000, "aclrtStreamWaitEvent", STREAM, W("progress")),
    (107000, "aclrtStreamWaitEventWithTimeout", STREAM, EVENT, -3),
    (207000, "aclrtResetEvent", EVENT, STREAM),
    (107000, "aclrtResetEvent", GONE_EVENT, STREAM),
    (107003, "aclrtResetEvent", ONE_SHOT, GONE_STREAM),
    (207000, "aclrtQueryEvent", EVENT, OUT),
    (207000, "aclrtQueryEventWaitStatus", EVENT, OUT),
    (100000, "aclrtQueryEventStatus", EVENT, None),
    (107000, "aclrtQueryEventStatus", GONE_EVENT, OUT),
    (107000, "aclrtSynchronizeEvent", GONE_EVENT),
    (107000, "aclrtSynchronizeEvent", ONE_SHOT),
    (107000, "aclrtSynchronizeEventWithTimeout", EVENT, -2),
    (100000, "aclrtEventElapsedTime", None, EVENT, EVENT),
    (107006, "aclrtEventElapsedTime", OUT, EVENT, EVENT),
    (107006, "aclrtEventElapsedTime", OUT, ONE_SHOT, EVENT),
    (100000, "aclrtEventGetTimestamp", W("timed"), None),
    (107006, "aclrtEventGetTimestamp", W("timed"), OUT),
    # ---- memory
    (100000, "aclrtMalloc", None, 64, 0),
    (100000, "aclrtMalloc", OUT, 0, 0),
    (107000, "aclrtMalloc", OUT, 64, 77),
    (207001, "aclrtMalloc", OUT, 1 << 60, 0),
    (100000, "aclrtMallocAlign32", OUT, 0, 0),
    (100000, "aclrtMallocCached", OUT, 0, 0),
    (100000, "aclrtMallocHost", OUT, 0),
    (100000, "aclrtMallocHost", None, 64),
    (100000, "aclrtFree", None),
    (107000, "aclrtFree", WILD),
    (107000, "aclrtFree", GONE_DEVICE),
    (107000, "aclrtFree", HOST),
    (107000, "aclrtFree", W("pinned")),
    (107000, "aclrtFree", W("reserved")),
    (100000, "aclrtFreeHost", None),
    (107000, "aclrtFreeHost", HOST),
    (107000, "aclrtFreeHost", DEVICE),
    (100000, "aclrtMemcpy", None, 64, HOST, 64, TO_DEVICE),
    (100000, "aclrtMemcpy", DEVICE, 64, None, 64, TO_DEVICE),
    (107000, "aclrtMemcpy", DEVICE, 63, HOST, 64, TO_DEVICE),
    (107000, "aclrtMemcpy", DEVICE, 64, HOST, 64, 99),
    (107000, "aclrtMemcpy", DEVICE, 512, HOST, 512, TO_DEVICE),
    (107000, "aclrtMemcpy", GONE_DEVICE, 64, HOST, 64, TO_DEVICE),
    (107000, "aclrtMemcpyAsync", DEVICE, 63, HOST, 64, TO_DEVICE, STREAM),
    (107003, "aclrtMemcpyAsync", DEVICE, 64, HOST, 64, TO_DEVICE, GONE_STREAM),
    (107000, "aclrtMemcpyAsync", DEVICE, 64, HOST, 64, TO_HOST, STREAM),
    (107000, "aclrtMemcpyAsync", DEVICE, 64, HOST, 64, DEVICE_TO_DEVICE, STREAM),
    (207000, "aclrtMemcpyAsync", HOST, 64, W("pinned"), 64, HOST_TO_HOST, STREAM),
    (107000, "aclrtMemcpyAsync", HOST, 64, GONE_DEVICE, 64, TO_HOST, STREAM),
    (107000, "aclrtMemcpy2d", DEVICE, 8, HOST, 8, 16, 2, TO_DEVICE),
    (107000, "aclrtMemcpy2d", DEVICE, 8, HOST, 8, 0, 2, TO_DEVICE),
    (107000, "aclrtMemcpy2dAsync", DEVICE, 64, HOST, 64, 64, 99, TO_DEVICE, STREAM),
    (100000, "aclrtMemset", None, 64, 0, 64),
    (107000, "aclrtMemset", DEVICE, 63, 0, 64),
    (107000, "aclrtMemset", DEVICE, 4096, 0, 4096),
    (107000, "aclrtMemset", GONE_DEVICE, 64, 0, 64),
    (107000, "aclrtMemsetAsync", HOST, 64, 0, 64, STREAM),
    (107003, "aclrtMemsetAsync", DEVICE, 64, 0, 64, GONE_STREAM),
    (100000, "aclrtGetMemInfo", 1, None, OUT),
    (107016, "aclrtGetMemInfo", 99, OUT, OUT),
    (100000, "aclrtPointerGetAttributes", DEVICE, None),
    (107000, "aclrtPointerGetAttributes", GONE_DEVICE, OUT),
    (100000, "aclrtHostRegister", None, 64, 0, OUT),
    (100000, "aclrtHostRegister", HOST, 0, 0, OUT),
    (107000, "aclrtHostRegister", HOST, 64, 5, OUT),
    (107000, "aclrtHostRegister", DEVICE, 64, 0, OUT),
    (507911, "aclrtHostUnregister", HOST),
    (507911, "aclrtHostUnregister", W("pinned")),
    # ---- virtual memory
    (100000, "aclrtReserveMemAddress", OUT, 0, 0, None, 0),
    (107000, "aclrtReserveMemAddress", OUT, HUGE_PAGE, 4096, None, 0),
    (107000, "aclrtReleaseMemAddress", WILD),
    (107000, "aclrtReleaseMemAddress", DEVICE),
    (107000, "aclrtMallocPhysical", OUT, 12345, bad_prop(), 0),
    (107001, "aclrtMallocPhysical", OUT, HUGE_PAGE, bad_prop(device=99), 0),
    (107000, "aclrtMallocPhysical", OUT, HUGE_PAGE, bad_prop(allocation=9), 0),
    (107016, "aclrtMallocPhysical", OUT, HUGE_PAGE, bad_prop(attr=99), 0),
    (207001, "aclrtMallocPhysical", OUT, 1 << 50, bad_prop(), 0),
    (100000, "aclrtMallocPhysical", OUT, HUGE_PAGE, None, 0),
    (107017, "aclrtFreePhysical", WILD),
    (107000, "aclrtMapMem", DEVICE, HUGE_PAGE, 0, W("physical"), 0),
    (107000, "aclrtMapMem", W("reserved"), 4096, 0, W("physical"), 0),
    (107000, "aclrtMapMem", W("reserved"), HUGE_PAGE, 1, W("physical"), 0),
    (107017, "aclrtMapMem", W("reserved"), HUGE_PAGE, 0, WILD, 0),
    (107000, "aclrtUnmapMem", W("reserved")),
    (107000, "aclrtMemGetAllocationGranularity", bad_prop(), 7, OUT),
    (107017, "aclrtMemImportFromShareableHandle", 0x7FFFFFFF_00000001, 0, OUT),
    (207000, "aclrtMemExportToShareableHandleV2", W("physical"), 0, 2, OUT),
    (107000, "aclrtMemExportToShareableHandleV2", W("physical"), 0, 7, OUT),
    (100000, "aclrtMemImportFromShareableHandleV2", None, 1, 0, OUT),
    # ---- callbacks and graphs
    (107015, "aclrtLaunchCallback", WILD, None, 1, STREAM),
    (100000, "aclrtLaunchCallback", None, None, 1, STREAM),
    (107000, "aclrtLaunchCallback", WILD, None, 7, STREAM),
    (107012, "aclrtUnSubscribeReport", 1, STREAM),
    (107012, "aclrtProcessReport", 10),
    (100000, "aclrtLaunchHostFunc", STREAM, None, None),
    (107031, "aclmdlRICaptureBegin", None, 0),
    (107000, "aclmdlRICaptureBegin", STREAM, 9),
    (107003, "aclmdlRICaptureBegin", GONE_STREAM, 0),
    (107029, "aclmdlRICaptureEnd", STREAM, OUT),
    (100000, "aclmdlRICaptureEnd", STREAM, None),
    (107000, "aclmdlRIExecuteAsync", WILD, STREAM),
    (100000, "aclmdlRIDestroy", None),
    (107000, "aclmdlRIDestroy", STREAM),
    (107033, "aclmdlRICaptureTaskUpdateEnd", STREAM),
    (107029, "aclmdlRICaptureTaskGrpBegin", STREAM),
    # ---- parameters
    (107000, "aclrtSetSysParamOpt", 99, 1),
    (107000, "aclrtGetSysParamOpt", 99, OUT),
    (107021, "aclrtCtxGetSysParamOpt", 0, OUT),
    (100000, "aclrtCtxGetSysParamOpt", 0, None),
    (107000, "aclrtSetDeviceSatMode", 9),
    (100000, "aclGetCannAttribute", 99, OUT),
    (100000, "aclsysGetCANNVersion", 99, OUT),
    (100045, "aclmdlFinalizeDump",),
    (107000, "aclrtSetDeviceResLimit", 0, 0, 999),
    (100000, "aclDestroyDataBuffer", WILD),
    (100000, "aclSetTensorFormat", WILD, 2),
    (100000, "aclopSetAttrInt", WILD, b"x", 1),
    # ---- exported, not supported: the refusal names the function
    (207000, "aclmdlLoadFromFile", b"model.om", OUT),
    (207000, "aclrtMemFlush", DEVICE, 64),
]  # fmt: skip


@pytest.fixture(scope="module")
def world(process: Runtime) -> Iterator[World]:
    made = World(process)
    yield made
    made.close()


@pytest.mark.parametrize("case", CASES, ids=[f"{i}-{c[1]}-{c[0]}" for i, c in enumerate(CASES)])
def test_refused(world: World, case: tuple[Any, ...]) -> None:
    code, name, *args = case
    rt = world.rt
    rt.must("aclrtSetCurrentContext", world.context)
    rt.message()
    values = [getattr(world, a) if isinstance(a, W) else a for a in args]
    assert getattr(rt, name)(*values) == code, rt.message()
    message = rt.message()
    assert str(code) in message
    assert name in message
    assert rt.aclrtGetLastError(0) == code


def test_there_are_at_least_150_cases() -> None:
    assert len(CASES) >= 150
