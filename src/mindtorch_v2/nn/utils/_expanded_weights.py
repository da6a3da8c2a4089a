"""torch.nn.utils._expanded_weights, which is not here: gradients of each sample come from torch.func.vmap of torch.func.grad."""
from __future__ import annotations

import mindtorch_v2 as torch

_WHY = "gradients of each sample are not offered in this form; use torch.func.vmap(torch.func.grad(...))"
ExpandedWeight = torch._facade.absent("torch.nn.utils._expanded_weights.ExpandedWeight", _WHY, torch.Tensor)

__path__: list[str] = []       # modules that torch has below it are found by name
