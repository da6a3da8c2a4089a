"""torch.cuda.memory without CUDA: what is counted is zero or empty, and what would change an allocator refuses."""
from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator
from typing import Any

from mindtorch_v2 import _facade, cuda
from mindtorch_v2.cuda import caching_allocator_alloc as caching_allocator_alloc
from mindtorch_v2.cuda import caching_allocator_delete as caching_allocator_delete
from mindtorch_v2.cuda import empty_cache as empty_cache
from mindtorch_v2.cuda import list_gpu_processes as list_gpu_processes
from mindtorch_v2.cuda import max_memory_allocated as max_memory_allocated
from mindtorch_v2.cuda import max_memory_cached as max_memory_cached
from mindtorch_v2.cuda import max_memory_reserved as max_memory_reserved
from mindtorch_v2.cuda import mem_get_info as mem_get_info
from mindtorch_v2.cuda import memory_allocated as memory_allocated
from mindtorch_v2.cuda import memory_cached as memory_cached
from mindtorch_v2.cuda import memory_reserved as memory_reserved
from mindtorch_v2.cuda import memory_snapshot as memory_snapshot
from mindtorch_v2.cuda import memory_stats as memory_stats
from mindtorch_v2.cuda import memory_summary as memory_summary
from mindtorch_v2.cuda import reset_accumulated_memory_stats as reset_accumulated_memory_stats
from mindtorch_v2.cuda import reset_max_memory_allocated as reset_max_memory_allocated
from mindtorch_v2.cuda import reset_max_memory_cached as reset_max_memory_cached
from mindtorch_v2.cuda import reset_peak_memory_stats as reset_peak_memory_stats
from mindtorch_v2.cuda import set_per_process_memory_fraction as set_per_process_memory_fraction


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    """Empty."""
    return {}


def host_memory_stats() -> dict[str, Any]:
    """Empty."""
    return collections.OrderedDict()


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """Empty."""
    return {}


def caching_allocator_enable(value: bool = True) -> None:
    """Nothing is cached, whatever the value."""


@contextlib.contextmanager
def caching_allocator_disabled() -> Iterator[None]:
    """A with block without the cache, which is not there anyway."""
    yield


for _name in ("get_per_process_memory_fraction", "reset_accumulated_host_memory_stats", "reset_peak_host_memory_stats",
              "get_allocator_backend", "change_current_allocator", "use_mem_pool", "_record_memory_history", "_snapshot",
              "_dump_snapshot", "_save_segment_usage", "_save_memory_usage", "_set_allocator_settings", "_host_allocator",
              "_get_current_allocator"):
    globals()[_name] = cuda._refusal(_name)
for _name in ("MemPool", "CUDAPluggableAllocator", "_CUDAAllocator"):
    globals()[_name] = _facade.absent(f"{__name__}.{_name}", cuda._NO_CUDA, error=AssertionError)
