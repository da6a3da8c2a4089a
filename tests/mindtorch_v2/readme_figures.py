"""Figures of the READMEs, taken from the pages that commands write.

    python tests/mindtorch_v2/readme_figures.py       (the make targets that write those pages run it)

A README names each figure once, in a form that is the same in both languages: `668 / 697`. Only the figures are replaced.
"""
from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
READMES = ("README.md", "README.zh-CN.md")
COUNT = r"[\d,]+ / [\d,]+"


def _coverage() -> str:
    """Items that pass, of all, for each device."""
    text = (ROOT / "docs/coverage.md").read_text()
    found = []
    for device in ("cpu", "npu"):
        row = re.search(r"^\| \*\*all\*\* \|(.*)\|$", text.partition(f"\n## {device}\n")[2], re.M)
        if row is None:
            raise ValueError(f"docs/coverage.md has no table of {device}")
        counts = [int(item.strip() or 0) for item in row[1].split("|")]
        found.append(f"{device} {counts[0]:,} / {sum(counts):,}")
    return ", ".join(found)


def _calls() -> str:
    """Ops without an open difference from torch_npu's calls of CANN, of those compared."""
    found = re.search(r"^([\d,]+) ops compared; ([\d,]+) without an open difference", (ROOT / "docs/card.md").read_text(), re.M)
    if found is None:
        raise ValueError("docs/card.md has no section of make call-parity")
    return f"{found[2]} / {found[1]}"


def _packages() -> str:
    """Packages that import, of those tried."""
    rows = re.findall(r"^\| [\w.-]+ \| [\w.]+ \| (yes|no)", (ROOT / "docs/ecosystem.md").read_text(), re.M)
    return f"{rows.count('yes')} / {len(rows)}"


def _footprint(module: str) -> tuple[str, str]:
    """(size on disk, time and memory of the import) as docs/performance.md has them."""
    found = re.search(rf"^{module} +([\d.]+) +(\d+ MB) +(\d+ MB)$", (ROOT / "docs/performance.md").read_text(), re.M)
    if found is None:
        raise ValueError(f"docs/performance.md has no figures of {module}")
    return found[3], f"{found[1]} s, {found[2]}"


def figures() -> dict[str, str]:
    """What marks a figure's line, and its place there -> the figure. A pattern's one group is what is replaced."""
    ours, theirs = _footprint("mindtorch_v2"), _footprint("torch,torch_npu")
    size, span = r"\d+ MB", r"[\d.]+ s, \d+ MB"
    return {
        rf"\| ({size}) \| {size} [^|]*\| `make footprint`": ours[0],
        rf"\| {size} \| ({size}) [^|]*\| `make footprint`": theirs[0],
        rf"\| ({span}) \| {span} \| `make footprint`": ours[1],
        rf"\| {span} \| ({span}) \| `make footprint`": theirs[1],
        rf"\| (cpu {COUNT}, npu {COUNT}) \|[^|]*\| `make parity`": _coverage(),
        rf"\| ({COUNT}) \|[^|]*\| `make call-parity`": _calls(),
        rf"\| ({COUNT}) \|[^|]*\| `make ecosystem`": _packages(),
    }


def updated(text: str) -> str:
    """A README with the figures of now; an error where it lacks one."""
    for pattern, figure in figures().items():
        found = re.search(pattern, text)
        if found is None:
            raise ValueError(f"no figure at {pattern}")
        text = text[:found.start(1)] + figure + text[found.end(1):]
    return text


def main() -> int:
    for name in READMES:
        path = ROOT / name
        before = path.read_text()
        after = updated(before)
        if after != before:
            path.write_text(after)
            print(f"{name}: figures brought up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
