"""What the tests of the simulator share: the pyACL module, and programs that run on this CANN."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType

import pytest

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


@pytest.fixture(scope="session")
def run_python() -> Callable[..., str]:
    """run_python(code, CANN_SIM_…="…") runs a program through `cann-sim run` and returns what it printed."""

    def run(code: str, **settings: str) -> str:
        command = [sys.executable, "-m", "cann_sim", "run", sys.executable, "-c", code]
        done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    return run
