"""Layers of networks by the older interface against torch: recurrent ones, convolutions, attention, and their gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from client import CannError, same
from older import Older
from torch import Tensor
from torch.nn import functional as F

STEPS, BATCH, INPUTS, WIDTH = 4, 3, 5, 6


def close(got: Tensor, want: Tensor, tolerance: float = 1e-4) -> None:
    same(got, want.detach(), rtol=tolerance, atol=tolerance)


def gradients(outputs: Any, weights: Any, of: Any) -> tuple[Tensor, ...]:
    return torch.autograd.grad(sum((o * w).sum() for o, w in zip(outputs, weights, strict=True)), of)


# ---- recurrent -------------------------------------------------------------------------------------------------------
SAVED = (STEPS, BATCH, WIDTH)


def lstm_net() -> tuple[torch.nn.LSTM, Tensor, list[Tensor], list[Tensor]]:
    """A net, its input, its weights as CANN has them ([inputs, gates]), and first states."""
    net = torch.nn.LSTM(INPUTS, WIDTH)
    x, states = torch.randn(STEPS, BATCH, INPUTS, requires_grad=True), [torch.randn(1, BATCH, WIDTH, requires_grad=True) for _ in "hc"]
    return net, x, [net.weight_ih_l0.t().detach(), net.weight_hh_l0.t().detach()], states


@pytest.mark.parametrize("apart", [False, True])
def test_lstm(older: Older, apart: bool) -> None:
    net, x, (wi, wh), states = lstm_net()
    y, last = net(x, tuple(states))
    bias = (net.bias_ih_l0 + net.bias_hh_l0).detach()
    raw = [x.detach(), *(s.detach() for s in states)]
    weight = [wi, wh] if apart else [torch.cat([wi, wh])]
    got = older("DynamicRNNV2" if apart else "DynamicRNN", [raw[0], *weight, bias, None, *raw[1:]],
                [torch.empty(SAVED) for _ in range(8)], gate_order="ifjo", direction="UNIDIRECTIONAL", cell_type="LSTM")
    close(got[0], y)
    close(got[1][-1], last[0][0])
    close(got[2][-1], last[1][0])

    dy, dh, dc = torch.randn(SAVED), torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH)
    of = [net.weight_ih_l0, net.weight_hh_l0, net.bias_ih_l0, x, *states]
    want = gradients((y, last[0][0], last[1][0]), (dy, dh, dc), of)
    kept = [got[0], raw[1][0], raw[2][0], got[1], got[2], dy, dh, dc, *got[3:], torch.zeros(())]
    rest = [torch.zeros(3, 4)] * 4
    results = [torch.empty_like(t) for t in (*weight, bias, raw[0], raw[1][0], raw[2][0])]
    second = weight[1] if apart else bias
    back = older("DynamicRNNV2Grad" if apart else "DynamicRNNGrad", [raw[0], weight[0], second, *kept, *rest], results, gate_order="ifjo")
    weights = [want[0].t(), want[1].t()] if apart else [torch.cat([want[0].t(), want[1].t()])]
    for g, w in zip(back, [*weights, want[2], want[3], want[4][0], want[5][0]], strict=True):
        close(g, w)


def test_lstm_with_a_mask_backwards_and_in_another_order_of_gates(older: Older) -> None:
    """A sequence keeps its state over the steps that it does not have."""
    net, x, (wi, wh), states = lstm_net()
    lengths = torch.tensor([4, 3, 1])
    packed = torch.nn.utils.rnn.pack_padded_sequence(x.detach(), lengths)
    turned = torch.nn.LSTM(INPUTS, WIDTH, bidirectional=True)
    for name, p in net.named_parameters():
        getattr(turned, name + "_reverse").data.copy_(p)
    y, (h, _) = turned(packed, tuple(torch.cat([s, s]).detach() for s in states))
    y = torch.nn.utils.rnn.pad_packed_sequence(y)[0][..., WIDTH:]
    order = torch.tensor([0, 2, 1, 3])
    ijfo = lambda w: w.unflatten(-1, (4, WIDTH))[..., order, :].flatten(-2)
    mask = (torch.arange(STEPS)[:, None] < lengths)[..., None].expand(SAVED).half()
    inputs = [x.detach(), ijfo(torch.cat([wi, wh])), ijfo((net.bias_ih_l0 + net.bias_hh_l0).detach()), mask, *(s.detach() for s in states)]
    got = older("DynamicRNN", inputs, [torch.empty(SAVED) for _ in range(8)], gate_order="ijfo", direction="REDIRECTIONAL")
    close(got[0], y)
    close(got[1][0], h[1])
    with pytest.raises(CannError, match="use_peephole"):
        older("DynamicRNN", inputs, [torch.empty(SAVED) for _ in range(8)], use_peephole=True)


def test_gru(older: Older) -> None:
    net = torch.nn.GRU(INPUTS, WIDTH)
    x, first = torch.randn(STEPS, BATCH, INPUTS, requires_grad=True), torch.randn(1, BATCH, WIDTH, requires_grad=True)
    y, last = net(x, first)
    weights = [w.detach() for w in (net.weight_ih_l0.t(), net.weight_hh_l0.t(), net.bias_ih_l0, net.bias_hh_l0)]
    got = older("DynamicGRUV2", [x.detach(), *weights, None, first.detach()], [torch.empty(SAVED) for _ in range(6)], gate_order="rzh")
    close(got[0], y)
    close(got[1], y)
    dy, dh = torch.randn(SAVED), torch.randn(BATCH, WIDTH)
    want = gradients((y, last[0]), (dy, dh), [net.weight_ih_l0, net.weight_hh_l0, net.bias_ih_l0, net.bias_hh_l0, x, first])
    inputs = [x.detach(), *weights[:2], got[0], first[0].detach(), got[1], dy, dh, *got[2:], torch.zeros(()), torch.zeros(())]
    results = [torch.empty_like(w) for w in (*weights, x.detach(), first[0].detach())]
    for g, w in zip(older("DynamicGRUV2Grad", inputs, results, gate_order="rzh"),
                    [want[0].t(), want[1].t(), *want[2:5], want[5][0]], strict=True):
        close(g, w)


# ---- convolutions ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("planes", [2, 3])
def test_gradients_of_convolutions(older: Older, planes: int) -> None:
    conv = F.conv2d if planes == 2 else F.conv3d
    x, w = torch.randn(2, 4, *[6] * planes, requires_grad=True), torch.randn(6, 2, *[3] * planes, requires_grad=True)
    y = conv(x, w, stride=2, padding=1, groups=2)
    dy = torch.randn_like(y)
    want = torch.autograd.grad(y, (x, w), dy)
    form = {"strides": [1, 1] + [2] * planes, "pads": [1] * 2 * planes, "dilations": [1] * (planes + 2), "groups": 2}
    close(older(f"Conv{planes}DBackpropInput", [list(x.shape), w.detach(), dy], [torch.empty(x.shape)], **form)[0], want[0])
    close(older(f"Conv{planes}DBackpropFilter", [x.detach(), list(w.shape), dy], [torch.empty(w.shape)], **form)[0], want[1])


def test_a_filter_a_channel_and_a_bias(older: Older) -> None:
    x, w = torch.randn(2, 4, 6, 6, requires_grad=True), torch.randn(4, 1, 3, 3, requires_grad=True)
    y = F.conv2d(x, w, padding=1, groups=4)
    dy = torch.randn_like(y)
    form = {"strides": [1] * 4, "pads": [1] * 4, "dilations": [1] * 4}
    turned = w.detach().transpose(0, 1).contiguous()
    close(older("DepthwiseConv2D", [x.detach(), turned], [torch.empty(y.shape)], **form)[0], y)
    want = torch.autograd.grad(y, (x, w), dy)
    close(older("DepthwiseConv2DBackpropInput", [list(x.shape), turned, dy], [torch.empty(x.shape)], **form)[0], want[0])
    close(older("DepthwiseConv2DBackpropFilter", [x.detach(), list(turned.shape), dy], [torch.empty(w.shape)], **form)[0], want[1])
    close(older("BiasAddGrad", [dy], [torch.empty(4)], data_format="NCHW")[0], dy.sum((0, 2, 3)))


@pytest.mark.parametrize("packed", [False, True])
def test_a_convolution_of_bytes(older: Older, packed: bool) -> None:
    x, w = torch.randint(-9, 9, (1, 3, 5, 5), dtype=torch.int8), torch.randint(-9, 9, (4, 3, 3, 3), dtype=torch.int8)
    scale, bias = torch.rand(4), torch.randint(-50, 50, (4,), dtype=torch.int32)
    want = (F.conv2d(x.double(), w.double(), bias.double(), 1, 1) * scale.double()[:, None, None]).half()
    given = scale.view(torch.int32).long() if packed else scale  # such numbers come from aclnnTransQuantParam
    form = {"strides": [1] * 4, "pads": [1] * 4, "dilations": [1] * 4, "dtype": 1}
    close(older("QuantConv2D", [x, w, given, bias], [torch.empty(want.shape, dtype=torch.half)], **form)[0].float(), want.float(), 1e-3)
    with pytest.raises(CannError, match="offsets are not supported"):
        older("QuantConv2D", [x, w, given, bias], [torch.empty(want.shape, dtype=torch.half)], **form, offset_x=1)


def deformed(x: Tensor, offsets: Tensor, kernel: int, groups: int) -> Tensor:
    """What each place of a kernel meets, with a padding of 1, by grid_sample; x is NCHW, offsets [N, 3, groups, k, k, oh, ow]."""
    n, c, height, width = x.shape
    lines = torch.arange(kernel)[:, None, None, None] + torch.arange(height)[:, None] - 1
    columns = torch.arange(kernel)[:, None, None] + torch.arange(width) - 1
    at_x, at_y = columns + offsets[:, 0], lines + offsets[:, 1]      # [N, groups, k, k, oh, ow]
    grid = torch.stack([at_x * 2 / (width - 1) - 1, at_y * 2 / (height - 1) - 1], -1)
    parts = [F.grid_sample(part, grid[:, g].flatten(1, 3), padding_mode="zeros", align_corners=True).reshape(
        n, c // groups, kernel, kernel, height, width) * offsets[:, 2, g, None] for g, part in enumerate(x.chunk(groups, 1))]
    return torch.cat(parts, 1).permute(0, 1, 4, 2, 5, 3).reshape(n, c, height * kernel, width * kernel)


def test_places_of_a_kernel_that_are_moved(older: Older) -> None:
    x, moves = torch.randn(2, 4, 5, 6, requires_grad=True), torch.randn(2, 3, 2, 3, 3, 5, 6, requires_grad=True)
    y = deformed(x, moves, 3, 2)
    images, offsets = x.detach().permute(0, 2, 3, 1), moves.detach().flatten(1, 4).permute(0, 2, 3, 1)
    form = {"ksize": [3, 3], "strides": [1] * 4, "pads": [1] * 4, "dilations": [1] * 4, "deformable_groups": 2, "data_format": "NHWC"}
    got = older("DeformableOffsets", [images, offsets], [torch.empty(2, 15, 18, 4)], **form)[0]
    close(got.permute(0, 3, 1, 2), y)
    dy = torch.randn_like(y)
    want = torch.autograd.grad(y, (x, moves), dy)
    back = older("DeformableOffsetsGrad", [dy.permute(0, 2, 3, 1), images, offsets],
                 [torch.empty(images.shape), torch.empty(offsets.shape)], **form)
    close(back[0].permute(0, 3, 1, 2), want[0])
    close(back[1].permute(0, 3, 1, 2), want[1].flatten(1, 4), 1e-3)


# ---- attention -------------------------------------------------------------------------------------------------------
def test_attention_with_its_projections(older: Older) -> None:
    heads, depth, sources, targets, batch = 2, 4, 3, 5, 2
    width = heads * depth
    rows = [torch.randn(batch * n, width, requires_grad=True) for n in (targets, sources, sources)]
    weights, biases = [torch.randn(width, width, requires_grad=True) for _ in range(4)], [torch.randn(width, requires_grad=True) for _ in range(4)]
    mask = torch.randn(batch, heads, targets, sources)
    q, k, v = (F.linear(x, w, b).reshape(batch, -1, heads, depth).transpose(1, 2) for x, w, b in zip(rows, weights, biases, strict=False))
    soft = (q @ k.mT / depth**0.5 + mask).softmax(-1)
    context = (soft @ v).transpose(1, 2).reshape(batch * targets, width)
    y = F.linear(context, weights[3], biases[3])
    raw = lambda ts: [t.detach() for t in ts]
    form = {"attn_head_num": heads, "attn_dim_per_head": depth, "src_len": sources, "tgt_len": targets, "keep_prob": 1.0}
    shapes = [y, torch.empty(64, dtype=torch.uint8), q, k, v, soft, soft, context]
    inputs = [*raw(rows), *raw(weights[:3]), mask, weights[3].detach(), *raw(biases)]
    got = older("MultiHeadAttention", inputs, [torch.empty(s.shape, dtype=s.dtype) for s in shapes], **form)
    for g, want in zip(got, shapes, strict=True):
        if g.dtype != torch.uint8:
            close(g, want)
    dy = torch.randn_like(y)
    want = torch.autograd.grad(y, (*weights, *rows, *biases), dy)
    kept = [*raw(rows), *raw(weights[:3]), weights[3].detach(), *got[2:], dy]
    for g, w in zip(older("MultiHeadAttentionGrad", kept, [torch.empty(w.shape) for w in want], **form), want, strict=True):
        close(g, w, 1e-3)


@pytest.mark.parametrize("keep", [1.0, 0.5])
def test_attention_without_projections(older: Older, keep: float) -> None:
    q, k, v = (torch.randn(2, 3, 4, 5, requires_grad=True) for _ in range(3))
    mask, kept = torch.randn(2, 1, 4, 4), (torch.rand(2, 3, 4, 4) < 0.5).to(torch.uint8)
    soft = (q @ k.mT * 0.5 + mask).softmax(-1)
    y = (soft if keep == 1 else soft * kept / keep) @ v
    inputs = [q.detach(), k.detach(), v.detach(), mask, torch.tensor(0.5), kept.flatten()]
    got = older("AttentionScore", inputs, [torch.empty(8, 15), torch.empty(2, 3, 4, 4)], keep_prob=keep)
    close(got[0], y.transpose(1, 2).reshape(8, 15))
    close(got[1], soft)
    dy = torch.randn_like(y)
    want = torch.autograd.grad(y, (v, q, k), dy)
    back = older("AttentionScoreGrad", [got[1], dy, *inputs[2::-1], *inputs[4:]], [torch.empty(8, 15) for _ in range(3)], keep_prob=keep)
    for g, w in zip(back, want, strict=True):
        close(g, w.transpose(1, 2).reshape(8, 15))


def test_projections_of_a_norm(older: Older) -> None:
    """Queries, keys and values of a normed input, and the gradients of their weights and of the input."""
    rows, width, heads, length = 6, 8, 2, 3
    x, gamma, beta = torch.randn(rows, width), torch.rand(width), torch.randn(width)
    weights, biases = [torch.randn(width, width, requires_grad=True) for _ in "qkv"], [torch.randn(width, requires_grad=True) for _ in "qkv"]
    norm = F.layer_norm(x, (width,), gamma, beta, 1e-5).requires_grad_()
    split = lambda y: y.reshape(rows // length, length, heads, width // heads).transpose(1, 2)
    parts = [norm @ w + b for w, b in zip(weights, biases, strict=True)]
    raw = lambda ts: [t.detach() for t in ts]
    outs = [torch.empty(rows, width), *(torch.empty(rows // length, heads, length, width // heads) for _ in "qkv"), torch.empty(rows), torch.empty(rows)]
    got = older("AttentionLnQKV", [x, *raw(weights), gamma, beta, *raw(biases)], outs, epsilon=1e-5)
    for g, want in zip(got, [norm, *map(split, parts), x.mean(1), x.var(1, correction=0)], strict=True):
        close(g, want)
    grads, of_norm = [torch.randn(rows, width) for _ in "qkv"], torch.randn(rows, width)
    want = gradients((*parts, norm), (*grads, of_norm), (norm, *weights, *biases))
    close(older("AttentionQKVGradX", [of_norm, *grads, *raw(weights)], [torch.empty(rows, width)], trans_b=True)[0], want[0])
    back = older("AttentionQKVGradW", [norm.detach(), *grads], [torch.empty(w.shape) for w in want[1:]], trans_a=True)
    for g, w in zip(back, want[1:], strict=True):
        close(g, w)


def test_softmax_of_a_sum_with_dropout(older: Older) -> None:
    a, b, kept = torch.randn(4, 8), torch.randn(4, 8, requires_grad=True), (torch.rand(4, 8) < 0.5).to(torch.uint8)
    soft = (a + 0.5 * b).softmax(-1)
    form = {"alpha": 0.5, "input_keep_prob": 0.25}
    got = older("AxpyWithSoftmaxAndDropOutDoMask", [a, b.detach(), kept.flatten()], [torch.empty(4, 8) for _ in range(2)], axis=[-1], **form)
    close(got[0], soft)
    close(got[1], soft * kept * 4)
    dy = torch.randn(4, 8)
    want = torch.autograd.grad(soft * kept * 4, b, dy)[0]
    close(older("DropoutWithMulsAndSoftmaxGrad", [dy, kept.flatten(), got[0]], [torch.empty(4, 8)], axes=[-1], **form)[0], want)


def test_a_mask_of_bytes(older: Older) -> None:
    """As many bytes as items: a byte an item, which DropOutDoMaskV3 takes."""
    keep = torch.tensor([0.75])
    mask = older("DropOutGenMaskV3", [[512], keep], [torch.full((640,), 9, dtype=torch.uint8)], seed=3, seed2=4)[0]
    assert set(mask.tolist()) == {0, 1}
    assert 330 < int(mask.sum()) < 440
    same(older("DropOutDoMaskV3", [torch.ones(512), mask[:512], keep], [torch.empty(512)])[0], mask[:512] / 0.75)
