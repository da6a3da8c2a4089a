"""Loops of the 16-bit floats, powers of doubles, and what repeats along an expanded dim."""
from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from oracle import to_ours, to_torch

import mindtorch_v2 as mt

# What has loops of its own for the 16-bit floats, as functions of the module and a tensor.
SMALL = {
    "relu6": lambda m, x: m.nn.functional.relu6(x), "hardswish": lambda m, x: m.nn.functional.hardswish(x),
    "hardsigmoid": lambda m, x: m.nn.functional.hardsigmoid(x), "leaky_relu": lambda m, x: m.nn.functional.leaky_relu(x, 0.3),
    "hardtanh": lambda m, x: m.nn.functional.hardtanh(x, -0.4, 0.7), "clamp": lambda m, x: x.clamp(-0.5, 0.9),
    "clamp_min": lambda m, x: x.clamp(min=0.1), "clamp_nan": lambda m, x: x.clamp(-1.0, math.nan), "sqrt": lambda m, x: x.sqrt(),
    "square": lambda m, x: x.square(), "power of 2": lambda m, x: x ** 2, "power of 3": lambda m, x: x ** 3,
    "power of -1": lambda m, x: x ** -1, "power of 0.5": lambda m, x: x ** 0.5, "power of 1.7": lambda m, x: x.abs() ** 1.7,
    "reciprocal": lambda m, x: x.reciprocal(), "exp": lambda m, x: x.exp(), "sigmoid": lambda m, x: x.sigmoid(),
}
ROUNDED = ("exp", "sigmoid", "power of 1.7")       # 2 units in the last place of float may round the other way


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bit_loops_round_the_float_result(dtype, name):
    """Every number of the dtype, and lengths that are no multiple of a vector."""
    x = torch.arange(-2**15, 2**15).to(torch.int16).view(dtype)
    for part in (x, x[:1], x[5:38], x[1000:1077]):
        # Roots of float are not always exact in torch, and the exponent is rounded to the dtype.
        wide = part.double() if name in ("sqrt", "power of 0.5") else part if name == "power of 1.7" else part.float()
        got, expected = to_torch(SMALL[name](mt, to_ours(part))), SMALL[name](torch, wide).to(dtype)
        near = {"rtol": torch.finfo(dtype).eps, "atol": torch.finfo(dtype).smallest_normal} if name in ROUNDED else \
               {"rtol": 0, "atol": 0}
        torch.testing.assert_close(got, expected, equal_nan=True, **near)


@pytest.mark.parametrize("name", ["leaky_relu", "relu"])
def test_16_bit_slopes(name):
    x = torch.arange(-2**15, 2**15, 7).to(torch.int16).view(torch.bfloat16)
    x = x[x.isfinite()].clone()
    theirs, ours = x.clone().requires_grad_(), to_ours(x).requires_grad_()
    getattr(torch.nn.functional, name)(theirs).backward(x.flip(0))
    getattr(mt.nn.functional, name)(ours).backward(to_ours(x.flip(0)))
    torch.testing.assert_close(to_torch(ours.grad), theirs.grad, rtol=0, atol=0)


def test_gelu_of_bfloat16_is_right_to_its_last_place():
    x = torch.arange(-2**15, 2**15).to(torch.int16).view(torch.bfloat16)
    x = x[(x.abs() < 1e30) & (x.float() > -5.5)]
    exact = torch.nn.functional.gelu(x.double())
    got = to_torch(mt.nn.functional.gelu(to_ours(x))).double()
    size = exact.to(torch.bfloat16).abs()
    step = torch.nextafter(size, torch.tensor(torch.inf, dtype=torch.bfloat16)).double() - size.double()
    assert float(((got - exact).abs() / step)[exact.abs() > 1e-37].max()) <= 0.52


def test_powers_of_doubles():
    torch.manual_seed(0)
    draws = [(torch.rand(20_003) * 8, torch.rand(20_003) * 20 - 10), (1 + torch.randn(5000) * 1e-4, torch.randn(5000) * 1e6),
             ((torch.randn(5000).double() * 200).exp(), torch.rand(5000) * 2 - 1), (torch.rand(5000) + 0.5, torch.randn(5000) * 400)]
    for x, y in draws:
        x, y = x.double(), y.double()
        exact = x.numpy().astype(np.longdouble) ** y.numpy()
        normal = (np.abs(exact) > 3e-308) & (np.abs(exact) < 1e308)
        got, exact = mt.pow(to_ours(x), to_ours(y)).numpy()[normal], exact[normal]
        assert (np.abs(got - exact) / np.spacing(np.abs(exact).astype("f8"))).max() <= 1
    ends = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, 2.5, -2.5, 1e308, -1e308, 5e-324, -5e-324, 1e17,
                         2.0**53 - 1, 1 - 2.0**53, torch.inf, -torch.inf, torch.nan], dtype=torch.float64)
    x, y = (v.reshape(-1) for v in torch.meshgrid(ends, ends, indexing="ij"))
    expected = torch.tensor(list(map(power, x.tolist(), y.tolist())), dtype=torch.float64)
    got = to_torch(mt.pow(to_ours(x), to_ours(y)))
    torch.testing.assert_close(got, expected, rtol=3e-16, atol=0, equal_nan=True)
    assert torch.equal(got.signbit()[~expected.isnan()], expected.signbit()[~expected.isnan()])


