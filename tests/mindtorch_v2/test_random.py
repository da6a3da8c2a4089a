"""Random numbers: bit for bit those of torch, for every generator, size, dtype and seed; states travel both ways."""
from __future__ import annotations

import warnings

import pytest
import torch
from oracle import DTYPES, to_ours, to_torch
from twin import twin

import mindtorch_v2 as mt

SIZES = [(), (0,), (1,), (7,), (15,), (16,), (17,), (31,), (33,), (4, 5), (2, 3, 4), (1000,), (40_003,)]
SEEDS = [0, 1, 42, 2**31 + 5, -3]
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def same(ours, theirs):
    ours = to_torch(ours).contiguous()
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
    assert torch.equal(ours.view(torch.uint8) if ours.dtype.is_floating_point and ours.dim() else ours,
                       theirs.contiguous().view(torch.uint8) if ours.dtype.is_floating_point and ours.dim() else theirs)


def both(seed, body):
    """body(side, dtypes) on both sides from one seed; also the number after it, which shows equal consumption."""
    results = []
    for side, dtype in ((mt, lambda d: DTYPES[d]), (torch, lambda d: d)):
        side.manual_seed(seed)
        results.append((body(side, dtype), side.rand(3)))
    (ours, our_next), (theirs, their_next) = results
    same(ours, theirs)
    same(our_next, their_next)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_rand_and_randn(size, dtype):
    for seed in SEEDS:
        both(seed, lambda t, d: t.rand(size, dtype=d(dtype)))
        both(seed, lambda t, d: t.randn(size, dtype=d(dtype)))


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_in_place_fills(size):
    for seed in SEEDS[:3]:
        for dtype in FLOATS:
            both(seed, lambda t, d: t.empty(size, dtype=d(dtype)).uniform_(-2, 3))
            both(seed, lambda t, d: t.empty(size, dtype=d(dtype)).normal_(1.5, 0.5))
        for dtype in (torch.float32, torch.float64):
            both(seed, lambda t, d: t.empty(size, dtype=d(dtype)).exponential_(2.0))
        both(seed, lambda t, d: t.empty(size).bernoulli_(0.3))
        both(seed, lambda t, d: t.empty(size, dtype=d(torch.int64)).random_(5, 90))


@pytest.mark.parametrize("bounds", [(0, 10), (-5, 5), (0, 2**31), (0, 2**40), (-2**62, 2**62), (7, 8)], ids=str)
def test_randint(bounds):
    for seed in SEEDS:
        for size in ((), (5,), (33,), (3, 7)):
            both(seed, lambda t, d: t.randint(*bounds, size))
    if bounds[1] < 2**7:
        for dtype in (torch.int32, torch.int16, torch.int8, torch.float32, torch.float64):
            both(3, lambda t, d: t.randint(*bounds, (21,), dtype=d(dtype)))


@pytest.mark.parametrize("n", [0, 1, 2, 5, 100, 5000])
def test_randperm(n):
    for seed in SEEDS:
        both(seed, lambda t, d: t.randperm(n))
    both(0, lambda t, d: t.randperm(n, dtype=d(torch.int32)))


def test_shapes_of_memory_do_not_matter():
    both(5, lambda t, d: t.empty(6, 5).t().normal_())
    both(5, lambda t, d: t.empty(6, 5)[:, ::2].uniform_())
    both(5, lambda t, d: t.empty(40, 2).t().normal_().contiguous())


def test_like_variants():
    both(1, lambda t, d: t.rand_like(t.empty(3, 9)))
    both(1, lambda t, d: t.randn_like(t.empty(30), dtype=d(torch.float64)))
    both(1, lambda t, d: t.randint_like(t.empty(9), 3, 70))


def test_normal_with_tensors():
    both(2, lambda t, d: t.normal(t.arange(5.0), t.arange(1.0, 6.0)))
    both(2, lambda t, d: t.normal(2.0, t.arange(1.0, 20.0)))
    both(2, lambda t, d: t.normal(t.arange(20.0), 0.5))
    both(2, lambda t, d: t.normal(1.0, 2.0, (4, 8)))


