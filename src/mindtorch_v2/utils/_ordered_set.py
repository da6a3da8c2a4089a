"""A set that keeps the order in which items came."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSet
from typing import Any


class OrderedSet(MutableSet[Any]):
    """A set over a dict, which keeps insertion order."""

    def __init__(self, iterable: Iterable[Any] = ()) -> None:
        self._dict = dict.fromkeys(iterable)

    def __contains__(self, item: object) -> bool:
        return item in self._dict

    def __iter__(self) -> Iterator[Any]:
        return iter(self._dict)

    def __len__(self) -> int:
        return len(self._dict)

    def __reversed__(self) -> Iterator[Any]:
        return reversed(self._dict)

    def add(self, item: Any) -> None:
        self._dict[item] = None

    def discard(self, item: Any) -> None:
        self._dict.pop(item, None)

    def update(self, *others: Iterable[Any]) -> None:
        for other in others:
            self._dict.update(dict.fromkeys(other))

    def union(self, *others: Iterable[Any]) -> OrderedSet:
        made = OrderedSet(self)
        made.update(*others)
        return made

    def copy(self) -> OrderedSet:
        return OrderedSet(self)

    def __repr__(self) -> str:
        return f"OrderedSet({list(self)})"
