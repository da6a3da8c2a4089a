"""Quantising and dequantising in libopapi against the formulas written with torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from client import client, same
from layouts import like, sample

INVALID, NULL = 161002, 161001
INT8, INT32 = 2, 3


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(7)


def limited(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    info = torch.iinfo(dtype)
    return x.double().clamp(info.min, info.max).to(dtype)


def packed(x: torch.Tensor) -> torch.Tensor:
    """Eight int4 in an int32, the first in the lowest bits."""
    nibbles = (x.clamp(-8, 7).long() & 15).unflatten(-1, (-1, 8))
    words = (nibbles << torch.arange(0, 32, 4)).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).int()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("target", [torch.int8, torch.uint8, torch.int32])
@pytest.mark.parametrize("axis", [0, -1])
def test_quantize(dtype: torch.dtype, target: torch.dtype, axis: int) -> None:
    x, n = sample((4, 6), dtype, -20, 20).t(), (6, 4)[axis]
    scales, zeros = sample((n,), dtype, 0.05, 0.5), sample((n,), torch.int32, -3, 3)
    shape = (-1, 1) if axis == 0 else (-1,)
    want = limited(torch.round(x.float() / scales.float().view(shape) + zeros.view(shape)), target)
    same(client().call("aclnnQuantize", x, scales, zeros, target, axis, like(want)), want)
    one = scales[:1]
    want = limited(torch.round(x.float() / one.float()), target)
    same(client().call("aclnnQuantize", x, one, None, target, axis, like(want)), want)


ROUNDINGS = {"round": torch.round, "ceil": torch.ceil, "floor": torch.floor, "trunc": torch.trunc}


@pytest.mark.parametrize("mode", ROUNDINGS)
@pytest.mark.parametrize("sqrt", [False, True])
@pytest.mark.parametrize("axis", [None, -1, -2])
def test_ascend_quant(mode: str, sqrt: bool, axis: int | None) -> None:
    x = sample((3, 4, 8), torch.float32, -30, 30)
    n = x.shape[axis or -1]
    scale, offset = sample((n,), torch.float32, 0.5, 3), sample((n,), torch.float32)
    shape = (-1, 1) if axis == -2 else (-1,)
    scaled = x * scale.view(shape)
    exact = ROUNDINGS[mode]((scaled * scale.view(shape) if sqrt else scaled) + offset.view(shape))
    name, more = ("aclnnAscendQuant", ()) if axis is None else ("aclnnAscendQuantV3", (axis,))
    want = limited(exact, torch.int8)
    same(client().call(name, x, scale, offset, sqrt, mode, INT8, *more, like(want)), want)
    want = packed(exact)
    same(client().call(name, x, scale, offset, sqrt, mode, INT32, *more, like(want)), want)


@pytest.mark.parametrize("sqrt", [False, True])
@pytest.mark.parametrize("target", [torch.float16, torch.bfloat16])
def test_anti_quant(sqrt: bool, target: torch.dtype) -> None:
    x, scale, offset = sample((4, 8), torch.int8, -100, 100), sample((8,), torch.float32), sample((8,), torch.float32)
    code = {torch.float16: 1, torch.bfloat16: 27}[target]
    by = scale * scale if sqrt else scale
    want = ((x + offset) * by).to(target)
    same(client().call("aclnnAscendAntiQuant", x, scale, offset, code, sqrt, like(want)), want)
    want = (x * by[:1]).to(target)
    same(client().call("aclnnAscendAntiQuant", x, scale[:1], None, code, sqrt, like(want)), want)
    small = sample((4, 8), torch.int8, -8, 7)
    want = ((small + offset) * by).to(target)
    same(client().call("aclnnAscendAntiQuant", packed(small), scale, offset, code, sqrt, like(want)), want)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("smooth", [False, True])
def test_dynamic_quant(dtype: torch.dtype, smooth: bool) -> None:
    x, scales = sample((2, 3, 16), dtype), sample((16,), dtype, 0.5, 2) if smooth else None
    x[0, 1] = 0  # a row of zeros has no scale to divide by
    input = x.float() * scales.float() if smooth else x.float()
    for most, pack in ((127, None), (7, packed)):
        want_scale = input.abs().amax(-1) / most
        exact = torch.round(input / want_scale.unsqueeze(-1)).nan_to_num(0)
        want = pack(exact) if pack else limited(exact, torch.int8)
        y, scale = client().call("aclnnDynamicQuant", x, scales, like(want), like(want_scale))
        same(y, want)
        same(scale, want_scale)


@pytest.mark.parametrize("bias_dtype", [None, torch.int32, torch.float32, torch.float16])
@pytest.mark.parametrize("activated", [False, True])
def test_dequant_bias(bias_dtype: torch.dtype | None, activated: bool) -> None:
    x, weight = sample((3, 5), torch.int32, -50, 50), sample((5,), torch.float32)
    activate = sample((3,), torch.float32) if activated else None
    bias = None if bias_dtype is None else sample((5,), bias_dtype)
    by = weight * (activate.view(-1, 1) if activated else 1)
    integer = bias_dtype == torch.int32
    want = ((x + bias if integer else x) * by + (0 if bias is None or integer else bias)).half()
    same(client().call("aclnnDequantBias", x, weight, activate, bias, 1, torch.empty(3, 5).half()), want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_fake_quant(dtype: torch.dtype) -> None:
    x = sample((3, 4), dtype, -20, 20).t()
    scale, zero = torch.tensor([0.25], dtype=dtype), torch.tensor([3], dtype=torch.int32)
    outs = (like(x), like(x, torch.bool))
    q = torch.round(x.float() / scale.float()) + zero
    want = ((q.clamp(-20, 30) - zero) * scale.float()).to(dtype), (q >= -20) & (q <= 30)
    for got, expected in zip(
        client().call("aclnnFakeQuantPerTensorAffineCachemask", x, scale, zero, 1.0, -20, 30, *outs), want, strict=True
    ):
        same(got, expected)
    out, mask = client().call("aclnnFakeQuantPerTensorAffineCachemask", x, scale, zero, 0.0, -20, 30, *outs)
    same(out, x)
    assert mask.all()
    scales, zeros = sample((4,), dtype, 0.25, 1), sample((4,), torch.int32)
    q = torch.round(x.float() / scales.float().view(-1, 1)) + zeros.view(-1, 1)
    want = ((q.clamp(-20, 30) - zeros.view(-1, 1)) * scales.float().view(-1, 1)).to(dtype), (q >= -20) & (q <= 30)
    name = "aclnnFakeQuantPerChannelAffineCachemask"
    for got, expected in zip(client().call(name, x, scales, zeros, 0, -20, 30, *outs), want, strict=True):
        same(got, expected)


X, S, Q = torch.zeros(3, 8), torch.ones(8), torch.zeros(3, 8, dtype=torch.int8)
Z, M = torch.zeros(1, dtype=torch.int32), torch.zeros(3, 8, dtype=torch.bool)
REFUSED: list[tuple[int, str, tuple[Any, ...]]] = [
    (NULL, "aclnnQuantize", (X, None, None, torch.int8, 1, Q)),
    (NULL, "aclnnAscendQuant", (None, S, None, False, "round", INT8, Q)),
    (INVALID, "aclnnQuantize", (X, S, None, torch.uint8, 1, Q)),
    (INVALID, "aclnnQuantize", (X, S, None, torch.int8, 0, Q)),
    (INVALID, "aclnnQuantize", (X, S, None, torch.int8, 2, Q)),
    (INVALID, "aclnnQuantize", (X, S, torch.zeros(3, dtype=torch.int32), torch.int8, 1, Q)),
    (INVALID, "aclnnQuantize", (X, S, None, torch.int8, 1, Q[:2].clone())),
    (INVALID, "aclnnAscendQuant", (X, S, None, False, "even", INT8, Q)),
    (INVALID, "aclnnAscendQuant", (X, S, None, False, "round", INT32, Q)),
    (INVALID, "aclnnAscendQuant", (X, S[:5].clone(), None, False, "round", INT8, Q)),
    (INVALID, "aclnnAscendQuant", (X, S, None, False, "round", INT32, torch.zeros(3, 8, dtype=torch.int32))),
    (
        INVALID,
        "aclnnAscendQuantV3",
        (torch.zeros(2, 3, 8), S, None, False, "round", INT8, 0, torch.zeros(2, 3, 8).char()),
    ),
    (INVALID, "aclnnAscendAntiQuant", (Q, S, S, 27, False, X.half())),
    (INVALID, "aclnnAscendAntiQuant", (Q, S[:3].clone(), None, 1, False, X.half())),
    (INVALID, "aclnnDynamicQuant", (X.half(), None, Q, torch.zeros(4))),
    (INVALID, "aclnnDynamicQuant", (X.half(), S[:3].half(), Q, torch.zeros(3))),
    (INVALID, "aclnnDynamicQuant", (torch.zeros(3, 6).half(), None, torch.zeros(3, 1).int(), torch.zeros(3))),
    (INVALID, "aclnnDequantBias", (X.int(), S[:3].clone(), None, None, 1, X.half())),
    (INVALID, "aclnnDequantBias", (X.int(), S, None, None, 27, X.half())),
    (INVALID, "aclnnFakeQuantPerTensorAffineCachemask", (X, S, Z, 1.0, 0, 255, X, M)),
    (INVALID, "aclnnFakeQuantPerTensorAffineCachemask", (X, S[:1].clone(), Z, 1.0, 5, 4, X, M)),
    (INVALID, "aclnnFakeQuantPerChannelAffineCachemask", (X, S, Z, 1, 0, 255, X, M)),
]


@pytest.mark.parametrize(("code", "name", "args"), REFUSED, ids=lambda x: x if isinstance(x, str) else "")
def test_refused(code: int, name: str, args: tuple[Any, ...]) -> None:
    client().expect_code(code, name, *args)
