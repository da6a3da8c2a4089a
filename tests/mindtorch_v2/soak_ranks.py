"""Ranks of DDP and FSDP training killed at random moments, on both engines: the others end with an error within the timeout of the
group, no process is left, and no file of shared memory.

    make soak PART=ranks ARGS="--count 30"
"""

from __future__ import annotations

import datetime
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

TIMEOUT = 15.0                                    # seconds, of the groups
SLACK = 40.0                                      # for processes that have not even started on a busy machine
SIZE = 3
SHARED_MEMORY = Path("/dev/shm")


class Plan(NamedTuple):
    """One run."""
    engine: str
    wrapper: str
    way: str                                      # how ranks find one another: file, tcp, or the launcher's way
    victim: int                                   # a rank; SIZE: the launcher
    trains: bool                                  # killed in training, or counted from the start
    wait: float

    def __str__(self) -> str:
        who = "the launcher" if self.victim == SIZE else f"rank {self.victim}"
        when = f"{self.wait:.2f} s after {'its first step' if self.trains else 'the start'}"
        return f"{self.wrapper} on {self.engine} ({self.way}), {who} killed {when}"


def drawn(draw: random.Random, number: int) -> Plan:
    engine, wrapper = (("gloo", "ddp"), ("hccl", "ddp"), ("gloo", "fsdp"), ("hccl", "fsdp"))[number % 4]
    way = draw.choice(("file", "tcp", "launcher"))
    trains = draw.random() < 0.6
    victim = draw.randrange(SIZE + (way == "launcher"))
    return Plan(engine, wrapper, way, victim, trains, draw.uniform(0, 0.7 if trains else 5))


# ---- one rank -----------------------------------------------------------------------------------------------------------
def train(engine: str, wrapper: str, way: str, folder: str) -> None:
    """Trains until it is killed or another rank is gone."""
    import mindtorch_v2 as torch

    rank = int(os.environ["RANK"])
    Path(folder, f"pid.{rank}").write_text(str(os.getpid()))
    torch.set_num_threads(1)
    device = f"npu:{rank}" if engine == "hccl" else "cpu"
    if engine == "hccl":
        torch.npu.set_device(rank)
    method = f"file://{folder}/store" if way == "file" else "env://"
    torch.distributed.init_process_group(engine, init_method=method, rank=rank, world_size=SIZE,
                                         timeout=datetime.timedelta(seconds=TIMEOUT))  # fmt: skip
    nn = torch.nn
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 8)).to(device)
    if wrapper == "ddp":
        net = nn.parallel.DistributedDataParallel(net)
    else:
        mesh = torch.distributed.init_device_mesh(torch.device(device).type, (SIZE,))
        torch.distributed.fsdp.fully_shard(net, mesh=mesh)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    x = torch.randn(16, 64, device=device)
    while True:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        float(loss)
        Path(folder, f"trains.{rank}").touch()


