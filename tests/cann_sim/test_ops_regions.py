"""Losses over split vocabularies, products in 8 bits, routing maps, regions of images and signals, in libopapi against torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from client import client, same
from test_ops_mx import E4M3, output, rounded, scale_output, scaled

INVALID, NO_KERNEL = 161002, 561003


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(13)


# ---- vocabularies -----------------------------------------------------------------------------------------------------------------
def test_index_logit() -> None:
    logits, target = torch.randn(3, 2, 16), torch.randint(0, 48, (3, 2)).int()
    target[0, 0], most = 20, torch.randn(3, 2) + 3
    mask = (target < 16) | (target >= 32)
    offset = torch.where(mask, 0, target - 16).int()
    exps = torch.exp(logits - most[..., None])
    predicted = torch.where(mask, 0.0, logits.gather(-1, offset[..., None].long())[..., 0] - most)
    got = client().call("aclnnCrossEntropySumExpAndIndexLogit", logits, target, most, 16, 32, torch.empty(3, 2), torch.empty(3, 2), torch.empty(3, 2, 16),
                        torch.empty(3, 2, dtype=torch.int32), torch.empty(3, 2, dtype=torch.int32))  # fmt: skip
    for part, want in zip(got, (predicted, exps.sum(-1), exps, offset, mask.int()), strict=True):
        same(part, want, rtol=1e-5, atol=1e-6)


def test_linear_cross_entropy_of_one_rank() -> None:
    """With one rank the parts make up cross_entropy of a linear layer, and its gradient."""
    x, weight = torch.randn(11, 8, requires_grad=True), torch.randn(6, 8, requires_grad=True)
    target = torch.randint(0, 6, (11,))
    rows = lambda dtype=torch.float32: torch.empty(11, dtype=dtype)
    most, total, predicted, bits, masked, logits = client().call(
        "aclnnFusedLinearOnlineMaxSum", x.detach().half(), weight.detach().half(), target, 0, 5, rows(), rows(), rows(), torch.empty(2, dtype=torch.uint8),
        rows(torch.int64), torch.empty(11, 6).half())  # fmt: skip
    assert torch.equal(masked, target) and bits.tolist() == [0, 0b00011111]  # rows that are not there have ones
    loss, softmax = client().call("aclnnFusedCrossEntropyLossWithMaxSum", most, total, predicted, 0.0, None, None, logits, rows(), torch.empty(11, 6))
    want = torch.nn.functional.cross_entropy(x @ weight.t(), target, reduction="none")
    same(loss, want.detach(), rtol=1e-2, atol=1e-2)
    grad = torch.rand(11)
    for known in ((None, None, softmax), (most, total, None)):
        got = client().call("aclnnFusedLinearCrossEntropyLossGrad", grad, x.detach(), weight.detach(), bits, masked, 0.0, *known, torch.empty(11, 8), torch.empty(6, 8))
        for part, expected in zip(got, torch.autograd.grad(want, (x, weight), grad, retain_graph=True), strict=True):
            same(part, expected, rtol=2e-2, atol=2e-2)


def test_targets_of_other_ranks() -> None:
    x, weight, target = torch.randn(9, 4).half(), torch.randn(3, 4).half(), torch.tensor([5, 2, 6, 7, 8, 4, 5, 6, 0])
    got = client().call("aclnnFusedLinearOnlineMaxSum", x, weight, target, 5, 7, *(torch.empty(9) for _ in range(3)), torch.empty(2, dtype=torch.uint8),
                        torch.empty(9, dtype=torch.int64), None)  # fmt: skip
    elsewhere = (target < 5) | (target > 7)
    bits = [int("".join(str(int(b)) for b in elsewhere[:8]), 2), int("1" * 8, 2)]
    assert got[3].tolist() == bits and torch.equal(got[4], torch.where(elsewhere, 0, target - 5))
    assert (got[2][elsewhere] == 0).all() and (got[2][~elsewhere] <= 0).all()


# ---- products in 8 bits ---------------------------------------------------------------------------------------------------------------
def quantised(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What MX keeps of x, its exponents, and the numbers that these stand for."""
    q, codes = scaled(x, dim, E4M3, 0)
    low = rounded(q, E4M3)
    real = client().call("aclnnAntiMxQuant", low, codes.view(torch.float8_e8m0fnu), dim, 0, torch.empty(x.shape))
    return low, codes.view(torch.float8_e8m0fnu), real


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", ["", "WeightNz"])
def test_transposed_products(turned: bool, name: str) -> None:
    a, b = torch.randn(5, 2, 64), torch.randn(2, 7, 64) if turned else torch.randn(2, 64, 7)
    (x1, s1, r1), (x2, s2, r2) = quantised(a, 2), quantised(b, 2 if turned else 1)
    want = torch.einsum("mbk,bkn->mbn", r1, r2.transpose(1, 2) if turned else r2)
    got = client().call(f"aclnnTransposeQuantBatchMatMul{name}", x1, x2, None, s1, s2, 1, 32, [1, 0, 2], [0, 2, 1] if turned else [0, 1, 2], [1, 0, 2], 1,
                        torch.empty(5, 2, 7).half())  # fmt: skip
    same(got.float(), want, rtol=2e-3, atol=2e-2)
    if turned:
        return
    rows, columns = torch.rand(5), torch.rand(7)
    got = client().call(f"aclnnTransposeQuantBatchMatMul{name}", x1, x2, None, rows, columns, 1, 0, [1, 0, 2], [0, 1, 2], [1, 0, 2], 1, torch.empty(5, 2, 7).bfloat16())
    plain = torch.einsum("mbk,bkn->mbn", x1.float(), x2.float()) * rows[:, None, None] * columns
    same(got.float(), plain, rtol=1e-2, atol=1)


