"""torch_npu.testing under the drop-in: a test file as torch_npu's own are written, and what its assertions refuse."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = '''
import unittest

import numpy as np
import torch
import torch_npu
from torch_npu.testing.common_distributed import TEST_SKIPS, skipIfUnsupportMultiNPU
from torch_npu.testing.common_utils import (SkipIfNotGteCANNVersion, SupportedDevices, create_common_tensor, create_dtype_tensor,
                                            freeze_rng_state, test_2args_broadcast)
from torch_npu.testing.decorator import Dtypes, Formats, instantiate_tests
from torch_npu.testing.testcase import TestCase, run_tests


@instantiate_tests
class TestAdd(TestCase):
    def test_add_common_shape_format(self):
        for item in ([np.float32, 0, (4, 3)], [np.float16, 2, (5,)], [np.int32, -1, (2, 3)]):
            a, on_npu = create_common_tensor(item, 0, 100)
            self.assertEqual(on_npu.device.type, "npu")
            self.assertRtolEqual((a + a).numpy(), (on_npu + on_npu).cpu().numpy())
            self.assertEqual(a + a, on_npu + on_npu)

    @Dtypes(torch.float, torch.half, torch.int32)
    @Formats(2)
    def test_mul(self, device, dtype, npu_format):
        a, on_npu = create_dtype_tensor((4, 4), dtype, npu_format, no_zero=True)
        assert a.all() and device == "npu"
        self.assertRtolEqual(a * a, (on_npu * on_npu).cpu())

    def test_broadcast(self):
        for host, on_npu in test_2args_broadcast(torch.mul):
            self.assertRtolEqual(host, on_npu)

    @SupportedDevices(["Ascend910B"])
    def test_soc(self):
        self.assertTrue(torch.npu.get_device_name().startswith("Ascend910B"))

    @SupportedDevices(["Ascend910_93"])
    def test_other_soc(self):
        self.fail("not for this SoC")

    @SkipIfNotGteCANNVersion("99.0.0")
    def test_later_cann(self):
        self.fail("not for this CANN")

    @skipIfUnsupportMultiNPU(99)
    def test_many_devices(self):
        self.fail("not for so few")

    def test_seed(self):
        with freeze_rng_state():
            first = torch.rand(2)
        self.assertEqual(first, torch.rand(2))
        self.assertEqual(TEST_SKIPS["multi-npu-2"].exit_code, 75)


if __name__ == "__main__":
    run_tests()
'''
REFUSED = '''
import numpy as np
import torch
from torch_npu.testing.testcase import TestCase

case, inf, nan = TestCase(), float("inf"), float("nan")
t = torch.tensor


def refused(name, *args, **kwargs):
    try:
        getattr(case, name)(*args, **kwargs)
    except AssertionError:
        return
    raise SystemExit(f"{name}{args} is accepted")


case.assertEqual(t([1.0, nan]), t([1.0 + 1e-6, nan]).npu())
case.assertEqual([{"a": t([True])}, 1], [{"a": t([True])}, 1 + 1e-6])
case.assertEqual(t([inf]), t([inf]), allow_inf=True)
case.assertEqual(t([1.0]), t([1.5]), 0.5)
case.assertRtolEqual(t([1000.0]), t([1000.05]))
case.assertRtolEqual([t([nan, 1.0])], [t([nan, 1.0])])
case.assertRtolEqual(t([1.0], dtype=torch.bfloat16), t([1.0], dtype=torch.bfloat16))
case.assertRtolEqual(1.0, 1.0)
case.assertNotEqual(t([1.0]), t([2.0]))
case.assertNotEqual(t([1.0]), t([1.0, 2.0]))
case.assertNotEqual(t([1.0]), t([nan]))
case.assertNotEqual(t([True]), t([False]))
case.assertNotEqual(1.0, 1.00001)
case.assertNotEqual(None, 1)
case.assertNotEqual("a", "b")
case.assertNotEqual([1], [2])
case.assertTensorsSlowEqual(t([[1.0]]), t([[1.0]]), 0)
refused("assertEqual", t([1.0]), t([1.1]))
refused("assertEqual", t([1.0]), t([1.0, 2.0]))
refused("assertEqual", t([1.0]), t([nan]))
refused("assertEqual", t([1.0]), t([1.0], dtype=torch.float64), exact_dtype=True)
refused("assertEqual", 1.0, inf)
refused("assertEqual", t([inf]), t([-inf]), allow_inf=True)
refused("assertEqual", {"a": 1}, {"b": 1})
refused("assertEqual", [1, 2], [1])
refused("assertNotEqual", t([1.0]), t([1.0]))
refused("assertNotEqual", t([]), t([]))
refused("assertNotEqual", t([1.0]), t([1.0], dtype=torch.float64))
refused("assertNotEqual", t([nan, 1.0]), t([nan, 1.0 + 1e-6]))
refused("assertNotEqual", t([True]), t([1]))
refused("assertNotEqual", None, None)
refused("assertNotEqual", {"a": None}, {"a": None})
refused("assertNotEqual", 1.0, 1)
refused("assertRtolEqual", t([1.0]), t([1.1]))
refused("assertRtolEqual", t([1.0]), t([1]))
refused("assertRtolEqual", t([1.0]), t([1.0, 1.0]))
refused("assertRtolEqual", t([nan]), t([1.0]))
refused("assertRtolEqual", t([True]), t([False]))
refused("assertRtolEqual", t([1.0], dtype=torch.bfloat16), t([1.5], dtype=torch.bfloat16))
refused("assertRtolEqual", np.array([1j]), np.array([1j]))
refused("assertObjectIn", t, [1])
'''


@pytest.fixture
def environ(npu: object) -> dict[str, str]:
    return os.environ | {"MINDTORCH_AS_TORCH": "1"}


def test_a_file_of_tests(environ: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "test_add.py"
    file.write_text(TESTS)
    done = subprocess.run([sys.executable, file, "-v"], env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Ran 10 tests" in done.stderr and "OK (skipped=3)" in done.stderr
    assert "test_mul_int32_2" in done.stderr and "Only run on 99.0.0 or greater" in done.stderr


def test_what_assertions_refuse(environ: dict[str, str]) -> None:
    done = subprocess.run([sys.executable, "-c", REFUSED], env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
