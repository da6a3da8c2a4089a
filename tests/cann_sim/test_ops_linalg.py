"""Linear algebra, einsum and distances of the simulator against torch, with refusals."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from client import client, same
from samples import LAYOUTS, dtypes, sample

INVALID, NULL = 161002, 161001
BATCHES = [(), (2,), (2, 3), (0,)]


def matrices(dtype: torch.dtype, batch: tuple[int, ...], m: int, n: int) -> torch.Tensor:
    wide = torch.complex128 if dtype.is_complex else torch.float64
    return (torch.randn(*batch, m, n, dtype=wide) + 3 * torch.eye(m, n, dtype=wide)).to(dtype)


def near(got: torch.Tensor, want: torch.Tensor) -> None:
    close = {torch.float16: 1e-2, torch.float32: 1e-4, torch.complex64: 1e-4}.get(want.dtype, 1e-9)
    same(got, want, rtol=close, atol=close)


def judged(x: torch.Tensor) -> torch.Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize("dtype", dtypes("aclnnInverse"), ids=str)
def test_inverse(dtype: torch.dtype, batch: tuple[int, ...]) -> None:
    x = LAYOUTS["transposed"](matrices(dtype, batch, 4, 4))
    near(client().call("aclnnInverse", x, torch.empty(x.shape, dtype=dtype)), judged(x).inverse().to(dtype))


@pytest.mark.parametrize("dtype", dtypes("aclnnSlogdet"), ids=str)
def test_determinants(dtype: torch.dtype) -> None:
    x = matrices(dtype, (), 4, 4)
    sign, log = torch.linalg.slogdet(x)
    got = client().call("aclnnSlogdet", x, torch.empty((), dtype=dtype), torch.empty((), dtype=dtype))
    near(got[0], sign)
    near(got[1], log.to(dtype))
    batch = matrices(dtype, (2, 3), 3, 3)
    near(client().call("aclnnLogdet", batch, torch.empty(2, 3, dtype=dtype)), torch.logdet(batch))


@pytest.mark.parametrize("m, n", [(4, 3), (3, 4), (3, 3)])
@pytest.mark.parametrize("batch", [(), (2, 3)], ids=str)
@pytest.mark.parametrize("dtype", dtypes("aclnnLinalgQr"), ids=str)
def test_qr(dtype: torch.dtype, batch: tuple[int, ...], m: int, n: int) -> None:
    x = matrices(dtype, batch, m, n)
    for code, mode in enumerate(("reduced", "complete", "r")):
        q, r = torch.linalg.qr(judged(x), mode)
        got = client().call(
            "aclnnLinalgQr", x, code, torch.empty(q.shape, dtype=dtype), torch.empty(r.shape, dtype=dtype)
        )
        near(got[1], r.to(dtype))
        if mode != "r":
            near(got[0], q.to(dtype))
            got = client().call(
                "aclnnQr", x, mode == "reduced", torch.empty(q.shape, dtype=dtype), torch.empty(r.shape, dtype=dtype)
            )
            near(got[0], q.to(dtype))


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64], ids=str)
def test_svd(dtype: torch.dtype, full: bool) -> None:
    x = matrices(dtype, (2,), 4, 3)
    u, s, vh = torch.linalg.svd(x, full)
    outs = [s.to(dtype), torch.ones_like(u), torch.ones_like(vh.mT.contiguous())]
    sigma, left, right = client().call("aclnnSvd", x, full, True, *outs)
    near(sigma, s.to(dtype))
    near(left[..., :3] @ torch.diag_embed(sigma) @ right.mH, x)
    sigma, left, right = client().call("aclnnSvd", x, full, False, *outs)
    near(sigma, s.to(dtype))
    assert not left.any() and not right.any()
    near(client().call("aclnnSvd", x, full, False, s.to(dtype), torch.empty(0, dtype=dtype), torch.empty(0, dtype=dtype))[0], s.to(dtype))


@pytest.mark.parametrize("upper", [False, True])
def test_cholesky(upper: bool) -> None:
    a = matrices(torch.float32, (2,), 3, 3)
    x = a @ a.mT + torch.eye(3)
    near(client().call("aclnnLinalgCholesky", x, upper, torch.empty_like(x)), torch.linalg.cholesky(x, upper=upper))


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("dtype", dtypes("aclnnTriangularSolve"), ids=str)
def test_triangular_solve(dtype: torch.dtype, unit: bool, transpose: bool, upper: bool) -> None:
    b, a = sample(dtype, 2, 3, 2), matrices(dtype, (1,), 3, 3)
    whole = a.mT if transpose else a
    want = torch.linalg.solve_triangular(whole, b, upper=upper != transpose, unitriangular=unit)
    got = client().call(
        "aclnnTriangularSolve", b, a, upper, transpose, unit, torch.empty_like(want), torch.empty(2, 3, 3, dtype=dtype)
    )
    near(got[0], want)
    near(got[1], a.expand(2, 3, 3))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "a, b, dim", [((3,), (3,), 0), ((4, 3), (4, 3), -1), ((3, 4), (3, 1), 0), ((2, 3, 2), (1, 3, 2), 1)], ids=str
)
@pytest.mark.parametrize("dtype", dtypes("aclnnLinalgCross"), ids=str)
def test_cross(dtype: torch.dtype, a: Any, b: Any, dim: int, layout: str) -> None:
    x, y = LAYOUTS[layout](sample(dtype, *a)), LAYOUTS[layout](sample(dtype, *b, seed=1))
    want = torch.linalg.cross(x, y, dim=dim)
    same(client().call("aclnnLinalgCross", x, y, dim, torch.ones_like(want)), want, rtol=1e-2, atol=3e-1)


EINSUMS = [
    ("ij,jk->ik", [(3, 4), (4, 5)]), ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]), ("ij->ji", [(3, 4)]), ("ij->", [(3, 4)]),
    ("ii->i", [(3, 3)]), ("ii", [(3, 3)]), ("i,j->ij", [(3,), (4,)]), ("i,i", [(3,), (3,)]), ("ij,jk", [(3, 4),
    (4, 2)]),
    ("...ij,...jk->...ik", [(2, 3, 4), (4, 5)]), ("...i->...", [(2, 3, 4)]), ("bhqd,bhkd->bhqk", [(2, 2, 3, 4),
    (2, 2, 5, 4)]),
    ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)]), ("ab,cd->abcd", [(2, 3), (2, 2)]), ("ij,ij->ij", [(3, 4), (3, 1)]),
    ("ijk,k->ij", [(2, 3, 4), (4,)]), ("ba , cb -> ca", [(2, 3), (4, 2)]), ("ij,kj->i", [(2, 3), (4, 3)]),
]  # fmt: skip


@pytest.mark.parametrize("dtype", dtypes("aclnnEinsum"), ids=str)
@pytest.mark.parametrize("equation, shapes", EINSUMS)
def test_einsum(equation: str, shapes: Any, dtype: torch.dtype) -> None:
    operands = [LAYOUTS["sliced"](sample(dtype, *s, seed=i)) for i, s in enumerate(shapes)]
    want = torch.einsum(equation, *(x.double() for x in operands)).to(dtype)
    same(client().call("aclnnEinsum", operands, equation, torch.ones_like(want)), want, rtol=5e-3, atol=5e-2)


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, float("inf")])
def test_distances(p: float) -> None:
    x, y = sample(torch.float32, 5, 3), sample(torch.float32, 2, 4, 3, seed=1)
    near(client().call("aclnnPdist", x, p, torch.empty(10)), torch.pdist(x, p))
    near(client().call("aclnnPdistForward", x, p, torch.empty(10)), torch.pdist(x, p))
    want = torch.cdist(x, y, p)
    near(client().call("aclnnCdist", x, y, p, 0, torch.empty_like(want)), want)


S = torch.eye(3)
BAD: list[tuple[int, str, tuple[Any, ...]]] = [
    (INVALID, "aclnnInverse", (torch.ones(3, 4), torch.ones(3, 4))),
    (INVALID, "aclnnSvd", (S.cfloat(), False, False, torch.ones(3), S.cfloat(), S.cfloat())),    # sigma is complex too
    (INVALID, "aclnnSvd", (S, False, False, torch.ones(3), torch.empty(2), S)),      # u, although it is not asked for
    (INVALID, "aclnnInverse", (S, torch.ones(2, 3, 3))),
    (INVALID, "aclnnInverse", (torch.ones(3), torch.ones(3))),
    (INVALID, "aclnnInverse", (S.int(), S)),
    (NULL, "aclnnInverse", (None, S)),
    (INVALID, "aclnnSlogdet", (torch.ones(3, 4), torch.ones(()), torch.ones(()))),
    (INVALID, "aclnnSlogdet", (S, torch.ones(3), torch.ones(()))),
    (INVALID, "aclnnLogdet", (S, torch.ones(3))),
    (INVALID, "aclnnLinalgQr", (S, 3, S, S)),
    (INVALID, "aclnnLinalgQr", (torch.ones(4, 3), 0, torch.ones(4, 4), torch.ones(3, 3))),
    (INVALID, "aclnnLinalgQr", (torch.ones(3), 0, S, S)),
    (INVALID, "aclnnTriangularSolve", (torch.ones(4, 2), S, True, False, False, torch.ones(4, 2), S)),
    (INVALID, "aclnnTriangularSolve", (torch.ones(3, 2), S, True, False, False, torch.ones(3, 3), S)),
    (INVALID, "aclnnLinalgCross", (torch.ones(4), torch.ones(4), 0, torch.ones(4))),
    (INVALID, "aclnnLinalgCross", (torch.ones(3), torch.ones(3), 1, torch.ones(3))),
    (INVALID, "aclnnLinalgCross", (torch.ones(3), torch.ones(3), 0, torch.ones(3, 1))),
    (INVALID, "aclnnEinsum", ([S, S], "ij,jk,kl->il", S)),
    (INVALID, "aclnnEinsum", ([S, S], "ij->ij", S)),
    (INVALID, "aclnnEinsum", ([S], "ijk->i", torch.ones(3))),
    (INVALID, "aclnnEinsum", ([S], "ij->ik", S)),
    (INVALID, "aclnnEinsum", ([S], "ij->ii", S)),
    (INVALID, "aclnnEinsum", ([S, torch.ones(4, 4)], "ij,jk->ik", torch.ones(3, 4))),
    (INVALID, "aclnnEinsum", ([S], "i1->i", torch.ones(3))),
    (INVALID, "aclnnPdist", (S, -1.0, torch.ones(3))),
    (INVALID, "aclnnPdist", (S, 2.0, torch.ones(4))),
]  # fmt: skip


@pytest.mark.parametrize("code, op, args", BAD, ids=[f"{op}-{i}" for i, (_, op, _) in enumerate(BAD)])
def test_refusals(code: int, op: str, args: tuple[Any, ...]) -> None:
    client().expect_code(code, op, *args)
