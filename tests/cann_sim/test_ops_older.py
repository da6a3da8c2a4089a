"""Ops of the older interface (aclopCompileAndExecute) against torch: operands on the device and on the host, attributes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from client import CannError, client, same
from older import Older
from torch import Tensor
from torch.nn import functional as F

X, Y = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)), torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
IMAGE, KERNEL = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(2)), torch.randn(4, 3, 3, 3)
CASES: list[tuple[str, list[Any], dict[str, Any], list[Tensor]]] = [
    ("Add", [X, Y], {}, [X + Y]), ("Sub", [X, Y], {}, [X - Y]), ("Mul", [X, Y], {}, [X * Y]), ("Relu", [X], {}, [X.relu()]),
    ("Abs", [X], {}, [X.abs()]), ("Mish", [X], {}, [F.mish(X)]), ("Cast", [X], {"dst_type": 1}, [X.half()]),
    ("Swish", [X], {"scale": 1.5}, [X * torch.sigmoid(1.5 * X)]),
    ("Addcmul", [X, Y, X, torch.tensor([2.0])], {}, [X + 2 * Y * X]),
    ("Fill", [[2, 3], torch.tensor([7.0])], {}, [torch.full((2, 3), 7.0)]),
    ("BroadcastTo", [X[:1], [3, 4]], {}, [X[:1].expand(3, 4).contiguous()]),
    ("Transpose", [X, [1, 0]], {}, [X.t().contiguous()]),
    ("Slice", [X, [1, 0], [2, 3]], {}, [X[1:3, :3].contiguous()]),
    ("StridedSlice", [X, [0, 1], [3, 4], [2, 2]], {}, [X[::2, 1::2].contiguous()]),
    ("StridedSlice", [X, [1, 1], [2, 3], [1, 1]], {"shrink_axis_mask": 1, "end_mask": 2}, [X[1, 1:].contiguous()]),
    ("Pad", [X, [[1, 0], [0, 2]]], {}, [F.pad(X, (0, 2, 1, 0))]),
    ("ArgMaxWithValue", [X], {"dimension": 1, "keep_dims": True}, [X.argmax(1, True).int(), X.amax(1, True)]),
    ("ArgMinWithValue", [X], {"dimension": 0, "keep_dims": False}, [X.argmin(0).int(), X.amin(0)]),
    ("LpNormReduceV2", [X], {"p": 3.0, "axes": [1], "keepdim": False}, [X.abs().pow(3).sum(1)]),
    ("LpNormV2", [X], {"p": 3.0, "axes": [1], "keepdim": False}, [X.norm(3, 1)]),
    ("MatMulV2", [X, Y], {"transpose_x1": False, "transpose_x2": True}, [X @ Y.t()]),
    ("BatchMatMul", [X[None], Y[None]], {"adj_x1": True}, [X[None].mT @ Y[None]]),
    ("Conv2D", [IMAGE, KERNEL], {"strides": [1, 1, 2, 2], "pads": [1, 1, 1, 1], "dilations": [1, 1, 1, 1]}, [F.conv2d(IMAGE, KERNEL, None, 2, 1)]),
    ("NPUAllocFloatStatus", [], {}, [torch.zeros(8)]),
]  # fmt: skip


@pytest.mark.parametrize(("op", "inputs", "attributes", "wanted"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_an_op(older: Older, op: str, inputs: list[Any], attributes: dict[str, Any], wanted: list[Tensor]) -> None:
    for got, want in zip(older(op, inputs, [torch.full_like(w, 3) for w in wanted], **attributes), wanted, strict=True):
        same(got, want, rtol=1e-4, atol=1e-5)


def test_soft_labels(older: Older) -> None:
    labels = Y.softmax(-1)
    leaf = X.clone().requires_grad_()
    loss = F.cross_entropy(leaf, labels, reduction="none")
    got = older("SoftmaxCrossEntropyWithLogits", [X, labels], [torch.empty(3), torch.empty(3, 4)])
    same(got[0], loss.detach())
    same(got[1], torch.autograd.grad(loss.sum(), leaf)[0])


def test_dropout_by_a_mask_of_bits(older: Older) -> None:
    x, keep = torch.ones(512), torch.tensor([0.75])
    mask = older("DropOutGenMaskV3", [[512], keep], [torch.zeros(64, dtype=torch.uint8)], seed=3, seed2=4)[0]
    bits = (mask[:, None] >> torch.arange(8)) & 1
    assert 330 < int(bits.sum()) < 440
    same(older("DropOutDoMask", [x, mask, keep], [torch.empty(512)])[0], bits.flatten() / 0.75)


def test_overlaps_and_offsets_of_boxes(older: Older) -> None:
    """The numbers are those of torch_npu's documentation."""
    boxes = torch.tensor([[0.0, 0, 10, 10], [10, 10, 20, 20], [32, 32, 38, 42]])
    truths = torch.tensor([[0.0, 0, 10, 20], [0, 10, 10, 10], [10, 10, 20, 20]])
    halves = [boxes.half(), truths.half()], [torch.empty(3, 3).half()]
    same(older("Iou", *halves, mode="iou", eps=0.01)[0], torch.tensor([[0.4985, 0, 0], [0, 0, 0], [0, 0.9961, 0]]).half(), rtol=1e-4, atol=1e-4)
    same(older("Iou", [boxes, truths], [torch.empty(3, 3)], mode="iou")[0], torch.tensor([[0.5, 0, 0], [0, 0, 0], [0, 1.0, 0]]))
    rois, deltas = torch.tensor([[1.0, 2, 3, 4], [3, 4, 5, 6]]), torch.tensor([[5.0, 6, 7, 8], [7, 8, 9, 6]])
    scaling = {"means": [0.0] * 4, "stds": [1.0] * 4}
    got = older("BoundingBoxDecode", [rois, deltas], [torch.empty(2, 4)], **scaling, max_shape=[10, 10], wh_ratio_clip=0.1)[0]
    same(got, torch.tensor([[2.5, 6.5, 9, 9], [9, 9, 9, 9]]), rtol=1e-4, atol=1e-4)
    got = older("BoundingBoxEncode", [rois, deltas], [torch.empty(2, 4)], means=[0.0] * 4, stds=[0.1, 0.1, 0.2, 0.2])[0]
    same(got, torch.tensor([[13.3281, 13.3281, 0, 0], [13.3281, 6.6641, 0, -5.4922]]), rtol=1e-5, atol=1e-4)
    a, b = torch.rand(4, 5), torch.rand(4, 5)
    ends = lambda v: torch.stack([v[0] - v[2] / 2, v[1] - v[3] / 2, v[0] + v[2] / 2, v[1] + v[3] / 2])
    p, q = ends(a), ends(b)
    low, high = torch.maximum(p[:2], q[:2]), torch.minimum(p[2:], q[2:])
    common = (high - low).clamp(min=0).prod(0)
    union = a[2] * a[3] + b[2] * b[3] - common
    hull = (torch.maximum(p[2:], q[2:]) - torch.minimum(p[:2], q[:2])).prod(0)
    got = older("GIoU", [a, b], [torch.empty(1, 5)], trans=True, is_cross=False, mode="iou")[0]
    same(got[0], common / union - (hull - union) / hull, rtol=1e-4, atol=1e-4)


