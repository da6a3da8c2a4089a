"""Products of groups of rows with a matrix each, as mixtures of experts have them; the groups end where `offs` says."""
from __future__ import annotations

from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._C import TYPE_NAMES
from mindtorch_v2._ops.table import composite, ops
from mindtorch_v2._tensor import Tensor


def _check(self: Tensor, mat2: Tensor, offs: Tensor | None, bias: Any, out_dtype: Any) -> None:
    for name, x in (("mat_a", self), ("mat_b", mat2)):
        if x.dim() not in (2, 3):
            raise RuntimeError(f"{name} has to be 2 or 3d")
        if x.dtype is not self.dtype or not x.is_floating_point():
            raise RuntimeError(f"Expected {name} to be a floating point tensor of {TYPE_NAMES[self.dtype._id]}, got "
                               f"{TYPE_NAMES[x.dtype._id]}")
    if self.size(-1) != mat2.size(-2):
        raise RuntimeError("contraction dimension of mat_a and mat_b must match")
    flat = self.dim() == 2 or mat2.dim() == 2
    if flat != (offs is not None):
        raise RuntimeError("Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d")
    if offs is not None:
        if offs.dim() != 1:
            raise RuntimeError("offs has to be 1D")
        if str(offs.dtype) != "torch.int32":
            raise RuntimeError("Offsets have to be int32")
    groups = next((x.size(0) for x in (self, mat2) if x.dim() == 3), None)
    if groups is not None and any(x.size(0) != groups for x in (self, mat2) if x.dim() == 3) or \
            offs is not None and groups is not None and offs.size(0) != groups:
        raise RuntimeError("matrix batch sizes have to match")
    if bias is not None:
        raise RuntimeError("Bias not supported yet")
    if out_dtype is not None and out_dtype is not self.dtype and str(out_dtype) != "torch.float32":
        raise RuntimeError(f"Only {self.dtype} and torch.float32 are supported as out_dtype, got {out_dtype}")


@composite("_grouped_mm(Tensor self, Tensor mat2, Tensor? offs=None, Tensor? bias=None, ScalarType? out_dtype=None) -> Tensor",
           autocast="lower", out=False, variants="function")
def _grouped_mm(self: Tensor, mat2: Tensor, offs: Tensor | None, bias: Tensor | None,
                out_dtype: _C.dtype | None) -> Tensor:
    """The product of each group: rows of self with a matrix of mat2, columns of mat2 with a matrix of self, or, of two
    matrices, columns of self with the same rows of mat2. What lies beyond the last group gives zeros."""
    _check(self, mat2, offs, bias, out_dtype)
    if offs is None:
        found = ops.bmm(self, mat2)
    else:
        ends = offs.tolist()
        starts = [0, *ends[:-1]]
        if self.dim() == 2 and mat2.dim() == 3:
            parts = [ops.mm(self[a:b], mat2[i]) for i, (a, b) in enumerate(zip(starts, ends, strict=True))]
            parts.append(self.new_zeros((self.size(0) - ends[-1], mat2.size(-1))))
            found = ops.cat(parts, 0)
        elif self.dim() == 3:
            parts = [ops.mm(self[i], mat2[:, a:b]) for i, (a, b) in enumerate(zip(starts, ends, strict=True))]
            parts.append(self.new_zeros((self.size(1), mat2.size(-1) - ends[-1])))
            found = ops.cat(parts, 1)
        else:
            found = ops.stack([ops.mm(self[:, a:b], mat2[a:b]) for a, b in zip(starts, ends, strict=True)], 0)
    return found if out_dtype is None else found.to(out_dtype)
