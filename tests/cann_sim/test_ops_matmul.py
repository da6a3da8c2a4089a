"""Products of matrices and vectors in the simulator against torch: dtypes, layouts, broadcasting, refusals."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from client import client, same
from samples import LAYOUTS, dtypes, sample

INVALID, NULL = 161002, 161001
CLOSE = {
    torch.float16: {"rtol": 2e-3, "atol": 2e-2}, torch.bfloat16: {"rtol": 2e-2, "atol": 1e-1},
    torch.float32: {"rtol": 1e-5, "atol": 1e-4},
}  # fmt: skip


def close(got: torch.Tensor, want: torch.Tensor) -> None:
    same(got, want, **CLOSE.get(want.dtype, {"rtol": 1e-9, "atol": 1e-9}))


def blank(like: torch.Tensor) -> torch.Tensor:
    """An output full of what must not survive."""
    return torch.full_like(like, 77)


MATMULS = [
    ("aclnnMatmul", (3, 4), (4, 5)), ("aclnnMatmul", (4,), (4,)), ("aclnnMatmul", (4,), (4, 5)),
    ("aclnnMatmul", (3, 4), (4,)), ("aclnnMatmul", (2, 3, 4), (4, 5)), ("aclnnMatmul", (2, 1, 3, 4), (6, 4, 5)),
    ("aclnnMatmul", (2, 3, 1, 2, 3, 4), (1, 3, 2, 1, 4, 5)), ("aclnnMatmul", (3, 0), (0, 5)),
    ("aclnnMatmul", (0, 4), (4, 5)),
    ("aclnnMm", (3, 4), (4, 5)), ("aclnnMm", (3, 0), (0, 5)), ("aclnnBatchMatMul", (2, 3, 4), (2, 4, 5)),
    ("aclnnBatchMatMul", (0, 3, 4), (0, 4, 5)), ("aclnnMv", (3, 4), (4,)), ("aclnnMm", (65, 130), (130, 70)),
]  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", dtypes("aclnnMatmul"), ids=str)
@pytest.mark.parametrize("op, a, b", MATMULS)
def test_matmul(op: str, a: tuple[int, ...], b: tuple[int, ...], dtype: torch.dtype, layout: str) -> None:
    x, y = LAYOUTS[layout](sample(dtype, *a)), LAYOUTS[layout](sample(dtype, *b, seed=1))
    want = torch.matmul(x, y)
    close(client().call(op, x, y, LAYOUTS[layout](blank(want)), 0), want)


ADDS = [
    ("aclnnAddmm", (3, 5), (3, 4), (4, 5), torch.addmm), ("aclnnAddmm", (), (3, 4), (4, 5), torch.addmm),
    ("aclnnAddmm", (3, 1), (3, 4), (4, 5), torch.addmm), ("aclnnAddmm", (3, 5), (3, 0), (0, 5), torch.addmm),
    ("aclnnBaddbmm", (2, 3, 5), (2, 3, 4), (2, 4, 5), torch.baddbmm), ("aclnnBaddbmm", (5,), (2, 3, 4),
    (2, 4, 5), torch.baddbmm),
    ("aclnnAddbmm", (3, 5), (2, 3, 4), (2, 4, 5), torch.addbmm), ("aclnnAddbmm", (5,), (2, 3, 4),
    (2, 4, 5), torch.addbmm),
]  # fmt: skip


@pytest.mark.parametrize("beta, alpha", [(1, 1), (0.5, 2), (0, 1), (2, 0)])
@pytest.mark.parametrize("dtype", dtypes("aclnnAddmm"), ids=str)
@pytest.mark.parametrize("op, s, a, b, judge", ADDS)
def test_add_of_a_product(
    op: str, s: Any, a: Any, b: Any, judge: Any, dtype: torch.dtype, beta: float, alpha: float
) -> None:
    self, x, y = sample(dtype, *s), LAYOUTS["transposed"](sample(dtype, *a, seed=1)), sample(dtype, *b, seed=2)
    want = judge(self, x, y, beta=beta, alpha=alpha)
    close(client().call(op, self, x, y, beta, alpha, blank(want), 1), want)
    if s == tuple(want.shape):
        close(client().call(op.replace("aclnn", "aclnnInplace"), self, x, y, beta, alpha, 0), want)


def test_a_factor_of_zero_ignores_nan() -> None:
    x = torch.ones(2, 2)
    got = client().call("aclnnAddmm", torch.full((2, 2), float("nan")), x, x, 0.0, 1.0, torch.empty(2, 2), 0)
    same(got, torch.full((2, 2), 2.0))


@pytest.mark.parametrize("dtype", [d for d in dtypes("aclnnAddmv") if d != torch.bool], ids=str)
def test_addmv_takes_alpha_before_beta(dtype: torch.dtype) -> None:
    self, mat, vec = sample(dtype, 3), sample(dtype, 3, 4, seed=1), sample(dtype, 4, seed=2)
    want = torch.addmv(self, mat, vec, alpha=2, beta=3)
    close(client().call("aclnnAddmv", self, mat, vec, 2, 3, blank(want), 0), want)


@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
def test_gemm(trans_a: int, trans_b: int) -> None:
    a, b, c = sample(torch.float32, 3, 4), sample(torch.float32, 4, 5, seed=1), sample(torch.float32, 3, 5, seed=2)
    want = 2 * (a @ b) + 0.5 * c
    x, y = (a.t().contiguous() if trans_a else a), (b.t().contiguous() if trans_b else b)
    close(client().call("aclnnGemm", x, y, c, 2.0, 0.5, trans_a, trans_b, blank(want), 0), want)


@pytest.mark.parametrize("dtype", dtypes("aclnnDot"), ids=str)
@pytest.mark.parametrize("n", [0, 1, 7, 300])
def test_dot(dtype: torch.dtype, n: int) -> None:
    a, b = LAYOUTS["sliced"](sample(dtype, n)), sample(dtype, n, seed=1)
    same(client().call("aclnnDot", a, b, torch.empty((), dtype=dtype)), torch.dot(a, b), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", dtypes("aclnnGer"), ids=str)
def test_ger(dtype: torch.dtype, layout: str) -> None:
    a, b = LAYOUTS[layout](sample(dtype, 3)), LAYOUTS[layout](sample(dtype, 4, seed=1))
    want = a[:, None] * b
    close(client().call("aclnnGer", a, b, LAYOUTS[layout](torch.ones_like(want))), want)


@pytest.mark.parametrize("dtype", dtypes("aclnnAddr"), ids=str)
def test_addr(dtype: torch.dtype) -> None:
    self, a, b = sample(dtype, 3, 4), sample(dtype, 3, seed=1), sample(dtype, 4, seed=2)
    factor = True if dtype == torch.bool else 2
    want = torch.addr(self, a, b, beta=factor, alpha=factor)
    close(client().call("aclnnAddr", self, a, b, factor, factor, torch.ones_like(want)), want)
    close(client().call("aclnnInplaceAddr", self, a, b, factor, factor), want)
    close(client().call("aclnnAddr", self, a, b, None, None, torch.ones_like(want)), torch.addr(self, a, b))


def test_half_products_keep_the_accumulator_in_a_float_output() -> None:
    a, b = sample(torch.float16, 4, 300), sample(torch.float16, 300, 4, seed=1)
    same(client().call("aclnnMm", a, b, torch.empty(4, 4), 0), a.float() @ b.float(), rtol=1e-6, atol=1e-3)


def test_float16_math_rounds_float32_operands() -> None:
    a = torch.tensor([[1.0001]])
    assert client().call("aclnnMm", a, torch.ones(1, 1), torch.empty(1, 1), 2).item() == 1


BAD: list[tuple[int, str, tuple[Any, ...]]] = [
    (INVALID, "aclnnMm", (torch.ones(3, 4), torch.ones(5, 6), torch.ones(3, 6), 0)),
    (INVALID, "aclnnMm", (torch.ones(3, 4), torch.ones(4, 6), torch.ones(3, 5), 0)),
    (INVALID, "aclnnMm", (torch.ones(3, 4), torch.ones(4, 6), torch.ones(3, 6), 7)),
    (INVALID, "aclnnMm", (torch.ones(3, 4), torch.ones(4, 6), torch.ones(3, 6), -1)),
    (INVALID, "aclnnMm", (torch.ones(3), torch.ones(3, 6), torch.ones(6), 0)),
    (INVALID, "aclnnMm", (torch.ones(3, 4).double(), torch.ones(4, 6).double(), torch.ones(3, 6).double(), 0)),
    (INVALID, "aclnnMm", (torch.ones(3, 4).bfloat16(), torch.ones(4, 6).half(), torch.ones(3, 6), 0)),
    (INVALID, "aclnnMm", (torch.ones(3, 4).bfloat16(), torch.ones(4, 6).bfloat16(), torch.ones(3, 6).bfloat16(), 2)),
    (NULL, "aclnnMm", (None, torch.ones(4, 6), torch.ones(3, 6), 0)),
    (NULL, "aclnnMm", (torch.ones(3, 4), torch.ones(4, 6), None, 0)),
    (INVALID, "aclnnMatmul", (torch.ones(2, 3, 4), torch.ones(3, 4, 5), torch.ones(2, 3, 5), 0)),
    (INVALID, "aclnnMatmul", (torch.ones(()), torch.ones(3), torch.ones(3), 0)),
    (INVALID, "aclnnBatchMatMul", (torch.ones(2, 3, 4), torch.ones(3, 4, 5), torch.ones(2, 3, 5), 0)),
    (INVALID, "aclnnAddmm", (torch.ones(2, 5), torch.ones(3, 4), torch.ones(4, 5), 1, 1, torch.ones(3, 5), 0)),
    (NULL, "aclnnAddmm", (torch.ones(3, 5), torch.ones(3, 4), torch.ones(4, 5), None, 1, torch.ones(3, 5), 0)),
    (INVALID, "aclnnBaddbmm", (torch.ones(3, 5), torch.ones(1, 3, 4), torch.ones(2, 4, 5), 1, 1, torch.ones(2, 3, 5),
        0)),
    (INVALID, "aclnnInplaceAddmm", (torch.ones(3, 4), torch.ones(3, 4), torch.ones(4, 5), 1, 1, 0)),
    (INVALID, "aclnnDot", (torch.ones(3), torch.ones(4), torch.ones(()))),
    (INVALID, "aclnnDot", (torch.ones(3, 1), torch.ones(3, 1), torch.ones(()))),
    (INVALID, "aclnnGer", (torch.ones(3), torch.ones(4), torch.ones(4, 3))),
    (INVALID, "aclnnAddr", (torch.ones(3, 4), torch.ones(3), torch.ones(5), None, None, torch.ones(3, 5))),
    (INVALID, "aclnnMv", (torch.ones(3, 4), torch.ones(3), torch.ones(3), 0)),
]  # fmt: skip


@pytest.mark.parametrize("code, op, args", BAD, ids=[f"{op}-{i}" for i, (_, op, _) in enumerate(BAD)])
def test_refusals(code: int, op: str, args: tuple[Any, ...]) -> None:
    client().expect_code(code, op, *args)


# ---- groups ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", dtypes("aclnnMatmul"), ids=str)
def test_grouped_matmul(dtype: torch.dtype) -> None:
    x, weight, bias = sample(dtype, 6, 4), sample(dtype, 3, 4, 5, seed=1), sample(dtype, 3, 5, seed=2)
    ends = [2, 2, 6]
    want = torch.cat([x[a:b].float() @ w.float() for a, b, w in zip([0, *ends], ends, weight, strict=False)]).to(dtype)
    none = [None] * 4
    got = client().call("aclnnGroupedMatmul", [x], list(weight), None, *none, ends, 3, [blank(want)])
    close(got, want)
    got = client().call("aclnnGroupedMatmulV2", [x], [weight], [bias.float()], *none, ends, 3, 0, [blank(want)])
    shifted = want.float() + bias.float().repeat_interleave(torch.tensor([2, 0, 4]), 0)
    close(got, shifted.to(dtype))
    counts = torch.tensor([2, 0, 4])
    rest = (None, None, None, 3, 0, 1, 0)
    got = client().call(
        "aclnnGroupedMatmulV4", [x], [weight], None, *none, None, counts, *rest, [blank(want)], None, None
    )
    close(got, want)
    pairs = client().call(
        "aclnnGroupedMatmul", [x, x[:2]], [weight[0], weight[1]], None, *none, None, 0, [want, want[:2].clone()]
    )
    close(pairs[1], (x[:2].float() @ weight[1].float()).to(dtype))


def test_grouped_matmul_over_the_inner_dim() -> None:
    x, w, ends = sample(torch.float32, 3, 6), sample(torch.float32, 6, 5, seed=1), torch.tensor([2, 2, 6])
    want = torch.stack([x[:, a:b] @ w[a:b] for a, b in ((0, 2), (2, 2), (2, 6))])
    got = client().call("aclnnGroupedMatmulV3", [x], [w], None, *[None] * 4, ends, 3, 2, [blank(want)])
    close(got, want)
    y = sample(torch.float32, 9, 5, seed=2)
    got = client().call("aclnnGroupedMatmulAdd", x.t().contiguous(), w, ends, y, True, False, 2)
    close(got, y + want.view(9, 5))


INT8, INT32, HALF, BFLOAT = torch.int8, torch.int32, torch.float16, torch.bfloat16


def in_groups(function: Any, *operands: torch.Tensor) -> torch.Tensor:
    """The rows of three groups, [0, 2), none, and [2, 6), by what belongs to each."""
    return torch.cat([function(slice(a, b), *(o[g] for o in operands)) for g, (a, b) in enumerate(((0, 2), (2, 2), (2, 6)))])


def grouped(x: Any, weight: Any, out: Any, counts: Any = (2, 0, 4), act: int = 0, kind: int = 1, **lists: Any) -> torch.Tensor:
    names = ("bias", "scale", "offset", "restore", "restore_offset", "token")
    given = [[v] if torch.is_tensor(v := lists.get(name)) else v for name in names]
    listed = [v if isinstance(v, list) else [v] for v in (x, weight, out)]
    return client().call("aclnnGroupedMatmulV4", *listed[:2], *given, None if counts is None else torch.tensor(counts), None, None, None, 3, 0, kind, act,
                         listed[2], None, None)  # fmt: skip


def test_grouped_products_of_integers() -> None:
    x, w = (torch.randint(-9, 9, s, dtype=INT8) for s in ((6, 32), (3, 32, 8)))
    bias, scale, token = torch.randint(-99, 99, (3, 8), dtype=INT32), torch.rand(3, 8), torch.rand(6)
    sums = in_groups(lambda rows, m: x[rows].float() @ m.float(), w)
    assert grouped(x, w, torch.empty(6, 8, dtype=INT32)).equal(sums.int())
    of_rows = lambda v: in_groups(lambda rows, part: part.expand(len(sums[rows]), -1), v)
    want = (sums + of_rows(bias)) * of_rows(scale) * token[:, None]
    got = grouped(x, w, torch.empty(6, 8, dtype=BFLOAT), bias=bias, scale=scale.bfloat16(), token=token)
    close(got, ((sums + of_rows(bias)) * of_rows(scale.bfloat16().float()) * token[:, None]).bfloat16())
    close(grouped(x, w, torch.empty(6, 8).half(), bias=bias, scale=scale, token=token, act=1), want.relu().half())
    low = scale / 20
    got = grouped(x, w, torch.empty(6, 8, dtype=INT8), scale=low, offset=torch.ones(3, 8))
    assert (got.float() - (sums * of_rows(low) + 1).round().clamp(-128, 127)).abs().max() <= 1
    parameters = client().call("aclnnTransQuantParamV2", low.flatten(), torch.full((24,), 3.0), torch.empty(24, dtype=torch.int64)).view(3, 8)
    got = grouped(x, w, torch.empty(6, 8, dtype=INT8), scale=parameters)
    assert (got.float() - (sums * of_rows(low) + 3).round().clamp(-128, 127)).abs().max() <= 1
    apart = grouped([x[:2], x[:0], x[2:]], list(w), torch.empty(6, 8).half(), None, scale=list(scale), token=[token[:2], token[:0], token[2:]])
    close(apart, (sums * of_rows(scale) * token[:, None]).half())


@pytest.mark.parametrize("rows", [1, 2])
def test_grouped_products_with_weights_that_are_restored(rows: int) -> None:
    x, w, bias = sample(HALF, 6, 32), torch.randint(-9, 9, (3, 32, 8), dtype=INT8), sample(HALF, 3, 8)
    scale, offset = torch.rand(3, rows, 8).half(), torch.rand(3, rows, 8).half()
    full = (w.float() + offset.float().repeat_interleave(32 // rows, 1)) * scale.float().repeat_interleave(32 // rows, 1)
    shape = (3, rows, 8) if rows > 1 else (3, 8)
    want = in_groups(lambda part, m, b: x[part].float() @ m + b.float(), full, bias).half()
    close(grouped(x, w, torch.empty(6, 8).half(), bias=bias, restore=scale.view(shape), restore_offset=offset.view(shape)), want)


@pytest.mark.parametrize(("kind", "function"), enumerate([
    torch.relu, lambda y: torch.nn.functional.gelu(y, approximate="tanh"), torch.nn.functional.gelu, lambda y: y * torch.sigmoid(1.702 * y),
    torch.nn.functional.silu], 1))  # fmt: skip
def test_grouped_products_that_are_activated(kind: int, function: Any) -> None:
    x, w = sample(torch.float32, 6, 4), sample(torch.float32, 3, 4, 5, seed=1)
    want = function(in_groups(lambda rows, m: x[rows] @ m, w))
    close(grouped(x, w, torch.empty(6, 5), act=kind), want)
    turned = torch.cat((x[2:] @ w[2], x[:2] @ w[0]))         # pairs of a group and its rows, in any order
    close(grouped(torch.cat((x[2:], x[:2])), w, torch.empty(6, 5), ((2, 4), (0, 2)), kind=2), turned)


def test_grouped_matmul_refuses_what_it_does_not_compute() -> None:
    x, w, y = torch.ones(6, 4), torch.ones(3, 4, 5), torch.ones(6, 5)
    for scale, restore in (([torch.ones(5)], None), (None, [torch.ones(5)])):
        client().expect_code(INVALID, "aclnnGroupedMatmul", [x], [w.to(INT8) if scale is None else w], None, scale, None,
                             None if scale is None else restore, None, [2, 4, 6], 3, [y])  # fmt: skip
    client().expect_code(INVALID, "aclnnGroupedMatmul", [x.to(INT8)], [w.to(INT8)], None, *[None] * 4, [2, 4, 6], 3, [y])
    client().expect_code(INVALID, "aclnnGroupedMatmul", [x.to(INT8)], [w], None, [torch.ones(5)], None, None, None, [2, 4, 6], 3, [y])
    client().expect_code(INVALID, "aclnnGroupedMatmulV2", [x], [w], None, *[None] * 4, [2, 4, 6], 3, 7, [y])
    client().expect_code(INVALID, "aclnnGroupedMatmulV2", [x], [w], None, *[None] * 4, [2, 4, 6], 3, 0, [x])
    client().expect_code(INVALID, "aclnnGroupedMatmulV2", [x], [w], None, *[None] * 4, None, 3, 0, [y])
    client().expect_code(INVALID, "aclnnGroupedMatmul", [x, x], [w[0]], None, *[None] * 4, None, 0, [y, y])


def test_bfloat16_with_float32_promotes() -> None:
    a, b = sample(torch.bfloat16, 3, 4), sample(torch.float32, 4, 6)
    for x, y in ((a, b), (b.t(), a.t())):
        same(client().call("aclnnMatmul", x, y, torch.empty(x.shape[0], y.shape[1]), 0), x.float() @ y.float())


def test_hf32_where_it_is_asked_for() -> None:
    """CANN_SIM_HF32: factors of float32 products keep 11 bits of their fraction where cubeMathType allows it, and no others."""
    code = f"""
