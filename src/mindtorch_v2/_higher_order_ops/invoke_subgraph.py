"""torch._higher_order_ops.invoke_subgraph: functions whose graph would be captured once for all their calls."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch


def mark_compile_region(fn: Any = None, options: Any = None) -> Any:
    """The function itself: nothing is captured."""
    return fn if fn is not None else (lambda function: function)


torch._named.complete(__name__)
