"""Collectives between ranks of one process and of several, against torch's arithmetic; errors of ranks that disagree or exit."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from ranks import DTYPES, MAX, MIN, PROD, SUM, Ranks

REDUCE = {
    SUM: lambda a, b: a + b,
    PROD: lambda a, b: a * b,
    MAX: torch.maximum,
    MIN: torch.minimum,
}
SIZES = [1, 7, 1000, 300_000]  # the last is larger than a ring


@pytest.fixture
def two() -> Iterator[Ranks]:
    ranks = Ranks(2)
    yield ranks
    ranks.close()


def values(dtype: torch.dtype, count: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, 5, (count,), generator=generator).to(dtype)


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("op", REDUCE)
def test_all_reduce(two: Ranks, op: int, count: int) -> None:
    contents = [values(torch.float32, count, seed) for seed in range(2)]
    inputs, outputs = two.buffers(contents), two.buffers([torch.zeros_like(c) for c in contents])
    for rank in range(2):
        assert two.launch(rank, "HcclAllReduce", inputs[rank], outputs[rank], count, 4, op) == 0, two.message()
    assert two.synchronize() == [0, 0]
    assert all(torch.equal(out.read(), REDUCE[op](*contents)) for out in outputs)
    assert all(torch.equal(i.read(), c) for i, c in zip(inputs, contents))


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d not in (torch.uint16, torch.uint32, torch.uint64)], ids=str)
def test_all_reduce_in_place_of_every_dtype(two: Ranks, dtype: torch.dtype) -> None:
    contents = [values(dtype, 33, seed) for seed in range(2)]
    buffers = two.buffers(contents)
    for rank, buffer in enumerate(buffers):
        assert two.launch(rank, "HcclAllReduce", buffer, buffer, 33, DTYPES[dtype], SUM) == 0
    assert two.synchronize() == [0, 0]
    assert all(torch.equal(buffer.read(), contents[0] + contents[1]) for buffer in buffers)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_data_moves_in_every_dtype(two: Ranks, dtype: torch.dtype) -> None:
    contents = [values(dtype, 9, seed) for seed in range(2)]
    inputs, outputs = two.buffers(contents), two.buffers([torch.zeros(18, dtype=dtype)] * 2)
    for rank in range(2):
        assert two.launch(rank, "HcclAllGather", inputs[rank], outputs[rank], 9, DTYPES[dtype]) == 0
    assert two.synchronize() == [0, 0]
    assert all(out.read().tolist() == contents[0].tolist() + contents[1].tolist() for out in outputs)


@pytest.mark.parametrize("count", SIZES)
def test_the_other_collectives(two: Ranks, count: int) -> None:
    one, many = [values(torch.int32, count, s) for s in range(2)], [values(torch.int32, 2 * count, s) for s in range(2)]
    empty = [torch.zeros_like(c) for c in one]
    small, large = two.buffers(one), two.buffers(many)
    gathered, piece, swapped = two.buffers([torch.zeros_like(c) for c in many]), two.buffers(empty), two.buffers(many)
    scattered, reduced = two.buffers(empty), two.buffers(empty)
    for r in range(2):
        assert two.launch(r, "HcclAllGather", small[r], gathered[r], count, 2) == 0
        assert two.launch(r, "HcclReduceScatter", large[r], piece[r], count, 2, SUM) == 0
        assert two.launch(r, "HcclAlltoAll", large[r], count, 2, swapped[r], count, 2) == 0
        assert two.launch(r, "HcclScatter", large[r], scattered[r], count, 2, 1) == 0
        assert two.launch(r, "HcclReduce", small[r], reduced[r], count, 2, MAX, 1) == 0
        assert two.launch(r, "HcclBarrier") == 0
        assert two.launch(r, "HcclBroadcast", small[r], count, 2, 1) == 0
    assert two.synchronize() == [0, 0]
    halves = [m.view(2, count) for m in many]
    for r in range(2):
        assert torch.equal(gathered[r].read(), torch.cat(one))
        assert torch.equal(piece[r].read(), halves[0][r] + halves[1][r])
        assert torch.equal(swapped[r].read(), torch.cat([halves[0][r], halves[1][r]]))
        assert torch.equal(scattered[r].read(), halves[1][r])
        assert torch.equal(small[r].read(), one[1])
    assert torch.equal(reduced[1].read(), torch.maximum(*one))


def test_variable_counts(two: Ranks) -> None:
    array = lambda *items: (ctypes.c_uint64 * len(items))(*items)
    inputs = two.buffers([torch.arange(5.0), torch.arange(7.0) + 10])
    outputs = two.buffers([torch.zeros(6), torch.zeros(6)])
    plans = [((2, 3), (0, 2), (2, 4), (0, 2)), ((4, 3), (0, 4), (3, 3), (0, 3))]
    for r, (send, at, receive, into) in enumerate(plans):
        args = (inputs[r], array(*send), array(*at), 4, outputs[r], array(*receive), array(*into), 4)
        assert two.launch(r, "HcclAlltoAllV", *args) == 0, two.message()
    assert two.synchronize() == [0, 0]
    assert outputs[0].read().tolist() == [0, 1, 10, 11, 12, 13]
    assert outputs[1].read().tolist() == [2, 3, 4, 14, 15, 16]


@pytest.mark.parametrize("count", SIZES)
def test_send_and_receive(two: Ranks, count: int) -> None:
    source, target = two.buffers([torch.arange(float(count)), torch.zeros(count)])
    assert two.launch(0, "HcclSend", source, count, 4, 1) == 0
    assert two.launch(1, "HcclRecv", target, count, 4, 0) == 0
    assert two.synchronize() == [0, 0]
    assert torch.equal(target.read(), torch.arange(float(count)))


def test_both_send_first_in_a_group(two: Ranks) -> None:
    count = 300_000  # more than a ring takes: without a group, each would wait for the other's receive
    mine, theirs = (
        two.buffers([torch.full((count,), float(r)) for r in range(2)]),
        two.buffers([torch.zeros(count)] * 2),
    )
    for r in range(2):
        two.must("HcclGroupStart")
        assert two.launch(r, "HcclSend", mine[r], count, 4, 1 - r) == 0
        assert two.launch(r, "HcclRecv", theirs[r], count, 4, 1 - r) == 0
        two.must("HcclGroupEnd")
    assert two.synchronize() == [0, 0]
    assert [t.read().unique().tolist() for t in theirs] == [[1.0], [0.0]]


def test_collectives_are_ordered_by_their_stream(two: Ranks) -> None:
    buffers = two.buffers([torch.ones(1000)] * 2)
    for _ in range(10):
        for r in range(2):
            assert two.launch(r, "HcclAllReduce", buffers[r], buffers[r], 1000, 4, SUM) == 0
    assert two.synchronize() == [0, 0]
    assert all(b.read().unique().tolist() == [1024.0] for b in buffers)


def test_sub_communicators(run_python: Callable[..., str]) -> None:
    """Four ranks, two pairs: the members communicate through their parent's memory, one thread each."""
    code = """
import ctypes, sys, threading
sys.path[:0] = @
from ranks import Ranks
import torch
ranks, subs = Ranks(4), {}
def make(rank):
    ranks.on(rank)
    pair = rank // 2
    members, sub, config = (ctypes.c_uint32 * 2)(2 * pair, 2 * pair + 1), ctypes.c_void_p(), (ctypes.c_char * 2240)()
    ranks.hccl.HcclCommConfigInit(config)
    parent, key = ctypes.byref(ranks.comms[rank]), ctypes.c_uint64(pair)
    ranks.must("HcclCreateSubCommConfig", parent, 2, members, key, rank % 2, config, ctypes.byref(sub))
    subs[rank] = sub
threads = [threading.Thread(target=make, args=(r,)) for r in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
buffers = ranks.buffers([torch.full((10,), float(r)) for r in range(4)])
ranks.comms = subs
for r in range(4):
    assert ranks.launch(r, "HcclAllReduce", buffers[r], buffers[r], 10, 4, 0) == 0, ranks.message()
assert ranks.synchronize() == [0] * 4
print([b.read()[0].item() for b in buffers])
"""
    output = run_python(code.replace("@", str([p for p in sys.path if p])), CANN_SIM_DEVICES="4")
    assert output.strip() == "[1.0, 1.0, 5.0, 5.0]"