def test_products_added_to_what_is_there() -> None:
    (x1, s1, r1), (x2, s2, r2) = quantised(torch.randn(70, 3), 0), quantised(torch.randn(70, 4), 0)
    y = torch.randn(3, 4)
    same(client().call("aclnnQuantBatchMatmulInplaceAdd", x1, x2, s1, s2, y, True, False, 32), y + r1.t() @ r2, rtol=1e-4, atol=1e-4)
    client().expect_code(NO_KERNEL, "aclnnQuantBatchMatmulInplaceAdd", x1, x2, torch.ones(1), torch.ones(1), y, True, False, 0)


def test_products_of_int8() -> None:
    a, b = (torch.randint(-20, 20, s, dtype=torch.int8) for s in ((3, 4, 8), (3, 8, 5)))
    rows, columns, each = torch.rand(4), torch.rand(5).bfloat16(), torch.rand(3, 4)
    want = ((a.double() @ b.double()) * each[..., None]).sum(0) * columns.double()
    got = client().call("aclnnQuantMatmulReduceSumWeightNz", a, b, each, columns, None, None, None, None, None, False, False, 0, [99], False, torch.empty(4, 5))
    same(got, want.float(), rtol=1e-5, atol=1e-4)  # whatever the list of dims says
    got = client().call("aclnnQuantMatmulWeightNz", a[0], b[0], rows, columns, None, None, None, None, None, False, False, 0, torch.empty(4, 5).bfloat16())
    same(got.double(), a[0].double() @ b[0].double() * rows[:, None] * columns.double(), rtol=1e-2, atol=1e-2)
    for name in ("", "WeightNz"):
        y = a[0].double() @ b[0].double() * 0.01 * rows[:, None] * columns.double()
        for kind, form in (("gelu_tanh", "tanh"), ("gelu_erf", "none")):
            got = client().call(f"aclnnFusedQuantMatmul{name}", a[0], b[0], rows * 0.01, columns, None, None, None, None, None, None, kind, 0, torch.empty(4, 5).half())
            same(got.float(), torch.nn.functional.gelu(y.float(), approximate=form), rtol=1e-2, atol=1e-2)
    x1, x2, bias, scale, offset = torch.randn(3, 8).half(), torch.randn(8, 5).half(), torch.randn(5).half(), 9.5, -3
    parameter = (torch.tensor([scale]).view(torch.int32).long() & 0xFFFFE000) | (offset & 0x1FF) << 37 | 1 << 46
    got = client().call("aclnnBatchMatmulQuant", x1, x2, parameter.view(torch.uint64), bias, False, False, torch.empty(3, 5, dtype=torch.int8))
    want = ((x1.float() @ x2.float() + bias.float()) * scale + offset).round().clamp(-128, 127)
    assert (got.float() - want).abs().max() <= 1