def power(x: float, y: float) -> float:
    """The C library's, by way of numpy."""
    with np.errstate(all="ignore"):
        return float(np.float64(x) ** np.float64(y))


REDUCED = ["sum", "mean", "nansum", "prod", "amax", "amin", "any", "all", "count_nonzero", "argmax", "max", "aminmax", "std",
           "logsumexp", "norm", "mode", "sort", "cumsum"]
WHOLE = ("sum", "mean", "nansum", "amax", "any", "all", "count_nonzero", "prod", "max")


def repeated(dtype: mt.dtype, signs: bool) -> list[mt.Tensor]:
    """Tensors with strides of 0 in reduced dims, in kept dims, in both."""
    base = mt.randint(-3, 4, (4, 1, 3), generator=mt.Generator().manual_seed(0))
    base = (base.sign() if signs else base).to(dtype)
    return [base.expand(4, 5, 3), base.expand(2, 4, 5, 3), base[:, :, :1].expand(4, 5, 7), base[0, 0, 0].expand(6, 2),
            base.expand(4, 300, 3).transpose(0, 1), base.expand(9, 4, 40, 3)[::2], base[:, :, :1].expand(4, 0, 3)]


def results(call, x: mt.Tensor) -> list[mt.Tensor] | type:
    """What the call gives, or what it raises."""
    try:
        made = call(x)
    except (RuntimeError, IndexError) as error:
        return type(error)
    return [made] if isinstance(made, mt.Tensor) else list(made)


@pytest.mark.parametrize("name", REDUCED)
@pytest.mark.parametrize("dtype", [mt.float32, mt.bfloat16, mt.int32, mt.bool, mt.complex64], ids=str)
def test_items_that_repeat_along_an_expanded_dim(dtype, name):
    """The same as of a copy in which every item stands."""
    counted = 0
    for x in repeated(dtype, name == "prod"):
        settings = [{"dim": d} for d in range(x.dim())]
        if name not in ("sort", "cumsum", "count_nonzero"):
            settings += [{**s, "keepdim": True} for s in settings]
        for more in settings + [{}] * (name in WHOLE):
            got, expected = (results(lambda t: getattr(mt, name)(t, **more), t) for t in (x, x.contiguous()))     # noqa: B023
            if isinstance(expected, type):
                assert got is expected
                continue
            counted += 1
            for ours, wanted in zip(got, expected, strict=True):
                assert ours.shape == wanted.shape and ours.dtype is wanted.dtype
                mt.testing.assert_close(ours, wanted, equal_nan=True)
    refused = {mt.bool: ("mean", "std", "norm", "argmax"), mt.int32: ("mean", "std", "norm"),
               mt.complex64: ("amax", "amin", "argmax", "max", "aminmax", "mode", "sort", "nansum", "logsumexp")}.get(dtype, ())
    assert counted or name in refused


def test_the_sum_of_many_times_one_number_is_exact():
    assert mt.tensor(0.1).expand(3000, 1000).sum().item() == float(np.float32(3e6 * float(np.float32(0.1))))
    assert mt.tensor([2**62], dtype=mt.int64).expand(6).sum().item() == -2**63


@pytest.mark.parametrize("dim", [0, 1])
def test_rows_of_an_expanded_tensor_at_indices(dim):
    for view in (torch.randn(50, 1).expand(50, 60), torch.randn(1, 60).expand(50, 60), torch.randn(1, 1).expand(50, 60)):
        index = torch.randint(0, 50, (70,))
        assert torch.equal(to_torch(to_ours(view).index_select(dim, to_ours(index))), view.index_select(dim, index))


LOSSES = {"mse": ("mse_loss", {}), "l1": ("l1_loss", {}), "smooth_l1": ("smooth_l1_loss", {}), "smooth_l1 0.3": ("smooth_l1_loss", {"beta": 0.3}),
          "huber": ("huber_loss", {}), "huber 0.7": ("huber_loss", {"delta": 0.7})}


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses_that_are_reduced_as_they_are_made(name, reduction):
    function, more = LOSSES[name]
    for dtype in (torch.float32, torch.float64):
        for shape in ((), (0,), (1,), (37,), (5, 1001), (300, 301)):
            x, y = torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype)
            if x.numel() > 30:
                y.view(-1)[3:5] = x.view(-1)[3:5]
            for a, b in ((x, y), (x.t(), y.t()) if x.dim() == 2 else (x, x)):
                leaf, mine = a.clone().requires_grad_(), to_ours(a).clone().requires_grad_()
                expected = getattr(torch.nn.functional, function)(leaf, b, reduction=reduction, **more)
                got = getattr(mt.nn.functional, function)(mine, to_ours(b), reduction=reduction, **more)
                torch.testing.assert_close(to_torch(got.detach()), expected.detach(), equal_nan=True)
                expected.backward()
                got.backward()
                torch.testing.assert_close(to_torch(mine.grad), leaf.grad, equal_nan=True)
    x = to_ours(torch.randn(70))
    for value in (math.nan, math.inf):
        x[33] = value
        made = getattr(mt.nn.functional, function)(x, mt.zeros(70), reduction=reduction, **more).item()
        assert math.isnan(made) if math.isnan(value) else made == value


