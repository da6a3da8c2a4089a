"""Steps of decoding in libopapi: positions and slots of the next tokens, tokens drawn from the best, and floats without their exponents."""

from __future__ import annotations

import pytest
import torch
from client import client, same
from torch import Tensor


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(3)


def test_advance() -> None:
    """Only the first sequences have a query; positions may be a column or a row."""
    tokens, sampled, lengths, slots = torch.arange(4), torch.tensor([[7], [8], [9]]), torch.tensor([3, 9, 8, 5]), torch.zeros(4, dtype=torch.long)
    table = torch.tensor([[2, 5], [1, 4], [3, 6], [0, 7]])
    for positions in (torch.zeros(4, dtype=torch.long), torch.zeros(4, 1, dtype=torch.long)):
        got = client().call("aclnnAdvanceStep", tokens, sampled, positions, lengths, slots, table, 4, 3, 8)
        assert [t.flatten().tolist() for t in got] == [[7, 8, 9, 3], [3, 9, 8, 0], [4, 10, 9, 5], [2 * 8 + 3, 4 * 8 + 1, 6 * 8, 0]]


def test_advance_with_guesses() -> None:
    """The token after the accepted ones, then the guesses; -1 ends what was sampled."""
    sampled, guesses, accepted = torch.tensor([[5, 6, 7], [8, -1, -1]]), torch.tensor([[1, 2], [3, 4]]), torch.tensor([2, 0])
    positions, table = torch.tensor([4, 5, 6, 0, 1, 2]), torch.tensor([[2, 5], [1, 4]])
    empty = torch.zeros(6, dtype=torch.long)
    got = client().call("aclnnAdvanceStepV2", empty, sampled, positions, empty, empty, table, guesses, accepted, 2, 2, 8)
    places = [7, 8, 9, 1, 2, 3]
    slots = [2 * 8 + 7, 5 * 8, 5 * 8 + 1, 8 + 1, 8 + 2, 8 + 3]
    assert [t.tolist() for t in got] == [[7, 1, 2, 8, 3, 4], places, [p + 1 for p in places], slots]


def drawn(x: Tensor, k: int, p: float, low: float, q: Tensor | None) -> tuple[int, list[int]]:
    order = x.argsort(descending=True)[: k if k > 0 else None]
    prob = x[order].softmax(0)
    if p < 1:
        n = max(int(((prob.cumsum(0) - prob) < p).sum()), 1)
        order, prob = order[:n], prob[:n]
    keep = prob >= prob.max() * low
    order, prob = order[keep], prob[keep]
    return int(order[(prob if q is None else prob / (q[: len(prob)] + 1e-8)).argmax()]), sorted(order.tolist())


@pytest.mark.parametrize("with_q", [False, True])
def test_sample(with_q: bool) -> None:
    x, q = torch.randn(5, 40), torch.rand(5, 40) if with_q else None
    k, p, low = [3, 0, 10, 40, 1], [0.9, 0.6, 2.0, -1.0, 0.5], [0.0, 0.0, 0.5, 0.1, 0.2]
    ks = torch.tensor(k, dtype=torch.int32)
    index, remain, order, prob = client().call("aclnnTopKTopPSampleV2", x, ks, torch.tensor(p), q, torch.tensor(low), 1e-8, True, 32, 1024, True, True,
        torch.empty(5, dtype=torch.long), torch.empty(5, 40), torch.empty(5, 40, dtype=torch.long), torch.empty(5, 40))  # fmt: skip
    for row in range(5):
        best, kept = drawn(x[row], k[row], p[row], low[row], q[row] if q is not None else None)
        assert index[row] == best and remain[row].isfinite().nonzero().flatten().tolist() == kept
        same(remain[row, kept], x[row, kept])
        n = len(kept)
        assert sorted(order[row, :n].tolist()) == kept and (prob[row, :n] > 0).all() and not prob[row, n:].any()
    index, _ = client().call("aclnnTopKTopPSample", x, ks, torch.tensor(p), q, 1e-8, False, 32, torch.empty(5, dtype=torch.long), torch.empty(5, 40))
    assert index.tolist() == [drawn(x[r], k[r], p[r], 0.0, q[r] if q is not None else None)[0] for r in range(5)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("together", [False, True])
def test_floats_without_their_exponents(dtype: torch.dtype, together: bool) -> None:
    x = torch.randn(32768).to(dtype)
    size = x.element_size()
    room = (32768 + 32768 // 64 + 512) // size + 1
    pdf, mantissa = torch.zeros(1, 256, dtype=torch.int32), torch.zeros(32768 * (size - 1) // size, dtype=dtype)
    fixed, var = (torch.zeros(n, dtype=dtype) for n in ((room, 0) if together else (8192 // size, room)))
    if together:
        var = torch.zeros(1, dtype=dtype)
    parts = client().call("aclnnHansEncode", x, pdf, True, together, mantissa, fixed, var)
    assert torch.equal(parts[0].flatten().long(), torch.bincount(x.view(torch.uint8)[size - 1 :: size].long(), minlength=256))
    got = client().call("aclnnHansDecode", *parts[1:], parts[0], together, torch.empty(32768, dtype=dtype))
    assert torch.equal(got.view(torch.uint8), x.view(torch.uint8))
