"""torch.cuda without CUDA: no device is found, and whatever needs one raises."""
from __future__ import annotations

from typing import Any

from mindtorch_v2 import _deferred, _facade
from mindtorch_v2._C import OutOfMemoryError as OutOfMemoryError

_NO_CUDA = ("Torch not compiled with CUDA enabled: mindtorch_v2 has the devices cpu and npu; "
            "use torch.npu, or device='npu'")


def is_available() -> bool:
    """False: there is no CUDA here."""
    return False


def device_count() -> int:
    """0."""
    return 0


is_initialized = is_bf16_supported = is_current_stream_capturing = is_available
has_half = has_magma = False
default_generators: tuple = ()


def init() -> None:
    """Refuses: there is no CUDA to start."""
    raise AssertionError(_NO_CUDA)


def _refusal(name: str) -> Any:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError(_NO_CUDA)
    refuse.__name__, refuse.__doc__ = name, "Refuses: there is no CUDA here."
    return refuse


for _name in ("current_device", "set_device", "get_device_name", "get_device_capability", "get_device_properties",
              "synchronize", "current_stream", "default_stream", "set_stream", "mem_get_info", "current_blas_handle",
              "can_device_access_peer", "utilization", "temperature", "power_draw", "clock_rate", "cudart",
              "get_rng_state", "set_rng_state", "initial_seed", "_lazy_init", "current_solver_handle", "get_stream_from_external",
              "set_sync_debug_mode", "device_memory_used", "memory_usage",
              "memory_summary", "list_gpu_processes", "set_per_process_memory_fraction", "caching_allocator_alloc",
              "caching_allocator_delete", "external_stream", "make_graphed_callables", "graph_pool_handle", "_sleep"):
    globals()[_name] = _refusal(_name)

# Queries and resets that need no device return what torch returns where CUDA is absent.
for _name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_cached",
              "max_memory_cached"):
    globals()[_name] = lambda device=None: 0


def _is_compiled() -> bool:
    """False: no code for CUDA is here."""
    return False


def _is_in_bad_fork() -> bool:
    """False: a child of fork has nothing of CUDA that is broken."""
    return False


def get_rng_state_all() -> list[Any]:
    """Empty: there is no device that could have a state."""
    return []


def set_rng_state_all(new_states: Any) -> None:
    """Sets the state of each device: of none, so anything else is refused."""
    if len(list(new_states)):
        raise AssertionError(_NO_CUDA)


def is_tf32_supported() -> bool:
    """False."""
    return False


def manual_seed(seed: int) -> None:
    """Nothing to seed."""


def manual_seed_all(seed: int) -> None:
    """Nothing to seed."""


def seed() -> None:
    """Nothing to seed."""


seed_all = seed


def empty_cache() -> None:
    """Nothing is cached."""


def ipc_collect() -> None:
    """Nothing is shared."""


def reset_peak_memory_stats(device: Any = None) -> None:
    """Nothing is counted."""


reset_max_memory_allocated = reset_max_memory_cached = reset_accumulated_memory_stats = reset_peak_memory_stats


def memory_stats(device: Any = None) -> dict[str, Any]:
    """Empty."""
    return {}


def memory_snapshot(*args: Any, **kwargs: Any) -> list[Any]:
    """Empty."""
    return []


def get_arch_list() -> list[str]:
    """Empty."""
    return []


def get_gencode_flags() -> str:
    """Empty."""
    return ""


def get_sync_debug_mode() -> int:
    """0."""
    return 0


class _NeedsCuda:
    """Refuses to be made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise AssertionError(_NO_CUDA)


class Stream(_NeedsCuda):
    """A CUDA stream; none can be made."""


class Event(_NeedsCuda):
    """A CUDA event; none can be made."""


class StreamContext:
    """A with block on a stream; None changes nothing."""

    def __init__(self, stream: Any) -> None:
        if stream is not None:
            raise AssertionError(_NO_CUDA)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        pass


class ExternalStream(_NeedsCuda):
    """A stream that another library made; none can be."""


class DeferredCudaCallError(Exception):
    """A call that waited for CUDA's start failed."""


class CudaError(RuntimeError):
    """An error code of CUDA's runtime."""

    def __init__(self, code: int) -> None:
        super().__init__(f"({code})")


class CUDAGraph(_NeedsCuda):
    """A CUDA graph; none can be made."""


class device:
    """A with block on a device; None and -1 change nothing, as in torch."""

    def __init__(self, device: Any) -> None:
        if device is not None and device != -1:
            raise AssertionError(_NO_CUDA)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        pass


class device_of(device):
    """A with block on the device of a tensor; a tensor on the CPU changes nothing."""

    def __init__(self, obj: Any) -> None:
        super().__init__(None)


def stream(stream: Any) -> StreamContext:
    """A with block on a stream; None changes nothing."""
    return StreamContext(stream)


class graph(_NeedsCuda):
    """A with block that records a CUDA graph; none can be."""


random: Any = _facade.module(__name__, "random", "The random state of each device; there is none.", **{
    name: globals()[name] for name in ("get_rng_state", "get_rng_state_all", "set_rng_state", "set_rng_state_all", "manual_seed",
                                       "manual_seed_all", "seed", "seed_all", "initial_seed")})
profiler: Any = _facade.module(__name__, "profiler", "CUDA's profiler; it is not there.",
                               **_facade.refusals("init start stop profile", _NO_CUDA, "torch.cuda.profiler.", AssertionError))
sparse: Any = _facade.module(__name__, "sparse", "The types of sparse tensors on CUDA; none are offered.")


def _create_jit_fn(code_string: str, **kwargs: Any) -> Any:
    """A function that refuses to be called: its kernel is CUDA's own C++."""
    return _facade.refusal("torch.cuda.jiterator", _NO_CUDA, AssertionError)


jiterator: Any = _facade.module(__name__, "jiterator", "Kernels made from C++ text while a program runs.",
                                _create_jit_fn=_create_jit_fn, _create_multi_output_jit_fn=_create_jit_fn)

streams: Any = _facade.module(__name__, "streams", "Streams and events of CUDA: none can be made.", Stream=Stream, Event=Event,
                              ExternalStream=ExternalStream)
graphs: Any = _facade.module(__name__, "graphs", "Graphs of CUDA: none can be made.", CUDAGraph=CUDAGraph, graph=graph,
                             **{name: globals()[name] for name in ("graph_pool_handle", "is_current_stream_capturing",
                                                                   "make_graphed_callables")})
nccl: Any = _facade.module(__name__, "nccl", "NVIDIA's communication library, which is not there.",
                           is_available=lambda tensors: False, **_facade.refusals(
                               "version unique_id init_rank all_reduce reduce broadcast all_gather reduce_scatter",
                               "there is no NCCL: npus communicate by torch.distributed", "torch.cuda.nccl.", RuntimeError))
_deferred.defer(__name__, {"amp": "cuda.amp", "comm": "cuda.comm", "memory": "cuda.memory", "nvtx": "cuda.nvtx",
                           **dict.fromkeys(("memory_stats_as_nested_dict", "host_memory_stats", "host_memory_stats_as_nested_dict",
                                            "caching_allocator_enable", "caching_allocator_disabled", "MemPool", "use_mem_pool",
                                            "get_per_process_memory_fraction", "reset_accumulated_host_memory_stats",
                                            "reset_peak_host_memory_stats", "get_allocator_backend", "CUDAPluggableAllocator",
                                            "change_current_allocator"), "cuda.memory")})
