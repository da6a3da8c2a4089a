"""Tasks and memory beyond ops and copies: overflow status, reductions, pools, events between processes, registered allocators."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import elf
import pytest
from runtime import Runtime, physical_prop
from test_runtime_modes import START, run

import cann_sim


def test_reductions() -> None:
    run("""
import struct
SUM, MAX, MIN = 10, 11, 12
def reduced(code, size, left, right, kind, dtype):
    pack = struct.pack(f"<{len(left)}{code}", *left), struct.pack(f"<{len(right)}{code}", *right)
    rt.write(a, pack[0]); rt.write(b, pack[1])
    rt.must("aclrtReduceAsync", a, b, len(left), kind, dtype, stream, None)
    rt.sync(stream)
    return list(struct.unpack(f"<{len(left)}{code}", rt.read(a, len(pack[0]))))
assert reduced("f", 4, [1, -2, 3], [0.5, 4, -8], SUM, 0) == [1.5, 2, -5]
assert reduced("e", 2, [1, -2, 60000], [0.5, 4, 60000], SUM, 1) == [1.5, 2, float("inf")]
assert reduced("e", 2, [2.0 ** -24, 0.1], [2.0 ** -24, 0.2], MAX, 1) == [2.0 ** -24, struct.unpack("<e", struct.pack("<e", 0.2))[0]]
assert reduced("i", 4, [1, -2], [7, -9], MIN, 3) == [1, -9]
assert reduced("b", 1, [1, -2], [7, -9], MAX, 2) == [7, -2]
assert reduced("H", 2, [0x3F80, 0x4000], [0x3F80, 0xC000], SUM, 27) == [0x4000, 0]       # bfloat16: 1 + 1, 2 - 2
assert rt.aclrtReduceAsync(a, b, 4, 13, 0, stream, None) == 207000                        # "equal" is refused
assert rt.aclrtReduceAsync(a, b, 1 << 40, SUM, 0, stream, None) == 107000
""")


RANDOM = """
import struct
MASK, UNIFORM, NORMAL, CUT = range(4)
FLOAT, HALF, INT32, UINT32, INT64, BFLOAT = 0, 1, 3, 8, 9, 27
def param(value, code="f", at=None):
    if at is None: return struct.pack("<B8sB6x", 0, struct.pack("<" + code, value), struct.calcsize("<" + code))
    rt.write(at, struct.pack("<" + code, value))
    return struct.pack("<BQB6x", 1, at, 8)
def task(kind, first, second, dtype=FLOAT, seed=None, count=None, out=None, counter=None):
    both = first + (second or bytes(16))
    return struct.pack("<ii32sQQQ", dtype, kind, both, 0, a if out is None else out, b if counter is None else counter) + (seed or param(7, "Q")) + (count or param(1000, "Q")) + bytes(8)
def made(code, *args, many=1000, at=0, **more):
    rt.write(b, struct.pack("<2Q", at, 0))
    rt.must("aclrtRandomNumAsync", task(*args, **more), stream, None)
    rt.sync(stream)
    assert struct.unpack("<2Q", rt.read(b, 16)) == (at, 0)                                # the counter stays
    return list(struct.unpack(f"<{many}{code}", rt.read(a, many * struct.calcsize("<" + code))))
assert len(task(UNIFORM, param(0), param(1))) == 104
"""


def test_random_numbers_of_a_task() -> None:
    run(RANDOM + """
