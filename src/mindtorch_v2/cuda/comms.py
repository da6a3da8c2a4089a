"""torch.cuda.comms without CUDA: nothing is sent between its devices."""
from __future__ import annotations

from mindtorch_v2 import _facade

globals().update(_facade.refusals("broadcast broadcast_coalesced gather reduce_add reduce_add_coalesced scatter",
                                  "there are no CUDA devices: the devices are cpu and npu", "torch.cuda.comms.", RuntimeError))
