"""torch.utils._exposed_in: the module under which a function is known."""
from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

F = TypeVar("F")


def exposed_in(module: str) -> Callable[[F], F]:
    """A decorator that says in which module a function is public."""
    def wrapper(fn: F) -> F:
        fn.__module__ = module
        return fn
    return wrapper
