"""The programs of examples/ run and say what they promise, on the npu of this machine or the simulated one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import cann_sim

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
# A program's arguments, and what it prints; the numbers in () are compared below.
SAYS = {
    "classifier.py": ("--epochs 5", r"epoch 5  loss \S+  accuracy on new pictures (\S+)%\n$"),
    "mixed_precision.py": ("--steps 10", r"^float32 .*\nautocast float16 .*\nautocast bfloat16 +loss (\S+) -> (\S+)  peak memory \d+ KiB\n$"),
    "graph_capture.py": ("--steps 20", r"^op by op: loss (\S+), \d+ us a step\nreplayed: loss (\S+), \d+ us a step\n$"),
    "prefetch.py": ("", r"^20 batches, largest difference from the CPU 0\.\d+\n$"),
    "custom_op.py": ("", r"npu: y = tensor\(\[-0\.9640,  0\.0000,  0\.7616\]\), gradient = tensor\(\[0\.1413, 2\.0000, 0\.8399\]\)\ngradcheck: True"),
    "checkpoints.py": ("", r"read back the same: True\nPyTorch 2\S+ read step 3 and wrote a model back\nwhat PyTorch wrote is here: True on npu:0\n$"),
    "transformer.py": ("--steps 5", r"mindtorch_v2 \S+ on npu: \S+\nloss (\S+) -> (\S+)\n"),
    "mlp.py": ("--steps 40", r"mindtorch_v2: loss (\S+) -> (\S+) in 40 steps"),
}  # fmt: skip
ELSEWHERE = {"distributed.py"}  # by test_distributed_training.py


def test_every_example_is_run_by_a_test() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == SAYS.keys() | ELSEWHERE


@pytest.mark.parametrize("name", SAYS)
def test_an_example_runs(npu: ModuleType, name: str) -> None:
    arguments, said = SAYS[name]
    ended = subprocess.run([sys.executable, EXAMPLES / name, *arguments.split()], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    found = re.search(said, ended.stdout)
    assert found, ended.stdout
    if name == "classifier.py":
        assert float(found[1]) > 50, "a guess is right in 25%"
    elif len(found.groups()) == 2:
        assert float(found[2]) < float(found[1]), "the loss falls"


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_the_cpp_example_builds_and_runs(tmp_path: Path) -> None:
    flags = cann_sim.compile_flags() + cann_sim.link_flags()
    subprocess.run(["c++", "-std=c++11", "-Wall", "-Werror", EXAMPLES / "aclnn.cpp", *flags, "-o", tmp_path / "softmax"], check=True)
    ended = subprocess.run([tmp_path / "softmax"], env=os.environ | cann_sim.env(), capture_output=True, text=True, timeout=600)
    assert ended.stdout == "on Ascend910B2\n0.0900 0.2447 0.6652\n0.3333 0.3333 0.3333\n", ended
