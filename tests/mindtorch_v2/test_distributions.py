"""torch.distributions against torch: densities, moments, samples from one seed, gradients, divergences and errors."""

from __future__ import annotations

import importlib
import math
import pkgutil
from types import FunctionType
from typing import Any

import pytest
import torch
from twin import error, outcome, same, twin

import mindtorch_v2 as mt

# name -> (arguments, a value); lists become float tensors. The same text serves both libraries.
CASES: dict[str, tuple[dict[str, Any], Any]] = {
    "Bernoulli": ({"probs": [0.2, 0.7]}, [0.0, 1.0]),
    "Bernoulli ": ({"logits": [-0.2, 0.7]}, [1.0, 0.0]),
    "Beta": ({"concentration1": [0.5, 2.0], "concentration0": [1.5, 0.7]}, [0.2, 0.9]),
    "Binomial": ({"total_count": 4, "probs": [0.3, 0.6]}, [1.0, 4.0]),
    "Categorical": ({"logits": [[0.1, 0.5, -1.0], [2.0, 0.0, 0.3]]}, [2.0, 0.0]),
    "Categorical ": ({"probs": [[0.1, 0.5, 0.9], [2.0, 0.0, 0.3]]}, [1.0, 0.0]),
    "Cauchy": ({"loc": [0.0, 1.0], "scale": [1.0, 2.0]}, [0.4, -3.0]),
    "Chi2": ({"df": [1.5, 4.0]}, [0.5, 3.0]),
    "ContinuousBernoulli": ({"probs": [0.2, 0.5003]}, [0.3, 0.9]),
    "ContinuousBernoulli ": ({"logits": [-1.2, 1.7]}, [0.0, 1.0]),
    "Dirichlet": ({"concentration": [[0.5, 2.0, 1.0], [3.0, 2.0, 4.0]]}, [[0.2, 0.3, 0.5], [0.6, 0.1, 0.3]]),
    "Exponential": ({"rate": [0.5, 3.0]}, [0.1, 2.0]),
    "FisherSnedecor": ({"df1": [3.0, 5.0], "df2": [6.0, 7.0]}, [0.5, 2.0]),
    "Gamma": ({"concentration": [0.5, 4.0], "rate": [1.0, 2.0]}, [0.3, 2.0]),
    "GeneralizedPareto": ({"loc": [0.0, 1.0], "scale": [1.0, 2.0], "concentration": [0.3, -0.2]}, [0.4, 3.0]),
    "GeneralizedPareto ": ({"loc": [0.0, 1.0], "scale": [1.0, 2.0], "concentration": [0.0, 1.5]}, [0.4, 3.0]),
    "Geometric": ({"probs": [0.3, 0.8]}, [2.0, 0.0]),
    "Gumbel": ({"loc": [0.0, 1.0], "scale": [1.0, 2.0]}, [0.4, -3.0]),
    "HalfCauchy": ({"scale": [1.0, 2.0]}, [0.4, 3.0]),
    "HalfNormal": ({"scale": [1.0, 2.0]}, [0.4, 3.0]),
    "InverseGamma": ({"concentration": [2.5, 4.0], "rate": [1.0, 2.0]}, [0.3, 2.0]),
    "Kumaraswamy": ({"concentration1": [0.5, 2.0], "concentration0": [1.5, 1.7]}, [0.2, 0.9]),
    "LKJCholesky": ({"dim": 3, "concentration": [0.5, 2.0]}, [[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.0, 0.6, 0.8]]),
    "Laplace": ({"loc": [0.0, 1.0], "scale": [1.0, 2.0]}, [0.4, -3.0]),
    "LogNormal": ({"loc": [0.0, 1.0], "scale": [1.0, 0.5]}, [0.4, 3.0]),
    "LogisticNormal": ({"loc": [0.0, 1.0], "scale": [1.0, 0.5]}, [0.2, 0.3, 0.5]),
    "LowRankMultivariateNormal": ({"loc": [0.0, 1.0, 2.0], "cov_factor": [[1.0, 0.2], [0.0, 1.0], [0.5, 0.3]],
                                   "cov_diag": [1.0, 2.0, 0.5]}, [[0.4, -1.0, 2.0]]),
    "Multinomial": ({"total_count": 5, "probs": [0.2, 0.3, 0.5]}, [1.0, 3.0, 1.0]),
    "MultivariateNormal": ({"loc": [0.0, 1.0], "covariance_matrix": [[2.0, 0.3], [0.3, 1.0]]}, [[0.4, -1.0]]),
    "MultivariateNormal ": ({"loc": [0.0, 1.0], "precision_matrix": [[2.0, 0.3], [0.3, 1.0]]}, [[0.4, -1.0]]),
    "NegativeBinomial": ({"total_count": [4.0, 2.0], "probs": [0.3, 0.6]}, [1.0, 4.0]),
    "Normal": ({"loc": [0.0, 1.0], "scale": [1.0, 2.0]}, [0.4, -3.0]),
    "OneHotCategorical": ({"logits": [[0.1, 0.5, -1.0], [2.0, 0.0, 0.3]]}, [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]),
    "Pareto": ({"scale": [1.0, 0.5], "alpha": [3.0, 2.5]}, [1.5, 3.0]),
    "Poisson": ({"rate": [0.5, 4.0]}, [1.0, 3.0]),
    "RelaxedBernoulli": ({"temperature": 0.7, "probs": [0.2, 0.6]}, [0.3, 0.9]),
    "RelaxedOneHotCategorical": ({"temperature": 0.7, "probs": [0.2, 0.3, 0.5]}, [0.3, 0.3, 0.4]),
    "StudentT": ({"df": [3.0, 5.0], "loc": 0.5, "scale": [1.0, 2.0]}, [0.4, -3.0]),
    "Uniform": ({"low": [0.0, -1.0], "high": [1.0, 3.0]}, [0.4, 2.0]),
    "VonMises": ({"loc": [0.0, 1.0], "concentration": [0.5, 4.0]}, [0.4, -3.0]),
    "Wishart": ({"df": [3.0, 4.5], "covariance_matrix": [[2.0, 0.3], [0.3, 1.0]]}, [[1.0, 0.2], [0.2, 2.0]]),
    "Wishart ": ({"df": 3.0, "precision_matrix": [[2.0, 0.3], [0.3, 1.0]]}, [[1.0, 0.2], [0.2, 2.0]]),
    "Weibull": ({"scale": [1.0, 2.0], "concentration": [1.5, 0.8]}, [0.4, 3.0]),
}
# torch draws other Cholesky factors than its own density says, and draws a Wishart matrix again where it is not singular.
OTHER_NUMBERS = {"LKJCholesky", "Wishart"}
QUESTIONS = ("mean", "variance", "stddev", "mode", "entropy", "support", "batch_shape", "event_shape", "has_rsample")


