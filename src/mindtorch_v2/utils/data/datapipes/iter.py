"""Pipes over streams: wrapping, mapping, filtering, batching, joining, shuffling, sharding."""
from __future__ import annotations

import copy
import itertools
import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.utils.data._utils.collate import default_collate
from mindtorch_v2.utils.data.datapipes._decorator import functional_datapipe
from mindtorch_v2.utils.data.datapipes._shuffling import Shuffling
from mindtorch_v2.utils.data.datapipes.datapipe import DataChunk, IterDataPipe
from mindtorch_v2.utils.data.sampler import SequentialSampler

__all__ = ["Batcher", "Collator", "Concater", "Demultiplexer", "Filter", "Forker", "Grouper", "IterableWrapper", "Mapper",
           "Multiplexer", "Sampler", "ShardingFilter", "Shuffler", "UnBatcher", "Zipper"]


class IterableWrapper(IterDataPipe):
    """The items of anything that can be iterated; copied at each pass, so that passes do not share what changes."""

    def __init__(self, iterable: Any, deepcopy: bool = True) -> None:
        self.iterable, self.deepcopy = iterable, deepcopy

    def __iter__(self) -> Iterator[Any]:
        yield from copy.deepcopy(self.iterable) if self.deepcopy else self.iterable

    def __len__(self) -> int:
        return len(self.iterable)


class _Over(IterDataPipe):
    """A pipe over another."""

    def __init__(self, datapipe: Any) -> None:
        self.datapipe = datapipe

    def __len__(self) -> int:
        return len(self.datapipe)


@functional_datapipe("map")
class Mapper(_Over):
    """fn of every item, or of some columns of it."""

    def __init__(self, datapipe: Any, fn: Callable[..., Any], input_col: Any = None, output_col: Any = None) -> None:
        super().__init__(datapipe)
        if input_col is None and output_col is not None:
            raise ValueError("`output_col` must be None when `input_col` is None.")
        self.fn, self.input_col, self.output_col = fn, input_col, output_col

    def _apply(self, item: Any) -> Any:
        column = self.input_col
        if column is None:
            return self.fn(item)
        many = isinstance(column, (list, tuple))
        made = self.fn(*(item[c] for c in column)) if many else self.fn(item[column])
        rows = list(item) if isinstance(item, tuple) else copy.copy(item)
        if self.output_col == -1:
            rows.append(made)
        else:
            rows[(column[0] if many else column) if self.output_col is None else self.output_col] = made
        return tuple(rows) if isinstance(item, tuple) else rows

    def __iter__(self) -> Iterator[Any]:
        for item in self.datapipe:
            yield self._apply(item)


@functional_datapipe("collate")
class Collator(Mapper):
    """Lists of items as batches."""

    def __init__(self, datapipe: Any, conversion: Any = None, collate_fn: Callable[[Any], Any] | None = None) -> None:
        super().__init__(datapipe, collate_fn or conversion or default_collate)


@functional_datapipe("filter")
class Filter(_Over):
    """The items for which a function is true."""

    def __init__(self, datapipe: Any, filter_fn: Callable[..., Any], input_col: Any = None) -> None:
        super().__init__(datapipe)
        self.filter_fn, self.input_col = filter_fn, input_col

    def __iter__(self) -> Iterator[Any]:
        for item in self.datapipe:
            column = self.input_col
            if self.filter_fn(*(item if column is None else (item[c] for c in column)) if isinstance(column, (list, tuple))
                              else (item if column is None else item[column],)):
                yield item

    def __len__(self) -> int:
        raise TypeError(f"{type(self).__name__} instance doesn't have valid length")