def test_what_is_refused(older: Older) -> None:
    with pytest.raises(CannError, match=r"NoSuchOp: not one of the ops.*2 inputs of data type 0 \[.*1 outputs.*attributes axis=1"):
        older("NoSuchOp", [X, Y], [X.clone()], axis=1)
    with pytest.raises(CannError, match="Add: expected 2 to 2 inputs, got 1"):
        older("Add", [X], [X.clone()])
    with pytest.raises(CannError, match="Relu: expected 1 outputs, got 2"):
        older("Relu", [X], [X.clone(), X.clone()])


def test_what_only_shows_while_it_runs_leaves_the_device_sound(older: Older) -> None:
    with pytest.raises(CannError, match="500002.*StridedSlice: the output must be of the slice's shape"):
        older("StridedSlice", [X, [0, 0], [2, 2], [1, 1]], [torch.empty(3, 3)])
    same(older("Add", [X, Y], [torch.empty(3, 4)])[0], X + Y)
    client().must("aclrtSetStreamFailureMode", client().stream, 1)  # stop at the first failure: this is none of the device
    with pytest.raises(CannError, match="500002"):
        older("StridedSlice", [X, [0, 0], [2, 2], [1, 1]], [torch.empty(3, 3)])
    same(older("Add", [X, Y], [torch.empty(3, 4)])[0], X + Y)


