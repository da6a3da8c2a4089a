"""CANN_SIM_MODE=model: device time follows from what tasks move and compute and from the SoC's peaks, not from this host."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_runtime_modes import run

import cann_tables

CUBE_F16, CUBE_F32, CUBE_INT8, VECTOR, MEMORY, LINK, HOST, TASK_US, EVENT_US = range(9)
TIMED = """
def timed(work, on=None):
    on = on or stream
    first, last = rt.event(), rt.event()
    rt.must("aclrtRecordEvent", first, on)
    work()
    rt.must("aclrtRecordEvent", last, on)
    rt.must("aclrtSynchronizeEvent", last)
    ms = ctypes.c_float()
    rt.must("aclrtEventElapsedTime", ctypes.byref(ms), first, last)
    return ms.value * 1e3
"""
GB = 1e9


def model(body: str, soc: str = "Ascend910B2", **settings: str) -> list[float]:
    done = run(TIMED + body, CANN_SIM_MODE="model", CANN_SIM_SOC=soc, **settings)
    return [float(x) for x in done.stdout.split()]


@pytest.mark.parametrize("soc", ["Ascend910B2", "Ascend910B4"])
def test_copies_take_the_time_of_their_way(soc: str) -> None:
    """Twice through the memory of the device; once over the link to the host; a small task takes what a task takes."""
    size, peaks = 256 << 20, cann_tables.peaks()[soc]
    got = model(f"""
x, y, p = rt.malloc({size}), rt.malloc({size}), rt.malloc_host(1 << 20)
print(timed(lambda: rt.fill(x, 0, {size}, stream)), timed(lambda: rt.move(y, x, {size}, stream)))
print(timed(lambda: rt.move(x, p, 1 << 20, stream, TO_DEVICE)), timed(lambda: rt.fill(x, 0, 64, stream)))
""", soc)
    memory, host = peaks[MEMORY] * GB, peaks[HOST] * GB
    expected = [size / memory, 2 * size / memory, (1 << 20) / host, peaks[TASK_US] * 1e-6]
    assert got == pytest.approx([1e6 * t for t in expected], rel=1e-3, abs=1e-2)


def test_products_take_the_time_of_the_cube_units() -> None:
    """The shapes say how long, whatever this host needs; float32 takes longer than float16."""
    peaks = cann_tables.peaks()["Ascend910B2"]
    got = model("""
import torch
from client import Client
client = Client()
def product(dtype):
    a, b, out = (client.tensor(torch.zeros(512, 512, dtype=dtype)) for _ in range(3))
    size, executor = ctypes.c_uint64(), ctypes.c_void_p()
    client.must("aclnnMatmulGetWorkspaceSize", a.handle, b.handle, out.handle, 0, ctypes.byref(size), ctypes.byref(executor))
    def work():
        client.must("aclnnMatmul", None, size, executor, client.stream)
    return timed(work, client.stream)
print(product(torch.float16), product(torch.float32))
""")
    flop = 2 * 512.0**3
    expected = [max(flop / (peaks[p] * 1e12) * 1e6, peaks[TASK_US]) for p in (CUBE_F16, CUBE_F32)]
    assert got == pytest.approx(expected, rel=1e-2, abs=1e-2)
    assert got[1] > got[0]


def test_streams_run_beside_each_other_and_wait_for_events() -> None:
    """Two fills at once take the time of one; behind an event the second begins where the first ended."""
    size, peaks = 64 << 20, cann_tables.peaks()["Ascend910B2"]
    one = size / (peaks[MEMORY] * GB) * 1e6
    got = model(f"""
x, y = rt.malloc({size}), rt.malloc({size})
def two(ordered):
    begin, middle, end = rt.event(), rt.event(), rt.event()
    rt.must("aclrtRecordEvent", begin, stream)
    rt.must("aclrtStreamWaitEvent", other, begin)
    rt.fill(x, 0, {size}, stream)
    if ordered:
        rt.must("aclrtRecordEvent", middle, stream)
        rt.must("aclrtStreamWaitEvent", other, middle)
    rt.fill(y, 0, {size}, other)
    rt.must("aclrtRecordEvent", end, other)
    rt.must("aclrtSynchronizeDevice")
    ms = ctypes.c_float()
    rt.must("aclrtEventElapsedTime", ctypes.byref(ms), begin, end)
    return ms.value * 1e3
print(two(False), two(True))
""")
    event = peaks[EVENT_US]
    assert got == pytest.approx([one + event, 2 * one + event], rel=1e-2)


def test_the_trace_is_in_device_time(tmp_path: Path) -> None:
    file, size = tmp_path / "trace.json", 64 << 20
    model(f"x = rt.malloc({size})\nfor _ in range(2): rt.fill(x, 0, {size}, stream)\nrt.sync(stream)", CANN_SIM_TRACE=str(file))
    first, second = json.loads(file.read_text())
    assert first["dur"] == pytest.approx(size / (cann_tables.peaks()["Ascend910B2"][MEMORY] * GB) * 1e6, rel=1e-2)
    assert second["ts"] == pytest.approx(first["ts"] + first["dur"])


def test_what_the_host_has_waited_for_is_over() -> None:
    """A stream that was idle while another worked begins where the host has waited to."""
    size = 64 << 20
    got = model(f"""
x = rt.malloc({size})
first, last = rt.event(), rt.event()
rt.must("aclrtRecordEvent", first, stream)
rt.fill(x, 0, {size}, stream)
rt.sync(stream)
rt.must("aclrtRecordEvent", last, other)
rt.must("aclrtSynchronizeEvent", last)
ms = ctypes.c_float()
rt.must("aclrtEventElapsedTime", ctypes.byref(ms), first, last)
print(ms.value * 1e3)
""")
    assert got == pytest.approx([size / (cann_tables.peaks()["Ascend910B2"][MEMORY] * GB) * 1e6], rel=1e-2)


def test_a_soc_without_peaks_is_refused() -> None:
    done = run("print(rt.aclInit(None), rt.message())", opened=False, CANN_SIM_MODE="model", CANN_SIM_SOC="Ascend310")
    assert done.stdout.startswith("100000") and "no peaks of CANN_SIM_SOC, got 'Ascend310'" in done.stdout
