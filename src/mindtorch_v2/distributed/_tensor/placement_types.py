"""torch.distributed._tensor.placement_types: an older name of where placements are; names only."""
from __future__ import annotations

from mindtorch_v2.distributed.tensor.placement_types import (
    DTensorSpec,
    Partial,
    Placement,
    Replicate,
    Shard,
    TensorMeta,
)

__all__ = ["DTensorSpec", "Partial", "Placement", "Replicate", "Shard", "TensorMeta"]
