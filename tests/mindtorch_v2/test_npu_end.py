"""Ends: what outlives a runtime that was finalized, and how processes that use an npu exit. Forks are in test_npu_device."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest


def run(program: str) -> subprocess.CompletedProcess[str]:
    """A program in a process of its own, from its first import to the end of the interpreter."""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)


def test_what_was_made_before_an_end_is_refused_and_new_things_work(npu: ModuleType) -> None:
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
def test_a_device_fault_is_told_once(npu: ModuleType, asked: bool) -> None:
    done = run(f"""
import mindtorch_v2 as torch
x = torch.ones(3, device="npu")
y = x.index_select(0, torch.tensor([7], device="npu"))
try:
    {"torch.npu.synchronize()" if asked else "pass"}
except torch.AcceleratorError as error:
    print(error.error_code)
""")
    told = done.stderr.count("(507015)")
    assert done.returncode == 0 and (done.stdout, told) == (("507015\n", 0) if asked else ("", 1)), done.stderr


def test_loaders_that_live_to_the_end_do_not_keep_the_process(npu: ModuleType) -> None:
    done = run("""
import mindtorch_v2 as torch
data = torch.utils.data.TensorDataset(torch.arange(8.0))
loader = torch.utils.data.DataLoader(data, batch_size=2, num_workers=2, pin_memory=True, persistent_workers=True)
print(sum(batch.to("npu", non_blocking=True).sum().item() for (batch,) in loader))
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "28.0\n", "")
