"""The npu backend where things go wrong: wrong objects, collections in the midst of work, calls of CANN that fail."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import mindtorch_v2 as torch
from mindtorch_v2 import _C
from mindtorch_v2._backends.npu import acl_loader, aclnn, allocator, runtime, streams

TENSOR, PARAM, CONSTANT = 0, 0, 2  # a kind and two sources of a plan's argument


class Longer(list):
    """Says that it has more items than it has."""

    def __len__(self) -> int:
        return 50


def run_program(code: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """A program of its own on the same CANN."""
    env = os.environ | {"PYTHONPATH": str(Path(torch.__file__).parents[1])} | settings
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}{done.stderr}"
    return done


# ---- plans and their arguments --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "arguments",
    [
        [(99, PARAM, 0, False, None, 0)],  # no such kind
        [(TENSOR, 7, 0, False, None, 0)],  # no such source
        [(TENSOR, PARAM, -1, False, None, 0)],  # no such parameter
        [(TENSOR, CONSTANT, 3, False, None, 0), (TENSOR, PARAM, "x")],
    ],
)
def test_a_plan_that_cannot_be_is_refused_and_not_run(npu: ModuleType, arguments: list[Any]) -> None:
    npu.init()
    addresses = [acl_loader.symbol(name) for name in ("aclnnAbsGetWorkspaceSize", "aclnnAbs")]
    plan = _C.NpuPlan.__new__(_C.NpuPlan)
    with pytest.raises((ValueError, TypeError)):
        plan.__init__("aclnnAbs", *addresses, arguments)
    with pytest.raises(RuntimeError, match="not made"):
        _C._npu_call(plan, 0, (1, 2, 3))
    with pytest.raises(ValueError, match="no functions"):
        _C.NpuPlan("aclnnAbs", 0, 0, [])


def test_a_plan_says_how_many_arguments_it_reads(npu: ModuleType) -> None:
    npu.init()
    plan = aclnn.plan_of("aclnnAdd")
    for call in (_C._npu_call, _C._npu_call_dynamic):
        with pytest.raises(TypeError, match="4 parameters"):
            call(plan, 0, (1,), ())


def test_prepared_calls_do_not_outlive_their_plan(npu: ModuleType) -> None:
    a, out = torch.tensor([1.0, 4.0], device="npu"), torch.empty(2, device="npu")
    for _ in range(20):  # plans made and dropped: the next one is likely at the same address
        for name, expected in (("aclnnSqrt", [1.0, 2.0]), ("aclnnNeg", [-1.0, -4.0])):
            sources = [aclnn.Source(aclnn.FROM_PARAM, i) for i in range(2)]
            made = aclnn.build_plan(name, sources)
            _C._npu_call(made, 0, (a, out))
            del made
            assert out.tolist() == expected


def test_lists_are_read_once_and_kept(npu: ModuleType) -> None:
    a, out = torch.ones(3, device="npu"), torch.zeros(6, device="npu")
    aclnn.call("aclnnCat", Longer([a, a]), 0, out)
    assert out.tolist() == [1.0] * 6
    results = [torch.zeros(3, device="npu")]
    aclnn.call("aclnnForeachAbs", (torch.full((3,), -2.0, device="npu") for _ in range(1)), results, device=0)
    assert results[0].tolist() == [2.0] * 3
    aclnn.call("aclnnForeachAddScalarList", [a], Longer([2.0]), results)
    assert results[0].tolist() == [3.0] * 3


def test_tensors_of_another_npu_are_refused_in_lists_too(two: ModuleType) -> None:
    a, b, out = torch.ones(3, device="npu:0"), torch.ones(3, device="npu:1"), torch.zeros(6, device="npu:0")
    with pytest.raises(RuntimeError, match="expected tensors on npu:0"):
        aclnn.call("aclnnCat", [a, b], 0, out)
    assert (a + 1).tolist() == [2.0] * 3  # the device is not harmed


def test_an_output_that_has_to_be_dense_is_never_a_copy(npu: ModuleType) -> None:
    x = torch.ones(4, 4, dtype=torch.int32, device="npu")
    out = torch.zeros(4, 8, dtype=torch.float16, device="npu")[:, ::2]
    with pytest.raises(RuntimeError, match="not contiguous"):
        aclnn.call("aclnnDequantBias", x, torch.ones(4, device="npu"), None, None, 1, out)


# ---- the heap -------------------------------------------------------------------------------------------------------
class Owner:
    """Supplies a heap with addresses that are never read."""

    def __init__(self) -> None:
        self.next, self.size = 1 << 30, 0

    def _provide(self, nbytes: int, size: int, stream: int) -> tuple[int, int]:
        self.next += 1 << 30
        return self.next, self.size or 20 << 20

    def _process_events(self) -> None: ...

    def _record_events(self, block: int, used: list[int]) -> None:
        self.block = block

    def _traced(self, *event: Any) -> None:
        raise KeyboardInterrupt


def test_the_heap_refuses_what_it_does_not_know() -> None:
    heap = _C.NpuHeap(Owner(), 0)
    address = heap.malloc(100, 1)
    for call in (lambda: heap.event_done(12345), lambda: heap.event_done(address), lambda: heap.map(1, 2, 3, 4),
                 lambda: heap.free(1), lambda: heap.end_route((1, 1), 0, 0)):  # fmt: skip
        with pytest.raises(RuntimeError):
            call()
    for settings in ((0, 512, ()), (1 << 20, 0, ()), (1 << 20, 512, (1,) * 17)):
        large_segment, large_round, divisions = settings
        with pytest.raises(ValueError, match="no heap"):
            heap.configure(1 << 40, 1 << 20, large_segment, large_round, False, divisions)
    heap.record(address, 2)
    heap.free(address)
    block = heap.owner.block
    heap.event_done(block)
    with pytest.raises(RuntimeError, match="waits for an event"):
        heap.event_done(block)
    assert heap.pending == 0
    heap.owner.size = 16
    with pytest.raises(RuntimeError, match="cannot hold"):
        heap.malloc(30 << 20, 1)


def test_a_key_pressed_while_an_allocation_is_recorded_leaks_nothing() -> None:
    heap = _C.NpuHeap(Owner(), 0)
    kept = heap.malloc(100, 1)
    heap.tracing = True
    with pytest.raises(KeyboardInterrupt):
        heap.malloc(100, 1)
    assert heap.stat("allocation.all.current") == 1
    with pytest.raises(KeyboardInterrupt):
        heap.free(kept)
    assert heap.stat("allocation.all.current") == 0


def test_threads_in_one_memory_pool_end_their_own_part() -> None:
    heap = _C.NpuHeap(Owner(), 0)
    mine, other = threading.get_ident(), threading.get_ident() + 1
    heap.begin_route((0, 7), mine, 0)
    heap.begin_route((0, 7), other, 0)
    heap.end_route((0, 7), mine, 0)
    assert heap.routed(1) == (0, 0)
    heap.end_route((0, 7), other, 0)


# ---- blocks that several streams use --------------------------------------------------------------------------------
def test_an_event_is_not_taken_for_another_that_a_collection_finished(npu: ModuleType,
                                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    made = allocator.get_allocator(0)
    torch.npu.synchronize()
    made.empty_cache()
    real, asked = made._is_complete, []

    def is_complete(event: int) -> bool:
        asked.append(event)
        if len(asked) == 1:  # as when an object's end allocates while we ask
            made._process_events()
        return len(asked) < 4 and real(event)

    monkeypatch.setattr(made, "_is_complete", is_complete)
    stream = torch.npu.Stream()
    for _ in range(4):
        t = torch.empty(1000, device="npu")
        t.record_stream(stream)
        monkeypatch.setattr(made._heap, "lazy_reclaim", True, raising=False)
        del t
    made._heap.lazy_reclaim = False
    before = made._heap.pending
    torch.npu.synchronize()
    made._process_events()
    finished = set(asked[:3])
    left = {event for queue in made._waiting.values() for event, _ in queue}
    assert before - made._heap.pending == len(finished - left)
    monkeypatch.undo()
    made._heap.lazy_reclaim = False
    made.empty_cache()
    assert made._heap.pending == 0


@pytest.mark.parametrize("failing", ["create_event_ex_with_flag", "record_event"])
def test_a_block_without_an_event_waits_for_the_stream(npu: ModuleType, monkeypatch: pytest.MonkeyPatch,
                                                       failing: str) -> None:
    made = allocator.get_allocator(0)
    made.empty_cache()
    stream, waited = torch.npu.Stream(), []
    t = torch.empty(1000, device="npu")
    t.record_stream(stream)
    real, rt = runtime.acl.rt.synchronize_stream, runtime.acl.rt
    monkeypatch.setattr(runtime.get_runtime(0), "events", {})
    monkeypatch.setattr(rt, failing, lambda *_: 107003 if failing == "record_event" else (0, 207007))
    monkeypatch.setattr(rt, "synchronize_stream", lambda handle: waited.append(handle) or real(handle))
    del t
    assert waited == [stream.npu_stream]
    assert made._heap.pending == 0


# ---- calls of CANN that fail ----------------------------------------------------------------------------------------
def test_memory_is_freed_although_a_call_fails(npu: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    made = allocator.get_allocator(0)
    made.empty_cache()
    t = [torch.empty(30 << 20, dtype=torch.uint8, device="npu") for _ in range(3)]
    before, freed, rt = torch.npu.mem_get_info()[0], [], runtime.acl.rt
    t.clear()
    real = rt.free
    monkeypatch.setattr(rt, "synchronize_device", lambda: 507015)
    monkeypatch.setattr(rt, "free", lambda address: freed.append(address) or real(address))
    with pytest.raises(RuntimeError, match="aclrtSynchronizeDevice"):
        torch.npu.empty_cache()
    assert len(freed) >= 3
    assert torch.npu.mem_get_info()[0] >= before + 3 * (30 << 20)


def test_a_mapping_that_fails_leaves_nothing_behind(npu: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    made = allocator.NpuAllocator(0)
    made._configure("expandable_segments:True")
    rt, calls = runtime.load_acl().rt, []
    npu.init()
    free = torch.npu.mem_get_info()[0]

    def map_mem(*args: Any) -> int:
        calls.append(args)
        return 507899 if len(calls) == 2 else real(*args)

    real = rt.map_mem
    monkeypatch.setattr(rt, "map_mem", map_mem)
    with pytest.raises(RuntimeError, match="aclrtMapMem"):
        made.malloc(60 << 20)
    assert not made._virtual._pieces
    assert torch.npu.mem_get_info()[0] == free
    address = made.malloc(60 << 20)  # the next try finds a clean place
    made.free(address)
    made.close()
    assert torch.npu.mem_get_info()[0] == free


def test_memory_that_cannot_be_unmapped_serves_again(npu: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    npu.init()
    made, rt, refused = allocator.NpuAllocator(0), runtime.acl.rt, [507899]
    made._configure("expandable_segments:True")
    free, real = torch.npu.mem_get_info()[0], rt.unmap_mem
    first = made.malloc(60 << 20)
    made.free(first)
    monkeypatch.setattr(rt, "unmap_mem", lambda address: refused.pop() if refused else real(address))
    with pytest.raises(RuntimeError, match="aclrtUnmapMem"):
        made.empty_cache()
    made.free(made.malloc(60 << 20))
    made.empty_cache()
    made.close()
    assert torch.npu.mem_get_info()[0] == free


def test_shapes_that_were_not_waited_for_are_not_read(npu: ModuleType) -> None:
    done = run_program("""
