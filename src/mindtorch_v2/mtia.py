"""torch.mtia without such accelerators: no device is found."""
from typing import Any


def is_available() -> bool:
    """False."""
    return False


is_initialized = is_bf16_supported = is_current_stream_capturing = is_available


def device_count() -> int:
    """0."""
    return 0


def manual_seed_all(seed: int) -> None:
    """Nothing to seed."""


manual_seed = manual_seed_all


def empty_cache() -> None:
    """Nothing is cached."""


def synchronize(device: Any = None) -> None:
    """Refuses: there is no such device."""
    raise AssertionError("Torch not compiled with MTIA enabled: the devices are cpu and npu")


current_device = current_stream = set_device = synchronize
