"""torch._functorch.utils: small parts of torch.func."""
from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

argnums_t = Any


def exposed_in(module: str) -> Callable[[Any], Any]:
    """A decorator: the function says that it lives in a module."""
    def decorate(fn: Any) -> Any:
        fn.__module__ = module
        return fn
    return decorate


@contextlib.contextmanager
def enable_single_level_autograd_function() -> Iterator[None]:
    """A with block in which a custom function may ignore torch.func's levels; here it always may."""
    yield
