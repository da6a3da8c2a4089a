"""Batches from lists of items: default_collate, default_convert."""
from __future__ import annotations

import collections.abc
import copy
import re
from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.utils.data._utils.worker import get_worker_info

default_collate_err_msg_format = "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"
np_str_obj_array_pattern = re.compile(r"[SaUO]")


def _is_array(x: Any) -> bool:
    return type(x).__module__ == "numpy" and hasattr(x, "dtype")


def rebuild(like: Any, made: Any) -> Any:
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
        return rebuild(data, {key: default_convert(data[key]) for key in data})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(d) for d in data))
    if isinstance(data, tuple):
        return [default_convert(d) for d in data]
    if isinstance(data, collections.abc.Sequence) and not isinstance(data, (str, bytes)):
        return rebuild(data, [default_convert(d) for d in data])
    return data


def collate(batch: Any, *, collate_fn_map: dict[Any, Callable[..., Any]] | None = None) -> Any:
    """One batch from items of one kind; collate_fn_map has functions for further types."""
    first = batch[0]
    for kind, fn in (collate_fn_map or {}).items():
        if isinstance(first, kind):
            return fn(batch, collate_fn_map=collate_fn_map)
    if isinstance(first, collections.abc.Mapping):
        return rebuild(first, {key: collate([d[key] for d in batch], collate_fn_map=collate_fn_map) for key in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(collate(s, collate_fn_map=collate_fn_map) for s in zip(*batch)))
    if isinstance(first, collections.abc.Sequence) and not isinstance(first, (str, bytes)):
        if any(len(item) != len(first) for item in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = [collate(s, collate_fn_map=collate_fn_map) for s in zip(*batch)]
        return columns if isinstance(first, tuple) else rebuild(first, columns)
    raise TypeError(default_collate_err_msg_format.format(type(first)))


def collate_tensor_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """Tensors, stacked."""
    if batch[0].layout not in (torch.strided, torch.jagged):
        raise RuntimeError("Batches of sparse tensors are not currently supported by the default collate_fn; please provide a "
                           "custom collate_fn to handle them appropriately.")
    if get_worker_info() is not None and torch.is_grad_enabled() and any(t.requires_grad for t in batch):
        raise RuntimeError(f"{torch.stack.__name__}(): functions with out=... arguments don't support automatic "
                           "differentiation, but one of the arguments requires grad.")       # a graph cannot leave the process
    return _stacked(list(batch))


def _stacked(batch: list[Any]) -> Any:
    """Tensors, stacked; in a worker in the memory in which they go to the loader."""
    first = batch[0]
    if get_worker_info() is None or first.device.type != "cpu" or first.layout is not torch.strided:
        return torch.stack(batch, 0)
    count = len(batch) * first.numel()
    storage = torch.UntypedStorage._new_shared(count * first.element_size())
    out = torch.empty(0, dtype=first.dtype).set_(storage, 0, (len(batch), *first.shape))
    return torch.stack(batch, 0, out=out)


def collate_numpy_array_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """NumPy arrays, stacked as tensors."""
    if np_str_obj_array_pattern.search(batch[0].dtype.str) is not None:
        raise TypeError(default_collate_err_msg_format.format(batch[0].dtype))
    return _stacked([torch.as_tensor(b) for b in batch])


def collate_numpy_scalar_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """Single numbers of NumPy as one tensor."""
    if batch[0].dtype.kind in "SUO":
        raise TypeError(default_collate_err_msg_format.format(batch[0].dtype))
    return torch.as_tensor(batch)


def collate_float_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """Floats as one tensor, in double precision."""
    return torch.tensor(batch, dtype=torch.float64)


def collate_int_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """Ints as one tensor."""
    return torch.tensor(batch)


def collate_str_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """Texts, as they are."""
    return batch


class _ArrayMeta(type):
    """isinstance(x, _Array) for NumPy's arrays and scalars, without importing NumPy."""

    def __instancecheck__(cls, x: Any) -> bool:
        return _is_array(x)


_Array = _ArrayMeta("_Array", (), {})


def _collate_arrays(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return (collate_numpy_scalar_fn if batch[0].shape == () else collate_numpy_array_fn)(batch)


default_collate_fn_map: dict[Any, Callable[..., Any]] = {
    _Array: _collate_arrays, torch.Tensor: collate_tensor_fn, float: collate_float_fn, int: collate_int_fn,
    str: collate_str_fn, bytes: collate_str_fn,
}


def default_collate(batch: Any) -> Any:
    """Stacks tensors, arrays and numbers; goes into dicts, tuples and lists."""
    return collate(batch, collate_fn_map=default_collate_fn_map)
