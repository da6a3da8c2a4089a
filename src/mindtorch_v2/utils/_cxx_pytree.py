"""torch.utils._cxx_pytree: trees by the names of PyTorch's C++ half; they are those of torch.utils._pytree."""
from __future__ import annotations

import mindtorch_v2 as torch

PyTreeSpec = TreeSpec = torch.utils._pytree.TreeSpec
globals().update({name: getattr(torch.utils._pytree, name) for name in dir(torch.utils._pytree)
                  if name.startswith(("tree_", "register_"))})