def test_transposed_convolution_norm_and_replaced_items(older: Older) -> None:
    x, w, b = torch.randn(2, 3, 5, 5), torch.randn(3, 4, 3, 3), torch.randn(4)
    want = F.conv_transpose2d(x, w, b, 2, 1, 1)
    attributes = {"strides": [1, 1, 2, 2], "pads": [1, 1, 1, 1], "dilations": [1, 1, 1, 1], "output_padding": [0, 0, 1, 1]}
    same(older("Conv2DTranspose", [list(want.shape), x, w, b], [torch.empty_like(want)], **attributes)[0], want, rtol=1e-4, atol=1e-4)
    gamma, beta = torch.rand(4), torch.randn(4)
    got = older("LayerNormV3", [X, gamma, beta], [torch.empty(3, 4), torch.empty(3, 1), torch.empty(3, 1)], begin_norm_axis=1, epsilon=1e-5)
    for g, want in zip(got, torch.native_layer_norm(X, (4,), gamma, beta, 1e-5), strict=True):
        same(g, want, rtol=1e-4, atol=1e-5)
    got = older("ArgMaxGrad", [X, torch.tensor([2, 0, 1, 1], dtype=torch.int32), torch.arange(4.0)], [torch.empty(3, 4)], dimension=0)
    same(got[0], X.scatter(0, torch.tensor([[2, 0, 1, 1]]), torch.arange(4.0)[None]))


def test_signs_and_anchors(older: Older) -> None:
    """The packed numbers are those of torch_npu's documentation."""
    x = torch.tensor([5.0, 4, 3, 2, 0, -1, -2, 4, 3, 2, 1, 0, -1, -2])
    bits = older("SignBitsPack", [x], [torch.zeros(2, 1, dtype=torch.uint8)], size=2)[0]
    same(bits, torch.tensor([[159], [15]], dtype=torch.uint8))
    got = older("SignBitsUnpack", [bits.flatten()], [torch.empty(1, 16)], size=1)[0]
    same(got[0, :14], torch.where(x >= 0, 1.0, -1.0))
    same(client().call("aclnnSignBitsPack", x, 2, torch.zeros(2, 1, dtype=torch.uint8)), bits)
    flags = older("AnchorResponseFlags", [torch.tensor([[2.0, 4, 6, 8]])], [torch.empty(18, dtype=torch.uint8)], featmap_size=[3, 3], strides=[4, 4], num_base_anchors=2)[0]
    assert flags.nonzero().flatten().tolist() == [8, 9]
    anchors, truths = torch.tensor([[0.0, 0, 4, 4]]), torch.tensor([[1.0, 1, 5, 9]])
    got = older("YoloBoxesEncode", [anchors, truths, torch.tensor([8], dtype=torch.int32)], [torch.empty(1, 4)])[0]
    same(got, torch.tensor([[0.625, 0.875, 0.0, 0.6931]]), rtol=1e-4, atol=1e-4)


def test_views_by_strides(older: Older) -> None:
    x = torch.arange(24.0)
    i64 = torch.int64
    sizes, strides, offset = torch.tensor([2, 3], dtype=i64), torch.tensor([8, 2], dtype=i64), torch.tensor([1], dtype=i64)
    want = x.as_strided((2, 3), (8, 2), 1)
    same(older("AsStrided", [x, sizes, strides, offset], [torch.empty(2, 3)])[0], want)
    to, dense = torch.zeros(4, 6), torch.tensor([3, 1], dtype=i64)
    made = older("ViewCopy", [to, sizes, torch.tensor([6, 2], dtype=i64), offset, torch.arange(6.0), sizes, dense, torch.tensor([0], dtype=i64)],
                   [to])[0]
    expected = to.clone()
    expected.as_strided((2, 3), (6, 2), 1).copy_(torch.arange(6.0).view(2, 3))
    written = torch.zeros(24, dtype=torch.bool)
    written.as_strided((2, 3), (6, 2), 1).fill_(True)
    same(made.flatten()[written], expected.flatten()[written])


def test_transposed_and_reshaped(older: Older) -> None:
    x = torch.randn(2, 3, 4)
    same(older("ConfusionTransposeD", [x], [torch.empty(12, 2)], perm=[1, 2, 0], shape=[12, 2], transpose_first=True)[0],
         x.permute(1, 2, 0).reshape(12, 2))
    same(older("ConfusionTransposeD", [x], [torch.empty(4, 6)], perm=[1, 0], shape=[6, 4], transpose_first=False)[0],
         x.reshape(6, 4).permute(1, 0))
    with pytest.raises(CannError, match="another number of items"):
        older("ConfusionTransposeD", [x], [torch.empty(12, 2)], perm=[1, 2, 0], shape=[12, 3], transpose_first=True)


