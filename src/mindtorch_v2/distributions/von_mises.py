"""The von Mises distribution: a normal distribution of angles."""
from __future__ import annotations

import math
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributions import constraints
from mindtorch_v2.distributions.distribution import Centered, Distribution  # noqa: F401  torch shows it here
from mindtorch_v2.distributions.utils import broadcast_all, lazy_property  # noqa: F401  torch shows it here

Tensor = torch.Tensor


class VonMises(Centered):
    """Angles in [-pi, pi) around a direction, their mean on the circle."""

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    concentration: Tensor

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        loc, _ = self._take(loc=loc, concentration=concentration)
        super().__init__(loc.shape, validate_args=validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        value, spread = self._checked(value), self.concentration
        return spread * (torch.cos(value - self.loc) - 1) - math.log(2 * math.pi) - torch.special.i0e(spread).log()

    @lazy_property
    def _proposal(self) -> Tensor:
        """The parameter of the wrapped Cauchy distribution from which sample() draws proposals."""
        kappa = self.concentration.double()
        tau = 1 + (1 + 4 * kappa.square()).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * kappa)
        return torch.where(kappa < 1e-5, kappa.reciprocal() + kappa, (1 + rho.square()) / (2 * rho))

    @torch.no_grad()
    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Best and Fisher's rejection method, in double precision."""
        shape = self._extended_shape(sample_shape)
        found = torch.empty(shape, dtype=torch.float64, device=self.loc.device)
        done = torch.zeros(shape, dtype=torch.bool, device=self.loc.device)
        kappa, r = self.concentration.double(), self._proposal
        while not bool(done.all()):
            u1, u2, u3 = torch.rand((3, *shape), dtype=torch.float64, device=self.loc.device).unbind()
            z = torch.cos(math.pi * u1)
            f = (1 + r * z) / (r + z)
            c = kappa * (r - f)
            accepted = (c * (2 - c) - u2 > 0) | ((c / u2).log() + 1 - c >= 0)
            found = torch.where(accepted, (u3 - 0.5).sign() * f.acos(), found)
            done = done | accepted
        return ((found + math.pi + self.loc.double()) % (2 * math.pi) - math.pi).to(self.loc.dtype)

    @lazy_property
    def variance(self) -> Tensor:
        """1 less the length of the mean of the directions."""
        return 1 - torch.special.i1e(self.concentration) / torch.special.i0e(self.concentration)
