"""while_loop: a function again and again, as long as another one of the same tensors says so."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Any) -> Any:
    """carried_inputs = body_fn(*carried_inputs) while cond_fn(*carried_inputs); the last of them."""
    if not callable(cond_fn) or not callable(body_fn):
        raise RuntimeError("Expect cond_fn and body_fn to be callable.")
    if not isinstance(carried_inputs, (tuple, list)):
        raise RuntimeError(f"Expect carried_inputs to be a tuple of possibly nested dict/list/tuple that only consists of tensor "
                           f"or int leaves, but got {carried_inputs}.")
    carried = carried_inputs
    while (goes_on := cond_fn(*carried)):
        if isinstance(goes_on, torch.Tensor) and (goes_on.dtype is not torch.bool or goes_on.numel() != 1):
            raise RuntimeError(f"cond_fn must return a boolean scalar tensor or a boolean but got {goes_on}")
        found = body_fn(*carried)
        if not isinstance(found, (tuple, list)) or len(found) != len(carried):
            raise AssertionError("body_fn should return the same number of elements as carried_inputs")
        carried = found
    return carried

torch._named.complete(__name__)
