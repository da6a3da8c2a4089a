"""Profiling sessions (aclprof…): what they write, and which calls are refused; names are found in both of CANN's libraries."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from runtime import Runtime

import cann_sim

NOT_RUN, RUNS, INVALID, NO_CONFIG = 100043, 100042, 100000, 100010
TASK_TIME = 2  # of dataTypeConfig
STEP_START, STEP_END = 0, 1


@pytest.fixture
def session(rt: Runtime, tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "a" / "b"
    rt.must("aclprofInit", str(folder).encode(), len(str(folder)))
    yield folder
    rt.must("aclprofFinalize")


def config(rt: Runtime) -> int:
    made = rt.aclprofCreateConfig((ctypes.c_uint32 * 1)(0), 1, 255, None, TASK_TIME)
    assert made
    return made


def test_a_session_traces_the_tasks_between_start_and_stop(rt: Runtime, session: Path) -> None:
    stream, memory, chosen = rt.stream(), rt.malloc(64), config(rt)
    for value in (1, 2):
        rt.must("aclprofStart", chosen)
        rt.fill(memory, value, 64, stream)
        rt.must("aclprofMarkEx", b'half "way"', 10, stream)
        rt.sync(stream)
        rt.must("aclprofStop", chosen)
        rt.fill(memory, 0, 64, stream)
        rt.sync(stream)
    rt.must("aclprofDestroyConfig", chosen)
    traces = sorted(session.iterdir())
    assert len(traces) == 2
    for trace in traces:
        events = json.loads(trace.read_text())
        assert sorted(e["name"] for e in events) == ["aclrtMemsetAsync", "half  way "]
        assert all(e["ph"] == "X" and e["dur"] >= 0 for e in events)
    rt.must("aclrtDestroyStream", stream)


def test_what_is_refused(rt: Runtime, tmp_path: Path) -> None:
    chosen = config(rt)
    assert rt.aclprofStart(chosen) == NOT_RUN
    assert rt.aclprofFinalize() == NOT_RUN
    assert rt.aclprofInit(None, 3) == INVALID
    assert rt.aclprofInit(b"/proc/no/such", 13) == INVALID
    path = str(tmp_path).encode()
    rt.must("aclprofInit", path, len(path))
    assert rt.aclprofInit(path, len(path)) == RUNS
    assert rt.aclprofStart(None) == INVALID
    assert rt.aclprofStart(0x1238) == NO_CONFIG
    assert rt.aclprofStop(chosen) == NOT_RUN
    rt.must("aclprofStart", chosen)
    assert rt.aclprofStart(chosen) == RUNS
    assert rt.aclprofDestroyConfig(chosen) == RUNS
    rt.must("aclprofStop", chosen)
    rt.must("aclprofSetConfig", 1, b"200MB", 5)
    assert rt.aclprofSetConfig(99, b"1", 1) == INVALID
    assert not rt.aclprofCreateConfig((ctypes.c_uint32 * 1)(99), 1, 255, None, TASK_TIME)
    assert not rt.aclprofCreateConfig((ctypes.c_uint32 * 1)(0), 1, 255, None, 0)
    rt.must("aclprofDestroyConfig", chosen)
    assert rt.aclprofDestroyConfig(chosen) == INVALID
    rt.must("aclprofFinalize")


def test_steps(rt: Runtime) -> None:
    step, stream = rt.aclprofCreateStepInfo(), rt.stream()
    rt.must("aclprofGetStepTimestamp", step, STEP_START, stream)
    rt.must("aclprofGetStepTimestamp", step, STEP_END, stream)
    assert rt.aclprofGetStepTimestamp(step, 7, stream) == INVALID
    rt.aclprofDestroyStepInfo(step)
    assert rt.aclprofGetStepTimestamp(step, STEP_START, stream) == INVALID
    rt.must("aclrtDestroyStream", stream)


def test_the_profiling_library_has_the_same_functions(rt: Runtime) -> None:
    """A session that one name of the library began is seen through the other."""
    library = ctypes.CDLL(f"{cann_sim.home()}/lib64/libmsprofiler.so")
    assert library.aclprofFinalize() == NOT_RUN
    assert ctypes.cast(library.aclprofInit, ctypes.c_void_p).value == ctypes.cast(rt.library.aclprofInit, ctypes.c_void_p).value
