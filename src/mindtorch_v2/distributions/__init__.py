"""torch.distributions: random variables with densities, samples, transforms and divergences; written over the ops."""
from __future__ import annotations

import sys
import types

from mindtorch_v2.distributions import constraints, transforms, utils
from mindtorch_v2.distributions.constraint_registry import biject_to, transform_to
from mindtorch_v2.distributions.continuous import Cauchy, Exponential, Laplace, Normal, StudentT, Uniform
from mindtorch_v2.distributions.continuous_bernoulli import ContinuousBernoulli
from mindtorch_v2.distributions.derived import (
    Gumbel,
    HalfCauchy,
    HalfNormal,
    Independent,
    InverseGamma,
    LogNormal,
    Pareto,
    TransformedDistribution,
    Weibull,
)
from mindtorch_v2.distributions.discrete import (
    Bernoulli,
    Binomial,
    Categorical,
    Geometric,
    Multinomial,
    NegativeBinomial,
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
    Poisson,
)
from mindtorch_v2.distributions.distribution import Distribution, ExponentialFamily
from mindtorch_v2.distributions.gamma import Beta, Chi2, Dirichlet, FisherSnedecor, Gamma
from mindtorch_v2.distributions.generalized_pareto import GeneralizedPareto
from mindtorch_v2.distributions.kl import kl_divergence, register_kl
from mindtorch_v2.distributions.lowrank_multivariate_normal import LowRankMultivariateNormal
from mindtorch_v2.distributions.matrices import LKJCholesky, Wishart
from mindtorch_v2.distributions.mixture_same_family import MixtureSameFamily
from mindtorch_v2.distributions.multivariate_normal import MultivariateNormal
from mindtorch_v2.distributions.relaxed import (
    ExpRelaxedCategorical,
    LogitRelaxedBernoulli,
    RelaxedBernoulli,
    RelaxedOneHotCategorical,
)
from mindtorch_v2.distributions.transforms import *  # noqa: F403  torch shows them here too
from mindtorch_v2.distributions.unit_derived import Kumaraswamy, LogisticNormal
from mindtorch_v2.distributions.von_mises import VonMises

# torch has a module for each distribution, and programs import from them.
_MODULES = {
    "bernoulli": (Bernoulli,), "beta": (Beta,), "binomial": (Binomial,), "categorical": (Categorical,),
    "cauchy": (Cauchy,), "chi2": (Chi2,), "dirichlet": (Dirichlet,), "exp_family": (ExponentialFamily,),
    "exponential": (Exponential,), "fishersnedecor": (FisherSnedecor,), "geometric": (Geometric,), "gumbel": (Gumbel,),
    "half_cauchy": (HalfCauchy,), "half_normal": (HalfNormal,), "independent": (Independent,),
    "inverse_gamma": (InverseGamma,), "laplace": (Laplace,), "log_normal": (LogNormal,), "multinomial": (Multinomial,),
    "negative_binomial": (NegativeBinomial,), "normal": (Normal,), "pareto": (Pareto,), "poisson": (Poisson,),
    "one_hot_categorical": (OneHotCategorical, OneHotCategoricalStraightThrough),
    "relaxed_bernoulli": (RelaxedBernoulli, LogitRelaxedBernoulli), "studentT": (StudentT,),
    "relaxed_categorical": (RelaxedOneHotCategorical, ExpRelaxedCategorical), "uniform": (Uniform,),
    "kumaraswamy": (Kumaraswamy,), "lkj_cholesky": (LKJCholesky,), "logistic_normal": (LogisticNormal,), "wishart": (Wishart,),
    "transformed_distribution": (TransformedDistribution,), "weibull": (Weibull,),
}
__all__ = [
    "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy", "Chi2", "ContinuousBernoulli", "Dirichlet",
    "Distribution", "Exponential", "ExponentialFamily", "FisherSnedecor", "Gamma", "GeneralizedPareto", "Geometric",
    "Gumbel", "HalfCauchy", "HalfNormal", "Independent", "InverseGamma", "Kumaraswamy", "LKJCholesky", "Laplace",
    "LogNormal", "LogisticNormal", "LogitRelaxedBernoulli", "LowRankMultivariateNormal", "MixtureSameFamily",
    "Multinomial", "MultivariateNormal", "NegativeBinomial", "Normal", "OneHotCategorical",
    "OneHotCategoricalStraightThrough", "Pareto", "Poisson", "RelaxedBernoulli", "RelaxedOneHotCategorical",
    "StudentT", "TransformedDistribution", "Uniform", "VonMises", "Weibull", "Wishart", "biject_to", "constraints",
    "kl_divergence", "register_kl", "transform_to", "transforms",
]

# torch's modules import from each other, and programs import from them what they show: botorch Distribution of multivariate_normal.
_shown = {name: globals()[name] for name in __all__ if name != "transforms"}
_shown |= {name: getattr(transforms, name) for name in transforms.__all__}
_shown |= {name: getattr(utils, name) for name in (
    "broadcast_all", "clamp_probs", "lazy_property", "logits_to_probs", "probs_to_logits")}
for _name, _classes in _MODULES.items():
    _module = types.ModuleType(f"{__name__}.{_name}", f"The place where torch has {_classes[0].__name__}.")
    vars(_module).update(_shown, **{cls.__name__: cls for cls in _classes})
    globals()[_name] = sys.modules[_module.__name__] = _module
    for _class in _classes:
        _class.__module__ = _module.__name__      # pickles and PyTorch know it there
