"""Builds llama.cpp's ggml with its CANN backend over cann_sim and runs its test-backend-ops: per op OK, refused, wrong.

`make conformance-ggml GGML=folder` calls it; ARGS="--only MUL_MAT,SOFT_MAX -v" runs a part and prints every case that is not
OK. An op that CANN refuses aborts the client's process; the cases after it are run in a new one.
"""

from __future__ import annotations

import argparse
import csv
import errno
import io
import os
import pty
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import cann_sim

DEVICE = "CANN0"
BATCH = 40  # cases of one process after the first abort: its filter is a regular expression of all of them
RESULT = re.compile(r"\b([A-Z]\w*)\((\S*)\): .*?(OK$|FAIL$|not supported|skipping)")
VERDICTS = {"OK": "OK", "FAIL": "wrong"}  # the rest the client did not compare
COLOR = re.compile(r"\033\[[0-9;]*m")


class Case(NamedTuple):
    op: str
    params: str


def environment() -> dict[str, str]:
    return os.environ | cann_sim.env() | {"GGML_NO_BACKTRACE": "1"}


def build(source: Path, folder: Path) -> Path:
    """Compiles the client; its own detection of the SoC runs npu-smi."""
    options = ["-DGGML_CANN=ON", "-DGGML_OPENMP=OFF", "-DGGML_CCACHE=OFF", f"-DCANN_INSTALL_DIR={cann_sim.home()}"]
    for command in (["cmake", "-G", "Ninja", "-S", str(source), "-B", str(folder), *options], ["cmake", "--build", str(folder)]):
        subprocess.run(command, check=True, env=environment(), stdout=sys.stderr)
    return folder / "bin" / "test-backend-ops"


def supported(program: Path) -> list[Case]:
    """The cases that the backend says it takes, in the order in which they run."""
    done = subprocess.run([program, "support", "-b", DEVICE, "--output", "csv"], env=environment(), capture_output=True, text=True)
    rows = csv.DictReader(io.StringIO(done.stdout[done.stdout.index('"backend_name"') :]))
    return [Case(row["op_name"], row["op_params"]) for row in rows if row["supported"] == "1"]


def start(program: Path, op: str, cases: list[Case] | None) -> tuple[list[tuple[Case, str]], str]:
    """What one process printed before it ended or aborted, and its last words where it aborted."""
    command = [str(program), "test", "-b", DEVICE, "-o", op]
    if cases:
        command += ["-p", "^(?:" + "|".join(re.sub(r"([\[\]().*+?^$|{}\\])", r"\\\1", c.params) for c in cases) + ")$"]
    text, errors, status = run_in_terminal(command)
    found = [m for line in text.splitlines() for m in RESULT.finditer(COLOR.sub("", line))]
    error = re.search(r"CANN error: .*|\S+: GGML_ASSERT.*", errors)
    aborted = (error[0] if error else f"signal {-status}") if status < 0 else ""
    if status > 1 or (status == 1 and not found):  # 1 is that of a wrong result
        raise RuntimeError(f"{' '.join(command[:6])} ended with status {status}: {errors[-1000:]}")
    return [(Case(m[1], m[2]), m[3]) for m in found], aborted


def run_in_terminal(command: list[str]) -> tuple[str, str, int]:
    """Output, errors and status. A terminal gets every line at once; a pipe would lose the last ones before an abort."""
    master, slave = pty.openpty()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, env=environment(), stdout=slave, stderr=errors)
        os.close(slave)
        parts = []
        try:
            while part := os.read(master, 1 << 16):
                parts.append(part)
        except OSError as error:  # how Linux says that the other end is closed
            if error.errno != errno.EIO:
                raise
        os.close(master)
        status = process.wait()
        errors.seek(0)
        return b"".join(parts).decode(errors="replace"), errors.read().decode(errors="replace"), status


def run_op(program: Path, op: str, cases: list[Case]) -> Iterator[tuple[Case, str, str]]:
    """(case, OK | refused | wrong | lost, why) for all cases of an op."""
    rest, filtered = list(cases), False
    while rest:
        batch = rest[:BATCH] if filtered else rest
        results, aborted = start(program, op, batch if filtered else None)
        for case, verdict in results:
            if verdict in VERDICTS:
                yield case, VERDICTS[verdict], ""
        seen = Counter(case for case, _ in results)
        counted = seen.copy()
        missing = [case for case in batch if not take(counted, case)]
        if not aborted:
            yield from ((case, "lost", "the process ended without a line of it") for case in missing)
        # Cases run in order: the first without a line is the one that aborted. Those that are not supported have lines too.
        ended = next((i for i, case in enumerate(batch) if not take(seen, case)), len(batch)) if aborted else len(batch)
        if ended < len(batch):
            yield batch[ended], "refused", aborted
        rest, filtered = rest[ended + 1 :] if ended < len(batch) else rest[len(batch) :], True


def take(counted: Counter[Case], case: Case) -> bool:
    counted[case] -= 1
    return counted[case] >= 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("ggml", type=Path, help="a folder with llama.cpp's ggml, or with the whole of llama.cpp")
    parser.add_argument("--build", type=Path, default=Path("build/ggml"))
    parser.add_argument("--only", default="", help="ops, separated by commas")
    parser.add_argument("-v", "--verbose", action="store_true", help="print every case that is not OK")
    chosen = parser.parse_args()
    program = build(chosen.ggml.resolve(), chosen.build.resolve())
    cases = supported(program)
    ops = [op for op in dict.fromkeys(case.op for case in cases) if not chosen.only or op in chosen.only.split(",")]
    total: Counter[str] = Counter()
    print(f"{'op':28} {'OK':>6} {'refused':>8} {'wrong':>6} {'lost':>6}")
    for op in ops:
        count: Counter[str] = Counter()
        for case, verdict, why in run_op(program, op, [c for c in cases if c.op == op]):
            count[verdict] += 1
            if chosen.verbose and verdict != "OK":
                print(f"  {verdict}: {case.op}({case.params}) {why}")
        print(f"{op:28} {count['OK']:6} {count['refused']:8} {count['wrong']:6} {count['lost']:6}", flush=True)
        total += count
    print(f"{'all':28} {total['OK']:6} {total['refused']:8} {total['wrong']:6} {total['lost']:6}")
    return 1 if total["lost"] else 0


if __name__ == "__main__":
    sys.exit(main())
