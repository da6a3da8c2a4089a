"""Measurement: the times of one task, and what they say."""
from __future__ import annotations

import collections
import contextlib
import dataclasses
import math
import statistics
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

import mindtorch_v2 as torch

__all__ = ["Measurement", "TaskSpec", "ordered_unique", "select_unit", "set_torch_threads", "trim_sigfig", "unit_to_english"]

_MAX_SIGNIFICANT_FIGURES = 4
_MIN_CONFIDENCE_INTERVAL = 25e-9
_IQR_WARN_THRESHOLD = 0.1                        # of the median: more than this is noise worth a word
_IQR_GROSS_WARN_THRESHOLD = 0.25
_UNITS = {"ns": ("nanosecond", 1e-9), "us": ("microsecond", 1e-6), "ms": ("millisecond", 1e-3), "s": ("second", 1.0)}


@dataclasses.dataclass(init=True, repr=False, eq=True, frozen=True)
class TaskSpec:
    """What is measured, and what it is called."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The name of the task, or its statement."""
        if self.label is not None:
            return self.label + (f": {self.sub_label}" if self.sub_label else "")
        if "\n" not in self.stmt:
            return self.stmt + (f": {self.sub_label}" if self.sub_label else "")
        return f"stmt:{f' ({self.sub_label})' if self.sub_label else ''}\n{textwrap.indent(self.stmt, '  ')}"

    def setup_str(self) -> str:
        """The setup as text; nothing where there is none."""
        return "" if self.setup == "pass" or not self.setup else f"setup:\n{textwrap.indent(self.setup, '  ')}" \
            if "\n" in self.setup else f"setup: {self.setup}"

    def summarize(self) -> str:
        """All that is said of the task."""
        parts = [self.title, self.description or "", self.setup_str()]
        return "\n".join(p if "\n" not in p else p + "\n" for p in parts if p)


@dataclasses.dataclass(init=True, repr=False)
class Measurement:
    """The times of some runs of a task; seconds."""

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[Any, Any] | None = None

    def __post_init__(self) -> None:
        times = sorted(t / self.number_per_run for t in self.raw_times)
        self._sorted = times

    @property
    def times(self) -> list[float]:
        """The time of one execution, for each run."""
        return [t / self.number_per_run for t in self.raw_times]

    def _quantile(self, part: float) -> float:
        place = part * (len(self._sorted) - 1)
        low = math.floor(place)
        high = min(low + 1, len(self._sorted) - 1)
        return self._sorted[low] + (self._sorted[high] - self._sorted[low]) * (place - low)

    @property
    def median(self) -> float:
        """The middle of the times."""
        return statistics.median(self._sorted)

    @property
    def mean(self) -> float:
        """The mean of the times."""
        return statistics.fmean(self._sorted)

    @property
    def iqr(self) -> float:
        """The width of the middle half of the times."""
        return self._quantile(0.75) - self._quantile(0.25)

    @property
    def significant_figures(self) -> int:
        """How many significant digits the times support."""
        count = len(self._sorted)
        lower, upper = self._quantile(0.25), self._quantile(0.75)
        # The middle half, made narrower by the number of runs, is about the interval that the median lies in.
        interval = max(1.645 * 1.25 * (upper - lower) / (1.35 * math.sqrt(count)), _MIN_CONFIDENCE_INTERVAL)
        relative = -math.log10(interval / self.median)
        return int(min(max(math.floor(relative), 1), _MAX_SIGNIFICANT_FIGURES))

    @property
    def has_warnings(self) -> bool:
        """Whether the times are noisy."""
        return len(self._sorted) > 1 and self.iqr / self.median > _IQR_WARN_THRESHOLD

    def meets_confidence(self, threshold: float = _IQR_WARN_THRESHOLD) -> bool:
        """Whether the middle half of the times is narrow."""
        return self.iqr / self.median < threshold

    title = property(lambda self: self.task_spec.title, doc="The name of the task.")
    env = property(lambda self: self.task_spec.env, doc="Where it was measured.")
    num_threads = property(lambda self: self.task_spec.num_threads, doc="With how many threads.")
    label = property(lambda self: self.task_spec.label, doc="The name of the group.")
    sub_label = property(lambda self: self.task_spec.sub_label, doc="The name of the row.")
    description = property(lambda self: self.task_spec.description, doc="The name of the column.")
    stmt = property(lambda self: self.task_spec.stmt, doc="The statement.")
    setup = property(lambda self: self.task_spec.setup, doc="What runs before.")

    @property
    def as_row_name(self) -> str:
        """The name of the row in a table."""
        return self.sub_label or self.stmt or "[Unknown]"

    def __repr__(self) -> str:
        found = [f"{object.__repr__(self)}\n{self.task_spec.summarize()}"]
        unit, scale = select_unit(self.median)
        count = len(self.raw_times)
        if count == 1:
            found.append(f"  {self.median / scale:.2f} {unit}")
        else:
            found.append(f"  Median: {self.median / scale:.2f} {unit}")
        if count >= 4:
            found.append(f"  IQR:    {self.iqr / scale:.2f} {unit} ({self._quantile(0.25) / scale:.2f} to "
                         f"{self._quantile(0.75) / scale:.2f})")
        found.append(f"  {count} measurement{'s' if count > 1 else ''}, {self.number_per_run} runs "
                     f"{'per measurement' if count > 1 else ''}, {self.num_threads} thread"
                     f"{'s' if self.num_threads > 1 else ''}")
        if self.has_warnings:
            found.append(f"  WARNING: Interquartile range is {self.iqr / self.median * 100:.1f}% of the median measurement.\n"
                         f"           {self._why()}")
        return "\n".join(found)

    def _why(self) -> str:
        if self.iqr / self.median > _IQR_GROSS_WARN_THRESHOLD:
            return "This suggests significant environmental influence."
        return "This could indicate system fluctuation."

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """One measurement for each task."""
        groups: dict[TaskSpec, list[Measurement]] = collections.defaultdict(list)
        for m in measurements:
            groups[m.task_spec].append(m)
        return [Measurement(1, [t for m in group for t in m.times], task, None) for task, group in groups.items()]


def select_unit(t: float) -> tuple[str, float]:
    """The unit in which a time is short, in seconds."""
    exponent = int(math.log10(t) // 3) if t > 0 else 0
    unit = {-3: "ns", -2: "us", -1: "ms"}.get(exponent, "s")
    return unit, _UNITS[unit][1]


def unit_to_english(u: str) -> str:
    """The name of a unit."""
    return _UNITS[u][0]


def trim_sigfig(x: float, n: int) -> float:
    """A number with so many digits."""
    if x == 0:
        return 0.0
    magnitude = int(math.ceil(math.log10(abs(x))))
    scale = 10 ** (magnitude - n)
    return round(x / scale) * scale


def ordered_unique(elements: Iterable[Any]) -> list[Any]:
    """The elements, each once."""
    return list(dict.fromkeys(elements))


@contextlib.contextmanager
def set_torch_threads(n: int) -> Iterator[None]:
    """A with block in which torch uses so many threads."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(n)
        yield
    finally:
        torch.set_num_threads(before)
