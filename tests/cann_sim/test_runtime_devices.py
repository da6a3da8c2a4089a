"""The numbers and limits of devices, the functions that hear of devices and streams, and the driver's library for cards."""

from __future__ import annotations

import ctypes
import os

from runtime import Runtime
from test_runtime_modes import run

import cann_sim

SET_PRE, SET_POST, RESET_PRE, RESET_POST = range(4)
CREATED, DESTROYED = 1, 2
DEVICE_STATE = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_int32, ctypes.c_void_p)
STREAM_STATE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)
INVALID_DEVICE, PARAM, NULL = 107001, 107000, 100000


def test_a_device_is_found_by_its_place_on_the_bus(rt: Runtime) -> None:
    text, device = ctypes.create_string_buffer(13), ctypes.c_int32(-1)
    places = []
    for number in range(2):
        rt.must("aclrtDeviceGetPCIBusId", number, text, 13)
        places.append(text.value)
        rt.must("aclrtDeviceGetByPCIBusId", text.value.upper(), ctypes.byref(device))
        assert device.value == number
    assert len(set(places)) == 2
    assert rt.aclrtDeviceGetPCIBusId(0, text, 12) == PARAM
    assert rt.aclrtDeviceGetPCIBusId(2, text, 13) == INVALID_DEVICE
    assert rt.aclrtDeviceGetByPCIBusId(b"0000:00:00.0", ctypes.byref(device)) == INVALID_DEVICE


def test_numbers_of_chosen_devices() -> None:
    names = ("UserDevIdByPhyDevId", "UserDevIdByLogicDevId", "LogicDevIdByPhyDevId", "PhyDevIdByLogicDevId")
    body = f"""
out = ctypes.c_int32()
for name in {names}:
    found = []
    for number in (0, 2):
        code = getattr(rt, "aclrtGet" + name)(number, ctypes.byref(out))
        found.append(code or out.value)
    print(*found)
"""
    printed = run(body, CANN_SIM_DEVICES="4", ASCEND_RT_VISIBLE_DEVICES="2,3").stdout.split("\n")[:-1]
    assert printed == [f"{INVALID_DEVICE} {answer}" for answer in (0, 0, 2, 2)]


def test_limits_are_of_a_device(rt: Runtime) -> None:
    value = ctypes.c_size_t()
    rt.must("aclrtDeviceSetLimit", 1, 4096)
    rt.must("aclrtDeviceGetLimit", 1, ctypes.byref(value))
    assert value.value == 4096
    assert rt.aclrtDeviceGetLimit(99, ctypes.byref(value)) == PARAM
    assert rt.aclrtDeviceGetLimit(1, None) == NULL
    rt.must("aclrtDeviceSetLimit", 1, 0)


def test_listeners_hear_of_devices_and_streams(rt: Runtime) -> None:
    heard: list[tuple[object, int]] = []

    @DEVICE_STATE
    def device_state(device: int, state: int, data: int | None) -> None:
        heard.append((device, state))

    @STREAM_STATE
    def stream_state(stream: int, state: int, data: int | None) -> None:
        heard.append((stream, state))

    rt.must("aclrtRegDeviceStateCallback", b"test", ctypes.cast(device_state, ctypes.c_void_p), None)
    rt.must("aclrtRegStreamStateCallback", b"test", ctypes.cast(stream_state, ctypes.c_void_p), None)
    context = rt.made("aclrtGetCurrentContext")
    rt.must("aclrtSetDevice", 1)
    rt.must("aclrtResetDevice", 1)
    rt.must("aclrtSetCurrentContext", context)
    stream = rt.stream()
    rt.must("aclrtDestroyStream", stream)
    expected = [(1, state) for state in range(4)] + [(stream, CREATED), (stream, DESTROYED)]
    assert heard == expected
    for name in ("aclrtRegDeviceStateCallback", "aclrtRegStreamStateCallback"):
        rt.must(name, b"test", None, None)
        assert getattr(rt, name)(b"test", None, None) == PARAM
        assert getattr(rt, name)(None, None, None) == NULL
    rt.must("aclrtDestroyStream", rt.stream())
    assert heard == expected


