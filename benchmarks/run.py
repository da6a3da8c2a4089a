"""Prints how many times faster than PyTorch this library is, measured side by side in one process.

The two take turns in short blocks, so that a noisy neighbour hits both; a line shows medians.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import math
import re
import statistics
import subprocess
import sys
import time
from types import ModuleType

from cases import GROUPS, Group, Work

JUDGE = "torch"
HEADER = f"{'':<30} {'threads':>7} {'ours':>10} {'torch':>10} {'ratio':>7} {'target':>7}"
PROBE = """
import time; begin = time.perf_counter()
import {name}
seconds = time.perf_counter() - begin
kilobytes = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmRSS"))
print(seconds, int(kilobytes) * 1024)
"""


def block_seconds(work: Work, calls: int) -> float:
    """Seconds of one call, over a block of calls."""
    clock = time.perf_counter
    work()  # caches and threads are warm after the other library's turn
    begin = clock()
    for _ in range(calls):
        work()
    return (clock() - begin) / calls


def side_by_side(ours: Work, theirs: Work, rounds: int, block: float) -> tuple[float, float]:
    """The median seconds of one call, for both."""
    works, calls = (ours, theirs), [1, 1]
    for i, work in enumerate(works):
        once = min(block_seconds(work, 1) for _ in range(2))
        calls[i] = max(1, min(100_000, int(block / max(once, 1e-9))))
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(rounds):
        for i in (0, 1) if turn % 2 else (1, 0):
            # OpenMP's idle threads spin, on some processors for 16 ms, and would take a core from the next.
            time.sleep(0.03)
            times[i].append(block_seconds(works[i], calls[i]))
    return statistics.median(times[0]), statistics.median(times[1])


def in_words(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.2f} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def print_line(
    name: str, threads: str, cells: tuple[str, str], ratio: float, target: float | None
) -> None:
    wanted = "" if target is None else f">= {target:g}"
    mark = "" if target is None or ratio >= target else "  below"
    row = f"  {name:<28} {threads:>7} {cells[0]:>10} {cells[1]:>10} {ratio:>6.2f}x {wanted:>7}"
    print(row + mark, flush=True)


def run_group(
    key: str, group: Group, libraries: list[ModuleType], args: argparse.Namespace
) -> None:
    try:
        wanted = re.compile(args.only)
        made = [group.make(xp) for xp in libraries]
    except (AttributeError, NotImplementedError) as error:
        print(f"{group.title}\n  not possible yet: {error}")
        return
    names = [n for n in made[1] if wanted.search(f"{key}/{n}")]
    if not names:
        return
    print(group.title)
    for threads in args.threads:
        for xp in libraries:
            xp.set_num_threads(threads)
        ratios = []
        for name in names:
            try:
                ours, theirs = side_by_side(made[0][name], made[1][name], args.rounds, args.block)
            except (AttributeError, NotImplementedError) as error:
                print(f"  {name:<28} {threads:>7} not possible yet: {error}")
                continue
            ratios.append(theirs / ours)
            target = group.lines.get(name, group.at_least)
            print_line(name, str(threads), (in_words(ours), in_words(theirs)), ratios[-1], target)
        if len(ratios) > 1:
            mean = math.exp(statistics.fmean(map(math.log, ratios)))
            print_line("geometric mean", str(threads), ("", ""), mean, group.mean)
    print()


def run_import(library: str, rounds: int) -> None:
    """Seconds and resident memory of an import, each in a fresh interpreter."""
    results: dict[str, list[tuple[float, float]]] = {library: [], JUDGE: []}
    for _ in range(rounds + 1):
        for name in results:
            command = [sys.executable, "-c", PROBE.format(name=name)]
            words = subprocess.run(
                command, capture_output=True, text=True, check=True
            ).stdout.split()
            results[name].append((float(words[0]), float(words[1])))
    # The first round read the files from disk.
    ours, theirs = ([statistics.median(column) for column in zip(*results[n][1:])]
                    for n in (library, JUDGE))  # fmt: skip
    print("import, in a fresh interpreter")
    print_line("time", "", (in_words(ours[0]), in_words(theirs[0])), theirs[0] / ours[0], 5)
    size = ours[1] / 2**20
    cells = (f"{size:.0f} MB", f"{theirs[1] / 2**20:.0f} MB")
    print_line("resident memory", "", cells, theirs[1] / ours[1], None)
    print(f"  resident memory is to be under 60 MB: {'yes' if size < 60 else 'no'}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter blocks")
    parser.add_argument(
        "--only", default="", metavar="REGEX", help="lines, as group/name; e.g. small/, large/sum"
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--library", default="mindtorch_v2", help="what is compared with torch")
    args = parser.parse_args()
    args.rounds, args.block = (5, 0.005) if args.quick else (15, 0.02)
    libraries = [importlib.import_module(name) for name in (args.library, JUDGE)]
    print(f"{args.library} against torch {libraries[1].__version__}; ratio = torch's time / ours\n")
    print(HEADER)
    gc.disable()
    for key, group in GROUPS.items():
        run_group(key, group, libraries, args)
        gc.collect()
    if re.search(args.only, "import/time"):
        run_import(args.library, 3 if args.quick else 7)


if __name__ == "__main__":
    main()
