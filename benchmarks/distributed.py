"""torch.distributed beside PyTorch's gloo: two processes on this host, the same program on both, times and ratios.

    python benchmarks/distributed.py [--seconds 3] [--rounds 3]
    python benchmarks/distributed.py --growth 2,4,8,16      # ranks on simulated npus in null mode
    python benchmarks/distributed.py --peer PYTHON          # host cost beside torch_npu, on simulated npus in null mode
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

SIZES = {"all_reduce 1 kB": 256, "all_reduce 1 MB": 1 << 18, "all_reduce 64 MB": 1 << 24}


def timed(torch: Any, call: Callable[[], Any], seconds: float) -> float:
    """The time that 19 of 20 calls exceed, which other work on the machine changes least; all ranks make as many calls."""
    begin = time.perf_counter()
    call()
    call()
    count = torch.tensor([max(int(seconds / max((time.perf_counter() - begin) / 2, 1e-6)), 5)])
    torch.distributed.broadcast(count, 0)
    times = []
    for _ in range(min(int(count), 2000)):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return sorted(times)[len(times) // 20]


def trainers(torch: Any) -> dict[str, Callable[[], Any]]:
    """One step of training with DistributedDataParallel."""
    nn, made = torch.nn, {}
    transformer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True)
    nets = {"DDP MLP": (nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)),
                        torch.randn(32, 256)),
            "DDP transformer": (nn.Sequential(transformer, nn.Linear(128, 10)), torch.randn(4, 32, 128))}  # fmt: skip
    for name, (net, x) in nets.items():
        ddp = nn.parallel.DistributedDataParallel(net)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)

        def step(ddp: Any = ddp, optimizer: Any = optimizer, x: Any = x) -> None:
            optimizer.zero_grad()
            ddp(x).square().mean().backward()
            optimizer.step()

        def alone(ddp: Any = ddp, step: Any = step) -> None:
            with ddp.no_sync():
                step()

        sent = torch.ones(sum(p.numel() for p in ddp.parameters()))
        made[name] = step
        made[name + ", alone"] = alone            # the same step without its communication
        made[name + ", sent"] = lambda sent=sent: torch.distributed.all_reduce(sent)   # what the step sends, and nothing else
    return made


def hidden(results: dict[str, float], name: str) -> float:
    """The share of a step's communication that its backward hides."""
    return 1 - (results[name] - results[name + ", alone"]) / results[name + ", sent"]