def test_bernoulli():
    for seed in SEEDS:
        both(seed, lambda t, d: t.bernoulli(t.linspace(0.0, 1.0, 40)))
        both(seed, lambda t, d: t.empty(33, dtype=d(torch.bool)).bernoulli_(0.5))
        both(seed, lambda t, d: t.empty(33).bernoulli_(t.linspace(0.0, 1.0, 33)))


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
def test_dropout(p):
    for size in ((5,), (16, 33)):
        both(4, lambda t, d: t.nn.functional.dropout(t.ones(size), p))
        both(4, lambda t, d: t.nn.functional.dropout(t.ones(size), p, training=False))
    both(4, lambda t, d: t.nn.functional.dropout1d(t.ones(3, 6, 4), p))


def test_multinomial():
    for seed in SEEDS:
        both(seed, lambda t, d: t.multinomial(t.arange(1.0, 12.0), 5))
        both(seed, lambda t, d: t.multinomial(t.arange(1.0, 12.0), 20, replacement=True))
        both(seed, lambda t, d: t.multinomial(t.arange(1.0, 13.0).view(3, 4), 3))
        both(seed, lambda t, d: t.multinomial(t.arange(1.0, 13.0, dtype=d(torch.float64)).view(3, 4), 1))


def test_truncated_normal_as_in_torch():
    for a, b in ((-2.0, 2.0), (-1.0, 0.5), (1.0, 3.0), (1.0, 60.0), (-0.1, 0.1)):
        both(7, lambda t, d, a=a, b=b: t.nn.init.trunc_normal_(t.empty(20, 5), a=a, b=b))


