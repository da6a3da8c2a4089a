"""Ops of two operands of which at least one is a MaskedTensor: their masks must be the same."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.masked.maskedtensor.core import DISPATCH, _masks_match, _tensors_match, _wrap_result, is_masked_tensor
from mindtorch_v2.masked.maskedtensor.unary import at_values

__all__: list[str] = []

BINARY_NAMES = ("add atan2 arctan2 bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift div divide "
                "floor_divide fmod logaddexp logaddexp2 mul multiply nextafter remainder sub subtract true_divide eq ne le ge "
                "greater greater_equal gt less_equal lt less maximum minimum fmax fmin not_equal").split()
INPLACE_BINARY_NAMES = [f"{name}_" for name in BINARY_NAMES
                        if name not in ("logaddexp", "logaddexp2", "fmin", "minimum", "maximum", "fmax")]


def _values_of_second(first: Any, second: Any) -> Any:
    """The second operand for the values of a sparse first one; a sparse one must have the same places."""
    if not torch.is_tensor(second) or first.layout is torch.strided or first.layout != second.layout:
        return second
    short = "sparse_coo" if first.layout is torch.sparse_coo else "sparse_csr"
    reads = ("indices",) if first.layout is torch.sparse_coo else ("crow_indices", "col_indices")
    if any(getattr(first, r)().shape != getattr(second, r)().shape or
           not _tensors_match(getattr(first, r)(), getattr(second, r)()) for r in reads):
        raise ValueError(f"{short} indices must match. If you need support for this, please open an issue on Github.")
    if first.size() != second.size():
        raise ValueError("input1 and input2 must have the same size for binary functions.")
    return second.values()


def _apply_native_binary(fn: Any, *args: Any, **kwargs: Any) -> Any:
    if kwargs:
        raise ValueError("len(kwargs) must equal 0")
    if any(torch.is_tensor(a) for a in args[2:]):
        raise TypeError("MaskedTensor binary ops do not support Tensor arguments aside from the lhs and rhs")
    if not _masks_match(*args[:2]):
        raise ValueError("Input masks must match. If you need support for this, please open an issue on Github.")
    first, second, *rest = [a.get_data() if is_masked_tensor(a) else a for a in args]
    if not torch.is_tensor(first):               # 2 / x
        first = torch.as_tensor(first)
    result = at_values(fn, [first, _values_of_second(first, second), *rest])
    if fn.__name__.endswith("_"):
        args[0]._set_data_mask(result, args[0].get_mask())
        return args[0]
    mask = next(a.get_mask() for a in args[:2] if is_masked_tensor(a))
    return _wrap_result(result, mask.expand_as(result) if first.layout is torch.strided else mask)


NATIVE_BINARY_FNS = [getattr(torch.ops.aten, name) for name in BINARY_NAMES]
NATIVE_INPLACE_BINARY_FNS = [getattr(torch.ops.aten, name) for name in INPLACE_BINARY_NAMES]
DISPATCH.update(dict.fromkeys([*BINARY_NAMES, *INPLACE_BINARY_NAMES], _apply_native_binary))


def _is_native_binary(fn: Any) -> bool:
    return fn in NATIVE_BINARY_FNS or fn in NATIVE_INPLACE_BINARY_FNS
