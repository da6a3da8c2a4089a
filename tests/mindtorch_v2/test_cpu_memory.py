"""Host memory that comes back: cached blocks serve other sizes, idle ones go back to the system, limits are kept."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import mindtorch_v2 as torch
from mindtorch_v2 import _C

MIB = 1 << 20

# What programs below begin with. Every page is touched, by a write of one float in each: resident memory is what counts,
# and a full fill would only take longer. `lasting` waits for what must come true some time.
PRELUDE = """
import gc, os, random, resource, sys, threading, time
import mindtorch_v2 as torch
from mindtorch_v2 import _C
MIB = 1 << 20
def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize() // MIB
def touched(mib):
    x = torch.empty(int(mib * MIB) // 4)
    x[::1024] = 1
    return x
def lasting(what, seconds=500):
    end = time.monotonic() + seconds
    while not what() and time.monotonic() < end:
        time.sleep(0.05)
    return what()
touched(0.2)
base = resident()
"""


def run(program: str) -> str:
    """A program in a process of its own: resident memory is a process's."""
    env = os.environ | {"PYTHONPATH": str(Path(torch.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", PRELUDE + program], env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


# ---- sizes ----------------------------------------------------------------------------------------------------------
# The bound of the tests below: one and a half times what was live at most, and 64 MiB.
def test_random_sizes_share_one_memory() -> None:
    run("""
rng, worst = random.Random(0), 0
for _ in range(400):
    x = touched(rng.uniform(0.1, 160))
    worst = max(worst, resident() - base)
    del x
assert worst < 1.5 * 160 + 64, worst
""")


def test_random_sizes_of_tensors_that_overlap_share_one_memory() -> None:
    run("""
rng, worst, live, most = random.Random(0), 0, [], 0
for _ in range(600):
    live.append(touched(rng.choice((0.1, 1, 10, 40)) * rng.uniform(1, 2)))
    most = max(most, sum(x.nbytes for x in live) // MIB)
    worst = max(worst, resident() - base)
    while sum(x.nbytes for x in live) > 200 * MIB:
        del live[rng.randrange(len(live))]
assert worst < 1.5 * most + 64, (worst, most)
""")


def test_a_smaller_block_is_cut_from_a_larger_one_and_joins_it_again() -> None:
    run("""
def mapped(make):
    before = _C._cpu_memory_stats()["reserved_bytes"]
    made = make()
    return _C._cpu_memory_stats()["reserved_bytes"] - before
assert mapped(lambda: touched(100)) > 95 * MIB
assert mapped(lambda: [touched(30), touched(30), touched(30)]) == 0
assert mapped(lambda: touched(100)) == 0
""")


def test_parts_of_one_block_do_not_overlap() -> None:
    run("""
rng, live = random.Random(3), []
for turn in range(3000):
    n = rng.randrange(1, 1 << rng.randrange(8, 20))
    live.append((torch.full((n,), float(turn)), float(turn)))
    if len(live) > 40:
        x, value = live.pop(rng.randrange(len(live)))
        assert x[0].item() == x[-1].item() == value and (x == value).all()
""")


# ---- idle memory ------------------------------------------------------------------------------------------------------
def test_idle_memory_goes_back_while_the_program_sleeps() -> None:
    run("""
live = [touched(mib) for mib in (24, 0.5, 0.004) for _ in range(int(200 / mib))]      # mapped, parts of that, malloc's
assert resident() - base > 500, resident() - base
del live
assert lasting(lambda: resident() - base < 100), resident() - base
""")


def test_idle_memory_goes_back_while_the_program_makes_small_tensors() -> None:
    run("""
live = [touched(25) for _ in range(20)]
del live
a = torch.ones(4)
def small_ops():
    for _ in range(1000):
        a + a
    return resident() - base < 150
assert lasting(small_ops), resident() - base
""")


def test_what_lies_between_live_tensors_goes_back_too() -> None:
    run("""
live = [touched(0.5) for _ in range(1000)]
del live[::2], live[::2]
assert lasting(lambda: resident() - base < 250), resident() - base
assert all(x[0].item() == 1 for x in live)
""")


def test_memory_that_every_step_needs_stays_and_a_slow_step_is_waited_for() -> None:
    run("""
def step(pause):
    hits, made = (_C._cpu_memory_stats()[k] for k in ("cache_hits", "allocations"))
    live = [torch.empty(25 * MIB, dtype=torch.uint8) for _ in range(8)]    # untouched: steps take no time where all is slow
    time.sleep(pause)
    del live
    after = _C._cpu_memory_stats()
    return after["allocations"] - made - (after["cache_hits"] - hits)     # how many were mapped
step(0)
assert sum(step(0.02) for _ in range(80)) == 0            # longer than a window
assert _C._cpu_memory_stats()["idle_ms"] == 1000
assert lasting(lambda: _C._cpu_memory_stats()["cached_bytes"] < 64 * MIB)
assert step(0) > 0 and _C._cpu_memory_stats()["idle_ms"] == 2000
""")


def test_a_forked_child_gives_its_memory_back_too() -> None:
    run("""
x = touched(200)
del x                                                     # cached, and a thread waits to give it back
pid = os.fork()
if pid == 0:
    live = [touched(50) for _ in range(8)]
    del live
    os._exit(0 if lasting(lambda: _C._cpu_memory_stats()["cached_bytes"] < 64 * MIB) else 1)
assert os.waitpid(pid, 0)[1] == 0
assert lasting(lambda: resident() - base < 100), resident() - base
""")


def test_signals_do_not_go_to_the_thread_that_waits() -> None:
    run("""
import signal
before = set(os.listdir("/proc/self/task"))
x = touched(200)
del x
extra = set(os.listdir("/proc/self/task")) - before
masks = [line for task in extra for line in open(f"/proc/self/task/{task}/status") if line.startswith("SigBlk")]
assert any(int(line.split()[1], 16) & 1 << signal.SIGINT - 1 for line in masks), masks
assert lasting(lambda: len(set(os.listdir("/proc/self/task")) - before) < len(extra))      # and it ends
""")


# ---- threads ----------------------------------------------------------------------------------------------------------
def test_threads_that_churn_share_memory_and_forks_survive() -> None:
    run("""
def churn(seed):
    rng, live = random.Random(seed), []
    for turn in range(300):
        live.append((touched(rng.choice((0.01, 0.3, 3, 12)) * rng.uniform(1, 2)), turn))
        live[-1][0].fill_(turn) if live[-1][0].nbytes < MIB else live[-1][0][-1:].fill_(turn)
        if len(live) > 4:
            x, value = live.pop(rng.randrange(len(live)))
            if x[-1].item() != value:
                failed.append((seed, turn))
failed, worst = [], 0
threads = [threading.Thread(target=churn, args=(n,)) for n in range(8)]
for t in threads:
    t.start()
while any(t.is_alive() for t in threads):
    worst = max(worst, resident() - base)
    pid = os.fork()
    if pid == 0:
        x = [touched(3) for _ in range(4)]
        os._exit(0 if all(p[0].item() == 1 for p in x) else 1)
    assert os.waitpid(pid, 0)[1] == 0
    time.sleep(0.05)
assert not failed, failed
assert worst < 1.5 * 8 * 5 * 24 + 64, worst
del threads
assert lasting(lambda: resident() - base < 150), resident() - base
""")


# ---- limits -----------------------------------------------------------------------------------------------------------
def test_out_of_memory_is_answered_with_all_that_is_cached() -> None:
    run("""
touched(1)
with open("/proc/self/status") as f:
    size = next(int(line.split()[1]) for line in f if line.startswith("VmSize")) << 10
live = [touched(4) for _ in range(100)]
keep = live[::10]
del live                                                  # 360 MiB cached, nowhere 100 MiB in one piece
resource.setrlimit(resource.RLIMIT_AS, (size + 450 * MIB,) * 2)
assert touched(300)[-1].item() is not None
try:
    touched(900)
except RuntimeError as error:
    assert "can't allocate memory" in str(error)
else:
    raise AssertionError("more than the limit")
assert all(x[0].item() == 1 for x in keep)
""")


def test_a_limit_of_the_process_bounds_the_cache() -> None:
    run("""
pid = os.fork()
if pid == 0:
    resource.setrlimit(resource.RLIMIT_DATA, (1 << 30,) * 2)
    os.execv(sys.executable, [sys.executable, "-c", '''
import mindtorch_v2 as torch
from mindtorch_v2 import _C
live = [torch.empty(1 << 24) for _ in range(10)]          # 640 MiB of 1 GiB
stats = _C._cpu_memory_stats()
assert stats["limit_bytes"] == 1 << 30 and stats["bound_bytes"] <= 256 << 20, stats
for _ in range(10):
    live.pop()
    stats = _C._cpu_memory_stats()
    assert stats["cached_bytes"] <= 258 << 20, stats
    assert stats["cached_bytes"] + stats["allocated_bytes"] <= 900 << 20, stats
'''])
assert os.waitpid(pid, 0)[1] == 0
""")


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/box/job\n", {"box/job/memory.max": "max", "box/memory.max": "300000000"}, 300_000_000),
        ("0::/box/job\n", {"box/job/memory.max": "200000000", "box/memory.max": "300000000"}, 200_000_000),
        ("0::/\n", {"memory.max": "400000000"}, 400_000_000),
        ("0::/hosts/path\n", {"memory.max": "500000000"}, 500_000_000),          # a container sees its own group only
        ("5:cpu,memory:/box\n0::/\n", {"memory/box/memory.limit_in_bytes": "250000000"}, 250_000_000),
        ("5:memory:/unseen\n", {"memory/memory.limit_in_bytes": "260000000"}, 260_000_000),
        ("5:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712"}, None),
        ("5:memory:/\n", {"memory/memory.limit_in_bytes": "99999999999999999999"}, None),
        ("0::/\n", {"memory.max": "nonsense"}, None),
        ("0::/\n", {"memory.max": ""}, None),
        ("rubbish\n:::\n\n5:memory\n", {}, None),
        ("5:cpu:/box\n", {"memory/box/memory.limit_in_bytes": "1000"}, None),
    ],
)
def test_limits_of_control_groups(tmp_path: Path, groups: str, files: dict[str, str], expected: int | None) -> None:
    machine = _C._cpu_memory_limit(str(tmp_path / "nothing"))
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(groups)
    for name, text in files.items():
        file = tmp_path / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert _C._cpu_memory_limit(str(tmp_path)) == (machine if expected is None else expected)


def test_the_limit_in_force_is_the_one_found() -> None:
    assert torch.ones(3).sum().item() == 3
    assert _C._cpu_memory_stats()["limit_bytes"] == _C._cpu_memory_limit()
