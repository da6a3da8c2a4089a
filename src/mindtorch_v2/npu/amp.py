"""torch.npu.amp: torch.amp's names with the device type filled in, and torch.npu's functions about autocast's state."""
from __future__ import annotations

import functools
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2.amp import autocast_mode as _mode
from mindtorch_v2.amp import grad_scaler as _scaler
from mindtorch_v2.npu.devices import is_bf16_supported


class autocast(_mode.autocast):
    """torch.autocast("npu", …)."""

    def __init__(self, enabled: bool = True, dtype: Any = _C._dtype_named("float16"),
                 cache_enabled: bool = True) -> None:
        super().__init__("npu", dtype, enabled, cache_enabled)


class GradScaler(_scaler.GradScaler):
    """torch.amp.GradScaler("npu", …); without dynamic the scale stays as it is, but bad steps are still left out."""

    def __init__(self, init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
                 growth_interval: int = 2000, dynamic: bool = True, enabled: bool = True) -> None:
        super().__init__("npu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
        self._dynamic = dynamic

    def _grow_or_back_off(self, bad: Any) -> None:
        if self._dynamic:
            super()._grow_or_back_off(bad)


custom_fwd = functools.partial(_mode.custom_fwd, device_type="npu")
custom_bwd = functools.partial(_mode.custom_bwd, device_type="npu")


def get_amp_supported_dtype() -> list[Any]:
    """The dtypes that autocast computes in on the current device."""
    names = ("float16", "bfloat16") if is_bf16_supported() else ("float16",)
    return [_C._dtype_named(name) for name in names]


def is_autocast_enabled() -> bool:
    """Whether autocast is on for npus."""
    return _mode.is_autocast_enabled("npu")


def set_autocast_enabled(enable: bool) -> None:
    """Switches autocast for npus."""
    _mode.set_autocast_enabled("npu", enable)


def get_autocast_dtype() -> Any:
    """The dtype that autocast computes in on npus."""
    return _mode.get_autocast_dtype("npu")


def set_autocast_dtype(dtype: Any) -> None:
    """Sets the dtype that autocast computes in on npus."""
    _mode.set_autocast_dtype("npu", dtype)
