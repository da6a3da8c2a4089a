"""What the settings do: delays by a seed, faults by a plan, null mode, traces, strictness; and fork and exit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
START = f"""
import ctypes, os, sys, threading
sys.path.insert(0, {str(HERE)!r})
from runtime import *
rt = Runtime()
"""
OPEN = """
rt.must("aclInit", None)
rt.must("aclrtSetDevice", 0)
stream, other = rt.stream(), rt.stream()
a, b = rt.malloc(4096), rt.malloc(4096)
"""


def run(body: str, status: int = 0, opened: bool = True, **settings: str) -> subprocess.CompletedProcess[str]:
    """Runs the body as a program of its own, with the runtime open, and checks its exit status."""
    code = START + (OPEN if opened else "") + body
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | settings, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == status, f"exit status {done.returncode}\n{done.stdout}{done.stderr}"
    return done


# ---- delay -----------------------------------------------------------------------------------------------------

MISSING_WAIT = """
wrong = 0
for step in range(1, 60):
    rt.fill(a, step, 4096, stream)
    rt.move(b, a, 4096, other)      # nothing says that it comes after the fill
    rt.sync(stream); rt.sync(other)
    wrong += rt.read(b, 4096) != bytes([step]) * 4096
print(wrong)
"""
FAN_OUT_FAN_IN = """
streams = [rt.stream() for _ in range(6)]
parts = [rt.malloc(256) for _ in streams]
whole, start = rt.malloc(256 * len(streams)), rt.event()
done = [rt.event() for _ in streams]
for step in range(1, 15):
    rt.fill(a, step, 256, stream)
    rt.must("aclrtRecordEvent", start, stream)
    for i, (s, part, event) in enumerate(zip(streams, parts, done)):
        rt.must("aclrtStreamWaitEvent", s, start)
        rt.move(part, a, 256, s)
        rt.must("aclrtRecordEvent", event, s)
        rt.must("aclrtStreamWaitEvent", stream, event)
    for i, part in enumerate(parts):
        rt.move(whole + 256 * i, part, 256, stream)
    rt.sync(stream)
    assert rt.read(whole, 256 * len(streams)) == bytes([step]) * 256 * len(streams)
"""


def test_a_missing_wait_shows_under_delay() -> None:
    assert int(run(MISSING_WAIT, CANN_SIM_MODE="delay", CANN_SIM_SEED="1").stdout) > 0


@pytest.mark.parametrize("seed", range(20))
def test_waits_hold_under_every_seed(seed: int) -> None:
    run(FAN_OUT_FAN_IN, CANN_SIM_MODE="delay", CANN_SIM_SEED=str(seed))


# ---- faults ----------------------------------------------------------------------------------------------------


def test_the_nth_call_fails() -> None:
    run(
        """
assert [rt.aclrtMemset(a, 4, 0, 4) for _ in range(4)] == [0, 507899, 0, 0]
assert "fault plan" in rt.message()
assert [rt.aclrtSynchronizeDevice() for _ in range(2)] == [507000, 507000]
""",
        CANN_SIM_FAULTS="aclrtMemset:2=507899, aclrtSynchronizeDevice:*=507000",
    )


def test_an_op_fails_on_the_device() -> None:
    run(
        """
seen = []
report = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda info: seen.append(rt.aclrtGetErrorCodeFromExceptionInfo(info)))
rt.must("aclrtSetExceptionInfoCallback", report)
rt.fill(a, 1, 64, stream)
rt.fill(a, 2, 64, stream)           # this one fails
rt.fill(b, 3, 64, stream)
assert rt.aclrtSynchronizeStream(stream) == 507015
assert "aclrtMemsetAsync" in rt.message()
assert seen == [507015]
assert rt.aclrtSynchronizeStream(other) == 507015       # the whole context, until the device is reset
rt.must("aclrtResetDeviceForce", 0)
rt.must("aclrtSetDevice", 0)
c = rt.malloc(64)
rt.fill(c, 5, 64, None)
rt.sync()
assert rt.read(c, 64) == bytes([5]) * 64
""",
        CANN_SIM_FAULTS="op aclrtMemsetAsync:2=507015",
    )


def test_a_stream_that_stops_on_failure_stops_its_context() -> None:
    run(
        """
