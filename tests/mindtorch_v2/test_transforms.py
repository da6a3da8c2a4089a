"""vmap, forward mode and their nesting over torch's OpInfo samples: batches against loops, derivatives against torch's
and against those of reverse mode."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import oracle
import pytest
import torch
from test_ops import KNOWN, KNOWN_GRAD, OFFERED

import mindtorch_v2 as mt
from mindtorch_v2.utils import _pytree

RANDOM = ("dropout", "rand", "multinomial", "bernoulli", "normal", "poisson", "rrelu", "uniform", "cauchy", "geometric",
          "exponential", "fractional", "multi_head_attention", "scaled_dot_product", "lowrank")  # fmt: skip
# entry -> why a batch of it is refused, as torch refuses it
REFUSED = {name: why for why, names in {
    "its result is no tensor": "item allclose equal",
    "decides by values": "nn.functional.gaussian_nll_loss",
    "a batch of sparse tensors": "to_sparse",
    "writes to running statistics that the samples share": "native_batch_norm nn.functional.batch_norm "
                                                           "_native_batch_norm_legit _batch_norm_with_update "
                                                           "nn.functional.instance_norm",
    "the sample's own storage offset": "as_strided as_strided.partial_views as_strided_copy as_strided_scatter",
    "changes what memory a tensor has": "resize_ resize_as_",
    "results of different shapes": "histogramdd nonzero unique unique_consecutive masked_select argwhere",
}.items() for name in names.split()}  # fmt: skip
# entry -> why the tangent differs from torch's
TANGENT = {name: why for why, names in {
    "torch's differs from finite differences, ours does not": "triangular_solve scatter_reduce.prod "
        "nn.functional.linear_cross_entropy.chunked nn.functional.linear_cross_entropy.chunked_none",
    "a tangent that is not symmetric": "linalg.cholesky linalg.cholesky_ex linalg.eigh linalg.eigvalsh linalg.matrix_rank"
        " linalg.matrix_rank.hermitian linalg.pinv.hermitian cholesky",
    "vectors up to a phase": "linalg.eig", "no formula": "linalg.householder_product",
    "indices that name one place twice": "nn.functional.max_unpool1d nn.functional.max_unpool2d nn.functional.max_unpool3d",
    "no degree of freedom: ours 0, torch's NaN": "var_mean.unbiased std_mean.unbiased",
}.items() for name in names.split()}  # fmt: skip


def entries(known: Any) -> list[Any]:
    return [pytest.param(name, id=name) for name, info in OFFERED.items() if name not in KNOWN and name not in known and
            not any(word in name for word in RANDOM) and torch.float64 in info.supported_dtypes("cpu")]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Case:
    """An entry's sample as a function of its floating point tensors."""

    def __init__(self, name: str, nth: int = 0) -> None:
        info = OFFERED[name]
        self.sample = next(itertools.islice(info.sample_inputs("cpu", torch.float64), nth, None), None)
        if self.sample is None:
            pytest.skip(f"torch has fewer than {nth + 1} samples of it")
        self.theirs, self.fn = info.op, oracle.function_of(info)
        self.args = oracle.to_ours((self.sample.input, *self.sample.args))
        self.kwargs = oracle.to_ours(self.sample.kwargs)
        self.tensors = [t.detach() for t in _pytree.tree_leaves(self.args) if self.counts(t)]
        if not self.tensors:
            pytest.skip("no floating point input")
        if name == "nn.functional.soft_margin_loss":         # its target has no gradient, as in torch
            del self.tensors[1:]

    @staticmethod
    def counts(x: Any) -> bool:
        return isinstance(x, mt.Tensor | torch.Tensor) and x.is_floating_point()

    def __call__(self, *tensors: Any) -> Any:
        left = iter(tensors)
        args = _pytree.tree_map(lambda x: next(left, x) if self.counts(x) else x, self.args)
        return tuple(t for t in _pytree.tree_leaves(self.fn(*args, **self.kwargs)) if isinstance(t, mt.Tensor))

    def torch(self, *tensors: Any) -> Any:
        left = iter(tensors)
        args = torch.utils._pytree.tree_map(lambda x: next(left, x) if self.counts(x) else x,
                                            (self.sample.input, *self.sample.args))
        found = torch.utils._pytree.tree_leaves(self.theirs(*args, **self.sample.kwargs))
        return tuple(t for t in found if isinstance(t, torch.Tensor))

    def number(self, *tensors: Any) -> Any:
        """One number made of all results, or None."""
        parts = [(o.abs() if o.is_complex() else o) for o in self(*tensors) if o.is_floating_point() or o.is_complex()]
        weighted = [(o * mt.arange(1.0, o.numel() + 1, dtype=o.dtype).view(o.shape)).sum() for o in parts]
        return sum(weighted[1:], weighted[0]) if weighted else None


def near(ours: Any, theirs: Any) -> None:
    theirs = theirs if isinstance(theirs, torch.Tensor) else oracle.to_torch(theirs.detach())
    torch.testing.assert_close(oracle.to_torch(ours.detach()), theirs.detach().resolve_conj(), rtol=1e-5, atol=1e-7,
                               equal_nan=True)


@pytest.mark.parametrize("name", entries(REFUSED))
def test_a_batch_is_its_samples(name: str) -> None:
    case = Case(name)
    for chosen in {len(case.tensors), 1}:
        batches = [mt.stack([t, t * 0.9]) for t in case.tensors[:chosen]]
        rest = case.tensors[chosen:]
        one_by_one = [case(*(b[i] for b in batches), *rest) for i in range(2)]
        if not one_by_one[0]:
            pytest.skip("its result is no tensor")
        together = mt.vmap(lambda *xs, rest=rest: case(*xs, *rest))(*batches)
        for got, *samples in zip(together, *one_by_one, strict=True):
            assert got.dtype == samples[0].dtype
            near(got, mt.stack(samples))


@pytest.mark.parametrize("name", entries(TANGENT))
def test_tangents_are_torchs(name: str) -> None:
    case = Case(name)
    torch.manual_seed(0)
    primals = [oracle.to_torch(t) for t in case.tensors]
    tangents = [torch.randn_like(t) for t in primals]
    try:
        expected = torch.func.jvp(case.torch, tuple(primals), tuple(tangents))[1]
    except (RuntimeError, NotImplementedError, TypeError) as error:
        pytest.skip(f"torch: {str(error)[:60]}")
    found = mt.func.jvp(case, tuple(case.tensors), tuple(oracle.to_ours(t) for t in tangents))[1]
    for got, want in zip(found, expected, strict=True):
        if want.is_floating_point() or want.is_complex():
            near(got, want)


def gradients(case: Case, tensors: list[Any], create: bool) -> tuple[list[Any], list[Any]]:
    """(the inputs, their gradients)"""
    inputs = [t.clone().requires_grad_() for t in tensors]
    number = case.number(*inputs)
    if number is None or not number.requires_grad:
        pytest.skip("no gradient")
    found = mt.autograd.grad(number, inputs, create_graph=create, allow_unused=True)
    return inputs, [mt.zeros_like(x) if g is None else g for g, x in zip(found, inputs, strict=True)]


GRADABLE = [p for p in entries(KNOWN_GRAD | REFUSED) if OFFERED[p.values[0]].supports_autograd]


@pytest.mark.parametrize("name", [p for p in GRADABLE if p.values[0] not in (
    "linalg.matrix_exp", "matrix_exp", "put")])  # they decide by values
def test_gradients_of_a_batch_are_those_of_its_samples(name: str) -> None:
    case = Case(name)
    batches = [mt.stack([t, t * 0.9]) for t in case.tensors]
    one_by_one = [gradients(case, [b[i] for b in batches], False)[1] for i in range(2)]
    numbers = tuple(range(len(batches)))
    together = mt.vmap(mt.func.grad(case.number, argnums=numbers))(*batches)
    for got, *samples in zip(together, *one_by_one, strict=True):
        near(got, mt.stack(samples))


@pytest.mark.parametrize("name", [p for p in GRADABLE if p.values[0] not in TANGENT and p.values[0] not in (
    "nn.functional.ctc_loss", "linalg.norm.subgradients_at_zero")])  # NaN where the second derivative does not exist
def test_forward_over_reverse_is_reverse_over_reverse(name: str) -> None:
    case = Case(name)
    inputs, found = gradients(case, case.tensors, True)
    mt.manual_seed(3)
    along = [mt.randn_like(t) for t in case.tensors]
    live = [(g, t) for g, t in zip(found, along, strict=True) if g.requires_grad]
    if not live:
        pytest.skip("the gradient is constant")
    try:
        expected = mt.autograd.grad([g for g, _ in live], inputs, [t for _, t in live], allow_unused=True)
    except RuntimeError as error:
        pytest.skip(f"no second derivative: {str(error)[:60]}")
    numbers = tuple(range(len(inputs)))
    try:
        got = mt.func.jvp(mt.func.grad(case.number, argnums=numbers), tuple(case.tensors), tuple(along))[1]
    except NotImplementedError:
        theirs = [tuple(oracle.to_torch(t.detach()) for t in given) for given in (case.tensors, along)]
        with pytest.raises(NotImplementedError, match="Trying to use forward AD"):
            torch.func.jvp(case.torch, *theirs)
        return
    for ours, want, x in zip(got, expected, inputs, strict=True):
        near(ours, mt.zeros_like(x) if want is None else want)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rows", [(), (1,), (3,)])
def test_cross_entropy_of_a_batch(reduction: str, smoothing: float, weighted: bool, rows: tuple[int, ...]) -> None:
    """Its kernels take all samples as rows; against torch's own, sample by sample, with a row that is ignored."""
    def story(lib: Any) -> list[Any]:
        make = torch.Generator().manual_seed(7)
        x, y = torch.randn(4, *rows, 6, generator=make), torch.randint(6, (4, *rows), generator=make)
        weight = torch.rand(6, generator=make)
        if rows:
            y[1, 0] = -100
        x, y, weight = (lib.tensor(t.tolist()) for t in (x, y, weight))

        def loss(x: Any, y: Any) -> Any:
            each = lib.nn.functional.cross_entropy(x, y, weight=weight if weighted else None, reduction=reduction,
                                                   label_smoothing=smoothing)
            return (each * lib.arange(1, 1 + each.numel()).view(each.shape)).sum()

        def batch(fn: Any, shared: bool = False) -> Any:
            if lib is mt:
                return mt.vmap(fn, (0, None) if shared else 0)(x, y[0] if shared else y)
            return torch.stack([fn(x[i], y[0 if shared else i]) for i in range(4)])
        grad = lib.func.grad(loss)
        return [batch(loss), batch(grad), batch(grad, shared=True), batch(lib.func.hessian(loss))]

    for ours, theirs in zip(story(mt), story(torch), strict=True):
        torch.testing.assert_close(torch.tensor(ours.tolist()), theirs, rtol=2e-5, atol=2e-6, equal_nan=True)
