"""What the tests of the simulator share: the pyACL module, and programs that run on this CANN."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest
import torch
from older import Older
from runtime import Runtime

import cann_sim


@pytest.fixture(scope="session")
def acl() -> ModuleType:
    """pyACL, initialised. Nobody finalises it: other tests of this process use the same libraries."""
    site_packages = f"{cann_sim.home()}/python/site-packages"
    if site_packages not in sys.path:
        sys.path.append(site_packages)
    import acl  # it lives in the home, which is known only now

    assert acl.init() in (0, 100002)  # 100002: another test did it
    return acl


@pytest.fixture
def older() -> Older:
    """older(op, inputs, outputs, **attributes) calls an op of the older interface."""
    torch.manual_seed(3)
    return Older()


@pytest.fixture(scope="session")
def run_python() -> Callable[..., str]:
    """run_python(code, CANN_SIM_…="…") runs a program through `cann-sim run` and returns what it printed."""

    def run(code: str, **settings: str) -> str:
        command = [sys.executable, "-m", "cann_sim", "run", sys.executable, "-c", code]
        done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    return run


@pytest.fixture(scope="session")
def process() -> Runtime:
    """libascendcl, initialised."""
    runtime = Runtime()
    assert runtime.aclInit(None) in (0, 100002)  # another test of this process did it
    return runtime


@pytest.fixture
def rt(process: Runtime) -> Iterator[Runtime]:
    """Device 0 with a context of the test's own: what the test leaves behind ends with it."""
    while process.aclrtResetDevice(1) == 0:  # other tests of this process may have set it
        pass
    process.must("aclrtSetDevice", 0)
    process.aclrtGetLastError(0)
    process.message()
    context = process.made("aclrtCreateContext", 0)
    yield process
    assert process.aclrtDestroyContext(context) == 0
    process.must("aclrtSetDevice", 0)
    for _ in range(2):  # as often as it was set: the device closes unless another test has it open
        process.must("aclrtResetDevice", 0)
