"""CANN_SIM_CHECK: programs with deliberate bugs are reported, with both sides named; correct ones are not."""

from __future__ import annotations

import json
import subprocess

import pytest
from test_runtime_modes import run

ALL = "race,memory,leak"
END = """
rt.must("aclrtSynchronizeDevice")
"""
CLOSE = """
rt.must("aclrtSynchronizeDevice")
for s in (stream, other): rt.must("aclrtDestroyStream", s)
for p in (a, b): rt.must("aclrtFree", p)
rt.must("aclrtResetDevice", 0)
rt.must("aclFinalize")
"""


def found(body: str, check: str = "race,memory", **settings: str) -> list[str]:
    """The reports of a program, which has to run to its end."""
    done: subprocess.CompletedProcess[str] = run(body, CANN_SIM_CHECK=check, **settings)
    return [line.removeprefix("cann_sim: ") for line in done.stderr.splitlines() if line.startswith("cann_sim: ")][:-1]


# ---- races: each program runs in an order that happens to be right, as it would on a quiet machine -----------------------

RACES = {
    "a read after a write of another stream": (
        "rt.fill(a, 1, 4096, stream); rt.move(b, a, 4096, other)",
        ["aclrtMemsetAsync writes devPtr (task", "aclrtMemcpyAsync reads src (task"],
    ),
    "a write after a read of another stream": (
        "rt.must('aclrtMemset', a, 4096, 0, 4096); rt.move(b, a, 4096, other); rt.fill(a, 1, 4096, stream)",
        ["aclrtMemcpyAsync reads src", "aclrtMemsetAsync writes devPtr"],
    ),
    "two writes": (
        "rt.fill(a, 1, 4096, stream); rt.fill(a, 2, 2048, other)", ["aclrtMemsetAsync writes devPtr", "stream"]),
    "the host reads what a stream writes": (
        "rt.fill(a, 1, 4096, stream); rt.read(a, 4096)", ["aclrtMemsetAsync writes", "aclrtMemcpy reads (the host)"]),
    "the host writes what a stream reads": (
        "rt.write(a, bytes(4096)); rt.move(b, a, 4096, stream); rt.write(a, bytes(4096))",
        ["aclrtMemcpyAsync reads src", "(the host)"],
    ),
    "an event recorded too early": (
        """
e = rt.event()
rt.must("aclrtRecordEvent", e, stream)
rt.fill(a, 1, 4096, stream)
rt.must("aclrtStreamWaitEvent", other, e)
rt.move(b, a, 4096, other)""",
        ["aclrtMemsetAsync writes", "aclrtMemcpyAsync reads"],
    ),
    "the other stream was synchronised": (
        "rt.fill(a, 1, 4096, stream); rt.sync(other); rt.read(a, 4096)", ["aclrtMemsetAsync writes", "aclrtMemcpy reads"]),
    "pinned memory reused for a second copy": (
        """
p = rt.malloc_host(4096)
rt.must("aclrtMemset", a, 4096, 1, 4096)
rt.move(p, a, 4096, stream, TO_HOST)
rt.move(b, p, 4096, other, TO_DEVICE)""",
        ["aclrtMemcpyAsync writes dst", "aclrtMemcpyAsync reads src"],
    ),
    "pinned memory changed before the copy is known to be done": (
        """
p = rt.malloc_host(4096)
ctypes.memset(p, 1, 4096)
rt.move(a, p, 4096, stream, TO_DEVICE)
ctypes.memset(p, 2, 4096)
rt.sync(stream)""",
        ["the host changed pinned memory that aclrtMemcpyAsync reads src"],
    ),
    "branches of a captured graph": (
        """
e, f = rt.event(), rt.event()
def record():
    rt.must("aclrtRecordEvent", e, stream)
    rt.must("aclrtStreamWaitEvent", other, e)
    rt.fill(a, 1, 4096, stream)
    rt.fill(a, 2, 4096, other)
    rt.must("aclrtRecordEvent", f, other)
    rt.must("aclrtStreamWaitEvent", stream, f)
rt.capture(stream, GLOBAL, record)""",
        ["aclrtMemsetAsync writes devPtr (task", "of stream"],
    ),
    "a replay beside a stream": (
        """
graph = rt.capture(stream, GLOBAL, lambda: rt.fill(a, 1, 4096, stream))
rt.must("aclmdlRIExecuteAsync", graph, stream)
rt.fill(a, 2, 4096, other)""",
        ["aclrtMemsetAsync writes", "stream"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RACES)
def test_races_are_found_whatever_runs_first(name: str) -> None:
    body, parts = RACES[name]
    reports = found(body + END, check="race")
    assert len(reports) == 1, reports
    assert reports[0].startswith("race: ")
    for part in parts:
        assert part in reports[0]


POOL = """
class Props(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("handle", ctypes.c_int32), ("device", ctypes.c_uint32), ("place", ctypes.c_int32),
                ("most", ctypes.c_size_t), ("rsv", ctypes.c_ubyte * 32)]
pool = rt.made("aclrtMemPoolCreate", ctypes.byref(Props(0, 0, 0, 1, 0)))
block = rt.made("aclrtMemPoolMallocAsync", 4096, pool, stream)
e, f, gate = rt.event(), rt.event(), rt.made("aclrtCreateEventWithFlag", SYNC)
"""
HAND_OVER = """
rt.must("aclrtRecordEvent", e, stream)
rt.must("aclrtStreamWaitEvent", other, e)
rt.fill(block, 1, 4096, other)
"""


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        ("rt.fill(block, 1, 4096, other)", ["race: ", "aclrtMemPoolMallocAsync writes ptr (task", "aclrtMemsetAsync writes devPtr (task"]),
        (HAND_OVER + "rt.must('aclrtMemPoolFreeAsync', block, stream)", ["memory: ", "aclrtMemPoolFreeAsync", "aclrtMemsetAsync writes devPtr (task"]),
        ("rt.must('aclrtStreamWaitEvent', stream, gate); rt.must('aclrtMemPoolFreeAsync', block, stream)\n"
         "rt.fill(block, 1, 4096, stream); rt.must('aclrtRecordEvent', gate, other)",  # queued before the block is given back
         ["memory: ", "aclrtMemsetAsync writes devPtr (task", "after aclrtMemPoolFreeAsync gave the memory back"]),
        ("held = rt.memory()[0]; rt.fill(a, 1, 4096, stream); rt.must('aclrtMemPoolFreeAsync', block, stream)\n"
         "while rt.memory()[0] == held: pass\nrt.read(a, 4096)",
         ["race: ", "aclrtMemsetAsync writes devPtr (task", "aclrtMemcpy reads (the host)"]),  # the free tells the host nothing
    ],
)  # fmt: skip
def test_blocks_of_pools_used_wrongly(body: str, parts: list[str]) -> None:
    reports = found(POOL + body + "\nrt.aclrtSynchronizeDevice()")
    assert len(reports) == 1, reports
    for part in parts:
        assert part in reports[0]


