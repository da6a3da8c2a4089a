"""torch.monitor: counters over time, and events that handlers get."""
from __future__ import annotations

import dataclasses
import datetime
import enum
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["Aggregation", "Event", "EventHandlerHandle", "Stat", "TensorboardEventHandler", "data_value_t", "log_event",
           "register_event_handler", "unregister_event_handler"]

data_value_t = (str, int, float, bool)


class Aggregation(enum.Enum):
    """What a Stat tells of the values of a window."""

    VALUE = 0
    MEAN = 1
    COUNT = 2
    SUM = 3
    MAX = 4
    MIN = 5


@dataclasses.dataclass
class Event:
    """Something that happened: a name, a time and data."""

    name: str
    timestamp: datetime.datetime
    data: dict[str, Any]


class EventHandlerHandle:
    """What takes a handler out again."""

    def __init__(self, callback: Callable[[Event], None]) -> None:
        self._callback = callback


_handlers: list[EventHandlerHandle] = []
_lock = threading.Lock()


def register_event_handler(callback: Callable[[Event], None]) -> EventHandlerHandle:
    """From now on callback(event) is called for every event."""
    handle = EventHandlerHandle(callback)
    with _lock:
        _handlers.append(handle)
    return handle


def unregister_event_handler(handler: EventHandlerHandle) -> None:
    """Takes a handler out."""
    with _lock:
        _handlers.remove(handler)


def log_event(event: Event) -> None:
    """Hands an event to every handler."""
    with _lock:
        handlers = list(_handlers)
    for handle in handlers:
        handle._callback(event)


_READ: dict[Aggregation, Callable[[list[float]], float]] = {
    Aggregation.VALUE: lambda v: v[-1], Aggregation.MEAN: lambda v: sum(v) / len(v), Aggregation.COUNT: len,
    Aggregation.SUM: sum, Aggregation.MAX: max, Aggregation.MIN: min}


class Stat:
    """Values of a window of time, or of a number of samples; each full window is logged as an event."""

    def __init__(self, name: str, aggregations: list[Aggregation], window_size: datetime.timedelta,
                 max_samples: int = 2**63 - 1) -> None:
        self.name, self.aggregations = name, list(aggregations)
        self.window_size, self.max_samples = window_size, max_samples
        self._values: list[float] = []
        self._begin = datetime.datetime.now()

    @property
    def count(self) -> int:
        """How many values the window has."""
        return len(self._values)

    def add(self, v: float) -> None:
        """Adds a value; a window that is over is logged first."""
        self._log_if_over()
        self._values.append(float(v))
        if len(self._values) >= self.max_samples:
            self._log()

    def get(self) -> dict[Aggregation, float]:
        """What the values of the window give."""
        return {a: float(_READ[a](self._values)) if self._values else 0.0 for a in self.aggregations}

    def _log_if_over(self) -> None:
        if datetime.datetime.now() - self._begin >= self.window_size:
            self._log()

    def _log(self) -> None:
        if self._values:
            data = {f"{self.name}.{a.name.lower()}": value for a, value in self.get().items()}
            log_event(Event("torch.monitor.Stat", datetime.datetime.now(), data))
        self._values, self._begin = [], datetime.datetime.now()


class TensorboardEventHandler:
    """Writes the statistics of events with a SummaryWriter."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def __call__(self, event: Event) -> None:
        if event.name == "torch.monitor.Stat":
            for key, value in event.data.items():
                self._writer.add_scalar(key, value, walltime=event.timestamp.timestamp())