rt.must("aclrtSetStreamFailureMode", stream, 1)
with_gate = rt.made("aclrtCreateEventWithFlag", SYNC)
rt.must("aclrtStreamWaitEvent", stream, with_gate)
rt.fill(a, 1, 64, stream)           # fails
rt.fill(a, 2, 64, stream)           # is not run any more
rt.must("aclrtRecordEvent", with_gate, other)
assert rt.aclrtSynchronizeStream(stream) == 507015
assert rt.aclrtMemsetAsync(b, 64, 1, 64, other) == 507015
""",
        CANN_SIM_FAULTS="op aclrtMemsetAsync:1=507015",
    )


def test_a_failure_that_leaves_the_device_sound_is_reported_once() -> None:
    run(
        """
rt.fill(a, 1, 64, stream)
assert rt.aclrtSynchronizeStream(stream) == 207003
rt.sync(stream)
rt.must("aclrtMemset", a, 64, 0, 64)
""",
        CANN_SIM_FAULTS="op aclrtMemsetAsync:1=207003",
    )


def test_a_fault_wakes_what_waits_for_the_task_that_failed() -> None:
    """An event whose record fails on the device: the stream that waits for it would keep every host that synchronises."""
    run(
        """
event = rt.made("aclrtCreateEventWithFlag", SYNC)
rt.must("aclrtStreamWaitEvent", other, event)
rt.fill(a, 1, 4096, stream)
rt.must("aclrtRecordEvent", event, stream)
assert rt.aclrtSynchronizeStream(stream) == 507015 and rt.aclrtSynchronizeStream(other) == 507015
assert rt.aclrtSynchronizeDevice() == 507015
""",
        CANN_SIM_FAULTS="op aclrtRecordEvent:1=507015", CANN_SIM_MODE="delay",
    )  # fmt: skip


def test_a_device_is_lost() -> None:
    run(
        """
status = ctypes.c_int32()
rt.fill(a, 1, 64, stream)
rt.sync(stream)
rt.must("aclrtQueryDeviceStatus", 0, ctypes.byref(status)); assert status.value == 0
for _ in range(3): rt.fill(a, 1, 64, stream)
assert rt.aclrtSynchronizeStream(stream) == 507010
rt.must("aclrtQueryDeviceStatus", 0, ctypes.byref(status)); assert status.value == 1
""",
        CANN_SIM_FAULTS="lost:0@3",
    )


def test_the_nth_allocation_fails() -> None:
    run("assert [rt.aclrtMalloc(out(), 64, 0) for _ in range(3)] == [0, 207001, 0]", CANN_SIM_FAULTS="oom:4")


@pytest.mark.parametrize(
    "setting",
    [("CANN_SIM_MODE", "fast"), ("CANN_SIM_MEMORY", "lots"), ("CANN_SIM_MEMORY", "2X"), ("CANN_SIM_DEVICES", "0"),
     ("CANN_SIM_SOC", "Ascend1"), ("CANN_SIM_FAULTS", "aclrtMalloc"), ("CANN_SIM_STRICT", "yes")],
)  # fmt: skip
def test_a_setting_that_is_not_understood_is_refused(setting: tuple[str, str]) -> None:
    name, value = setting
    run(f"assert rt.aclInit(None) == 100000; assert {name!r} in rt.message()", opened=False, **{name: value})


# ---- null ------------------------------------------------------------------------------------------------------


def test_null_mode_computes_nothing_and_needs_no_memory() -> None:
    run(
        """
large = rt.malloc(48 << 30)
rt.fill(large, 1, 48 << 30, stream)
event = rt.event()
rt.must("aclrtRecordEvent", event, stream)
rt.must("aclrtSynchronizeEvent", event)
seen = []
rt.must("aclrtLaunchHostFunc", stream, note := HOST_FUNC(lambda _: seen.append(1)), None)
rt.sync(stream)
assert seen == [1]                  # what is the host's business still happens
assert rt.read(large, 64) == bytes(64)
resident = int(open("/proc/self/statm").read().split()[1]) * 4096
assert resident < 1 << 30, resident
""",
        CANN_SIM_MODE="null",
    )


# ---- other settings --------------------------------------------------------------------------------------------


def test_devices_memory_and_soc() -> None:
    run(
        """
