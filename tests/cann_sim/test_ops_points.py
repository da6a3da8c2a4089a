"""Points, samples of images, segments and small gradients, against the same written with torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from client import client, same

I32 = torch.int32
FLOATS = [torch.float32, torch.float16]


def test_gradient_of_interpolation_from_three_points() -> None:
    grad, weight, idx = torch.randn(2, 3, 5), torch.rand(2, 5, 3), torch.randint(0, 4, (2, 5, 3), dtype=I32)
    y = torch.zeros(2, 3, 4, requires_grad=True)
    rows = torch.stack([torch.stack([(y[b][:, idx[b, i].long()] * weight[b, i]).sum(-1) for i in range(5)], -1) for b in range(2)])
    rows.backward(grad)
    same(client().call("aclnnThreeInterpolateBackward", grad, idx, weight, 4, torch.empty(2, 3, 4)), y.grad)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_gradient_of_the_chamfer_distance(dtype: torch.dtype) -> None:
    a, b = (torch.randn(2, n, 2).to(dtype).float().requires_grad_() for n in (4, 3))
    idx1, idx2 = torch.randint(0, 3, (2, 4), dtype=I32), torch.randint(0, 4, (2, 3), dtype=I32)
    g1, g2 = torch.randn(2, 4).to(dtype), torch.randn(2, 3).to(dtype)
    batch = torch.arange(2)[:, None]
    total = ((a - b[batch, idx1.long()]).pow(2).sum(-1) * g1.float()).sum() + ((b - a[batch, idx2.long()]).pow(2).sum(-1) * g2.float()).sum()
    total.backward()
    got = client().call("aclnnChamferDistanceBackward", a.detach().to(dtype), b.detach().to(dtype), idx1, idx2, g1, g2,
                        torch.empty(2, 4, 2, dtype=dtype), torch.empty(2, 3, 2, dtype=dtype))
    assert a.grad is not None and b.grad is not None
    same(got[0], a.grad.to(dtype), rtol=1e-2, atol=1e-2)
    same(got[1], b.grad.to(dtype), rtol=1e-2, atol=1e-2)


def deformable(value: torch.Tensor, shapes: list[tuple[int, int]], location: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    batch, _, heads, channels = value.shape
    queries, points = weight.shape[1], weight.shape[4]
    out, start = torch.zeros(batch, queries, heads, channels), 0
    for level, (rows, cols) in enumerate(shapes):
        part = value[:, start : start + rows * cols].permute(0, 2, 3, 1).reshape(batch * heads, channels, rows, cols)
        start += rows * cols
        grid = (2 * location[:, :, :, level] - 1).transpose(1, 2).reshape(batch * heads, queries, points, 2)
        sampled = torch.nn.functional.grid_sample(part, grid, align_corners=False).view(batch, heads, channels, queries, points)
        out = out + (sampled.permute(0, 3, 1, 4, 2) * weight[:, :, :, level, :, None]).sum(3)
    return out.reshape(batch, queries, heads * channels)


def test_deformable_attention_and_its_gradients() -> None:
    shapes = [(3, 4), (2, 2)]
    value = torch.randn(2, 16, 2, 3, requires_grad=True)
    location = (torch.rand(2, 5, 2, 2, 3, 2) * 1.2 - 0.1).requires_grad_()     # some lie outside
    weight = torch.rand(2, 5, 2, 2, 3, requires_grad=True)
    want = deformable(value, shapes, location, weight)
    where = torch.tensor(shapes, dtype=I32), torch.tensor([0, 12], dtype=I32)
    data = value.detach(), *where, location.detach(), weight.detach()
    same(client().call("aclnnMultiScaleDeformableAttnFunction", *data, torch.empty(2, 5, 6)), want.detach(), rtol=1e-4, atol=1e-5)
    grad = torch.randn(2, 5, 6)
    want.backward(grad)
    got = client().call("aclnnMultiScaleDeformableAttentionGrad", *data, grad, *(torch.empty_like(x) for x in (value, location, weight)))
    for g, x in zip(got, (value, location, weight)):
        assert x.grad is not None
        same(g, x.grad, rtol=1e-3, atol=1e-4)


def test_segments_in_another_order() -> None:
    permute, lengths = torch.tensor([2, 0, 1], dtype=I32), torch.tensor([3, 1, 2])
    begin = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)])
    moved = torch.cat([torch.zeros(1, dtype=torch.long), lengths[permute.long()].cumsum(0)])
    want = torch.cat([torch.arange(begin[p], begin[p + 1]) for p in permute.tolist()]).to(I32)
    same(client().call("aclnnExpandIntoJaggedPermute", permute, begin.to(I32), moved.to(I32), 6, torch.empty(6, dtype=I32)), want)


def test_sinkhorn() -> None:
    cost = torch.randn(4, 3)
    got = client().call("aclnnSinkhorn", cost, None, torch.empty(4, 3))
    same(got.sum(1), torch.full((4,), 0.25), rtol=1e-2, atol=1e-3)
    same(got.sum(0), torch.full((3,), 1 / 3), rtol=1e-2, atol=1e-3)
    ratios = got / cost.exp()                                # rows and columns were scaled, nothing else
    same(ratios[0] / ratios[1], (ratios[0] / ratios[1])[:1].expand(3), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize(("code", "reduction"), enumerate(["none", "mean", "sum", "batchmean"]))
def test_gradient_of_kl_div_by_its_target(code: int, reduction: str, log: bool) -> None:
    x, target = torch.randn(3, 4), torch.rand(3, 4)
    target[0, 0] = -0.5                                     # NaN, where it has no logarithm
    target.requires_grad_()
    loss = torch.nn.functional.kl_div(x, target, reduction=reduction, log_target=log)
    grad = torch.randn(loss.shape)
    loss.backward(grad)
    assert target.grad is not None
    got = client().call("aclnnKlDivTargetBackward", grad, x, target.detach(), code, log, torch.empty(3, 4))
    torch.testing.assert_close(got, target.grad, equal_nan=True)


def test_exp_of_segment_sums() -> None:
    x = torch.randn(2, 4)
    sums = x.cumsum(-1)
    want = (sums[..., :, None] - sums[..., None, :]).exp().tril()
    same(client().call("aclnnExpSegsum", x, torch.empty(2, 4, 4)), want)


def test_statistics_of_all_ranks() -> None:
    parts = [torch.randn(n, 3) for n in (4, 6)]
    whole = torch.cat(parts)
    mean, var = torch.randn(3), torch.rand(3)
    got = client().call("aclnnSyncBatchNormGatherStats", torch.stack([p.sum(0) for p in parts]), torch.stack([p.pow(2).sum(0) for p in parts]),
                        torch.tensor([4.0, 6.0]), mean, var, 0.1, 1e-5, torch.empty(3), torch.empty(3))
    same(got[0], 0.9 * mean + 0.1 * whole.mean(0), rtol=1e-4, atol=1e-5)
    same(got[1], 0.9 * var + 0.1 * whole.var(0), rtol=1e-4, atol=1e-5)
    same(got[2], whole.mean(0), rtol=1e-4, atol=1e-5)
    same(got[3], (whole.var(0, correction=0) + 1e-5).rsqrt(), rtol=1e-4, atol=1e-5)


def test_gradients_of_biases_by_group() -> None:
    grad = torch.randn(3, 4, 5)
    same(client().call("aclnnGroupedBiasAddGrad", grad, None, torch.empty(3, 5)), grad.sum(1), rtol=1e-5, atol=1e-5)
    rows, ends = torch.randn(6, 5), torch.tensor([2, 2, 6], dtype=I32)
    want = torch.stack([rows[:2].sum(0), torch.zeros(5), rows[2:].sum(0)])
    same(client().call("aclnnGroupedBiasAddGrad", rows, ends, torch.empty(3, 5)), want, rtol=1e-5, atol=1e-5)
    counts = torch.tensor([2, 0, 4], dtype=I32)
    same(client().call("aclnnGroupedBiasAddGradV2", rows, counts, 1, torch.empty(3, 5)), want, rtol=1e-5, atol=1e-5)


def test_background_replaced() -> None:
    back, front, mask = torch.rand(4, 3).half(), torch.rand(4, 3).half(), torch.tensor([0.0, 1.0, 1.0, 0.0]).half()
    want = torch.where(mask[:, None] > 0, front, back)
    same(client().call("aclnnBackgroundReplace", back, front, mask, torch.empty(4, 3).half()), want)


def only_on_a_310p() -> None:
    """Run by the test below in a process whose SoC has the kernels."""
    rgb, frame = (torch.randint(0, 256, (5, 4, 3), dtype=torch.uint8) for _ in range(2))
    alpha, out = torch.tensor([0, 255, 7, 128] * 5, dtype=torch.uint8).view(5, 4, 1), torch.empty(5, 4, 3, dtype=torch.uint8)
    share = alpha.double() / 255
    for got, want in ((client().call("aclnnMrgbaCustom", rgb, alpha, out), rgb * share),
                      (client().call("aclnnBlendImagesCustom", rgb, alpha, frame, out), rgb * share + frame * (1 - share))):  # fmt: skip
        assert got.dtype == torch.uint8 and (got.double() - want).abs().max() <= 0.5001
    client().expect_code(161002, "aclnnMrgbaCustom", rgb, alpha[:4].clone(), out)
    client().expect_code(161002, "aclnnMrgbaCustom", alpha, alpha, alpha.clone())


def test_images_over_images() -> None:
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import test_ops_points as t; t.only_on_a_310p()"
    subprocess.run([sys.executable, "-c", code], env=os.environ | {"CANN_SIM_SOC": "310P"}, check=True)
