"""torch._export.wrappers: marks on classes of tensors for torch.export."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch


def mark_subclass_constructor_exportable_experimental(constructor_subclass: Callable[..., Any]) -> Callable[..., Any]:
    """The __init__ of a class of tensors; torch.export records what it makes op by op, so the mark changes nothing."""
    if constructor_subclass.__name__ != "__init__":
        raise RuntimeError(f"torch._export.wrappers.mark_constructor_exportable_experimental can only be applied on subclass "
                           f"tensor.__init__. But, you are adding it on {constructor_subclass.__name__} which is not supported. "
                           f"If __init__ doesn't exist on your subclass, please add it. Look at DTensor.__init__ "
                           f"implementation for example")

    @functools.wraps(constructor_subclass)
    def marked(*args: Any, **kwargs: Any) -> None:
        constructor_subclass(*args, **kwargs)
    return marked

torch._named.complete(__name__)
