"""torch.profiler: which steps are recorded, as in torch; what a recording holds, on the cpu and on the npu."""

from __future__ import annotations

import json
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
    assert counts == {"model": 1, "aten::linear": 1, "halved": 1, "aten::div": 1, "aten::sum": 1, **backward,
                      **{f"autograd::engine::evaluate_function: {name}": n for name, n in backward.items()}}
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
