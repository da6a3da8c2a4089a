"""Detection networks by the older interface: overlaps and their gradients, boxes with an angle, suppression, regions."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from client import CannError, same
from older import Older
from torch import Tensor


def edges(boxes: Tensor, centred: bool) -> Tensor:
    return torch.cat([boxes[:2] - boxes[2:] / 2, boxes[:2] + boxes[2:] / 2]) if centred else boxes


def overlap(kind: str, a: Tensor, b: Tensor) -> Tensor:
    """Of boxes [4, N] by their edges."""
    size = lambda x: (x[2] - x[0]) * (x[3] - x[1])
    common = (torch.minimum(a[2:], b[2:]) - torch.maximum(a[:2], b[:2])).clamp(min=0).prod(0)
    union = size(a) + size(b) - common
    around = torch.maximum(a[2:], b[2:]) - torch.minimum(a[:2], b[:2])
    if kind == "GIoU":
        return common / union - (around.prod(0) - union) / around.prod(0)
    diou = common / union - ((a[:2] + a[2:] - b[:2] - b[2:]) / 2).square().sum(0) / around.square().sum(0)
    if kind == "DIoU":
        return diou
    slant = lambda x: torch.atan((x[2] - x[0]) / (x[3] - x[1]))
    v = 4 / math.pi**2 * (slant(b) - slant(a)).square()
    return diou - (v / (1 - common / union + v)).detach() * v


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("kind", ["GIoU", "DIoU", "CIoU"])
def test_gradients_of_overlaps(older: Older, kind: str, centred: bool) -> None:
    first = torch.rand(4, 6)
    other = first + 0.2 * torch.rand(4, 6)
    if not centred:
        first[2:] += 1
        other[2:] += 1
    leaves = [first.requires_grad_(), other.requires_grad_()]
    found, dy = overlap(kind, edges(leaves[0], centred), edges(leaves[1], centred)), torch.randn(6)
    raw, form = [t.detach() for t in leaves], {"trans": centred, "is_cross": False, "mode": "iou"}
    outs = [torch.empty(1, 6) for _ in range(2 if kind == "CIoU" else 1)]
    got = older(kind, raw, outs, **form)
    same(got[0][0], found.detach(), rtol=1e-4, atol=1e-5)
    back = older(f"{kind}Grad", [dy, *raw, *got[1:]], [torch.empty(4, 6) for _ in range(2)], **form)
    for g, want in zip(back, torch.autograd.grad(found, leaves, dy), strict=True):
        same(g, want, rtol=1e-3, atol=1e-4)
    with pytest.raises(CannError, match="only pairs"):
        older(f"{kind}Grad", [dy, *raw, *got[1:]], [torch.empty(4, 6) for _ in range(2)], trans=centred, is_cross=True)


def rotated(*boxes: list[float]) -> Tensor:
    """[1, 5, N]"""
    return torch.tensor(boxes).t()[None].contiguous()


def test_overlaps_of_boxes_with_an_angle(older: Older) -> None:
    """A square turned by 45 degrees has an octagon in common with itself; a half turn changes nothing."""
    a = rotated([0.0, 0, 2, 2, 0], [5, 5, 4, 2, 30], [0, 0, 4, 2, 0])
    b = rotated([0.0, 0, 2, 2, 45], [5, 5, 4, 2, 210], [0, 0, 2, 4, 90], [9, 9, 0, 0, 0])
    octagon = 8 * (math.sqrt(2) - 1)
    areas = older("RotatedOverlaps", [a, b], [torch.empty(1, 3, 4)], trans=False)[0]
    square_in_row = 4 * math.sqrt(2) - 2  # the turned square without its two tips
    same(areas[0], torch.tensor([[octagon, 0, 4, 0], [0, 8, 0, 0], [square_in_row, 0, 8, 0]]), rtol=1e-4, atol=1e-4)
    got = older("RotatedIou", [a, b], [torch.empty(1, 3, 4)], trans=False, mode="iou", is_cross=True)[0]
    same(got[0, :2], torch.tensor([[octagon / (8 - octagon), 0, 0.5, 0], [0, 1, 0, 0]]), rtol=1e-4, atol=1e-4)
    got = older("RotatedIou", [a, b[..., :3].contiguous()], [torch.empty(1, 3)], trans=False, mode="iof", is_cross=False)[0]
    same(got[0], torch.tensor([octagon / 4, 1, 1]), rtol=1e-4, atol=1e-4)
    corners = rotated([-1.0, -1, 1, 1, 0], [3, 4, 7, 6, 30], [-2, -1, 2, 1, 0])
    same(older("RotatedOverlaps", [corners, corners], [torch.empty(1, 3, 3)], trans=True)[0][0].diagonal(), torch.tensor([4.0, 8, 8]))


def test_suppression_of_boxes_with_an_angle_tells_how_many_stay(older: Older) -> None:
    boxes = torch.tensor([[0.0, 0, 4, 2, 0], [0, 0, 4, 2, 5], [0, 0, 4, 2, 90], [9, 9, 4, 2, 0], [20, 20, 1, 1, 0]])
    scores = torch.tensor([0.5, 0.9, 0.4, 0.3, 0.05])
    outs = [torch.zeros(5, 5), torch.zeros(5, dtype=torch.int32)]
    form = {"iou_threshold": 0.5, "score_threshold": 0.1}
    kept, places = older.sized("RotatedNMS", [boxes, scores, torch.zeros((), dtype=torch.int32)], outs, **form)
    same(places, torch.tensor([1, 2, 3], dtype=torch.int32))
    same(kept, boxes[[1, 2, 3]])
    assert older.sized("RotatedNMS", [boxes, scores], outs, max_output_size=2, **form)[1].tolist() == [1, 2]
    apart = torch.tensor([0, 1, 0, 0, 0], dtype=torch.int32)
    assert older.sized("RotatedNMS", [boxes, scores, apart], outs, **form)[1].tolist() == [1, 0, 2, 3]


def test_offsets_of_boxes_with_an_angle(older: Older) -> None:
    """The numbers are those of torch_npu's documentation."""
    anchors, truths = rotated([30.69, 32.6, 45.94, 59.88, -44.53]), rotated([30.44, 18.72, 33.22, 45.56, 8.5])
    got = older("RotatedBoxEncode", [anchors, truths], [torch.empty(1, 5, 1)], weight=[1.0] * 5)[0]
    same(got.flatten(), torch.tensor([-0.4253, -0.5166, -1.7021, -0.0162, 1.1328]), rtol=2e-3, atol=2e-3)
    back = older("RotatedBoxDecode", [anchors, got], [torch.empty(1, 5, 1)], weight=[1.0] * 5)[0]
    same(back, truths, rtol=1e-4, atol=1e-3)
    doubled = older("RotatedBoxEncode", [anchors, truths], [torch.empty(1, 5, 1)], weight=[2.0] * 5)[0]
    same(doubled, got * 2, rtol=1e-5, atol=1e-5)
    anchors, deltas = rotated([4.137, 33.72, 29.4, 54.06, 41.28]), rotated([0.0244, -1.992, 0.2109, 0.315, -37.25])
    got = older("RotatedBoxDecode", [anchors, deltas], [torch.empty(1, 5, 1)], weight=[1.0] * 5)[0]
    same(got.flatten(), torch.tensor([1.7861, -10.5781, 33.0, 17.2969, -88.4375]), rtol=4e-2, atol=4e-2)


