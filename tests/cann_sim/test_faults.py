"""The fault plan that a client changes while it runs: every exported function can fail, calls and live handles are counted."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest
import tables
from runtime import Runtime

import cann_sim
import cann_tables
from cann_sim import faults

PLANNED = 561999  # a code that no function gives by itself
STATUS = {"aclError", "aclnnStatus", "HcclResult"}
# What tells of errors tells them always; CANN's caches are not there, and these say so.
NEVER_FAIL = {"aclGetRecentErrMsg", "aclrtPeekAtLastError", "aclrtGetLastError", "HcclGetErrorString", "PTAFindExecCache",
              "PTAGetExecCache"}  # fmt: skip
NOT_AT_ONCE = {"aclmdlRICaptureEnd"}  # looks at its arguments first: it ends a capture even when it fails
READS = {"aclGetDataBufferAddr", "aclGetTensorDescName"}  # a NULL of theirs says that the object is wrong


@pytest.fixture(autouse=True)
def no_plan() -> Iterator[None]:
    yield
    faults.set_faults("")
    faults.count_calls(False)


def library(name: str) -> ctypes.CDLL:
    return ctypes.CDLL(str(Path(cann_sim.home()) / "lib64" / name))


@pytest.mark.parametrize("name", ["libascendcl.so", "libnnopbase.so", "libopapi.so", "libhccl.so", "libacl_op_compiler.so"])
def test_every_function_fails_by_the_plan(name: str) -> None:
    """Without arguments: a function that is to fail looks at none."""
    opened, untouched = library(name), []
    declared = [f for f in tables.functions() if f.library == name and f.name not in NEVER_FAIL | NOT_AT_ONCE | READS]
    for f in declared:
        if f.result not in STATUS and not f.result.endswith("*"):
            continue
        function = getattr(opened, f.name)
        function.restype = ctypes.c_int32 if f.result in STATUS else ctypes.c_void_p
        faults.set_faults(f"{f.name}:1={PLANNED}")
        faults.count_calls(True)
        answer = function(*[ctypes.c_void_p()] * len(f.arguments))
        if answer != (PLANNED if f.result in STATUS else None) or faults.calls() != {f.name: 1}:
            untouched.append((f.name, answer))
    assert untouched == []


def test_both_phases_of_every_op_fail_by_the_plan() -> None:
    opened, untouched = library("libopapi.so"), []
    for op in cann_tables.ops():
        if op.arguments is None:
            continue
        faults.set_faults(f"{op.name}:1={PLANNED}")
        first = getattr(opened, f"{op.name}GetWorkspaceSize")(*[ctypes.c_void_p()] * (len(op.arguments) + 2))
        if first != PLANNED:
            untouched.append((op.name, first))
    assert untouched == []


def test_a_second_phase_that_fails_uses_its_executor_up(rt: Runtime) -> None:
    base, opapi = library("libnnopbase.so"), library("libopapi.so")
    base.aclCreateTensor.restype = ctypes.c_void_p
    memory, sizes = rt.malloc(64), (ctypes.c_int64 * 1)(4)
    x = ctypes.c_void_p(base.aclCreateTensor(sizes, 1, 0, None, ctypes.c_int64(), 2, sizes, ctypes.c_uint64(1),
                                             ctypes.c_void_p(memory)))  # fmt: skip
    before = faults.alive()["aclOpExecutor"][0] if "aclOpExecutor" in faults.alive() else 0
    workspace, executor = ctypes.c_uint64(), ctypes.c_void_p()
    assert opapi.aclnnExpGetWorkspaceSize(x, x, ctypes.byref(workspace), ctypes.byref(executor)) == 0
    assert faults.alive()["aclOpExecutor"][0] == before + 1
    faults.set_faults("launch aclnnExp:1=361001")
    assert opapi.aclnnExp(None, ctypes.c_uint64(), executor, None) == 361001
    assert "launch aclnnExp" in rt.message()
    assert faults.alive()["aclOpExecutor"][0] == before
    assert base.aclDestroyTensor(x) == 0


def test_a_new_plan_begins_to_count_again(rt: Runtime) -> None:
    memory = rt.malloc(64)
    for _ in range(2):
        faults.set_faults("aclrtMemset:2=507899")
        assert [rt.aclrtMemset(memory, 4, 0, 4) for _ in range(3)] == [0, 507899, 0]
    faults.set_faults("")
    assert [rt.aclrtMemset(memory, 4, 0, 4) for _ in range(3)] == [0, 0, 0]


def test_calls_and_tasks_are_counted(rt: Runtime) -> None:
    memory, stream = rt.malloc(64), rt.stream()
    faults.count_calls(True)
    for _ in range(3):
        rt.fill(memory, 1, 64, stream)
    rt.sync(stream)
    counted = faults.calls()
    assert counted["aclrtMemsetAsync"] == counted["op aclrtMemsetAsync"] == 3
    assert counted["aclrtSynchronizeStream"] == 1
    faults.count_calls(False)
    rt.fill(memory, 1, 64, stream)
    assert faults.calls() == counted, "and no more"


def test_what_is_alive_is_counted(rt: Runtime) -> None:
    before = faults.alive()
    rt.malloc(1 << 20)
    rt.stream()
    rt.event()
    after = faults.alive()
    assert after["streams"][0] - before["streams"][0] == 1
    assert after["events"][0] - before["events"][0] == 1
    count, size = (a - b for a, b in zip(after["allocations of device memory"], before["allocations of device memory"]))
    assert count == 1
    assert size >= 1 << 20


def test_a_plan_that_is_not_understood_changes_nothing(rt: Runtime) -> None:
    memory = rt.malloc(64)
    faults.set_faults("aclrtMemset:1=507899")
    with pytest.raises(ValueError, match="aclrtMemset:x"):
        faults.set_faults("aclrtMemset:x")
    assert rt.aclrtMemset(memory, 4, 0, 4) == 507899