count = rt.made("aclrtGetDeviceCount", ctype=ctypes.c_uint32)
assert count == 5
assert rt.memory()[1] == 512 << 20
assert rt.aclrtGetSocName() == b"Ascend910_9391"
version = ctypes.create_string_buffer(512)
rt.must("aclsysGetCANNVersion", 0, version)
assert version.value == b"8.3.RC1"
rt.must("aclsysGetCANNVersion", 7, version)  # the driver that came with it
assert version.value == b"25.3.RC1"
""",
        CANN_SIM_DEVICES="5", CANN_SIM_MEMORY="512M", CANN_SIM_SOC="Ascend910_9391", CANN_SIM_VERSION="8.3.RC1",
    )  # fmt: skip


def test_visible_devices() -> None:
    run(
        """
assert rt.made("aclrtGetDeviceCount", ctype=ctypes.c_uint32) == 2
cell = ctypes.c_int32()
rt.must("aclrtGetPhyDevIdByUserDevId", 1, ctypes.byref(cell)); assert cell.value == 3
assert rt.aclrtSetDevice(2) == 107001
""",
        CANN_SIM_DEVICES="4", ASCEND_RT_VISIBLE_DEVICES="1,3",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "count"), [("0,1,2", 3), ("0, 1", 1), ("0 ,1", 1), (" 0", 0), ("0,1x", 2), ("1,0", 0), ("1,1", 0), ("0,9", 1), ("", 0), ("-1", 0)]
)
def test_the_list_of_visible_devices_is_read_as_cann_reads_it(text: str, count: int) -> None:
    body = f'rt.must("aclInit", None); assert rt.made("aclrtGetDeviceCount", ctype=ctypes.c_uint32) == {count}'
    run(body, opened=False, CANN_SIM_DEVICES="4", ASCEND_RT_VISIBLE_DEVICES=text)


def test_a_default_device_of_all_threads(tmp_path: Path) -> None:
    file = tmp_path / "acl.json"
    body = f"""
def device():
    cell = ctypes.c_int32(-1)
    rt.must("aclrtGetDevice", ctypes.byref(cell))
    seen.append(cell.value)
seen = []
open({str(file)!r}, "w").write('{{"defaultDevice": {{"default_device": "7"}}}}')
assert rt.aclInit({str(file)!r}.encode()) == 107001
open({str(file)!r}, "w").write('{{"defaultDevice": {{"default_device": "1"}}}}')
rt.must("aclInit", {str(file)!r}.encode())
thread = threading.Thread(target=device)
thread.start(), thread.join(), device()
assert seen == [1, 1]
rt.must("aclFinalize")
assert rt.aclrtGetDevice(ctypes.byref(ctypes.c_int32())) == 107002
"""
    run(body, opened=False)


def test_a_trace_holds_every_task(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    run("rt.fill(a, 1, 64, stream); rt.move(b, a, 64, stream); rt.sync(stream)", CANN_SIM_TRACE=str(file))
    events = json.loads(file.read_text())
    assert [e["name"] for e in events] == ["aclrtMemsetAsync", "aclrtMemcpyAsync"]
    assert all(e["ph"] == "X" and e["dur"] >= 0 and e["pid"] == 0 for e in events)
    assert events[0]["ts"] + events[0]["dur"] <= events[1]["ts"]


def test_a_trace_survives_a_kill(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    body = "import time\nfor _ in range(4): rt.fill(a, 1, 64, stream); rt.sync(stream); time.sleep(0.06)\nos._exit(7)"
    run(body, status=7, CANN_SIM_TRACE=str(file))
    assert json.loads(file.read_text() + "]")[0]["name"] == "aclrtMemsetAsync"


def test_strict_mode_reports_what_is_still_alive() -> None:
    done = run('rt.event(); rt.must("aclrtFree", b); rt.must("aclFinalize")', CANN_SIM_STRICT="1")
    lines = [line for line in done.stderr.splitlines() if "still alive" in line]
    assert [line.split("still alive: ")[1] for line in lines] == [
        "1 allocations of device memory (4096 bytes): 4096 bytes by allocation 1 of device 0", "2 streams", "1 events"
    ]  # fmt: skip
    clean = """
for p in (a, b): rt.must("aclrtFree", p)
for s in (stream, other): rt.must("aclrtDestroyStream", s)
rt.must("aclFinalize")
"""
    assert "still alive" not in run(clean, CANN_SIM_STRICT="1").stderr


def test_strict_mode_requires_a_reset_after_a_wait() -> None:
    body = """