x = made("f", UNIFORM, param(-1.0), param(3.0))
assert all(-1 <= v < 3 for v in x) and abs(sum(x) / 1000 - 1) < 0.15
assert made("f", UNIFORM, param(-1.0), param(3.0)) == x                                   # the seed and the counter decide
assert made("f", UNIFORM, param(-1.0), param(3.0), seed=param(8, "Q")) != x
assert made("f", UNIFORM, param(-1.0), param(3.0), at=1)[:996] == x[4:]                   # four words a step of the counter
assert made("f", UNIFORM, param(-1.0, at=b + 64), param(3.0, at=b + 72), seed=param(7, "Q", b + 80), count=param(1000, "Q", b + 88)) == x
x = made("i", UNIFORM, param(-3, "i"), param(2, "i"), INT32)
assert set(x) == {-3, -2, -1, 0, 1}
assert all(1 << 40 <= v < 1 << 41 for v in made("q", UNIFORM, param(1 << 40, "q"), param(1 << 41, "q"), INT64, many=500, count=param(500, "Q")))
x = made("e", NORMAL, param(2.0, "e"), param(0.5, "e"), HALF)
mean = sum(x) / 1000
assert abs(mean - 2) < 0.06 and abs((sum((v - mean) ** 2 for v in x) / 1000) ** 0.5 - 0.5) < 0.05
assert max(abs(v - 2) for v in x) > 1 and all(abs(v - 2) <= 1.001 for v in made("e", CUT, param(2.0, "e"), param(0.5, "e"), HALF))
assert all(0x3F80 <= v <= 0x4000 for v in made("H", UNIFORM, param(0x3F80, "H"), param(0x4000, "H"), BFLOAT))
bits = "".join(f"{v:08b}" for v in made("B", MASK, param(0.25), None, many=125))
assert abs(bits.count("1") / 1000 - 0.75) < 0.05                                          # a bit is 1 where the item is kept
""")


def test_the_words_of_philox() -> None:
    """The published answers for a key and a counter of zeros and of ones, seen through integers of the whole range."""
    run(RANDOM + """
whole = param(0, "q"), param(-1, "q")
assert made("Q", UNIFORM, *whole, INT64, many=2, seed=param(0, "Q"), count=param(2, "Q")) == [0xE169C58D6627E8D5, 0x9B00DBD8BC57AC4C]
rt.write(b, b"\\xff" * 16)
rt.must("aclrtRandomNumAsync", task(UNIFORM, *whole, INT64, seed=param((1 << 64) - 1, "Q"), count=param(2, "Q")), stream, None)
rt.sync(stream)
assert struct.unpack("<2Q", rt.read(a, 16)) == (0x41C83B0E408F276D, 0x6D5451FDA20BC7C6)
""")


def test_random_tasks_that_are_refused() -> None:
    run(RANDOM + """
good = param(0.0), param(1.0)
call = lambda *args, **more: rt.aclrtRandomNumAsync(task(*args, **more), stream, None)
assert rt.aclrtRandomNumAsync(None, stream, None) == 100000 and rt.aclrtRandomNumAsync(task(UNIFORM, *good), stream, ctypes.c_void_p(1)) == 100000
assert call(UNIFORM, *good, out=0) == 100000 and call(UNIFORM, *good, counter=0) == 100000
assert call(4, *good) == 107000 and call(UNIFORM, *good, dtype=2) == 107000 and call(NORMAL, *good, dtype=INT32) == 107000
assert call(UNIFORM, *good, count=param(1 << 20, "Q")) == 107000 and call(UNIFORM, *good, count=param((1 << 64) - 1, "Q")) == 107000
assert call(UNIFORM, *good, counter=id(good)) == 107000
""")


def test_the_overflow_status_of_a_device() -> None:
    """In saturation mode a result that is not finite sets it, and it stays until it is cleared; otherwise nothing does."""
    run("""
import struct, torch
from client import Client
client = Client()
status = rt.malloc(64)
def divided(by):
    client.call("aclnnDiv", torch.ones(2), torch.tensor([1.0, by]), torch.empty(2))
    rt.must("aclrtGetOverflowStatus", status, 64, stream)
    rt.sync(stream)
    return struct.unpack("<8Q", rt.read(status, 64))
assert divided(0.0) == (0,) * 8                   # the mode is INF and NaN
rt.must("aclrtSetDeviceSatMode", 0)
assert divided(2.0) == (0,) * 8
assert divided(0.0) == (1,) + (0,) * 7
assert divided(2.0)[0] == 1
rt.must("aclrtResetOverflowStatus", stream)
assert divided(2.0)[0] == 0
assert rt.aclrtGetOverflowStatus(status, 8, stream) == 107000
""")


def test_pools_of_memory() -> None:
    """Memory of a pool lives until its stream comes to the free; the pool counts it, and bounds it."""
    run("""
