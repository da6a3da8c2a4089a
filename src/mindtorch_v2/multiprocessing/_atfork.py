"""What a child of fork calls first."""
from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

__all__ = ["register_after_fork"]


def register_after_fork(func: Callable[[], Any]) -> None:
    """Call a function in every child that fork makes from now on."""
    os.register_at_fork(after_in_child=func)
