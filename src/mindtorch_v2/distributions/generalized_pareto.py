"""The generalized Pareto distribution: the tail beyond a threshold."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributions import constraints
from mindtorch_v2.distributions.distribution import Distribution
from mindtorch_v2.distributions.utils import broadcast_all  # noqa: F401  torch shows it here

Tensor = torch.Tensor


class GeneralizedPareto(Distribution):
    """Survival (1 + c (x - loc) / scale) ^ (-1 / c); where c is 0 an exponential."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real}
    has_rsample = True
    loc: Tensor
    scale: Tensor
    concentration: Tensor

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        loc, _, _ = self._take(loc=loc, scale=scale, concentration=concentration)
        super().__init__(loc.shape, validate_args=validate_args)

    @constraints.dependent_property
    def support(self) -> Any:
        c = self.concentration
        upper = torch.where(c < 0, self.loc - self.scale / c, torch.inf)
        return constraints.interval(self.loc, upper)

    def _exponential(self) -> Tensor:
        return torch.isclose(self.concentration, torch.zeros_like(self.concentration))

    def _nonzero(self) -> Tensor:
        """The concentration, 1 in the place of those that are about 0."""
        return torch.where(self._exponential(), torch.ones_like(self.concentration), self.concentration)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.icdf(torch.rand(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device))

    def log_prob(self, value: Tensor) -> Tensor:
        z, c = (self._checked(value) - self.loc) / self.scale, self._nonzero()
        found = torch.where(self._exponential(), -z, -(1 + 1 / c) * torch.log1p(c * z))
        return found - self.scale.log()

    def log_survival_function(self, value: Tensor) -> Tensor:
        """The logarithm of the probability of more than a value."""
        z, c = (self._checked(value) - self.loc) / self.scale, self._nonzero()
        return torch.where(self._exponential(), -z, -torch.log1p(c * z) / c)

    def log_cdf(self, value: Tensor) -> Tensor:
        """The logarithm of cdf()."""
        return torch.log1p(-torch.exp(self.log_survival_function(value)))

    def cdf(self, value: Tensor) -> Tensor:
        return torch.exp(self.log_cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        c, log = self._nonzero(), torch.log1p(-value)
        return self.loc + self.scale * torch.where(self._exponential(), -log, torch.expm1(-c * log) / c)

    @property
    def mean(self) -> Tensor:
        c = self.concentration
        return torch.where(c < 1, self.loc + self.scale / (1 - c), torch.nan)

    @property
    def variance(self) -> Tensor:
        c = self.concentration
        return torch.where(c < 0.5, self.scale.square() / ((1 - c).square() * (1 - 2 * c)), torch.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    def entropy(self) -> Tensor:
        return self.scale.log() + self.concentration + 1
