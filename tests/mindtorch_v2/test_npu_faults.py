"""Single calls of CANN that fail: what is reported, what is kept until the device is done, what is freed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from fault_workloads import clean_up

import cann_sim
import mindtorch_v2 as torch
from cann_sim import faults
from mindtorch_v2._backends.npu import acl_loader

PINNED, MEMORY = "allocations or registrations of pinned host memory", "allocations of device memory"


@pytest.fixture
def plan(npu: ModuleType) -> Iterator[Callable[[str], None]]:
    """Sets the fault plan of the simulator."""
    if not acl_loader.libraries().get("libascendcl.so", "").startswith(cann_sim.home()):
        pytest.skip("a card has no fault plan")
    npu.synchronize()
    yield faults.set_faults
    faults.set_faults("")


def alive() -> dict[str, int]:
    clean_up(1)
    return {kind: count for kind, (count, _) in faults.alive().items()}


def test_a_copy_that_could_not_wait_has_not_begun(plan: Callable[[str], None]) -> None:
    """Memory of the host that is not pinned is copied at once, after the stream: nothing is left that writes to it later."""
    x, host = torch.ones(100, device="npu"), torch.zeros(100)
    faults.count_calls(True)
    host.copy_(x)
    faults.count_calls(False)
    host.zero_()
    plan(f"aclrtSynchronizeStream:{faults.calls()['aclrtSynchronizeStream']}=507046")  # the wait before the copy itself
    with pytest.raises(torch.AcceleratorError, match=r"aclrtSynchronizeStream: copy from npu to cpu.*\(507046\)"):
        host.copy_(x)
    torch.npu.synchronize()
    assert not host.any() and x.cpu().sum().item() == 100


@pytest.mark.parametrize("faulty", ["aclrtRecordEvent:1=107003", "aclrtRecordEvent:1=107003,aclrtSynchronizeStream:1=507046"])
def test_pinned_memory_is_not_lost_with_its_event(plan: Callable[[str], None], faulty: str) -> None:
    def copy() -> None:
        torch.ones(50).pin_memory().to("npu", non_blocking=True)

    copy()
    before = alive()
    copy()
    plan(faulty)
    try:
        torch.npu.host_empty_cache()
        assert "," not in faulty, "a block whose copies are not tracked must not be freed silently"
    except torch.AcceleratorError as error:
        assert "aclrtSynchronizeStream" in str(error)
    after = alive()
    assert after[PINNED] == before[PINNED]
    assert after["events"] <= before["events"] + 1


@pytest.mark.parametrize(
    ("function", "n", "act"),
    [
        ("aclCreateTensor", 1, lambda x: x.exp2()),
        ("aclCreateTensor", 2, lambda x: x.exp2()),
        ("aclCreateScalar", 1, lambda x: x * 3.5),
        ("aclCreateIntArray", 1, lambda x: x.sum((0, 1))),
        ("aclCreateTensorList", 1, lambda x: torch.cat([x, x, x])),
        ("aclCreateTensor", 3, lambda x: torch.cat([x, x, x])),
    ],
)
def test_an_object_that_cann_does_not_make_is_no_absent_argument(
    plan: Callable[[str], None], function: str, n: int, act: Callable[[Any], Any]
) -> None:
    x = torch.ones(5, 4 + n, 3, device="npu")[..., 1]  # not prepared before
    torch.ones(5, 4 + n, device="npu").exp2()  # so that every kind is counted
    before = faults.alive()
    plan(f"{function}:{n}=561000")
    with pytest.raises(torch.AcceleratorError, match=rf"\[{function} of aclnn\w+\] failed with ACLNN_ERR_INNER_NULLPTR"):
        act(x)
    plan("")
    made = [kind for kind, count in faults.alive().items() if kind.startswith("acl") and count > before.get(kind, (0, 0))]
    assert made == []
    act(x)


def test_tensors_of_a_wait_that_failed_end_with_the_next(plan: Callable[[str], None]) -> None:
    x = torch.tensor([0.0, 1.0, 2.0], device="npu")
    x.nonzero()
    before = alive()
    for _ in range(3):
        plan("aclrtSynchronizeStream:1=507046")
        with pytest.raises(torch.AcceleratorError, match="aclrtSynchronizeStream of aclnnNonzero"):
            x.nonzero()
    plan("")
    assert x.nonzero().tolist() == [[1], [2]]
    assert alive()["aclTensor"] == before["aclTensor"]


def test_an_object_that_cannot_be_destroyed_is_reported(plan: Callable[[str], None]) -> None:
    x = torch.tensor([0.0, 1.0], device="npu")
    x.nonzero()
    plan("aclDestroyTensor:1=561000")
    with pytest.warns(RuntimeWarning, match=r"leaked: \[aclDestroyTensor\] failed with ACLNN_ERR_INNER \(561000\)"):
        assert x.nonzero().tolist() == [[1]]


def test_memory_that_was_not_freed_is_freed_later(plan: Callable[[str], None]) -> None:
    before = alive()[MEMORY]
    x = torch.empty(30 << 20, device="npu")
    del x
    plan("aclrtFree:1=507899")
    with pytest.raises(torch.AcceleratorError, match=r"\[aclrtFree\].*\(507899\)"):
        torch.npu.empty_cache()
    assert alive()[MEMORY] == before


def test_a_block_that_a_stream_may_use_is_not_given_away(
    plan: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: told.append(str(args.exc_value)))
    side, x = torch.npu.Stream(), torch.empty(9 << 20, device="npu")
    address = x.data_ptr()
    x.record_stream(side)
    plan("aclrtRecordEvent:1=107003,aclrtSynchronizeStream:1=507046")
    del x
    assert len(told) == 1 and "aclrtSynchronizeStream" in told[0]
    plan("aclrtRecordEvent:1=107003,aclrtSynchronizeStream:1=507046")
    with pytest.raises(torch.AcceleratorError, match="aclrtSynchronizeStream"):
        torch.empty(9 << 20, device="npu")
    plan("")
    torch.npu.synchronize()
    assert torch.empty(9 << 20, device="npu").data_ptr() == address, "once the stream is known to be done"


def test_a_device_begins_anew_although_its_reset_failed(npu: ModuleType) -> None:
    code = """
import mindtorch_v2 as torch
from cann_sim import faults
x = torch.ones(4, device="npu")
torch.npu.restart_device(0, rebuild_all_resources=True)
faults.set_faults("lost:0@1")
try:
    torch.ones(4, device="npu").cpu()
except torch.AcceleratorError as error:
    print(error.error_code)
torch.npu.restart_device(0, rebuild_all_resources=True)
print(torch.ones(4, device="npu").sum().item())
"""
    settings = {"CANN_SIM_FAULTS": "aclrtResetDevice:1=507899", "ASCEND_HOME_PATH": cann_sim.home()}
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | settings, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "507010\n4.0\n"), done.stderr
    assert done.stderr.count("[aclrtResetDevice] failed with ACL_ERROR_RT_DRV_INTERNAL_ERROR (507899)") == 1


def test_a_failed_query_of_priorities_is_an_error(plan: Callable[[str], None]) -> None:
    plan("aclrtDeviceGetStreamPriorityRange:1=507899")
    with pytest.raises(torch.AcceleratorError, match=r"aclrtDeviceGetStreamPriorityRange.*\(507899\)"):
        torch.npu.stream_priority_range()
    plan("aclrtDeviceGetStreamPriorityRange:1=207000")
    assert torch.npu.stream_priority_range() == (0, 0)
