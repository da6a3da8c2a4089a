"""aclnn ops by name through the launcher: every op of the table has a plan, those that compute compute. Each is waited for,
so that the runs of test_npu_*.py in delay mode have nothing to find here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import cann_tables
from mindtorch_v2._backends.npu import aclnn

HERE = Path(__file__).parent


def test_every_op_of_the_table_has_a_plan(npu: ModuleType) -> None:
    names = [op.name for op in cann_tables.ops() if op.arguments is not None and aclnn.has(op.name)]
    assert len(names) >= 771                                 # CANN 8.1 has these
    for name in names:
        assert aclnn.plan_of(name).name == name


def test_ops_by_name(npu: ModuleType) -> None:
    """The simulator's own op tests, their calls made by aclnn.call (launched.py), in a process that they may break."""
    files = (HERE.parent / "cann_sim").glob("test_ops_*.py")
    left_out = ("test_ops_older.py",             # no aclnn calls
                "test_ops_groups.py")            # ranks that wait for each other, and all launches go to one stream
    tests = sorted(str(file) for file in files if file.name not in left_out)
    paths = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "launched", *tests],
                          env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    launched = re.search(r"launched (\d+) of", done.stdout)
    assert launched and int(launched[1]) >= 700, done.stdout[-2000:]
