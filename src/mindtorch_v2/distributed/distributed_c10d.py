"""torch.distributed.distributed_c10d: the module in which torch has the functions of torch.distributed; names only."""
from __future__ import annotations

from mindtorch_v2.distributed._collectives import *  # noqa: F403
from mindtorch_v2.distributed._objects import *  # noqa: F403
from mindtorch_v2.distributed._work import ReduceOp
from mindtorch_v2.distributed._world import *  # noqa: F403

reduce_op = ReduceOp
