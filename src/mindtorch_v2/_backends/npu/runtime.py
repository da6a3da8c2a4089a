"""The ACL runtime of this process: per device one context and one stream, created at first use and destroyed at exit."""
from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._backends.npu import errors
from mindtorch_v2._backends.npu.acl_loader import ensure_acl

acl: Any = None                                   # the acl module; None until an npu is used
_RUNTIME_CLEANUP_REGISTERED = False
_LOCK = threading.RLock()
_runtimes: dict[int, _Runtime] = {}
_started: Any = None                              # the acl module whose init() was called
_counted: tuple[Any, int] = (None, 0)             # an acl module and the devices it sees
_ending: tuple[int, int | None] = (0, None)       # the thread that ends a device, or all (None), while it does
_openers: list[Callable[[int], None]] = []
_closers: list[Callable[[int], None]] = []
_interrupters: list[Callable[[int], None]] = []
_forked = False
ABORT_MS = 3000                                   # how long the task that runs may take to its end after Ctrl-C

errors.acl_in_use = lambda: acl


class _Thread(threading.local):
    """What ACL and torch keep per thread."""
    session: Any = None                           # of the runtime whose context is current in this thread
    switches = 0                                  # how often this thread has changed its context
    interrupted: Any = None                       # the session when a collection began


_thread = _Thread()


