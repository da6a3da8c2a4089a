"""torch.npu, graphs: work that is recorded once and replayed with one call, over CANN's aclmdlRI.
Functions made of graphs are in graphed_callables.py."""
from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

from mindtorch_v2 import _C, npu
from mindtorch_v2._backends.npu import aclnn, capi, runtime, streams
from mindtorch_v2._backends.npu.errors import check
from mindtorch_v2._backends.npu.graph_random import GraphRandom
from mindtorch_v2.npu.devices import synchronize
from mindtorch_v2.npu.memory import PoolId, _new_pool_id, empty_cache
from mindtorch_v2.npu.streams import Stream, StreamContext

_MODES = {"global": 0, "thread_local": 1, "relaxed": 2}      # aclmdlRICaptureMode
_thread = threading.local()                       # .graph: the one that the thread captures
_captured: weakref.WeakSet[NPUGraph] = weakref.WeakSet()      # graphs whose capture has begun, or is done


def is_current_stream_capturing() -> bool:
    """Whether work given to the current stream goes into a graph."""
    index = runtime.current_device()
    return runtime.is_initialized() and streams.is_capturing(index, streams.current_stream_handle(index))


def graph_pool_handle() -> PoolId:
    """The name of a memory pool that several graphs can share, as their pool argument."""
    return _new_pool_id(captured=True)


class NPUGraph:
    """Work of a stream, recorded instead of run; replay() runs it, with the memory and the arguments of then.

    What ops allocate during the capture comes from a pool of the graph's own, so that no other op gets that memory
    while the graph lives: results stay where they are and are new after every replay."""

    def __init__(self) -> None:
        self._handle = 0
        self._owner: Any = None                   # the runtime of its device, and its session then
        self._session: Any = None
        self._pool: PoolId | None = None
        self._stream = 0                          # while it is captured
        self._random: list[GraphRandom] = []

    # ---- capturing -------------------------------------------------------------------------------------------------
    def capture_begin(self, pool: PoolId | None = None, capture_error_mode: str = "global") -> None:
        """From now on the current stream's work is recorded; pool: one that other graphs use too."""
        if self._pool is not None:
            raise RuntimeError("This NPUGraph instance already owns a captured graph. To capture a new graph, create a "
                               "new instance.")
        if capture_error_mode not in _MODES:
            raise RuntimeError(f"Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got "
                               f"{capture_error_mode}")
        index = runtime.current_device()
        owner = runtime.get_runtime(index)
        stream = streams.current_stream_handle(index)
        if stream == owner.stream:
            raise RuntimeError("NPU graphs must be captured on a non-default stream. (However, after capture, it's ok "
                               "to replay them on the default stream.)")
        begin = capi.function("capture_begin")
        capi.function("capture_end")              # now: a capture that was begun has to be ended
        self.register_generator_state(_C._npu_default_generator(index))   # its tensors are not of the graph's pool
        self._owner, self._session, self._stream = owner, owner.session, stream
        self._pool = _new_pool_id(captured=True) if pool is None else tuple(pool)
        allocator = npu._get_allocator(index)
        allocator.begin_allocate_to_pool(self._pool, stream)
        allocator.begin_allocate_to_pool(self._pool)          # further streams that this thread draws in
        code = begin(stream, _MODES[capture_error_mode])
        if code:
            self._end_allocating()
            self.reset()
            check(code, "aclmdlRICaptureBegin")
        _captured.add(self)
        aclnn.pause_blocking(True)
        _thread.graph = self
        for state in self._random:
            state.begin()

    def _end_allocating(self) -> None:
        allocator = npu._get_allocator(self._owner.device_id)
        allocator.end_allocate_to_pool(self._pool)
        allocator.end_allocate_to_pool(self._pool, self._stream)
        allocator.release_pool(self._pool)        # one of the two users; the other is the graph
        self._stream = 0

    def _end_capture(self) -> int:
        """Ends the capture, whether it went well or not; CANN's code."""
        aclnn.pause_blocking(False)
        _thread.graph = None
        for state in self._random:
            state.end()
        runtime.get_runtime(self._owner.device_id)
        handle, code = capi.function("capture_end")(self._stream)
        self._end_allocating()
        if code:
            self.reset()
        else:
            self._handle = handle
        return code

    def capture_end(self) -> None:
        """Ends the capture; from now on the graph can be replayed."""
        if not self._stream:
            raise RuntimeError("NPUGraph.capture_end: no capture was begun")
        check(self._end_capture(), "aclmdlRICaptureEnd: the work since capture_begin() cannot be a graph")

    def _leave(self, kind: Any) -> None:
        """Ends the capture of a with block; kind: of the exception that ended the block, which says what was wrong."""
        if kind is None:
            self.capture_end()
        else:
            self._end_capture()
            self.reset()

    @staticmethod
    def get_currently_capturing_graph() -> NPUGraph | None:
        """The graph that the calling thread captures."""
        return getattr(_thread, "graph", None)

    def register_generator_state(self, generator: Any) -> None:
        """Before capture_begin(): a generator's draws go into the graph too, and every replay moves it on."""
        if all(state.generator is not generator for state in self._random):
            self._random.append(GraphRandom(generator))

    # ---- afterwards ------------------------------------------------------------------------------------------------
    @property
    def _alive(self) -> bool:
        return self._handle != 0 and self._owner.session is self._session

    def replay(self) -> None:
        """Queues the recorded work on the current stream."""
        if not self._alive:
            raise RuntimeError("Called NPUGraph::replay without a preceding successful capture.")
        index = self._owner.device_id
        with npu.device(index):
            for state in self._random:
                state.before_replay()
            stream = streams.current_stream_handle(index)
            check(capi.function("model_ri_execute_async")(self._handle, stream), "aclmdlRIExecuteAsync")

    def reset(self) -> None:
        """Drops the recorded work and the graph's hold on its memory; the device has to be done with its replays."""
        if self._alive:
            runtime.get_runtime(self._owner.device_id)
            check(capi.function("model_ri_destroy")(self._handle), "aclmdlRIDestroy")
        if self._pool is not None and self._owner.session is self._session:
            npu._get_allocator(self._owner.device_id).release_pool(self._pool)
        self._handle, self._pool = 0, None

    def __del__(self) -> None:
        if getattr(self, "_pool", None) is not None and not runtime.is_forked():   # then it is the parent's
            self.reset()

    def pool(self) -> PoolId:
        """The name of the graph's memory pool, for further graphs."""
        if self._pool is None:
            raise RuntimeError("Called NPUGraph::pool() without a preceding successful capture.")
        return self._pool

    def enable_debug_mode(self) -> None:
        """Nothing: debug_dump() needs no preparation."""

    def debug_dump(self, debug_path: str) -> None:
        """Writes the graph's tasks to a file, as CANN describes them."""
        if not self._alive:
            raise RuntimeError("Called NPUGraph::debug_dump without a preceding successful capture.")
        runtime.get_runtime(self._owner.device_id)
        code = capi.function("model_ri_debug_json_print")(self._handle, str(debug_path).encode(), 0)
        check(code, "aclmdlRIDebugJsonPrint")


