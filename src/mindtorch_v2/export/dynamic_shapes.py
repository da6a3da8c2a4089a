"""Dim and its like: names for sizes that may vary. Sizes are plain ints here, so a graph holds for its own sizes."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch

__all__ = ["Dim", "ShapesCollection", "dims"]


class _Hint:
    """Dim.AUTO, Dim.DYNAMIC and Dim.STATIC."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"Dim.{self.name}"


class Dim:
    """A size by name, with its range."""

    AUTO, DYNAMIC, STATIC = _Hint("AUTO"), _Hint("DYNAMIC"), _Hint("STATIC")

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        if not name.isidentifier():
            raise AssertionError(f"Dim name must be a valid identifier, got {name}")
        self.__name__, self.min, self.max = name, 0 if min is None else min, max
        if self.max is not None and self.max <= self.min:
            raise AssertionError(f"Cannot create Dim with inconsistent min={min}, max={max}")

    def __repr__(self) -> str:
        return f"Dim('{self.__name__}', min={self.min}" + (f", max={self.max})" if self.max is not None else ")")


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:
    """Several sizes of one range."""
    return tuple(Dim(name, min=min, max=max) for name in names)


class ShapesCollection:
    """Sizes that may vary, by tensor."""

    def __init__(self) -> None:
        self._shapes: dict[int, Any] = {}

    def __setitem__(self, t: Any, shape: Any) -> None:
        self._shapes[id(t)] = shape

    def __getitem__(self, t: Any) -> Any:
        return self._shapes.setdefault(id(t), {})

    def __len__(self) -> int:
        return len(self._shapes)


def _varying(shapes: Any) -> list[Any]:
    """The sizes in a specification that may vary; static and unnamed ones are left out."""
    if isinstance(shapes, ShapesCollection):
        return _varying(list(shapes._shapes.values()))
    if isinstance(shapes, dict):
        return [d for value in shapes.values() for d in _varying(value)]
    if isinstance(shapes, (list, tuple)):
        return [d for value in shapes for d in _varying(value)]
    if shapes is Dim.AUTO or shapes is Dim.STATIC or shapes is None or isinstance(shapes, int):
        return []
    return [shapes]

torch._named.complete(__name__)