def test_reflections_of_any_shape():
    torch.manual_seed(0)
    for rows, columns in ((6, 6), (6, 4), (20, 3), (40, 2), (3, 5)):
        for dtype in (torch.float64, torch.complex128):
            a, tau = torch.geqrf(torch.randn(2, rows, columns, dtype=dtype))
            c = torch.randn(2, rows, rows, dtype=dtype)
            for left in (True, False):
                for turned in (True, False):
                    expected = torch.ormqr(a, tau, c, left, turned)
                    torch.testing.assert_close(to_torch(mt.ormqr(to_ours(a), to_ours(tau), to_ours(c), left, turned)), expected)


def test_cross_entropy_of_rows_of_any_length():
    torch.manual_seed(0)
    for dtype in (torch.float32, torch.float64):
        for classes in (1, 7, 15, 16, 17, 31, 32, 33, 100, 255, 256, 257, 1030):
            x, target = torch.randn(5, classes, dtype=dtype) * 4, torch.randint(0, classes, (5,))
            x[1, classes // 2] = -torch.inf
            target[1] = (classes // 2 + 1) % classes
            x[3, classes - 1] = torch.nan
            x[4] = 50
            expected = torch.nn.functional.cross_entropy(x, target, reduction="none")
            got = mt.nn.functional.cross_entropy(to_ours(x), to_ours(target), reduction="none")
            torch.testing.assert_close(to_torch(got), expected, equal_nan=True)


EQUATIONS = [("ij,jk->ik", (3, 4), (4, 5)), ("ij,jk->ki", (3, 4), (4, 5)), ("ij,jk", (3, 4), (4, 5)), ("ij,ij->i", (3, 4), (3, 4)),
             ("ij,ij->", (3, 4), (3, 4)), ("ij,ij->", (3, 1), (3, 1)), ("ij,ji->j", (3, 4), (4, 3)), ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
             ("bihd,bjhd->bhij", (2, 3, 4, 5), (2, 6, 4, 5)), ("...ij,...jk->...ik", (2, 3, 4), (2, 4, 5)),
             ("...ij,...jk->...ik", (2, 1, 3, 4), (7, 4, 5)), ("bij,bjk->bik", (1, 3, 4), (2, 4, 5)), ("ij,kj->ikj", (3, 4), (5, 4)),
             ("ijk,jl->il", (3, 4, 2), (4, 5)), ("ijk,jl->il", (3, 4, 1), (4, 5)), ("iij,jk->ik", (3, 3, 4), (4, 5)), ("ij,jk->ik", (3, 0), (0, 5)),
             ("i,i->", (0,), (0,)), ("i,j->ji", (3,), (4,)), ("ab,cb->ca", (3, 4), (1, 4)), (" i j , j k -> i k ", (3, 4), (4, 5))]


@pytest.mark.parametrize(("equation", "left", "right"), EQUATIONS)
def test_einsum_of_two_operands(equation, left, right):
    for _ in range(2):                                       # the second time by a plan that was made before
        a, b = torch.randn(left, dtype=torch.float64), torch.randn(right, dtype=torch.float64)
        ours = [to_ours(t).requires_grad_() for t in (a, b)]
        expected, got = torch.einsum(equation, a.requires_grad_(), b.requires_grad_()), mt.einsum(equation, *ours)
        torch.testing.assert_close(to_torch(got.detach()), expected.detach())
        expected.sum().backward()
        got.sum().backward()
        for theirs, mine in zip((a, b), ours, strict=True):
            torch.testing.assert_close(to_torch(mine.grad), theirs.grad)


def test_einsum_refuses_sizes_that_differ():
    for _ in range(2):
        with pytest.raises(RuntimeError, match="subscript j has size 5 for operand 1 which does not broadcast with previously seen size 4"):
            mt.einsum("ij,jk->ik", mt.ones(3, 4), mt.ones(5, 6))


def test_numbers_put_where_a_mask_is_true():
    x = torch.randn(6, 7)
    mask = x > 0
    for value in (torch.tensor(2.5), torch.tensor([3.0]), torch.tensor(4), torch.tensor(1e-3, dtype=torch.float64)):
        for view, where in ((x, mask), (x.t(), mask.t()), (x[0], mask[0]), (x[:0], mask[:0]), (x, mask[:, 0])):
            expected = view.index_put((where,), value)
            assert torch.equal(to_torch(to_ours(view).index_put((to_ours(where),), to_ours(value))), expected)
    leaf, number = mt.randn(4).requires_grad_(), mt.tensor(2.0).requires_grad_()
    leaf.index_put((mt.tensor([True, False, True, True]),), number).sum().backward()
    assert leaf.grad.tolist() == [0, 1, 0, 0] and number.grad.item() == 3
