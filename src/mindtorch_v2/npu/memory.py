"""torch.npu, memory: statistics, snapshots, limits, pools and allocators of one's own, with torch_npu's names.
What the allocator does is in _backends/npu/allocator.py."""
from __future__ import annotations

import contextlib
import itertools
import pickle
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from mindtorch_v2 import npu
from mindtorch_v2._backends.npu import allocator as _allocator
from mindtorch_v2._backends.npu import capi, runtime
from mindtorch_v2._backends.npu import pinned as _pinned
from mindtorch_v2._backends.npu.pluggable import PluggableAllocator
from mindtorch_v2.npu.memory_summary import memory_summary as memory_summary

PoolId = tuple[int, int]

_pool_numbers = itertools.count(1)


def _get_allocator(device: Any = None) -> Any:
    """The allocator of a device. Everything below looks it up as npu._get_allocator, so that a test can replace it."""
    return _allocator.get_allocator(npu._device_index(device))


# ---- allocating ---------------------------------------------------------------------------------------------------------
def caching_allocator_alloc(size: int, device: Any = None, stream: Any = None) -> int:
    """Device memory, for code that is not made of tensors; give it back with caching_allocator_delete."""
    handle = getattr(stream, "npu_stream", stream)
    if handle is not None and not isinstance(handle, int):
        raise TypeError("Invalid type for stream argument, must be `torch.npu.Stream` or `int` representing a pointer "
                        f"to a existing stream, got {type(stream).__name__}")
    return npu._get_allocator(device).malloc(size, handle)


def caching_allocator_delete(mem_ptr: int) -> None:
    """Gives memory of caching_allocator_alloc back."""
    _allocator.owner_of(mem_ptr).free(mem_ptr)


def empty_cache() -> None:
    """Gives the cached memory of all devices back to them."""
    for allocator in _allocator.all_allocators():
        allocator.empty_cache()


def empty_virt_addr_cache() -> None:
    """Unmaps the free parts of expandable segments."""
    for allocator in _allocator.all_allocators():
        if allocator.expandable:
            allocator.empty_cache()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes of a device, counting all processes."""
    return npu._get_allocator(device)._mem_get_info()


def check_uce_in_memory(device_id: int) -> int:
    """Where memory lies that the hardware cannot correct: 0 nowhere, 1 not in tensors, 2 in what was cached, which is
    freed, 3 in memory that tensors use."""
    runtime.get_runtime(device_id)
    faults, allocator = capi.memory_faults(device_id), npu._get_allocator(device_id)

    def ours() -> bool:
        return any(segment["address"] < address + size and address < segment["address"] + segment["total_size"]
                   for segment in allocator.snapshot()["segments"] for address, size in faults)
    if not ours():
        return int(bool(faults))
    allocator.empty_cache()
    return 3 if ours() else 2


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Limits how much of a device's memory this process takes; beyond it torch.OutOfMemoryError is raised."""
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    npu._get_allocator(device).memory_fraction = fraction


def get_per_process_memory_fraction(device: Any = None) -> float:
    """The share of a device's memory that this process may take."""
    return npu._get_allocator(device).memory_fraction


# ---- statistics ---------------------------------------------------------------------------------------------------------
def memory_stats(device: Any = None) -> dict[str, int]:
    """The allocator's counters, such as "allocated_bytes.all.peak"."""
    return dict(sorted(npu._get_allocator(device).memory_stats().items()))


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in flat.items():
        *path, last = key.split(".")
        place = made
        for name in path:
            place = place.setdefault(name, {})
        place[last] = value
    return made


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    """memory_stats() with a dict for every part of the names."""
    return _nested(memory_stats(device))


