"""torch.distributed._tensor.api: an older name of where DTensor is; names only."""
from __future__ import annotations

from mindtorch_v2.distributed.tensor import DTensor, distribute_module, distribute_tensor

__all__ = ["DTensor", "distribute_module", "distribute_tensor"]
