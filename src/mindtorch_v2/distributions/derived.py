"""Distributions made of others: Independent, transformed ones, and those that torch builds by transforming."""
from __future__ import annotations

import math
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributions import constraints, transforms
from mindtorch_v2.distributions.continuous import Cauchy, Exponential, Normal, Uniform
from mindtorch_v2.distributions.distribution import Distribution
from mindtorch_v2.distributions.gamma import Gamma
from mindtorch_v2.distributions.utils import sum_rightmost

Tensor = torch.Tensor


class Independent(Distribution):
    """A distribution whose last batch dimensions belong to the event."""

    def __init__(self, base_distribution: Distribution, reinterpreted_batch_ndims: int,
                 validate_args: bool | None = None) -> None:
        dims = reinterpreted_batch_ndims
        if dims > len(base_distribution.batch_shape):
            raise ValueError("Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), actual "
                             f"{dims} vs {len(base_distribution.batch_shape)}")
        shape, cut = base_distribution.batch_shape + base_distribution.event_shape, \
            len(base_distribution.batch_shape) - dims
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, dims
        super().__init__(shape[:cut], shape[cut:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(Independent, _instance)
        batch_shape = torch.Size(batch_shape)
        new.base_dist = self.base_dist.expand(batch_shape + self._event_shape[:self.reinterpreted_batch_ndims])
        new.reinterpreted_batch_ndims = self.reinterpreted_batch_ndims
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    has_rsample = property(lambda self: self.base_dist.has_rsample)
    has_enumerate_support = property(
        lambda self: self.reinterpreted_batch_ndims == 0 and self.base_dist.has_enumerate_support)
    mean = property(lambda self: self.base_dist.mean)
    mode = property(lambda self: self.base_dist.mode)
    variance = property(lambda self: self.base_dist.variance)

    @constraints.dependent_property
    def support(self) -> constraints.Constraint:
        base, dims = self.base_dist.support, self.reinterpreted_batch_ndims
        return constraints.independent(base, dims) if dims else base

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        if self.reinterpreted_batch_ndims > 0:
            raise NotImplementedError("Enumeration over cartesian product is not implemented")
        return self.base_dist.enumerate_support(expand=expand)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_dist}, {self.reinterpreted_batch_ndims})"


