"""`python -m mindtorch_v2 trace TRACE ...`: a page of a profiler's trace, of this library, torch or torch_npu.

Files that were recorded by one clock go into one page: torch.profiler's of the host and the device's own, for example.
"""
from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import zlib
from array import array
from collections.abc import Iterator
from typing import Any

from mindtorch_v2._commands import page, trace_findings

DEVICE_CATEGORIES = frozenset(("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation", "npu"))
DEVICE_NAMES = re.compile(r"ascend hardware|\bgpu ?\d|\bnpu[ :]?\d|^device", re.IGNORECASE)
DERIVED_NAMES = re.compile(r"^(?!ascend hardware).*\bNPU$", re.IGNORECASE)   # torch_npu's: Overlap Analysis, Communication
TASK_NAMES = re.compile(r"aclnn|aclrt|acl[A-Z]|Hccl")
SHOWN = ("Input Dims", "Input Shapes", "Input type", "Input Data Types", "Concrete Inputs", "Call stack", "stream", "Bytes",
         "bytes", "grid", "block", "Task Type", "Stream Id", "Output Shapes")
MOST = 20_000_000


class Trace:
    """Events as columns, in rows that do not overlap: sorted by lane, depth and begin."""

    def __init__(self) -> None:
        self.time, self.duration = array("d"), array("d")
        self.name, self.lane, self.detail, self.depth = array("I"), array("I"), array("I"), array("I")
        self.names, self.details = page.Texts(), page.Texts()
        self.details("")
        self.lanes: dict[Any, dict[str, Any]] = {}
        self.files: list[str] = []
        self.skipped = 0
        self._labels: dict[Any, str] = {}
        self._open: dict[Any, list[dict[str, Any]]] = {}

    # ---- reading -----------------------------------------------------------------------------------------------------
    def read(self, path: str) -> None:
        """Adds a file: {"traceEvents": […]} or the list alone."""
        try:
            with page.opened(path) as file:
                found = json.load(file)
        except (ValueError, EOFError, RecursionError, gzip.BadGzipFile, zlib.error) as error:
            raise RuntimeError(f"[trace] {path} is no trace: {error}. One is written by "
                               "torch.profiler.profile.export_chrome_trace(FILE)") from None
        events = found.get("traceEvents") if isinstance(found, dict) else found
        if not isinstance(events, list):
            raise RuntimeError(f"[trace] {path} is no trace: expected a list of 'traceEvents'. One is written by "
                               "torch.profiler.profile.export_chrome_trace(FILE)")
        if len(self.time) + len(events) > MOST:
            raise RuntimeError(f"[trace] more than {MOST:,} events: record fewer steps")
        self.files.append(os.path.basename(path))
        for event in events:
            if isinstance(event, dict):
                self._take(event)

    def _take(self, event: dict[str, Any]) -> None:
        phase = event.get("ph")
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        if phase == "M":
            key = (str(event.get("pid")), None if str(event.get("name")).startswith("process") else str(event.get("tid")))
            if event.get("name") in ("process_name", "thread_name", "process_labels"):
                known = self._labels.get(key, "")
                self._labels[key] = f"{known} {str(args.get('name', args.get('labels', '')))[:100]}".strip()
        elif phase == "X":
            self.add(event, args, event.get("ts"), event.get("dur", 0))
        elif phase == "B":
            self._open.setdefault((event.get("pid"), event.get("tid")), []).append(event)
        elif phase == "E":
            begun = self._open.get((event.get("pid"), event.get("tid")))
            if begun:
                first = begun.pop()
                begin, end = microseconds(first.get("ts")), microseconds(event.get("ts"))
                first_args = first.get("args")
                self.add(first, first_args if isinstance(first_args, dict) else {}, begin, end - begin)

    def add(self, event: dict[str, Any], args: dict[str, Any], begin: Any, duration: Any) -> None:
        """One event of microseconds; what has no time is counted and left out."""
        begin, duration = microseconds(begin), microseconds(duration)
        if not (begin >= 0 and duration >= 0):
            self.skipped += 1
            return
        name, category = str(event.get("name"))[:1000], str(event.get("cat", ""))
        key = str(event.get("pid")), str(event.get("tid")), category == "gpu_user_annotation"
        lane = self.lanes.get(key)
        if lane is None:
            lane = self.lanes[key] = {"number": len(self.lanes), "key": key, "categories": set(), "tasks": 0, "events": 0}
        lane["events"] += 1
        lane["categories"].add(category)
        lane["tasks"] += not category and TASK_NAMES.match(name) is not None
        self.time.append(begin)
        self.duration.append(duration)
        self.name.append(self.names(name))
        self.lane.append(lane["number"])
        self.detail.append(self.details("\n".join(f"{word}: {shown(args[word])}" for word in SHOWN if args.get(word))))

    # ---- order -------------------------------------------------------------------------------------------------------
    def arrange(self) -> None:
        """Sorts the events into rows and says what each lane is; hosts come before devices."""
        lanes = [self._described(lane) for lane in self.lanes.values()]
        order = sorted(range(len(lanes)), key=lambda n: (lanes[n]["device"], lanes[n]["group"], lanes[n]["label"]))
        new = {old: at for at, old in enumerate(order)}
        self.depth = array("I", bytes(4 * len(self.time)))
        lane_of = array("I", (new[lane] for lane in self.lane))
        time, duration = self.time, self.duration
        places = sorted(range(len(time)), key=lambda e: (lane_of[e], time[e], -duration[e]))
        ends: list[float] = []
        last = -1
        for place in places:
            if lane_of[place] != last:
                last, ends = lane_of[place], []
            while ends and ends[-1] <= time[place]:
                ends.pop()
            self.depth[place] = len(ends)
            ends.append(time[place] + duration[place])
        depth = self.depth
        places.sort(key=lambda e: (lane_of[e], depth[e], time[e]))
        self.origin = min(time, default=0.0)
        self.time = array("d", (time[e] - self.origin for e in places))
        self.duration = array("d", (duration[e] for e in places))
        self.name, self.detail = (array("I", (old[e] for e in places)) for old in (self.name, self.detail))
        self.lane, self.depth = (array("I", (old[e] for e in places)) for old in (lane_of, depth))
        self.order = [lanes[n] for n in order]
        self.name_texts, self.detail_texts = list(self.names), list(self.details)

    def _described(self, lane: dict[str, Any]) -> dict[str, Any]:
        process, thread, annotates = lane["key"]
        group, label = self._labels.get((process, None), ""), self._labels.get((process, thread), "")
        derived = bool(annotates or DERIVED_NAMES.search(group))      # what a profiler says about tasks; no task itself
        device = bool(derived or lane["categories"] & DEVICE_CATEGORIES or DEVICE_NAMES.search(group)
                      or lane["tasks"] * 2 > lane["events"])
        if device and not label:
            label = f"stream {thread}"
        if device and not group:
            group = f"device {process}"
        label = (label or f"thread {thread}") + " (annotations)" * annotates
        return {"group": group or f"process {process}", "label": label, "device": device, "derived": derived}

    def rows(self) -> Iterator[tuple[int, int, int, int]]:
        """(lane, depth, first, count) of each row."""
        first = 0
        for place in range(1, len(self.time) + 1):
            if place == len(self.time) or self.lane[place] != self.lane[first] or self.depth[place] != self.depth[first]:
                yield self.lane[first], self.depth[first], first, place - first
                first = place