import mindtorch_v2 as torch
t = torch.ones(1000, device="npu")
for _ in range(2):
    try:
        print(t.nonzero().shape[0])
    except RuntimeError as error:
        print("507899" in str(error))
""", CANN_SIM_FAULTS="aclrtSynchronizeStream:1=507899", CANN_SIM_MODE="delay", CANN_SIM_STRICT="1", ACL_LAUNCH_BLOCKING="0")
    assert done.stdout == "True\n1000\n"
    assert "aclTensor" not in done.stderr                    # what could not be destroyed then is at the end


def test_an_allocator_is_closed_whatever_fails(npu: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    npu.init()
    made = allocator.NpuAllocator(0)
    address = made.malloc(1000)
    made.record_stream(address, torch.npu.Stream())
    real = runtime.acl.rt.synchronize_device
    monkeypatch.setattr(runtime.acl.rt, "synchronize_device", lambda: (real(), 507015)[1])
    with pytest.raises(RuntimeError, match="aclrtSynchronizeDevice"):
        made.close()
    monkeypatch.undo()
    monkeypatch.setattr(streams, "take_event", None)  # a block that is freed now records no event
    made.free(address)
    assert made._heap.pending == 0


def test_memory_deferred_while_synchronize_waits_is_for_the_next_one(npu: ModuleType,
                                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    rt, freed = runtime.get_runtime(0), []
    monkeypatch.setattr(runtime.acl.rt, "free", lambda pointer: freed.append(pointer) or 0)
    monkeypatch.setattr(runtime.acl.rt, "synchronize_device", lambda: rt.defer_free(2) or 0)
    monkeypatch.setattr(runtime.acl.rt, "synchronize_stream", lambda _: rt.defer_free(2) or 0)
    rt.defer_free(1)
    rt.synchronize()
    assert freed == [1]
    monkeypatch.undo()
    assert rt._deferred == [2]
    rt._deferred.clear()


def test_an_executor_that_never_runs_is_destroyed(npu: ModuleType) -> None:
    program = """
