"""The normal distribution of a vector, by covariance, precision or Cholesky factor."""
from __future__ import annotations

import math
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributions import constraints
from mindtorch_v2.distributions.distribution import Centered, Distribution  # noqa: F401  torch shows it here
from mindtorch_v2.distributions.utils import lazy_property, standard_normal

Tensor = torch.Tensor


def mahalanobis(factor: Tensor, difference: Tensor) -> Tensor:
    """The squared length of a difference in units of the factor's spread; both may have batches."""
    solved = torch.linalg.solve_triangular(*_aligned(factor, difference.unsqueeze(-1)), upper=False)
    return solved.squeeze(-1).pow(2).sum(-1)


def _aligned(factor: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    batch = torch.broadcast_shapes(factor.shape[:-2], columns.shape[:-2])
    return factor.expand(batch + factor.shape[-2:]), columns.expand(batch + columns.shape[-2:])


def half_log_det(factor: Tensor) -> Tensor:
    """Half the log determinant of the covariance."""
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


class MultivariateNormal(Centered):
    """The multivariate normal distribution; the Cholesky factor of the covariance is what it computes with."""

    arg_constraints = {"loc": constraints.real_vector, "covariance_matrix": constraints.positive_definite,
                       "precision_matrix": constraints.positive_definite, "scale_tril": constraints.lower_cholesky}
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc: Tensor, covariance_matrix: Tensor | None = None, precision_matrix: Tensor | None = None,
                 scale_tril: Tensor | None = None, validate_args: bool | None = None) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        forms = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix, "scale_tril": scale_tril}
        given = {name: value for name, value in forms.items() if value is not None}
        if len(given) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        (name, matrix), = given.items()
        if matrix.dim() < 2:
            raise ValueError(f"{name} must be at least two-dimensional, with optional leading batch dimensions")
        batch = torch.broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        self.loc = loc.expand(batch + loc.shape[-1:])
        setattr(self, name, matrix.expand(batch + matrix.shape[-2:]))
        super().__init__(batch, loc.shape[-1:], validate_args=validate_args)
        self._unbroadcasted_scale_tril = self._factor(name, matrix)

    @staticmethod
    def _factor(name: str, matrix: Tensor) -> Tensor:
        if name == "scale_tril":
            return matrix
        if name == "covariance_matrix":
            return torch.linalg.cholesky(matrix)
        # The inverse of a factor of the precision, flipped in both directions, is lower triangular again.
        flipped = torch.linalg.cholesky(matrix.flip((-2, -1))).flip((-2, -1)).mT
        eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
        return torch.linalg.solve_triangular(flipped, eye.expand(matrix.shape), upper=False)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril
        return new

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The Cholesky factor of the covariance."""
        factor = self._unbroadcasted_scale_tril
        return factor.expand(self._batch_shape + factor.shape[-2:])

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        factor = self._unbroadcasted_scale_tril
        return (factor @ factor.mT).expand(self._batch_shape + factor.shape[-2:])

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        factor = self._unbroadcasted_scale_tril
        return torch.cholesky_inverse(factor).expand(self._batch_shape + factor.shape[-2:])

    @property
    def variance(self) -> Tensor:
        return self._unbroadcasted_scale_tril.pow(2).sum(-1).expand(self._batch_shape + self._event_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        z = standard_normal(self._extended_shape(sample_shape), self.loc)
        return self.loc + (self._unbroadcasted_scale_tril @ z.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        factor = self._unbroadcasted_scale_tril
        distance = mahalanobis(factor, self._checked(value) - self.loc)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + distance) - half_log_det(factor)

    def entropy(self) -> Tensor:
        half = half_log_det(self._unbroadcasted_scale_tril)
        return (0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + half).expand(self._batch_shape)
