"""torch.distributed.tensor.parallel: modules divided over a mesh by a plan of styles."""
from __future__ import annotations

from mindtorch_v2.distributed import _names
from mindtorch_v2.distributed.tensor.parallel import api, loss, style
from mindtorch_v2.distributed.tensor.parallel.api import parallelize_module
from mindtorch_v2.distributed.tensor.parallel.loss import loss_parallel
from mindtorch_v2.distributed.tensor.parallel.style import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
)

__all__ = ["ColwiseParallel", "ParallelStyle", "PrepareModuleInput", "PrepareModuleInputOutput", "PrepareModuleOutput",
           "RowwiseParallel", "SequenceParallel", "loss_parallel", "parallelize_module"]

_names.add_to(__name__)