def reset_peak_memory_stats(device: Any = None) -> None:
    """Starts the peaks again at what is in use."""
    npu._get_allocator(device).reset_peak_memory_stats()


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Sets the totals ("allocated", "freed") and the counts of events to 0."""
    npu._get_allocator(device).reset_accumulated_memory_stats()


def _counter(device: Any, key: str) -> int:
    return npu._get_allocator(device).memory_stats().get(key, 0)


def memory_allocated(device: Any = None) -> int:
    """Bytes in use by tensors, with the padding of every block."""
    return _counter(device, "allocated_bytes.all.current")


def max_memory_allocated(device: Any = None) -> int:
    """The peak of memory_allocated since the start or reset_peak_memory_stats."""
    return _counter(device, "allocated_bytes.all.peak")


def memory_reserved(device: Any = None) -> int:
    """Bytes taken from the device, in use or cached."""
    return _counter(device, "reserved_bytes.all.current")


def max_memory_reserved(device: Any = None) -> int:
    """The peak of memory_reserved since the start or reset_peak_memory_stats."""
    return _counter(device, "reserved_bytes.all.peak")


def _renamed(old: str, new: str) -> None:
    warnings.warn(f"torch.npu.{old} has been renamed to torch.npu.{new}", FutureWarning, stacklevel=3)


def memory_cached(device: Any = None) -> int:
    """memory_reserved, as it was once called."""
    _renamed("memory_cached", "memory_reserved")
    return memory_reserved(device)


def max_memory_cached(device: Any = None) -> int:
    """max_memory_reserved, as it was once called."""
    _renamed("max_memory_cached", "max_memory_reserved")
    return max_memory_reserved(device)


def _resets_all(old: str) -> None:
    warnings.warn(f"torch.npu.{old} now calls torch.npu.reset_peak_memory_stats, which resets all peak memory stats.",
                  FutureWarning, stacklevel=3)


def reset_max_memory_allocated(device: Any = None) -> None:
    """reset_peak_memory_stats, as it was once called."""
    _resets_all("reset_max_memory_allocated")
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: Any = None) -> None:
    """reset_peak_memory_stats, as it was once called."""
    _resets_all("reset_max_memory_cached")
    reset_peak_memory_stats(device)


# ---- pinned memory of the host ------------------------------------------------------------------------------------------
def pin_memory(tensor: Any, device: Any = None) -> Any:
    """A copy of a CPU tensor in page-locked memory; itself when it is pinned."""
    return tensor.pin_memory(device)


def is_pinned(tensor: Any, device: Any = None) -> bool:
    """Whether a tensor is in page-locked memory."""
    return tensor.is_pinned(device)


def host_memory_stats() -> dict[str, int]:
    """Counters of the allocator of pinned host memory."""
    return dict(sorted(_pinned.host.stats().items()))


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """host_memory_stats() with a dict for every part of the names."""
    return _nested(host_memory_stats())


def host_empty_cache() -> None:
    """Gives cached pinned memory back to the host."""
    _pinned.host.empty_cache()


def reset_peak_host_memory_stats() -> None:
    """Starts the peaks of pinned memory again at what is in use."""
    _pinned.host.reset_peak()


def reset_accumulated_host_memory_stats() -> None:
    """Sets the totals of pinned memory to 0."""
    _pinned.host.reset_accumulated()


# ---- snapshots and history ----------------------------------------------------------------------------------------------
def memory_snapshot(mempool_id: PoolId | None = None) -> dict[str, Any]:
    """The current device's segments and blocks under "segments" and, while history is recorded, the events under
    "device_traces": what PyTorch's memory visualiser opens."""
    allocator = npu._get_allocator()
    return allocator.snapshot() if mempool_id is None else allocator.snapshot(mempool_id)


def _snapshot(device: Any = None) -> dict[str, Any]:
    """The snapshots of all devices in one; the history of a device stands at its index in "device_traces"."""
    return _allocator.snapshot_of_all()


def _dump_snapshot(filename: str = "dump_snapshot.pickle") -> None:
    """Writes _snapshot() to a file for PyTorch's memory visualiser."""
    with open(filename, "wb") as file:
        pickle.dump(_snapshot(), file)


