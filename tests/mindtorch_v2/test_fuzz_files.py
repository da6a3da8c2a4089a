"""A seeded slice of the file fuzz, and a proof that it notices what it looks for."""

from __future__ import annotations

import io
import os
import pickle
import signal
import subprocess
import sys
from typing import Any

import fuzz_files
import pytest
from hostile_files import Corpus, hostile_file, zipped

import mindtorch_v2 as mt


def test_hostile_files_run_nothing_and_break_nothing() -> None:
    """In a process of its own: here other tests may have started an npu, which a fork cannot use."""
    command = [sys.executable, fuzz_files.__file__, "--seed", "20", "--executions", "10000"]
    done = subprocess.run(command, capture_output=True, text=True)
    last = done.stdout.splitlines()[-1:]
    assert last and last[0].startswith("files: 10000 executions, 0 crashes, 0 hangs, 0 failures, "), done.stdout + done.stderr
    assert done.returncode == 0


class Trusting:
    """Stands for torch.load with a hole: Python's own unpickler."""

    def __init__(self, attack: Any) -> None:
        self.attack = attack

    def __call__(self, source: Any, **how: Any) -> Any:
        return self.attack()


@pytest.mark.parametrize(
    ("attack", "crashes", "failures"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGSYS), 40, 0),
        (lambda: os.system("true"), 0, 40),
        (lambda: {}["key"], 0, 40),
        (lambda: bytearray(2 << 30), 0, 40),
        (lambda: exec("pass"), 0, 40),
    ],
    ids=["crash", "command", "KeyError", "memory", "exec"],
)
def test_the_fuzz_notices(attack: Any, crashes: int, failures: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_files, "warm_up", lambda corpus: None)
    monkeypatch.setattr(mt, "load", Trusting(attack))  # first: mt.load is read from there when it is first used
    monkeypatch.setattr(mt.serialization, "load", Trusting(attack))
    assert fuzz_files.fuzz(seed=1, executions=40, jobs=2)[:3] == (crashes, 0, failures)


def test_a_hang_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_files, "warm_up", lambda corpus: None)
    monkeypatch.setattr(fuzz_files, "HANG_S", 0.2)
    monkeypatch.setattr(mt, "load", Trusting(lambda: __import__("time").sleep(600)))
    assert fuzz_files.fuzz(seed=1, executions=1, jobs=1)[:3] == (0, 1, 0)


def test_files_come_from_their_seed_and_most_parts_are_reached() -> None:
    corpus = Corpus()
    assert mt.load(io.BytesIO(zipped(corpus.records))).keys() == {"state", "many", "plain", "sparse", "torch"}
    assert hostile_file(corpus, 1, 7) == hostile_file(Corpus(), 1, 7)
    outcomes = set()
    for index in range(400):
        try:
            mt.load(io.BytesIO(hostile_file(corpus, 3, index)))
            outcomes.add("loaded")
        except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
            outcomes.add(str(error)[:70])
    assert "loaded" in outcomes and len(outcomes) > 40