def worker(library: str, rank: int, size: int, store: str, seconds: float) -> None:
    torch = importlib.import_module(library)
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    results = {}
    for name, count in SIZES.items():
        t = torch.ones(count)
        results[name] = timed(torch, lambda: torch.distributed.all_reduce(t), seconds)
    for name, step in trainers(torch).items():
        results[name] = timed(torch, step, seconds)
    if rank == 0:
        print(json.dumps(results))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def grown(rank: int, size: int, store: str, steps: int = 50) -> None:
    """One rank of a group of npus whose kernels do nothing: what the host alone costs."""
    import mindtorch_v2 as torch

    torch.set_num_threads(1)
    device = rank % torch.npu.device_count()      # more ranks than devices share them
    torch.npu.set_device(device)
    begin = time.perf_counter()
    torch.distributed.init_process_group("hccl", init_method=f"file://{store}", rank=rank, world_size=size)
    t = torch.ones(1024, device=f"npu:{device}")
    torch.distributed.all_reduce(t)
    torch.npu.synchronize()
    ready = time.perf_counter() - begin
    begin = time.process_time()
    for _ in range(steps):
        torch.distributed.all_reduce(t)
    host = (time.process_time() - begin) / steps
    torch.npu.synchronize()
    if rank == 0:
        print(json.dumps({"init": ready, "host": host, "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
    torch.distributed.barrier()


def host_costs(library: str, rank: int, size: int, store: str, steps: int = 40) -> None:
    """What a collective costs the host, on npus whose kernels do nothing; library is ours or torch_npu."""
    torch = importlib.import_module("torch" if library == "torch_npu" else library)
    if library == "torch_npu":
        importlib.import_module(library)
    torch.set_num_threads(1)
    torch.npu.set_device(rank)
    torch.distributed.init_process_group("hccl", init_method=f"file://{store}", rank=rank, world_size=size)
    one, all_of_them = (torch.ones(count, device=f"npu:{rank}") for count in (1024, 1024 * size))
    calls = {
        "all_reduce": lambda: torch.distributed.all_reduce(one),
        "broadcast": lambda: torch.distributed.broadcast(one, 0),
        "all_gather_into_tensor": lambda: torch.distributed.all_gather_into_tensor(all_of_them, one),
        "reduce_scatter_tensor": lambda: torch.distributed.reduce_scatter_tensor(one, all_of_them),
        "all_reduce, async_op": lambda: torch.distributed.all_reduce(one, async_op=True).wait(),
    }
    results = {}
    for name, call in calls.items():
        costs = []
        for _ in range(25):
            begin = time.thread_time()            # of this thread: neither the other rank nor the device counts
            for _ in range(steps):
                call()
            costs.append((time.thread_time() - begin) / steps)
            torch.npu.synchronize()
        results[name] = min(costs)                # what other processes of the machine add is not the library's
    if rank == 0:
        print(json.dumps(results), flush=True)
    torch.distributed.barrier()
    torch.npu.synchronize()
    os._exit(0)                                   # torch_npu's end on the simulator is not what is measured


def together(size: int, *flags: str, environment: dict[str, str] | None = None, python: str = sys.executable) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        command = [python, __file__, "--size", str(size), "--store", f"{folder}/store", *flags]
        ranks = [subprocess.Popen([*command, "--rank", str(rank)], stdout=subprocess.PIPE, text=True,
                                  env=os.environ | (environment or {})) for rank in range(size)]  # fmt: skip
        try:
            while any(rank.poll() is None for rank in ranks) and not any(rank.returncode for rank in ranks):
                time.sleep(0.05)
        finally:
            for rank in ranks:
                rank.kill()                       # those that wait for one that failed; nothing where all are done
        said = [rank.communicate()[0] for rank in ranks]
    assert not any(rank.returncode for rank in ranks), "a rank failed"
    return json.loads(said[0].strip().splitlines()[-1])


def rounds(count: int, run: Callable[[str], dict[str, float]], libraries: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """The best of several runs each, in turn: what else the machine does meets both."""
    best: dict[str, dict[str, float]] = {library: {} for library in libraries}
    for _ in range(count):
        for library in libraries:
            for name, cost in run(library).items():
                best[library][name] = min(cost, best[library].get(name, cost))
    return best


def print_ratios(results: dict[str, dict[str, float]], peer: str) -> None:
    print(f"load of the machine {os.getloadavg()[0]:.1f}\n{'':<24}{peer + ' us':>14}{'ours us':>12}{'ratio':>8}")
    for name, theirs in results[peer].items():
        ours = results["mindtorch_v2"][name]
        print(f"{name:<24}{1e6 * theirs:>14.1f}{1e6 * ours:>12.1f}{theirs / ours:>8.2f}", flush=True)


def simulated(size: int) -> dict[str, str]:
    """An environment with npus that compute nothing."""
    import cann_sim

    return cann_sim.env() | {"CANN_SIM_DEVICES": str(min(size, 16)), "CANN_SIM_MODE": "null", "TASK_QUEUE_ENABLE": "0"}


WORKERS = {"costs": lambda a: host_costs(a.library, a.rank, a.size, a.store), "grown": lambda a: grown(a.rank, a.size, a.store),
           "": lambda a: worker(a.library, a.rank, a.size, a.store, a.seconds)}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=2, help="runs of each library, in turn; the best count")
    parser.add_argument("--growth", default="", help="numbers of ranks")
    parser.add_argument("--peer", default="", help="a python with torch_npu")
    for name in ("--library", "--store", "--work"):     # of a worker
        parser.add_argument(name, default="")
    parser.add_argument("--rank", type=int, default=-1)
    parser.add_argument("--size", type=int, default=2)
    args = parser.parse_args()
    flags = ("--seconds", str(args.seconds), "--library")
    if args.rank >= 0:
        WORKERS[args.work](args)
    elif args.growth:
        print(f"load of the machine {os.getloadavg()[0]:.1f}")
        print(f"{'ranks':>6}{'init s':>10}{'MB/rank':>10}{'host us':>10}")
        for size in map(int, args.growth.split(",")):
            got = together(size, "--work", "grown", environment=simulated(size))
            print(f"{size:>6}{got['init']:>10.2f}{got['memory']:>10.0f}{1e6 * got['host']:>10.1f}", flush=True)
    elif args.peer:
        pythons = {"torch_npu": args.peer, "mindtorch_v2": sys.executable}
        print_ratios(rounds(args.rounds, lambda library: together(
            2, "--work", "costs", "--library", library, environment=simulated(2), python=pythons[library]), tuple(pythons)),
            "torch_npu")  # fmt: skip
    else:
        results = rounds(args.rounds, lambda library: together(2, *flags, library), ("torch", "mindtorch_v2"))
        print_ratios(results, "torch")
        for name in ("DDP MLP", "DDP transformer"):
            shares = {library: hidden(found, name) for library, found in results.items()}
            print(f"{name}: {shares['torch']:.0%} of the communication is hidden by backward, ours {shares['mindtorch_v2']:.0%}")


if __name__ == "__main__":
    main()
