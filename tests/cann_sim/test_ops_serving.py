"""Quantised products and what serving language models calls, in libopapi, against the formulas written with torch."""

from __future__ import annotations

import pytest
import torch
from client import client, same
from layouts import like, sample

NOT_COMPUTED = 561003


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(7)


def integers(*shape: int) -> torch.Tensor:
    return torch.randint(-128, 128, shape, dtype=torch.int8)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("version", [4, 5])
def test_quantised_product(version: int, transposed: bool) -> None:
    a, b, scale, token = integers(2, 3, 40), integers(40, 5), sample((5,), torch.float32, 0.1, 1), sample((3,), torch.float32, 0.1, 1)
    exact = a.double() @ b.double()
    want = (exact.float() * scale * token[:, None]).half()
    right = b.t().contiguous() if transposed else b
    if version == 4:
        got = client().call("aclnnQuantMatmulV4", a, right, scale, None, token, None, False, transposed, like(want))
    else:
        got = client().call("aclnnQuantMatmulV5", a, right, token, scale, None, None, None, None, None, False, transposed, 0, like(want))
    same(got, want)


def test_quantised_product_to_integers() -> None:
    a, b = integers(3, 2000), integers(2000, 5)
    bias, scale, offset = torch.randint(-9, 9, (5,), dtype=torch.int32), torch.full((5,), 1e-4), torch.full((5,), 3.0)
    whole = (a.long() @ b.long() + bias).int()
    same(client().call("aclnnQuantMatmulV4", a, b, scale, None, None, bias, False, False, like(whole)), whole)
    want = (whole.float() * scale + offset).round().clamp(-128, 127).to(torch.int8)
    same(client().call("aclnnQuantMatmulV4", a, b, scale, offset, None, bias, False, False, like(want)), want)


@pytest.mark.parametrize("group", [0, 4])
def test_integer_weights(group: int) -> None:
    x, w = sample((3, 8), torch.float16, -1, 1), integers(8, 5)
    scale = sample((8 // group if group else 1, 5), torch.float16, 0.1, 1)
    offset, bias = sample(tuple(scale.shape), torch.float16, -3, 3), sample((5,), torch.float32)
    rows = scale.repeat_interleave(group, 0) if group else scale
    shift = offset.repeat_interleave(group, 0) if group else offset
    want = (x.float() @ ((w.float() + shift.float()) * rows.float()) + bias).half()
    got = client().call("aclnnWeightQuantBatchMatmulV2", x, w, scale, offset, None, None, bias, group, like(want))
    same(got, want, rtol=5e-3, atol=1e-1)


def test_scales_as_integers() -> None:
    scale, offset = torch.tensor([1.0, 2.5, 0.1]), torch.tensor([1.0, -2.0, 300.0])
    bits = scale.view(torch.int32).long() & 0xFFFFE000
    want = bits | (offset.clamp(-256, 255).long() & 0x1FF) << 37 | 1 << 46
    same(client().call("aclnnTransQuantParamV2", scale, offset, like(want)), want)
    same(client().call("aclnnTransQuantParamV3", scale, None, 0, like(want)), bits | 1 << 46)


def test_experts_by_groups() -> None:
    x, bias = sample((4, 12), torch.float32), sample((12,), torch.float32, -0.1, 0.1)
    norm = torch.sigmoid(x)
    groups = (norm + bias).view(4, 3, 4)
    best = groups.topk(2, -1)[0].sum(-1).topk(2, -1)[1]
    kept = torch.zeros(4, 3, dtype=torch.bool).scatter(1, best, True)
    expert = groups.masked_fill(~kept[..., None], -torch.inf).flatten(1).topk(3)[1]
    y = norm.gather(1, expert)
    want = y / (y.sum(-1, True) + 1e-20) * 2.5
    got = client().call("aclnnMoeGatingTopK", x, bias, 3, 2, 3, 1, 0, 1, True, 2.5, 1e-20, like(want), like(expert.int()), like(norm))
    for found, right in zip(got, (want, expert.int(), norm), strict=True):
        same(found, right)


def test_tokens_put_back() -> None:
    rows, where = sample((6, 4), torch.float32), torch.tensor([5, 0, 3, 1, 2, 4], dtype=torch.int32)
    skip, scales = sample((3, 4), torch.float32), sample((3, 2), torch.float32)
    want = skip + (rows[where.long().view(2, 3).t()] * scales[..., None]).sum(1)
    same(client().call("aclnnMoeFinalizeRoutingV2", rows, where, skip, None, None, scales, None, 0, like(want)), want)


def test_filtered_logits() -> None:
    x = torch.tensor([[1.0, 3.0, 2.0, 0.0], [4.0, 1.0, 2.0, 3.0]])
    p, k = torch.tensor([0.5, 1.0]), torch.tensor([3, 2], dtype=torch.int32)
    want = torch.tensor([[-torch.inf, 3.0, -torch.inf, -torch.inf], [4.0, -torch.inf, -torch.inf, 3.0]])
    same(client().call("aclnnApplyTopKTopP", x, p, k, like(x)), want)
    same(client().call("aclnnApplyTopKTopP", x, None, k, like(x)), x.masked_fill(x < torch.tensor([[1.0], [3.0]]), -torch.inf))


def test_what_is_not_computed_is_refused() -> None:
    x, w = sample((3, 8), torch.float16), integers(8, 5)
    scale, out = sample((5,), torch.float16), torch.zeros(3, 5, dtype=torch.float16)
    client().expect_code(NOT_COMPUTED, "aclnnWeightQuantBatchMatmulV2", x, w, scale, None, scale, None, None, 0, out)
