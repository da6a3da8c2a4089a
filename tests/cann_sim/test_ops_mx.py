"""Quantising by blocks in libopapi, the MX formats among them, and gated activations that are quantised, against torch."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from client import FourBits, client, same
from layouts import like, sample

E5M2, E4M3, E2M1, E1M2 = 35, 36, 40, 41
FLOAT8 = {E5M2: torch.float8_e5m2, E4M3: torch.float8_e4m3fn}
EMAX = {E5M2: 15, E4M3: 8, E2M1: 2, E1M2: 0}
MOST = {E5M2: 57344.0, E4M3: 448.0, E2M1: 6.0, E1M2: 1.75}
NUMBERS = {E2M1: [0, 0.5, 1, 1.5, 2, 3, 4, 6], E1M2: [0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75]}  # of 4 bits, by their codes
INVALID, NO_KERNEL = 161002, 561003


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(3)


def exponents(largest: torch.Tensor, dtype: int, alg: int, most: float = 0) -> torch.Tensor:
    """The scale of blocks as an exponent of 8 bits: of the largest item less emax, or of largest / most rounded up."""
    if alg == 0:
        _, power = torch.frexp(largest)
        made = power - 1 - EMAX[dtype] + 127
    else:
        fraction, power = torch.frexp(largest / (most or MOST[dtype]))
        made = power - 1 + 127 + (fraction > 0.5)
    return torch.where(largest == 0, 0, made.clamp(min=0))


def scaled(x: torch.Tensor, dim: int, dtype: int, alg: int, most: float = 0, block: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    """x over its scales, and their exponents as an op writes them: pairs of blocks along the dim, 2 at the end."""
    dim %= x.dim()
    n = x.shape[dim]
    rows = x.float().movedim(dim, -1)
    blocks = torch.nn.functional.pad(rows, (0, -n % (2 * block))).unflatten(-1, (-1, block))
    codes = exponents(blocks.abs().amax(-1), dtype, alg, most)
    q = torch.ldexp(blocks, (127 - codes).unsqueeze(-1)).flatten(-2)[..., :n].movedim(-1, dim)
    return q, codes.unflatten(-1, (-1, 2)).movedim(-2, dim).to(torch.uint8)


def rounded(q: torch.Tensor, dtype: int) -> torch.Tensor:
    """The nearest numbers of the type: of 8 bits as such, of 4 bits as codes."""
    if dtype in FLOAT8:
        return q.clamp(-MOST[dtype], MOST[dtype]).to(FLOAT8[dtype])
    numbers = torch.tensor(NUMBERS[dtype])
    distance = (q.abs().clamp(max=MOST[dtype]).unsqueeze(-1) - numbers).abs()
    even = torch.arange(8) % 2 * 1e-6                          # ties go to the even code
    return ((distance + even).argmin(-1) + 8 * torch.signbit(q)).to(torch.uint8)


def output(shape: Any, dtype: int) -> Any:
    if dtype in FLOAT8:
        return torch.ones(shape).to(FLOAT8[dtype])
    return FourBits(client(), torch.zeros(shape, dtype=torch.uint8), dtype)


def scale_output(shape: Any) -> torch.Tensor:
    return torch.full(tuple(shape), 77, dtype=torch.uint8).view(torch.float8_e8m0fnu)


def equal(got: torch.Tensor, want: torch.Tensor) -> None:
    as_bytes = lambda t: t.contiguous().view(torch.uint8) if t.dtype.itemsize == 1 else t
    assert torch.equal(as_bytes(got), as_bytes(want))


def wide_sample(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Numbers over many powers of two, some blocks of zeros."""
    x = torch.randn(shape) * torch.exp2(torch.randint(-12, 12, shape))
    x[..., 32:64] *= torch.arange(shape[0]).view(-1, *[1] * (len(shape) - 1)) > 0
    return x.to(dtype)


