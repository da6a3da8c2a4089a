"""Attention to keys that an indexer chooses, and attention over triples, in libopapi, against the formulas in torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from client import client
from client import same_roughly as close
from layouts import ints, like

I32, BF, H = torch.int32, torch.bfloat16, torch.float16
INVALID = 161002
FAR = 2**63 - 1


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(5)


def seen(queries: int, keys: int, mode: int) -> torch.Tensor:
    late = torch.arange(keys) > torch.arange(queries)[:, None] + keys - queries
    return ~late if mode == 3 else torch.ones(queries, keys, dtype=torch.bool)


def best(q: torch.Tensor, k: torch.Tensor, w: torch.Tensor, count: int, mode: int) -> tuple[torch.Tensor, torch.Tensor]:
    worth = (torch.einsum("tnd,sd->tns", q.float(), k.float()).clamp(min=0) * w.float()[..., None]).sum(1)
    worth = worth.masked_fill(~seen(len(q), len(k), mode), -torch.inf)
    values, order = worth.sort(dim=-1, descending=True, stable=True)
    order = torch.where(values == -torch.inf, -1, order)
    pad = (0, max(0, count - len(k)))
    return torch.nn.functional.pad(order, pad, value=-1)[:, :count].int(), torch.nn.functional.pad(values, pad, value=-torch.inf)[:, :count]


@pytest.mark.parametrize(("mode", "count"), [(3, 5), (0, 5), (0, 12)])
def test_the_best_keys_of_every_query(mode: int, count: int) -> None:
    q, k, w = torch.randn(2, 3, 4, 16).to(BF), torch.randn(2, 8, 1, 16).to(BF), torch.randn(2, 3, 4).to(BF)
    want = [best(q[b], k[b, :, 0], w[b], count, mode) for b in (0, 1)]
    shape = (2, 3, 1, count)
    got = client().call("aclnnLightningIndexer", q, k, w, None, None, None, None, None, count, mode, FAR, FAR, True, torch.empty(shape, dtype=I32),
                        torch.empty(shape).to(BF))
    assert torch.equal(got[0], torch.stack([x[0] for x in want]).unsqueeze(2))
    close(got[1], torch.stack([x[1] for x in want]).unsqueeze(2).to(BF), 5e-2)
    client().expect_code(INVALID, "aclnnLightningIndexer", q, k, w, None, None, None, None, None, count, 1, FAR, FAR, False,
                         torch.empty(shape, dtype=I32), None)


def test_keys_in_pages_and_queries_one_after_another() -> None:
    q, pages, w, table = torch.randn(5, 4, 16).to(BF), torch.randn(4, 4, 1, 16).to(BF), torch.randn(5, 4).to(BF), ints([3, 1], [0, 2])
    parts = []
    for b, (a, z, n) in enumerate(((0, 2, 7), (2, 5, 6))):
        keys = pages[table[b].long()].reshape(8, 16)[:n]
        parts.append(best(q[a:z], keys, w[a:z], 4, 3)[0])
    args = (q, pages, w, ints(2, 5), ints(7, 6))
    rest = ("TND", "PA_BSND", 4, 3, FAR, FAR, False, torch.empty(5, 1, 4, dtype=I32), None)
    assert torch.equal(client().call("aclnnLightningIndexer", *args, table, *rest), torch.cat(parts).unsqueeze(1))
    client().expect_code(INVALID, "aclnnLightningIndexer", *args, None, *rest)


@pytest.mark.parametrize(("mode", "block"), [(3, 1), (0, 2)])
@pytest.mark.parametrize("placed", [True, False])
def test_attention_to_chosen_keys(mode: int, block: int, placed: bool) -> None:
    q, k, v = torch.randn(2, 3, 4, 16).to(BF), torch.randn(2, 8, 1, 16).to(BF), torch.randn(2, 8, 1, 16).to(BF)
    qr, kr = (torch.randn(2, 3, 4, 8).to(BF), torch.randn(2, 8, 1, 8).to(BF)) if placed else (None, None)
    index = ints([[0, 3, 2, -1]], [[1, 2, 0, 3]], [[2, 3, -1, -1]]).expand(2, 3, 1, 4).contiguous()
    both = [x if y is None else torch.cat([x, y], -1) for x, y in ((q, qr), (k, kr))]
    named = (torch.arange(8) // block == index[0, :, 0, :, None].long()).any(1) & seen(3, 8, mode)
    scores = (torch.einsum("btnd,bsd->btns", both[0].float(), both[1][:, :, 0].float()) * 0.3).masked_fill(~named[:, None], -torch.inf)
    top = scores.amax(-1)
    weights = (scores - top[..., None]).exp()
    want = torch.einsum("btns,bsd->btnd", weights / weights.sum(-1, True), v[:, :, 0].float()).to(BF)
    got = client().call("aclnnSparseFlashAttention", q, k, v, index, None, None, None, qr, kr, 0.3, block, None, None, mode, FAR, FAR, 2, True, like(want),
                        torch.empty(2, 1, 3, 4), torch.empty(2, 1, 3, 4))
    close(got[0], want)
    close(got[1], top.unsqueeze(1), 1e-3)
    close(got[2], weights.sum(-1).unsqueeze(1), 1e-3)
    client().expect_code(INVALID, "aclnnSparseFlashAttention", q, k, v, index, None, None, None, qr, kr, 0.3, block, None, None, mode, FAR, FAR, 0, False,
                         like(want), None, None)


@pytest.mark.parametrize("masked", [True, False])
def test_attention_over_triples(masked: bool) -> None:
    shapes = (2, 2, 3, 4, 8), (2, 2, 3, 5, 8), (2, 2, 3, 5, 8), (2, 2, 5, 4, 8), (2, 2, 5, 4, 8)
    low = [torch.randn(s).to(H) for s in shapes]
    q, k1, v1, k2, v2 = leaves = [x.float().requires_grad_() for x in low]
    mask = torch.rand(2, 1, 3, 1, 5) < 0.3 if masked else None
    if mask is not None:
        mask[..., 0] = False
    scores = (torch.einsum("bhimd,bhijd->bhimj", q, k1) + torch.einsum("bhimd,bhjmd->bhimj", q, k2)) * 0.3
    scores = scores if mask is None else scores.masked_fill(mask, -torch.inf)
    p = torch.softmax(scores, -1)
    out = torch.einsum("bhimj,bhijd->bhimd", p, v1) + torch.einsum("bhimj,bhjmd->bhimd", p, v2)
    rows = torch.empty(2, 2, 3, 4, 8)
    top, total, made = client().call("aclnnFusedFloydAttention", *low, mask, 0.3, rows, rows.clone(), like(low[0]))
    close(made, out.detach().to(H))
    close(top, scores.detach().amax(-1, True).expand(rows.shape), 1e-3)
    close(total, (scores - scores.amax(-1, True)).exp().sum(-1, True).detach().expand(rows.shape), 1e-3)
    grad = torch.randn(shapes[0]).to(H)
    want = torch.autograd.grad(out, leaves, grad.float())
    got = client().call("aclnnFusedFloydAttentionGrad", *low, grad, mask, top, total, made, 0.3, *(like(x) for x in low))
    for mine, right in zip(got, want, strict=True):
        close(mine, right.to(H), 5e-2)
    client().expect_code(INVALID, "aclnnFusedFloydAttention", low[0], low[3], low[2], low[3], low[4], None, 0.3, rows, rows.clone(), like(low[0]))


# ---- numbers that only the device sees -------------------------------------------------------------------------------------
FAULT = """
import os, sys
sys.path.insert(0, {folder!r})
import torch
from client import CannError, client
I, B = torch.int32, torch.bfloat16
ints = lambda *v: torch.tensor(v, dtype=I)
q, k, w = torch.zeros(1, 2, 4, 16, dtype=B), torch.zeros(1, 8, 1, 16, dtype=B), torch.zeros(1, 2, 4, dtype=B)
x, state = torch.zeros(2, 1, 4, dtype=B), torch.zeros(2, 1, 4, 4, dtype=B)
for op, arguments in {faults!r}.items():             # a fault ends all that follows on the device: a process for each
    if os.fork():
        os.wait()
        continue
    try:
        client().call(op, *eval(arguments))
    except CannError as error:
        print(error.code, error.message.replace(chr(10), " "), flush=True)
    os._exit(0)
