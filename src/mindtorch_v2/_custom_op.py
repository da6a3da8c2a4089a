"""torch._custom_op: the oldest names of what torch.library does."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch

impl: Any = torch._facade.module(__name__, "impl", "Where get_ctx was.", get_ctx=torch.library.get_ctx)

__path__: list[str] = []       # modules that torch has below it are found by name
torch._named.complete(impl.__name__)
