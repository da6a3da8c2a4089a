"""Ops of every family on npu tensors, compared with the same torch on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

torch.manual_seed(0)
A, B = torch.randn(4, 5), torch.randn(4, 5)
POSITIVE = A.abs() + 0.5
COUNTS = torch.randint(-9, 9, (4, 5))

UNARY = [
    "abs", "neg", "exp", "log", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tan", "tanh", "sigmoid", "erf", "floor",
    "ceil", "round", "trunc", "sign", "log2", "log1p", "expm1", "sinh", "cosh", "atan", "isfinite", "isinf", "isnan",
    "square", "relu",
]  # fmt: skip
BINARY = [
    "add", "sub", "mul", "div", "maximum", "minimum", "pow", "fmod", "remainder", "floor_divide", "atan2", "eq", "ne",
    "lt", "le", "gt", "ge",
]  # fmt: skip
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "add scalar": (lambda a: a + 2, (A,)),
    "rsub": (lambda a: 1 - a, (A,)),
    "alpha": (lambda a, b: torch.add(a, b, alpha=3), (A, B)),
    "broadcast": (lambda a, b: a * b, (A, B[0])),
    "promote": (lambda a, b: a + b, (A, COUNTS)),
    "integers": (lambda a: a * 2 + 1, (COUNTS,)),
    "in place": (lambda a, b: a.clone().mul_(b).add_(1), (A, B)),
    "out": (lambda a, b: torch.mul(a, b, out=torch.empty_like(a)), (A, B)),
    "clamp": (lambda a: a.clamp(-0.5, 0.5), (A,)),
    "where": (lambda a, b: torch.where(a > 0, a, b), (A, B)),
    "lerp": (lambda a, b: torch.lerp(a, b, 0.3), (A, B)),
    "addcmul": (lambda a, b: torch.addcmul(a, a, b, value=0.5), (A, B)),
    "addcdiv": (lambda a, b: torch.addcdiv(a, a, b, value=0.5), (A, POSITIVE)),
    "bitwise": (lambda a: (a & 5, a | 2, a ^ 1, ~a), (COUNTS,)),
    "logical": (lambda a: (a > 0) & (a < 1) | ~(a < 0.5), (A,)),
    "masked fill": (lambda a: a.masked_fill(a > 0, 9.0), (A,)),
    "masked select": (lambda a: a[a > 0], (A,)),
    "nonzero": (lambda a: (a > 0).nonzero(), (A,)),
    "cast": (lambda a: (a.half(), a.bfloat16().float(), a.int(), a.bool()), (A,)),
    "sum": (lambda a: (a.sum(), a.sum(0), a.sum(1, keepdim=True), a.mean(), a.mean(1)), (A,)),
    "max": (lambda a: (a.max(), a.min(), *a.max(1), a.argmax(), a.argmin(1), a.amax(0)), (A,)),
    "prod": (lambda a: (a.prod(), a.prod(1)), (A,)),
    "var": (lambda a: (a.var(), a.std(1), *torch.var_mean(a, 1)), (A,)),
    "norm": (lambda a: (a.norm(), torch.linalg.vector_norm(a, dim=1)), (A,)),
    "all any": (lambda a: ((a > 0).all(), (a > 0).any(1)), (A,)),
    "cumsum": (lambda a: (a.cumsum(1), a.cumprod(0)), (A,)),
    "sort": (lambda a: (*a.sort(1), *a.topk(3, 1), a.argsort(0)), (A,)),
    "logsumexp": (lambda a: a.logsumexp(1), (A,)),
    "cat": (lambda a, b: (torch.cat([a, b]), torch.stack([a, b], 1), *a.split(2), *a.chunk(3, 1)), (A, B)),
    "view": (lambda a: (a.t().contiguous(), a.reshape(2, 10), a.permute(1, 0) + 1, a.expand(2, 4, 5).sum(0)), (A,)),
    "repeat": (lambda a: (a.repeat(2, 3), a.flip(1), a.roll(1, 0), a.tril(), a.triu(1)), (A,)),
    "pad": (lambda a: F.pad(a, (1, 2), value=3.0), (A,)),
    "index": (lambda a, i: (a[i], a.index_select(0, i), a[i, 0], a[:, i]), (A, torch.tensor([3, 0, 2]))),
    "index put": (lambda a, i: a.clone().index_put_((i,), torch.tensor(5.0).to(a)), (A, torch.tensor([3, 0]))),
    "gather": (lambda a, i: (a.gather(1, i), a.scatter(1, i, 2.0), a.scatter_add(1, i, a)),
               (A, torch.tensor([[0, 4], [1, 2], [3, 3], [2, 0]]))),
    "one hot": (lambda i: F.one_hot(i, 5), (torch.tensor([1, 4, 0]),)),
    "create": (lambda a: (torch.arange(5, device=a.device), torch.ones_like(a), torch.full((2,), 3.0, device=a.device),
                          torch.eye(3, device=a.device), torch.linspace(0, 1, 5, device=a.device)), (A,)),
    "equal": (lambda a: torch.tensor([torch.equal(a, a), torch.equal(a, a + 1)]).to(a.device), (A,)),
    "allclose": (lambda a: torch.isclose(a, a + 1e-9), (A,)),
    "unique": (lambda a: torch.unique(a), (COUNTS,)),
}  # fmt: skip

X = lambda *shape: torch.randn(*shape, requires_grad=True)
LAYERS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "matmul": (torch.matmul, (X(4, 5), X(5, 3))),
    "batched": (torch.matmul, (X(2, 4, 5), X(2, 5, 3))),
    "vector": (torch.matmul, (X(4, 5), X(5))),
    "transposed": (lambda a, b: a @ b.t(), (X(4, 5), X(3, 5))),
    "linear": (F.linear, (X(2, 4, 5), X(3, 5), X(3))),
    "addmm": (torch.addmm, (X(3), X(4, 5), X(5, 3))),
    "einsum": (lambda a, b: torch.einsum("bij,bjk->bik", a, b), (X(2, 4, 5), X(2, 5, 3))),
    "conv2d": (lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=1), (X(2, 3, 8, 8), X(4, 3, 3, 3), X(4))),
    "conv2d groups": (lambda x, w: F.conv2d(x, w, groups=4, padding=1), (X(2, 4, 8, 8), X(4, 1, 3, 3))),
    "conv1d": (lambda x, w: F.conv1d(x, w, dilation=2), (X(2, 3, 16), X(4, 3, 3))),
    "conv transpose": (lambda x, w: F.conv_transpose2d(x, w, stride=2), (X(2, 3, 5, 5), X(3, 4, 3, 3))),
    "softmax": (lambda x: F.softmax(x, -1) ** 2, (X(4, 5),)),
    "log_softmax": (lambda x: F.log_softmax(x, -1) ** 2, (X(4, 5),)),
    "layer norm": (lambda x, w, b: F.layer_norm(x, (5,), w, b) ** 2, (X(4, 5), X(5), X(5))),
    "group norm": (lambda x, w, b: F.group_norm(x, 2, w, b) ** 2, (X(2, 4, 3, 3), X(4), X(4))),
    "batch norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True) ** 2, (X(4, 3, 5, 5), X(3), X(3))),
    "embedding": (lambda i, w: F.embedding(i, w) ** 2, (torch.tensor([[1, 2], [1, 0]]), X(4, 3))),
    "cross entropy": (F.cross_entropy, (X(4, 5), torch.tensor([0, 4, 2, 2]))),
    "nll": (lambda x, t: F.nll_loss(F.log_softmax(x, 1), t), (X(4, 5), torch.tensor([0, 4, 2, 2]))),
    "mse": (F.mse_loss, (X(4, 5), B)),
    "l1": (F.l1_loss, (X(4, 5), B)),
    "smooth l1": (F.smooth_l1_loss, (X(4, 5), B)),
    "bce logits": (F.binary_cross_entropy_with_logits, (X(4, 5), B.sigmoid())),
    "bce": (lambda x, t: F.binary_cross_entropy(x.sigmoid(), t), (X(4, 5), B.sigmoid())),
    "kl div": (lambda x, t: F.kl_div(F.log_softmax(x, 1), t, reduction="batchmean"), (X(4, 5), F.softmax(B, 1))),
    "gelu": (F.gelu, (X(4, 5),)),
    "gelu tanh": (lambda x: F.gelu(x, approximate="tanh"), (X(4, 5),)),
    "silu": (F.silu, (X(4, 5),)),
    "leaky relu": (F.leaky_relu, (X(4, 5),)),
    "elu": (F.elu, (X(4, 5),)),
    "softplus": (F.softplus, (X(4, 5),)),
    "mish": (F.mish, (X(4, 5),)),
    "hardswish": (F.hardswish, (X(4, 5),)),
    "hardtanh": (F.hardtanh, (X(4, 5),)),
    "sigmoid tanh relu": (lambda x: x.sigmoid() + x.tanh() + x.relu(), (X(4, 5),)),
    "max pool": (lambda x: F.max_pool2d(x, 2), (X(2, 3, 8, 8),)),
    "avg pool": (lambda x: F.avg_pool2d(x, 2), (X(2, 3, 8, 8),)),
    "adaptive pool": (lambda x: F.adaptive_avg_pool2d(x, 1), (X(2, 3, 8, 8),)),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2), (X(2, 3, 4, 4),)),
    "bilinear": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (X(2, 3, 4, 4),)),
    "attention": (F.scaled_dot_product_attention, (X(2, 4, 6, 8), X(2, 4, 6, 8), X(2, 4, 6, 8))),
    "cat grad": (lambda a, b: torch.cat([a, b]) ** 2, (X(4, 5), X(2, 5))),
    "index grad": (lambda a: a[:, 1:3].sum() + a[0] * 2, (X(4, 5),)),
    "reduce grad": (lambda a: a.max(1)[0].sum() + a.mean() + a.var(), (X(4, 5),)),
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str, check: Callable[..., None]) -> None:
    check(getattr(torch, name), POSITIVE if name in ("log", "sqrt", "rsqrt", "log2", "log1p") else A)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int32, torch.int64], ids=str)
def test_arithmetic_dtypes(dtype: torch.dtype, check: Callable[..., None]) -> None:
    a, b = (A * 8).to(dtype), (B * 8).to(dtype)
    check(lambda x, y: (x + y, x * y, x - y, x > y, x.sum(0), -x), a, b, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str, check: Callable[..., None]) -> None:
    check(
        getattr(torch, name),
        POSITIVE,
        B if name not in ("pow", "fmod", "remainder", "floor_divide") else POSITIVE.flip(0),
    )


@pytest.mark.parametrize("name", CASES)
def test_op(name: str, check: Callable[..., None]) -> None:
    function, args = CASES[name]
    check(function, *args)


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name: str, check: Callable[..., None]) -> None:
    function, args = LAYERS[name]
    # aclnnGelu has one formula: torch_npu calls it for both of torch's
    check(function, *args, rtol=1e-3, atol=1e-3 if name == "gelu tanh" else 1e-4)


def test_dropout() -> None:
    kept = F.dropout(torch.ones(10000, device="npu"), 0.25).cpu()
    assert kept.unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert 0.7 < (kept > 0).float().mean() < 0.8


@pytest.mark.parametrize("make", [torch.rand, torch.randn])
def test_random_numbers(make: Callable[..., torch.Tensor]) -> None:
    values = make(10000, device="npu").cpu()
    assert values.mean().item() == pytest.approx(0.5 if make is torch.rand else 0.0, abs=0.05)
    assert values.unique().numel() > 9000
