"""torch.npu.explain: runs a function and says where its time and memory went, op by op; the report is in explained.py."""
from __future__ import annotations

import os
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2._commands import explained, fusions

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def explain(fn: Callable[..., Any], *args: Any, warmup: int = 1, device: Any = None, **kwargs: Any) -> explained.Explanation:
    """Runs fn(*args, **kwargs) and reports, per op, host and device time, waits of the host with the line that caused
    each, allocations, casts and copies that could go, and fused ops that would serve.

    `print(torch.npu.explain(step, batch))` shows the tables; `.page("step.html")` writes a page, `.result` is what fn
    returned. The function runs `warmup` times before it is measured, because first calls load kernels and take memory from
    the device; with warmup=0 they are part of the picture. Every op is measured by two events on its stream, so a device
    time has the launch in it where the device had nothing else to do.
    """
    for _ in range(warmup):
        fn(*args, **kwargs)
    index = torch.npu.current_device() if device is None else torch.device(device).index or 0
    torch.npu.synchronize(index)
    recording = Recording(index)
    observers = torch.npu.streams.streams.wait_observers
    observers.append(recording.on_wait)
    try:
        with recording.calls, recording.ops:
            recording.begin()
            result = fn(*args, **kwargs)
            recording.end()
    finally:
        observers.remove(recording.on_wait)
    torch.npu.synchronize(index)
    return recording.explanation(getattr(fn, "__qualname__", type(fn).__qualname__), result)


