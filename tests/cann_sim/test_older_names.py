"""Ops of the older interface that are one kernel each, against torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from client import same
from older import Older
from torch import Tensor
from torch.nn import functional as F

R = torch.Generator().manual_seed(5)
X, Y = torch.rand(3, 4, generator=R) * 0.8 + 0.1, torch.rand(3, 4, generator=R) * 0.8 + 0.1
I, J = torch.randint(-9, 9, (3, 4), generator=R), torch.randint(1, 5, (3, 4), generator=R)
AT = torch.tensor([[0, 2, 1, 1], [1, 0, 0, 2]])
Case = tuple[str, list[Any], dict[str, Any], list[Tensor]]


def pointwise() -> list[Case]:
    made: list[Case] = []
    for name in ("Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Atanh Erf Erfc Erfinv Expm1 Log1p Sqrt Rsqrt Sigmoid Reciprocal "
                 "Neg Sign Floor Ceil Trunc Square Exp Log Round").split():
        made.append((name, [X], {}, [getattr(torch, name.lower())(X)]))
    made.append(("Acosh", [X + 1], {}, [torch.acosh(X + 1)]))
    for name, function in {"Maximum": "maximum", "Minimum": "minimum", "FloorMod": "remainder", "Mod": "fmod", "Pow": "pow",
                           "Atan2": "atan2", "Xlogy": "xlogy", "FloorDiv": "floor_divide", "Equal": "eq", "NotEqual": "ne", "Greater": "gt",
                           "GreaterEqual": "ge", "Less": "lt", "LessEqual": "le"}.items():
        made.append((name, [X, Y], {}, [getattr(torch, function)(X, Y)]))
        if function not in ("atan2", "xlogy"):
            made.append((name, [I, J], {}, [getattr(torch, function)(I, J)]))
    for name, function in {"BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor",
                           "LeftShift": "bitwise_left_shift", "RightShift": "bitwise_right_shift"}.items():
        made.append((name, [I, J], {}, [getattr(torch, function)(I, J)]))
    return made


def gradient(function: Any, x: Tensor) -> Tensor:
    """By x, of a function's results times Y."""
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(function(leaf), leaf, Y)[0]


def layer_norm_case() -> Case:
    x, gamma, beta = (t.clone().requires_grad_() for t in (X, Y[0], Y[1]))
    want = torch.autograd.grad(F.layer_norm(x, (4,), gamma, beta), (x, gamma, beta), Y)
    return "LayerNormGrad", [Y, X, X.var(1, correction=0, keepdim=True), X.mean(1, True), Y[0].clone()], {}, list(want)


