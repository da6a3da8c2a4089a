"""Newer routing of experts and the products around it, against the same written with torch."""

from __future__ import annotations

import pytest
import torch
from client import client, same

I32 = torch.int32
T, K, E, H = 5, 2, 4, 6
CHOSEN = torch.tensor([[1, 0], [3, 1], [0, 3], [1, 2], [0, 1]], dtype=I32)
ORDER = CHOSEN.flatten().argsort(stable=True)
COUNTS = CHOSEN.flatten().bincount(minlength=E)


def x_of(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(T, H, generator=torch.Generator().manual_seed(1)).to(dtype)


def places() -> torch.Tensor:
    return ORDER.argsort().to(I32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_init_routing_sorts_tokens_by_expert(dtype: torch.dtype) -> None:
    x = x_of(dtype)
    for flag, want in ((1, COUNTS.cumsum(0)), (2, COUNTS)):
        got = client().call("aclnnMoeInitRoutingV2", x, CHOSEN, 0, 0, E, 0, flag, False, torch.empty(T * K, H, dtype=dtype),
                            torch.empty(T * K, dtype=I32), torch.empty(E, dtype=I32), None)
        same(got[0], x[ORDER // K])
        same(got[1], places())
        same(got[2], want.to(I32))


def test_init_routing_with_a_capacity_drops_and_pads() -> None:
    x, capacity = x_of(), 2
    got = client().call("aclnnMoeInitRoutingV2", x, CHOSEN, 0, capacity, E, 1, 0, True, torch.empty(E, capacity, H),
                        torch.empty(T * K, dtype=I32), None, torch.empty(E, dtype=I32))
    want, where = torch.zeros(E, capacity, H), torch.full((T * K,), -1, dtype=I32)
    for e in range(E):
        for n, i in enumerate((CHOSEN.flatten() == e).nonzero().flatten()[:capacity]):
            want[e, n], where[i] = x[i // K], e * capacity + n
    same(got[0], want)
    same(got[1], where)
    same(got[2], COUNTS.to(I32))
    grad = torch.randn(E, capacity, H)
    whole = torch.cat([grad.view(-1, H), torch.zeros(1, H)])
    want = whole[where.long()].view(T, K, H).sum(1)
    same(client().call("aclnnMoeInitRoutingV2Grad", grad, where, K, 1, 0, torch.empty(T, H)), want)


def test_init_routing_quantises() -> None:
    x, smooth = x_of(), torch.rand(E, H) + 0.5
    outs = torch.empty(T * K, H, dtype=torch.int8), torch.empty(T * K, dtype=I32)
    scale, offset = torch.tensor([20.0]), torch.tensor([3.0])
    got = client().call("aclnnMoeInitRoutingQuantV2", x, CHOSEN, scale, offset, 0, 0, E, 0, 0, False, 0, *outs, None, None, None)
    same(got[0], (x[ORDER // K] * 20 + 3).round().clamp(-128, 127).to(torch.int8))
    got = client().call("aclnnMoeInitRoutingQuantV2", x, CHOSEN, smooth, None, 0, 0, E, 0, 0, False, 1, *outs, None, None,
                        torch.empty(T * K))
    rows = x[ORDER // K] * smooth[CHOSEN.flatten()[ORDER].long()]
    scales = rows.abs().amax(1) / 127
    same(got[2], scales)
    same(got[0], (rows / scales[:, None]).round().to(torch.int8))


def test_init_routing_of_a_range_of_experts() -> None:
    x, first, last = x_of(), 1, 3
    flat = CHOSEN.flatten()
    mine = [i for i in ORDER.tolist() if first <= flat[i] < last]
    counts = COUNTS[first:last]
    where = torch.full((T * K,), -1, dtype=I32)
    where[mine] = torch.arange(len(mine), dtype=I32)
    listed = torch.cat([torch.tensor(mine, dtype=I32), torch.full((T * K - len(mine),), -1, dtype=I32)])
    scale = torch.arange(1.0, T + 1)
    for kind, row_kind in ((1, 0), (0, 1)):
        got = client().call("aclnnMoeInitRoutingV3", x, CHOSEN, scale, None, T * K, 0, E, 0, kind, True, -1, [first, last], row_kind,
                            torch.empty(T * K, H), torch.empty(T * K, dtype=I32), torch.empty(last - first, dtype=torch.int64),
                            torch.empty(T * K))
        tokens = torch.tensor(mine) // K
        same(got[0][: len(mine)], x[tokens])
        same(got[1], listed if row_kind else where)
        same(got[2], counts if kind else counts.cumsum(0))
        same(got[3][: len(mine)], scale[tokens])
    pairs = client().call("aclnnMoeInitRoutingV3", x, CHOSEN, None, None, 0, 0, E, 0, 2, True, -1, [0, E], 0, torch.empty(T * K, H),
                          torch.empty(T * K, dtype=I32), torch.empty(E, 2, dtype=torch.int64), torch.empty(0))[2]
    assert pairs.tolist() == [[e, int(n)] for e, n in enumerate(COUNTS)]


def test_the_gradient_of_putting_tokens_back() -> None:
    rows, scales, bias = (torch.randn(*s, requires_grad=True) for s in ((T * K, H), (T, K), (E, H)))
    where = places().long()
    y = ((rows[where].view(T, K, H) + bias[CHOSEN.long()]) * scales[..., None]).sum(1)
    grad = torch.randn(T, H)
    y.backward(grad)
    got = client().call("aclnnMoeFinalizeRoutingV2Grad", grad, where.to(I32), rows.detach(), scales.detach(), CHOSEN, bias.detach(),
                        0, 0, 0, 0, torch.empty(T * K, H), torch.empty(T, K))
    same(got[0], rows.grad)
    same(got[1], scales.grad)


def test_permuting_by_a_map() -> None:
    x, probs = x_of(), torch.rand(T, E)
    chosen = torch.zeros(T, E, dtype=torch.bool).scatter_(1, CHOSEN.long(), True)
    pairs = chosen.t().nonzero()
    got = client().call("aclnnMoeTokenPermuteWithRoutingMap", x, chosen, probs, T * K, False, torch.empty(T * K, H),
                        torch.empty(T * K), torch.empty(T * K, dtype=I32))
    same(got[0], x[pairs[:, 1]])
    same(got[1], probs.t().masked_select(chosen.t()))
    same(got[2], pairs[:, 1].argsort(stable=True).to(I32))
    back = client().call("aclnnMoeTokenUnpermute", got[0], got[2], None, False, None, torch.empty_like(got[0]))
    same(back, x.repeat_interleave(K, 0))      # what it says of the rows is what the op back reads


# ---- products -----------------------------------------------------------------------------------------------------------

def int8(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(-8, 9, shape, generator=torch.Generator().manual_seed(seed)).to(torch.int8)


def quantised(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scales = x.abs().amax(1) / 127
    return (x / scales[:, None]).round(), scales


GROUPS = torch.tensor([2, 2, 5], dtype=torch.int64)      # ends; the second expert has no rows


@pytest.mark.parametrize("turned", [True, False])
def test_products_of_rows_that_are_quantised_first(turned: bool) -> None:
    x, w, scale, smooth = torch.randn(5, H).half(), int8(3, 4, H), torch.rand(3, 4) + 0.1, (torch.rand(H) + 0.5).half()
    rows, scales = quantised(x.float() * smooth.float())
    weight = w if turned else w.transpose(1, 2).contiguous()
    got = client().call("aclnnQuantMatmulDequant", x, weight[0], scale[0], None, None, None, smooth, "pertoken", turned,
                        torch.empty(5, 4, dtype=torch.float16))
    same(got, (rows @ w[0].float().t() * scales[:, None] * scale[0]).half())
    expert = torch.tensor([0, 0, 2, 2, 2])
    want = torch.stack([rows[i] @ w[e].float().t() * scales[i] * scale[e] for i, e in enumerate(expert)])
    got = client().call("aclnnQuantGroupedMatmulDequant", x, weight, scale, GROUPS, None, None, None, smooth, "pertoken", turned,
                        torch.empty(5, 4, dtype=torch.float16))
    same(got, want.half())
    given = torch.tensor([0.05])
    got = client().call("aclnnQuantMatmulDequant", x, weight[0], scale[0], None, given, None, None, "pertensor", turned,
                        torch.empty(5, 4, dtype=torch.float16))
    same(got, ((x.float() / 0.05).round().clamp(-128, 127) @ w[0].float().t() * 0.05 * scale[0]).half())


def by_expert(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    expert = [0, 0, 2, 2, 2]
    return torch.stack([x[i].float() @ w[e].float() * scale[e] * rows[i] for i, e in enumerate(expert)])


@pytest.mark.parametrize("name", ["aclnnGroupedMatmulSwigluQuant", "aclnnGroupedMatmulSwigluQuantWeightNZ"])
def test_products_of_experts_with_swiglu(name: str) -> None:
    x, w, scale, rows = int8(5, H), int8(3, H, 8, seed=1), torch.rand(3, 8) / 10, torch.rand(5) / 10
    y = by_expert(x, w, scale, rows)
    want, scales = quantised(torch.nn.functional.silu(y[:, :4]) * y[:, 4:])
    got = client().call(name, x, w, None, None, scale, rows, GROUPS, torch.empty(5, 4, dtype=torch.int8),
                        torch.empty(5), None)
    same(got[1], scales)
    assert (got[0].float() - want).abs().max() <= 1      # a tie may round the other way


@pytest.mark.parametrize("name", ["", "WeightNz", "V2", "V3", "WeightNzV2"])
def test_products_of_experts_added_up(name: str) -> None:
    x, w, scale, rows = int8(5, H), int8(3, H, 8, seed=1), torch.rand(3, 8), torch.rand(5)
    logit, where, shared = torch.rand(5), torch.tensor([0, 1, 1, 3, 0]), torch.randn(2, 8).bfloat16()
    want = torch.zeros(4, 8).index_add_(0, where, by_expert(x, w, scale, rows) * logit[:, None])
    want[1:3] += 0.5 * shared.float()
    later = [None, None, None] if name.endswith(("2", "3")) else []       # an offset and what weights of int4 need
    hint = [[2]] if name in ("V3", "WeightNzV2") else []
    got = client().call("aclnnGroupedMatmulFinalizeRouting" + name, x, w, scale, None, *later, rows, torch.tensor([2, 0, 3]), shared,
                        logit, where, 0, 0.5, 1, False, False, 1, *hint, torch.empty(4, 8))
    same(got, want)


def test_a_bias_is_refused_by_name() -> None:
    x, w = int8(5, H), int8(3, H, 8)
    client().expect_code(561003, "aclnnGroupedMatmulSwigluQuant", x, w, torch.ones(8), None, torch.ones(3, 8), torch.ones(5), GROUPS,
                         torch.empty(5, 4, dtype=torch.int8), torch.empty(5), None)


def test_the_fifth_grouped_product_is_the_fourth_with_a_hint() -> None:
    x, w, groups = torch.randn(5, H), torch.randn(3, H, 4), torch.tensor([2, 3, 5])
    nothing = [None] * 6
    want = torch.cat([x[:2] @ w[0], x[2:3] @ w[1], x[3:] @ w[2]])
    got = client().call("aclnnGroupedMatmulV5", [x], [w], *nothing, groups, None, None, None, 3, 0, 0, 0, [2], [torch.empty(5, 4)],
                        None, None)
    same(got, want)