class _Runtime:
    """One device in use: its context, its stream, and what is freed once that stream has passed."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self.initialized = False
        self.device_id = 0
        self.context: Any = None
        self.stream: Any = None
        self.session = object()                   # a new one after every end: what threads and events kept is stale
        self.streams: dict[int, list[int]] = {}   # further streams, by priority
        self.made_events: list[int] = []
        self.events: dict[int, list[int]] = {}    # those not in use, by creation flags
        self._deferred: list[int] = []
        self._acl: Any = None                     # the acl module that init used
        self._device_set = False

    def init(self, device_id: int = 0) -> None:
        """Starts ACL and the device; nothing if that was done."""
        if self.initialized:
            return
        with _LOCK:
            if self.initialized:
                return
            _refuse_fork()
            load_acl()
            self.device_id = device_id
            _uninterrupted(self._start)

    def _start(self) -> None:
        _start_acl()
        _register_cleanup(self)
        self._acl = acl
        try:
            self._open()
        except BaseException:
            self._close(set(errors.reported))         # so that a later try starts from nothing
            raise

    def _open(self) -> None:
        errors.check(acl.rt.set_device(self.device_id), f"aclrtSetDevice({self.device_id})")
        self._device_set = True
        context, code = acl.rt.create_context(self.device_id)
        errors.check(code, f"aclrtCreateContext({self.device_id})")
        self.context = context
        stream, code = acl.rt.create_stream()
        errors.check(code, "aclrtCreateStream")
        self.stream = stream
        _thread.session = self.session            # aclrtCreateContext made the context current here
        _C._npu_set_bound(-1)                     # so the launcher cannot rely on what it knew
        if _runtimes.get(self.device_id) is self:
            _C._npu_set_default_stream(self.device_id, stream)
        for opener in _openers:
            opener(self.device_id)
        self.initialized = True

    def defer_free(self, pointer: int) -> None:
        """Frees device memory at the next synchronize(), when no op in flight can still use it."""
        self._deferred.append(pointer)

    def synchronize(self) -> None:
        """Waits for all work of the device, then frees what was deferred."""
        pointers, self._deferred = self._deferred, []   # what comes in while we wait is for the next time
        try:
            if self.streams:                      # every stream of the device, not only its own
                errors.check(acl.rt.synchronize_device(), "aclrtSynchronizeDevice")
            else:
                errors.check(acl.rt.synchronize_stream(self.stream), "aclrtSynchronizeStream")
        except BaseException:
            self._deferred = pointers + self._deferred
            raise
        codes = [acl.rt.free(pointer) for pointer in pointers]
        errors.check(next(filter(None, codes), 0), "aclrtFree")

    def finalize(self) -> None:
        """Ends ACL in this process, and so every device first. It runs at exit: it never raises, twice is once. A Ctrl-C
        that comes meanwhile counts when all is done: else it would leave open what comes after it."""
        if not _forked:                           # else the parent owns what there is
            _uninterrupted(self._finalize)

    def _finalize(self) -> None:
        with _LOCK:
            ours = [self] + [runtime for runtime in _runtimes.values() if runtime is not self and runtime._acl is acl]
            reported = set(errors.reported)
            _set_ending(threading.get_ident(), None)
            try:
                used = sum(runtime._close(reported) for runtime in ours)   # sum, because any() would stop at the first
                _stop_acl(used > 0, reported)
            finally:
                _set_ending(0, None)
            errors.reported.clear()

    def _close(self, reported: set[int]) -> bool:
        """Gives back what init took, newest first, and goes on where a step fails; whether there was anything."""
        def attempt(what: str, act: Callable[..., Any], *args: Any) -> None:
            _attempt(reported, what, act, *args)

        def end(name: str, function: str, *args: Any) -> bool:
            return _attempt(reported, function, lambda: getattr(acl.rt, name)(*args))

        if self.context is None and not self._device_set:
            return False
        if _interrupted():
            reported.add(errors.DEVICE_TASK_ABORT)    # what the next wait then says is our own doing
        try:
            self._end(attempt, end)
        finally:                                  # whatever ends it: what is half closed is not used again
            _C._npu_set_bound(-1)
            self._forget()
        return True

    def _end(self, attempt: Callable[..., None], end: Callable[..., bool]) -> None:
        if self.context is not None and _thread.session is not self.session:
            end("set_context", "aclrtSetCurrentContext", self.context)
            _thread.session = self.session
        closers = _closers[::-1] if self.initialized and _runtimes.get(self.device_id) is self else []
        for interrupter in _interrupters if closers else []:
            attempt("ending a capture", interrupter, self.device_id)
        if self._deferred or closers:             # aclrtFree does not wait for the ops that use the memory
            if _interrupted() and hasattr(acl.rt, "device_task_abort"):
                end("device_task_abort", "aclrtDeviceTaskAbort", self.device_id, ABORT_MS)
            attempt("synchronize", self.synchronize)
        for closer in closers:
            attempt("freeing memory", closer, self.device_id)
        for event in self.made_events:
            end("destroy_event", "aclrtDestroyEvent", event)
        for stream in sum(self.streams.values(), [] if self.stream is None else [self.stream]):
            end("destroy_stream", "aclrtDestroyStream", stream)
        if self.context is not None:
            end("destroy_context", "aclrtDestroyContext", self.context)
        if not end("reset_device", "aclrtResetDevice", self.device_id) and hasattr(acl.rt, "reset_device_force"):
            end("reset_device_force", "aclrtResetDeviceForce", self.device_id)   # else no later start begins anew


def _uninterrupted(act: Callable[[], None]) -> None:
    """Runs act with Python's signal handlers held back until it is done: a Ctrl-C while CANN makes a context would come
    between the call and the line that keeps its handle, and the context would leak."""
    if threading.current_thread() is not threading.main_thread():
        act()                                     # signals are handled in the main thread only
        return
    held: list[tuple[Any, ...]] = []
    handlers = {number: handler for number in signal.valid_signals() if callable(handler := signal.getsignal(number))}
    try:
        for number in handlers:
            signal.signal(number, lambda *came: held.append(came))
        act()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for came in held:
            handlers[came[0]](*came)


def _interrupted() -> bool:
    """Whether Ctrl-C ended the program: what is still queued will not be read, and to wait for it may take minutes."""
    return issubclass(getattr(sys, "last_type", object), KeyboardInterrupt)


def _set_ending(thread: int, device_id: int | None) -> None:
    """While a thread ends a device the others are refused: one that goes on queueing work would keep it for ever."""
    global _ending, _thread
    _ending, _thread = (thread, device_id), _Thread()   # so that no thread takes the fast path of get_runtime()
    _C._npu_end_lifetime()                        # nor in the launcher


def _attempt(reported: set[int], what: str, act: Callable[..., Any], *args: Any) -> bool:
    """One step of a shutdown that cannot be stopped: a failure is printed to stderr, and the next step runs. A device fault that
    was reported before is the reason of this failure too, and not said again. Whether it went well."""
    try:
        errors.check(act(*args) or 0, what)
        return True
    except Exception as error:
        code = getattr(error, "error_code", 0)
        if code not in reported:
            print(f"mindtorch_v2: at the end of the npu: {error if code else f'[{what}] {error}'}", file=sys.stderr)
        if errors.is_device_fault(code):
            reported.add(code)
        return False


def _register_cleanup(runtime: _Runtime) -> None:
    global _RUNTIME_CLEANUP_REGISTERED
    if not _RUNTIME_CLEANUP_REGISTERED:
        atexit.register(runtime.finalize)         # one is enough: it ends the other devices too
        _RUNTIME_CLEANUP_REGISTERED = True


def load_acl() -> Any:
    """The acl module; loads CANN at the first call."""
    global acl
    if acl is None:
        acl = ensure_acl()
    return acl


def _start_acl() -> None:
    global _started
    _refuse_fork()
    load_acl()
    if _started is not acl:
        code = acl.init()
        if code != errors.REPEAT_INITIALIZE:
            errors.check(code, "aclInit")
        _started = acl


def _stop_acl(used: bool, reported: set[int]) -> None:
    global _started
    if used or (acl is not None and _started is acl):
        _attempt(reported, "aclFinalize", lambda: acl.finalize())
    _started = None


def on_open(opener: Callable[[int], None]) -> None:
    """Registers opener(device_id), called where a device was set and its context is current, before anything uses it."""
    _openers.append(opener)


def on_close(closer: Callable[[int], None]) -> None:
    """Registers closer(device_id), called before a device is reset, the latest first: graphs, then the memory they use."""
    _closers.append(closer)


def before_close(interrupter: Callable[[int], None]) -> None:
    """Registers interrupter(device_id), called before a device that is reset is synchronized."""
    _interrupters.append(interrupter)


def get_runtime(device_id: int = 0) -> _Runtime:
    """The runtime of a device, started, and its context current in the calling thread."""
    runtime = _runtimes.get(device_id)
    if runtime is not None and runtime.session is _thread.session:
        return runtime
    _refuse_fork()
    if runtime is None:
        check_ordinal(device_id)
    if is_ending(device_id) and (_ending[0] != threading.get_ident() or runtime is None or not runtime.initialized):
        raise RuntimeError(f"npu:{device_id} cannot be used: the npu runtime is ending")
    if runtime is None or not runtime.initialized:    # only then: a thread that holds another lock may come by here
        with _LOCK:
            runtime = _runtimes.setdefault(device_id, _Runtime())
            if not runtime.initialized:
                _watch_collections()
                runtime.init(device_id)
    if runtime.session is _thread.session:        # it was made just now
        _C._npu_set_bound(device_id)
    else:
        _switch(runtime, device_id)
    return runtime


def restart(device_id: int) -> None:
    """Gives a device back and starts it again, which also ends what a fault left there. What was made on it ends."""
    _refuse_fork()
    with _LOCK:
        runtime = _runtimes.get(device_id)
        if runtime is not None and runtime.initialized:
            _set_ending(threading.get_ident(), device_id)
            try:
                runtime._close(set(errors.reported))
            finally:
                _set_ending(0, None)
            errors.reported.clear()
    get_runtime(device_id)


def in_use_beside(device_id: int) -> bool:
    """Whether another device than this one is in use."""
    return any(runtime.initialized and runtime.device_id != device_id for runtime in _runtimes.values())


def _switch(runtime: _Runtime, device_id: int) -> None:
    """Makes a context current. An object that goes in the midst of it may make another one current, so that what was
    noted would not be true: then it is done again."""
    switched = -1
    while switched != _thread.switches:
        _thread.switches += 1
        switched = _thread.switches
        _thread.session = None                    # nothing is known until it is done
        _C._npu_set_bound(-1)
        errors.check(acl.rt.set_context(runtime.context), f"aclrtSetCurrentContext of npu:{device_id}")
        if switched == _thread.switches:          # from here to the end nothing else runs
            _thread.session = runtime.session
            _C._npu_set_bound(device_id)          # the launcher need not ask again


def _watch_collections() -> None:
    """With several devices: a collection may come between two lines of ours, and objects that end in it may use another
    device than those lines do."""
    if len(_runtimes) > 1 and _around_collection not in gc.callbacks:
        gc.callbacks.append(_around_collection)


def _around_collection(phase: str, _info: dict[str, int]) -> None:
    if phase == "start":
        _thread.interrupted = _thread.session
    elif _thread.interrupted is not _thread.session:
        for runtime in list(_runtimes.values()):
            if runtime.session is _thread.interrupted:
                _switch(runtime, runtime.device_id)


def check_ordinal(device_id: int) -> None:
    """Rejects an index that no npu has, before it is passed to CANN or the core, which count in 32 bits."""
    if not 0 <= device_id < _C._core.NPU_LIMIT:
        raise RuntimeError(f"invalid device ordinal: npu:{device_id}")


bind_thread = get_runtime                         # said for its effect: any thread may use any device


def is_ending(device_id: int) -> bool:
    """Whether a device is being reset at this moment."""
    return _ending[0] != 0 and _ending[1] in (None, device_id)


def bind_some() -> None:
    """Gives the calling thread a context where any will do: the current device's, or the one it has while that ends."""
    if not is_ending(current_device()):
        get_runtime(current_device())