"""
FAULTS = {
    "aclnnLightningIndexer": "(q, k, w, ints(3), None, None, None, None, 4, 3, 0, 0, False, torch.empty(1, 2, 1, 4, dtype=I), None)",
    "aclnnMoeGatingTopKBackward": "(torch.rand(1, 4), torch.rand(1, 2), ints([0, 9]), 0, 1, 1.0, 0.0, torch.empty(1, 4))",
    "aclnnMoeReRouting": "(torch.rand(2, 3), ints([2, 2]), None, 1, 0, torch.empty(2, 3), torch.empty(2), torch.empty(2, dtype=I), ints(0, 0))",
    "aclnnMoeUpdateExpert": "(ints([5]), ints([1, 0]), None, None, None, 0, 2, 0, ints([0]), torch.empty(1, 1, dtype=torch.bool))",
    "aclnnChunkGatedDeltaRule": "(x, x, x, x[..., 0], state, ints(2, 1), None, 1.0, x, state)",
    "aclnnRecurrentGatedDeltaRule": "(x, x, x, x[..., 0], state, ints(2), ints(0, 7), None, None, None, 1.0, x)",
    "aclnnScatterList": "([torch.zeros(4, 2)], ints(3), torch.ones(1, 2, 2), None, 'update', -2)",
}


def test_what_lies_outside_is_a_fault_of_the_device(run_python: Callable[..., str]) -> None:
    said = run_python(FAULT.format(folder=str(Path(__file__).parent), faults=FAULTS)).splitlines()
    assert len(said) == len(FAULTS), said
    for op, line in zip(FAULTS, said, strict=True):
        assert line.startswith("507") and op in line, line
