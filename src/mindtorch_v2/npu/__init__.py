"""torch.npu: Ascend NPUs, with torch_npu's names. This file only re-exports; importing it loads no CANN."""
from __future__ import annotations

from typing import Any

from mindtorch_v2.npu import random, streams
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


def __getattr__(name: str) -> Any:
    if name == "default_generators":
        return random._default_generators()
    raise AttributeError(f"module 'mindtorch_v2.npu' has no attribute '{name}'")