class Props(ctypes.Structure):
    _fields_ = [("allocation", ctypes.c_int32), ("handle", ctypes.c_int32), ("id", ctypes.c_uint32), ("type", ctypes.c_int32),
                ("most", ctypes.c_size_t), ("rest", ctypes.c_ubyte * 32)]
assert ctypes.sizeof(Props) == 56
props = Props(0, 0, 0, 1, 8192)
pool = rt.made("aclrtMemPoolCreate", ctypes.byref(props))
def number(attribute):
    value = ctypes.c_uint64()
    rt.must("aclrtMemPoolGetAttr", pool, attribute, ctypes.byref(value))
    return value.value
p = rt.made("aclrtMemPoolMallocAsync", 4096, pool, stream)
rt.fill(p, 7, 4096, stream)
rt.move(a, p, 4096, stream)
assert number(7) == 4096
assert rt.aclrtMemPoolMallocAsync(out(), 8192, pool, stream) == 207001
assert rt.aclrtMemPoolDestroy(pool) == 107000
rt.must("aclrtMemPoolFreeAsync", p, stream)
rt.sync(stream)
assert rt.read(a, 4096) == bytes([7]) * 4096
assert (number(7), number(8)) == (0, 4096)
assert rt.aclrtMemPoolFreeAsync(p, stream) == 107000
rt.must("aclrtMemPoolTrimTo", pool, 0)
rt.must("aclrtMemPoolDestroy", pool)
""", CANN_SIM_CHECK="race,memory,fatal")


OTHER_PROCESS = """
rt.must("aclInit", None)
rt.must("aclrtSetDevice", 0)
handle = (ctypes.c_char * 64).from_buffer_copy(bytes.fromhex(sys.argv[1]))
class Handle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_char * 64)]
event, stream = ctypes.c_void_p(), rt.stream()
rt.library.aclrtIpcOpenEventHandle.argtypes = [Handle, ctypes.c_void_p]
assert rt.library.aclrtIpcOpenEventHandle(Handle.from_buffer(handle), ctypes.byref(event)) == 0, rt.message()
status = ctypes.c_int32()
rt.must("aclrtQueryEventStatus", event, ctypes.byref(status))
print(status.value, flush=True)
rt.must("aclrtStreamWaitEvent", stream, event)
assert rt.aclrtSynchronizeStreamWithTimeout(stream, 50) == 507046     # the other process has not come to its record
print("waits", flush=True)
rt.sync(stream)
rt.must("aclrtSynchronizeEvent", event)
rt.must("aclrtQueryEventStatus", event, ctypes.byref(status))
print(status.value)
"""


def test_an_event_between_processes() -> None:
    """The other process's stream waits for what this one recorded before, and no longer than until it is reached."""
    run(f"""
import subprocess
other_process = {START + OTHER_PROCESS!r}
""" + """
event = rt.made("aclrtCreateEventExWithFlag", 0x40)
handle = (ctypes.c_char * 64)()
rt.must("aclrtIpcGetEventHandle", event, handle)
gate = rt.made("aclrtCreateEventWithFlag", SYNC)
rt.must("aclrtStreamWaitEvent", stream, gate)
rt.must("aclrtRecordEvent", event, stream)
child = subprocess.Popen([sys.executable, "-c", other_process, handle.raw.hex()], stdout=subprocess.PIPE, text=True)
assert child.stdout.readline() == "0\\n"            # recorded, not reached
assert child.stdout.readline() == "waits\\n"
rt.must("aclrtRecordEvent", gate, other)
assert child.communicate()[0] == "1\\n" and child.returncode == 0
plain = rt.event()
assert rt.aclrtIpcGetEventHandle(plain, handle) == 107000
""")


def test_allocators_are_remembered_for_their_stream() -> None:
    run("""
desc = rt.aclrtAllocatorCreateDesc()
assert rt.aclrtAllocatorRegister(stream, desc) == 100000     # nothing is set yet
for name, value in (("Obj", 1), ("AllocFunc", 2), ("FreeFunc", 3), ("AllocAdviseFunc", 4), ("GetAddrFromBlockFunc", 5)):
    rt.must(f"aclrtAllocatorSet{name}ToDesc", desc, value)
found = [ctypes.c_void_p() for _ in range(6)]
get = lambda s: rt.aclrtAllocatorGetByStream(s, *map(ctypes.byref, found))
assert get(stream) == 100000
rt.must("aclrtAllocatorRegister", stream, desc)
assert get(stream) == 0 and [f.value for f in found] == [desc, 1, 2, 3, 4, 5]
assert get(other) == 100000
rt.must("aclrtAllocatorUnregister", stream)
assert get(stream) == 100000
rt.must("aclrtAllocatorDestroyDesc", desc)
""")


