"""Ops of one MaskedTensor: they compute on the data, the mask stays."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.masked.maskedtensor.core import DISPATCH, _get_data, _wrap_result

__all__: list[str] = []

UNARY_NAMES = ("abs absolute acos arccos acosh arccosh angle asin arcsin asinh arcsinh atan arctan atanh arctanh bitwise_not "
               "ceil clamp clip conj_physical cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 fix floor frac lgamma "
               "log log10 log1p log2 logit i0 isnan nan_to_num neg negative positive pow rad2deg reciprocal round rsqrt "
               "sigmoid sign sgn signbit sin sinc sinh sqrt square tan tanh trunc").split()
INPLACE_UNARY_NAMES = [f"{name}_" for name in UNARY_NAMES if name not in ("angle", "positive", "signbit", "isnan")]
UNARY_NAMES_UNSUPPORTED = ("atan2 arctan2 bitwise_left_shift bitwise_right_shift copysign float_power fmod frexp gradient imag "
                           "ldexp lerp logical_not hypot igamma igammac mvlgamma nextafter polygamma real remainder "
                           "true_divide xlogy").split()


def at_values(fn: Any, args: list[Any]) -> Any:
    """fn of the first argument's values, in its pattern where it is sparse."""
    first = args[0]
    if first.layout is torch.sparse_coo:
        first = first.coalesce()
        return torch.sparse_coo_tensor(first.indices(), fn(first.values(), *args[1:]), first.size())
    if first.layout is torch.sparse_csr:
        return torch.sparse_csr_tensor(first.crow_indices(), first.col_indices(), fn(first.values(), *args[1:]), first.size())
    return fn(*args)


def _apply_native_unary(fn: Any, *args: Any, **kwargs: Any) -> Any:
    if kwargs:
        raise ValueError("MaskedTensor unary ops require that len(kwargs) == 0. "
                         "If you need support for this, please open an issue on Github.")
    if any(torch.is_tensor(a) for a in args[1:]):
        raise TypeError("MaskedTensor unary ops do not support additional Tensor arguments")
    result = at_values(fn, [_get_data(a) for a in args])
    if not fn.__name__.endswith("_"):
        return _wrap_result(result, args[0].get_mask())
    args[0]._set_data_mask(result, args[0].get_mask())
    return args[0]


NATIVE_UNARY_FNS = [getattr(torch.ops.aten, name) for name in UNARY_NAMES]
NATIVE_INPLACE_UNARY_FNS = [getattr(torch.ops.aten, name) for name in INPLACE_UNARY_NAMES]
DISPATCH.update(dict.fromkeys([*UNARY_NAMES, *INPLACE_UNARY_NAMES, "isfinite"], _apply_native_unary))


def _is_native_unary(fn: Any) -> bool:
    return fn in NATIVE_UNARY_FNS or fn in NATIVE_INPLACE_UNARY_FNS
