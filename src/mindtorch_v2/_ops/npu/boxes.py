"""Rows of torch_npu's boxes: overlaps and their gradients, coding of boxes, suppression; and what is pooled from inside them."""
from __future__ import annotations

import math

from mindtorch_v2._ops.npu.rows import INT32, INT64, UINT8, grad_of, row, wide
from mindtorch_v2._ops.table import ops
from mindtorch_v2._tensor import Tensor

_TINY = 1e-9


# ---- overlaps -------------------------------------------------------------------------------------------------------
def _corners(x: Tensor, trans: bool) -> tuple[Tensor, ...]:
    """x1, y1, x2, y2 of boxes whose four numbers lie along dim 0, given so or as a centre with width and height."""
    a, b, c, d = wide(x).unbind(0)
    return (a - c / 2, b - d / 2, a + c / 2, b + d / 2) if trans else (a, b, c, d)


def _overlap(a: list[Tensor], b: list[Tensor], mode: int) -> tuple[Tensor, Tensor]:
    """(overlap, union) of boxes by their corners; mode 1 divides by the second's area."""
    width = (ops.minimum(a[2], b[2]) - ops.maximum(a[0], b[0])).clamp(min=0)
    height = (ops.minimum(a[3], b[3]) - ops.maximum(a[1], b[1])).clamp(min=0)
    inter = width * height
    area_a, area_b = ((x[2] - x[0]) * (x[3] - x[1]) for x in (a, b))
    return inter, area_b + inter * 0 if mode == 1 else area_a + area_b - inter


def _pairs(input: Tensor, gtboxes: Tensor, trans: bool, is_cross: bool) -> tuple[list[Tensor], ...]:
    """Corners of both, shaped to broadcast one to one, or all with all: (gtboxes, boxes)."""
    a, b = _corners(input, trans), _corners(gtboxes, trans)
    if is_cross:
        return [x.unsqueeze(0) for x in a], [x.unsqueeze(1) for x in b]
    return [x.unsqueeze(0) for x in a], [x.unsqueeze(0) for x in b]


