"""torch._functorch.partitioners, which is not here: nothing splits a joint graph of forward and backward."""
from __future__ import annotations

import mindtorch_v2 as torch

globals().update(torch._facade.refusals(
    "default_partition draw_graph min_cut_rematerialization_partition draw_joint_graph",
    "no joint graph of forward and backward is made, so none is split", "torch._functorch.partitioners."))
