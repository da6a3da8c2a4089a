"""The simulator of this process under test: its fault plan, the calls that it counts, and what is alive in it."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from . import home


@cache
def _library() -> Any:
    return ctypes.CDLL(f"{home()}/lib64/libascendcl.so")


def _text(function: str) -> str:
    ask = getattr(_library(), function)
    ask.argtypes, ask.restype = [ctypes.c_char_p, ctypes.c_size_t], ctypes.c_size_t
    room = ask(None, 0)
    while True:  # another thread may make more of it meanwhile
        buffer = ctypes.create_string_buffer(room)
        needed = ask(buffer, room)
        if needed <= room:
            return buffer.value.decode()
        room = needed


def set_faults(plan: str) -> None:
    """Replaces the fault plan (CANN_SIM_FAULTS); every count begins again. "" is no plan."""
    if _library().cannSimSetFaults(plan.encode()):
        raise ValueError(f"[cann_sim] expected a fault plan, got {plan!r}")


def count_calls(on: bool) -> None:
    """Counts calls from now on, from 0; or stops."""
    _library().cannSimCountCalls(int(on))


def calls() -> dict[str, int]:
    """How often each was called since count_calls(True), by the names of a fault plan."""
    lines = (line.split(" ", 1) for line in _text("cannSimCalls").splitlines())
    return {name: int(count) for count, name in lines}


def alive() -> dict[str, tuple[int, int]]:
    """(how many, their bytes) of everything that a client has made and not destroyed, by kind."""
    lines = (line.split(" ", 2) for line in _text("cannSimAlive").splitlines())
    return {kind: (int(count), int(size)) for count, size, kind in lines}
