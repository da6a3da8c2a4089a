"""The launcher of npu ops survives any object: a short run of fuzz_launch.py with a fixed seed."""
from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import mindtorch_v2 as mt

FILE = Path(__file__).parent / "fuzz_launch.py"


def test_nothing_crashes_hangs_or_stays() -> None:
    source = str(Path(mt.__file__).parents[1])
    env = os.environ | {"PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
    run = subprocess.run([sys.executable, str(FILE), "--seed", "1", "--executions", "12000"], capture_output=True, text=True,
                         env=env, timeout=300)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-4000:]
    last = run.stdout.strip().splitlines()[-1]
    assert re.fullmatch(r"launch: 12000 executions, 0 crashes, 0 hangs, 0 leaks, \d+ s", last), last
