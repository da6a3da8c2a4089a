"""What a trace says by itself: where a device waited for the host, where the host waited, and which names took the time."""
from __future__ import annotations

import re
from bisect import bisect_right
from typing import Any

WAITS = re.compile(r"synchroni[sz]e|aten::(item|_local_scalar_dense|is_nonzero|equal|nonzero)$|^host wait|MemcpyDtoH$|"
                   r"Synchronize|^cudaMemcpy$|^aclrtMemcpy$")
SOURCE = re.compile(r"\.py[(:]\d+")
LIBRARY = re.compile(r"site-packages|dist-packages|lib/python3|^torch/|<built-in|<frozen")
SHORTEST = 5.0                                    # microseconds: a gap that a launch alone explains
MOST = 500
Row = tuple[int, int, int, int]


def find(trace: Any, rows: list[Row]) -> list[dict[str, Any]]:
    """Lists of findings, each with its place in time, the costliest first."""
    return [listed("Device idle while the host had not launched", gaps(trace, rows),
                   "no gaps" if any(lane["device"] for lane in trace.order) else "the trace has no device lanes"),
            listed("Host waits for the device", host_waits(trace, rows), "no waits found")]


def listed(title: str, items: list[dict[str, Any]], nothing: str) -> dict[str, Any]:
    """A list with its sum."""
    items.sort(key=lambda item: -item["duration"])
    return {"title": title, "total": sum(item["duration"] for item in items), "count": len(items), "items": items[:MOST],
            "nothing": nothing}


def at(trace: Any, row: Row, moment: float) -> int | None:
    """The event of a row that covers a moment."""
    place = bisect_right(trace.time, moment, row[2], row[2] + row[3]) - 1
    return place if place >= row[2] and trace.time[place] + trace.duration[place] >= moment else None


def gaps(trace: Any, rows: list[Row]) -> list[dict[str, Any]]:
    """Times in which no lane of a device was busy, between its first and last task, with what the host did."""
    names = trace.name_texts
    host = [row for row in rows if not trace.order[row[0]]["device"]]
    found = []
    tasks = [lane["device"] and not lane["derived"] for lane in trace.order]
    for group in {lane["group"] for lane, runs in zip(trace.order, tasks, strict=True) if runs}:
        mine = [row for row in rows if tasks[row[0]] and trace.order[row[0]]["group"] == group and not row[1]]
        spans = sorted((trace.time[e], trace.time[e] + trace.duration[e]) for _, _, first, count in mine
                       for e in range(first, first + count))
        busy = spans[0][1]
        for begin, end in spans:
            if begin - busy > SHORTEST:
                found.append({"time": busy, "duration": begin - busy, "group": group})
            busy = max(busy, end)
    found.sort(key=lambda gap: -gap["duration"])
    for gap in found[:MOST]:
        middle = gap["time"] + gap["duration"] / 2
        inner = [place for row in host if (place := at(trace, row, middle)) is not None]
        deepest = max(inner, key=lambda place: (trace.depth[place], -trace.lane[place]), default=None)
        gap["text"] = f"{gap['group']}: host in {names[trace.name[deepest]]}" if deepest is not None else \
            f"{gap['group']}: host in no op of the trace"
        gap["source"] = source_of(trace, deepest, rows) if deepest is not None else ""
    return found


def host_waits(trace: Any, rows: list[Row]) -> list[dict[str, Any]]:
    """Host events that wait for a device, the outermost of each, with the line of Python that called."""
    names = trace.name_texts
    waiting = [bool(WAITS.search(name)) for name in names]
    found = []
    by_lane: dict[int, list[Row]] = {}
    for row in rows:
        by_lane.setdefault(row[0], []).append(row)
        if trace.order[row[0]]["device"]:
            continue
        for place in range(row[2], row[2] + row[3]):
            if waiting[trace.name[place]]:
                above = [at(trace, other, trace.time[place]) for other in by_lane[row[0]] if other[1] < row[1]]
                if not any(other is not None and waiting[trace.name[other]] for other in above):
                    found.append({"time": trace.time[place], "duration": trace.duration[place], "place": place,
                                  "text": names[trace.name[place]], "lane": row[0]})
    found.sort(key=lambda wait: -wait["duration"])
    for wait in found[:MOST]:
        wait["source"] = source_of(trace, wait["place"], by_lane[wait["lane"]])
    return found


def source_of(trace: Any, place: int, rows: list[Row]) -> str:
    """The line of Python that an event came from: of its own stack, or of the nearest call around it."""
    details, names = trace.detail_texts, trace.name_texts
    for line in details[trace.detail[place]].split("\n"):
        if line.startswith("Call stack: "):
            frames = [frame.strip() for frame in re.split(r";|\\r\\n|\r\n", line[12:]) if frame.strip()]
            own = [frame for frame in frames if not LIBRARY.search(frame)]
            return (own or frames or [""])[0]
    around = [found for row in rows if row[0] == trace.lane[place] and row[1] < trace.depth[place]
              and (found := at(trace, row, trace.time[place])) is not None]
    calls = [names[trace.name[found]] for found in reversed(around) if SOURCE.search(names[trace.name[found]])]
    own = [call for call in calls if not LIBRARY.search(call)]
    return (own or calls or [""])[0]


def by_name(trace: Any, rows: list[Row]) -> list[list[Any]]:
    """[name, calls, host time, host time of its own, device time], the costliest 1000."""
    totals: dict[int, list[float]] = {}
    inside = [0.0] * len(trace.time)
    by_lane: dict[tuple[int, int], Row] = {(row[0], row[1]): row for row in rows}
    for lane, depth, first, count in rows:
        above = by_lane.get((lane, depth - 1))
        cursor = above[2] if above else 0
        for place in range(first, first + count):
            if above:                             # both rows are sorted: one walk finds every caller
                while cursor + 1 < above[2] + above[3] and trace.time[cursor + 1] <= trace.time[place]:
                    cursor += 1
                inside[cursor] += trace.duration[place]
    for lane, _, first, count in rows:
        device = trace.order[lane]["device"]
        if trace.order[lane]["derived"]:
            continue
        for place in range(first, first + count):
            entry = totals.setdefault(trace.name[place], [0, 0.0, 0.0, 0.0])
            entry[0] += 1
            entry[3 if device else 1] += trace.duration[place]
            if not device:
                entry[2] += max(trace.duration[place] - inside[place], 0.0)
    ranked = sorted(totals.items(), key=lambda item: -(item[1][2] + item[1][3]))[:1000]
    return [[name, *entry] for name, entry in ranked]
