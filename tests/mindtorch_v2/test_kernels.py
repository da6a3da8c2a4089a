"""The kernels behind the ops: accuracy in ulps, large reductions, threads, and the allocator."""
from __future__ import annotations

import gc
import itertools
import math
import threading
import time

import numpy as np
import pytest
import torch
from oracle import to_ours, to_torch

import mindtorch_v2 as mt
from mindtorch_v2 import _C

# function -> the range of arguments and the error allowed, in units of the last place
ACCURATE = {
    "exp": (-87.0, 88.0, 2), "exp2": (-125.0, 127.0, 2), "expm1": (-80.0, 88.0, 2), "log": (1e-30, 1e30, 2),
    "log2": (1e-30, 1e30, 2), "log10": (1e-30, 1e30, 2), "log1p": (-0.99, 1e6, 2), "sin": (-100.0, 100.0, 2),
    "cos": (-100.0, 100.0, 2), "tan": (-100.0, 100.0, 2), "asin": (-1.0, 1.0, 2), "acos": (-1.0, 1.0, 2),
    "atan": (-1e4, 1e4, 2), "sinh": (-80.0, 80.0, 2), "cosh": (-80.0, 80.0, 2), "tanh": (-10.0, 10.0, 2),
    "asinh": (-1e6, 1e6, 2), "acosh": (1.0, 1e6, 2), "atanh": (-0.999, 0.999, 2), "sqrt": (0.0, 1e30, 0.5),
    "rsqrt": (1e-30, 1e30, 2), "sigmoid": (-80.0, 80.0, 2), "erf": (-4.0, 4.0, 2), "erfc": (-4.0, 9.0, 2),
    "reciprocal": (1e-30, 1e30, 0.5), "lgamma": (-30.0, 1e4, 1), "square": (-1e15, 1e15, 0.5),
    "digamma": (-30.0, 1e4, 1), "i0": (-80.0, 80.0, 1), "special.i0e": (-200.0, 200.0, 1), "special.i1": (-80.0, 80.0, 1),
    "special.i1e": (-200.0, 200.0, 1), "special.ndtri": (0.0, 1.0, 1), "special.log_ndtr": (-30.0, 4.0, 1),
    "special.erfcx": (-8.0, 40.0, 1), "special.entr": (0.0, 100.0, 1),
}
# The same for float64, judged by numpy's wider numbers; some of the standard library's are no better.
ACCURATE_DOUBLES = {
    "exp": (-700.0, 709.0, 1), "exp2": (-1000.0, 1000.0, 2), "expm1": (-40.0, 700.0, 2), "log": (1e-300, 1e300, 1),
    "log2": (1e-300, 1e300, 1), "log10": (1e-300, 1e300, 1), "log1p": (-0.999, 1e9, 1), "sin": (-1e6, 1e6, 2),
    "cos": (-1e6, 1e6, 2), "tan": (-1e5, 1e5, 2), "asin": (-1.0, 1.0, 1), "acos": (-1.0, 1.0, 1), "atan": (-1e9, 1e9, 2),
    "sinh": (-700.0, 700.0, 2.5), "cosh": (-700.0, 700.0, 2), "tanh": (-20.0, 20.0, 2.5), "asinh": (-1e9, 1e9, 2),
    "acosh": (1.0, 1e300, 2.5), "atanh": (-0.999, 0.999, 2),
}


def found(module, name: str):
    for part in name.split("."):
        module = getattr(module, part)
    return module


def ulps(name: str, x: torch.Tensor) -> torch.Tensor:
    """The distance of our float32 result from the float64 one, in units in the last place."""
    exact = found(torch, name)(x.double())
    got = to_torch(found(mt, name)(to_ours(x))).double()
    step = torch.nextafter(exact.float().abs(), torch.tensor(torch.inf)).double() - exact.float().abs().double()
    return ((got - exact).abs() / step)[exact.float().isfinite() & (exact.abs() > 2e-38)]


@pytest.mark.parametrize("name", ACCURATE)
def test_float32_functions_are_accurate(name):
    low, high, allowed = ACCURATE[name]
    torch.manual_seed(0)
    x = torch.cat([torch.rand(20_003) * (high - low) + low, torch.rand(5000) * 2 - 1,
                   torch.logspace(-20, 0, 2000), -torch.logspace(-20, 0, 2000)])
    x = x[(x >= low) & (x <= high)]
    worst = ulps(name, x)
    assert float(worst.max()) <= allowed + 1e-3, f"{float(worst.max()):.2f} ulp at {float(x[worst.argmax()])}"


