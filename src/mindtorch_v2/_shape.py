"""torch.Size: the shape of a tensor, a tuple of ints."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, SupportsIndex, overload

from mindtorch_v2 import _C


class Size(tuple[int, ...]):
    """A tuple of sizes."""
    __slots__ = ()

    def __new__(cls, sizes: Any = ()) -> Size:
        sizes = list(sizes)                       # a generator gives its items once
        for i, n in enumerate(sizes):
            if not hasattr(n, "__index__"):
                raise TypeError(f"torch.Size() takes an iterable of 'int' (item {i} is '{type(n).__name__}')")
        return tuple.__new__(cls, [n if getattr(n, "_is_symbolic", False) else n.__index__() for n in sizes])

    def numel(self) -> int:
        """The number of items of a tensor of this shape."""
        return math.prod(self)

    def __repr__(self) -> str:
        return f"torch.Size([{', '.join(map(str, self))}])"

    @overload
    def __getitem__(self, index: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Size: ...
    def __getitem__(self, index: Any) -> Any:
        value = tuple.__getitem__(self, index)
        return tuple.__new__(Size, value) if isinstance(index, slice) else value

    def __add__(self, other: tuple[int, ...]) -> Size:   # type: ignore[override]
        if not isinstance(other, tuple):
            raise TypeError(f"can only concatenate tuple (not {type(other).__name__}) to torch.Size")
        return tuple.__new__(Size, tuple(self) + tuple(other))

    def __radd__(self, other: tuple[int, ...]) -> Size:
        if not isinstance(other, tuple):
            return NotImplemented
        return tuple.__new__(Size, tuple(other) + tuple(self))

    def __mul__(self, times: SupportsIndex) -> Size:
        return tuple.__new__(Size, tuple(self) * times)

    def __rmul__(self, times: SupportsIndex) -> Size:
        return self * times

    def __reduce__(self) -> Any:
        return Size, (tuple(self),)


def broadcast(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    """The shape that two shapes broadcast to. Where they do not, torch names the last dim that does not fit."""
    rank = max(len(a), len(b))
    a, b = (1,) * (rank - len(a)) + tuple(a), (1,) * (rank - len(b)) + tuple(b)
    for d in range(rank - 1, -1, -1):
        if a[d] != b[d] and 1 not in (a[d], b[d]):
            raise RuntimeError(f"The size of tensor a ({a[d]}) must match the size of tensor b ({b[d]}) at non-singleton "
                               f"dimension {d}")
    return tuple(m if n == 1 else n for n, m in zip(a, b))


_C._register_class("Size", Size)


def walk_order(sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[list[int], bool]:
    """The dims from the outermost of a walk over operands of one shape to the innermost, and whether another order would do."""
    def compared(a: int, b: int) -> int:
        for steps in strides:
            if 0 in (steps[a], steps[b]) or steps[a] == steps[b] and sizes[b] >= sizes[a]:
                continue
            return 1 if steps[a] >= steps[b] else -1
        return 0

    order = list(range(len(sizes)))[::-1]
    for i in range(1, len(order)):
        at = i
        for below in range(i - 1, -1, -1):
            first = compared(order[below], order[at])
            if first < 0:
                break
            if first > 0:
                order[below], order[at], at = order[at], order[below], below
    return order[::-1], any(compared(a, b) != -1 for a, b in zip(order, order[1:]))
