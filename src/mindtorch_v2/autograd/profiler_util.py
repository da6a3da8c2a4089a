"""torch.autograd.profiler_util: the events of a profile, under the names that torch has for them here."""
from __future__ import annotations

from typing import Any

from mindtorch_v2.autograd.profiler import EventList, FunctionEvent, FunctionEventAvg, _duration

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg"]
_format_time = _duration


def _format_time_share(time_us: float, total_time_us: float) -> str:
    """A part of a time in percent."""
    if total_time_us == 0:
        if time_us != 0:
            raise AssertionError(f"Expected time_us == 0 but got {time_us}")
        return "NaN"
    return f"{time_us * 100.0 / total_time_us:.2f}%"


def _format_memory(nbytes: int) -> str:
    """A number of bytes with a unit."""
    for size, unit in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if abs(nbytes) >= size:
            return f"{nbytes / size:.2f} {unit}"
    return f"{nbytes} B"


def _canonicalize_profiler_events(events: list[dict[str, Any]]) -> str:
    """Events of a trace with the stacks of the code that they came from, one a line."""
    lines = []
    for event in events:
        args = event.get("args", {})
        stack = (args.get("stack_trace") or "").strip().splitlines()
        lines.append(f"event={event.get('name', '')} node={args.get('node_name', '')} "
                     f"stack_trace={stack[-1].strip() if stack else ''}")
    return "\n".join(lines)
