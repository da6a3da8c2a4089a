"""Mixtures of distributions of one family."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributions import constraints
from mindtorch_v2.distributions.discrete import Categorical
from mindtorch_v2.distributions.distribution import Distribution

Tensor = torch.Tensor


class MixtureSameFamily(Distribution):
    """A mixture: a Categorical chooses among the last batch dimension of a component distribution."""

    def __init__(self, mixture_distribution: Categorical, component_distribution: Distribution,
                 validate_args: bool | None = None) -> None:
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(" The Mixture distribution needs to be an  instance of torch.distributions.Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("The Component distribution need to be an instance of torch.distributions.Distribution")
        count, components = mixture_distribution._param.shape[-1], component_distribution.batch_shape
        if not components or components[-1] != count:
            raise ValueError(f"`mixture_distribution` component ({count}) does not equal "
                             f"`component_distribution.batch_shape[-1]` ({components[-1:]})")
        self._mixture_distribution, self._component_distribution = mixture_distribution, component_distribution
        self._num_component, self._event_ndims = count, len(component_distribution.event_shape)
        super().__init__(components[:-1], component_distribution.event_shape, validate_args=validate_args)

    has_rsample = False
    mixture_distribution = property(lambda self: self._mixture_distribution)
    component_distribution = property(lambda self: self._component_distribution)

    @constraints.dependent_property
    def support(self) -> Any:
        return self._component_distribution.support

    def _weights(self) -> Tensor:
        probs = self._mixture_distribution.probs
        return probs.reshape(probs.shape + (1,) * self._event_ndims)

    @property
    def mean(self) -> Tensor:
        return (self._weights() * self._component_distribution.mean).sum(-1 - self._event_ndims)

    @property
    def variance(self) -> Tensor:
        axis, weights, parts = -1 - self._event_ndims, self._weights(), self._component_distribution
        between = (weights * (parts.mean - self.mean.unsqueeze(axis)).pow(2)).sum(axis)
        return (weights * parts.variance).sum(axis) + between

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with torch.no_grad():
            axis = len(torch.Size(sample_shape)) + len(self._batch_shape)
            chosen = self._mixture_distribution.sample(sample_shape)
            drawn = self._component_distribution.sample(sample_shape)
            index = chosen.reshape(chosen.shape + (1,) * (self._event_ndims + 1))
            return drawn.gather(axis, index.expand(chosen.shape + (1,) + self._event_shape)).squeeze(axis)

    def log_prob(self, value: Tensor) -> Tensor:
        parts = self._component_distribution.log_prob(self._checked(value).unsqueeze(-1 - self._event_ndims))
        return torch.logsumexp(parts + torch.log_softmax(self._mixture_distribution.logits, dim=-1), dim=-1)

    def cdf(self, value: Tensor) -> Tensor:
        parts = self._component_distribution.cdf(self._checked(value).unsqueeze(-1 - self._event_ndims))
        return (parts * self._mixture_distribution.probs).sum(-1)

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self._mixture_distribution},\n  {self._component_distribution})"