@pytest.fixture(autouse=True)
def checked() -> None:
    """Parts of torch that other tests load switch its checks off for the whole process."""
    torch.distributions.Distribution.set_default_validate_args(True)


def made(t: Any, name: str, device: str = "cpu", **more: Any) -> Any:
    given = CASES[name][0]
    tensors = name.startswith("Relaxed")
    given = {k: t.tensor(v, device=device) if isinstance(v, list) or tensors else v for k, v in given.items()}
    return getattr(t.distributions, name.strip())(**given, **more)


def answer(t: Any, d: Any, question: str, *given: Any) -> Any:
    """What a distribution says, or the kind of its refusal."""
    try:
        found = getattr(d, question)
        found = found(*given) if callable(found) else found
    except NotImplementedError:
        return "NotImplementedError"
    return found if isinstance(found, (t.Tensor, bool)) else str(found)


@pytest.mark.parametrize("name", CASES)
@twin
def test_density_and_moments(t: Any, name: str) -> Any:
    d, value = made(t, name), t.tensor(CASES[name][1])
    answers = {question: answer(t, d, question) for question in QUESTIONS}
    answers |= {"log_prob": d.log_prob(value), "repr": repr(d), "expanded": d.expand((3, *d.batch_shape)).log_prob(value)}
    if not d.event_shape:
        answers |= {"cdf": answer(t, d, "cdf", value), "icdf": answer(t, d, "icdf", t.full_like(value, 0.3))}
    return answers


