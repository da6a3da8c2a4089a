"""torch._compile: marks of functions that graph capture must not enter; nothing is captured."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _disable_dynamo(fn: Callable[..., Any] | None = None, recursive: bool = True) -> Any:
    """The function itself; without one, a decorator that gives it."""
    return (lambda f: f) if fn is None else fn
