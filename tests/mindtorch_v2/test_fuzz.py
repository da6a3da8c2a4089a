"""Native code survives any object thrown at it: a short run of fuzz.py with a fixed seed."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import mindtorch_v2 as mt

HERE = Path(__file__).parent


def test_nothing_crashes() -> None:
    source = str(Path(mt.__file__).parents[1])
    env = os.environ | {"PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
    run = subprocess.run([sys.executable, "-X", "faulthandler", str(HERE / "fuzz.py"), "--seed", "0", "--rounds", "25"],
                         capture_output=True, text=True, env=env, timeout=600)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-4000:]