# ---- the killer ---------------------------------------------------------------------------------------------------------
def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def started(plan: Plan, folder: Path) -> list[subprocess.Popen[bytes]]:
    environment = os.environ | {"CANN_SIM_DEVICES": str(SIZE), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    worker = [__file__, plan.engine, plan.wrapper, plan.way, str(folder)]
    if plan.way == "launcher":
        said = (folder / "said.launcher").open("w")
        command = [sys.executable, "-m", "mindtorch_v2.distributed.run", "--standalone", "--nproc-per-node", str(SIZE), *worker]
        return [subprocess.Popen(command, stdout=said, stderr=said, env=environment)]
    return [subprocess.Popen([sys.executable, *worker], stdout=(said := (folder / f"said.{rank}").open("w")), stderr=said,
                             env=environment | {"RANK": str(rank)}) for rank in range(SIZE)]  # fmt: skip


def processes_of(folder: Path) -> list[int]:
    """The processes whose command names a folder, as all ranks of a run and their helpers do."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(folder).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:                           # it has ended in between
            continue
    return [pid for pid in found if pid != os.getpid()]


def until(condition: object, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():                        # type: ignore[operator]
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def kill(plan: Plan, processes: list[subprocess.Popen[bytes]], folder: Path) -> bool:
    """Waits for the moment, and kills. False: the machine was too slow for the timeout, and the ranks have said so."""
    names = [folder / f"trains.{rank}" for rank in range(SIZE)]

    def begun_or_ended() -> bool:
        return all(name.exists() for name in names) or all(process.poll() is not None for process in processes)

    if plan.trains and (not until(begun_or_ended, 240) or not all(name.exists() for name in names)):
        return False
    time.sleep(plan.wait)
    if plan.victim == SIZE:
        target = processes[0].pid
    elif plan.way == "launcher":
        pid = folder / f"pid.{plan.victim}"
        until(pid.exists, 60)
        until(lambda: bool(pid.read_text()), 5)
        target = int(pid.read_text())
    else:
        target = processes[plan.victim].pid
    os.kill(target, signal.SIGKILL)
    return True


def survived(plan: Plan, folder: Path) -> tuple[list[str], float]:
    """(what went wrong, seconds until all had ended)."""
    processes, wrong = started(plan, folder), []
    try:
        killed = kill(plan, processes, folder)
        began = time.monotonic()
        if not until(lambda: all(process.poll() is not None for process in processes), TIMEOUT + SLACK):
            wrong.append(f"still running after {TIMEOUT + SLACK:.0f} s")
        took = time.monotonic() - began
        if not until(lambda: not processes_of(folder), 8):
            wrong.append(f"left over: {processes_of(folder)}")
        said = {file.name: file.read_text() for file in folder.glob("said.*")}
        if plan.victim != SIZE:
            wrong += told(plan if killed else plan._replace(victim=SIZE + 1), processes, said)
        wrong += [f"{name} said {text[-600:]!r}" for name, text in said.items() if wrong]
    finally:
        for pid in processes_of(folder):
            os.kill(pid, signal.SIGKILL)
        for process in processes:
            process.wait()
    return wrong, took


def told(plan: Plan, processes: list[subprocess.Popen[bytes]], said: dict[str, str]) -> list[str]:
    """What is missing in what the ranks that were not killed have said."""
    wrong = [f"{name}: {line}" for name, text in said.items() for line in text.splitlines()
             if "Segmentation" in line or "Fatal Python" in line or "core dumped" in line]  # fmt: skip
    if plan.way == "launcher":
        return wrong if processes[0].returncode else [*wrong, "the launcher returned 0"]
    for rank, process in enumerate(processes):
        text = said[f"said.{rank}"]
        if rank != plan.victim and (process.returncode == 0 or "rror" not in text and "torch.distributed:" not in text):
            wrong.append(f"rank {rank} ended with {process.returncode} and said {text[-300:]!r}")
    return wrong


def run(count: int, seed: int) -> str:
    """One run after the other; raises AssertionError with all that went wrong."""
    draw, failures, longest = random.Random(seed), [], 0.0
    for number in range(count):
        plan = drawn(draw, number)
        before = set(os.listdir(SHARED_MEMORY))
        with tempfile.TemporaryDirectory(prefix="ranks-") as folder:
            wrong, took = survived(plan, Path(folder))
        longest = max(longest, took)
        left = [name for name in set(os.listdir(SHARED_MEMORY)) - before if not in_use(name)]
        if left:
            wrong.append(f"left in /dev/shm: {left}")
        print(f"{'WRONG' if wrong else 'ok   '} {plan}: {took:.1f} s {' '.join(wrong)}", flush=True)
        failures += [f"{plan}: {text}" for text in wrong]
    assert not failures, "\n".join(failures)
    return f"{count} runs, the others ended within {longest:.1f} s"


def in_use(name: str) -> bool:
    """Whether a process that lives maps a file of shared memory: other programs of the machine make some too."""
    place = str(SHARED_MEMORY / name).encode()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            if place in maps.read_bytes():
                return True
        except OSError:                           # it has ended in between
            continue
    return False


if __name__ == "__main__":
    train(*sys.argv[1:5])
