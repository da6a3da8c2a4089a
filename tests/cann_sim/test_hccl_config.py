"""What a communicator is made from and what clients register with it: configurations, rank tables, windows, suspending."""

from __future__ import annotations

import ctypes
import json
import os
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from ranks import SUM, Ranks
from test_hccl import start

PARA, PTR, NOT_SUPPORT, NOT_FOUND, OPEN_FILE, TIMEOUT, SUSPENDING = 1, 2, 5, 6, 10, 9, 22
MAGIC = 0xF0F0F0F0
CONFIG_BYTES = 2240
FIELDS = {  # where they lie in HcclCommConfig
    "hcclBufferSize": ("I", 24), "hcclDeterministic": ("I", 28), "hcclCommName": ("128s", 32), "hcclOpExpansionMode": ("I", 288),
    "hcclExecTimeOut": ("i", 316),
}  # fmt: skip


@pytest.fixture
def two() -> Iterator[Ranks]:
    ranks = Ranks(2)
    yield ranks
    ranks.close()


def config(ranks: Ranks, size: int = CONFIG_BYTES, **fields: bytes | int) -> ctypes.Array[ctypes.c_char]:
    """A configuration of a client whose struct is `size` bytes."""
    whole = (ctypes.c_char * CONFIG_BYTES)()
    ranks.hccl.HcclCommConfigInit(whole)
    for name, value in fields.items():
        kind, at = FIELDS[name]
        struct.pack_into(kind, whole, at, value)
    struct.pack_into("Q", whole, 0, size)
    return (ctypes.c_char * size).from_buffer_copy(bytes(whole)[:size])


def alone(ranks: Ranks, given: ctypes.Array[ctypes.c_char]) -> tuple[int, ctypes.c_void_p]:
    """A communicator of one rank, made from a configuration."""
    ranks.on(0)
    root, comm = (ctypes.c_char * 4108)(), ctypes.c_void_p()
    ranks.must("HcclGetRootInfo", root)
    return ranks.code("HcclCommInitRootInfoConfig", 1, root, 0, given, ctypes.byref(comm)), comm


