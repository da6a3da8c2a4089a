"""Rows of the LDL factorisation of symmetric and Hermitian matrices."""
from __future__ import annotations

from collections.abc import Sequence

from mindtorch_v2._ops import batching
from mindtorch_v2._ops.decompose import (
    INT32,
    check_float,
    check_info,
    check_matrix,
    check_square,
    checked,
    word,
)
from mindtorch_v2._ops.table import Spec, composite, op, ops
from mindtorch_v2._shape import broadcast
from mindtorch_v2._tensor import Tensor


def _factor_rule(self: Tensor, hermitian: bool) -> Sequence[Spec]:
    name = "torch.linalg.ldl_factor_ex"
    check_square(self, name)
    check_float(self, name, False, "ldl_factor_kernel_cpu")
    return [(tuple(self.shape), self.dtype), (tuple(self.shape[:-1]), INT32), (tuple(self.shape[:-2]), INT32)]


op("_linalg_ldl_factor_ex(Tensor self, *, bool hermitian=False) -> (Tensor LD, Tensor pivots, Tensor info)",
   batch=batching.leading, rule=_factor_rule, variants="", format="|0")


@composite("linalg_ldl_factor_ex(Tensor self, *, bool hermitian=False, bool check_errors=False) "
           "-> (Tensor LD, Tensor pivots, Tensor info)", variants="linalg", out="exact")
def _ldl_factor_ex(self: Tensor, hermitian: bool, check_errors: bool) -> tuple[Tensor, ...]:
    """The packed factors L and D, the pivots, and a code that is not 0 where D is singular."""
    return checked(ops._linalg_ldl_factor_ex(self, hermitian=hermitian), check_errors, "torch.linalg.ldl_factor_ex")


@composite("linalg_ldl_factor(Tensor self, *, bool hermitian=False) -> (Tensor LD, Tensor pivots)", variants="linalg",
           out="exact")
def _ldl_factor(self: Tensor, hermitian: bool) -> tuple[Tensor, Tensor]:
    """The packed factors L and D of A = L D L^T (L D L^H where hermitian), and the pivots."""
    made = ops._linalg_ldl_factor_ex(self, hermitian=hermitian)
    check_info(made[2], "torch.linalg.ldl_factor")
    return tuple(made)[:2]


def _solve_rule(LD: Tensor, pivots: Tensor, B: Tensor, hermitian: bool) -> Spec:
    name = "torch.linalg.ldl_solve"
    check_square(LD, name)
    check_float(LD, name, False, "ldl_solve_kernel_cpu")
    check_matrix(B, name, "B")
    if LD.dtype != B.dtype:
        raise RuntimeError(f"Expected b and A to have the same dtype, but found b of type {word(B.dtype)} and A of type "
                           f"{word(LD.dtype)} instead.")
    if tuple(LD.shape[:-1]) != tuple(pivots.shape):
        raise RuntimeError(f"{name}: Expected LD.shape[:-1] and pivots.shape to be the same, but got pivots with shape "
                           f"{list(pivots.shape)} instead")
    if LD.size(-1) != B.size(-2):
        raise RuntimeError(f"Incompatible matrix sizes for {name}: each A matrix is {LD.size(-1)} by {LD.size(-1)} but each b "
                           f"matrix is {B.size(-2)} by {B.size(-1)}")
    return (*broadcast(LD.shape[:-2], B.shape[:-2]), *B.shape[-2:]), B.dtype


op("_linalg_ldl_solve(Tensor LD, Tensor pivots, Tensor B, *, bool hermitian=False) -> Tensor",
   batch=batching.leading, rule=_solve_rule, variants="", format="|0")


@composite("linalg_ldl_solve(Tensor LD, Tensor pivots, Tensor B, *, bool hermitian=False) -> Tensor", variants="linalg",
           out="exact")
def _ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, hermitian: bool) -> Tensor:
    """X of A X = B, from A's LDL factors."""
    if pivots.dtype.is_floating_point or pivots.dtype.is_complex:
        raise RuntimeError(f"torch.linalg.ldl_solve: Expected pivots to be integers. Got {word(pivots.dtype)}")
    return ops._linalg_ldl_solve(LD, pivots.to(INT32), B, hermitian=hermitian)
