"""Distributions of matrices: Wishart's, and that of Lewandowski, Kurowicka and Joe over factors of correlations."""
from __future__ import annotations

import math
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributions import constraints
from mindtorch_v2.distributions.distribution import Distribution, ExponentialFamily
from mindtorch_v2.distributions.gamma import Beta, Chi2
from mindtorch_v2.distributions.multivariate_normal import MultivariateNormal, half_log_det
from mindtorch_v2.distributions.utils import lazy_property

Tensor = torch.Tensor


class Wishart(ExponentialFamily):
    """The scatter of df normal vectors with a covariance, which is given as such, by its inverse or its factor."""

    support = constraints.positive_definite
    has_rsample = True
    _stored = ("df", "covariance_matrix", "precision_matrix", "scale_tril")

    def __init__(self, df: Any, covariance_matrix: Tensor | None = None, precision_matrix: Tensor | None = None,
                 scale_tril: Tensor | None = None, validate_args: bool | None = None) -> None:
        forms = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix, "scale_tril": scale_tril}
        given = {name: value for name, value in forms.items() if value is not None}
        if len(given) != 1:
            raise AssertionError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        (name, matrix), = given.items()
        if matrix.dim() < 2:
            raise ValueError("scale_tril must be at least two-dimensional, with optional leading batch dimensions")
        df = df if isinstance(df, torch.Tensor) else torch.tensor(df, dtype=matrix.dtype, device=matrix.device)
        batch, event = torch.broadcast_shapes(df.shape, matrix.shape[:-2]), matrix.shape[-2:]
        if bool(df.le(event[-1] - 1).any()):
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {event[-1] - 1}.")
        self.df = df.expand(batch)
        self._event_shape = event                # arg_constraints needs it before the base class knows it
        setattr(self, name, matrix.expand(batch + event))
        super().__init__(batch, event, validate_args=validate_args)
        self._unbroadcasted_scale_tril = MultivariateNormal._factor(name, matrix)

    @property
    def arg_constraints(self) -> dict[str, Any]:     # type: ignore[override]
        """The sets of the parameters: df depends on the size of the matrices."""
        return {"covariance_matrix": constraints.positive_definite, "precision_matrix": constraints.positive_definite,
                "scale_tril": constraints.lower_cholesky, "df": constraints.greater_than(self._event_shape[-1] - 1)}

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(Wishart, _instance)
        new._event_shape = self._event_shape
        new = super().expand(batch_shape, new)
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril
        return new

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The Cholesky factor of the covariance."""
        return self._unbroadcasted_scale_tril.expand(self._batch_shape + self._event_shape)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance of the vectors."""
        factor = self._unbroadcasted_scale_tril
        return (factor @ factor.mT).expand(self._batch_shape + self._event_shape)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        return torch.cholesky_inverse(self._unbroadcasted_scale_tril).expand(self._batch_shape + self._event_shape)

    @property
    def mean(self) -> Tensor:
        return self.df[..., None, None] * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        factor = self.df - self.covariance_matrix.shape[-1] - 1
        return torch.where(factor > 0, factor, torch.nan)[..., None, None] * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        V = self.covariance_matrix
        diagonal = V.diagonal(dim1=-2, dim2=-1)
        return self.df[..., None, None] * (V.square() + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def rsample(self, sample_shape: Any = (), max_try_correction: int | None = None) -> Tensor:
        """Bartlett's decomposition: roots of chi-squared numbers on the diagonal, normal ones below it."""
        p, sample_shape = self._event_shape[-1], torch.Size(sample_shape)
        degrees = self.df.unsqueeze(-1) - torch.arange(p, dtype=self.df.dtype, device=self.df.device)
        tiny = torch.finfo(self.df.dtype).tiny
        roots = Chi2(degrees).rsample(sample_shape).clamp(min=tiny).sqrt()
        normal = torch.randn(self._extended_shape(sample_shape), dtype=self.df.dtype, device=self.df.device)
        factor = self._unbroadcasted_scale_tril @ (normal.tril(-1) + torch.diag_embed(roots))
        return factor @ factor.mT

    def _log_gamma(self) -> Tensor:
        return torch.mvlgamma(self.df / 2, p=self._event_shape[-1])

    def log_prob(self, value: Tensor) -> Tensor:
        value, p, L = self._checked(value), self._event_shape[-1], self._unbroadcasted_scale_tril
        batch = torch.broadcast_shapes(value.shape[:-2], L.shape[:-2])
        inside = torch.cholesky_solve(value.expand(batch + value.shape[-2:]), L.expand(batch + L.shape[-2:]))
        return (-self.df * (p * math.log(2) / 2 + half_log_det(L)) - self._log_gamma()
                + (self.df - p - 1) / 2 * torch.linalg.slogdet(value).logabsdet
                - inside.diagonal(dim1=-2, dim2=-1).sum(-1) / 2)

    def entropy(self) -> Tensor:
        p = self._event_shape[-1]
        halves = torch.arange(p, dtype=self.df.dtype, device=self.df.device) / 2
        digamma = (self.df.unsqueeze(-1) / 2 - halves).digamma().sum(-1)
        return ((p + 1) * (p * math.log(2) / 2 + half_log_det(self._unbroadcasted_scale_tril)) + self._log_gamma()
                - (self.df - p - 1) / 2 * digamma + self.df * p / 2)


class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices; the density of the matrix is det^(concentration - 1)."""

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky
    concentration: Tensor

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        concentration, = self._take(concentration=concentration)
        # How much of row k's length lies below the diagonal. torch has k - 1/2 where k / 2 belongs: from the third row on
        # its samples do not have the density that log_prob gives.
        rows = torch.arange(dim, dtype=concentration.dtype, device=concentration.device).clamp(min=1)
        self._beta = Beta(rows / 2, (concentration + 0.5 * (dim - 1)).unsqueeze(-1) - rows / 2)
        super().__init__(concentration.shape, torch.Size((dim, dim)), validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(LKJCholesky, _instance)
        new = super().expand(batch_shape, new)
        new.dim, new._beta = self.dim, self._beta.expand(torch.Size(batch_shape) + (self.dim,))
        return new

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Row by row: a direction on the sphere, and how much of the row's length it takes."""
        with torch.no_grad():
            part = self._beta.sample(sample_shape).unsqueeze(-1)
            normal = torch.randn(self._extended_shape(sample_shape), dtype=part.dtype, device=part.device).tril(-1)
            length = normal.norm(dim=-1, keepdim=True)
            below = part.sqrt() * torch.where(length == 0, 0.0, normal / length)
            rest = (1 - below.square().sum(-1)).clamp(min=torch.finfo(part.dtype).tiny).sqrt()
            return below + torch.diag_embed(rest)

    def log_prob(self, value: Tensor) -> Tensor:
        value, less = self._checked(value), self.dim - 1
        order = torch.arange(2, self.dim + 1, device=self.concentration.device)
        order = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - order
        weight = (order * value.diagonal(dim1=-1, dim2=-2)[..., 1:].log()).sum(-1)
        alpha = self.concentration + 0.5 * less
        norm = 0.5 * less * math.log(math.pi) + torch.mvlgamma(alpha - 0.5, less) - torch.lgamma(alpha) * less
        return weight - norm
