"""torch.utils._thunk: a value that is computed on first use."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Thunk:
    """A function that is called once, at the first force()."""
    __slots__ = ("f", "r")

    def __init__(self, f: Callable[[], Any]) -> None:
        self.f: Callable[[], Any] | None = f
        self.r: Any = None

    def force(self) -> Any:
        """The value."""
        if self.f is not None:
            self.r, self.f = self.f(), None
        return self.r
