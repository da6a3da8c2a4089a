"""torch.autograd.profiler: ranges that a program names and the ops it calls, with the time the host spent in each.

The time of an op on an npu is that of its launch: CANN's own profiler tells what the device does. What backward computes is
in the times of the graph's nodes.
"""
from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._C import TensorBase
from mindtorch_v2.autograd.modes import profilers as _running

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class FunctionEvent:
    """One call: its name, when it began, how long it took, how much of that its own calls took; microseconds."""

    def __init__(self, name: str, start: float, thread: int, shapes: list[Any] | None, is_user: bool) -> None:
        self.name = self.key = name
        self.start_us, self.thread, self.input_shapes, self.is_user_annotation = start, thread, shapes, is_user
        self.cpu_time_total = self.inside = 0.0
        self.count = 1
        self.sequence_nr = -1        # of the node that was recorded, the same in forward and in backward
        self.stack: list[str] = []

    @property
    def self_cpu_time_total(self) -> float:
        """The time without that of the calls inside."""
        return self.cpu_time_total - self.inside

    @property
    def cpu_time(self) -> float:
        """The time of one call."""
        return self.cpu_time_total / self.count

    def __repr__(self) -> str:
        return f"<FunctionEvent name={self.name} cpu_time={self.cpu_time:.3f}us count={self.count}>"


class FunctionEventAvg(FunctionEvent):
    """All calls of one name."""

    def __init__(self) -> None:
        super().__init__("", 0.0, 0, None, False)
        self.key: str | None = None      # type: ignore[assignment]
        self.count = 0

    def add(self, other: FunctionEvent) -> FunctionEventAvg:
        """This and one more call, or what was summed of several."""
        if self.key is None:
            self.name = self.key = other.key
            self.start_us, self.thread, self.input_shapes, self.is_user_annotation = (
                other.start_us, other.thread, other.input_shapes, other.is_user_annotation)
        self.count += other.count
        self.cpu_time_total += other.cpu_time_total
        self.inside += other.inside
        return self

    __iadd__ = add


class Recorder:
    """Sees every op between start and stop, and the ranges of record_function; the newest recorder gets them."""

    def __init__(self, record_shapes: bool = False, with_stack: bool = False) -> None:
        self.record_shapes, self.with_stack, self.events = record_shapes, with_stack, EventList()
        self._open = threading.local()

    def start(self) -> None:
        """Begins to record."""
        self._modes = _C._core._function_mode_stack()     # of the thread that starts it, as in torch
        _C._push_function_mode(self)
        _running.append(self)
        self._watched_before = _C._core._watch_nodes(self.node_turn)

    def stop(self) -> None:
        """Ends recording."""
        self._modes.remove(self)
        _running.remove(self)
        _C._core._watch_nodes(self._watched_before)

    @contextlib.contextmanager
    def span(self, name: str, shapes: list[Any] | None, is_user: bool) -> Iterator[FunctionEvent]:
        """Records what happens inside as one call."""
        stack = self._open.__dict__.setdefault("stack", [])
        begin = time.perf_counter_ns()
        event = FunctionEvent(name, begin / 1000, threading.get_ident(), shapes, is_user)
        if self.with_stack:
            event.stack = _python_stack()
        self.events.append(event)
        stack.append(event)
        try:
            yield event
        finally:
            event.cpu_time_total = (time.perf_counter_ns() - begin) / 1000
            stack.remove(event)
            if stack:
                stack[-1].inside += event.cpu_time_total

    @contextlib.contextmanager
    def node_turn(self, name: str, sequence_nr: int) -> Iterator[None]:
        """Records what backward does at one node."""
        with self.span(f"autograd::engine::evaluate_function: {name}", None, False) as outer, \
                self.span(name, None, False) as inner:
            outer.sequence_nr = inner.sequence_nr = sequence_nr
            yield

    def note(self, name: str, began: int, ended: int) -> None:
        """Records a wait of the host that is over, in nanoseconds of perf_counter_ns, as a call inside the open one."""
        event = FunctionEvent(name, began / 1000, threading.get_ident(), None, False)
        event.cpu_time_total = (ended - began) / 1000
        if self.with_stack:
            event.stack = _python_stack()
        self.events.append(event)
        stack = self._open.__dict__.get("stack")
        if stack:
            stack[-1].inside += event.cpu_time_total

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if not isinstance(func, _C.Op):
            return NotImplemented                         # backward, x[0]: what they are made of
        name = getattr(func, "__name__", str(func))
        shapes = [list(x.shape) if isinstance(x, TensorBase) else [] for x in args] if self.record_shapes else None
        with self.span(f"aten::{name}", shapes, False) as event:
            result = func(*args, **(kwargs or {}))
            node = result.grad_fn if isinstance(result, TensorBase) and result.requires_grad else None
            if node is not None:
                event.sequence_nr = node._sequence_nr()
            return result


