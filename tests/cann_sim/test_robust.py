"""The simulator and clients that do what they must not: sizes beyond counting, one executor or stream in several threads."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from client import Client, FourBits, Scalar

import cann_sim

UNKNOWN_EXECUTOR, WRONG_STREAM = 161002, 107003


@pytest.fixture(scope="module")
def client() -> Client:
    return Client()


def at_once(client: Client, *works: Callable[[], Any]) -> list[Any]:
    """What the works answer that begin together, each in a thread of its own."""
    barrier, answers, context = threading.Barrier(len(works)), [None] * len(works), ctypes.c_void_p()
    client.must("aclrtGetCurrentContext", ctypes.byref(context))

    def begin(i: int) -> None:
        client.must("aclrtSetCurrentContext", context)
        barrier.wait()
        answers[i] = works[i]()

    threads = [threading.Thread(target=begin, args=(i,)) for i in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def executor(client: Client, *args: Any) -> ctypes.c_void_p:
    workspace, made = ctypes.c_uint64(), ctypes.c_void_p()
    client.must("aclnnAddGetWorkspaceSize", *args, ctypes.byref(workspace), ctypes.byref(made))
    assert workspace.value == 0
    return made


@pytest.mark.parametrize(
    ("sizes", "strides", "offset", "storage"),
    [
        ((1 << 62,), (1,), 0, 1 << 62),
        ((1 << 32, 1 << 32), (0, 0), 0, 4),
        ((1 << 33,), (1 << 31,), 0, 16),
        ((4,), (1 << 62,), 1 << 62, 16),
        ((3,), (-(1 << 62),), 0, 16),
        ((4,), (1,), 0, -4),
    ],
)
def test_sizes_that_cannot_be_counted_are_refused(
    client: Client, sizes: tuple[int, ...], strides: tuple[int, ...], offset: int, storage: int
) -> None:
    t, n = client.tensor(torch.ones(16)), len(sizes)
    made = client.function("aclCreateTensor")(
        (ctypes.c_int64 * n)(*sizes), ctypes.c_uint64(n), 0, (ctypes.c_int64 * n)(*strides), ctypes.c_int64(offset), 2,
        (ctypes.c_int64 * 1)(storage), ctypes.c_uint64(1), t.address,
    )  # fmt: skip
    if made:
        tensor, found, workspace = ctypes.c_void_p(made), ctypes.c_void_p(), ctypes.c_uint64()
        code = client.function("aclnnAbsGetWorkspaceSize")(
            tensor, tensor, ctypes.byref(workspace), ctypes.byref(found)
        )
        assert code == 161002
        client.must("aclDestroyTensor", tensor)
    t.free()


@pytest.mark.parametrize(("items", "code"), [(16, 0), (64, 161002)])
def test_the_allocation_counts_where_storage_dims_say_less(client: Client, items: int, code: int) -> None:
    t, one = client.tensor(torch.ones(16)), ctypes.c_uint64(1)
    array = lambda n: (ctypes.c_int64 * 1)(n)
    made = client.function("aclCreateTensor")(array(items), one, 0, array(1), ctypes.c_int64(0), 2, array(1), one, t.address)
    tensor, found, workspace = ctypes.c_void_p(made), ctypes.c_void_p(), ctypes.c_uint64()
    assert client.function("aclnnAbsGetWorkspaceSize")(tensor, tensor, ctypes.byref(workspace), ctypes.byref(found)) == code
    if not code:
        client.must("aclnnAbs", None, ctypes.c_uint64(0), found, client.stream)
        client.must("aclrtSynchronizeStream", client.stream)
    client.must("aclDestroyTensor", tensor)
    t.free()


@pytest.mark.parametrize("count", [1 << 31, 1 << 61, (1 << 64) - 1])
def test_arrays_that_cannot_be_are_refused(client: Client, count: int) -> None:
    for name in ("aclCreateIntArray", "aclCreateFloatArray", "aclCreateTensorList"):
        assert client.function(name)((ctypes.c_int64 * 1)(), ctypes.c_uint64(count)) is None


NONE, ONES = torch.zeros(0), torch.ones
REFUSED: dict[str, tuple[Any, ...]] = {  # what a kernel would never end with, read beyond its memory for, or fail at
    "aclnnDropoutGenMask": ([1 << 62, 4], 0.5, 1, 0, ONES(16, dtype=torch.uint8)),
    "aclnnRoiAlignV2": (ONES(1, 1, 4, 4), ONES(1, 5), 1, 1, 1.0, 1 << 40, False, ONES(1, 1, 1, 1)),
    "aclnnSinkhorn": (ONES(2, 2), Scalar(-1.0, torch.float32), ONES(2, 2)),
    "aclnnIm2colBackward": (ONES(4, 4), [4, 4], [1 << 62], [1], [0], [1], ONES(1, 4, 4)),
    "aclnnInplaceScatterReduce": (ONES(()), 0, torch.tensor(0), NONE, 0, True),
    "aclnnAdaLayerNormQuant": (ONES(2, 4), ONES(2, 4), NONE, None, None, None, 1e-5, None, ONES(2, 4, dtype=torch.int8), ONES(2), None),
    "aclnnGridSampler2D": (ONES(1, 1, 2, 2), ONES(1, 2, 2, 2).double(), 0, 0, False, ONES(1, 1, 2, 2)),
    "aclnnAddmmWeightNz": (ONES(2, 2), ONES(2, 2, 2), ONES(2, 2, 2), 1, 1, ONES(2, 2, 2), 0),
    "aclnnFusedMatmul": (ONES(2, 3), ONES(2, 3), None, None, "relu", 0, ONES(2, 3)),
    "aclnnKlDivTargetBackward": (ONES(3, 4), ONES(2, 3), ONES(4), 0, False, ONES(4)),
    "aclnnTransQuantParamV2": (NONE, None, ONES(1).long()),
    "aclnnMoeTokenPermuteWithRoutingMap": (ONES(2, 4), NONE.view(2, 0).bool(), None, 2, True, ONES(2, 4), None, ONES(2).int()),
    "aclnnGroupedMatmulSwigluQuantWeightNZ": (
        NONE.view(0, 4).char(), NONE.view(0, 4, 2).char(), None, None, NONE.view(0, 2), NONE, NONE.long(), NONE.view(0, 1).char(), NONE, None),
    "aclnnEinsum": ([ONES(1, 2, 0, 4)], "none", ONES(4, 2)),
    "aclnnMoeFinalizeRoutingV2": (ONES(4, 2), ONES(4).int(), None, None, None, None, NONE.int(), 0, ONES(4, 2)),
    "aclnnRingAttentionUpdate": (
        ONES(1, 1, 4), ONES(1, 3, 1, 8), ONES(1, 3, 1, 8), ONES(1, 1, 4), ONES(1, 3, 1, 8), ONES(1, 3, 1, 8), None, None,
        ONES(1, 1, 4), ONES(1, 3, 1, 8), ONES(1, 3, 1, 8)),
    "aclnnGatherPaKvCache": (
        ONES(2, 4, 8), ONES(2, 4, 8), ONES(2, 2).int(), ONES(3).int(), ONES(4, 8), ONES(4, 8), None, None, False),
    "aclnnMoeGatingTopK": (ONES(1, 8), None, 2, 1, 2, 0, 0, 0, True, 1.0, 1e-20, ONES(1, 2), ONES(1, 2, dtype=torch.int32), None),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_arguments_that_the_first_phase_refuses(client: Client, name: str) -> None:
    client.expect_code(161002, name, *REFUSED[name])


EMPTY: dict[str, tuple[Any, ...]] = {
    "aclnnWeightQuantBatchMatmulV2": (NONE.view(0, 0).half(), NONE.view(0, 0).char(), NONE.half(), None, None, None, None, 0, NONE.view(0, 0).half()),
    "aclnnMaxDim": (NONE.view(0, 0), 1, False, NONE, NONE.int()),
    "aclnnMoeFinalizeRoutingV2Grad": (NONE.view(1, 0), NONE.view(1, 0).int(), None, None, None, None, 0, 0, 1, 0, NONE.view(1, 0), NONE),
    "aclnnGlobalMaxPool": (NONE.view(0, 0, 0, 0), NONE.view(0, 0, 1, 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", EMPTY)
def test_nothing_is_done_for_outputs_without_items(client: Client, name: str) -> None:
    client.call(name, *EMPTY[name])


def test_a_refusal_of_the_second_phase_is_the_clients_to_read(client: Client) -> None:
    """No exception leaves the stream's worker, and the device is sound."""
    answer = FourBits(client, torch.zeros(2), 40)
    assert "aclnnEqual" in client.expect_code(161002, "aclnnEqual", ONES(2), ONES(3), answer)
    mask = torch.tensor([False, True, False])  # its places are known when it was read
    client.expect_code(161002, "aclnnIndexPutImpl", torch.zeros(2, 3), [torch.tensor([1]), mask], ONES(3, 3), True, False)
    cache, tables = torch.zeros(4, 2, 8, 16), torch.zeros(2, 2, dtype=torch.int32)
    rows = torch.zeros(3, 32), torch.zeros(3, 32)  # of another width than the cache's
    client.expect_code(161002, "aclnnGatherPaKvCache", cache, cache, tables, torch.tensor([2, 1], dtype=torch.int32), *rows, None, "Norm", False)
    assert client.call("aclnnAbs", -ONES(2), torch.zeros(2)).equal(ONES(2))
    answer.free()