def test_grouped_products() -> None:
    x, weight, counts = torch.randn(7, 4).half(), torch.randn(7, 3).half(), torch.tensor([2, 0, 5])
    y = torch.randn(3, 4, 3)
    want = y.clone()
    for g, (a, b) in enumerate(((0, 2), (2, 2), (2, 7))):
        want[g] += x[a:b].float().t() @ weight[a:b].float()
    for groups, kind in ((counts, 1), (counts.cumsum(0), 0)):
        same(client().call("aclnnGroupedMatmulAddV2", x, weight, groups, y.clone(), True, False, 2, kind), want, rtol=1e-3, atol=1e-3)
    many = torch.randn(3, 4, 5).half()
    got = client().call("aclnnGroupedMatmulWeightNz", [x], [many], None, None, None, None, None, None, counts.cumsum(0), None, None, None, 3, 0, 0, 0, None, 0,
                        [torch.empty(7, 5).half()], None, None)  # fmt: skip
    want = torch.cat([x[a:b].float() @ many[g].float() for g, (a, b) in enumerate(((0, 2), (2, 2), (2, 7)))])
    same(got.float(), want, rtol=5e-3, atol=5e-3)


# ---- routing ------------------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("padded", [False, True])
def test_routing_maps(padded: bool) -> None:
    """What the permuting op made goes back to its tokens, with weights; and the gradient of permuting."""
    tokens, experts, chosen, width = 6, 3, 2, 4
    if padded:
        table = torch.zeros(tokens, experts, dtype=torch.bool)
        for e in range(experts):
            table[torch.randperm(tokens)[:4], e] = True                          # every expert takes four
    else:
        table = torch.stack([torch.randperm(experts) < chosen for _ in range(tokens)])
    n = 12
    x, probs = torch.randn(tokens, width), torch.rand(tokens, experts)
    rows, row_probs, sorted_ = client().call("aclnnMoeTokenPermuteWithRoutingMap", x, table, probs, n, padded, torch.empty(n, width), torch.empty(n),
                                             torch.empty(n, dtype=torch.int32))  # fmt: skip
    places = [(t, e) for e in range(experts) for t in range(tokens) if table[t, e]]
    want = torch.zeros(tokens, width)
    for i, (t, e) in enumerate(places):
        want[t] += rows[i] * probs[t, e]
    index = lambda: torch.zeros(n, dtype=torch.int32)
    got = client().call("aclnnMoeTokenUnpermuteWithRoutingMap", rows, sorted_, table, probs, padded, [tokens, width], torch.empty(tokens, width), index(), index(), torch.empty(n))
    same(got[0], want)
    same(got[3], row_probs)
    if padded:
        order = sorted_.argsort(stable=True)
        assert torch.equal(got[1], order.int()) and torch.equal(got[2], sorted_[order])
    grad, probs_grad = torch.randn(n, width), torch.randn(n)
    back, probs_back = torch.zeros(tokens, width), torch.zeros(tokens, experts)
    for i, (t, e) in enumerate(places):
        back[t] += grad[i]
        probs_back[t, e] = probs_grad[i]
    got = client().call("aclnnMoeTokenPermuteWithRoutingMapGrad", grad, probs_grad, sorted_, table, experts, tokens, padded, torch.empty(tokens, width), torch.empty(tokens, experts))
    same(got[0], back)
    same(got[1], probs_back)


def test_init_routing_to_int8() -> None:
    x, experts = torch.randn(4, 8), torch.tensor([[1, 0], [0, 2], [2, 1], [0, 1]], dtype=torch.int32)
    rows = torch.arange(8, dtype=torch.int32).view(2, 4).t().contiguous()
    outs = lambda dtype: (torch.empty(8, 8, dtype=dtype), torch.empty(8, dtype=torch.int32), torch.empty(8, dtype=torch.int32))
    plain = client().call("aclnnMoeInitRouting", x, rows, experts, 4, *outs(torch.float32))
    got = client().call("aclnnMoeInitRoutingQuant", x, rows, experts, 4, 20.0, 3.0, *outs(torch.int8))
    assert (got[0].float() - (plain[0] * 20 + 3).round().clamp(-128, 127)).abs().max() <= 1
    assert torch.equal(got[1], plain[1]) and torch.equal(got[2], plain[2])


def test_quant_scatter_v2() -> None:
    data, updates = torch.zeros(2, 6, 8, dtype=torch.int8), torch.randn(2, 2, 8).half()
    scales, index = torch.rand(1, 1, 8) * 0.1 + 0.01, torch.tensor([1, 3], dtype=torch.int32)
    old = client().call("aclnnInplaceQuantScatter", data, index, updates, scales, None, 1, 2, 1)
    assert torch.equal(client().call("aclnnInplaceQuantScatterV2", data, index, updates, scales, torch.zeros(1, 1, 8, dtype=torch.int32), 1, 2, 1, "rint"), old)


