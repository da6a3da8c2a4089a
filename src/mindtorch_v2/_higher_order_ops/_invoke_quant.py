"""torch._higher_order_ops._invoke_quant: functions whose intermediate results a compiler may keep in fewer bits."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mindtorch_v2 as torch


@dataclass(frozen=True)
class InvokeQuant:
    """How a compiler may round; run as it is, a function rounds as its ops do."""

    codegen_low_precision: bool = True

    def __call__(self, fn: Callable[..., Any], *args: Any, scheme: str | None = None, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)


torch._named.complete(__name__)
