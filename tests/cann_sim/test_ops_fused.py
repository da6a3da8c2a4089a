"""Fused ops of networks against the formulas in torch: softmax with bias, feed-forward, regions, norms to int8."""

from __future__ import annotations

import functools
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from client import client, same
from torch import Tensor
from torch.nn import functional as F

INVALID, NO_KERNEL = 161002, 561003


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(11)


def close(got: Tensor, want: Tensor, tolerance: float = 1e-4) -> None:
    same(got, want, rtol=tolerance, atol=tolerance)


def test_rotary_by_a_matrix() -> None:
    x, cos, sin = torch.randn(2, 3, 4, 8), torch.rand(1, 3, 1, 8), torch.rand(1, 3, 1, 8)
    turn = torch.zeros(8, 8)
    for i in range(4):
        turn[i + 4, i], turn[i, i + 4] = -1, 1
    want = x * cos + (x @ turn) * sin
    close(client().call("aclnnRotaryPositionEmbeddingV2", x, cos, sin, 0, turn, torch.empty_like(x)), want)
    close(client().call("aclnnRotaryPositionEmbeddingV2", x, cos, sin, 0, None, torch.empty_like(x)), want)
    client().expect_code(INVALID, "aclnnRotaryPositionEmbeddingV2", x, cos, sin, 0, turn[:4], torch.empty_like(x))


def test_softmax_with_bias_of_places() -> None:
    x, mask, bias = torch.randn(4, 3, 2, 5, 5), torch.randn(3, 5, 5), torch.randn(2, 5, 5)
    want = (x * 0.5 + mask[None, :, None] + bias).softmax(-1)
    close(client().call("aclnnMaskedSoftmaxWithRelPosBias", x, mask, bias, 0.5, 0, torch.empty_like(x)), want)
    flat = x.flatten(0, 1)
    got = client().call("aclnnMaskedSoftmaxWithRelPosBias", flat, None, bias[None], 1.0, 0, torch.empty_like(flat))
    close(got, (flat + bias).softmax(-1))


def test_scaled_heads() -> None:
    qkv, bias = torch.randn(2, 5, 24), torch.randn(24)
    q, k, v = ((qkv + bias).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)[i] for i in range(3))
    made = client().call("aclnnTransformBiasRescaleQkv", qkv, bias, 2, *(torch.empty(2, 2, 5, 4) for _ in range(3)))
    for got, want in zip(made, (q / math.sqrt(4), k, v), strict=True):
        close(got, want)


def test_products_with_what_follows() -> None:
    a, b, bias, other = torch.randn(3, 4), torch.randn(4, 5), torch.randn(5), torch.randn(3, 5)
    after = {"": lambda y: y, "add": lambda y: y + other, "mul": lambda y: y * other, "relu": F.relu, "gelu_erf": F.gelu}
    for kind, follow in after.items():
        close(client().call("aclnnFusedMatmul", a, b, bias, other, kind, 0, torch.empty(3, 5)), follow(a @ b + bias))
    client().expect_code(INVALID, "aclnnFusedMatmul", a, b, bias, other, "tanh", 0, torch.empty(3, 5))
    x, y = torch.randn(4, 2, 3), torch.randn(2, 3, 5)
    got = client().call("aclnnTransposeBatchMatMul", x, y, None, None, [1, 0, 2], [0, 1, 2], [1, 0, 2], 0, 1, torch.empty(4, 2, 5))
    want = (x.transpose(0, 1) @ y).transpose(0, 1)
    close(got, want)
    scale = torch.rand(10) * 20
    bits = client().call("aclnnTransQuantParamV2", scale, None, torch.empty(10, dtype=torch.int64))
    arguments = x.half(), y.half(), None, bits, [1, 0, 2], [0, 1, 2], [1, 0, 2], 0, 1
    got = client().call("aclnnTransposeBatchMatMul", *arguments, torch.empty(4, 1, 10, dtype=torch.int8))
    near(got, torch.round(want * scale.reshape(2, 5)).clamp(-128, 127).reshape(4, 1, 10).to(torch.int8))
    close(client().call("aclnnTransposeBatchMatMul", *arguments, torch.empty(4, 1, 10)), (want * scale.reshape(2, 5)).reshape(4, 1, 10), 0.05)
    client().expect_code(INVALID, "aclnnTransposeBatchMatMul", x, y, None, bits[:5], *arguments[4:], torch.empty(4, 2, 5))