@pytest.mark.parametrize("name", ACCURATE_DOUBLES)
def test_float64_functions_are_accurate(name):
    low, high, allowed = ACCURATE_DOUBLES[name]
    torch.manual_seed(0)
    near = torch.cat([torch.rand(5000) * 8 - 4, torch.rand(5000) * 2 - 1, torch.logspace(-30, 0, 2000)]).double()
    far = torch.rand(10_003, dtype=torch.float64) * (high - low) + low
    x = torch.cat([near, far, 10 ** (torch.rand(5000, dtype=torch.float64) * 600 - 300)])
    x = x[(x >= low) & (x <= high)]
    exact = getattr(np, {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh",
                         "atanh": "arctanh"}.get(name, name))(x.numpy().astype(np.longdouble))
    got = getattr(mt, name)(to_ours(x)).numpy()
    worst = np.abs(got - exact) / np.spacing(np.abs(exact).astype("f8"))
    worst = np.where(np.abs(exact) > 3e-308, worst, 0)
    assert worst.max() <= allowed, f"{float(worst.max()):.2f} ulp at {float(x[worst.argmax()])}"


@pytest.mark.parametrize("name", ["erf", "erfc", "lgamma", "digamma", "i0", "erfinv", "special.i0e", "special.i1", "special.i1e",
                                  "special.ndtri", "special.log_ndtr", "special.erfcx", "special.entr", "special.ndtr", "sigmoid",
                                  "nn.functional.logsigmoid", "nn.functional.gelu", "nn.functional.mish", "nn.functional.softplus"])
def test_float64_special_functions(name):
    torch.manual_seed(0)
    x = torch.cat([torch.rand(2003, dtype=torch.float64) * scale for scale in (1, 4, 25, 300)])
    x = x[x < 1] if name in ("erfinv", "special.ndtri") else x
    x = torch.cat([x, -x, torch.tensor([0.0, -0.0, 1.0, -1.0, -3.0, torch.inf, -torch.inf, torch.nan], dtype=torch.float64)])
    zeros = torch.tensor([1.4616321449683623, -0.5040830082644554]) if name == "digamma" else torch.empty(0)
    x = x[((x.unsqueeze(1) - zeros).abs() > 1e-2).all(1)]
    x = x[x.abs() < torch.inf] if name in ("i0", "special.i1") else x       # torch has NaN for an infinity
    expected, got = found(torch, name)(x), to_torch(found(mt, name)(to_ours(x)))
    torch.testing.assert_close(got, expected, rtol=3e-13 if name in ("digamma", "special.erfcx", "special.log_ndtr") else 2e-14,
                               atol=3e-14 if "gamma" in name else 3e-16, equal_nan=True)


def test_angles_of_pairs_of_doubles():
    ends = torch.tensor([0.0, -0.0, 5e-324, 1e-300, 1.0, -1.0, -3.0, 1e308, 1.7e308, -1e308, torch.inf, -torch.inf, torch.nan],
                        dtype=torch.float64)
    y, x = (v.reshape(-1) for v in torch.meshgrid(ends, ends, indexing="ij"))
    got, expected = to_torch(mt.atan2(to_ours(y), to_ours(x))), torch.atan2(y, x)
    torch.testing.assert_close(got, expected, rtol=1e-15, atol=0, equal_nan=True)
    assert torch.equal(got.signbit()[~got.isnan()], expected.signbit()[~got.isnan()])


