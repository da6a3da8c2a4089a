"""torch.distributed.nn: collectives that gradients pass through."""
from __future__ import annotations

from mindtorch_v2.distributed import _names
from mindtorch_v2.distributed.nn import functional
from mindtorch_v2.distributed.nn.functional import (
    all_gather,
    all_reduce,
    all_to_all,
    all_to_all_single,
    broadcast,
    gather,
    reduce,
    reduce_scatter,
    scatter,
)

_names.add_to(__name__)
