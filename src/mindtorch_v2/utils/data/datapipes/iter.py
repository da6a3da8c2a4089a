"""Pipes over streams: wrapping, mapping, filtering, batching, joining, shuffling, sharding."""
from __future__ import annotations

import copy
import functools
import itertools
import random
import warnings
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.utils.data._utils.collate import default_collate
from mindtorch_v2.utils.data.datapipes._decorator import functional_datapipe
from mindtorch_v2.utils.data.datapipes._files import FileLister, FileOpener, RoutedDecoder, StreamReader
from mindtorch_v2.utils.data.datapipes._shuffling import Shuffling
from mindtorch_v2.utils.data.datapipes.datapipe import DataChunk, IterDataPipe
from mindtorch_v2.utils.data.datapipes.utils.common import _check_unpickable_fn, validate_input_col
from mindtorch_v2.utils.data.graph_settings import SHARDING_PRIORITIES
from mindtorch_v2.utils.data.sampler import SequentialSampler

__all__ = ["Batcher", "Collator", "Concater", "Demultiplexer", "FileLister", "FileOpener", "Filter", "Forker", "Grouper",
           "IterableWrapper", "Mapper", "Multiplexer", "RoutedDecoder", "Sampler", "ShardingFilter", "Shuffler", "StreamReader",
           "UnBatcher", "Zipper"]


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
        _check_unpickable_fn(fn)
        if input_col is None and output_col is not None:
            raise ValueError("`output_col` must be None when `input_col` is None.")
        if isinstance(output_col, (list, tuple)):
            if len(output_col) > 1:
                raise ValueError("`output_col` must be a single-element list or tuple")
            output_col = output_col[0]
        validate_input_col(fn, input_col)
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
        elif self.output_col is not None:
            rows[self.output_col] = made
        else:        # in the place of the first column; the others that went into it go
            rows[column[0] if many else column] = made
            for gone in sorted(column[1:], reverse=True) if many else ():
                del rows[gone]
        return tuple(rows) if isinstance(item, tuple) else rows

    def __iter__(self) -> Iterator[Any]:
        for item in self.datapipe:
            yield self._apply(item)


@functional_datapipe("collate")
class Collator(Mapper):
    """Lists of items as batches."""

    def __init__(self, datapipe: Any, conversion: Any = None, collate_fn: Callable[[Any], Any] | None = None) -> None:
        given = collate_fn or default_collate if conversion is None else conversion
        super().__init__(datapipe, given if isinstance(given, Callable) else functools.partial(_collate_helper, given))  # type: ignore[arg-type]


def _collate_helper(conversion: Any, item: Any) -> Any:
    """Refuses: conversions by column are for data frames."""
    raise NotImplementedError("[torch.utils.data.datapipes.iter.Collator] batches of data frames are not offered")


@functional_datapipe("filter")
class Filter(_Over):
    """The items for which a function is true."""

    def __init__(self, datapipe: Any, filter_fn: Callable[..., Any], input_col: Any = None) -> None:
        super().__init__(datapipe)
        _check_unpickable_fn(filter_fn)
        validate_input_col(filter_fn, input_col)
        self.filter_fn, self.input_col = filter_fn, input_col

    def __iter__(self) -> Iterator[Any]:
        column = self.input_col
        for item in self.datapipe:
            many = isinstance(column, (list, tuple))
            said = self.filter_fn(*(item[c] for c in column)) if many else self.filter_fn(item if column is None else item[column])
            if not isinstance(said, bool) and type(said).__name__ not in ("bool_", "bool"):      # NumPy's too
                raise ValueError("Boolean output is required for `filter_fn` of FilterIterDataPipe, got", type(said))
            if said:
                yield item

    def __len__(self) -> int:
        raise TypeError(f"object of type '{type(self).__name__}' has no len()")


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
        raise TypeError(f"object of type '{type(self).__name__}' has no len()")


