"""The numbers that the loss ops use for the reduction words."""

from __future__ import annotations

import warnings

_CODES = {"none": 0, "mean": 1, "elementwise_mean": 1, "sum": 2}


def get_enum(reduction: str) -> int:
    """The number of a reduction word."""
    code = _CODES.get(reduction)
    if code is None:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if reduction == "elementwise_mean":
        warnings.warn(
            "reduction='elementwise_mean' is deprecated. Please use reduction='mean' instead.",
            stacklevel=2,
        )
    return code


def legacy_get_string(
    size_average: bool | None, reduce: bool | None, emit_warning: bool = True
) -> str:
    """The reduction word that the old size_average and reduce flags stood for."""
    size_average = True if size_average is None else size_average
    reduce = True if reduce is None else reduce
    word = "none" if not reduce else "mean" if size_average else "sum"
    if emit_warning:
        warnings.warn(
            "size_average and reduce args will be deprecated, "
            f"please use reduction='{word}' instead.",
            stacklevel=2,
        )
    return word


def legacy_get_enum(
    size_average: bool | None, reduce: bool | None, emit_warning: bool = True
) -> int:
    """The number that the old size_average and reduce flags stood for."""
    return get_enum(legacy_get_string(size_average, reduce, emit_warning))


def resolve(
    reduction: str, size_average: bool | None = None, reduce: bool | None = None
) -> str:
    """The reduction word, where the old flags win over the new one if they are given."""
    if size_average is not None or reduce is not None:
        return legacy_get_string(size_average, reduce)
    return reduction
