"""Who allocated what: stack traces of live blocks and the list of past events, in the format of torch's snapshots."""
from __future__ import annotations

import os
import pickle
import sys
import time
from collections import deque
from types import CodeType
from typing import Any

Stack = tuple[tuple[CodeType, int], ...]          # innermost first; turned into text only for a snapshot

PoolId = tuple[int, int]

_OWN_FRAMES = 2                                   # record() and the allocator's _traced(); behind it there may be none
# With which `context` an action keeps its stack; actions not named here: with "all" only.
_WITH_STACK = {"alloc": ("state", "alloc", "all"), "segment_alloc": ("alloc", "all"), "segment_map": ("alloc", "all")}


def _stack() -> Stack:
    frame: Any = sys._getframe(_OWN_FRAMES).f_back
    found = []
    while frame is not None:
        found.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return tuple(found)


def frames(stack: Stack | None) -> list[dict[str, Any]]:
    """A stack as torch writes it."""
    return [{"filename": code.co_filename, "line": line, "name": code.co_name} for code, line in stack or ()]


def write_snapshot(snapshot: dict[str, Any], folder: str) -> str:
    """Writes a snapshot to a new file for PyTorch's memory visualiser; says where, or why it could not."""
    path = os.path.join(folder, f"oom_snapshot_{os.getpid()}_{time.strftime('%Y%m%d%H%M%S')}.pickle")
    try:
        with open(path, "wb") as file:
            pickle.dump(snapshot, file)
    except OSError as error:
        return f"No snapshot of the memory was written: {error}"
    return f"A snapshot of the memory was written to {path}"


class MemoryHistory:
    """The history of one device's allocator while recording is on."""

    def __init__(self) -> None:
        self.enabled: str | None = None           # None, "state" (live blocks) or "all" (and past events)
        self.context: str | None = None           # None, "state", "alloc" or "all": which events keep their stack
        self.skipped: frozenset[str] = frozenset()
        self.live: dict[int, Stack] = {}          # by the address of a block
        self.segments: dict[int, Stack] = {}
        self.events: deque[tuple[str, int, int, int, PoolId, int, Stack]] = deque()

    def start(self, enabled: str | None, context: str | None, max_entries: int, clear: bool,
              skipped: frozenset[str]) -> None:
        """Begins to record, or ends (None); what was recorded stays until clear."""
        self.enabled, self.context, self.skipped = enabled, context if enabled else None, skipped
        kept = () if clear else self.events
        self.events = deque(kept, maxlen=min(max_entries, sys.maxsize))
        if clear or enabled is None:
            self.live.clear()
            self.segments.clear()

    def record(self, action: str, address: int, size: int, stream: int, pool: PoolId) -> None:
        """One event; a block's stack is kept as long as the block lives."""
        stack = _stack() if self.context in _WITH_STACK.get(action, ("all",)) else ()
        if action == "alloc":
            self.live[address] = stack
        elif action == "free_completed":
            self.live.pop(address, None)
        elif action == "segment_alloc":
            self.segments[address] = stack
        elif action == "segment_free":
            self.segments.pop(address, None)
        if self.enabled == "all" and action not in self.skipped:
            kept = stack if action != "alloc" or self.context != "state" else ()
            self.events.append((action, address, size, stream, pool, time.time_ns() // 1000, kept))

    def trace(self) -> list[dict[str, Any]]:
        """The past events, oldest first."""
        return [{"action": action, "device_free" if action == "oom" else "addr": address, "size": size,
                 "stream": stream, "pool_id": pool, "time_us": moment, "frames": frames(stack)}
                for action, address, size, stream, pool, moment, stack in self.events]

    def annotate(self, segments: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Puts the recorded stacks into a snapshot's segments."""
        for segment in segments:
            segment["frames"] = frames(self.segments.get(segment["address"]))
            for block in segment["blocks"]:
                if block["state"] != "inactive":
                    block["frames"] = frames(self.live.get(block["address"]))
        return segments
