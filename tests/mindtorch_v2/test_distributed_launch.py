"""The launcher and torch.multiprocessing.spawn: the environment of workers, and how one failure ends all."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import mindtorch_v2 as torch
from mindtorch_v2.distributed.run import bits_of, config_from_args, parse_args

WORKER = str(Path(__file__).parent / "dist_worker.py")


def launch(*flags: str, what: str, folder: Path, more: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "mindtorch_v2.distributed.run", *flags, WORKER, what, str(folder), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_workers_get_their_places(tmp_path: Path) -> None:
    launcher = launch("--standalone", "--nproc_per_node=2", "--tee", "3", what="ok", folder=tmp_path, more=("--lr", "1"))
    out, errors = launcher.communicate(timeout=600)
    assert launcher.returncode == 0, errors
    for rank in range(2):
        seen = json.loads((tmp_path / f"seen.{rank}").read_text())
        assert seen == {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
                        "GROUP_RANK": "0", "TORCHELASTIC_RESTART_COUNT": "0", "total": 3.0, "args": ["--lr", "1"]}  # fmt: skip
        assert f"[default{rank}]:printed by {rank}" in out


def test_two_hosts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    flags = ("--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=job")
    hosts = [launch(*flags, what="ok", folder=tmp_path) for _ in range(2)]
    for host in hosts:
        assert host.wait(600) == 0, host.communicate()[1]
    seen = [json.loads((tmp_path / f"seen.{rank}").read_text()) for rank in range(2)]
    assert [one["GROUP_RANK"] for one in seen] == ["0", "1"] and [one["total"] for one in seen] == [3.0, 3.0]


def test_a_failure_ends_all_and_is_shown(tmp_path: Path) -> None:
    launcher = launch("--standalone", "--nproc-per-node=2", "--log-dir", str(tmp_path / "logs"), "-r", "2", what="fail",
                      folder=tmp_path)  # fmt: skip
    _, errors = launcher.communicate(timeout=600)
    assert launcher.returncode == 1
    assert "first failure: rank 1 (local rank 1, process" in errors and "ValueError: rank 1 had enough" in errors
    assert "Traceback (most recent call last)" in errors and not list(tmp_path.glob("seen.*"))
    assert "had enough" in (tmp_path / "logs" / "attempt_0" / "1" / "stderr.log").read_text()


def test_restart(tmp_path: Path) -> None:
    launcher = launch("--standalone", "--nproc-per-node=2", "--max-restarts=2", what="once", folder=tmp_path)
    _, errors = launcher.communicate(timeout=600)
    assert launcher.returncode == 0, errors
    assert "2 restarts left: rank 0" in errors and "signal SIGKILL" in errors
    seen = [json.loads((tmp_path / f"seen.{rank}").read_text()) for rank in range(2)]
    assert [one["TORCHELASTIC_RESTART_COUNT"] for one in seen] == ["1", "1"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_worker_outlives_the_launcher(tmp_path: Path, number: signal.Signals) -> None:
    launcher = launch("--standalone", "--nproc-per-node=2", what="wait", folder=tmp_path)
    files = [tmp_path / f"pid.{rank}" for rank in range(2)]
    until(lambda: all(file.exists() and file.read_text() for file in files))
    launcher.send_signal(number)
    assert launcher.wait(600) in (128 + signal.SIGTERM, -signal.SIGKILL)
    until(lambda: not any(alive(int(file.read_text())) for file in files))


def until(ready: object, limit: float = 600.0) -> None:
    deadline = time.monotonic() + limit
    while not ready():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_flags() -> None:
    config = config_from_args(parse_args(["--nnodes=3", "--node-rank", "1", "--master-addr", "h", "--master-port", "5", "-m", "a.b", "x"]))
    assert (config.nnodes, config.node_rank, config.host, config.port, config.serves) == (3, 1, "h", 5, False)
    assert config.command == [sys.executable, "-u", "-m", "a.b", "x"]
    assert bits_of("3", 2) == {0: 3, 1: 3} and bits_of("0:1,1:2", 2) == {0: 1, 1: 2}
    with pytest.raises(ValueError, match="Unsupported nproc_per_node value: many"):
        config_from_args(parse_args(["--nproc-per-node", "many", "x.py"]))


# ---- torch.multiprocessing.spawn ------------------------------------------------------------------------------------
def _reduces(index: int, folder: str) -> None:
    os.environ.update(RANK=str(index), WORLD_SIZE="2")
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=index, world_size=2)
    total = torch.tensor([index + 1.0])
    torch.distributed.all_reduce(total)
    Path(f"{folder}/{index}").write_text(str(total.item()))


def _ends(index: int, how: str) -> None:
    if index == 1:
        if how == "raise":
            raise KeyError("lost")
        os.kill(os.getpid(), signal.SIGKILL) if how == "signal" else os._exit(3)
    time.sleep(3600)


def test_spawn(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(_reduces, (str(tmp_path),), nprocs=2)
    assert [(tmp_path / str(i)).read_text() for i in range(2)] == ["3.0", "3.0"]


@pytest.mark.parametrize("how, kind, text", [
    ("raise", torch.multiprocessing.ProcessRaisedException, r"-- Process 1 terminated with the following error:\nTraceback"),
    ("signal", torch.multiprocessing.ProcessExitedException, "process 1 terminated with signal SIGKILL"),
    ("exit", torch.multiprocessing.ProcessExitedException, "process 1 terminated with exit code 3"),
])  # fmt: skip
def test_one_spawned_process_fails(how: str, kind: type, text: str) -> None:
    """The first process would sleep for an hour: the failure of the second ends it."""
    with pytest.raises(kind, match=text) as raised:
        torch.multiprocessing.spawn(_ends, (how,), nprocs=2)
    assert raised.value.error_index == 1
