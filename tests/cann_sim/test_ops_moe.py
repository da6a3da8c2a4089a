"""Mixture-of-experts ops against the same written with torch: permuting tokens by expert and back, gating, routing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from client import client, same
from samples import sample

INVALID = 161002
FLOATS = [torch.float32, torch.float16, torch.bfloat16]
T, K, E, H = 5, 2, 4, 3
INDICES = torch.tensor([[1, 0], [3, 1], [0, 3], [1, 2], [0, 1]])
I32 = torch.int32


def sorted_places() -> torch.Tensor:
    return INDICES.reshape(-1).argsort(stable=True).argsort()


@pytest.mark.parametrize("rows", [T * K, 7])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_permute_and_its_gradient(dtype: torch.dtype, rows: int) -> None:
    tokens, where = sample(dtype, T, H), sorted_places()
    want = torch.empty(T * K, H, dtype=dtype)
    want[where] = tokens.repeat_interleave(K, 0)
    outs = torch.empty(rows, H, dtype=dtype), torch.empty(T * K, dtype=I32)
    got = client().call("aclnnMoeTokenPermute", tokens, INDICES.int(), rows, False, *outs)
    same(got[0], want[:rows])
    same(got[1], where.int())
    grad = sample(dtype, rows, H, seed=1)
    whole = torch.cat([grad, torch.zeros(T * K - rows, H, dtype=dtype)])
    summed = whole[where].view(T, K, H).float().sum(1).to(dtype)
    same(client().call("aclnnMoeTokenPermuteGrad", grad, where.int(), K, False, torch.empty(T, H, dtype=dtype)), summed)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_unpermute_and_its_gradients(dtype: torch.dtype) -> None:
    where = sorted_places()
    rows = sample(dtype, T * K, H).float().requires_grad_()
    probs = sample(dtype, T, K, seed=2).float().requires_grad_()
    want = (rows[where].view(T, K, H) * probs[..., None]).sum(1)
    grad = sample(dtype, T, H, seed=3)
    want.backward(grad.float())
    x, p = rows.detach().to(dtype), probs.detach().to(dtype)
    got = client().call("aclnnMoeTokenUnpermute", x, where.int(), p, False, None, torch.empty(T, H, dtype=dtype))
    same(got, want.detach().to(dtype))
    outs = torch.empty_like(x), torch.empty_like(p)
    got = client().call("aclnnMoeTokenUnpermuteGrad", x, grad, where.int(), p, False, None, *outs)
    same(got[0], rows.grad.to(dtype))
    same(got[1], probs.grad.to(dtype))
    plain = client().call("aclnnMoeTokenUnpermute", x, where.int(), None, False, None, torch.empty_like(x))
    same(plain, x[where])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_gating(dtype: torch.dtype) -> None:
    x = (torch.arange(T * E).view(T, E) * 7 % 11).to(dtype) / 4
    values, experts = x.float().softmax(-1).topk(K)
    finished = torch.tensor([False, True, False, False, True])
    outs = torch.empty(T, K, dtype=dtype), torch.empty(T, K, dtype=I32), torch.empty(T, K, dtype=I32)
    got = client().call("aclnnMoeGatingTopKSoftmax", x, finished, K, *outs)
    same(got[0], values.to(dtype))
    same(got[1], experts.masked_fill(finished[:, None], E).int())
    same(got[2], torch.arange(T * K).view(K, T).t().int())


def test_gating_with_the_softmax_of_all_or_of_the_chosen() -> None:
    x = (torch.arange(T * E).view(T, E) * 7 % 11) / 4
    outs = torch.empty(T, K), torch.empty(T, K, dtype=I32)
    chances = x.softmax(-1)
    got = client().call("aclnnMoeGatingTopKSoftmaxV2", x, None, K, 0, True, *outs, torch.empty(T, E))
    same(got[0], chances.topk(K).values)
    same(got[1], chances.topk(K).indices.int())
    same(got[2], chances)
    got = client().call("aclnnMoeGatingTopKSoftmaxV2", x, None, K, 1, False, *outs, None)
    same(got[0], x.topk(K).values.softmax(-1))


def test_expert_tokens() -> None:
    experts = INDICES.reshape(-1).sort().values
    got = client().call("aclnnMoeComputeExpertTokens", experts.int(), E, torch.empty(E, dtype=I32))
    same(got, experts.bincount(minlength=E).cumsum(0).int())


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_routing_there_and_back(dtype: torch.dtype) -> None:
    x, row = sample(dtype, T, H), torch.arange(T * K).view(K, T).t().contiguous().int()
    outs = torch.empty(T * K, H, dtype=dtype), torch.empty(T * K, dtype=I32), torch.empty(T * K, dtype=I32)
    expanded, where, experts = client().call("aclnnMoeInitRouting", x, row, INDICES.int(), T, *outs)
    same(experts, INDICES.reshape(-1).sort().values.int())
    same(expanded[where.long()], x.repeat(K, 1))  # rowIdx counts choices first
    bias, scales = sample(dtype, E, H, seed=1), sample(dtype, T, K, seed=2)
    terms = (expanded[where.long()].view(K, T, H).transpose(0, 1).float() + bias.float()[INDICES]) * scales.float()[
        ..., None
    ]
    out = torch.empty(T, H, dtype=dtype)
    got = client().call("aclnnMoeFinalizeRouting", expanded, x, x, bias, scales, where, INDICES.int(), out)
    same(got, (2 * x.float() + terms.sum(1)).to(dtype))


X, P, S = torch.empty(T, H), torch.empty(T * K, H), torch.empty(T * K, dtype=I32)
REFUSED: dict[str, tuple[Any, ...]] = {
    "padded": ("aclnnMoeTokenPermute", X, INDICES, 0, True, P, S),
    "tokens": ("aclnnMoeTokenPermute", X[:4], INDICES, 0, False, P, S),
    "width": ("aclnnMoeTokenPermute", X, INDICES, 0, False, X, S[:5]),
    "float indices": ("aclnnMoeTokenPermute", X, INDICES.float(), 0, False, P, S),
    "choices": ("aclnnMoeTokenPermuteGrad", P, S, 3, False, X),
    "probabilities": ("aclnnMoeTokenUnpermute", P, S, torch.empty(T), False, None, P),
    "k": ("aclnnMoeGatingTopKSoftmax", X, None, 4, X, X.int(), X.int()),
    "experts": ("aclnnMoeComputeExpertTokens", S, 0, S[:0]),
    "routing": ("aclnnMoeInitRouting", X, INDICES[:4], INDICES, T, P, S, S),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    client().expect_code(INVALID, *REFUSED[case])
