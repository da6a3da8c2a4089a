"""The runtime: devices, contexts, memory, streams, events and callbacks behave as CANN's rules say."""

from __future__ import annotations

import ctypes
import threading
import time

from runtime import (
    DEFAULT_KIND,
    DEVICE_TO_DEVICE,
    HOST_FUNC,
    HUGE_PAGE,
    PROGRESS,
    SYNC,
    TO_DEVICE,
    TO_HOST,
    AclError,
    Runtime,
    data_pointer,
    in_thread,
    out,
    physical_prop,
    repeat,
)

KIB, MIB = 1 << 10, 1 << 20


# ---- threads, devices, contexts ------------------------------------------------------------------------------


def test_a_new_thread_has_no_context(rt: Runtime) -> None:
    assert in_thread(lambda: rt.aclrtGetDevice(out(ctypes.c_int32))) == 107002
    assert in_thread(lambda: rt.aclrtMalloc(out(), 64, 0)) == 107002
    assert in_thread(lambda: rt.aclrtSetDevice(0)) == 0


def test_setting_a_context_switches_the_device(rt: Runtime) -> None:
    rt.must("aclrtSetDevice", 1)
    second = rt.made("aclrtGetCurrentContext")
    rt.must("aclrtSetDevice", 0)
    assert rt.made("aclrtGetDevice", ctype=ctypes.c_int32) == 0
    rt.must("aclrtSetCurrentContext", second)
    assert rt.made("aclrtGetDevice", ctype=ctypes.c_int32) == 1
    rt.must("aclrtResetDevice", 1)
    assert rt.aclrtGetDevice(out(ctypes.c_int32)) == 107002  # its context is gone
    rt.must("aclrtSetDevice", 0)


def test_reset_counts_sets(rt: Runtime) -> None:
    for _ in range(3):
        rt.must("aclrtSetDevice", 1)
    context = rt.made("aclrtGetCurrentContext")
    rt.must("aclrtResetDevice", 1)
    rt.must("aclrtResetDevice", 1)
    assert rt.made("aclrtGetCurrentContext") == context
    rt.must("aclrtResetDevice", 1)
    assert rt.aclrtSetCurrentContext(context) == 107002
    rt.must("aclrtSetDevice", 0)


def test_messages_and_codes_belong_to_their_thread(rt: Runtime) -> None:
    assert rt.aclrtFree(12345) == 107000
    assert in_thread(rt.aclGetRecentErrMsg) is None
    assert in_thread(lambda: rt.aclrtPeekAtLastError(0)) == 0
    assert rt.aclrtPeekAtLastError(0) == 107000
    assert rt.aclrtGetLastError(0) == 107000
    assert rt.aclrtGetLastError(0) == 0
    assert "aclrtFree" in rt.message()
    assert rt.aclGetRecentErrMsg() is None


# ---- memory --------------------------------------------------------------------------------------------------


def test_memory_is_poisoned_aligned_apart_and_accounted(rt: Runtime) -> None:
    free, total = rt.memory()
    sizes = [1, 31, 4096, 300 * KIB, 3 * MIB]
    blocks = [rt.malloc(size) for size in sizes]
    assert all(p % 512 == 0 for p in blocks)
    ordered = sorted(zip(blocks, sizes, strict=True))
    assert all(p + size + 32 < q for (p, size), (q, _) in zip(ordered, ordered[1:]))
    assert rt.read(blocks[2], 4096) == b"\xff" * 4096
    assert sum(sizes) <= free - rt.memory()[0] <= sum(sizes) + 16 * MIB
    for p in blocks:
        rt.must("aclrtFree", p)
    assert rt.memory() == (free, total)


def test_an_address_is_not_soon_given_out_again(rt: Runtime) -> None:
    seen = set()
    for _ in range(50):
        p = rt.malloc(MIB)
        assert p not in seen
        seen.add(p)
        rt.must("aclrtFree", p)


