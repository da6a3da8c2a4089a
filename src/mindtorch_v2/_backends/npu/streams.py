"""Handles of streams and events: pools, and which stream a thread uses. torch's classes are in mindtorch_v2.npu."""
from __future__ import annotations

import contextlib
import itertools
import time
import warnings
from collections.abc import Callable
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._backends.npu import capi, runtime
from mindtorch_v2._backends.npu.errors import NOT_SUPPORTED, MissingSymbolError, check

STREAMS_PER_PRIORITY = 32     # as torch: further ones come round again, so that a program cannot use up the device's
FAST_STREAM = 1 | 2           # ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC
EVENT_SYNC = 1                # ACL_EVENT_SYNC: streams can wait for it
EVENT_TIME_LINE = 8           # ACL_EVENT_TIME_LINE: it keeps the time
EVENT_EXTERNAL = 32           # ACL_EVENT_EXTERNAL: a wait on it in a graph can be updated

_turn = itertools.count()
wait_observers: list[Callable[[str, int, int], None]] = []   # of profilers: told of every wait of the host when it is over
sync_debug_mode = 0           # of torch.npu.set_sync_debug_mode: 1 warns and 2 refuses where an op makes the host wait


def current_stream_handle(device_id: int) -> int:
    """The stream that the calling thread uses on a device."""
    runtime.get_runtime(device_id)
    return _C._npu_current_stream(device_id)


def set_current_stream(device_id: int, handle: int) -> None:
    """Makes a stream the one that the calling thread uses on its device."""
    own = runtime.get_runtime(device_id).stream
    _C._npu_set_current_stream(device_id, 0 if handle == own else handle)


class _Observed:
    """A with block whose time in nanoseconds the observers are told."""

    __slots__ = ("what", "began")

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        self.began = time.perf_counter_ns()

    def __exit__(self, *exc: Any) -> None:
        ended = time.perf_counter_ns()
        for observer in wait_observers:
            observer(self.what, self.began, ended)


_unobserved = contextlib.nullcontext()


def waiting(what: str) -> contextlib.AbstractContextManager[None]:
    """A with block in which the host waits for a device because the program asks for it."""
    return _Observed(what) if wait_observers else _unobserved


def op_waits(what: str) -> contextlib.AbstractContextManager[None]:
    """A with block in which an op makes the host wait; set_sync_debug_mode may warn of it, or refuse it before it begins."""
    if sync_debug_mode == 2:
        raise RuntimeError(f"called a synchronizing NPU operation: {what}")
    if sync_debug_mode == 1:
        warnings.warn(f"called a synchronizing NPU operation: {what}", stacklevel=3)
    return waiting(what)


def wait(device_id: int, stream: int, what: str) -> None:
    """Waits for a stream."""
    runtime.get_runtime(device_id)
    check(runtime.acl.rt.synchronize_stream(stream), f"aclrtSynchronizeStream: {what}")


def priority_range(device_id: int) -> tuple[int, int]:
    """(least, greatest): the priorities of streams; (0, 0) where CANN has none."""
    runtime.get_runtime(device_id)
    ask = getattr(runtime.acl.rt, "device_get_stream_priority_range", None)
    if ask is None:                               # before 8.5
        return 0, 0
    least, greatest, code = ask()
    if code == NOT_SUPPORTED:
        return 0, 0
    check(code, "aclrtDeviceGetStreamPriorityRange")
    return least, greatest


def stream_from_pool(device_id: int, priority: int) -> tuple[int, int]:
    """(a stream, the priority it has): made here until the pool is full, then one of the pool in turn."""
    owner = runtime.get_runtime(device_id)
    least, greatest = priority_range(device_id)
    priority = max(min(priority, max(least, greatest)), min(least, greatest))
    pool = owner.streams.setdefault(priority, [])
    if len(pool) >= STREAMS_PER_PRIORITY:
        return pool[next(_turn) % STREAMS_PER_PRIORITY], priority
    handle, code = runtime.acl.rt.create_stream_with_config(priority, FAST_STREAM)
    check(code, "aclrtCreateStreamWithConfig")
    pool.append(handle)
    return handle, priority


def is_capturing(device_id: int, handle: int) -> bool:
    """Whether work on a stream goes into a graph instead of to the device."""
    runtime.get_runtime(device_id)
    try:
        status, _, code = capi.function("capture_get_info")(handle)
    except MissingSymbolError:                    # a CANN without graphs
        return False
    if code != NOT_SUPPORTED:                     # graphs, on this SoC
        check(code, "aclmdlRICaptureGetInfo")
    return status == 1                            # ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE


def take_event(device_id: int, flags: int) -> int:
    """An event that can be recorded again and again; give it back with give_event()."""
    owner = runtime.get_runtime(device_id)
    try:
        return owner.events[flags].pop()          # no check before: another thread may take the last one in between
    except (KeyError, IndexError):
        rt = runtime.acl.rt
    if flags == EVENT_EXTERNAL:
        handle, code = rt.create_event_with_flag(flags)
        check(code, "aclrtCreateEventWithFlag")
    else:
        handle, code = rt.create_event_ex_with_flag(flags)
        check(code, "aclrtCreateEventExWithFlag")
    owner.made_events.append(handle)
    return handle


def record_new_event(device_id: int, stream: int) -> int:
    """An event behind the work that a stream has now; give it back with give_event()."""
    owner = runtime.get_runtime(device_id)
    event = take_event(device_id, EVENT_SYNC)
    code = runtime.acl.rt.record_event(event, stream)
    if code:
        give_event(owner, owner.session, EVENT_SYNC, event)
        check(code, "aclrtRecordEvent")
    return event


def give_event(owner: runtime._Runtime, session: object, flags: int, handle: int) -> None:
    """Keeps an event for the next user. Makes no call: it runs wherever Python drops an object, at exit too."""
    if owner.session is session and flags != EVENT_EXTERNAL:   # that kind is recorded once
        owner.events.setdefault(flags, []).append(handle)
