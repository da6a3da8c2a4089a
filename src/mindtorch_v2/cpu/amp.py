"""torch.cpu.amp: torch.amp's names for the CPU."""
from __future__ import annotations

from typing import Any

from mindtorch_v2 import _C, _facade
from mindtorch_v2.amp import autocast_mode as _mode
from mindtorch_v2.amp import grad_scaler as _scaler


class autocast(_mode.autocast):
    """torch.autocast("cpu", …)."""

    def __init__(self, enabled: bool = True, dtype: Any = _C._dtype_named("bfloat16"), cache_enabled: bool = True) -> None:
        super().__init__("cpu", dtype, enabled, cache_enabled)


class GradScaler(_scaler.GradScaler):
    """torch.amp.GradScaler("cpu", …)."""

    def __init__(self, init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
                 growth_interval: int = 2000, enabled: bool = True) -> None:
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


_facade.module(__name__, "autocast_mode", "autocast for the CPU.", autocast=autocast)
_facade.module(__name__, "grad_scaler", "GradScaler for the CPU.", GradScaler=GradScaler)
