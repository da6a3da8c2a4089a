"""Profiling sessions (aclprof…): what they write, and which calls are refused; names are found in both of CANN's libraries."""

from __future__ import annotations

import csv
import ctypes
import json
import sqlite3
import subprocess
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
    traces = sorted(session.glob("*.json"))
    assert len(traces) == 2
    for trace in traces:
        events = json.loads(trace.read_text())
        assert sorted(e["name"] for e in events) == ["aclrtMemsetAsync", "half  way "]
        assert all(e["ph"] == "X" and e["dur"] >= 0 for e in events)
    rt.must("aclrtDestroyStream", stream)


def msprof(*words: str) -> subprocess.CompletedProcess[str]:
    command = f"{cann_sim.home()}/tools/profiler/bin/msprof"
    return subprocess.run([command, *words], capture_output=True, text=True, check=False)


def test_msprof_makes_tables_and_a_timeline(rt: Runtime, session: Path) -> None:
    stream, memory, chosen = rt.stream(), rt.malloc(64), config(rt)
    rt.must("aclprofStart", chosen)
    for value in (1, 2):
        rt.fill(memory, value, 64, stream)
    rt.must("aclprofMarkEx", b"mark", 4, stream)
    rt.sync(stream)
    rt.must("aclprofStop", chosen)
    rt.must("aclprofDestroyConfig", chosen)
    (folder,) = session.glob("PROF_*_*_*")
    assert (folder / "device_0").is_dir()
    assert msprof("--export=on", f"--output={folder}").returncode == 0
    (timeline,) = folder.glob("mindstudio_profiler_output/msprof_*.json")
    events = json.loads(timeline.read_text())
    (table,) = folder.glob("mindstudio_profiler_output/task_time_*.csv")
    rows = list(csv.DictReader(table.open()))
    assert [(r["kernel_name"], r["kernel_type"]) for r in rows] == [("aclrtMemsetAsync", "MEMSET_ASYNC")] * 2
    (marks,) = folder.glob("mindstudio_profiler_output/msprof_tx_*.csv")
    assert [(r["message"], r["domain"], r["event_type"]) for r in csv.DictReader(marks.open())] == [("mark", "default", "marker")]
    assert [e["args"] for e in events if e["name"] == "mark"] == [{"domain": "default"}]
    starts = {(e["id"], e["ts"]) for e in events if e["ph"] == "s"}
    ends = {(e["pid"], e["tid"], e["ts"]) for e in events if e["ph"] == "f"}
    tasks = {(e["pid"], e["tid"], e["ts"]) for e in events if e["ph"] == "X" and e["name"] == "aclrtMemsetAsync"}
    assert len(starts) == 2 and ends == tasks  # each task hangs on the moment it was queued
    begin = float(json.loads((folder / "host" / "start_info").read_text())["collectionTimeBegin"])
    assert all(begin <= float(ts) for _, ts in starts) and all(begin <= float(ts) for _, _, ts in tasks)
    assert msprof("--export=on", "--type=db", f"--output={session}").returncode == 0
    (database,) = folder.glob("msprof_*.db")
    with sqlite3.connect(database) as base:
        assert base.execute("SELECT COUNT(*) FROM TASK JOIN CANN_API USING (connectionId)").fetchone() == (2,)
        texts = "SELECT value FROM MSTX_EVENTS JOIN STRING_IDS ON message = id"
        assert base.execute(texts).fetchall() == [("mark",)]
    base.close()
    rt.must("aclrtDestroyStream", stream)


def test_msprof_tells_how_long_collectives_took(tmp_path: Path) -> None:
    folder = tmp_path / "PROF_000001_20260101000000000_ABCDEFGH"
    (folder / "host").mkdir(parents=True)
    info = {"collectionTimeBegin": "2000.000", "steady": "0", "trace": "trace.json"}
    (folder / "host" / "start_info").write_text(json.dumps(info))
    task = {"name": "HcclAllReduce", "ph": "X", "pid": 0, "tid": 1, "ts": 5.0, "dur": 1500.0, "args": {"queued": 1.0}}
    (tmp_path / "trace.json").write_text(json.dumps([task]))
    assert msprof("--analyze=on", f"--output={folder}").returncode == 0
    found = json.loads((folder / "analyze" / "communication.json").read_text())
    (name,) = found
    assert name == "hcom_allReduce__000_0_1@hccl_world_group"
    assert found[name]["Communication Time Info"]["Elapse Time(ms)"] == 1.5
    assert msprof("--analyze=on", "--type=db", f"--output={folder}").returncode == 0
    with sqlite3.connect(folder / "analyze" / "communication_analyzer.db") as base:
        assert base.execute("SELECT elapse_time FROM CommAnalyzerTime").fetchall() == [(1.5,)]
    base.close()


def test_msprof_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    assert msprof("--export=on", f"--output={tmp_path}").returncode == 1
    assert "only finished sessions" in msprof("--application=./a", f"--output={tmp_path}").stderr


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