def test_an_executor_serves_one_of_two_threads(client: Client) -> None:
    t, alpha = client.tensor(torch.ones(4)), client.scalar(1.0)
    launch = client.function("aclnnAdd")
    for _ in range(50):
        made = executor(client, t.handle, t.handle, alpha, t.handle)
        work = [lambda made=made: launch(None, ctypes.c_uint64(0), made, None)] * 2
        assert sorted(at_once(client, *work)) == [0, UNKNOWN_EXECUTOR]
    client.must("aclrtSynchronizeStream", None)
    t.free()


def test_a_repeatable_executor_is_destroyed_while_others_launch_it(client: Client) -> None:
    t, alpha = client.tensor(torch.ones(4)), client.scalar(1.0)
    launch = client.function("aclnnAdd")
    for _ in range(30):
        made = executor(client, t.handle, t.handle, alpha, t.handle)
        client.must("aclSetAclOpExecutorRepeatable", made)

        def many(made: ctypes.c_void_p = made) -> set[int]:
            return {launch(None, ctypes.c_uint64(0), made, None) for _ in range(40)}

        first, second, gone = at_once(client, many, many, lambda made=made: destroy(client, made))
        assert first | second <= {0, UNKNOWN_EXECUTOR}
        assert gone == 0
    client.must("aclrtSynchronizeStream", None)
    t.free()


