"""The calls that this process makes of the simulator: each launch of an aclnn op with its arguments, others by name."""

from __future__ import annotations

from .faults import _library, _text


def record(on: bool) -> None:
    """Records calls from now on, from nothing; or stops."""
    _library().cannSimRecordCalls(int(on))


def recorded() -> list[tuple[int, str]]:
    """(how often, text) of each call that differs, in the order in which they came first."""
    lines = (line.split(" ", 1) for line in _text("cannSimRecordedCalls").splitlines())
    return [(int(count), text) for count, text in lines]
