"""Discrete distributions relaxed into continuous ones that have gradients, by a temperature."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributions import constraints, transforms
from mindtorch_v2.distributions.derived import TransformedDistribution
from mindtorch_v2.distributions.discrete import Categorical, _ProbsOrLogits
from mindtorch_v2.distributions.distribution import Distribution
from mindtorch_v2.distributions.utils import broadcast_all, clamp_probs

Tensor = torch.Tensor


class LogitRelaxedBernoulli(_ProbsOrLogits):
    """The logit of a relaxed Bernoulli variable."""

    support = constraints.real
    has_rsample = True

    def __init__(self, temperature: Tensor, probs: Any = None, logits: Any = None,
                 validate_args: bool | None = None) -> None:
        self.temperature = temperature
        super().__init__(self._take_one(probs, logits), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new.temperature = self.temperature
        return new

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        probs = clamp_probs(self.probs.expand(shape))
        u = clamp_probs(torch.rand(shape, dtype=probs.dtype, device=probs.device))
        return (u.log() - (-u).log1p() + probs.log() - (-probs).log1p()) / self.temperature

    def log_prob(self, value: Tensor) -> Tensor:
        value, logits = broadcast_all(self._checked(value), self.logits)
        difference = logits - value * self.temperature
        return self.temperature.log() + difference - 2 * difference.exp().log1p()


class _Relaxed(TransformedDistribution):
    """A relaxed discrete distribution shows the parameters of its base."""

    has_rsample = True

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return super().expand(batch_shape, self.__new__(type(self)) if _instance is None else _instance)

    temperature = property(lambda self: self.base_dist.temperature)
    logits = property(lambda self: self.base_dist.logits)
    probs = property(lambda self: self.base_dist.probs)


class RelaxedBernoulli(_Relaxed):
    """A number between 0 and 1 that becomes a Bernoulli variable as the temperature goes to zero."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval

    def __init__(self, temperature: Tensor, probs: Any = None, logits: Any = None,
                 validate_args: bool | None = None) -> None:
        super().__init__(LogitRelaxedBernoulli(temperature, probs, logits), transforms.SigmoidTransform(),
                         validate_args=validate_args)


class ExpRelaxedCategorical(Distribution):
    """The logarithm of a relaxed one-hot variable."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, temperature: Tensor, probs: Any = None, logits: Any = None,
                 validate_args: bool | None = None) -> None:
        self._categorical, self.temperature = Categorical(probs, logits), temperature
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:],
                         validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return type(self)(self.temperature, logits=self._categorical.expand(batch_shape).logits,
                          validate_args=self._validate_args)

    logits = property(lambda self: self._categorical.logits)
    probs = property(lambda self: self._categorical.probs)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        u = clamp_probs(torch.rand(self._extended_shape(sample_shape), dtype=self.logits.dtype,
                                   device=self.logits.device))
        scores = (self.logits - (-u.log()).log()) / self.temperature
        return scores - scores.logsumexp(dim=-1, keepdim=True)

    def log_prob(self, value: Tensor) -> Tensor:
        k = self._categorical._num_events
        value, logits = broadcast_all(self._checked(value), self.logits)
        scale = torch.full_like(self.temperature, float(k)).lgamma() + self.temperature.log() * (k - 1)
        score = logits - value * self.temperature
        return (score - score.logsumexp(dim=-1, keepdim=True)).sum(-1) + scale


class RelaxedOneHotCategorical(_Relaxed):
    """A point of the simplex that becomes a one-hot vector as the temperature goes to zero."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.simplex

    def __init__(self, temperature: Tensor, probs: Any = None, logits: Any = None,
                 validate_args: bool | None = None) -> None:
        super().__init__(ExpRelaxedCategorical(temperature, probs, logits), transforms.ExpTransform(),
                         validate_args=validate_args)
