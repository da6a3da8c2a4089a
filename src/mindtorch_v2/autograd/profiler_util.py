"""torch.autograd.profiler_util: the events of a profile, as a tree, by name, as a table and as a trace for a browser."""
from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, NamedTuple

__all__ = ["EventList", "FormattedTimesMixin", "FunctionEvent", "FunctionEventAvg", "Interval", "Kernel"]
MEMORY_EVENT_NAME, OUT_OF_MEMORY_EVENT_NAME = "[memory]", "[OutOfMemory]"


class DeviceType(Enum):
    """Kinds of devices, by PyTorch's numbers; what a profile holds took place on the host."""
    CPU, CUDA, MKLDNN, OPENGL, OPENCL, IDEEP, HIP, FPGA, MAIA, XLA, Vulkan, Metal, XPU, MPS, Meta, HPU, VE, Lazy, IPU, MTIA, \
        PrivateUse1 = range(21)


class ProfilerActivity(Enum):
    """What torch can record; here it is the host's side of every device."""

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4
    PrivateUse1 = 5
    NPU = PrivateUse1


class ProfilerState(Enum):
    """How torch can record."""
    Disabled, CPU, CUDA, NVTX, ITT, PRIVATEUSE1, KINETO, KINETO_GPU_FALLBACK, KINETO_PRIVATEUSE1_FALLBACK, \
        KINETO_ONDEMAND = range(10)


class Interval:
    """A span of time, in microseconds."""

    def __init__(self, start: float, end: float) -> None:
        self.start, self.end = start, end

    def elapsed_us(self) -> float:
        """How long it is."""
        return self.end - self.start


class Kernel(NamedTuple):
    """What a device ran for an event."""
    name: str
    device: int
    duration: float


def _format_time(time_us: float) -> str:
    """A time with a unit."""
    for size, unit in ((1e6, "s"), (1e3, "ms")):
        if time_us >= size:
            return f"{time_us / size:.3f}{unit}"
    return f"{time_us:.3f}us"


def _in_unit(time_us: float, unit: str) -> str:
    return f"{time_us / {'s': 1e6, 'ms': 1e3, 'us': 1.0}[unit]:.3f}{unit}"


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


def _shown(attribute: str) -> Any:
    return property(lambda self: _format_time(getattr(self, attribute)), doc=f"{attribute} with a unit.")


class FormattedTimesMixin:
    """The times of an event as text, and that of one call."""

    cpu_time_str, device_time_str = _shown("cpu_time"), _shown("device_time")
    cpu_time_total_str, device_time_total_str = _shown("cpu_time_total"), _shown("device_time_total")
    self_cpu_time_total_str, self_device_time_total_str = _shown("self_cpu_time_total"), _shown("self_device_time_total")
    count: int
    cpu_time_total: Any
    device_time_total: Any

    @property
    def cpu_time(self) -> float:
        """The host's time of one call."""
        return 0.0 if self.count == 0 else self.cpu_time_total / self.count

    @property
    def device_time(self) -> float:
        """The device's time of one call."""
        return 0.0 if self.count == 0 else self.device_time_total / self.count

    cuda_time = device_time


