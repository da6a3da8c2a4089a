"""The base of all distributions: shapes, checks of parameters and values, and what follows from others' methods."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributions import constraints
from mindtorch_v2.distributions.utils import broadcast_all, lazy_property  # noqa: F401  torch shows it here

Tensor = torch.Tensor


class Distribution:
    """A probability distribution over `batch_shape` independent events of `event_shape`."""

    has_rsample = False
    has_enumerate_support = False
    arg_constraints: dict[str, constraints.Constraint] = {}
    _stored: tuple[str, ...] = ()       # the parameters that a subclass stores, where they are not arg_constraints
    _validate_args = __debug__

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions made from now on check their arguments."""
        if value not in (True, False):
            raise ValueError(f"expected True or False, got {value!r}")
        Distribution._validate_args = value

    def __init__(self, batch_shape: Any = (), event_shape: Any = (), validate_args: bool | None = None) -> None:
        self._batch_shape, self._event_shape = torch.Size(batch_shape), torch.Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_arguments()

    def _take(self, **given: Any) -> tuple[Tensor, ...]:
        """Stores the parameters, broadcast to one shape."""
        values = broadcast_all(*given.values())
        self.__dict__.update(zip(given, values, strict=True))
        return values

    def _check_arguments(self) -> None:
        for name, constraint in self.arg_constraints.items():
            # What follows from another parameter (probs from logits) needs no check, nor may it be computed for one.
            if constraints.is_dependent(constraint) or name not in self.__dict__:
                continue
            value = getattr(self, name)
            if not constraint.check(value)._of_all_samples().all():
                raise ValueError(
                    f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of distribution "
                    f"{self!r} to satisfy the constraint {constraint!r}, but found invalid values:\n{value}")

    @property
    def batch_shape(self) -> Any:
        """The shape of independent, differently parametrised draws."""
        return self._batch_shape

    @property
    def event_shape(self) -> Any:
        """The shape of one draw."""
        return self._event_shape

    @property
    def support(self) -> Any:
        """The set that samples lie in."""
        raise NotImplementedError

    @property
    def mean(self) -> Tensor:
        raise NotImplementedError

    @property
    def mode(self) -> Tensor:
        raise NotImplementedError(f"{self.__class__} does not implement mode")

    @property
    def variance(self) -> Tensor:
        raise NotImplementedError

    @property
    def stddev(self) -> Tensor:
        """The square root of the variance."""
        return self.variance.sqrt()

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The same distribution with its parameters expanded to a batch shape."""
        new = self._get_checked_instance(type(self), _instance)
        batch_shape = torch.Size(batch_shape)
        for name in self._stored or self.arg_constraints:
            if name in self.__dict__:
                value, dims = self.__dict__[name], self.arg_constraints.get(name, constraints.real).event_dim
                new.__dict__[name] = value.expand(batch_shape + value.shape[value.dim() - dims:])
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draws without a gradient."""
        with torch.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Draws that are differentiable in the parameters, where the distribution allows it."""
        raise NotImplementedError(f"{self.__class__.__name__} has no reparametrised sample")

    def sample_n(self, n: int) -> Tensor:
        """n draws: the old spelling of sample((n,))."""
        return self.sample(torch.Size((n,)))

    def log_prob(self, value: Tensor) -> Tensor:
        raise NotImplementedError

    def cdf(self, value: Tensor) -> Tensor:
        raise NotImplementedError

    def icdf(self, value: Tensor) -> Tensor:
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Tensor:
        raise NotImplementedError

    def entropy(self) -> Tensor:
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        """The exponential of the entropy."""
        return torch.exp(self.entropy())

    def _extended_shape(self, sample_shape: Any = ()) -> Any:
        return torch.Size(sample_shape) + self._batch_shape + self._event_shape

    def _validate_sample(self, value: Tensor) -> None:
        if not isinstance(value, torch.Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        dims = len(self._event_shape)
        if dims and value.shape[value.dim() - dims:] != self._event_shape:
            raise ValueError("The right-most size of value must match event_shape: "
                             f"{value.shape} vs {self._event_shape}.")
        shape = self._batch_shape + self._event_shape
        for given, own in zip(reversed(value.shape), reversed(shape), strict=False):
            if given != 1 and own != 1 and given != own:
                raise ValueError(f"Value is not broadcastable with batch_shape+event_shape: {value.shape} vs {shape}.")
        support = self.support
        if not support.check(value)._of_all_samples().all():
            raise ValueError(f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) to be "
                             f"within the support ({support!r}) of the distribution {self!r}, but found invalid "
                             f"values:\n{value}")

    def _checked(self, value: Tensor) -> Tensor:
        """The value, once it is known to lie in the support where arguments are checked."""
        if self._validate_args:
            self._validate_sample(value)
        return value

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        if _instance is None and type(self).__init__ != cls.__init__:   # type: ignore[misc]
            raise NotImplementedError(f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom "
                                      "__init__ method must also define a custom .expand() method.")
        return self.__new__(type(self)) if _instance is None else _instance

    def __repr__(self) -> str:
        def shown(value: Tensor) -> str:
            return f"{value if value.numel() == 1 else value.size()}"
        names = [name for name in self.arg_constraints if name in self.__dict__]
        return f"{type(self).__name__}({', '.join(f'{n}: {shown(self.__dict__[n])}' for n in names)})"


class ExponentialFamily(Distribution):
    """The distributions whose log density is linear in their sufficient statistics; each gives its own entropy."""


class Centered(Distribution):
    """A distribution that is symmetric around `loc`, its mean and mode."""

    loc: Tensor

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc
