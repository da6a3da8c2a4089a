"""Compares what this library sends to CANN with what torch_npu sends, sample by sample, and writes the table.

    python tests/mindtorch_v2/call_parity.py --peer PYTHON --out build/calls [--report docs/card.md] [--only REGEX]

Both run the samples of PyTorch's op_db, its modules and optimizers and some models on the simulator (call_recorder.py), and
small programs around the runtime (call_runtime.py). Of each launch the op, and the dtype, sizes,
strides, offset, format and value of every argument count; the workspace does not, because the simulator chose it.
A launch that torch_npu does not make for the same sample may be one that it makes for others (attested: the same op with the
same dtypes, formats and absent arguments), or one whose dtypes and ranks the documents of CANN state (documented).
"""
from __future__ import annotations

import argparse
import collections
import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import call_runtime
from card_page import write_section

import cann_tables

HERE = Path(__file__).resolve().parent
REASONS = HERE / "call_reasons.txt"
OUTCOMES = ("same", "attested", "documented", "open", "ours refuses", "torch_npu refuses", "both refuse", "host")
MOST_STARTS = 12


class Verdict(NamedTuple):
    """One sample in one direction."""
    name: str
    dtype: str
    way: str
    outcome: str
    detail: str

    @property
    def kind(self) -> str:
        """What the name is one of; call_programs.py puts it before the name."""
        return next((kind for kind in ("module", "optimizer", "model") if self.name.startswith(kind + " ")), "op")


def without_workspace(call: str) -> str:
    return call.rpartition(" workspace ")[0]


def op_of(call: str) -> str:
    return call.partition("(")[0]


@functools.cache
def arguments(call: str) -> tuple[tuple[str, str], ...]:
    """(name, text) of the arguments of a launch."""
    inside = without_workspace(call) if " workspace " in call else call
    parts = re.split(r", (?=\w+=)", inside.partition("(")[2].removesuffix(")"))
    return tuple((part.partition("=")[0], part.partition("=")[2]) for part in parts if part)


def tensors(text: str) -> list[tuple[str, int]]:
    """(dtype, rank) of the tensors in the text of an argument."""
    return [(dtype, sizes.count(",") + 1 if sizes else 0) for dtype, sizes in re.findall(r"\b([a-z]+\d*)\[([\d,]*)\]", text)]


@functools.cache
def signature(call: str) -> str:
    """The op with the dtypes and formats of its tensors, what is absent, and how it may round."""
    words = []
    for name, text in arguments(call):
        formats = re.findall(r" format (\d+)", text)
        kinds = " ".join(sorted({dtype for dtype, _ in tensors(text)}))
        words.append(f"{name}={text if text == 'null' or name == 'cubeMathType' else kinds} {' '.join(sorted(set(formats)))}")
    return f"{op_of(call)}({', '.join(words)})"


@functools.cache
def is_stated(call: str) -> bool:
    """Whether the tables, which are CANN's documents, state every dtype and rank of a launch."""
    found = cann_tables.op(op_of(call))
    if found is None or found.arguments is None:
        return False
    for argument, (_, text) in zip(found.arguments, arguments(call), strict=True):
        for dtype, rank in tensors(text) if "tensor" in argument.kind or "out" in argument.kind else ():
            if dtype not in argument.dtypes or not argument.ranks[0] <= rank <= argument.ranks[1]:
                return False
    return True


def reasons() -> list[tuple[re.Pattern[str], str]]:
    """(pattern of a difference, why it is right) of each line `PATTERN  # REASON`."""
    lines = (line.rpartition("  # ") for line in REASONS.read_text().splitlines() if line and not line.startswith("#"))
    return [(re.compile(pattern.strip()), why) for pattern, _, why in lines]


def difference(ours: Iterable[str], theirs: Iterable[str]) -> str:
    """The launches that only one of both makes; "" where there are none. Order does not count: streams keep it."""
    mine, other = collections.Counter(map(without_workspace, ours)), collections.Counter(map(without_workspace, theirs))
    lines = [f"- {call}" for call in (mine - other).elements()] + [f"+ {call}" for call in (other - mine).elements()]
    return "\n".join(lines)


def short(detail: str) -> str:
    """The ops of a difference alone, which is what a reason explains."""
    signs = [f"{line[0]}{op_of(line[2:])}" for line in detail.splitlines()]
    return " ".join(sorted(set(signs)))


def judge(name: str, dtype: str, way: str, ours: dict[str, Any], theirs: dict[str, Any],
          known: list[tuple[re.Pattern[str], str]], attested: frozenset[str] = frozenset()) -> Verdict:
    """What one direction of a sample comes to."""
    if "error" in ours or "error" in theirs:
        outcome = "both refuse" if "error" in ours and "error" in theirs else \
            "ours refuses" if "error" in ours else "torch_npu refuses"
        return Verdict(name, dtype, way, outcome, ours.get("error", "") if outcome == "ours refuses" else "")
    if not ours["calls"] and not theirs["calls"]:
        return Verdict(name, dtype, way, "host", "")
    detail = difference(ours["calls"], theirs["calls"])
    if not detail:
        return Verdict(name, dtype, way, "same", "")
    said = f"{name} {dtype} {way} {short(detail)}"
    doubtful = [call for call in map(without_workspace, ours["calls"]) if signature(call) not in attested]
    if not doubtful:
        outcome = "attested"
    elif any(pattern.search(said) for pattern, _ in known) or all(map(is_stated, doubtful)):
        outcome = "documented"
    else:
        outcome, detail = "open", "\n".join(f"- {call}" for call in doubtful if not is_stated(call))
    return Verdict(name, dtype, way, outcome, detail)


def compare(ours: dict[str, Any], theirs: dict[str, Any]) -> list[Verdict]:
    """All samples that both have."""
    known, found = reasons(), []
    attested = frozenset(signature(without_workspace(call)) for samples in theirs.values() for sample in samples or []
                         for way in sample.values() for call in way.get("calls", ()))
    for key in ours.keys() & theirs.keys():
        name, _, dtype = key.rpartition(" ")
        for mine, other in zip(ours[key] or [], theirs[key] or [], strict=False):
            for way in mine.keys() & other.keys():
                found.append(judge(name, dtype, way, mine[way], other[way], known, attested))
    return sorted(found)


def read(file: Path) -> dict[str, Any]:
    return {item["key"]: item["samples"] for item in map(json.loads, file.read_text().splitlines())}


def record(python: str, library: str, file: Path, rest: list[str]) -> None:
    """Runs the recorder of a library to its end; a sample that ends the process costs itself and a start."""
    file.unlink(missing_ok=True)
    command = [str(Path(sys.executable).parent / "cann-sim"), "run", python, str(HERE / "call_recorder.py"),
               "--library", library, "--out", str(file), *rest]
    environ = {**os.environ, "TASK_QUEUE_ENABLE": "0"}     # torch_npu launches where it is called
    for _ in range(MOST_STARTS):
        if subprocess.run(command, env=environ, stderr=subprocess.DEVNULL).returncode == 0:
            return
    sys.exit(f"{library} did not come to the end of the samples in {MOST_STARTS} processes")


def table(verdicts: list[Verdict], by: str) -> list[str]:
    """Counts of outcomes, a row for each value of a field."""
    rows: dict[str, collections.Counter[str]] = {}
    for verdict in verdicts:
        for row in (getattr(verdict, by), "**all**"):
            rows.setdefault(row, collections.Counter())[verdict.outcome] += 1
    lines = [f"| {by} | " + " | ".join(OUTCOMES) + " |", "|---" * (len(OUTCOMES) + 1) + "|"]
    for row in sorted(rows, key=lambda name: (name == "**all**", name)):
        lines.append(f"| {row} | " + " | ".join(str(rows[row][outcome] or "") for outcome in OUTCOMES) + " |")
    return lines


def report(verdicts: list[Verdict], command: str) -> str:
    """The section of docs/card.md."""
    opened = collections.Counter(verdict.name for verdict in verdicts if verdict.outcome == "open")
    names = {kind: {verdict.name for verdict in verdicts if verdict.kind == kind} for kind in ("op", "module", "optimizer", "model")}
    counts = [f"{len(found)} {kind}s compared; {len(found - opened.keys())} without an open difference." for kind, found in
              names.items() if found]
    lines = [f"Made by `{command}`; do not edit. PyTorch's `op_db`, `module_db` and `optim_db`, layers of transformers and the networks of the examples run on torch_npu and on this library, both on the simulator, "
             "and the launches of aclnn ops are compared with dtypes, sizes, strides, offsets, formats and values of their "
             "arguments. attested: other launches than torch_npu's for that sample, each of which torch_npu makes elsewhere (the same "
             "op with the same dtypes, formats, absent arguments and cubeMathType); documented: CANN's documents state the "
             "dtypes and ranks, or there is a reason in `tests/mindtorch_v2/call_reasons.txt`; open: neither; host: nothing is "
             "launched.", "",
             *counts, "", *table(verdicts, "kind"), "",
             *table(verdicts, "dtype"), "", *table(verdicts, "way"),
             "", "### Open differences", "",
             "The first of each name: launches that torch_npu does not make and CANN's documents do not state." if opened else
             "None: every launch is one that torch_npu makes too, or that CANN's documents state.", ""]
    for name in sorted(opened):
        first = next(verdict for verdict in verdicts if verdict.name == name and verdict.outcome == "open")
        lines += [f"- `{name}` ({opened[name]}), {first.dtype}, {first.way}", "", "  ```", *(f"  {line}"[:230] for line in
                                                                                    first.detail.splitlines()[:6]), "  ```"]
    return "\n".join(lines) + "\n"


def runtime_report(folder: Path) -> str:
    """The section about functions of the runtime."""
    ours, theirs = (json.loads((folder / f"{library}.runtime.json").read_text()) for library in ("mindtorch_v2", "torch_npu"))
    return call_runtime.report(call_runtime.compare(ours, theirs, reasons()), ours, theirs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="the Python that has torch_npu; without it the records of before are compared")
    parser.add_argument("--out", type=Path, required=True, help="folder of the records")
    parser.add_argument("--report", type=Path)
    options, rest = parser.parse_known_args()
    options.out.mkdir(parents=True, exist_ok=True)
    ours, theirs = options.out / "mindtorch_v2.jsonl", options.out / "torch_npu.jsonl"
    if options.peer:
        record(options.peer, "torch_npu", theirs, rest)
        record(sys.executable, "mindtorch_v2", ours, rest)
        for library, python in (("torch_npu", options.peer), ("mindtorch_v2", sys.executable)):
            call_runtime.run(library, python, options.out / f"{library}.runtime.json")
    verdicts = compare(read(ours), read(theirs))
    print("\n".join(table(verdicts, "dtype")))
    groups = collections.Counter(short(v.detail) for v in verdicts if v.outcome == "open")
    print("\nopen, by launches:", *(f"{count:5} {text}" for text, count in groups.most_common(40)), sep="\n")
    if options.report:
        write_section(options.report, "What this library sends to CANN, beside what torch_npu sends",
                      report(verdicts, "make call-parity"))
        write_section(options.report, "The runtime of CANN, beside torch_npu's use of it", runtime_report(options.out))


if __name__ == "__main__":
    main()