def test_sorting_and_one_hot(older: Older) -> None:
    x = torch.randn(3, 5)
    for axis in (0, 1):
        same(older("SortV2", [x], [torch.empty(3, 5)], axis=axis, descending=True)[0], x.sort(axis, descending=True).values)
    index = torch.tensor([2, 0, 7], dtype=torch.int32)
    got = older("OneHotD", [index, torch.tensor(3.0), torch.tensor(-1.0)], [torch.empty(3, 4)], axis=-1, depth=4)[0]
    same(got, torch.tensor([[-1.0, -1, 3, -1], [3, -1, -1, -1], [-1, -1, -1, -1]]))


@pytest.mark.parametrize("triangle", [False, True])
def test_masked_softmax_and_its_gradient(older: Older, triangle: bool) -> None:
    x, mask = torch.randn(2, 1, 3, 4, requires_grad=True), torch.rand(2, 1, 3, 4) > 0.6
    hides = torch.ones(3, 4).triu(1).bool() if triangle else mask
    y = (x * 0.5).masked_fill(hides, -10000).softmax(-1)
    same(older("ScaledMaskedSoftmax", [x.detach(), mask], [torch.empty(2, 1, 3, 4)], scale=0.5, fixed_triu_mask=triangle)[0], y.detach())
    grad = torch.randn_like(y)
    y.backward(grad)
    got = older("ScaledMaskedSoftmaxGrad", [grad, y.detach(), mask], [torch.empty(2, 1, 3, 4)], scale=0.5, fixed_triu_mask=triangle)[0]
    assert x.grad is not None
    same(got, x.grad, rtol=1e-4, atol=1e-5)


def test_slopes_and_byte_masks(older: Older) -> None:
    x, grad = torch.randn(5, requires_grad=True), torch.randn(5)
    F.mish(x).backward(grad)
    assert x.grad is not None
    same(older("MishGrad", [grad, x.detach()], [torch.empty(5)])[0], x.grad, rtol=1e-4, atol=1e-5)
    mask = torch.tensor([1, 0, 1, 1, 0], dtype=torch.uint8)
    same(older("DropOutDoMaskV3", [grad, mask, torch.tensor(0.8)], [torch.empty(5)])[0], grad * mask / 0.8)


def test_the_float_status(older: Older) -> None:
    """In saturation mode an op with a result that is not finite sets it; the op that clears it does."""
    def status() -> Tensor:
        return older("NPUGetFloatStatusV2", [], [torch.ones(8)])[0]

    client().must("aclrtSetDeviceSatMode", 0)
    try:
        same(status(), torch.zeros(8))
        client().call("aclnnDiv", torch.ones(2), torch.tensor([1.0, 0.0]), torch.empty(2))
        assert status()[0] != 0
        older("NPUClearFloatStatusV2", [], [])
        same(status(), torch.zeros(8))
    finally:
        client().must("aclrtSetDeviceSatMode", 1)


def test_steps_of_adam(older: Older) -> None:
    var, m, v, g = torch.randn(4), torch.randn(4), torch.rand(4), torch.randn(4)
    number = torch.tensor
    new_m, new_v = m * 0.9 + g * 0.1, v * 0.99 + g * g * 0.01
    for nesterov in (False, True):
        ahead = new_m * 0.9 + g * 0.1 if nesterov else new_m
        want = var - 0.01 * (1 - 0.98) ** 0.5 / (1 - 0.81) * ahead / (new_v.sqrt() + 1e-6)
        args = [var, m, v, *map(number, (0.81, 0.98, 0.01, 0.9, 0.99, 1e-6)), g]
        got = older("ApplyAdamD", args, [var.clone(), m.clone(), v.clone()], use_locking=False, use_nesterov=nesterov)
        for a, b in zip(got, (want, new_m, new_v)):
            same(a, b, rtol=1e-4, atol=1e-5)
    small = g / 2                                        # its norm is twice what is allowed
    new_m, new_v = m * 0.9 + small * 0.1, v * 0.99 + small * small * 0.01
    args = [var, m, v, *map(number, (0.01, 0.9, 0.99, 1e-6)), g, *map(number, (1.0, 2.0, 0.1))]
    got = older("ApplyAdamV2", args, [var.clone(), m.clone(), v.clone()], adam_mode="adam")
    for a, b in zip(got, (var - 0.01 * (new_m / (new_v.sqrt() + 1e-6) + 0.1 * var), new_m, new_v)):
        same(a, b, rtol=1e-4, atol=1e-5)
