"""Distributions over [0, 1] and the simplex that are transforms of others: Kumaraswamy's and the logistic normal."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributions import constraints, transforms
from mindtorch_v2.distributions.continuous import Normal, Uniform
from mindtorch_v2.distributions.derived import TransformedDistribution, _OverBase
from mindtorch_v2.distributions.utils import broadcast_all, euler_constant

Tensor = torch.Tensor


class Kumaraswamy(_OverBase):
    """Much like Beta, with a cdf that can be inverted: 1 - (1 - x^a)^b."""

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        a, b = self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        chain = [transforms.PowerTransform(b.reciprocal()), transforms.AffineTransform(1.0, -1.0),
                 transforms.PowerTransform(a.reciprocal())]
        base = Uniform(torch.zeros_like(b), torch.ones_like(b), validate_args=validate_args)
        super().__init__(base, chain, validate_args=validate_args)

    def _moment(self, n: int) -> Tensor:
        at = 1 + n / self.concentration1
        b = self.concentration0
        return b * torch.exp(torch.lgamma(at) + torch.lgamma(b) - torch.lgamma(at + b))

    @property
    def mean(self) -> Tensor:
        return self._moment(1)

    @property
    def variance(self) -> Tensor:
        return self._moment(2) - self.mean.square()

    @property
    def mode(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        found = (b.reciprocal() * (-b).log1p() - (-b * a).log1p()).exp()
        return torch.where((a < 1) | (b < 1), torch.nan, found)

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return (1 - b.reciprocal()) + (1 - a.reciprocal()) * (torch.digamma(b + 1) + euler_constant) - a.log() - b.log()


class LogisticNormal(TransformedDistribution):
    """Parts of a whole whose log ratios are normal."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        base = base if base.batch_shape else base.expand([1])
        super().__init__(base, transforms.StickBreakingTransform(), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return super().expand(batch_shape, self._get_checked_instance(LogisticNormal, _instance))

    loc = property(lambda self: self.base_dist.base_dist.loc)
    scale = property(lambda self: self.base_dist.base_dist.scale)