@pytest.mark.parametrize(("dtype", "alg"), [(E4M3, 0), (E4M3, 1), (E5M2, 0), (E5M2, 1), (E2M1, 0), (E2M1, 2), (E1M2, 0)])
@pytest.mark.parametrize("axis", [-1, 0])
def test_dynamic_mx(dtype: int, alg: int, axis: int) -> None:
    x = wide_sample(70, 98)
    q, codes = scaled(x, axis, dtype, alg)
    want = rounded(q, dtype)
    for version, more in (("", ()), ("V2", (0.0,)), ("V3", (0.0, 0.0))):
        y = output(x.shape, dtype)
        got = client().call(f"aclnnDynamicMxQuant{version}", x, axis, "rint", dtype, 32, alg, *more, y, scale_output(codes.shape))
        equal(got[0], want)
        equal(got[1], codes)
        if isinstance(y, FourBits):
            y.free()
    back = client().call("aclnnAntiMxQuant", want, codes.view(torch.float8_e8m0fnu), axis, 0, torch.empty(x.shape)) if dtype in FLOAT8 else None
    if back is not None:
        assert (back - x.float()).abs().max() <= x.float().abs().max() / 4


def test_mx_of_larger_blocks_and_limits() -> None:
    x = wide_sample(3, 200)
    q, codes = scaled(x, -1, E4M3, 0, block=64)
    got = client().call("aclnnDynamicMxQuantV2", x, -1, None, E4M3, 64, 0, 0.0, output(x.shape, E4M3), scale_output(codes.shape))
    equal(got[0], rounded(q, E4M3))
    equal(got[1], codes)
    y = output((3, 64), E2M1)
    x = wide_sample(3, 64)
    q, codes = scaled(x, -1, E2M1, 2, most=7.0)
    got = client().call("aclnnDynamicMxQuantV2", x, -1, "rint", E2M1, 32, 2, 7.0, y, scale_output(codes.shape))
    equal(got[0], rounded(q, E2M1))
    equal(got[1], codes)
    client().expect_code(INVALID, "aclnnDynamicMxQuant", x, -1, "rint", E2M1, 32, 1, y, scale_output(codes.shape))
    client().expect_code(INVALID, "aclnnDynamicMxQuant", x, -1, "floor", E4M3, 32, 0, output(x.shape, E4M3), scale_output(codes.shape))
    y.free()


def test_mx_along_both_dims() -> None:
    x = wide_sample(2, 66, 64)
    outs = lambda: [output(x.shape, E5M2), scale_output((2, 66, 1, 2)), output(x.shape, E5M2), scale_output((2, 2, 64, 2))]
    want = [t for dim in (-1, -2) for q, codes in [scaled(x, dim, E5M2, 1)] for t in (rounded(q, E5M2), codes)]
    for version, more in (("", ()), ("V2", (0.0,))):
        for got, expected in zip(client().call(f"aclnnDynamicMxQuantWithDualAxis{version}", x, "rint", E5M2, 1, *more, *outs()), want, strict=True):
            equal(got, expected)