# ---- refusals --------------------------------------------------------------------------------------
def test_bad_calls_are_refused(two: Ranks) -> None:
    (buffer, other) = two.buffers([torch.ones(4)] * 2)
    host = ctypes.create_string_buffer(64)
    cases = [
        (1, ("HcclAllReduce", buffer, buffer, 5000, 4, SUM), "recvBuf|sendBuf"),
        (1, ("HcclAllReduce", ctypes.cast(host, ctypes.c_void_p), buffer, 4, 4, SUM), "sendBuf"),
        (2, ("HcclAllReduce", None, buffer, 4, 4, SUM), "sendBuf"),
        (5, ("HcclAllReduce", buffer, buffer, 4, 99, SUM), "data type 99"),
        (5, ("HcclAllReduce", buffer, buffer, 4, 4, 7), "reduction 7"),
        (5, ("HcclAllReduce", buffer, buffer, 1, 12, SUM), "data type 12"),
        (1, ("HcclBroadcast", buffer, 4, 4, 2), "root 2"),
        (1, ("HcclSend", buffer, 4, 4, 0), "destRank 0"),
        (1, ("HcclRecv", buffer, 4, 4, 5), "srcRank 5"),
        (2, ("HcclAlltoAllV", buffer, None, None, 4, buffer, None, None, 4), "counts"),
        (2, ("HcclBatchSendRecv", None, 1), "items"),
    ]
    for code, (name, *args), words in cases:
        assert two.launch(0, name, *args) == code, (name, args)
        assert any(word in two.message() for word in words.split("|")), name
    two.on(0)
    assert two.code("HcclCommDestroy", None) == 2
    assert two.code("HcclCommDestroy", ctypes.c_void_p(0x1000)) == 1
    assert two.code("HcclGetRankId", two.comms[0], None) == 2
    assert two.code("HcclGroupEnd") == 1
    two.on(1)
    assert two.code("HcclBarrier", two.comms[0], two.streams[1]) == 1  # a stream of another device
    assert "device 1" in two.message()
    assert other.read().tolist() == [1.0] * 4


