"""Pipes over items by index: wrapping, mapping, batching, joining, shuffling."""
from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.utils.data.datapipes._decorator import functional_datapipe
from mindtorch_v2.utils.data.datapipes._shuffling import Shuffling
from mindtorch_v2.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe
from mindtorch_v2.utils.data.datapipes.utils.common import _check_unpickable_fn

__all__ = ["Batcher", "Concater", "Mapper", "SequenceWrapper", "Shuffler", "Zipper"]


class SequenceWrapper(MapDataPipe):
    """The items of a list or dict; copied, so that other code cannot change them."""

    def __init__(self, sequence: Any, deepcopy: bool = True) -> None:
        self.sequence = copy.deepcopy(sequence) if deepcopy else sequence

    def __getitem__(self, index: Any) -> Any:
        return self.sequence[index]

    def __len__(self) -> int:
        return len(self.sequence)


def default_fn(data: Any) -> Any:
    """The item itself."""
    return data


@functional_datapipe("map")
class Mapper(MapDataPipe):
    """fn of every item."""

    def __init__(self, datapipe: Any, fn: Callable[[Any], Any] = default_fn) -> None:
        _check_unpickable_fn(fn)
        self.datapipe, self.fn = datapipe, fn

    def __getitem__(self, index: Any) -> Any:
        return self.fn(self.datapipe[index])

    def __len__(self) -> int:
        return len(self.datapipe)


@functional_datapipe("batch")
class Batcher(MapDataPipe):
    """Lists of batch_size items."""

    def __init__(self, datapipe: Any, batch_size: int, drop_last: bool = False, wrapper_class: Any = list) -> None:
        if batch_size <= 0:
            raise AssertionError("Batch size is required to be larger than 0!")
        self.datapipe, self.batch_size, self.drop_last, self.wrapper_class = datapipe, batch_size, drop_last, wrapper_class

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(f"Index {index} is out of bound.")
        first = index * self.batch_size
        last = min(first + self.batch_size, len(self.datapipe))
        return self.wrapper_class([self.datapipe[i] for i in range(first, last)])

    def __len__(self) -> int:
        n = len(self.datapipe)
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)


@functional_datapipe("concat")
class Concater(MapDataPipe):
    """One source after the other."""

    def __init__(self, *datapipes: Any) -> None:
        if not datapipes:
            raise ValueError("Expected at least one DataPipe, but got nothing")
        self.datapipes = datapipes

    def __getitem__(self, index: int) -> Any:
        left = index
        for pipe in self.datapipes:
            if left < len(pipe):
                return pipe[left]
            left -= len(pipe)
        raise IndexError(f"Index {index} is out of range.")

    def __len__(self) -> int:
        return sum(len(pipe) for pipe in self.datapipes)


@functional_datapipe("zip")
class Zipper(MapDataPipe):
    """Tuples of one item of each source."""

    def __init__(self, *datapipes: Any) -> None:
        if not datapipes:
            raise ValueError("Expected at least one DataPipe, but got nothing")
        self.datapipes = datapipes

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple(pipe[index] for pipe in self.datapipes)

    def __len__(self) -> int:
        return min(len(pipe) for pipe in self.datapipes)


class Shuffler(Shuffling, IterDataPipe):
    """A stream of the items in random order."""

    def __init__(self, datapipe: Any, *, indices: list[Any] | None = None) -> None:
        self.datapipe = datapipe
        self.indices = list(range(len(datapipe))) if indices is None else indices

    def __iter__(self) -> Iterator[Any]:
        order = list(self.indices)
        if self._enabled:
            order = random.Random(self._next_seed()).sample(order, len(order))[::-1]     # torch takes them from the end
        for index in order:
            yield self.datapipe[index]

    def __len__(self) -> int:
        return len(self.datapipe)


MapDataPipe.register_datapipe_as_function("shuffle", Shuffler)   # a stream, but a method of pipes by index

for _module, _doc, _names in (
        ("callable", "Pipes that call a function.", "Mapper"), ("combinatorics", "Pipes with an order of their own.", ""),
        ("combining", "Pipes over several.", "Concater Zipper"), ("grouping", "Pipes of lists.", "Batcher"),
        ("utils", "Pipes over sequences.", "SequenceWrapper")):
    _made = torch._facade.module(__name__, _module, _doc)
    for _name in _names.split():
        _class = globals()[_name]
        _class.__name__ = _class.__qualname__ = f"{_name}MapDataPipe"
        _class.__module__, vars(_made)[_class.__name__] = _made.__name__, _class
    globals()[_module] = _made
Shuffler.__name__ = Shuffler.__qualname__ = "ShufflerIterDataPipe"
Shuffler.__module__, globals()["combinatorics"].ShufflerIterDataPipe = globals()["combinatorics"].__name__, Shuffler
__path__: list[str] = []       # modules that torch has below it are found by name
