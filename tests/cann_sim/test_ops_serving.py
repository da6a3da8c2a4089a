"""What serving language models calls in libopapi, against the formulas written with torch."""

from __future__ import annotations

import pytest
import torch
from client import client, same
from layouts import like, sample


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(7)


def test_experts_by_groups() -> None:
    x, bias = sample((4, 12), torch.float32), sample((12,), torch.float32, -0.1, 0.1)
    norm = torch.sigmoid(x)
    groups = (norm + bias).view(4, 3, 4)
    best = groups.topk(2, -1)[0].sum(-1).topk(2, -1)[1]
    kept = torch.zeros(4, 3, dtype=torch.bool).scatter(1, best, True)
    expert = groups.masked_fill(~kept[..., None], -torch.inf).flatten(1).topk(3)[1]
    y = norm.gather(1, expert)
    want = y / (y.sum(-1, True) + 1e-20) * 2.5
    for version, more in (("", ()), ("V2", (None, None))):
        got = client().call("aclnnMoeGatingTopK" + version, x, bias, *more, 3, 2, 3, 1, 0, 1, True, 2.5, 1e-20, like(want), like(expert.int()), like(norm))
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
