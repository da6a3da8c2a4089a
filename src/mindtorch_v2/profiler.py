"""torch.profiler: which steps of a program are recorded, and what becomes of a recording; see autograd.profiler."""
from __future__ import annotations

import enum
import os
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any

import mindtorch_v2 as torch

_events = torch.autograd.profiler
ProfilerActivity = _events.ProfilerActivity
record_function, kineto_available = _events.record_function, _events.kineto_available

itt: Any = torch._facade.module(__name__, "itt", "Ranges for Intel's profiler.", is_available=lambda: False,
                                **torch._facade.refusals("mark range_push range_pop range", "ranges for Intel's profiler are "
                                                         "not offered", "torch.profiler.itt."))
__all__ = ["ProfilerAction", "ProfilerActivity", "profile", "record_function", "schedule", "supported_activities",
           "tensorboard_trace_handler"]


class ProfilerAction(enum.Enum):
    """What happens in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def supported_activities() -> set[Any]:
    """The host's calls, of which launches on an npu are a part."""
    return _events._supported_activities()


def schedule(*, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0,
             skip_first_wait: int = 0) -> Callable[[int], ProfilerAction]:
    """Cycles of steps that wait, warm up and are recorded; `repeat` cycles, or without end."""
    if min(wait, warmup, repeat, skip_first) < 0 or active <= 0:
        raise AssertionError("Invalid profiler schedule arguments")

    def action(step: int) -> ProfilerAction:
        if step < 0:
            raise AssertionError(f"Step must be non-negative. Got {step}.")
        step -= skip_first
        if step < 0:
            return ProfilerAction.NONE
        if skip_first_wait:
            step += wait
        cycle, place = divmod(step, wait + warmup + active)
        if repeat and cycle >= repeat or place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if place < wait + warmup + active - 1 else ProfilerAction.RECORD_AND_SAVE
    return action


def tensorboard_trace_handler(dir_name: str, worker_name: str | None = None,
                              use_gzip: bool = False) -> Callable[[profile], None]:
    """What on_trace_ready takes: writes every recording into a folder, in the name that TensorBoard looks for."""
    worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"

    def write(prof: profile) -> None:
        os.makedirs(dir_name, exist_ok=True)
        prof.export_chrome_trace(os.path.join(dir_name, f"{worker}.{time.time_ns()}.pt.trace.json"))
    return write


class profile:
    """Records the steps that a schedule chooses, or the whole with block; on_trace_ready gets every recording."""

    def __init__(self, *, activities: Iterable[Any] | None = None,
                 schedule: Callable[[int], ProfilerAction] | None = None,
                 on_trace_ready: Callable[[profile], Any] | None = None, record_shapes: bool = False,
                 profile_memory: bool = False, with_stack: bool = False, with_flops: bool = False,
                 with_modules: bool = False, experimental_config: Any = None, acc_events: bool = False,
                 **kwargs: Any) -> None:
        self.activities = set(activities) if activities is not None else supported_activities()
        self.schedule, self._names_steps = schedule or (lambda step: ProfilerAction.RECORD), schedule is not None
        self.on_trace_ready, self.record_shapes, self.with_stack = on_trace_ready, record_shapes, with_stack
        self.profile_memory = profile_memory
        self.step_num, self.current_action = 0, ProfilerAction.NONE
        self._recorder: Any = None
        self._recording = False
        self._events = _events.EventList()
        self._step: Any = None

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *exc: Any) -> None:
        self.stop()

    def start(self) -> None:
        """Begins with step 0."""
        self._move(self.schedule(self.step_num))

    def stop(self) -> None:
        """Ends; a recording that runs is handed over."""
        self._leave_step()
        if self._recording:
            self._save()

    def step(self) -> None:
        """The next step begins."""
        self._leave_step()
        self.step_num += 1
        if self.current_action is ProfilerAction.RECORD_AND_SAVE:
            self._save()
        self._move(self.schedule(self.step_num))

    def _move(self, action: ProfilerAction) -> None:
        wanted = action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
        if wanted and not self._recording:
            self._recorder, self._recording = _events.Recorder(self.record_shapes, self.with_stack, self.profile_memory), True
            self._recorder.start()
            torch.npu.streams.streams.wait_observers.append(self._on_wait)
        self.current_action = action
        if self._recording and self._names_steps:
            self._step = record_function(f"ProfilerStep#{self.step_num}")
            self._step.__enter__()

    def _on_wait(self, what: str, began: int, ended: int) -> None:
        self._recorder.note(f"host wait: {what}", began, ended)

    def _leave_step(self) -> None:
        if self._step is not None:
            self._step.__exit__(None, None, None)
            self._step = None

    def _save(self) -> None:
        torch.npu.streams.streams.wait_observers.remove(self._on_wait)
        self._recorder.stop()
        self._recording, self._events = False, self._recorder.events
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def events(self) -> Any:
        """What was recorded last."""
        return self._events

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, **kwargs: Any) -> Any:
        """One event for all calls of one name: `print(prof.key_averages().table(sort_by="cpu_time_total"))`."""
        return self._events.key_averages(group_by_input_shape, group_by_stack_n, **kwargs)

    def export_chrome_trace(self, path: str) -> None:
        """Writes the recording for chrome://tracing or Perfetto."""
        self._events.export_chrome_trace(path)


# Recordings name ops, not the nodes of graphs that called them.
_utils: Any = torch._facade.module(__name__, "_utils", "Services of the profiler.", **torch._facade.refusals(
    "map_recorded_events_to_aten_ops_with_stack_trace", "a recording does not know the graph that an op came from",
    "torch.profiler._utils."))
profiler: Any = torch._facade.module(__name__, "profiler", "Where torch keeps its profiler.", _KinetoProfile=profile, **{
    name: globals()[name] for name in __all__})

__path__: list[str] = []       # modules that torch has below it are found by name
torch._named.complete(__name__)