@pytest.mark.parametrize("name", [name for name in CASES if name.strip() not in OTHER_NUMBERS])
@twin
def test_one_seed_gives_the_same_samples(t: Any, name: str) -> Any:
    d = made(t, name)
    return [d.sample((4,)), d.sample(), d.rsample((2,)) if d.has_rsample else d.sample((1,))]


@pytest.mark.parametrize("name", ["Beta", "Binomial", "Dirichlet", "Gamma", "NegativeBinomial", "Wishart"])
def test_samples_have_the_right_moments(name: str) -> None:
    mt.manual_seed(5)
    d = made(mt, name)
    x = d.sample((20000,))
    assert d.support.check(x).all()
    tolerance = 6 * d.stddev / 20000**0.5 + 1e-6
    tolerance = tolerance.where(tolerance.isfinite(), mt.tensor(1.0))
    assert ((x.mean(0) - d.mean).abs() < tolerance).all(), x.mean(0) - d.mean


@pytest.mark.parametrize("concentration", [0.05, 0.7, 1.0, 3.0, 40.0, 400.0, 3000.0, 1e6])
def test_the_gradient_of_a_gamma_sample(concentration: float) -> None:
    mt.manual_seed(5)
    a = mt.full((50,), concentration, requires_grad=True)
    x = mt.distributions.Gamma(a, mt.ones(50)).rsample()
    x.sum().backward()
    theirs = torch._standard_gamma_grad(torch.full((50,), concentration), torch.from_numpy(x.detach().numpy()))
    torch.testing.assert_close(torch.from_numpy(a.grad.numpy()), theirs, rtol=2e-3, atol=1e-6)


def test_the_gradient_at_numbers_that_no_gamma_sample_has() -> None:
    a, x = [2.0, 5.0, 0.5, 1e9, 3.0], [300.0, 500.0, 0.0, 1.0, math.nan]
    ours = mt._standard_gamma_grad(mt.tensor(a), mt.tensor(x))
    theirs = torch._standard_gamma_grad(torch.tensor(a), torch.tensor(x))
    torch.testing.assert_close(torch.from_numpy(ours.numpy()), theirs, rtol=0.03, atol=1e-6, equal_nan=True)
    assert mt._standard_gamma_grad(mt.tensor(1.0), mt.tensor(1e9)) > 1          # not a sum of 1e9 terms


PAIRS = [("Normal", "Normal"), ("Laplace", "Laplace"), ("Bernoulli", "Bernoulli "), ("Categorical", "Categorical "),
         ("Gamma", "Gamma"), ("Beta", "Beta"), ("Dirichlet", "Dirichlet"), ("Poisson", "Poisson"), ("Cauchy", "Cauchy"),
         ("Geometric", "Geometric"), ("Exponential", "Exponential"), ("Gumbel", "Gumbel"), ("Pareto", "Pareto"),
         ("Uniform", "Normal"), ("Normal", "Laplace"), ("LogNormal", "LogNormal"), ("HalfNormal", "HalfNormal"),
         ("MultivariateNormal", "MultivariateNormal "), ("Chi2", "Gamma"), ("OneHotCategorical", "OneHotCategorical"),
         ("Laplace", "Cauchy"),
         ("ContinuousBernoulli", "ContinuousBernoulli "), ("LowRankMultivariateNormal", "LowRankMultivariateNormal")]  # fmt: skip


