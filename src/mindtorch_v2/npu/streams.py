"""torch.npu, streams and events: torch's classes over the handles of _backends/npu/streams.py."""
from __future__ import annotations

import operator
import threading
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._backends.npu import capi, runtime, streams
from mindtorch_v2._backends.npu.errors import check
from mindtorch_v2.npu.devices import _CUBE_CORES, _VECTOR_CORES, _device_index

_DEVICE_TYPE = 20             # PrivateUse1, the number that torch gives an npu


def _stream_device(device: Any) -> int:
    """As torch_npu's streams take it: a negative index is the current device too."""
    index = _device_index(device)
    return runtime.current_device() if index < 0 else index


class Stream:
    """A queue of work on a device; work in one stream runs in order, streams run side by side."""

    _entered: dict[int, list[StreamContext]] | None = None   # by thread: each leaves what it entered

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        if "stream_id" in kwargs:                 # an existing stream again, as torch's streams are rebuilt
            index = _device_index(kwargs.get("device_index", device))
            self._set(index, kwargs["stream_id"] or runtime.get_runtime(index).stream, priority)
        else:
            index = _stream_device(device)
            self._set(index, *streams.stream_from_pool(index, priority))

    def _set(self, index: int, handle: int, priority: int) -> None:
        self.device_index, self._handle, self.priority = index, handle, priority
        self._session = runtime.get_runtime(index).session

    @classmethod
    def _over(cls, index: int, handle: int) -> Stream:
        """A Stream for a handle that exists."""
        made = cls.__new__(cls)
        made._set(index, handle, 0)
        return made

    @property
    def npu_stream(self) -> int:
        """The aclrtStream; its device's context is current in the calling thread then."""
        if runtime.get_runtime(self.device_index).session is not self._session:
            raise RuntimeError(f"{self!r} has ended with the npu runtime that it was made in; make a new one")
        return self._handle

    @property
    def device(self) -> Any:
        """The device of the stream."""
        return _C.device("npu", self.device_index)

    @property
    def device_type(self) -> int:
        """torch's number for npus."""
        return _DEVICE_TYPE

    @property
    def stream_id(self) -> int:
        """0 for the device's default stream, else the handle."""
        return 0 if self.npu_stream == runtime.get_runtime(self.device_index).stream else self._handle

    @property
    def native_handle(self) -> int:
        """The aclrtStream."""
        return self.npu_stream

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """(least, greatest) of the current device."""
        return stream_priority_range()

    def wait_event(self, event: AnyEvent) -> None:
        """Work given to this stream from now on waits for an event."""
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """Work given to this stream from now on waits for all work that another stream has now."""
        self.wait_event(stream.record_event())

    def record_event(self, event: AnyEvent | None = None) -> AnyEvent:
        """Records an event behind the work that the stream has now; makes one if none is given."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def query(self) -> bool:
        """Whether all work is done."""
        status, code = runtime.acl.rt.stream_query(self.npu_stream)
        check(code, "aclrtStreamQuery")
        return status == 0                        # ACL_STREAM_STATUS_COMPLETE

    def synchronize(self) -> None:
        """Waits for all work of the stream."""
        with streams.waiting("Stream.synchronize"):
            check(runtime.acl.rt.synchronize_stream(self.npu_stream), "aclrtSynchronizeStream")

    def is_capturing(self) -> bool:
        """Whether work given to the stream goes into a graph."""
        return streams.is_capturing(self.device_index, self.npu_stream)

    def __enter__(self) -> Stream:
        if self._entered is None:
            self._entered = {}
        self._entered.setdefault(threading.get_ident(), []).append(StreamContext(self).__enter__())
        return self

    def __exit__(self, *exc: Any) -> None:
        (self._entered or {})[threading.get_ident()].pop().__exit__(*exc)

    def set_data_preprocess_stream(self, is_data_preprocess_stream: bool = False) -> None:
        """Nothing: torch_npu treats such streams apart in its queue of tasks, and there is no such queue here."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stream):
            return NotImplemented
        return (self._handle, self._session) == (other._handle, other._session)

    def __hash__(self) -> int:
        return hash((self.device_index, self._handle))

    def __repr__(self) -> str:
        return f"<torch.npu.{type(self).__name__} device=npu:{self.device_index} npu_stream={self._handle:#x}>"

    def __copy__(self) -> Stream:
        return self                               # the queue is the device's: a copy of the object is no other queue

    def __deepcopy__(self, memo: dict[int, Any]) -> Stream:
        return self

    def __reduce__(self) -> Any:
        raise TypeError(f"cannot pickle '{type(self).__name__}' object: a stream belongs to its process")

    @property
    def _as_parameter_(self) -> Any:
        """What ctypes passes for the stream."""
        return capi.pointer(self.npu_stream)


