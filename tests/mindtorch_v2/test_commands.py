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


# ---- selftest ----------------------------------------------------------------------------------------------------------
selftest = torch._commands.selftest


def try_device(folder: Path, *options: str, **environment: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """A selftest and the file that it wrote."""
    file = folder / "report.json"
    ended = run("selftest", "--quick", "--output", str(file), *options, ASCEND_HOME_PATH=os.environ["ASCEND_HOME_PATH"], **environment)
    return ended, json.loads(file.read_text())


def test_a_device_that_works(npu: ModuleType, tmp_path: Path) -> None:
    ended, found = try_device(tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stderr.splitlines() == [f"selftest: {part}" for part in torch._commands.checks.PARTS]
    assert set(found["counts"]) == set(torch._commands.checks.PARTS)
    assert {failure["outcome"] for failure in found["failures"]} <= {"refused"}
    assert found["counts"]["ops"]["passed"] > 500 and found["counts"]["gradients"]["passed"] > 250
    assert found["facts"]["count"] == npu.device_count() and "all of it is in" in ended.stdout


def test_a_device_that_computes_nothing(npu: ModuleType, tmp_path: Path) -> None:
    ended, found = try_device(tmp_path, "--part", "copies", "--part", "random", CANN_SIM_MODE="null")
    assert ended.returncode == 1 and found["counts"]["copies"]["wrong"] == 6 and found["counts"]["random"] == {"wrong": 1}
    assert "there and back" in found["failures"][0]["text"] and "wrong" in ended.stdout


def test_a_device_that_faults_costs_one_case(npu: ModuleType, tmp_path: Path) -> None:
    ended, found = try_device(tmp_path, "--part", "streams", CANN_SIM_FAULTS="op aclnnMatmul:1=507015")
    assert ended.returncode == 1 and found["counts"]["streams"] == {"passed": 1, "error": 1}
    (failure,) = found["failures"]
    assert failure["case"] == "events" and "507015" in failure["text"] and "aclnnMatmul" in failure["text"]
    ended, found = try_device(tmp_path, "--part", "copies", CANN_SIM_FAULTS="aclrtMallocHost:*=207001,aclrtMallocHostWithCfg:*=207001")
    assert found["counts"]["copies"]["passed"] == 5 and "pinned memory" in found["failures"][0]["case"]


def test_a_process_that_ends_or_hangs_costs_one_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "python"
    script.write_text("""#!/bin/sh
for last; do :; done
case "$*" in
  *"--first 0"*) echo 'a library prints this'; echo '{"begin": "one"}'; kill -ABRT $$;;
  *"--first 1"*) echo '{"begin": "two"}'; sleep 60;;
  *"--first 2"*) printf '{"begin": "three"}\\n{"end": "passed", "text": ""}\\n{"begin": "four"}\\n'; sleep 60;;
esac
""")
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))
    monkeypatch.setattr(selftest, "PATIENCE", 1)
    results = selftest.watch("copies", selftest.arguments([]))
    assert [(r.case, r.outcome, r.text) for r in results] == [
        ("one", "crashed", "SIGABRT"), ("two", "crashed", "no end within 1 s"), ("three", "passed", ""),
        ("four", "crashed", "no end within 1 s")]


def test_a_report_has_no_personal_data(npu: ModuleType, tmp_path: Path) -> None:
    home = tmp_path / "home" / "somebody"
    home.mkdir(parents=True)
    _, found = try_device(tmp_path, "--part", "saving", HOME=str(home), LOGNAME="somebody", ASCEND_PROCESS_LOG_PATH=f"{home}/logs")
    assert "somebody" not in json.dumps(found) and found["facts"]["settings"]["ASCEND_PROCESS_LOG_PATH"] == "~/logs"


def test_a_report_that_cannot_be_written_is_said_first(npu: ModuleType, tmp_path: Path) -> None:
    ended = run("selftest", "--output", str(tmp_path / "missing" / "x.json"), ASCEND_HOME_PATH=os.environ["ASCEND_HOME_PATH"])
    assert ended.returncode == 2 and "cannot be written" in ended.stderr and ended.stdout == ""


def test_selftest_without_cann() -> None:
    ended = run("selftest", "--quick")
    assert ended.returncode == 1 and "CANN was not found" in ended.stdout
