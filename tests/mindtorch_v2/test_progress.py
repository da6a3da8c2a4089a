"""Progress: a line that is written over on a terminal, plain lines elsewhere, nothing for what is quick."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mindtorch_v2 as torch

ROOT = Path(__file__).resolve().parents[2]
progress = torch._progress


class Stream(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def run(clock: list[float], terminal: bool, step: float, plain: bool = True) -> str:
    stream = Stream(terminal)
    with progress.Progress("model.pt", 4_000_000, "bytes", plain, stream) as shown:
        for _ in range(4):
            clock[0] += step
            shown.advance(1_000_000)
    return stream.getvalue()


def test_what_is_quick_says_nothing(clock: list[float]) -> None:
    assert run(clock, True, 0.1) == run(clock, False, 0.1) == ""


def test_a_terminal_has_one_line_that_ends_empty(clock: list[float]) -> None:
    said = run(clock, True, 1.0)
    assert "\n" not in said and said.count("\r") == 6
    assert "model.pt [==========          ] 50%  2.0 MB of 4.0 MB, 1.0 MB/s" in said and said.endswith(f"\r{'':79}\r")


def test_elsewhere_there_are_plain_lines(clock: list[float]) -> None:
    assert run(clock, False, 6.0) == ("model.pt 25%  1.0 MB of 4.0 MB, 0.2 MB/s\nmodel.pt 75%  3.0 MB of 4.0 MB, 0.2 MB/s\n")
    assert run(clock, False, 6.0, plain=False) == ""


def test_a_failure_leaves_the_last_state(clock: list[float]) -> None:
    stream = Stream(True)
    with pytest.raises(ValueError), progress.Progress("x", None, "items", True, stream) as shown:
        clock[0] += 2
        shown.advance(7)
        raise ValueError
    assert stream.getvalue().endswith("\n") and "x  7 items, 3 items/s" in stream.getvalue()


def test_files_show_it_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    for terminal in (True, False):
        stream = Stream(terminal)
        monkeypatch.setattr(sys, "stderr", stream)
        torch.save([torch.ones(1000), torch.ones(500)], tmp_path / "x.pt")
        assert torch.load(tmp_path / "x.pt")[1].sum() == 500
        names = re.findall(r"\r(save x|load x.pt) \[", stream.getvalue())
        assert names[:1] + names[-1:] == (["save x", "load x.pt"] if terminal else [])


def test_downloads_show_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    (tmp_path / "w.bin").write_bytes(b"x" * 3_000_000)
    for wanted in (True, False):
        stream = Stream(False)
        monkeypatch.setattr(sys, "stderr", stream)
        torch.hub.download_url_to_file((tmp_path / "w.bin").as_uri(), str(tmp_path / "out.bin"), progress=wanted)
        assert ("out.bin 34%  1.0 MB of 3.0 MB" in stream.getvalue()) is wanted


@pytest.mark.parametrize("code", [0, 3])
def test_the_build_shows_its_output_only_where_it_fails(code: int) -> None:
    program = f"print('[1/2] Building'); print('[2/2] Linking'); raise SystemExit({code})"
    ended = subprocess.run([sys.executable, ROOT / "csrc" / "progress.py", "building", sys.executable, "-c", program],
                           capture_output=True, text=True)  # fmt: skip
    assert ended.returncode == code and ended.stdout == "building\n"
    assert ("[2/2] Linking" in ended.stderr) is (code == 3)
