"""torch.distributed between processes, on both engines, against PyTorch's gloo; and what happens when a rank fails."""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import mindtorch_v2 as mt

HERE = Path(__file__).parent
ENGINES = ("gloo", "hccl")


class Ranks:
    """Processes that run cases of a script, one a rank; what they print goes to files."""

    def __init__(self, script: str, library: str, backend: str, size: int, folder: Path, seconds: float = 300,
                 cases: tuple[str, ...] = (), ranks: list[int] | None = None) -> None:  # fmt: skip
        folder.mkdir(exist_ok=True)
        self.folder, self.processes = folder, []
        environment = os.environ | {"CANN_SIM_DEVICES": str(size)}
        for rank in range(size) if ranks is None else ranks:
            command = [sys.executable, str(HERE / script), library, backend, "npu" if backend == "hccl" else "cpu", str(rank),
                       str(size), str(folder / "store"), str(folder / "out"), str(seconds), *cases]  # fmt: skip
            with open(folder / f"said.{rank}", "w") as said:
                self.processes.append(subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, env=environment))

    def finish(self, expected: tuple[int, ...] = (0, -9), limit: float = 400) -> list[dict[str, Any]]:
        """The results of the ranks. When one fails, the others are not waited for."""
        deadline = time.monotonic() + limit
        while (codes := [process.poll() for process in self.processes]).count(None) and time.monotonic() < deadline:
            if any(code not in (*expected, None) for code in codes):
                break
            time.sleep(0.05)
        for process in self.processes:
            process.kill()
            process.wait()
        assert all(code in expected for code in codes), f"exit codes {codes}\n{self.said()}"
        files = [self.folder / f"out.{rank}" for rank in range(len(self.processes))]
        return [json.loads(file.read_text()) if file.exists() else {} for file in files]

    def said(self) -> str:
        return "\n".join(file.read_text() for file in sorted(self.folder.glob("said.*")))


