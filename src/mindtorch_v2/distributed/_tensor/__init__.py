"""torch.distributed._tensor: an older name of torch.distributed.tensor; names only."""
from __future__ import annotations

from mindtorch_v2.distributed.tensor import (
    DeviceMesh,
    DTensor,
    Partial,
    Placement,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
    empty,
    experimental,
    full,
    init_device_mesh,
    ones,
    rand,
    randn,
    zeros,
)

__all__ = ["DTensor", "DeviceMesh", "Partial", "Placement", "Replicate", "Shard", "distribute_module", "distribute_tensor",
           "empty", "experimental", "full", "init_device_mesh", "ones", "rand", "randn", "zeros"]
