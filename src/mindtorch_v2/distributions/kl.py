"""Kullback-Leibler divergences between pairs of distributions, found by their classes."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributions.continuous import Cauchy, Exponential, Laplace, Normal, Uniform
from mindtorch_v2.distributions.continuous_bernoulli import ContinuousBernoulli
from mindtorch_v2.distributions.derived import (
    Gumbel,
    HalfNormal,
    Independent,
    LogNormal,
    Pareto,
    TransformedDistribution,
)
from mindtorch_v2.distributions.discrete import (
    Bernoulli,
    Binomial,
    Categorical,
    Geometric,
    OneHotCategorical,
    Poisson,
)
from mindtorch_v2.distributions.distribution import Distribution, ExponentialFamily  # noqa: F401  torch shows it here
from mindtorch_v2.distributions.gamma import Beta, Dirichlet, Gamma
from mindtorch_v2.distributions.lowrank_multivariate_normal import LowRankMultivariateNormal
from mindtorch_v2.distributions.multivariate_normal import MultivariateNormal, half_log_det, mahalanobis
from mindtorch_v2.distributions.utils import euler_constant, sum_rightmost

Tensor = torch.Tensor
_Formula = Callable[[Any, Any], Tensor]
_formulas: dict[tuple[type, type], _Formula] = {}
_KL_REGISTRY = _formulas                         # torch's name for it

__all__ = ["kl_divergence", "register_kl"]


def register_kl(type_p: type, type_q: type) -> Callable[[_Formula], _Formula]:
    """A decorator: this function computes KL(p || q) for the two classes and their subclasses."""
    for kind in (type_p, type_q):
        if not isinstance(kind, type):       # any class, as torch does: pyro's Distribution is not derived from torch's
            raise TypeError(f"Expected a Distribution subclass but got {kind}")

    def register(formula: _Formula) -> _Formula:
        _formulas[type_p, type_q] = formula
        return formula
    return register


def _find(p: type, q: type) -> _Formula | None:
    """The formula of the nearest classes; the class of p counts more."""
    for kind_p in p.__mro__:
        for kind_q in q.__mro__:
            if (kind_p, kind_q) in _formulas:
                return _formulas[kind_p, kind_q]
    return None


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """KL(p || q)."""
    formula = _find(type(p), type(q))
    if formula is None:
        raise NotImplementedError(f"No KL(p || q) is implemented for p type {p.__class__.__name__} and q type "
                                  f"{q.__class__.__name__}")
    return formula(p, q)


@register_kl(Normal, Normal)
def _normal(p: Any, q: Any) -> Tensor:
    ratio = (p.scale / q.scale).pow(2)
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).pow(2) - 1 - ratio.log())


@register_kl(LogNormal, LogNormal)
def _log_normal(p: Any, q: Any) -> Tensor:
    return _normal(p.base_dist, q.base_dist)


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: Any, q: Any) -> Tensor:
    return _normal(p.base_dist, q.base_dist)


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Any, q: Any) -> Tensor:
    softplus = torch.nn.functional.softplus
    one = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    one = torch.where(q.probs == 0, torch.inf, one)
    zero = (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))
    zero = torch.where(q.probs == 1, torch.inf, zero)
    return torch.where(p.probs == 0, 0.0, one) + torch.where(p.probs == 1, 0.0, zero)


@register_kl(Binomial, Binomial)
def _binomial(p: Any, q: Any) -> Tensor:
    if (p.total_count < q.total_count).any():
        raise NotImplementedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    kl = p.total_count * (p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p())
    return torch.where(p.total_count > q.total_count, torch.inf, kl)


@register_kl(Categorical, Categorical)
def _categorical(p: Any, q: Any) -> Tensor:
    terms = p.probs * (p.logits - q.logits)
    terms = torch.where(q.probs == 0, torch.inf, terms)
    return torch.where(p.probs == 0, 0.0, terms).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: Any, q: Any) -> Tensor:
    return _categorical(p._categorical, q._categorical)


@register_kl(Geometric, Geometric)
def _geometric(p: Any, q: Any) -> Tensor:
    return -p.entropy() - torch.log1p(-q.probs) / p.probs - q.logits


@register_kl(Poisson, Poisson)
def _poisson(p: Any, q: Any) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Gamma, Gamma)
def _gamma(p: Any, q: Any) -> Tensor:
    a, b = p.concentration, q.concentration
    return (b * (p.rate / q.rate).log() + torch.lgamma(b) - torch.lgamma(a) + (a - b) * torch.digamma(a)
            + (q.rate - p.rate) * (a / p.rate))


@register_kl(Beta, Beta)
def _beta(p: Any, q: Any) -> Tensor:
    return _dirichlet(p._dirichlet, q._dirichlet)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Any, q: Any) -> Tensor:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    return (total.lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
            + ((a - b) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1))


@register_kl(Exponential, Exponential)
def _exponential(p: Any, q: Any) -> Tensor:
    ratio = q.rate / p.rate
    return -ratio.log() + ratio - 1


@register_kl(Laplace, Laplace)
def _laplace(p: Any, q: Any) -> Tensor:
    distance = (p.loc - q.loc).abs()
    return (-torch.log(p.scale / q.scale) + distance / q.scale
            + p.scale / q.scale * torch.exp(-distance / p.scale) - 1)


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Any, q: Any) -> Tensor:
    return (((p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)).log() - (4 * p.scale * q.scale).log())


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Any, q: Any) -> Tensor:
    ratio, euler = p.scale / q.scale, euler_constant
    shift = (q.loc - p.loc) / q.scale
    return -ratio.log() - shift + ratio * euler + torch.exp(shift + torch.lgamma(1 + ratio)) - (1 + euler)


@register_kl(Pareto, Pareto)
def _pareto(p: Any, q: Any) -> Tensor:
    ratio = p.scale / q.scale
    kl = q.alpha * ratio.log() + torch.log(p.alpha / q.alpha) + q.alpha / p.alpha - 1
    return torch.where(p.scale < q.scale, torch.inf, kl)


@register_kl(Uniform, Uniform)
def _uniform(p: Any, q: Any) -> Tensor:
    kl = ((q.high - q.low) / (p.high - p.low)).log()
    return torch.where((q.low > p.low) | (q.high < p.high), torch.inf, kl)


@register_kl(Uniform, Normal)
def _uniform_normal(p: Any, q: Any) -> Tensor:
    width = p.high - p.low
    distance = ((p.high + p.low - 2 * q.loc) / 2).pow(2) + width.pow(2) / 12
    return (math.sqrt(2 * math.pi) * q.scale / width).log() + distance / (2 * q.scale.pow(2))


@register_kl(Normal, Laplace)
def _normal_laplace(p: Any, q: Any) -> Tensor:
    shift, ratio = p.loc - q.loc, p.scale / q.scale
    folded = math.sqrt(2 / math.pi) * p.scale * torch.exp(-0.5 * (shift / p.scale).pow(2)) \
        + shift * torch.erf(math.sqrt(0.5) * shift / p.scale)
    return -ratio.log() + folded / q.scale - 0.5 - 0.5 * math.log(0.5 * math.pi)


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate_normal(p: Any, q: Any) -> Tensor:
    if p.event_shape != q.event_shape:
        raise ValueError("KL-divergence between two Multivariate Normals with different event shapes cannot be "
                         "computed")
    ours, theirs = p._unbroadcasted_scale_tril, q._unbroadcasted_scale_tril
    batch = torch.broadcast_shapes(ours.shape[:-2], theirs.shape[:-2])
    ours, theirs = ours.expand(batch + ours.shape[-2:]), theirs.expand(batch + theirs.shape[-2:])
    trace = torch.linalg.solve_triangular(theirs, ours, upper=False).pow(2).sum((-2, -1))
    distance = mahalanobis(theirs, q.loc - p.loc)
    return half_log_det(theirs) - half_log_det(ours) + 0.5 * (trace + distance - p.event_shape[0])


def _low_rank(p: Any, q: Any, spread: Tensor) -> Tensor:
    """KL to a low-rank normal, given the trace of its precision times p's covariance."""
    if p.event_shape != q.event_shape:
        raise ValueError("KL-divergence between two (Low Rank) Multivariate Normals with different event shapes cannot be "
                         "computed")
    own = p._log_det() if isinstance(p, LowRankMultivariateNormal) else 2 * half_log_det(p._unbroadcasted_scale_tril)
    return 0.5 * (q._log_det() - own + q._distance(q.loc - p.loc) + spread - p.event_shape[0])


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
@register_kl(MultivariateNormal, LowRankMultivariateNormal)
def _to_low_rank(p: Any, q: Any) -> Tensor:
    return _low_rank(p, q, (q.precision_matrix * p.covariance_matrix).sum((-2, -1)))


@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _from_low_rank(p: Any, q: Any) -> Tensor:
    factor = q._unbroadcasted_scale_tril
    spread = (q.precision_matrix * p.covariance_matrix).sum((-2, -1))
    distance = mahalanobis(factor, q.loc - p.loc)
    return half_log_det(factor) + 0.5 * (spread + distance - p._log_det() - p.event_shape[0])


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p: Any, q: Any) -> Tensor:
    return p.mean * (p.logits - q.logits) + p._log_norm() + torch.log1p(-p.probs) - q._log_norm() - torch.log1p(-q.probs)


@register_kl(Independent, Independent)
def _independent(p: Any, q: Any) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("KL between Independents with different reinterpreted_batch_ndims")
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: Any, q: Any) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError("KL between distributions with different transforms is not implemented")
    extra = len(p.event_shape) - len(p.base_dist.event_shape)
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), extra)

torch._named.complete(__name__)
