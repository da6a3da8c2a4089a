"""torch.cuda.comm: the copies between devices of torch.nn.parallel.comm, by their older place."""
from __future__ import annotations

from mindtorch_v2 import _deferred

_deferred.defer(__name__, dict.fromkeys(("broadcast", "broadcast_coalesced", "gather", "reduce_add", "scatter"),
                                        "nn.parallel.comm"))
