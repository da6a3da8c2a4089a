"""Equality: two sizes that gradual typing has found to be the same."""
from __future__ import annotations

from typing import Any


class Equality:
    """lhs = rhs."""

    def __init__(self, lhs: Any, rhs: Any) -> None:
        self.lhs, self.rhs = lhs, rhs

    def __str__(self) -> str:
        return f"{self.lhs} = {self.rhs}"

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equality) and self.lhs == other.lhs and self.rhs == other.rhs

    def __hash__(self) -> int:
        return hash((str(self.lhs), str(self.rhs)))
