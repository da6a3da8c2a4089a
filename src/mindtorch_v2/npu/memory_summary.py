"""torch.npu.memory_summary: torch's table of the allocator's statistics."""
from __future__ import annotations

from typing import Any

from mindtorch_v2 import npu

_WIDTH = 75
_METRICS = (
    ("allocated_bytes", "Allocated memory"), ("active_bytes", "Active memory"), ("requested_bytes", "Requested memory"),
    ("reserved_bytes", "Reserved memory"), ("inactive_split_bytes", "Non-releasable memory"),
    ("allocation", "Allocations"), ("active", "Active allocs"), ("segment", "NPU reserved segments"),
    ("inactive_split", "Non-releasable allocs"),
)
_OVERSIZE = (("oversize_allocations", "Oversize allocations"), ("oversize_segments", "Oversize NPU segments"))


def _scaled(value: int, measure: float, units: tuple[str, ...], step: int, full: int) -> tuple[int, str]:
    """value in the unit that suits measure, the first number of its column."""
    for unit in units[:-1]:
        if measure < full:
            return value, unit
        value, measure = value // step, measure / step
    return value, units[-1]


def _size(value: int, measure: int) -> str:
    number, unit = _scaled(value, measure, ("B  ", "KiB", "MiB", "GiB", "TiB", "PiB"), 1024, 768 * 1024)
    return f"{number:6d} {unit}"


def _count(value: int, measure: int) -> str:
    number, unit = _scaled(value, measure, (" ", "K", "M"), 1000, 750 * 1000)
    return f"{number:7d} {unit} "


def _rows(stats: dict[str, int], metric: str, name: str, parts: tuple[tuple[str, str], ...]) -> list[str]:
    show = _size if "bytes" in metric else _count
    lines, measures = ["-" * _WIDTH], [0] * 4
    for part, title in parts:
        values = [stats.get(f"{metric}{part}.{kind}", 0) for kind in ("current", "peak", "allocated", "freed")]
        measures = measures if title else values
        cells = " | ".join(show(value, measure) for value, measure in zip(values, measures))
        lines.append(f" {title or name:<21} | {cells} ")
    return lines


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """A table of what the allocator holds now, held at most, and has allocated and freed in all."""
    index = npu._device_index(device)
    stats = npu._get_allocator(device).memory_stats()
    lines = ["=" * _WIDTH,
             f" {'':16} PyTorch NPU memory summary, device ID {index:<18d} ",
             "-" * _WIDTH,
             f"  {'':9} NPU OOMs: {stats.get('num_ooms', 0):<13d} | {'':6} npuMalloc retries: "
             f"{stats.get('num_alloc_retries', 0):<9d}  ",
             "=" * _WIDTH,
             "        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  "]
    parts: tuple[tuple[str, str], ...] = ((".all", ""),)
    if not abbreviated:
        parts += ((".large_pool", "      from large pool"), (".small_pool", "      from small pool"))
    for metric, name in _METRICS:
        lines += _rows(stats, metric, name, parts)
    for metric, name in _OVERSIZE:
        lines += _rows(stats, metric, name, (("", ""),))
    return "|" + "|\n|".join([*lines, "=" * _WIDTH]) + "|\n"
