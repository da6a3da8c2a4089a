"""torch.nn.utils._per_sample_grad, which is not here: see _expanded_weights."""
from __future__ import annotations

import mindtorch_v2 as torch

_WHY = "gradients of each sample are not offered in this form; use torch.func.vmap(torch.func.grad(...))"
call_for_per_sample_grads = torch._facade.refusal("torch.nn.utils._per_sample_grad.call_for_per_sample_grads", _WHY)
