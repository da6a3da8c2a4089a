"""Softmax and norms of the simulator against torch: dtypes of the tables, layouts, masks of gradients, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from client import client, same
from samples import LAYOUTS, blank, dtypes, grads, sample
from torch import Tensor

INVALID, NULL = 161002, 161001
CLOSE = {
    torch.float16: {"rtol": 4e-3, "atol": 8e-3}, torch.bfloat16: {"rtol": 3e-2, "atol": 6e-2},
    torch.float32: {"rtol": 1e-4, "atol": 1e-5},
}  # fmt: skip
FLOATS = [torch.float32, torch.float16, torch.bfloat16]


def close(got: Tensor, want: Tensor) -> None:
    same(got, want, **CLOSE.get(want.dtype, {"rtol": 1e-9, "atol": 1e-9}))


# ---- softmax ----------------------------------------------------------------------------------------------------
SHAPES = [((), 0), ((), -1), ((5,), 0), ((3, 4), -1), ((3, 4), 0), ((2, 3, 5), 1), ((0, 3), 1), ((3, 0), 1),
          ((2, 1, 2, 1, 3, 1, 2, 2), 4), ((3, 200), 1), ((200, 3), 0)]  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape, dim", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", dtypes("aclnnSoftmax"), ids=str)
def test_softmax(dtype: torch.dtype, shape: tuple[int, ...], dim: int, layout: str) -> None:
    x = LAYOUTS[layout](sample(dtype, *shape))
    ops: list[tuple[str, Callable[..., Tensor]]] = [("Softmax", torch.softmax), ("LogSoftmax", torch.log_softmax)]
    for op, judge in ops:
        want = judge(x, dim)
        close(client().call(f"aclnn{op}", x, dim, LAYOUTS[layout](blank(want))), want)
        if dtype == torch.float64:
            continue  # the gradients' rows have no float64
        g = sample(dtype, *shape, seed=1)
        (wanted,) = grads(lambda x, judge=judge: judge(x, dim), g, x)
        close(client().call(f"aclnn{op}Backward", g, want, dim, blank(want)), wanted)


def test_softmax_into_another_dtype() -> None:
    x = sample(torch.float16, 3, 4)
    close(client().call("aclnnSoftmax", x, 1, torch.empty(3, 4)), torch.softmax(x.float(), 1))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_scaled_masked_softmax(dtype: torch.dtype) -> None:
    x, mask, g = sample(dtype, 2, 3, 4, 8), sample(torch.bool, 2, 1, 4, 8), sample(dtype, 2, 3, 4, 8, seed=1)

    def judge(x: Tensor) -> Tensor:
        return torch.softmax((x * 0.5).masked_fill(mask, -10000.0), -1)

    want = judge(x.float()).to(dtype)
    close(client().call("aclnnScaledMaskedSoftmax", x, mask, 0.5, False, blank(want)), want)
    (wanted,) = grads(judge, g, x)
    close(client().call("aclnnScaledMaskedSoftmaxBackward", g, want, mask, 0.5, False, blank(want)), wanted)


# ---- layer norm, RMS norm ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("given", ["weight and bias", "weight", "nothing"])
@pytest.mark.parametrize(
    "shape, n", [((3, 8), 1), ((2, 3, 4), 2), ((6,), 1), ((0, 4), 1), ((2, 1, 2, 1, 2, 1, 2, 4), 1)], ids=str
)
@pytest.mark.parametrize("dtype", dtypes("aclnnLayerNorm"), ids=str)
def test_layer_norm(dtype: torch.dtype, shape: tuple[int, ...], n: int, given: str, layout: str) -> None:
    x, last = LAYOUTS[layout](sample(dtype, *shape)), shape[-n:]
    weight = sample(dtype, *last, seed=1) if "weight" in given else None
    bias = sample(dtype, *last, seed=2) if "bias" in given else None
    want, mean, rstd = torch.native_layer_norm(
        x.float(), list(last), None if weight is None else weight.float(), None if bias is None else bias.float(), 1e-5
    )
    got = client().call("aclnnLayerNorm", x, last, weight, bias, 1e-5, blank(x), blank(mean), blank(rstd))
    for a, b in zip(got, (want.to(dtype), mean, rstd), strict=True):
        close(a, b)
    close(client().call("aclnnLayerNorm", x, last, weight, bias, 1e-5, blank(x), None, None), want.to(dtype))
    if given != "weight and bias":
        return
    g = sample(dtype, *shape, seed=3)
    wanted = grads(lambda x, w, b: torch.layer_norm(x, last, w, b), g, x, weight, bias)
    outs = [blank(x), blank(weight), blank(bias)]
    args = (g, x, last, mean, rstd, weight, bias)
    for a, b in zip(client().call("aclnnLayerNormBackward", *args, [True] * 3, *outs), wanted, strict=True):
        close(a, b)
    close(client().call("aclnnLayerNormBackward", *args, [True, False, False], blank(x), None, None), wanted[0])
    close(client().call("aclnnLayerNormBackward", *args, [False, True, False], None, blank(weight), None), wanted[1])


@pytest.mark.parametrize("shape, n", [((3, 8), 1), ((2, 3, 4), 2), ((2, 2, 2, 8), 1)], ids=str)
@pytest.mark.parametrize("dtype", dtypes("aclnnRmsNorm"), ids=str)
def test_rms_norm(dtype: torch.dtype, shape: tuple[int, ...], n: int) -> None:
    x, last = sample(dtype, *shape), shape[-n:]
    gamma, g = sample(dtype, *last, seed=1), sample(dtype, *shape, seed=2)
    rstd = (x.float().pow(2).mean(tuple(range(-n, 0)), keepdim=True) + 1e-6).rsqrt()

    def judge(x: Tensor, gamma: Tensor) -> Tensor:
        return torch.rms_norm(x, last, gamma, 1e-6)

    want = judge(x.float(), gamma.float()).to(dtype)
    got = client().call("aclnnRmsNorm", x, gamma, 1e-6, blank(x), blank(rstd))
    close(got[0], want)
    close(got[1], rstd)
    close(
        client().call("aclnnGemmaRmsNorm", x, gamma, 1e-6, blank(x), blank(rstd))[0],
        judge(x.float(), gamma.float() + 1).to(dtype),
    )
    dx, dgamma = grads(judge, g, x, gamma.float())
    made = client().call("aclnnRmsNormGrad", g, x, rstd, gamma, blank(x), blank(gamma).float())
    close(made[0], dx)
    same(made[1], dgamma, rtol=1e-2, atol=1e-2)


# ---- group norm, batch norm -------------------------------------------------------------------------------------
def test_group_norm_without_weights() -> None:
    x, stats = sample(torch.float32, 2, 6, 3, 4), torch.empty(2, 3)
    got = client().call("aclnnGroupNorm", x, None, None, 2, 6, 12, 3, 1e-5, blank(x), stats, stats.clone())
    close(got[0], torch.group_norm(x, 3))


def test_group_norm_of_no_items_does_not_count_its_channels() -> None:
    x, stats = torch.empty(1, 2, 0), torch.empty(1, 1)  # of the 2^40 channels that it is told there are
    client().call("aclnnGroupNorm", x, None, None, 1, 2**40 - 1, 0, 1, 1e-5, blank(x), stats, stats.clone())
    args = (x, x, stats, stats, None, 1, 2**40 - 1, 0, 1)
    client().call("aclnnGroupNormBackward", *args, [True, False, False], blank(x), None, None)


@pytest.mark.parametrize("dtype", dtypes("aclnnGroupNorm"), ids=str)
def test_group_norm(dtype: torch.dtype) -> None:
    x, g = LAYOUTS["transposed"](sample(dtype, 2, 6, 3, 4)), sample(dtype, 2, 6, 3, 4, seed=3)
    gamma, beta = sample(dtype, 6, seed=1), sample(dtype, 6, seed=2)
    want, mean, rstd = torch.native_group_norm(x.float().contiguous(), gamma.float(), beta.float(), 2, 6, 12, 3, 1e-5)
    got = client().call("aclnnGroupNorm", x, gamma, beta, 2, 6, 12, 3, 1e-5, blank(x), blank(mean), blank(rstd))
    for a, b in zip(got, (want.to(dtype), mean, rstd), strict=True):
        close(a, b)
    wanted = grads(lambda x, w, b: torch.group_norm(x, 3, w, b), g, x, gamma, beta)
    args = (g, x, mean, rstd, gamma, 2, 6, 12, 3)
    made = client().call("aclnnGroupNormBackward", *args, [True] * 3, blank(x), blank(gamma), blank(beta))
    for a, b in zip(made, wanted, strict=True):
        close(a, b)
    close(client().call("aclnnGroupNormBackward", *args, [False, False, True], None, None, blank(beta)), wanted[2])


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 5), (2, 3, 4, 5), (2, 3, 2, 2, 2)], ids=str)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", dtypes("aclnnBatchNorm"), ids=str)
def test_batch_norm(dtype: torch.dtype, training: bool, shape: tuple[int, ...]) -> None:
    x, g = sample(dtype, *shape), sample(dtype, *shape, seed=1)
    weight, bias, mean, var = torch.rand(3) + 0.5, torch.rand(3), torch.rand(3), torch.rand(3) + 0.5
    kept = (mean.clone(), var.clone())
    want, save_mean, save_invstd = torch.native_batch_norm(x.float(), weight, bias, *kept, training, 0.1, 1e-5)
    out = [blank(x), torch.empty(3), torch.empty(3)]
    got = client().call("aclnnBatchNorm", x, weight, bias, mean, var, training, 0.1, 1e-5, *out)
    for a, b in zip(got, (*kept, want.to(dtype)), strict=False):
        close(a, b)
    if training:
        close(got[3], save_mean)
        close(got[4], save_invstd)
    wanted = torch.ops.aten.native_batch_norm_backward(
        g.float(), x.float(), weight, mean, var, save_mean, save_invstd, training, 1e-5, [True] * 3
    )
    stats = (mean, var, save_mean, save_invstd) if training else (mean, var, None, None)
    args = (g, x, weight, *stats, training, 1e-5)
    made = client().call("aclnnBatchNormBackward", *args, [True] * 3, blank(x), torch.empty(3), torch.empty(3))
    for a, b in zip(made, (wanted[0].to(dtype), wanted[1], wanted[2]), strict=True):
        close(a, b)
    close(client().call("aclnnBatchNormBackward", *args, [False, True, False], None, torch.empty(3), None), wanted[1])
    if training:
        made = client().call(
            "aclnnFastBatchNormBackward", *args, [True] * 3, 0, blank(x), torch.empty(3), torch.empty(3)
        )
        close(made[0], wanted[0].to(dtype))


@pytest.mark.parametrize("dtype", dtypes("aclnnInstanceNorm"), ids=str)
def test_instance_norm(dtype: torch.dtype) -> None:
    x, gamma, beta = sample(dtype, 2, 3, 4, 5), sample(dtype, 3, seed=1), sample(dtype, 3, seed=2)
    stats = torch.empty(2, 3, 1, 1, dtype=dtype)
    got = client().call("aclnnInstanceNorm", x, gamma, beta, "NCHW", 1e-5, blank(x), stats, stats.clone())
    want = torch.instance_norm(x.float(), gamma.float(), beta.float(), None, None, True, 0.1, 1e-5, False)
    close(got[0], want.to(dtype))
    var, mean = torch.var_mean(x.float(), (2, 3), correction=0, keepdim=True)
    close(got[1], mean.to(dtype))
    close(got[2], var.to(dtype))


def test_batch_norm_without_running_statistics_or_weights() -> None:
    x = sample(torch.float32, 4, 3)
    out = [torch.empty(4, 3), torch.empty(3), torch.empty(3)]
    got = client().call("aclnnBatchNorm", x, None, None, None, None, True, 0.1, 1e-5, *out)
    close(got[0], torch.batch_norm(x, None, None, None, None, True, 0.1, 1e-5, False))
    close(client().call("aclnnBatchNorm", x, None, None, None, None, False, 0.1, 0.0, *out)[0], x)


X, C = torch.ones(2, 3, 4), torch.ones(3)
BAD: list[tuple[int, str, tuple[Any, ...]]] = [
    (INVALID, "aclnnSoftmax", (X, 3, X)),
    (INVALID, "aclnnSoftmax", (X, -4, X)),
    (INVALID, "aclnnSoftmax", (X, 0, torch.ones(2, 3))),
    (INVALID, "aclnnSoftmax", (X.long(), 0, X)),
    (NULL, "aclnnSoftmax", (None, 0, X)),
    (NULL, "aclnnSoftmax", (X, 0, None)),
    (INVALID, "aclnnSoftmaxBackward", (X, torch.ones(2, 3), 0, X)),
    (INVALID, "aclnnSoftmaxBackward", (X, X, 5, X)),
    (INVALID, "aclnnScaledMaskedSoftmax", (torch.ones(1, 1, 2, 2), torch.ones(1, 1, 3, 2) > 0, 1.0, False,
        torch.ones(1, 1, 2, 2))),
    (INVALID, "aclnnLayerNorm", (X, [3], None, None, 1e-5, X, None, None)),
    (INVALID, "aclnnLayerNorm", (X, [], None, None, 1e-5, X, None, None)),
    (INVALID, "aclnnLayerNorm", (X, [4], torch.ones(3), None, 1e-5, X, None, None)),
    (INVALID, "aclnnLayerNorm", (X, [4], None, None, 1e-5, X, torch.ones(2, 2, 1), None)),
    (INVALID, "aclnnLayerNorm", (X.double(), [4], None, None, 1e-5, X, None, None)),
    (NULL, "aclnnLayerNorm", (X, None, None, None, 1e-5, X, None, None)),
    (INVALID, "aclnnLayerNormBackward", (X, X, [4], torch.ones(2, 3), torch.ones(2, 3), None, None, [True], X, None,
        None)),
    (INVALID, "aclnnLayerNormBackward", (X, X, [4], torch.ones(2, 3), torch.ones(2, 3), None, None, [True] * 3, None,
        None, None)),
    (INVALID, "aclnnRmsNorm", (X, torch.ones(3), 1e-6, X, torch.ones(2, 3, 1))),
    (INVALID, "aclnnRmsNorm", (X, torch.ones(4), 1e-6, X, torch.ones(2, 1, 1))),
    (INVALID, "aclnnGroupNorm", (X, None, None, 2, 3, 4, 2, 1e-5, X, torch.ones(2, 2), torch.ones(2, 2))),
    (INVALID, "aclnnGroupNorm", (X, None, None, 2, 3, 5, 3, 1e-5, X, torch.ones(2, 3), torch.ones(2, 3))),
    (INVALID, "aclnnGroupNorm", (X, None, None, 4, 3, 2**62 + 2, 1, 1e-5, X, torch.ones(4, 1), torch.ones(4, 1))),  # 24 in 64 bits
    (INVALID, "aclnnGroupNorm", (X, torch.ones(2), None, 2, 3, 4, 3, 1e-5, X, torch.ones(2, 3), torch.ones(2, 3))),
    (INVALID, "aclnnBatchNorm", (X, torch.ones(4), None, None, None, True, 0.1, 1e-5, X, C, C)),
    (INVALID, "aclnnBatchNorm", (X, C, C, C, C, True, 0.1, 1e-5, X, torch.ones(2), C)),
    (INVALID, "aclnnBatchNorm", (torch.ones(3), C, C, C, C, True, 0.1, 1e-5, torch.ones(3), C, C)),
    (INVALID, "aclnnBatchNormBackward", (X, X, C, C, C, None, None, True, 1e-5, [True] * 3, X, C, C)),
]  # fmt: skip


@pytest.mark.parametrize("code, op, args", BAD, ids=[f"{op}-{i}" for i, (_, op, _) in enumerate(BAD)])
def test_refusals(code: int, op: str, args: tuple[Any, ...]) -> None:
    client().expect_code(code, op, *args)