def test_a_replays_pinned_source_changed_too_early() -> None:
    (report,) = found("""
p = rt.malloc_host(4096)
graph = rt.capture(stream, GLOBAL, lambda: rt.move(a, p, 4096, stream, TO_DEVICE))
rt.must("aclmdlRIExecuteAsync", graph, stream)
ctypes.memset(p, 7, 4096)
rt.sync(stream)
""")
    assert "race: the host changed pinned memory that aclrtMemcpyAsync reads src (task" in report


def test_buffers_of_collectives() -> None:
    """What a side stream writes is waited for, or it is a race; so is what the host reads."""
    reports = found("""
from ranks import Ranks
import torch
ranks = Ranks(2)
x, y = ranks.buffers([torch.ones(1024)] * 2)
reduce = lambda: [ranks.launch(r, "HcclAllReduce", b, b, 1024, 4, 0) for r, b in enumerate((x, y))]
ranks.on(0)
side, main, e = rt.stream(), ranks.streams[0].value, rt.event()
rt.fill(x.address.value, 0, 4096, side)
rt.must("aclrtRecordEvent", e, side); rt.must("aclrtStreamWaitEvent", main, e)
reduce()
ranks.synchronize()
x.read(); y.read()
print("ordered", flush=True); sys.stderr.write("cann_sim: ordered\\n")
rt.must("aclrtSetCurrentContext", ranks.contexts[0])
rt.fill(x.address.value, 0, 4096, side)
reduce()
y.read()
ranks.synchronize()
""", check="race")
    assert reports[0] == "ordered"
    assert any("aclrtMemsetAsync writes devPtr (task" in r and "HcclAllReduce reads sendBuf (task" in r for r in reports[1:]), reports
    assert any("HcclAllReduce writes recvBuf (task" in r and "aclrtMemcpy reads (the host)" in r for r in reports[1:]), reports