# ---- suppression and assignment --------------------------------------------------------------------------------------
BOXES = torch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 9], [20, 20, 30, 30], [0, 0, 4, 4]])


def test_suppression(older: Older) -> None:
    scores, ints = torch.tensor([0.5, 0.9, 0.7, 0.2]), torch.int32
    outs = [torch.full((4,), 9, dtype=ints), torch.zeros((), dtype=ints)]
    number = lambda x, dtype=torch.float32: torch.tensor(x, dtype=dtype)
    places, count = older("NonMaxSuppressionV4", [BOXES, scores, number(4, ints), number(0.5), number(0.0)], outs)
    assert (places.tolist(), int(count)) == ([1, 2, 3, 0], 3)
    places, count = older("NonMaxSuppressionV4", [BOXES, scores, number(1, ints), number(0.5), number(0.6)], outs)
    assert (places[0], int(count)) == (1, 1)
    rows = torch.cat([BOXES, scores[:, None], torch.zeros(4, 3)], 1)
    boxes, places, mask = older("NMSWithMask", [rows], [torch.empty(4, 5), outs[0], torch.zeros(4, dtype=torch.uint8)], iou_threshold=0.5)
    same(boxes, rows[:, :5])
    assert (places.tolist(), mask.tolist()) == ([0, 1, 2, 3], [1, 0, 1, 1])


@pytest.mark.parametrize("turned", [False, True])
def test_suppression_by_classes(older: Older, turned: bool) -> None:
    """Two classes over the same boxes; a box falls away only for a better one of its class."""
    boxes, scores = BOXES[None, :, None, :], torch.tensor([[[0.5, 0.6], [0.9, 0.1], [0.7, 0.05], [0.2, 0.8]]])
    if turned:
        boxes, scores = boxes.permute(0, 2, 3, 1).contiguous(), scores.mT.contiguous()
    outs = [torch.ones(1, 5, 4), torch.ones(1, 5), torch.ones(1, 5), torch.zeros(1, dtype=torch.int32)]
    form = {"score_threshold": 0.3, "iou_threshold": 0.5, "max_size_per_class": 2, "max_total_size": 5, "transpose_box": turned}
    found, best, classes, count = older("BatchMultiClassNonMaxSuppression", [boxes, scores], outs, **form)
    assert int(count) == 4
    same(best[0], torch.tensor([0.9, 0.8, 0.7, 0.6, 0]))
    assert classes[0].tolist() == [0, 1, 0, 1, 0]
    same(found[0], torch.cat([BOXES[[1, 3, 2, 0]], torch.zeros(1, 4)]))


