"""Kernels of the npu for factors that CANN lacks, and for what rests on them: LU, systems, inverses, Householder's
reflections, eigenvalues of Hermitian matrices, least squares. Eigenvalues of other matrices refuse by name."""
from __future__ import annotations

from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._backends.npu.aclnn import launch
from mindtorch_v2._backends.npu.body import Args, Body, Outs
from mindtorch_v2._backends.npu.ops_linalg import triangular
from mindtorch_v2._backends.npu.torch_ops import ops
from mindtorch_v2._dtype import finfo
from mindtorch_v2._shape import broadcast

_INT64 = _C._dtype_named("int64")
_WIDE = {"float32": _C._dtype_named("float64"), "complex64": _C._dtype_named("complex128")}
_PANEL = 32                                                  # columns of LU that are found one by one


# ---- LU --------------------------------------------------------------------------------------------------------------
def _exchange(order: Any, at: Any, here: int, there: Any) -> Any:
    """Orders of rows (batch, m) with item `here` and the items `there` exchanged; at is (0, 1, 2 …)."""
    return order.gather(-1, ops.where(at == here, there, ops.where(at == there, here, at)).expand(order.shape))


def _in_order(x: Any, order: Any) -> Any:
    """The rows of matrices (batch, m, n), ordered."""
    return x.gather(-2, order.unsqueeze(-1).expand(x.shape))


def _size(x: Any) -> Any:
    """What LAPACK chooses pivots by."""
    return ops.view_as_real(x).abs().sum(-1) if x.is_complex() else x.abs()


def _panel(A: Any, pivot: bool) -> tuple[Any, Any, list[Any]]:
    """LU of narrow matrices (batch, m, n), column by column: the packed factors, the rows' order, the pivots."""
    at = ops.arange(A.size(1), device=A.device)
    order, pivots = at.expand(A.size(0), -1), []
    for j in range(min(A.shape[1:])):
        there = _size(A[:, j:, j]).argmax(1, True) + j if pivot else at[j:j + 1].expand(A.size(0), -1)
        pivots.append(there)
        if pivot:
            A, order = _in_order(A, _exchange(at.expand(order.shape), at, j, there)), _exchange(order, at, j, there)
        head, below = A[:, j:j + 1, j:j + 1], A[:, j + 1:, j:j + 1]
        below.div_(ops.where(head == 0, 1.0, head))          # where the head is 0, so is all below
        A[:, j + 1:, j + 1:].sub_(below * A[:, j:j + 1, j + 1:])
    return A, order, pivots


def lu(A: Any, pivot: bool = True) -> tuple[Any, Any]:
    """Packed factors and pivots of matrices (batch, m, n), panel by panel, the rest by products."""
    A, (m, n), pivots = A.contiguous().clone(), A.shape[1:], []
    for begin in range(0, min(m, n), _PANEL):
        end = min(begin + _PANEL, m, n)
        panel, order, found = _panel(A[:, begin:, begin:end].contiguous(), pivot)
        pivots += [there + begin + 1 for there in found]
        A[:, begin:].copy_(_in_order(A[:, begin:], order))
        A[:, begin:, begin:end].copy_(panel)
        if end < n:
            top = triangular(panel[:, :end - begin], A[:, begin:end, end:], False, True)
            A[:, begin:end, end:].copy_(top)
            if end < m:
                A[:, end:, end:].sub_(ops.matmul(panel[:, end - begin:], top))
    return A, ops.cat(pivots, -1)


def first_zero(LU: Any) -> Any:
    """Which pivot of packed factors is the first 0, from 1 on; 0: none is."""
    zero = LU.diagonal(0, -2, -1) == 0
    return ops.where(zero.any(-1), zero.to(_INT64).argmax(-1) + 1, 0)


