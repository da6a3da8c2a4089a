"""ShardedGradScaler: a GradScaler whose ranks agree on whether a gradient was infinite."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed._collectives import all_reduce
from mindtorch_v2.distributed._work import ReduceOp

__all__ = ["ShardedGradScaler"]


class ShardedGradScaler(torch.amp.GradScaler):
    """Every rank sees parts of gradients: all skip a step that one has to skip."""

    def __init__(self, device: str = "npu", init_scale: float = 2.0**16, backoff_factor: float = 0.5, growth_factor: float = 2.0,
                 growth_interval: int = 2000, enabled: bool = True, process_group: Any = None) -> None:
        super().__init__(device, init_scale=init_scale, backoff_factor=backoff_factor, growth_factor=growth_factor,
                         growth_interval=growth_interval, enabled=enabled)
        self.process_group = process_group

    def _found_infs(self, optimizer: Any) -> Any:
        return self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]

    def unscale_(self, optimizer: Any) -> None:
        """GradScaler.unscale_, and what it found of all ranks."""
        super().unscale_(optimizer)
        if self._enabled:
            for found in self._found_infs(optimizer).values():
                all_reduce(found, ReduceOp.MAX, self.process_group)
