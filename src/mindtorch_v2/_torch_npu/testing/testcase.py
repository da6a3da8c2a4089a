"""torch_npu.testing.testcase: the TestCase that tests for Ascend derive from, and run_tests."""
from __future__ import annotations

import os
import random
import unittest
import warnings
from collections.abc import Callable, Sequence
from numbers import Number
from typing import Any

import numpy as np

import mindtorch_v2 as torch

from .common_utils import is_iterable, iter_indices, set_npu_device

# Below these a relative error is taken to an absolute one.
_TINY, _TINY_HALF = 1e-9, 6e-8


def run_tests() -> None:
    """Runs the tests of the program."""
    unittest.main()


def _is_number(value: Any) -> bool:
    return isinstance(value, (Number, np.number)) or (isinstance(value, torch.Tensor) and value.numel() == 1)


class TestCase(unittest.TestCase):
    """Compares tensors of all devices, numbers and what holds them, to an absolute precision."""
    __test__ = True
    _precision = 1e-5
    maxDiff = None
    exact_dtype = False
    npu_device = ""

    @property
    def precision(self) -> float:
        return self._precision

    @precision.setter
    def precision(self, value: float) -> None:
        self._precision = value

    @classmethod
    def setUpClass(cls) -> None:
        cls.npu_device = set_npu_device()

    def setUp(self) -> None:
        seed = int(os.environ.get("SEED", "666"))
        torch.manual_seed(seed)
        random.seed(seed)

    # ---- to an absolute precision ------------------------------------------------------------------------------------
    def assertEqual(self, x: Any, y: Any, prec: Any = None, message: str = "", allow_inf: bool = False,
                    exact_dtype: bool | None = None) -> None:
        """x and y differ by at most prec (self.precision); infinities are refused unless allow_inf."""
        if isinstance(prec, str) and message == "":
            prec, message = None, prec
        exact = self.exact_dtype if exact_dtype is None else exact_dtype
        self._compare(x, y, self.precision if prec is None else prec, message, allow_inf, exact)

    def _compare(self, x: Any, y: Any, prec: float, message: str, allow_inf: bool, exact: bool) -> None:
        rest: tuple[Any, ...] = (prec, message, allow_inf, exact)
        if isinstance(x, (Number, np.number)) or isinstance(y, (Number, np.number)):
            a, b = (v.item() if isinstance(v, torch.Tensor) else v for v in (x, y))
            self._compare_numbers(a, b, prec, message, allow_inf)
        elif isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor):
            self._compare_tensors(x, y, *rest)
        elif isinstance(x, dict) and isinstance(y, dict):
            super().assertEqual(x.keys(), y.keys(), message)
            for key in x:
                self._compare(x[key], y[key], *rest)
        elif isinstance(x, (str, bytes, set)) or isinstance(y, (str, bytes, set)) or not (is_iterable(x) and is_iterable(y)):
            super().assertEqual(x, y, message)
        else:
            super().assertEqual(len(x), len(y), message)
            for one, other in zip(x, y, strict=True):
                self._compare(one, other, *rest)

    def _compare_numbers(self, x: Any, y: Any, prec: float, message: str, allow_inf: bool) -> None:
        if abs(x) == float("inf") or abs(y) == float("inf"):
            if not allow_inf:
                self.fail(f"Expected finite numeric values - x={x}, y={y}")
            super().assertEqual(x, y, message)
        else:
            self.assertLessEqual(abs(x - y), prec, message)

    def _compare_tensors(self, x: Any, y: Any, prec: float, message: str, allow_inf: bool, exact: bool) -> None:
        super().assertEqual(x.is_sparse, y.is_sparse, message)
        if x.is_sparse:
            x, y = x.coalesce(), y.coalesce()
            for one, other in ((x.indices(), y.indices()), (x.values(), y.values())):
                self._compare_tensors(one, other, prec, message, allow_inf, exact)
            return
        super().assertEqual(x.size(), y.size(), message)
        if exact:
            super().assertEqual(x.dtype, y.dtype, message)
        if (x.dtype == torch.bool) != (y.dtype == torch.bool):
            raise TypeError("Was expecting both tensors to be bool type.")
        if x.numel() == 0:
            return
        x, y = x.detach().cpu(), y.detach().cpu()
        wide = torch.complex128 if x.is_complex() or y.is_complex() else torch.float64 if x.is_floating_point() else torch.int64
        x, y = x.to(wide), y.to(wide)
        difference = (x - y).abs()
        self.assertTrue(torch.equal(x.isnan(), y.isnan()), message)
        difference[x.isnan()] = 0
        if allow_inf and x.is_floating_point():
            same = x.isinf() & (x == y)
            self.assertTrue(torch.equal(x.isinf(), same), message)
            difference[same] = 0
        self.assertLessEqual(difference.max().item(), prec, message)

    def assertNotEqual(self, x: Any, y: Any, prec: Any = None, message: str = "") -> None:
        """x and y differ by prec (self.precision) or more, in one item at least; what has no difference is not equal."""
        if isinstance(prec, str) and message == "":
            prec, message = None, prec
        prec = self.precision if prec is None else prec
        if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor):
            self._tensors_differ(x, y, prec, message)
        elif not (_is_number(x) and _is_number(y) and abs(x - y) >= prec):      # numbers that are nearer may still differ
            super().assertNotEqual(x, y, message)

    def _tensors_differ(self, x: Any, y: Any, prec: float, message: str) -> None:
        if x.size() != y.size():
            return
        self.assertGreater(x.numel(), 0, message)
        y = y.type_as(x)
        missing = x != x
        if not torch.equal(missing, y != y):
            return
        x, y = (v.to(torch.int32) if v.dtype == torch.bool else v for v in (x, y))
        difference = (x - y).abs()
        difference[missing] = 0
        self.assertGreaterEqual(difference.max().item(), prec, message)

    def assertAlmostEqual(  # type: ignore[override]  # torch_npu's names of the parameters
            self, x: Any, y: Any, places: int | None = None, msg: str | None = None, delta: float | None = None,
            allow_inf: bool | None = None) -> None:
        self.assertEqual(x, y, 10 ** -places if places else delta, msg or "", bool(allow_inf))

    def assertTensorsSlowEqual(self, x: Any, y: Any, prec: float | None = None, message: str = "") -> None:
        """Item by item, with dtypes."""
        super().assertEqual((x.size(), x.dtype), (y.size(), y.dtype))
        most = max((abs(x[i].item() - y[i].item()) for i in iter_indices(x)), default=0)
        self.assertLessEqual(most, self.precision if prec is None else prec, message)

    # ---- to a relative one -------------------------------------------------------------------------------------------
    def assertRtolEqual(self, x: Any, y: Any, prec: float = 1e-4, prec16: float = 1e-3, auto_trans_dtype: bool = False,
                        message: str | None = None) -> None:
        """Tensors, arrays, numbers or sequences of one dtype and shape, to a precision that is prec16 for halves. Of items that
        are neither relatively nor absolutely near enough there may be as large a share as the precision."""
        if isinstance(x, torch.Tensor) != isinstance(y, torch.Tensor):
            like = x if isinstance(x, torch.Tensor) else y
            x, y = (v if isinstance(v, torch.Tensor) else torch.as_tensor(v, dtype=like.dtype, device=like.device)
                    if isinstance(v, Sequence) else v for v in (x, y))
        elif isinstance(x, Sequence) and isinstance(y, Sequence):
            for one, other in zip(x, y, strict=False):
                self.assertRtolEqual(one, other, prec, prec16, auto_trans_dtype, message)
            return
        if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor):
            x = x.to(y.dtype) if auto_trans_dtype else x
            if x.dtype == y.dtype == torch.bfloat16:
                if x.shape != y.shape:
                    self.fail(message or "shape error!")
                if not torch.allclose(x.detach().cpu(), y.detach().cpu(), rtol=prec16, atol=prec16):
                    self.fail(message or "result error!")
                return
            x, y = x.detach().cpu().numpy(), y.detach().cpu().numpy()
        self._near(np.asarray(x), np.asarray(y), prec, prec16, message)

    def _near(self, x: np.ndarray, y: np.ndarray, prec: float, prec16: float, message: str | None) -> None:
        if x.shape != y.shape:
            self.fail(message or "shape error")
        if x.dtype != y.dtype:
            self.fail(message or "dtype error")
        if x.dtype.kind not in "biuf":
            self.fail(message or f"required a dtype of booleans, integers or floats, got {x.dtype}")
        if x.dtype == np.bool_:
            if not np.array_equal(x, y):
                self.fail(message or "result error")
            return
        near, tiny = (prec16, _TINY_HALF) if x.dtype == np.float16 else (prec, _TINY)
        if not np.array_equal(np.isnan(x), np.isnan(y)):
            self.fail(message or "result error: NaN at other places")
        wide = [np.where(np.isnan(v), 0, v).astype(np.float64) for v in (x, y)]
        error = np.where(wide[0] == wide[1], 0, np.abs(wide[0] - wide[1]))
        share = error / (np.maximum(np.abs(wide[0]), np.abs(wide[1])) + tiny)
        if min(int((error > near).sum()), int((share > near).sum())) > x.size * near:
            self.fail(message or "result error")

    # ---- the rest ----------------------------------------------------------------------------------------------------
    def assertObjectIn(self, obj: Any, iterable: Any) -> None:
        if not any(obj is item for item in iterable):
            raise AssertionError("object not found in iterable")

    def assertNotWarn(self, call_fn: Callable[[], Any], msg: str = "") -> None:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            call_fn()
        self.assertFalse(seen, msg)