class FunctionEvent(FormattedTimesMixin):
    """One call: what it was, when it began and ended, what it was called inside of."""

    def __init__(self, id: int, name: str, thread: int, start_us: float, end_us: float, overload_name: str | None = None,
                 fwd_thread: int | None = None, input_shapes: list[Any] | None = None, stack: list[str] | None = None,
                 scope: int = 0, use_device: str | None = None, cpu_memory_usage: int = 0, device_memory_usage: int = 0,
                 is_async: bool = False, is_remote: bool = False, sequence_nr: int = -1, node_id: int = -1,
                 device_type: Any = DeviceType.CPU, device_index: int = 0, device_resource_id: int | None = None,
                 is_legacy: bool = False, flops: int | None = None, trace_name: str | None = None,
                 concrete_inputs: list[Any] | None = None, kwinputs: dict[str, Any] | None = None,
                 is_user_annotation: bool = False, is_python_function: bool = False, **more: Any) -> None:
        self.id, self.name, self.overload_name, self.node_id = id, name, overload_name, node_id
        self.trace_name = name if trace_name is None else trace_name
        self.thread, self.fwd_thread, self.time_range = thread, fwd_thread, Interval(start_us, end_us)
        self.kernels: list[Kernel] = []
        self.count = 1
        self.cpu_children: list[FunctionEvent] = []
        self.cpu_parent: FunctionEvent | None = None
        self.input_shapes, self.concrete_inputs, self.kwinputs = input_shapes, concrete_inputs, kwinputs
        self.stack, self.scope, self.use_device = stack or [], scope, use_device
        self.cpu_memory_usage, self.device_memory_usage = cpu_memory_usage, device_memory_usage
        self.is_async, self.is_remote, self.is_legacy = is_async, is_remote, is_legacy
        self.sequence_nr, self.device_type, self.device_index = sequence_nr, device_type, device_index
        self.device_resource_id = thread if device_resource_id is None else device_resource_id
        self.flops, self.is_user_annotation, self.is_python_function = flops, is_user_annotation, is_python_function
        self.self_cpu_percent: Any = -1
        self.total_cpu_percent: Any = -1
        vars(self).update(more)

    def append_kernel(self, name: str, device: int, duration: float) -> None:
        """Adds what a device ran for this."""
        self.kernels.append(Kernel(name, device, duration))

    def append_cpu_child(self, child: FunctionEvent) -> None:
        """Adds a call that was made inside of this."""
        self.cpu_children.append(child)

    def set_cpu_parent(self, parent: FunctionEvent) -> None:
        """Says which call this was made inside of."""
        self.cpu_parent = parent

    @property
    def key(self) -> str:
        """The name."""
        return self.name

    @property
    def start_us(self) -> float:
        """When it began."""
        return self.time_range.start

    @property
    def cpu_time_total(self) -> float:
        """The host's time."""
        return self.time_range.elapsed_us() if self.device_type == DeviceType.CPU else 0

    @property
    def self_cpu_time_total(self) -> float:
        """The host's time without that of the calls inside."""
        if self.is_async or self.device_type != DeviceType.CPU:
            return 0
        return self.cpu_time_total - sum(child.cpu_time_total for child in self.cpu_children)

    @property
    def device_time_total(self) -> float:
        """The device's time."""
        return sum(kernel.duration for kernel in self.kernels)

    self_device_time_total = cuda_time_total = self_cuda_time_total = device_time_total

    @property
    def self_cpu_memory_usage(self) -> int:
        """The bytes that were allocated, without those of the calls inside."""
        return self.cpu_memory_usage - sum(child.cpu_memory_usage for child in self.cpu_children)

    @property
    def self_device_memory_usage(self) -> int:
        """The device's bytes, without those of the calls inside."""
        return self.device_memory_usage - sum(child.device_memory_usage for child in self.cpu_children)

    def __repr__(self) -> str:
        device = self.use_device
        return (f"<FunctionEvent id={self.id} name={self.name} overload_name={self.overload_name} device_type={self.device_type} "
                f"node_id={self.node_id} cpu_time={self.cpu_time_str} start_us={self.time_range.start} "
                f"end_us={self.time_range.end} cpu_children={[child.id for child in self.cpu_children]} "
                f"{device}_time={self.device_time_str} name={self.name} thread={self.thread} input_shapes={self.input_shapes} "
                f"cpu_memory_usage={self.cpu_memory_usage} {device}_memory_usage={self.device_memory_usage} "
                f"is_async={self.is_async} is_remote={self.is_remote} seq_nr={self.sequence_nr} is_legacy={self.is_legacy}>")


class FunctionEventAvg(FormattedTimesMixin):
    """All calls of one name."""
    _summed = ("cpu_time_total", "device_time_total", "self_cpu_time_total", "self_device_time_total", "cpu_memory_usage",
               "device_memory_usage", "self_cpu_memory_usage", "self_device_memory_usage", "count")
    _taken = ("key", "node_id", "is_async", "is_remote", "cpu_parent", "cpu_children", "overload_name", "input_shapes", "stack",
              "scope", "device_type", "is_legacy", "use_device", "is_user_annotation")
    self_cpu_time_total: float
    input_shapes: Any

    def __init__(self) -> None:
        self.key: str | None = None
        self.count = self.node_id = self.scope = self.flops = 0
        self.is_async = self.is_remote = self.is_legacy = self.is_user_annotation = False
        for name in self._summed:
            setattr(self, name, 0)
        self.use_device = self.input_shapes = self.overload_name = self.stack = self.cpu_children = self.cpu_parent = None
        self.device_type = DeviceType.CPU

    def add(self, other: Any) -> FunctionEventAvg:
        """This and one more call, or what was summed of several."""
        if self.key is None:
            for name in self._taken:
                setattr(self, name, getattr(other, name))
        if other.key != self.key:
            raise AssertionError(f"Expected keys to match, but got {other.key} vs {self.key}")
        for name in self._summed:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.flops += other.flops or 0
        return self

    __iadd__ = add

    @property
    def name(self) -> str | None:
        """The key."""
        return self.key

    def __repr__(self) -> str:
        device = self.use_device or "cuda"
        return (f"<FunctionEventAvg key={self.key} self_cpu_time={self.self_cpu_time_total_str} cpu_time={self.cpu_time_str}  "
                f"self_{device}_time={self.self_device_time_total_str} {device}_time={self.device_time_str} "
                f"input_shapes={self.input_shapes} cpu_memory_usage={vars(self)['cpu_memory_usage']} "
                f"{device}_memory_usage={vars(self)['device_memory_usage']}>")