@pytest.fixture(scope="module")
def results(npu: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Every case, by library and engine: PyTorch starts first, because it takes longest."""
    folder = tmp_path_factory.mktemp("collectives")
    runs = {name: Ranks("dist_cases.py", library, backend, 2, folder / name) for name, library, backend in
            (("torch", "torch", "gloo"), ("gloo", "mindtorch_v2", "gloo"), ("hccl", "mindtorch_v2", "hccl"))}  # fmt: skip
    return {name: ranks.finish() for name, ranks in runs.items()}


def names(script: str) -> list[str]:
    text = (HERE / script).read_text()
    return [line[4:].partition("(")[0] for mark, line in zip(text.split("\n"), text.split("\n")[1:]) if mark == "@case"]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", names("dist_cases.py"))
def test_collective_is_torchs(results: dict[str, list[dict[str, Any]]], engine: str, name: str) -> None:
    if engine == "hccl" and name in ("refusals", "all_reduce_bits", "all_reduce_sparse"):
        pytest.skip("the messages are gloo's" if name == "refusals" else "HCCL has no bitwise reductions, and no sparse tensors")
    for ours, judge in zip(results[engine], results["torch"], strict=True):
        assert "failed" not in (judge[name] if isinstance(judge[name], dict) else {}), judge[name]
        assert ours[name] == judge[name]


def mine(rank: int, count: int) -> list[float]:
    return [float((i * (rank + 1) + rank) % 5 + 1) for i in range(count)]


def total(size: int, count: int) -> list[float]:
    return [sum(column) for column in zip(*(mine(rank, count) for rank in range(size)))]


OURS = ("more_all_reduce", "more_gathers", "coalesced", "split", "object_messages", "again")


@pytest.mark.parametrize("engine", ENGINES)
def test_what_gloo_does_not_have(npu: ModuleType, tmp_path: Path, engine: str) -> None:
    cases = OURS[:-1] + (("from_any", "monitored") if engine == "gloo" else ("captured", "queued", "reductions_of_hccl")) + OURS[-1:]
    ranks = Ranks("dist_ours.py", "mindtorch_v2", engine, 2, tmp_path, cases=cases).finish()
    for rank, got in enumerate(ranks):
        assert not [case for case in got.values() if isinstance(case, dict) and "failed" in case], got
        premul, flags, odd = got["more_all_reduce"]
        assert premul == [x / 2 for x in total(2, 4)] and flags == [True, False, True] and odd == total(2, 6)[::2]
        stacked, uneven, mean, part, swapped = got["more_gathers"]
        assert stacked == [mine(0, 2), mine(1, 2)] and uneven == [mine(0, 1), mine(1, 2)]
        assert mean == [x / 2 for x in total(2, 4)[2 * rank : 2 * rank + 2]] and part == total(2, rank + 1)
        assert swapped == [mine(0, rank + 1), mine(1, rank + 1)]
        if engine == "hccl":
            replays, after = got["captured"]
            x, left, counted, alive, said, same, few_events = got["queued"]
            assert x == [[1, 1], [1, 1]] and (left, counted, alive) == (0, 100, 0) and same and few_events
            assert re.fullmatch(rf"broadcast of \(2, 2\) torch.float32, sequence number \d+ of group 0, rank {rank}", said)
            told, average, share = got["reductions_of_hccl"]
            assert told == [f"Cannot use ReduceOp.{name} with HCCL" for name in ("BAND", "BOR", "BXOR") for _ in range(3)]
            assert average == [1, -1, -1, 7] and share == average[2 * rank : 2 * rank + 2]
            assert replays == [[[7, 7], [1, 1, 2, 2]], [[11, 11], [2, 2, 3, 3]]] and after == total(2, 2)
        tensors, later = got["coalesced"]
        assert tensors == [[2 * (x + 2 * i) for x in total(2, 3)] for i in range(3)] and later == [total(2, 2)]
        t, told, number = got["split"]
        assert t == mine(rank, 2) and number == (-1 if rank else 0)
        wanted = "Running all_reduce on global rank 1 which does not belong to the given group."
        assert told == ([wanted] if rank else [])
        assert got["again"] == total(2, 3)
    assert ranks[1]["object_messages"] == [0, [{"a": 1}, "text"]]
    if engine == "gloo":
        assert ranks[0]["from_any"] == [[1], [10.0]]
        assert ranks[0]["monitored"] == "[Rank 0]: Rank 1 failed to pass monitoredBarrier in 300 ms"


@pytest.mark.parametrize("engine", ENGINES)
def test_four_ranks(npu: ModuleType, tmp_path: Path, engine: str) -> None:
    cases = ("all_reduce_empty_and_scalar", "all_gather", "reduce_scatter", "send_and_recv", "subgroups", "barriers")
    for rank, got in enumerate(Ranks("dist_cases.py", "mindtorch_v2", engine, 4, tmp_path, cases=cases).finish()):
        assert got["all_reduce_empty_and_scalar"] == [[], 12.0] and got["barriers"] is True
        assert got["all_gather"][1] == sum((mine(r, 4) for r in range(4)), [])
        assert got["reduce_scatter"][0] == [x + 4 * rank for x in total(4, 3)]
        assert got["send_and_recv"][0] == mine((rank - 1) % 4, 5) and got["send_and_recv"][1] == (rank - 1) % 4
        pair = rank // 2 * 2
        assert got["subgroups"] == [[a + b for a, b in zip(mine(pair, 2), mine(pair + 1, 2))], 2, [pair, pair + 1]]


def error_of(ranks: Ranks, case: str) -> tuple[str, str]:
    """(type, message) of the exception of rank 0. Whoever waits for the timeout instead is ended by finish()."""
    told = ranks.finish()[0][case]
    assert told["error"] is not None, told
    return told["error"][0], told["error"][1]


# Rank 1 is killed when rank 0 has come to MPI_Init, and no earlier: before it another message would be right.
ENDS_IN_MPI_INIT = """
import datetime, os, sys, time
import mindtorch_v2 as torch
from mindtorch_v2.distributed import _mpi, _mpi_world
entered = sys.argv[2] + ".entered"

def survive():
    open(entered, "w").close()
    _mpi.init()

def end():
    while not os.path.exists(entered):
        time.sleep(0.01)
    os.kill(os.getpid(), 9)

_mpi_world._mpi = type("", (), vars(_mpi) | {"init": end if sys.argv[1] == "1" else survive})
torch.distributed.init_process_group("gloo", f"file://{sys.argv[2]}", datetime.timedelta(seconds=300), 2, int(sys.argv[1]))
"""


def test_a_rank_killed_while_mpi_starts_leaves_no_shared_memory(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ENDS_IN_MPI_INIT]
    ranks = [subprocess.Popen([*command, str(rank), str(tmp_path / "store")], stderr=subprocess.PIPE, text=True) for rank in (0, 1)]
    said = [rank.communicate(timeout=600)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [1, -9], said
    assert "MPI_Init: rank 1" in said[0] and "is no longer running" in said[0], said
    job, hashed = mt.distributed.FileStore(f"{tmp_path}/store", 2).get("default_pg/pmi/job"), 2166136261
    for byte in job:
        hashed = (hashed ^ byte) * 16777619 & 0xFFFFFFFF
    assert not list(Path("/dev/shm").glob(f"mpich_shm_{hashed:x}_*"))


def test_a_rank_that_has_given_up_is_not_waited_for() -> None:
    """It was there, and is not any more: HCCL would wait for it for 120 seconds at least."""
    peers, store = mt.distributed._peers.Peers(1), mt.distributed.HashStore()
    ended = subprocess.Popen(["true"])
    ended.wait()
    store.set("peer/0", json.dumps([peers.host, ended.pid, "1"]))
    with pytest.raises(mt.distributed.DistBackendError, match=rf"meeting: rank 0 \(process {ended.pid}\) is no longer running"):
        peers.wait_for(store, "peer", [0, 1], datetime.timedelta(seconds=5), "meeting")


def test_a_call_that_waits_for_a_dead_rank_ends_the_process() -> None:
    """Such as HcclCommInitRootInfo. While all ranks live it may take as long as its own timeout."""
    program = """
import datetime, subprocess, time
import mindtorch_v2 as torch
peers = torch.distributed._peers.Peers(1)
other = subprocess.Popen(["sleep", "3600"])
peers.known[0] = (peers.host, other.pid, torch.distributed._peers.process_start(other.pid))
with peers.or_exit([0, 1], datetime.timedelta(seconds=0.1), "connecting", returns=True):
    time.sleep(1.5)                               # longer than the timeout
    print("lives", flush=True)
    other.kill()
    other.wait()
    time.sleep(3600)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)
    assert done.returncode == 1 and done.stdout == "lives\n", done
    assert "connecting: rank 0" in done.stderr and "so this process ends" in done.stderr


