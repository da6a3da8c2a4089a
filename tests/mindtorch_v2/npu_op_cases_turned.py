"""Cases of torch_npu's boxes with an angle, and of what chooses or assigns among boxes by their overlaps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from npu_op_case import R, case, f, h, u
from npu_op_cases_models import CORNERS, NEAR, diou, giou, overlap


# ---- boxes with an angle --------------------------------------------------------------------------------------------
def corners(box: Any) -> list[tuple[float, float]]:
    x, y, width, height, angle = (float(v) for v in box)
    c, s = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    return [(x + p * width * c - q * height * s, y + p * width * s + q * height * c)
            for p, q in ((-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5))]


def shared(a: Any, b: Any) -> float:
    """The area of what two boxes share: one is cut along the edges of the other."""
    shape, by = corners(a), corners(b)
    for (x0, y0), (x1, y1) in zip(by, by[1:] + by[:1], strict=True):
        left, sides = [], [(x1 - x0) * (y - y0) - (y1 - y0) * (x - x0) for x, y in shape]
        for k, (p, q) in enumerate(zip(shape, shape[1:] + shape[:1], strict=True)):
            at, then = sides[k], sides[(k + 1) % len(shape)]
            if at >= 0:
                left.append(p)
            if (at >= 0) != (then >= 0):
                left.append(tuple(u + at / (at - then) * (v - u) for u, v in zip(p, q, strict=True)))
        shape = left
    return abs(sum(p[0] * q[1] - q[0] * p[1] for p, q in zip(shape, shape[1:] + shape[:1], strict=True))) / 2


def turned_iou(a: Any, b: Any, mode: int = 0) -> float:
    common, own, other = shared(a, b), float(a[2] * a[3]), float(b[2] * b[3])
    return common / (other if mode == 1 else own + other - common)


def pairs(torch: Any, a: Any, b: Any, of: Any) -> Any:
    return torch.tensor([[[of(x, y) for y in others] for x in ours] for ours, others in zip(a, b, strict=True)])


def turned(*shape: int) -> np.ndarray:
    """Boxes of a centre, width, height and an angle in degrees, near to each other."""
    return (R.rand(*shape, 5) * [4, 4, 3, 3, 180] + [0, 0, 2, 2, 0]).astype(np.float32)


BOXES, OTHERS = turned(2, 4), turned(2, 3)
case("npu_rotated_iou", BOXES, OTHERS, ref=lambda torch, a, b: pairs(torch, a, b, turned_iou), atol=1e-4)
case("npu_rotated_iou", BOXES, OTHERS, False, 1, ref=lambda torch, a, b, trans, mode: pairs(
    torch, a, b, lambda x, y: turned_iou(x, y, 1)), atol=1e-4)
case("npu_rotated_overlaps", BOXES, OTHERS, ref=lambda torch, a, b: pairs(torch, a, b, shared), atol=1e-3)


def stays(order: list[int], clash: Any, most: int = -1) -> list[int]:
    kept: list[int] = []
    for i in order:
        if len(kept) != most and not any(clash(k, i) for k in kept):
            kept.append(i)
    return kept


def rotated_nms(torch: Any, boxes: Any, scores: Any, limit: float, least: float) -> Any:
    order = [i for i in scores.argsort(descending=True).tolist() if scores[i] > least]
    kept = stays(order, lambda a, b: turned_iou(boxes[a], boxes[b]) > limit)
    return torch.tensor(kept, dtype=torch.int32), torch.tensor([len(kept)], dtype=torch.int32)


case("npu_nms_rotated", turned(8), u(8), 0.3, 0.2, ref=rotated_nms)


# ---- plain ones -------------------------------------------------------------------------------------------------------
def plain_iou(a: Any, b: Any) -> float:
    width, height = (max(0.0, float(min(a[k + 2], b[k + 2]) - max(a[k], b[k]))) for k in (0, 1))
    areas = [float((x[2] - x[0]) * (x[3] - x[1])) for x in (a, b)]
    return width * height / (sum(areas) - width * height)


def edges(*shape: int) -> np.ndarray:
    low = R.rand(*shape, 2) * 2
    return np.concatenate([low, low + 1 + R.rand(*shape, 2)], -1).astype(np.float32)


def with_mask(torch: Any, boxes: Any, limit: float) -> Any:
    kept = stays(list(range(len(boxes))), lambda a, b: plain_iou(boxes[a], boxes[b]) > limit)
    return (boxes, torch.arange(len(boxes), dtype=torch.int32),
            torch.tensor([int(i in kept) for i in range(len(boxes))], dtype=torch.uint8))


SCORED = np.concatenate([edges(8), np.sort(R.rand(8, 1), 0)[::-1]], 1).astype(np.float32)
case("npu_nms_with_mask", SCORED, 0.4, ref=with_mask)


def batch_nms(torch: Any, boxes: Any, scores: Any, least: float, limit: float, each: int, most: int) -> Any:
    outs = torch.zeros(len(boxes), most, 4), torch.zeros(len(boxes), most), torch.zeros(len(boxes), most)
    counts = torch.zeros(len(boxes), dtype=torch.int32)
    for n, (own, worth) in enumerate(zip(boxes[:, :, 0].float(), scores.float(), strict=True)):
        found = []
        for c in range(worth.shape[1]):
            order = [i for i in worth[:, c].argsort(descending=True).tolist() if worth[i, c] > least]
            found += [(worth[i, c], i, c) for i in stays(order, lambda a, b: plain_iou(own[a], own[b]) > limit, each)]
        found = sorted(found, key=lambda entry: -entry[0])[:most]
        counts[n] = len(found)
        for k, (score, i, c) in enumerate(found):
            outs[0][n, k], outs[1][n, k], outs[2][n, k] = own[i], score, c
    return (*(x.half() for x in outs), counts)


case("npu_batch_nms", edges(2, 6, 1).astype(np.float16), R.rand(2, 6, 2).astype(np.float16), 0.3, 0.4, 3, 4, ref=batch_nms, atol=1e-3)


def assigned(torch: Any, x: Any, every: Any, flags: Any, best: Any, at: Any, most: Any, where: Any, n: int, high: float, low: float,
             everybody: bool) -> Any:
    made = [float(at[i]) + 1 if flags[i] and best[i] > high else float(x[i]) for i in range(len(x))]
    for truth in range(n):
        for i in range(len(x)):
            chosen = every[truth, i] == most[truth] if everybody else i == int(where[truth])
            if most[truth] > low and flags[i] and chosen:
                made[i] = truth + 1.0
    return torch.tensor(made)


OVERLAPS = u(3, 6)
for _everybody in (True, False):
    case("npu_grid_assign_positive", -np.ones(6, np.float32), OVERLAPS, np.array([1, 0, 1, 1, 1, 1], np.uint8), OVERLAPS.max(0),
         OVERLAPS.argmax(0).astype(np.int32), OVERLAPS.max(1), OVERLAPS.argmax(1).astype(np.int32), 3, 0.6, 0.5, _everybody, ref=assigned)
case("npu_stride_add", f(2, 64, 3, 2), f(2, 32, 3, 2), 1, 0, 2, ref=lambda torch, a, b, i, j, n: a[:, 16:48] + b[:, :32])
case("npu_stride_add", h(2, 32, 3, 2), h(2, 32, 3, 2), 0, 1, 2, atol=1e-2, ref=lambda torch, a, b, i, j, n: torch.cat(
    [a[:, :16] + b[:, 16:], torch.zeros(2, 16, 3, 2).half()], 1))


# ---- overlaps as CANN takes them ----------------------------------------------------------------------------------------
def centred(x: np.ndarray) -> np.ndarray:
    """Centre, width and height of boxes (4, N) by their edges."""
    return np.stack([(x[0] + x[2]) / 2, (x[1] + x[3]) / 2, x[2] - x[0], x[3] - x[1]]).astype(np.float32)


def by_edges(function: Any) -> Any:
    def of(torch: Any, a: Any, b: Any, *rest: Any) -> Any:
        return function(torch, *(torch.stack([x[0] - x[2] / 2, x[1] - x[3] / 2, x[0] + x[2] / 2, x[1] + x[3] / 2]) for x in (a, b)))
    return of


MIDDLES = centred(CORNERS), centred(NEAR)
case("npu_giou", *MIDDLES, True, ref=by_edges(giou), grads=(0, 1), atol=1e-3)


def grads_by(function: Any) -> Any:
    def of(torch: Any, grad: Any, a: Any, b: Any, *rest: Any) -> Any:
        leaves = [x.detach().clone().requires_grad_() for x in (a, b)]
        return torch.autograd.grad(function(torch, *leaves), leaves, grad)
    return of


case("npu_giou_backward", f(5, 1), *MIDDLES, True, ref=grads_by(by_edges(giou)), atol=1e-3)


def ciou(torch: Any, a: Any, b: Any) -> Any:
    slant = torch.atan((b[2] - b[0]) / (b[3] - b[1])) - torch.atan((a[2] - a[0]) / (a[3] - a[1]))
    v = 4 / math.pi**2 * slant.square()
    return diou(torch, a, b) - (v / (1 - overlap(torch, a, b)[0] + v)).detach() * v


_slant = np.arctan(MIDDLES[1][2] / MIDDLES[1][3]) - np.arctan(MIDDLES[0][2] / MIDDLES[0][3])
case("npu_ciou_backward", f(1, 5), *MIDDLES, _slant[None].astype(np.float32), True, False, ref=grads_by(by_edges(ciou)), atol=1e-3)