def _lu_factor(outs: Outs, args: Args) -> None:
    (LU, pivots, info), (A, pivot) = outs, args
    if not pivots.numel():
        info.fill_(0)
        return
    made, found = lu(A.reshape(-1, *A.shape[-2:]), pivot)
    LU.copy_(made.reshape(LU.shape))
    pivots.copy_(found.reshape(pivots.shape))
    info.copy_(first_zero(made).reshape(info.shape))


def _permutation(pivots: Any, n: int) -> Any:
    at = ops.arange(n, device=pivots.device)
    order = at.expand((*pivots.shape[:-1], n))
    for i in range(pivots.size(-1)):
        order = _exchange(order, at, i, pivots[..., i:i + 1].to(_INT64) - 1)
    return order


def _lu_solve(LU: Any, pivots: Any, B: Any, left: bool, adjoint: bool) -> Any:
    if not left:                                             # X A = B is A^H X^H = B^H
        return _lu_solve(LU, pivots, B.mH, True, not adjoint).mH
    batch, n = broadcast(LU.shape[:-2], B.shape[:-2]), LU.size(-1)
    B = B.expand((*batch, *B.shape[-2:]))
    if not B.numel():
        return B
    order = _permutation(pivots, n).expand((*batch, n)).unsqueeze(-1).expand(B.shape)
    if not adjoint:
        return triangular(LU, triangular(LU, B.gather(-2, order), False, True), True, False)
    made = triangular(LU.mH, triangular(LU.mH, B, False, False), True, True)
    return ops.empty_like(made).scatter(-2, order, made)


# ---- systems ---------------------------------------------------------------------------------------------------------
def _solved(A: Any, B: Any) -> tuple[Any, Any]:
    """X of A X = B by QR, which is one op of CANN, and which pivot of A is 0: LU tells, where R has a small one."""
    Q, R = ops.linalg_qr(A, "complete")
    size = R.diagonal(0, -2, -1).abs()
    small = (size.amin(-1) <= size.amax(-1) * (finfo(A.dtype).eps * 8 * A.size(-1))).any()
    info = first_zero(lu(A.reshape(-1, *A.shape[-2:]))[0]) if small.item() else ops.zeros((), device=A.device)
    return triangular(R, ops.matmul(Q.mH, B), True, False), info


def _solve(outs: Outs, args: Args) -> None:
    """LU and pivots stay unwritten: the gradients here do without."""
    (result, _, _, info), (A, B, left) = outs, args
    vector = B.dim() == 1 or A.shape[:-1] == B.shape
    X, B = (result.unsqueeze(-1), B.unsqueeze(-1)) if vector else (result, B)
    if not left:
        A, B, X = A.transpose(-2, -1), B.transpose(-2, -1), X.transpose(-2, -1)
    if not A.numel() or not result.numel():
        info.fill_(0)
        return
    made, found = _solved(A.detach(), B.detach())
    X.copy_(made)
    info.copy_(found.reshape(info.shape) if found.dim() else found)


def _inverse(outs: Outs, args: Args) -> None:
    (inverse, info), (A,) = outs, args
    info.fill_(0)
    if not A.numel():
        return
    A = A.detach()
    if A.is_complex():                                       # CANN inverts real matrices only
        made, found = _solved(A, ops.eye(A.size(-1), dtype=A.dtype, device=A.device))
        inverse.copy_(made)
        info.copy_(found.reshape(info.shape) if found.dim() else found)
        return
    launch("aclnnInverse", inverse, A, inverse)
    if not inverse.isfinite().all().item():
        info.copy_(first_zero(lu(A.reshape(-1, *A.shape[-2:]))[0]).reshape(info.shape))


