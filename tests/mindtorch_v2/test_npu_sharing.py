"""Tensors of an npu that are sent to other processes lie in one memory: what one writes, the other sees."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

PROGRAM = Path(__file__).parent / "npu_sharing.py"


def test_a_tensor_of_an_npu_is_shared(npu: ModuleType) -> None:
    ran = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    rows = [[200_000.0 * i + j for j in range(4)] for i in range(3)]
    part = [[row[j] for row in rows] for j in (1, 2)]
    assert found["received"] == [rows, part, "Parameter", True, [1, 200_000]]
    assert "received from another process" in found["sent on"] and found["last"] == 7
    assert found["written"] == [[x + 10 for x in row] for row in rows]
    assert found["released"] == 0 and found["held"] == [5, 1] and found["after its end"] == 0
    assert found["came back"] == [0, 0] and found["pool"]