import mindtorch_v2 as torch
from mindtorch_v2._backends.npu import aclnn, allocator
a = torch.ones(64, 64, device="npu")[:, ::2]                 # not dense: a workspace is wanted
out = torch.empty(128, 32, device="npu")
torch.npu.synchronize()
made = allocator.get_allocator(0)
def refuse(*_): raise torch.OutOfMemoryError("none")
made._provide = refuse
kept = []
try:
    while True:
        kept.append(torch.empty(512, device="npu"))
except torch.OutOfMemoryError:
    pass
try:
    aclnn.call("aclnnCat", [a, a], 0, out)                   # lists: the executor is not a repeatable one
except torch.OutOfMemoryError:
    print("refused")
"""
    done = run_program(program, CANN_SIM_STRICT="1")
    assert done.stdout == "refused\n", done.stderr
    assert "aclOpExecutor" not in done.stderr


def test_a_storage_that_cannot_grow_stays_as_it_is(npu: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    t = torch.arange(8, dtype=torch.float32, device="npu")
    torch.npu.synchronize()
    before = torch.npu.memory_allocated()
    monkeypatch.setattr(runtime.acl.rt, "memcpy_async", lambda *_: 507899)
    with pytest.raises(RuntimeError, match="copy within"):
        t.untyped_storage().resize_(1 << 20)
    monkeypatch.undo()
    assert torch.npu.memory_allocated() == before
    assert t.tolist() == list(range(8))


# ---- collections, threads, processes --------------------------------------------------------------------------------
class Ends:
    """Uses a device when it goes."""

    def __init__(self, device: str) -> None:
        self.device, self.me = device, self

    def __del__(self) -> None:
        self.result = torch.ones(3, device=self.device) + 1


def test_threads_leave_a_stream_that_they_entered_together(npu: ModuleType) -> None:
    shared, other, step = torch.npu.Stream(), torch.npu.Stream(), threading.Barrier(2)
    left: list[Any] = []

    def work() -> None:
        torch.npu.set_stream(other)
        step.wait()  # the main thread has entered
        with shared:
            step.wait()
            step.wait()  # and left
        left.append(torch.npu.current_stream())

    before, thread = torch.npu.current_stream(), threading.Thread(target=work)
    thread.start()
    with shared:
        step.wait()
        step.wait()
    assert torch.npu.current_stream() == before
    step.wait()
    thread.join()
    assert left == [other]


def test_a_collection_leaves_the_thread_on_its_device(two: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.ones(1, device="npu:1")
    stream = torch.npu.Stream(0)
    monkeypatch.setattr(runtime, "get_runtime", with_collection(runtime.get_runtime))
    stream.synchronize()
    event = stream.record_event()
    stream.wait_event(event)
    assert stream.query() in (True, False)


def with_collection(real: Callable[[int], Any]) -> Callable[[int], Any]:
    """As real; a collection comes right after it."""

    def then_collect(device_id: int = 0) -> Any:
        found = real(device_id)
        Ends(f"npu:{1 - device_id}")
        monkeypatched, runtime.get_runtime = runtime.get_runtime, real
        gc.collect()
        runtime.get_runtime = monkeypatched
        return found

    return then_collect


def test_a_collection_while_the_context_changes(two: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.ones(1, device="npu:1"), torch.ones(1, device="npu:0")
    runtime.get_runtime(1)
    real, calls = runtime.acl.rt.set_context, []

    def set_context(context: int) -> int:
        code = real(context)
        calls.append(context)
        if len(calls) == 1:  # by hand, as the end of a refcount would: nothing restores what it leaves
            torch.ones(3, device="npu:1") + 1
        return code

    monkeypatch.setattr(runtime.acl.rt, "set_context", set_context)
    found = runtime.get_runtime(0)
    assert runtime.acl.rt.get_context() == (found.context, 0)


def test_the_child_of_a_process_ends_with_the_parents_tensors(npu: ModuleType) -> None:
    done = run_program("""
import os, sys
import mindtorch_v2 as torch
x = torch.ones(3, device="npu") + 1                          # a call that is kept
x.record_stream(torch.npu.Stream())
from mindtorch_v2._backends.npu import allocator
with allocator.get_allocator(0)._lock:                       # as another thread may hold it
    child = os.fork()
    if child == 0:
        import threading
        t = threading.Thread(target=lambda: globals().pop("x"))   # not the thread that has the lock
        t.start(); t.join()
        sys.exit(0)
print(os.waitpid(child, 0)[1], x.tolist())
""")
    assert done.stdout == "0 [2.0, 2.0, 2.0]\n"
