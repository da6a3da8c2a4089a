"""torch.autograd.profiler: ranges that a program names and the ops it calls, with the time the host spent in each.

The time of an op on an npu is that of its launch: CANN's own profiler tells what the device does. What backward computes is
in the times of the graph's nodes.
"""
from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from mindtorch_v2 import _C, _named
from mindtorch_v2._C import TensorBase
from mindtorch_v2.autograd.modes import profilers as _running
from mindtorch_v2.autograd.profiler_util import (  # noqa: F401
    MEMORY_EVENT_NAME,
    OUT_OF_MEMORY_EVENT_NAME,
    DeviceType,
    EventList,
    FormattedTimesMixin,
    FunctionEvent,
    FunctionEventAvg,
    Interval,
    Kernel,
    ProfilerActivity,
    ProfilerState,
)

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class Recorder:
    """Sees every op that a thread calls between start and stop, and the ranges of record_function."""

    def __init__(self, record_shapes: bool = False, with_stack: bool = False, profile_memory: bool = False) -> None:
        self.record_shapes, self.with_stack, self.profile_memory = record_shapes, with_stack, profile_memory
        self.events = EventList(profile_memory=profile_memory)
        self._open = threading.local()
        self._threads: dict[int, int] = {}       # by the system's number: 1 for the first, and so on
        self._names: dict[Any, str] = {}

    def start(self) -> None:
        """Begins to record."""
        self._watchers = _C._core._push_watcher(self)     # of the thread that starts it, as in torch
        _running.append(self)
        self._watched_before = _C._core._watch_nodes(self.node_turn)

    def stop(self) -> None:
        """Ends recording."""
        _C._core._pop_watcher(self._watchers, self)
        _running.remove(self)
        _C._core._watch_nodes(self._watched_before)

    def _begin(self, name: str, shapes: list[Any] | None, is_user: bool) -> FunctionEvent:
        stack = self._open.__dict__.setdefault("calls", [])
        now = time.perf_counter_ns() / 1000
        thread = self._threads.setdefault(threading.get_ident(), len(self._threads) + 1)
        event = FunctionEvent(len(self.events) + 1, name, thread, now, now, overload_name="", fwd_thread=0,
                              input_shapes=shapes or [], is_user_annotation=is_user, flops=0)
        if self.with_stack:
            event.stack = _python_stack()
        if self.profile_memory:
            event.cpu_memory_usage = -_bytes_in_use()
        if stack:
            stack[-1].append_cpu_child(event)
            event.set_cpu_parent(stack[-1])
        self.events.append(event)
        stack.append(event)
        return event

    def _end(self, event: FunctionEvent) -> None:
        event.time_range.end = time.perf_counter_ns() / 1000
        if self.profile_memory:
            event.cpu_memory_usage += _bytes_in_use()
        self._open.calls.remove(event)

    @contextlib.contextmanager
    def span(self, name: str, shapes: list[Any] | None, is_user: bool) -> Iterator[FunctionEvent]:
        """Records what happens inside as one call."""
        event = self._begin(name, shapes, is_user)
        try:
            yield event
        finally:
            self._end(event)

    @contextlib.contextmanager
    def node_turn(self, name: str, sequence_nr: int) -> Iterator[None]:
        """Records what backward does at one node."""
        with self.span(f"autograd::engine::evaluate_function: {name}", None, False) as outer, \
                self.span(name, None, False) as inner:
            outer.sequence_nr = inner.sequence_nr = sequence_nr
            outer.fwd_thread = inner.fwd_thread = inner.thread
            outer.scope = inner.scope = 1
            yield

    def note(self, name: str, began: int, ended: int) -> None:
        """Records a wait of the host that is over, in nanoseconds of perf_counter_ns, as a call inside the open one."""
        event = self._begin(name, None, False)
        self._end(event)
        event.time_range = Interval(began / 1000, ended / 1000)

    # ---- ops, which the core tells
    def begin(self, op: Any, row: Any, slots: tuple) -> FunctionEvent:
        """An op is called."""
        name = self._names.get(op)
        if name is None:
            name = self._names[op] = f"{'aten' if op.namespace == 'torch' else op.namespace}::{op.name}"
        return self._begin(name, [_shape_of(x) for x in slots] if self.record_shapes else None, False)

    def end(self, event: FunctionEvent, result: Any) -> None:
        """It has given its result, or None where it failed."""
        self._end(event)
        node = result.grad_fn if isinstance(result, TensorBase) and result.requires_grad else None
        if node is not None and not any(child.sequence_nr == node._sequence_nr() for child in event.cpu_children):
            event.sequence_nr = node._sequence_nr()