# ---- images, signals -------------------------------------------------------------------------------------------------------------------------
def roi_pool(x: torch.Tensor, rois: torch.Tensor, size: int, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    out, where = torch.zeros(len(rois), x.shape[1], size, size), torch.full((len(rois), x.shape[1], size, size), -1, dtype=torch.int32)
    height, width = x.shape[2:]
    for n, (batch, x1, y1, x2, y2) in enumerate(rois.tolist()):
        w, h = ((x2 + 1) * scale - x1 * scale) / size, ((y2 + 1) * scale - y1 * scale) / size
        for i in range(size):
            for j in range(size):
                top, bottom = int(max(0, (i * h + y1 * scale) // 1)), int(min(height, -(-((i + 1) * h + y1 * scale) // 1)))
                left, right = int(max(0, (j * w + x1 * scale) // 1)), int(min(width, -(-((j + 1) * w + x1 * scale) // 1)))
                if top >= bottom or left >= right:
                    continue
                bin_ = x[int(batch), :, top:bottom, left:right].flatten(1)
                best = bin_.argmax(1)
                out[n, :, i, j] = bin_.amax(1)
                where[n, :, i, j] = ((top + best // (right - left)) * width + left + best % (right - left)).int()
    return out, where


def test_roi_pooling() -> None:
    x, rois = torch.randn(2, 3, 9, 10), torch.tensor([[0, 0, 0, 15, 11], [1, 4, 2, 19, 17], [1, 30, 30, 40, 40]]).float()
    want, where = roi_pool(x, rois, 3, 0.5)
    got = client().call("aclnnRoiPoolingWithArgMax", x, rois, 3, 3, 0.5, 0.5, torch.empty(3, 3, 3, 3), torch.empty(3, 3, 3, 3, dtype=torch.int32))
    same(got[0], want)
    assert torch.equal(got[1], where)
    grad, start = torch.randn(3, 3, 3, 3), torch.randn(2, 3, 90)
    back = start.clone()
    for n, c, i, j in torch.cartesian_prod(*[torch.arange(3)] * 4).tolist():
        if where[n, c, i, j] >= 0:
            back[int(rois[n, 0]), c, where[n, c, i, j]] += grad[n, c, i, j]
    got = client().call("aclnnRoiPoolingGradWithArgMax", grad, start.view(2, 3, 9, 10), rois, where, 3, 3, 0.5)
    same(got, back.view(2, 3, 9, 10))


def test_ciou() -> None:
    corner = torch.rand(4, 5)
    a, b = torch.cat([corner[:2], corner[:2] + corner[2:] + 0.1]), torch.rand(4, 5)
    b = torch.cat([b[:2], b[:2] + b[2:] + 0.1])
    got = client().call("aclnnCIoU", a, b, False, False, "iou", torch.empty(1, 5), torch.empty(1, 5))
    angle = torch.atan((b[2] - b[0]) / (b[3] - b[1])) - torch.atan((a[2] - a[0]) / (a[3] - a[1]))
    same(got[1][0], angle, rtol=1e-4, atol=1e-4)
    common = (torch.minimum(a[2:], b[2:]) - torch.maximum(a[:2], b[:2])).clamp(min=0).prod(0)
    area = lambda x: (x[2:] - x[:2]).prod(0)
    iou = common / (area(a) + area(b) - common)
    whole = torch.maximum(a[2:], b[2:]) - torch.minimum(a[:2], b[:2])
    centres = ((a[:2] + a[2:] - b[:2] - b[2:]) / 2).square().sum(0)
    v = 4 / torch.pi**2 * angle**2
    same(got[0][0], iou - centres / whole.square().sum(0) - v * v / (1 - iou + v), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("onesided", [False, True])
@pytest.mark.parametrize("normalized", [False, True])
def test_stft(onesided: bool, normalized: bool) -> None:
    x, window = torch.randn(2, 40), torch.hann_window(16)
    want = torch.stft(x, 16, 5, 16, window, center=False, normalized=normalized, onesided=onesided, return_complex=True)
    got = client().call("aclStft", x, window, torch.empty(want.shape, dtype=torch.complex64), 16, 5, 16, normalized, onesided, True)
    same(got, want, rtol=1e-4, atol=1e-4)
    real = client().call("aclStft", x[0], window, torch.empty(*want.shape[1:], 2), 16, 5, 16, normalized, onesided, False)
    same(real, torch.view_as_real(want[0].contiguous()), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("given", ["none", "short", "with its zeros"])
def test_stft_with_a_short_window(given: str) -> None:
    x, window = torch.randn(2, 40), None if given == "none" else torch.hann_window(8)
    want = torch.stft(x, 16, 5, 8, window, center=False, return_complex=True)
    if window is not None and given != "short":
        window = torch.nn.functional.pad(window, (4, 4))
    got = client().call("aclStft", x, window, torch.empty(want.shape, dtype=torch.complex64), 16, 5, 8, False, True, True)
    same(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("n", "dim", "norm"), [(8, 1, 1), (5, -1, 2), (12, 1, 3), (3, 0, 2), (8, -2, 1)])
def test_fft_of_real_items(n: int, dim: int, norm: int) -> None:
    x = torch.randn(4, 9)
    want = torch.view_as_real(torch.fft.rfft(x, n, dim, {1: "backward", 2: "forward", 3: "ortho"}[norm]))
    same(client().call("aclRfft1D", x.t().contiguous().t(), n, dim, norm, torch.empty(want.shape)), want, rtol=1e-5, atol=1e-5)
    for wrong in (0, 4):
        client().expect_code(INVALID, "aclRfft1D", x, n, dim, wrong, torch.empty(want.shape))
    client().expect_code(INVALID, "aclRfft1D", x, 4097, dim, norm, torch.empty(want.shape))


def test_exp_segsum_backward() -> None:
    x = torch.randn(2, 5, requires_grad=True)
    sums = torch.stack([torch.stack([x[:, j + 1 : i + 1].sum(1) if j <= i else torch.full((2,), -torch.inf) for j in range(5)], -1) for i in range(5)], -2)
    y, grad = torch.exp(sums), torch.randn(2, 5, 5)
    same(client().call("aclnnExpSegsumBackward", grad, y.detach(), torch.empty(2, 5)), torch.autograd.grad(y, x, grad)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("axis", "sizes"), [(1, (3,)), (-2, (4, 5)), (0, (1,))])
def test_scale(axis: int, sizes: Any) -> None:
    x, scale, bias = torch.randn(2, 3, 4, 5), torch.randn(sizes), torch.randn(sizes)
    place = lambda t: t if t.numel() == 1 else t.view(*t.shape, *[1] * (4 - axis % 4 - t.dim()))
    got = client().call("aclnnScale", x, scale, bias, axis, len(sizes), False, torch.empty(x.shape))
    same(got, x * place(scale) + place(bias))
    same(client().call("aclnnScale", x, scale, None, axis, len(sizes), sizes != (1,), torch.empty(x.shape)), x * place(scale))


def test_add_lora() -> None:
    y, x = torch.randn(5, 10).half(), torch.randn(5, 6).half()
    a, b, index = torch.randn(3, 2, 4, 6).half(), torch.randn(3, 2, 7, 4).half(), torch.tensor([0, 2, -1, 1, 2], dtype=torch.int32)
    want = y.float().clone()
    for i, at in enumerate(index.tolist()):
        if at >= 0:
            want[i, 2:9] += 0.5 * (x[i].float() @ a[at, 1].float().t() @ b[at, 1].float().t())
    got = client().call("aclnnAddLora", y, x, b, index, a, 1, 0.5, 2, 7, torch.empty(5, 10).half())
    same(got.float(), want, rtol=5e-3, atol=1e-2)


def test_outputs_that_do_not_fit_are_refused() -> None:
    x = torch.randn(2, 40)
    client().expect_code(INVALID, "aclStft", x, None, torch.empty(2, 9, 4, dtype=torch.complex64), 16, 5, 16, False, True, True)
    for window, wide in ((torch.ones(17), 16), (torch.ones(9), 8), (None, 17)):
        client().expect_code(INVALID, "aclStft", x, window, torch.empty(2, 9, 5, dtype=torch.complex64), 16, 5, wide, False, True, True)
    client().expect_code(INVALID, "aclnnDynamicMxQuant", x, 1, "rint", E4M3, 32, 0, output((2, 39), E4M3), scale_output((2, 1, 2)))