def _around(a: list[Tensor], b: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Width and height of the smallest box around both."""
    return ops.maximum(a[2], b[2]) - ops.minimum(a[0], b[0]), ops.maximum(a[3], b[3]) - ops.minimum(a[1], b[1])


def _distance(a: list[Tensor], b: list[Tensor]) -> Tensor:
    """The square of the distance of the centres by that of the diagonal around both."""
    width, height = _around(a, b)
    apart = ((a[0] + a[2] - b[0] - b[2]).square() + (a[1] + a[3] - b[1] - b[3]).square()) / 4
    return apart / (width.square() + height.square() + _TINY)


def _giou(input: Tensor, gtboxes: Tensor, trans: bool, is_cross: bool, mode: int) -> Tensor:
    a, b = _pairs(input, gtboxes, trans, is_cross)
    inter, union = _overlap(a, b, mode)
    width, height = _around(a, b)
    whole = width * height
    return inter / (union + _TINY) - (whole - union) / (whole + _TINY)


def _diou(input: Tensor, gtboxes: Tensor, trans: bool, is_cross: bool, mode: int) -> Tensor:
    a, b = _pairs(input, gtboxes, trans, is_cross)
    inter, union = _overlap(a, b, mode)
    return inter / (union + _TINY) - _distance(a, b)


def _slant(x: list[Tensor]) -> Tensor:
    return ops.atan((x[2] - x[0]) / (x[3] - x[1] + _TINY))


def _ciou(input: Tensor, gtboxes: Tensor, trans: bool, is_cross: bool, mode: int) -> tuple[Tensor, Tensor]:
    """(ciou, difference of the slants)."""
    a, b = _pairs(input, gtboxes, trans, is_cross)
    inter, union = _overlap(a, b, mode)
    iou, apart = inter / (union + _TINY), _slant(b) - _slant(a)
    v = 4 / math.pi ** 2 * apart.square()
    alpha = (v / (1 - iou + v + _TINY)).detach()
    return iou - _distance(a, b) - alpha * v, apart


def iou(bboxes: Tensor, gtboxes: Tensor, mode: int) -> Tensor:
    """Overlap by union (0) or by the second box (1) of all boxes (N, 4) with all others (M, 4), as (M, N)."""
    a, b = _pairs(bboxes.t(), gtboxes.t(), False, True)
    inter, union = _overlap(a, b, mode)
    return (inter / (union + _TINY)).to(bboxes.dtype)


for _name in ("npu_iou", "npu_ptiou"):
    row(_name)(iou)


def _turned(made: Tensor, is_cross: bool, like: Tensor) -> Tensor:
    """As torch_npu returns it: boxes first; a column where they are paired one to one."""
    return made.t().to(like.dtype)


@row()
def npu_giou(input: Tensor, gtboxes: Tensor, trans: bool, is_cross: bool, mode: int) -> Tensor:
    """Generalised overlap of boxes (4, N) with others, one to one as (N, 1)."""
    return _turned(_giou(input, gtboxes, trans, is_cross, mode), is_cross, input)


@row()
def npu_giou_backward(grad: Tensor, bboxes: Tensor, gtboxes: Tensor, trans: bool, is_cross: bool,
                      mode: int) -> tuple[Tensor, Tensor]:
    """The gradients of npu_giou."""
    return grad_of(lambda a, b: npu_giou(a, b, trans, is_cross, mode), (bboxes, gtboxes), (grad,))


@row()
def npu_diou(input: Tensor, gtboxes: Tensor, trans: bool, is_cross: bool, mode: int) -> Tensor:
    """Overlap less the distance of the centres, of boxes (4, N) with others, one to one as (1, N)."""
    return _diou(input, gtboxes, trans, is_cross, mode).to(input.dtype)


@row()
def npu_diou_backward(grad: Tensor, bboxes: Tensor, gtboxes: Tensor, trans: bool, is_cross: bool,
                      mode: int) -> tuple[Tensor, Tensor]:
    """The gradients of npu_diou."""
    return grad_of(lambda a, b: npu_diou(a, b, trans, is_cross, mode), (bboxes, gtboxes), (grad,))


@row()
def npu_ciou(input: Tensor, gtboxes: Tensor, trans: bool, is_cross: bool, mode: int, atan_sub_flag: bool) -> Tensor:
    """Overlap less the distance of the centres and the difference in shape, of boxes (4, N) with others."""
    return _ciou(input, gtboxes, trans, is_cross, mode)[0].to(input.dtype)


@row()
def _npu_ciou(input: Tensor, gtboxes: Tensor, trans: bool, is_cross: bool, mode: int,
              atan_sub_flag: bool) -> tuple[Tensor, ...]:
    """npu_ciou, and the difference of the slants."""
    return tuple(x.to(input.dtype) for x in _ciou(input, gtboxes, trans, is_cross, mode))


@row()
def npu_ciou_backward(grad: Tensor, bboxes: Tensor, gtboxes: Tensor, atan_sub: Tensor | None, trans: bool,
                      is_cross: bool, mode: int) -> tuple[Tensor, Tensor]:
    """The gradients of npu_ciou."""
    return grad_of(lambda a, b: npu_ciou(a, b, trans, is_cross, mode), (bboxes, gtboxes), (grad,))


# ---- coding ---------------------------------------------------------------------------------------------------------
def _centred(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Centre, width and height of boxes (N, 4) whose far corner is part of them."""
    a, b, c, d = wide(x).unbind(-1)
    return (a + c) / 2, (b + d) / 2, c - a + 1, d - b + 1


@row()
def npu_bounding_box_encode(anchor_box: Tensor, ground_truth_box: Tensor, means0: float, means1: float, means2: float,
                            means3: float, stds0: float, stds1: float, stds2: float, stds3: float) -> Tensor:
    """How far, in widths and heights and their logarithms, boxes are from anchors; less means, by deviations."""
    px, py, pw, ph = _centred(anchor_box)
    gx, gy, gw, gh = _centred(ground_truth_box)
    deltas = [(gx - px) / pw, (gy - py) / ph, (gw / pw).abs().log(), (gh / ph).abs().log()]
    made = [(d - m) / s for d, m, s in zip(deltas, (means0, means1, means2, means3), (stds0, stds1, stds2, stds3), strict=True)]
    return ops.stack(made, -1).to(anchor_box.dtype)


@row()
def npu_bounding_box_decode(rois: Tensor, deltas: Tensor, means0: float, means1: float, means2: float, means3: float,
                            stds0: float, stds1: float, stds2: float, stds3: float, max_shape: list[int],
                            wh_ratio_clip: float) -> Tensor:
    """The boxes that npu_bounding_box_encode's numbers mean, within an image of (height, width)."""
    px, py, pw, ph = _centred(rois)
    dx, dy, dw, dh = (d * s + m for d, m, s in zip(wide(deltas).unbind(-1), (means0, means1, means2, means3),
                                                   (stds0, stds1, stds2, stds3), strict=True))
    most = abs(math.log(wh_ratio_clip))
    w, h = pw * dw.clamp(-most, most).exp(), ph * dh.clamp(-most, most).exp()
    x, y = px + pw * dx, py + ph * dy
    made = [x - w / 2 + 0.5, y - h / 2 + 0.5, x + w / 2 - 0.5, y + h / 2 - 0.5]
    limits = [max_shape[1] - 1, max_shape[0] - 1] * 2
    return ops.stack([t.clamp(0, n) for t, n in zip(made, limits, strict=True)], -1).to(rois.dtype)


def _rotated(x: Tensor) -> tuple[Tensor, ...]:
    """Centre, width, height and angle of boxes (batch, 5, N): corners, then degrees."""
    a, b, c, d, angle = wide(x).unbind(1)
    return (a + c) / 2, (b + d) / 2, c - a, d - b, angle


@row()
def npu_rotated_box_encode(input: Tensor, gt_bboxes: Tensor, weight: Tensor) -> Tensor:
    """How far boxes with an angle are from anchors with one; angles by their tangents."""
    ax, ay, aw, ah, at = _rotated(input)
    gx, gy, gw, gh, gt = _rotated(gt_bboxes)
    turn = (gt * (math.pi / 180)).tan() - (at * (math.pi / 180)).tan()
    made = [(gx - ax) / aw, (gy - ay) / ah, (gw / aw).log(), (gh / ah).log(), turn]
    return (ops.stack(made, 1) * wide(weight).reshape(1, 5, 1)).to(input.dtype)


@row()
def npu_rotated_box_decode(input: Tensor, deltas: Tensor, weight: Tensor) -> Tensor:
    """The boxes with an angle that npu_rotated_box_encode's numbers mean."""
    ax, ay, aw, ah, at = _rotated(input)
    dx, dy, dw, dh, dt = (wide(deltas) / wide(weight).reshape(1, 5, 1)).unbind(1)
    x, y, w, h = ax + dx * aw, ay + dy * ah, aw * dw.exp(), ah * dh.exp()
    angle = ops.atan((at * (math.pi / 180)).tan() + dt) * (180 / math.pi)
    return ops.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2, angle], 1).to(input.dtype)