def _python_stack() -> list[str]:
    """The program's lines that called, the innermost first, as torch writes them: "train.py(12): step"."""
    found, frame = [], sys._getframe(2)
    while frame is not None:
        if not frame.f_code.co_filename.startswith((_PACKAGE, contextlib.__file__)):
            found.append(f"{frame.f_code.co_filename}({frame.f_lineno}): {frame.f_code.co_name}")
        frame = frame.f_back                              # type: ignore[assignment]
    return found


class record_function(contextlib.ContextDecorator):
    """A with block, or decorator, that shows under a name of its own in the profile that runs, if one does."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args = name, args

    def _recreate_cm(self) -> record_function:
        return record_function(self.name, self.args)

    def __enter__(self) -> record_function:
        self._spans = [recorder.span(self.name, None, True) for recorder in _running[-1:]]
        for span in self._spans:
            span.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        for span in self._spans:
            span.__exit__(*exc)


_COLUMNS: tuple[tuple[str, Callable[[Any, float], str]], ...] = (
    ("Self CPU %", lambda e, total: f"{100 * e.self_cpu_time_total / total:.2f}%"),
    ("Self CPU", lambda e, total: _duration(e.self_cpu_time_total)),
    ("CPU total %", lambda e, total: f"{100 * e.cpu_time_total / total:.2f}%"),
    ("CPU total", lambda e, total: _duration(e.cpu_time_total)),
    ("CPU time avg", lambda e, total: _duration(e.cpu_time)),
    ("# of Calls", lambda e, total: str(e.count)),
)


_SORTED_BY = ("cpu_time_total", "self_cpu_time_total", "cpu_time", "count")


def _duration(us: float) -> str:
    for size, unit in ((1e6, "s"), (1e3, "ms")):
        if us >= size:
            return f"{us / size:.3f}{unit}"
    return f"{us:.3f}us"


class EventList(list):
    """The events of a profile; as a table, by name, and as a trace for a browser."""

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all calls that are in no other."""
        return sum(event.self_cpu_time_total for event in self)

    def key_averages(self, group_by_input_shape: bool = False) -> EventList:
        """One event for all calls of one name (and shapes)."""
        sums: dict[Any, FunctionEventAvg] = {}
        for event in self:
            name = "ProfilerStep*" if event.name.startswith("ProfilerStep#") else event.name
            key = (name, str(event.input_shapes) if group_by_input_shape else "")
            whole = sums.setdefault(key, FunctionEventAvg()).add(event)
            whole.name = whole.key = name
        return EventList(sums.values())

    def total_average(self) -> FunctionEvent:
        """All calls as one."""
        whole = FunctionEvent("Total", 0.0, 0, None, False)
        whole.count = len(self)
        whole.cpu_time_total = sum(event.cpu_time_total for event in self)
        whole.inside = whole.cpu_time_total - self.self_cpu_time_total
        return whole

    def table(self, sort_by: str | None = None, row_limit: int = 100, max_name_column_width: int = 55,
              header: str | None = None, **kwargs: Any) -> str:
        """A table, the largest first where sort_by names a column ("cpu_time_total", "count", …)."""
        rows = list(self)
        if sort_by is not None:
            key = sort_by.replace("cuda", "cpu").replace("npu", "cpu").replace("device", "cpu")   # the host's are all
            if key not in _SORTED_BY:
                raise AttributeError(f"[table] cannot sort by {sort_by!r}; expected one of {', '.join(_SORTED_BY)}")
            rows.sort(key=lambda event: getattr(event, key), reverse=True)
        total = self.self_cpu_time_total or 1.0
        names = [row.name if len(row.name) <= max_name_column_width else row.name[: max_name_column_width - 3] + "..."
                 for row in rows[:row_limit]]
        cells = [[title for title, _ in _COLUMNS]]
        cells += [[show(row, total) for _, show in _COLUMNS] for row in rows[:row_limit]]
        width = max([len(name) for name in names] + [20])
        line = "  ".join(["-" * width] + ["-" * 12] * len(_COLUMNS))
        body = [name.rjust(width) + "".join(cell.rjust(14) for cell in row)
                for name, row in zip(["Name", *names], cells, strict=True)]
        lines = ([header] if header else []) + [line, body[0], line, *body[1:], line,
                                                f"Self CPU time total: {_duration(self.self_cpu_time_total)}"]
        return "\n".join(lines) + "\n"

    def export_chrome_trace(self, path: str) -> None:
        """Writes the events for chrome://tracing or Perfetto."""
        def args(event: FunctionEvent) -> dict[str, Any]:
            shapes = {} if event.input_shapes is None else {"Input Dims": event.input_shapes}
            return shapes | ({"Call stack": ";\r\n".join(event.stack)} if event.stack else {})
        events = [{"ph": "X", "cat": "user_annotation" if event.is_user_annotation else "cpu_op", "name": event.name,
                   "pid": os.getpid(), "tid": event.thread, "ts": event.start_us, "dur": event.cpu_time_total,
                   "args": args(event)} for event in self]
        with open(path, "w") as file:
            json.dump({"traceEvents": events, "displayTimeUnit": "ms"}, file)

    def __str__(self) -> str:
        return self.table()