@functional_datapipe("groupby")
class Grouper(_Over):
    """Lists of items with one key; a group is given when it is full, and what is left at the end."""

    def __init__(self, datapipe: Any, group_key_fn: Callable[[Any], Any], *, keep_key: bool = False, buffer_size: int = 10000,
                 group_size: int | None = None, guaranteed_group_size: int | None = None, drop_remaining: bool = False) -> None:
        super().__init__(datapipe)
        _check_unpickable_fn(group_key_fn)
        if group_size is not None and not 0 < group_size <= buffer_size:
            raise AssertionError("group_size must be > 0 and <= buffer_size")
        if guaranteed_group_size is not None and not (group_size is not None and 0 < guaranteed_group_size <= group_size):
            raise AssertionError("guaranteed_group_size must be > 0 and <= group_size and group_size must be set")
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
        raise TypeError(f"object of type '{type(self).__name__}' has no len()")


class _Joined(IterDataPipe):
    """A pipe over several."""

    def __init__(self, *datapipes: Any) -> None:
        self.datapipes = datapipes


@functional_datapipe("concat")
class Concater(_Joined):
    """One stream after the other."""

    def __init__(self, *datapipes: Any) -> None:
        if not datapipes:
            raise ValueError("Expected at least one DataPipe, but got nothing")
        if not all(isinstance(pipe, IterDataPipe) for pipe in datapipes):
            raise TypeError("Expected all inputs to be `IterDataPipe`")
        super().__init__(*datapipes)

    def __iter__(self) -> Iterator[Any]:
        for pipe in self.datapipes:
            yield from pipe

    def __len__(self) -> int:
        return sum(len(pipe) for pipe in self.datapipes)


@functional_datapipe("zip")
class Zipper(_Joined):
    """Tuples of one item of each stream, as long as all have one."""

    def __init__(self, *datapipes: Any) -> None:
        if not all(isinstance(pipe, IterDataPipe) for pipe in datapipes):
            raise TypeError("All inputs are required to be `IterDataPipe` for `ZipIterDataPipe`.")
        super().__init__(*datapipes)

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


_COPIES: dict[Any, Callable[[Any], Any]] = {None: lambda item: item, "shallow": copy.copy, "deep": copy.deepcopy}


class _ChildDataPipe(IterDataPipe):
    """One of several streams that are read from one pass over a source; what others have not read yet waits."""

    _is_child_datapipe = True

    def __init__(self, main_datapipe: Any, instance_id: int) -> None:
        self.main_datapipe, self.instance_id = main_datapipe, instance_id

    def __iter__(self) -> Iterator[Any]:
        return self.main_datapipe.branch(self.instance_id)

    def __len__(self) -> int:
        return len(self.main_datapipe)

    def _set_main_datapipe_valid_iterator_id(self) -> int:
        """The pass that this stream reads from: a new one where it has begun the last one already."""
        main = self.main_datapipe
        if main._valid_iterator_id is None:
            main._valid_iterator_id = 0
        elif main._valid_iterator_id == self._valid_iterator_id:
            main._valid_iterator_id += 1
            if not main.is_every_instance_exhausted():
                warnings.warn("Some child DataPipes are not exhausted when __iter__ is called. We are resetting the buffer and "
                              "each child DataPipe will read from the start again.", UserWarning, stacklevel=4)
            main.reset()
        self._valid_iterator_id = main._valid_iterator_id
        return main._valid_iterator_id

    def _check_valid_iterator_id(self, iterator_id: int | None) -> bool:
        return iterator_id == self._valid_iterator_id == self.main_datapipe._valid_iterator_id