def test_an_initialised_configuration_has_the_defaults(two: Ranks) -> None:
    given = config(two)
    assert struct.unpack_from("QIIQIIB", given) == (CONFIG_BYTES, MAGIC, 10, 0, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    assert struct.unpack_from("i", given, 316) == (-1,)
    two.hccl.HcclCommConfigInit(None)
    assert two.hccl.HcclGetCommConfigCapability() == 12


@pytest.mark.parametrize("size", [300, CONFIG_BYTES, CONFIG_BYTES + 64])
def test_structs_of_older_and_newer_clients(two: Ranks, size: int) -> None:
    given = (ctypes.c_char * size).from_buffer_copy(bytes(config(two, min(size, CONFIG_BYTES), hcclCommName=b"world")).ljust(size, b"\xee"))
    struct.pack_into("Q", given, 0, size)
    code, comm = alone(two, given)
    assert code == 0, two.message()
    name = ctypes.create_string_buffer(128)
    two.must("HcclGetCommName", comm, name)
    assert name.value == b"world"
    two.must("HcclCommDestroy", comm)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"hcclBufferSize": 0}, "hcclBufferSize is 0"),
        ({"hcclDeterministic": 3}, "hcclDeterministic is 3"),
        ({"hcclOpExpansionMode": 7}, "hcclOpExpansionMode is 7"),
        ({"hcclExecTimeOut": -2}, "hcclExecTimeOut is -2"),
        ({"hcclCommName": b"n" * 128}, "hcclCommName"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_wrong_fields_are_refused(two: Ranks, fields: dict[str, int], words: str) -> None:
    assert alone(two, config(two, **fields))[0] == PARA
    assert words in two.message()


def test_a_configuration_must_be_initialised(two: Ranks) -> None:
    assert alone(two, (ctypes.c_char * CONFIG_BYTES)())[0] == PARA
    assert "HcclCommConfigInit" in two.message()


def test_deterministic_is_the_communicators(two: Ranks) -> None:
    code, comm = alone(two, config(two, hcclDeterministic=1))
    assert code == 0
    value = ctypes.c_int32()
    two.must("HcclGetCommConfig", comm, 0, ctypes.byref(value))
    assert value.value == 1
    two.must("HcclCommDestroy", comm)


def test_a_communicator_has_its_own_execution_timeout(run_python: Callable[..., str]) -> None:
    code = """
import ctypes, struct, sys, threading
sys.path[:0] = @
from ranks import Ranks
from test_hccl_config import config
import torch
ranks = Ranks(2)
root = (ctypes.c_char * 4108)()
ranks.must("HcclGetRootInfo", root)
comms = {}
def join(rank):
    ranks.on(rank)
    comms[rank] = ctypes.c_void_p()
    given = config(ranks, hcclExecTimeOut=1)
    ranks.must("HcclCommInitRootInfoConfig", 2, root, rank, given, ctypes.byref(comms[rank]))
threads = [threading.Thread(target=join, args=(r,)) for r in range(2)]
[t.start() for t in threads]; [t.join() for t in threads]
ranks.comms = comms
(a,) = ranks.buffers([torch.ones(8)])
assert ranks.launch(0, "HcclAllReduce", a, a, 8, 4, 0) == 0
ranks.on(0)
code, error = ranks.code("aclrtSynchronizeStream", ranks.streams[0]), ctypes.c_int32()
ranks.must("HcclGetCommAsyncError", comms[0], ctypes.byref(error))
print(code != 0, error.value)
"""
    path = str([p for p in sys.path if p])
    assert run_python(code.replace("@", path), HCCL_EXEC_TIMEOUT="300") == f"True {TIMEOUT}\n"


# ---- suspending and resuming ------------------------------------------------------------------------------------


def test_a_suspended_communicator_works_again_when_all_resumed(two: Ranks) -> None:
    buffers = two.buffers([torch.ones(200_000)] * 2)
    assert two.launch(0, "HcclAllReduce", buffers[0], buffers[0], 200_000, 4, SUM) == 0  # half a message stays in a ring
    two.must("HcclCommSuspend", two.comms[0])
    two.must("HcclCommSuspend", two.comms[1])
    assert two.synchronize()[0] != 0
    error = ctypes.c_int32()
    two.must("HcclGetCommAsyncError", two.comms[0], ctypes.byref(error))
    assert error.value == SUSPENDING
    assert two.launch(0, "HcclAllReduce", buffers[0], buffers[0], 8, 4, SUM) == SUSPENDING
    codes = {}
    threads = [threading.Thread(target=lambda r=r: codes.update({r: two.code("HcclCommResume", two.comms[r])})) for r in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert codes == {0: 0, 1: 0}
    again = two.buffers([torch.full((1000,), float(r)) for r in range(2)])
    for r in range(2):
        assert two.launch(r, "HcclAllReduce", again[r], again[r], 1000, 4, SUM) == 0, two.message()
    assert two.synchronize() == [0, 0]
    assert [b.read().unique().tolist() for b in again] == [[1.0]] * 2
    assert two.code("HcclCommResume", two.comms[0]) == 0  # nothing to do


def test_aborting_a_device_suspends_its_communicators(two: Ranks) -> None:
    error, buffers = ctypes.c_int32(), two.buffers([torch.ones(200_000)] * 2)
    assert two.launch(0, "HcclAllReduce", buffers[0], buffers[0], 200_000, 4, SUM) == 0  # rank 1 stays away
    assert two.acl.aclrtDeviceTaskAbort(0, ctypes.c_uint32(600_000)) == 0
    for rank, code in ((0, SUSPENDING), (1, 0)):
        two.must("HcclGetCommAsyncError", two.comms[rank], ctypes.byref(error))
        assert error.value == code
    two.must("HcclCommSuspend", two.comms[1])
    threads = [threading.Thread(target=two.must, args=("HcclCommResume", two.comms[r])) for r in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    two.synchronize()
    for r in range(2):
        assert two.launch(r, "HcclAllReduce", buffers[r], buffers[r], 8, 4, SUM) == 0, two.message()
    assert two.synchronize() == [0, 0]


# ---- memory that clients register --------------------------------------------------------------------------------


def test_windows_are_exchanged_with_other_ranks(two: Ranks) -> None:
    (mine,) = two.buffers([torch.ones(64)])
    handle, peers = ctypes.c_void_p(), ctypes.c_uint32(1)
    comm, size = two.comms[0], ctypes.c_uint64(256)
    two.must("HcclCommRegister", comm, mine.address, size, ctypes.byref(handle), 0)
    two.must("HcclCommExchangeMem", comm, handle, ctypes.byref(peers), 1)
    assert two.code("HcclCommExchangeMem", comm, handle, ctypes.byref(ctypes.c_uint32(0)), 1) == PARA  # this rank itself
    assert two.code("HcclCommExchangeMem", two.comms[1], handle, ctypes.byref(peers), 1) == PARA
    assert two.code("HcclCommRegister", comm, mine.address, ctypes.c_uint64(1 << 40), ctypes.byref(handle), 0) == PARA
    assert two.code("HcclCommRegister", comm, None, size, ctypes.byref(handle), 0) == PTR
    two.must("HcclCommDeregister", comm, handle)
    assert two.code("HcclCommDeregister", comm, handle) == PARA
    assert "deregistered" in two.message()


def test_symmetric_windows_are_of_other_socs(two: Ranks) -> None:
    (mine,) = two.buffers([torch.ones(64)])
    assert two.code("HcclCommSymWinRegister", two.comms[0], mine.address, ctypes.c_uint64(256), ctypes.byref(ctypes.c_void_p()), 1) == NOT_SUPPORT


def test_symmetric_windows(run_python: Callable[..., str]) -> None:
    code = """
import ctypes, sys
sys.path[:0] = @
from ranks import Ranks
import torch
ranks = Ranks(2)
(b,) = ranks.buffers([torch.ones(64)])
window, found, offset, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_uint64(256)
ranks.must("HcclCommSymWinRegister", ranks.comms[0], b.address, size, ctypes.byref(window), 1)
at = ctypes.c_void_p(b.address.value + 64)
get = lambda n: ranks.code("HcclCommSymWinGet", ranks.comms[0], at, ctypes.c_size_t(n), ctypes.byref(found), ctypes.byref(offset))
print(get(192), found.value == window.value, offset.value, get(193))
print(ranks.code("HcclCommSymWinDeregister", window), get(1), ranks.code("HcclCommSymWinDeregister", window))
"""
    path = str([p for p in sys.path if p])
    assert run_python(code.replace("@", path), CANN_SIM_SOC="Ascend910_9391") == f"0 True 64 {NOT_FOUND}\n0 {NOT_FOUND} {PARA}\n"


def test_ranges_of_reserved_addresses(two: Ranks) -> None:
    (b,) = two.buffers([torch.ones(1024)])
    comm, base, size = two.comms[0], b.address, ctypes.c_size_t(4096)
    inner, handle, zero = ctypes.c_void_p(base.value + 1024), ctypes.c_void_p(1), ctypes.c_size_t(0)  # type: ignore[operator]
    flags = ctypes.c_uint64(0)
    activate = lambda at, n: two.code("HcclCommActivateCommMemory", comm, at, ctypes.c_size_t(n), zero, handle, flags)
    assert activate(base, 1024) == PARA
    two.must("HcclCommSetMemoryRange", comm, base, size, zero, flags)
    assert two.code("HcclCommSetMemoryRange", comm, base, size, zero, flags) == PARA
    assert [activate(inner, 1024), activate(inner, 1024), activate(inner, 1 << 40)] == [0, PARA, PARA]
    assert two.code("HcclCommUnsetMemoryRange", comm, base) == PARA
    two.must("HcclCommDeactivateCommMemory", comm, inner)
    assert two.code("HcclCommDeactivateCommMemory", comm, inner) == NOT_FOUND
    two.must("HcclCommUnsetMemoryRange", comm, base)
    assert two.code("HcclCommUnsetMemoryRange", comm, base) == NOT_FOUND


# ---- rank tables -------------------------------------------------------------------------------------------------


def table(folder: Path, devices: list[int]) -> Path:
    entries = [{"device_id": str(d), "device_ip": "10.0.0.1", "rank_id": str(rank)} for rank, d in enumerate(devices)]
    file = folder / "ranks.json"
    file.write_text(json.dumps({"server_count": "1", "server_list": [{"server_id": "s", "device": entries}], "status": "completed", "version": "1.0"}))
    return file


JOIN = """
comm = ctypes.c_void_p()
for _ in range(3):  # each time anew
    ranks.must("aclrtSetDevice", rank)
    assert ranks.code("HcclCommInitClusterInfo", b"TABLE", rank, ctypes.byref(comm)) == 0, ranks.message()
    size = ctypes.c_uint32()
    ranks.must("HcclGetRankSize", comm, ctypes.byref(size))
    stream = ctypes.c_void_p()
    ranks.must("aclrtCreateStream", ctypes.byref(stream))
    at, bytes_ = ctypes.c_void_p(), ctypes.c_size_t(16)
    ranks.must("aclrtMalloc", ctypes.byref(at), bytes_, 0)
    values = (ctypes.c_float * 4)(*[rank + 1.0] * 4)
    ranks.must("aclrtMemcpy", at, bytes_, values, bytes_, 1)
    ranks.must("HcclAllReduce", at, at, ctypes.c_uint64(4), 4, 0, comm, stream)
    ranks.must("aclrtSynchronizeStream", stream)
    ranks.must("aclrtMemcpy", values, bytes_, at, bytes_, 2)
    print(size.value, list(values))
    ranks.must("HcclCommDestroy", comm)
"""


def test_processes_meet_by_a_rank_table(tmp_path: Path) -> None:
    body = JOIN.replace("TABLE", str(table(tmp_path, [0, 1])))
    started = [start(body, tmp_path / "root", rank) for rank in range(2)]
    assert [p.communicate(timeout=600)[0] for p in started] == ["2 [3.0, 3.0, 3.0, 3.0]\n" * 3] * 2
    assert not list(Path("/dev/shm").glob(f"cann_sim_ranks_{os.geteuid()}_*"))


def test_wrong_rank_tables(two: Ranks, tmp_path: Path) -> None:
    comm = ctypes.c_void_p()
    two.on(0)
    init = lambda file, rank: two.code("HcclCommInitClusterInfo", str(file).encode(), rank, ctypes.byref(comm))
    assert init(tmp_path / "absent", 0) == OPEN_FILE
    good = table(tmp_path, [0, 1])
    assert init(good, 2) == PARA
    assert init(good, 1) == PARA  # device 1 is not this thread's
    assert "is device 1 in the rank table" in two.message()
    for text in ("", "{}", '{"device_id": "0"}', '[{"device_id": "0", "rank_id": "1"}]', "{" * 1000):
        good.write_text(text)
        assert init(good, 0) == PARA, text
    assert two.code("HcclCommInitClusterInfoConfig", str(good).encode(), 0, None, ctypes.byref(comm)) == PTR


