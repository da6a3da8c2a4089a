"""torch._linalg_utils: small functions of lobpcg and of programs like it, and the removed ones."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch

eig, lstsq, matrix_rank, solve, _symeig = torch.eig, torch.lstsq, torch.matrix_rank, torch.solve, torch.symeig


def is_sparse(A: Any) -> bool:
    """Whether it is a sparse COO tensor."""
    if not isinstance(A, torch.Tensor):
        raise TypeError(f"expected Tensor but got {type(A)}")
    return A.layout == torch.sparse_coo


def get_floating_dtype(A: Any) -> torch.dtype:
    """The dtype in which a matrix is computed with: its own, or float32."""
    return A.dtype if A.dtype in (torch.float16, torch.float32, torch.float64) else torch.float32


def matmul(A: Any, B: Any) -> Any:
    """A @ B; B where A is None, which stands for the identity."""
    if A is None:
        return B
    return torch.sparse.mm(A, B) if is_sparse(A) else torch.matmul(A, B)


def bform(X: Any, A: Any, Y: Any) -> Any:
    """X^T A Y"""
    return matmul(X.mT, matmul(A, Y))


def qform(A: Any, S: Any) -> Any:
    """S^T A S"""
    return bform(S, A, S)


def basis(A: Any) -> Any:
    """Orthonormal columns that span what those of A span."""
    return torch.linalg.qr(A).Q


def symeig(A: Any, largest: bool | None = False) -> tuple[Any, Any]:
    """Eigenvalues of a symmetric matrix and their vectors, the smallest or the largest first."""
    values, vectors = torch.linalg.eigh(A, UPLO="U")
    return (values.flip(-1), vectors.flip(-1)) if largest else (values, vectors)