ORDERED = {
    "a block of a pool handed over and back": POOL + HAND_OVER + """
rt.must("aclrtRecordEvent", f, other); rt.must("aclrtStreamWaitEvent", stream, f)
rt.must("aclrtMemPoolFreeAsync", block, stream)
for s in (stream, other) * 3:
    again = rt.made("aclrtMemPoolMallocAsync", 4096, pool, s)
    rt.fill(again, 1, 4096, s); rt.must("aclrtMemPoolFreeAsync", again, s)""",
    "one stream": "rt.fill(a, 1, 4096, stream); rt.move(b, a, 4096, stream); rt.fill(a, 2, 4096, stream)",
    "an event between two streams": """
e = rt.event()
for step in range(3):
    rt.fill(a, step, 4096, stream)
    rt.must("aclrtRecordEvent", e, stream)
    rt.must("aclrtStreamWaitEvent", other, e)
    rt.move(b, a, 4096, other)
    rt.must("aclrtRecordEvent", e, other)
    rt.must("aclrtStreamWaitEvent", stream, e)""",
    "an event that is waited for before it is recorded": """
gate = rt.made("aclrtCreateEventWithFlag", SYNC)
rt.must("aclrtStreamWaitEvent", other, gate)
rt.move(b, a, 4096, other)
rt.fill(a, 1, 4096, stream)
rt.must("aclrtRecordEvent", gate, stream)""",
    "through a third stream": """
e, f, third = rt.event(), rt.event(), rt.stream()
rt.fill(a, 1, 4096, stream)
rt.must("aclrtRecordEvent", e, stream)
rt.must("aclrtStreamWaitEvent", third, e)
rt.must("aclrtRecordEvent", f, third)
rt.must("aclrtStreamWaitEvent", other, f)
rt.move(b, a, 4096, other)""",
    "the host waits for a stream": "rt.fill(a, 1, 4096, stream); rt.sync(stream); rt.move(b, a, 4096, other)",
    "the host waits for an event": """
e = rt.event()
rt.fill(a, 1, 4096, stream)
rt.must("aclrtRecordEvent", e, stream)
rt.must("aclrtSynchronizeEvent", e)
rt.read(a, 4096); rt.fill(a, 3, 4096, other)""",
    "the host sees an event complete": """
e, status = rt.event(), ctypes.c_int32()
rt.fill(a, 1, 4096, stream)
rt.must("aclrtRecordEvent", e, stream)
while status.value != 1: rt.must("aclrtQueryEventStatus", e, ctypes.byref(status))
rt.read(a, 4096); rt.fill(a, 3, 4096, other)""",
    "a notify": """
n = rt.made("aclrtCreateNotify", 0)
rt.fill(a, 1, 4096, stream)
rt.must("aclrtRecordNotify", n, stream)
rt.must("aclrtWaitAndResetNotify", n, other, 0)
rt.move(b, a, 4096, other)""",
    "pinned memory that a stream writes and then reads": """
p = rt.malloc_host(4096)
rt.write(b, bytes(4096))
rt.move(p, b, 4096, stream, TO_HOST)
rt.move(a, p, 4096, stream, TO_DEVICE)""",
    "parts of one allocation": "rt.fill(a, 1, 2048, stream); rt.fill(a + 2048, 2, 2048, other)",
    "two reads": """
rt.write(a, bytes(4096)); c = rt.malloc(4096)
rt.move(b, a, 4096, stream); rt.move(c, a, 4096, other)""",
    "pinned memory after a wait": """
p = rt.malloc_host(4096)
ctypes.memset(p, 1, 4096)
rt.move(a, p, 4096, stream, TO_DEVICE)
rt.sync(stream)
ctypes.memset(p, 2, 4096)
rt.move(a, p, 4096, stream, TO_DEVICE)""",
    "a value that one stream writes and another awaits": """
word = rt.malloc(8); rt.write(word, bytes(8))
rt.fill(a, 1, 4096, stream)
rt.must("aclrtValueWrite", word, 7, 0, stream)
rt.must("aclrtValueWait", word, 7, 1, other)
rt.move(b, a, 4096, other)""",
    "a graph replayed twice, its pinned source changed in between": """
p = rt.malloc_host(4096)
graph = rt.capture(stream, GLOBAL, lambda: rt.move(a, p, 4096, stream, TO_DEVICE))
for step in range(2):
    ctypes.memset(p, step, 4096)
    rt.must("aclmdlRIExecuteAsync", graph, stream)
    rt.sync(stream)""",
}  # fmt: skip


