"""The indexer of sparse attention, its losses and gradients, and attention to chosen keys and blocks, in libopapi against torch."""

from __future__ import annotations

import pytest
import torch
from client import client, same
from torch import Tensor

EVER = 2**63 - 1


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(5)


def half(*shape: int) -> Tensor:
    return (torch.randn(shape) / 2).half()


def leaves(*tensors: Tensor) -> list[Tensor]:
    return [t.float().requires_grad_() for t in tensors]


def scores(q: Tensor, k: Tensor, w: Tensor) -> Tensor:
    """[B, S, N, D], [B, S2, D], [B, S, N]: the score of every key for every query, -inf for keys that it does not see."""
    s = torch.einsum("bsnk,bsn->bsk", torch.einsum("bsnd,bkd->bsnk", q, k).relu(), w)
    return s.masked_fill(torch.ones(s.shape[-2:]).triu(1 + s.shape[-1] - s.shape[-2]).bool(), -torch.inf)


def chosen_keys(rows: int, keys: int, count: int) -> Tensor:
    """Different keys that each query sees; -1 ends a row."""
    made = torch.full((rows, count), -1, dtype=torch.int32)
    for i in range(rows):
        seen = i + 1 + keys - rows
        n = min(count, seen)
        made[i, :n] = torch.randperm(seen)[:n].int()
    return made


def seen_by(chosen: Tensor, keys: int) -> Tensor:
    """[rows, count] to a mask [rows, keys]."""
    made = torch.zeros(len(chosen), keys + 1)
    return made.scatter(1, chosen.long().where(chosen >= 0, torch.tensor(keys)), 1.0)[:, :keys].bool()


