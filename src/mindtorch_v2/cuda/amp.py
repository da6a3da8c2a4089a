"""torch.cuda.amp: torch.amp's names for CUDA; as in torch without CUDA, they warn and do nothing."""
from __future__ import annotations

import functools
from typing import Any

from mindtorch_v2 import _C, _facade
from mindtorch_v2.amp import autocast_mode as _mode
from mindtorch_v2.amp import grad_scaler as _scaler


class autocast(_mode.autocast):
    """torch.autocast("cuda", …)."""

    def __init__(self, enabled: bool = True, dtype: Any = _C._dtype_named("float16"), cache_enabled: bool = True) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(_scaler.GradScaler):
    """torch.amp.GradScaler("cuda", …)."""

    def __init__(self, init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
                 growth_interval: int = 2000, enabled: bool = True) -> None:
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


custom_fwd = functools.partial(_mode.custom_fwd, device_type="cuda")
custom_bwd = functools.partial(_mode.custom_bwd, device_type="cuda")


def amp_definitely_not_available() -> bool:
    """True: there is no CUDA here."""
    return True


_facade.module(__name__, "common", "Whether CUDA's mixed precision is there.",
               amp_definitely_not_available=amp_definitely_not_available)
_facade.module(__name__, "autocast_mode", "autocast for CUDA.", autocast=autocast, custom_fwd=custom_fwd, custom_bwd=custom_bwd)
_facade.module(__name__, "grad_scaler", "GradScaler for CUDA.", GradScaler=GradScaler, OptState=_scaler.OptState)
