"""Ends: what outlives a runtime that was finalized, how processes that use an npu exit, and what a forked one may do."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from types import ModuleType

import pytest

import mindtorch_v2 as torch


def run(program: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """A program in a process of its own, from its first import to the end of the interpreter."""
    env = os.environ | settings
    return subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=600)


def test_what_was_made_before_an_end_is_refused_and_new_things_work(two: ModuleType) -> None:
    done = run("""
import mindtorch_v2 as torch
from mindtorch_v2._backends.npu import runtime
def refused(act, words):
    try:
        act()
    except RuntimeError as error:
        assert words in str(error), error
    else:
        raise AssertionError("not refused")
stream, before = torch.npu.Stream(), torch.ones(4, device="npu")
far = torch.ones(4, device="npu:1").to("npu:0")
event = stream.record_event()
torch.npu.set_stream(stream)
outer = torch.npu.stream(torch.npu.Stream())
outer.__enter__()
runtime.get_runtime(0).finalize()
assert torch.npu.current_stream() == torch.npu.default_stream() != stream
outer.__exit__()                                            # what it would bring back has ended too
assert torch.npu.current_stream() == torch.npu.default_stream()
new = torch.ones(4, device="npu")
for act in (before.data_ptr, before.cpu, before.untyped_storage().data_ptr, lambda: before + 1, lambda: new + before,
            lambda: before.copy_(new), lambda: before.copy_(torch.ones(4)), lambda: before.resize_(1000),
            lambda: torch.cat([new, before]), lambda: before.to("npu:1")):
    refused(act, "lost its memory")
for act in (stream.synchronize, stream.query, stream.record_event, lambda: torch.npu.set_stream(stream),
            lambda: new.record_stream(stream), lambda: torch.npu.current_stream().wait_stream(stream)):
    refused(act, "has ended")
assert event.query() and before.shape == (4,) and stream == stream and "Stream" in repr(stream)
assert (new + 1).tolist() == [2.0] * 4 and torch.ones(4, device="npu:1").to("npu:0").tolist() == [1.0] * 4
del before, far
assert torch.npu.memory_allocated() == 512
""")
    assert done.returncode == 0 and not done.stderr, done.stderr


@pytest.mark.parametrize("asked", [False, True])
def test_a_device_fault_is_reported_once(npu: ModuleType, asked: bool) -> None:
    done = run(f"""
import mindtorch_v2 as torch
x = torch.ones(3, device="npu")
y = x.index_select(0, torch.tensor([7], device="npu"))
try:
    {"torch.npu.synchronize()" if asked else "pass"}
except torch.AcceleratorError as error:
    print(error.error_code)
""", ACL_LAUNCH_BLOCKING="0")  # fmt: skip
    told = done.stderr.count("(507015)")
    assert done.returncode == 0 and (done.stdout, told) == (("507015\n", 0) if asked else ("", 1)), done.stderr


def test_a_device_goes_on_after_a_fault_without_its_tensors(two: ModuleType) -> None:
    done = run("""
import mindtorch_v2 as torch
pinned, far = torch.ones(3).pin_memory(), torch.ones(3, device="npu:1")
x, graph = pinned.to("npu", non_blocking=True), torch.npu.NPUGraph()
with torch.npu.graph(graph):
    doubled = x * 2
lost = x.index_select(0, torch.tensor([7], device="npu"))
said = []
for act in (torch.npu.synchronize, lambda: torch.npu.restart_device(0),
            lambda: torch.npu.restart_device(0, rebuild_all_resources=True), lambda: x + 1, graph.replay):
    try:
        act()
    except RuntimeError as error:
        said.append(next(word for word in ("restart_device(device", "lost", "replay") if word in str(error)))
print(*said, (pinned.to("npu", non_blocking=True) + 1).tolist(), (far + 1).tolist(), torch.npu.memory_allocated())
del pinned
torch.npu.host_memory_stats()                               # marks the place behind the copies
torch.npu.synchronize()
assert torch.npu.host_memory_stats()["active_bytes.current"] == 0
""", ACL_LAUNCH_BLOCKING="0")  # fmt: skip
    expected = "restart_device(device restart_device(device lost replay [2.0, 2.0, 2.0] [2.0, 2.0, 2.0] 0\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")


def test_loaders_that_live_to_the_end_do_not_keep_the_process(npu: ModuleType) -> None:
    done = run("""
import mindtorch_v2 as torch
data = torch.utils.data.TensorDataset(torch.arange(8.0))
loader = torch.utils.data.DataLoader(data, batch_size=2, num_workers=2, pin_memory=True, persistent_workers=True)
print(sum(batch.to("npu", non_blocking=True).sum().item() for (batch,) in loader))
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "28.0\n", "")


def test_ctrl_c_does_not_wait_for_all_that_is_queued(npu: ModuleType) -> None:
    done = run("""
import mindtorch_v2 as torch
a = torch.ones(2000, 2000, device="npu")
for _ in range(1500):                             # minutes of work, and run() waits two; fewer than a stream's depth
    a @ a
raise KeyboardInterrupt
""")
    assert done.stderr.endswith("KeyboardInterrupt\n") and "Error" not in done.stderr, done.stderr
    assert done.returncode == -signal.SIGINT


def test_threads_that_go_on_do_not_keep_a_runtime_from_its_end(npu: ModuleType) -> None:
    done = run("""
import threading
import mindtorch_v2 as torch
from mindtorch_v2._backends.npu import runtime
said, busy = [], threading.Event()
def work():
    try:
        while True:                                         # queues faster than the device works
            torch.randn(100, 100, device="npu") @ torch.randn(100, 100, device="npu")
            busy.set()
    except RuntimeError as error:
        said.append(str(error))
thread = threading.Thread(target=work)
thread.start()
busy.wait()
runtime.get_runtime(0).finalize()
thread.join()
assert "is ending" in said[0] or "has ended" in said[0], said
print((torch.ones(1, device="npu") + 1).item())
threading.Thread(target=work, daemon=True).start()          # and at exit
""")
    assert (done.returncode, done.stdout) == (0, "2.0\n"), done.stderr