class _Column(NamedTuple):
    """One column of the table of events."""
    title: str
    text: Callable[[Any, float, Callable[[float], str]], str]     # event, all of the host's time, how a time is written


_TIMES = (
    _Column("Self CPU %", lambda e, total, time: _format_time_share(e.self_cpu_time_total, total)),
    _Column("Self CPU", lambda e, total, time: time(e.self_cpu_time_total)),
    _Column("CPU total %", lambda e, total, time: _format_time_share(e.cpu_time_total, total) if not e.is_async else "0"),
    _Column("CPU total", lambda e, total, time: time(e.cpu_time_total)),
    _Column("CPU time avg", lambda e, total, time: time(e.cpu_time)),
)
_MEMORY = (
    _Column("CPU Mem", lambda e, total, time: _format_memory(e.cpu_memory_usage)),
    _Column("Self CPU Mem", lambda e, total, time: _format_memory(e.self_cpu_memory_usage)),
)
_COUNT = _Column("# of Calls", lambda e, total, time: str(e.count))


class EventList(list):
    """The events of a profile; as a table, by name, and as a trace for a browser."""

    def __init__(self, *args: Any, use_device: str | None = None, profile_memory: bool = False, with_flops: bool = False,
                 **kwargs: Any) -> None:
        super().__init__(*args)
        self._use_device, self._profile_memory, self._with_flops = use_device, profile_memory, with_flops
        self._tree_built = False

    def _build_tree(self) -> None:
        self._populate_cpu_children()
        self._tree_built = True

    def _populate_cpu_children(self) -> None:
        """Which call of a thread was made inside of which follows from their times."""
        threads: dict[Any, list[FunctionEvent]] = {}
        for event in self:
            if not event.is_async and event.device_type == DeviceType.CPU:
                threads.setdefault((event.thread, event.node_id), []).append(event)
        for events in threads.values():
            open_calls: list[FunctionEvent] = []
            for event in sorted(events, key=lambda e: (e.time_range.start, -e.time_range.end)):
                while open_calls and (event.time_range.start >= open_calls[-1].time_range.end or
                                      event.time_range.end > open_calls[-1].time_range.end):
                    open_calls.pop()
                if open_calls and event.cpu_parent is None:
                    open_calls[-1].append_cpu_child(event)
                    event.set_cpu_parent(open_calls[-1])
                open_calls.append(event)

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all calls that are in no other."""
        return sum(event.self_cpu_time_total for event in self)

    def key_averages(self, group_by_input_shapes: bool = False, group_by_stack_n: int = 0,
                     group_by_overload_name: bool = False, **kwargs: Any) -> EventList:
        """One event for all calls of one name (and shapes, and innermost lines of the program)."""
        by_shapes = group_by_input_shapes or kwargs.get("group_by_input_shape", False)
        sums: dict[Any, FunctionEventAvg] = {}
        for event in self:
            name = "ProfilerStep*" if event.key.startswith("ProfilerStep#") else event.key
            key = (name, event.node_id, event.device_type, event.is_legacy, event.is_user_annotation,
                   str(event.overload_name) if group_by_overload_name else "", str(event.input_shapes) if by_shapes else "",
                   *(event.stack[:group_by_stack_n] if group_by_stack_n else ()))
            whole = sums.setdefault(key, FunctionEventAvg())
            whole.key = event.key if whole.key is not None else None
            whole.add(event).key = name
        made = EventList(sums.values(), use_device=self._use_device, profile_memory=self._profile_memory,
                         with_flops=self._with_flops)
        for whole in made:
            whole.stack = (whole.stack or [])[:group_by_stack_n]
            if not by_shapes:
                whole.input_shapes = ""
            if not group_by_overload_name:
                whole.overload_name = ""
        return made

    def total_average(self) -> FunctionEventAvg:
        """All calls as one."""
        whole = FunctionEventAvg()
        for event in self:
            whole.key = event.key if whole.key is not None else None
            whole.add(event)
        whole.key = "Total"
        return whole

    def _columns(self) -> Iterator[_Column]:
        yield from _TIMES
        if self._profile_memory:
            yield from _MEMORY
        yield _COUNT

    def table(self, sort_by: str | None = None, row_limit: int = 100, max_src_column_width: int = 75,
              max_name_column_width: int | None = 55, max_shapes_column_width: int | None = 80, header: str | None = None,
              top_level_events_only: bool = False, time_unit: str | None = None) -> str:
        """A table, the largest first where sort_by names a column ("cpu_time_total", "count", …)."""
        rows = [e for e in self if not top_level_events_only or e.cpu_parent is None]
        if not self:
            return ""
        if sort_by is not None:
            key = sort_by.replace("cuda", "device").replace("npu", "device")
            if not hasattr(self[0], key):
                raise AttributeError(f"[table] cannot sort by {sort_by!r}; expected cpu_time_total, self_cpu_time_total, cpu_time, "
                                     "count or another number of the events")
            rows.sort(key=lambda event: getattr(event, key), reverse=True)
        rows = rows if row_limit < 0 else rows[:row_limit]
        total = self.self_cpu_time_total
        columns = list(self._columns())

        def time(us: float) -> str:
            return _format_time(us) if time_unit is None else _in_unit(us, time_unit)
        cells = [[_cut(row.key or "", max_name_column_width), *(c.text(row, total, time) for c in columns)] for row in rows]
        titles = ["Name", *(c.title for c in columns)]
        if any(row.input_shapes for row in rows):
            titles.append("Input Shapes")
            for cell, row in zip(cells, rows):
                cell.append(_cut(str(row.input_shapes), max_shapes_column_width))
        widths = [max(12, *(len(cell[i]) for cell in [titles, *cells])) for i in range(len(titles))]
        line = "  ".join("-" * width for width in widths) + "  "

        def joined(cell: list[str]) -> str:
            return "  ".join(text.rjust(width) for text, width in zip(cell, widths)) + "  "
        lines = [header] if header else []
        lines += [line, joined(titles), line, *(joined(cell) for cell in cells), line,
                  f"Self CPU time total: {time(total)}"]
        return "\n".join(lines) + "\n"

    def export_chrome_trace(self, path: str) -> None:
        """Writes the events for chrome://tracing or Perfetto."""
        def args(event: FunctionEvent) -> dict[str, Any]:
            shapes = {"Input Dims": event.input_shapes} if event.input_shapes else {}
            return shapes | ({"Call stack": ";\r\n".join(event.stack)} if event.stack else {})
        events = [{"ph": "X", "cat": "user_annotation" if event.is_user_annotation else "cpu_op", "name": event.name,
                   "pid": os.getpid(), "tid": event.thread, "ts": event.time_range.start, "dur": event.cpu_time_total,
                   "args": args(event)} for event in self]
        with open(path, "w") as file:
            json.dump({"traceEvents": events, "displayTimeUnit": "ms"}, file)

    def supported_export_stacks_metrics(self) -> list[str]:
        """What export_stacks can write."""
        return ["self_cpu_time_total", "self_cuda_time_total", "self_xpu_time_total", "self_privateuse1_time_total"]

    def export_stacks(self, path: str, metric: str) -> None:
        """Writes the program's lines that called, with a time, for a flame graph."""
        if metric not in self.supported_export_stacks_metrics():
            raise ValueError("metric should be one of: " + str(self.supported_export_stacks_metrics()))
        spaces = str.maketrans(" ;\t\n", "____")
        with open(path, "w") as file:
            for event in self:
                value = getattr(event, metric.replace("cuda", "device").replace("xpu", "device")
                                .replace("privateuse1", "device"))
                if event.stack and int(value) > 0:
                    file.write(";".join(entry.translate(spaces) for entry in reversed(event.stack)) + f" {int(value)}\n")

    def __str__(self) -> str:
        return self.table()


def _cut(text: str, width: int | None) -> str:
    return text if width is None or len(text) <= width else text[: width - 3] + "..."


def _canonicalize_profiler_events(events: list[dict[str, Any]]) -> str:
    """Events of a trace with the stacks of the code that they came from, one a line."""
    lines = []
    for event in events:
        args = event.get("args", {})
        stack = (args.get("stack_trace") or "").strip().splitlines()
        lines.append(f"event={event.get('name', '')} node={args.get('node_name', '')} "
                     f"stack_trace={stack[-1].strip() if stack else ''}")
    return "\n".join(lines)
