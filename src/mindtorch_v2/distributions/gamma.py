"""The gamma family: Gamma, Chi2, Beta, Dirichlet, FisherSnedecor and InverseGamma's base."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributions import constraints
from mindtorch_v2.distributions.distribution import Distribution, ExponentialFamily
from mindtorch_v2.distributions.utils import broadcast_all

Tensor = torch.Tensor


class Gamma(ExponentialFamily):
    """The gamma distribution with a concentration (shape) and a rate (1 / scale)."""

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support: Any = constraints.nonnegative
    has_rsample = True
    concentration: Tensor
    rate: Tensor

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        shape = self._take(concentration=concentration, rate=rate)[0].shape
        super().__init__(shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate.pow(2)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return torch._standard_gamma(self.concentration.expand(shape)) / self.rate.expand(shape)

    def log_prob(self, value: Tensor) -> Tensor:
        value, a = self._checked(torch.as_tensor(value, dtype=self.rate.dtype, device=self.rate.device)), \
            self.concentration
        return torch.xlogy(a, self.rate) + torch.xlogy(a - 1, value) - self.rate * value - torch.lgamma(a)

    def cdf(self, value: Tensor) -> Tensor:
        return torch.special.gammainc(self.concentration, self.rate * self._checked(value))

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - torch.log(self.rate) + torch.lgamma(a) + (1.0 - a) * torch.digamma(a)


class Chi2(Gamma):
    """The chi-squared distribution: Gamma(df / 2, 1 / 2)."""

    arg_constraints = {"df": constraints.positive}
    _stored = ("concentration", "rate")

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    @property
    def df(self) -> Tensor:
        """The degrees of freedom."""
        return self.concentration * 2


class Dirichlet(ExponentialFamily):
    """The Dirichlet distribution over the simplex."""

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        concentration = self.concentration.expand(self._extended_shape(sample_shape))
        parts = torch._standard_gamma(concentration.double())
        parts = parts / parts.sum(-1, keepdim=True)
        return parts.clamp(torch.finfo(concentration.dtype).tiny, 1 - torch.finfo(torch.float32).eps / 2).to(concentration.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        a = self.concentration
        return (torch.xlogy(a - 1.0, self._checked(value)).sum(-1) + torch.lgamma(a.sum(-1)) - torch.lgamma(a).sum(-1))

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> Tensor:
        above = (self.concentration - 1).clamp(min=0.0)
        mode = above / above.sum(-1, True)
        corner = torch.nn.functional.one_hot(mode.argmax(-1), above.shape[-1]).to(mode)
        return torch.where((self.concentration < 1).all(-1, keepdim=True), corner, mode)

    @property
    def variance(self) -> Tensor:
        a, total = self.concentration, self.concentration.sum(-1, True)
        return a * (total - a) / (total.pow(2) * (total + 1))

    def entropy(self) -> Tensor:
        a, k = self.concentration, self.concentration.size(-1)
        total = a.sum(-1)
        return (torch.lgamma(a).sum(-1) - torch.lgamma(total) - (k - total) * torch.digamma(total)
                - ((a - 1.0) * torch.digamma(a)).sum(-1))


class Beta(ExponentialFamily):
    """The beta distribution: the first part of a two-part Dirichlet."""

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self._dirichlet = Dirichlet(torch.stack(broadcast_all(concentration1, concentration0), -1), validate_args=False)
        super().__init__(self._dirichlet._batch_shape, validate_args=validate_args)

    def _check_arguments(self) -> None:
        for name, constraint in self.arg_constraints.items():
            value = getattr(self, name)
            if not constraint.check(value)._of_all_samples().all():
                raise ValueError(
                    f"Expected parameter {name} (Tensor of shape {tuple(value.shape)}) of distribution {self!r} to "
                    f"satisfy the constraint {constraint!r}, but found invalid values:\n{value}")

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(Beta, _instance)
        new._dirichlet = self._dirichlet.expand(batch_shape)
        Distribution.__init__(new, batch_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @property
    def concentration1(self) -> Tensor:
        """The weight of 1."""
        return self._dirichlet.concentration[..., 0]

    @property
    def concentration0(self) -> Tensor:
        """The weight of 0."""
        return self._dirichlet.concentration[..., 1]

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Tensor:
        return self._dirichlet.mode[..., 0]

    @property
    def variance(self) -> Tensor:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total.pow(2) * (total + 1))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self._dirichlet.rsample(sample_shape).select(-1, 0)

    def log_prob(self, value: Tensor) -> Tensor:
        return self._dirichlet.log_prob(torch.stack([self._checked(value), 1.0 - value], -1))

    def entropy(self) -> Tensor:
        return self._dirichlet.entropy()


class FisherSnedecor(Distribution):
    """The F distribution: a ratio of two chi-squared variables."""

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True
    df1: Tensor
    df2: Tensor

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        super().__init__(self._take(df1=df1, df2=df2)[0].shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return torch.where(self.df2 > 2, self.df2 / (self.df2 - 2), torch.nan)

    @property
    def mode(self) -> Tensor:
        return torch.where(self.df1 > 2, (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2), torch.nan)

    @property
    def variance(self) -> Tensor:
        a, b = self.df1, self.df2
        return torch.where(b > 4, 2 * b.pow(2) * (a + b - 2) / (a * (b - 2).pow(2) * (b - 4)), torch.nan)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        above, below = (Gamma(df * 0.5, df * 0.5).rsample(sample_shape) for df in (self.df1, self.df2))
        tiny = torch.finfo(above.dtype).tiny
        return (above / below.clamp(min=tiny)).clamp(min=tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        a, b = self.df1 * 0.5, self.df2 * 0.5
        ratio, value = self.df1 / self.df2, self._checked(value)
        return (torch.lgamma(a + b) - torch.lgamma(a) - torch.lgamma(b) + a * ratio.log() + (a - 1) * value.log()
                - (a + b) * torch.log1p(ratio * value))