def test_running_out_of_memory(rt: Runtime) -> None:
    _, total = rt.memory()
    assert rt.aclrtMalloc(out(), total + 1, 0) == 207001
    half = rt.malloc(total // 2 + MIB)
    assert rt.aclrtMalloc(out(), total // 2, 0) == 207001
    assert "bytes left" in rt.message()
    rt.must("aclrtFree", half)


def test_copies_find_the_ends_of_an_allocation(rt: Runtime) -> None:
    p = rt.malloc(100)
    data = bytes(range(100))
    rt.write(p, data)
    assert rt.read(p, 100) == data
    assert rt.read(p + 50, 50) == data[50:]
    rt.must("aclrtMemcpy", p, 0, None, 0, TO_DEVICE)
    buffer = ctypes.create_string_buffer(4096)
    assert rt.aclrtMemcpy(buffer, 4096, p, 4096, TO_HOST) == 107000
    assert "past the end" in rt.message()
    rt.must("aclrtFree", p)
    assert rt.aclrtMemcpy(buffer, 100, p, 100, TO_HOST) == 107000
    assert "freed" in rt.message()


def test_two_dimensional_copies(rt: Runtime) -> None:
    p = rt.malloc(64)
    rt.must("aclrtMemset", p, 64, 7, 64)
    source = bytes(range(12))
    rt.must("aclrtMemcpy2d", p, 16, data_pointer(source), 4, 3, 3, TO_DEVICE)
    rows = [rt.read(p + 16 * i, 16) for i in range(4)]
    assert rows == [source[4 * i : 4 * i + 3] + b"\7" * 13 for i in range(3)] + [b"\7" * 16]
    stream = rt.stream()
    rt.must("aclrtMemcpy2dAsync", p, 16, p + 1, 16, 1, 3, DEVICE_TO_DEVICE, stream)
    rt.sync(stream)
    assert [rt.read(p + 16 * i, 1)[0] for i in range(3)] == [1, 5, 9]


def test_pageable_memory_is_read_at_the_call_and_pinned_memory_later(rt: Runtime) -> None:
    stream, device = rt.stream(), rt.malloc(4)
    pageable = (ctypes.c_char * 4)(*b"aaaa")
    pinned = rt.malloc_host(4)
    ctypes.memmove(pinned, b"cccc", 4)
    with rt.blocked(stream):
        rt.move(device, ctypes.addressof(pageable), 4, stream, TO_DEVICE)
        pageable[:] = b"bbbb"
    assert rt.read(device, 4) == b"aaaa"
    with rt.blocked(stream):
        rt.move(device, pinned, 4, stream, TO_DEVICE)
        ctypes.memmove(pinned, b"dddd", 4)
    assert rt.read(device, 4) == b"dddd"
    rt.must("aclrtFreeHost", pinned)


def test_pointers_tell_where_they_point(rt: Runtime) -> None:
    attributes = (ctypes.c_uint32 * 7)()
    pageable = ctypes.create_string_buffer(64)
    pinned, device = rt.malloc_host(64), rt.malloc(64)
    for pointer, kind in ((device, 1), (pinned, 0), (ctypes.addressof(pageable), 2)):
        rt.must("aclrtPointerGetAttributes", pointer, attributes)
        assert attributes[1] == kind
    cell = ctypes.c_void_p()
    rt.must("aclrtHostRegister", pageable, 64, 0, ctypes.byref(cell))
    rt.must("aclrtPointerGetAttributes", ctypes.addressof(pageable), attributes)
    assert attributes[1] == 0
    rt.must("aclrtHostUnregister", pageable)
    rt.must("aclrtFreeHost", pinned)


def test_memory_of_another_device_needs_peer_access(rt: Runtime) -> None:
    here = rt.malloc(64)
    rt.must("aclrtSetDevice", 1)
    there = rt.malloc(64)
    rt.must("aclrtMemset", there, 64, 3, 64)
    assert rt.aclrtMemcpy(here, 64, there, 64, DEVICE_TO_DEVICE) == 207006
    can = rt.made("aclrtDeviceCanAccessPeer", 1, 0, ctype=ctypes.c_int32)
    assert can == 1
    rt.must("aclrtDeviceEnablePeerAccess", 0, 0)
    rt.must("aclrtMemcpy", here, 64, there, 64, DEVICE_TO_DEVICE)
    assert rt.read(here, 64) == b"\3" * 64
    rt.must("aclrtDeviceDisablePeerAccess", 0)
    assert rt.aclrtDeviceDisablePeerAccess(0) == 107000
    rt.must("aclrtResetDevice", 1)
    rt.must("aclrtSetDevice", 0)


def test_virtual_memory_maps_pieces_side_by_side(rt: Runtime) -> None:
    free, _ = rt.memory()
    prop = physical_prop()
    base = rt.made("aclrtReserveMemAddress", 4 * HUGE_PAGE, 0, None, 1)
    handles = [rt.made("aclrtMallocPhysical", HUGE_PAGE, ctypes.byref(prop), 0) for _ in range(2)]
    assert free - rt.memory()[0] == 2 * HUGE_PAGE
    for i, handle in enumerate(handles):
        rt.must("aclrtMapMem", base + i * HUGE_PAGE, HUGE_PAGE, 0, handle, 0)
    middle = base + HUGE_PAGE - 8
    rt.write(middle, b"0123456789abcdef")  # over the seam
    assert rt.read(middle, 16) == b"0123456789abcdef"
    assert rt.aclrtMapMem(base, HUGE_PAGE, 0, handles[0], 0) == 107000
    assert rt.aclrtReleaseMemAddress(base) == 107000
    rt.must("aclrtUnmapMem", base + HUGE_PAGE)
    assert rt.aclrtMemcpy(ctypes.create_string_buffer(16), 16, middle, 16, TO_HOST) == 107000
    rt.must("aclrtMapMem", base + 2 * HUGE_PAGE, HUGE_PAGE, 0, handles[1], 0)
    assert rt.read(base + 2 * HUGE_PAGE, 8) == b"89abcdef"  # the memory moved, its content stayed
    rt.must("aclrtUnmapMem", base)
    rt.must("aclrtUnmapMem", base + 2 * HUGE_PAGE)
    for handle in handles:
        rt.must("aclrtFreePhysical", handle)
    rt.must("aclrtReleaseMemAddress", base)
    assert rt.memory()[0] == free


def test_memory_mapped_where_other_memory_was_stays(rt: Runtime) -> None:
    """A long task elsewhere delays when unmapped pages go: by then the addresses may have new ones."""
    big, prop = 256 << 20, physical_prop()
    stream, far = rt.stream(), rt.malloc(big)
    base = rt.made("aclrtReserveMemAddress", 2 * HUGE_PAGE, 0, None, 1)
    handles = [rt.made("aclrtMallocPhysical", HUGE_PAGE, ctypes.byref(prop), 0) for _ in range(2)]
    rt.must("aclrtMapMem", base, HUGE_PAGE, 0, handles[0], 0)
    rt.must("aclrtMemsetAsync", far, big, 1, big, stream)
    for handle in (handles[1], handles[0]):
        rt.must("aclrtUnmapMem", base)
        rt.must("aclrtMapMem", base, HUGE_PAGE, 0, handle, 0)
    rt.write(base, b"here")
    rt.must("aclrtSynchronizeStream", stream)
    rt.must("aclrtFree", far)  # what was waiting goes
    assert rt.read(base, 4) == b"here"
    rt.must("aclrtUnmapMem", base)
    for handle in handles:
        rt.must("aclrtFreePhysical", handle)
    rt.must("aclrtReleaseMemAddress", base)
    rt.must("aclrtDestroyStream", stream)


# ---- streams -------------------------------------------------------------------------------------------------


def test_a_stream_keeps_order_and_others_do_not_wait(rt: Runtime) -> None:
    slow, quick, device = rt.stream(), rt.stream(), rt.malloc(8)
    status = ctypes.c_int32()
    with rt.blocked(slow):
        for value in (1, 2, 3):
            rt.fill(device, value, 4, slow)
        rt.fill(device + 4, 9, 4, quick)
        rt.sync(quick)
        rt.must("aclrtStreamQuery", slow, ctypes.byref(status))
        assert status.value == 1
        assert rt.aclrtSynchronizeStreamWithTimeout(slow, 20) == 507046
        assert rt.aclrtSynchronizeDeviceWithTimeout(20) == 507046
        assert rt.read(device, 8) == b"\xff" * 4 + b"\x09" * 4  # a blocking copy waits for no stream
    rt.must("aclrtStreamQuery", slow, ctypes.byref(status))
    assert status.value == 0
    assert rt.read(device, 8) == b"\3" * 4 + b"\x09" * 4


def test_the_default_stream_is_a_stream_of_its_context(rt: Runtime) -> None:
    default = rt.made("aclrtCtxGetCurrentDefaultStream")
    device = rt.malloc(4)
    with rt.blocked(None):
        rt.fill(device, 5, 4, default)
        status = ctypes.c_int32()
        rt.must("aclrtStreamQuery", None, ctypes.byref(status))
        assert status.value == 1
    assert rt.read(device, 4) == b"\5" * 4
    assert rt.aclrtDestroyStream(default) == 107000


def test_memory_freed_right_after_its_last_use(rt: Runtime) -> None:
    """A card's tasks are over sooner than a client's next call: those that only wait for their turn get a moment."""
    stream = rt.stream()
    blocks = [rt.malloc(8 * MIB) for _ in range(12)]
    for p in blocks:
        rt.fill(p, 1, 8 * MIB, stream)
    for p in blocks:
        rt.must("aclrtFree", p)
    rt.must("aclrtSynchronizeStream", stream)


def test_memory_is_freed_while_another_thread_queues_without_end(rt: Runtime) -> None:
    """A free waits for what another thread queues, as torch_npu's does after the client's calls, but not for ever."""
    stream, p, q, context = rt.stream(), rt.malloc(MIB), rt.malloc(MIB), ctypes.c_void_p()
    begun, enough = threading.Event(), threading.Event()
    codes: set[int] = set()
    rt.must("aclrtGetCurrentContext", ctypes.byref(context))

    def queue() -> None:
        rt.must("aclrtSetCurrentContext", context)
        rt.fill(p, 1, MIB, stream)
        while not enough.is_set():
            rt.fill(q, 1, MIB, stream)
            codes.add(rt.aclrtSynchronizeStream(stream))
            begun.set()

    thread = threading.Thread(target=queue, daemon=True)
    thread.start()
    try:
        assert begun.wait(60)
        rt.must("aclrtFree", p)
    finally:
        enough.set()
        thread.join()
    assert codes == {0}
    rt.must("aclrtFree", q)


def test_freed_memory_lasts_as_long_as_the_task_that_runs(rt: Runtime) -> None:
    """aclrtFree waits no longer than that: a task that is held up then uses freed memory, and that is a fault of the device."""
    stream, device = rt.stream(), rt.malloc(MIB)
    gate = rt.made("aclrtCreateEventWithFlag", SYNC)
    helper = rt.stream()
    rt.must("aclrtStreamWaitEvent", stream, gate)
    rt.fill(device, 1, MIB, stream)
    rt.must("aclrtFree", device)
    rt.must("aclrtRecordEvent", gate, helper)
    assert rt.aclrtSynchronizeStream(stream) == 507015
    assert "freed" in rt.message()
    assert rt.aclrtSynchronizeStream(stream) == 507015  # the context is broken until it is reset
    assert rt.aclrtSynchronizeDevice() == 507015
    assert rt.aclrtMemset(rt.malloc(4), 4, 0, 4) == 507015


def test_an_aborted_stream_drops_what_is_queued(rt: Runtime) -> None:
    stream, device = rt.stream(), rt.malloc(4)
    never = rt.made("aclrtCreateEventWithFlag", SYNC)
    rt.must("aclrtMemset", device, 4, 1, 4)
    rt.must("aclrtStreamWaitEvent", stream, never)
    rt.fill(device, 2, 4, stream)
    rt.must("aclrtStreamAbort", stream)
    assert rt.aclrtSynchronizeStream(stream) == 107023
    rt.sync(stream)
    assert rt.read(device, 4) == b"\1" * 4
    rt.fill(device, 3, 4, stream)
    rt.sync(stream)
    assert rt.read(device, 4) == b"\3" * 4


def test_the_tasks_of_a_device_are_aborted(rt: Runtime) -> None:
    stream = rt.stream()
    never = rt.made("aclrtCreateEventWithFlag", SYNC)
    rt.must("aclrtStreamWaitEvent", stream, never)
    rt.must("aclrtDeviceTaskAbort", 0, 600_000)
    rt.sync(stream)


def test_who_waits_is_told_of_an_abort(rt: Runtime) -> None:
    """Who asks afterwards is not: torch_npu goes on after it without another call."""
    stream, context, answers = rt.stream(), ctypes.c_void_p(), []
    never = rt.made("aclrtCreateEventWithFlag", SYNC)
    rt.must("aclrtGetCurrentContext", ctypes.byref(context))

    def wait() -> None:
        rt.must("aclrtSetCurrentContext", context)
        answers.append(rt.aclrtSynchronizeStream(stream))

    for attempt in range(60):                                # until the thread was waiting when the abort came
        rt.must("aclrtStreamWaitEvent", stream, never)
        waiter = threading.Thread(target=wait)
        waiter.start()
        time.sleep(0.005 * attempt)
        rt.must("aclrtDeviceTaskAbort", 0, 600_000)
        waiter.join()
        rt.sync(stream)
        if answers[-1]:
            break
    assert answers[-1] == 107022 and not any(answers[:-1])


def test_a_forced_end_does_not_wait(rt: Runtime) -> None:
    stream = rt.stream()
    never = rt.made("aclrtCreateEventWithFlag", SYNC)
    rt.must("aclrtStreamWaitEvent", stream, never)
    rt.must("aclrtDestroyStreamForce", stream)
    assert rt.aclrtSynchronizeStream(stream) == 107003


# ---- events --------------------------------------------------------------------------------------------------


def test_events_order_streams(rt: Runtime) -> None:
    first, second, a, b = rt.stream(), rt.stream(), rt.malloc(4), rt.malloc(4)
    event = rt.event()
    with rt.blocked(first):
        rt.fill(a, 6, 4, first)
        rt.must("aclrtRecordEvent", event, first)
        rt.must("aclrtStreamWaitEvent", second, event)
        rt.move(b, a, 4, second)
        status = ctypes.c_int32()
        rt.must("aclrtQueryEventStatus", event, ctypes.byref(status))
        assert status.value == 0
        assert rt.aclrtSynchronizeEventWithTimeout(event, 20) == 507047
    rt.must("aclrtSynchronizeEvent", event)
    rt.sync(second)
    assert rt.read(b, 4) == b"\6" * 4


def test_a_wait_takes_the_record_of_its_time(rt: Runtime) -> None:
    """Events of ...ExWithFlag: recording again does not hold those who wait for the record before."""
    free, busy, waiting, event = rt.stream(), rt.stream(), rt.stream(), rt.event()
    rt.must("aclrtStreamWaitEvent", waiting, event)  # never recorded: complete
    rt.must("aclrtSynchronizeEvent", event)
    rt.must("aclrtRecordEvent", event, free)
    with rt.blocked(busy):
        rt.must("aclrtStreamWaitEvent", waiting, event)
        rt.must("aclrtRecordEvent", event, busy)
        rt.sync(waiting)
        status = ctypes.c_int32()
        rt.must("aclrtQueryEventStatus", event, ctypes.byref(status))
        assert status.value == 0


def test_one_shot_events_hold_until_recorded_and_are_reset(rt: Runtime) -> None:
    stream, other = rt.stream(), rt.stream()
    event = rt.made("aclrtCreateEventWithFlag", SYNC)
    status = ctypes.c_int32()
    for _ in range(3):
        rt.must("aclrtStreamWaitEvent", stream, event)
        assert rt.aclrtSynchronizeStreamWithTimeout(stream, 20) == 507046
        rt.must("aclrtQueryEventWaitStatus", event, ctypes.byref(status))
        assert status.value == 1
        rt.must("aclrtRecordEvent", event, other)
        rt.sync(stream)
        rt.must("aclrtQueryEventWaitStatus", event, ctypes.byref(status))
        assert status.value == 0
        rt.must("aclrtResetEvent", event, stream)
        rt.sync(stream)


def test_events_tell_time(rt: Runtime) -> None:
    stream, start, end = rt.stream(), rt.event(), rt.event()
    milliseconds = ctypes.c_float()
    assert rt.aclrtEventElapsedTime(ctypes.byref(milliseconds), start, end) == 107006
    begin = time.monotonic()
    rt.must("aclrtRecordEvent", start, stream)
    nap = HOST_FUNC(lambda _: threading.Event().wait(0.02) and None)
    rt.must("aclrtLaunchHostFunc", stream, nap, None)
    rt.must("aclrtRecordEvent", end, stream)
    rt.sync(stream)
    rt.must("aclrtEventElapsedTime", ctypes.byref(milliseconds), start, end)
    assert 19 < milliseconds.value < (time.monotonic() - begin) * 1000  # the host's clock says the most
    assert rt.aclrtEventElapsedTime(ctypes.byref(milliseconds), end, start) == 107007
    without = rt.event(SYNC)
    rt.must("aclrtRecordEvent", without, stream)
    assert rt.aclrtEventElapsedTime(ctypes.byref(milliseconds), start, without) == 107006


def test_a_wait_that_takes_too_long_surfaces_at_synchronisation(rt: Runtime) -> None:
    stream, never = rt.stream(), rt.made("aclrtCreateEventWithFlag", SYNC)
    rt.must("aclrtStreamWaitEventWithTimeout", stream, never, 20)
    assert rt.aclrtSynchronizeStream(stream) == 107019
    rt.sync(stream)


def test_notifies_reset_themselves(rt: Runtime) -> None:
    first, second, device = rt.stream(), rt.stream(), rt.malloc(4)
    notify = rt.made("aclrtCreateNotify", 0)
    for value in (1, 2):
        rt.must("aclrtWaitAndResetNotify", notify, second, 0)
        rt.fill(device, value, 4, second)
        assert rt.aclrtSynchronizeStreamWithTimeout(second, 20) == 507046
        rt.must("aclrtRecordNotify", notify, first)
        rt.sync(second)
        assert rt.read(device, 4) == bytes([value]) * 4
    rt.must("aclrtWaitAndResetNotify", notify, second, 20)
    assert rt.aclrtSynchronizeStream(second) == 107019
    rt.must("aclrtDestroyNotify", notify)
    assert rt.aclrtRecordNotify(notify, first) == 107000


def test_streams_write_and_wait_for_words(rt: Runtime) -> None:
    first, second, word = rt.stream(), rt.stream(), rt.malloc(8)
    rt.must("aclrtMemset", word, 8, 0, 8)
    rt.must("aclrtValueWait", word, 5, 0, second)  # until it is 5 or more
    assert rt.aclrtSynchronizeStreamWithTimeout(second, 20) == 507046
    rt.must("aclrtValueWrite", word, 7, 0, first)
    rt.sync(second)
    assert rt.read(word, 8) == (7).to_bytes(8, "little")
    assert rt.aclrtValueWrite(word + 4, 7, 0, first) == 107008


# ---- callbacks -----------------------------------------------------------------------------------------------


def test_callbacks_run_in_the_thread_that_polls(rt: Runtime) -> None:
    stream, seen = rt.stream(), []
    context = rt.made("aclrtGetCurrentContext")
    callback = HOST_FUNC(lambda data: seen.append((data, threading.get_ident())))
    subscribed, done = threading.Event(), threading.Event()

    def poll() -> None:
        rt.must("aclrtSetCurrentContext", context)
        subscribed.wait()
        while not done.is_set():
            assert rt.aclrtProcessReport(20) in (0, 507012)

    thread = threading.Thread(target=poll)
    thread.start()
    assert rt.aclrtLaunchCallback(callback, 1, 1, stream) == 107015
    rt.must("aclrtSubscribeReport", thread.ident, stream)
    assert rt.aclrtSubscribeReport(thread.ident, stream) == 107011
    subscribed.set()
    for i in (1, 2, 3):
        rt.must("aclrtLaunchCallback", callback, i, 1, stream)  # blocks the stream until it ran
    rt.sync(stream)
    assert seen == [(i, thread.ident) for i in (1, 2, 3)]
    done.set()
    thread.join()
    rt.must("aclrtUnSubscribeReport", thread.ident, stream)
    assert rt.aclrtProcessReport(1) == 107012


def test_host_functions_keep_their_place_and_cannot_call_acl(rt: Runtime) -> None:
    stream, device, codes = rt.stream(), rt.malloc(4), []
    function = HOST_FUNC(lambda _: codes.append(rt.aclrtSynchronizeStream(None)))
    rt.must("aclrtLaunchHostFunc", stream, function, None)
    rt.fill(device, 1, 4, stream)
    rt.sync(stream)
    assert codes == [107002]


# ---- many threads and streams ------------------------------------------------------------------------------------


def test_threads_with_streams_of_their_own(rt: Runtime) -> None:
    context = rt.made("aclrtGetCurrentContext")
    failures: list[str] = []

    def work(seed: int) -> None:
        try:
            rt.must("aclrtSetCurrentContext", context)
            stream, event = rt.stream(), rt.event()
            for step in range(20):
                size = 64 * (1 + (seed * 7 + step) % 50)
                a, b = rt.malloc(size), rt.malloc(size)
                rt.fill(a, seed, size, stream)
                rt.must("aclrtRecordEvent", event, stream)
                rt.must("aclrtStreamWaitEvent", None, event)
                rt.move(b, a, size, None)
                rt.sync(None)
                if rt.read(b, size) != repeat([seed], size):
                    failures.append(f"thread {seed}, step {step}")
                rt.must("aclrtFree", a)
                rt.must("aclrtFree", b)
            rt.must("aclrtDestroyStream", stream)
        except AclError as error:
            failures.append(str(error))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(1, 9)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_unknown_addresses_are_no_addresses(rt: Runtime) -> None:
    progress = rt.event(PROGRESS)
    assert rt.aclrtStreamWaitEvent(rt.stream(), progress) == 107000
    assert rt.aclrtMemcpy(rt.malloc(8), 8, rt.malloc(8), 8, DEFAULT_KIND) == 0


def test_an_event_and_its_stream_are_complete_at_the_same_moment(rt: Runtime) -> None:
    stream, event, device = rt.stream(), rt.event(), rt.malloc(64)
    stream_status, event_status = ctypes.c_int32(), ctypes.c_int32()
    for step in range(300):
        rt.fill(device, 1, 64, stream)
        rt.must("aclrtRecordEvent", event, stream)
        if step % 2:
            rt.must("aclrtSynchronizeEvent", event)
        else:
            rt.sync(stream)
        rt.must("aclrtStreamQuery", stream, ctypes.byref(stream_status))
        rt.must("aclrtQueryEventStatus", event, ctypes.byref(event_status))
        assert (stream_status.value, event_status.value) == (0, 1)


def test_pinned_memory_may_be_registered_once_more(rt: Runtime) -> None:
    """A client that queries the device address of memory that CANN pinned for it."""
    pinned = rt.made("aclrtMallocHost", 4096)
    cell = ctypes.c_void_p()
    rt.must("aclrtHostRegister", pinned, 4096, 0, ctypes.byref(cell))
    assert cell.value == pinned and rt.aclrtHostRegister(pinned, 4096, 0, ctypes.byref(cell)) == 507910
    assert rt.aclrtHostUnregister(pinned) == 0
    assert rt.aclrtHostUnregister(pinned) == 507911
    rt.must("aclrtFreeHost", pinned)


def test_kernels_of_one_family_are_compatible(rt: Runtime) -> None:
    cell = ctypes.c_int32(7)
    for name, want in ((b"Ascend910B4", 1), (b"Ascend910B2", 1), (b"Ascend310P3", 0)):
        assert rt.aclrtCheckArchCompatibility(name, ctypes.byref(cell)) == 0 and cell.value == want
    assert rt.aclrtCheckArchCompatibility(b"Ascend1", ctypes.byref(cell)) == 107000
