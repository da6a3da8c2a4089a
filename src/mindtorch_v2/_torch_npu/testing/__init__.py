"""torch_npu.testing: what tests for Ascend are written with. Its patches of PyTorch's own test suite are not here."""
from __future__ import annotations

from . import common_distributed, common_utils, decorator, testcase

__all__ = ["common_distributed", "common_utils", "decorator", "testcase"]
