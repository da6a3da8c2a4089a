"""torch._functorch.fx_minifier, which is not here: no compiler's faults are made small."""
from __future__ import annotations

import mindtorch_v2 as torch

minifier = torch._facade.refusal("torch._functorch.fx_minifier.minifier", "there is no compiler whose faults it would find")