def test_mapped_memory_takes_what_is_touched() -> None:
    """A client that maps 2 GiB and writes little has little resident, as with expandable segments of an allocator."""
    done = run("""
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
segment, count = 20 << 20, 100
base = rt.made("aclrtReserveMemAddress", segment * count, 0, None, 1)
before = resident()
for i in range(count):
    handle = rt.made("aclrtMallocPhysical", segment, ctypes.byref(physical_prop()), 0)
    rt.must("aclrtMapMem", base + i * segment, segment, 0, handle, 0)
print((resident() - before) >> 20)
""")
    assert int(done.stdout) < 64


HUGE, HOST, HOST_NUMA = 2 << 20, 0, 4


@pytest.mark.parametrize("where", [HOST, HOST_NUMA])
def test_physical_memory_of_the_host_is_mapped_for_host_and_device(rt: Runtime, where: int) -> None:
    prop, stream, device = physical_prop(), rt.stream(), rt.malloc(HUGE)
    prop.location, prop.device = where, 0
    base = rt.made("aclrtReserveMemAddress", 2 * HUGE, 0, None, 1)
    handle = rt.made("aclrtMallocPhysical", HUGE, ctypes.byref(prop), 0)
    rt.must("aclrtMapMem", base + HUGE, HUGE, 0, handle, 0)
    ctypes.memset(base + HUGE, 7, HUGE)
    attributes = (ctypes.c_uint32 * 7)()
    rt.must("aclrtPointerGetAttributes", base + HUGE, attributes)
    assert attributes[1] == HOST
    rt.must("aclrtMemcpyAsync", device, HUGE, base + HUGE, HUGE, 1, stream)
    rt.fill(device, 9, 64, stream)
    rt.must("aclrtMemcpyAsync", base + HUGE, 64, device, 64, 2, stream)
    rt.sync(stream)
    assert ctypes.string_at(base + HUGE, 65) == b"\x09" * 64 + b"\x07"
    other = rt.made("aclrtMallocPhysical", HUGE, ctypes.byref(physical_prop()), 0)
    assert rt.aclrtMapMem(base, HUGE, 0, other, 0) == 107000  # one reservation is of the host or of a device
    assert rt.aclrtFreeHost(base + HUGE) == 107000
    rt.must("aclrtUnmapMem", base + HUGE)
    assert rt.aclrtMemcpyAsync(device, 64, base + HUGE, 64, 1, stream) != 0
    rt.must("aclrtMapMem", base, HUGE, 0, other, 0)
    rt.must("aclrtUnmapMem", base)
    for freed in (handle, other):
        rt.must("aclrtFreePhysical", freed)
    rt.must("aclrtReleaseMemAddress", base)
    rt.must("aclrtFree", device)
    rt.must("aclrtDestroyStream", stream)


def test_atb_is_there_and_refuses() -> None:
    """torch_npu's plugin for ATB is linked against these names; each answers a code and says that it is missing."""
    home = Path(cann_sim.home()) / "lib64"
    exported = elf.read(home / "libatb.so").exported
    names = subprocess.run(["c++filt"], input="\n".join(exported), capture_output=True, text=True, check=True).stdout
    for name in ("atb::CreateContext(atb::Context**)", "atb::DestroyOperation(atb::Operation*)",
                 "int atb::CreateOperation<atb::infer::PagedAttentionParam>(atb::infer::PagedAttentionParam const&, atb::Operation**)",
                 "atb::Utils::GetTensorSize(atb::Tensor const&)"):
        assert name in names
    library = ctypes.CDLL(str(home / "libatb.so"))
    context = ctypes.c_void_p(1)
    assert library._ZN3atb13CreateContextEPPNS_7ContextE(ctypes.byref(context)) == 207000 and context.value is None