class ExternalStream(Stream):
    """A stream that other code made and keeps alive."""

    def __init__(self, stream_ptr: int, device: Any = None, **kwargs: Any) -> None:
        index = _stream_device(device)
        runtime.get_runtime(index).streams.setdefault(0, [])   # synchronize() has to wait for more than our own stream
        self._set(index, operator.index(stream_ptr), 0)


class SyncLaunchStream(Stream):
    """A stream whose work is given to CANN by the calling thread; here every stream's is."""


class AnyEvent:
    """A mark in a stream: it can be waited for, queried, and timed. Its handle is made when it is first recorded.

    This is torch.Event; a device may be named, and the first record decides."""

    _flags = streams.EVENT_SYNC
    _name = "Event"

    def __init__(self, device: Any = None, *, enable_timing: bool = False, blocking: bool = False,
                 interprocess: bool = False) -> None:
        _device_index(device)                     # refuses what is no npu
        if interprocess:
            raise NotImplementedError("Event(interprocess=True): events of other processes are not supported on npu")
        if enable_timing:
            self._flags = streams.EVENT_SYNC | streams.EVENT_TIME_LINE
        self.npu_event = 0
        self._owner: Any = None                   # the runtime of its device, and its session then
        self._session: Any = None
        self._index = -1

    @property
    def device(self) -> Any:
        """The device of the stream it was recorded in; None before."""
        return _C.device("npu", self._index) if self._recorded else None

    @property
    def _recorded(self) -> bool:
        return self._owner is not None and self._owner.session is self._session

    def record(self, stream: Stream | None = None) -> None:
        """Marks the place behind the work that a stream, or the current one, has now."""
        stream = current_stream() if stream is None else stream
        if self._recorded and self._index != stream.device_index:
            raise RuntimeError(f"Event device {self._index} does not match recording stream's device "
                               f"{stream.device_index}.")
        handle = stream.npu_stream
        self._take(stream.device_index)
        check(runtime.acl.rt.record_event(self.npu_event, handle), "aclrtRecordEvent")

    def _take(self, index: int) -> None:
        """Has an event of a device, from now on its own."""
        if not self._recorded:
            owner = runtime.get_runtime(index)
            self.npu_event = streams.take_event(index, self._flags)
            self._owner, self._session, self._index = owner, owner.session, index

    def wait(self, stream: Stream | None = None) -> None:
        """Work given to a stream, or the current one, from now on waits for the event; not if it was not recorded."""
        if not self._recorded:
            return
        stream = current_stream() if stream is None else stream
        if stream.device_index != self._index:    # CANN's events do not reach other devices: the host waits instead
            self.synchronize()
            return
        check(runtime.acl.rt.stream_wait_event(stream.npu_stream, self.npu_event), "aclrtStreamWaitEvent")

    def query(self) -> bool:
        """Whether all work before the event is done; True if it was not recorded."""
        if not self._recorded:
            return True
        runtime.get_runtime(self._index)
        status, code = runtime.acl.rt.query_event_status(self.npu_event)
        check(code, "aclrtQueryEventStatus")
        return status == 1                        # ACL_EVENT_RECORDED_STATUS_COMPLETE

    def synchronize(self) -> None:
        """Waits for the event; not at all if it was not recorded."""
        if self._recorded:
            runtime.get_runtime(self._index)
            with streams.waiting("Event.synchronize"):
                check(runtime.acl.rt.synchronize_event(self.npu_event), "aclrtSynchronizeEvent")

    def elapsed_time(self, end_event: AnyEvent) -> float:
        """Milliseconds between two recorded events; waits for both."""
        if not (self._flags & end_event._flags & streams.EVENT_TIME_LINE):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if not (self._recorded and end_event._recorded):
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        self.synchronize()
        end_event.synchronize()
        milliseconds, code = runtime.acl.rt.event_elapsed_time(self.npu_event, end_event.npu_event)
        check(code, "aclrtEventElapsedTime")
        return milliseconds

    def recorded_time(self) -> int:
        """When the event was reached, in microseconds of the device's clock; waits for it."""
        if not (self._recorded and self._flags & streams.EVENT_TIME_LINE):
            raise ValueError("The event must be created with argument 'enable_timing=True' and recorded.")
        self.synchronize()
        microseconds, code = runtime.acl.rt.event_get_timestamp(self.npu_event)
        check(code, "aclrtEventGetTimestamp")
        return microseconds

    @property
    def event_id(self) -> int:
        """CANN's number of the event; it is made if it was not."""
        if not self._recorded:
            self.record()
        number, code = capi.function("get_event_id")(self.npu_event)
        check(code, "aclrtGetEventId")
        return number

    def reset(self, stream: Stream | None = None) -> None:
        """Makes the event one that was not recorded."""
        self._give_back()
        self._owner, self.npu_event = None, 0

    def ipc_handle(self) -> bytes:
        """Refuses: see interprocess."""
        raise NotImplementedError("Event.ipc_handle: events of other processes are not supported on npu")

    @classmethod
    def from_ipc_handle(cls, device: Any, handle: bytes) -> AnyEvent:
        """Refuses: see interprocess."""
        raise NotImplementedError("Event.from_ipc_handle: events of other processes are not supported on npu")

    def _give_back(self) -> None:
        if self._recorded:
            streams.give_event(self._owner, self._session, self._flags, self.npu_event)

    def __del__(self) -> None:
        if getattr(self, "_owner", None) is not None:   # not if __init__ refused
            self._give_back()

    def __reduce__(self) -> Any:
        raise TypeError(f"cannot pickle '{type(self).__name__}' object: an event belongs to its process")

    def __repr__(self) -> str:
        return f"<torch.npu.{self._name} {hex(self.npu_event) if self._recorded else 'uninitialized'}>"

    @property
    def _as_parameter_(self) -> Any:
        """What ctypes passes for the event."""
        return capi.pointer(self.npu_event)


