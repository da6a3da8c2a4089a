"""torch.mps without Apple's GPUs: no device is found."""
from __future__ import annotations

from typing import Any

from mindtorch_v2 import _facade

_none = _facade.no_devices("MPS")
is_available, device_count, manual_seed, empty_cache = (
    _none[name] for name in ("is_available", "device_count", "manual_seed", "empty_cache"))
current_allocated_memory = driver_allocated_memory = recommended_max_memory = device_count
_refused: dict[str, Any] = _facade.refusals("synchronize get_rng_state set_rng_state set_per_process_memory_fraction",
                                            "there is no Apple GPU: the devices are cpu and npu", "torch.mps.", RuntimeError)
globals().update(_refused)

__path__: list[str] = []       # modules that torch has below it are found by name
