"""`python -m mindtorch_v2 memory SNAPSHOT`: a page of what a memory snapshot holds, of this library, torch or torch_npu.

A snapshot may come from anyone: it is read by the unpickler of torch.load(weights_only=True), which calls nothing that a
file names, and only dicts, lists, texts and numbers in the known places are used.
"""
from __future__ import annotations

import argparse
import bisect
import gzip
import io
import json
import os
import pickle
import zlib
from array import array
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2._commands import page

MOST = 20_000_000                                 # events and blocks; a small file can name one list very often
NEVER = 0xFFFFFFFF
STATES = {"inactive": 0, "active_allocated": 1, "active_pending_free": 2, "active_awaiting_free": 2}
BEFORE = "allocated before the history began"


class Snapshot:
    """What a file says, checked: segments and, for each device, events."""

    def __init__(self, path: str) -> None:
        self.name = os.path.basename(path)
        try:
            with page.opened(path) as file:
                raw = file.read()
            reading = torch.serialization
            found = reading.unpickle_plain(io.BytesIO(raw), reading.Source(path, "snapshot", len(raw)))
        except (pickle.UnpicklingError, EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise RuntimeError(f"[memory] {path} is no memory snapshot: {error}. One is written by "
                               "torch.npu.memory._dump_snapshot(FILE)") from None
        if isinstance(found, list):               # torch.cuda.memory_snapshot() of before there was a history
            found = {"segments": found, "device_traces": []}
        if not isinstance(found, dict) or not isinstance(found.get("segments"), list):
            raise RuntimeError(f"[memory] {path} is no memory snapshot: expected a dict with a list of 'segments'. One is "
                               "written by torch.npu.memory._dump_snapshot(FILE)")
        traces = found.get("device_traces") or []
        self.segments = [s for s in found["segments"] if isinstance(s, dict)]
        if sum(len(s["blocks"]) for s in self.segments if isinstance(s.get("blocks"), list)) > MOST:
            raise RuntimeError(f"[memory] {path} names more than {MOST:,} blocks")
        self.traces = [[e for e in trace if isinstance(e, dict)] for trace in limited(traces)]
        self.devices = max([len(self.traces), *(1 + number(s, "device") for s in self.segments)])
        self.traces += [[] for _ in range(self.devices - len(self.traces))]

    def of(self, device: int) -> list[dict[str, Any]]:
        """The segments of a device, by address."""
        return sorted((s for s in self.segments if number(s, "device") == device), key=lambda s: number(s, "address"))


def limited(traces: Any) -> Any:
    """Lists of events, if there are not too many."""
    if not isinstance(traces, list) or not all(isinstance(trace, list) for trace in traces):
        raise RuntimeError("[memory] expected a list of events for each device in 'device_traces'")
    if len(traces) > 4096 or sum(map(len, traces)) > MOST:
        raise RuntimeError(f"[memory] more than {MOST:,} events: record fewer with max_entries")
    return traces


def number(record: dict[str, Any], *names: str) -> int:
    """The first of the names that a record has; 0 where it has none."""
    for name in names:
        value = record.get(name)
        if isinstance(value, int | float) and 0 <= value < 1 << 64:
            return int(value)
    return 0


class Stacks:
    """Stacks of frames, each once."""

    def __init__(self) -> None:
        self.frames, self.stacks = page.Texts(), page.Texts()
        self.seen: dict[int, tuple[Any, int]] = {}    # by identity: events share the list of their frames
        self.stacks((self.frames((BEFORE, "", 0)),))

    def __call__(self, frames: Any) -> int:
        """The number of a stack; 0 for none."""
        if not isinstance(frames, list) or not frames:
            return 0
        known = self.seen.get(id(frames))
        if known is None:
            known = frames, self.stacks(tuple(self.frames((str(f.get("name", "?"))[:500], str(f.get("filename", ""))[:1000],
                                                           number(f, "line"))) for f in frames[:500] if isinstance(f, dict)))
            self.seen[id(frames)] = known
        return known[1]


class Device:
    """One device: every allocation with its begin and end, and the totals behind every event."""

    def __init__(self, snapshot: Snapshot, index: int, stacks: Stacks) -> None:
        self.index, self.events, self.segments = index, snapshot.traces[index], snapshot.of(index)
        self.begin, self.end, self.stack = array("I"), array("I"), array("I")
        self.size, self.address = array("d"), array("d")
        self.problems: list[dict[str, Any]] = []
        self._follow(stacks)
        self._totals()
        self._place()

    def _add(self, begin: int, address: int, size: int, stack: int) -> int:
        self.begin.append(begin)
        self.end.append(NEVER)
        self.stack.append(stack)
        self.size.append(size)
        self.address.append(address)
        return len(self.begin) - 1

    def _follow(self, stacks: Stacks) -> None:
        live: dict[int, int] = {}
        for place, event in enumerate(self.events):
            action, address = event.get("action"), number(event, "addr", "address")
            if action == "alloc":
                if address in live:
                    self.end[live.pop(address)] = place
                live[address] = self._add(place, address, number(event, "size"), stacks(event.get("frames")))
            elif action in ("free_completed", "free"):
                row = live.pop(address, None)
                if row is None:                   # allocated before the history began
                    row = self._add(0, address, number(event, "size"), 0)
                self.end[row] = place
            elif action == "oom":
                self.problems.append({"event": place, "size": number(event, "size"),
                                      "free": number(event, "device_free", "addr"), "stack": stacks(event.get("frames"))})
        for segment in self.segments:
            for block in blocks_of(segment):
                if block["state"] and block["address"] not in live:
                    self._add(0, block["address"], block["requested"], stacks(block["frames"]))

    def _totals(self) -> None:
        """Bytes in use and reserved behind each event; the peak is the first event with the most in use."""
        count = max(1, len(self.events))
        change = array("d", bytes(8 * (count + 1)))
        for begin, end, size in zip(self.begin, self.end, self.size, strict=True):
            change[begin] += size
            if end != NEVER:
                change[end] -= size
        self.used, total = array("d"), 0.0
        for place in range(count):
            total += change[place]
            self.used.append(total)
        signs = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
        steps = [signs.get(str(e.get("action")), 0) * number(e, "size") for e in self.events] or [0]
        reserved = sum(number(s, "total_size") for s in self.segments) - sum(steps)
        self.reserved = array("d")
        for step in steps:
            reserved += step
            self.reserved.append(max(reserved, 0))
        times = [number(e, "time_us") for e in self.events] or [0]
        if not any(times):
            times = list(range(count))
        self.times = array("d", (time - times[0] for time in times))
        self.peak = max(range(count), key=self.used.__getitem__)

    def _place(self) -> None:
        """Addresses as places on one line, without what lies between segments."""
        spans = [(number(s, "address"), number(s, "total_size")) for s in self.segments]
        spans += [(number(e, "addr", "address"), number(e, "size")) for e in self.events
                  if e.get("action") in ("segment_alloc", "segment_map")]
        spans += [(int(a), int(s)) for a, s in zip(self.address, self.size, strict=True)]
        merged: list[list[int]] = []
        for begin, size in sorted(span for span in spans if span[1]):
            if merged and begin <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], begin + size)
            else:
                merged.append([begin, begin + size])
        starts, self.offsets, total = [begin for begin, _ in merged], [], 0
        for begin, end in merged:
            self.offsets.append(total)
            total += end - begin
        self.extent = total

        def placed(address: float) -> float:
            at = bisect.bisect_right(starts, address) - 1
            return self.offsets[at] + address - starts[at] if at >= 0 else 0.0
        self.y = array("d", map(placed, self.address))

    def columns(self) -> dict[str, array]:
        """What the page draws."""
        own: dict[str, array] = {"begin": self.begin, "end": self.end, "stack": self.stack, "size": self.size, "y": self.y,
               "time": self.times, "used": self.used, "reserved": self.reserved}
        return {f"{name}{self.index}": values for name, values in own.items()}

    def facts(self, stacks: Stacks) -> dict[str, Any]:
        """What the page says of it."""
        segments = [{"address": hex(number(s, "address")), "size": number(s, "total_size"), "stream": number(s, "stream"),
                     "type": str(s.get("segment_type", ""))[:20], "pool": str(s.get("segment_pool_id", ""))[:40],
                     "blocks": [[b["size"], b["state"], stacks(b["frames"])] for b in blocks_of(s)]} for s in self.segments]
        return {"index": self.index, "events": len(self.events), "peak": self.peak, "extent": self.extent,
                "problems": self.problems[:1000], "segments": segments, "fragmentation": fragmentation(self.segments)}


