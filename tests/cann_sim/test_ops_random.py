"""Random ops: a seed and an offset give their numbers again, others give others, and all have their distribution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from client import client, same
from samples import LAYOUTS, dtypes, sample

INVALID, NULL = 161002, 161001
N = 4096


def empty(dtype: torch.dtype, n: int = N) -> torch.Tensor:
    return torch.zeros(n, dtype=dtype)


Draw = Callable[[int, int], torch.Tensor]
DRAWS: dict[str, Draw] = {
    "normal": lambda s, o: client().call("aclnnInplaceNormal", empty(torch.float32), 1.0, 2.0, s, o),
    "normal float float": lambda s, o: client().call("aclnnNormalFloatFloat", 1.0, 2.0, s, o, empty(torch.float32)),
    "uniform": lambda s, o: client().call("aclnnInplaceUniform", empty(torch.float32), -1.0, 3.0, s, o),
    "random": lambda s, o: client().call("aclnnInplaceRandom", empty(torch.int64), -5, 9, s, o),
    "bernoulli": lambda s, o: client().call("aclnnInplaceBernoulli", empty(torch.float32), 0.25, s, o),
    "randperm": lambda s, o: client().call("aclnnRandperm", N, s, o, empty(torch.int64)),
    "multinomial": lambda s, o: client().call("aclnnMultinomial", torch.ones(5), N, True, s, o, empty(torch.int64)),
    "dropout mask": lambda s, o: client().call("aclnnDropoutGenMask", [N], 0.25, s, o, empty(torch.uint8, N // 8)),
    "exponential": lambda s, o: client().call("aclnnSimThreadExponential", empty(torch.float32), N, 2.0, s, o),
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWS)
def test_seed_and_offset_decide(name: str) -> None:
    first = DRAWS[name](7, 0)
    assert torch.equal(first, DRAWS[name](7, 0))
    assert not torch.equal(first, DRAWS[name](8, 0))
    assert not torch.equal(first, DRAWS[name](7, 4))
    assert not torch.equal(first, DRAWS[name](0, 7))


def test_strides_do_not_change_the_numbers() -> None:
    dense = client().call("aclnnInplaceUniform", torch.zeros(8, 6), 0.0, 1.0, 3, 0)
    for layout in LAYOUTS.values():
        same(client().call("aclnnInplaceUniform", layout(torch.zeros(8, 6)), 0.0, 1.0, 3, 0), dense)


@pytest.mark.parametrize("dtype", dtypes("aclnnInplaceNormal"), ids=str)
def test_normal(dtype: torch.dtype) -> None:
    got = client().call("aclnnInplaceNormal", empty(dtype), 3.0, 2.0, 1, 0).double()
    if dtype.is_floating_point:
        assert abs(got.mean() - 3) < 0.15 and abs(got.std() - 2) < 0.15
    elif dtype != torch.bool:  # of which nearly all numbers are true
        assert got.unique().numel() > 4


def test_normal_with_tensors() -> None:
    mean, std = sample(torch.float32, N) * 10, sample(torch.float32, N, seed=1).abs()
    z = client().call("aclnnNormalFloatFloat", 0.0, 1.0, 5, 0, empty(torch.float32))
    same(client().call("aclnnNormalTensorTensor", mean, std, 5, 0, empty(torch.float32)), mean + std * z)
    same(client().call("aclnnNormalTensorFloat", mean, 0.0, 5, 0, empty(torch.float32)), mean)
    same(client().call("aclnnNormalFloatTensor", 2.0, std, 5, 0, empty(torch.float32)), 2 + std * z)


@pytest.mark.parametrize("dtype", dtypes("aclnnInplaceUniform"), ids=str)
def test_uniform(dtype: torch.dtype) -> None:
    got = client().call("aclnnInplaceUniform", empty(dtype), 2.0, 10.0, 1, 0).double()
    assert got.min() >= 2 and got.max() <= 10
    assert abs(got.mean() - (6 if dtype.is_floating_point else 5.5)) < 0.2


@pytest.mark.parametrize("dtype", dtypes("aclnnInplaceRandom"), ids=str)
def test_random(dtype: torch.dtype) -> None:
    low, high = (0, 2) if dtype == torch.bool else (3, 12)
    got = client().call("aclnnInplaceRandom", empty(dtype), low, high, 1, 0)
    numbers = got.real.double() if dtype.is_complex else got.double()
    assert sorted(numbers.unique().tolist()) == list(range(low, high))


@pytest.mark.parametrize("dtype", dtypes("aclnnInplaceBernoulli"), ids=str)
def test_bernoulli(dtype: torch.dtype) -> None:
    for p in (0.0, 0.25, 1.0):
        got = client().call("aclnnInplaceBernoulli", empty(dtype), p, 1, 0)
        assert abs(got.double().mean() - p) < 0.03
        same(client().call("aclnnBernoulli", empty(dtype), p, 1, 0, empty(dtype)), got)


def test_bernoulli_with_tensor() -> None:
    p = torch.tensor([0.0, 0.5, 1.0])
    got = client().call("aclnnInplaceBernoulliTensor", torch.zeros(N, 3), p, 1, 0).mean(0)
    assert got[0] == 0 and got[2] == 1 and abs(got[1] - 0.5) < 0.05
    out = client().call("aclnnBernoulliTensor", torch.zeros(N, 3), p, 1, 0, torch.zeros(N, 3, dtype=torch.int8))
    assert out.unique().tolist() == [0, 1]


@pytest.mark.parametrize("dtype", dtypes("aclnnRandperm", 3), ids=str)
def test_randperm(dtype: torch.dtype) -> None:
    got = client().call("aclnnRandperm", 50, 1, 0, empty(dtype, 50))
    same(got.sort().values, torch.arange(50).to(dtype))


def test_multinomial() -> None:
    weights = torch.tensor([[0.0, 1.0, 3.0], [2.0, 0.0, 2.0]])
    got = client().call("aclnnMultinomial", weights, N, True, 1, 0, torch.zeros(2, N, dtype=torch.int64))
    share = torch.stack([(got == i).double().mean(1) for i in range(3)], 1)
    torch.testing.assert_close(share, weights.double() / 4, atol=0.03, rtol=0)
    got = client().call("aclnnMultinomial", torch.ones(9), 9, False, 1, 0, torch.zeros(9, dtype=torch.int64))
    same(got.sort().values, torch.arange(9))


def test_seeds_in_device_memory() -> None:
    seed, offset = torch.tensor([7]), torch.tensor([2])
    want = client().call("aclnnInplaceUniform", empty(torch.float32), 0.0, 1.0, 7, 5)
    same(client().call("aclnnInplaceUniformTensor", empty(torch.float32), 0.0, 1.0, seed, offset, 3), want)
    want = client().call("aclnnInplaceNormal", empty(torch.float32), 0.0, 1.0, 7, 5)
    same(client().call("aclnnInplaceNormalTensor", empty(torch.float32), 0.0, 1.0, seed, offset, 3), want)
    want = client().call("aclnnInplaceRandom", empty(torch.int32), 0, 9, 7, 5)
    same(client().call("aclnnInplaceRandomTensor", empty(torch.int32), 0, 9, seed, offset, 3), want)
    want = client().call("aclnnDropoutGenMaskV2", [N], 0.5, 7, 5, torch.float32, empty(torch.uint8, N // 8))
    got = client().call(
        "aclnnDropoutGenMaskV2Tensor", [N], 0.5, seed, offset, 3, torch.float32, empty(torch.uint8, N // 8)
    )
    same(got, want)
    want = client().call("aclnnInplaceRandomWithoutFromTo", empty(torch.int32), 7, 5)
    same(client().call("aclnnInplaceRandomWithoutFromToTensor", empty(torch.int32), seed, offset, 3), want)
    assert want.max() > 2**29


# ---- dropout -----------------------------------------------------------------------------------------------
def bits(mask: torch.Tensor, n: int) -> torch.Tensor:
    return (mask[:, None] >> torch.arange(8, dtype=torch.uint8) & 1).reshape(-1)[:n].bool()


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("dtype", dtypes("aclnnDropoutDoMask"), ids=str)
def test_dropout(dtype: torch.dtype, p: float) -> None:
    x = sample(dtype, 10, 101)
    n, room = x.numel(), (x.numel() + 127) // 128 * 16
    mask = client().call(
        "aclnnDropoutGenMaskV2", list(x.shape), p, 1, 0, dtype, torch.full((room,), 255, dtype=torch.uint8)
    )
    kept = bits(mask, n)
    assert abs(kept.double().mean() - (1 - p)) < 0.06
    assert not bits(mask, room * 8)[n:].any()
    want = torch.where(kept.view(x.shape), x.float() * (0 if p == 1 else 1 / (1 - p)), 0).to(dtype)
    for layout in LAYOUTS.values():
        same(client().call("aclnnDropoutDoMask", layout(x), mask, p, layout(torch.empty_like(x))), want)
    out, made = client().call(
        "aclnnDropout", x, p, True, 1, 0, torch.empty_like(x), torch.zeros(room, dtype=torch.uint8)
    )
    same(out, want)
    same(made, mask)
    same(
        client().call("aclnnDropoutBackward", x, mask, 2.0, torch.empty_like(x)),
        torch.where(kept.view(x.shape), x * 2, 0),
    )
    same(client().call("aclnnDropout", x, p, False, 1, 0, torch.empty_like(x), mask)[0], x)
    again, bytes_ = client().call("aclnnDropoutV3", x, None, p, 1, 0, torch.empty_like(x), torch.zeros_like(mask))
    same(again, want)
    same(bytes_, mask)


def test_masked_scale() -> None:
    x, mask = sample(torch.float32, 3, 4), sample(torch.bool, 3, 4)
    same(client().call("aclnnMaskedScale", x, mask.to(torch.uint8), 1.5, torch.empty(3, 4)), x * mask * 1.5)


def test_rrelu() -> None:
    x = sample(torch.float32, N)
    out = client().call("aclnnRReluWithNoise", x, torch.zeros(N), 0.25, 0.75, False, 1, 0, torch.empty(N))[1]
    same(out, torch.where(x > 0, x, x * 0.5))
    noise, out = client().call("aclnnRReluWithNoise", x, torch.zeros(N), 0.25, 0.75, True, 1, 0, torch.empty(N))
    same(out, x * noise)
    assert (noise[x > 0] == 1).all() and noise[x <= 0].min() >= 0.25 and noise[x <= 0].max() <= 0.75
    same(client().call("aclnnInplaceRReluWithNoise", x, torch.zeros(N), 0.25, 0.75, True, 1, 0)[0], out)


F32, I64 = torch.empty(4), torch.empty(4, dtype=torch.int64)
REFUSED: dict[str, tuple[Any, ...]] = {
    "std": (INVALID, "aclnnInplaceNormal", F32, 0.0, -1.0, 0, 0),
    "std of a result": (INVALID, "aclnnNormalFloatFloat", 0.0, -1.0, 0, 0, F32),
    "normal shapes": (INVALID, "aclnnNormalTensorTensor", F32, F32, 0, 0, torch.empty(3)),
    "normal null": (NULL, "aclnnInplaceNormal", None, 0.0, 1.0, 0, 0),
    "normal complex": (INVALID, "aclnnInplaceNormal", torch.empty(4, dtype=torch.complex64), 0.0, 1.0, 0, 0),
    "uniform bounds": (INVALID, "aclnnInplaceUniform", F32, 1.0, 0.0, 0, 0),
    "uniform of bool": (INVALID, "aclnnInplaceUniform", torch.empty(4, dtype=torch.bool), 0.0, 1.0, 0, 0),
    "random bounds": (INVALID, "aclnnInplaceRandom", I64, 4, 4, 0, 0),
    "probability": (INVALID, "aclnnInplaceBernoulli", F32, 1.5, 0, 0),
    "probability null": (NULL, "aclnnInplaceBernoulli", F32, None, 0, 0),
    "probabilities": (INVALID, "aclnnInplaceBernoulliTensor", F32, torch.empty(3), 0, 0),
    "randperm": (INVALID, "aclnnRandperm", -1, 0, 0, I64),
    "randperm shape": (INVALID, "aclnnRandperm", 5, 0, 0, I64),
    "samples": (INVALID, "aclnnMultinomial", F32, 0, True, 0, 0, I64),
    "too many samples": (INVALID, "aclnnMultinomial", F32, 5, False, 0, 0, torch.empty(5, dtype=torch.int64)),
    "samples shape": (INVALID, "aclnnMultinomial", F32, 3, True, 0, 0, I64),
    "samples rank": (INVALID, "aclnnMultinomial", torch.empty(2, 2, 2), 1, True, 0, 0, I64.view(2, 2, 1)),
    "drop probability": (INVALID, "aclnnDropoutGenMask", [128], 1.5, 0, 0, torch.empty(16, dtype=torch.uint8)),
    "mask room": (INVALID, "aclnnDropoutGenMask", [129], 0.5, 0, 0, torch.empty(16, dtype=torch.uint8)),
    "mask dtype": (INVALID, "aclnnDropoutGenMask", [128], 0.5, 0, 0, torch.empty(16)),
    "mask shape": (INVALID, "aclnnDropoutGenMask", [-128], 0.5, 0, 0, torch.empty(16, dtype=torch.uint8)),
    "mask too small": (INVALID, "aclnnDropoutDoMask", torch.empty(300), empty(torch.uint8, 32), 0.5, torch.empty(300)),
    "dropped shape": (INVALID, "aclnnDropoutDoMask", F32, torch.empty(16, dtype=torch.uint8), 0.5, torch.empty(5)),
    "exponential": (INVALID, "aclnnSimThreadExponential", F32, 4, 0.0, 0, 0),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    code, op, *args = REFUSED[case]
    client().expect_code(code, op, *args)


def test_probabilities_that_are_none() -> None:
    """A card compares and goes on: more than 1 is always, less than 0 and NaN never; weights below 0 count as none."""
    given = torch.tensor([2.0, -1.0, float("nan"), 1.0, 0.0]).repeat(40)
    got = client().call("aclnnBernoulliTensor", torch.empty(200), given, 1, 0, torch.empty(200))
    assert got.view(40, 5).eq(torch.tensor([1.0, 0.0, 0.0, 1.0, 0.0])).all()
    weights = torch.tensor([[-1.0, 2.0, float("nan")], [0.0, 0.0, 0.0]])
    drawn = client().call("aclnnMultinomial", weights, 30, True, 1, 0, torch.zeros(2, 30, dtype=torch.int64))
    assert drawn[0].eq(1).all() and drawn[1].ge(0).all() and drawn[1].lt(3).all()
    every = client().call("aclnnMultinomial", weights, 3, False, 1, 0, torch.zeros(2, 3, dtype=torch.int64))
    assert every.sort().values.equal(torch.arange(3).expand(2, 3))
