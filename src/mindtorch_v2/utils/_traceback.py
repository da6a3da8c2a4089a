"""Tracebacks as PyTorch's helpers show them."""
from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from typing import Any

import mindtorch_v2 as torch


class CapturedTraceback:
    """Where the program was."""

    def __init__(self, summary: traceback.StackSummary) -> None:
        self._summary = summary

    @staticmethod
    def extract(*, script: bool = False, cpp: bool = False, skip: int = 0) -> CapturedTraceback:
        """The place of the caller, without the innermost `skip` frames."""
        found = traceback.extract_stack()
        return CapturedTraceback(traceback.StackSummary.from_list(found[: len(found) - 1 - skip]))

    def summary(self) -> traceback.StackSummary:
        """Its frames."""
        return self._summary

    def format(self) -> list[str]:
        """Its lines."""
        return traceback.format_list(self._summary)

    @staticmethod
    def format_all(tbs: Any) -> list[list[str]]:
        """The lines of several."""
        return [found.format() for found in tbs]


def format_frame(frame: Any, *, base: str | None = None, line: bool = False) -> str:
    """A frame in one line."""
    return f"{f'{frame.line}  # ' if line else ''}{frame.filename}:{frame.lineno} in {frame.name}"


def format_traceback_short(tb: Any) -> str:
    """The innermost frame of a traceback in one line."""
    return format_frame(traceback.extract_tb(tb)[-1])


@contextlib.contextmanager
def report_compile_source_on_error() -> Iterator[None]:
    """Changes nothing: no code is generated whose source would have to be shown."""
    yield

torch._named.complete(__name__)
