"""A short run of every part of soak.py: memory stays flat, threads agree, signals end processes. The full one: make soak."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import soak

import mindtorch_v2 as mt


@pytest.mark.parametrize("part", ["ops", "threads", "signals"])
def test_a_short_run(part: str) -> None:
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(mt.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, soak.__file__, part, "--quick", "--seed", "7"], capture_output=True, text=True,
                          env=env, timeout=300)
    assert done.returncode == 0 and f"PASS {part}: " in done.stdout, done.stdout[-6000:] + done.stderr[-2000:]


def test_growing_memory_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []

    def leak(self: soak.Mix) -> int:
        kept.append(mt.ones(200))
        return 10

    monkeypatch.setattr(soak.Mix, "turn", leak)
    with pytest.raises(AssertionError, match="memory grew"):
        soak.flat_ops("cpu", 20_000, 0)


@pytest.mark.parametrize(("text", "wrong"), [
    ("Traceback (most recent call last):\n  File \"x\", line 1\n    a\nKeyboardInterrupt\n", []),
    ("Traceback (most recent call last):\n  File \"x\"\nRuntimeError: no\n", ["RuntimeError: no"]),
    ("Fatal Python error: Segmentation fault\n", ["Fatal Python error: Segmentation fault"]),
    ("Traceback (most recent call last):\n  a\nKeyboardInterrupt\n\nTraceback (most recent call last):\n  b\nKeyError: 1\n",
     ["KeyError: 1"]),
    ("Traceback (most recent call last):\n  a\nKeyError: 1\n\nDuring handling of the above exception, another exception "
     "occurred:\n\nTraceback (most recent call last):\n  b\nKeyboardInterrupt\n", []),
    ("Traceback (most recent call last):\n  a\nKeyboardInterrupt\n\nDuring handling of the above exception, another "
     "exception occurred:\n\nTraceback (most recent call last):\n  b\nKeyError: 1\n", ["KeyError: 1"]),
])
def test_what_a_process_may_write_at_its_end(text: str, wrong: list[str]) -> None:
    assert soak.wrong_lines(text) == wrong


def test_a_process_that_does_not_end_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "EXIT_S", 0.3)
    monkeypatch.setitem(soak.PROGRAMS, "deaf", "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
                                               "print('ready', flush=True)\nwhile True:\n    time.sleep(1)\n")
    monkeypatch.setattr(soak, "PROGRAM_HEAD", "import time\nprint('begun', flush=True)\n")
    wrong, _ = soak.signalled("deaf", "cpu", soak.signal.SIGTERM, 0.0, False, False)
    assert wrong is not None and "still runs" in wrong