@row()
def npu_yolo_boxes_encode(input: Tensor, gt_bboxes: Tensor, stride: Tensor, performance_mode: bool) -> Tensor:
    """Where in its cell a box's centre lies, and the logarithms of its sizes by the anchor's."""
    eps = 1e-6
    (a, b, c, d), (e, f, g, h) = wide(input).unbind(-1), wide(gt_bboxes).unbind(-1)
    step = wide(stride)
    made = [((x - y) / 2 / step + 0.5).clamp(eps, 1 - eps) for x, y in ((e + g, a + c), (f + h, b + d))]
    made += [(x / y).clamp(min=eps).log() for x, y in ((g - e, c - a), (h - f, d - b))]
    return ops.stack(made, -1).to(input.dtype)


@row()
def npu_anchor_response_flags(input: Tensor, featmap_size: list[int], stride: list[int],
                              num_base_anchors: int) -> Tensor:
    """1 for every anchor of the cells in which the centre of a box lies."""
    height, width = featmap_size
    a, b, c, d = wide(input).unbind(-1)
    column, line = (((x + y) / 2 / s).floor().to(INT64) for x, y, s in ((a, c, stride[0]), (b, d, stride[1])))
    place = (line * width + column).clamp(0, height * width - 1)
    flags = ops.zeros([height * width], dtype=UINT8, device=input.device)
    flags[place] = 1
    return flags.repeat_interleave(num_base_anchors)


