"""torch.testing: assert_close, make_tensor and FileCheck."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.testing import _comparison, _creation, _utils
from mindtorch_v2.testing._comparison import BooleanPair, NonePair, NumberPair, TensorLikePair
from mindtorch_v2.testing._creation import make_tensor
from mindtorch_v2.testing._file_check import FileCheck

__all__ = ["FileCheck", "assert_allclose", "assert_close", "make_tensor"]


def assert_close(actual: Any, expected: Any, *, allow_subclasses: bool = True, rtol: float | None = None,
                 atol: float | None = None, equal_nan: bool = False, check_device: bool = True, check_dtype: bool = True,
                 check_layout: bool = True, check_stride: bool = False,
                 msg: str | Callable[[str], str] | None = None) -> None:
    """Raises AssertionError unless both have the same structure and close values."""
    __tracebackhide__ = True
    found = _comparison.not_close_error_metas(
        actual, expected, pair_types=(NonePair, BooleanPair, NumberPair, TensorLikePair), allow_subclasses=allow_subclasses,
        rtol=rtol, atol=atol, equal_nan=equal_nan, check_device=check_device, check_dtype=check_dtype,
        check_layout=check_layout, check_stride=check_stride)
    if found:
        raise found[0].to_error(msg)


def assert_allclose(actual: Any, expected: Any, rtol: float | None = None, atol: float | None = None,
                    equal_nan: bool = True, msg: str = "") -> None:
    """assert_close that looks at values only; kept for old callers."""
    actual, expected = torch.as_tensor(actual), torch.as_tensor(expected, dtype=getattr(actual, "dtype", None))
    assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, check_device=True, check_dtype=False,
                 msg=msg or None)
