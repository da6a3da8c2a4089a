"""Quantising and dequantising in libopapi against the formulas written with torch."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch
from client import ACL_DTYPES, client, same
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


# ---- products of quantised matrices -------------------------------------------------------------------------------
@pytest.mark.parametrize("group", [0, 32])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("bits", ["int8", "packed int4"])
def test_weight_quant_batch_matmul(bits: str, turned: bool, group: int) -> None:
    k, n = 64, 16
    low, high = (-128, 127) if bits == "int8" else (-8, 7)
    weight = torch.randint(low, high + 1, (n, k) if turned else (k, n))
    held = packed(weight) if bits == "packed int4" else weight.to(torch.int8)
    x, rows = sample((3, k), torch.float16, -1, 1), k // group if group else 1
    scale, offset = sample((rows, n), torch.float16, 0.01, 0.1), sample((rows, n), torch.float16)
    every = lambda v: v.float().repeat_interleave(k // rows, 0)
    wide = (weight.t() if turned else weight).float()
    for given in (offset, None):
        real = (wide + (every(offset) if given is not None else 0)) * every(scale)
        want = (x.float() @ real).half()
        got = client().call(
            "aclnnWeightQuantBatchMatmulV2", x, held.t() if turned else held, scale, given, None, None, None, group, like(want)
        )
        same(got, want, rtol=4e-3, atol=2e-2)
    message = client().expect_code(
        INVALID, "aclnnWeightQuantBatchMatmulV2", x, held.t() if turned else held, scale[:, :3], None, None, None, None, group, like(want)
    )
    assert "antiquantScale" in message


@pytest.mark.parametrize("out", [torch.float16, torch.bfloat16, torch.int8, torch.int32])
def test_quant_matmul(out: torch.dtype) -> None:
    a, b = sample((2, 5, 24), torch.int8, -100, 100), sample((24, 8), torch.int8, -100, 100)
    bias, offset = sample((8,), torch.int32, -9, 9), sample((8,), torch.float32)
    scale = sample((8,), torch.float32, 0.0001, 0.001)
    exact = a.double() @ b.double() + bias
    real = exact * scale
    want = exact.int() if out == torch.int32 else limited(torch.round(real.float() + offset), torch.int8) if out == torch.int8 else real.to(out)
    token = sample((5,), torch.float32, 0.5, 2) if out == torch.float16 else None
    same(client().call("aclnnQuantMatmulV3", a, b, scale, offset, bias, False, False, like(want)), want)
    turned = b.t().contiguous()
    if token is not None:
        want = (real * token.view(-1, 1)).half()
    same(client().call("aclnnQuantMatmulV4", a, turned, scale, offset, token, bias, False, True, like(want)), want, rtol=2e-3, atol=2e-3)
    later = (token, scale, None, None, offset, None, bias, False, True, 0)
    same(client().call("aclnnQuantMatmulV5", a, turned, *later, like(want)), want, rtol=2e-3, atol=2e-3)


def hardware(scale: torch.Tensor, offset: torch.Tensor | None) -> torch.Tensor:
    bits = (scale.view(torch.int32).long() & 0xFFFFE000) | 1 << 46
    if offset is None:
        return bits
    return (bits & 0x4000FFFFFFFF) | (torch.round(offset).clamp(-256, 255).long() & 0x1FF) << 37


def test_parameters_of_the_hardware() -> None:
    scale, offset = sample((9,), torch.float32, 0, 4), sample((9,), torch.float32, -300, 300)
    for given in (offset, None):
        want = hardware(scale, given)
        same(client().call("aclnnTransQuantParamV2", scale, given, torch.empty(9, dtype=torch.int64)), want)
        made, count = ctypes.POINTER(ctypes.c_uint64)(), ctypes.c_uint64()
        floats = lambda t: (ctypes.c_float * 9)(*t.tolist())
        offsets = (floats(offset), ctypes.c_uint64(9)) if given is not None else (None, ctypes.c_uint64(0))
        client().must("aclnnTransQuantParam", floats(scale), ctypes.c_uint64(9), *offsets, ctypes.byref(made), ctypes.byref(count))
        assert made[: count.value] == want.tolist()
        ctypes.CDLL(None).free(made)
    rounded = client().call("aclnnTransQuantParamV3", scale, None, 1, torch.empty(9, dtype=torch.int64))
    read = (rounded & 0xFFFFFFFF).to(torch.int32).view(torch.float32)
    same(read, scale, rtol=2**-11, atol=0)
    a, b = sample((3, 8), torch.int8, -50, 50), sample((8, 9), torch.int8, -50, 50)
    want = (a.double() @ b.double() * (hardware(scale, None) & 0xFFFFFFFF).to(torch.int32).view(torch.float32)).half()
    same(client().call("aclnnQuantMatmulV3", a, b, hardware(scale, None), None, None, False, False, like(want)), want)


def test_sizes_of_weights_in_nz() -> None:
    size = ctypes.c_uint64()
    shape = client().array("ints", [17, 40])
    for dtype, items in ((torch.float16, 32 * 48), (torch.int8, 32 * 64)):
        client().must("aclnnCalculateMatmulWeightSizeV2", shape, ctypes.c_int32(ACL_DTYPES[dtype]), ctypes.byref(size))
        assert size.value == items
    client().must("aclDestroyIntArray", shape)
    weight = client().tensor(sample((17, 40), torch.float16))
    dims, count, format = ctypes.POINTER(ctypes.c_int64)(), ctypes.c_uint64(), ctypes.c_int()
    client().must(
        "aclnnNpuFormatCastCalculateSizeAndFormat", weight.handle, 29, 1, ctypes.byref(dims), ctypes.byref(count), ctypes.byref(format)
    )
    assert (dims[: count.value], format.value) == ([3, 2, 16, 16], 29)
    ctypes.CDLL(None).free(dims)
    before = weight.read()
    same(client().call("aclnnTransMatmulWeight", weight), before)
    same(client().call("aclnnNpuFormatCast", before, torch.empty_like(before)), before)
    weight.free()


def test_weights_in_int4() -> None:
    weight = torch.randint(-8, 8, (4, 16), dtype=torch.int32)
    same(client().call("aclnnConvertWeightToINT4Pack", weight, torch.empty(4, 2, dtype=torch.int32)), packed(weight))


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_to_int8(approximate: str) -> None:
    x, scale, offset = torch.randn(3, 8), torch.rand(8) * 40 + 10, torch.randn(8) * 4
    y = torch.nn.functional.gelu(x, approximate=approximate)
    got = client().call("aclnnGeluQuant", x, scale, offset, approximate, "static", "rint", 2, torch.empty(3, 8, dtype=torch.int8), None)
    assert (got.float() - (y * scale + offset).round().clamp(-128, 127)).abs().max() <= 1     # a tie may round the other way
    rows = y * scale
    scales = rows.abs().amax(1) / 127
    got = client().call("aclnnGeluQuant", x, scale, None, approximate, "dynamic", "rint", 2, torch.empty(3, 8, dtype=torch.int8), torch.empty(3))
    same(got[1], scales, rtol=1e-4, atol=1e-5)
    assert (got[0].float() - (rows / scales[:, None]).round()).abs().max() <= 1


def test_rms_norm_to_int8() -> None:
    x, gamma, beta = torch.randn(3, 8), torch.randn(8), torch.randn(8)
    scale, offset = torch.tensor([20.0]), torch.tensor([3.0])
    y = torch.nn.functional.rms_norm(x, (8,), gamma, 1e-5) + beta
    got = client().call("aclnnRmsNormQuant", x, gamma, beta, scale, offset, 1e-5, torch.empty(3, 8, dtype=torch.int8))
    assert (got.float() - (y * 20 + 3).round().clamp(-128, 127)).abs().max() <= 1