class TransformedDistribution(Distribution):
    """What comes out when samples of a base distribution go through transforms."""

    def __init__(self, base_distribution: Distribution, transforms_: Any = None, validate_args: bool | None = None,
                 **given: Any) -> None:
        chain = given.pop("transforms", transforms_)
        if given:
            raise TypeError(f"unexpected arguments {sorted(given)}")
        chain = [chain] if isinstance(chain, transforms.Transform) else chain
        if not isinstance(chain, list) or not all(isinstance(t, transforms.Transform) for t in chain):
            raise ValueError(f"transforms must be a Transform or a list of Transforms, but was {chain}")
        self.transforms = chain
        whole = transforms.ComposeTransform(chain)
        base_shape = base_distribution.batch_shape + base_distribution.event_shape
        forward = whole.forward_shape(base_shape)
        wanted = whole.inverse_shape(forward)
        if tuple(base_shape) != tuple(wanted):       # the parameters of a transform add batch dimensions
            cut = len(wanted) - len(base_distribution.event_shape)
            base_distribution = base_distribution.expand(wanted[:cut])
        extra = whole.domain.event_dim - len(base_distribution.event_shape)
        if extra > 0:
            base_distribution = Independent(base_distribution, extra)
        self.base_dist = base_distribution
        more = max(len(base_distribution.event_shape) - whole.domain.event_dim, 0)
        cut = len(forward) - (whole.codomain.event_dim + more)
        super().__init__(forward[:cut], forward[cut:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(TransformedDistribution, _instance)
        new.transforms = self.transforms
        shape = transforms.ComposeTransform(self.transforms).inverse_shape(torch.Size(batch_shape) + self._event_shape)
        new.base_dist = self.base_dist.expand(shape[:len(shape) - len(self.base_dist.event_shape)])
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    has_rsample = property(lambda self: self.base_dist.has_rsample)

    @constraints.dependent_property
    def support(self) -> Any:
        if not self.transforms:
            return self.base_dist.support
        codomain = self.transforms[-1].codomain
        extra = len(self._event_shape) - codomain.event_dim
        return constraints.independent(codomain, extra) if extra > 0 else codomain

    def _forward(self, x: Tensor) -> Tensor:
        for transform in self.transforms:
            x = transform(x)
        return x

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with torch.no_grad():
            return self._forward(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self._forward(self.base_dist.rsample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        y, event_dim = self._checked(value), len(self._event_shape)
        total: Any = 0.0
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            event_dim += transform.domain.event_dim - transform.codomain.event_dim
            total = total - sum_rightmost(transform.log_abs_det_jacobian(x, y), event_dim - transform.domain.event_dim)
            y = x
        return total + sum_rightmost(self.base_dist.log_prob(y), event_dim - len(self.base_dist.event_shape))

    def _mirrored(self, value: Tensor) -> Tensor:
        """Probabilities counted from the other end where the transforms turn the order round."""
        sign = math.prod(transform.sign for transform in self.transforms)
        return value if isinstance(sign, int) and sign == 1 else sign * (value - 0.5) + 0.5

    def cdf(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        return self._mirrored(self.base_dist.cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        return self._forward(self.base_dist.icdf(self._mirrored(value)))


class _OverBase(TransformedDistribution):
    """A transformed distribution with parameters of its own; expanding makes it anew from the expanded ones."""

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        values = {name: getattr(self, name).expand(batch_shape) for name in self.arg_constraints}
        return type(self)(**values, validate_args=self._validate_args)

    def __repr__(self) -> str:
        def shown(value: Tensor) -> str:
            return f"{value if value.numel() == 1 else value.size()}"
        named = [f"{n}: {shown(self.__dict__[n])}" for n in self.arg_constraints if n in self.__dict__]
        return f"{type(self).__name__}({', '.join(named)})"


class LogNormal(_OverBase):
    """The exponential of a normal variable."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(loc, scale, validate_args), transforms.ExpTransform(), validate_args=validate_args)

    loc = property(lambda self: self.base_dist.loc)
    scale = property(lambda self: self.base_dist.scale)

    @property
    def mean(self) -> Tensor:
        return (self.loc + self.scale.pow(2) / 2).exp()

    @property
    def mode(self) -> Tensor:
        return (self.loc - self.scale.square()).exp()

    @property
    def variance(self) -> Tensor:
        spread = self.scale.pow(2)
        return spread.expm1() * (2 * self.loc + spread).exp()

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc


class _Half(_OverBase):
    """The absolute value of a symmetric variable around zero: its density is twice the base's."""

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _base: Any

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(self._base(0, scale, validate_args=False), transforms.AbsTransform(),
                         validate_args=validate_args)

    scale = property(lambda self: self.base_dist.scale)

    @property
    def mode(self) -> Tensor:
        return torch.zeros_like(self.scale)

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        return torch.where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -torch.inf)

    def cdf(self, value: Tensor) -> Tensor:
        return 2 * self.base_dist.cdf(self._checked(value)) - 1

    def icdf(self, value: Tensor) -> Tensor:
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)


class HalfNormal(_Half):
    """The absolute value of a normal variable."""

    _base = Normal

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        return self.scale.pow(2) * (1 - 2 / math.pi)


class HalfCauchy(_Half):
    """The absolute value of a Cauchy variable."""

    _base = Cauchy

    @property
    def mean(self) -> Tensor:
        return torch.full_like(self.scale, math.inf)

    @property
    def variance(self) -> Tensor:
        return torch.full_like(self.scale, math.inf)


class Gumbel(_OverBase):
    """The Gumbel distribution of extremes."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    loc: Tensor
    scale: Tensor

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        loc, scale = self._take(loc=loc, scale=scale)
        finfo = torch.finfo(loc.dtype)
        base = Uniform(torch.full_like(loc, finfo.tiny), torch.full_like(loc, 1 - finfo.eps), validate_args)
        log = transforms.ExpTransform().inv
        super().__init__(base, [log, transforms.AffineTransform(0, -torch.ones_like(scale)), log,
                                transforms.AffineTransform(loc, -scale)], validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * 0.57721566490153286060      # Euler's constant

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return math.pi / math.sqrt(6) * self.scale

    @property
    def variance(self) -> Tensor:
        return self.stddev.pow(2)

    def log_prob(self, value: Tensor) -> Tensor:
        z = (self.loc - self._checked(value)) / self.scale
        return z - z.exp() - self.scale.log()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + 0.57721566490153286060)


class Weibull(_OverBase):
    """The Weibull distribution."""

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive
    scale: Tensor
    concentration: Tensor

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        scale, concentration = self._take(scale=scale, concentration=concentration)
        super().__init__(Exponential(torch.ones_like(scale), validate_args),
                         [transforms.PowerTransform(concentration.reciprocal()), transforms.AffineTransform(0, scale)],
                         validate_args=validate_args)

    def _moment(self, k: int) -> Tensor:
        return torch.exp(torch.lgamma(1 + k / self.concentration))

    @property
    def mean(self) -> Tensor:
        return self.scale * self._moment(1)

    @property
    def mode(self) -> Tensor:
        return self.scale * ((self.concentration - 1) / self.concentration) ** self.concentration.reciprocal()

    @property
    def variance(self) -> Tensor:
        return self.scale.pow(2) * (self._moment(2) - self._moment(1).pow(2))

    def entropy(self) -> Tensor:
        inverse = self.concentration.reciprocal()
        return 0.57721566490153286060 * (1 - inverse) + torch.log(self.scale * inverse) + 1


class Pareto(_OverBase):
    """The Pareto distribution of the first kind."""

    arg_constraints = {"alpha": constraints.positive, "scale": constraints.positive}
    scale: Tensor
    alpha: Tensor

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        scale, alpha = self._take(scale=scale, alpha=alpha)
        super().__init__(Exponential(alpha, validate_args),
                         [transforms.ExpTransform(), transforms.AffineTransform(0, scale)],
                         validate_args=validate_args)

    @constraints.dependent_property
    def support(self) -> constraints.Constraint:
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self) -> Tensor:
        return torch.where(self.alpha > 1, self.alpha * self.scale / (self.alpha - 1), math.inf)

    @property
    def mode(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        a = self.alpha
        return torch.where(a > 2, self.scale.pow(2) * a / ((a - 1).pow(2) * (a - 2)), math.inf)

    def entropy(self) -> Tensor:
        return (self.scale / self.alpha).log() + 1 + self.alpha.reciprocal()


class InverseGamma(_OverBase):
    """The reciprocal of a gamma variable."""

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        super().__init__(Gamma(concentration, rate, validate_args), transforms.PowerTransform(-1.0),
                         validate_args=validate_args)
        power = self.transforms[0]
        power.exponent = power.exponent.to(self.rate)

    concentration = property(lambda self: self.base_dist.concentration)
    rate = property(lambda self: self.base_dist.rate)

    @property
    def mean(self) -> Tensor:
        return torch.where(self.concentration > 1, self.rate / (self.concentration - 1), torch.inf)

    @property
    def mode(self) -> Tensor:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        a = self.concentration
        return torch.where(a > 2, self.rate.square() / ((a - 1).square() * (a - 2)), torch.inf)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (1 + a) * a.digamma()
