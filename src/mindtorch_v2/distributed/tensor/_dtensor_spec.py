"""torch.distributed.tensor._dtensor_spec: the module in which torch has DTensorSpec; names only."""
from __future__ import annotations

from mindtorch_v2.distributed.tensor.placement_types import DTensorSpec, TensorMeta

__all__ = ["DTensorSpec", "TensorMeta"]
