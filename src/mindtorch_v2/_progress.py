"""What takes long says how far it is: a line that is written over on a terminal, plain lines elsewhere, on stderr."""
from __future__ import annotations

import sys
import time
from typing import Any, TextIO

PATIENCE = 1.0                # seconds before anything is said: what is quick stays silent
BETWEEN = {True: 0.1, False: 10.0}     # seconds between two states, on a terminal and elsewhere


class Progress:
    """A with block that is told what is done; total None: it is not known. Silent elsewhere than on a terminal with
    plain=False, for functions of a library whose callers own what is printed."""

    def __init__(self, title: str, total: int | None, unit: str = "", plain: bool = True, stream: TextIO | None = None) -> None:
        self.title, self.total, self.unit, self.done = title, total, unit, 0
        self.stream: Any = stream or sys.stderr
        self.on_terminal = bool(self.stream is not None and self.stream.isatty())
        self.silent = self.stream is None or not (plain or self.on_terminal)
        self.began = time.monotonic()
        self.next, self.shown = self.began + PATIENCE, False

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: Any, *exc: Any) -> None:
        if self.shown and self.on_terminal:
            self._write("" if kind is None else self.text(), "\r" if kind is None else "\n")

    def advance(self, amount: int = 1) -> None:
        """More is done."""
        self.done += amount
        if not self.silent and time.monotonic() >= self.next:
            self._write(self.text(), "" if self.on_terminal else "\n")
            self.next, self.shown = time.monotonic() + BETWEEN[self.on_terminal], True

    def text(self) -> str:
        """The state as a line."""
        seconds = max(time.monotonic() - self.began, 1e-9)
        done, total = self.amount(self.done), "" if self.total is None else f" of {self.amount(self.total)}"
        share = "" if not self.total else f" {min(100 * self.done // self.total, 100)}%"
        bar = f" [{'=' * min(20 * self.done // self.total, 20):20}]" if self.total and self.on_terminal else ""
        return f"{self.title}{bar}{share}  {done}{total}, {self.amount(int(self.done / seconds))}/s"

    def amount(self, number: int) -> str:
        """A number with its unit; bytes in MB."""
        return f"{number / 1e6:,.1f} MB" if self.unit == "bytes" else f"{number:,}{self.unit and ' ' + self.unit}"

    def _write(self, text: str, end: str) -> None:
        self.stream.write(f"\r{text:79}{end}" if self.on_terminal else f"{text}{end}")
        self.stream.flush()