def test_what_a_communicator_says_of_itself(two: Ranks) -> None:
    number, name, error = ctypes.c_uint32(), ctypes.create_string_buffer(128), ctypes.c_int32(-1)
    for rank in range(2):
        two.must("HcclGetRankId", two.comms[rank], ctypes.byref(number))
        assert number.value == rank
        two.must("HcclGetRankSize", two.comms[rank], ctypes.byref(number))
        assert number.value == 2
        two.must("HcclGetCommName", two.comms[rank], name)
        assert name.value
        two.must("HcclGetCommAsyncError", two.comms[rank], ctypes.byref(error))
        assert error.value == 0


# A failed collective leaves its device in error: each case has two devices of its own, in a process for all of them.
FAILING = """
import ctypes, json, sys
sys.path[:0] = {path}
import torch
from ranks import Ranks
found = []
for case, body in enumerate({bodies}):
    ranks = Ranks(2, first=2 * case)
    a, b = ranks.buffers([torch.ones(8)] * 2)
    exec(body)
    ranks.on(0)
    code, message, error = ranks.code("aclrtSynchronizeStream", ranks.streams[0]), ranks.message(), ctypes.c_int32()
    ranks.code("HcclGetCommAsyncError", ranks.comms[0], ctypes.byref(error))
    found.append((code, message, error.value))
print(json.dumps(found))
"""
WRONG: dict[str, tuple[str, str, int | None]] = {  # what is started, words of the message, asynchronous error
    "other count": (
        'ranks.launch(1, "HcclAllReduce", b, b, 4, 4, 0); ranks.launch(0, "HcclAllReduce", a, a, 8, 4, 0)',
        "expects 16 bytes",
        21,
    ),
    "other function": (
        'ranks.launch(1, "HcclBroadcast", b, 8, 4, 1); ranks.launch(0, "HcclAllReduce", a, a, 8, 4, 0)',
        "in HcclBroadcast",
        21,
    ),
    "no peer arrives": ('ranks.launch(0, "HcclAllReduce", a, a, 8, 4, 0)', "HCCL_EXEC_TIMEOUT", 9),
    "the other leaves": (
        'ranks.launch(0, "HcclRecv", a, 8, 4, 1); ranks.code("HcclCommDestroy", ranks.comms[1])',
        "has destroyed",
        21,
    ),
    "the other fails": (
        'ranks.launch(0, "HcclAllReduce", a, a, 8, 4, 0); ranks.launch(1, "HcclAllReduce", b, b, 4, 4, 0); ranks.on(1); '
        'ranks.code("aclrtSynchronizeStream", ranks.streams[1])',
        "expects 16 bytes|has failed in a collective",
        21,
    ),
    "the stream is aborted": (
        'ranks.launch(0, "HcclRecv", a, 8, 4, 1); ranks.on(0); ranks.must("aclrtStreamAbort", ranks.streams[0])',
        "abort",
        None,  # it may not have begun
    ),
}


