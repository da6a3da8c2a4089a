"""torch.utils._typing_utils: what tells checkers more than a signature can; nothing of it changes a program."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def not_none(obj: T | None) -> T:
    """The object, which must not be None."""
    if obj is None:
        raise TypeError("Invariant encountered: value was None when it should not be")
    return obj


def copy_func_params(source_func: Callable[..., Any]) -> Callable[[T], T]:
    """A decorator for a function that takes what another takes: it stays as it is."""
    return lambda function: function


copy_method_params = copy_func_sig = copy_method_sig = copy_func_params
