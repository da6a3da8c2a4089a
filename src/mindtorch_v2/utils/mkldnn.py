"""torch.utils.mkldnn, which is not here: there is no layout of oneDNN's."""
from __future__ import annotations

import mindtorch_v2 as torch

to_mkldnn = torch._facade.refusal("torch.utils.mkldnn.to_mkldnn", "oneDNN's layout is not offered; modules run as they are")

torch._named.complete(__name__)
