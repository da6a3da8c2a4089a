"""torch.distributed.algorithms: loops with uneven inputs, and hooks for the reduction of gradients."""
from __future__ import annotations

from mindtorch_v2.distributed import _names
from mindtorch_v2.distributed.algorithms import ddp_comm_hooks, join

_names.add_to(__name__)
