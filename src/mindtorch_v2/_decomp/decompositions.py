"""torch._decomp.decompositions: the op of a name, which runs its own body."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch


def __getattr__(name: str) -> Any:
    found = getattr(torch.ops.aten, name, None)
    if found is None or name.startswith("__"):
        raise AttributeError(f"module 'torch._decomp.decompositions' has no attribute {name!r}")
    return found
