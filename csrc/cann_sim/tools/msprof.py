"""msprof of the simulator: tables and a timeline of profiling sessions, in the files and columns that CANN's clients read.

A folder PROF_… says in host/start_info where the session's trace is. Times are those of the host's threads that stand for the
device; counters of a card's units are not there.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import sqlite3
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OUTPUT = "mindstudio_profiler_output"
CANN, MARKS = 1_000_001, 1_000_002  # processes of the timeline
HARDWARE, OVERLAP = 2_000_000, 3_000_000  # one of each a device
CUBE = ("matmul", "mm", "addmv", "linear", "conv", "attention", "gmm", "einsum")
NODE = 10000  # the level of a launch among CANN's interfaces
OFF = "N/A"
GROUP = "hccl_world_group"
# torch_npu looks for the first table each 0.1 s, beside this command, and gives up where the command has ended before.
FOUND_WITHIN = 0.3  # s


@dataclass(frozen=True)
class Task:
    """An op or copy: times in ns of the wall's clock, and when the host queued it."""

    number: int
    name: str
    device: int
    stream: int
    begin: int
    end: int
    queued: int

    @property
    def is_op(self) -> bool:
        return not self.name.startswith("acl") or self.name.startswith("aclnn")

    @property
    def communicates(self) -> bool:
        return self.name.lower().startswith(("hccl", "hcom"))

    @property
    def type(self) -> str:
        return self.name.removeprefix("aclnn")

    @property
    def core(self) -> str:
        if self.communicates:
            return "COMMUNICATION"
        if not self.is_op:
            return "MEMCPY_ASYNC" if "Memcpy" in self.name else "MEMSET_ASYNC" if "Memset" in self.name else "OTHER"
        return "AI_CORE" if any(word in self.name.lower() for word in CUBE) else "AI_VECTOR_CORE"


@dataclass(frozen=True)
class Mark:
    """A mark or range of the client (aclprof, mstx) in ns of the wall's clock; on the host, or on a stream of a device."""

    name: str
    device: int  # -1: the host
    stream: int
    begin: int
    end: int

    @property
    def is_range(self) -> bool:
        return self.end > self.begin

    @property
    def domain(self) -> str:
        return self.name.rpartition(": ")[0] or "default"

    @property
    def text(self) -> str:
        return self.name.rpartition(": ")[2]


