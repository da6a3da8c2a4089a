"""The parametrizations that come with torch: weight norm, spectral norm and orthogonal matrices."""

from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.nn import functional as F
from mindtorch_v2.nn.modules.module import Module
from mindtorch_v2.nn.utils.parametrize import register_parametrization
from mindtorch_v2.nn.utils.spectral_norm import as_matrix, check_iterations, default_dim
from mindtorch_v2.nn.utils.weight_norm import norm_except_dim, weight_from

Tensor = torch.Tensor

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


class _WeightNorm(Module):
    """A weight from its length and its direction."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_from(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Length and direction of a weight."""
        return norm_except_dim(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int = 0) -> Module:
    """Train the length and the direction of a parameter apart."""
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def compat(state_dict: Any, prefix: str, *rest: Any) -> None:
        """Load checkpoints of the hook that came before."""
        keys = [f"{prefix}{name}_g", f"{prefix}{name}_v"]
        if all(key in state_dict for key in keys):
            for i, key in enumerate(keys):
                state_dict[f"{prefix}parametrizations.{name}.original{i}"] = state_dict.pop(key)

    module._register_load_state_dict_pre_hook(compat)
    return module


class _SpectralNorm(Module):
    """A weight divided by its largest singular value, by power iteration."""

    def __init__(
        self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        super().__init__()
        ndim = weight.dim()
        if dim >= ndim or dim < -ndim:
            raise IndexError(
                "Dimension out of range (expected to be in range of "
                f"[-{ndim}, {ndim - 1}] but got {dim})"
            )
        check_iterations(n_power_iterations)
        self.dim = dim if dim >= 0 else dim + ndim
        self.eps = eps
        if ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = as_matrix(weight, self.dim)
            rows, cols = matrix.size()
            u = matrix.new_empty(rows).normal_(0, 1)
            v = matrix.new_empty(cols).normal_(0, 1)
            self.register_buffer("_u", F.normalize(u, dim=0, eps=eps))
            self.register_buffer("_v", F.normalize(v, dim=0, eps=eps))
            self._power_method(matrix, 15)

    def _power_method(self, matrix: Tensor, n_power_iterations: int) -> None:
        with torch.no_grad():
            for _ in range(n_power_iterations):
                self._u.copy_(F.normalize(torch.mv(matrix, self._v), dim=0, eps=self.eps))
                self._v.copy_(F.normalize(torch.mv(matrix.t(), self._u), dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.dim() == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = as_matrix(weight, self.dim)
        if self.training:
            self._power_method(matrix, self.n_power_iterations)
        # Copies: the buffers change in place before backward needs them.
        u, v = self._u.clone(), self._v.clone()
        return weight / torch.dot(u, torch.mv(matrix, v))

    def right_inverse(self, value: Tensor) -> Tensor:
        """The weight itself: it is normalised on access."""
        return value


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Divide a parameter by its largest singular value."""
    weight = getattr(module, name, None)
    if not isinstance(weight, torch.Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    dim = default_dim(module) if dim is None else dim
    norm = _SpectralNorm(weight, n_power_iterations, dim, eps)
    return register_parametrization(module, name, norm)


class _Orthogonal(Module):
    """A matrix with orthonormal columns (or rows, if it is wide) from any matrix, around a fixed `base`."""

    def __init__(self, weight: Tensor, orthogonal_map: str, use_trivialization: bool) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape, self.orthogonal_map = weight.shape, orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        wide = X.size(-2) < X.size(-1)
        X = X.mT if wide else X
        Q = self._reflected(X) if self.orthogonal_map == "householder" else self._rotated(X)
        if hasattr(self, "base"):
            Q = self.base @ Q
        return Q.mT if wide else Q

    def _rotated(self, X: Tensor) -> Tensor:
        """The exponential, or Cayley's map, of the skew part of a square matrix; its first columns."""
        n, k = X.shape[-2:]
        X = F.pad(X.tril(), (0, n - k))
        A = X - X.mH
        if self.orthogonal_map == "matrix_exp":
            return torch.matrix_exp(A)[..., :k]
        eye = torch.eye(n, dtype=A.dtype, device=A.device)
        return torch.linalg.solve(eye - 0.5 * A, eye + 0.5 * A)[..., :k]

    def _reflected(self, X: Tensor) -> Tensor:
        """The product of the reflections below the diagonal; the diagonal holds signs."""
        A = X.tril(diagonal=-1)
        Q = torch.linalg.householder_product(A, 2.0 / (1.0 + (A * A).sum(dim=-2)))
        return Q * X.diagonal(dim1=-2, dim2=-1).int().unsqueeze(-2)

    @torch.no_grad()
    def right_inverse(self, Q: Tensor) -> Tensor:
        """What gives a matrix back that is orthogonal already; others are made orthogonal first."""
        if Q.shape != self.shape:
            raise ValueError(f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape "
                             f"{Q.shape}.")
        wide = Q.size(-2) < Q.size(-1)
        tall = Q.mT if wide else Q
        n, k = tall.shape[-2:]
        if hasattr(self, "base"):
            fill = torch.randn((*tall.shape[:-2], n, n - k), dtype=Q.dtype, device=Q.device)
            self.base = _orthonormal(torch.cat([tall, fill], dim=-1)) if n != k else _orthonormal(tall)
            start = torch.zeros_like(Q)
            start.diagonal(dim1=-2, dim2=-1).fill_(-1.0)    # every map takes minus the identity to the identity
            return start
        if self.orthogonal_map != "householder":
            raise NotImplementedError("It is not possible to assign to the matrix exponential or the Cayley "
                                      "parametrizations when use_trivialization=False.")
        A, tau = torch.geqrf(tall)
        signs = A.diagonal(dim1=-2, dim2=-1)
        signs.copy_(signs.sign() * torch.where(tau == 0.0, -1.0, 1.0))
        return A.mT if wide else A


def _orthonormal(A: Tensor) -> Tensor:
    """The orthogonal factor of A whose triangular factor has a positive diagonal: A itself, if it is orthogonal."""
    Q, R = torch.linalg.qr(A)
    return Q * R.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


def orthogonal(module: Module, name: str = "weight", orthogonal_map: str | None = None, *,
               use_trivialization: bool = True) -> Module:  # fmt: skip
    """Keep a parameter's matrix orthogonal (unitary, if it is complex)."""
    weight = getattr(module, name, None)
    if not isinstance(weight, torch.Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.ndim < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions.")
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1]
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    if orthogonal_map not in ("matrix_exp", "cayley", "householder"):
        raise ValueError('orthogonal_map has to be one of "matrix_exp", "cayley", "householder". '
                         f"Got: {orthogonal_map}")
    return register_parametrization(module, name, _Orthogonal(weight, orthogonal_map, use_trivialization), unsafe=True)