def test_pinned_memory_of_another_device_starts_nothing_at_the_end(two: ModuleType) -> None:
    done = run("""
import mindtorch_v2 as torch
near = torch.ones(3, device="npu:0")
far = torch.ones(1 << 18).pin_memory().to("npu:1", non_blocking=True)
del far
""")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_forked_child_with_everything_of_the_parents(npu: ModuleType) -> None:
    """Results of ops that fail are freed while the exception is on its way: the recorder must not run into it."""
    done = run("""
import os, sys
import mindtorch_v2 as torch
torch.npu._record_memory_history()
x, stream, pool, graph = torch.ones(3, device="npu"), torch.npu.Stream(), torch.npu.MemPool(), torch.npu.NPUGraph()
event, pinned = stream.record_event(), torch.ones(3).pin_memory()
x.record_stream(stream)
with torch.npu.graph(graph):
    y = x + 1
with torch.npu.use_mem_pool(pool):
    z = x * 2
if child := os.fork():
    graph.replay()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), y.tolist())
    sys.exit()
refused = 0
for act in (lambda: x + 1, graph.replay, event.synchronize, stream.synchronize, torch.npu.empty_cache,
            torch.npu.mem_get_info, torch.ones(3).pin_memory, lambda: torch.npu.restart_device(0, True)):
    try:
        act()
    except RuntimeError as error:
        refused += "forked" in str(error)
assert (pinned + 1).sum() == 6 and torch.npu.memory_allocated() > 0
del x, y, z, stream, pool, graph, event, pinned
sys.exit(refused)
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "8 [2.0, 2.0, 2.0]\n", "")


def test_threads_that_race_for_the_first_use_wait_for_the_complete_module(npu: ModuleType) -> None:
    done = run("""
import sys, threading
import mindtorch_v2 as torch
sys.setswitchinterval(1e-5)
failed, together = [], threading.Barrier(8)
def use(index):
    together.wait()
    try:
        torch.npu.set_device(index % torch.npu.device_count())
        torch.accelerator.current_stream()
        assert (torch.ones(2, device="npu") + 1).tolist() == [2.0, 2.0]
    except Exception as error:
        failed.append(repr(error))
threads = [threading.Thread(target=use, args=(index,)) for index in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(failed)
""")
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


@pytest.mark.parametrize("kind", [torch.OutOfMemoryError, torch.AcceleratorError, torch.linalg.LinAlgError])
def test_errors_reach_other_processes(kind: type[Exception]) -> None:
    error = kind("why")
    error.error_code = 507015
    made = pickle.loads(pickle.dumps(error))
    assert (type(made), str(made), made.error_code) == (kind, "why", 507015)


def test_ctrl_c_during_an_end_counts_when_all_devices_are_closed(two: ModuleType) -> None:
    done = run("""
import signal
import mindtorch_v2 as torch
from mindtorch_v2._backends.npu import runtime
x, y = torch.ones(3, device="npu:0"), torch.ones(3, device="npu:1")
destroy, destroyed = runtime.acl.rt.destroy_stream, []
def interrupted(stream):
    destroyed.append(stream)
    signal.raise_signal(signal.SIGINT)
    return destroy(stream)
runtime.acl.rt.destroy_stream = interrupted
first = runtime.get_runtime(0)
try:
    first.finalize()
except KeyboardInterrupt:
    print(len(destroyed), torch.npu.is_initialized(), [r.context for r in runtime._runtimes.values()], runtime._ending[0])
runtime.acl.rt.destroy_stream = destroy
print(torch.ones(2, device="npu:1").tolist())
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "2 False [None, None] 0\n[1.0, 1.0]\n", "")


def test_a_launch_during_the_reset_of_its_device_is_refused(npu: ModuleType) -> None:
    """The device is reset and started again while the launch allocates its workspace: its stream and addresses are gone."""
    done = run("""
import threading
import mindtorch_v2 as torch
from mindtorch_v2._backends.npu import allocator, runtime
x, out = torch.ones(2000, 1500, device="npu").t(), torch.empty(1500, 2000, device="npu")
torch.npu.synchronize()
torch.npu.empty_cache()
provide = allocator.NpuAllocator._provide
def end_first(self, *request):
    allocator.NpuAllocator._provide = provide
    found = provide(self, *request)
    other = threading.Thread(target=lambda: (runtime.get_runtime(0).finalize(), torch.ones(1, device="npu")))
    other.start()
    other.join()
    return found
allocator.NpuAllocator._provide = end_first
try:
    torch.exp(x, out=out)
except RuntimeError as error:
    print("ended" if "has ended" in str(error) else error)
x, out = torch.ones(2000, 1500, device="npu").t(), torch.empty(1500, 2000, device="npu")
print(torch.exp(x * 0, out=out).sum().item())
torch.npu.synchronize()
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n3000000.0\n", "")


def test_memory_of_several_streams_is_freed_in_silence_at_the_very_end(npu: ModuleType) -> None:
    """A block that another stream uses asks Python when it is freed: not after Python's modules are gone."""
    done = run("""
import sys
import mindtorch_v2 as torch
x = torch.ones(1000, device="npu")
x.record_stream(torch.npu.Stream())
sys.kept = [x]                                    # goes with the last module of all
del x
""")
    assert (done.returncode, done.stderr) == (0, "")
