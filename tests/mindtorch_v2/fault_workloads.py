"""The programs that the fault sweep runs. Each makes all that it uses, ends it, and returns numbers that never differ."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, NamedTuple

import mindtorch_v2 as torch
from mindtorch_v2 import nn

MIB = 1 << 20


class Workload(NamedTuple):
    run: Callable[[], list[float]]
    settings: dict[str, str] = {}
    devices: int = 1
    whole_process: bool = False  # from loading CANN to the end of the process, each place in a process of its own


def _batch(seed: int) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(8, 6, generator=generator), torch.randint(0, 4, (8,), generator=generator)


def train() -> list[float]:
    """Two steps: copies from pinned memory, layers, random numbers, lists of tensors, results that the data sizes."""
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.GELU(), nn.Dropout(0.25), nn.Linear(5, 4)).to("npu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    numbers: list[float] = []
    for step in range(2):
        inputs, targets = (t.pin_memory().to("npu", non_blocking=True) for t in _batch(step))
        loss = nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        kept = inputs[inputs > 0]
        numbers += [loss.item(), float(kept.numel()), kept.sum().item()]
    numbers += [parameter.detach().double().sum().item() for parameter in model.parameters()]
    return numbers


def graph() -> list[float]:
    """A capture, two replays with new inputs and random numbers, and the end of the graph."""
    torch.manual_seed(6)
    layer, captured = nn.Linear(4, 4).to("npu"), torch.npu.NPUGraph()
    inputs = torch.zeros(3, 4, device="npu")
    with torch.no_grad():
        layer(inputs)
        with torch.npu.graph(captured):
            outputs = nn.functional.dropout(layer(inputs).relu() + 1, 0.5)
    numbers: list[float] = []
    for step in range(2):
        inputs.fill_(step + 1)
        captured.replay()
        numbers.append(outputs.sum().item())
    torch.npu.synchronize()
    captured.reset()
    return numbers


def pipeline() -> list[float]:
    """Copies, work and copies back on three streams that wait for one another's events."""
    npu = torch.npu
    load, work, back = npu.Stream(), npu.Stream(), npu.current_stream()
    start, end = npu.Event(enable_timing=True), npu.Event(enable_timing=True)
    results = []
    start.record(work)
    for step in range(3):
        source = torch.full((64,), float(step)).pin_memory()
        with npu.stream(load):
            moved = source.to("npu", non_blocking=True)
        arrived = load.record_event()
        with npu.stream(work):
            work.wait_event(arrived)
            moved.record_stream(work)
            doubled = moved * 2 + 1
        back.wait_stream(work)
        doubled.record_stream(back)
        host = torch.empty(64).pin_memory()
        host.copy_(doubled, non_blocking=True)
        results.append(host)
        del moved, doubled
    end.record(work)
    back.synchronize()
    end.synchronize()
    assert end.query() and start.elapsed_time(end) >= 0
    npu.synchronize()
    return [host.sum().item() for host in results]