def test_ordered_programs_are_silent() -> None:
    body = "\n".join(f"def case_{i}():\n" + "\n".join(f"    {line}" for line in text.strip().split("\n")) + f"\ncase_{i}()\n{END}"
                     for i, text in enumerate(ORDERED.values()))
    done = run(body, CANN_SIM_CHECK="race,memory", CANN_SIM_MODE="delay")
    assert "cann_sim" not in done.stderr


# ---- memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("body", "parts"), [
    ("rt.fill(a, 1, 4096, stream); rt.must('aclrtFree', a)", ["aclrtFree", "aclrtMemsetAsync writes devPtr (task"]),
    ("p = rt.malloc_host(4096)\nrt.move(a, p, 4096, stream, TO_DEVICE); rt.must('aclrtFreeHost', p)",
     ["aclrtFreeHost", "aclrtMemcpyAsync reads src (task"]),
])  # fmt: skip
def test_memory_freed_before_its_last_use(body: str, parts: list[str]) -> None:
    """Whether the task runs before the free or after it: both orders are possible, and both are reported."""
    reports = found(body + "\nrt.aclrtSynchronizeDevice()")
    assert len(reports) == 1, reports
    assert "memory: " in reports[0]
    for part in parts:
        assert part in reports[0]


def test_a_task_that_was_queued_when_its_memory_was_freed() -> None:
    reports = found("""
gate = rt.made("aclrtCreateEventWithFlag", SYNC)
rt.must("aclrtStreamWaitEvent", stream, gate)
rt.fill(a, 1, 4096, stream)
rt.must("aclrtFree", a)
rt.must("aclrtRecordEvent", gate, other)
rt.aclrtSynchronizeDevice()
""")
    assert len(reports) == 1, reports
    assert "aclrtMemsetAsync writes devPtr (task" in reports[0]
    assert "after aclrtFree gave the memory back" in reports[0]


OPS = """
import json, torch
from cann_sim import checks
from client import Client
client = Client()
x, y = client.tensor(torch.ones(8, 8)), client.tensor(torch.ones(8, 8))

def first(name, *args):
    size, executor = ctypes.c_uint64(), ctypes.c_void_p()
    client.must(name + "GetWorkspaceSize", *args, ctypes.byref(size), ctypes.byref(executor))
    return name, size, executor

def second(prepared, stream=client.stream, space=None):
    name, size, executor = prepared
    space = ctypes.c_void_p(space or (rt.malloc(size.value) if size.value else None))
    return client.function(name)(space, size, executor, ctypes.c_void_p(stream) if isinstance(stream, int) else stream)

def unwritten():
    t = client.tensor(torch.ones(8, 8))
    client.must("aclrtFree", t.address)
    client.must("aclrtMalloc", ctypes.byref(t.address), ctypes.c_size_t(256), 0)
    assert second(first("aclnnAbs", client.describe(t, 2), y.handle)) == 0

def destroyed():
    alpha = client.scalar(2.0)
    prepared = first("aclnnAdd", x.handle, x.handle, alpha, y.handle)
    client.must("aclDestroyScalar", alpha)
    assert second(prepared) == 0

def twice():
    prepared = first("aclnnAbs", x.handle, y.handle)
    assert second(prepared) == 0
    assert second(prepared) == 161002

def workspace():
    t, out, space = client.tensor(torch.ones(8, 8).t()), client.tensor(torch.ones(8, 8)), rt.malloc(4096)
    for s, into in ((rt.stream(), y), (rt.stream(), out)):
        prepared = first("aclnnAbs", t.handle, into.handle)
        assert 0 < prepared[1].value <= 4096
        assert second(prepared, s, space) == 0

def halves():
    whole, ones = client.tensor(torch.zeros(8, 8)), client.tensor(torch.ones(8, 4))
    for i, s in enumerate([rt.stream(), rt.stream()]):
        whole.sizes, whole.strides, whole.offset = (8, 4), (8, 1), 4 * i
        assert second(first("aclnnAbs", ones.handle, client.describe(whole, 2)), s) == 0

found = {}
for case in (unwritten, destroyed, twice, workspace, halves):
    case()
    rt.must("aclrtSynchronizeDevice")
    found[case.__name__] = [text for _, text in checks.reports()]
    checks.clear()
print(json.dumps(found))
first("aclnnAbs", x.handle, y.handle)      # and never launched
"""