event = rt.made("aclrtCreateEventWithFlag", SYNC)
rt.must("aclrtRecordEvent", event, stream)
rt.must("aclrtStreamWaitEvent", other, event)
rt.sync(stream); rt.sync(other)
assert rt.aclrtRecordEvent(event, stream) == {code}
rt.must("aclrtResetEvent", event, stream)
rt.sync(stream)
assert rt.aclrtRecordEvent(event, stream) == 0
"""
    run(body.format(code=107000), CANN_SIM_STRICT="1")
    run(body.format(code=0))


def test_more_allocations_than_the_host_has_mappings() -> None:
    run(
        """
free = rt.memory()[0]
for size in (300 << 10, 1100 << 10):
    blocks = []
    try:
        while len(blocks) < 40000: blocks.append(rt.malloc(size))
    except AclError as error:
        assert error.code == 207001, error
    assert len(blocks) > 20000
    for p in blocks: rt.must("aclrtFree", p)
    assert rt.memory()[0] == free
    rt.must("aclrtFree", rt.malloc(1 << 30))
""",
        CANN_SIM_MODE="null",
    )


# ---- memory is the device's ------------------------------------------------------------------------------------


def test_the_host_cannot_touch_device_memory() -> None:
    for access in ("ctypes.string_at(a, 1)", "ctypes.memset(a, 0, 1)"):
        run(access, status=-11)


@pytest.mark.parametrize(
    ("exports", "imports", "soc"),
    [('"aclrtMemExportToShareableHandle", handle, 0, 0, key', '"aclrtMemImportFromShareableHandle", key[0], 0', "Ascend910B2")]
    + [(f'"aclrtMemExportToShareableHandleV2", handle, 0, {kind}, key', f'"aclrtMemImportFromShareableHandleV2", key, {kind}, 0', soc)
       for kind, soc in ((1, "Ascend910B2"), (2, "Ascend910_9391"))],  # 2: a fabric handle, 128 bytes
    ids=("first", "second", "fabric"),
)  # fmt: skip
def test_physical_memory_is_shared_between_processes(exports: str, imports: str, soc: str) -> None:
    run(
        f"""
import subprocess
key = (ctypes.c_uint64 * 16)()
prop = physical_prop()
handle = rt.made("aclrtMallocPhysical", HUGE_PAGE, ctypes.byref(prop), 0)
base = rt.made("aclrtReserveMemAddress", HUGE_PAGE, 0, None, 0)
rt.must("aclrtMapMem", base, HUGE_PAGE, 0, handle, 0)
rt.write(base, b"from the parent")
rt.must({exports})
child = {START!r} + {OPEN!r} + '''
handle = ctypes.c_void_p()
key = (ctypes.c_uint64 * 16).from_buffer_copy(bytes.fromhex(sys.argv[1]))
rt.must({imports}, ctypes.byref(handle))
base = rt.made("aclrtReserveMemAddress", HUGE_PAGE, 0, None, 0)
rt.must("aclrtMapMem", base, HUGE_PAGE, 0, handle, 0)
assert rt.read(base, 15) == b"from the parent"
rt.write(base, b"from the child!")
'''
subprocess.run([sys.executable, "-c", child, bytes(key).hex()], check=True)
assert rt.read(base, 15) == b"from the child!"
""",
        CANN_SIM_SOC=soc,
    )


def test_memory_without_room_behind_it_is_shared_and_freed_alone() -> None:
    """aclrtMallocAlign32 has no bytes behind the end: the page there is unmapped, or the next allocation's."""
    run(
        """
blocks = [rt.made("aclrtMallocAlign32", 2 << 20, 0) for _ in range(8)]
for device in blocks: rt.write(device, b"each has its own")
key = ctypes.create_string_buffer(65)
rt.must("aclrtIpcMemGetExportKey", blocks[3], 2 << 20, key, 65, 0)
for device in blocks[::2]: rt.must("aclrtFree", device)
for device in blocks[1::2]: assert rt.read(device, 16) == b"each has its own"
for device in blocks[1::2]: rt.must("aclrtFree", device)
"""
    )