def out_of_memory() -> list[float]:
    """Takes memory until there is none, gives it back, and goes on; the device has 32 MiB."""
    numbers: list[float] = []
    for _ in range(2):
        held = [torch.ones(MIB // 2, device="npu")]
        try:
            while len(held) < 32:
                held.append(torch.full((2 * MIB,), 2.0, device="npu"))
        except torch.OutOfMemoryError:
            numbers.append(float(len(held)))
        numbers.append(held[-1][-1].item())
        held.clear()
        torch.npu.empty_cache()
    return numbers


def segments() -> list[float]:
    """Memory of several sizes in segments that grow (expandable_segments), freed twice."""
    numbers: list[float] = []
    for _ in range(2):
        held = [torch.full((size,), 3.0, device="npu") for size in (100, 2 * MIB, 1000, MIB)]
        numbers += [t[-1].item() for t in held]
        del held[1]
        held.append(torch.full((3 * MIB,), 4.0, device="npu"))
        numbers.append(held[-1][0].item())
        held.clear()
        torch.npu.empty_cache()
    return numbers


def devices() -> list[float]:
    """Work on two devices, and copies between them."""
    near = torch.arange(12.0, device="npu:0").reshape(3, 4)
    far = (near + 1).to("npu:1")
    with torch.npu.device(1):
        far = far @ far.mT
        event = torch.npu.current_stream().record_event()
        event.wait(torch.npu.default_stream(0))
    back = far.to("npu:0")[:, 1:].mT.contiguous()
    return [back.sum().item(), (far.cpu() + 1).sum().item(), near.mT.to("npu:1").sum().item()]


def lists() -> list[float]:
    """Ops over lists of tensors and of numbers, scalars of several types, results whose sizes the data decides."""
    rows = [torch.arange(4.0, device="npu") + step for step in range(3)]
    torch._foreach_mul_(rows, [2.0, 3.0, 4.0])
    torch._foreach_add_(rows, rows, alpha=2)
    whole = torch.cat(rows)
    numbers = [whole.sum().item(), torch.linalg.vector_norm(whole).item(), whole.unique().sum().item()]
    numbers.append(torch.stack(rows)[torch.tensor([0, 2], device="npu"), 1:].sum().item())
    image = torch.arange(16.0, device="npu").reshape(1, 1, 4, 4)
    numbers.append(nn.functional.interpolate(image, scale_factor=2.0, mode="bilinear").sum().item())
    numbers.append(nn.functional.conv2d(image, torch.ones(1, 1, 2, 2, device="npu")).sum().item())
    numbers.append((whole.long() << 1).bitwise_and(6).sum().item())
    return numbers


def updates() -> list[float]:
    """A graph whose tasks get other arguments, and one that waits for an event from outside."""
    npu = torch.npu
    x, other = torch.ones(3, device="npu"), torch.full((3,), 5.0, device="npu")
    out, graph, side = torch.zeros(3, device="npu"), npu.NPUGraph(), npu.Stream()
    event = npu.ExternalEvent()
    with npu.graph(graph):
        event.wait()
        event.reset()
        npu.graph_task_group_begin(npu.current_stream())
        torch.add(x, x, out=out)
        handle = npu.graph_task_group_end(npu.current_stream())
    numbers: list[float] = []
    for step in range(2):
        if step:
            with npu.stream(side):
                npu.graph_task_update_begin(side, handle)
                torch.add(other, other, out=out)
                npu.graph_task_update_end(side)
            npu.synchronize()
        event.record(side)  # first: where the replay fails, nothing waits for ever
        graph.replay()
        numbers.append(out.sum().item())
    npu.synchronize()
    graph.reset()
    return numbers


def questions() -> list[float]:
    """Queries of torch.npu, and its settings."""
    npu = torch.npu
    stream = npu.Stream()
    with npu.stream(stream):
        ones = torch.ones(4, device="npu")
    event = npu.Event(enable_timing=True)
    event.record(stream)
    stream.synchronize()
    assert stream.query() and event.query() and event.recorded_time() >= 0 and event.event_id >= 0
    npu.get_device_properties(0), npu.utilization(0), npu.utils.get_cann_version(), npu.stream_priority_range()
    npu.set_stream_limit(stream, 2, 4)
    npu.set_device_limit(0, *npu.get_device_limit(0).values())
    limits = npu.get_stream_limit(stream)
    npu.reset_stream_limit(stream)
    npu.set_op_timeout_ms(10_000)
    npu.stop_device(0)
    npu.restart_device(0)
    return [float(npu.mem_get_info()[1]), ones.sum().item(), float(npu.check_uce_in_memory(0)), *map(float, limits.values()),
            float(npu.can_device_access_peer(0, 1)), float(stream.is_capturing())]  # fmt: skip


def restart() -> list[float]:
    """A device that is reset while tensors, graphs and prepared calls are alive, and started again."""
    numbers = graph()
    kept = torch.ones(4, device="npu")
    event = torch.npu.current_stream().record_event()
    torch.npu.restart_device(0, rebuild_all_resources=True)
    del kept, event
    return numbers + pipeline()


def small() -> list[float]:
    """A little of everything: what the sweeps of whole processes run."""
    return graph() + pipeline()


WORKLOADS = {
    "train": Workload(train),
    "graph": Workload(graph),
    "pipeline": Workload(pipeline),
    "oom": Workload(out_of_memory, {"CANN_SIM_MEMORY": "32M"}),
    "segments": Workload(segments, {"CANN_SIM_MEMORY": "64M", "CANN_SIM_STRICT": "0",
                                    "PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True"}),
    "devices": Workload(devices, devices=2),
    "restart": Workload(restart),
    "lists": Workload(lists),
    "updates": Workload(updates),
    "questions": Workload(questions),
    "blocking": Workload(lists, {"ACL_LAUNCH_BLOCKING": "1"}),
    "exit": Workload(small, whole_process=True),
}


def clean_up(devices: int) -> None:
    """Gives back what is only cached: what is alive afterwards is in use, or is leaked."""
    gc.collect()
    torch.npu.host_empty_cache()  # records the events that freed blocks wait for: the devices come to them below
    for index in range(devices):
        torch.npu.synchronize(index)
    torch.npu.empty_cache()
    torch.npu.host_empty_cache()