def microseconds(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def nanoseconds(text: str) -> int:
    whole, _, part = text.partition(".")
    return int(whole) * 1000 + int((part + "000")[:3])


def read(folder: Path) -> tuple[list[Task], list[Mark]]:
    """The session's ops and copies, and what the client marked, each by the time it began."""
    info = json.loads((folder / "host" / "start_info").read_text())
    shift = nanoseconds(info["collectionTimeBegin"]) - int(info["steady"])
    events = json.loads((folder.parent / info["trace"]).read_text())
    made, marks = [], []
    for event in events:
        begin = round(event["ts"] * 1000) + shift
        end = begin + round(event["dur"] * 1000)
        where = event["name"], event["pid"], event["tid"]
        if "args" in event:
            made.append((begin, end, round(event["args"]["queued"] * 1000) + shift, *where))
        elif event["pid"] < 0 or not event["name"].startswith("acl"):  # records and waits of events have no args either
            marks.append(Mark(*where, begin, end))
    tasks = [
        Task(k, name, device, stream, begin, end, queued)
        for k, (begin, end, queued, name, device, stream) in enumerate(sorted(made))
    ]
    return tasks, sorted(marks, key=lambda m: m.begin)


def write_table(path: Path, headers: str, rows: Iterable[Iterable[Any]]) -> None:
    listed = [list(row) for row in rows]
    if not listed:
        return
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([headers.split(","), *listed])


# ---- the timeline -----------------------------------------------------------------------------------------------------------
def process(pid: int, name: str, label: str, index: int) -> list[dict[str, Any]]:
    facts = {"process_name": {"name": name}, "process_labels": {"labels": label}, "process_sort_index": {"sort_index": index}}
    return [{"name": key, "pid": pid, "tid": 0, "ph": "M", "args": args} for key, args in facts.items()]


def thread(pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": "thread_name", "pid": pid, "tid": tid, "ph": "M", "args": {"name": name}}


def span(name: str, pid: int, tid: int, begin: int, end: int, **args: Any) -> dict[str, Any]:
    return {"name": name, "pid": pid, "tid": tid, "ts": microseconds(begin), "dur": (end - begin) / 1000, "ph": "X", "args": args}


def merged(times: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    made: list[tuple[int, int]] = []
    for begin, end in sorted(times):
        if made and begin <= made[-1][1]:
            made[-1] = made[-1][0], max(end, made[-1][1])
        else:
            made.append((begin, end))
    return made


def without(times: list[tuple[int, int]], others: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """What of some times is in none of the others; both are merged."""
    left: list[tuple[int, int]] = []
    for begin, end in times:
        for first, last in others:
            if last <= begin or first >= end:
                continue
            if first > begin:
                left.append((begin, first))
            begin = max(begin, last)
        if begin < end:
            left.append((begin, end))
    return left


def overlap(tasks: list[Task], device: int) -> Iterator[dict[str, Any]]:
    pid = OVERLAP + device
    yield from process(pid, "Overlap Analysis", f"NPU {device}", 20)
    computing = merged((t.begin, t.end) for t in tasks if t.is_op and not t.communicates)
    talking = merged((t.begin, t.end) for t in tasks if t.communicates)
    busy = merged([*computing, *talking])
    lines = {
        "Communication": talking,
        "Communication(Not Overlapped)": without(talking, computing),
        "Computing": computing,
        "Free": without([(busy[0][0], busy[-1][1])], busy) if busy else [],
    }
    for tid, (name, times) in enumerate(lines.items()):
        yield thread(pid, tid, name)
        for begin, end in times:
            yield span(name, pid, tid, begin, end)


def timeline(tasks: list[Task], marks: list[Mark]) -> Iterator[dict[str, Any]]:
    if marks:
        yield from process(MARKS, "MsTx", "CPU", 5)
        yield thread(MARKS, 0, "Marks")
    for m in marks:
        where = (MARKS, 0) if m.device < 0 else (HARDWARE + m.device, m.stream)
        yield span(m.text, *where, m.begin, m.end, domain=m.domain)
    yield from process(CANN, "CANN", "CPU", 10)
    yield thread(CANN, 0, "Launches")
    for device in sorted({t.device for t in tasks}):
        mine = [t for t in tasks if t.device == device]
        pid = HARDWARE + device
        yield from process(pid, "Ascend Hardware", f"NPU {device}", 15)
        for stream in sorted({t.stream for t in mine}):
            yield thread(pid, stream, f"Stream {stream}")
        for t in mine:
            facts = {"Model Id": 4294967295, "Task Type": t.core, "Stream Id": t.stream, "Task Id": t.number, "Batch Id": 0}
            yield span(t.name, pid, t.stream, t.begin, t.end, **facts, connection_id=t.number)
            yield span("Node@launch", CANN, 0, t.queued, t.queued, level="node", item_id=t.name, connection_id=t.number)
            flow = {"name": f"HostToDevice{t.number}", "cat": "HostToDevice", "id": str(t.number)}
            yield flow | {"ph": "s", "pid": CANN, "tid": 0, "ts": microseconds(t.queued)}
            yield flow | {"ph": "f", "bp": "e", "pid": pid, "tid": t.stream, "ts": microseconds(t.begin)}
        yield from overlap(mine, device)


# ---- tables -----------------------------------------------------------------------------------------------------------------
SUMMARY = (
    "Device_id,Model ID,Task ID,Stream ID,Op Name,OP Type,OP State,Task Type,Task Start Time(us),Task Duration(us),"
    "Task Wait Time(us),Block Num,Mix Block Num,HF32 Eligible,Input Shapes,Input Data Types,Input Formats,Output Shapes,"
    "Output Data Types,Output Formats,Context ID"
)


def summary(tasks: list[Task]) -> Iterator[list[Any]]:
    ended: dict[tuple[int, int], int] = {}
    for t in tasks:
        if not t.is_op:
            continue
        waited = max(t.begin - ended.get((t.device, t.stream), t.begin), 0)
        ended[t.device, t.stream] = t.end
        start = microseconds(t.begin) + "\t"  # a tab keeps spreadsheets from rounding it, as in CANN's files
        times = [start, (t.end - t.begin) / 1000, waited / 1000]
        yield [t.device, 4294967295, t.number, t.stream, t.name, t.type, "dynamic", t.core, *times, 1, 0, "NO", *[OFF] * 7]


def statistics(groups: dict[Any, list[int]]) -> Iterator[tuple[Any, int, float, float, float, float]]:
    """Of each group, longest in all first: count, total, least, mean and most in us."""
    for key, times in sorted(groups.items(), key=lambda item: -sum(item[1])):
        total = sum(times) / 1000
        yield key, len(times), round(total, 3), min(times) / 1000, round(total / len(times), 3), max(times) / 1000


def op_statistic(tasks: list[Task]) -> Iterator[list[Any]]:
    groups: dict[Any, list[int]] = {}
    for t in tasks:
        if t.is_op:
            groups.setdefault((t.device, t.type, t.core), []).append(t.end - t.begin)
    everything = sum(sum(times) for times in groups.values()) / 1000
    for key, count, total, least, mean, most in statistics(groups):
        yield [*key, count, total, least, mean, most, round(100 * total / everything, 3) if everything else 0]


def api_statistic(tasks: list[Task]) -> Iterator[list[Any]]:
    groups: dict[Any, list[int]] = {}
    for t in tasks:
        groups.setdefault((t.device, "node" if t.is_op else "acl", "launch" if t.is_op else t.name), []).append(0)
    for key, count, total, least, mean, most in statistics(groups):
        yield [*key, total, count, mean, least, most, 0]


MARK_TABLE = (
    "pid,tid,category,event_type,payload_type,payload_value,Start_time(us),End_time(us),message_type,message,domain,"
    "Device Start_time(us),Device End_time(us)"
)


def mark_rows(marks: list[Mark]) -> Iterator[list[Any]]:
    for m in marks:
        if m.device < 0:
            times = [microseconds(ns) + "\t" for ns in (m.begin, m.end)]
            yield [0, 0, 0, "start/end" if m.is_range else "marker", 0, 0, *times, 0, m.text, m.domain, OFF, OFF]


def export_text(folder: Path, tasks: list[Task], marks: list[Mark]) -> None:
    target = folder / (OUTPUT + ".part")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    stamp = folder.name.split("_")[2][:14]
    (target / f"msprof_{stamp}.json").write_text(json.dumps(list(timeline(tasks, marks))))
    write_table(target / f"op_summary_{stamp}.csv", SUMMARY, summary(tasks))
    headers = "Device_id,OP Type,Core Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)"
    write_table(target / f"op_statistic_{stamp}.csv", headers, op_statistic(tasks))
    headers = "Device_id,Level,API Name,Time(us),Count,Avg(us),Min(us),Max(us),Variance"
    write_table(target / f"api_statistic_{stamp}.csv", headers, api_statistic(tasks))
    headers = "Device_id,kernel_name,kernel_type,stream_id,task_id,task_time(us),task_start(us),task_stop(us)"
    rows = (
        [t.device, t.name, t.core, t.stream, t.number, (t.end - t.begin) / 1000, *(microseconds(ns) + "\t" for ns in times)]
        for t in tasks
        for times in [(t.begin, t.end)]
    )
    table = target / f"task_time_{stamp}.csv"
    write_table(table, headers, rows)
    if not table.exists():  # clients wait for a table; of a session without tasks it has none but its headers
        table.write_text(headers + "\n")
    write_table(target / f"msprof_tx_{stamp}.csv", MARK_TABLE, mark_rows(marks))
    shutil.rmtree(folder / OUTPUT, ignore_errors=True)
    target.rename(folder / OUTPUT)  # at once: who waits for one of them reads the others too


# ---- the database -----------------------------------------------------------------------------------------------------------
TABLES = """
CREATE TABLE STRING_IDS (id INTEGER PRIMARY KEY, value TEXT);
CREATE TABLE TASK (startNs INTEGER, endNs INTEGER, deviceId INTEGER, connectionId INTEGER, globalTaskId INTEGER PRIMARY KEY,
  globalPid INTEGER, taskType INTEGER, contextId INTEGER, streamId INTEGER, taskId INTEGER, modelId INTEGER);
CREATE TABLE COMPUTE_TASK_INFO (name INTEGER, globalTaskId INTEGER PRIMARY KEY, blockDim INTEGER, mixBlockDim INTEGER,
  taskType INTEGER, opType INTEGER, inputFormats INTEGER, inputDataTypes INTEGER, inputShapes INTEGER, outputFormats INTEGER,
  outputDataTypes INTEGER, outputShapes INTEGER, attrInfo INTEGER);
CREATE TABLE CANN_API (startNs INTEGER, endNs INTEGER, type INTEGER, globalTid INTEGER, connectionId INTEGER, name INTEGER);
CREATE TABLE ENUM_API_TYPE (id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE MSTX_EVENTS (startNs INTEGER, endNs INTEGER, eventType INTEGER, rangeId INTEGER, category INTEGER,
  message INTEGER, globalTid INTEGER, endGlobalTid INTEGER, domainId INTEGER, connectionId INTEGER);
CREATE TABLE NPU_INFO (id INTEGER, name TEXT);
CREATE TABLE SESSION_TIME_INFO (startTimeNs INTEGER, endTimeNs INTEGER);
"""
API_TYPES = [(20000, "acl"), (15000, "model"), (NODE, "node"), (5500, "communication"), (5000, "runtime")]


def export_database(folder: Path, tasks: list[Task], marks: list[Mark]) -> None:
    path = folder / f"msprof_{folder.name.split('_')[2][:14]}.db"
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    numbers: dict[str, int] = {}

    def number(text: str) -> int:
        return numbers.setdefault(text, len(numbers) + 1)

    with sqlite3.connect(part) as base:
        base.executescript(TABLES)
        base.executemany("INSERT INTO ENUM_API_TYPE VALUES (?, ?)", API_TYPES)
        pid = os.getpid()
        for t in tasks:
            task = (t.begin, t.end, t.device, t.number, t.number, pid, number(t.core), 4294967295, t.stream, t.number, 4294967295)
            base.execute(f"INSERT INTO TASK VALUES ({','.join('?' * 11)})", task)
            api = (t.queued, t.queued, NODE, pid << 32, t.number, number("launch"))
            base.execute("INSERT INTO CANN_API VALUES (?,?,?,?,?,?)", api)
            if t.is_op:
                info = (number(t.name), t.number, 1, 0, number(t.core), number(t.type), *[number(OFF)] * 7)
                base.execute(f"INSERT INTO COMPUTE_TASK_INFO VALUES ({','.join('?' * 13)})", info)
        for k, m in enumerate(marks):
            event = (m.begin, m.end, 2 if m.is_range else 0, k, 0, number(m.text), pid << 32, pid << 32, number(m.domain))
            base.execute("INSERT INTO MSTX_EVENTS VALUES (?,?,?,?,?,?,?,?,?,?)", (*event, len(tasks) + k))
        base.executemany("INSERT INTO STRING_IDS VALUES (?, ?)", [(k, text) for text, k in numbers.items()])
        base.executemany("INSERT INTO NPU_INFO VALUES (?, ?)", [(d, "Ascend") for d in sorted({t.device for t in tasks})])
        if tasks:
            base.execute("INSERT INTO SESSION_TIME_INFO VALUES (?, ?)", (tasks[0].queued, max(t.end for t in tasks)))
    base.close()
    part.rename(path)


# ---- communication ----------------------------------------------------------------------------------------------------------
ANALYSIS = """
CREATE TABLE CommAnalyzerTime (hccl_op_name TEXT, group_name TEXT, start_timestamp NUMERIC, elapse_time NUMERIC,
  transit_time NUMERIC, wait_time NUMERIC, synchronization_time NUMERIC, idle_time NUMERIC);
CREATE TABLE CommAnalyzerBandwidth (hccl_op_name TEXT, group_name TEXT, transport_type TEXT, transit_size NUMERIC,
  transit_time NUMERIC, bandwidth NUMERIC, large_packet_ratio NUMERIC, package_size NUMERIC, count NUMERIC, total_duration NUMERIC);
CREATE TABLE CommAnalyzerMatrix (hccl_op_name TEXT, group_name TEXT, src_rank TEXT, dst_rank TEXT, transport_type TEXT,
  transit_size NUMERIC, transit_time NUMERIC, bandwidth NUMERIC);
"""


def collectives(tasks: list[Task]) -> Iterator[tuple[str, Task]]:
    """The collectives by the names that CANN gives them: hcom_allReduce__<group>_<number>_1."""
    for k, t in enumerate(t for t in tasks if t.communicates):
        kind = t.name.removeprefix("Hccl")
        yield f"hcom_{kind[:1].lower()}{kind[1:]}__000_{k}_1", t


def analyze_text(folder: Path, tasks: list[Task]) -> None:
    """Times of collectives; what each link carried is not known, and all of the time counts as on the way."""
    times: dict[str, Any] = {}
    matrix: dict[str, Any] = {}
    for name, t in collectives(tasks):
        took = (t.end - t.begin) / 1e6
        link = {"Transit Time(ms)": took, "Transit Size(MB)": 0, "Bandwidth(GB/s)": 0}
        times[f"{name}@{GROUP}"] = {
            "Communication Time Info": {
                "Start Timestamp(us)": t.begin / 1000, "Elapse Time(ms)": took, "Transit Time(ms)": took, "Wait Time(ms)": 0,
                "Synchronization Time(ms)": 0, "Idle Time(ms)": 0, "Wait Time Ratio": 0, "Synchronization Time Ratio": 0,
            },
            "Communication Bandwidth Info": {"SDMA": link | {"Large Packet Ratio": 0, "Size Distribution": {}}},
        }  # fmt: skip
        matrix[f"{name}@{GROUP}"] = {f"{t.device}-{t.device}": link | {"Transport Type": "LOCAL"}}
    if times:
        (folder / "analyze").mkdir(exist_ok=True)
        (folder / "analyze" / "communication.json").write_text(json.dumps(times))
        (folder / "analyze" / "communication_matrix.json").write_text(json.dumps(matrix))


def analyze_database(folder: Path, tasks: list[Task]) -> None:
    found = list(collectives(tasks))
    if not found:
        return
    (folder / "analyze").mkdir(exist_ok=True)
    path = folder / "analyze" / "communication_analyzer.db"
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as base:
        base.executescript(ANALYSIS)
        for name, t in found:
            took, device = (t.end - t.begin) / 1e6, str(t.device)
            base.execute("INSERT INTO CommAnalyzerTime VALUES (?,?,?,?,?,0,0,0)", (name, GROUP, t.begin / 1000, took, took))
            row = (name, GROUP, "SDMA", took, took)
            base.execute("INSERT INTO CommAnalyzerBandwidth VALUES (?,?,?,0,?,0,0,0,0,?)", row)
            base.execute("INSERT INTO CommAnalyzerMatrix VALUES (?,?,?,?,'LOCAL',0,?,0)", (name, GROUP, device, device, took))
    base.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="msprof", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--output", required=True, help="a folder PROF_…, or one that holds such folders")
    parser.add_argument("--export", choices=("on", "off"), default="off", help="make the tables and the timeline")
    parser.add_argument("--analyze", choices=("on", "off"), default="off", help="make the files about collectives")
    parser.add_argument("--type", choices=("text", "db"), default="text", help="tables and a timeline, or a database")
    given, other = parser.parse_known_args()
    if other:
        print(f"msprof: {' '.join(other)}: not known here; only finished sessions are exported", file=sys.stderr)
        return 1
    folder = Path(given.output).absolute()
    folders = [folder] if folder.name.startswith("PROF_") else sorted(folder.glob("PROF_*"))
    if not folders:
        print(f"msprof: there is no folder PROF_… in {folder}", file=sys.stderr)
        return 1
    for each in folders:
        tasks, marks = read(each)
        if given.export == "on":
            (export_database if given.type == "db" else export_text)(each, tasks, marks)
        if given.analyze == "on":
            (analyze_database if given.type == "db" else analyze_text)(each, tasks)
    if given.export == "on":
        time.sleep(FOUND_WITHIN)
    return 0


if __name__ == "__main__":
    sys.exit(main())