@pytest.fixture(scope="module")
def ops() -> subprocess.CompletedProcess[str]:
    return run(OPS, CANN_SIM_CHECK=ALL)


@pytest.mark.parametrize(("case", "expected"), [
    ("unwritten", ["memory: aclnnAbs reads self (task", "nothing has written the memory since it was allocated"]),
    ("destroyed", ["memory: aclnnAdd: argument alpha was destroyed between the phases"]),
    ("twice", ["memory: aclnnAbs: the executor is unknown, or an earlier second phase has used it up"]),
    ("workspace", ["race: aclnnAbs writes its workspace (task", "and aclnnAbs writes its workspace (task"]),
])  # fmt: skip
def test_ops_used_wrongly(ops: subprocess.CompletedProcess[str], case: str, expected: list[str]) -> None:
    reports = json.loads(ops.stdout)[case]
    assert len(reports) == 1, reports
    for part in expected:
        assert part in reports[0]


def test_views_that_do_not_touch_are_no_race(ops: subprocess.CompletedProcess[str]) -> None:
    assert json.loads(ops.stdout)["halves"] == []


def test_an_executor_that_was_never_launched_is_named(ops: subprocess.CompletedProcess[str]) -> None:
    assert "still alive: 1 aclOpExecutor of aclnnAbs" in ops.stderr


# ---- leaks, the setting, the exit status ------------------------------------------------------------------------------

def test_leaks_at_the_end() -> None:
    reports = found("rt.event()\n" + END, check="leak")
    assert any("leak: the process ends without aclFinalize: still alive: 2 allocations of device memory (8192 bytes): 4096 bytes "
               "by allocation" in r for r in reports), reports
    assert any("1 events" in r for r in reports)
    assert any("2 streams" in r for r in reports)


def test_a_clean_program_leaks_nothing() -> None:
    assert "cann_sim" not in run(CLOSE, CANN_SIM_CHECK=ALL).stderr


def test_fatal_gives_the_process_a_status() -> None:
    run("rt.fill(a, 1, 64, stream); rt.fill(a, 1, 64, other)" + END, status=66, CANN_SIM_CHECK="race,fatal")
    run(CLOSE, CANN_SIM_CHECK="race,memory,leak,fatal")


def test_reports_can_be_queried() -> None:
    run("""
from cann_sim import checks
for _ in range(3):
    rt.fill(a, 1, 64, stream); rt.fill(a, 1, 64, other)
    rt.must("aclrtSynchronizeDevice")
(count, text), = checks.reports()
assert count == 3 and text.startswith("race: aclrtMemsetAsync"), checks.reports()
checks.clear()
assert checks.reports() == []
""", CANN_SIM_CHECK="race")


def test_an_unknown_word_is_refused() -> None:
    done = run("print(rt.aclInit(None), rt.message())", opened=False, CANN_SIM_CHECK="race,luck")
    assert done.stdout.startswith("100000") and "CANN_SIM_CHECK: expected a list of race, memory, leak and fatal" in done.stdout