@pytest.mark.parametrize("name", ["exp", "log", "sin", "cos", "tanh", "sqrt", "rsqrt", "sigmoid", "erf", "log1p", "expm1",
                                  "atan", "reciprocal", "sinh", "cosh", "asinh", "lgamma", "relu", "floor", "round",
                                  "sign", "abs", "trunc", "neg", "exp2", "log2", "log10", "tan", "acosh", "atanh", "asin", "acos",
                                  "erfc", "digamma"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_special_values(name, dtype):
    values = [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1.0, -1.0, 1e-40, -1e-40, 3e38, 0.5, 2.5, -2.5]
    x = torch.tensor(values * 3, dtype=getattr(torch, dtype))      # long enough for the vector loop
    expected = getattr(torch, name)(x)
    got = to_torch(getattr(mt, name)(to_ours(x)))
    torch.testing.assert_close(got, expected, equal_nan=True, rtol=1e-2 if dtype in ("float16", "bfloat16") else 1e-6,
                               atol=1e-30)
    zero = (expected == 0)
    assert torch.equal(torch.signbit(got[zero]), torch.signbit(expected[zero])), "the sign of zero"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["fmod", "remainder", "floor_divide"])
@pytest.mark.parametrize("far", [1.0, 1e12, 1e-300])
def test_remainders_are_exact(name, far, dtype):
    x, y = torch.randn(2, 1003, generator=torch.Generator().manual_seed(3), dtype=dtype)
    bits = torch.int32 if dtype is torch.float32 else torch.int64
    x[500:], y[500:] = (x[500:] * 50).round(), (y[500:] * 3).round() / 10  # quotients at and beside integers
    x = x * far
    x[:7], y[3:10] = torch.tensor([[0.0, -0.0, torch.inf, -torch.inf, torch.nan, 6.0, -6.0],
                                   [2.0, torch.inf, 0.0, -0.0, torch.nan, -torch.inf, 3.0]])
    for divisor in (y, 0.375):
        expected = getattr(torch, name)(x, divisor)
        got = to_torch(getattr(mt, name)(to_ours(x), to_ours(divisor) if divisor is y else divisor))
        number = ~expected.isnan()
        assert torch.equal(got.isnan(), ~number)
        assert torch.equal(got[number].view(bits), expected[number].view(bits)), "bits, the sign of zero too"


@pytest.mark.parametrize("scale", [1.0, 1e-160, 1e160, 1e-310, 1e308, 3e-323])
def test_lengths_of_pairs_of_doubles(scale):
    x, y = torch.randn(2, 5003, generator=torch.Generator().manual_seed(3), dtype=torch.float64) * scale
    x[:1000] *= 1e-8
    x[:8] = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, torch.inf, 3.0, 5e-324])
    y[:8] = torch.tensor([0.0, -0.0, torch.nan, 1.0, 1.0, -torch.inf, torch.nan, 5e-324])
    wide = np.hypot(x.numpy().astype(np.longdouble), y.numpy().astype(np.longdouble))
    exact = wide.astype(np.float64)
    for got in (to_torch(mt.hypot(to_ours(x), to_ours(y))), to_torch(mt.complex(to_ours(x), to_ours(y)).abs())):
        number = np.isfinite(exact)
        np.testing.assert_array_equal(got.numpy()[~number], exact[~number])
        assert (np.abs(got.numpy()[number] - wide[number]) <= np.spacing(exact[number])).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bit_rows_beside_a_number(dtype):
    torch.manual_seed(0)
    x, row = torch.randn(9, 70).to(dtype), torch.randn(9, 1).to(dtype)
    x[0, :4] = torch.tensor([torch.nan, torch.inf, -0.0, 6e-8])
    for view in (x, x[:, 3:68], x.t(), x[:, :1].expand(9, 70), x[::2], x[0]):
        beside = row[:view.size(0), :1].expand_as(view) if view.dim() == 2 and view.size(0) <= 9 else row[0].expand_as(view)
        for name in ("add", "sub", "mul", "div"):
            for other in (0.3, 3, torch.tensor(1e-3, dtype=torch.float64), torch.tensor(0.7).to(dtype), beside):
                ours = to_ours(other) if isinstance(other, torch.Tensor) else other
                same = dict(rtol=0, atol=0, equal_nan=True)
                torch.testing.assert_close(to_torch(getattr(mt, name)(to_ours(view), ours)), getattr(torch, name)(view, other), **same)
                if isinstance(other, torch.Tensor):
                    torch.testing.assert_close(to_torch(getattr(mt, name)(ours, to_ours(view))), getattr(torch, name)(other, view), **same)
        for function in ("relu", "square"):
            expected, got = getattr(torch, function)(view), to_torch(getattr(mt, function)(to_ours(view)))
            torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
        view = view.nan_to_num(posinf=3)
        for approximate in ("none", "tanh"):
            torch.testing.assert_close(to_torch(mt.nn.functional.gelu(to_ours(view), approximate=approximate)).float(),
                                       torch.nn.functional.gelu(view.float(), approximate=approximate), rtol=1e-2, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_steps_to_the_next_number(dtype):
    info = torch.finfo(getattr(torch, dtype))
    ends = [0.0, -0.0, info.smallest_normal, info.max, -info.max, torch.inf, -torch.inf, torch.nan, 1.0, -1.0, 2.0]
    x, y = (v.reshape(-1) for v in torch.meshgrid(*[torch.tensor(ends, dtype=getattr(torch, dtype))] * 2, indexing="ij"))
    for a, b in ((x, y), (torch.nextafter(x, y), x)):
        expected, got = torch.nextafter(a, b), to_torch(mt.nextafter(to_ours(a), to_ours(b)))
        torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(got.signbit()[~got.isnan()], expected.signbit()[~got.isnan()])


def test_angles_of_complex_numbers():
    values = torch.tensor([0.0, -0.0, 1.0, -1.0, torch.inf, -torch.inf, torch.nan, 3e-39, -7.5, 1e30])
    z = torch.complex(*torch.meshgrid(values, values, indexing="ij")).reshape(-1)
    torch.testing.assert_close(to_torch(to_ours(z).angle()), z.angle(), rtol=3e-7, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "complex64", "bfloat16"])
