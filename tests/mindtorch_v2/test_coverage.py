"""The tools behind `make parity` and `make ecosystem`: what counts as agreement, and how it is reported."""
from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import coverage_judge
import coverage_report
import ecosystem
import pytest
import torch

import mindtorch_v2 as mt


def packed(what: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    mt.save(what, buffer)
    return buffer.getvalue()


def optim(lr: float, outputs: list[Any]) -> tuple[str, str]:
    given = {"op": "SGD", "options": {"lr": lr}, "start": [mt.ones(2)], "sparse": False}
    return coverage_judge.judge("optim", packed(given), packed({"outputs": outputs}))


def test_the_judge_runs_the_same_and_compares() -> None:
    w = mt.nn.Parameter(mt.ones(2))
    step = mt.optim.SGD([w], lr=0.1)
    for _ in range(4):
        step.zero_grad()
        (w * w * w.detach().cos()).sum().backward()
        step.step()
    assert optim(0.1, [w.detach()]) == ("pass", "")
    assert optim(0.2, [w.detach()])[0] == "wrong"
    assert optim(0.1, [w.detach().double()])[1].startswith("result 0 is torch.float64 [2], expected torch.float32")
    refused = coverage_judge.judge("optim", packed({"op": "SGD", "options": {"lr": -1.0}, "start": [mt.ones(2)],
                                                    "sparse": False}), packed({"error": "ValueError: Invalid"}))
    assert refused == ("pass", "both refuse")


def test_ties_and_phases_are_unspecified() -> None:
    x = torch.tensor([1.0, 0.0, 1.0])
    for indices, same in ((torch.tensor([1, 0, 2]), True), (torch.tensor([1, 2, 0]), True), (torch.tensor([0, 1, 2]), False)):
        what = {"op": "argsort", "variant": "", "args": (x,), "kwargs": {}}
        mine, its = (coverage_judge.comparable(what, [found]) for found in (indices, x.argsort()))
        assert (coverage_judge.difference(mine, its) is None) is same
    vectors = torch.linalg.eigh(torch.eye(2))[1]
    what = {"op": "linalg.eigh", "args": (), "kwargs": {}}
    assert coverage_judge.difference(*(coverage_judge.comparable(what, [sign * vectors]) for sign in (1, -1))) is None
    assert coverage_judge.difference([torch.zeros(2)], [None]) is None and coverage_judge.difference([torch.ones(2)], [None])


def test_the_page_counts_every_verdict() -> None:
    records = [{"key": ("add", "float32"), "kind": "BinaryUfuncInfo", "verdict": "pass", "why": ""},
               {"key": ("fft.fft", "bool"), "kind": "SpectralFuncInfo", "verdict": "missing", "why": "no | kernel"},
               {"key": ("nn.Linear", "float32"), "kind": "modules", "verdict": "wrong", "why": "x"}]
    page = coverage_report.report({"cpu": records}, "make parity")
    for line in ("| pointwise, two tensors | 1 |  |  |  |  |", "| fft |  | 1 |  |  |  |", "| modules |  |  | 1 |  |  |",
                 "| **all** | 1 | 1 | 1 |  |  |", "- `fft.fft` (bool): missing: no / kernel"):
        assert line in page


def test_numbers_of_packages_agree_or_not() -> None:
    assert ecosystem.compare([1.0, float("nan")], [1.0001, float("nan")]) == "same numbers"
    assert ecosystem.compare([1.0], [1.1]).startswith("wrong") and ecosystem.compare([1.0], []).startswith("wrong")


def test_the_lists_of_pytorch_are_made_over_this_library() -> None:
    """op_db, module_db and optim_db of PyTorch's wheel, with nothing put in anything's place."""
    program = """
import sys
import mindtorch_v2
torch = mindtorch_v2.install(testing_internal=sys.argv[1])
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_optimizers import optim_db
add = next(info for info in op_db if info.name == "add")
sample = next(iter(add.sample_inputs("cpu", torch.float32)))
print(len(op_db) > 650, len(module_db) > 100, len(optim_db) > 12, add.op is torch.add, type(sample.input) is torch.Tensor)
"""
    wheel = Path(torch.__file__).parents[1]
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", program, str(wheel)], capture_output=True, text=True, check=True)
    assert run.stdout == "True True True True True\n"


def test_what_a_device_draws_is_compared_by_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(what: dict[str, Any]) -> tuple[list[Any], list[Any]]:
        torch.manual_seed(0)
        return [torch.rand(3) if what["random"] else torch.ones(3)], []

    def verdict(device: str, random: bool, mine: Any) -> str:
        given = packed({"op": "draw", "draws_itself": device != "cpu", "random": random})
        return coverage_judge.judge("draw", given, packed({"outputs": [mine]}))[0]
    monkeypatch.setitem(coverage_judge.RUNS, "draw", draw)
    assert verdict("npu", True, mt.zeros(3)) == "pass" and verdict("npu", True, mt.zeros(4)) == "wrong"
    assert verdict("cpu", True, mt.zeros(3)) == "wrong" and verdict("npu", False, mt.zeros(3)) == "wrong"
