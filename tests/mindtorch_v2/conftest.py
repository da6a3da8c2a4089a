"""The npu for tests: a card where this machine has one, else the simulator. Nothing is skipped for lack of a device."""

from __future__ import annotations

import os
import signal
from types import ModuleType

import pytest

import mindtorch_v2 as torch

# A shell that starts the tests in the background has them ignore Ctrl-C, and their children would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def npu() -> ModuleType:
    """torch.npu, with at least one device."""
    if not torch.npu.is_available():
        import cann_sim  # not needed where there is a card

        os.environ["ASCEND_HOME_PATH"] = cann_sim.home()
    assert torch.npu.is_available(verbose=True)
    return torch.npu


@pytest.fixture
def two(npu: ModuleType) -> ModuleType:
    """torch.npu, with at least two devices: the simulator has them, a machine with one card does not."""
    if npu.device_count() < 2:
        pytest.skip("needs two npus")
    return npu
