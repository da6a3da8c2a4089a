"""Marks of the functions and classes of torch.fx whose signatures torch promises to keep."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")
_BACK_COMPAT_OBJECTS: dict[Any, None] = {}
_MARKED_WITH_COMPATIBILITY: dict[Any, None] = {}


def compatibility(is_backward_compatible: bool) -> Callable[[_T], _T]:
    """A decorator: notes whether the signature of a function or class is promised."""
    def mark(fn: _T) -> _T:
        _MARKED_WITH_COMPATIBILITY.setdefault(fn)
        if is_backward_compatible:
            _BACK_COMPAT_OBJECTS.setdefault(fn)
        return fn
    return mark
