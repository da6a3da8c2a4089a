"""The normal distribution of a long vector whose covariance is a thin matrix times its transpose, plus a diagonal."""
from __future__ import annotations

import math
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributions import constraints
from mindtorch_v2.distributions.distribution import Centered, Distribution  # noqa: F401  torch shows it here
from mindtorch_v2.distributions.multivariate_normal import half_log_det, mahalanobis
from mindtorch_v2.distributions.utils import lazy_property, standard_normal

Tensor = torch.Tensor


class LowRankMultivariateNormal(Centered):
    """Covariance W W^T + D. All computing is done with the small matrix I + W^T D^-1 W, the capacitance."""

    arg_constraints = {"loc": constraints.real_vector, "cov_factor": constraints.independent(constraints.real, 2),
                       "cov_diag": constraints.independent(constraints.positive, 1)}
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        event = loc.shape[-1:]
        if cov_factor.dim() < 2:
            raise ValueError("cov_factor must be at least two-dimensional, with optional leading batch dimensions")
        if cov_factor.shape[-2:-1] != event:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {event[0]} x m")
        if cov_diag.shape[-1:] != event:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {event}")
        batch = torch.broadcast_shapes(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        self.loc = loc.expand(batch + event)
        self.cov_factor, self.cov_diag = cov_factor.expand(batch + cov_factor.shape[-2:]), cov_diag.expand(batch + event)
        super().__init__(batch, event, validate_args=validate_args)
        self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag = cov_factor, cov_diag
        scaled = cov_factor.mT / cov_diag.unsqueeze(-2)
        eye = torch.eye(cov_factor.shape[-1], dtype=loc.dtype, device=loc.device)
        self._capacitance_tril = torch.linalg.cholesky(scaled @ cov_factor + eye)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        for name in ("_unbroadcasted_cov_factor", "_unbroadcasted_cov_diag", "_capacitance_tril"):
            setattr(new, name, getattr(self, name))
        return new

    @lazy_property
    def variance(self) -> Tensor:
        found = self._unbroadcasted_cov_factor.square().sum(-1) + self._unbroadcasted_cov_diag
        return found.expand(self._batch_shape + self._event_shape)

    def _matrix(self, found: Tensor) -> Tensor:
        return found.expand(self._batch_shape + self._event_shape + self._event_shape)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        factor = self._unbroadcasted_cov_factor
        return self._matrix(factor @ factor.mT + torch.diag_embed(self._unbroadcasted_cov_diag))

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The Cholesky factor of the covariance."""
        root = self._unbroadcasted_cov_diag.sqrt().unsqueeze(-1)
        scaled = self._unbroadcasted_cov_factor / root
        eye = torch.eye(self._event_shape[0], dtype=root.dtype, device=root.device)
        return self._matrix(root * torch.linalg.cholesky(scaled @ scaled.mT + eye))

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        scaled = self._unbroadcasted_cov_factor.mT / self._unbroadcasted_cov_diag.unsqueeze(-2)
        half = torch.linalg.solve_triangular(self._capacitance_tril, scaled, upper=False)
        return self._matrix(torch.diag_embed(self._unbroadcasted_cov_diag.reciprocal()) - half.mT @ half)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        along = standard_normal(shape[:-1] + self.cov_factor.shape[-1:], self.loc)
        own = standard_normal(shape, self.loc)
        return (self.loc + (self._unbroadcasted_cov_factor @ along.unsqueeze(-1)).squeeze(-1)
                + self._unbroadcasted_cov_diag.sqrt() * own)

    def _log_det(self) -> Tensor:
        return 2 * half_log_det(self._capacitance_tril) + self._unbroadcasted_cov_diag.log().sum(-1)

    def _distance(self, difference: Tensor) -> Tensor:
        """The squared length of a difference in units of the spread."""
        scaled = self._unbroadcasted_cov_factor.mT / self._unbroadcasted_cov_diag.unsqueeze(-2)
        along = (scaled @ difference.unsqueeze(-1)).squeeze(-1)
        whole = (difference.square() / self._unbroadcasted_cov_diag).sum(-1)
        return whole - mahalanobis(self._capacitance_tril, along)

    def log_prob(self, value: Tensor) -> Tensor:
        distance = self._distance(self._checked(value) - self.loc)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + self._log_det() + distance)

    def entropy(self) -> Tensor:
        found = 0.5 * (self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + self._log_det())
        return found.expand(self._batch_shape)
