"""torch._custom_ops: the older names of what torch.library does."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch

__all__ = ["impl", "impl_abstract"]


def impl(qualname: str, *, device_types: Any = ("cpu", "npu"), func: Callable[..., Any] | None = None) -> Any:
    """Registers how an op computes on devices; a decorator."""
    return torch.library.impl(qualname, device_types, func)


def impl_abstract(qualname: str, *, func: Callable[..., Any] | None = None) -> Any:
    """Registers how an op computes shapes; a decorator."""
    return torch.library.register_fake(qualname, func)
