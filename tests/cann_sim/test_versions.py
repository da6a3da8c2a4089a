"""CANN_SIM_VERSION and CANN_SIM_SOC: symbols that are missing, ops and dtypes that have no kernel, cubeMathType by SoC."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import cann_tables

RunPython = Callable[..., str]
LOOK_UP = """
import ctypes, json, sys, cann_sim
home = cann_sim.home() + "/lib64/lib"
names = NAMES
opened = {name: ctypes.CDLL(f"{home}{name}.so") for name in ("ascendcl", "opapi", "opapi_nn", "hccl", "nnopbase")}
print(json.dumps({library: [hasattr(opened[library], name) for name in found] for library, found in names.items()}))
"""
NAMES = {
    "opapi": ["aclnnAdd", "aclnnCrossEntropyLossGetWorkspaceSize", "aclnnGroupedMatmulV5", "aclnnGroupedMatmulV5GetWorkspaceSize",
              "aclnnFusedInferAttentionScoreV4GetMaxWorkspaceSize"],
    "opapi_nn": ["aclnnAddGetWorkspaceSize", "aclnnGroupedMatmulV5"],
    "ascendcl": ["aclrtSetDevice", "aclmdlRICaptureBegin", "aclrtGetDeviceResLimit"],
    "hccl": ["HcclAllReduce", "HcclAllGatherV"],
    "nnopbase": ["aclCreateTensor"],
}


@pytest.mark.parametrize("version", ["", "8.0", "8.1.RC1", "8.2", "8.3.RC1", "8.5.0", "9.1"])
def test_dlsym_finds_what_the_version_has(run_python: RunPython, version: str) -> None:
    said = json.loads(run_python(LOOK_UP.replace("NAMES", repr(NAMES)), CANN_SIM_VERSION=version))
    asked = cann_tables.version(version) if version else (99, 0)
    for library, names in NAMES.items():
        ops = [re.sub("Get(Max)?WorkspaceSize$", "", name) for name in names]
        assert said[library] == [cann_tables.since(op) <= asked for op in ops], library


def test_all_that_came_later_is_hidden_and_nothing_else(run_python: RunPython) -> None:
    names = {"opapi": [op.name for op in cann_tables.ops()],
             "ascendcl": [f.name for f in cann_tables.functions() if f.library == "libascendcl.so"]}
    said = json.loads(run_python(LOOK_UP.replace("NAMES", repr(names)), CANN_SIM_VERSION="8.2"))
    for library, found in names.items():
        expected = [cann_tables.since(name) <= (8, 2) for name in found]
        assert said[library] == expected and not all(expected)


def test_a_library_that_is_linked_still_runs(run_python: RunPython) -> None:
    """What the libraries call of each other is bound before symbols are hidden."""
    code = """
import sys, cann_sim
sys.path.append(cann_sim.home() + "/python/site-packages")
import acl
assert acl.init() == 0 and acl.rt.set_device(0) == 0 and not hasattr(acl.rt, "device_get_stream_priority_range")
print(acl.rt.malloc(64, 0)[1], acl.finalize())
"""
    assert run_python(code, CANN_SIM_VERSION="8.0").split() == ["0", "0"]


@pytest.mark.parametrize("version", ["8", "7.0", "new", "8.x", "8.1x"])
def test_no_version(run_python: RunPython, version: str) -> None:
    code = "import ctypes, cann_sim; print(ctypes.CDLL(cann_sim.home() + '/lib64/libascendcl.so').aclInit(None))"
    assert run_python(code, CANN_SIM_VERSION=version).strip() == "100000"


CALL = """
import sys
sys.path.insert(0, TESTS)
import torch
from client import CannError, Client
client = Client()
def code(name, *args):
    try:
        client.call(name, *args)
    except CannError as error:
        return error.code
    return 0
x, half, b = torch.ones(4, 4), torch.ones(4, 4).half(), torch.ones(4, 4).bfloat16()
print(code("aclnnMatmul", x, x, x, 0), code("aclnnMatmul", x, x, x, 2), code("aclnnMatmul", x, x, x, 3), code("aclnnMatmul", half, half, half, 0),
      code("aclnnRelu", b, b), code("aclnnRmsNorm", x, x[0], 1e-6, x, x[:, :1]), code("aclnnForeachAbs", [x], [x]))
"""


@pytest.mark.parametrize(("soc", "name", "codes"), [
    ("910A", "Ascend910A", "161002 0 161002 0 161002 561003 561003"), ("310P", "Ascend310P3", "161002 0 161002 0 161002 0 561003"),
    ("910B", "Ascend910B2", "0 0 0 0 0 0 0"), ("910_93", "Ascend910_9391", "0 0 0 0 0 0 0"), ("950", "Ascend950PR_9589", "0 0 0 0 0 0 0"),
])  # fmt: skip
def test_a_soc_refuses_what_it_has_no_kernel_of(run_python: RunPython, soc: str, name: str, codes: str) -> None:
    tests = str(Path(__file__).parent)
    said = run_python(CALL.replace("TESTS", repr(tests)), CANN_SIM_SOC=soc)
    assert said.splitlines()[0] == codes
    named = run_python("import cann_sim.cli as cli; print(cli.read_info().soc)", CANN_SIM_SOC=soc)
    assert named.strip() == name


def test_two_numbers_are_a_release(run_python: RunPython) -> None:
    """Clients compare three numbers: 9.1 alone would come before 9.1.0."""
    code = "import cann_sim.cli as cli; print(cli.read_info().version)"
    assert [run_python(code, CANN_SIM_VERSION=v).strip() for v in ("9.1", "8.3.RC1")] == ["9.1.0", "8.3.RC1"]


def test_info_counts_what_is_absent() -> None:
    command = [sys.executable, "-m", "cann_sim", "info"]
    done = subprocess.run(command, env=os.environ | {"CANN_SIM_VERSION": "8.1"}, capture_output=True, text=True, check=True)
    absent = sum(op.since > (8, 1) for op in cann_tables.ops())
    assert f"561003, {absent} absent" in done.stdout and "version   CANN 8.1" in done.stdout


def test_every_symbol_of_the_table_is_one() -> None:
    known = {op.name for op in cann_tables.ops()} | {f.name for f in cann_tables.functions()}
    assert cann_tables._first_versions().keys() <= known
    families = {row[1] for row in cann_tables.socs()}
    for pattern, served in cann_tables._kernels():
        assert served <= families and any(name.startswith(pattern.rstrip("*")) for name in known), pattern
    assert set(cann_tables.without_bfloat16()) <= families
    assert set(cann_tables.short_names().values()) <= {row[0] for row in cann_tables.socs()}
