"""Capture into graphs and their replay: what is recorded, who takes part, what is not allowed meanwhile."""

from __future__ import annotations

import ctypes
import json
import re
from pathlib import Path

import pytest
from runtime import (
    EXTERNAL,
    GLOBAL,
    RELAXED,
    THREAD_LOCAL,
    Runtime,
    in_thread,
)


def test_a_graph_replays_what_was_captured(rt: Runtime) -> None:
    stream, a, b = rt.stream(), rt.malloc(64), rt.malloc(64)
    rt.must("aclrtMemset", a, 64, 1, 64)
    rt.must("aclrtMemset", b, 64, 2, 64)
    graph = rt.capture(stream, GLOBAL, lambda: rt.move(b, a, 64, stream))
    assert rt.read(b, 64) == b"\2" * 64  # captured, not run
    for value in (7, 8):
        rt.must("aclrtMemset", a, 64, value, 64)
        rt.must("aclmdlRIExecuteAsync", graph, stream)
        rt.sync(stream)
        assert rt.read(b, 64) == bytes([value]) * 64
    rt.must("aclmdlRIDestroy", graph)
    assert rt.aclmdlRIExecuteAsync(graph, stream) == 107000


def test_other_streams_join_a_capture_through_events(rt: Runtime, tmp_path: Path) -> None:
    stream, side, a, b = rt.stream(), rt.stream(), rt.malloc(4), rt.malloc(4)
    fork, join = rt.event(), rt.event()
    rt.must("aclmdlRICaptureBegin", stream, THREAD_LOCAL)
    rt.fill(a, 4, 4, stream)
    rt.must("aclrtRecordEvent", fork, stream)
    rt.must("aclrtStreamWaitEvent", side, fork)
    rt.move(b, a, 4, side)
    graph = ctypes.c_void_p()
    status = ctypes.c_int32()
    rt.must("aclmdlRICaptureGetInfo", side, ctypes.byref(status), ctypes.byref(graph))
    assert (status.value, bool(graph.value)) == (1, True)
    rt.must("aclrtRecordEvent", join, side)
    rt.must("aclrtStreamWaitEvent", stream, join)
    rt.must("aclmdlRICaptureEnd", stream, ctypes.byref(graph))
    rt.must("aclmdlRIExecuteAsync", graph, side)
    rt.sync(side)
    assert rt.read(b, 4) == b"\4" * 4
    rt.must("aclmdlRIDebugJsonPrint", graph, str(tmp_path / "graph.json").encode(), 0)
    drawn = json.loads((tmp_path / "graph.json").read_text())
    names = [re.sub(r"_\d+$", "", e["name"]) for e in drawn]
    assert names == ["aclrtMemsetAsync", "EVENT_RECORD", "EVENT_WAIT", "aclrtMemcpyAsync", "EVENT_RECORD", "EVENT_WAIT"]
    assert [drawn[k]["name"].rsplit("_")[-1] == drawn[k + 1]["name"].rsplit("_")[-1] for k in (1, 4)] == [True, True]
    lines = {tid: [e["ts"] for e in drawn if e["tid"] == tid] for tid in {e["tid"] for e in drawn}}
    assert len(lines) == 2 and all(times == sorted(set(times)) for times in lines.values())
    assert all(e["ph"] == "X" and e["dur"] > 0 and e["args"]["Stream Id"] == int(e["tid"][6:]) for e in drawn)


def test_a_stream_that_is_not_joined_again_spoils_the_capture(rt: Runtime) -> None:
    stream, side, fork, graph = rt.stream(), rt.stream(), rt.event(), ctypes.c_void_p()
    rt.must("aclmdlRICaptureBegin", stream, GLOBAL)
    rt.must("aclrtRecordEvent", fork, stream)
    rt.must("aclrtStreamWaitEvent", side, fork)
    assert rt.aclmdlRICaptureEnd(stream, ctypes.byref(graph)) == 107025
    assert not graph.value
    rt.sync(side)  # neither stream is captured any more
    rt.sync(stream)


@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])
def test_blocking_calls_during_a_capture(rt: Runtime, mode: int) -> None:
    stream, device, graph = rt.stream(), rt.malloc(4), ctypes.c_void_p()
    rt.must("aclmdlRICaptureBegin", stream, mode)
    refused = 0 if mode == RELAXED else 107030
    assert rt.aclrtMemset(device, 4, 0, 4) == refused
    assert rt.aclrtSynchronizeDevice() == refused

    def elsewhere() -> int:
        rt.must("aclrtSetDevice", 0)
        return rt.aclrtSynchronizeDevice()

    assert in_thread(elsewhere) == (107030 if mode == GLOBAL else 0)
    exchanged = ctypes.c_int32(RELAXED)
    rt.must("aclmdlRICaptureThreadExchangeMode", ctypes.byref(exchanged))
    assert rt.aclrtMemset(device, 4, 0, 4) == 0
    rt.must("aclmdlRICaptureThreadExchangeMode", ctypes.byref(exchanged))
    rt.must("aclmdlRICaptureEnd", stream, ctypes.byref(graph))


def test_waiting_for_a_captured_stream_makes_the_capture_invalid(rt: Runtime) -> None:
    stream, graph = rt.stream(), ctypes.c_void_p()
    rt.must("aclmdlRICaptureBegin", stream, GLOBAL)
    assert rt.aclrtSynchronizeStream(stream) == 107027
    assert rt.aclmdlRICaptureEnd(stream, ctypes.byref(graph)) == 507903
    rt.sync(stream)


def test_a_group_of_tasks_is_replaced_in_the_graph(rt: Runtime) -> None:
    stream, update, a = rt.stream(), rt.stream(), rt.malloc(4)
    group = ctypes.c_void_p()

    def record() -> None:
        rt.must("aclmdlRICaptureTaskGrpBegin", stream)
        rt.fill(a, 1, 4, stream)
        rt.must("aclmdlRICaptureTaskGrpEnd", stream, ctypes.byref(group))

    graph = rt.capture(stream, GLOBAL, record)
    rt.must("aclmdlRICaptureTaskUpdateBegin", update, group)
    rt.fill(a, 9, 4, update)
    rt.must("aclmdlRICaptureTaskUpdateEnd", update)
    rt.sync(update)
    rt.must("aclmdlRIExecuteAsync", graph, stream)
    rt.sync(stream)
    assert rt.read(a, 4) == b"\x09" * 4


def test_external_events_hold_a_replay(rt: Runtime) -> None:
    stream, other, a = rt.stream(), rt.stream(), rt.malloc(4)
    event = rt.made("aclrtCreateEventWithFlag", EXTERNAL)

    def record() -> None:
        rt.must("aclrtStreamWaitEvent", stream, event)
        rt.must("aclrtResetEvent", event, stream)
        rt.fill(a, 1, 4, stream)

    graph = rt.capture(stream, GLOBAL, record)
    for _ in range(2):
        rt.must("aclmdlRIExecuteAsync", graph, stream)
        assert rt.aclrtSynchronizeStreamWithTimeout(stream, 20) == 507046
        rt.must("aclrtRecordEvent", event, other)
        rt.sync(stream)