@functional_datapipe("batch")
class Batcher(_Over):
    """Lists of batch_size items."""

    def __init__(self, datapipe: Any, batch_size: int, drop_last: bool = False, wrapper_class: Any = DataChunk) -> None:
        if batch_size <= 0:
            raise AssertionError("Batch size is required to be larger than 0!")
        super().__init__(datapipe)
        self.batch_size, self.drop_last, self.wrapper_class = batch_size, drop_last, wrapper_class

    def __iter__(self) -> Iterator[Any]:
        source = iter(self.datapipe)
        while batch := list(itertools.islice(source, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield self.wrapper_class(batch)

    def __len__(self) -> int:
        n = len(self.datapipe)
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)


@functional_datapipe("unbatch")
class UnBatcher(_Over):
    """The items of lists, so many levels down; -1: all levels."""

    def __init__(self, datapipe: Any, unbatch_level: int = 1) -> None:
        super().__init__(datapipe)
        self.unbatch_level = unbatch_level

    def _items(self, item: Any, level: int) -> Iterator[Any]:
        if level < -1:
            raise ValueError("unbatch_level must be -1 or >= 0")
        if level == 0 or level == -1 and not isinstance(item, list):
            yield item
        elif not isinstance(item, list):
            raise IndexError(f"unbatch_level {self.unbatch_level} exceeds the depth of the DataPipe")
        else:
            for inner in item:
                yield from self._items(inner, level if level == -1 else level - 1)

    def __iter__(self) -> Iterator[Any]:
        for item in self.datapipe:
            yield from self._items(item, self.unbatch_level)

    def __len__(self) -> int:
        raise TypeError(f"{type(self).__name__} instance doesn't have valid length")


@functional_datapipe("groupby")
class Grouper(_Over):
    """Lists of items with one key; a group is given when it is full, and what is left at the end."""

    def __init__(self, datapipe: Any, group_key_fn: Callable[[Any], Any], *, keep_key: bool = False, buffer_size: int = 10000,
                 group_size: int | None = None, guaranteed_group_size: int | None = None, drop_remaining: bool = False) -> None:
        super().__init__(datapipe)
        self.key, self.keep_key, self.buffer_size, self.group_size = group_key_fn, keep_key, buffer_size, group_size
        self.least = group_size if guaranteed_group_size is None else guaranteed_group_size
        self.drop_remaining = drop_remaining

    def __iter__(self) -> Iterator[Any]:
        groups: dict[Any, list[Any]] = defaultdict(list)
        held = 0
        for item in self.datapipe:
            key = self.key(item)
            groups[key].append(item)
            held += 1
            if self.group_size == len(groups[key]):
                held -= len(groups[key])
                yield self._group(key, groups.pop(key))
            elif held == self.buffer_size:
                key = max(groups, key=lambda k: len(groups[k]))
                held -= len(groups[key])
                found = groups.pop(key)
                if self.least is None or len(found) >= self.least:
                    yield self._group(key, found)
                elif not self.drop_remaining:
                    raise RuntimeError("Failed to group items", str(found))
        for key, found in groups.items():
            yield self._group(key, found)

    def _group(self, key: Any, items: list[Any]) -> Any:
        return (key, items) if self.keep_key else items

    def __len__(self) -> int:
        raise TypeError(f"{type(self).__name__} instance doesn't have valid length")


class _Joined(IterDataPipe):
    """A pipe over several."""

    def __init__(self, *datapipes: Any) -> None:
        if not datapipes:
            raise ValueError("Expected at least one DataPipe, but got nothing")
        self.datapipes = datapipes


@functional_datapipe("concat")
class Concater(_Joined):
    """One stream after the other."""

    def __iter__(self) -> Iterator[Any]:
        for pipe in self.datapipes:
            yield from pipe

    def __len__(self) -> int:
        return sum(len(pipe) for pipe in self.datapipes)


@functional_datapipe("zip")
class Zipper(_Joined):
    """Tuples of one item of each stream, as long as all have one."""

    def __iter__(self) -> Iterator[Any]:
        yield from zip(*self.datapipes)

    def __len__(self) -> int:
        return min(len(pipe) for pipe in self.datapipes)


@functional_datapipe("mux")
class Multiplexer(_Joined):
    """One item of each stream in turn, until one ends."""

    def __iter__(self) -> Iterator[Any]:
        for items in zip(*self.datapipes):
            yield from items

    def __len__(self) -> int:
        return min(len(pipe) for pipe in self.datapipes) * len(self.datapipes)


class _Branch(IterDataPipe):
    """One of several streams that are read from one pass over a source; what others have not read yet waits."""

    def __init__(self, hub: _Hub, number: int) -> None:
        self.hub, self.number = hub, number

    def __iter__(self) -> Iterator[Any]:
        self.hub.begin(self.number)
        while True:
            try:
                yield self.hub.next(self.number)
            except StopIteration:
                return

    def __len__(self) -> int:
        return len(self.hub.datapipe)


class _Hub:
    """The pass that branches share."""

    def __init__(self, datapipe: Any, count: int, place: Callable[[Any], Any], buffer_size: int) -> None:
        if count < 1:
            raise ValueError(f"Expected `num_instances` larger than 0, but {count} is found")
        self.datapipe, self.place, self.buffer_size = datapipe, place, buffer_size
        self.waiting: list[deque[Any]] = [deque() for _ in range(count)]
        self.begun = [False] * count
        self.source: Iterator[Any] | None = None

    def begin(self, number: int) -> None:
        if self.source is None or self.begun[number]:    # the first branch, or one that starts again: a new pass
            self.source = iter(self.datapipe)
            self.begun = [False] * len(self.waiting)
            for queue in self.waiting:
                queue.clear()
        self.begun[number] = True

    def next(self, number: int) -> Any:
        while not self.waiting[number]:
            item = next(self.source)   # type: ignore[arg-type]
            for at in self.place(item):
                if at != number and 0 <= self.buffer_size <= sum(map(len, self.waiting)):
                    raise BufferError(f"buffer overflow: more than {self.buffer_size} items wait for another branch")
                self.waiting[at].append(item)
        return self.waiting[number].popleft()


def Forker(datapipe: Any, num_instances: int, buffer_size: int = 1000, copy: Any = None) -> list[Any]:
    """Several streams, each with all items."""
    if num_instances == 1:
        return [datapipe]
    hub = _Hub(datapipe, num_instances, lambda item: range(num_instances), buffer_size)
    return [_Branch(hub, i) for i in range(num_instances)]


def Demultiplexer(datapipe: Any, num_instances: int, classifier_fn: Callable[[Any], int | None], drop_none: bool = False,
                  buffer_size: int = 1000) -> list[Any]:
    """Several streams, each with the items that a function gives its number."""
    def place(item: Any) -> tuple[int, ...]:
        number = classifier_fn(item)
        if number is None and drop_none:
            return ()
        if number is None or not 0 <= number < num_instances:
            raise ValueError(f"Output of the classification fn should be between 0 and {num_instances - 1}. {number} is returned.")
        return (number,)
    hub = _Hub(datapipe, num_instances, place, buffer_size)
    return [_Branch(hub, i) for i in range(num_instances)]


IterDataPipe.register_function("fork", Forker)
IterDataPipe.register_function("demux", Demultiplexer)


@functional_datapipe("shuffle")
class Shuffler(Shuffling, _Over):
    """Items in random order, as far as a buffer of them allows."""

    def __init__(self, datapipe: Any, *, buffer_size: int = 10000, unbatch_level: int = 0) -> None:
        if buffer_size <= 0:
            raise ValueError("buffer_size should be larger than 0")
        super().__init__(datapipe if unbatch_level == 0 else UnBatcher(datapipe, unbatch_level))
        self.buffer_size = buffer_size

    def __iter__(self) -> Iterator[Any]:
        if not self._enabled:
            yield from self.datapipe
            return
        draw = random.Random(self._next_seed())
        held: list[Any] = []
        for item in self.datapipe:
            if len(held) == self.buffer_size:
                at = draw.randint(0, len(held) - 1)
                held[at], item = item, held[at]
                yield item
            else:
                held.append(item)
        while held:
            yield held.pop(draw.randint(0, len(held) - 1))


class Sampler(_Over):
    """The items of a source in the order that a sampler gives."""

    def __init__(self, datapipe: Any, sampler: Any = SequentialSampler, sampler_args: Any = None,
                 sampler_kwargs: Any = None) -> None:
        super().__init__(datapipe)
        self.sampler = sampler(*(sampler_args or ()), data_source=datapipe, **(sampler_kwargs or {}))

    def __iter__(self) -> Iterator[Any]:
        yield from self.sampler

    def __len__(self) -> int:
        return len(self.sampler)


@functional_datapipe("sharding_filter")
class ShardingFilter(_Over):
    """Every n-th item: the share of one worker."""

    def __init__(self, datapipe: Any, sharding_group_filter: Any = None) -> None:
        super().__init__(datapipe)
        self.num_of_instances, self.instance_id = 1, 0

    def apply_sharding(self, num_of_instances: int, instance_id: int, sharding_group: Any = None) -> None:
        """Which share this is of how many."""
        if instance_id >= num_of_instances:
            raise ValueError(f"instance_id({instance_id}) should be smaller than num_of_instances({num_of_instances})")
        self.num_of_instances, self.instance_id = num_of_instances, instance_id

    def __iter__(self) -> Iterator[Any]:
        yield from itertools.islice(self.datapipe, self.instance_id, None, self.num_of_instances)

    def __len__(self) -> int:
        n = len(self.datapipe)
        return n // self.num_of_instances + (self.instance_id < n % self.num_of_instances)


combinatorics: Any = torch._facade.module(__name__, "combinatorics", "Pipes with an order of their own, by torch's full names.",
                                          ShufflerIterDataPipe=Shuffler, SamplerIterDataPipe=Sampler)

__path__: list[str] = []       # modules that torch has below it are found by name
