"""Rows of linear systems: solve, inverse, determinants."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._ops import batching
from mindtorch_v2._ops.decompose import (
    INT32,
    _square_rule,
    check_float,
    check_matrix,
    check_same,
    check_square,
    checked,
    epsilon,
    real_dtype,
)
from mindtorch_v2._ops.linalg import _t
from mindtorch_v2._ops.table import Spec, composite, op, ops
from mindtorch_v2._shape import broadcast
from mindtorch_v2._tensor import Tensor


# ---- solve, inverse ------------------------------------------------------------------------------
def _is_vector(A_shape: tuple[int, ...], B_shape: tuple[int, ...]) -> bool:
    """B holds a vector for each matrix of A."""
    return len(B_shape) == 1 or tuple(A_shape[:-1]) == tuple(B_shape)


def _solve_rule(A: Tensor, B: Tensor, left: bool) -> Sequence[Spec]:
    name = "linalg.solve"
    check_square(A, name)
    check_float(A, name, False, "lu_cpu")
    check_same(A, B, name)
    vector = _is_vector(A.shape, B.shape)
    if vector and not left:
        raise RuntimeError("linalg.solve: Vector broadcasting of the left hand side is not supported for left=False. "
                           "In this case linalg.solve is equivalent to B / A.squeeze(-1)")
    shape = (*B.shape, 1) if vector else tuple(B.shape)
    if len(shape) < 2:
        check_matrix(B, name, "B")
    if A.size(-2) != shape[-2 if left else -1]:
        raise RuntimeError(f"{name}: Incompatible shapes of A and B for the equation {'AX = B' if left else 'XA = B'} "
                           f"({A.size(-2)}x{A.size(-1)} and {shape[-2]}x{shape[-1]})")
    made = (*broadcast(A.shape[:-2], shape[:-2]), *shape[-2:])
    return [(made[:-1] if vector else made, A.dtype), (tuple(A.shape), A.dtype), (tuple(A.shape[:-1]), INT32),
            (tuple(A.shape[:-2]), INT32)]


def _solve_grad(g: Tensor, A: Tensor, B_shape: tuple[int, ...], left: bool, result: Tensor, LU: Tensor, pivots: Tensor,
                needs: tuple[bool, ...]) -> tuple[Tensor | None, Tensor]:
    vector = _is_vector(A.shape, B_shape)
    g = g.unsqueeze(-1) if vector else g
    if _C._is_grad_enabled() or A.is_npu:                    # CANN keeps no LU factors
        rhs = ops._linalg_solve_ex(_t(A), g, left=left)[0]
    else:
        rhs = ops.linalg_lu_solve(LU, pivots, g, left=left, adjoint=True)
    grad_A = None
    if needs[0]:
        X = _t(result.unsqueeze(-1) if vector else result)
        grad_A = -(ops.matmul(rhs, X) if left else ops.matmul(X, rhs))
    return grad_A, rhs.squeeze(-1) if vector else rhs


op("_linalg_solve_ex(Tensor A, Tensor B, *, bool left=True) "
   "-> (Tensor result, Tensor LU, Tensor pivots, Tensor info)", batch=batching.leading, rule=_solve_rule, variants="",
   format="|0?left |1?left",
   grad={"A, B": lambda g, A, B_shape, left, result0, result1, result2, needs:
         _solve_grad(g, A, B_shape, left, result0, result1, result2, needs)})


@composite("linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False) "
           "-> (Tensor result, Tensor info)", variants="linalg", out="exact")
def _solve_ex(A: Tensor, B: Tensor, left: bool, check_errors: bool) -> tuple[Tensor, Tensor]:
    """X of A X = B, and a code that is not 0 where A is singular."""
    made = checked(ops._linalg_solve_ex(A, B, left=left), check_errors, "torch.linalg.solve_ex")
    return made[0], made[3]


@composite("linalg_solve(Tensor A, Tensor B, *, bool left=True) -> Tensor", autocast={"cpu": "float32"},
           variants="linalg", out="exact")
def _solve(A: Tensor, B: Tensor, left: bool) -> Tensor:
    """X of A X = B, or of X A = B."""
    return checked(ops._linalg_solve_ex(A, B, left=left), True, "torch.linalg.solve")[0]


op("_linalg_inv_ex(Tensor A) -> (Tensor inverse, Tensor info)",
   batch=batching.leading, rule=_square_rule("linalg.inv", (2, INT32)),
   kernel="linalg_inv_ex", variants="", format="|0",
   grad={"A": lambda g, result0: -ops.matmul(_t(result0), ops.matmul(g, _t(result0)))})


@composite("linalg_inv_ex(Tensor A, *, bool check_errors=False) -> (Tensor inverse, Tensor info)",
           autocast={"cpu": "float32"}, variants="linalg", out="exact")
def _inv_ex(A: Tensor, check_errors: bool) -> tuple[Tensor, ...]:
    """The inverse, and a code that is not 0 where there is none."""
    return checked(ops._linalg_inv_ex(A), check_errors, "linalg.inv_ex")


@composite("linalg_inv(Tensor A) -> Tensor", autocast={"cpu": "float32"}, variants="linalg", out="exact")
def _inv(A: Tensor) -> Tensor:
    """The inverse of each matrix."""
    return checked(ops._linalg_inv_ex(A), True, "linalg.inv")[0]


@composite("inverse(Tensor self) -> Tensor", autocast={"cpu": "float32"})
def _inverse(self: Tensor) -> Tensor:
    """The inverse of each matrix."""
    return ops.linalg_inv(self)


# ---- determinants --------------------------------------------------------------------------------
def _det_rule(name: str, *firsts: Callable[..., Any]) -> Callable[..., Any]:
    def rule(A: Tensor) -> Sequence[Spec]:
        check_square(A, name)
        check_float(A, name, False, "lu_cpu" if name == "linalg.det" else None)
        batch = tuple(A.shape[:-2])
        return [*((batch, first(A.dtype)) for first in firsts), (tuple(A.shape), A.dtype),
                ((*batch, A.size(-1)), INT32)]
    return rule


def _scaled_inverse(scale: Tensor, A: Tensor, LU: Tensor, pivots: Tensor, shift: float) -> Tensor:
    """inv(A^H) times a number per matrix; with shift, zeros on U's diagonal become that: det has a limit there."""
    d = ops.diag_embed(scale.unsqueeze(-1).expand((*A.shape[:-1],)))
    if _C._is_grad_enabled() or A.is_npu:
        return ops._linalg_solve_ex(_t(A), d)[0]
    if shift:
        diagonal = LU.diagonal(0, -2, -1)
        LU = LU + ops.diag_embed(ops.where(diagonal == 0, shift, ops.zeros_like(diagonal)))
    return ops.linalg_lu_solve(LU, pivots, d, adjoint=True)