def test_powers_by_a_number_and_by_its_copies(dtype):
    x = (torch.arange(-40, 40) / 8).to(getattr(torch, dtype))
    for exponent in (0, 1, 2, 3, 5) if dtype == "int32" else (0, 1, 2, 3, -1, -2, 0.5, 2.5):
        expected = x ** exponent
        copies = mt.full((80,), exponent, dtype=getattr(mt, dtype))
        for got in (to_ours(x) ** exponent, to_ours(x) ** copies):
            torch.testing.assert_close(to_torch(got), expected, equal_nan=True, rtol=2e-2 if dtype == "bfloat16" else 3e-6,
                                       atol=1e-6)
    mixed = mt.tensor([2.0, 2.0, 3.0])
    assert (mt.tensor([3.0, 4.0, 2.0]) ** mixed).tolist() == [9.0, 16.0, 8.0]
    assert mixed.pow_(mixed).tolist() == [4.0, 4.0, 27.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_slope_of_digamma(dtype):
    x = torch.cat([torch.rand(500) * 30, torch.logspace(-6, 6, 300), torch.rand(500) * -30, torch.tensor([0.0, -0.0, torch.inf])]).to(dtype)
    x = x[(x >= 0) | ((x - x.round()).abs() > 0.05)]
    got, expected = to_torch(mt.polygamma(1, to_ours(x))), torch.polygamma(1, x)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=0)        # torch's own is right to 1e-9
    x, got = x[:-1], got[:-1]
    wide = x.double()
    above = torch.special.zeta(torch.tensor(2.0, dtype=torch.float64), torch.where(wide < 0, 1 - wide, wide))
    exact = torch.where(wide < 0, (math.pi / (math.pi * (wide - wide.round())).sin()) ** 2 - above, above).to(dtype)
    torch.testing.assert_close(got, exact, rtol=2e-7 if dtype is torch.float32 else 3e-14, atol=0)
    ours = to_ours(x[:400]).requires_grad_()
    slope = mt.autograd.grad(mt.autograd.grad(ours.digamma().sum(), ours, create_graph=True)[0].sum(), ours)[0]
    torch.testing.assert_close(to_torch(slope), torch.polygamma(2, x[:400]), rtol=1e-5, atol=0)


