"""Caches in blocks, rotations and merged attentions, against the same written with torch."""

from __future__ import annotations

import pytest
import torch
from client import client, same, same_roughly

I32 = torch.int32
FLOATS = [torch.float32, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int8], ids=str)
def test_tokens_go_to_their_slots_and_come_back(dtype: torch.dtype) -> None:
    blocks, size, heads = 4, 2, 3
    key, value = torch.randn(5, heads, 4).to(dtype), torch.randn(5, heads, 2).to(dtype)
    slots = torch.tensor([6, 0, -1, 3, 7], dtype=I32)       # one token is not kept
    caches = [torch.zeros(blocks, size, heads, d, dtype=dtype) for d in (4, 2)]
    want = [c.clone() for c in caches]
    for c, x in zip(want, (key, value)):
        c.view(blocks * size, heads, -1)[[6, 0, 3, 7]] = x[[0, 1, 3, 4]]
    got = client().call("aclnnScatterPaKvCache", key, caches[0], slots, value, caches[1], None, None, None, "Norm", "None", None, None)
    same(got[0], want[0])
    same(got[1], want[1])
    tables, lengths = torch.tensor([[3, 0], [1, 2]], dtype=I32), torch.tensor([3, 2], dtype=I32)
    rows = [6, 7, 0, 2, 3]
    for given, cumsum in ((lengths, False), (torch.tensor([0, 3, 5], dtype=I32), True)):
        outs = [torch.empty(5, heads, d, dtype=dtype) for d in (4, 2)]
        back = client().call("aclnnGatherPaKvCache", *want, tables, given, *outs, None, "Norm", cumsum)
        for b, c in zip(back, want):
            same(b, c.view(blocks * size, heads, -1)[rows])
    client().expect_code(561003, "aclnnScatterPaKvCache", key, caches[0], slots, value, caches[1], None, None, None, "Other", "None",
                         None, None)


