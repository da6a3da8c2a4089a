"""Ops that PyTorch's vmap has no batching rule for, by its names: it runs them sample by sample, or refuses where that is off."""
from __future__ import annotations

import functools
from importlib.resources import files
from typing import Any

from mindtorch_v2._ops.overloads import overload_of_call


@functools.cache
def _names() -> frozenset[str]:
    """Names as they stand in without_rule.txt: `isclose`, `le_.Tensor`."""
    return frozenset((files(__package__) / "without_rule.txt").read_text().split())


def refusal(op: Any, row: Any, slots: tuple) -> RuntimeError | None:
    """The error for such an op where the fallback is off, whether or not there is a rule for it here; None: for another."""
    overload = overload_of_call(op.name, row.names, slots[:row.npositional], {}) or row.overload_name
    name = f"{op.name}.{overload}" if overload and overload != "default" else op.name
    return RuntimeError(f"aten::{name} hit the vmap fallback which is currently disabled") if name in _names() else None
