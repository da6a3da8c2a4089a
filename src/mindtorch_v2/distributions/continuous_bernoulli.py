"""The continuous Bernoulli distribution: a density on [0, 1] in the place of 0 or 1."""
from __future__ import annotations

import math
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributions import constraints
from mindtorch_v2.distributions.discrete import _ProbsOrLogits
from mindtorch_v2.distributions.distribution import ExponentialFamily
from mindtorch_v2.distributions.utils import broadcast_all, clamp_probs, lazy_property, logits_to_probs, probs_to_logits  # noqa: F401  torch shows it here

Tensor = torch.Tensor
F = torch.nn.functional


class ContinuousBernoulli(_ProbsOrLogits, ExponentialFamily):
    """Density proportional to p^x (1 - p)^(1 - x). Near p = 1/2 the formulas divide 0 by 0: there their series serve."""

    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, probs: Any = None, logits: Any = None, lims: tuple[float, float] = (0.499, 0.501),
                 validate_args: bool | None = None) -> None:
        shape = self._take_one(probs, logits)
        super().__init__(shape, validate_args=validate_args)
        if probs is not None:
            self.probs = clamp_probs(self.probs)
        self._lims = lims

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new._lims = self._lims
        return new

    def _stable(self) -> Tensor:
        """Where the formulas hold."""
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _cut(self) -> Tensor:
        """The probabilities, those near 1/2 replaced by one that the formulas bear."""
        return torch.where(self._stable(), self.probs, torch.full_like(self.probs, self._lims[0]))

    def _log_norm(self) -> Tensor:
        cut, x = self._cut(), (self.probs - 0.5).square()
        below, above = cut.clamp(max=0.5), cut.clamp(min=0.5)
        scale = torch.where(cut <= 0.5, torch.log1p(-2.0 * below), torch.log(2.0 * above - 1.0))
        norm = torch.log((torch.log1p(-cut) - torch.log(cut)).abs()) - scale
        return torch.where(self._stable(), norm, math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x)

    @property
    def mean(self) -> Tensor:
        cut, x = self._cut(), self.probs - 0.5
        found = cut / (2.0 * cut - 1.0) + 1.0 / (torch.log1p(-cut) - torch.log(cut))
        return torch.where(self._stable(), found, 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x.square()) * x)

    @property
    def variance(self) -> Tensor:
        cut, x = self._cut(), (self.probs - 0.5).square()
        found = cut * (cut - 1.0) / (1.0 - 2.0 * cut).square() + 1.0 / (torch.log1p(-cut) - torch.log(cut)).square()
        return torch.where(self._stable(), found, 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x)

    @property
    def stddev(self) -> Tensor:
        return self.variance.sqrt()

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.icdf(torch.rand(shape, dtype=self.probs.dtype, device=self.probs.device))

    def log_prob(self, value: Tensor) -> Tensor:
        value, logits = broadcast_all(self._checked(value), self.logits)
        return -F.binary_cross_entropy_with_logits(logits, value, reduction="none") + self._log_norm()

    def cdf(self, value: Tensor) -> Tensor:
        value, cut = self._checked(value), self._cut()
        found = (cut.pow(value) * (1.0 - cut).pow(1.0 - value) + cut - 1.0) / (2.0 * cut - 1.0)
        found = torch.where(self._stable(), found, value)
        return torch.where(value <= 0, 0.0, torch.where(value >= 1, 1.0, found))

    def icdf(self, value: Tensor) -> Tensor:
        cut = self._cut()
        found = (torch.log1p(-cut + value * (2.0 * cut - 1.0)) - torch.log1p(-cut)) / (torch.log(cut) - torch.log1p(-cut))
        return torch.where(self._stable(), found, value)

    def entropy(self) -> Tensor:
        none, one = torch.log1p(-self.probs), torch.log(self.probs)
        return self.mean * (none - one) - self._log_norm() - none