def user_line() -> str:
    """The innermost line of Python that is not of this package: "file.py:12 in f"."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"


class Recording:
    """What happens between begin and end, on one device."""

    def __init__(self, index: int) -> None:
        self.index, self.device = index, torch.device("npu", index)
        self.records: list[explained.Record] = []
        self.waits: list[explained.Wait] = []
        self.calls, self.ops = Calls(self), Ops(self)
        self.open_calls: list[list[Any]] = []     # [name, dispatched ops inside, line]
        self.composites: list[explained.Composite] = []
        self.seen: dict[int, tuple[Any, dict[str, Any]]] = {}
        self.casts: list[explained.Finding] = []
        self.graph = fusions.Graph()
        self.spent = 0                            # nanoseconds of this recording itself, taken off the host's time

    def begin(self) -> None:
        """The first moment."""
        self.first_event = self._event()
        self.before = self._counters()
        self.started = time.perf_counter_ns()

    def end(self) -> None:
        """The last moment of the host."""
        self.stopped = time.perf_counter_ns()
        self.after = self._counters()

    def _event(self) -> Any:
        event = torch.npu.Event(enable_timing=True)
        event.record(torch.npu.current_stream(self.index))
        return event

    def _counters(self) -> tuple[int, int, int]:
        """Allocations, their bytes, and segments taken from the device, since the start of the process."""
        stats = torch.npu._get_allocator(self.index).memory_stats()
        return (stats.get("allocation.all.allocated", 0), stats.get("allocated_bytes.all.allocated", 0),
                stats.get("segment.all.allocated", 0))

    def on_wait(self, what: str, began: int, ended: int) -> None:
        """The host has waited."""
        self.waits.append(explained.Wait(what, user_line(), (began - self.started) / 1e3, (ended - began) / 1e3))

    # ---- one op ----------------------------------------------------------------------------------------------------------
    def run(self, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Runs an op of the dispatcher and records it."""
        entered = time.perf_counter_ns()
        line, counted = user_line(), self._counters()
        stream, first = torch.npu.current_stream(self.index).stream_id, self._event()
        waited = len(self.waits)
        began = time.perf_counter_ns()
        result = func(*args, **kwargs)
        ended = time.perf_counter_ns()
        last, now = self._event(), self._counters()
        name = func.name().removeprefix("aten::").partition(".")[0]   # overloads of one op count as one
        host = (ended - began) / 1e3 - sum(wait.duration for wait in self.waits[waited:])
        view = self.graph.add(name, args, kwargs, result, line)
        if not view:
            for call in self.open_calls[-1:]:
                call[1].append(name)
        self._look_at_copies(name, args, result, line)
        self.records.append(explained.Record(name, line, shapes_of(args), (began - self.started) / 1e3, max(host, 0.0), stream,
                                             first, last, [b - a for a, b in zip(counted, now, strict=True)], view,
                                             torch.is_tensor(result) and not result.is_npu))
        self.spent += time.perf_counter_ns() - entered - (ended - began)
        return result

    def call(self, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Runs what the program calls; an op that became several is a composite."""
        if not isinstance(func, type(torch.add)):
            return func(*args, **kwargs)
        self.open_calls.append([func.__name__, [], user_line()])
        try:
            return func(*args, **kwargs)
        finally:
            name, inside, line = self.open_calls.pop()
            if len(inside) > 1 and not set(inside) <= {"_to_copy", name}:
                self.composites.append(explained.Composite(name, tuple(inside), line))

    def _look_at_copies(self, name: str, args: tuple, result: Any, line: str) -> None:
        """Casts and copies of a tensor that was cast or copied so before, or back to what it came from."""
        if name not in ("_to_copy", "clone", "contiguous") or not all(map(torch.is_tensor, (*args[:1], result))):
            return
        source, size = args[0], result.numel() * result.element_size()
        what = describe(source, result)
        known = self._facts(source)
        if what in known:
            self.casts.append(explained.Finding(f"{what} of the same tensor {list(source.shape)} again; first at {known[what]}",
                                                line, size))
        known.setdefault(what, line)
        origin = known.get("made from")
        if origin == (str(result.dtype), str(result.device)):
            self.casts.append(explained.Finding(f"{what}, back to what {list(source.shape)} was made from", line, size))
        if source.is_cpu and result.is_npu and not source.is_pinned():
            self.casts.append(explained.Finding(f"copy to the npu from pageable memory {list(source.shape)}: the host waits; "
                                                "pin_memory() and non_blocking=True do not", line, size))
        self._facts(result)["made from"] = (str(source.dtype), str(source.device))

    def _facts(self, tensor: Any) -> dict[str, Any]:
        """What is known of a tensor while it lives and is not written to."""
        found = self.seen.get(id(tensor))
        if found is None or found[0]() is not tensor or found[1]["version"] != tensor._version:
            found = weakref.ref(tensor), {"version": tensor._version}
            self.seen[id(tensor)] = found
        return found[1]

    def explanation(self, name: str, result: Any) -> explained.Explanation:
        """The report."""
        for record in self.records:
            record.device = 0.0 if record.view or record.on_cpu else record.first.elapsed_time(record.last) * 1e3
            record.device_start = self.first_event.elapsed_time(record.first) * 1e3
        total = (self.stopped - self.started - self.spent) / 1e3
        counted = [b - a for a, b in zip(self.before, self.after, strict=True)]
        return explained.Explanation(name, str(self.device), result, max(total, 0.0), self.records, self.waits, self.casts,
                                     self.composites, self.graph.found(), counted)


def describe(source: Any, result: Any) -> str:
    """What a copy does, for the report."""
    if source.device != result.device:
        return f"copy from {source.device} to {result.device}"
    return f"cast {str(source.dtype)[6:]} to {str(result.dtype)[6:]}" if source.dtype != result.dtype else "copy"


def shapes_of(args: Any) -> str:
    """The tensors among arguments: "float32[3, 4], float32[4]"."""
    found: list[str] = []
    for arg in args:
        for item in arg if isinstance(arg, list | tuple) else (arg,):
            if torch.is_tensor(item):
                found.append(f"{str(item.dtype).rpartition('.')[2]}{list(item.shape)}")
    return ", ".join(found)


class Ops(torch.utils._python_dispatch.TorchDispatchMode):
    """Shows every op below autograd to a recording, those of backward too."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self.recording = recording

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return self.recording.run(func, args, kwargs or {})


class Calls(torch.overrides.TorchFunctionMode):
    """Shows the program's own calls to a recording."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self.recording = recording

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return self.recording.call(func, args, kwargs or {})
