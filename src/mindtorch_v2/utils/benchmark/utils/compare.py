"""Compare: measurements as a table, one row for each task and one column for each description."""
from __future__ import annotations

import collections
import enum
import itertools
from typing import Any

from mindtorch_v2.utils.benchmark.utils import common

__all__ = ["Colorize", "Compare"]

BEST, GOOD, BAD, VERY_BAD = "\033[92m", "\033[34m", "\033[2m\033[91m", "\033[31m"
BOLD, TERMINATE = "\033[1m", "\033[0m"


class Colorize(enum.Enum):
    """What is compared by colours."""

    NONE = "none"
    COLUMNWISE = "columnwise"
    ROWWISE = "rowwise"


class Compare:
    """A table of measurements; print() shows it."""

    def __init__(self, results: list[common.Measurement]) -> None:
        self._results: list[common.Measurement] = []
        self.extend_results(results)
        self._trim = self._warn = False
        self._colors = Colorize.NONE

    def extend_results(self, results: list[common.Measurement]) -> None:
        """Adds measurements."""
        for result in results:
            if not isinstance(result, common.Measurement):
                raise ValueError(f"Expected an instance of `Measurement`, got {type(result)} instead.")
        self._results.extend(results)

    def trim_significant_figures(self) -> None:
        """Shows no more digits than the measurements have."""
        self._trim = True

    def colorize(self, rowwise: bool = False) -> None:
        """Shows which is best by colours."""
        self._colors = Colorize.ROWWISE if rowwise else Colorize.COLUMNWISE

    def highlight_warnings(self) -> None:
        """Marks noisy measurements."""
        self._warn = True

    def print(self) -> None:
        """Prints the table."""
        print(self)

    def __str__(self) -> str:
        results = common.Measurement.merge(self._results)
        groups: dict[Any, list[common.Measurement]] = collections.defaultdict(list)
        for result in results:
            groups[result.label].append(result)
        return "\n".join(_Table(group, self._colors, self._trim, self._warn).render() for group in groups.values())


class _Table:
    """One group of measurements."""

    def __init__(self, results: list[common.Measurement], colors: Colorize, trim: bool, warn: bool) -> None:
        self.results, self.colors, self.trim, self.warn = results, colors, trim, warn
        self.label = results[0].label
        self.unit, self.scale = common.select_unit(min(r.median for r in results))
        self.columns = common.ordered_unique(r.description for r in results)
        self.rows = common.ordered_unique((r.num_threads, r.env, r.as_row_name) for r in results)
        self.rows.sort(key=lambda row: row[0])
        self.cells = {((r.num_threads, r.env, r.as_row_name), r.description): r for r in results}

    def text(self, result: common.Measurement | None, digits: int) -> str:
        if result is None:
            return ""
        value = result.median / self.scale
        if self.trim:
            value = common.trim_sigfig(value, result.significant_figures)
        shown = f"{value:.{digits}f}"
        return f"(! XX%) {shown}".replace("XX", f"{result.iqr / result.median * 100:.0f}") if self.warn and result.has_warnings \
            else shown

    def digits(self, column: Any) -> int:
        found = [r for (_, c), r in self.cells.items() if c == column]
        if not self.trim:
            return 1
        return max(max(0, r.significant_figures - len(str(int(r.median / self.scale)))) for r in found)

    def color(self, row: Any, column: Any, text: str) -> str:
        result = self.cells.get((row, column))
        if self.colors is Colorize.NONE or result is None:
            return text
        near = [r for (other, c), r in self.cells.items() if (c == column if self.colors is Colorize.COLUMNWISE else other == row)]
        best = min(r.median for r in near)
        if result.median <= best * 1.05:
            return f"{BEST}{BOLD}{text}{TERMINATE}{TERMINATE}" if result.median <= best * 1.1 else text
        shade = GOOD if result.median <= best * 1.25 else BAD if result.median > best * 2 else ""
        return f"{shade}{text}{TERMINATE}" if shade else text

    def render(self) -> str:
        texts = {(row, column): self.text(self.cells.get((row, column)), self.digits(column))
                 for row in self.rows for column in self.columns}
        names = [f"{env + ': ' if env else ''}{name}" for _, env, name in self.rows]
        name_width = max(len(n) for n in names)
        widths = [max(len(str(column or "")), *(len(texts[row, column]) for row in self.rows)) for column in self.columns]
        head = " " * (6 + name_width) + "  |  " + "  |  ".join(str(c or "").center(w) if self.trim or len(str(c or "")) >= w
                                                              else str(c or "").rjust(w) for c, w in zip(self.columns, widths))
        width = len(head)
        title = f" {self.label} " if self.label else ""
        lines = [f"[{title.center(width - 2, '-')}]", head]
        for threads, rows in itertools.groupby(zip(self.rows, names), key=lambda pair: pair[0][0]):
            lines.append(f"{threads} threads: ".ljust(width, "-"))
            for row, name in rows:
                cells = [self.color(row, column, texts[row, column].ljust(w) if self.trim else texts[row, column].rjust(w))
                         for column, w in zip(self.columns, widths)]
                lines.append(" " * 6 + name.ljust(name_width) + "  |  " + "  |  ".join(cells))
        return "\n".join(lines) + f"\n\nTimes are in {common.unit_to_english(self.unit)}s ({self.unit}).\n"