@pytest.mark.parametrize("mean, low, high", [(0.0, 1.0, 1e18), (0.0, -1e30, -3.0), (5.0, -1e12, 4.0), (-50.0, 0.0, 1e9)])
def test_truncated_normal_of_a_tail_without_end(mean, low, high):
    """Nearly all draws from the whole interval would be rejected."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")          # of a mean far outside
        drawn = mt.nn.init.trunc_normal_(mt.empty(2000, dtype=mt.float64), mean, 1.0, low, high)
    assert bool(((drawn >= low) & (drawn <= high)).all()) and len(set(drawn.tolist())) == 2000
    edge = low if abs(low) < abs(high) else high
    assert 0.005 < abs(float(drawn.mean()) - edge) < 1.0


def test_truncated_normal_without_values():
    """Neither loop may draw for ever: no value is between the bounds, or none that is ever kept."""
    init = mt.nn.init
    with pytest.raises(RuntimeError, match=r"no values of a normal distribution .* lie in \[2.0, 1.0\]"):
        init._redraw_normal(mt.empty(3), 0.0, 1.0, 2.0, 1.0, None)
    with pytest.raises(RuntimeError, match="no values of a normal"):      # the density is 0 in float32
        init._reject_uniform(mt.empty(3), -2e19, 1.0, 0.0, 1e-3, None)


def test_initialisers_of_layers():
    def made(t, d):
        layer = t.nn.Linear(17, 9)
        return t.cat([layer.weight.flatten(), layer.bias]).detach()
    both(6, made)
    both(6, lambda t, d: t.nn.init.xavier_uniform_(t.empty(9, 5)))
    both(6, lambda t, d: t.nn.init.kaiming_normal_(t.empty(9, 5)))
    both(6, lambda t, d: t.nn.init.orthogonal_(t.empty(6, 6)).abs().round(decimals=3))


# ---- states and generators -----------------------------------------------------------------------------------------
def test_state_is_torchs_and_travels_both_ways():
    torch.manual_seed(9)
    torch.randn(5)
    state = torch.get_rng_state()
    mt.set_rng_state(to_ours(state))
    assert torch.equal(to_torch(mt.get_rng_state()), state)
    for size in ((3,), (40,), (700,)):
        same(mt.randn(size), torch.randn(size))
        same(mt.rand(size, dtype=mt.float64), torch.rand(size, dtype=torch.float64))
    torch.set_rng_state(to_torch(mt.get_rng_state()))
    same(mt.randint(0, 1000, (50,)), torch.randint(0, 1000, (50,)))


def test_state_restores():
    mt.manual_seed(3)
    mt.randn(3)                        # an odd number: a second normal number waits
    state = mt.get_rng_state()
    first = mt.randn(5)
    mt.set_rng_state(state)
    assert mt.equal(first, mt.randn(5))
    with pytest.raises((RuntimeError, TypeError)):
        mt.set_rng_state(state[:100])
    with pytest.raises((RuntimeError, TypeError)):
        mt.set_rng_state("no")


def test_generators():
    ours, theirs = mt.Generator(), torch.Generator()
    assert ours.initial_seed() == theirs.initial_seed()
    assert ours.manual_seed(11) is ours
    theirs.manual_seed(11)
    mt.manual_seed(0)
    before = mt.get_rng_state()
    same(mt.rand(20, generator=ours), torch.rand(20, generator=theirs))
    same(mt.randperm(20, generator=ours), torch.randperm(20, generator=theirs))
    same(mt.empty(5).normal_(generator=ours), torch.empty(5).normal_(generator=theirs))
    same(mt.multinomial(mt.ones(9), 4, generator=ours), torch.multinomial(torch.ones(9), 4, generator=theirs))
    assert torch.equal(to_torch(ours.get_state()), theirs.get_state())
    assert mt.equal(before, mt.get_rng_state()), "the default generator is not touched"
    copy = mt.Generator().set_state(ours.get_state())
    assert mt.equal(mt.rand(4, generator=copy), mt.rand(4, generator=ours))
    assert ours.device == mt.device("cpu")


def test_seeds():
    assert mt.manual_seed(5) is mt.default_generator
    assert mt.initial_seed() == 5
    assert mt.seed() != mt.seed()
    with pytest.raises((ValueError, RuntimeError, OverflowError)):
        mt.manual_seed(2**65)


def test_fork_rng():
    mt.manual_seed(1)
    expected = mt.rand(3)
    mt.manual_seed(1)
    with mt.random.fork_rng():
        mt.manual_seed(99)
        mt.rand(10)
    assert mt.equal(mt.rand(3), expected)


def test_refusals():
    for call in (lambda t: t.empty(3).uniform_(3, 2), lambda t: t.empty(3).normal_(0, -1),
                 lambda t: t.empty(3).bernoulli_(1.5), lambda t: t.randint(5, 5, (3,)), lambda t: t.randperm(-1),
                 lambda t: t.multinomial(t.ones(3), 5), lambda t: t.multinomial(-t.ones(3), 1),
                 lambda t: t.empty(3).exponential_(-1.0), lambda t: t.multinomial(t.zeros(3), 1)):
        with pytest.raises(Exception) as theirs:
            call(torch)
        with pytest.raises(theirs.type):
            call(mt)


@twin
def test_zeros_flow_through_a_draw(t):
    mean, std = t.zeros(3, requires_grad=True), t.ones(2, 3, requires_grad=True)
    t.normal(mean, std).sum().backward()
    one = t.ones(2, requires_grad=True)
    return mean.grad, std.grad, t.normal(one, 1.0).requires_grad, t.normal(1.0, one).requires_grad, t.normal(mean.detach(), 2.0)


@twin
def test_the_input_of_a_pools_backward_has_a_gradient_of_zeros(t):
    x, g = t.rand(1, 1, 4, 4, requires_grad=True), t.rand(1, 1, 2, 2, requires_grad=True)
    _, places = t.ops.aten.max_pool2d_with_indices(x, [2, 2])
    back = t.ops.aten.max_pool2d_with_indices_backward(g, x, [2, 2], [2, 2], [0, 0], [1, 1], False, places)
    return t.autograd.grad(back.sum(), (g, x))
