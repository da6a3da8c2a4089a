"""torch_npu.contrib.function: boxes, coding of boxes, and small fusions, with torch_npu's parameters."""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import mindtorch_v2 as torch

_npu = torch.ops.npu
Tensor = torch.Tensor

__all__ = ["npu_iou", "npu_ptiou", "npu_giou", "npu_diou", "npu_ciou", "npu_single_level_responsible_flags",
           "npu_bbox_coder_encode_yolo", "npu_bbox_coder_encode_xyxy2xywh", "npu_bbox_coder_decode_xywh2xyxy",
           "npu_fast_condition_index_put", "fuse_add_softmax_dropout", "roll", "matmul_transpose", "dropout_with_byte_mask"]


def npu_iou(boxes1: Tensor, boxes2: Tensor, mode: str = "ptiou", is_normalized: bool = False,
            normalized_scale: float = 100.0) -> Tensor:
    """Overlap of all boxes with all others, (N, M); in ptiou mode boxes may be of normalised coordinates, scaled up first."""
    if mode not in ("iou", "ptiou"):
        raise ValueError("Expected mode in [iou, ptiou]")
    scale = normalized_scale if is_normalized else 1.0
    return _npu.npu_iou(boxes2.float() * scale, boxes1.float() * scale)


npu_ptiou = npu_iou


def npu_giou(boxes1: Tensor, boxes2: Tensor, is_permuted: bool = True) -> Tensor:
    """Generalised overlap of boxes (N, 4) of centre and size one by one, (N, 1); without is_permuted they are (4, N)."""
    if boxes1.shape != boxes2.shape:
        raise ValueError("Expected boxes1.shape == boxes2.shape")
    if is_permuted:
        boxes1, boxes2 = boxes1.t(), boxes2.t()
    return _npu.npu_giou(boxes1.float(), boxes2.float(), True, False)


def npu_diou(boxes1: Tensor, boxes2: Tensor, trans: bool = True, is_cross: bool = False, mode: int = 0) -> Tensor:
    """Overlap less the distance of the centres, of boxes (4, N)."""
    return _npu.npu_diou(boxes1, boxes2, trans, is_cross, mode)


def npu_ciou(boxes1: Tensor, boxes2: Tensor, trans: bool = True, is_cross: bool = False, mode: int = 0) -> Tensor:
    """Overlap less the distance of the centres and the difference in shape, of boxes (4, N)."""
    return _npu.npu_ciou(boxes1, boxes2, trans, is_cross, mode, True)


def npu_single_level_responsible_flags(featmap_size: Sequence[int], gt_bboxes: Tensor, stride: Sequence[int],
                                       num_base_anchors: int) -> Tensor:
    """1 for every anchor of the cells in which the centre of a box lies."""
    return _npu.npu_anchor_response_flags(gt_bboxes.float(), featmap_size, stride, num_base_anchors)


def _check_boxes(boxes: Tensor, others: Tensor, other: str) -> None:
    if boxes.size(0) != others.size(0):
        raise ValueError(f"Expected bboxes.size(0) == {other}.size(0)")
    if not boxes.size(-1) == others.size(-1) == 4:
        raise ValueError(f"Expected bboxes.size(-1) == {other}.size(-1) == 4")


def npu_bbox_coder_encode_yolo(bboxes: Tensor, gt_bboxes: Tensor, stride: Tensor) -> Tensor:
    """Where in its cell a box's centre lies, and the logarithms of its sizes by the anchor's."""
    _check_boxes(bboxes, gt_bboxes, "gt_bboxes")
    return _npu.npu_yolo_boxes_encode(bboxes.float(), gt_bboxes.float(), stride.int(), False)


def npu_bbox_coder_encode_xyxy2xywh(bboxes: Tensor, gt_bboxes: Tensor, means: Sequence[float] | None = None,
                                    stds: Sequence[float] | None = None, is_normalized: bool = False,
                                    normalized_scale: float = 10000.0) -> Tensor:
    """How far boxes are from anchors, in widths and heights and their logarithms."""
    _check_boxes(bboxes, gt_bboxes, "gt_bboxes")
    scale = normalized_scale if is_normalized else 1.0
    return _npu.npu_bounding_box_encode(bboxes.float() * scale, gt_bboxes.float() * scale, *(means or [0.0] * 4),
                                        *(stds or [1.0] * 4))


def npu_bbox_coder_decode_xywh2xyxy(bboxes: Tensor, pred_bboxes: Tensor, means: Sequence[float] | None = None,
                                    stds: Sequence[float] | None = None, max_shape: Sequence[int] | None = None,
                                    wh_ratio_clip: float = 16 / 1000) -> Tensor:
    """The boxes that such numbers mean, within an image of (height, width)."""
    _check_boxes(bboxes, pred_bboxes, "pred_bboxes")
    return _npu.npu_bounding_box_decode(bboxes.float(), pred_bboxes.float(), *(means or [0.0] * 4), *(stds or [1.0] * 4),
                                        max_shape or [9999, 9999], wh_ratio_clip)


def npu_fast_condition_index_put(x: Tensor, condition: Tensor, value: Any) -> Tensor:
    """x with a number where the condition holds."""
    if condition.dtype is not torch.bool:
        raise TypeError("Expected condition.dtype in [torch.bool]")
    return torch.where(condition, torch.full_like(x, value), x)


def fuse_add_softmax_dropout(training: bool, dropout: Callable[[Tensor], Tensor], attn_mask: Tensor, attn_scores: Tensor,
                             attn_head_size: int, p: float = 0.5, dim: int = -1) -> Tensor:
    """dropout(softmax(mask + scores / sqrt(head size)))."""
    return dropout(torch.softmax(torch.add(attn_mask, attn_scores, alpha=1 / math.sqrt(attn_head_size)), dim))


def roll(x: Tensor, shifts: Sequence[int], dims: Sequence[int]) -> Tensor:
    """torch.roll of (batch, height, width, channels) along two dims."""
    if x.dim() != 4 or len(shifts) != 2 or len(dims) != 2:
        raise ValueError("Expected x.dim() == 4, len(shifts) == 2 and len(dims) == 2")
    return torch.roll(x, list(shifts), list(dims))


def matmul_transpose(tensor1: Tensor, tensor2: Tensor) -> Tensor:
    """tensor1 @ tensor2^T."""
    return torch.matmul(tensor1, tensor2.transpose(-2, -1))


def dropout_with_byte_mask(input1: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """dropout, with a mask of a byte an item."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if inplace:
        raise ValueError("dropout probability has no-inplace computing.")
    return _npu.dropout_with_byte_mask(input1, p, training)
