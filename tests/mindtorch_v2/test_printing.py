"""repr and str against PyTorch's, over random tensors and print options."""

from __future__ import annotations

import math
import random

import pytest
import torch

import mindtorch_v2

DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128"
OPTIONS = [
    {},
    {"profile": "short"},
    {"profile": "full"},
    {"precision": 2, "linewidth": 40},
    {"precision": 8, "sci_mode": True},
    {"sci_mode": False},
    {"threshold": 5, "edgeitems": 2},
    {"threshold": 0, "edgeitems": 1},
    {"threshold": 3, "edgeitems": 0, "linewidth": 20},
]


@pytest.fixture(autouse=True)
def default_options():
    yield
    for xp in (torch, mindtorch_v2):
        xp.set_printoptions(profile="default")


def real_numbers(shape: list[int], rng: random.Random) -> torch.Tensor:
    values = torch.randn(shape, dtype=torch.float64)
    kind = rng.randrange(5)
    if kind == 1:
        values = values * 10 ** rng.randint(-7, 10)
    elif kind == 2:
        values = (values * rng.choice([3, 100, 1e6])).round()
    elif kind == 3:
        values = values * 10 ** (torch.randn(shape, dtype=torch.float64) * 2)
    elif kind == 4:
        values = values * 0
    if rng.random() < 0.3:
        special = rng.choice([math.nan, math.inf, -math.inf, 0.0, -0.0])
        values = torch.where(torch.rand(shape) < 0.2, torch.full_like(values, special), values)
    return values


def sample(name: str, rng: random.Random) -> torch.Tensor:
    dtype = getattr(torch, name)
    sizes = [0, 1, 2, 3, 5, 9] if rng.random() < 0.2 else [1, 2, 3, 7, 12]
    shape = [rng.choice(sizes) for _ in range(rng.randrange(4))]
    if dtype.is_complex:
        return torch.complex(real_numbers(shape, rng), real_numbers(shape, rng)).to(dtype)
    if dtype.is_floating_point:
        return real_numbers(shape, rng).to(dtype)
    return torch.randint(0, rng.choice([2, 100]), shape).to(dtype)


def same(tensor: torch.Tensor):
    """The tensor in this library."""
    dtype = getattr(mindtorch_v2, str(tensor.dtype).removeprefix("torch."))
    ours = mindtorch_v2.tensor(tensor.tolist(), dtype=dtype).reshape(tuple(tensor.shape))
    return ours.requires_grad_() if tensor.requires_grad else ours


@pytest.mark.parametrize("name", DTYPES.split())
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_repr(name: str, options: dict) -> None:
    rng = random.Random(f"{name}{options}")
    torch.manual_seed(rng.randrange(1000))
    for xp in (torch, mindtorch_v2):
        xp.set_printoptions(**options)
    for _ in range(12):
        tensor = sample(name, rng)
        if (tensor.is_floating_point() or tensor.is_complex()) and rng.random() < 0.2:
            tensor.requires_grad_()
        assert repr(same(tensor)) == repr(tensor)
        assert str(same(tensor)) == str(tensor)


def test_large_tensor_is_summarised() -> None:
    tensor = torch.arange(60000.0).reshape(10, 60, 100)
    assert repr(same(tensor)) == repr(tensor)


@pytest.mark.parametrize(
    "make",
    [
        lambda xp: xp.ones(2, 3, requires_grad=True) * 2,
        lambda xp: (xp.ones(2, 3, requires_grad=True) * 2).sum(),
        lambda xp: xp.nn.Parameter(xp.ones(2)),
        lambda xp: xp.nn.Parameter(xp.ones(2, dtype=xp.float64), requires_grad=False),
        lambda xp: xp.empty(2, 3, device="meta"),
        lambda xp: xp.empty(2, 3, device="meta", dtype=xp.int64),
        lambda xp: xp.ones(2, 2).t(),
        lambda xp: xp.ones(1).expand(5),
    ],
)
def test_suffixes(make) -> None:
    assert repr(make(mindtorch_v2)) == repr(make(torch))


def test_a_dtype_is_said_when_it_is_not_the_default() -> None:
    for default in ("float64", "float32"):
        for xp in (torch, mindtorch_v2):
            xp.set_default_dtype(getattr(xp, default))
        for dtype in ("float32", "float64", "complex64", "complex128"):
            texts = [repr(xp.ones(2, dtype=getattr(xp, dtype))) for xp in (mindtorch_v2, torch)]
            assert texts[0] == texts[1]


def test_format_of_a_number() -> None:
    for xp in (torch, mindtorch_v2):
        assert f"{xp.tensor(1.5):.3f}" == "1.500"
