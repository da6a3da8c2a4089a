"""torch.distributed.optim: optimizers whose state is divided over processes."""
from __future__ import annotations

from mindtorch_v2.distributed.optim.zero_redundancy_optimizer import ZeroRedundancyOptimizer
