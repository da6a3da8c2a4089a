"""Small questions about dispatch modes."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch

no_dispatch = torch.utils._python_dispatch._disable_current_modes


def all_same_mode(modes: Any) -> bool:
    """Whether all of them are one mode."""
    return all(mode == modes[0] for mode in modes)
