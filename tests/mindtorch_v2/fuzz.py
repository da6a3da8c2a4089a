"""Throws odd objects at every op, function, class and private entry: the answer is a result or an exception, never a crash.

As a tool: `python tests/mindtorch_v2/fuzz.py [--seed N] [--executions N] [--jobs J] [NAME…]`. An execution is one call of a
target, or a program of 5 to 20 calls on the same tensors. They run in forked children; one that crashed, hung or broke the
interpreter's rules is named with its turn, and the exit code is then 1. `--turn N` runs it again without a child, for a
debugger; `--first N` with it runs the turns that the child had run before."""
from __future__ import annotations

import faulthandler
import gc
import mmap
import os
import random
import resource
import signal
import struct
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fuzz_options
from fuzz_layers import layers
from fuzz_programs import npu_program, program
from fuzz_targets import Attempt, is_lasting, targets
from fuzz_values import make_bases

import mindtorch_v2 as mt

MEMORY = 3 << 30                                          # bytes that a child may map
BATCH = 2000                                              # turns that one child runs
PROGRAMS, NPU_PROGRAMS, LAYERS = 0.22, 0.0005, 0.0205     # shares, each with those below it; a child that started a device costs much more


class Plan:
    """Which target a turn has: a function of the seed and the turn alone."""

    def __init__(self, seed: int, names: list[str]) -> None:
        self.seed = seed
        programs: dict[str, Attempt] = {"program": program, "npu_program": npu_program, "layers": layers}
        found = targets() | programs
        unknown = [name for name in names if name not in found]
        if unknown:
            raise SystemExit(f"no such target: {', '.join(unknown)}")
        self.chosen = {name: found[name] for name in names} if names else found
        self.order = [name for name in self.chosen if names or name not in programs]
        random.Random(seed).shuffle(self.order)
        self.share = 0.0 if names else PROGRAMS

    def name(self, turn: int, rng: random.Random) -> str:
        drawn = rng.random()
        if drawn < self.share:
            return "npu_program" if drawn < NPU_PROGRAMS else "layers" if drawn < LAYERS else "program"
        name = self.order[turn % len(self.order)]
        # One in ten of those that end their child: starting another costs as much as a hundred calls.
        return "program" if self.share and is_lasting(name) and rng.random() < 0.9 else name

    def run(self, turn: int) -> tuple[str, bool]:
        """The target's name, and whether the call gave a result that can be read."""
        rng = random.Random(self.seed << 40 | turn)
        name = self.name(turn, rng)
        mt.manual_seed(rng.randrange(1 << 30))
        try:
            self.chosen[name](rng)
        except (KeyboardInterrupt, SystemError):          # SystemError: native code broke the rules of the interpreter
            raise
        except Exception:
            return name, False
        return name, True


class Slot:
    """One child at a time, its notes in shared memory: (next turn, results so far)."""

    def __init__(self, plan: Plan, seconds: int) -> None:
        self.plan, self.seconds = plan, seconds
        self.notes = mmap.mmap(-1, 16)
        self.errors: Any = tempfile.TemporaryFile()
        self.folder = tempfile.TemporaryDirectory()      # where calls that write files find a place
        self.results = self.first = self.end = self.child = 0

    def start(self, first: int, end: int) -> None:
        self.first, self.end = first, end
        self.errors.seek(0)
        self.errors.truncate()
        self.notes[:] = struct.pack("qq", first, 0)
        self.child = os.fork()
        if not self.child:
            self.serve()

    def serve(self) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(self.errors.fileno(), 2)
        faulthandler.enable(self.errors)
        os.chdir(self.folder.name)
        given = 0
        try:
            for turn in range(self.first, self.end):
                self.notes[:] = struct.pack("qq", turn, given)
                signal.alarm(self.seconds)
                name, result = self.plan.run(turn)
                given += result
                if is_lasting(name) or name == "npu_program":
                    break
            signal.alarm(0)
            self.notes[:] = struct.pack("qq", turn + 1, given)
            os._exit(0)
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(70)

    def ended(self, status: int) -> tuple[int, str]:
        """The turn to go on with, and what went wrong with the turn before it."""
        turn, given = struct.unpack("qq", self.notes[:])
        self.results += given
        code = os.waitstatus_to_exitcode(status)
        if not code:
            return turn, ""
        why = "hang" if -code == signal.SIGALRM else signal.Signals(-code).name if code < 0 else f"exit {code}"
        name = self.plan.name(turn, random.Random(self.plan.seed << 40 | turn))
        text = f"{name} --seed {self.plan.seed} --turn {turn} (--first {self.first}): {why}"
        if why != "hang":
            self.errors.seek(0)
            text += "\n" + self.errors.read().decode(errors="replace")[:6000]
        return turn + 1, text


def run_all(plan: Plan, executions: int, jobs: int, seconds: int, report: Callable[[str], None]) -> tuple[int, int, int]:
    """(results, crashes, hangs)"""
    batches: Iterator[tuple[int, int]] = ((t, min(t + BATCH, executions)) for t in range(0, executions, BATCH))
    slots = [Slot(plan, seconds) for _ in range(jobs)]
    busy: dict[int, Slot] = {}
    crashes = hangs = 0

    def go_on(slot: Slot, first: int, end: int) -> None:
        if first >= end:
            first, end = next(batches, (0, 0))
        if first < end:
            slot.start(first, end)
            busy[slot.child] = slot

    for slot in slots:
        go_on(slot, 0, 0)
    while busy:
        child, status = os.wait()
        slot = busy.pop(child, None)
        if slot is None:
            continue
        turn, wrong = slot.ended(status)
        if wrong:
            hangs += wrong.endswith(": hang")
            crashes += not wrong.endswith(": hang")
            report(wrong)
        go_on(slot, turn, slot.end)
    return sum(slot.results for slot in slots), crashes, hangs


def main() -> int:
    parser = fuzz_options.parser(__doc__, 20000)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--turn", type=int)
    parser.add_argument("--first", type=int)
    parser.add_argument("--seconds", type=int, default=30, help="a call that takes longer hangs")
    parser.add_argument("--list", action="store_true", help="names of the targets")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if not mt.npu.is_available():
        import cann_sim  # not needed where there is a card
        os.environ["ASCEND_HOME_PATH"] = cann_sim.home()
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE   # terabytes under a sanitizer
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, resource.RLIM_INFINITY))   # absurd sizes fail here
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    mt.set_num_threads(1)                                 # as many children as processors
    plan = Plan(options.seed, options.names)
    if options.list:
        print(*plan.chosen, sep="\n")
        return 0
    if options.turn is not None:
        for turn in range(options.turn if options.first is None else options.first, options.turn + 1):
            print(turn, *plan.run(turn), flush=True)
        return 0
    make_bases()
    gc.freeze()                                           # what a collection does not touch, children share
    began = time.monotonic()
    results, crashes, hangs = run_all(plan, options.executions, options.jobs, options.seconds, lambda text: print(text, flush=True))
    print(f"{len(plan.chosen)} targets, {results} executions gave a result")
    print(f"api: {options.executions} executions, {crashes} crashes, {hangs} hangs, {time.monotonic() - began:.0f} s")
    return 1 if crashes or hangs else 0


if __name__ == "__main__":
    sys.exit(main())