@pytest.mark.parametrize("edges", ["even", "nearly even", "uneven", "equal"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_places_between_edges(edges, dtype):
    torch.manual_seed(0)
    e = {"even": torch.linspace(-2, 3, 38), "nearly even": torch.linspace(-2, 3, 38) + torch.rand(38) * 0.05,
         "uneven": torch.randn(38).sort()[0], "equal": torch.tensor([1.0, 1.0, 1.0, 2.0])}[edges].to(dtype)
    up, down = (e.nextafter(torch.full_like(e, end)) for end in (torch.inf, -torch.inf))
    x = torch.cat([torch.randn(5000).to(dtype), e, up, down, torch.tensor([torch.nan, torch.inf, -torch.inf]).to(dtype)])
    weight = torch.rand(x.shape, dtype=dtype)
    for w in (None, weight):
        expected, _ = torch.histogram(x, e, weight=w)
        got, _ = mt.histogram(to_ours(x), to_ours(e), weight=None if w is None else to_ours(w))
        torch.testing.assert_close(to_torch(got), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_largest_of_bags(dtype):
    torch.manual_seed(0)
    for width, padding in ((1, None), (5, None), (16, 3), (37, 0)):
        weight = torch.randn(23, width).to(dtype)
        weight[4] = weight[9]
        indices, offsets = torch.randint(0, 23, (60,)), torch.tensor([0, 0, 7, 8, 30, 60])
        results = []
        for xp in (torch, mt):
            w, i, o = (v if xp is torch else to_ours(v) for v in (weight.clone(), indices, offsets))
            w.requires_grad_()
            found = xp.embedding_bag(w, i, o, False, 2, False, None, False, -1 if padding is None else padding)
            found[0].float().square().sum().backward()
            results.append([found[0].detach(), found[3], w.grad] if xp is torch else [to_torch(v) for v in (found[0].detach(), found[3], w.grad)])
        for expected, got in zip(*results, strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-2 if dtype is torch.bfloat16 else 1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bit_arithmetic_and_sums(dtype):
    torch.manual_seed(0)
    ends = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 6e-8, -6e-8, 65504.0, 1e-40])
    for n in (1, 7, 16, 31, 1027):
        x, y = (torch.cat([torch.randn(n), ends]).to(dtype) for _ in range(2))
        y = y.roll(1)
        for name in ("add", "sub", "mul", "div"):
            expected, got = getattr(torch, name)(x, y), to_torch(getattr(mt, name)(to_ours(x), to_ours(y)))
            torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
        for name in ("abs", "neg", "exp", "sigmoid", "rsqrt", "nn.functional.silu"):
            expected, got = found(torch, name)(x), to_torch(found(mt, name)(to_ours(x)))
            torch.testing.assert_close(got, expected, rtol=1e-2, atol=1e-7, equal_nan=True)
            assert torch.equal(got.signbit()[~got.isnan()], expected.signbit()[~got.isnan()])
    for shape in ((1, 5), (33, 70), (300, 9), (5, 2100), (9, 4, 13)):
        x = torch.randn(shape).to(dtype)
        for view in (x, x.transpose(0, 1), x[::2], x[:, 1:]):
            for dims in (0, 1, tuple(range(x.dim()))):
                exact = view.double().sum(dims)
                got = to_torch(to_ours(view).sum(dims))
                torch.testing.assert_close(got, exact.to(dtype), rtol=torch.finfo(dtype).eps, atol=1e-5)
                torch.testing.assert_close(to_torch(to_ours(view).mean(dims)), view.double().mean(dims).to(dtype), rtol=1e-2, atol=1e-5)
                torch.testing.assert_close(to_torch(to_ours(view).sum(dims, dtype=mt.float32)), exact.float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
def test_one_item_beside_whole_rows(dtype):
    torch.manual_seed(0)
    numbers = (torch.randn(61, 5, 70) * 9).to(dtype)
    shapes = [((61, 1), (1, 70)), ((61, 1), (61, 70)), ((5, 1), (61, 5, 70)), ((61, 5, 1), (61, 5, 70)), ((61, 1, 70), (61, 5, 1))]
    for one, other in shapes + [(b, a) for a, b in shapes]:
        x, y = (numbers.flatten()[:torch.Size(shape).numel()].reshape(shape) for shape in (one, other))
        for name, rest in (("add", {}), ("add", {"alpha": 3}), ("sub", {"alpha": -2}), ("mul", {}), ("div", {})):
            expected, got = getattr(torch, name)(x, y, **rest), getattr(mt, name)(to_ours(x), to_ours(y), **rest)
            close = {"rtol": 1e-2, "atol": 0.25} if dtype is torch.bfloat16 else {"rtol": 1e-6, "atol": 1e-5}
            torch.testing.assert_close(to_torch(got), expected, equal_nan=True, **close)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "float64", "complex128"])
@pytest.mark.parametrize("shape", [(6, 4, 2, 5, 33), (3, 70, 2, 65), (17, 2, 9), (5, 100, 3)])
def test_copies_and_sums_of_short_rows(dtype, shape):
    x = (torch.arange(math.prod(shape)) % 251).reshape(shape).to(getattr(torch, dtype))
    y = to_ours(x)
    for order in itertools.permutations(range(len(shape))):
        turned, ours = x.permute(order), y.permute(order)
        assert torch.equal(to_torch(ours.contiguous()), turned.contiguous())
        assert torch.equal(to_torch(ours + ours[..., :1]), turned + turned[..., :1])
    room, ours_room = torch.zeros(*shape, 2, dtype=x.dtype), mt.zeros(*shape, 2, dtype=y.dtype)
    room[..., 1], ours_room[..., 1] = x, y
    assert torch.equal(to_torch(ours_room), room)
    assert torch.equal(to_torch(mt.stack([y, y, y], -1)), torch.stack([x, x, x], -1))


@pytest.mark.parametrize("widths", [(0, 2), (2, 0, 1), (1, 1, 1), (0, 1), (3, 0, 0), (0, 1, 3, 0, 1)])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.int8])
def test_joined_rows_of_unequal_length(dtype, widths):
    """As many items a row as tensors: with empty ones among them it is not one item of each."""
    parts = [torch.arange(5 * n, dtype=dtype).reshape(5, n) for n in widths]
    for dim, given in ((1, parts), (0, [part.t().contiguous() for part in parts])):
        assert mt.cat([to_ours(part) for part in given], dim).tolist() == torch.cat(given, dim).tolist()


