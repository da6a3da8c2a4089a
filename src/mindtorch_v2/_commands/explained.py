"""What torch.npu.explain reports: tables for a terminal, a page, a trace."""
from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Any

from mindtorch_v2._commands import page
from mindtorch_v2._commands import trace as tracing


@dataclass
class Record:
    """One op: microseconds since the begin, of the host and of the device."""
    name: str
    line: str
    shapes: str
    start: float
    host: float
    stream: int
    first: Any
    last: Any
    memory: list[int]
    view: bool
    on_cpu: bool
    device: float = field(default=0.0)
    device_start: float = field(default=0.0)


@dataclass
class Wait:
    """The host waited for the device."""
    what: str
    line: str
    start: float
    duration: float


@dataclass
class Finding:
    """A cast or copy that could go, with its bytes."""
    text: str
    line: str
    size: int


@dataclass
class Composite:
    """A call of the program that became several ops."""
    name: str
    ops: tuple[str, ...]
    line: str


@dataclass
class Explanation:
    """What a function did on a device; print it, or write .page(path) or .trace(path)."""
    name: str
    device: str
    result: Any
    host: float
    records: list[Record]
    waits: list[Wait]
    casts: list[Finding]
    composites: list[Composite]
    fusions: list[Any]
    memory: list[int]

    @property
    def device_time(self) -> float:
        """Microseconds of the device in all ops, at most."""
        return sum(record.device for record in self.records)

    def by_op(self) -> list[tuple[str, int, float, float, int, int]]:
        """(op, calls, host time, device time, allocations, bytes), the largest device time first."""
        sums: dict[str, list[Any]] = {}
        for record in self.records:
            entry = sums.setdefault(record.name, [0, 0.0, 0.0, 0, 0])
            for place, value in enumerate((1, record.host, record.device, record.memory[0], record.memory[1])):
                entry[place] += value
        return sorted(((name, *entry) for name, entry in sums.items()), key=lambda row: (-row[3], -row[2]))

    def table(self, rows: int = 20) -> str:
        """The report as text, each part with at most so many lines."""
        head = (f"{self.name} on {self.device}: {len(self.records)} ops, host {duration(self.host)}, device at most "
                f"{duration(self.device_time)}, {len(self.waits)} waits of {duration(sum(w.duration for w in self.waits))}")
        lines = [head, "", f"{'op':32}{'calls':>7}{'host':>11}{'device':>11}{'allocations':>13}{'bytes':>11}"]
        lines += [f"{name:32}{calls:>7}{duration(host):>11}{duration(device):>11}{number:>13}{amount(size):>11}"
                  for name, calls, host, device, number, size in self.by_op()[:rows]]
        for title, items in self.parts():
            lines += ["", f"{title}: {len(items) or 'none'}"]
            lines += [f"  {cost:>9}  {text}  ({short(line)})" for cost, text, line in items[:rows]]
            lines += [f"  and {len(items) - rows} more"] if len(items) > rows else []
        return "\n".join(lines)

    def parts(self) -> list[tuple[str, list[tuple[str, str, str]]]]:
        """The findings: titles, and (cost, text, line) of each, the costliest first; what is alike is one line."""
        waits = grouped([(w.duration, w.what, w.line) for w in self.waits], duration)
        taken = [r for r in self.records if r.memory[2]]
        memory = grouped([(r.memory[1], f"{r.name} allocates", r.line) for r in self.records if r.memory[1]], amount)
        memory = [(f"{sum(r.memory[2] for r in taken)}", "segments taken from the device, which waits for it; a second call "
                   "finds them cached", short(taken[0].line))] + memory if taken else memory
        ran: dict[tuple[str, str], int] = {}
        for c in self.composites:
            key = f"{c.name} ran as {', '.join(c.ops[:8])}{', …' if len(c.ops) > 8 else ''}", c.line
            ran[key] = ran.get(key, 0) + 1
        fused: dict[tuple[str, str], int] = {}
        for f in self.fusions:
            key = f"{', '.join(f.ops)} is {f.name}: {f.serves} does it in one op", f.line
            fused[key] = fused.get(key, 0) + 1
        return [("Waits of the host", waits), ("Casts and copies that could go", grouped([(c.size, c.text, c.line)
                                                                                          for c in self.casts], amount)),
                ("Fused ops that would serve", [(f"{n}x", *key) for key, n in fused.items()]),
                ("Composites", [(f"{n}x", *key) for key, n in ran.items()]), ("Allocator", memory)]

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        return f"<Explanation of {self.name}: {len(self.records)} ops, {len(self.waits)} waits; print() shows it>"

    # ---- pages -------------------------------------------------------------------------------------------------------
    def _trace(self) -> tracing.Trace:
        made = tracing.Trace()
        made.files.append(f"{self.name} on {self.device}")
        made._labels.update({("host", None): "host", ("host", "0"): "Python", ("device", None): self.device})
        for record in self.records:
            args = {"Input Dims": record.shapes, "Call stack": record.line}
            made.add({"pid": "host", "tid": "0", "cat": "cpu_op", "name": record.name}, args, record.start, record.host)
            if not record.view and not record.on_cpu:
                made.add({"pid": "device", "tid": record.stream, "cat": "kernel", "name": record.name}, args,
                         max(record.device_start, 0.0), record.device)
        for wait in self.waits:
            made.add({"pid": "host", "tid": "0", "cat": "wait", "name": f"host wait: {wait.what}"}, {"Call stack": wait.line},
                     wait.start, wait.duration)
        made.arrange()
        return made

    def page(self, path: str) -> None:
        """Writes a page: host and device as lanes, and all findings."""
        lists = [{"title": title, "total": 0, "count": len(items), "nothing": "none",
                  "items": [{"text": f"{cost} {text}", "source": line} for cost, text, line in items[:500]]}
                 for title, items in self.parts() if not title.startswith("Waits")]
        page.write(path, tracing.page_of(self._trace(), lists))

    def trace(self, path: str) -> None:
        """Writes a trace for Perfetto."""
        page.write(path, tracing.perfetto(self._trace()))


def grouped(items: list[tuple[float, str, str]], show: Any) -> list[tuple[str, str, str]]:
    """Items of one text and line as one, with the number of times, the costliest first."""
    sums: dict[tuple[str, str], list[float]] = {}
    for cost, text, line in items:
        entry = sums.setdefault((text, line), [0.0, 0])
        entry[0] += cost
        entry[1] += 1
    ranked = sorted(sums.items(), key=lambda item: -item[1][0])
    return [(show(cost), text + (f", {int(times)} times" if times > 1 else ""), line) for (text, line), (cost, times) in ranked]


def duration(us: float) -> str:
    """Microseconds with a readable unit."""
    return f"{us / 1e6:.3f} s" if us >= 1e6 else f"{us / 1e3:.2f} ms" if us >= 1e3 else f"{us:.0f} us"


def amount(size: float) -> str:
    """Bytes with a readable unit."""
    for limit, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= limit:
            return f"{size / limit:.1f} {unit}"
    return f"{size:.0f} B"


def short(line: str) -> str:
    """A line of Python without its folder."""
    return re.sub(r"^.*" + re.escape(os.sep), "", line)
