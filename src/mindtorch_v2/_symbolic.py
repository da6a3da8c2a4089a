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


def sym_sqrt(a: Any) -> float:
    """The square root."""
    return math.sqrt(a)


def sym_sum(*args: Any) -> Any:
    """The sum of numbers, or of one list of them."""
    return sum(args[0] if len(args) == 1 and isinstance(args[0], (list, tuple)) else args)
