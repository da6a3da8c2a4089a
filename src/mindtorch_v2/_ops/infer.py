"""Shape and dtype rules: what an op's outputs look like, once for every device.

A rule is a Pointwise word, the name of a rule compiled into the core, or a Python function that takes the op's
arguments and returns (shape, dtype), or a list of such pairs, one per output (None: output not wanted)."""
from __future__ import annotations

from mindtorch_v2._ops.table import Pointwise

# Pointwise: broadcast and promote; then the result has …
unary = binary = Pointwise("promote")        # the promoted dtype
unary_float = binary_float = Pointwise("float")   # the promoted dtype, integers as the default float
compare = Pointwise("bool")                  # bool
unary_real = Pointwise("real")               # the real counterpart
unary_float_real = Pointwise("float_real")   # the same, integers as the default float

# Compiled into the core.
like, like_float = "like", "like_float"      # as self
reduce, reduce_sum, reduce_bool, reduce_mean = "reduce", "sum", "reduce_bool", "mean"   # (self, dim, keepdim, dtype)
reduce_real = "reduce_real"
matmul, mm, linear = "matmul", "mm", "linear"


class Once(list):
    """What a rule returns that has to be asked at every call; what others return is kept for arguments that are alike."""