@pytest.mark.parametrize(("name", "function"), [("gelu", F.gelu), ("relu", F.relu), ("silu", F.silu)])
def test_feed_forward(name: str, function: Any) -> None:
    x, w1, w2, b1, b2 = torch.randn(3, 4), torch.randn(4, 6), torch.randn(6, 5), torch.randn(6), torch.randn(5)
    want = function(x @ w1 + b1) @ w2 + b2
    none: list[Any] = [None] * 8
    close(client().call("aclnnFFN", x, w1, w2, None, b1, b2, *none, name, 0, torch.empty(3, 5)), want)
    close(client().call("aclnnFFNV3", x, w1, w2, None, b1, b2, *none, name, 0, False, torch.empty(3, 5)), want)
    client().expect_code(INVALID, "aclnnFFN", x, w1, w2, [1, 2], b1, b2, *none, name, 0, torch.empty(3, 5))


@pytest.mark.parametrize(("name", "gate"), [("geglu", F.gelu), ("swiglu", F.silu), ("reglu", F.relu)])
def test_feed_forward_of_experts(name: str, gate: Any) -> None:
    x, w1, w2, b1, b2 = torch.randn(5, 4), torch.randn(2, 4, 6), torch.randn(2, 3, 5), torch.randn(2, 6), torch.randn(2, 5)
    layer = lambda rows, e: (lambda h: (gate(h[:, :3]) * h[:, 3:]) @ w2[e] + b2[e])(rows @ w1[e] + b1[e])
    want, none = torch.cat([layer(x[:2], 0), layer(x[2:], 1)]), [None] * 8
    ends, out = torch.tensor([2, 5]), lambda: torch.empty(5, 5)
    close(client().call("aclnnFFN", x, w1, w2, [2, 3], b1, b2, *none, name, 0, out()), want)
    close(client().call("aclnnFFNV2", x, w1, w2, [2, 5], b1, b2, *none, name, 0, True, out()), want)
    close(client().call("aclnnFFNV3", x, w1, w2, ends, b1, b2, *none, name, 0, True, out()), want)


def test_feed_forward_of_integers() -> None:
    x, w1, w2 = (torch.randint(-9, 9, size, dtype=torch.int8) for size in ((3, 4), (4, 6), (6, 5)))
    b1, b2 = torch.randint(-9, 9, (6,), dtype=torch.int32), torch.randint(-9, 9, (5,), dtype=torch.int32)
    scale, offset, first, second = torch.tensor([2.5]), torch.tensor([1.0]), torch.rand(6), torch.rand(5)
    between = (F.relu((x.float() @ w1.float() + b1) * first) * scale + offset).round().clamp(-128, 127)
    got = client().call("aclnnFFN", x, w1, w2, None, b1, b2, scale, offset, first, second, *[None] * 4, "relu", 0, torch.empty(3, 5))
    close(got, (between @ w2.float() + b2) * second)
    rows, shift1, shift2 = torch.randn(3, 4), torch.rand(6), torch.rand(5)
    want = F.gelu(rows @ ((w1 + shift1) * first)) @ ((w2 + shift2) * second)
    got = client().call("aclnnFFN", rows, w1, w2, *[None] * 7, first, second, shift1, shift2, "gelu", 0, torch.empty(3, 5))
    close(got, want, 1e-3)


