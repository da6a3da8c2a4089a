"""torch.distributed._tensor.experimental: an older name of torch.distributed.tensor.experimental; names only."""
from __future__ import annotations

from mindtorch_v2.distributed.tensor.experimental import (
    context_parallel,
    implicit_replication,
    local_map,
    register_sharding,
)

__all__ = ["context_parallel", "implicit_replication", "local_map", "register_sharding"]