def _slogdet_grad(g_sign: Tensor, g_log: Tensor, A: Tensor, sign: Tensor, LU: Tensor, pivots: Tensor) -> Tensor:
    scale = g_log
    if A.is_complex():
        scale = ops.complex(g_log, -(g_sign.conj() * sign).imag)
    return _scaled_inverse(scale, A, LU, pivots, 0)


op("_linalg_det(Tensor A) -> (Tensor result, Tensor LU, Tensor pivots)",
   batch=batching.leading, rule=_det_rule("linalg.det", lambda t: t),
   variants="",
   grad={"A": lambda g, A, result0, result1, result2:
         _scaled_inverse(g * result0.conj(), A, result1, result2, epsilon(A.dtype))})
op("_linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet, Tensor LU, Tensor pivots)",
   batch=batching.leading, variants="",
   rule=_det_rule("linalg.slogdet", lambda t: t, real_dtype),
   grad={"A": lambda gs, A, result0, result2, result3: _slogdet_grad(gs[0], gs[1], A, result0, result2, result3)})


@composite("linalg_det(Tensor A) -> Tensor", variants="linalg", out="exact")
def _linalg_det(A: Tensor) -> Tensor:
    """The determinant of each matrix."""
    return ops._linalg_det(A)[0]


@composite("det(Tensor self) -> Tensor", out=False)
def _det(self: Tensor) -> Tensor:
    """The determinant of each matrix."""
    return ops._linalg_det(self)[0]


@composite("linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet)", variants="linalg", out="exact")
def _linalg_slogdet(A: Tensor) -> tuple[Tensor, Tensor]:
    """The sign of the determinant and the logarithm of its size."""
    return tuple(ops._linalg_slogdet(A))[:2]


@composite("slogdet(Tensor self) -> (Tensor sign, Tensor logabsdet)")
def _slogdet(self: Tensor) -> tuple[Tensor, Tensor]:
    """The sign of the determinant and the logarithm of its size."""
    return tuple(ops._linalg_slogdet(self))[:2]


@composite("logdet(Tensor self) -> Tensor", out=False, npu="aclnnLogdet(self, out)",
           rule=lambda self: _det_rule("logdet", lambda t: t)(self)[0])
def _logdet(self: Tensor) -> Tensor:
    """The logarithm of the determinant; nan where that is negative."""
    _det_rule("logdet")(self)
    sign, size = tuple(ops._linalg_slogdet(self))[:2]
    return sign.log() + size if self.is_complex() else ops.where(sign == -1, float("nan"), size)