def grouped(x: torch.Tensor, ends: list[int], dtype: int, alg: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows scaled apart from each other in groups; the pairs of group g begin at start // 64 + g."""
    q, codes = torch.empty_like(x, dtype=torch.float32), torch.zeros(x.shape[0] // 64 + len(ends), x.shape[1], 2, dtype=torch.uint8)
    for g, (begin, end) in enumerate(itertools.pairwise([0, *ends])):
        q[begin:end], part = scaled(x[begin:end], 0, dtype, alg)
        codes[begin // 64 + g :][: len(part)] = part
    return q, codes


def test_mx_in_groups() -> None:
    x, ends = wide_sample(150, 64), [40, 40, 150]
    q, codes = grouped(x, ends, E4M3, 1)
    index = torch.tensor(ends)
    got = client().call("aclnnGroupedDynamicMxQuantV2", x, index.int(), "rint", E4M3, 32, 1, 0.0, output(x.shape, E4M3), scale_output(codes.shape))
    equal(got[0], rounded(q, E4M3))
    equal(got[1], codes)
    by_rows, row_codes = scaled(x, -1, E4M3, 1)
    got = client().call("aclnnGroupedDynamicMxQuantWithDualAxis", x, index, "rint", 1, E4M3, 0.0, output(x.shape, E4M3), scale_output(row_codes.shape),
                        output(x.shape, E4M3), scale_output(codes.shape))  # fmt: skip
    for part, expected in zip(got, (rounded(by_rows, E4M3), row_codes, rounded(q, E4M3), codes), strict=True):
        equal(part, expected)
    q, codes = grouped(x, ends, E4M3, 0)
    got = client().call("aclnnGroupedDynamicMxQuant", x, index.int(), "rint", E4M3, 32, output(x.shape, E4M3), scale_output(codes.shape))
    equal(got[0], rounded(q, E4M3))
    equal(got[1], codes)


def test_mx_by_squares() -> None:
    x = wide_sample(64, 96)
    squares = x.float().unflatten(0, (2, 32)).unflatten(2, (3, 32))
    codes = exponents(squares.abs().amax((1, 3)), E4M3, 0)
    q = torch.ldexp(squares, (127 - codes)[:, None, :, None]).flatten(2).flatten(0, 1)
    along_rows = torch.nn.functional.pad(codes.repeat_interleave(32, 0), (0, 1)).view(64, 2, 2).to(torch.uint8)
    along_columns = codes.repeat_interleave(32, 1).t().view(1, 96, 2).to(torch.uint8)
    got = client().call("aclnnDynamicBlockMxQuant", x, None, E4M3, 0, 0.0, output(x.shape, E4M3), scale_output((64, 2, 2)), scale_output((1, 96, 2)))
    for part, expected in zip(got, (rounded(q, E4M3), along_rows, along_columns), strict=True):
        equal(part, expected)
    # numbers of 4 bits with scales of rows become numbers of 8 bits with scales of squares
    small, scales = torch.randint(0, 16, (64, 64), dtype=torch.uint8), torch.randint(120, 126, (64, 1, 2), dtype=torch.uint8)
    numbers = torch.tensor(NUMBERS[E2M1] + [-n for n in NUMBERS[E2M1]])[small.long()]
    real = torch.ldexp(numbers.view(64, 2, 32), scales.int().view(64, 2, 1) - 127).view(64, 64)
    held = FourBits(client(), small, E2M1)
    y, first, second = client().call("aclnnMxToBlockMxQuant", held, scales.view(torch.float8_e8m0fnu), E4M3, output((64, 64), E4M3),
                                     scale_output((64, 1, 2)), scale_output((1, 64, 2)))  # fmt: skip
    held.free()
    most = scales.view(2, 32, 2).amax(1) - 6
    equal(first, most.repeat_interleave(32, 0).view(64, 1, 2))
    equal(second, most.repeat_interleave(32, 1).t().reshape(1, 64, 2))
    same(torch.ldexp(y.float(), first.view(torch.uint8).int().repeat_interleave(32, -1).view(64, 64) - 127), real)


def test_mx_of_two_levels() -> None:
    x, smooth = torch.randn(3, 600).bfloat16(), (torch.rand(600) + 0.5).bfloat16()
    y = output(x.shape, E2M1)
    padded = torch.nn.functional.pad((x.float() * smooth.float()).bfloat16().float(), (0, 424)).view(3, 2, 512)
    level0 = padded.abs().amax(-1) / 6
    q, codes = scaled((padded / level0.unsqueeze(-1)).flatten(1)[:, :600].bfloat16(), -1, E2M1, 0)
    got = client().call("aclnnDynamicDualLevelMxQuant", x, smooth, "rint", 512, 32, y, torch.empty(3, 2), scale_output((3, 10, 2)))
    y.free()
    same(got[1], level0)
    equal(got[2], codes)
    equal(got[0], rounded(q, E2M1))


@pytest.mark.parametrize("dtype", [2, E4M3])
def test_blocks_with_float_scales(dtype: int) -> None:
    x = torch.randn(2, 5, 300).half()
    out = output(x.shape, dtype) if dtype in FLOAT8 else torch.zeros(x.shape, dtype=torch.int8)
    most = MOST.get(dtype, 127.0)
    padded = torch.nn.functional.pad(x.float(), (0, 84)).unflatten(-1, (3, 128))
    scale = (padded.abs().amax(-1) / most).clamp(max=1 / 50)
    q = (padded / scale.unsqueeze(-1)).flatten(-2)[..., :300]
    want = rounded(q, dtype) if dtype in FLOAT8 else q.round().clamp(-128, 127).to(torch.int8)
    for version, more in (("", ()), ("V2", (0.0,))):
        got = client().call(f"aclnnDynamicBlockQuant{version}", x, 50.0, "rint", dtype, 1, 128, *more, out, torch.empty(2, 5, 3))
        same(got[1], scale)
        equal(got[0], want)
    if dtype not in FLOAT8:
        return
    ends = torch.tensor([2, 5], dtype=torch.int32)
    got = client().call("aclnnGroupedDynamicBlockQuant", x, ends, 0.0, "rint", dtype, 128, 128, 0, out, torch.full((2, 2, 3), 9.0))
    for g, (begin, end) in enumerate(((0, 2), (2, 5))):
        block = padded[:, begin:end].abs().amax((1, 3)) / most
        same(got[1][:, g], block)
        equal(got[0][:, begin:end], rounded((padded[:, begin:end] / block[:, None, :, None]).flatten(-2)[..., :300], dtype))


def test_quant_max() -> None:
    x, scale = torch.randn(6, 8), torch.tensor([3.0, 50.0])
    got = client().call("aclnnQuantMax", x, scale[:1], "rint", E5M2, output(x.shape, E5M2), torch.empty(1))
    equal(got[0], rounded(x * 3, E5M2))
    same(got[1], x.abs().max().view(1))
    ends = torch.tensor([2, 6])
    got = client().call("aclnnGroupedQuantMax", x, scale, ends, "rint", E4M3, output(x.shape, E4M3), torch.empty(2))
    equal(got[0], rounded(torch.cat([x[:2] * 3, x[2:] * 50]), E4M3))
    same(got[1], torch.stack([x[:2].abs().max(), x[2:].abs().max()]))
    client().expect_code(NO_KERNEL, "aclnnQuantMax", x, scale[:1], "round", 34, torch.zeros(6, 8, dtype=torch.uint8), torch.empty(1))


def test_products_before_quantising() -> None:
    x, left, right = torch.randn(3, 4, 16).half(), torch.randn(4, 4).half(), torch.randn(16, 16).half()
    y = left.float() @ (x.float() @ right.float())
    scale = y.abs().amax((1, 2)) / (7 / 0.5)
    want = (y / scale.view(-1, 1, 1)).round().clamp(-8, 7).int()
    words = ((want & 15).unflatten(-1, (2, 8)).long() << torch.arange(0, 32, 4)).sum(-1)
    for version, more, last in (("", (), ()), ("V2", (0.0,), ()), ("V3", (0.0,), (0,))):
        before = (None,) if version == "V3" else ()
        got = client().call(f"aclnnFlatQuant{version}", x, left, right, *before, 0.5, *more, *last, torch.zeros(3, 4, 2, dtype=torch.int32), torch.empty(3))
        same(got[1], scale, rtol=1e-4, atol=1e-5)
        assert ((got[0] != torch.where(words >= 2**31, words - 2**32, words).int()).sum()) <= 1  # a tie may round the other way
    y4, flat = output((3, 64), E2M1), y.view(3, 64)
    q, codes = scaled(flat, -1, E2M1, 0)
    got = client().call("aclnnFlatQuant", x, left, right, 1.0, y4, scale_output(codes.shape))
    y4.free()
    equal(got[1], codes)
    assert (got[0] != rounded(q, E2M1)).sum() <= 2
    turn, rows = torch.randn(8, 8).half(), torch.randn(5, 16).half()
    turned = (rows.float().view(-1, 8) @ turn.float()).view(5, 16)
    scale = turned.abs().amax(1) / 127
    got = client().call("aclnnRotateQuant", rows, turn, None, -1, "rint", 0, 0.0, False, torch.zeros(5, 16, dtype=torch.int8), torch.empty(5))
    same(got[1], scale, rtol=1e-4, atol=1e-5)
    assert (got[0].float() - (turned / scale[:, None]).round()).abs().max() <= 1


# ---- gated activations -----------------------------------------------------------------------------------------------------------
def swiglu(a: torch.Tensor, b: torch.Tensor, mode: int = 0, limit: float = 7.0, alpha: float = 1.702, bias: float = 1.0) -> torch.Tensor:
    if mode == 0:
        return a * torch.sigmoid(a) * b
    if mode == 3:
        return (a * torch.sigmoid(a)).clamp(max=limit) * b.clamp(-limit, limit)
    a, b = a.clamp(max=limit), b.clamp(-limit, limit)
    return a * torch.sigmoid(alpha * a) * (b + bias)


def close_to_int8(got: torch.Tensor, want: torch.Tensor) -> None:
    assert got.dtype == torch.int8 and (got.float() - want.clamp(-128, 127)).abs().max() <= 1  # a tie may round the other way


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
@pytest.mark.parametrize("dynamic", [True, False])
def test_dequant_swiglu_quant(mode: int, dynamic: bool) -> None:
    x, counts = sample((6, 32), torch.int32, -40, 40), torch.tensor([2, 0, 4])
    weight, activation = torch.rand(3, 32) * 0.1, torch.rand(6) + 0.5
    bias = sample((3, 32), torch.int32, -9, 9) if mode % 2 else torch.randn(3, 32)
    smooth, offset = torch.rand(3, 16) + 0.5, torch.randn(3, 16) * 3
    of_row = torch.tensor([0, 0, 2, 2, 2, 2])
    real = (x + bias[of_row]) * weight[of_row] * activation[:, None] if mode % 2 else x * weight[of_row] * activation[:, None] + bias[of_row]
    a, b = (real[:, ::2], real[:, 1::2]) if mode == 1 else (real[:, :16], real[:, 16:])
    y = swiglu(a, b, mode, 2.0)
    quant_scale = smooth if dynamic else smooth * 0.1
    if dynamic:
        y = y * smooth[of_row]
        scale = y.abs().amax(1) / 127
        want = (y / scale[:, None]).round()
    else:
        want = (y / quant_scale[of_row] + offset[of_row]).round()
    got = client().call("aclnnDequantSwigluQuantV2", x, weight, activation, bias, quant_scale, None if dynamic else offset, counts, True,
                        "dynamic" if dynamic else "static", 2, "rint", -1, mode, 2.0, 1.702, 1.0, torch.zeros(6, 16, dtype=torch.int8), torch.empty(6))  # fmt: skip
    close_to_int8(got[0], want)
    if dynamic:
        same(got[1], scale, rtol=1e-4, atol=1e-5)


def test_dequant_swiglu_quant_without_groups() -> None:
    x, weight, activation, bias = sample((3, 16), torch.int32, -40, 40), torch.rand(16) * 0.1, torch.rand(3) + 0.5, torch.randn(16)
    real = x * weight * activation[:, None] + bias
    y = swiglu(real[:, 8:], real[:, :8])
    scale, offset = torch.tensor([0.07]), torch.tensor([5.0])
    outs = lambda: (torch.zeros(3, 8, dtype=torch.int8), torch.empty(3))
    got = client().call("aclnnDequantSwigluQuant", x, weight, activation, bias, scale, offset, None, False, None, *outs())
    close_to_int8(got[0], (y / 0.07 + 5).round())
    got = client().call("aclnnDequantSwigluQuant", x, weight, activation, bias, None, None, None, False, "dynamic", *outs())
    same(got[1], y.abs().amax(1) / 127, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("counts", [False, True])
def test_swiglu_quant_in_groups(counts: bool) -> None:
    x, smooth, offsets = torch.randn(5, 16).half(), torch.rand(2, 8) + 0.5, torch.randn(2, 8)
    index, of_row = torch.tensor([2, 3] if counts else [2, 5], dtype=torch.int32), torch.tensor([0, 0, 1, 1, 1])
    y = swiglu(x[:, 8:].float(), x[:, :8].float()) * smooth[of_row]
    got = client().call("aclnnSwiGluQuantV2", x, smooth, None, index, False, "dynamic", int(counts), 2, torch.zeros(5, 8, dtype=torch.int8), torch.empty(5))
    scale = 127 / y.abs().amax(1)                                             # the scale is what was multiplied with
    same(got[1], scale, rtol=1e-3, atol=1e-3)
    close_to_int8(got[0], (y * scale[:, None]).round())
    got = client().call("aclnnSwiGluQuantV2", x, smooth, offsets, index, False, "static", int(counts), 2, torch.zeros(5, 8, dtype=torch.int8), torch.empty(5))
    close_to_int8(got[0], (y + offsets[of_row]).round())


def situ(a: torch.Tensor, b: torch.Tensor, beta: float, linear: float) -> torch.Tensor:
    return beta * torch.tanh(a / beta) * torch.sigmoid(a) * (linear * torch.tanh(b / linear) if linear > 0 else b)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("linear", [0.0, 2.5])
def test_situ(left: bool, linear: float) -> None:
    x = torch.randn(3, 4, 5, requires_grad=True)
    halves = x.chunk(2, 1) if left else x.chunk(2, 1)[::-1]
    want, grad = situ(*halves, 1.5, linear), torch.randn(3, 2, 5)
    same(client().call("aclnnSituGlu", x.detach(), 1, 1.5, linear, left, torch.empty(3, 2, 5)), want.detach())
    (slope,) = torch.autograd.grad(want, x, grad)
    same(client().call("aclnnSituGluGrad", grad, x.detach(), 1, 1.5, linear, left, torch.empty(3, 4, 5)), slope)
    rows = sample((4, 128), torch.bfloat16)
    a, b = rows.float().chunk(2, 1) if left else rows.float().chunk(2, 1)[::-1]
    y = situ(a, b, 1.5, linear)
    q, codes = scaled(y, -1, E4M3, 0)
    got = client().call("aclnnSituMxQuant", rows, 1.5, linear, left, -1, E4M3, "rint", output((4, 64), E4M3), scale_output(codes.shape))
    equal(got[1], codes)
    assert (got[0].float() - rounded(q, E4M3).float()).abs().max() <= 32
    got = client().call("aclnnDequantSituQuant", rows, None, None, None, None, None, None, 1.5, linear, left, "dynamic",
                        torch.zeros(4, 64, dtype=torch.int8), torch.empty(4))  # fmt: skip
    scale = y.abs().amax(1) / 127
    same(got[1], scale, rtol=1e-4, atol=1e-5)
    close_to_int8(got[0], (y / scale[:, None]).trunc())


def test_swiglu_to_mx() -> None:
    x = sample((70, 128), torch.bfloat16)
    y = swiglu(x[:, :64].float(), x[:, 64:].float())
    q, codes = scaled(y, -1, E5M2, 0)
    got = client().call("aclnnSwigluMxQuant", x, None, -1, True, 0, 7.0, 1.0, 0.0, 0, -1, E5M2, "rint", 0, 0.0, output(y.shape, E5M2), scale_output(codes.shape))
    equal(got[1], codes)
    same(got[0].float(), rounded(q, E5M2).float(), rtol=0.26, atol=0)
    counts, ends = torch.tensor([30, 40]), [30, 70]
    q, codes = grouped(y, ends, E5M2, 1)
    got = client().call("aclnnSwigluMxQuant", x, counts, -1, True, 0, 7.0, 1.0, 0.0, 0, -2, E5M2, "rint", 1, 0.0, output(y.shape, E5M2), scale_output(codes.shape))
    equal(got[1], codes)
    by_rows, row_codes = scaled(y, -1, E5M2, 1)
    got = client().call("aclnnSwigluMxQuantWithDualAxis", x, torch.tensor(ends), True, "rint", 1, E5M2, 0.0, output(y.shape, E5M2),
                        scale_output(row_codes.shape), output(y.shape, E5M2), scale_output(codes.shape))  # fmt: skip
    equal(got[1], row_codes)
    equal(got[3], codes)
    leaf, grad = x.float().requires_grad_(), sample((70, 64), torch.bfloat16)
    (slope,) = torch.autograd.grad(swiglu(leaf[:, :64], leaf[:, 64:]), leaf, grad.float())
    (q, row_codes), (_, codes) = scaled(slope, -1, E4M3, 1), grouped(slope, ends, E4M3, 1)
    got = client().call("aclnnSwigluBackwardMxQuantWithDualAxis", x, grad, torch.tensor(ends), True, "rint", 1, E4M3, 0.0, output(x.shape, E4M3),
                        scale_output(row_codes.shape), output(x.shape, E4M3), scale_output(codes.shape))  # fmt: skip
    equal(got[1], row_codes)
    equal(got[3], codes)
    assert (got[0].float() - rounded(q, E4M3).float()).abs().max() <= 32


@pytest.mark.parametrize("limit", [-1.0, 1.0])
def test_swiglu_group(limit: float) -> None:
    x, weight, counts = torch.randn(6, 16, requires_grad=True), torch.rand(6, requires_grad=True), torch.tensor([1, 3])
    a, b = x.chunk(2, 1)
    if limit > 0:
        a, b = a.clamp(max=limit), b.clamp(-limit, limit)
    y = a * torch.sigmoid(a) * b
    want, grad = (y * weight[:, None]).detach(), torch.randn(6, 8)
    got = client().call("aclnnSwigluGroup", x.detach(), weight.detach(), counts, limit, torch.full((6, 8), 5.0))
    same(got, torch.cat([want[:4], torch.full((2, 8), 5.0)]))
    in_groups = (torch.arange(6) < 4).float()[:, None]
    dx, dw = torch.autograd.grad(y * weight[:, None], (x, weight), grad * in_groups)
    for op in ("aclnnSwigluGroupGrad", "aclnnSwigluGroupQuantGrad"):
        got = client().call(op, grad, x.detach(), weight.detach(), y.detach(), counts, limit, torch.empty(6, 16), torch.empty(6))
        same(got[0], dx)
        same(got[1], dw)


def test_swiglu_group_quant() -> None:
    x, weight = torch.randn(3, 512).half(), torch.rand(3)
    y = swiglu(x[:, :256].float(), x[:, 256:].float())
    blocks = (y * weight[:, None]).view(3, 2, 128)
    scale = blocks.abs().amax(-1).clamp(min=1e-4) / 448
    got = client().call("aclnnSwigluGroupQuant", x, weight, None, None, E4M3, 0, 0, False, -1.0, 15.0, True, output((3, 256), E4M3), torch.empty(3, 2),
                        torch.empty(3, 256).half())  # fmt: skip
    same(got[1], scale, rtol=1e-4, atol=1e-7)
    same(got[2], y.half())
    same(got[0].float(), rounded((blocks / scale.unsqueeze(-1)).view(3, 256), E4M3).float(), rtol=0.13, atol=0.01)
    q, codes = scaled(y * weight[:, None], -1, E4M3, 1)
    got = client().call("aclnnSwigluGroupQuant", x, weight, None, None, E4M3, 1, 32, True, -1.0, 15.0, False, output((3, 256), E4M3),
                        scale_output(codes.shape), torch.empty(3, 256).half())  # fmt: skip
    equal(got[1], codes)


@pytest.mark.parametrize("mode", [0, 1])
def test_clipped_swiglu_v2(mode: int) -> None:
    x = torch.randn(3, 8) * 3
    want = swiglu(x[:, ::2], x[:, 1::2], 3 if mode else 1, 2.0, 1.5, 0.5)
    same(client().call("aclnnClippedSwigluV2", x, None, -1, 1.5, 2.0, 0.5, True, mode, like(want)), want)


# ---- norms -------------------------------------------------------------------------------------------------------------------------
def test_norms_to_int8_and_mx() -> None:
    x, gamma, beta = torch.randn(5, 64).bfloat16(), torch.randn(64).bfloat16(), torch.randn(64).bfloat16()
    rstd = torch.rsqrt(x.float().square().mean(-1) + 1e-5)
    y = x.float() * rstd[:, None] * gamma.float() + beta.float()
    scale, offset = torch.tensor([0.05]), torch.tensor([3.0])
    got = client().call("aclnnRmsNormQuantV3", x, gamma, scale, offset, beta, 1e-5, True, True, torch.zeros(5, 64, dtype=torch.int8), torch.empty(5))
    close_to_int8(got[0], (y / 0.05 + 3).round())
    same(got[1], rstd)
    _, codes = scaled(y, -1, E4M3, 1)
    got = client().call("aclnnRmsNormDynamicMxQuant", x, gamma, beta, 1e-5, 1, "rint", E4M3, True, output(x.shape, E4M3), scale_output(codes.shape), torch.empty(5))
    equal(got[1], codes)
    same(got[2], rstd)
    normed = torch.nn.functional.layer_norm(x.float(), (64,), gamma.float(), beta.float(), 1e-5)
    got = client().call("aclnnLayerNormQuant", x, gamma, beta, torch.tensor([0.1]).bfloat16(), torch.tensor([2], dtype=torch.int8), 0, 1e-5,
                        torch.zeros(5, 64, dtype=torch.int8), torch.empty(5))  # fmt: skip
    close_to_int8(got[0], (normed / torch.tensor(0.1).bfloat16().float() + 2).round())
    got = client().call("aclnnLayerNormQuant", x, gamma, beta, torch.ones(64).bfloat16() * 2, None, 1, 1e-5, torch.zeros(5, 64, dtype=torch.int8), torch.empty(5))
    same(got[1], normed.abs().amax(1) * 2 / 127, rtol=1e-4, atol=1e-5)
    x2 = torch.randn(5, 64).bfloat16()
    total = x.float() + x2.float()
    normed = torch.nn.functional.layer_norm(total, (64,), gamma.float(), beta.float(), 1e-5)
    got = client().call("aclnnAddLayerNormQuantV2", x, x2, gamma, beta, None, None, None, None, None, "dynamic", 1e-5, True, True,
                        torch.zeros(5, 64, dtype=torch.int8), torch.zeros(5, 64, dtype=torch.int8), like(x), like(x), torch.empty(5), torch.empty(5))  # fmt: skip
    same(got[2], total.bfloat16())
    same(got[3], normed.bfloat16())
    close_to_int8(got[0], (normed / got[4][:, None]).round())


@pytest.mark.parametrize(("mode", "dims"), [("pertoken", (1,)), ("pertensor", (0, 1)), ("perchannel", (0,))])
def test_dynamic_quant_v4(mode: str, dims: tuple[int, ...]) -> None:
    x = torch.randn(6, 8).half()
    scale = x.float().abs().amax(dims, keepdim=True) / 127
    got = client().call("aclnnDynamicQuantV4", x, None, None, 2, True, mode, 0.0, torch.zeros(6, 8, dtype=torch.int8), torch.empty(scale.numel()), None)
    same(got[1], scale.flatten())
    close_to_int8(got[0], (x.float() / scale).round())


def test_norms_by_channels() -> None:
    x, gamma, beta, scale = torch.randn(2, 6, 3).half(), torch.randn(6).half(), torch.randn(6).half(), torch.rand(6) * 0.1 + 0.01
    y = torch.nn.functional.silu(torch.nn.functional.group_norm(x.float(), 3, gamma.float(), beta.float(), 1e-5))
    got = client().call("aclnnGroupNormSiluQuant", x, gamma, beta, scale, 3, 1e-5, True, torch.zeros(2, 6, 3, dtype=torch.int8), torch.empty(2, 3).half(),
                        torch.empty(2, 3).half())  # fmt: skip
    close_to_int8(got[0], (y / scale.view(1, 6, 1)).round())
    same(got[1], x.float().view(2, 3, 6).mean(-1).half())
    q, mean, var = torch.randint(-50, 50, (2, 6, 2, 2), dtype=torch.int8), torch.randn(6), torch.rand(6) + 0.5
    weight, bias = torch.randn(6), torch.randn(6)
    real = torch.nn.functional.batch_norm((q.float() - 3) * 0.1, mean, var, weight, bias, eps=1e-5)
    got = client().call("aclnnQuantizedBatchNorm", q, mean, var, 0.1, 3, 0.05, -2, weight, bias, 1e-5, like(q))
    close_to_int8(got, (real / 0.05 - 2).round())


def test_adaptive_layer_norm() -> None:
    x, scale, shift = torch.randn(2, 3, 8, requires_grad=True), torch.randn(2, 8, requires_grad=True), torch.randn(2, 8, requires_grad=True)
    weight, bias, smooth = torch.randn(8, requires_grad=True), torch.randn(8, requires_grad=True), torch.rand(8) + 0.5
    y = torch.nn.functional.layer_norm(x, (8,), weight, bias, 1e-5) * (1 + scale[:, None]) + shift[:, None]
    grad = torch.randn(2, 3, 8)
    mean, rstd = x.mean(-1, keepdim=True), torch.rsqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-5)
    plain = [t.detach() for t in (rstd, mean, scale, shift, weight, bias)]
    got = client().call("aclnnAdaLayerNormBackward", grad, x.detach(), [8], *plain, torch.empty(2, 3, 8), torch.empty(2, 8), torch.empty(2, 8),
                        torch.empty(8), torch.empty(8))  # fmt: skip
    for part, want in zip(got, torch.autograd.grad(y, (x, scale, shift, weight, bias), grad), strict=True):
        same(part, want, rtol=1e-4, atol=1e-4)
    halves = [t.detach().half() for t in (x, scale, shift, weight, bias, smooth)]
    xs, ss, sh, ws, bs, sm = (t.float() for t in halves)
    y = (torch.nn.functional.layer_norm(xs, (8,), ws, bs, 1e-5) * (1 + ss[:, None]) + sh[:, None]) * sm
    got = client().call("aclnnAdaLayerNormQuant", *halves, 1e-5, "dynamic", torch.zeros(2, 3, 8, dtype=torch.int8), torch.empty(2, 3), None)
    found = y.abs().amax(-1) / 127
    same(got[1], found, rtol=1e-4, atol=1e-5)
    close_to_int8(got[0], (y / found.unsqueeze(-1)).round())
