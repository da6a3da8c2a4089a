"""torch.distributed.optim: optimizers whose state is divided over processes."""
from __future__ import annotations

from mindtorch_v2.distributed import _names
from mindtorch_v2.distributed.optim.zero_redundancy_optimizer import ZeroRedundancyOptimizer

as_functional_optim = _names.refusal("optim.as_functional_optim")
DistributedOptimizer = _names.absent("optim.DistributedOptimizer")
PostLocalSGDOptimizer = _names.absent("optim.PostLocalSGDOptimizer")
_names.add_to(__name__)
