"""FileCheck: which lines a text has, in which order; of LLVM's tool of that name, for tests of printed programs."""
from __future__ import annotations

import re
from typing import Any, NamedTuple


class _Check(NamedTuple):
    kind: str           # "", -SAME, -NEXT, -NOT, -DAG, -COUNT, -REGEX, -SOURCE-HIGHLIGHTED
    text: str
    times: int = 1
    exactly: bool = False


class FileCheck:
    """Checks that are added one by one and run over a text, each from the end of what the one before it found."""

    def __init__(self) -> None:
        self._checks: list[_Check] = []
        self._has_run = False

    def __del__(self) -> None:
        if not self._has_run and self._checks:
            print("You have not run this instance of FileCheck!\nFileCheck checks:")
            for check in self._checks:
                print(f"\tCHECK{check.kind}: {check.text}")

    def _add(self, *check: Any) -> FileCheck:
        self._checks.append(_Check(*check))
        return self

    def check(self, text: str) -> FileCheck:
        """The text comes somewhere behind."""
        return self._add("", text)

    def check_same(self, text: str) -> FileCheck:
        """The text comes behind on the same line."""
        return self._add("-SAME", text)

    def check_next(self, text: str) -> FileCheck:
        """The text comes on the next line."""
        return self._add("-NEXT", text)

    def check_not(self, text: str) -> FileCheck:
        """The text does not come before what the next check finds."""
        return self._add("-NOT", text)

    def check_dag(self, text: str) -> FileCheck:
        """The text comes behind, in any order with its neighbours of this kind."""
        return self._add("-DAG", text)

    def check_count(self, text: str, count: int, exactly: bool = False) -> FileCheck:
        """The text comes so often; exactly: and no more."""
        return self._add(f"-COUNT-{'EXACTLY-' if exactly else ''}{count}", text, count, exactly)

    def check_regex(self, text: str) -> FileCheck:
        """A regular expression is found behind."""
        return self._add("-REGEX", text)

    def check_source_highlighted(self, text: str) -> FileCheck:
        """The text comes with a line of ~~~ under it."""
        return self._add("-SOURCE-HIGHLIGHTED", text)

    def run(self, test: Any) -> None:
        """Raises RuntimeError unless all checks hold; test: a text, or an object whose str() is one."""
        self._has_run = True
        text, place, i = str(test), 0, 0
        while i < len(self._checks):
            kind = self._checks[i].kind
            j = i + 1
            if kind in ("-NOT", "-DAG"):
                while j < len(self._checks) and self._checks[j].kind == kind:
                    j += 1
            group = self._checks[i:j]
            if kind == "-NOT":
                end = self._find(text, place, self._checks[j])[0] if j < len(self._checks) else len(text)
                self._refuse(text, place, end, group)
            elif kind == "-DAG":
                place = max(self._find(text, place, check)[1] for check in group)
            else:
                place = self._found(text, place, group[0])
            i = j

    def _refuse(self, text: str, begin: int, end: int, group: list[_Check]) -> None:
        for check in group:
            at = text.find(check.text, begin, end)
            if at >= 0:
                raise RuntimeError(f'Expected to not find "{check.text}" but found it\n{_around(text, at, at + len(check.text))}'
                                   f"From CHECK-NOT: {check.text}\n")

    def _found(self, text: str, place: int, check: _Check) -> int:
        for _ in range(check.times):
            if check.kind == "-NEXT":
                place = text.find("\n", place) + 1 or len(text)
            begin, end = self._find(text, place, check)
            if check.kind in ("-SAME", "-NEXT") and "\n" in text[place:begin]:
                raise RuntimeError(f'Expected to not find "\\n" but found it\n{_around(text, begin, end)}'
                                   f"From CHECK{check.kind}: {check.text}\n")
            place = end
        if check.exactly:
            self._refuse(text, place, len(text), [check])
        return place

    def _find(self, text: str, place: int, check: _Check) -> tuple[int, int]:
        """Where what a check looks for begins and ends."""
        if check.kind == "-REGEX":
            match = re.search(check.text, text[place:])
            if match is not None:
                return place + match.start(), place + match.end()
        elif check.kind == "-SOURCE-HIGHLIGHTED":
            found = _highlighted(text, place, check.text)
            if found is not None:
                return found
        else:
            at = text.find(check.text, place)
            if at >= 0:
                return at, at + len(check.text)
        what = "regex " if check.kind == "-REGEX" else ""
        raise RuntimeError(f'Expected to find {what}"{check.text}" but did not find it\nSearched string:\n'
                           f"{_around(text, place, place)}From CHECK{check.kind}: {check.text}\n")


def _around(text: str, begin: int, end: int) -> str:
    """A few lines around a place, the place marked."""
    first = text.rfind("\n", 0, begin) + 1
    last = text.find("\n", end)
    last = len(text) if last < 0 else last
    marks = " " * (begin - first) + "~" * max(end - begin, 1) + " <--- HERE"
    return f"{text[first:last]}\n{marks}\n"


def _highlighted(text: str, place: int, wanted: str) -> tuple[int, int] | None:
    """A line with the text whose next line has ~ under exactly the text."""
    at = text.find(wanted, place)
    while at >= 0:
        column, end = at - (text.rfind("\n", 0, at) + 1), text.find("\n", at)
        if end >= 0:
            below = text[end + 1:text.find("\n", end + 1) if "\n" in text[end + 1:] else len(text)]
            marked = below[column:column + len(wanted)]
            if marked == "~" * len(wanted) and not below[:column].endswith("~") and \
                    not below[column + len(wanted):].startswith("~"):
                return at, end + 1 + len(below)
        at = text.find(wanted, at + 1)
    return None