@pytest.mark.parametrize("n", [1, 7, 8, 9, 63, 64, 65, 1000, 4097, 100_003])
def test_lengths_around_the_vector_width(n):
    x = torch.linspace(-3, 3, n)
    ours = to_ours(x)
    for name in ("exp", "sin", "tanh", "abs", "neg"):
        torch.testing.assert_close(to_torch(getattr(mt, name)(ours)), getattr(torch, name)(x), rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(to_torch(ours * 2 + 1), x * 2 + 1)
    torch.testing.assert_close(to_torch((ours > 0).sum()), (x > 0).sum())


# ---- reductions ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("shape, dim", [((3_000_000,), 0), ((1000, 3000), 0), ((1000, 3000), 1), ((30, 100, 1000), 1)])
def test_large_sums_are_accurate(shape, dim):
    torch.manual_seed(1)
    x = torch.rand(shape) + 1.0
    exact = x.double().sum(dim)
    for got in (to_torch(to_ours(x).sum(dim)), to_torch(to_ours(x).mean(dim)) * shape[dim]):
        assert float(((got.double() - exact) / exact).abs().max()) < 1e-6
    got = to_torch(to_ours(x).var(dim)).double()
    assert float((got / x.double().var(dim) - 1).abs().max()) < 1e-5


def test_large_sum_of_half_precision():
    x = torch.full((1 << 16,), 0.1).half()
    assert abs(to_ours(x).sum().item() / float(x.double().sum()) - 1) < 1e-3
    assert abs(to_ours(x.bfloat16()).sum().item() / float(x.bfloat16().double().sum()) - 1) < 5e-3


def test_variance_of_a_large_mean():
    torch.manual_seed(2)
    x = torch.randn(100_000) + 10_000
    assert abs(to_ours(x).var().item() / float(x.double().var()) - 1) < 1e-3


def test_integer_sums_do_not_overflow_early():
    x = torch.full((70_000,), 100, dtype=torch.int8)
    assert to_ours(x).sum().item() == 7_000_000
    assert to_ours(torch.full((3,), 2**62, dtype=torch.int64)).sum().item() == int(torch.full((3,), 2**62).sum())


@pytest.mark.parametrize("m, k, n", [(1, 1, 1), (3, 5, 7), (64, 64, 64), (129, 257, 65), (1, 1000, 1), (1000, 1, 1000),
                                     (0, 4, 3), (4, 0, 3)])
def test_matrix_products(m, k, n):
    torch.manual_seed(3)
    a, b = torch.randn(m, k), torch.randn(k, n)
    exact = (a.double() @ b.double()).float()
    for x, y in ((a, b), (a.t().contiguous().t(), b), (a, b.t().contiguous().t())):
        torch.testing.assert_close(to_torch(to_ours(x) @ to_ours(y)), exact, rtol=1e-4, atol=1e-4)
    low = to_torch(to_ours(a.bfloat16()) @ to_ours(b.bfloat16()))
    torch.testing.assert_close(low, (a.bfloat16().double() @ b.bfloat16().double()).bfloat16(), rtol=2e-2, atol=2e-2)


# ---- threads -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("m, n, k", [(129, 16, 17), (500, 47, 300), (1000, 1000, 513), (130, 4100, 130), (4100, 130, 130),
                                     (1100, 700, 400), (45, 67, 3000), (200, 17, 2100)])
def test_large_matrix_products(m, n, k, threads):
    """Packed by blocks, by one thread or by all of them at once; every block has edges here. Deep ones are sums of parts."""
    torch.manual_seed(4)
    before = mt.get_num_threads()
    mt.set_num_threads(threads)
    try:
        for a in (torch.randn(m, k), torch.randn(k, m).t()):
            for b in (torch.randn(k, n), torch.randn(n, k).t()):
                exact = (a.double() @ b.double()).float()
                x, y = to_ours(a), to_ours(b)
                torch.testing.assert_close(to_torch(x @ y), exact, rtol=1e-4, atol=2e-4)
                torch.testing.assert_close(to_torch(mt.ones(m, n).addmm_(x, y)), exact + 1, rtol=1e-4, atol=2e-4)
    finally:
        mt.set_num_threads(before)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 8, 9])
