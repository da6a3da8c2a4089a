"""Long runs: millions of ops in flat memory, many threads, signals at random times, every delay of the device,
ranks that are killed.

As a tool: `python tests/mindtorch_v2/soak.py ops|threads|signals|delay|ranks|all [--quick] [--seed N] …`; `make soak` runs all.
Each part prints its progress and ends with one line `PASS part: figures` or `FAIL part: …`; the exit code is 1 if any
failed. Where this machine has no card the npu parts run on the simulator, as the tests do."""
from __future__ import annotations

import argparse
import concurrent.futures
import copy
import gc
import io
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import soak_ranks

import mindtorch_v2 as torch
from mindtorch_v2 import _C

HERE = Path(__file__).resolve().parent
FLAT = 0.01                  # memory may grow by this share
EXIT_S = 5.0                 # a process that got a signal has this long
DELAYED = ("test_npu_graphs.py", "test_npu_memory_device.py", "test_npu_pinned.py", "test_npu_device.py",
           "test_npu_launch.py")
F = torch.nn.functional


def ensure_npu() -> None:
    """An npu for this process and its children: a card, else the simulator."""
    if not torch.npu.is_available():
        import cann_sim  # not needed where there is a card

        os.environ["ASCEND_HOME_PATH"] = cann_sim.home()
    if not torch.npu.is_available(verbose=True):
        raise SystemExit("no npu, and no simulator")


# ---- ops: memory stays flat -----------------------------------------------------------------------------------------
class Mix:
    """Random work on one device. Every method is one kind of it and returns about how many ops it called; what a kind
    gets wrong on purpose (an op that is refused) counts too: errors must not keep memory."""

    def __init__(self, device: str, seed: int) -> None:
        self.device, self.rng = device, random.Random(seed)
        torch.manual_seed(seed)
        self.model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.LayerNorm(32), torch.nn.GELU(),
                                         torch.nn.Dropout(0.1), torch.nn.Linear(32, 4)).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.weight = torch.randn(8, 8, device=device, requires_grad=True)
        self.kinds: list[Callable[[], int]] = [self.pointwise, self.views, self.reductions, self.matrices, self.indexing,
                                               self.in_place, self.backward, self.refusals, self.sizes, self.copies,
                                               self.loose_graph]
        self.rare: list[Callable[[], int]] = [self.training, self.files, self.hooks, self.cycles, self.text]

    def turn(self) -> int:
        """One kind of work, the slow ones seldom."""
        return self.rng.choice(self.rare if self.rng.random() < 0.02 else self.kinds)()

    def pointwise(self) -> int:
        a, b = torch.ones(7, 5, device=self.device), torch.full((5,), 2.0, device=self.device)
        for _ in range(6):
            a = (a * b + 1).tanh().exp() - a / b
        return 38

    def views(self) -> int:
        a = torch.arange(24, device=self.device).view(2, 3, 4)
        b = a.transpose(0, 1)[1:, :, ::2].unsqueeze(0).expand(3, -1, -1, -1)
        b.reshape(-1).contiguous().flip(0), a.permute(2, 0, 1).flatten().chunk(3), torch.stack([a, a]).unbind(0)
        return 14

    def reductions(self) -> int:
        a = torch.rand(6, 9, device=self.device)
        a.sum(), a.mean(0), a.max(1), a.softmax(1), a.argmin(), a.cumsum(0), a.std(), a.sort(1), a.norm(), a.any()
        return 11

    def matrices(self) -> int:
        a, b = torch.rand(9, 8, device=self.device), torch.rand(8, 4, device=self.device)
        F.linear(a @ b, torch.rand(6, 4, device=self.device)), torch.einsum("ij,jk->ik", a, b)
        torch.bmm(a.expand(2, -1, -1), b.expand(2, -1, -1))
        return 9

    def indexing(self) -> int:
        a = torch.rand(10, 4, device=self.device)
        i = torch.tensor([1, 5, 5, 2], device=self.device)
        a[i], a[a > 0.5], a.gather(0, i[None]), a.index_select(0, i), torch.where(a > 0.2, a, 0.0), torch.cat([a, a[2:4]])
        a[i] = 0.0
        return 12

    def in_place(self) -> int:
        a = torch.zeros(33, device=self.device)
        for _ in range(5):
            a.add_(1).mul_(0.5).clamp_(0, 3)
        a[3:9].fill_(2), a.copy_(torch.ones(33, device=self.device)), a.resize_(self.rng.randrange(1, 200))
        return 20

    def backward(self) -> int:
        loss = ((self.weight @ self.weight).relu() * self.weight.sigmoid()).sum()
        loss.backward()
        self.weight.grad = None
        torch.autograd.grad((self.weight ** 2).sum(), self.weight, create_graph=True)
        return 16

    def loose_graph(self) -> int:
        """A recorded graph without a backward."""
        y = self.weight
        for _ in range(8):
            y = (y * 1.01).cos()
        return 16

    def refusals(self) -> int:
        a = torch.ones(3, 4, device=self.device)
        for wrong in (lambda: a + torch.ones(5, device=self.device), lambda: a @ a, lambda: a.view(5, 5), lambda: a[9],
                      lambda: a.sum(7), lambda: torch.cat([a, a[0]]), lambda: self.weight.add_(1),
                      lambda: torch.ones(2, dtype=torch.int64, device=self.device, requires_grad=True)):
            try:
                wrong()
            except (RuntimeError, IndexError):
                continue
            raise AssertionError("not refused")
        return 14

    def sizes(self) -> int:
        made = [torch.ones(self.rng.randrange(1, 1 << self.rng.randrange(1, 15)), device=self.device) for _ in range(6)]
        self.rng.shuffle(made)
        return len([x + 1 for x in made]) * 2

    def copies(self) -> int:
        a = torch.ones(50, device=self.device).cpu().to(self.device).double().to(torch.int32).clone()
        return 6 + len(a.tolist()[:2]) // 2

    def training(self) -> int:
        x, y = torch.rand(8, 16, device=self.device), torch.tensor([0, 1, 2, 3] * 2, device=self.device)
        loss = F.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return 60

    def files(self) -> int:
        buffer = io.BytesIO()
        torch.save(self.model.state_dict(), buffer)
        buffer.seek(0)
        self.model.load_state_dict(torch.load(buffer))
        return 30

    def hooks(self) -> int:
        x = torch.ones(4, device=self.device, requires_grad=True)
        seen: list[Any] = []
        x.register_hook(lambda g: seen.append(g))
        y = (x * 2).sum()
        y.register_hook(lambda g: g * 2)
        y.backward()
        return 6

    def cycles(self) -> int:
        """Garbage that only the collector finds, and copies of modules."""
        x = torch.ones(64, device=self.device)
        x.me = [x]
        copy.deepcopy(self.model)
        return 12

    def text(self) -> int:
        return 20 * bool(repr(torch.rand(5, 5, device=self.device)) + str(self.model))