class Event(AnyEvent):
    """A mark in a stream of an npu, with torch.npu's order of arguments."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        super().__init__(enable_timing=enable_timing, blocking=blocking, interprocess=interprocess)


class ExternalEvent(Event):
    """An event that a captured graph waits for and other streams record: each wait uses it up until it is reset."""

    _flags = streams.EVENT_EXTERNAL
    _name = "ExternalEvent"

    def __init__(self) -> None:
        super().__init__()

    def wait(self, stream: Stream | None = None) -> None:
        """As that of an Event, but also before the event is recorded: the stream waits until it is."""
        stream = current_stream() if stream is None else stream
        self._take(stream.device_index)
        super().wait(stream)

    def reset(self, stream: Stream | None = None) -> None:
        """Makes the event ready for the next record, in stream order."""
        stream = current_stream() if stream is None else stream
        self._take(stream.device_index)
        check(runtime.acl.rt.reset_event(self.npu_event, stream.npu_stream), "aclrtResetEvent")


def current_stream(device: Any = None) -> Stream:
    """The stream that this thread uses on a device."""
    index = _device_index(device)
    return Stream._over(index, streams.current_stream_handle(index))


def default_stream(device: Any = None) -> Stream:
    """The stream that a device starts with."""
    index = _device_index(device)
    return Stream._over(index, runtime.get_runtime(index).stream)


def set_stream(stream: Stream | None) -> None:
    """Makes a stream, and its device, the current one of this thread; None changes nothing."""
    if stream is not None:
        handle = stream.npu_stream                # first: one that has ended changes nothing
        runtime.set_current_device(stream.device_index)
        streams.set_current_stream(stream.device_index, handle)


class StreamContext:
    """A with block on another stream and its device; None changes nothing."""

    def __init__(self, stream_ctx: Stream | None) -> None:
        self.stream = stream_ctx
        self._before: tuple[int, Stream | None] = (-1, None)   # the current device, and the stream's device's stream

    def __enter__(self) -> StreamContext:
        if self.stream is not None:
            self._before = runtime.current_device(), current_stream(self.stream.device_index)
            set_stream(self.stream)
        return self

    def __exit__(self, *exc: Any) -> None:
        device, before = self._before
        if before is not None:
            if runtime.get_runtime(before.device_index).session is before._session:   # else all choices are forgotten
                streams.set_current_stream(before.device_index, before._handle)
            runtime.set_current_device(device)


def stream(stream: Stream | None) -> StreamContext:
    """A with block on another stream."""
    return StreamContext(stream)


def stream_priority_range() -> tuple[int, int]:
    """(least, greatest) priority of a stream of the current device; (0, 0) where CANN has no priorities."""
    return streams.priority_range(runtime.current_device())


def set_stream_limit(stream: Stream, cube_num: int = -1, vector_num: int = -1) -> None:
    """How many cores the work of a stream may use; -1 leaves a number as it is. Needs CANN 8.5."""
    for kind, number in ((_CUBE_CORES, cube_num), (_VECTOR_CORES, vector_num)):
        if number != -1:
            check(capi.function("set_stream_res_limit")(stream.npu_stream, kind, number), "aclrtSetStreamResLimit")


def get_stream_limit(stream: Stream) -> dict[str, int]:
    """The cores that the work of a stream may use. Needs CANN 8.5."""
    limits = {}
    for name, kind in (("cube_core_num", _CUBE_CORES), ("vector_core_num", _VECTOR_CORES)):
        limits[name], code = capi.function("get_stream_res_limit")(stream.npu_stream, kind)
        check(code, "aclrtGetStreamResLimit")
    return limits


def reset_stream_limit(stream: Stream) -> None:
    """Lets a stream use all cores again. Needs CANN 8.5."""
    check(capi.function("reset_stream_res_limit")(stream.npu_stream), "aclrtResetStreamResLimit")
