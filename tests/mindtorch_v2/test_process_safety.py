"""The process around the core: warm call sites of the interpreter, processors, threads and memory that are not there."""
from __future__ import annotations

import os
import subprocess
import sys

import pytest

import mindtorch_v2 as mt


def survives(program: str) -> None:
    """Runs a program in a process of its own, which must end well."""
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", program + "\nprint('survived')"],
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and done.stdout.endswith("survived\n"), done.stdout[-500:] + done.stderr[-3000:]


def test_methods_called_without_their_object() -> None:
    """Where a call site has seen x.dim(), CPython 3.11 and 3.12 read the first argument of Tensor.dim() without looking
    whether there is one; on a stack that nothing has used yet, that is a null pointer."""
    survives("""
import threading
import mindtorch_v2 as torch

def deep(call, owner, n):
    if n:
        return deep(call, owner, n - 1)
    try:
        call(owner)
    except TypeError:
        return
    raise AssertionError(owner)

x = torch.ones(2, requires_grad=True)
for one, names in ((x, ("dim", "size", "stride", "numel", "data_ptr")), (x.untyped_storage(), ("nbytes",)),
                   (torch.Generator(), ("initial_seed", "get_state"))):
    for name in names:
        for times in range(4, 40, 3):
            made = {}
            exec(f"def call(x): return x.{name}()", made)
            for _ in range(times):
                made["call"](one)
            thread = threading.Thread(target=deep, args=(made["call"], type(one), 50))
            thread.start()
            thread.join()
""")


BLAS = """
import os
import mindtorch_v2 as torch
torch.set_num_threads(1)
x = torch.rand(300, 300, dtype=torch.float64)
"""


@pytest.mark.skipif(os.cpu_count() == 1 or not hasattr(os, "sched_getaffinity"), reason="there is one processor")
def test_openblas_starts_no_threads_of_its_own() -> None:
    survives(BLAS + """
allowed, threads = os.sched_getaffinity(0), os.listdir("/proc/self/task")
y = x @ x
assert torch.linalg.cholesky(y @ y.T + torch.eye(300, dtype=x.dtype)).shape == (300, 300)
assert os.listdir("/proc/self/task") == threads
assert os.sched_getaffinity(0) == allowed
""")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs a limit on the memory that a process may map")
def test_openblas_without_room_for_its_buffer() -> None:
    survives(BLAS + """
import mmap, resource

def limit(more):
    with open("/proc/self/statm") as file:
        mapped = int(file.read().split()[0]) * mmap.PAGESIZE
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY if more is None else mapped + more, resource.RLIM_INFINITY))

for room in range(4, 128, 8):
    limit(room << 20)
    try:
        x @ x
    except MemoryError:
        pass
    else:
        raise AssertionError(room)
limit(None)
y = x @ x
limit(8 << 20)                                  # what is mapped stays
assert torch.linalg.inv(y).shape == (300, 300) and (x @ x == y).all()
""")


def test_no_library_exports_the_runtime_of_its_compiler() -> None:
    """A compiler may link libstdc++ statically. Exported, its symbols mix with those of another package's copy, and a number
    read from a stream is then a jump to nowhere."""
    libraries = [os.path.join(mt._C.__path__[0], name) for name in os.listdir(mt._C.__path__[0]) if name.endswith(".so")]
    assert len(libraries) > 8
    for library in libraries:
        symbols = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
        assert not [s for s in symbols.split() if s.startswith(("__cxa_", "_ZNSt6locale", "_ZNSi"))], library