def is_initialized() -> bool:
    """Whether a device is in use in this process."""
    return not _forked and any(runtime.initialized for runtime in _runtimes.values())


def device_count() -> int:
    """How many devices CANN sees; starts none of them."""
    global _counted
    if _counted[0] is None or _counted[0] is not acl:
        load_acl()
        count, code = acl.rt.get_device_count()
        if code == errors.UNINITIALIZED:          # some versions want aclInit before they count
            _start_acl()
            count, code = acl.rt.get_device_count()
        errors.check(code, "aclrtGetDeviceCount")
        _counted = (acl, count)
    return _counted[1]


def current_device() -> int:
    """The device that "npu" without an index means in this thread."""
    return _C._npu_current_device()


def set_current_device(device_id: int) -> None:
    """Makes a device the current one of this thread; it is started when it is first used."""
    if not 0 <= device_id < device_count():
        raise RuntimeError(f"invalid device ordinal: npu:{device_id} of {device_count()} devices")
    _C._npu_set_current_device(device_id)


def is_forked() -> bool:
    """Whether this process is the child of one that used an npu, which it cannot use."""
    return _forked


def _refuse_fork() -> None:
    if _forked:
        raise RuntimeError("Cannot re-initialize NPU in forked subprocess. To use NPU with multiprocessing, you must "
                           "use the 'spawn' start method")


def _after_fork() -> None:
    """In a child: ACL's threads and handles are the parent's, so what was started there cannot be used here."""
    global _forked, _LOCK
    _LOCK = threading.RLock()                     # another thread of the parent may have held it
    if _started is not None:
        _forked = True
        _thread.session = None
        _C._npu_set_bound(-1)                     # the next launch calls get_runtime(), which raises


os.register_at_fork(after_in_child=_after_fork)