def test_listeners_of_faults() -> None:
    body = """
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
codes = []
first, second = (CALLBACK(lambda info: codes.append(rt.aclrtGetErrorCodeFromExceptionInfo(info))) for _ in range(2))
as_pointer = lambda f: ctypes.cast(f, ctypes.c_void_p)
for f in (first, second, second): rt.must("aclrtExceptionInfoCallbackRegister", as_pointer(f))
rt.fill(a, 1, 4096, stream)
print(rt.aclrtSynchronizeStream(stream), codes)
rt.must("aclrtExceptionInfoCallbackUnregister", as_pointer(second))
print(rt.aclrtExceptionInfoCallbackUnregister(as_pointer(second)), rt.aclrtExceptionInfoCallbackRegister(None))
"""
    printed = run(body, CANN_SIM_FAULTS="op aclrtMemsetAsync:1=507015").stdout
    assert printed == f"507015 [507015, 507015]\n{PARAM} {NULL}\n"


def test_the_drivers_library_counts_the_cards() -> None:
    dcmi = ctypes.CDLL(f"{cann_sim.home()}/lib64/libdcmi.so")
    count, cards, last, other, length = ctypes.c_int(), (ctypes.c_int * 8)(), ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    assert dcmi.dcmi_init() == 0
    assert dcmi.dcmi_get_card_num_list(ctypes.byref(count), cards, 8) == 0
    assert list(cards)[: count.value] == list(range(int(os.environ.get("CANN_SIM_DEVICES", 2))))
    assert dcmi.dcmi_get_device_id_in_card(0, ctypes.byref(last), ctypes.byref(other), ctypes.byref(other)) == 0
    assert last.value == 1
    near = ctypes.create_string_buffer(32)
    assert dcmi.dcmi_get_affinity_cpu_info_by_device_id(0, 0, near, ctypes.byref(length)) == 0
    assert near.value.startswith(b"0-")
    assert dcmi.dcmi_get_affinity_cpu_info_by_device_id(99, 0, near, ctypes.byref(length)) != 0
    assert dcmi.dcmiv2_init() == 0
    assert dcmi.dcmiv2_get_device_list(cards, ctypes.byref(last), 8) == 0
    assert last.value == count.value
    for name in ("dcmiv2_get_affinity_cpu_info_by_dev_id", "dcmiv2_get_affinity_cpu_info_by_device_id"):
        assert getattr(dcmi, name)(0, near, ctypes.byref(length)) == 0
        assert getattr(dcmi, name)(99, near, ctypes.byref(length)) != 0
    place = (ctypes.c_uint32 * 16)()
    assert dcmi.dcmi_get_device_pcie_info_v2(1, 0, place) == 0
    assert list(place[:8]) == [0x19E5, 0x19E5, 0xD802, 1, 0, 2, 0, 0]
    assert dcmi.dcmi_get_device_pcie_info_v2(99, 0, place) != 0
    hal = ctypes.CDLL(f"{cann_sim.home()}/lib64/libascend_hal.so")
    assert hal.halGetAPIVersion(ctypes.byref(count)) == 0
    assert 0 < count.value < 0x071905  # from there on profilers take times from a counter of the device


def test_devices_and_links_pass_their_stress_tests(rt: Runtime) -> None:
    ml = ctypes.CDLL(f"{cann_sim.home()}/lib64/libascend_ml.so")
    attributes = (ctypes.c_uint64 * 11)()
    assert ml.AmlAicoreDetectOnline(0, attributes) == 0
    assert ml.AmlP2PDetectOnline(0, attributes, attributes) == 0
    assert [ml.AmlAicoreDetectOnline(99, attributes), ml.AmlAicoreDetectOnline(0, None)] == [107001, NULL]
    assert ml.AmlP2PDetectOnline(0, None, attributes) == NULL