class _Branching(IterDataPipe):
    """The pass that branches share."""

    _called = ""

    def __init__(self, datapipe: Any, num_instances: int, buffer_size: int) -> None:
        self.main_datapipe, self.num_instances, self.buffer_size = datapipe, num_instances, buffer_size
        if buffer_size < 0:
            warnings.warn(f"Unlimited buffer size is set for `{self._called}`, please be aware of OOM at random places",
                          UserWarning, stacklevel=4)
        self.reset()

    def reset(self) -> None:
        """Nothing waits, and nothing was read."""
        self._waiting: list[deque[Any]] = [deque() for _ in range(self.num_instances)]
        self._ended = [False] * self.num_instances
        self._source: Iterator[Any] | None = None

    def __getstate__(self) -> Any:
        state = {**self.__dict__, "_waiting": None, "_ended": None, "_source": None, "_valid_iterator_id": None}
        hook = IterDataPipe.getstate_hook
        return state if hook is None else hook(state)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.reset()

    def __len__(self) -> int:
        return len(self.main_datapipe)

    def is_every_instance_exhausted(self) -> bool:
        """Whether all branches came to the end."""
        return all(self._ended)

    def _places(self, item: Any) -> Iterable[int]:
        raise NotImplementedError

    def branch(self, number: int) -> Iterator[Any]:
        """The items of one of them."""
        if self._source is None:
            self._source = iter(self.main_datapipe)
        waiting, source = self._waiting, self._source
        while True:
            while not waiting[number]:
                try:
                    item = next(source)
                except StopIteration:
                    self._ended[number] = True
                    return
                for at in self._places(item):
                    waiting[at].append(item)
                    if 0 <= self.buffer_size < self._behind(number):
                        raise BufferError(self._overflow())
            yield self._copied(waiting[number].popleft())

    def _behind(self, number: int) -> int:
        return sum(len(queue) for at, queue in enumerate(self._waiting) if at != number)

    def _overflow(self) -> str:
        raise NotImplementedError

    def _copied(self, item: Any) -> Any:
        return item


class _ForkerIterDataPipe(_Branching):
    """All items for each branch."""

    _called = "fork"

    def __init__(self, datapipe: Any, num_instances: int, buffer_size: int = 1000, copy: Any = None) -> None:
        super().__init__(datapipe, num_instances, buffer_size)
        if copy not in _COPIES:
            raise ValueError(f"Unknown copy method `{copy}` requested, choose one of None, `shallow` or `deep`.")
        self._copy_method = copy

    def _places(self, item: Any) -> Iterable[int]:
        return range(self.num_instances)

    def _behind(self, number: int) -> int:
        return max(len(queue) for at, queue in enumerate(self._waiting) if at != number)

    def _overflow(self) -> str:
        return f"ForkerIterDataPipe buffer overflow,buffer size {self.buffer_size} is insufficient."

    def _copied(self, item: Any) -> Any:
        return _COPIES[self._copy_method](item)


class _DemultiplexerIterDataPipe(_Branching):
    """Each item for the branch that a function says."""

    _called = "demux"

    def __init__(self, datapipe: Any, num_instances: int, classifier_fn: Callable[[Any], int | None], drop_none: bool = False,
                 buffer_size: int = 1000) -> None:
        super().__init__(datapipe, num_instances, buffer_size)
        self.classifier_fn, self.drop_none = classifier_fn, drop_none

    def __len__(self) -> int:
        raise TypeError

    def _places(self, item: Any) -> Iterable[int]:
        number = self.classifier_fn(item)
        if number is None and self.drop_none:
            return ()
        if number is None or not 0 <= number < self.num_instances:
            raise ValueError(f"Output of the classification fn should be between 0 and {self.num_instances - 1}. {number} is "
                             "returned.")
        return (number,)

    def _overflow(self) -> str:
        return f"DemultiplexerIterDataPipe buffer overflow, buffer size {self.buffer_size} is insufficient."


def _children(main: _Branching) -> list[Any]:
    return [_ChildDataPipe(main, i) for i in range(main.num_instances)]


@functional_datapipe("fork")
class Forker(IterDataPipe):
    """Several streams, each with all items."""

    def __new__(cls, datapipe: Any, num_instances: int, buffer_size: int = 1000, copy: Any = None) -> Any:
        if num_instances < 1:
            raise ValueError(f"Expected `num_instances` larger than 0, but {num_instances} is found")
        return [datapipe] if num_instances == 1 else _children(_ForkerIterDataPipe(datapipe, num_instances, buffer_size, copy))


