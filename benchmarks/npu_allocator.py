"""Replays the allocations of a training run through an npu caching allocator: 100,000 malloc/free pairs.

The run is recorded from PyTorch on the CPU (a small transformer, AdamW), so both libraries get the same requests in the
same order: `npu_allocator.py` measures mindtorch_v2, `npu_allocator.py --library torch_npu` the peer, each in a process
of its own. Memory comes from the npu that CANN finds, or from the simulator.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

PAIRS = 100_000
Trace = list[tuple[int, int]]  # (slot, bytes) takes memory into a slot, (slot, 0) gives the slot's memory back


class Door(NamedTuple):
    """How a library allocates without a tensor, and what it says about it."""

    malloc: Callable[[int, int], int]
    free: Callable[[int], None]
    stream: int
    peak_reserved: Callable[[], int]
    empty_cache: Callable[[], None]


def training_steps(steps: int) -> None:
    import torch

    layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
    model = torch.nn.Sequential(torch.nn.TransformerEncoder(layer, 4), torch.nn.Linear(256, 1000))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    for _ in range(steps):
        loss = torch.nn.functional.cross_entropy(model(torch.randn(8, 64, 256)).flatten(0, 1), torch.zeros(512).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def record(steps: int = 6) -> Trace:
    """The allocations and frees of a few training steps, in order; what was still alive at the end is freed there."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        training_steps(steps)
    found, waiting = [], list(profiler.profiler.kineto_results.experimental_event_tree())
    while waiting:
        event = waiting.pop()
        waiting += event.children
        if event.name == "[memory]":
            found.append((event.start_time_ns, event.extra_fields.ptr, event.extra_fields.alloc_size))
    trace: Trace = []
    slots: dict[int, int] = {}
    for _, pointer, size in sorted(found, key=lambda event: event[0]):
        if size > 0 and pointer not in slots:
            slots[pointer] = len(trace)
            trace.append((slots[pointer], size))
        elif size < 0 and pointer in slots:  # a block that is older than the recording is not in slots
            trace.append((slots.pop(pointer), 0))
    return trace + [(slot, 0) for slot in slots.values()]


def mindtorch_door() -> Door:
    import mindtorch_v2 as torch

    if not torch.npu.is_available():
        import cann_sim

        os.environ["ASCEND_HOME_PATH"] = cann_sim.home()
    heap = torch.npu._get_allocator()._heap
    stream = torch.npu.current_stream().npu_stream
    return Door(heap.malloc, heap.free, stream, torch.npu.max_memory_reserved, torch.npu.empty_cache)


def torch_npu_door() -> Door:
    import torch
    import torch_npu

    torch.npu.init()
    stream = torch.npu.current_stream().npu_stream
    return Door(torch_npu._C._npu_npuCachingAllocator_raw_alloc, torch_npu._C._npu_npuCachingAllocator_raw_delete, stream,
                torch.npu.max_memory_reserved, torch.npu.empty_cache)  # fmt: skip


def replay(trace: Trace, pairs: int, door: Door) -> float:
    """Seconds of `pairs` pairs; the trace starts again when it ends."""
    malloc, free, stream = door.malloc, door.free, door.stream
    held = [0] * len(trace)
    rounds = pairs * 2 // len(trace)
    begin = time.perf_counter()
    for _ in range(rounds):
        for slot, size in trace:
            if size:
                held[slot] = malloc(size, stream)
            else:
                free(held[slot])
    return (time.perf_counter() - begin) * pairs * 2 / (rounds * len(trace))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--library", choices=("mindtorch_v2", "torch_npu"), default="mindtorch_v2")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    trace = record()
    door = torch_npu_door() if options.library == "torch_npu" else mindtorch_door()
    seconds = [replay(trace, options.pairs, door) for _ in range(options.repeats)]
    sizes = [size for _, size in trace if size]
    print(f"trace: {len(sizes):,} allocations, {sum(sizes) / 2**20:,.0f} MB, the largest {max(sizes) / 2**20:.1f} MB")
    print(f"{options.library}: {options.pairs:,} pairs in {statistics.median(seconds) * 1e3:.1f} ms, "
          f"{statistics.median(seconds) / options.pairs * 1e9:.0f} ns a pair; "
          f"peak reserved {door.peak_reserved() / 2**20:,.0f} MB")  # fmt: skip
    door.empty_cache()


if __name__ == "__main__":
    main()