def resident() -> int:
    """Bytes of this process in memory, when caches are empty and garbage is collected."""
    gc.collect()
    if torch.npu.is_initialized():
        torch.npu.synchronize()
        torch.npu.empty_cache()
    _C._cpu_empty_cache()
    with open("/proc/self/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def allocated(device: str) -> int:
    """Bytes that live tensors of the device hold."""
    return _C._cpu_memory_stats()["allocated_bytes"] if device == "cpu" else torch.npu.memory_allocated()


def flat_ops(device: str, count: int, seed: int) -> str:
    """Runs count ops and compares memory in the first part with that at the end: medians, for how far the streams' queues
    grew differs. Before, everything that is kept on purpose is filled: what first calls load, the queues, and on an npu
    the 4,096 prepared calls."""
    mix, done, marks, begin = Mix(device, seed), 0, [], time.monotonic()
    for kind in [*mix.kinds, *mix.rare] * 20 + [mix.sizes] * 1500 + [mix.pointwise] * 300:
        kind()
    for part in range(1, 11):
        while done < count * part // 10:
            done += mix.turn()
        marks.append((resident(), allocated(device)))
        print(f"  {device}: {done:,} ops, {marks[-1][0] / 2**20:.1f} MiB resident, {marks[-1][1]:,} bytes allocated, "
              f"{done / (time.monotonic() - begin):,.0f} ops/s", flush=True)
    first, held, last, kept = (statistics.median(column) for part in (marks[1:4], marks[-3:]) for column in zip(*part))
    text = f"{device} {done:,} ops, {first / 2**20:.1f} -> {last / 2**20:.1f} MiB"
    if last > first * (1 + FLAT) or kept > held * (1 + FLAT) + 4096:
        raise AssertionError(f"memory grew: {text}; allocated {held:,.0f} -> {kept:,.0f} bytes")
    return text


def run_ops(args: argparse.Namespace) -> str:
    ensure_npu()
    return "; ".join(flat_ops(device, args.ops, args.seed) for device in ("cpu", "npu"))


# ---- threads: many, on two devices ----------------------------------------------------------------------------------
def train_once(device: str, seed: int) -> list[float]:
    """A few steps that depend on the seed alone: drawn on the cpu by a generator of its own."""
    draw = torch.Generator().manual_seed(seed)
    w = [torch.randn(12, 12, generator=draw).to(device).requires_grad_() for _ in range(2)]
    x = torch.randn(8, 12, generator=draw).to(device, non_blocking=True)
    losses = []
    for _ in range(4):
        loss = F.mse_loss((x @ w[0]).tanh() @ w[1], x)
        grads = torch.autograd.grad(loss, w)
        w = [(p - 0.1 * g).detach().requires_grad_() for p, g in zip(w, grads)]
        losses.append(loss.item())
    return losses


def visit(index: int, other: int, seed: int) -> None:
    """Work on a stream of its own, copies to the other device and back, memory that another stream uses, a refusal."""
    stream = torch.npu.Stream(device=index)
    with torch.npu.stream(stream):
        a = torch.full((1000 + seed % 50,), float(seed % 7), device=f"npu:{index}")
        b = (a.to(f"npu:{other}") + 1).to(f"npu:{index}")
        event = stream.record_event()
    torch.npu.current_stream(index).wait_event(event)
    b.record_stream(torch.npu.current_stream(index))
    total = b.sum().item()
    expected = a.numel() * (seed % 7 + 1)
    if total != expected:
        raise AssertionError(f"npu:{index}: {total} instead of {expected}")
    try:
        a + b[:3]
    except RuntimeError:
        return
    raise AssertionError("not refused")


def run_threads(args: argparse.Namespace) -> str:
    ensure_npu()
    devices = torch.npu.device_count()
    expected = {seed: train_once("cpu", seed) for seed in range(64)}
    failures, turns, end = [], [0] * args.count, time.monotonic() + 60 * args.minutes

    def work(number: int) -> None:
        rng = random.Random(args.seed * 1000 + number)
        index = number % devices
        try:
            torch.npu.set_device(index)
            while time.monotonic() < end and not failures:
                seed = rng.randrange(64)
                got = train_once(f"npu:{index}" if rng.random() < 0.8 else "cpu", seed)
                if any(abs(g - e) > 1e-4 * max(1, abs(e)) for g, e in zip(got, expected[seed])):
                    raise AssertionError(f"seed {seed}: {got} instead of {expected[seed]}")
                visit(index, (index + 1) % devices, seed)
                turns[number] += 1
        except BaseException as error:
            failures.append(f"thread {number}: {type(error).__name__}: {error}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(args.count)]
    for t in threads:
        t.start()
    while any(t.is_alive() for t in threads) and time.monotonic() < end + 60:
        time.sleep(min(10.0, 20 * args.minutes))
        print(f"  threads: {sum(turns):,} turns, {max(0, end - time.monotonic()):.0f} s left", flush=True)
    stuck = [n for n, t in enumerate(threads) if t.is_alive()]
    if failures or stuck or min(turns) == 0:
        raise AssertionError(f"{failures[:5]}, stuck: {stuck}, turns: {turns}")
    return f"{args.count} threads on {devices} devices, {args.minutes:g} minutes, {sum(turns):,} turns"


# ---- signals: whatever runs, the process ends ------------------------------------------------------------------------
PROGRAM_HEAD = """
import sys, time
print("begun", flush=True)
import mindtorch_v2 as torch
from mindtorch_v2.utils.data import DataLoader, TensorDataset
device = sys.argv[1]
nn = torch.nn
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)).to(device)
optimizer = torch.optim.AdamW(model.parameters())
def step(x, y):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x.to(device)), y.to(device)).backward()
    optimizer.step()
x, y = torch.randn(256, 32), torch.randint(8, (256,))
print("ready", flush=True)
"""
PROGRAMS = {
    "train": "while True:\n    step(x, y)\n",
    "large": "big = torch.randn(1500, 1500, device=device)\nwhile True:\n    big = (big @ big).tanh().softmax(0)\n",
    "loader": "while True:\n    for a, b in DataLoader(TensorDataset(x, y), 16, num_workers=2):\n        step(a, b)\n",
    "kept_loader": "loader = DataLoader(TensorDataset(x, y), 16, num_workers=2, persistent_workers=True)\n"
                   "while True:\n    for a, b in loader:\n        step(a, b)\n",
    "sleep": "step(x, y)\nwhile True:\n    time.sleep(60)\n",
    "threads": "import threading\nfor _ in range(3):\n"
               "    threading.Thread(target=lambda: [(x.to(device) @ model[0].weight.t()).relu().sum().backward()\n"
               "                                     for _ in iter(int, 1)], daemon=True).start()\n"
               "while True:\n    torch.ones(100, device=device).sum().item()\n",
}
NPU_PROGRAMS = {
    "graph": "a = torch.ones(100, device=device)\ngraph = torch.npu.NPUGraph()\n"
             "with torch.npu.graph(graph):\n    b = (a * 2).exp()\n"
             "while True:\n    graph.replay()\n    b.sum().item()\n",
    "capture": "a = torch.ones(100, device=device)\nwhile True:\n    graph = torch.npu.NPUGraph()\n"
               "    with torch.npu.graph(graph):\n        b = a * 2\n    graph.replay()\n    b.cpu()\n",
    "streams": "while True:\n    s = torch.npu.Stream()\n    with torch.npu.stream(s):\n"
               "        c = torch.ones(10000).pin_memory()\n"
               "        d = c.to(device, non_blocking=True) * 2\n    s.synchronize()\n",
}


WRONG = re.compile(r"^([A-Za-z_][\w.]*(Error|Exception)\b|Exception:)|Segmentation|core dumped|Fatal Python error|"
                   r"terminate called|Aborted|corrupted|at the end of the npu")
# The error of a daemon thread that goes on while the main thread finalizes the npu, which Python prints.
ENDING = re.compile(r"the npu runtime is ending|ACL_ERROR_RT_DEVICE_TASK_ABORT")


# What Python prints between an exception and the one that came while it was handled.
HANDLED = "During handling of the above exception, another exception occurred:"


def wrong_lines(text: str) -> list[str]:
    """Of what processes wrote to stderr, perhaps in turns: other exceptions than KeyboardInterrupt, and crashes. One that
    was handled when Ctrl-C came is none: Python's imports, for one, ask a dict first and catch its KeyError."""
    lines = [line for line in text.splitlines() if line.strip()]
    return [line for line, following in zip(lines, [*lines[1:], ""])
            if WRONG.search(line) and not ENDING.search(line) and following != HANDLED]


def group_ends(group: int, within: float) -> bool:
    """Whether every process of the group is gone before so many seconds."""
    end = time.monotonic() + within
    while time.monotonic() < end:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


def signalled(name: str, device: str, number: int, wait: float, startup: bool, everyone: bool) -> tuple[str | None, float]:
    """Runs one program, sends the signal; what was wrong with its end, and how long that took."""
    text = {**PROGRAMS, **NPU_PROGRAMS}[name]
    with tempfile.TemporaryFile("w+") as errors, tempfile.TemporaryDirectory() as folder:
        child = subprocess.Popen([sys.executable, "-X", "faulthandler", "-c", PROGRAM_HEAD + text, device], cwd=folder,
                                 stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True)
        try:
            # From "begun" on: an interpreter that is interrupted while it starts prints other messages.
            if any(child.stdout.readline() != f"{line}\n" for line in (["begun"] if startup else ["begun", "ready"])):
                errors.seek(0)
                return f"did not start: {errors.read()[-500:]}", 0.0
            time.sleep(wait)
            begin = time.monotonic()
            (os.killpg if everyone else os.kill)(child.pid, number)
            try:
                code = child.wait(EXIT_S)
            except subprocess.TimeoutExpired:
                os.kill(child.pid, signal.SIGABRT)           # faulthandler writes where each thread is
                group_ends(child.pid, 1.0)
                errors.seek(0)
                return f"still runs after {EXIT_S:g} s: {errors.read()[-1500:]}", EXIT_S
            took = time.monotonic() - begin
            if not group_ends(child.pid, EXIT_S):
                return "its worker processes outlive it", took
            errors.seek(0)
            written = errors.read()
            if code != -number:
                return f"exit status {code}: {written[-1500:]}", took
            if number == signal.SIGINT and not startup and "KeyboardInterrupt" not in written:
                return f"no KeyboardInterrupt: {written[-500:]}", took
            if wrong := wrong_lines(written):
                return f"{wrong}: {written[-2500:]}", took
            return None, took
        finally:
            if not group_ends(child.pid, 0.01):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            child.stdout.close()


def run_signals(args: argparse.Namespace) -> str:
    ensure_npu()
    rng = random.Random(args.seed)
    cases = [(name, device) for name in PROGRAMS for device in ("cpu", "npu")] + [(n, "npu") for n in NPU_PROGRAMS]
    failures, slowest = [], 0.0
    plan = [(*cases[i % len(cases)], rng.choice((signal.SIGINT, signal.SIGTERM)), rng.uniform(0, 0.6),
             rng.random() < 0.1, rng.random() < 0.3) for i in range(args.count)]
    rng.shuffle(plan)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for done, (case, (wrong, took)) in enumerate(zip(plan, pool.map(lambda c: signalled(*c), plan)), 1):
            slowest = max(slowest, took)
            if wrong:
                name, device, number, wait, startup, everyone = case
                failures.append(f"{name} on {device}")
                print(f"  {name} on {device}, {number.name} after {wait:.3f} s{' of startup' * startup}"
                      f"{', to the group' * everyone}: {wrong}", flush=True)
            if done % 20 == 0:
                print(f"  signals: {done} of {args.count}, {len(failures)} failed, slowest {slowest:.2f} s", flush=True)
    if failures:
        raise AssertionError(f"{len(failures)} of {args.count} signals: {failures[:10]}")
    return f"{args.count} signals, slowest exit {slowest:.2f} s"


# ---- delay: every task of the device late by a random time ------------------------------------------------------------
def delayed(seed: int) -> tuple[int, str]:
    """The tests of streams, copies, memory and graphs with one seed: pytest's exit code and the end of its output."""
    env = os.environ | {"CANN_SIM_MODE": "delay", "CANN_SIM_SEED": str(seed)}
    done = subprocess.run([sys.executable, "-m", "pytest", *(str(HERE / name) for name in DELAYED)], env=env,
                          capture_output=True, text=True, cwd=HERE.parents[1], check=False)
    return done.returncode, done.stdout[-3000:] + done.stderr[-1000:]


def run_delay(args: argparse.Namespace) -> str:
    ensure_npu()
    failed, seeds = [], range(args.seed, args.seed + args.count)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for seed, (code, output) in zip(seeds, pool.map(delayed, seeds)):
            last = next((line for line in reversed(output.splitlines()) if line.strip()), "")
            print(f"  CANN_SIM_SEED={seed}: {last}", flush=True)
            if code:
                failed.append(seed)
                print(output, flush=True)
    if failed:
        raise AssertionError(f"seeds that fail: {failed}")
    return f"{args.count} seeds from {args.seed} over {len(DELAYED)} files"


# ---- ranks: killed at random ------------------------------------------------------------------------------------------
def run_ranks(args: argparse.Namespace) -> str:
    ensure_npu()
    return soak_ranks.run(int(args.count), args.seed)


# ---- the command --------------------------------------------------------------------------------------------------------
# part: (what runs it, its full size, its quick size)
PARTS: dict[str, tuple[Callable[[argparse.Namespace], str], dict[str, float], dict[str, float]]] = {
    "ops": (run_ops, {"ops": 5_000_000}, {"ops": 20_000}),
    "threads": (run_threads, {"minutes": 10, "count": 16}, {"minutes": 0.03, "count": 16}),
    "signals": (run_signals, {"count": 1000}, {"count": 20}),
    "delay": (run_delay, {"count": 200}, {"count": 1}),
    "ranks": (run_ranks, {"count": 200}, {"count": 4}),
}


def run_part(name: str, args: argparse.Namespace) -> bool:
    """Runs one part with the sizes that were not given filled in; prints its result."""
    function, full, quick = PARTS[name]
    sizes = {key: value for key, value in vars(args).items() if key in ("ops", "minutes", "count") and value is not None}
    begin = time.monotonic()
    try:
        text = function(argparse.Namespace(**{**vars(args), **(quick if args.quick else full), **sizes}))
    except AssertionError as error:
        print(f"FAIL {name}: {error}", flush=True)
        return False
    print(f"PASS {name}: {text} ({time.monotonic() - begin:.0f} s)", flush=True)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=[*PARTS, "all"])
    parser.add_argument("--quick", action="store_true", help="small sizes, for `make test`")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time: signals, delay")
    parser.add_argument("--ops", type=int, help="ops on each device: ops")
    parser.add_argument("--minutes", type=float, help="threads")
    parser.add_argument("--count", type=int, help="threads, signals, seeds or killed ranks")
    args = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it, and so would children
    if args.part == "all" and (args.ops or args.minutes or args.count):
        parser.error("sizes are those of one part")
    results = [run_part(name, args) for name in ([*PARTS] if args.part == "all" else [args.part])]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