def test_small_matrices_of_a_batch(dtype, n):
    generator = torch.Generator().manual_seed(n)
    a = torch.randn(20, n, n, generator=generator, dtype=getattr(torch, dtype))
    a[:, 0, 0] = 0 if n > 1 else 1                        # rows have to change places
    a[3] = torch.eye(n, dtype=a.dtype) * (torch.arange(n) + 1)
    b, x = torch.randn(20, n, 2, generator=generator, dtype=a.dtype), to_ours(a)
    near = dict(rtol=1e-3, atol=1e-3) if dtype == "float32" else dict(rtol=1e-9, atol=1e-9)
    (lu, pivots), (expected_lu, expected_pivots) = mt.linalg.lu_factor(x), torch.linalg.lu_factor(a)
    assert torch.equal(to_torch(pivots), expected_pivots)
    torch.testing.assert_close(to_torch(lu), expected_lu, **near)
    for name in ("inv", "det", "slogdet"):
        for got, expected in zip(getattr(mt.linalg, name)(x), getattr(torch.linalg, name)(a), strict=True):
            torch.testing.assert_close(to_torch(got), expected, **near)
    torch.testing.assert_close(to_torch(mt.linalg.solve(x, to_ours(b))), torch.linalg.solve(a, b), **near)
    torch.testing.assert_close(to_torch(mt.linalg.inv(x.mT)), torch.linalg.inv(a.mT), **near)
    spd = a @ a.mH + torch.eye(n, dtype=a.dtype)
    torch.testing.assert_close(to_torch(mt.linalg.cholesky(to_ours(spd))), torch.linalg.cholesky(spd), **near)
    spd[7, -1, -1] = -1
    assert torch.equal(to_torch(mt.linalg.cholesky_ex(to_ours(spd))[1]), torch.linalg.cholesky_ex(spd)[1])
    for upper in (False, True):
        for matrix in (a, a.mT):
            triangle = (matrix.triu() if upper else matrix.tril()) + 3 * torch.eye(n, dtype=a.dtype)
            for left, rest in ((True, b), (False, b.mT)):
                expected = torch.linalg.solve_triangular(triangle, rest, upper=upper, left=left)
                for given in (to_ours(triangle), to_ours(triangle.mT.contiguous()).mT, to_ours(triangle.repeat(1, 1, 2))[..., :n]):
                    got = mt.linalg.solve_triangular(given, to_ours(rest), upper=upper, left=left)
                    torch.testing.assert_close(to_torch(got), expected, **near)
    x[5, -1] = 0
    with pytest.raises(mt.linalg.LinAlgError, match="Batch element 5"):
        mt.linalg.inv(x)