ON = X > 0.5
S = X * 4 - 2
RSTD = 1 / (S.square().mean(1, keepdim=True) + 1e-6).sqrt()
CLASSES, WEIGHTS = torch.tensor([3, 1, 0], dtype=torch.int32), torch.tensor([0.5, 1.0, 2.0, 0.25])
DEEP = torch.randn(2, 3, 4, generator=R)
SOFT, LOGS = X.softmax(-1), X.log_softmax(-1)
CASES: list[Case] = [
    *pointwise(),
    ("Invert", [I], {}, [~I]), ("LogicalNot", [ON], {}, [~ON]), ("LogicalAnd", [ON, ~ON], {}, [ON & ~ON]), ("LogicalOr", [ON, ~ON], {}, [ON | ~ON]),
    ("IsFinite", [X / 0], {}, [torch.isfinite(X / 0)]), ("IsInf", [X / 0], {}, [torch.isinf(X / 0)]), ("IsNan", [X], {}, [torch.isnan(X)]),
    ("Log", [X], {"base": 2.0}, [X.log2()]), ("Exp", [X], {"base": 2.0, "scale": 3.0, "shift": 1.0}, [(3 * X + 1).exp2()]),
    ("Round", [X], {"decimals": 1}, [X.round(decimals=1)]), ("SigmoidGrad", [X, Y], {}, [Y * X * (1 - X)]), ("TanhGrad", [X, Y], {}, [Y * (1 - X * X)]),
    ("AxpyV2", [X, Y, torch.tensor(2.0)], {}, [X + 2 * Y]), ("ClipByValueV2", [X, torch.tensor(0.3), torch.tensor(0.6)], {}, [X.clamp(0.3, 0.6)]),
    ("Select", [ON, X, Y], {}, [torch.where(ON, X, Y)]), ("MaskedFill", [X, ON, torch.tensor(7.0)], {}, [X.masked_fill(ON, 7)]),
    ("ReluGrad", [X, Y - 0.5], {}, [X * (Y > 0.5)]), ("ZerosLike", [X], {}, [X * 0]), ("OnesLike", [X], {}, [X * 0 + 1]),
    ("ReduceSum", [DEEP, [0, 2]], {"keep_dims": False}, [DEEP.sum((0, 2))]), ("ReduceSum", [I, [-1]], {"keep_dims": True}, [I.sum(1, True)]),
    ("ReduceMean", [DEEP, []], {}, [DEEP.mean()]), ("ReduceMax", [DEEP, [1]], {}, [DEEP.amax(1)]), ("ReduceMin", [DEEP, [0, 1]], {}, [DEEP.amin((0, 1))]),
    ("ReduceProd", [DEEP, [2]], {}, [DEEP.prod(2)]), ("ReduceAll", [ON, [1]], {}, [ON.all(1)]), ("ReduceAny", [ON, [0]], {}, [ON.any(0)]),
    ("ArgMaxV2", [X, [1]], {}, [X.argmax(1)]), ("ArgMin", [X, [0]], {}, [X.argmin(0).int()]),
    ("SoftmaxV2", [X], {"axes": [0]}, [X.softmax(0)]), ("LogSoftmaxV2", [X], {"axes": [-1]}, [LOGS]),
    ("SoftmaxGrad", [SOFT, Y], {"axes": [1]}, [SOFT * (Y - (SOFT * Y).sum(1, True))]),
    ("LogSoftmaxGrad", [Y, LOGS], {"axes": [1]}, [Y - SOFT * Y.sum(1, True)]),
    ("LogSoftmaxGrad", [Y, LOGS], {"axis": [0]}, [Y - SOFT * Y.sum(0, True)]),
    ("LayerNorm", [X, torch.ones(4), torch.zeros(4)], {"epsilon": 1e-5},
     [F.layer_norm(X, (4,)), X.mean(1, True), X.var(1, correction=0, keepdim=True)]),
    layer_norm_case(),
    ("Gelu", [S], {}, [F.gelu(S)]), ("GeluGrad", [Y, S, S], {}, [gradient(F.gelu, S)]), ("SiluGrad", [Y, S], {}, [gradient(F.silu, S)]),
    ("FastGelu", [S], {}, [S * torch.sigmoid(1.702 * S)]),
    ("FastGeluGrad", [Y, S], {}, [gradient(lambda x: x * torch.sigmoid(1.702 * x), S)]),
    ("RmsNorm", [S, Y[0].clone()], {"epsilon": 1e-6}, [F.rms_norm(S, S.shape[1:], Y[0], 1e-6), RSTD]),
    ("RmsNormGrad", [Y, S, RSTD, Y[0].clone()], {}, [gradient(lambda x: F.rms_norm(x, x.shape[1:], Y[0], 1e-6), S), (Y * S * RSTD).sum(0)]),
    ("AddLayerNorm", [S, Y, Y[0].clone(), S[0].clone()], {"epsilon": 1e-5}, [*torch.native_layer_norm(S + Y, S.shape[1:], Y[0], S[0], 1e-5), S + Y]),
    ("AddRmsNorm", [X * 3, X - 2, Y[0].clone()], {"epsilon": 1e-6}, [F.rms_norm(S, S.shape[1:], Y[0], 1e-6), RSTD, S]),
    ("SyncBatchNormGatherStats", [torch.stack([S[:2].sum(0), S[2]]), torch.stack([S[:2].square().sum(0), S[2].square()]),
                                  torch.tensor([2, 1], dtype=torch.int32), X[0].clone(), Y[0].clone()], {"eps": 1e-5, "momentum": 0.1},
     [S.mean(0), 1 / (S.var(0, correction=0) + 1e-5).sqrt(), X[0] * 0.9 + S.mean(0) * 0.1, Y[0] * 0.9 + S.var(0) * 0.1]),
    ("LeakyRelu", [S], {"negative_slope": 0.2}, [F.leaky_relu(S, 0.2)]),
    ("LeakyReluGrad", [Y, S], {"negative_slope": 0.2}, [gradient(lambda x: F.leaky_relu(x, 0.2), S)]),
    ("SoftplusV2", [S], {"beta": 2.0, "threshold": 1.0}, [F.softplus(S, 2, 1)]),
    ("SoftplusV2Grad", [Y, S], {"beta": 2.0, "threshold": 1.0}, [gradient(lambda x: F.softplus(x, 2, 1), S)]),
    ("HardSwish", [S * 2], {}, [F.hardswish(S * 2)]), ("HardSwishGrad", [Y, S * 2], {}, [gradient(F.hardswish, S * 2)]),
    ("Lerp", [X, Y, torch.tensor(0.3)], {}, [X.lerp(Y, 0.3)]), ("Addcdiv", [X, Y, X, torch.tensor(2.0)], {}, [X + 2 * Y / X]),
    ("TensorEqual", [X, X], {}, [torch.tensor([True])]), ("TensorEqual", [X, Y], {}, [torch.tensor([False])]),
    ("MseLoss", [X, Y], {"reduction": "mean"}, [F.mse_loss(X, Y)]), ("MseLoss", [X, Y], {"reduction": "none"}, [(X - Y).square()]),
    ("MseLossGrad", [X, Y, torch.tensor(3.0)], {"reduction": "mean"}, [6 * (X - Y) / 12]),
    ("MseLossGrad", [X, Y, Y], {"reduction": "none"}, [2 * (X - Y) * Y]), ("ReduceMeanD", [DEEP], {"axes": [0, 2], "keep_dims": False}, [DEEP.mean((0, 2))]),
    ("GatherV2", [X, torch.tensor([2, 0]), [1]], {}, [X[:, [2, 0]]]), ("GatherElements", [X, AT], {"dim": 0}, [X.gather(0, AT)]),
    ("ScatterElements", [X, AT, Y[:2].clone()], {"axis": 0}, [X.scatter(0, AT, Y[:2])]),
    ("ScatterElements", [X, AT, Y[:2].clone()], {"axis": 0, "reduction": "add"}, [X.scatter_add(0, AT, Y[:2])]),
    ("Triu", [X], {"diagonal": 1}, [X.triu(1)]), ("Tril", [X], {"diagonal": -1}, [X.tril(-1)]),
    ("ConcatD", [X, Y], {"concat_dim": 1, "N": 2}, [torch.cat([X, Y], 1)]), ("Pack", [X, Y], {"axis": 1, "N": 2}, [torch.stack([X, Y], 1)]),
    ("Tile", [X, [2, 1, 3]], {}, [X.repeat(2, 1, 3)]), ("Range", [torch.tensor(1.0), torch.tensor(3.0), torch.tensor(0.5)], {}, [torch.arange(1, 3, 0.5)]),
    ("Cumsum", [X, [1]], {}, [X.cumsum(1)]), ("ReverseV2", [X, [0, 1]], {}, [X.flip(0, 1)]),
    ("Sort", [X], {"axis": 0, "descending": True}, [X.sort(0, True)[0], X.sort(0, True)[1].int()]),
    ("TopKV2", [X, [2]], {"dim": 1, "largest": False}, [X.topk(2, 1, False)[0], X.topk(2, 1, False)[1].int()]),
    ("NLLLoss", [LOGS, CLASSES, WEIGHTS], {"reduction": "mean", "ignore_index": 1},
     [F.nll_loss(LOGS, CLASSES.long(), WEIGHTS, ignore_index=1), WEIGHTS[[3, 0]].sum()]),
    ("NLLLoss", [LOGS, CLASSES, WEIGHTS], {"reduction": "none"}, [F.nll_loss(LOGS, CLASSES.long(), WEIGHTS, reduction="none"), WEIGHTS[[3, 1, 0]].sum()]),
    ("NLLLossGrad", [LOGS, torch.tensor(2.0), CLASSES, WEIGHTS, WEIGHTS[[3, 0]].sum()], {"reduction": "mean", "ignore_index": 1},
     [2 * torch.func.grad(lambda x: F.nll_loss(x, CLASSES.long(), WEIGHTS, ignore_index=1))(LOGS)]),
    ("LinSpace", [torch.tensor(1.0), torch.tensor(3.0), [5]], {}, [torch.linspace(1, 3, 5)]), ("Eye", [], {"num_rows": 2, "num_columns": 3}, [torch.eye(2, 3)]),
    ("IsClose", [X, X + torch.tensor([0, 1e-3, 0, 1.0])], {"rtol": 0.0, "atol": 0.01}, [torch.tensor([[True, True, True, False]] * 3)]),
    ("ApplyAdamW", [X, Y, Y, *(torch.tensor(v) for v in (0.9, 0.99, 0.1, 0.01, 0.9, 0.99, 1e-8)), X - Y, None], {},
     [X * (1 - 0.001) - 0.1 * ((0.9 * Y + 0.1 * (X - Y)) / (1 - 0.81)) / (((0.99 * Y + 0.01 * (X - Y) ** 2) / (1 - 0.9801)).sqrt() + 1e-8),
      0.9 * Y + 0.1 * (X - Y), 0.99 * Y + 0.01 * (X - Y) ** 2]),
    ("NormalizeBatch", [DEEP, torch.tensor([4, 3], dtype=torch.int32)], {"normalize_type": "per_feature"},
     [torch.stack([(d - d[:, :n].mean(1, True)) / (d[:, :n].std(1, keepdim=True) + 1e-5) for d, n in zip(DEEP, (4, 3), strict=True)])]),
    ("NormalizeBatch", [DEEP, torch.tensor([4, 3], dtype=torch.int32)], {"normalize_type": "all_features"},
     [torch.stack([(d - d[:, :n].mean()) / (d[:, :n].std() + 1e-5) for d, n in zip(DEEP, (4, 3), strict=True)])]),
    ("MaskedFillRange", [X, torch.tensor([[0, 1]]).int(), torch.tensor([[1, 3]]).int(), torch.tensor([5.0])], {"axis": 1},
     [torch.stack([torch.cat([torch.tensor([5.0]), X[0, 1:]]), torch.cat([X[1, :1], torch.tensor([5.0, 5]), X[1, 3:]]), X[2]])]),
]  # fmt: skip


