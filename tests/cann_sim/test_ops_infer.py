"""Attention for inference in libopapi: blocks of keys, packed queries, rotated parts, a prefix, int8, against torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from client import client, rows, same
from torch import Tensor

B, N, KEYS, DEPTH, FAR = 2, 4, 11, 16, 2147483647
INVALID = 161002
SCALE = 0.25
PLAIN = {"int64": 0, "bool": False, "double": 0.0}


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(5)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """[heads, length, depth] each; heads of keys are shared."""
    k, v = (t.float().repeat_interleave(q.shape[0] // k.shape[0], 0) for t in (k, v))
    return (q.float() @ k.mT * SCALE).softmax(-1) @ v


def fused(version: str = "V3", **given: Any) -> Any:
    row = rows()[f"aclnnFusedInferAttentionScore{version}"]
    end = "" if version == "" else "Optional"
    values = {"scaleValue": SCALE, "preTokens": FAR, "nextTokens": FAR, "numHeads": N, "inputLayout": "BNSD", **given}
    return row.name, [values.get(a.name, values.get(a.name.removesuffix(end), PLAIN.get(a.kind))) for a in row.args]


def half(*shape: int) -> Tensor:
    return torch.randn(shape).half()


def close(got: Tensor, want: Tensor) -> None:
    same(got.float(), want, rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize("kind", ["BnBsH", "BnNBsD", "NZ"])
@pytest.mark.parametrize("layout", ["BNSD", "BSND", "TND"])
def test_keys_in_blocks(layout: str, kind: str) -> None:
    lengths, size, heads = [11, 6], 4, 2
    queries = [2, 1] if layout == "TND" else [3, 3]
    q = [half(N, n, DEPTH) for n in queries]
    keys, values = ([half(heads, n, DEPTH) for n in lengths] for _ in range(2))
    table = torch.tensor([[5, 0, 3], [1, 4, -1]], dtype=torch.int32)

    def cache(parts: list[Tensor]) -> Tensor:
        made = half(6, heads, size, DEPTH)
        for b, part in enumerate(parts):
            for t in range(part.shape[1]):
                made[table[b, t // size], :, t % size] = part[:, t]
        if kind == "BnBsH":
            return made.transpose(1, 2).reshape(6, size, heads * DEPTH).contiguous()
        return made if kind == "BnNBsD" else made.reshape(6, heads, size, DEPTH // 16, 16).transpose(2, 3).contiguous()

    joined = torch.cat([x.transpose(0, 1) for x in q]) if layout == "TND" else torch.stack(q)
    if layout == "BSND":
        joined = joined.transpose(1, 2).contiguous()
    ends = [2, 3] if layout == "TND" else None
    name, args = fused(query=joined, key=[cache(keys)], value=[cache(values)], blockTable=table, blockSize=size, numKeyValueHeads=heads, inputLayout=layout,
                       actualSeqLengths=ends, actualSeqLengthsKv=lengths, attentionOut=torch.empty_like(joined))  # fmt: skip
    want = [attention(*x) for x in zip(q, keys, values, strict=True)]
    expected = torch.cat([w.transpose(0, 1) for w in want]) if layout == "TND" else torch.stack(want)
    close(client().call(name, *args), expected.transpose(1, 2) if layout == "BSND" else expected)


def test_packed_sequences_with_rotated_parts_and_lse() -> None:
    q, k, v = half(5, N, DEPTH), half(9, N, DEPTH), half(9, N, DEPTH)
    qr, kr = half(5, N, 8), half(9, N, 8)
    ends, key_ends = [2, 5], [4, 9]
    name, args = fused(query=q, key=[k], value=[v], queryRope=qr, keyRope=kr, numKeyValueHeads=N, inputLayout="TND", actualSeqLengths=ends,
                       actualSeqLengthsKv=key_ends, attentionOut=torch.empty_like(q), softmaxLseFlag=True, softmaxLse=torch.empty(5, N, 1))  # fmt: skip
    out, lse = client().call(name, *args)
    whole_q, whole_k = torch.cat([q, qr], -1), torch.cat([k, kr], -1)
    for (a, b), (c, d) in zip(((0, 2), (2, 5)), ((0, 4), (4, 9)), strict=True):
        turned = [t.transpose(0, 1) for t in (whole_q[a:b], whole_k[c:d], v[c:d])]
        close(out[a:b], attention(*turned).transpose(0, 1))
        close(lse[a:b, :, 0], (turned[0].float() @ turned[1].float().mT * SCALE).logsumexp(-1).mT)


def test_a_tensor_for_each_batch() -> None:
    q, keys, values = half(B, N, 1, DEPTH), [half(1, 2, n, DEPTH) for n in (7, 3)], [half(1, 2, n, DEPTH) for n in (7, 3)]
    name, args = fused(query=q, key=keys, value=values, numKeyValueHeads=2, attentionOut=torch.empty_like(q))
    close(client().call(name, *args), torch.stack([attention(q[b], keys[b][0], values[b][0]) for b in range(B)]))


@pytest.mark.parametrize("layout", ["BNSD_BSND", "BNSD_NBSD"])
def test_another_layout_of_the_result(layout: str) -> None:
    q, k, v = half(B, N, 3, DEPTH), half(B, N, KEYS, DEPTH), half(B, N, KEYS, DEPTH)
    turned = (lambda t: t.transpose(1, 2)) if layout == "BNSD_BSND" else (lambda t: t.transpose(0, 1))
    name, args = fused(query=q, key=[k], value=[v], numKeyValueHeads=N, inputLayout=layout, attentionOut=torch.empty_like(turned(q).contiguous()))
    close(client().call(name, *args), turned(torch.stack([attention(q[b], k[b], v[b]) for b in range(B)])))


def test_heads_without_a_batch() -> None:
    q, k, v = half(N, 3, DEPTH), half(N, KEYS, DEPTH), half(N, KEYS, DEPTH)
    name, args = fused(query=q, key=[k], value=[v], numKeyValueHeads=N, inputLayout="NSD", attentionOut=torch.empty_like(q))
    close(client().call(name, *args), attention(q, k, v))


def test_a_prefix_that_all_batches_share() -> None:
    q, k, v = half(B, N, 1, DEPTH), half(B, N, KEYS, DEPTH), half(B, N, KEYS, DEPTH)
    pk, pv = half(1, N, 5, DEPTH), half(1, N, 5, DEPTH)
    name, args = fused(query=q, key=[k], value=[v], keySharedPrefix=pk, valueSharedPrefix=pv, actualSharedPrefixLen=[4], numKeyValueHeads=N,
                       actualSeqLengthsKv=[6, 11], attentionOut=torch.empty_like(q))  # fmt: skip
    want = [attention(q[b], torch.cat([pk[0, :, :4], k[b, :, :n]], 1), torch.cat([pv[0, :, :4], v[b, :, :n]], 1)) for b, n in enumerate((6, 11))]
    close(client().call(name, *args), torch.stack(want))


@pytest.mark.parametrize("mode", ["tensor", "channel", "token", "combined"])
def test_a_cache_of_int8(mode: str) -> None:
    q = half(B, N, 1, DEPTH)
    k, v = (torch.randint(-60, 60, (B, 2, KEYS, DEPTH), dtype=torch.int8) for _ in range(2))
    shape = {"tensor": (1,), "channel": (2, 1, DEPTH), "token": (B, KEYS), "combined": (2, 1, DEPTH)}[mode]
    ks, vs = (torch.rand(shape) / 40 + 0.01 for _ in range(2))
    ko, vo = (torch.randint(-3, 3, shape).float() for _ in range(2))
    spread = lambda t: t if mode != "token" else t[:, None, :, None]
    restored = [((x.float() + spread(o)) * spread(s)) for x, s, o in ((k, ks, ko), (v, vs, vo))]
    named = {"keyAntiquantScale": ks, "valueAntiquantScale": vs, "keyAntiquantOffset": ko, "valueAntiquantOffset": vo,
             "keyAntiquantMode": int(mode == "token"), "valueAntiquantMode": int(mode == "token")}  # fmt: skip
    if mode == "combined":
        named = {"antiquantScale": torch.stack([ks, vs]), "antiquantOffset": torch.stack([ko, vo])}
    name, args = fused(query=q, key=[k], value=[v], numKeyValueHeads=2, attentionOut=torch.empty_like(q), **named)
    close(client().call(name, *args), torch.stack([attention(q[b], restored[0][b], restored[1][b]) for b in range(B)]))


@pytest.mark.parametrize("by_head", [False, True])
def test_scales_that_lie_in_blocks_as_the_keys_do(by_head: bool) -> None:
    heads, size, lengths = 2, 4, [5, 8]
    q, table = half(B, N, 1, DEPTH), torch.tensor([[4, 1], [0, 2]], dtype=torch.int32)
    k, v = (torch.randint(-60, 60, (5, heads, size, DEPTH), dtype=torch.int8) for _ in range(2))
    ks, vs = (torch.rand(5, heads, size) / 40 + 0.01 if by_head else torch.rand(5, size) / 40 + 0.01 for _ in range(2))
    full = [x.float() * (s if by_head else s[:, None])[..., None] for x, s in ((k, ks), (v, vs))]
    rows = [[torch.cat(list(x[t]), 1)[:, :n] for t, n in zip(table.long(), lengths, strict=True)] for x in full]
    mode = 5 if by_head else 4
    name, args = fused(query=q, key=[k], value=[v], blockTable=table, blockSize=size, numKeyValueHeads=heads, actualSeqLengthsKv=lengths,
                       keyAntiquantScale=ks, valueAntiquantScale=vs, keyAntiquantMode=mode, valueAntiquantMode=mode, attentionOut=torch.empty_like(q))  # fmt: skip
    close(client().call(name, *args), torch.stack([attention(q[b], rows[0][b], rows[1][b]) for b in range(B)]))


def test_a_result_of_int8() -> None:
    q, k, v = half(B, N, 3, DEPTH), half(B, N, KEYS, DEPTH), half(B, N, KEYS, DEPTH)
    name, args = fused(query=q, key=[k], value=[v], numKeyValueHeads=N, quantScale2=torch.tensor([40.0]), quantOffset2=torch.tensor([3.0]),
                       attentionOut=torch.empty(q.shape, dtype=torch.int8))  # fmt: skip
    got = client().call(name, *args)
    want = (torch.stack([attention(q[b], k[b], v[b]) for b in range(B)]) * 40 + 3).round().clamp(-128, 127)
    assert (got.float() - want).abs().max() <= 1


def test_queries_of_int8() -> None:
    q, k, v = (torch.randint(-20, 20, (B, N, n, DEPTH), dtype=torch.int8) for n in (3, KEYS, KEYS))
    name, args = fused(query=q, key=[k], value=[v], numKeyValueHeads=N, deqScale1=torch.tensor([0.02]), quantScale1=torch.tensor([50.0]),
                       deqScale2=torch.tensor([0.01]), attentionOut=torch.empty(q.shape).half())  # fmt: skip
    want = (q.float() @ k.float().mT * SCALE * 0.02).softmax(-1) * 50 @ v.float() * 0.01
    close(client().call(name, *args), want)


def test_what_is_refused() -> None:
    q, k = half(B, N, 1, DEPTH), half(B, N, KEYS, DEPTH)
    keep = {"query": q, "key": [k], "value": [k], "numKeyValueHeads": N, "attentionOut": torch.empty_like(q)}
    table = torch.zeros(B, 1, dtype=torch.int32)
    name, args = fused(**keep, blockTable=table, blockSize=KEYS)
    assert "actualSeqLengthsKv" in client().expect_code(INVALID, name, *args)
    name, args = fused(**keep, blockTable=table, blockSize=KEYS, actualSeqLengthsKv=[KEYS + 1, 2])
    assert "lengths of batch 0" in client().expect_code(INVALID, name, *args)
    name, args = fused(**{**keep, "inputLayout": "TND"})
    client().expect_code(INVALID, name, *args)
    name, args = fused(**keep, keyRope=k)
    assert "come together" in client().expect_code(INVALID, name, *args)
