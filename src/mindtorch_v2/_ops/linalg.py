"""Rows of matrix products and linear algebra."""
from __future__ import annotations

from mindtorch_v2._ops import infer
from mindtorch_v2._ops.pointwise import conj
from mindtorch_v2._ops.table import op, ops


def _t(x):
    return conj(x.transpose(-2, -1))


def _matmul_self(g, self_shape, other):
    """d(self @ other) / d self, for every rank of the two."""
    if len(self_shape) == 1:
        if other.dim() == 1:
            return g * conj(other)
        return ops.matmul(conj(other), g.unsqueeze(-1)).squeeze(-1)
    if other.dim() == 1:
        return g.unsqueeze(-1) * conj(other)
    return ops.matmul(g, _t(other))


def _matmul_other(g, self, other_shape):
    if len(other_shape) == 1:
        if self.dim() == 1:
            return g * conj(self)
        return ops.matmul(_t(self), g.unsqueeze(-1)).squeeze(-1)
    if self.dim() == 1:
        return conj(self).unsqueeze(-1) * g.unsqueeze(-2)
    if self.dim() > 2 and len(other_shape) == 2:   # one product instead of one per batch item, then a sum
        return ops.matmul(conj(self.reshape(-1, self.size(-1))).t(), g.reshape(-1, g.size(-1)))
    return ops.matmul(_t(self), g)


op("matmul(Tensor self, Tensor other) -> Tensor", rule=infer.matmul, npu="aclnnMatmul(self, other, out, 1)",
   grad={"self": lambda g, self_shape, other: _matmul_self(g, self_shape, other),
         "other": lambda g, self, other_shape: _matmul_other(g, self, other_shape)})
op("mm(Tensor self, Tensor mat2) -> Tensor", rule=infer.mm, npu="aclnnMm(self, mat2, out, 1)",
   grad={"self": lambda g, mat2: ops.mm(g, _t(mat2)), "mat2": lambda g, self: ops.mm(_t(self), g)})
op("linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor", rule=infer.linear, variants="nn",
   grad={"input": lambda g, weight: ops.matmul(g, weight) if weight.dim() == 2 else g.unsqueeze(-1) * weight,
         "weight": lambda g, input, weight_shape: _linear_weight(g, input, weight_shape),
         "bias": lambda g: g})


def _linear_weight(g, input, shape):
    rows = input.reshape(-1, input.size(-1))
    if len(shape) == 1:
        return ops.matmul(g.reshape(-1), rows)
    return ops.mm(g.reshape(-1, g.size(-1)).t(), rows)