@pytest.mark.parametrize("threads", [3, 16])
@pytest.mark.parametrize("shape", [(300, 777), (1576, 96), (12, 40000), (2100, 9), (1030, 9000), (3, 700, 50)])
def test_reductions_whose_outputs_are_shared_out(shape, threads):
    """Tiles of outputs that are made narrower for the threads, or pieces of the items whose sums are merged."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    ours, before = to_ours(x), mt.get_num_threads()
    mt.set_num_threads(threads)
    try:
        for dim in range(x.dim()):
            torch.testing.assert_close(to_torch(ours.sum(dim)), x.double().sum(dim).float(), rtol=1e-5, atol=1e-4)
            torch.testing.assert_close(to_torch(ours.var(dim)), x.double().var(dim).float(), rtol=1e-5, atol=1e-5)
            assert all(torch.equal(to_torch(a), b) for a, b in zip(ours.max(dim), x.max(dim), strict=True))
            assert torch.equal(to_torch(ours.to(mt.int64).sum(dim)), x.to(torch.int64).sum(dim))
    finally:
        mt.set_num_threads(before)


@pytest.mark.parametrize("threads", [2, 5, 16])
def test_rounds_of_few_and_many_pieces_by_turns(threads):
    """Workers that have no share of a round, that come late from a larger one, or that sleep."""
    before, grain = mt.get_num_threads(), 32768
    x = mt.arange(80 * grain, dtype=mt.float32)
    wanted = x.numpy() + 1
    mt.set_num_threads(threads)
    try:
        for turn in range(120):
            if turn % 30 == 29:
                time.sleep(0.01)
            for pieces in (80, 2, 3, threads, 1, 7):
                n = pieces * grain - turn
                assert np.array_equal((x[:n] + 1).numpy(), wanted[:n]), (turn, pieces)
        with pytest.raises(IndexError):  # of a body, on whatever thread
            x.view(-1, 1)[mt.full((8 * grain,), 10**9)]
        assert np.array_equal((x + 1).numpy(), wanted)
    finally:
        mt.set_num_threads(before)


def test_set_num_threads():
    before = mt.get_num_threads()
    x = mt.rand(500, 1000)
    try:
        results = []
        for n in (1, 2, 3):
            mt.set_num_threads(n)
            assert mt.get_num_threads() == n
            results.append(((x.exp() + 1), x.softmax(1)))
        for r in results[1:]:
            assert mt.equal(r[0], results[0][0]) and mt.equal(r[1], results[0][1])
        with pytest.raises((RuntimeError, TypeError)):
            mt.set_num_threads(0)
    finally:
        mt.set_num_threads(before)


def test_use_from_many_threads():
    torch.manual_seed(4)
    x = torch.randn(300, 400)
    expected = (x.exp() @ x.t()).softmax(1).sum(0)
    failures = []

    def work():
        ours = to_ours(x)
        for _ in range(10):
            got = (ours.exp() @ ours.t()).softmax(1).sum(0)
            if not torch.allclose(to_torch(got), expected, rtol=1e-3, atol=1e-5):
                failures.append(got)
    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


# ---- the allocator -------------------------------------------------------------------------------------------------
def stats() -> dict[str, int]:
    gc.collect()
    return _C._cpu_memory_stats()


def test_allocated_bytes_follow_the_tensors():
    before = stats()["allocated_bytes"]
    x = mt.empty(1 << 18)
    held = stats()["allocated_bytes"] - before
    assert held >= 1 << 20
    view = x[5:]
    del x
    assert stats()["allocated_bytes"] - before == held, "a view keeps the storage"
    del view
    assert stats()["allocated_bytes"] == before


def test_memory_is_reused():
    x = mt.empty(1 << 18)
    place = x.data_ptr()
    del x
    hits = stats()["cache_hits"]
    y = mt.empty(1 << 18)
    assert y.data_ptr() == place and stats()["cache_hits"] > hits


def test_empty_cache_gives_memory_back():
    x = mt.empty(1 << 20)
    del x
    assert stats()["cached_bytes"] > 0
    _C._cpu_empty_cache()
    assert stats()["cached_bytes"] == 0
    assert stats()["reserved_bytes"] >= stats()["allocated_bytes"]


def test_peak_counts():
    x = mt.empty(1 << 19)
    peak = stats()["peak_allocated_bytes"]
    assert peak >= stats()["allocated_bytes"] >= 1 << 21
    del x
    assert stats()["peak_allocated_bytes"] == peak


def test_memory_is_aligned():
    for n in (1, 3, 100, 5000, 1 << 17):
        assert mt.empty(n).data_ptr() % 64 == 0


def test_too_large_is_refused():
    with pytest.raises((RuntimeError, MemoryError)):
        mt.empty(1 << 60)
    with pytest.raises((RuntimeError, MemoryError)):
        mt.empty(1 << 40, 1 << 40)
    with pytest.raises(RuntimeError):
        mt.empty(-1)
    assert mt.ones(3).sum().item() == 3


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "complex64", "int64", "uint8"])
def test_rows_times_columns_of_a_batch(dtype):
    torch.manual_seed(0)
    kind = getattr(torch, dtype)
    for k in (1, 15, 16, 63, 100, 300):
        a, b, c = ((torch.randn(20, *shape) * 4).to(kind) for shape in ((1, k), (k, 1), (1, 1)))
        b_rows = b.mT.contiguous().mT
        near = dict(rtol=3e-2, atol=1.0) if "16" in dtype else dict(rtol=1e-4, atol=1e-3)
        for left, right in ((a, b), (a, b_rows), (a.expand(20, 1, k)[:, :, ::2], b[:, ::2])):
            torch.testing.assert_close(to_torch(to_ours(left) @ to_ours(right)), left @ right, **near)
            expected = torch.baddbmm(c, left, right, alpha=2, beta=3)
            torch.testing.assert_close(to_torch(mt.baddbmm(to_ours(c), to_ours(left), to_ours(right), alpha=2, beta=3)), expected, **near)