def names_of(session: Path) -> list[tuple[str, int]]:
    """The events of the only trace with the device they are on; -1 is the host."""
    (trace,) = session.glob("*.json")
    return sorted((e["name"], e["pid"]) for e in json.loads(trace.read_text()))


def test_stamps_and_ranges_stand_in_the_trace(rt: Runtime, session: Path) -> None:
    chosen, stamp, number = config(rt), rt.aclprofCreateStamp(), ctypes.c_uint32()
    rt.must("aclprofSetStampTraceMessage", stamp, b"step", 4)
    rt.must("aclprofStart", chosen)
    rt.must("aclprofMark", stamp)
    rt.must("aclprofPush", stamp)
    rt.must("aclprofRangeStart", stamp, ctypes.byref(number))
    rt.must("aclprofRangeStop", number.value)
    rt.must("aclprofPop")
    rt.must("aclprofStop", chosen)
    assert names_of(session) == [("step", -1)] * 3
    assert [rt.aclprofPop(), rt.aclprofRangePop(), rt.aclprofRangeStop(number.value)] == [INVALID] * 3
    rt.aclprofDestroyStamp(stamp)
    assert rt.aclprofMark(stamp) == INVALID
    rt.must("aclprofDestroyConfig", chosen)


def test_mstx_marks_stand_in_the_trace(rt: Runtime, session: Path) -> None:
    mstx = ctypes.CDLL(f"{cann_sim.home()}/lib64/libms_tools_ext.so")
    for name in ("mstxRangeStartA", "mstxDomainRangeStartA"):
        getattr(mstx, name).restype = ctypes.c_uint64
    mstx.mstxDomainCreateA.restype = ctypes.c_void_p
    chosen, stream = config(rt), rt.stream()
    domain = ctypes.c_void_p(mstx.mstxDomainCreateA(b"loader"))
    rt.must("aclprofStart", chosen)
    mstx.mstxMarkA(b"epoch", None)
    outer = mstx.mstxRangeStartA(b"forward", ctypes.c_void_p(stream))
    inner = mstx.mstxDomainRangeStartA(domain, b"read", None)
    assert 0 < outer < inner
    mstx.mstxDomainRangeEnd(domain, ctypes.c_uint64(inner))
    mstx.mstxRangeEnd(ctypes.c_uint64(outer))
    mstx.mstxRangeEnd(ctypes.c_uint64(1 << 40))
    mstx.mstxDomainDestroy(domain)
    mstx.mstxDomainMarkA(domain, b"gone", None)
    mstx.mstxMarkA(None, None)
    rt.sync(stream)
    rt.must("aclprofStop", chosen)
    assert names_of(session) == [("epoch", -1), ("forward", -1), ("forward", -1), ("forward", 0), ("loader: read", -1)]
    rt.must("aclprofDestroyConfig", chosen)
    rt.must("aclrtDestroyStream", stream)


def test_mstx_numbers_what_pools_hand_out() -> None:
    class Batch(ctypes.Structure):
        _fields_ = [("heap", ctypes.c_void_p), ("kind", ctypes.c_int32), ("count", ctypes.c_size_t),
                    ("ranges", ctypes.c_void_p), ("handles", ctypes.c_void_p)]  # fmt: skip

    mstx = ctypes.CDLL(f"{cann_sim.home()}/lib64/libms_tools_ext.so")
    mstx.mstxMemHeapRegister.restype = ctypes.c_void_p
    heap, handles = mstx.mstxMemHeapRegister(None, ctypes.create_string_buffer(64)), (ctypes.c_void_p * 3)()
    assert heap
    mstx.mstxMemRegionsRegister(None, ctypes.byref(Batch(heap, 0, 3, None, ctypes.addressof(handles))))
    assert len({*handles} - {None}) == 3
    mstx.mstxMemHeapUnregister(None, ctypes.c_void_p(heap))


class Feature(ctypes.Structure):
    """How clients declare it: with a table of virtual functions in the record and in its inner one."""

    _fields_ = [("table", ctypes.c_void_p), ("name", ctypes.c_char * 64), ("inner_table", ctypes.c_void_p),
                ("compatible", ctypes.c_char * 16), ("version", ctypes.c_char * 16), ("component", ctypes.c_char * 16),
                ("component_version", ctypes.c_char * 16), ("log", ctypes.c_char * 128)]  # fmt: skip


def test_features_that_clients_ask_for(rt: Runtime) -> None:
    size, data = ctypes.c_size_t(), ctypes.POINTER(Feature)()
    for name in ("aclprofGetSupportedFeatures", "aclprofGetSupportedFeaturesV2"):
        assert getattr(rt.library, name)(ctypes.byref(size), ctypes.byref(data)) == 0
        assert [data[i].name for i in range(size.value)] == [b"ATTR", b"MemoryAccess", b"AICORE_SHAPE"]
        assert all(data[i].component == data[i].component_version == b"all" and data[i].log for i in range(size.value))
    assert rt.library.aclprofRegisterDeviceCallback() == 0
