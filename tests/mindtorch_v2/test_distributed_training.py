"""DistributedDataParallel and what goes with it, on both engines: PyTorch's losses, and those of one process."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from test_distributed import ENGINES, HERE, Ranks, names

NOT_IN_TORCH = ("synced_norm", "bfloat16_hook", "power_sgd")  # where PyTorch needs CUDA, or its random numbers differ


def close(ours: Any, judge: Any, limit: float) -> bool:
    if isinstance(ours, dict) and isinstance(judge, dict):
        return ours.keys() == judge.keys() and all(close(ours[key], judge[key], limit) for key in ours)
    if isinstance(ours, list) and isinstance(judge, list):
        return len(ours) == len(judge) and all(close(a, b, limit) for a, b in zip(ours, judge, strict=True))
    if isinstance(ours, float) and isinstance(judge, float):
        return math.isclose(ours, judge, rel_tol=limit, abs_tol=limit)
    return ours == judge


@pytest.fixture(scope="module")
def trained(npu: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("training")
    torchs = tuple(name for name in names("dist_training.py") if name not in NOT_IN_TORCH)
    runs = {"torch": Ranks("dist_training.py", "torch", "gloo", 2, folder / "torch", cases=torchs)}
    runs |= {engine: Ranks("dist_training.py", "mindtorch_v2", engine, 2, folder / engine) for engine in ENGINES}
    runs["one"] = Ranks("dist_training.py", "mindtorch_v2", "gloo", 1, folder / "one", cases=("plain", "synced_norm"))
    return {name: ranks.finish() for name, ranks in runs.items()}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", [name for name in names("dist_training.py") if name not in NOT_IN_TORCH])
def test_training_is_torchs(trained: dict[str, list[dict[str, Any]]], engine: str, name: str) -> None:
    limit = 1e-5 if "hook" in name or engine == "hccl" else 1e-6
    for ours, judge in zip(trained[engine], trained["torch"], strict=True):
        assert "failed" not in str(judge[name])[:12], judge[name]
        assert close(ours[name], judge[name], limit), (ours[name], judge[name])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["plain", "synced_norm"])
def test_training_is_that_of_one_process(trained: dict[str, list[dict[str, Any]]], engine: str, name: str) -> None:
    for ours in trained[engine]:
        assert close(ours[name], trained["one"][0][name], 1e-6 if engine == "gloo" else 1e-5), (ours[name], trained["one"])


@pytest.mark.parametrize("engine", ENGINES)
def test_inexact_reductions_train_alike(trained: dict[str, list[dict[str, Any]]], engine: str) -> None:
    for ours in trained[engine]:
        assert close(ours["bfloat16_hook"][0], ours["plain"][0], 1e-2) and close(ours["power_sgd"], ours["plain"][0], 1e-2)
        assert ours["bfloat16_hook"][0] != ours["plain"][0]


def test_the_example(npu: ModuleType, tmp_path: Path) -> None:
    """`make run-distributed`: two npus train the transformer."""
    command = [sys.executable, "-m", "mindtorch_v2.distributed.run", "--standalone", "--nproc-per-node=2",
               str(HERE.parents[1] / "examples" / "distributed.py"), "--steps", "3"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    losses = [float(loss) for loss in re.findall(r"loss (\d+\.\d+)", done.stdout)]
    assert losses and losses[-1] < losses[0] and "2 processes" in done.stdout