# ---- reflections -----------------------------------------------------------------------------------------------------
def _geqrf(outs: Outs, args: Args) -> None:
    """Column by column: the vector that turns what is below the diagonal to 0, and the rest turned with it."""
    (a, tau), (self,) = outs, args
    A = self.detach().contiguous().clone()
    for j in range(min(A.shape[-2:])):
        column, rest = A[..., j:, j:j + 1], A[..., j:, j + 1:]
        head, below = column[..., :1, :], column[..., 1:, :]
        size = column.abs().square().sum(-2, True).sqrt().to(A.dtype)
        flat = (below.abs().square().sum(-2, True) == 0) & (_imag(head) == 0)      # nothing to turn
        target = ops.where(flat, head, ops.where(_real(head) < 0, size, -size))
        factor = ops.where(flat, 0.0, (target - head) / ops.where(target == 0, 1.0, target))
        below = below / ops.where(flat, 1.0, head - target)
        vector = ops.cat([ops.ones_like(head), below], -2)
        rest.sub_(factor.conj() * vector * ops.matmul(vector.mH, rest))
        column.copy_(ops.cat([target, below], -2))
        tau[..., j:j + 1].copy_(factor.squeeze(-1))
    a.copy_(A)


def _real(x: Any) -> Any:
    return ops.view_as_real(x).select(-1, 0) if x.is_complex() else x


def _imag(x: Any) -> Any:
    return ops.view_as_real(x).select(-1, 1) if x.is_complex() else ops.zeros_like(x)


# ---- eigenvalues -----------------------------------------------------------------------------------------------------
def _eigh(outs: Outs, args: Args) -> None:
    """By SVD: a matrix moved so far along the diagonal that no eigenvalue is negative has them as singular values."""
    (values, vectors, info), (A, UPLO, compute_v) = outs, args
    info.fill_(0)
    if not A.numel():
        return
    half = A.detach().tril(-1) if UPLO.upper() == "L" else A.detach().triu(1).mH
    diagonal = _real(A.detach().diagonal(0, -2, -1))
    A = half + half.mH + ops.diag_embed(diagonal)
    move = A.abs().sum(-1).amax(-1, True)
    A = A.to(_WIDE.get(A.dtype._name, A.dtype))              # the move costs digits
    U, S, _ = ops.linalg_svd(A + ops.diag_embed(move.expand(diagonal.shape)), False)
    values.copy_((S - move).flip((-1,)))
    if compute_v:
        vectors.copy_(U.flip((-1,)))


# ---- least squares ---------------------------------------------------------------------------------------------------
def _lstsq(outs: Outs, args: Args) -> None:
    """gels by QR, for it takes full rank for granted; the others by singular values that are not near 0."""
    (solution, rank, singular_values, info), (A, B, driver, rcond) = outs, args
    info.fill_(0)
    A, B = A.detach(), B.detach()
    if not A.numel() or not solution.numel():
        solution.fill_(0)
        rank.fill_(0)
        return
    if driver == "gels":
        tall = A.size(-2) >= A.size(-1)
        Q, R = ops.linalg_qr(A if tall else A.mH)
        solution.copy_(triangular(R, ops.matmul(Q.mH, B), True, False) if tall else
                       ops.matmul(Q, triangular(R.mH, B, False, False)))
        return
    U, S, Vh = ops.linalg_svd(A, False)
    rcond = finfo(A.dtype).eps * max(A.shape[-2:]) if rcond is None or rcond < 0 else rcond
    kept = S.gt(S[..., :1] * rcond)
    inverse = ops.where(kept, 1 / ops.where(kept, S, 1.0), 0.0).unsqueeze(-1)
    solution.copy_(ops.matmul(Vh.mH, ops.matmul(U.mH, B) * inverse))
    rank.copy_(kept.sum(-1).expand(rank.shape))
    if singular_values.numel():
        singular_values.copy_(S.expand(singular_values.shape))


BODIES = {
    "_linalg_eigh": Body(kernel=_eigh),
    "_linalg_inv_ex": Body(kernel=_inverse),
    "_linalg_lstsq": Body(kernel=_lstsq),
    "_linalg_lu_factor_ex": Body(kernel=_lu_factor),
    "_linalg_solve_ex": Body(kernel=_solve),
    "_lu_permutation": Body(value=_permutation),
    "geqrf": Body(kernel=_geqrf),
    "linalg_lu_solve": Body(value=_lu_solve),
}
