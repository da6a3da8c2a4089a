"""Writes docs/coverage.md from what coverage_run.py found: pass, missing, wrong, by family and dtype."""
from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

KINDS = {"UnaryUfuncInfo": "pointwise, one tensor", "BinaryUfuncInfo": "pointwise, two tensors",
         "ReductionOpInfo": "reductions", "ShapeFuncInfo": "shapes", "SpectralFuncInfo": "fft", "ForeachFuncInfo": "foreach"}
PREFIXES = ("nn.functional", "linalg", "fft", "special", "masked", "signal", "sparse")
VERDICTS = ("pass", "missing", "wrong", "crash", "skipped")


def family_of(record: dict[str, Any]) -> str:
    """Where an item stands in the tables."""
    name = record["key"][0]
    prefix = next((prefix for prefix in PREFIXES if name.startswith(prefix + ".")), None)
    return prefix or KINDS.get(record["kind"]) or ("other ops" if record["kind"].endswith("Info") else record["kind"])


def read(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """device -> records."""
    found: dict[str, list[dict[str, Any]]] = {}
    for file in sorted(folder.glob("*.jsonl")):
        device = file.stem.partition("-")[2]
        found.setdefault(device, []).extend(json.loads(line) for line in file.read_text().splitlines())
    return found


def table(records: list[dict[str, Any]], title: str, by: Any) -> list[str]:
    """Counts of verdicts by what a function says of a record."""
    counts: dict[str, Counter[str]] = {}
    for record in records:
        counts.setdefault(by(record), Counter())[record["verdict"]] += 1
    lines = [f"| {title} | {' | '.join(VERDICTS)} |", "|---" * (len(VERDICTS) + 1) + "|"]
    total: Counter[str] = sum(counts.values(), Counter())
    for name, count in [*sorted(counts.items()), ("**all**", total)]:
        lines.append(f"| {name} | {' | '.join(str(count[verdict] or '') for verdict in VERDICTS)} |")
    return lines


def listed(records: list[dict[str, Any]]) -> list[str]:
    """What is not good, an op a line."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        if record["verdict"] in ("missing", "wrong", "crash"):
            by_name.setdefault(record["key"][0], []).append(record)
    lines = []
    for name, found in sorted(by_name.items()):
        why = " ".join(re.sub(r" \(/\S+\)", "", found[0]["why"]).replace("|", "/").replace("`", "'").split())[:140]  # no paths
        dtypes = ", ".join(record["key"][1] for record in found)
        lines.append(f"- `{name}` ({dtypes}): {found[0]['verdict']}: {why}")
    return lines


def report(found: dict[str, list[dict[str, Any]]], command: str) -> str:
    """The whole page."""
    lines = ["# Coverage of PyTorch's own lists", "",
             "Made by `make parity`; do not edit. `torch.testing._internal` of PyTorch 2.13 (`op_db`, `module_db`, `optim_db`) is "
             "imported over this library, its samples are our tensors, and PyTorch in a second process judges results and "
             "gradients. An item is an op in one dtype: it passes when all its samples agree (or both libraries refuse); "
             "missing: our error says that something is not there; skipped: a sample cannot be sent to the other process. What "
             "PyTorch draws at random is compared by value on cpu, and by shape and dtype on npu, which has its own generator.",
             "", f"Run with `{command}`.", ""]
    for device, records in found.items():
        lines += [f"## {device}", "", *table(records, "family", family_of), "",
                  *table(records, "dtype", lambda record: record["key"][1]), "", *listed(records), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(report(read(Path(sys.argv[1])), " ".join(sys.argv[3:]) or "make parity"))
