"""Small tuples that layers and functions expand their sizes with."""

from __future__ import annotations

import collections.abc
from collections.abc import Sequence
from itertools import repeat
from typing import Any, Callable


def _ntuple(n: int, name: str = "parse") -> Callable[[Any], tuple[Any, ...]]:
    def parse(x: Any) -> tuple[Any, ...]:
        if isinstance(x, collections.abc.Iterable):
            return tuple(x)
        return tuple(repeat(x, n))

    parse.__name__ = name
    return parse


_single = _ntuple(1, "_single")
_pair = _ntuple(2, "_pair")
_triple = _ntuple(3, "_triple")
_quadruple = _ntuple(4, "_quadruple")


def _reverse_repeat_tuple(t: tuple[Any, ...], n: int) -> tuple[Any, ...]:
    """Each element n times, last first: the order in which pad takes them."""
    return tuple(x for x in reversed(t) for _ in range(n))


def _list_with_default(out_size: Any, defaults: Sequence[int]) -> Any:
    """Fill the None places of an output size from the input's."""
    if isinstance(out_size, int):
        return out_size
    if len(defaults) <= len(out_size):
        raise ValueError(f"Input dimension should be at least {len(out_size) + 1}")
    known = defaults[-len(out_size) :]
    return [d if size is None else size for size, d in zip(out_size, known)]


def consume_prefix_in_state_dict_if_present(state_dict: dict[Any, Any], prefix: str) -> None:
    """Strip a prefix from the keys of a state_dict, in place."""
    for key in list(state_dict):
        if key.startswith(prefix):
            state_dict[key[len(prefix) :]] = state_dict.pop(key)
    if hasattr(state_dict, "_metadata"):
        for key in list(state_dict._metadata):
            # "module" is the wrapped model itself, "module.x" what lies below it.
            if key and (key == prefix.replace(".", "") or key.startswith(prefix)):
                state_dict._metadata[key[len(prefix) :]] = state_dict._metadata.pop(key)
