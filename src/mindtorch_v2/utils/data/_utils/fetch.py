"""One batch, or one item, of a dataset: what both a loader and its workers call."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any


class _BaseDatasetFetcher:
    """What is known of the loader: whether it batches, how it joins items, whether a short batch counts."""

    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Callable[[Any], Any], drop_last: bool) -> None:
        self.dataset, self.auto_collation, self.collate_fn, self.drop_last = dataset, auto_collation, collate_fn, drop_last

    def fetch(self, possibly_batched_index: Any) -> Any:
        """The batch of these indices."""
        raise NotImplementedError


class _IterableDatasetFetcher(_BaseDatasetFetcher):
    """Items in the order in which a stream gives them."""

    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Callable[[Any], Any], drop_last: bool) -> None:
        super().__init__(dataset, auto_collation, collate_fn, drop_last)
        self.dataset_iter = iter(dataset)
        self.ended = False

    def fetch(self, possibly_batched_index: Any) -> Any:
        if self.ended:
            raise StopIteration
        if not self.auto_collation:
            return self.collate_fn(next(self.dataset_iter))
        items = []
        for _ in possibly_batched_index:
            try:
                items.append(next(self.dataset_iter))
            except StopIteration:
                self.ended = True
                break
        if not items or (self.drop_last and len(items) < len(possibly_batched_index)):
            raise StopIteration
        return self.collate_fn(items)


class _MapDatasetFetcher(_BaseDatasetFetcher):
    """Items by their index."""

    def fetch(self, possibly_batched_index: Any) -> Any:
        if not self.auto_collation:
            return self.collate_fn(self.dataset[possibly_batched_index])
        if callable(getattr(self.dataset, "__getitems__", None)):
            return self.collate_fn(self.dataset.__getitems__(possibly_batched_index))
        return self.collate_fn([self.dataset[i] for i in possibly_batched_index])


def fetcher(dataset: Any, batched: bool, collate_fn: Callable[[Any], Any], drop_last: bool,
            iterable: bool) -> _BaseDatasetFetcher:
    """The one that a kind of dataset needs."""
    return (_IterableDatasetFetcher if iterable else _MapDatasetFetcher)(dataset, batched, collate_fn, drop_last)