class profile:
    """A with block whose ops are recorded; torch.profiler.profile has schedules and traces besides."""

    def __init__(self, enabled: bool = True, *, record_shapes: bool = False, use_device: str | None = None,
                 with_stack: bool = False, **kwargs: Any) -> None:
        self.enabled, self._recorder = enabled, Recorder(record_shapes, with_stack)

    def __enter__(self) -> profile:
        if self.enabled:
            self._recorder.start()
        return self

    def __exit__(self, *exc: Any) -> None:
        if self.enabled:
            self._recorder.stop()

    @property
    def function_events(self) -> EventList:
        """What was recorded."""
        return self._recorder.events

    def key_averages(self, group_by_input_shape: bool = False, **kwargs: Any) -> EventList:
        """One event for all calls of one name."""
        return self.function_events.key_averages(group_by_input_shape)

    def total_average(self) -> FunctionEvent:
        """All calls as one."""
        return self.function_events.total_average()

    def table(self, *args: Any, **kwargs: Any) -> str:
        """The recorded calls as a table."""
        return self.function_events.table(*args, **kwargs)

    def export_chrome_trace(self, path: str) -> None:
        """Writes the calls for a browser."""
        self.function_events.export_chrome_trace(path)


def kineto_available() -> bool:
    """False: that is torch's library for device profiles."""
    return False


class EnforceUnique:
    """Refuses a key that was seen before."""

    def __init__(self) -> None:
        self.seen: set[Any] = set()

    def see(self, *key: Any) -> None:
        """Notes a key."""
        if key in self.seen:
            raise RuntimeError(f"duplicate key: {key}")
        self.seen.add(key)


class emit_nvtx:
    """A with block whose ops NVIDIA's profiler would see: it needs CUDA, and refuses unless it is not enabled."""

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        self.enabled, self.record_shapes = enabled, record_shapes

    def __enter__(self) -> emit_nvtx | None:
        if self.enabled:
            raise AssertionError("Torch not compiled with CUDA enabled")
        return None

    def __exit__(self, *exc: Any) -> None:
        pass


class emit_itt(emit_nvtx):
    """The same for Intel's profiler, which is not offered."""

    def __enter__(self) -> emit_itt | None:
        if self.enabled:
            raise NotImplementedError("[torch.autograd.profiler.emit_itt] ranges for Intel's profiler are not offered")
        return None