def _shape_of(x: Any) -> list[Any]:
    """The sizes of an argument; of a list of tensors, of each."""
    if isinstance(x, TensorBase):
        return list(x.shape)
    return [list(t.shape) for t in x] if isinstance(x, (tuple, list)) and x and isinstance(x[0], TensorBase) else []


def _bytes_in_use() -> int:
    return _C._cpu_memory_stats()["allocated_bytes"]


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


class profile:
    """A with block whose ops are recorded; torch.profiler.profile has schedules and traces besides."""

    def __init__(self, enabled: bool = True, *, use_cuda: bool = False, use_device: str | None = None,
                 record_shapes: bool = False, with_flops: bool = False, profile_memory: bool = False, with_stack: bool = False,
                 with_modules: bool = False, use_kineto: bool = False, use_cpu: bool = True, **kwargs: Any) -> None:
        self.enabled, self.entered = enabled, False
        self.record_shapes, self.with_stack, self.profile_memory = record_shapes, with_stack, profile_memory
        self.with_flops, self.with_modules, self.use_cpu, self.use_device = with_flops, with_modules, use_cpu, use_device
        self._recorder = Recorder(record_shapes, with_stack, profile_memory)

    def __enter__(self) -> profile | None:
        if not self.enabled:
            return None
        if self.entered:
            raise RuntimeError("Profiler context manager is not reentrant")
        self.entered = True
        _mark_running(True)
        self._recorder.start()
        return self

    def __exit__(self, *exc: Any) -> None:
        if self.enabled and self._recorder in _running:
            self._recorder.stop()
            _mark_running(bool(_running))

    def __repr__(self) -> str:
        return repr(self._recorder.events) if self.entered else "<unfinished torch.autograd.profile>"

    def __str__(self) -> str:
        return str(self._recorder.events) if self.entered else "<unfinished torch.autograd.profile>"

    @property
    def function_events(self) -> EventList:
        """What was recorded."""
        return self._recorder.events

    @property
    def self_cpu_time_total(self) -> float:
        """The host's time of all calls."""
        return self.function_events.self_cpu_time_total

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0,
                     group_by_overload_name: bool = False) -> EventList:
        """One event for all calls of one name."""
        return self.function_events.key_averages(group_by_input_shape, group_by_stack_n, group_by_overload_name)

    def total_average(self) -> FunctionEventAvg:
        """All calls as one."""
        return self.function_events.total_average()

    def table(self, *args: Any, **kwargs: Any) -> str:
        """The recorded calls as a table."""
        return self.function_events.table(*args, **kwargs)

    def export_chrome_trace(self, path: str) -> None:
        """Writes the calls for a browser."""
        self.function_events.export_chrome_trace(path)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Writes the program's lines that called, with a time."""
        if not self.with_stack:
            raise AssertionError("export_stacks() requires with_stack=True")
        self.function_events.export_stacks(path, metric)


_is_profiler_enabled = False


def _mark_running(running: bool) -> None:
    global _is_profiler_enabled
    _is_profiler_enabled = running


def kineto_available() -> bool:
    """True: profiles of that interface are recorded, on the host."""
    return True


def _supported_activities() -> set[ProfilerActivity]:
    return {ProfilerActivity.CPU}


def _record_function_with_args_enter(name: str, *args: Any) -> Any:
    """Begins a range whose arguments a profile shows the shapes of; what it gives ends it."""
    span = None
    if _running:
        shapes = [_shape_of(x) for x in args] if _running[-1].record_shapes else None
        span = _running[-1].span(name, shapes, True)
        span.__enter__()
    return span


def _record_function_with_args_exit(handle: Any) -> None:
    """Ends such a range."""
    if handle is not None:
        handle.__exit__(None, None, None)


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

_named.complete(__name__)
