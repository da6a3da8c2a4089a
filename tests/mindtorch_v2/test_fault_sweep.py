"""A thinned slice of the fault sweep (fault_sweep.py; all of it: make test-faults), and that the sweep itself can fail."""

from __future__ import annotations

from types import ModuleType

import pytest
from fault_attempt import Place, Seen, leaked, places_of, told_problems
from fault_sweep import sweep
from fault_workloads import WORKLOADS

import mindtorch_v2 as torch

SEED = 9
# Each K-th place, so that a workload takes about two seconds.
EVERY = {"train": 40, "graph": 8, "pipeline": 6, "oom": 5, "segments": 40, "devices": 8, "restart": 24, "lists": 20,
         "updates": 8, "questions": 6, "blocking": 30, "exit": 70}  # fmt: skip


@pytest.mark.parametrize("mode", ["normal", "delay"])
@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_calls_that_fail_are_reported_and_leak_nothing(npu: ModuleType, name: str, mode: str) -> None:
    found = sweep(name, mode, EVERY[name] * (1 if mode == "normal" else 3), SEED)
    assert found.problems == []
    assert found.places > 40
    assert found.tried > found.not_reached


# ---- the sweep itself -----------------------------------------------------------------------------------------------
COPY = Place("aclrtMemcpyAsync", 3, 507899)
RIGHT = [1.0]


def accelerator_error(text: str) -> torch.AcceleratorError:
    return torch.AcceleratorError(text)


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (Seen([2.0], None, ""), "no exception"),
        (Seen(RIGHT, None, ""), "passed in silence"),
        (Seen(None, SystemError("aclrtMemcpyAsync"), ""), "SystemError"),
        (Seen(None, accelerator_error("failed with ACL_ERROR_RT_DRV_INTERNAL_ERROR (507899)"), ""), "is not named"),
        (Seen(None, accelerator_error("failed\nCANN says: [507899] aclrtMemcpyAsync"), ""), "is not named"),
    ],
)
def test_a_badly_reported_fault_is_a_problem(seen: Seen, words: str) -> None:
    problems = told_problems(COPY, seen, RIGHT)
    assert problems
    assert words in problems[0]


def test_a_well_reported_fault_is_no_problem() -> None:
    error = accelerator_error("[aclrtMemcpyAsync] failed with ACL_ERROR_RT_DRV_INTERNAL_ERROR (507899)")
    assert told_problems(COPY, Seen(None, error, ""), RIGHT) == []


def test_what_stays_alive_is_a_leak_unless_it_was_to_be_destroyed_there() -> None:
    before, after = {"events": (1, 0)}, {"events": (2, 0), "streams": (1, 0)}
    assert len(leaked(COPY, before, after)) == 2
    assert leaked(Place("aclrtDestroyEvent", 1, 507899), before, {"events": (2, 0)}) == []
    assert leaked(Place("aclDestroyAclOpExecutor", 2, 561000), {}, {"aclOpExecutor of aclnnAdds": (1, 0)}) == []


def test_places_are_all_calls_with_all_their_codes() -> None:
    found = places_of({"aclrtMallocAlign32": 2, "aclnnAdd": 1, "launch aclnnAdd": 1, "op aclnnAdd": 2}, 1)
    assert [place.plan for place in found] == [
        "aclnnAdd:1=561103", "aclrtMallocAlign32:1=207001", "aclrtMallocAlign32:1=507899", "aclrtMallocAlign32:2=207001",
        "aclrtMallocAlign32:2=507899", "launch aclnnAdd:1=361001", "op aclnnAdd:1=507015", "op aclnnAdd:2=507015",
        "lost:0@1", "lost:0@2",
    ]  # fmt: skip
