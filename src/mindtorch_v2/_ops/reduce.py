"""Rows of the reductions and scans."""
from __future__ import annotations

from mindtorch_v2._ops import infer
from mindtorch_v2._ops.table import op, ops


def spread(g, shape, dim, keepdim):
    """A reduced gradient back over the dims that were reduced."""
    if not keepdim and len(shape) > 0:
        for d in sorted(_dims(dim, len(shape))):
            g = g.unsqueeze(d)
    return g.expand(shape)


def _dims(dim, rank):
    if dim is None:
        return range(rank)
    dims = dim if isinstance(dim, (tuple, list)) else (dim,)
    return [d % rank for d in dims] if dims else range(rank)


def items(shape, dim):
    """How many items one result of a reduction stands for."""
    n = 1
    for d in _dims(dim, len(shape)) if shape else ():
        n *= shape[d]
    return n


op("sum(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
   rule=infer.reduce_sum, npu="aclnnReduceSum(self, dim, keepdim, dtype, out)",
   grad={"self": lambda g, self_shape, dim, keepdim: spread(g, self_shape, dim, keepdim)})
op("mean(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
   rule=infer.reduce_mean, npu="aclnnMean(self, dim, keepdim, dtype, out)",
   grad={"self": lambda g, self_shape, dim, keepdim: spread(g, self_shape, dim, keepdim) / items(self_shape, dim)})
op("any(Tensor self, int[1]? dim=None, bool keepdim=False) -> Tensor", rule=infer.reduce_bool,
   npu="aclnnAny(self, dim, keepdim, out)")
op("all(Tensor self, int[1]? dim=None, bool keepdim=False) -> Tensor", rule=infer.reduce_bool,
   npu="aclnnAll(self, dim, keepdim, out)")
assert ops.sum