def microseconds(value: Any) -> float:
    """A time of a file; torch_npu writes them as texts. -1 for what is none."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        return -1.0
    return found if abs(found) < 1e300 else -1.0


def shown(value: Any) -> str:
    """A value of an event, as a line."""
    return (value if isinstance(value, str) else json.dumps(value))[:4000]


def read(paths: list[str]) -> Trace:
    """All files as one trace, in order."""
    trace = Trace()
    for path in paths:
        page.step(f"reading {path}")
        trace.read(path)
    if not len(trace.time):
        raise RuntimeError(f"[trace] expected events with a time in {', '.join(paths)}, found none")
    trace.arrange()
    return trace


def page_of(trace: Trace, findings: list[dict[str, Any]] | None = None) -> str:
    """The page of a trace; what a caller found comes before what the page finds by itself."""
    rows = list(trace.rows())
    found = (findings or []) + trace_findings.find(trace, rows)
    meta = {"lanes": trace.order, "names": trace.name_texts, "details": trace.detail_texts, "rows": rows,
            "findings": found, "summary": trace_findings.by_name(trace, rows), "skipped": trace.skipped}
    columns: dict[str, array] = {"time": trace.time, "duration": trace.duration, "name": trace.name, "detail": trace.detail}
    return page.page("trace", f"trace: {', '.join(trace.files)}", meta, columns)


def perfetto(trace: Trace) -> str:
    """The trace with names of lanes, as Perfetto and chrome://tracing open it."""
    names, details = trace.name_texts, trace.detail_texts
    processes = page.Texts()
    events: list[dict[str, Any]] = []
    for number, lane in enumerate(trace.order):
        process = processes(lane["group"])
        events += [{"ph": "M", "name": "process_name", "pid": process, "args": {"name": lane["group"]}},
                   {"ph": "M", "name": "thread_name", "pid": process, "tid": number, "args": {"name": lane["label"]}}]
    for place, lane_number in enumerate(trace.lane):
        lane = trace.order[lane_number]
        category = "gpu_user_annotation" if lane["derived"] else "kernel" if lane["device"] else "cpu_op"
        event = {"ph": "X", "cat": category, "name": names[trace.name[place]],
                 "pid": processes(lane["group"]), "tid": lane_number, "ts": round(trace.time[place], 3),
                 "dur": round(trace.duration[place], 3)}
        if detail := details[trace.detail[place]]:
            event["args"] = dict(line.split(": ", 1) for line in detail.split("\n") if ": " in line)
        events.append(event)
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


def main(options: list[str]) -> int:
    """Reads the traces and writes the format of the output's suffix."""
    parser = argparse.ArgumentParser("python -m mindtorch_v2 trace", description=__doc__)
    parser.add_argument("traces", nargs="+", metavar="trace", help="JSON of a profiler, plain or gzip")
    parser.add_argument("-o", "--output", default="trace.html", help=".html: a page (trace.html); .json: for Perfetto")
    asked = parser.parse_args(options)
    makers: dict[str, Any] = {".html": page_of, ".json": perfetto}
    suffix = os.path.splitext(asked.output.removesuffix(".gz"))[1]
    if suffix not in makers:
        parser.error(f"expected an output that ends in {', '.join(makers)}, got {asked.output}")
    trace = read(asked.traces)
    page.step(f"{len(trace.time):,} events in {len(trace.order)} lanes")
    page.write(asked.output, makers[suffix](trace))
    return 0
