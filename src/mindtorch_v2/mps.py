"""torch.mps without Apple's GPUs: no device is found."""
from __future__ import annotations

from typing import Any

from mindtorch_v2 import _facade


def is_available() -> bool:
    """False."""
    return False


def device_count() -> int:
    """0."""
    return 0


def manual_seed(seed: int) -> None:
    """Nothing to seed."""


def empty_cache() -> None:
    """Nothing is cached."""


def current_allocated_memory() -> int:
    """0."""
    return 0


driver_allocated_memory = recommended_max_memory = current_allocated_memory
_refused: dict[str, Any] = _facade.refusals("synchronize get_rng_state set_rng_state set_per_process_memory_fraction",
                                            "there is no Apple GPU: the devices are cpu and npu", "torch.mps.", RuntimeError)
globals().update(_refused)
