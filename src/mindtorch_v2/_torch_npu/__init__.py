"""torch_npu: the module that programs for Ascend import beside torch. The devices are torch.npu's; nothing needs loading."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch

npu = torch.npu
__version__ = torch.version.__version__
_OPERATORS = ("npu_", "_npu_")


def __getattr__(name: str) -> Any:
    if name.startswith(_OPERATORS):
        raise AttributeError(f"[torch_npu.{name}] this operator of torch_npu is not offered; use the one of torch")
    raise AttributeError(f"module {__name__!r} has no attribute '{name}'")
