"""torch.utils.swap_tensors: exchanges two tensors in place, for every reference to them."""
from __future__ import annotations

import weakref
from typing import Any

import mindtorch_v2 as torch


def swap_tensors(t1: Any, t2: Any) -> None:
    """Exchanges two tensors: classes, attributes, data and history."""
    for name, t in (("t1", t1), ("t2", t2)):
        if weakref.getweakrefs(t):
            raise RuntimeError(f"Cannot swap {name} because it has weakref associated with it")
    first, second = dict(vars(t1)), dict(vars(t2))
    if type(t1) is not type(t2):
        t1.__class__, t2.__class__ = type(t2), type(t1)
    for t, own in ((t1, second), (t2, first)):
        vars(t).clear()
        vars(t).update(own)
    torch._C._core._swap_tensor_impl(t1, t2)
