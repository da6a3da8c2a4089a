"""make_tensor: random values of any dtype, drawn in the order that PyTorch draws them."""
from __future__ import annotations

import collections.abc
import math
import warnings
from typing import Any

import mindtorch_v2 as torch

_QUANTISED = (torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4)


def _interval(dtype: Any, low: float | None, high: float | None) -> tuple[Any, Any]:
    """[low, high) within what the dtype can hold; integers are rounded up, since high is left out."""
    is_float = dtype.is_floating_point or dtype.is_complex
    if is_float:
        bottom, top = torch.finfo(dtype).min, torch.finfo(dtype).max
    elif dtype == torch.bool:
        bottom, top = 0, 2
    else:
        bottom, top = torch.iinfo(dtype).min, torch.iinfo(dtype).max + (dtype != torch.int64)
    low = (0 if dtype == torch.bool else -9) if low is None else low
    high = (2 if dtype == torch.bool else 9 if is_float else 10) if high is None else high
    if math.isnan(low) or math.isnan(high):
        raise ValueError(f"`low` and `high` cannot be NaN, but got {low=} and {high=}")
    if low == high and is_float:
        warnings.warn("Passing `low==high` to `torch.testing.make_tensor` for floating or complex types is deprecated since "
                      "2.1 and will be removed in 2.3. Use `torch.full(...)` instead.", FutureWarning, stacklevel=4)
    elif low >= high:
        raise ValueError(f"`low` must be less than `high`, but got {low} >= {high}")
    elif high < bottom or low >= top:
        raise ValueError(f"The value interval specified by `low` and `high` is [{low}, {high}), "
                         f"but {dtype} only supports [{bottom}, {top})")
    low, high = min(max(low, bottom), top), min(max(high, bottom), top)
    return (low, high) if is_float else (math.ceil(low), math.ceil(high))


def _floats(shape: tuple[int, ...], dtype: Any, device: Any, low: float, high: float) -> Any:
    drawn_as = torch.float32 if dtype.itemsize == 1 else dtype       # nothing draws eight bits
    made = torch.empty(shape, dtype=drawn_as, device=device)
    parts = torch.view_as_real(made) if dtype.is_complex else made
    if high - low >= torch.finfo(drawn_as).max:                     # the width itself would overflow
        parts.uniform_(low / 2, high / 2).mul_(2)
    else:
        parts.uniform_(low, high)
    return made.to(dtype)


def make_tensor(*shape: Any, dtype: Any, device: Any, low: float | None = None, high: float | None = None,
                requires_grad: bool = False, noncontiguous: bool = False, exclude_zero: bool = False,
                memory_format: Any = None) -> Any:
    """Random values in [low, high): integers, or uniform floats."""
    if dtype in _QUANTISED:
        raise TypeError(f"The requested dtype '{dtype}' is not supported by torch.testing.make_tensor(). To request support, file "
                        "an issue at: https://github.com/pytorch/pytorch/issues")
    listed = len(shape) == 1 and isinstance(shape[0], collections.abc.Sequence)
    sizes: tuple[int, ...] = tuple(shape[0] if listed else shape)
    is_float = dtype.is_floating_point or dtype.is_complex
    if noncontiguous and memory_format is not None:
        raise ValueError("The parameters `noncontiguous` and `memory_format` are mutually exclusive, but got "
                         f"{noncontiguous=} and {memory_format=}")
    if requires_grad and not is_float:
        raise ValueError(f"`requires_grad=True` is not supported for boolean and integral dtypes, but got {dtype=}")
    spread = noncontiguous and math.prod(sizes) > 1
    if spread:
        sizes = (*sizes[:-1], 2 * sizes[-1])
    bottom, top = _interval(dtype, low, high)
    if is_float:
        made = _floats(sizes, dtype, device, bottom, top)
    else:
        made = torch.randint(bottom, top, sizes, dtype=dtype, device=device)
    if spread:
        made = made[..., 1::2]       # an offset too, which is easily forgotten
    elif memory_format is not None:
        made = made.clone(memory_format=memory_format)
    if exclude_zero:
        made[made == 0] = torch.finfo(dtype).tiny if is_float else 1
    return made.requires_grad_(requires_grad) if is_float else made
