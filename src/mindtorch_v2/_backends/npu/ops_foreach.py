"""Which aclnn op takes lists of tensors, and of which dtypes. The lists are looked at in `_C/list_launch.pxi`."""
from __future__ import annotations

from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._backends.npu import aclnn
from mindtorch_v2._backends.npu.ops import is_here
from mindtorch_v2._row import Npu
from mindtorch_v2._schema import parse

_LISTS = ("tensors", "outs", "inouts")
# Where torch's op may make floats of integers, CANN's does not.
_FLOATS = frozenset({"float16", "bfloat16", "float32"})


def resolve(schema: str, forms: Npu) -> tuple[Any, int] | None:
    """The plan of a row over lists and the dtypes of its lists as bits; None: not with this CANN, or on this card."""
    if not is_here(forms):
        return None
    name = aclnn.read_mapping(forms.call)[0]
    taken = frozenset.intersection(*(aclnn.dtypes_of(a) for a in aclnn.signature(name) if a.kind in _LISTS)) or _FLOATS
    if not forms.any_dtype:
        taken &= _FLOATS
    bits = sum(1 << _C._dtype_named(dtype)._id for dtype in taken)
    return aclnn.plan(forms, parse(schema)), bits