def test_a_killed_rank_is_an_error(npu: ModuleType, tmp_path: Path) -> None:
    before = set(os.listdir("/dev/shm"))
    runs = {engine: Ranks("dist_ours.py", "mindtorch_v2", engine, 2, tmp_path / engine, 600, ("killed",)) for engine in ENGINES}
    kinds = {"gloo": "DistBackendError", "hccl": "AcceleratorError"}   # an npu tells it when the host waits for the device
    for engine, ranks in runs.items():
        kind, text = error_of(ranks, "killed")
        assert kind == kinds[engine] and "rank 1 (process" in text and "is no longer running: all_reduce of (100,)" in text
        assert "sequence number 3 of group 0, rank 0" in text
    assert not {name for name in set(os.listdir("/dev/shm")) - before if name.startswith("mpich")}


WAITS = {                                         # case: the expected messages, in order
    "killed_before_barrier": ("rank 1 (process", "is no longer running", "barrier, sequence number 2 of group 0, rank 0"),
    "stalled": ("Timed out after 1.5 s: all_reduce of (4,) torch.float32, sequence number 101 of group 1, rank 0. "
                "Elsewhere: rank 1 does not wait",),
}  # fmt: skip


@pytest.mark.parametrize("case", WAITS)
def test_a_wait_ends_where_a_rank_does_not_come(npu: ModuleType, tmp_path: Path, case: str) -> None:
    runs = [Ranks("dist_ours.py", "mindtorch_v2", engine, 2, tmp_path / engine, 600, (case,)) for engine in ENGINES]
    for ranks in runs:
        _, text = error_of(ranks, case)
        for part in WAITS[case]:
            assert part in text


