"""Programs of ours under cann_sim's checks: a missing record_stream or wait is reported, and what is right is silent."""

from __future__ import annotations

import os
import subprocess
import sys
from types import ModuleType

import pytest

PROGRAM = """
import mindtorch_v2 as torch
side, main = torch.npu.Stream(), torch.npu.current_stream()
x = torch.ones(1 << 16, device="npu")
if {wait}:
    side.wait_stream(main)
with torch.npu.stream(side):
    y = x * 2
if {record}:
    x.record_stream(side)
del x
z = torch.zeros(1 << 16, device="npu")        # reuses the block of x, unless it is still in use
staged = torch.ones(1000).pin_memory()
there = staged.to("npu", non_blocking=True)
main.wait_stream(side)
graph = torch.npu.NPUGraph()
with torch.npu.graph(graph):
    w = z + y
graph.replay()
print((w.sum() + there.sum()).item())
"""


def run(wait: bool, record: bool) -> tuple[int, str]:
    env = os.environ | {"CANN_SIM_CHECK": "race,memory,fatal"}
    code = PROGRAM.format(wait=wait, record=record)
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode in (0, 66), done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize(("wait", "record", "both"), [
    (True, False, ("aclnnMuls reads self (task", "aclnnInplaceZero writes selfRef (task")),
    (False, True, ("aclnnInplaceFillScalar writes selfRef (task", "aclnnMuls reads self (task")),
])  # fmt: skip
def test_what_is_missing_is_reported(npu: ModuleType, wait: bool, record: bool, both: tuple[str, str]) -> None:
    status, text = run(wait, record)
    assert status == 66
    assert all(side in text for side in both), text


def test_what_is_right_is_silent(npu: ModuleType) -> None:
    assert run(wait=True, record=True) == (0, "")