def _record_memory_history(enabled: str | bool | None = "all", context: str | None = "all", stacks: str = "all",
                           max_entries: int = sys.maxsize, device: Any = None, clear_history: bool = False,
                           skip_actions: list[str] | None = None) -> None:
    """Begins (or with None ends) to record who allocates: "state" for live memory, "all" for past events too. Stacks
    are those of Python."""
    if isinstance(enabled, bool):                 # the older form
        enabled, context = ("all", "all") if enabled else (None, None)
    for name, value, known in (("enabled", enabled, ("state", "all")), ("context", context, ("state", "alloc", "all"))):
        if value is not None and value not in known:
            raise RuntimeError(f"expected {name} to be one of {', '.join(map(repr, known))}, or None, got {value!r}")
    if stacks not in ("python", "all"):
        raise RuntimeError(f"expected stacks to be 'python', or 'all', got {stacks!r}")
    _allocator.record_history(enabled, context, max_entries, clear_history, frozenset(skip_actions or ()))


def _set_allocator_settings(env: str) -> None:
    """Changes the settings of PYTORCH_NPU_ALLOC_CONF for what is allocated from now on."""
    _allocator.change_settings(env)


# ---- pools and allocators of one's own ----------------------------------------------------------------------------------
def get_allocator_backend() -> str:
    """"native" for the caching allocator, "pluggable" for one of the user's."""
    return "native" if _allocator.current_source() is None else "pluggable"


class _NPUAllocator:
    """Holds an allocator that pools and change_current_allocator take."""

    def __init__(self, allocator: PluggableAllocator | None) -> None:
        self._allocator = allocator

    def allocator(self) -> PluggableAllocator | None:
        return self._allocator


class NPUPluggableAllocator(_NPUAllocator):
    """An allocator in a shared library: void* alloc_fn(ssize_t size, int device, aclrtStream stream) and
    void free_fn(void* ptr, ssize_t size, int device, aclrtStream stream)."""

    def __init__(self, path_to_so_file: str, alloc_fn_name: str, free_fn_name: str) -> None:
        super().__init__(PluggableAllocator(path_to_so_file, alloc_fn_name, free_fn_name))


def change_current_allocator(allocator: _NPUAllocator) -> None:
    """Takes all device memory from a user's allocator; only before anything was allocated."""
    source = allocator.allocator()
    if source is None:
        raise TypeError("change_current_allocator expects an NPUPluggableAllocator")
    _allocator.change_source(source)


def _get_current_allocator() -> _NPUAllocator:
    """The user's allocator in use, if any."""
    return _NPUAllocator(_allocator.current_source())


def _new_pool_id(captured: bool = False) -> PoolId:
    """A number for a pool; those of captured graphs and of users differ as in torch."""
    number = next(_pool_numbers)
    return (number, 0) if captured else (0, number)


class MemPool:
    """Memory apart from the rest, for what is allocated inside use_mem_pool."""

    def __init__(self, allocator: PluggableAllocator | None = None, use_on_oom: bool = False,
                 no_split: bool = False) -> None:
        self.allocator = allocator
        self._id = _new_pool_id()
        self._home = npu._get_allocator()
        self._home.create_pool(self._id, allocator, use_on_oom, no_split)

    def __del__(self) -> None:
        if hasattr(self, "_home") and not runtime.is_forked():   # then the memory is the parent's
            self._home.release_pool(self._id)
            self._home.empty_cache(self._id)

    @property
    def id(self) -> PoolId:
        """Two numbers."""
        return self._id

    def use_count(self) -> int:
        """How many users the pool has: this object, blocks inside use_mem_pool, graphs."""
        return self._home.pool_use_count(self._id)

    def snapshot(self) -> list[dict[str, Any]]:
        """The segments of the pool."""
        return self._home.snapshot(self._id)["segments"]


@contextlib.contextmanager
def use_mem_pool(pool: MemPool, device: Any = None) -> Iterator[None]:
    """A with block in which the calling thread allocates from a pool."""
    allocator = npu._get_allocator(device)
    allocator.begin_allocate_to_pool(pool.id)
    try:
        yield
    finally:
        allocator.end_allocate_to_pool(pool.id)
        allocator.release_pool(pool.id)
