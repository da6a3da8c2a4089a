"""The counters of a device's heap by torch's names, and sizes of memory in words."""
from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

from mindtorch_v2 import _C


class Statistics(MutableMapping[str, int]):
    """The native counters by torch's flat names."""

    def __init__(self, heap: Any) -> None:
        self._heap = heap

    def __getitem__(self, key: str) -> int:
        return self._heap.stat(key)

    def __setitem__(self, key: str, value: int) -> None:
        self._heap.set_stat(key, value)

    def __delitem__(self, key: str) -> None:
        raise TypeError(f"a counter cannot be removed: {key}")

    def __iter__(self) -> Iterator[str]:
        return iter(_C.NPU_STAT_KEYS)

    def __len__(self) -> int:
        return len(_C.NPU_STAT_KEYS)


def size_text(size: int) -> str:
    """A size as torch's messages have it: "20.00 MiB"."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size > unit:
            return f"{size / unit:.2f} {name}"
    return f"{size} bytes"