@functional_datapipe("demux")
class Demultiplexer(IterDataPipe):
    """Several streams, each with the items that a function gives its number."""

    def __new__(cls, datapipe: Any, num_instances: int, classifier_fn: Callable[[Any], int | None], drop_none: bool = False,
                buffer_size: int = 1000) -> Any:
        if num_instances < 1:
            raise ValueError(f"Expected `num_instances` larger than 0, but {num_instances} is found")
        _check_unpickable_fn(classifier_fn)
        return _children(_DemultiplexerIterDataPipe(datapipe, num_instances, classifier_fn, drop_none, buffer_size))


@functional_datapipe("shuffle")
class Shuffler(Shuffling, _Over):
    """Items in random order, as far as a buffer of them allows."""

    def __init__(self, datapipe: Any, *, buffer_size: int = 10000, unbatch_level: int = 0) -> None:
        if buffer_size <= 0:
            raise AssertionError("buffer_size should be larger than 0")
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

    def __init__(self, source_datapipe: Any, sharding_group_filter: Any = None) -> None:
        super().__init__(source_datapipe)
        self.sharding_group_filter = sharding_group_filter
        self.groups: dict[Any, tuple[int, int]] = {}
        self.num_of_instances, self.instance_id = 1, 0

    def apply_sharding(self, num_of_instances: int, instance_id: int, sharding_group: Any = SHARDING_PRIORITIES.DEFAULT) -> None:
        """Which share this is of how many, in one of the groups that share it out after one another."""
        if instance_id >= num_of_instances:
            raise ValueError(f"instance_id({instance_id}) should be smaller than num_of_instances({num_of_instances})")
        default = SHARDING_PRIORITIES.DEFAULT
        if any((group == default) != (sharding_group == default) for group in self.groups):
            raise RuntimeError("ShardingFilter cannot mix DEFAULT and non DEFAULT groups")
        self.groups[sharding_group] = num_of_instances, instance_id
        self.num_of_instances, self.instance_id = 1, 0
        for group in sorted(self.groups, reverse=True):
            if self.sharding_group_filter in (None, group):
                count, place = self.groups[group]
                self.instance_id += self.num_of_instances * place
                self.num_of_instances *= count

    def __iter__(self) -> Iterator[Any]:
        yield from itertools.islice(self.datapipe, self.instance_id, None, self.num_of_instances)

    def __len__(self) -> int:
        n = len(self.datapipe)
        return n // self.num_of_instances + (self.instance_id < n % self.num_of_instances)


# The modules and the full names that torch has them by.
for _module, _doc, _names in (
        ("callable", "Pipes that call a function.", "Mapper Collator"),
        ("combinatorics", "Pipes with an order of their own.", "Sampler Shuffler"),
        ("combining", "Pipes over several, and several over one.", "Concater Forker Demultiplexer Multiplexer Zipper"),
        ("filelister", "Files by name.", "FileLister"), ("fileopener", "Open files.", "FileOpener"),
        ("grouping", "Pipes of lists.", "Batcher UnBatcher Grouper"), ("routeddecoder", "Decoded files.", "RoutedDecoder"),
        ("selecting", "Pipes that leave items out.", "Filter"), ("sharding", "Shares of workers.", "ShardingFilter"),
        ("streamreader", "Bytes of files.", "StreamReader"), ("utils", "Pipes over what can be iterated.", "IterableWrapper")):
    _made = torch._facade.module(__name__, _module, _doc)
    for _name in _names.split():
        _class = globals()[_name]
        _class.__name__ = _class.__qualname__ = f"{_name}IterDataPipe"
        _class.__module__, vars(_made)[_class.__name__] = _made.__name__, _class
    globals()[_module] = _made
globals()["sharding"].SHARDING_PRIORITIES = SHARDING_PRIORITIES
for _class in (_ChildDataPipe, _ForkerIterDataPipe, _DemultiplexerIterDataPipe):
    _class.__module__, vars(globals()["combining"])[_class.__name__] = globals()["combining"].__name__, _class
__path__: list[str] = []       # modules that torch has below it are found by name