@pytest.mark.parametrize("p, q", PAIRS)
@twin
def test_divergence(t: Any, p: str, q: str) -> Any:
    left, right = made(t, p), made(t, q)
    if p == q and "scale" in CASES[p][0]:
        right = type(right)(**{k: v + 0.5 for k, v in zip(CASES[p][0], [getattr(right, n) for n in CASES[p][0]])})
    try:
        return t.distributions.kl_divergence(left, right)
    except NotImplementedError as refused:
        return str(refused)


TRANSFORMS = {
    "Exp": "ExpTransform()", "Power": "PowerTransform(torch.tensor(2.0))", "Sigmoid": "SigmoidTransform()",
    "Softplus": "SoftplusTransform()", "Tanh": "TanhTransform()", "Affine": "AffineTransform(1.0, -2.0)",
    "Compose": "ComposeTransform([AffineTransform(0.0, 2.0), TanhTransform()])",
    "StickBreaking": "StickBreakingTransform()", "CorrCholesky": "CorrCholeskyTransform()",
    "Independent": "IndependentTransform(ExpTransform(), 1)", "Reshape": "ReshapeTransform((3,), (3, 1))",
}  # fmt: skip


@pytest.mark.parametrize("text", TRANSFORMS.values(), ids=TRANSFORMS)
@twin
def test_transform(t: Any, text: str) -> Any:
    f = eval(text, {**vars(t.distributions.transforms), "torch": t})
    x = t.tensor([[0.3, 1.2, 0.7], [0.1, 0.4, 2.0]])
    y = f(x)
    z = t.distributions.TransformedDistribution(t.distributions.Normal(t.zeros(2, 3), t.ones(2, 3)), [f])
    return [y, f.inv(y), f.log_abs_det_jacobian(x, y), str(f.codomain), tuple(z.batch_shape), tuple(z.event_shape),
            z.log_prob(y), z.sample()]


def test_correlations_have_the_right_spread() -> None:
    mt.manual_seed(5)
    factors = mt.distributions.LKJCholesky(3, mt.tensor(2.0)).sample((20000,))
    assert mt.distributions.constraints.corr_cholesky.check(factors).all()
    below = (factors @ factors.mT)[:, [1, 2, 2], [0, 0, 1]]          # each is 2 Beta(2.5, 2.5) - 1
    assert float(below.mean(0).abs().max()) < 0.02 and mt.allclose(below.var(0), mt.tensor(1 / 6), atol=0.01)


@twin
def test_low_rank_and_full_normals(t: Any) -> Any:
    low, full = made(t, "LowRankMultivariateNormal"), t.distributions.MultivariateNormal(t.ones(3), t.eye(3) * 2)
    kl = t.distributions.kl_divergence
    return [kl(low, full), kl(full, low), low.covariance_matrix, low.precision_matrix, low.scale_tril]


@twin
def test_registries_lead_into_every_set(t: Any) -> Any:
    c, x = t.distributions.constraints, t.tensor([[0.3, -1.2], [0.1, 2.0]])
    sets = [c.real, c.positive, c.less_than(2.0), c.unit_interval, c.interval(-1.0, 3.0), c.simplex, c.real_vector]
    into = {repr(s): t.distributions.transform_to(s)(x) for s in [*sets, c.lower_cholesky, c.positive_definite]}
    fro = {repr(s): t.distributions.biject_to(s).inv(t.distributions.biject_to(s)(x)) for s in sets}
    return [into, fro, [bool(s.check(into[repr(s)]).all()) for s in sets]]


@twin
def test_mixture_and_independent(t: Any) -> Any:
    D = t.distributions
    mix = D.Categorical(t.tensor([0.2, 0.5, 0.3]))
    parts = D.Independent(D.Normal(t.arange(6.0).view(3, 2), t.ones(3, 2)), 1)
    d = D.MixtureSameFamily(mix, parts)
    value = t.tensor([[0.5, 1.0], [3.0, 2.0]])
    return [d.log_prob(value), d.mean, d.variance, d.sample((3,)), repr(parts), tuple(d.event_shape),
            parts.entropy(), parts.expand((4, 3)).sample().shape]


