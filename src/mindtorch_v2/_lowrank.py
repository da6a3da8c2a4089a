"""Low-rank factors of large matrices from random projections: svd_lowrank, pca_lowrank."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch

__all__ = ["svd_lowrank", "pca_lowrank"]


def get_approximate_basis(A: Any, q: int, niter: int | None = 2, M: Any = None) -> Any:
    """Q with q orthonormal columns that span about what the columns of A - M span (Halko et al., algorithm 4.4)."""
    niter = 2 if niter is None else niter
    dtype = A.dtype if A.is_floating_point() or A.is_complex() else torch.float32
    A = A.to(dtype)
    if M is not None:
        A = A - M
    Q = torch.linalg.qr(A @ torch.randn(A.shape[-1], q, dtype=dtype, device=A.device)).Q
    for _ in range(niter):
        Q = torch.linalg.qr(A.mH @ Q).Q
        Q = torch.linalg.qr(A @ Q).Q
    return Q


@torch.overrides._overridable
def svd_lowrank(A: Any, q: int | None = 6, niter: int | None = 2, M: Any = None) -> tuple[Any, Any, Any]:
    """U, S and V of about A - M = U diag(S) V^H, q singular values at most."""
    q = 6 if q is None else q
    if not A.is_floating_point() and not A.is_complex():
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {A.dtype} != {torch.get_default_dtype()}")
    if M is not None:
        M = M.broadcast_to(A.size())
    wide = A.shape[-2] < A.shape[-1]
    if wide:
        A, M = A.mH, None if M is None else M.mH
    Q = get_approximate_basis(A, q, niter, M)
    B = Q.mH @ (A.to(Q.dtype) if M is None else A - M)
    U, S, Vh = torch.linalg.svd(B, full_matrices=False)
    U, V = Q @ U, Vh.mH
    return (V, S, U) if wide else (U, S, V)


@torch.overrides._overridable
def pca_lowrank(A: Any, q: int | None = None, center: bool = True, niter: int = 2) -> tuple[Any, Any, Any]:
    """The first q principal components: svd_lowrank of A, its columns centred if center is true."""
    m, n = A.shape[-2:]
    if q is None:
        q = min(6, m, n)
    elif not 0 <= q <= min(m, n):
        raise ValueError(f"q(={q}) must be non-negative integer and not greater than min(m, n)={min(m, n)}")
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    return svd_lowrank(A - A.mean(dim=-2, keepdim=True) if center else A, q, niter)
