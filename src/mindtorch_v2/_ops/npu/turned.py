"""Rows of torch_npu's boxes with an angle, and of what chooses or assigns among boxes by their overlaps."""
from __future__ import annotations

import math

from mindtorch_v2._ops.npu.boxes import iou
from mindtorch_v2._ops.npu.rows import INT32, INT64, UINT8, row, wide
from mindtorch_v2._ops.table import ops
from mindtorch_v2._tensor import Tensor

__all__: list[str] = []
_NEAR = 1e-6                                   # of what lies on an edge


# ---- boxes with an angle --------------------------------------------------------------------------------------------
def _sides(boxes: Tensor, trans: bool) -> tuple[Tensor, ...]:
    """Centre, width, height and angle, in degrees, of (..., 5); trans: the first four are edges x1, y1, x2, y2."""
    a, b, c, d, angle = wide(boxes).unbind(-1)
    return ((a + c) / 2, (b + d) / 2, c - a, d - b, angle) if trans else (a, b, c, d, angle)


def _corners(boxes: Tensor, trans: bool) -> Tensor:
    """(..., 4, 2), one after another around the box."""
    x, y, width, height, angle = _sides(boxes, trans)
    cos, sin = (f(angle * (math.pi / 180)) for f in (ops.cos, ops.sin))
    points = []
    for p, q in ((-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5)):
        points.append(ops.stack([x + p * width * cos - q * height * sin, y + p * width * sin + q * height * cos], -1))
    return ops.stack(points, -2)


def _cross(a: Tensor, b: Tensor) -> Tensor:
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def _within(points: Tensor, shape: Tensor) -> Tensor:
    """Whether points (..., P, 2) lie in a convex shape (..., 4, 2) or on its edges."""
    start = shape.unsqueeze(-3)
    edge = shape.roll([-1], [-2]).unsqueeze(-3) - start
    return (_cross(edge, points.unsqueeze(-2) - start) >= -_NEAR).all(-1)


