"""Native code survives any object thrown at it: a short run of fuzz.py with a fixed seed. And fuzz.py sees what does not."""
from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import fuzz

import mindtorch_v2 as mt

HERE = Path(__file__).parent


class BadTurns:
    """A plan with one turn that crashes, one that hangs and one that breaks the interpreter's rules."""
    seed = 0

    def name(self, turn: int, rng: random.Random) -> str:
        return f"turn{turn}"

    def run(self, turn: int) -> tuple[str, bool]:
        if turn == 2:
            os.kill(os.getpid(), signal.SIGSEGV)
        if turn == 4:
            time.sleep(600)
        if turn == 7:
            raise SystemError("returned a result with an exception set")
        return self.name(turn, random.Random(0)), True


def test_crashes_and_hangs_are_counted_and_named() -> None:
    said: list[str] = []
    assert fuzz.run_all(BadTurns(), 10, 2, 3, said.append) == (7, 2, 1)
    assert sorted(text.partition(" (")[0] + text.partition("):")[2].partition("\n")[0] for text in said) == [
        "turn2 --seed 0 --turn 2 SIGSEGV", "turn4 --seed 0 --turn 4 hang", "turn7 --seed 0 --turn 7 exit 70"]
    assert any("SystemError: returned a result" in text for text in said)


def run_fuzz(*options: str) -> subprocess.CompletedProcess[str]:
    source = str(Path(mt.__file__).parents[1])
    env = os.environ | {"PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
    return subprocess.run([sys.executable, str(HERE / "fuzz.py"), *options], capture_output=True, text=True, env=env, timeout=600)


def test_a_turn_is_the_same_whenever_it_runs() -> None:
    together = run_fuzz("--seed", "3", "--first", "40", "--turn", "49").stdout.splitlines()
    assert len(together) == 10
    assert run_fuzz("--seed", "3", "--turn", "49").stdout.splitlines() == together[-1:]


def test_nothing_crashes() -> None:
    run = run_fuzz("--seed", "0", "--executions", "12000")
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    assert run.stdout.splitlines()[-1].startswith("api: 12000 executions, 0 crashes, 0 hangs, ")