def test_a_rank_that_ends_where_the_engine_could_only_hang(
    npu: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MPI makes a communicator, and HCCL one after the store, without looking whether the others still run."""
    grouped = Ranks("dist_ours.py", "mindtorch_v2", "gloo", 2, tmp_path / "group", 600, ("killed_before_new_group",))
    monitored = Ranks("dist_ours.py", "mindtorch_v2", "gloo", 2, tmp_path / "watched", 600, ("killed_before_monitored",))
    monkeypatch.setenv("HCCL_BLOCKING_WAIT", "1")
    monkeypatch.setenv("HCCL_CONNECT_TIMEOUT", "5")   # of which rank 0 spends all
    connecting = Ranks("dist_ours.py", "mindtorch_v2", "hccl", 2, tmp_path / "meet", 600, ("killed_while_connecting",))
    monkeypatch.delenv("HCCL_CONNECT_TIMEOUT")
    blocking = Ranks("dist_ours.py", "mindtorch_v2", "hccl", 2, tmp_path / "wait", 600, ("waits_on_the_host",))
    kind, text = error_of(grouped, "killed_before_new_group")
    assert kind == "DistBackendError" and text.startswith("group 1 of ranks [0, 1]: rank 1 (process")
    assert error_of(monitored, "killed_before_monitored") == (
        "RuntimeError", "[Rank 0]: Rank 1 failed to pass monitoredBarrier in 1000 ms")  # fmt: skip
    kind, text = error_of(connecting, "killed_while_connecting")
    assert kind == "DistBackendError" and "all_reduce of (4,) torch.float32, sequence number 1 of group 0, rank 0: rank 1" in text
    kind, text = error_of(blocking, "waits_on_the_host")
    assert kind == "DistBackendError" and text.startswith("all_reduce of (4,) torch.float32, sequence number 2 of group 0, rank 0")


def test_a_rank_that_ends_in_mpi_init_ends_the_others(tmp_path: Path) -> None:
    """MPI_Init spins without end and cannot be interrupted: the process must end instead, and say why."""
    command = [sys.executable, "-c", ENDS_IN_MPI_INIT]
    other = subprocess.Popen([*command, "1", str(tmp_path / "store")])
    survivor = subprocess.run([*command, "0", str(tmp_path / "store")], capture_output=True, text=True, timeout=600)
    assert (other.wait(), survivor.returncode) == (-9, 1)
    assert f"rank 0: MPI_Init: rank 1 (process {other.pid}) is no longer running" in survivor.stderr


def test_a_rank_that_does_not_come_in_time(npu: ModuleType, tmp_path: Path) -> None:
    late = {e: Ranks("dist_ours.py", "mindtorch_v2", e, 2, tmp_path / f"late-{e}", 60, ("late",)) for e in ENGINES}
    missing = Ranks("dist_ours.py", "mindtorch_v2", "gloo", 2, tmp_path / "missing", 1, ("late",), ranks=[0])
    other = Ranks("dist_ours.py", "mindtorch_v2", "gloo", 2, tmp_path / "other", 60, ("another_collective",))
    kind, text = error_of(late["gloo"], "late")
    assert kind == "DistBackendError" and text.startswith("Timed out after 1.5 s: all_reduce of (4,)") and "rank 0" in text
    kind, text = error_of(late["hccl"], "late")
    assert kind == "DistBackendError" and text == (
        "no communicator on npu:0 for all_reduce of (4,) torch.float32, sequence number 1 of group 1, rank 0: expected 2 ranks "
        "within 0:00:01.500000, but of rank 1 nothing came")  # fmt: skip
    missing.finish(expected=(1,))
    assert "expected 2 ranks within 0:00:01, but of rank 1 nothing came" in missing.said()
    first, second = other.finish()
    assert "Elsewhere: recv of (4,)" in first["another_collective"]["error"][1]
    assert "Elsewhere: all_reduce of (4,)" in second["another_collective"]["error"][1]


@pytest.mark.parametrize("engine", ENGINES)
def test_abort_makes_pending_waits_raise(npu: ModuleType, tmp_path: Path, engine: str) -> None:
    kind, text = Ranks("dist_ours.py", "mindtorch_v2", engine, 2, tmp_path, cases=("aborted",)).finish()[0]["aborted"]["error"]
    assert kind == "DistBackendError" and "rank 0 has aborted group" in text and "all_reduce of (4,)" in text