# ---- suppression ----------------------------------------------------------------------------------------------------
@row()
def npu_nms_v4(input: Tensor, scores: Tensor, max_output_size: float, iou_threshold: Tensor, scores_threshold: Tensor,
               pad_to_max_output_size: bool) -> tuple[Tensor, Tensor]:
    """The boxes of the best scores that overlap no better one much: their places, with zeros behind, and how many."""
    most, limit, least = int(max_output_size), float(iou_threshold), float(scores_threshold)
    order = ops.argsort(scores, descending=True, stable=True)
    overlap = iou(input, input, 0) > limit
    close, good = overlap[order][:, order].tolist(), (scores[order] > least).tolist()
    chosen: list[int] = []
    for i, enough in enumerate(good):
        if len(chosen) == most or not enough:
            break
        if not any(close[k][i] for k in chosen):
            chosen.append(i)
    places = order[chosen].to(INT32) if chosen else order[:0].to(INT32)
    return (ops.constant_pad_nd(places, [0, most - len(chosen)], 0),
            ops.full([], len(chosen), dtype=INT32, device=input.device))


# ---- pooled from inside boxes ---------------------------------------------------------------------------------------
def _bilinear(plane: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Items of planes (C, H, W) at places between them; nothing more than one item outside."""
    height, width = plane.shape[-2:]
    inside = (y > -1) & (y < height) & (x > -1) & (x < width)
    y, x = y.clamp(0, height - 1), x.clamp(0, width - 1)
    top, left = y.floor(), x.floor()
    low, right = (top + 1).clamp(max=height - 1), (left + 1).clamp(max=width - 1)
    fy, fx = y - top, x - left
    t, b, l, r = (v.to(INT64) for v in (top, low, left, right))
    made = (plane[:, t, l] * (1 - fy) * (1 - fx) + plane[:, t, r] * (1 - fy) * fx +
            plane[:, b, l] * fy * (1 - fx) + plane[:, b, r] * fy * fx)
    return made * inside


def _roi_align(input: Tensor, rois: Tensor, spatial_scale: float, height: int, width: int, sample_num: int,
               roi_end_mode: int) -> Tensor:
    """The mean of samples in each of height * width bins of every region (image, x0, y0, x1, y1)."""
    made = []
    for image, x0, y0, x1, y1 in wide(rois).tolist():
        x0, y0, x1, y1 = (v * spatial_scale for v in (x0, y0, x1, y1))
        if roi_end_mode == 1:
            x1, y1 = x1 + spatial_scale, y1 + spatial_scale
        elif roi_end_mode in (2, 3):
            x0, y0, x1, y1 = (v - 0.5 for v in (x0, y0, x1, y1))
        w, h = x1 - x0, y1 - y0
        if roi_end_mode != 2:
            w, h = max(w, 1.0), max(h, 1.0)
        ny, nx = (sample_num or math.ceil(size / bins) for size, bins in ((h, height), (w, width)))
        ys = y0 + (ops.arange(height * ny, device=input.device) + 0.5) * (h / height / ny)
        xs = x0 + (ops.arange(width * nx, device=input.device) + 0.5) * (w / width / nx)
        found = _bilinear(wide(input[int(image)]), ys.reshape(-1, 1).expand(-1, xs.numel()), xs.expand(ys.numel(), -1))
        made.append(found.reshape(-1, height, ny, width, nx).mean([2, 4]))
    shape = [0, input.size(1), height, width]
    return (ops.stack(made) if made else input.new_zeros(shape)).to(input.dtype)


@row()
def npu_roi_align(input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int,
                  sample_num: int, roi_end_mode: int) -> Tensor:
    """The mean of sample_num * sample_num places in each bin of every region (image, x0, y0, x1, y1)."""
    return _roi_align(input, rois, spatial_scale, pooled_height, pooled_width, sample_num, roi_end_mode)


@row()
def npu_roi_alignbk(input: Tensor, rois: Tensor, xdiff_shape: list[int], pooled_width: int, pooled_height: int,
                    spatial_scale: float, sample_num: int, roi_end_mode: int | None) -> Tensor:
    """The gradient of npu_roi_align of a tensor of that shape."""
    mode = 1 if roi_end_mode is None else roi_end_mode
    return grad_of(lambda x: _roi_align(x, rois, spatial_scale, pooled_height, pooled_width, sample_num, mode),
                   (input.new_zeros(xdiff_shape),), (input,))[0]


def _ps_roi(input: Tensor, rois: Tensor, spatial_scale: float, group_size: int, output_dim: int) -> Tensor:
    made = []
    height, width = input.shape[-2:]
    for image, x0, y0, x1, y1 in wide(rois).permute(0, 2, 1).reshape(-1, 5).tolist():
        x0, y0 = round(x0) * spatial_scale, round(y0) * spatial_scale
        x1, y1 = (round(x1) + 1) * spatial_scale, (round(y1) + 1) * spatial_scale
        bw, bh = max(x1 - x0, 0.1) / group_size, max(y1 - y0, 0.1) / group_size
        planes = wide(input[int(image)]).reshape(output_dim, group_size, group_size, height, width)
        bins = []
        for i in range(group_size):
            for j in range(group_size):
                top, low = (min(max(f(y0 + k * bh), 0), height) for f, k in ((math.floor, i), (math.ceil, i + 1)))
                left, right = (min(max(f(x0 + k * bw), 0), width) for f, k in ((math.floor, j), (math.ceil, j + 1)))
                part = planes[:, i, j, top:low, left:right]
                bins.append(part.mean([1, 2]) if low > top and right > left else planes[:, 0, 0, 0, 0] * 0)
        made.append(ops.stack(bins, 1).reshape(output_dim, group_size, group_size))
    return ops.stack(made).to(input.dtype)


@row()
def npu_ps_roi_pooling(input: Tensor, rois: Tensor, spatial_scale: float, group_size: int, output_dim: int) -> Tensor:
    """The mean of each bin of every region (batch, 5, regions), from planes of its own."""
    return _ps_roi(input, rois, spatial_scale, group_size, output_dim)


@row()
def npu_ps_roi_pooling_backward(output_grad: Tensor, rois: Tensor, spatial_scale: float, group_size: int,
                                output_dim: int, input_size: list[int]) -> Tensor:
    """The gradient of npu_ps_roi_pooling; input_size are the height and width of its planes."""
    shape = [rois.size(0), group_size * group_size * output_dim, input_size[0], input_size[1]]
    return grad_of(lambda x: _ps_roi(x, rois, spatial_scale, group_size, output_dim), (output_grad.new_zeros(shape),),
                   (output_grad,))[0]
