"""lobpcg: some extreme eigenpairs of a large symmetric matrix, by a block preconditioned conjugate gradient method."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch

__all__ = ["lobpcg"]


@torch.overrides._overridable
def lobpcg(A: Any, k: int | None = None, B: Any = None, X: Any = None, n: int | None = None, iK: Any = None,
           niter: int | None = None, tol: float | None = None, largest: bool | None = None, method: str | None = None,
           tracker: Callable[[Any], None] | None = None, ortho_iparams: Any = None, ortho_fparams: Any = None,
           ortho_bparams: Any = None) -> tuple[Any, Any]:
    """k eigenvalues and eigenvectors of A (of A x = e B x with B): the largest, or the smallest, from X on."""
    if method not in (None, "basic", "ortho"):
        raise ValueError(f"[lobpcg] expected method 'basic' or 'ortho', got {method!r}")
    m = A.shape[-1]
    if A.dim() < 2 or A.shape[-2] != m:
        raise RuntimeError(f"[lobpcg] expected square matrices, got {tuple(A.shape)}")
    k = (1 if X is None else X.shape[-1]) if k is None else k
    n = (k if X is None else X.shape[-1]) if n is None else n
    if m < 3 * n:
        raise ValueError(f"LOBPCG algorithm is not applicable when the number of A rows (={m}) is smaller than 3 x the "
                         f"number of requested eigenpairs (={n})")
    if B is not None and B.requires_grad:
        raise RuntimeError("lobpcg.backward: derivatives of B are not supported")
    if A.requires_grad and torch.is_grad_enabled():
        if B is not None:
            raise RuntimeError("lobpcg.backward: derivatives of A are not supported where B is given")
        return _Recorded.apply(A, k, X, n, iK, niter, tol, largest, tracker)
    with torch.no_grad():
        return _batched(A, k, B, X, n, iK, niter, tol, largest, tracker)


class _Recorded(torch.autograd.Function):
    """lobpcg() of a matrix that requires a gradient. Backward needs all eigenpairs: the found ones turn into the others."""

    @staticmethod
    def forward(ctx: Any, A: Any, k: int, X: Any, n: int, iK: Any, niter: int | None, tol: float | None,
                largest: bool | None, tracker: Any) -> tuple[Any, Any]:
        E, V = _batched(A, k, None, X, n, iK, niter, tol, largest, tracker)
        ctx.save_for_backward(A, E, V)
        return E, V

    @staticmethod
    def backward(ctx: Any, grad_E: Any, grad_V: Any) -> Any:
        A, E, V = ctx.saved_tensors
        values, vectors = torch.linalg.eigh((A + A.mT) / 2)
        gaps = E.unsqueeze(-2) - values.unsqueeze(-1)                # of each found value to every value
        near = gaps.abs() < torch.finfo(A.dtype).eps ** 0.5 * values.abs().amax(-1)[..., None, None].clamp_min(1e-30)
        weights = torch.where(near, torch.zeros_like(gaps), 1 / torch.where(near, torch.ones_like(gaps), gaps))
        turned = vectors @ (weights * (vectors.mT @ grad_V))
        found = (V * grad_E.unsqueeze(-2) + turned) @ V.mT
        return ((found + found.mT) / 2, *(None,) * 8)


def _batched(A: Any, k: int, B: Any, X: Any, n: int, iK: Any, niter: int | None, tol: float | None,
             largest: bool | None, tracker: Any) -> tuple[Any, Any]:
    """Every matrix of a batch by itself."""
    if A.dim() > 2:
        batch = A.shape[:-2]
        flat: list[Any] = [None if t is None else t.expand(*batch, *t.shape[-2:]).reshape(-1, *t.shape[-2:]) for t in (A, B, X, iK)]
        parts = []
        for i in range(flat[0].shape[0]):
            a, b, x, inverse = (None if t is None else t[i] for t in flat)
            parts.append(_Search(a, b, x, inverse, n, tol, largest is not False).run(niter, tracker, k))
        return (torch.stack([e for e, _ in parts]).reshape(*batch, k),
                torch.stack([v for _, v in parts]).reshape(*batch, A.shape[-1], k))
    return _Search(A, B, X, iK, n, tol, largest is not False).run(niter, tracker, k)


class _Search:
    """The iteration for one matrix; what a tracker sees: X, E, R, ivars, fvars, bvars, tvars."""

    def __init__(self, A: Any, B: Any, X: Any, iK: Any, n: int, tol: float | None, largest: bool) -> None:
        dtype = A.dtype
        self.A, self.B, self.iK, self.n, self.largest = A, B, iK, n, largest
        self.tol = torch.finfo(dtype).eps ** 0.5 if tol is None else tol
        self.X = torch.randn(A.shape[-1], n, dtype=dtype, device=A.device) if X is None else X.clone()
        self.P: Any = None
        self.E: Any = None
        self.R: Any = None
        self.S: Any = None
        self.ivars = {"istep": 0, "converged_count": 0}
        self.fvars: dict[str, float] = {}
        self.bvars = {"largest": largest}
        self.tvars: dict[str, Any] = {}
        self.scale = float(A.norm()), 1.0 if B is None else float(B.norm())

    def times_B(self, X: Any) -> Any:
        return X if self.B is None else self.B @ X

    def orthonormal(self, S: Any) -> Any:
        """A basis of S's columns that is orthonormal for B; directions that hardly exist are left out."""
        for _ in range(2):                       # once is not enough where columns are nearly parallel
            lengths = (S * self.times_B(S)).sum(0).clamp_min(0).sqrt()
            S = S[:, lengths > 0] / lengths[lengths > 0]
            values, vectors = torch.linalg.eigh(S.mT @ self.times_B(S))
            kept = values > values.amax() * torch.finfo(S.dtype).eps * S.shape[1]
            S = (S @ vectors[:, kept]) / values[kept].sqrt()
        return S

    def best(self, S: Any) -> tuple[Any, Any]:
        """Rayleigh and Ritz: the n best values in the span of an orthonormal S, and their coefficients."""
        T = S.mT @ (self.A @ S)
        values, vectors = torch.linalg.eigh((T + T.mT) / 2)
        if self.largest:
            values, vectors = values.flip(0), vectors.flip(1)
        return values[:self.n], vectors[:, :self.n]

    def step(self) -> None:
        W = self.R if self.iK is None else self.iK @ self.R
        S = self.orthonormal(torch.cat([self.X, W] + ([] if self.P is None else [self.P]), 1))
        self.E, Z = self.best(S)
        made = S @ Z
        self.P = made - self.X @ (self.X.mT @ self.times_B(made))    # the move, less what stays in the old span
        self.X = made

    def converged(self) -> int:
        """How many pairs, from the best on, fulfil the tolerance."""
        self.R = self.A @ self.X - self.times_B(self.X) * self.E
        bound = self.X.norm(dim=0) * (self.scale[0] + self.E.abs() * self.scale[1])
        self.tvars["rerr"] = error = self.R.norm(dim=0) / bound.clamp_min(torch.finfo(self.X.dtype).tiny)
        good = (error < self.tol).tolist()
        return good.index(False) if False in good else len(good)

    def run(self, niter: int | None, tracker: Any, k: int) -> tuple[Any, Any]:
        S = self.orthonormal(self.X)
        while S.shape[1] < self.n:               # columns of X that depend on each other
            S = self.orthonormal(torch.cat([S, torch.randn_like(self.X)], 1))
        self.E, Z = self.best(S)
        self.X = S @ Z
        for step in range(1000 if niter is None or niter < 0 else niter):
            self.ivars.update(istep=step, converged_count=self.converged())
            if tracker is not None:
                tracker(self)
            if self.ivars["converged_count"] >= k or self.bvars.get("force_stop"):
                break
            self.step()
        return self.E[:k], self.X[:, :k]
