"""Fused and synchronised norms of the simulator against plain torch formulas, with refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from client import client, same
from samples import sample
from torch import Tensor
from torch.nn import functional as F

INVALID = 161002
FLOATS = [torch.float32, torch.float16, torch.bfloat16]
CLOSE = {torch.float16: 1e-2, torch.bfloat16: 8e-2, torch.float32: 1e-4}


def close(got: Tensor, want: Tensor) -> None:
    same(got, want, rtol=CLOSE[want.dtype], atol=CLOSE[want.dtype])


def blank(like: Tensor) -> Tensor:
    return torch.full_like(like, 77)


def grads(f: Callable[..., Tensor], grad: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    leaves = [x.detach().float().requires_grad_() for x in inputs]
    return torch.autograd.grad(f(*leaves), leaves, grad.float())


# ---- fused ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_add_rms_norm(dtype: torch.dtype) -> None:
    a, b, gamma = sample(dtype, 2, 3, 8), sample(dtype, 2, 3, 8, seed=1), sample(dtype, 8, seed=2)
    x = a.float() + b.float()
    rstd = (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    want = (x * rstd * gamma.float()).to(dtype)
    got = client().call("aclnnAddRmsNorm", a, b, gamma, 1e-6, blank(a), blank(rstd), blank(a))
    for g, w in zip(got, (want, rstd, x.to(dtype)), strict=True):
        close(g, w)
    close(client().call("aclnnAddRmsNorm", a, b, gamma, 1e-6, blank(a), None, None), want)
    got = client().call(
        "aclnnAddRmsNormCast", a, b, gamma, 1e-6, blank(rstd.expand_as(x)), blank(a), blank(rstd), blank(a)
    )
    close(got[0], (x * rstd * gamma.float()))
    close(got[1], want)
    got = client().call("aclnnInplaceAddRmsNorm", a, b, gamma, 1e-6, blank(rstd))
    close(got[0], want)
    close(got[1], x.to(dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_add_layer_norm(dtype: torch.dtype) -> None:
    a, b, d = sample(dtype, 2, 3, 8), sample(dtype, 2, 3, 8, seed=1), sample(dtype, 8, seed=5)
    gamma, beta = sample(dtype, 8, seed=2), sample(dtype, 8, seed=3)
    stats = torch.empty(2, 3, 1)

    def judge(a: Tensor, b: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        return F.layer_norm(a + b + d.float(), (8,), gamma, beta, 1e-5)

    got = client().call("aclnnAddLayerNorm", a, b, gamma, beta, d, 1e-5, True, blank(a), stats, stats.clone(), blank(a))
    close(got[0], judge(a.float(), b.float(), gamma.float(), beta.float()).to(dtype))
    close(got[3], (a.float() + b.float() + d.float()).to(dtype))
    x = a.float() + b.float()
    _, mean, rstd = torch.native_layer_norm(x, [8], gamma.float(), beta.float(), 1e-5)
    dy, dsum = sample(dtype, 2, 3, 8, seed=6), sample(dtype, 2, 3, 8, seed=7)
    dx, dgamma, dbeta = grads(lambda x, g, b: F.layer_norm(x, (8,), g, b, 1e-5), dy, x, gamma, beta)
    got = client().call(
        "aclnnAddLayerNormGrad", dy, a, b, rstd, mean, gamma, dsum, blank(a), torch.empty(8), torch.empty(8)
    )
    for g, w in zip(got, ((dx + dsum.float()).to(dtype), dgamma, dbeta), strict=True):
        close(g, w)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_deep_norm(dtype: torch.dtype) -> None:
    x, gx = sample(dtype, 2, 3, 8), sample(dtype, 2, 3, 8, seed=1)
    gamma, beta, dy = sample(dtype, 8, seed=2), sample(dtype, 8, seed=3), sample(dtype, 2, 3, 8, seed=4)

    def judge(x: Tensor, gx: Tensor, beta: Tensor, gamma: Tensor) -> Tensor:
        return F.layer_norm(x * 0.3 + gx, (8,), gamma, beta, 1e-6)

    stats = torch.empty(2, 3, 1)
    mean, rstd, y = client().call("aclnnDeepNorm", x, gx, beta, gamma, 0.3, 1e-6, stats, stats.clone(), blank(x))
    close(y, judge(x.float(), gx.float(), beta.float(), gamma.float()).to(dtype))
    wanted = grads(judge, dy, x, gx, beta, gamma)
    outs = (blank(x), blank(x), torch.empty(8), torch.empty(8))
    got = client().call("aclnnDeepNormGrad", dy, x, gx, gamma, mean, rstd, 0.3, *outs)
    for g, w in zip(got, wanted, strict=True):
        close(g, w.to(g.dtype))


def test_ada_layer_norm() -> None:
    x, scale, shift = (
        sample(torch.float32, 2, 3, 8),
        sample(torch.float32, 2, 8, seed=1),
        sample(torch.float32, 2, 8, seed=2),
    )
    want = F.layer_norm(x, (8,)) * (1 + scale[:, None]) + shift[:, None]
    close(client().call("aclnnAdaLayerNorm", x, scale, shift, None, None, 1e-5, blank(x)), want)
    got = client().call("aclnnAdaLayerNormV2", x, scale, shift, None, None, 1e-5, blank(x), torch.empty(2, 3, 1), None)
    close(got[1], x.mean(-1, keepdim=True))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_group_norm_with_an_activation(dtype: torch.dtype) -> None:
    x, gamma, beta = sample(dtype, 2, 6, 3, 2), sample(dtype, 6, seed=1), sample(dtype, 6, seed=2)
    dy, stats = sample(dtype, 2, 6, 3, 2, seed=3), torch.empty(2, 3, dtype=dtype)

    def judge(x: Tensor, gamma: Tensor, beta: Tensor, scale: float = 1.0) -> Tensor:
        y = F.group_norm(x, 3, gamma, beta, 1e-5)
        return y * torch.sigmoid(scale * y)

    wide = x.float(), gamma.float(), beta.float()
    close(
        client().call("aclnnGroupNormSilu", x, gamma, beta, 3, 1e-5, blank(x), stats, stats.clone())[0],
        judge(*wide).to(dtype),
    )
    got = client().call("aclnnGroupNormSiluV2", x, gamma, beta, 3, 1e-5, False, blank(x), stats, stats.clone())
    close(got[0], F.group_norm(wide[0], 3, *wide[1:], 1e-5).to(dtype))
    got = client().call(
        "aclnnGroupNormSwish", x, gamma, beta, 3, "NCHW", 1e-5, True, 0.7, blank(x), stats, stats.clone()
    )
    close(got[0], judge(*wide, 0.7).to(dtype))
    if dtype != torch.float32:
        return  # the saved statistics are rounded
    wanted = grads(lambda x, g, b: judge(x, g, b, 0.7), dy, x, gamma, beta)
    made = client().call(
        "aclnnGroupNormSwishGrad",
        dy,
        got[1],
        got[2],
        x,
        gamma,
        beta,
        3,
        "NCHW",
        0.7,
        True,
        True,
        blank(x),
        blank(gamma),
        blank(beta),
    )
    for g, w in zip(made, wanted, strict=True):
        close(g, w)


# ---- synchronised batch norm ------------------------------------------------------------------------------------
def test_batch_norm_over_workers_equals_one_over_the_full_batch() -> None:
    whole, dy = sample(torch.float32, 6, 3, 4), sample(torch.float32, 6, 3, 4, seed=1)
    weight, bias, mean, var = torch.rand(3) + 0.5, torch.rand(3), torch.rand(3), torch.rand(3) + 0.5
    parts, grad_parts = whole.split([4, 2]), dy.split([4, 2])
    stats = [client().call("aclnnBatchNormStats", p, 1e-5, torch.empty(3), torch.empty(3)) for p in parts]
    means, invstds = (torch.stack(s) for s in zip(*stats, strict=True))
    counts = torch.tensor([16.0, 8.0])
    got = client().call(
        "aclnnBatchNormGatherStatsWithCounts",
        parts[0],
        means,
        invstds,
        mean,
        var,
        0.1,
        1e-5,
        counts,
        torch.empty(3),
        torch.empty(3),
    )
    kept = (mean.clone(), var.clone())
    want, all_mean, all_invstd = torch.native_batch_norm(whole, weight, bias, *kept, True, 0.1, 1e-5)
    for g, w in zip(got, (*kept, all_mean, all_invstd), strict=True):
        close(g, w)
    made = [client().call("aclnnBatchNormElemt", p, weight, bias, all_mean, all_invstd, 1e-5, blank(p)) for p in parts]
    close(torch.cat(made), want)
    wanted = torch.ops.aten.native_batch_norm_backward(
        dy, whole, weight, None, None, all_mean, all_invstd, True, 1e-5, [True] * 3
    )
    sums = [
        client().call(
            "aclnnBatchNormReduceBackward",
            g,
            p,
            all_mean,
            all_invstd,
            weight,
            True,
            True,
            True,
            *[torch.empty(3) for _ in range(4)],
        )
        for g, p in zip(grad_parts, parts, strict=True)
    ]
    sum_dy, along, gw, gb = (sum(s) for s in zip(*sums, strict=True))
    close(gw, wanted[1])
    close(gb, wanted[2])
    back = [
        client().call(
            "aclnnBatchNormElemtBackward", g, p, all_mean, all_invstd, weight, sum_dy, along, counts.int(), blank(p)
        )
        for g, p in zip(grad_parts, parts, strict=True)
    ]
    close(torch.cat(back), wanted[0])


def test_batch_norm_sums() -> None:
    x = sample(torch.float32, 2, 3, 4)
    got = client().call("aclnnBatchNormReduce", x, torch.empty(3), torch.empty(3))
    close(got[0], x.sum((0, 2)))
    close(got[1], x.square().sum((0, 2)))


X, C = torch.ones(2, 3, 8), torch.ones(3)
BAD: list[tuple[str, tuple[Any, ...]]] = [
    ("aclnnAddRmsNorm", (X, torch.ones(2, 3, 7), torch.ones(8), 1e-6, X, None, None)),
    ("aclnnAddRmsNorm", (X, X, torch.ones(7), 1e-6, X, None, None)),
    ("aclnnAddRmsNorm", (X, X, torch.ones(8), 1e-6, X, torch.ones(5), None)),
    ("aclnnAddLayerNorm", (X, X, torch.ones(8), torch.ones(7), None, 1e-5, False, X, torch.ones(2, 3), torch.ones(2,
        3), X)),
    ("aclnnDeepNorm", (X, X, torch.ones(8), torch.ones(8), 0.3, 1e-6, torch.ones(2, 2), torch.ones(2, 3), X)),
    ("aclnnGroupNormSilu", (X, C, C, 2, 1e-5, X, torch.ones(2, 2), torch.ones(2, 2))),
    ("aclnnGroupNormSwish", (X, C, C, 0, "NCHW", 1e-5, True, 1.0, X, torch.ones(2, 3), torch.ones(2, 3))),
    ("aclnnAdaLayerNorm", (X, torch.ones(3, 8), torch.ones(2, 8), None, None, 1e-5, X)),
    ("aclnnBatchNormStats", (X, 1e-5, torch.ones(2), C)),
    ("aclnnBatchNormElemt", (X, C, C, torch.ones(2), C, 1e-5, X)),
    ("aclnnBatchNormReduceBackward", (X, X, C, C, None, True, False, False, None, None, None, None)),
    ("aclnnBatchNormGatherStatsWithCounts", (X, torch.ones(2, 3), torch.ones(1, 3), None, None, 0.1, 1e-5,
        torch.ones(2), C, C)),
]  # fmt: skip


@pytest.mark.parametrize("op, args", BAD, ids=[f"{op}-{i}" for i, (op, _) in enumerate(BAD)])
def test_refusals(op: str, args: tuple[Any, ...]) -> None:
    client().expect_code(INVALID, op, *args)
