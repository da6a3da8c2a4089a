"""The tensors of a batch in pinned memory."""
from __future__ import annotations

import collections.abc
from typing import Any

from mindtorch_v2.utils.data._utils.collate import rebuild


def pin_memory(data: Any, device: Any = None) -> Any:
    """The tensors of a batch in pinned memory."""
    if hasattr(data, "pin_memory"):
        return data.pin_memory()
    if isinstance(data, (str, bytes)):
        return data
    if isinstance(data, collections.abc.Mapping):
        return rebuild(data, {k: pin_memory(v) for k, v in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(pin_memory(d) for d in data))
    if isinstance(data, tuple):
        return tuple(pin_memory(d) for d in data)
    if isinstance(data, collections.abc.Sequence):
        return rebuild(data, [pin_memory(d) for d in data])
    return data