def test_attention_by_parts() -> None:
    s, b, n, d = 3, 2, 2, 4
    scores, values = torch.randn(b, n, s, 10), torch.randn(b, n, 10, d)
    lanes = lambda x: x.expand(-1, -1, -1, 8).contiguous()
    laid = lambda x: x.permute(2, 0, 1, 3).flatten(2)

    def part(of: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        top = of.amax(-1, True)
        p = (of - top).exp()
        return laid(p / p.sum(-1, True) @ v).contiguous(), lanes(top), lanes(p.sum(-1, True))

    first, second = part(scores[..., :4], values[..., :4, :]), part(scores[..., 4:], values[..., 4:, :])
    want = part(scores, values)
    for version, layout in (("", ()), ("V2", ("SBH",))):
        made = client().call("aclnnRingAttentionUpdate" + version, *first, *second, None, "SBH", *layout, *(torch.empty_like(w) for w in want))
        for got, w in zip(made, want, strict=True):
            close(got, w)


def test_modulation_backward() -> None:
    x, scale, shift = (t.requires_grad_() for t in (torch.randn(2, 3, 4), torch.randn(2, 4), torch.randn(2, 4)))
    y = x * (1 + scale[:, None]) + shift[:, None]
    grad = torch.randn_like(y)
    want = torch.autograd.grad(y, (x, scale, shift), grad)
    made = client().call("aclnnModulateBackward", grad, x.detach(), scale.detach(), shift.detach(), *(torch.empty_like(w) for w in want))
    for got, w in zip(made, want, strict=True):
        close(got, w)


# ---- regions and boxes --------------------------------------------------------------------------------------------
def aligned(image: Tensor, boxes: Tensor, size: int, ratio: int, shift: float) -> Tensor:
    """Samples through grid_sample: inside the image both agree."""
    made = []
    for box in boxes:
        x1, y1, x2, y2 = (box[1:] * 0.5 - shift).tolist()
        steps = (torch.arange(size * ratio) + 0.5) / (size * ratio)
        ys, xs = y1 + steps * (y2 - y1), x1 + steps * (x2 - x1)
        h, w = image.shape[2:]
        grid = torch.stack(torch.meshgrid(2 * xs / (w - 1) - 1, 2 * ys / (h - 1) - 1, indexing="xy"), -1)
        got = F.grid_sample(image[int(box[0])][None], grid[None], align_corners=True)
        made.append(F.avg_pool2d(got, ratio)[0])
    return torch.stack(made)


@pytest.mark.parametrize("align", [True, False])
def test_roi_align(align: bool) -> None:
    image = torch.randn(2, 3, 9, 9, requires_grad=True)
    boxes = torch.tensor([[0.0, 3, 3, 12, 13], [1, 4, 5, 15, 14]])
    want = aligned(image, boxes, 2, 2, 0.5 if align else 0.0)
    close(client().call("aclnnRoiAlignV2", image.detach(), boxes, 2, 2, 0.5, 2, align, torch.empty(2, 3, 2, 2)), want.detach())
    grad = torch.randn_like(want)
    got = client().call("aclnnRoiAlignV2Backward", grad, boxes, [2, 3, 9, 9], 2, 2, 0.5, 2, align, torch.empty(2, 3, 9, 9))
    close(got, torch.autograd.grad(want, image, grad)[0])
    if not align:
        args = (boxes[:, 1:].contiguous(), boxes[:, 0].int(), "avg", 2, 2, 2, 0.5)
        close(client().call("aclnnRoiAlign", image.detach(), *args, torch.empty(2, 3, 2, 2)), want.detach())


def test_roi_align_with_ends() -> None:
    """The numbers are those of torch_npu's documentation; a gradient against the other form."""
    image = torch.arange(1.0, 37).view(1, 1, 6, 6)
    boxes = torch.tensor([[0.0, -2, -2, 22, 22]])
    want = torch.tensor([[[[4.5, 6.5, 8.5], [16.5, 18.5, 20.5], [28.5, 30.5, 32.5]]]])
    close(client().call("aclnnROIAlign", image, boxes, 0.25, 3, 3, 2, 0, torch.empty(1, 1, 3, 3)), want)
    shorter = boxes - torch.tensor([0.0, 0, 0, 1, 1])
    close(client().call("aclnnROIAlign", image, shorter, 0.25, 3, 3, 2, 1, torch.empty(1, 1, 3, 3)), want)
    grad = torch.randn(1, 1, 3, 3)
    got = client().call("aclnnROIAlignBackward", grad, boxes, [1, 1, 6, 6], 3, 3, 0.25, 2, 0, torch.empty(1, 1, 6, 6))
    close(got, client().call("aclnnRoiAlignV2Backward", grad, boxes, [1, 1, 6, 6], 3, 3, 0.25, 2, False, torch.empty(1, 1, 6, 6)))
    client().expect_code(INVALID, "aclnnROIAlign", image, boxes, 0.25, 3, 3, 2, 5, torch.empty(1, 1, 3, 3))


def test_quantised_groups_of_rows() -> None:
    x, scale, offset = torch.randn(5, 8), torch.rand(3, 8) * 20, torch.tensor([2.0])
    every = scale[[0, 0, 1, 2, 2]]
    want = torch.round(x * every + 2).clamp(-128, 127).to(torch.int8)
    near(client().call("aclnnGroupQuant", x, scale, torch.tensor([2, 3, 5]), offset, 2, torch.empty(5, 8, dtype=torch.int8)), want)


def test_iou() -> None:
    boxes, truths = torch.tensor([[0.0, 0, 2, 2], [1, 1, 3, 3]]), torch.tensor([[0.0, 0, 2, 2]])
    got = client().call("aclnnIou", boxes, truths, "iou", 0.0, False, torch.empty(1, 2))
    close(got, torch.tensor([[1.0, 1 / 7]]))
    close(client().call("aclnnIou", boxes, truths, "iof", 0.0, False, torch.empty(1, 2)), torch.tensor([[1.0, 0.25]]))


# ---- norms and activations to int8 ----------------------------------------------------------------------------------
def rows_of(y: Tensor) -> tuple[Tensor, Tensor]:
    scale = y.abs().amax(-1) / 127
    return torch.round(y / scale[..., None]).to(torch.int8), scale


def near(got: Tensor, want: Tensor) -> None:
    """A rounding may fall on the other side where the sums are not the same to the last bit."""
    assert got.dtype == want.dtype and int((got.int() - want.int()).abs().max()) <= 1


def test_added_and_normed() -> None:
    x1, x2, gamma, beta = torch.randn(3, 8), torch.randn(3, 8), torch.rand(8) + 0.5, torch.randn(8)
    x = x1 + x2
    rms = x * torch.rsqrt((x * x).mean(-1, True) + 1e-6) * gamma
    scale, zero = torch.rand(8) * 20 + 5, torch.randint(-3, 3, (8,), dtype=torch.int32)
    int8 = lambda: torch.empty(3, 8, dtype=torch.int8)
    for divides in (False, True):
        s = 1 / scale if divides else scale
        want = torch.round(rms * scale + zero).clamp(-128, 127).to(torch.int8)
        y1, _, added = client().call("aclnnAddRmsNormQuant", x1, x2, gamma, s, None, zero, None, -1, 1e-6, divides, int8(), int8(), torch.empty(3, 8))
        near(y1, want)
        close(added, x)
    h1, h2, g = x1.half(), x2.half(), gamma.half()
    hx = (h1 + h2).float()
    hrms = hx * torch.rsqrt((hx * hx).mean(-1, True) + 1e-6) * g.float()
    smooth = torch.rand(8).half()
    y1, y2, _, s1, s2 = client().call(
        "aclnnAddRmsNormDynamicQuant", h1, h2, g, None, smooth, 1e-6, int8(), int8(), torch.empty(3, 8).half(), torch.empty(3), torch.empty(3)
    )
    for got, found, of in ((y1, s1, hrms), (y2, s2, hrms * smooth.float())):
        near(got, rows_of(of)[0])
        close(found, rows_of(of)[1], 5e-3)
    y, s = client().call("aclnnRmsNormDynamicQuant", x, gamma, None, beta, 1e-6, 2, int8(), torch.empty(3))
    near(y, rows_of(x * torch.rsqrt((x * x).mean(-1, True) + 1e-6) * gamma + beta)[0])


def test_dynamic_quant_with_offsets() -> None:
    x = torch.randn(4, 16).half()
    wide = x.float()
    scale = (wide.amax(-1) - wide.amin(-1)) / 255
    offset = 127 - wide.amax(-1) / scale
    want = torch.round(wide / scale[:, None] + offset[:, None]).clamp(-128, 127).to(torch.int8)
    out = lambda: (torch.empty(4, 16, dtype=torch.int8), torch.empty(4), torch.empty(4))
    y, s, o = client().call("aclnnDynamicQuantV2", x, None, None, 2, *out())
    near(y, want)
    close(s, scale)
    close(o, offset, 1e-2)


def unpacked(words: torch.Tensor) -> torch.Tensor:
    """The eight int4 of every int32, the first in the lowest bits."""
    items = (words.long()[..., None] >> torch.arange(0, 32, 4)) & 15
    return (items - 16 * (items > 7)).flatten(-2)


def test_dynamic_quant_to_packed_int4() -> None:
    x = torch.randn(4, 16).half()
    wide = x.float()
    scale = (wide.amax(-1) - wide.amin(-1)) / 15
    offset = 7 - wide.amax(-1) / scale
    out = torch.empty(4, 2, dtype=torch.int32), torch.empty(4), torch.empty(4)
    y, s, o = client().call("aclnnDynamicQuantV2", x, None, None, 29, *out)
    near(unpacked(y), torch.round(wide / scale[:, None] + offset[:, None]).clamp(-8, 7).long())
    close(s, scale)
    close(o, offset, 1e-2)
    client().expect_code(INVALID, "aclnnDynamicQuantV2", x, None, None, 29, torch.empty(4, 16, dtype=torch.int32), *out[1:])
    y, s = client().call("aclnnAddRmsNormDynamicQuantV2", x, x, torch.ones(16).half(), None, None, None, 1e-6, None, out[0], None, None, torch.empty(4), None)
    normed = F.rms_norm(x.float() * 2, (16,), eps=1e-6)
    same(s, normed.abs().amax(-1) / 7, rtol=1e-2, atol=1e-4)
    assert (unpacked(y) - normed / s[:, None]).abs().max() <= 1


def test_dynamic_quant_in_groups() -> None:
    x, smooth, ends = torch.randn(5, 16).half(), torch.rand(2, 16).half() + 0.5, torch.tensor([2, 5], dtype=torch.int32)
    wide = x.float() * smooth.float()[[0, 0, 1, 1, 1]]
    y, scale = client().call("aclnnDynamicQuantV2", x, smooth, ends, 2, torch.empty(5, 16, dtype=torch.int8), torch.empty(5), None)[:2]
    near(y, rows_of(wide)[0])
    close(scale, rows_of(wide)[1])
    client().expect_code(INVALID, "aclnnDynamicQuantV2", x, smooth[0], ends, 2, torch.empty(5, 16, dtype=torch.int8), torch.empty(5), None)


def only_on_a_950() -> None:
    """Run by the test below in a process whose SoC has the kernels."""
    x1, x2, gamma, beta = torch.randn(3, 8), torch.randn(3, 8), torch.rand(8) + 0.5, torch.randn(8)
    normed = rows_of(F.layer_norm(x1 + x2, (8,), gamma, beta, 1e-5))
    out = torch.empty(3, 8, dtype=torch.int8), None, torch.empty(3, 8), torch.empty(3), None
    made = client().call("aclnnAddLayerNormQuant", x1, x2, gamma, beta, *[None] * 5, "dynamic", 1e-5, False, True, *out)
    near(made[0], normed[0])
    close(made[2], normed[1])
    x = torch.randn(4, 16).half()
    outs = torch.empty(4, 16, dtype=torch.int8), torch.empty(4), torch.empty(4)
    near(client().call("aclnnDynamicQuantV3", x, None, None, 2, True, "pertoken", *outs)[0], rows_of(x.float())[0])
    causal_convolutions()


def causal_convolutions() -> None:
    dim, taps, state = 8, 3, 4
    weight, states = torch.randn(taps, dim).half(), torch.randn(5, state, dim).half()
    i32 = functools.partial(torch.tensor, dtype=torch.int32)
    x, starts, lines = torch.randn(9, dim).half(), i32([0, 2, 5, 9]), i32([3, -1, 0])
    computed, accepted = i32([0, 7, 7]), i32([1, 1, 2])
    for told in (None, accepted):
        want, kept = torch.zeros(9, dim), states.clone()
        for b, line in ((0, 3), (2, 0)):
            part = x[starts[b] : starts[b + 1]].float()
            skip = 0 if not b else int(told[b]) - 1 if told is not None else state - taps + 1
            head = torch.zeros(taps - 1, dim) if not b else states[line, : skip + taps - 1].float()
            rows = torch.cat((head, part))
            want[starts[b] : starts[b + 1]] = sum(weight[k].float() * rows[skip + k : skip + k + len(part)] for k in range(taps)) + part
            n = min(state, len(rows))
            kept[line, state - n :] = rows[-n:].half()
        got = client().call("aclnnFusedCausalConv1d", x, weight, states.clone(), starts, lines, None, None, told, computed, *[None] * 3,
                            0, -1, 0, -1, 1, 128, 0, torch.zeros(9, dim).half())  # fmt: skip
        torch.testing.assert_close(got[0], kept)
        torch.testing.assert_close(got[1].float(), want, rtol=1e-2, atol=1e-2)


def test_ops_that_one_generation_has() -> None:
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import test_ops_fused; test_ops_fused.only_on_a_950()"
    subprocess.run([sys.executable, "-c", code], env=os.environ | {"CANN_SIM_SOC": "Ascend910_95"}, check=True)


def test_swiglu_to_int8() -> None:
    x = torch.randn(3, 16)
    want, scale = rows_of(x[:, :8] * F.silu(x[:, 8:]))
    y, s = client().call("aclnnSwiGluQuant", x, None, None, None, False, "dynamic", torch.empty(3, 8, dtype=torch.int8), torch.empty(3))
    near(y, want)
    close(s, 1 / scale)  # what was multiplied with
    client().expect_code(INVALID, "aclnnSwiGluQuant", x, None, None, None, False, "static", torch.empty(3, 8, dtype=torch.int8), torch.empty(3))


# ---- indices ----------------------------------------------------------------------------------------------------------
def test_quantised_updates() -> None:
    data = torch.zeros(2, 6, 8, dtype=torch.int8)
    updates, scales, zero = torch.randn(2, 2, 8).half(), torch.rand(1, 1, 8) * 0.1 + 0.01, torch.randint(-3, 3, (1, 1, 8), dtype=torch.int32)
    want = data.clone()
    q = torch.round(updates.float() / scales + zero).clamp(-128, 127).to(torch.int8)
    want[0, 1:3], want[1, 4:6] = q[0], q[1]
    near(client().call("aclnnInplaceQuantScatter", data, torch.tensor([1, 4]), updates, scales, zero, -2, -1, 1), want)
    four = [t[:, None] for t in (data, updates, scales, zero)]
    near(client().call("aclnnInplaceQuantScatter", four[0], torch.tensor([1, 4]), *four[1:], -2, -1, 1), want[:, None])


def test_a_negative_index_counts_from_the_end() -> None:
    x, index = torch.randn(3, 4), torch.tensor([[-1, 0], [2, -4], [1, 1]])
    same(client().call("aclnnGather", x, 1, index, torch.empty(3, 2)), x.gather(1, index % 4))
