"""The size of the ragged dim of nested tensors, which is no number."""
from __future__ import annotations

from typing import Any


class NestedInt:
    """The size of the ragged dim, which differs from sequence to sequence. In a shape that is asked for it stands for
    "as it is", as -1 does. Tensors with the same offsets have the same one."""

    made = 0

    def __init__(self, number: int | None = None, coeff: int = 1) -> None:
        self.coeff = coeff
        self.number = NestedInt.made if number is None else number
        NestedInt.made += number is None

    def __index__(self) -> int:
        return -1

    def __mul__(self, other: int) -> NestedInt:
        return NestedInt(self.number, self.coeff * other)

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NestedInt) and (other.number, other.coeff) == (self.number, self.coeff)

    def __hash__(self) -> int:
        return hash(("nested", self.number, self.coeff))

    def __ge__(self, other: Any) -> bool:
        if isinstance(other, NestedInt) and other.number == self.number:
            return self.coeff >= other.coeff
        if isinstance(other, int) and other <= 2:
            return True
        raise ValueError("ge: relation is indeterminate")

    def __gt__(self, other: Any) -> bool:
        return self >= other and self != other

    def __le__(self, other: Any) -> bool:
        if isinstance(other, NestedInt) and other.number == self.number:
            return self.coeff <= other.coeff
        if isinstance(other, int) and other < 2:
            return False
        raise ValueError("ge: relation is indeterminate")

    def __lt__(self, other: Any) -> bool:
        return self <= other and self != other

    def __repr__(self) -> str:
        return f"j{self.number}" if self.coeff == 1 else f"{self.coeff}*j{self.number}"


def size_of(offsets: Any, coeff: int = 1) -> NestedInt:
    """The ragged size of tensors with these offsets; the tensor of offsets holds it."""
    if not hasattr(offsets, "_nested_size"):
        offsets._nested_size = NestedInt()
    return offsets._nested_size if coeff == 1 else offsets._nested_size * coeff