def test_caches_of_pieces() -> None:
    """PA_NZ: a row lies in pieces of 16 items, those of all slots of a block side by side."""
    blocks, size, heads, depth, piece = 3, 2, 2, 24, 16
    key, slots = torch.randn(4, heads, depth).half(), torch.tensor([5, 0, 3, 2])
    cache = torch.zeros(blocks, heads * depth // piece, size, piece).half()
    want = cache.clone()
    for t, s in enumerate(slots.tolist()):
        want[s // size, :, s % size] = key[t].view(-1, piece)
    got = client().call("aclnnScatterPaKvCache", key, cache, slots, key, cache, None, None, None, "PA_NZ", "None", None, None)
    same(got[0], want)
    same(got[1], want)
    tables, lengths = torch.tensor([[1, 2], [0, 0]]), torch.tensor([4, 1])
    back = client().call("aclnnGatherPaKvCache", want, want, tables, lengths, torch.empty(5, heads, depth).half(),
                         torch.empty(5, heads, depth).half(), None, "PA_NZ", False)
    rows = torch.stack([want[s // size, :, s % size].reshape(heads, depth) for s in (2, 3, 4, 5, 0)])
    same(back[0], rows)


def interleaved(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.cat((even, odd), -1) * cos + torch.cat((-odd, even), -1) * sin


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_interleaved_rotation(dtype: torch.dtype) -> None:
    x, cos, sin = (torch.randn(*s).to(dtype) for s in ((2, 3, 4, 8), (2, 1, 4, 8), (2, 1, 4, 8)))
    want = interleaved(x.float(), cos.float(), sin.float()).to(dtype)
    same(client().call("aclnnInterleaveRope", x, cos, sin, torch.empty_like(x)), want)


@pytest.mark.parametrize("mode", ["Norm", "PA"])
def test_keys_normed_and_rotated_into_their_caches(mode: str) -> None:
    batch, steps, dv, dk = 2, 3, 6, 4
    kv, gamma = torch.randn(batch, 1, steps, dv + dk), torch.randn(dv)
    cos, sin = torch.randn(batch, 1, steps, dk), torch.randn(batch, 1, steps, dk)
    shape = (2, 1, 4) if mode == "Norm" else (4, 2, 1)     # [B, N, S] or [blocks, size, N]
    caches = [torch.zeros(*shape, d) for d in (dk, dv)]
    index = torch.tensor([[0, 2, 3], [1, 0, 3]]) if mode == "Norm" else torch.tensor([5, 0, 2, 7, -1, 1])
    k = interleaved(kv[..., dv:], cos, sin).view(-1, dk)
    x = kv[..., :dv]
    v = (x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * gamma).view(-1, dv)
    flat = (index + torch.tensor([[0], [4]])).flatten() if mode == "Norm" else index
    want = [c.clone() for c in caches]
    for c, rows in zip(want, (k, v)):
        c.view(8, -1)[flat[flat >= 0]] = rows[flat >= 0]
    outs = torch.empty(batch, 1, steps, dk), torch.empty(batch, 1, steps, dv)
    for version, more in (("", ()), ("V2", (None,))):
        got = client().call("aclnnKvRmsNormRopeCache" + version, kv, gamma, cos, sin, index, *(c.clone() for c in caches), None, None, None, None, *more,
                            1e-5, mode, True, *outs)  # fmt: skip
        for g, w in zip(got, (*want, k.view(outs[0].shape), v.view(outs[1].shape)), strict=True):
            same(g, w)


def test_attentions_of_parts_make_the_whole() -> None:
    q, k, v = torch.randn(5, 8), torch.randn(12, 8), torch.randn(12, 4)
    scores = q @ k.t()
    parts = [(scores[:, s].logsumexp(1), scores[:, s].softmax(1) @ v[s]) for s in (slice(0, 4), slice(4, 12))]
    got = client().call("aclnnAttentionUpdate", [p[0] for p in parts], [p[1] for p in parts], 1, torch.empty(5, 4), torch.empty(5))
    same(got[0], scores.softmax(1) @ v)
    same(got[1], scores.logsumexp(1))


@pytest.mark.parametrize("neox", [True, False])
@pytest.mark.parametrize("sections", [[], [1, 1, 1]])
def test_rotation_by_a_cache_of_positions(neox: bool, sections: list[int]) -> None:
    tokens, head, half = 4, 8, 3                            # the last items of a head are not rotated
    query, key, cache = torch.randn(tokens, 2 * head), torch.randn(tokens, head), torch.randn(10, 2 * half)
    positions = torch.randint(0, 10, (3, tokens) if sections else (tokens,))
    rows = cache[positions]
    if sections:
        rows = torch.stack([torch.cat([rows[i, :, i : i + 1], rows[i, :, half + i : half + i + 1]], 1) for i in range(3)], 2)
        cos, sin = rows[:, 0], rows[:, 1]
    else:
        cos, sin = rows[:, :half], rows[:, half:]

    def rotated(x: torch.Tensor) -> torch.Tensor:
        y = x.view(tokens, -1, head).clone()
        a, b = (slice(0, half), slice(half, 2 * half)) if neox else (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
        u, w, c, s = y[..., a].clone(), y[..., b].clone(), cos[:, None], sin[:, None]
        y[..., a], y[..., b] = u * c - w * s, w * c + u * s
        return y.view_as(x)

    for name, mode in (("aclnnRopeWithSinCosCache", []), ("aclnnRopeWithSinCosCacheV2", [0])):
        got = client().call(name, positions, query, key, cache, sections, head, neox, *mode, torch.empty_like(query),
                            torch.empty_like(key))
        same(got[0], rotated(query))
        same(got[1], rotated(key))


@pytest.mark.parametrize("name", ["aclnnFusedInferAttentionScoreV4", "aclnnFusedInferAttentionScoreV5"])
def test_attention_with_a_sink(name: str) -> None:
    """The sink is a logit of each head that no value belongs to."""
    q, k, v, sink = torch.randn(1, 2, 3, 8), torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 8), torch.tensor([0.5, -1.0])
    q, k, v = q.half(), k.half(), v.half()
    scores = torch.cat([q.float() @ k.float().mT * 0.25, sink.view(1, 2, 1, 1).expand(1, 2, 3, 1)], -1)
    want = (scores.softmax(-1)[..., :5] @ v.float()).half()
    later = name.endswith("5")
    args = [None] * 21 + [None, None, None, None, sink] + ([None, None] if later else [])
    numbers = [2, 0.25, 2147483647, 2147483647, "BNSD", 2, 0, 0, 0, 0, False, 0, 0, 0] + ([0] if later else [])
    got = client().call(name, q, [k], [v], *args, *numbers, torch.empty_like(q), None)
    same(got, want)


def by_halves(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


def rms(x: torch.Tensor, gamma: torch.Tensor, epsilon: float) -> torch.Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + epsilon).sqrt() * gamma


def as_int8(x: torch.Tensor) -> torch.Tensor:
    return x.round().clamp(-128, 127).to(torch.int8)


def in_pieces(rows: dict[int, torch.Tensor], like: torch.Tensor, size: int) -> torch.Tensor:
    """A cache of blocks in which a row lies in pieces of 32 bytes, those of all slots of a block side by side."""
    made, piece = torch.zeros_like(like), 32 // like.element_size()
    blocks = made.view(like.numel() // (size * rows[0].numel()), -1, size, piece)
    for slot, row in rows.items():
        blocks[slot // size, :, slot % size] = row.view(-1, piece).to(like.dtype)
    return made


@pytest.mark.parametrize("mode", ["PA_NZ", "PA_BLK_NZ", "PA_BLK_BNSD"])
@pytest.mark.parametrize("low", [False, True])
def test_keys_that_are_quantised_or_stored_in_pieces(mode: str, low: bool) -> None:
    batch, steps, dv, dk, size = 2, 3, 32, 32, 2
    kv, gamma = torch.randn(batch, 1, steps, dv + dk).half(), torch.rand(dv).half()
    cos, sin = torch.rand(batch, 1, steps, dk).half(), torch.rand(batch, 1, steps, dk).half()
    caches = [torch.zeros(4, size, 1, d, dtype=torch.int8 if low else torch.float16) for d in (dk, dv)]
    scales = [torch.tensor([20.0]), torch.rand(dv) * 30, torch.rand(dk) * 4, torch.tensor([3.0])] if low else [None] * 4
    rows = [interleaved(kv[..., dv:].float(), cos.float(), sin.float()).view(-1, dk), rms(kv[..., :dv].float(), gamma.float(), 1e-5).view(-1, dv)]
    if mode.startswith("PA_BLK"):                           # the blocks of each batch, by the first slot of each
        index = torch.tensor([6, -1, 0, 4])
        slots = [6, 7, None, 0, 1, 4]
    else:
        index = torch.tensor([7, 0, -1, 3, 2, 5])
        slots = [7, 0, None, 3, 2, 5]
    got = client().call("aclnnKvRmsNormRopeCache", kv, gamma, cos, sin, index, *(c.clone() for c in caches), *scales, 1e-5, mode, False, None, None)
    for g, x, cache, scale, offset in zip(got, rows, caches, scales[:2], scales[2:], strict=True):
        stored = as_int8(x * scale + offset) if low else x.half()
        kept = {s: stored[i] for i, s in enumerate(slots) if s is not None}
        if mode.endswith("NZ"):
            want = in_pieces(kept, cache, size)
        else:
            want = cache.clone()
            for s, row in kept.items():
                want.view(8, -1)[s] = row
        same_roughly(g.float(), want.float(), 1.01 if low else 2e-2)


@pytest.mark.parametrize("low", [False, True])
def test_queries_and_keys_of_one_matrix(low: bool) -> None:
    tokens, q, k, depth, size = 6, 3, 2, 16, 2
    qkv, gammas = torch.randn(tokens, (q + 2 * k) * depth).half(), [torch.rand(depth).half() for _ in "qk"]
    cos, sin, index = torch.rand(tokens, depth).half(), torch.rand(tokens, depth).half(), torch.tensor([5, -1, 0, 1, 6, 7])
    piece = 32 if low else 16
    cache = torch.zeros(4, k * depth // piece, size, piece, dtype=torch.int8 if low else torch.float16)
    scales = [torch.rand(k, depth) + 0.1, torch.rand(k, depth) + 0.1, torch.rand(k, depth), None] if low else [None] * 4
    x = qkv.float().view(tokens, -1, depth)
    parts = [by_halves(rms(x[:, a:b], g.float(), 1e-6), cos.float()[:, None], sin.float()[:, None]).reshape(tokens, -1)
             for a, b, g in ((0, q, gammas[0]), (q, q + k, gammas[1]))] + [x[:, q + k :].reshape(tokens, -1)]  # fmt: skip
    outs = [torch.empty_like(p).half() for p in parts]
    got = client().call("aclnnQkvRmsNormRopeCache", qkv, *gammas, cos, sin, index, torch.zeros(tokens, q * depth).half(), cache.clone(), cache.clone(),
                        *scales, [2, 3, q + 2 * k, depth], [q, k, k], 1e-6, "PA_NZ", *outs)  # fmt: skip
    same_roughly(got[0], parts[0].half())
    for g, part, scale, offset in zip(got[1:3], parts[1:], scales[:2], scales[2:], strict=True):
        stored = part.half() if scale is None else as_int8(part / scale.flatten() + (0 if offset is None else offset.flatten()))
        want = in_pieces({s: stored[i] for i, s in enumerate(index.tolist()) if s >= 0}, cache, size)
        same_roughly(g.float(), want.float(), 1.01 if low else 2e-2)
    for g, part in zip(got[3:], parts, strict=True):
        same_roughly(g, part.half())


@pytest.mark.parametrize("mode", ["contiguous", "page"])
@pytest.mark.parametrize("restores", [False, True])
def test_quantised_caches_of_rotated_keys(mode: str, restores: bool) -> None:
    batch, steps, q, depth = 2, 2, 2, 8
    wide = (q + 2) * depth
    x = torch.randint(-90, 90, (batch, steps, wide), dtype=torch.int32) if restores else torch.randn(batch, steps, wide).half()
    cos, sin = (torch.rand(batch, steps, 1, depth).half() for _ in "cs")
    weight, act, bias = torch.rand(wide) / 40, torch.rand(batch * steps) + 0.5, torch.randint(-9, 9, (wide,), dtype=torch.int32)
    full = (x.float() + bias) * weight * act.view(batch, steps, 1) if restores else x.float()
    heads = full.view(batch, steps, q + 2, depth)
    query = by_halves(heads[:, :, :q], cos.float(), sin.float())
    key, value = by_halves(heads[:, :, q : q + 1], cos.float(), sin.float()), heads[:, :, q + 1 :]
    scales = [torch.rand(depth) / 20 + 0.01, torch.rand(1, depth) / 20 + 0.01, torch.rand(depth), None]
    caches = [torch.zeros(3, 5, 1, depth, dtype=torch.int8) for _ in "kv"]
    indices = torch.tensor([3, 1] if mode == "contiguous" else [14, 0, 7, 2], dtype=I32)
    slots = [3, 4, 6, 7] if mode == "contiguous" else [14, 0, 7, 2]
    outs = [torch.empty(batch, steps, n, depth).half() for n in (q, 1, 1)]
    got = client().call("aclnnDequantRopeQuantKvcache", x, cos, sin, *(c.clone() for c in caches), indices, *scales, weight, act, bias,
                        [q * depth, depth, depth], "static", "BSND", True, mode, *outs)  # fmt: skip
    for g, part, scale, offset in zip(got, (key, value), scales[:2], scales[2:], strict=False):
        want = torch.zeros(15, depth)
        want[slots] = as_int8(part.reshape(-1, depth) / scale.view(-1) + (0 if offset is None else offset)).float()
        same_roughly(g.float().view(15, depth), want, 1.01)
    for g, part in zip(got[2:], (query, key, value), strict=True):
        same_roughly(g, part.half())


def test_checks_of_gradients_for_silent_faults() -> None:
    grad, sfda, step, result = torch.ones(4), torch.tensor([70.0, 60.0, 90.0]), torch.tensor([7]), torch.empty(1, dtype=I32)
    limits = (7, 1e6, 10.0, 1e4, 5.0)
    for val, mode, want in ((160.0, 1, (0, [160.0, 60.0, 160.0], 8, 1.0)), (320.0, 1, (2, [320.0, 60.0, 320.0], 8, 1.0)),
                            (2e6, 1, (1, [2e6, 60.0, 2e6], 8, 1.0)), (2e6, 2, (1, [70.0, 60.0, 90.0], 7, 0.0))):  # fmt: skip
        g, s, n, found = client().call("aclnnSilentCheck", torch.tensor(val), grad, sfda, step, *limits, mode, result)
        assert (found.item(), s.tolist(), n.item(), g[0].item()) == want
    for val, steps, mode, want in ((3.0, 0, 3, (0, 2.01, 1, 1.0)), (500.0, 1, 3, (2, 6.98, 2, 1.0)), (5e4, 0, 1, (1, 501.98, 1, 1.0)),
                                   (float("inf"), 5, 3, (1, 2.0, 5, 0.0))):  # fmt: skip
        average, g, n, found = client().call("aclnnSilentCheckV2", torch.tensor([val]), torch.ones(1), torch.full((1,), 2.0), grad,
                                             torch.tensor([steps]), [4], [1], [0], 1000.0, 2.0, 0.99, mode, result)  # fmt: skip
        assert (found.item(), n.item(), g[0].item()) == (want[0], *want[2:])
        same(average, torch.tensor([want[1]]))
