"""Sorting, selection, running extremes, flips and sums at places, where the kernels choose among several ways."""
from __future__ import annotations

import pytest
import torch
from oracle import to_ours, to_torch

import mindtorch_v2 as mt

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int16, torch.uint8]


def numbers(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """With equal items, and of floats infinities, NaN and both zeros."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))) * 9
    if dtype.is_floating_point:
        x.view(-1)[::7] = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, -0.0, 3.0]).repeat(x.numel())[:x.view(-1)[::7].numel()]
    return (x if dtype.is_floating_point else x.abs()).to(dtype)


def same(got: object, expected: object) -> None:
    for ours, theirs in zip(got, expected, strict=True):  # type: ignore[call-overload]
        torch.testing.assert_close(to_torch(ours), theirs, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sort_of_sorted_and_unsorted_rows(dtype):
    x = numbers(dtype, 12, 300)
    for rows in (x, x[:, :5], x.sort(1)[0], x.sort(1, descending=True)[0], x[:, :1].expand(12, 300), x.t()):
        for descending in (False, True):
            same(mt.sort(to_ours(rows), 1, descending, stable=True), torch.sort(rows, dim=1, descending=descending, stable=True))


@pytest.mark.parametrize("n", [20, 100, 3000])
def test_sort_of_doubles_that_agree_in_their_first_bits(n):
    near = 1 + torch.arange(n).flip(0).double() * 2.0 ** -52
    mixed = torch.where(torch.arange(n) % 3 == 0, near, torch.randn(n, dtype=torch.double) * 1e200)
    whole = torch.randint(-2 ** 62, 2 ** 62, (n,)) // 5 * 5
    whole[::2] = 2 ** 61 + torch.arange(n)[::2].flip(0)
    for row in (near, mixed, -mixed, whole, near.repeat_interleave(2)):
        for descending in (False, True):
            same(mt.sort(to_ours(row), 0, descending, stable=True), torch.sort(row, descending=descending, stable=True))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [1, 5, 16, 17])
def test_selection_of_few_and_of_many(dtype, k):
    x = numbers(dtype, 9, 100)
    for rows in (x, x[:, :k], x[:, 3:90], x.t()[:, :9].t(), x.sort(1)[0], x.sort(1, descending=True)[0], x[:, :1].expand(9, 100)):
        order, ours = rows.sort(dim=1, stable=True), to_ours(rows)
        down = rows.sort(dim=1, descending=True, stable=True)
        same(mt.topk(ours, k, 1, False), (order[0][:, :k], order[1][:, :k]))
        same(mt.topk(ours, k, 1), (down[0][:, :k], down[1][:, :k]))
        torch.testing.assert_close(to_torch(mt.topk(ours, k, 1, sorted=False)[0]).sort(1)[0], down[0][:, :k].sort(1)[0],
                                   rtol=0, atol=0, equal_nan=True)
        assert torch.equal(to_torch(mt.kthvalue(ours, k, 1)[0]).nan_to_num(7), order[0][:, k - 1].nan_to_num(7))


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bool])
def test_running_extremes_along_each_dim(dtype):
    x = numbers(dtype, 7, 40, 21) > 3 if dtype is torch.bool else numbers(dtype, 7, 40, 21)
    for view in (x, x.transpose(0, 2), x[:, ::2], x[..., :3], x[:, :1].expand(7, 40, 21)):
        for dim in range(3):
            for name in ("cummax", "cummin"):
                same(getattr(mt, name)(to_ours(view), dim), getattr(torch, name)(view, dim))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.complex128])
def test_flips_of_any_layout(dtype):
    x = torch.arange(7 * 40 * 33).reshape(7, 40, 33).to(dtype)
    for view in (x, x.permute(2, 0, 1), x[:, :, ::2], x[:, :1].expand(7, 40, 33), x[..., :1].expand(7, 40, 33), x[:, :0]):
        for dims in ((0,), (1,), (2,), (0, 2), (0, 1, 2)):
            got, expected = to_ours(view).flip(dims), view.flip(dims)
            same([got], [expected])
            assert got.stride() == expected.stride()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bit_sums_at_places(dtype):
    x, y = numbers(dtype, 20, 50), numbers(dtype, 31, 50)
    index = torch.arange(31 * 50).reshape(31, 50) * 7 % 20
    near = dict(rtol=0, atol=4 * 32 * torch.finfo(dtype).eps, equal_nan=True)  # a few roundings of numbers up to 32
    for added, exact in ((to_ours(x).scatter_add(0, to_ours(index), to_ours(y)), x.double().scatter_add(0, index, y.double())),
                         (to_ours(x).index_add(0, to_ours(index[:, 0]), to_ours(y)), x.double().index_add(0, index[:, 0], y.double()))):
        torch.testing.assert_close(to_torch(added).double(), exact, **near)
    for reduce in ("amax", "amin"):
        same([to_ours(x).scatter_reduce(0, to_ours(index), to_ours(y), reduce)], [x.scatter_reduce(0, index, y, reduce)])
    same([to_ours(x[:9]).scatter(0, to_ours(index[:5] % 9), 2, reduce="multiply")], [x[:9].scatter(0, index[:5] % 9, 2, reduce="multiply")])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_distinct_slices(dtype, dim):
    x = (torch.arange(30 * 8 * 5).reshape(30, 8, 5) * 7919 % 3).to(dtype)
    x[3:9] = x[20:26]
    for view in (x, x[:, :2], x[..., :1], x.transpose(0, 1), x[:1]):
        same(to_ours(view).unique(return_inverse=True, return_counts=True, dim=dim),
             view.unique(return_inverse=True, return_counts=True, dim=dim))


@pytest.mark.parametrize("dtype", DTYPES)
def test_runs_of_equal_items(dtype):
    x = numbers(dtype, 500).repeat_interleave(torch.arange(500) % 3)
    for row in (x, x[:1], x[:0], x.repeat_interleave(2)[::2]):
        for rest in ({}, {"return_inverse": True}, {"return_counts": True}):
            got, expected = to_ours(row).unique_consecutive(**rest), row.unique_consecutive(**rest)
            same(got if rest else [got], expected if rest else [expected])
            first, wanted = (to_torch(got[0]), expected[0]) if rest else (to_torch(got), expected)
            if dtype.is_floating_point:
                assert torch.equal(first.signbit()[~first.isnan()], wanted.signbit()[~wanted.isnan()]), "the first zero of a run"


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.int64, torch.float32])
def test_dtypes_of_clamped_items(dtype):
    x = torch.arange(-3, 5).to(dtype)
    for low, high in ((0, 3), (None, 2), (1, None), (0.5, 3), (0, 2.5), *(() if dtype is torch.bool else ((True, 3), (False, None)))):
        got, expected = to_ours(x).clamp(low, high), x.clamp(low, high)
        assert str(got.dtype) == str(expected.dtype)
        same([got], [expected])
