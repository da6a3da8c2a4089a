"""Batches from lists of items: default_collate, default_convert, pin_memory."""
from __future__ import annotations

import collections.abc
import copy
from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch

_ERROR = ("default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}")


def _is_array(x: Any) -> bool:
    return type(x).__module__ == "numpy" and hasattr(x, "dtype")


def _rebuild(like: Any, made: Any) -> Any:
    """A container of the same type as `like` where it can be made; else a plain dict or list."""
    try:
        clone: Any
        if isinstance(like, collections.abc.MutableMapping):
            clone = copy.copy(like)
            clone.update(made)
            return clone
        if isinstance(like, collections.abc.MutableSequence):
            clone = copy.copy(like)
            for i, value in enumerate(made):
                clone[i] = value
            return clone
        return type(like)(made)
    except TypeError:
        return made


def default_convert(data: Any) -> Any:
    """NumPy arrays as tensors, in containers too; everything else as it is."""
    if isinstance(data, torch.Tensor):
        return data
    if _is_array(data):
        return data if data.dtype.kind in "SUO" else torch.as_tensor(data)
    if isinstance(data, collections.abc.Mapping):
        return _rebuild(data, {key: default_convert(data[key]) for key in data})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(d) for d in data))
    if isinstance(data, tuple):
        return [default_convert(d) for d in data]
    if isinstance(data, collections.abc.Sequence) and not isinstance(data, (str, bytes)):
        return _rebuild(data, [default_convert(d) for d in data])
    return data


def collate(batch: Any, *, collate_fn_map: dict[Any, Callable[..., Any]] | None = None) -> Any:
    """One batch from items of one kind; collate_fn_map has functions for further types."""
    first = batch[0]
    for kind, fn in (collate_fn_map or {}).items():
        if isinstance(first, kind):
            return fn(batch, collate_fn_map=collate_fn_map)
    if isinstance(first, collections.abc.Mapping):
        return _rebuild(first, {key: collate([d[key] for d in batch], collate_fn_map=collate_fn_map) for key in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(collate(s, collate_fn_map=collate_fn_map) for s in zip(*batch)))
    if isinstance(first, collections.abc.Sequence) and not isinstance(first, (str, bytes)):
        if any(len(item) != len(first) for item in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = [collate(list(s), collate_fn_map=collate_fn_map) for s in zip(*batch)]
        return columns if isinstance(first, tuple) else _rebuild(first, columns)
    raise TypeError(_ERROR.format(type(first)))


def _collate_tensors(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return torch.stack(list(batch), 0)


def _collate_arrays(batch: Any) -> Any:
    first = batch[0]
    if first.dtype.kind in "SUO":
        raise TypeError(_ERROR.format(first.dtype))
    return torch.as_tensor(batch) if first.shape == () else torch.stack([torch.as_tensor(b) for b in batch], 0)


default_collate_fn_map: dict[Any, Callable[..., Any]] = {
    torch.Tensor: _collate_tensors,
    float: lambda batch, *, collate_fn_map=None: torch.tensor(batch, dtype=torch.float64),
    int: lambda batch, *, collate_fn_map=None: torch.tensor(batch),
    str: lambda batch, *, collate_fn_map=None: batch,
    bytes: lambda batch, *, collate_fn_map=None: batch,
}


class _ArrayMeta(type):
    """isinstance(x, _Array) for NumPy's arrays and scalars, without importing NumPy."""

    def __instancecheck__(cls, x: Any) -> bool:
        return _is_array(x)


_Array = _ArrayMeta("_Array", (), {})
default_collate_fn_map = {_Array: lambda batch, *, collate_fn_map=None: _collate_arrays(batch)} | default_collate_fn_map


def default_collate(batch: Any) -> Any:
    """Stacks tensors, arrays and numbers; goes into dicts, tuples and lists."""
    return collate(batch, collate_fn_map=default_collate_fn_map)


def pin_memory(data: Any, device: Any = None) -> Any:
    """The tensors of a batch in pinned memory."""
    if hasattr(data, "pin_memory"):
        return data.pin_memory()
    if isinstance(data, (str, bytes)):
        return data
    if isinstance(data, collections.abc.Mapping):
        return _rebuild(data, {k: pin_memory(v) for k, v in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(pin_memory(d) for d in data))
    if isinstance(data, tuple):
        return tuple(pin_memory(d) for d in data)
    if isinstance(data, collections.abc.Sequence):
        return _rebuild(data, [pin_memory(d) for d in data])
    return data
