"""torch.profiler: which steps are recorded, as in torch; what a recording holds, on the cpu and on the npu."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from twin import error, twin

import mindtorch_v2 as mt

P = mt.profiler


@twin
def test_schedule(t: Any) -> Any:
    p = t.profiler
    plans = [{"wait": 1, "warmup": 1, "active": 2, "repeat": 2}, {"wait": 0, "warmup": 0, "active": 1},
             {"wait": 2, "warmup": 0, "active": 1, "skip_first": 3}]  # fmt: skip
    refused = error(lambda: p.schedule(wait=-1, warmup=0, active=1))
    return [[p.schedule(**plan)(i).name for i in range(12)] for plan in plans], refused


@twin
def test_recordings_are_handed_over_after_their_steps(t: Any) -> Any:
    p, handed = t.profiler, []

    def ready(prof: Any) -> None:
        names = {e.key: e.count for e in prof.key_averages()}
        handed.append((prof.step_num, names["ProfilerStep*"], names["aten::relu"]))

    plan = p.schedule(wait=1, warmup=1, active=2, repeat=2)
    with p.profile(activities=[p.ProfilerActivity.CPU], schedule=plan, on_trace_ready=ready) as prof:
        for _ in range(9):
            t.ones(3).relu()
            prof.step()
    return handed


@pytest.mark.parametrize("device", ["cpu", "npu"])
def test_ops_and_named_ranges(npu: Any, device: str, tmp_path: Path) -> None:
    model, x = mt.nn.Linear(4, 2).to(device), mt.ones(3, 4, device=device)

    @mt.autograd.profiler.record_function("halved")
    def halved(y: Any) -> Any:
        return y / 2

    with P.profile(activities=[P.ProfilerActivity.CPU, P.ProfilerActivity.NPU], record_shapes=True) as prof:
        with P.record_function("model"):
            y = model(x)
        halved(y).sum().backward()
    counts = {event.key: event.count for event in prof.key_averages()}
    turns = ["SumBackward0", "DivBackward0", "AddmmBackward0", "torch::autograd::AccumulateGrad"]
    backward = {name: 2 if name == turns[-1] else 1 for name in turns}
    expected = {"model": 1, "aten::linear": 1, "halved": 1, **backward,
                **{f"autograd::engine::evaluate_function: {name}": n for name, n in backward.items()}}
    assert {key: n for key, n in counts.items() if key in expected or not key.startswith("aten::")} == expected
    assert counts.keys() >= {"aten::div", "aten::sum", "aten::mm", "aten::expand"}      # those of backward too
    outer, inner = (next(e for e in prof.events() if e.name == name) for name in ("model", "aten::linear"))
    assert outer.cpu_time_total > inner.cpu_time_total > 0
    assert outer.self_cpu_time_total == pytest.approx(outer.cpu_time_total - inner.cpu_time_total)
    assert inner.input_shapes == [[3, 4], [2, 4], [2]]
    table = prof.key_averages().table(sort_by="cpu_time_total", row_limit=2).splitlines()
    assert len(table) == 7 and "CPU total" in table[1] and table[-1].startswith("Self CPU time total")
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {e["name"] for e in events} == set(counts) and {e["cat"] for e in events} == {"cpu_op", "user_annotation"}


def test_nothing_is_recorded_outside_and_folders_are_made(tmp_path: Path) -> None:
    with P.record_function("before"):
        mt.ones(2) + 1
    with mt.autograd.profiler.profile() as prof:
        mt.ones(2)
    mt.ones(2) + 1
    assert [event.name for event in prof.function_events] == ["aten::ones"]
    with P.profile(on_trace_ready=P.tensorboard_trace_handler(str(tmp_path / "runs"), "worker")):
        mt.ones(2)
    assert [path.name[:7] for path in (tmp_path / "runs").glob("*.pt.trace.json")] == ["worker."]
    with pytest.raises(AttributeError, match="cannot sort by 'colour'"):
        prof.table(sort_by="colour")


@twin
def test_events_form_a_tree(t: Any) -> Any:
    u, p = t.autograd.profiler_util, t.autograd.profiler

    def event(number: int, start: int, end: int, **more: Any) -> Any:
        return u.FunctionEvent(id=number, node_id=0, name="a", thread=1, start_us=start, end_us=end, **more)

    made = u.EventList([event(1, 0, 20), event(2, 1, 5), event(3, 6, 8), event(4, 2, 3)])
    made._populate_cpu_children()
    tree = [([c.id for c in e.cpu_children], e.cpu_time_total, e.self_cpu_time_total, e.cpu_parent is None) for e in made]
    whole = u.FunctionEventAvg().add(event(5, 0, 4)).add(event(6, 5, 9))
    x = t.ones(2, requires_grad=True)
    with p.profile(record_shapes=True) as prof:
        with p.record_function("outer"):
            y = x.exp()
        t.autograd._record_function_with_args_exit(t.autograd._record_function_with_args_enter("own", y, 1, None))
        y.backward(t.ones(2))
    seen = {e.name: e for e in prof.function_events}
    inside = [c.name for c in seen["outer"].cpu_children]
    pair = [seen["aten::exp"].sequence_nr == seen["ExpBackward0"].sequence_nr >= 0, seen["ExpBackward0"].fwd_thread,
            seen["aten::exp"].fwd_thread, seen["own"].input_shapes, seen["aten::exp"].thread]
    states = [p._is_profiler_enabled, error(prof.__enter__), repr(event(7, 1, 2)), t.autograd._supported_activities().__len__()]
    averages = {e.key: (e.count, e.input_shapes) for e in prof.key_averages(group_by_input_shape=True)
                if e.key in ("own", "outer", "aten::exp")}
    return tree, whole.count, whole.cpu_time, repr(whole), inside, pair, states, averages, u._format_time(2500), str(u.EventList())


@twin
def test_events_of_another_thread_are_not_recorded(t: Any) -> Any:
    with t.autograd.profiler.profile() as prof:
        thread = threading.Thread(target=lambda: t.ones(2).exp())
        thread.start()
        thread.join()
        t.ones(2).cos()
    return [e.name for e in prof.function_events if e.name in ("aten::exp", "aten::cos")]


def test_waits_of_the_host_are_in_the_trace(npu: Any, tmp_path: Path) -> None:
    x = mt.ones(4, device="npu")
    with P.profile(with_stack=True) as prof:
        (x + 1).sum().item()
        npu.synchronize()
    npu.synchronize()
    prof.export_chrome_trace(str(tmp_path / "t.json"))
    events = [e for e in json.loads((tmp_path / "t.json").read_text())["traceEvents"] if e["name"].startswith("host wait")]
    assert [e["name"] for e in events] == ["host wait: copy from npu to cpu", "host wait: torch.npu.synchronize"]
    assert all("test_profiler.py(" in e["args"]["Call stack"] and e["dur"] > 0 for e in events)