@pytest.fixture(scope="module")
def failures(run_python: Callable[..., str]) -> dict[str, tuple[int, str, int]]:
    code = FAILING.format(path=[p for p in sys.path if p], bodies=[body for body, *_ in WRONG.values()])
    output = run_python(code, HCCL_EXEC_TIMEOUT="3", CANN_SIM_DEVICES=str(2 * len(WRONG)))
    return dict(zip(WRONG, json.loads(output)))


@pytest.mark.parametrize("case", WRONG)
def test_disagreeing_ranks_get_an_error(failures: dict[str, tuple[int, str, int]], case: str) -> None:
    code, message, error = failures[case]
    assert code != 0
    assert any(words in message for words in WRONG[case][1].split("|"))
    assert WRONG[case][2] in (None, error)


# ---- several processes -----------------------------------------------------------------------------
PROCESS = """
import ctypes, os, sys
sys.path[:0] = {path}
from pathlib import Path
import torch
from ranks import Buffer, OneRank
rank = int(sys.argv[1])
ranks = OneRank(rank, 2, Path(sys.argv[2]))
b = Buffer(ranks, rank, torch.full((300_000,), rank + 1.0))
{body}
"""


def start(body: str, file: Path, rank: int) -> subprocess.Popen[str]:
    code = PROCESS.format(path=[p for p in sys.path if p], body=body)
    command = [sys.executable, "-c", code, str(rank), str(file)]
    environment = os.environ | {"HCCL_CONNECT_TIMEOUT": "30"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_two_processes_reduce(tmp_path: Path) -> None:
    body = """
for _ in range(3): assert ranks.launch(rank, "HcclAllReduce", b, b, 300_000, 4, 0) == 0, ranks.message()
ranks.must("aclrtSynchronizeStream", ranks.streams[rank])
print(b.read().unique().tolist())
ranks.must("HcclCommDestroy", ranks.comms[rank])
"""
    started = [start(body, tmp_path / "root", rank) for rank in range(2)]
    assert [process.communicate(timeout=600)[0].strip() for process in started] == ["[12.0]", "[12.0]"]


def test_a_rank_that_exits_is_detected(tmp_path: Path) -> None:
    body = """
if rank == 1: os._exit(3)
ranks.must("HcclAllReduce", b.address, b.address, ctypes.c_uint64(300_000), 4, 0, ranks.comms[0], ranks.streams[0])
assert ranks.code("aclrtSynchronizeStream", ranks.streams[0]) != 0
print(ranks.message())
"""
    started = [start(body, tmp_path / "root", rank) for rank in range(2)]
    assert "rank 1 is no longer running" in started[0].communicate(timeout=600)[0]
    assert started[1].wait(timeout=600) == 3  # not before: the exit of the rank was detected although no call waited for it


def test_a_rank_that_does_not_come_is_waited_for_only_so_long(run_python: Callable[..., str]) -> None:
    code = """
import ctypes, cann_sim
hccl = ctypes.CDLL(cann_sim.home() + "/lib64/libhccl.so"); acl = ctypes.CDLL(cann_sim.home() + "/lib64/libascendcl.so")
acl.aclInit(None); acl.aclrtSetDevice(0)
root, comm = (ctypes.c_char * 4108)(), ctypes.c_void_p()
print(hccl.HcclGetRootInfo(root), hccl.HcclCommInitRootInfo(2, root, 0, ctypes.byref(comm)))
unmade = bytes(4108)
print(*(hccl.HcclCommInitRootInfo(2, info, rank, ctypes.byref(comm)) for info, rank in ((unmade, 0), (root, 2))))
"""
    path = os.pathsep.join(p for p in sys.path if p)
    assert run_python(code, HCCL_CONNECT_TIMEOUT="1", PYTHONPATH=path) == "0 9\n1 1\n"