import sys, torch
sys.path.insert(0, {str(Path(__file__).parent)!r})
from client import Client
client = Client()
a, b, c = torch.randn(8, 16), torch.randn(16, 4), torch.randn(8, 4)
def hf32(x):
    bits = x.clone().view(torch.int32)
    bits += 0x7FF + ((bits >> 12) & 1)
    return (bits & ~0xFFF).view(torch.float32)
exact, rounded = a.double() @ b.double(), hf32(a).double() @ hf32(b).double()
def run(kind):
    return client.call("aclnnMatmul", a, b, torch.empty(8, 4), kind).double()
for kind, expected, other in ((0, exact, rounded), (3, rounded, exact), (1, rounded, exact)):
    torch.testing.assert_close(run(kind), expected, rtol=1e-5, atol=1e-5)
    assert (run(kind) - other).abs().max() > 1e-4
added = client.call("aclnnBaddbmm", c[None], a[None], b[None], 1.0, 1.0, torch.empty(1, 8, 4), 3).double()
torch.testing.assert_close(added[0], c.double() + rounded, rtol=1e-5, atol=1e-5)
image, taps = torch.randn(1, 2, 5, 5), torch.randn(3, 2, 3, 3)
got = client.call("aclnnConvolution", image, taps, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, torch.empty(1, 3, 3, 3), 1)
torch.testing.assert_close(got, torch.conv2d(hf32(image), hf32(taps)), rtol=1e-5, atol=1e-5)
"""
    subprocess.run([sys.executable, "-c", code], env=os.environ | {"CANN_SIM_HF32": "1"}, check=True)
