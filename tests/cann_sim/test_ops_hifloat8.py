"""HiFloat8 in libopapi: its codes as the publication lists them, casts and copies, and grouped products that are added."""

from __future__ import annotations

import math

import pytest
import torch
from client import Coded, client, same

INVALID, HIF8, E8M0 = 161002, 34, 37


def value_of(code: int) -> float:
    """A sign, a prefix (0001, 001, 01, 10, 11), an exponent of 0 to 4 bits whose first bit is its sign, and a fraction."""
    sign, rest = -1.0 if code >> 7 else 1.0, f"{code & 127:07b}"
    if code & 127 == 0:
        return math.nan if code else 0.0
    if code & 127 == 0x6F:
        return sign * math.inf
    if rest.startswith("0000"):
        return sign * 2.0 ** (int(rest, 2) - 23)
    prefix = next(p for p in ("0001", "001", "01", "10", "11") if rest.startswith(p))
    width = ("0001", "001", "01", "10", "11").index(prefix)
    exponent, fraction = rest[len(prefix) : len(prefix) + width], rest[len(prefix) + width :]
    power = int("1" + exponent[1:], 2) * (-1 if exponent[0] == "1" else 1) if exponent else 0
    return sign * 2.0**power * (1 + int(fraction, 2) / 2 ** len(fraction))


VALUES = torch.tensor([value_of(code) for code in range(256)], dtype=torch.float32)


def encoded(x: torch.Tensor) -> torch.Tensor:
    """The nearest code of each number, of two the one further from zero; infinity from 1.25 * 2^15 on."""
    finite = [(float(v), code) for code, v in enumerate(VALUES[:128]) if math.isfinite(v)]
    levels, codes = (torch.tensor(t) for t in zip(*sorted(finite), strict=True))
    distance = (x.abs().double().reshape(-1, 1) - levels.double()).abs()
    best = len(levels) - 1 - distance.flip(1).argmin(1)
    code = torch.where(x.abs().reshape(-1) >= 40960, 0x6F, codes[best])
    return torch.where((x.reshape(-1) < 0) & (code > 0), code | 128, code).to(torch.uint8).view(x.shape)


def cast(x: torch.Tensor) -> torch.Tensor:
    return client().call("aclnnCast", x, HIF8, Coded(client(), torch.zeros(x.shape, dtype=torch.uint8), HIF8))


def test_known_codes() -> None:
    known = {0x08: 1.0, 0x10: 2.0, 0x18: 0.5, 0x01: 2.0**-22, 0x07: 2.0**-16, 0x7E: 2.0**-15, 0x6E: 2.0**15, 0x0F: 1.875, 0x20: 4.0}
    for code, number in known.items():
        assert value_of(code) == number
    assert sorted(v for v in VALUES.tolist() if math.isfinite(v)) == sorted({v for v in VALUES.tolist() if math.isfinite(v)})  # none twice


def test_codes_become_numbers_and_codes_again() -> None:
    codes = torch.arange(256, dtype=torch.uint8).view(16, 16).t()
    got = client().call("aclnnCast", Coded(client(), codes, HIF8), torch.float32, torch.empty(16, 16))
    same(got, VALUES.view(16, 16).t())
    assert torch.equal(cast(got), codes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_numbers_round_to_the_nearest(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(2000, generator=generator) * 2.0 ** torch.randint(-26, 18, (2000,), generator=generator)
    finite = VALUES[:128][VALUES[:128].isfinite()].sort().values
    middles = (finite[1:] + finite[:-1]) / 2  # ties
    x = torch.cat([x, middles, -middles, torch.tensor([2.0**-24, 2.0**-23, 40959.0, 40960.0, -50000.0])]).to(dtype)
    assert torch.equal(cast(x), encoded(x.float()))
    assert cast(torch.tensor([math.inf, -math.inf, math.nan, -0.0], dtype=dtype)).tolist() == [0x6F, 0xEF, 0x80, 0]


def test_copies_convert() -> None:
    x = torch.randn(3, 4)
    into = Coded(client(), torch.zeros(4, 3, dtype=torch.uint8).t(), HIF8)
    assert torch.equal(client().call("aclnnInplaceCopy", into, x), encoded(x))
    codes = torch.arange(12, dtype=torch.uint8).view(3, 4)
    same(client().call("aclnnInplaceCopy", torch.empty(3, 4).bfloat16(), Coded(client(), codes, HIF8)), VALUES[:12].view(3, 4).bfloat16())
    low = torch.randn(3, 4).to(torch.float8_e4m3fn)
    same(client().call("aclnnInplaceCopy", torch.empty(3, 4), low), low.float())


@pytest.mark.parametrize("counts", [False, True])
def test_grouped_products_are_added(counts: bool) -> None:
    ends, m, n, k = [3, 3, 9], 4, 5, 10
    a, b = torch.randn(k, m), torch.randn(k, n)
    first, second, y = torch.rand(3, 1) + 0.5, torch.rand(3, n) + 0.5, torch.randn(3, m, n)
    groups = torch.tensor([3, 0, 6] if counts else ends)
    left, right = (Coded(client(), t, HIF8) for t in (encoded(a).t(), encoded(b)))
    got = client().call("aclnnQuantGroupedMatmulInplaceAdd", left, right, first, second, groups, y, int(counts), 0)
    want = y.clone()
    for g, (start, end) in enumerate(zip([0, *ends], ends)):
        x1, x2 = (VALUES[encoded(t[start:end]).long()] for t in (a, b))
        want[g] += x1.t() @ x2 * second[g] * first[g]
    same(got, want, rtol=1e-5, atol=1e-5)
    client().expect_code(INVALID, "aclnnQuantGroupedMatmulInplaceAdd", left, right, first, second, groups, y, 2, 0)
    client().expect_code(INVALID, "aclnnQuantGroupedMatmulInplaceAdd", left, right, None, second, groups, y, 0, 0)
    client().expect_code(INVALID, "aclnnQuantGroupedMatmulInplaceAdd", Coded(client(), encoded(a.t()), HIF8), right, first, second, groups, y, 0, 0)


def test_grouped_products_of_blocks_are_added() -> None:
    ends, m, n = [40, 130], 3, 4
    a, b = torch.randn(130, m).to(torch.float8_e4m3fn), torch.randn(130, n).to(torch.float8_e5m2)
    pairs, y = 130 // 64 + 2, torch.randn(2, m, n)
    scales = [torch.randint(120, 132, (pairs, width, 2), dtype=torch.uint8) for width in (m, n)]
    want = y.clone()
    for g, (start, end) in enumerate(zip([0, *ends], ends)):
        for row in range(start, end):
            block = (row - start) // 32
            by = [2.0 ** (s[start // 64 + g + block // 2, :, block % 2].float() - 127) for s in scales]
            want[g] += torch.outer(a[row].float() * by[0], b[row].float() * by[1])
    first, second = Coded(client(), scales[0].transpose(0, 1), E8M0), Coded(client(), scales[1], E8M0)
    got = client().call("aclnnQuantGroupedMatmulInplaceAdd", a.t(), b, first, second, torch.tensor(ends), y, 0, 0)
    same(got, want, rtol=1e-4, atol=1e-4)
