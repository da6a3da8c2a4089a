"""Which aclnn op takes lists of tensors, and of which dtypes. The lists are looked at in `_C/foreach.pxi`."""
from __future__ import annotations

from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._backends.npu import aclnn, soc
from mindtorch_v2._row import Npu
from mindtorch_v2._schema import parse

_LISTS = ("tensors", "outs", "inouts")
# Integers may become floats in torch's ops; these change no dtype.
_FLOATS = frozenset({"float16", "bfloat16", "float32"})
_ANY_DTYPE = ("aclnnForeachCopy", "aclnnForeachZeroInplace")


def resolve(schema: str, mapping: str) -> tuple[Any, int] | None:
    """The plan of a row over lists and the dtypes of its lists as bits; None: not with this CANN, or on this card."""
    name = aclnn.read_mapping(mapping)[0]
    if not soc.has_cube_and_vector_cores() or not aclnn.has(name):
        return None
    taken = frozenset.intersection(*(aclnn.dtypes_of(a) for a in aclnn.signature(name) if a.kind in _LISTS)) or _FLOATS
    if name not in _ANY_DTYPE:
        taken &= _FLOATS
    bits = sum(1 << _C._dtype_named(dtype)._id for dtype in taken)
    return aclnn.plan(Npu(mapping), parse(schema)), bits


_C._set_foreach_resolver(resolve)
