"""PYTORCH_NPU_ALLOC_CONF as data: names, limits and error texts of torch_npu. What a setting does: allocator.py."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

ROUNDING_INTERVALS = 16          # roundup_power2_divisions: one entry for 1 MB, 2 MB, 4 MB, ... 32 GB and more


class AllocConfError(ValueError, RuntimeError):
    """A setting that is not understood; torch raises a ValueError for some and a RuntimeError for others."""


@dataclass(frozen=True)
class AllocConf:
    """Settings of the caching allocator."""
    max_split_size_mb: int = 0                   # 0: blocks of every size are split
    max_non_split_rounding_mb: int = 20
    garbage_collection_threshold: float = 0.0    # 0: cached memory is only freed when an allocation failed
    expandable_segments: bool = False
    roundup_power2_divisions: tuple[int, ...] = (0,) * ROUNDING_INTERVALS
    large_segment_size_mb: int = 20
    segment_size_mb: int = 0                     # torch_npu's older name of large_segment_size_mb
    base_addr_aligned_kb: int = 16               # of large blocks in expandable segments
    page_size: str = ""                          # "1g": pages of 1 GB
    multi_stream_lazy_reclaim: bool = False
    per_process_memory_fraction: float = 1.0
    throw_on_npumalloc_oom: bool = False         # do not ask the device for more than it says is free
    release_lock_on_npumalloc: bool = False      # accepted: nothing is locked during aclrtMalloc
    pinned_use_background_threads: bool = False  # accepted: freed host blocks are looked at when one is wanted
    pin_memory_expandable_segments: bool = False
    pinned_mem_register: bool = False
    pinned_max_round_threshold_mb: int = 0
    pinned_max_cached_size_mb: int = 0
    pinned_reserve_segment_size_mb: int = 0


def _flag(key: str, text: str) -> bool:
    if text not in ("True", "False"):
        raise AllocConfError(f"Expected a single True/False argument for {key}")
    return text == "True"


def _whole(least: int = 0, most: float = float("inf"), why: str = "") -> Callable[[str, str], int]:
    def parse(key: str, text: str) -> int:
        if not text.isdigit():
            raise AllocConfError(f"CachingAllocator option {key} is invalid.")
        if not least <= int(text) <= most:
            raise AllocConfError(f"CachingAllocator option {key} {why or f'error, must be [{least}, {most}]'}")
        return int(text)
    return parse


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise AllocConfError(f"CachingAllocator option {key} is invalid.") from None


def _threshold(key: str, text: str) -> float:
    value = _number(key, text)
    if not 0 < value < 1:
        raise AllocConfError(f"garbage_collect_threshold too {'small' if value <= 0 else 'big'}, set it 0.0~1.0")
    return value


def _fraction(key: str, text: str) -> float:
    value = _number(key, text)
    if not 0 <= value <= 1:
        raise AllocConfError(f"{key} is invalid, set it in [0.0, 1.0]")
    return value


def _page_size(key: str, text: str) -> str:
    if text != "1g":
        raise AllocConfError(f"Unsupported page_size value: {text}")
    return text


def _power_of_two(text: str, what: str, zero: bool) -> int:
    if not text.isdigit() or int(text).bit_count() != 1 and not (zero and int(text) == 0):
        raise AllocConfError(what)
    return int(text)


def _divisions(key: str, text: str) -> tuple[int, ...]:
    """8 for all sizes, or [256:1,512:2,>:4] with sizes in MB."""
    amount = "For roundups, the divisions has to be power of 2 or 0 to disable roundup"
    if not text.startswith("["):
        return (_power_of_two(text, amount, zero=True),) * ROUNDING_INTERVALS
    if not text.endswith("]"):
        raise AllocConfError(f"Expected closing bracket ']' while parsing {key}")
    divisions, last = [0] * ROUNDING_INTERVALS, -1
    for entry in text[1:-1].split(","):
        size, colon, value = entry.partition(":")
        if not colon:
            raise AllocConfError("Error parsing CachingAllocator settings, expected :")
        count = _power_of_two(value, amount, zero=True)
        if size == ">":
            divisions[last + 1:] = [count] * (ROUNDING_INTERVALS - last - 1)
            continue
        boundary = _power_of_two(size, "For roundups, the intervals have to be power of 2", zero=False)
        place = min(boundary.bit_length() - 1, ROUNDING_INTERVALS - 1)
        if last < 0:
            divisions[:place] = [count] * place
        divisions[place], last = count, place
    return tuple(divisions)


_PARSERS: dict[str, Callable[[str, str], Any]] = {
    "max_split_size_mb": _whole(21, why="too small, must be > 20"),
    "max_non_split_rounding_mb": _whole(21, why="too small, must be > 20"),
    "garbage_collection_threshold": _threshold,
    "roundup_power2_divisions": _divisions,
    "large_segment_size_mb": _whole(11, why="too small, must be > 10"),
    "segment_size_mb": _whole(20, 512, "error, must be [20, 512], dtype is int"),
    "base_addr_aligned_kb": _whole(0, 16, "error, must be [0~16], dtype is int"),
    "page_size": _page_size,
    "per_process_memory_fraction": _fraction,
    **dict.fromkeys(("pinned_max_round_threshold_mb", "pinned_max_cached_size_mb", "pinned_reserve_segment_size_mb"),
                    _whole()),
    **dict.fromkeys(("expandable_segments", "multi_stream_lazy_reclaim", "throw_on_npumalloc_oom",
                     "release_lock_on_npumalloc", "pinned_use_background_threads", "pin_memory_expandable_segments",
                     "pinned_mem_register"), _flag),
}


def _entries(text: str) -> list[str]:
    """The parts between commas; a list in brackets is one part."""
    parts, depth = [""], 0
    for sign in text.replace(" ", ""):
        depth += (sign == "[") - (sign == "]")
        if sign == "," and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    return parts


def parse(text: str) -> AllocConf:
    """Settings from "key:value,key:value"."""
    values: dict[str, Any] = {}
    for entry in _entries(text) if text.strip() else ():
        key, colon, value = entry.partition(":")
        if key not in _PARSERS:
            raise AllocConfError(f"Unrecognized CachingAllocator option: {key}")
        if not colon:
            raise AllocConfError("Error parsing CachingAllocator settings, expected :")
        if not value:
            raise AllocConfError(f"Error, expecting {key} value")
        values[key] = _PARSERS[key](key, value)
    if values.get("expandable_segments") and values.keys() & {"max_split_size_mb", "garbage_collection_threshold"}:
        raise AllocConfError("`max_split_size_mb` or `garbage_collection_threshold`, cannot be enabled with "
                             "`expandable_segments`, please set `expandable_segments` to `False`.")
    return AllocConf(**values)
