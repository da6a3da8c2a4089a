"""torch.npu: Ascend NPUs, with torch_npu's names. This file only re-exports; importing it loads no CANN."""
from __future__ import annotations

from typing import Any

from mindtorch_v2 import _C, _deferred
from mindtorch_v2._backends.npu import hccl as _hccl
from mindtorch_v2._backends.npu import ipc as _ipc
from mindtorch_v2._legacy import npu_storage_types, npu_tensor_types
from mindtorch_v2.npu import amp, graphs, memory, npu_config, random, streams, utils
from mindtorch_v2.npu.amp import (
    get_amp_supported_dtype,
    get_autocast_dtype,
    is_autocast_enabled,
    set_autocast_dtype,
    set_autocast_enabled,
)
from mindtorch_v2.npu.devices import (
    _device_index,
    _get_device_capability,
    _get_device_name,
    can_device_access_peer,
    current_blas_handle,
    current_device,
    device,
    device_count,
    device_of,
    disable_peer_access,
    enable_peer_access,
    get_device_capability,
    get_device_limit,
    get_device_name,
    get_device_properties,
    init,
    is_available,
    is_bf16_supported,
    is_initialized,
    npurt,
    restart_device,
    set_device,
    set_device_limit,
    set_op_timeout_ms,
    stop_device,
    synchronize,
    utilization,
)
from mindtorch_v2.npu.graphed_callables import make_graphed_callables
from mindtorch_v2.npu.graphs import (
    NPUGraph,
    graph,
    graph_pool_handle,
    graph_task_group_begin,
    graph_task_group_end,
    graph_task_update_begin,
    graph_task_update_end,
    is_current_stream_capturing,
)
from mindtorch_v2.npu.memory import (
    MemPool,
    NPUPluggableAllocator,
    _dump_snapshot,
    _get_allocator,
    _record_memory_history,
    _set_allocator_settings,
    _snapshot,
    caching_allocator_alloc,
    caching_allocator_delete,
    change_current_allocator,
    check_uce_in_memory,
    empty_cache,
    empty_virt_addr_cache,
    get_allocator_backend,
    get_per_process_memory_fraction,
    host_empty_cache,
    host_memory_stats,
    host_memory_stats_as_nested_dict,
    is_pinned,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    pin_memory,
    reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_host_memory_stats,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
    use_mem_pool,
)
from mindtorch_v2.npu.memory_summary import memory_summary
from mindtorch_v2.npu.random import (
    get_default_generator,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from mindtorch_v2.npu.settings import (
    clear_npu_overflow_flag,
    config,
    conv,
    finalize_dump,
    get_mm_bmm_format_nd,
    get_npu_overflow_flag,
    get_soc_version,
    get_sync_debug_mode,
    get_task_queue_enable,
    init_dump,
    ipc_collect,
    is_jit_compile_false,
    matmul,
    set_compile_mode,
    set_dump,
    set_mm_bmm_format_nd,
    set_option,
    set_sync_debug_mode,
    set_task_queue_enable,
)
from mindtorch_v2.npu.streams import (
    Event,
    ExternalEvent,
    ExternalStream,
    Stream,
    StreamContext,
    SyncLaunchStream,
    current_stream,
    default_stream,
    get_stream_limit,
    reset_stream_limit,
    set_stream,
    set_stream_limit,
    stream,
    stream_priority_range,
)

graphs.make_graphed_callables = make_graphed_callables   # type: ignore[attr-defined]  # where torch_npu has it too
globals().update(npu_tensor_types | npu_storage_types)
_deferred.defer(__name__, {"explain": "_commands.explaining", "report": "npu.report"})   # report reads all rows of torch.ops.npu
_C._backend("npu")     # torch.npu needs the backend as much as a tensor on the npu does


def __getattr__(name: str) -> Any:
    if name == "default_generators":
        return random._default_generators()
    raise AttributeError(f"module {__name__!r} has no attribute '{name}'")