def _crossings(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Where edges of two shapes meet, (..., 16, 2), and whether they do."""
    p, q = a.unsqueeze(-2), b.unsqueeze(-3)
    r, s = (a.roll([-1], [-2]) - a).unsqueeze(-2), (b.roll([-1], [-2]) - b).unsqueeze(-3)
    turn = _cross(r, s)
    safe = ops.where(turn.abs() < 1e-12, 1.0, turn)
    t, u = _cross(q - p, s) / safe, _cross(q - p, r) / safe
    hit = (turn.abs() >= 1e-12) & (t >= 0) & (t <= 1) & (u >= 0) & (u <= 1)
    return (p + t.unsqueeze(-1) * r).flatten(-3, -2), hit.flatten(-2)


def _common_area(a: Tensor, b: Tensor) -> Tensor:
    """Of two shapes (..., 4, 2): the points of both that bound it, in the order of their angles around its middle."""
    a, b = ops.broadcast_tensors(a, b)
    met, hit = _crossings(a, b)
    points = ops.cat([a, b, met], -2)
    counts = ops.cat([_within(a, b), _within(b, a), hit], -1)
    weight = counts.to(points.dtype).unsqueeze(-1)
    middle = (points * weight).sum(-2, True) / weight.sum(-2, True).clamp(min=1)
    around = points - middle
    angle = ops.where(counts, ops.atan2(around[..., 1], around[..., 0]), 10.0)      # what does not count comes last
    order = ops.argsort(angle, dim=-1)
    ordered = around.gather(-2, order.unsqueeze(-1).expand(*order.shape, 2))
    real = counts.gather(-1, order).unsqueeze(-1)
    ordered = ops.where(real, ordered, ordered[..., :1, :])                        # and adds no area
    area = _cross(ordered, ordered.roll([-1], [-2])).sum(-1).abs() / 2
    return ops.where(counts.sum(-1) >= 3, area, 0.0)


def _turned_iou(a: Tensor, b: Tensor, trans: bool, mode: int) -> Tensor:
    common = _common_area(_corners(a, trans), _corners(b, trans))
    (*_, wa, ha, _a), (*_, wb, hb, _b) = _sides(a, trans), _sides(b, trans)
    every = wb * hb + common * 0 if mode == 1 else wa * ha + wb * hb - common
    return ops.where(every > 0, common / every, 0.0)


@row()
def npu_rotated_iou(input: Tensor, query_boxes: Tensor, trans: bool, mode: int, is_cross: bool, v_threshold: float,
                    e_threshold: float) -> Tensor:
    """Overlap by union (mode 0) or by the second's area (1) of boxes (batch, N, 5) with (batch, K, 5): all pairs, or one to one."""
    a, b = (input.unsqueeze(2), query_boxes.unsqueeze(1)) if is_cross else (input, query_boxes)
    return _turned_iou(a, b, trans, mode).to(input.dtype)


@row()
def npu_rotated_overlaps(input: Tensor, query_boxes: Tensor, trans: bool) -> Tensor:
    """The area that every pair of boxes (batch, N, 5) and (batch, K, 5) shares."""
    corners = _corners(input, trans).unsqueeze(2), _corners(query_boxes, trans).unsqueeze(1)
    return _common_area(*corners).to(input.dtype)


# ---- suppression ----------------------------------------------------------------------------------------------------
def _stays(order: list[int], close: list[list[bool]], most: int = -1) -> list[int]:
    """Of the best first, those that no better one is close to; at most so many."""
    chosen: list[int] = []
    for i in order:
        if len(chosen) == most:
            break
        if not any(close[k][i] for k in chosen):
            chosen.append(i)
    return chosen


def _best_first(scores: Tensor, above: float) -> list[int]:
    good = (scores > above).tolist()
    return [i for i in ops.argsort(scores, descending=True, stable=True).tolist() if good[i]]


@row()
def npu_nms_rotated(input: Tensor, scores: Tensor, iou_threshold: float, scores_threshold: float, max_output_size: int,
                    mode: int) -> tuple[Tensor, Tensor]:
    """The boxes (N, 5) of the best scores that overlap no better one much: their places, and how many; mode 1: edges."""
    close = (_turned_iou(input.unsqueeze(1), input.unsqueeze(0), mode == 1, 0) > iou_threshold).tolist()
    chosen = _stays(_best_first(scores, scores_threshold), close, max_output_size)
    places = ops.arange(scores.size(0), dtype=INT32, device=input.device)[chosen] if chosen else scores[:0].to(INT32)
    return places, ops.full([1], len(chosen), dtype=INT32, device=input.device)


@row()
def npu_nms_with_mask(input: Tensor, iou_threshold: float) -> tuple[Tensor, Tensor, Tensor]:
    """Boxes with scores, the best first, as they came; their places, and 1 for those that overlap no better one much."""
    close = (iou(input[:, :4], input[:, :4], 0) > iou_threshold).tolist()
    chosen = set(_stays(list(range(input.size(0))), close))
    places = ops.arange(input.size(0), dtype=INT32, device=input.device)
    kept = ops.zeros_like(places, dtype=UINT8)
    for i in chosen:
        kept[i].fill_(1)
    return input[:, :5].clone(), places, kept


def _found(boxes: Tensor, scores: Tensor, least: float, limit: float, each: int) -> list[tuple[float, int, int]]:
    """Of one image: (score, place, class) of what stays of every class, the best first."""
    found = []
    for c in range(scores.size(1)):
        own = boxes[:, min(c, boxes.size(1) - 1)]
        close = (iou(own, own, 0) > limit).tolist()
        listed = scores[:, c].tolist()
        found += [(listed[i], i, c) for i in _stays(_best_first(scores[:, c], least), close, each)]
    return sorted(found, key=lambda entry: -entry[0])


@row()
def npu_batch_nms(input: Tensor, scores: Tensor, score_threshold: float, iou_threshold: float, max_size_per_class: int,
                  max_total_size: int, change_coordinate_frame: bool,
                  transpose_box: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of every image (boxes (N, 1 or classes, 4), scores (N, classes)) the best boxes: with scores, classes, and how many."""
    if change_coordinate_frame:
        raise NotImplementedError("[npu_batch_nms] change_coordinate_frame is not offered")
    boxes, each = (input.permute(0, 3, 1, 2), scores.transpose(1, 2)) if transpose_box else (input, scores)
    made = wide(input).new_zeros([boxes.size(0), max_total_size, 4])
    worth, kinds = (made.new_zeros([boxes.size(0), max_total_size]) for _ in range(2))
    counts = ops.zeros([boxes.size(0)], dtype=INT32, device=input.device)
    for b in range(boxes.size(0)):
        found = _found(wide(boxes[b]), wide(each[b]), score_threshold, iou_threshold, max_size_per_class)[:max_total_size]
        counts[b].fill_(len(found))
        for k, (score, place, kind) in enumerate(found):
            made[b, k].copy_(boxes[b, place, min(kind, boxes.size(2) - 1)])
            worth[b, k].fill_(score)
            kinds[b, k].fill_(kind)
    return made.to(input.dtype), worth.to(input.dtype), kinds.to(input.dtype), counts


@row()
def npu_grid_assign_positive(input: Tensor, overlaps: Tensor, box_responsible_flags: Tensor, max_overlaps: Tensor,
                             argmax_overlaps: Tensor, gt_max_overlaps: Tensor, gt_argmax_overlaps: Tensor, num_gts: int,
                             pos_iou_thr: float, min_pos_iou: float, gt_max_assign_all: bool) -> Tensor:
    """The truth, counted from 1, of every anchor that answers for one: that it overlaps most, or whose best anchor it is."""
    answers = box_responsible_flags.bool()
    made = ops.where(answers & (max_overlaps > pos_iou_thr), argmax_overlaps.to(input.dtype) + 1, input)
    places = ops.arange(input.size(0), device=input.device)
    for truth in range(num_gts):
        if gt_max_assign_all:
            chosen = overlaps[truth] == gt_max_overlaps[truth]
        else:
            chosen = places == gt_argmax_overlaps[truth].to(INT64)
        made = ops.where(chosen & answers & (gt_max_overlaps[truth] > min_pos_iou), float(truth + 1), made)
    return made.to(input.dtype)


# ---- images whose channels lie in groups of 16 ------------------------------------------------------------------------
@row()
def npu_stride_add(input: Tensor, other: Tensor, offset1: float, offset2: float, c1_len: float) -> Tensor:
    """c1_len groups of 16 channels of both, from an offset in groups on, added; 0 where one has no such channels."""
    first, second, count = (16 * int(n) for n in (offset1, offset2, c1_len))
    a, b = input[:, first:first + count], other[:, second:second + count]
    shared = min(a.size(1), b.size(1))
    return ops.constant_pad_nd(a[:, :shared] + b[:, :shared], [0, 0, 0, 0, 0, count - shared], 0)