class graph:
    """A with block whose work becomes a graph, on a stream of its own unless one is given."""

    default_capture_stream: Stream | None = None
    _session: Any = None                          # of the runtime that the stream is of

    def __init__(self, npu_graph: NPUGraph, pool: PoolId | None = None, stream: Stream | None = None,
                 auto_dispatch_capture: bool = False, capture_error_mode: str = "global") -> None:
        if auto_dispatch_capture:
            raise NotImplementedError("graph(auto_dispatch_capture=True): recorded ops are not updated by themselves")
        if stream is None:
            session = runtime.get_runtime(runtime.current_device()).session
            if graph._session is not session:     # another device, or a runtime that ended and began again
                graph.default_capture_stream, graph._session = Stream(), session
            stream = graph.default_capture_stream
        self.npu_graph, self.pool, self.capture_stream = npu_graph, pool, stream
        self.capture_error_mode = capture_error_mode
        self._on_stream = StreamContext(stream)

    def __enter__(self) -> None:
        synchronize()                             # what is queued belongs before the graph
        gc.collect()
        empty_cache()                             # memory of the common pool is of no use to the graph's
        self._on_stream.__enter__()
        try:
            self.npu_graph.capture_begin(pool=self.pool, capture_error_mode=self.capture_error_mode)
        except BaseException:
            self._on_stream.__exit__()
            raise

    def __exit__(self, kind: Any, *rest: Any) -> None:
        try:
            self.npu_graph._leave(kind)
        finally:
            self._on_stream.__exit__()


def _close(device_id: int) -> None:
    """Drops the graphs of a device that is about to go."""
    for made in list(_captured):
        if made._alive and made._owner.device_id == device_id:
            made.reset()


def _interrupt(device_id: int) -> None:
    """Ends the captures of a device that is about to go: while one is open the device cannot be waited for."""
    for made in list(_captured):
        if made._stream and made._owner.device_id == device_id:
            made._end_capture()


runtime.on_close(_close)
runtime.before_close(_interrupt)


# ---- tasks of a graph that can be given other arguments later ------------------------------------------------------
def graph_task_group_begin(stream: Stream) -> None:
    """Work that a captured stream gets from now on can be replaced; needs CANN 8.5."""
    check(capi.function("capture_task_grp_begin")(stream.npu_stream), "aclmdlRICaptureTaskGrpBegin")


def graph_task_group_end(stream: Stream) -> int:
    """The handle of the work since graph_task_group_begin()."""
    handle, code = capi.function("capture_task_grp_end")(stream.npu_stream)
    check(code, "aclmdlRICaptureTaskGrpEnd")
    return handle


def graph_task_update_begin(stream: Stream, handle: int) -> None:
    """Work that a stream gets from now on replaces that of a handle, task by task."""
    check(capi.function("capture_task_update_begin")(stream.npu_stream, handle), "aclmdlRICaptureTaskUpdateBegin")
    aclnn.pause_blocking(True)


def graph_task_update_end(stream: Stream) -> None:
    """Ends what graph_task_update_begin() began."""
    aclnn.pause_blocking(False)
    check(capi.function("capture_task_update_end")(stream.npu_stream), "aclmdlRICaptureTaskUpdateEnd")
