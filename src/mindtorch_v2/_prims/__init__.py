"""torch._prims: the primitives of PyTorch's compiler, which are not here. `utils` is torch._prims_common."""
from __future__ import annotations

import contextlib
from typing import Any

import mindtorch_v2 as torch

_facade = torch._facade
utils = torch._prims_common

_WHY = "the primitives of PyTorch's compiler are not offered"
__getattr__ = _facade.refuse_all("torch._prims", _WHY)
context: Any = _facade.module(__name__, "context", "Modes that swap ops for references.",
                         TorchRefsMode=_facade.absent("torch._prims.context.TorchRefsMode", _WHY,
                                                      contextlib.AbstractContextManager))
