"""Stateful: what has a state_dict and can load one."""
from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Stateful(Protocol):
    """An object of a state dict whose state_dict() and load_state_dict() are called when it is saved or loaded."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...
