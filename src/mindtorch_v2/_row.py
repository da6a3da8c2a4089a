"""What a row says of an npu: its calls of CANN, as data that the op table writes and the npu backend reads."""
from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

_NONE: Mapping[str, str] = MappingProxyType({})


class Npu(NamedTuple):
    """The calls that a row becomes, each as `aclnnAdd(self, other, alpha, out)`: CANN's arguments in their order, in the
    row's words; `_backends/npu/aclnn.py` (plan) says which words there are. A row with one call gives its text alone.

    CANN's in-place form (aclnnInplaceAdd) and the form of a random op that a captured graph replays
    (aclnnInplaceUniformTensor) follow from the call; Python bodies stand in the BODIES of `_backends/npu/ops*.py`."""
    call: str
    number: Mapping[str, str] = _NONE        # parameter -> the call where a number stands for that tensor
    without_optional: str | None = None      # the call where the optional tensor that the first one needs is None
    any_dtype: bool = False                  # of lists: takes integers too, for it only moves items; others may promote