@pytest.mark.parametrize("everywhere", [False, True])
def test_truths_are_assigned_to_anchors(older: Older, everywhere: bool) -> None:
    overlaps = torch.tensor([[0.9, 0.2, 0.4, 0.4], [0.1, 0.3, 0.45, 0.1]])
    flags, ints = torch.tensor([1, 1, 1, 0], dtype=torch.uint8), torch.int32
    best, place = overlaps.max(0)
    most, anchor = torch.tensor([0.9, 0.45]), torch.tensor([0, 2], dtype=ints)
    inputs = [torch.full((4,), -1.0), overlaps, flags, best, place.to(ints), most, anchor, torch.tensor(2, dtype=ints)]
    got = older("GridAssignPositive", inputs, [torch.empty(4)], pos_iou_thr=0.5, min_pos_iou=0.0, gt_max_assign_all=everywhere)[0]
    assert got.tolist() == [1, -1, 2, -1]


def test_places_of_true_items(older: Older) -> None:
    x = torch.tensor([[True, False, True], [False, True, True]])
    outs = [torch.full((6, 2), 9, dtype=torch.int32), torch.zeros(6, dtype=torch.bool)]
    places, real = older("RandomChoiceWithMask", [x], outs, count=6)
    assert places.tolist() == [[0, 0], [0, 2], [1, 1], [1, 2], [0, 0], [0, 0]]
    assert real.tolist() == [True] * 4 + [False] * 2
    draw = lambda seed: older("RandomChoiceWithMask", [torch.ones(40, dtype=torch.bool)], [torch.zeros(5, 1, dtype=torch.int32), outs[1][:5].clone()],
                              count=5, seed=seed)[0].flatten().tolist()
    assert draw(1) == draw(1) != draw(2)
    assert len(set(draw(3))) == 5


@pytest.mark.parametrize(("most", "share"), [(8, 0.25), (30, 0.5), (4, 1.0)])
def test_a_sample_of_anchors(older: Older, most: int, share: float) -> None:
    labels = torch.tensor([1, 0, -1, 2] * 6, dtype=torch.int32)
    got = older("SubSample", [labels], [torch.zeros_like(labels)], batch_size_per_images=most, positive_fraction=share)[0]
    objects = min(12, int(most * share))
    assert (got > 0).sum() == objects and (got == 0).sum() == min(6, most - objects)
    assert ((got == labels) | (got == -1)).all()


# ---- regions ---------------------------------------------------------------------------------------------------------
def pooled(x: Tensor, rois: Tensor, group: int, dim: int) -> Tensor:
    """Regions of whole pixels whose bins are of whole pixels."""
    made = []
    for image, x0, y0, x1, y1 in rois.mT.flatten(0, 1).int().tolist():
        planes = x[image].unflatten(0, (dim, group, group))
        h, w = (y1 + 1 - y0) // group, (x1 + 1 - x0) // group
        made.append(torch.stack([planes[:, i, j, y0 + i * h : y0 + (i + 1) * h, x0 + j * w : x0 + (j + 1) * w].mean((1, 2))
                                 for i in range(group) for j in range(group)], 1).unflatten(1, (group, group)))
    return torch.stack(made)


def test_pooling_of_regions_by_position(older: Older) -> None:
    x = torch.randn(2, 12, 6, 6, requires_grad=True)
    rois = torch.tensor([[[0.0, 1], [0, 2], [0, 0], [3, 5], [3, 1]], [[1, 0], [1, 2], [1, 2], [4, 5], [4, 3]]])
    form: dict[str, Any] = {"spatial_scale": 1.0, "group_size": 2, "output_dim": 3}
    want = pooled(x, rois, 2, 3)
    same(older("PSROIPoolingV2", [x.detach(), rois], [torch.empty(want.shape)], **form)[0], want.detach(), rtol=1e-4, atol=1e-5)
    dy = torch.randn_like(want)
    got = older("PSROIPoolingGradV2D", [dy, rois], [torch.empty(x.shape)], input_size=[6, 6], **form)[0]
    same(got, torch.autograd.grad(want, x, dy)[0], rtol=1e-4, atol=1e-5)
