"""`python -m mindtorch_v2 info`: with a device, without CANN, with one that is broken, hangs or crashes."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import mindtorch_v2 as torch

info = torch._commands.info
report = torch.npu.report
BARE = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "PYTHONPATH": ":".join(filter(None, sys.path))}


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mindtorch_v2", *arguments]
    return subprocess.run(command, env={**BARE, **environment}, capture_output=True, text=True, timeout=300)


def facts_without(**changes: Any) -> dict[str, Any]:
    """Facts of a healthy host with one device, and changes."""
    healthy = {"cann": {"version": "8.5.0", "home": "/x", "libraries": {}, "acl": "acl"}, "settings": {}, "count": 1,
               "symbols": {"known": 3, "missing": [], "rows_without": {}}, "driver": {"version": "25.2.0", "files": {}}}
    return healthy | changes


def test_with_devices(npu: ModuleType) -> None:
    ended = run("info", "--json", ASCEND_HOME_PATH=os.environ["ASCEND_HOME_PATH"], ACL_LAUNCH_BLOCKING="1")
    found = json.loads(ended.stdout)
    assert ended.returncode == 0 and found["problems"] == [], ended.stdout + ended.stderr
    assert found["count"] == npu.device_count() == len(found["devices"])
    assert found["devices"][0]["name"] == npu.get_device_name(0) and found["devices"][0]["total_bytes"] > 0
    assert found["settings"]["ACL_LAUNCH_BLOCKING"] == "1" and "libascendcl.so" in found["cann"]["libraries"]
    assert found["symbols"]["known"] > 1000
    text = "\n".join(info.lines(found))
    assert f"CANN          {found['cann']['version']}" in text and "npu:0" in text and text.endswith("no problem found")


def test_without_cann() -> None:
    ended = run("info")
    assert ended.returncode == 1 and "CANN was not found" in ended.stdout and ended.stderr == ""
    assert "cann-sim run python" in ended.stdout.partition("   help: ")[2]
    assert json.loads(run("info", "--json").stdout)["problems"][0]["remedy"].startswith("Install the Ascend driver")


def test_a_library_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib64" / "libascendcl.so").write_text("no library")
    os.chmod(tmp_path / "lib64" / "libascendcl.so", 0o600)
    ended = run("info", ASCEND_HOME_PATH=str(tmp_path))
    assert ended.returncode == 1 and "libascendcl.so cannot be loaded" in ended.stdout


@pytest.mark.parametrize("code, said", [("import os; os.abort()", "SIGABRT"), ("raise SystemExit(3)", "exit code 3"),
                                        ("import time; time.sleep(60)", "no answer within 1 s")])
def test_a_runtime_that_does_not_answer(code: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(info, "PROBE", code)
    if "sleep" in code:
        monkeypatch.setattr(info, "PATIENCE", 1)
    found = info.facts()
    assert said in found["problems"][0]["what"] and "npu-smi" in found["problems"][0]["remedy"]
    assert any("CANN ended the process" in line for line in info.lines(found))


@pytest.mark.parametrize("changes, said, helps", [
    ({"count": 0}, "no device files", "cann-sim run"),
    ({"count": 0, "driver": {"version": "25.2.0", "files": {"/dev/davinci0": False}}}, "may not open /dev/davinci0", "usermod -aG"),
    ({"count": 0, "driver": {"version": "25.2.0", "files": {"/dev/davinci0": True}},
      "settings": {"ASCEND_RT_VISIBLE_DEVICES": "7"}}, "leaves no device", "unset ASCEND_RT_VISIBLE_DEVICES"),
    ({"device_error": "aclrtSetDevice failed"}, "aclrtSetDevice failed", "driver 25.2.0"),
    ({"symbols": {"known": 3, "missing": ["aclnnAdd"], "rows_without": {"aclnnAdd": ["add"]}}}, "lacks 1 aclnn ops", "later CANN"),
])
def test_what_is_wrong_and_what_helps(changes: dict[str, Any], said: str, helps: str) -> None:
    (problem,) = report.problems(facts_without(**changes))
    assert said in problem["what"] and helps in problem["remedy"]
    assert report.problems(facts_without()) == []


def test_other_options_are_refused() -> None:
    ended = run("info", "--xml")
    assert ended.returncode == 2 and ended.stderr.startswith("usage: python -m mindtorch_v2 info")
