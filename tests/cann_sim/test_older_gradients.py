"""Activations, losses, norms, images and indices of the older interface with their gradients, against torch's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from client import same
from older import Older
from torch import Tensor
from torch.nn import functional as F

R = torch.Generator().manual_seed(7)
rand = lambda *shape: torch.randn(*shape, generator=R)
X, Y, T = rand(3, 4) * 2, rand(3, 4), torch.rand(3, 4, generator=R)
P = torch.rand(3, 4, generator=R) * 0.8 + 0.1
IMAGE, VOLUME, BATCH = rand(2, 3, 6, 6), rand(1, 2, 4, 4, 4), rand(4, 3, 2, 2)
ONE = torch.tensor(2.0)
Case = tuple[str, list[Any], dict[str, Any], list[Tensor]]


def gradients(function: Callable[..., Tensor], dy: Tensor, *inputs: Tensor) -> list[Tensor]:
    leaves = [x.clone().requires_grad_() for x in inputs]
    return list(torch.autograd.grad(function(*leaves), leaves, dy))


def activations() -> list[Case]:
    rows: list[tuple[str, str, Callable[[Tensor], Tensor], dict[str, Any], bool]] = [
        ("Elu", "EluGradV2", lambda x: F.elu(x, 1.5), {"alpha": 1.5}, False),
        ("Elu", "EluGradV2", F.selu, {"alpha": 1.6732632, "scale": 1.0507009}, False),
        ("HardSigmoid", "HardSigmoidGrad", F.hardsigmoid, {}, False),
        ("HardShrink", "HardShrinkGrad", F.hardshrink, {"lambd": 0.5}, False),
        ("SoftShrink", "SoftShrinkGrad", F.softshrink, {"lambd": 0.5}, False),
        ("LogSigmoid", "LogSigmoidGrad", F.logsigmoid, {}, False),
        ("ThresholdV2D", "ThresholdGradV2D", lambda x: F.threshold(x, 0.3, 7), {"threshold": 0.3, "value": 7.0}, False),
        ("GLU", "GLUGrad", lambda x: F.glu(x, 1), {"dim": 1}, False),
        ("", "HardtanhGrad", lambda x: F.hardtanh(x, -1, 0.5), {"min_val": -1.0, "max_val": 0.5}, True),
    ]  # fmt: skip
    made: list[Case] = []
    for op, grad, function, attributes, turned in rows:
        y = function(X)
        dy = Y[:, : y.shape[1]].contiguous()
        if op:
            made.append((op, [X], attributes, [y]))
        made.append((grad, [X, dy] if turned else [dy, X], attributes, gradients(function, dy, X)))
    y = F.elu(X, 1.5)
    made.append(("EluGradV2", [Y, y], {"alpha": 1.5, "is_result": True}, gradients(lambda x: F.elu(x, 1.5), Y, X)))
    weight = torch.tensor([0.1, 0.2, 0.3, 0.4])
    made.append(("PRelu", [X, weight], {}, [F.prelu(X, weight)]))
    made.append(("PReluGrad", [Y, X, weight], {}, gradients(F.prelu, Y, X, weight)))
    made.append(("PReluGrad", [Y, X, weight[:1]], {}, gradients(F.prelu, Y, X, weight[:1])))
    made += [("CeluV2", [X], {"alpha": 2.0}, [F.celu(X, 2)]), ("LogAddExp", [X, Y], {"base": 2.0}, [torch.logaddexp2(X, Y)]),
             ("NanToNum", [torch.log(X)], {"nan": 3.0, "posinf": 9.0, "neginf": -9.0}, [X.log().nan_to_num(3, 9, -9)])]
    return made


def losses() -> list[Case]:
    weight, positive = T + 0.5, torch.rand(4, generator=R)
    logits = lambda x, t, how: F.binary_cross_entropy_with_logits(x, t, weight, reduction=how, pos_weight=positive)
    rows: list[tuple[str, str, Callable[[Tensor, Tensor, str], Tensor], Tensor, Tensor, list[Tensor], dict[str, Any]]] = [
        ("BinaryCrossEntropy", "BinaryCrossEntropyGrad", lambda x, t, how: F.binary_cross_entropy(x, t, weight, reduction=how), P, T, [weight], {}),
        ("SigmoidCrossEntropyWithLogitsV2", "SigmoidCrossEntropyWithLogitsGradV2", logits, X, T, [weight, positive], {}),
        ("SmoothL1LossV2", "SmoothL1LossGradV2", lambda x, t, how: F.smooth_l1_loss(x, t, reduction=how, beta=0.7), X, Y, [], {"sigma": 0.7}),
        ("SoftMarginLoss", "SoftMarginLossGrad", lambda x, t, how: F.soft_margin_loss(x, t, reduction=how), X, Y.sign(), [], {}),
        ("LpLoss", "L1LossGrad", lambda x, t, how: F.l1_loss(x, t, reduction=how), X, Y, [], {"p": 1}),
        ("KLDiv", "KlDivLossGrad", lambda x, t, how: F.kl_div(x, t, reduction=how), X, T, [], {"log_target": False}),
        ("KLDiv", "KlDivLossGrad", lambda x, t, how: F.kl_div(x, t, reduction=how, log_target=True), X, T, [], {"log_target": True}),
    ]  # fmt: skip
    made: list[Case] = []
    for op, grad, function, x, target, more, attributes in rows:
        for how in ("mean", "sum", "none", *(["batchmean"] if op == "KLDiv" else [])):
            y = function(x, target, how)
            dy = ONE.clone() if how != "none" else Y
            turned = grad in ("L1LossGrad", "KlDivLossGrad")
            given = [dy, x, target] if turned else [x, target, dy]
            made.append((op, [x, target, *more], {**attributes, "reduction": how}, [y]))
            made.append((grad, [*given, *more], {**attributes, "reduction": how}, gradients(lambda x, f=function, t=target, h=how: f(x, t, h), dy, x)))
    return made


def norms() -> list[Case]:
    gamma, beta, dy = rand(3), rand(3), rand(4, 3, 2, 2)
    mean, var = BATCH.mean((0, 2, 3)), BATCH.var((0, 2, 3), correction=0)
    sums, squares = BATCH.sum((0, 2, 3)), BATCH.square().sum((0, 2, 3))
    running, spread = torch.zeros(3), torch.ones(3)
    normal = lambda x, g, b: F.batch_norm(x, None, None, g, b, True)
    dx, dgamma, dbeta = gradients(normal, dy, BATCH, gamma, beta)
    infer = lambda x: F.batch_norm(x, mean, var, gamma, beta, False)
    y, group_mean, group_rstd = torch.native_group_norm(IMAGE, gamma, beta, 2, 3, 36, 3, 1e-5)
    group = lambda x, g, b: F.group_norm(x, 3, g, b)
    a, b, dc = rand(2, 5), rand(2, 5), rand(2)
    eps = {"epsilon": 1e-5}
    kept = X.mean(1, True)
    return [
        ("BNTrainingReduce", [BATCH], eps, [sums, squares]),
        ("BNTrainingUpdate", [BATCH, sums, squares, gamma, beta, running, spread], {**eps, "factor": 0.1},
         [normal(BATCH, gamma, beta), 0.1 * mean, 0.9 + 0.1 * BATCH.var((0, 2, 3)), mean, var]),
        ("BNInfer", [BATCH, gamma, beta, mean, var], eps, [infer(BATCH)]),
        ("BNInferGrad", [dy, gamma, var], eps, gradients(infer, dy, BATCH)),
        ("BNTrainingUpdateGrad", [dy, BATCH, mean, var], eps, [dgamma, dbeta]),
        ("BNTrainingReduceGrad", [dy, BATCH, dgamma, dbeta, gamma, mean, var], eps, [dx]),
        ("GroupNormSwish", [IMAGE, gamma, beta], {"num_groups": 3, "eps": 1e-5, "activate_swish": False}, [y, group_mean, group_rstd]),
        ("GroupNormSwish", [IMAGE, gamma, beta], {"num_groups": 3, "eps": 1e-5, "activate_swish": True}, [F.silu(y), group_mean, group_rstd]),
        ("GroupNormGrad", [IMAGE, group_mean, group_rstd, IMAGE, gamma], {"num_groups": 3}, gradients(group, IMAGE, IMAGE, gamma, beta)),
        ("ReduceStdV2Update", [X, kept], {"dim": [1], "if_std": False, "keepdim": True, "correction": 1}, [X.var(1, keepdim=True)]),
        ("ReduceStdWithMean", [X, kept], {"dim": [1], "keepdim": False, "unbiased": False}, [X.std(1, correction=0)]),
        ("LpNormUpdateV2", [P], {"p": 3.0, "epsilon": 0.0}, [P ** (1 / 3)]), ("LpNormUpdateV2", [P], {"p": 2147483648.0}, [P]),
        ("Renorm", [X], {"p": 2.0, "dim": 0, "maxnorm": 1.0}, [(1 / (X.norm(dim=1, keepdim=True) + 1e-7)).clamp(max=1)]),
        *((op, [*first, a, b, *last], {"p": -1.0 if p == float("inf") else p}, want)
          for p in (0.0, 1.0, 2.0, 3.0, float("inf")) for d in [(a - b).norm(p, -1)]
          for op, first, last, want in [("Cdist", [], [], [d]),
                                        ("CdistGrad", [dc], [d], gradients(lambda x, q=p: (x - b).norm(q, -1), dc, a) if p else [a * 0])]),
        ("Pdist", [X], {"p": 1.5}, [F.pdist(X, 1.5)]),
    ]  # fmt: skip


def images() -> list[Case]:
    pool = {"ksize": [1, 1, 3, 3], "strides": [1, 1, 2, 2], "pads": [1, 1, 1, 1], "ceil_mode": False, "data_format": "NCHW"}
    pool3 = {"ksize": [2, 2, 2], "strides": [2, 2, 2], "pads": [0] * 6, "ceil_mode": False, "count_include_pad": True, "data_format": "NCDHW"}
    most = {"ksize": [1, 3, 3, 1], "strides": [1, 2, 2, 1], "pads": [1, 0, 1, 1], "dilation": [1, 1, 1, 1], "ceil_mode": False}
    cases: list[Case] = []

    def both(op: str, grad: str, function: Callable[[Tensor], Tensor], x: Tensor, attributes: dict[str, Any],
             inputs: Callable[[Tensor], list[Any]], back: Callable[[Tensor, Tensor], list[Any]], spare: list[Tensor] | None = None) -> None:
        y = function(x)
        dy = rand(*y.shape)
        cases.append((op, inputs(x), attributes, [y, *(spare or [])]))
        cases.append((grad, back(dy, y), attributes, gradients(function, dy, x)))

    only = lambda x: [x]
    for counts in (False, True):
        both("AvgPoolV2", "AvgPoolV2Grad", lambda x, c=counts: F.avg_pool2d(x, 3, 2, 1, count_include_pad=c), IMAGE, {**pool, "exclusive": not counts},
             only, lambda dy, y: [[2, 3, 6, 6], dy])
    both("AvgPool3D", "AvgPool3DGrad", lambda x: F.avg_pool3d(x, 2), VOLUME, pool3, only, lambda dy, y: [[1, 2, 4, 4, 4], dy])
    uneven = lambda x: F.avg_pool3d(x, (2, 3, 3), 2, (1, 1, 0))
    named, slope = {**pool3, "ksize": [2, 3, 3]}, rand(1, 2, 3, 2, 1)
    cases.append(("AvgPool3D", [VOLUME], {**named, "pads": [1, 1, 1, 1, 0, 0]}, [uneven(VOLUME)]))
    cases.append(("AvgPool3DGrad", [[1, 2, 4, 4, 4], slope], {**named, "pads": [1, 1, 0, 0, 1, 1]}, gradients(uneven, slope, VOLUME)))
    one, flat = IMAGE[:1], rand(3, 3, 3)  # operands of one image, of which only one has the dim of the batch
    plain = {**pool, "exclusive": False}
    cases.append(("AvgPoolV2", [one[0]], plain, [F.avg_pool2d(one, 3, 2, 1)]))
    cases.append(("AvgPoolV2Grad", [[1, 3, 6, 6], flat], plain, gradients(lambda x: F.avg_pool2d(x, 3, 2, 1)[0], flat, one)))
    cases.append(("MaxPoolWithArgmaxV1", [one[0]], {**most, "pads": [1, 1, 1, 1]},
                  [F.max_pool2d(one, 3, 2, 1), torch.zeros(1, 3, 9, 2, dtype=torch.int16)]))
    both("MaxPool3D", "MaxPool3DGrad", lambda x: F.max_pool3d(x, 2), VOLUME, pool3, only, lambda dy, y: [VOLUME, y, dy])
    both("AdaptiveAvgPool2d", "AdaptiveAvgPool2dGrad", lambda x: F.adaptive_avg_pool2d(x, (4, 3)), IMAGE, {"output_size": [4, 3]}, only, lambda dy, y: [dy])
    both("MaxPoolWithArgmaxV1", "MaxPoolGradWithArgmaxV1", lambda x: F.max_pool2d(x, 3, 2, (0, 1)), IMAGE, most, only,
         lambda dy, y: [IMAGE, dy, torch.zeros(2, 3, 9, 2, dtype=torch.int16)], [torch.zeros(2, 3, 9, 2, dtype=torch.int16)])
    for align in (False, True):
        resized = lambda x, a=align: F.interpolate(x, (9, 4), mode="bilinear", align_corners=a)
        both("ResizeBilinearV2", "ResizeBilinearV2Grad", resized, IMAGE, {"align_corners": align, "half_pixel_centers": not align},
             lambda x: [x, [9, 4]], lambda dy, y: [dy, IMAGE])
        both("UpsampleTrilinear3d", "UpsampleTrilinear3dGrad", lambda x, a=align: F.interpolate(x, (3, 5, 6), mode="trilinear", align_corners=a), VOLUME,
             {"align_corners": align, "output_size": [3, 5, 6], "input_size": [1, 2, 4, 4, 4]}, only, lambda dy, y: [dy])
        how = {"coordinate_transformation_mode": "align_corners" if align else "pytorch_half_pixel"}
        both("ResizeD", "ResizeGradD", lambda x, a=align: F.interpolate(x, (9, 4), mode="bicubic", align_corners=a), IMAGE, {**how, "mode": "cubic"},
             only, lambda dy, y: [dy])
    both("ResizeNearestNeighborV2", "ResizeNearestNeighborV2Grad", lambda x: F.interpolate(x, (9, 4)), IMAGE, {}, lambda x: [x, [9, 4]],
         lambda dy, y: [dy, [6, 6]])
    both("UpsampleNearest3d", "UpsampleNearest3dGrad", lambda x: F.interpolate(x, (3, 5, 6)), VOLUME, {"output_size": [3, 5, 6]}, only, lambda dy, y: [dy])
    row = F.interpolate(IMAGE[0], 4, mode="linear")
    resized = lambda x: F.interpolate(x, (9, 4), mode="bicubic")
    dy = rand(2, 3, 9, 4)  # with HWNC the gradient of the image lies so too, and is described as NCHW
    cases.append(("ResizeGradD", [dy.permute(2, 3, 0, 1).contiguous()], {"mode": "cubic", "coordinate_transformation_mode": "half_pixel", "data_format": "HWNC"},
                  [gradients(resized, dy, IMAGE)[0].permute(2, 3, 0, 1).contiguous().view(IMAGE.shape)]))
    cases.append(("ResizeD", [IMAGE[0][:, :, None].contiguous()], {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}, [row]))

    grid, deep_grid = rand(2, 4, 5, 2), rand(1, 2, 2, 2, 3)
    for mode, border in (("bilinear", "zeros"), ("nearest", "border"), ("bicubic", "reflection")):
        sample = lambda x, g, m=mode, b=border: F.grid_sample(x, g, m, b, False)
        y, named = sample(IMAGE, grid), {"interpolation_mode": mode, "padding_mode": border, "align_corners": False}
        dy = rand(*y.shape)
        cases.append(("GridSampler2D", [IMAGE, grid], named, [y]))
        cases.append(("GridSampler2DGrad", [dy, IMAGE, grid], named, gradients(sample, dy, IMAGE, grid)))
    cases.append(("GridSampler3D", [VOLUME, deep_grid], {}, [F.grid_sample(VOLUME, deep_grid, align_corners=False)]))

    pads, numbers = (1, 2, 2, 0), [0, 0, 0, 0, 2, 0, 1, 2]
    for mode, name in (("replicate", "edge"), ("reflect", "reflect")):
        both("PadV3", "PadV3Grad", lambda x, m=mode: F.pad(x, pads, m), IMAGE, {"mode": name, "paddings_contiguous": True},
             lambda x: [x, numbers, None], lambda dy, y: [dy, numbers])
    cases.append(("MirrorPad", [IMAGE, numbers], {"mode": "REFLECT"}, [F.pad(IMAGE, pads, "reflect")]))
    cases.append(("PadV3", [IMAGE, [0, 0, 0, 0, 2, 0, -1, 2], torch.tensor([7.0])], {"mode": "constant"}, [F.pad(IMAGE, (-1, 2, 2, 0), value=7)]))
    parts = F.unfold(IMAGE, (2, 3), 1, (1, 0), 2)
    cases.append(("Im2col", [IMAGE], {"ksizes": [2, 3], "strides": [2, 2], "dilations": [1, 1], "pads": [1, 1, 0, 0]}, [parts]))
    cases.append(("Col2im", [parts, [6, 6]], {"kernel_size": [2, 3], "dilation": [1, 1], "padding": [1, 0], "stride": [2, 2]},
                  [F.fold(parts, (6, 6), (2, 3), 1, (1, 0), 2)]))
    four = rand(2, 4, 3, 3)
    cases.append(("ShuffleChannel", [four], {"group": 2}, [F.channel_shuffle(four, 2)]))
    return cases


def indices() -> list[Case]:
    at, twice = torch.tensor([2, 0]), torch.tensor([0, 0, 2], dtype=torch.int32)
    a, b = rand(4, 3), rand(4, 3)
    square, mask, rows = rand(4, 4), X > 0, rand(2, 4)
    q, r = torch.linalg.qr(square)
    u, s, v = torch.svd(square)
    keep = torch.ones(3, 4).index_fill(1, at, 0)
    hot = torch.full((2, 5), -1.0).scatter(1, at[:, None], 3.0)
    return [
        ("Cumprod", [X, [1]], {"exclusive": False, "reverse": False}, [X.cumprod(1)]), ("Cummax", [X], {"dim": 1}, list(X.cummax(1))),
        ("Cummin", [X], {"axis": 0}, [X.cummin(0).values, X.cummin(0).indices.int()]), ("ReduceLogSumExp", [X, [1]], {"keep_dims": True}, [X.logsumexp(1, True)]),
        ("Dot", [X[0].clone(), Y[0].clone()], {}, [X[0] @ Y[0]]), ("Cross", [a, b], {"dim": 1}, [torch.linalg.cross(a, b)]),
        ("Trace", [square], {}, [square.trace()]), ("Qr", [square], {"full_matrices": False}, [q, r]), ("Svd", [square], {"compute_uv": True}, [s, u, v]),
        ("MatrixTriangularSolve", [square, a], {"adjoint": False, "lower": False}, [torch.linalg.solve_triangular(square, a, upper=True)]),
        ("MatrixTriangularSolve", [square, a], {"adjoint": True, "lower": True}, [torch.linalg.solve_triangular(square.t(), a, upper=True)]),
        ("Index", [X, [1, 1], [2], at, at], {}, [X[at, at]]), ("Index", [X, [0, 1], [3, 2], at], {}, [X[:, at]]),
        ("IndexPutV2", [X, rows, [1], [2, 4], at], {"accumulate": False}, [X.index_put((at,), rows)]),
        ("IndexPutV2", [X, rows, [1], [2, 4], at], {"accumulate": True}, [X.index_put((at,), rows, True)]),
        ("IndexFillD", [X, keep, 7 * (1 - keep)], {"dim": 1}, [X.index_fill(1, at, 7)]),
        ("InplaceIndexAdd", [X, twice, Y, ONE], {"axis": 0}, [X.index_add(0, twice, Y, alpha=2)]),
        ("ScatterNdAdd", [X, at[:, None].contiguous(), rows], {}, [X.index_put((at,), rows, True)]),
        ("ScatterNdUpdate", [X, at[:, None].contiguous(), rows], {}, [X.index_put((at,), rows)]),
        ("MaskedScatter", [X, mask, Y], {}, [X.masked_scatter(mask, Y)]), ("Roll", [X], {"shifts": [1, -2], "dims": [0, 1]}, [X.roll((1, -2), (0, 1))]),
        ("RepeatInterleave", [X, torch.tensor([2, 0, 1])], {"axis": 0}, [X.repeat_interleave(torch.tensor([2, 0, 1]), 0)]),
        ("OneHot", [at, [5], torch.tensor(3.0), torch.tensor(-1.0)], {"axis": -1}, [hot]),
        ("OneHot", [at, [5], torch.tensor(3.0), torch.tensor(-1.0)], {"axis": 0}, [hot.t().contiguous()]),
        ("Histogram", [X], {"bins": 4, "min": -2.0, "max": 2.0}, [X.histc(4, -2, 2)]),
        ("LogSpaceD", [torch.zeros(3)], {"start": 0.0, "end": 2.0, "base": 10.0, "steps": 3}, [torch.logspace(0, 2, 3)]),
    ]  # fmt: skip


CASES = [*activations(), *losses(), *norms(), *images(), *indices()]


@pytest.mark.parametrize(("op", "inputs", "attributes", "wanted"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_an_op(older: Older, op: str, inputs: list[Any], attributes: dict[str, Any], wanted: list[Tensor]) -> None:
    made = older(op, inputs, [torch.full_like(w, 3) for w in wanted], **attributes)
    for got, want in zip(made, wanted, strict=True):
        if op in ("Qr", "Svd"):  # the sign of a vector is free
            got, want = got.abs(), want.abs()
        same(got, want.detach(), rtol=1e-4, atol=2e-5)


def test_distinct_items(older: Older) -> None:
    x = torch.tensor([3, 1, 3, 3, 2, 1])
    n = torch.zeros(6, dtype=torch.int64)
    items, inverse, counts = older.sized("UniqueWithCountsAndSorting", [x], [n, n, n], sorted=True, return_inverse=True, return_counts=True)
    for got, want in zip((items, inverse, counts), x.unique(return_inverse=True, return_counts=True), strict=True):
        same(got, want)
    items, inverse, counts = older.sized("UniqueConsecutive", [x], [n, n, n], return_idx=True, return_counts=True)
    for got, want in zip((items, inverse, counts), x.unique_consecutive(return_inverse=True, return_counts=True), strict=True):
        same(got, want)


def test_draws_follow_their_seed(older: Older) -> None:
    p = torch.tensor([0.0, 1.0, 0.5, 0.5]).repeat(200)
    seeded = lambda seed: older("StatelessBernoulli", [[800], p, [seed], [0]], [torch.empty(800)])[0]
    first = seeded(3)
    same(seeded(3), first)
    assert not torch.equal(seeded(4), first)
    assert not first[0::4].any() and first[1::4].all() and 0.35 < float(first[2::4].mean()) < 0.65
    weights = torch.tensor([[0.0, 1, 0], [1.0, 0, 0]])
    drawn = older("MultinomialWithReplacement", [weights, [1], [0]], [torch.zeros(2, 4, dtype=torch.int64)], numsamples=4, replacement=True)[0]
    same(drawn, torch.tensor([[1] * 4, [0] * 4]))


def test_numbers_without_dims(older: Older) -> None:
    x = torch.tensor(2.0)
    index, value = older("ArgMaxWithValue", [x], [torch.tensor(3, dtype=torch.int32), torch.tensor(3.0)], dimension=0, keep_dims=False)
    assert (index.item(), value.item()) == (0, 2)
    same(older("Cumprod", [x, [0]], [torch.tensor(3.0)])[0], x)
    same(older("Pow", [torch.tensor([True, False])] * 2, [torch.tensor([0, 0])])[0], torch.tensor([1, 1]))


def test_a_view_reaches_beyond_its_own_sizes(older: Older) -> None:
    """Clients describe the view, here a diagonal of 3 items, and its memory goes on."""
    i64 = lambda *x: torch.tensor(x, dtype=torch.int64)
    whole = torch.arange(9.0).reshape(3, 3)
    assert older("AsStrided", [whole, i64(3), i64(4), i64(0)], [torch.empty(3)])[0].tolist() == [0, 4, 8]