@pytest.mark.parametrize("size", [100, 5 << 20])
def test_allocations_are_shared_between_processes(size: int) -> None:
    run(
        f"""
import subprocess
p, neighbour = rt.malloc({size}), rt.malloc({size})
for device in (p, neighbour): rt.write(device, b"before the export")
key = ctypes.create_string_buffer(65)
rt.must("aclrtIpcMemGetExportKey", p, {size}, key, 65, 0)
assert rt.read(p, 17) == rt.read(neighbour, 17) == b"before the export"
rt.write(p, b"from the parent")
child = {START!r} + {OPEN!r} + '''
key = sys.argv[1].encode()
p = rt.made("aclrtIpcMemImportByKey", key, 0)
assert rt.read(p, 15) == b"from the parent"
rt.fill(p, 7, {size}, stream)
rt.sync(stream)
assert rt.aclrtFree(p) == 107000
rt.must("aclrtIpcMemClose", key)
assert rt.aclrtIpcMemClose(key) == 107000
assert rt.aclrtMemset(p, 1, 0, 1) == 107000
p = rt.made("aclrtIpcMemImportByKey", key, 0)
rt.must("aclrtResetDeviceForce", 0)
'''
subprocess.run([sys.executable, "-c", child, key.value.decode()], check=True)
assert rt.read(p, {size}) == bytes([7]) * {size}
free = rt.memory()[0]
rt.must("aclrtIpcMemClose", key)
for device in (p, neighbour): rt.must("aclrtFree", device)
assert rt.memory()[0] > free
"""
    )


# ---- the life of a process -----------------------------------------------------------------------------------------


def test_init_and_finalize() -> None:
    run(
        """
assert rt.aclFinalize() == 100001
assert rt.aclInit(None) == 0
assert rt.aclInit(None) == 100002
count = ctypes.c_uint64()
rt.must("aclFinalizeReference", ctypes.byref(count)); assert count.value == 1
rt.must("aclrtSetDevice", 0)
p = rt.malloc(64)
assert rt.aclFinalize() == 0
assert rt.aclFinalize() == 100037
assert rt.aclrtGetDevice(ctypes.byref(ctypes.c_int32())) == 107002
assert rt.aclInit(None) == 0
rt.must("aclrtSetDevice", 0)
assert rt.aclrtMemset(p, 64, 0, 64) == 107000   # the memory ended with the first life
""",
        opened=False,
    )


def test_calls_in_a_forked_child_return_an_error() -> None:
    run(
        """
rt.fill(a, 1, 64, stream)
child = os.fork()
if child == 0:
    codes = [rt.aclrtSynchronizeStream(stream), rt.aclrtSetDevice(0), rt.aclInit(None), rt.aclrtMemset(a, 4, 0, 4)]
    message = rt.message()
    os._exit(0 if codes == [107002, 507033, 507033, 107002] and "fork" in message else 1)
assert os.waitpid(child, 0)[1] == 0
rt.sync(stream)
child = os.fork()
if child == 0:
    sys.exit(0)                     # with everything that runs at exit
assert os.waitpid(child, 0)[1] == 0
rt.sync(stream)
"""
    )


@pytest.mark.parametrize(
    "end",
    ["", "sys.exit(0)", 'rt.must("aclFinalize")', 'rt.must("aclrtResetDeviceForce", 0)'],
)  # fmt: skip
def test_a_process_ends_with_work_queued(end: str) -> None:
    run(
        """
never = rt.made("aclrtCreateEventWithFlag", SYNC)
rt.must("aclrtStreamWaitEvent", other, never)
for _ in range(1000):
    rt.fill(a, 1, 4096, stream)
    rt.fill(b, 1, 4096, other)
"""
        + end
    )


# ---- depth -----------------------------------------------------------------------------------------------------

def test_the_host_waits_where_a_stream_is_full() -> None:
    """A full stream takes no task until it has done one: the thread that queues stands still until the gate opens."""
    run("""
gate, queued, full = rt.made("aclrtCreateEventWithFlag", SYNC), [], threading.Event()
rt.must("aclrtStreamWaitEvent", stream, gate)
def queue():
    rt.must("aclrtSetDevice", 0)
    for i in range(8):
        rt.fill(a, i, 64, stream)
        queued.append(i)
        if i == 2: full.set()        # with the wait itself, what the stream holds
thread = threading.Thread(target=queue)
thread.start()
full.wait()
thread.join(0.2)                    # a thread that does not stand still has queued more by now
assert queued == [0, 1, 2], queued
rt.must("aclrtRecordEvent", gate, other)
thread.join()
rt.sync(stream)
assert queued == list(range(8)) and rt.read(a, 1) == bytes([7])
""", CANN_SIM_DEPTH="4")
