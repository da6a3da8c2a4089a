"""What CANN_SIM_CHECK has found in this process: races, memory used wrongly, leaks."""

from __future__ import annotations

from .faults import _library, _text


def reports() -> list[tuple[int, str]]:
    """(how often, text) of each report since clear(), in the order in which they came first."""
    lines = (line.split(" ", 1) for line in _text("cannSimReports").splitlines())
    return [(int(count), text) for count, text in lines]


def clear() -> None:
    """Forgets what was reported; the same is reported again when it is found again."""
    _library().cannSimClearReports()