@twin
def test_errors(t: Any) -> Any:
    D = t.distributions
    calls = [lambda: D.Normal(0.0, -1.0), lambda: D.Normal(0.0, 1.0).log_prob(t.tensor(float("nan"))),
             lambda: D.Categorical(), lambda: D.Categorical(t.tensor(1.0)), lambda: D.Uniform(1.0, 0.0),
             lambda: D.Bernoulli(0.5).log_prob(t.tensor(0.3)), lambda: D.Normal("a", 1.0),
             lambda: D.Categorical(t.ones(3)).log_prob(t.tensor(5.0)),
             lambda: D.Normal(t.zeros(3), 1.0).log_prob(t.ones(2)),
             lambda: D.LKJCholesky(1), lambda: D.Wishart(1.0, t.eye(3)), lambda: D.Wishart(5.0), lambda: D.VonMises(0.0, -1.0),
             lambda: D.LowRankMultivariateNormal(t.zeros(2), t.ones(3, 1), t.ones(2)),
             lambda: D.MultivariateNormal(t.zeros(2)), lambda: D.Independent(D.Normal(0.0, 1.0), 1),
             lambda: D.Normal(0.0, -1.0, validate_args=False).log_prob(t.tensor(1.0)).item()]  # fmt: skip
    return [error(call, 400) for call in calls]


def test_programs_find_the_modules_that_torch_has() -> None:
    from mindtorch_v2.distributions.categorical import Categorical
    from mindtorch_v2.distributions.normal import Normal

    assert Normal is mt.distributions.Normal and Categorical is mt.distributions.Categorical


@pytest.mark.parametrize("name", [n for n in CASES if n.strip() not in ("NegativeBinomial", "Poisson")])
def test_on_the_npu(npu: Any, name: str) -> None:
    def body(t: Any, device: str) -> Any:
        d = made(t, name, device)
        assert d.sample((2,)).device.type == device
        return d.log_prob(t.tensor(CASES[name][1], device=device)).cpu()
    same(outcome(mt, body, "npu"), outcome(torch, body, "cpu"))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 0.0, 1e38])
def test_gamma_of_an_odd_concentration_ends(value: float) -> None:
    drawn = mt.distributions.Gamma(mt.tensor([value, 2.0]), mt.tensor(1.0), validate_args=False).sample()
    assert drawn[1] > 0 and (drawn[0] > 1e30 if value > 1 else drawn[0] == mt.finfo(mt.float32).tiny)


@pytest.mark.parametrize("name", [info.name for info in pkgutil.iter_modules(torch.distributions.__path__)])
def test_modules_show_what_torchs_modules_show(name: str) -> None:
    """Programs import from a module what it imports itself: botorch takes Distribution from multivariate_normal."""
    ours, theirs = (importlib.import_module(f"{library}.distributions.{name}") for library in ("mindtorch_v2", "torch"))
    shown = {name for name, value in vars(theirs).items() if isinstance(value, (type, FunctionType)) and not name.startswith("_")
             and value.__module__.startswith("torch.distributions")} - {"MixtureSameFamilyConstraint"}  # not offered
    assert not shown - vars(ours).keys()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@twin
def test_draws_by_rejection_have_the_generators_numbers(t: Any, dtype: str) -> Any:
    count, prob = t.tensor([[5.0], [60.0], [0.0], [1e4]], dtype=getattr(t, dtype)), t.linspace(-0.1, 1.1, 40, dtype=getattr(t, dtype))
    shapes = t.tensor([0.0, 1e-3, 0.3, 1.0, 7.5, 1e5], dtype=getattr(t, dtype)).repeat(20, 1)
    drawn = [t.binomial(count, prob), t.binomial(prob.new_full((40,), 30.0), prob[20].clone()), t._standard_gamma(shapes),
             t._standard_gamma(shapes.t()), t._sample_dirichlet(shapes[:, 1:])]
    return [*drawn, drawn[3].stride(), t._standard_gamma(shapes.half().float(), generator=t.Generator().manual_seed(3))]
