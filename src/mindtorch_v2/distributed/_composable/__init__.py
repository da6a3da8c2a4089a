"""torch.distributed._composable: older names of what composes with modules; names only."""
from __future__ import annotations

from mindtorch_v2.distributed._composable import fsdp
from mindtorch_v2.distributed.fsdp import fully_shard

__all__ = ["fsdp", "fully_shard"]