def blocks_of(segment: dict[str, Any]) -> list[dict[str, Any]]:
    """The blocks of a segment; in older files they have no address of their own."""
    found, address = [], number(segment, "address")
    blocks = segment.get("blocks")
    for block in blocks if isinstance(blocks, list) else []:
        if isinstance(block, dict):
            size, state = number(block, "size"), STATES.get(str(block.get("state")), 1)
            history = block.get("history")        # of torch before 2.2
            frames = block.get("frames") or (history[0].get("frames") if isinstance(history, list) and history
                                             and isinstance(history[0], dict) else None)
            found.append({"address": number(block, "address") or address, "size": size, "state": state, "frames": frames,
                          "requested": number(block, "requested_size") or size})
            address = (number(block, "address") or address) + size
    return found


def fragmentation(segments: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each stream and pool: what is reserved, free, and the largest request that fits without more memory."""
    groups: dict[Any, dict[str, Any]] = {}
    for segment in segments:
        key = number(segment, "stream"), str(segment.get("segment_pool_id", ""))[:40], str(segment.get("segment_type", ""))[:20]
        group = groups.setdefault(key, {"stream": key[0], "pool": key[1], "type": key[2], "segments": 0, "reserved": 0,
                                        "free": 0, "largest": 0})
        group["segments"] += 1
        group["reserved"] += number(segment, "total_size")
        for block in blocks_of(segment):
            if not block["state"]:
                group["free"] += block["size"]
                group["largest"] = max(group["largest"], block["size"])
    return sorted(groups.values(), key=lambda group: -group["free"])


def page_of(snapshot: Snapshot) -> str:
    """The page of a snapshot."""
    stacks = Stacks()
    devices = [Device(snapshot, index, stacks) for index in range(snapshot.devices)]
    columns = {name: values for device in devices for name, values in device.columns().items()}
    facts = [device.facts(stacks) for device in devices]
    return page.page("memory", f"memory: {snapshot.name}", {"devices": facts, "frames": list(stacks.frames),
                                                            "stacks": list(stacks.stacks)}, columns)


def perfetto(snapshot: Snapshot) -> str:
    """Counters of memory in use and reserved, and marks where memory ended, as a trace that Perfetto opens."""
    stacks, events = Stacks(), []
    for device in (Device(snapshot, index, stacks) for index in range(snapshot.devices)):
        events.append({"ph": "M", "name": "process_name", "pid": device.index, "args": {"name": f"device {device.index}"}})
        for time, used, reserved in zip(device.times, device.used, device.reserved, strict=True):
            events.append({"ph": "C", "name": "memory", "pid": device.index, "ts": time,
                           "args": {"in use": used, "reserved and free": max(reserved - used, 0)}})
        events += [{"ph": "i", "s": "p", "name": f"out of memory: {p['size']} bytes", "pid": device.index, "tid": 0,
                    "ts": device.times[p["event"]]} for p in device.problems]
    return json.dumps({"traceEvents": events})


def for_torch(snapshot: Snapshot) -> bytes:
    """A pickle with the names that PyTorch's viewer (pytorch.org/memory_viz) reads."""
    return pickle.dumps({"segments": snapshot.segments, "device_traces": snapshot.traces}, protocol=4)


def main(options: list[str]) -> int:
    """Reads the snapshot and writes the format of the output's suffix."""
    parser = argparse.ArgumentParser("python -m mindtorch_v2 memory", description=__doc__)
    parser.add_argument("snapshot", help="file of torch.npu.memory._dump_snapshot or torch.cuda.memory._dump_snapshot")
    parser.add_argument("-o", "--output", default="memory.html",
                        help=".html: a page (memory.html); .json: counters for Perfetto; .pickle: for PyTorch's viewer")
    asked = parser.parse_args(options)
    makers: dict[str, Any] = {".html": page_of, ".json": perfetto, ".pickle": for_torch}
    suffix = os.path.splitext(asked.output.removesuffix(".gz"))[1]
    if suffix not in makers:
        parser.error(f"expected an output that ends in {', '.join(makers)}, got {asked.output}")
    page.step(f"reading {asked.snapshot}")
    snapshot = Snapshot(asked.snapshot)
    page.step(f"{sum(map(len, snapshot.traces)):,} events, {len(snapshot.segments):,} segments")
    page.write(asked.output, makers[suffix](snapshot))
    return 0
