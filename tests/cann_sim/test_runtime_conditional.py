"""Conditional tasks of a graph: a value in device memory decides at each replay which graph runs, or how often."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pytest
from runtime import GLOBAL, THREAD_LOCAL, Runtime, data_pointer
from runtime import CondTaskParams as Params

from cann_sim import faults

IF, WHILE, SWITCH = range(3)
ASSIGN_DEFAULT = 1


def begin(rt: Runtime, stream: int, value: int, flag: int = ASSIGN_DEFAULT) -> tuple[int, int]:
    """Begins a capture; a condition of its graph, and where that lies."""
    rt.must("aclmdlRICaptureBegin", stream, THREAD_LOCAL)
    status, graph, condition, at = ctypes.c_int32(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    rt.must("aclmdlRICaptureGetInfo", stream, ctypes.byref(status), ctypes.byref(graph))
    rt.must("aclmdlRICondHandleCreate", graph, ctypes.c_uint32(value), flag, ctypes.byref(condition))
    rt.must("aclmdlRICondHandleGetCondPtr", condition, ctypes.byref(at))
    assert condition.value and at.value
    return condition.value, at.value


def add(rt: Runtime, stream: int, condition: int, kind: int, *branches: Callable[[int], None]) -> None:
    """A conditional task on the stream; each branch records itself on a stream of its own."""
    models = (ctypes.c_void_p * len(branches))()
    params = Params(condition, kind, len(branches), ctypes.addressof(models))
    rt.must("aclmdlRIAddCondTask", params, stream, ctypes.c_uint32(0))
    for model, record in zip(models, branches, strict=True):
        side = rt.stream()
        rt.must("aclmdlRICaptureToModelRIBegin", side, ctypes.c_void_p(model), THREAD_LOCAL)
        record(side)
        rt.must("aclmdlRICaptureEnd", side, None)


def end(rt: Runtime, stream: int) -> int:
    graph = ctypes.c_void_p()
    rt.must("aclmdlRICaptureEnd", stream, ctypes.byref(graph))
    assert graph.value
    return graph.value


def replay(rt: Runtime, graph: int, stream: int) -> None:
    rt.must("aclmdlRIExecuteAsync", graph, stream)
    rt.sync(stream)


def word(rt: Runtime, value: int) -> int:
    """Eight bytes of device memory."""
    at = rt.malloc(8)
    write(rt, at, value)
    return at


def write(rt: Runtime, at: int, value: int) -> None:
    rt.must("aclrtMemcpy", at, 8, data_pointer(value.to_bytes(8, "little")), 8, 1)


@pytest.mark.parametrize("branches", [1, 2])
def test_if_chooses_by_the_value(rt: Runtime, branches: int) -> None:
    stream, out, given = rt.stream(), rt.malloc(8), word(rt, 0)
    condition, at = begin(rt, stream, 0)
    rt.move(at, given, 8, stream)                # a task of the graph sets the value
    add(rt, stream, condition, IF, *[lambda s, v=v: rt.fill(out, v, 8, s) for v in (1, 2)[:branches]])
    graph = end(rt, stream)
    for value, expected in ((1, 1), (0, 2 if branches == 2 else 9), (2**40, 1)):
        rt.must("aclrtMemset", out, 8, 9, 8)
        write(rt, given, value)
        replay(rt, graph, stream)
        assert rt.read(out, 8) == bytes([expected]) * 8
    rt.must("aclmdlRIDestroy", graph)


def test_while_runs_until_the_value_is_zero(rt: Runtime) -> None:
    stream, chain = rt.stream(), [word(rt, v) for v in (5, 4, 3, 0)]
    seen = rt.malloc(8)
    condition, at = begin(rt, stream, 1)

    def body(side: int) -> None:                 # each turn moves the chain one on: 5, 4, 3, 0
        rt.move(at, chain[0], 8, side)
        rt.move(seen, chain[0], 8, side)
        for to, source in zip(chain, chain[1:]):
            rt.move(to, source, 8, side)

    add(rt, stream, condition, WHILE, body)
    graph = end(rt, stream)
    replay(rt, graph, stream)
    assert int.from_bytes(rt.read(at, 8), "little") == 0
    assert int.from_bytes(rt.read(seen, 8), "little") == 0
    rt.must("aclrtMemset", seen, 8, 7, 8)
    replay(rt, graph, stream)                    # the value is 1 again: one turn, which finds the chain at its end
    assert int.from_bytes(rt.read(seen, 8), "little") == 0


def test_switch_takes_the_branch_of_that_number(rt: Runtime) -> None:
    stream, out = rt.stream(), rt.malloc(8)
    condition, at = begin(rt, stream, 2, flag=0)
    add(rt, stream, condition, SWITCH, *[lambda s, v=v: rt.fill(out, v, 8, s) for v in (10, 11, 12)])
    graph = end(rt, stream)
    for value, expected in ((None, 12), (0, 10), (1, 11), (3, 9), (2**63, 9)):
        rt.must("aclrtMemset", out, 8, 9, 8)
        if value is not None:                    # without the flag the value stays what it was
            write(rt, at, value)
        replay(rt, graph, stream)
        assert rt.read(out, 8) == bytes([expected]) * 8


def test_a_branch_has_conditional_tasks_of_its_own(rt: Runtime) -> None:
    stream, out = rt.stream(), rt.malloc(8)
    condition, _ = begin(rt, stream, 1)

    def outer(side: int) -> None:
        status, graph, inner = ctypes.c_int32(), ctypes.c_void_p(), ctypes.c_void_p()
        rt.must("aclmdlRICaptureGetInfo", side, ctypes.byref(status), ctypes.byref(graph))
        rt.must("aclmdlRICondHandleCreate", graph, ctypes.c_uint32(1), ASSIGN_DEFAULT, ctypes.byref(inner))
        add(rt, side, inner.value, SWITCH, lambda s: rt.fill(out, 3, 8, s), lambda s: rt.fill(out, 4, 8, s))

    add(rt, stream, condition, IF, outer)
    graph = end(rt, stream)
    replay(rt, graph, stream)
    assert rt.read(out, 8) == b"\4" * 8
    rt.must("aclmdlRIDestroy", graph)


def test_a_branch_must_be_captured_before_its_graph_ends(rt: Runtime) -> None:
    stream, graph, models = rt.stream(), ctypes.c_void_p(), (ctypes.c_void_p * 1)()
    condition, _ = begin(rt, stream, 0)
    rt.must("aclmdlRIAddCondTask", Params(condition, IF, 1, ctypes.addressof(models)), stream, ctypes.c_uint32(0))
    assert rt.aclmdlRICaptureEnd(stream, ctypes.byref(graph)) == 107045
    assert not graph.value
    side = rt.stream()                           # the branch went with its graph
    assert rt.aclmdlRICaptureToModelRIBegin(side, ctypes.c_void_p(models[0]), GLOBAL) == 107000


def test_what_is_refused(rt: Runtime) -> None:
    stream, models, cell = rt.stream(), (ctypes.c_void_p * 2)(), ctypes.c_void_p()
    array, none = ctypes.addressof(models), ctypes.c_uint32(0)
    rt.must("aclmdlRICaptureBegin", stream, THREAD_LOCAL)
    plain = end(rt, stream)
    assert rt.aclmdlRICondHandleCreate(plain, none, ASSIGN_DEFAULT, ctypes.byref(cell)) == 107000   # not being captured
    assert rt.aclmdlRICaptureToModelRIBegin(stream, plain, GLOBAL) == 107000
    condition, _ = begin(rt, stream, 0)
    for params, flags in ((Params(condition, IF, 3, array), 0), (Params(condition, WHILE, 2, array), 0),
                          (Params(condition, SWITCH, 0, array), 0), (Params(condition, 3, 1, array), 0),
                          (Params(plain, IF, 1, array), 0), (Params(condition, IF, 1, array), 1)):
        assert rt.aclmdlRIAddCondTask(params, stream, ctypes.c_uint32(flags)) == 107000
    assert rt.aclmdlRIAddCondTask(Params(condition, IF, 1, None), stream, none) == 100000
    assert rt.aclmdlRIAddCondTask(Params(condition, IF, 1, array), rt.stream(), none) == 107029
    add(rt, stream, condition, IF, lambda s: None)
    graph = end(rt, stream)
    rt.must("aclmdlRIDestroy", graph)
    assert rt.aclmdlRICondHandleGetCondPtr(ctypes.c_void_p(condition), ctypes.byref(cell)) == 107000


def test_conditions_are_counted_until_their_graph_ends(rt: Runtime) -> None:
    alive = lambda: faults.alive().get("conditions of graphs", (0, 0))[0]
    stream, before = rt.stream(), alive()
    condition, _ = begin(rt, stream, 1)
    add(rt, stream, condition, IF, lambda side: None)
    assert alive() == before + 1
    rt.must("aclmdlRIDestroy", end(rt, stream))
    assert alive() == before
