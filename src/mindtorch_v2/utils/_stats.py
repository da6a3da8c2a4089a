"""torch.utils._stats: how often functions were called."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

simple_call_counter: dict[str, int] = {}


def count_label(label: str) -> None:
    """One more under a name."""
    simple_call_counter[label] = simple_call_counter.get(label, 0) + 1


def count(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that counts calls under the function's full name."""
    @functools.wraps(fn)
    def counted(*args: Any, **kwargs: Any) -> Any:
        count_label(fn.__qualname__)
        return fn(*args, **kwargs)
    return counted
