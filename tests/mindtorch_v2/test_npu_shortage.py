"""Programs that use an npu and run out of the host's memory or threads: exceptions, never a signal.

As a tool: `cann-sim run python test_npu_shortage.py COUNT` runs the programs of so many seeds and counts how they ended."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from types import ModuleType

import pytest

HEAD = """
import gc, random, resource, sys
import mindtorch_v2 as torch
def limit(more):
    with open("/proc/self/statm") as f:
        now = int(f.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + more, resource.RLIM_INFINITY))
"""
# How the interpreter aborts where it has no memory for an exception about memory.
PYTHONS_OWN = "Cannot recover from MemoryErrors while normalizing exceptions"
# What is drawn until the memory is gone, and after that in whatever there is.
DRAWS = """
seed = int(sys.argv[1])
draw = random.Random(seed)
if draw.random() < 0.5:                          # else the first use of the device is in want already
    torch.ones(3, device="npu").sum().item()
limit(draw.choice([1 << 16, 1 << 18, 1 << 20, 1 << 21, 5 << 20, 1 << 23, 1 << 24, 20 << 20, 40 << 20, 80 << 20, 200 << 20]))
kept = []
def many():
    kept.append(torch.ones(draw.randrange(1, 300000), device="npu"))
def small():
    kept.append([torch.ones(2, device="npu") for _ in range(100)])
def host():
    kept.append(bytearray(draw.randrange(1, 1 << 16)))
def product():
    kept.append(torch.randn(draw.randrange(1, 300), 64, device="npu") @ torch.randn(64, 64, device="npu"))
def stream():
    with torch.npu.stream(torch.npu.Stream()):
        kept.append(torch.ones(5, device="npu") + 1)
def pinned():
    kept.append(torch.ones(1000).pin_memory().to("npu", non_blocking=True))
def turned():
    (torch.ones(20, 30, device="npu").t() + 1).softmax(0).sum().item()
def backward():
    w = torch.ones(8, 8, device="npu", requires_grad=True)
    (w @ w).relu().sum().backward()
def graph():
    made, a = torch.npu.NPUGraph(), torch.ones(5, device="npu")
    with torch.npu.graph(made):
        b = a * 2
    made.replay()
    kept.append(made)
acts, failed = [many, small, host, product, stream, pinned, turned, backward, graph], 0
for _ in range(150):
    try:
        draw.choice(acts)()
    except (MemoryError, RuntimeError):
        failed += 1
        if draw.random() < 0.3:
            del kept[:len(kept) // 2]
print("done", failed, flush=True)
"""


def run(program: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-X", "faulthandler", "-c", HEAD + program, *args], env=dict(os.environ),
                          capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize("seed", range(6))
def test_no_shortage_of_memory_ends_the_process(npu: ModuleType, seed: int) -> None:
    done = run(DRAWS, str(seed))
    assert done.returncode >= 0 or PYTHONS_OWN in done.stderr, f"{done.returncode} {done.stderr[-3000:]}"


def test_a_stream_that_gets_no_thread_is_an_error(npu: ModuleType) -> None:
    done = run("""
x = torch.ones(3, device="npu")
x.sum().item()
stream = torch.npu.Stream()
limit(3 << 20)                                   # less than the stack of a thread
with torch.npu.stream(stream):
    try:
        x + 1
    except RuntimeError as error:
        print(error.error_code)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
with torch.npu.stream(stream):
    print((x + 1).tolist())
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "561000\n[2.0, 2.0, 2.0]\n", "")


def test_an_op_that_gets_no_memory_on_the_device_is_an_error_and_the_device_goes_on(npu: ModuleType) -> None:
    done = run("""
x = torch.rand(3000000, device="npu")
values, places = torch.empty(3000000, device="npu"), torch.empty(3000000, dtype=torch.int64, device="npu")
small = torch.ones(3, device="npu")
torch.sort(small)
torch.npu.synchronize()
limit(2 << 20)
try:
    torch.sort(x, out=(values, places))
    torch.npu.synchronize()
    print("sorted")
except RuntimeError as error:
    print(type(error).__name__, "no memory left" in str(error))
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
torch.npu.synchronize()
print((small + 1).tolist(), bool((torch.sort(x)[0].diff() >= 0).all()))
""")
    expected = "AcceleratorError True\n[2.0, 2.0, 2.0] True\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")


if __name__ == "__main__":
    ends: Counter[str] = Counter()
    for number in range(int(sys.argv[1])):
        ended = run(DRAWS, str(number))
        last = (ended.stderr.strip().splitlines() or [""])[-1]
        ends[f"{ended.returncode}{' in OpenBLAS' * ('OpenBLAS error' in ended.stderr)}"] += 1
        if ended.returncode < 0:
            print(number, ended.returncode, last)
    print(dict(ends))