@pytest.mark.parametrize("layout", ["BSND", "TND"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("rope", [0, 4])
def test_loss(layout: str, sparse: bool, rope: int) -> None:
    batch, rows, keys, heads, index_heads, depth, scale = 1 if layout == "TND" else 2, 5, 7, 4, 8, 16, 0.3
    shared = 1 if sparse else heads
    q, k, qi, ki = half(batch, rows, heads, depth), half(batch, keys, shared, depth), half(batch, rows, index_heads, depth), half(batch, keys, 1, depth)
    qr, kr = (half(batch, rows, heads, rope), half(batch, keys, shared, rope)) if rope else (None, None)
    w = half(batch, rows, index_heads)
    chosen = torch.stack([chosen_keys(rows, keys, 4) for _ in range(batch)])
    hidden = torch.ones(rows, keys).triu(1 + keys - rows).bool().expand(batch, rows, keys)
    if sparse:
        hidden = ~torch.stack([seen_by(c, keys) for c in chosen])
    attention = torch.einsum("bsnd,bknd->bnsk", q.float(), k.float().expand(-1, -1, heads, -1))
    if qr is not None and kr is not None:
        attention = attention + torch.einsum("bsnd,bknd->bnsk", qr.float(), kr.float().expand(-1, -1, heads, -1))
    attention = (attention * scale).masked_fill(hidden[:, None], -torch.inf)
    top = attention.amax(-1)
    total = (attention - top[..., None]).exp().sum(-1)
    group = heads // shared
    laid = [t.reshape(batch, shared, group, rows).transpose(2, 3).contiguous() for t in (top, total)]
    p = attention.softmax(-1).mean(1)
    inputs = leaves(qi, ki, w)
    mine = scores(inputs[0], inputs[1][:, :, 0], inputs[2]).masked_fill(hidden, -torch.inf)
    loss = torch.where(p > 0, p * (p.log() - mine.log_softmax(-1)), 0.0).nan_to_num(0.0).sum()
    want = torch.autograd.grad(torch.where(hidden, 0.0, -p * mine.log_softmax(-1).masked_fill(hidden, 0.0)).sum(), inputs)
    lengths = ([rows], [keys]) if layout == "TND" else (None, None)
    flat = (lambda t: None if t is None else t.flatten(0, 1)) if layout == "TND" else (lambda t: t)
    states = [t[0] for t in laid] if layout == "TND" else laid
    outs = [torch.empty(flat(t).shape).half() for t in (qi, ki, w)]
    tail = [*lengths, scale, layout, 3, EVER, EVER]
    if sparse:
        got = client().call("aclnnSparseLightningIndexerGradKLLoss", flat(q), flat(k), flat(qi), flat(ki), flat(w), flat(chosen[:, :, None]),
                            *states, flat(qr), flat(kr), *tail, True, *outs, torch.empty(1))  # fmt: skip
    else:
        sizes = (1, rows) if layout == "TND" else (batch, 1, rows)
        index_states = client().call("aclnnDenseLightningIndexerSoftmaxLse", flat(qi), flat(ki), flat(w), *lengths, layout, 3, EVER, EVER,
                                     torch.empty(sizes), torch.empty(sizes))  # fmt: skip
        same(index_states[0].flatten(), mine.amax(-1).detach().flatten(), rtol=1e-4, atol=1e-4)
        got = client().call("aclnnDenseLightningIndexerGradKLLoss", flat(q), flat(k), flat(qi), flat(ki), flat(w), *states, *index_states,
                            flat(qr), flat(kr), *tail, *outs, torch.empty(1))  # fmt: skip
    for part, right in zip(got, [*want, loss.detach()], strict=True):
        same(part.float().flatten(), right.flatten(), rtol=1e-2, atol=1e-2)


def test_indexer_gradient() -> None:
    q, k, w, chosen, dy = half(1, 5, 8, 16), half(1, 7, 1, 16), half(1, 5, 8), chosen_keys(5, 7, 4)[None, :, None], half(1, 5, 1, 4)
    inputs = leaves(q, k, w)
    picked = scores(inputs[0], inputs[1][:, :, 0], inputs[2]).gather(2, chosen[:, :, 0].clamp(min=0).long())
    want = torch.autograd.grad(torch.where(chosen[:, :, 0] >= 0, picked * dy[:, :, 0].float(), 0.0).sum(), inputs)
    got = client().call("aclnnLightningIndexerGrad", q, k, dy, chosen, w, None, None, 0, "BSND", 3, EVER, EVER, False,
                        *(torch.empty(t.shape).half() for t in (q, k, w)))  # fmt: skip
    for part, right in zip(got, want, strict=True):
        same(part.float(), right, rtol=1e-2, atol=1e-2)


def test_indexer_of_bytes() -> None:
    """Keys lie in pages; every query and key has a scale."""
    q, pages = torch.randint(-9, 9, (2, 3, 4, 16), dtype=torch.int8), torch.randint(-9, 9, (5, 4, 1, 16), dtype=torch.int8)
    w, qs, ks, table, lengths = half(2, 3, 4), half(2, 3, 4).abs(), half(5, 4, 1).abs(), torch.tensor([[3, 1], [0, 4]], dtype=torch.int32), [7, 8]
    for b, length in enumerate(lengths):
        k = (pages.float() * ks.float()[..., None])[table[b]].reshape(-1, 16)[:length]
        s = scores((q.float() * qs.float()[..., None])[b : b + 1], k[None], w.float()[b : b + 1])[0]
        got = client().call("aclnnQuantLightningIndexer", q, pages, w, qs, ks, None, torch.tensor(lengths, dtype=torch.int32), table, 0, 0, "BSND", "PA_BSND",
                            3, 3, EVER, EVER, 64, 4, torch.empty(2, 3, 1, 3, dtype=torch.int32))  # fmt: skip
        found = got[b, :, 0].long()
        same(s.gather(1, found), s.topk(3).values, rtol=1e-4, atol=1e-4)


def attention(q: Tensor, k: Tensor, v: Tensor, scale: float, sinks: Tensor | None = None) -> Tensor:
    s = q @ k.mT * scale
    if sinks is None:
        return s.softmax(-1) @ v
    return torch.cat([s, sinks.expand(*s.shape[:-1], 1)], -1).softmax(-1)[..., :-1] @ v


def test_attention_to_chosen_keys() -> None:
    """With sinks, then gradients without them."""
    rows, keys, heads, depth, rope = 5, 7, 4, 16, 8
    q, k, v, qr, kr = half(1, rows, heads, depth), half(1, keys, 1, depth), half(1, keys, 1, depth), half(1, rows, heads, rope), half(1, keys, 1, rope)
    chosen, sinks = chosen_keys(rows, keys, 4), torch.randn(heads)
    inputs = leaves(q, k, v, qr, kr)

    def judge(with_sinks: bool) -> Tensor:
        full_q, full_k = torch.cat([inputs[0], inputs[3]], -1), torch.cat([inputs[1], inputs[4]], -1)
        made = []
        for i in range(rows):
            at = chosen[i][chosen[i] >= 0].long()
            made.append(attention(full_q[0, i][:, None], full_k[0, at, 0], inputs[2][0, at, 0], 0.2, sinks[:, None, None] if with_sinks else None)[:, 0])
        return torch.stack(made)[None]

    state = [torch.empty(1, 1, rows, heads), torch.empty(1, 1, rows, heads)]
    head = (q, k, v, chosen[None, :, None], None, None, None, qr, kr)
    options = (0.2, 1, "BSND", "BSND", 3, EVER, EVER, 2, True)
    out, _, _ = client().call("aclnnSparseFlashAttentionV2", *head, sinks, *options, torch.empty(q.shape).half(), *state)
    same(out.float(), judge(True).detach(), rtol=1e-2, atol=1e-2)
    out, top, total = client().call("aclnnSparseFlashAttention", *head, *options, torch.empty(q.shape).half(), *state)
    dy = half(*q.shape)
    want = torch.autograd.grad(judge(False), inputs, dy.float())
    got = client().call("aclnnSparseFlashAttentionGrad", q, k, v, chosen[None, :, None], dy, out, top, total, None, None, qr, kr, 0.2, 1, "BSND", 3, EVER, EVER,
                        True, *(torch.empty(t.shape).half() for t in (q, k, v, qr, kr)))  # fmt: skip
    for part, right in zip(got, want, strict=True):
        same(part.float(), right, rtol=2e-2, atol=2e-2)


def test_attention_to_keys_of_bytes() -> None:
    """A key is int8 items, its rope in the query's dtype, and a scale for every tile."""
    rows, keys, heads, depth, rope, tile = 3, 5, 2, 16, 8, 8
    q, items, kr = half(1, rows, heads, depth + rope), torch.randint(-9, 9, (keys, depth), dtype=torch.int8), half(keys, rope)
    by, chosen = torch.rand(keys, depth // tile), chosen_keys(rows, keys, 3)
    packed = torch.cat([items, kr.view(torch.int8), by.view(torch.int8)], 1).reshape(1, keys, 1, -1)
    got = client().call("aclnnKvQuantSparseFlashAttention", q, packed, packed, chosen[None, :, None], None, None, None, None, None, 0.1, 2, 2, 1, "BSND", "BSND",
                        3, EVER, EVER, 2, 1, tile, rope, torch.empty(1, rows, heads, depth).half())  # fmt: skip
    k = items.float() * by.repeat_interleave(tile, 1)
    for i in range(rows):
        at = chosen[i][chosen[i] >= 0].long()
        same(got[0, i].float(), attention(q[0, i].float(), torch.cat([k, kr.float()], 1)[at], k[at], 0.1), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("layout", ["BNSD", "TND"])
def test_attention_to_blocks(layout: str) -> None:
    lengths, heads, shared, depth, x, y = [(5, 9), (7, 6)], 4, 2, 8, 2, 4
    rows, keys = max(a for a, _ in lengths), max(b for _, b in lengths)
    mask = (torch.rand(2, heads, -(-rows // x), -(-keys // y)) < 0.5).char()
    mask[..., 0] = 1
    parts = [leaves(half(heads, a, depth), half(shared, b, depth), half(shared, b, depth)) for a, b in lengths]
    dys = [half(heads, a, depth) for a, _ in lengths]
    outs, slopes, lse = [], [], []
    for part, dy, m in zip(parts, dys, mask, strict=True):
        q, k, v = (t if i == 0 else t.repeat_interleave(heads // shared, 0) for i, t in enumerate(part))
        hidden = m.repeat_interleave(x, 1).repeat_interleave(y, 2)[:, : q.shape[1], : k.shape[1]] == 0
        s = (q @ k.mT * 0.3).masked_fill(hidden, -torch.inf)
        outs.append(s.softmax(-1) @ v)
        lse.append(s.logsumexp(-1)[..., None].detach())
        slopes.append(torch.autograd.grad(outs[-1], part, dy.float()))

    def laid(tensors: list[Tensor], length: int) -> Tensor:
        if layout == "TND":
            return torch.cat([t.detach().transpose(0, 1) for t in tensors]).contiguous()
        return torch.stack([torch.cat([t.detach(), torch.zeros(t.shape[0], length - t.shape[1], t.shape[2])], 1) for t in tensors])

    q, k, v = (laid([p[i] for p in parts], rows if i == 0 else keys).half() for i in range(3))
    ends = ([a for a, _ in lengths], [b for _, b in lengths])
    tail = (shared, 0, 0.3)
    out, found = client().call("aclnnBlockSparseAttention", q, k, v, mask, None, [x, y], *ends, None, layout, layout, *tail, 1, 0, 2**31 - 1, 2**31 - 1, 1,
                               torch.empty(q.shape).half(), torch.empty(*q.shape[:-1], 1))  # fmt: skip
    same(out.float(), laid(outs, rows), rtol=1e-2, atol=1e-2)
    right = laid(lse, rows)
    same(found[right != 0], right[right != 0], rtol=1e-3, atol=1e-3)
    got = client().call("aclnnBlockSparseAttentionGrad", laid(dys, rows).half(), q, k, v, out, right, mask, None, [x, y], *ends, layout, layout, *tail,
                        2**31 - 1, 2**31 - 1, *(torch.empty(t.shape).half() for t in (q, k, v)))  # fmt: skip
    for i, part in enumerate(got):
        same(part.float(), laid([s[i] for s in slopes], rows if i == 0 else keys), rtol=1e-2, atol=1e-2)


def test_pages_of_chosen_and_of_compressed_keys() -> None:
    heads, shared, depth, wide, page, lengths = 4, 2, 16, 8, 8, [13, 16]
    q, pages, values, table = half(2, heads, depth), half(5, page, shared * depth), half(5, page, shared * wide), torch.tensor([[3, 1], [0, 4]], dtype=torch.int32)
    chosen = torch.tensor([[[0, 3], [1, -1]], [[2, 1], [3, 0]]], dtype=torch.int32)
    got = client().call("aclnnNsaSelectedAttentionInfer", q.reshape(2, 1, -1), pages, values, chosen, None, table, None, lengths, "BSH", heads, shared, 4, 2, page, 0.3, 0,
                        torch.empty(2, 1, heads * wide).half())  # fmt: skip
    out, best = client().call("aclnnNsaCompressAttentionInfer", q, pages, values, None, table, None, lengths, None, None, heads, shared, 32, 2, 32, 16, 0.3, "TND",
                              page, 0, torch.empty(2, heads, wide).half(), torch.empty(2, shared, 2, dtype=torch.int32))  # fmt: skip
    for b, length in enumerate(lengths):
        k, v = (t.float()[table[b]].reshape(2 * page, shared, -1)[:length] for t in (pages, values))
        for h in range(heads):
            kv = h // (heads // shared)
            at = [j for block in chosen[b, kv].tolist() if block >= 0 for j in range(block * 4, min(block * 4 + 4, length))]
            same(got.reshape(2, heads, wide)[b, h].float(), attention(q[b, h].float(), k[at, kv], v[at, kv], 0.3), rtol=1e-2, atol=1e-2)
            same(out[b, h].float(), attention(q[b, h].float(), k[:, kv], v[:, kv], 0.3), rtol=1e-2, atol=1e-2)
        for kv in range(shared):  # a block of 32 spans the windows of 32 at 2j - 1, twice 2j, 2j + 1, as far as there are some
            p = (q[b, 2 * kv : 2 * kv + 2].float() @ k[:, kv].T * 0.3).softmax(-1).sum(0)
            at = lambda i: p[i] if 0 <= i < length else 0.0
            blocks = torch.tensor([sum(at(2 * j - m - w) for m in (0, 1) for w in (0, 1)) for j in range((length + 1) // 2)])
            assert best[b, kv].tolist() == blocks.topk(2).indices.tolist()