def destroy(client: Client, made: ctypes.c_void_p) -> int:
    return client.function("aclDestroyAclOpExecutor")(made)


def test_a_stream_is_destroyed_once(client: Client) -> None:
    for name in ("aclrtDestroyStream", "aclrtDestroyStreamForce"):
        for _ in range(30):
            stream = ctypes.c_void_p()
            client.must("aclrtCreateStream", ctypes.byref(stream))
            answers = at_once(client, *[lambda stream=stream, name=name: client.function(name)(stream)] * 2)
            assert sorted(answers) == [0, WRONG_STREAM]


def test_a_forked_child_that_finalizes_ends(run_python: Callable[..., str]) -> None:
    """Its parent's other threads held locks when it was forked."""
    printed = run_python(
        """
import os, threading, acl
acl.init(), acl.rt.set_device(0)
stop = False
def busy():
    acl.rt.set_device(0)
    stream, _ = acl.rt.create_stream()
    memory, _ = acl.rt.malloc(1024, 0)
    while not stop:
        acl.rt.memset_async(memory, 1024, 0, 1024, stream)
        acl.rt.synchronize_stream(stream)
threads = [threading.Thread(target=busy) for _ in range(2)]
for thread in threads: thread.start()
for _ in range(30):
    child = os.fork()
    if child == 0:
        os._exit(acl.finalize() != 507033)
    assert os.waitpid(child, 0)[1] == 0
stop = True
for thread in threads: thread.join()
print("ended")
"""
    )
    assert printed == "ended\n"


def test_a_host_without_memory_is_a_code_and_not_an_exception() -> None:
    """A client in C cannot catch one: the process would end."""
    program = """
import ctypes, resource, sys
library = ctypes.CDLL(sys.argv[1])
library.aclGetRecentErrMsg.restype = ctypes.c_char_p
assert library.aclInit(None) == 0
with open("/proc/self/statm") as f:
    now = int(f.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now, resource.RLIM_INFINITY))
code = library.aclrtSetDevice(0)
text = library.aclGetRecentErrMsg()
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
print(code, text.decode(), library.aclrtSetDevice(0))
"""
    library = f"{cann_sim.home()}/lib64/libascendcl.so"
    done = subprocess.run([sys.executable, "-c", program, library], capture_output=True, text=True, timeout=600)
    expected = "200000 [200000] aclrtSetDevice: the host has no memory left 0\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")