@pytest.mark.parametrize(("op", "inputs", "attributes", "wanted"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_an_op(older: Older, op: str, inputs: list[Any], attributes: dict[str, Any], wanted: list[Tensor]) -> None:
    numbers = [torch.tensor(x, dtype=torch.int64).tolist() if isinstance(x, list) else x for x in inputs]
    for got, want in zip(older(op, numbers, [torch.full_like(w, 3) for w in wanted], **attributes), wanted, strict=True):
        same(got, want, rtol=1e-4, atol=1e-5)


def test_groups_of_channels_are_added(older: Older) -> None:
    a, b = torch.randn(2, 32, 2, 2), torch.randn(2, 48, 2, 2)
    got = older("StrideAdd", [a, b], [torch.empty(2, 16, 2, 2)], x1_c1_offset=1, x2_c1_offset=2, c1_len=1)[0]
    same(got, a[:, 16:] + b[:, 32:])


def test_shapes_that_only_the_values_tell(older: Older) -> None:
    got = older.sized("NonZero", [ON], [torch.zeros(12, 2, dtype=torch.int64)], transpose=False)[0]
    same(got, ON.nonzero())
    got = older.sized("NonZero", [I], [torch.zeros(24, dtype=torch.int64)], transpose=True)[0]
    same(got, I.nonzero().t())
    same(older.sized("MaskedSelect", [X, ON], [torch.zeros(12)])[0], X[ON])
    same(older.sized("MaskedSelect", [X, ON[:, :1].contiguous()], [torch.zeros(12)])[0], X[ON[:, :1].expand(3, 4)])


def test_uniform_numbers_follow_their_key(older: Older) -> None:
    draw = lambda key, counter: older("StatelessRandomUniformV2", [[500], [key], [counter, 0], [1]], [torch.empty(500)])[0]
    first = draw(3, 0)
    same(draw(3, 0), first)
    assert not torch.equal(draw(4, 0), first)
    assert float(first.min()) >= 0 and float(first.max()) < 1 and 0.4 < float(first.mean()) < 0.6


def test_norms_of_sums_and_their_gradients(older: Older) -> None:
    x, y, dy, more = (torch.rand(3, 4, generator=R).requires_grad_() for _ in range(4))
    gamma, beta = (torch.rand(4, generator=R).requires_grad_() for _ in range(2))
    row, flat = torch.empty(3, 1), [t.detach() for t in (x, y, dy, more, gamma, beta)]
    for by in (1.0, 0.3):
        total = x * by + y
        want = F.layer_norm(total, (4,), gamma, beta, 1e-5)
        mean, rstd = total.mean(-1, keepdim=True).detach(), (total.var(-1, correction=0, keepdim=True) + 1e-5).rsqrt().detach()
        dx, dgx, dgamma, dbeta = torch.autograd.grad(want, (x, y, gamma, beta), dy)
        if by == 1:
            got = older("AddLayerNormGrad", [flat[2], flat[0], flat[1], rstd, mean, flat[4], flat[3]], [X, Y[0], Y[0]])
            right = [dx + more, dgamma, dbeta]
        else:
            got = older("DeepNorm", [flat[0], flat[1], flat[5], flat[4]], [row, row, X], alpha=by, epsilon=1e-5)
            got += older("DeepNormGrad", [flat[2], flat[0], flat[1], flat[4], mean, rstd], [X, X, Y[0], Y[0]], alpha=by)
            right = [mean, rstd, want, dx, dgx, dbeta, dgamma]
        for a, b in zip(got, right, strict=True):
            same(a, b.detach(), rtol=1e-4, atol=1e-5)


def test_rows_of_batches_are_written(older: Older) -> None:
    var, updates = torch.zeros(2, 5, 3), torch.rand(2, 1, 3, generator=R)
    for at in (torch.tensor([1, 4]), torch.tensor([[0, 1], [1, 4]])):
        got = older("Scatter", [var, at, updates], [var], reduce="update", axis=1)[0]
        assert torch.equal(got[0, 1], updates[0, 0]) and torch.equal(got[1, 4], updates[1, 0]) and int((got != 0).sum()) == 6


@pytest.mark.parametrize("kind", [torch.qint8, torch.quint8, torch.qint32])
def test_rounded_to_steps(older: Older, kind: torch.dtype) -> None:
    x, scale, zero = torch.randn(3, 4, generator=R) * 40, torch.rand(4, generator=R) * 0.1 + 0.1, torch.tensor([1, 0, 3, 2], dtype=torch.int32)
    out = torch.empty(3, 4, dtype={torch.qint8: torch.int8, torch.quint8: torch.uint8}.get(kind, torch.int32))
    got = older("Quantize", [x, scale, zero], [out], dtype=str(kind), axis=1)[0]
    assert torch.equal(got, torch.quantize_per_channel(x, scale, zero, 1, kind).int_repr())
    got = older("Quantize", [x, scale[:1], zero[:1]], [out], dtype=str(kind), axis=1)[0]
    assert torch.equal(got, torch.quantize_per_tensor(x, scale[0].item(), 1, kind).int_repr())


def test_regions_of_images(older: Older) -> None:
    """The numbers are those of torch_npu's documentation."""
    image, form = torch.arange(1.0, 37).view(1, 1, 6, 6), {"spatial_scale": 0.25, "pooled_height": 3, "pooled_width": 3, "sample_num": 2, "roi_end_mode": 0}
    rois, want = torch.tensor([[0, -2.0, -2, 22, 22]]), torch.tensor([[[[4.5, 6.5, 8.5], [16.5, 18.5, 20.5], [28.5, 30.5, 32.5]]]])
    same(older("ROIAlign", [image, rois], [torch.empty(1, 1, 3, 3)], **form)[0], want)
    grad = torch.rand(1, 1, 3, 3, generator=R)
    got = older("ROIAlignGrad", [grad, rois], [torch.empty(1, 1, 6, 6)], **form, xdiff_shape=[1, 1, 6, 6])[0]
    same((got * image).sum(), (grad * want).sum(), rtol=1e-4, atol=1e-3)  # pooling is linear
