"""torch.utils._functools: a method's results by its arguments, kept in the object."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def cache_method(f: Callable[..., Any]) -> Callable[..., Any]:
    """As functools.cache, but the results end with the object that they belong to."""
    name = f"_cache_method_{f.__name__}"

    @functools.wraps(f)
    def wrap(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs:
            raise AssertionError(f"{f.__name__}: a cached method takes no keyword arguments")
        found = self.__dict__.setdefault(name, {})
        if args not in found:
            found[args] = f(self, *args)
        return found[args]
    return wrap
