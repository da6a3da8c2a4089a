"""torch.utils.flop_counter, benchmark and tensorboard, and torch.monitor, against PyTorch's."""
from __future__ import annotations

import datetime
import re
from typing import Any

import pytest
import torch
import torch.utils.benchmark
import torch.utils.flop_counter

import mindtorch_v2
import mindtorch_v2.utils.benchmark
import mindtorch_v2.utils.flop_counter


def measured(lib: Any) -> list[str]:
    """What measurements of given times say."""
    bench = lib.utils.benchmark

    def made(times: list[float], **task: Any) -> Any:
        return bench.Measurement(100, times, bench.TaskSpec(**{"stmt": "x + y", "setup": "pass", **task}))
    alone = [made([1e-4, 1.1e-4, 1.05e-4, 1.2e-4, 0.9e-4]), made([1.0]), made([1e-4, 2e-4, 3e-4], stmt="a\nb", setup="c\nd"),
             made([1e-4, 3e-4, 9e-4, 2e-4], label="L", sub_label="S", description="D", num_threads=2)]
    said = [repr(m).split("\n", 1)[1] for m in alone]
    said += [str((round(m.median, 12), round(m.mean, 12), round(m.iqr, 12), m.significant_figures, m.has_warnings, m.title,
                  m.as_row_name)) for m in alone]
    rows = [made([1e-4 * i + j * 1e-5, 1.2e-4 * i], label="lab", sub_label=f"s{j}", description=f"d{i}", num_threads=t)
            for i in (1, 2) for j in (1, 2) for t in (1, 4)]
    table = bench.Compare(rows)
    said.append(str(table))
    table.trim_significant_figures()
    table.highlight_warnings()
    said.append(str(table))
    colored = bench.Compare(rows)
    colored.colorize()
    said.append(str(colored))
    return [*said, str(bench.select_unit(3e-3)), bench.unit_to_english("us")]


def test_measurements_are_shown_as_in_torch() -> None:
    for mine, its in zip(measured(mindtorch_v2), measured(torch)):
        assert mine == its


def test_a_timer_measures() -> None:
    bench = mindtorch_v2.utils.benchmark
    timer = bench.Timer("x + y", setup="x = torch.ones(2); y = x", label="add")
    assert timer.timeit(20).number_per_run == 20
    found = timer.blocked_autorange(min_run_time=0.01)
    assert found.median > 0 and sum(found.raw_times) >= 0.01 and found.label == "add"
    with pytest.raises(NameError):
        bench.Timer("not_defined").timeit(2)
    with pytest.raises(NotImplementedError, match="compiles no C"):
        bench.Timer("x", language="c++")


def flops(lib: Any) -> tuple[int, dict[str, int]]:
    """The operations of some layers, forward and backward, in all and by module."""
    nn = lib.nn
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(4, 2, 2, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(288, 5))
    x = lib.ones(2, 3, 8, 8, requires_grad=True)
    with lib.utils.flop_counter.FlopCounterMode(display=False) as counter:
        y = net(x)
        (y @ y.T).sum().backward()
        lib.bmm(lib.ones(2, 3, 4), lib.ones(2, 4, 5))
        lib.matmul(lib.ones(2, 2, 3, 4), lib.ones(2, 2, 4, 5))
    with lib.utils.flop_counter.FlopCounterMode(display=False) as forward, lib.no_grad():
        net(x)
    return counter.get_total_flops(), {name: sum(v.values()) for name, v in forward.get_flop_counts().items()}


def test_operations_are_counted_as_in_torch() -> None:
    assert flops(mindtorch_v2) == flops(torch)


def test_statistics_are_handed_on() -> None:
    monitor = mindtorch_v2.monitor
    seen: list[Any] = []
    handle = monitor.register_event_handler(seen.append)
    kinds = monitor.Aggregation
    stat = monitor.Stat("speed", [kinds.MEAN, kinds.MAX, kinds.COUNT], datetime.timedelta(hours=1), max_samples=2)
    stat.add(1)
    assert stat.get() == {kinds.MEAN: 1.0, kinds.MAX: 1.0, kinds.COUNT: 1.0} and stat.count == 1
    stat.add(3)
    assert seen[0].data == {"speed.mean": 2.0, "speed.max": 3.0, "speed.count": 2.0} and stat.count == 0
    monitor.unregister_event_handler(handle)
    monitor.log_event(monitor.Event("x", datetime.datetime.now(), {}))
    assert len(seen) == 1


def test_tensorboard_is_there_or_says_what_to_do(tmp_path: Any) -> None:
    try:
        from mindtorch_v2.utils.tensorboard import SummaryWriter
    except ImportError as error:
        assert re.search("pip install tensorboard", str(error))
        return
    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_scalar("loss", mindtorch_v2.tensor(2.0), 1)
        writer.add_histogram("weights", mindtorch_v2.randn(10), 1)
        writer.add_text("note", "text")
    assert any(path.stat().st_size > 0 for path in tmp_path.iterdir())
