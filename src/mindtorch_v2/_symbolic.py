"""torch.SymInt and its like: classes to ask isinstance about. Sizes are plain ints here, so no object is one."""
from __future__ import annotations

import math
from typing import Any


class SymInt:
    """An int that stands for a size; never made."""


class SymFloat:
    """A float computed from sizes; never made."""


class SymBool:
    """A bool computed from sizes; never made."""


def sym_float(a: Any) -> float:
    """float(a)"""
    return float(a)


def sym_int(a: Any) -> int:
    """a without its fraction."""
    return math.floor(a) if a >= 0 else math.ceil(a)


def sym_max(a: Any, b: Any) -> Any:
    """The larger number; a float where either is one."""
    return float(max(a, b)) if isinstance(a, float) or isinstance(b, float) else max(a, b)


def sym_min(a: Any, b: Any) -> Any:
    """The smaller number; a float where either is one."""
    return float(min(a, b)) if isinstance(a, float) or isinstance(b, float) else min(a, b)


def sym_not(a: Any) -> bool:
    """not a"""
    return not a


def sym_ite(b: bool, t: Any, f: Any) -> Any:
    """t if b else f"""
    return t if b else f


def sym_fresh_size(expr: Any) -> Any:
    """The size itself."""
    return expr


def _sym_acos(a: Any) -> float:
    """The inverse cosine of a number."""
    return math.acos(a)


def _sym_asin(a: Any) -> float:
    """The inverse sine."""
    return math.asin(a)


def _sym_atan(a: Any) -> float:
    """The inverse tangent."""
    return math.atan(a)


def _sym_cos(a: Any) -> float:
    """The cosine."""
    return math.cos(a)


def _sym_cosh(a: Any) -> float:
    """The hyperbolic cosine."""
    return math.cosh(a)


def _sym_log2(a: Any) -> float:
    """The logarithm to base 2."""
    return math.log2(a)


def _sym_sin(a: Any) -> float:
    """The sine."""
    return math.sin(a)


def _sym_sinh(a: Any) -> float:
    """The hyperbolic sine."""
    return math.sinh(a)


def _sym_sqrt(a: Any) -> float:
    """The square root."""
    return math.sqrt(a)


def _sym_tan(a: Any) -> float:
    """The tangent."""
    return math.tan(a)


def _sym_tanh(a: Any) -> float:
    """The hyperbolic tangent."""
    return math.tanh(a)


def sym_sum(*args: Any) -> Any:
    """The sum of numbers, or of one list of them."""
    return sum(args[0] if len(args) == 1 and isinstance(args[0], (list, tuple)) else args)


sym_sqrt = _sym_sqrt
functions = (_sym_acos, _sym_asin, _sym_atan, _sym_cos, _sym_cosh, _sym_log2, _sym_sin, _sym_sinh, _sym_sqrt, _sym_tan, _sym_tanh)
