"""torch.autograd.profiler_util: the events of a profile, under the names that torch has for them here."""
from __future__ import annotations

from typing import Any

from mindtorch_v2.autograd.profiler import EventList, FunctionEvent

__all__ = ["EventList", "FunctionEvent"]


def _canonicalize_profiler_events(events: list[dict[str, Any]]) -> str:
    """Events of a trace with the stacks of the code that they came from, one a line."""
    lines = []
    for event in events:
        args = event.get("args", {})
        stack = (args.get("stack_trace") or "").strip().splitlines()
        lines.append(f"event={event.get('name', '')} node={args.get('node_name', '')} "
                     f"stack_trace={stack[-1].strip() if stack else ''}")
    return "\n".join(lines)
