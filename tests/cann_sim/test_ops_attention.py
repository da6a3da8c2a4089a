"""Flash attention of the simulator against a plain formula in torch: layouts, masks, dropout, gradients, refusals."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from client import client, rows, same
from layouts import sample
from torch import Tensor

INVALID, NULL = 161002, 161001
FLOATS = [torch.float32, torch.float16, torch.bfloat16]
CLOSE = {torch.float16: 1e-2, torch.bfloat16: 8e-2, torch.float32: 2e-4}
FAR = 2147483647
B, N, S, K, D = 2, 4, 5, 7, 8  # batch, heads, queries, keys, depth


def close(got: Tensor, want: Tensor) -> None:
    same(got, want, rtol=CLOSE[want.dtype], atol=CLOSE[want.dtype])


def laid(x: Tensor, layout: str) -> Tensor:
    """[B, N, S, D] in a layout of CANN's."""
    order = {"BNSD": (0, 1, 2, 3), "BSND": (0, 2, 1, 3), "BSH": (0, 2, 1, 3), "SBH": (2, 0, 1, 3)}[layout]
    x = x.permute(order).contiguous()
    return x.flatten(2) if layout.endswith("H") else x


def attention(
    q: Tensor, k: Tensor, v: Tensor, scale: float, shift: Tensor | None = None, hidden: Tensor | None = None,
    keep: Tensor | None = None, keep_prob: float = 1.0, shift_first: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Result, row maxima and row sums; queries that share keys are repeated."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.mT
    if shift is not None:
        scores = (scores + shift) * scale if shift_first else scores * scale + shift
    else:
        scores = scores * scale
    if hidden is not None:
        scores = scores.masked_fill(hidden, float("-inf"))
    top = scores.amax(-1, keepdim=True)
    p = (scores - top).exp()
    total = p.sum(-1, keepdim=True)
    p = p / total
    if keep is not None:
        p = p * keep / keep_prob
    return p @ v, top, total


def heads(dtype: torch.dtype, n: int, length: int, seed: int) -> Tensor:
    return torch.randn(B, n, length, D, generator=torch.Generator().manual_seed(seed)).to(dtype)


def score(layout: str, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, ...]:
    o = {
        "shift": None,
        "drop": None,
        "mask": None,
        "prefix": None,
        "keep": 1.0,
        "before": FAR,
        "after": FAR,
        "mode": 0,
    } | options
    stats = torch.empty(B, q.shape[1], q.shape[2], 8)
    return client().call(
        "aclnnFlashAttentionScore", laid(q, layout), laid(k, layout), laid(v, layout), o["shift"], o["drop"], None,
        o["mask"], o["prefix"], 0.3, o["keep"], o["before"], o["after"], q.shape[1], layout, 0, o["mode"], stats,
        stats.clone(), torch.empty(0), laid(torch.empty_like(q), layout),
    )  # fmt: skip


def check_both(layout: str, q: Tensor, k: Tensor, v: Tensor, judged: dict[str, Any], **options: Any) -> None:
    """The op and its gradient against the formula."""
    leaves = [x.float().requires_grad_() for x in (q, k, v)]
    want, top, total = attention(*leaves, 0.3, **judged)
    got = score(layout, q, k, v, **options)
    close(got[3], laid(want.detach(), layout).to(q.dtype))
    close(got[0], top.detach().expand(-1, -1, -1, 8))
    close(got[1], total.detach().expand(-1, -1, -1, 8))
    dy = heads(q.dtype, q.shape[1], q.shape[2], 9)
    wanted = torch.autograd.grad(want, leaves, dy.float())
    o = {
        "shift": None,
        "drop": None,
        "mask": None,
        "prefix": None,
        "keep": 1.0,
        "before": FAR,
        "after": FAR,
        "mode": 0,
    } | options
    shift = o["shift"]
    made = client().call(
        "aclnnFlashAttentionScoreGrad", laid(q, layout), laid(k, layout), laid(v, layout), laid(dy, layout), shift,
        o["drop"],
        None, o["mask"], got[0], got[1], None, got[3], o["prefix"], 0.3, o["keep"], o["before"], o["after"], q.shape[1],
        layout, 0, o["mode"], laid(torch.empty_like(q), layout), laid(torch.empty_like(k), layout),
        laid(torch.empty_like(v), layout), torch.empty(0, dtype=q.dtype) if shift is None else torch.empty_like(shift),
    )  # fmt: skip
    for g, w in zip(made, wanted, strict=False):
        close(g, laid(w, layout).to(q.dtype))


@pytest.mark.parametrize("shared", [1, 2, 4])
@pytest.mark.parametrize("layout", ["BSH", "SBH", "BSND", "BNSD"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_layouts_and_shared_keys(dtype: torch.dtype, layout: str, shared: int) -> None:
    check_both(layout, heads(dtype, N, S, 0), heads(dtype, N // shared, K, 1), heads(dtype, N // shared, K, 2), {})


@pytest.mark.parametrize("kind", [torch.bool, torch.uint8], ids=str)
@pytest.mark.parametrize("shape", [(S, K), (B, 1, S, K), (B, N, S, K), (1, 1, S, K)], ids=str)
def test_masks(shape: tuple[int, ...], kind: torch.dtype) -> None:
    hidden = torch.rand(shape) < 0.4
    hidden[..., 0] = False
    qkv = heads(torch.float32, N, S, 0), heads(torch.float32, N, K, 1), heads(torch.float32, N, K, 2)
    for mode in (0, 1):
        check_both("BNSD", *qkv, {"hidden": hidden.expand(B, N, S, K)}, mask=hidden.to(kind), mode=mode)


@pytest.mark.parametrize("mode", [0, 2, 3, 4, 6])
def test_sparse_modes(mode: int) -> None:
    i, j = torch.arange(S)[:, None], torch.arange(K)
    corner = K - S
    hidden = {
        0: (j - i > 2) | (i - j > 1), 2: j > i, 3: j - i > corner, 4: (j - i > corner + 1) | (j - i < corner - 2),
        6: j - i > corner,
    }[mode].expand(B, N, S, K).clone()  # fmt: skip
    if mode == 6:
        for b, length in enumerate((4, 6)):
            hidden[b, :, :, :length] = False
    whole = torch.zeros(S, K, dtype=torch.bool) if mode == 0 else torch.ones(2048, 2048, dtype=torch.bool).triu(1)
    options = {0: {"before": 1, "after": 2}, 4: {"before": 2, "after": 1}, 6: {"prefix": [4, 6]}}.get(mode, {})
    qkv = heads(torch.float32, N, S, 0), heads(torch.float32, N, K, 1), heads(torch.float32, N, K, 2)
    check_both("BSH", *qkv, {"hidden": hidden}, mask=whole, mode=mode, **options)


def test_a_query_that_sees_nothing_gets_zeros() -> None:
    qkv = heads(torch.float32, N, S, 0), heads(torch.float32, N, K, 1), heads(torch.float32, N, K, 2)
    got = score("BNSD", *qkv, mask=torch.ones(S, K, dtype=torch.bool), mode=1)
    same(got[3], torch.zeros(B, N, S, D))


@pytest.mark.parametrize("shape", [(B, N, S, K), (1, N, S, K), (B, N, 1, K)], ids=str)
def test_shift(shape: tuple[int, ...]) -> None:
    qkv = heads(torch.float32, N, S, 0), heads(torch.float32, N, K, 1), heads(torch.float32, N, K, 2)
    shift = torch.randn(shape)
    check_both("BSND", *qkv, {"shift": shift}, shift=shift)


def test_shift_has_a_gradient() -> None:
    q, k, v = heads(torch.float32, N, S, 0), heads(torch.float32, N, K, 1), heads(torch.float32, N, K, 2)
    for shape, kind in (((1, N, 1, K), 1), ((B, N, S, K), 0)):
        shift = torch.randn(shape).requires_grad_()
        want, top, total = attention(q, k, v, 0.3, shift=shift, shift_first=kind == 1)
        dy = heads(torch.float32, N, S, 9)
        (wanted,) = torch.autograd.grad(want, shift, dy)
        stats = [x.detach().expand(-1, -1, -1, 8).contiguous() for x in (top, total)]
        made = client().call(
            "aclnnFlashAttentionScoreGradV2", q, k, v, dy, shift.detach(), None, None, None, *stats, None,
            want.detach(), None,
            None, None, 0.3, 1.0, FAR, FAR, N, "BNSD", 0, 0, kind, torch.empty_like(q), torch.empty_like(k),
            torch.empty_like(v), torch.empty(shape),
        )  # fmt: skip
        close(made[3], wanted)


@pytest.mark.parametrize(("kind", "batched"), [(2, False), (3, True)])
def test_slopes_make_the_shift(kind: int, batched: bool) -> None:
    """pseType 2 and 3: less a slope times the distance of query and key, or times its root."""
    q, k, v = leaves = [heads(torch.float32, N, n, i).requires_grad_() for i, n in enumerate((S, K, K))]
    slopes = torch.rand(B if batched else 1, N)
    distance = (torch.arange(K) + 1 - torch.arange(S)[:, None] - 3).abs().float()  # keys from 1 on, queries from 3 on
    shift = -slopes[..., None, None] * (distance.sqrt() if kind == 3 else distance)
    want, top, total = attention(q, k, v, 0.3, shift=shift, shift_first=False)
    dy = heads(torch.float32, N, S, 9)
    wanted = torch.autograd.grad(want, leaves, dy)
    q, k, v = (x.detach() for x in leaves)
    given = slopes if batched else slopes[0].contiguous()
    common = ([3], [1], 0.3, 1.0, FAR, FAR, N, "BNSD", 0, 0, kind)
    stats = torch.empty(B, N, S, 8)
    got = client().call("aclnnFlashAttentionScoreV2", q, k, v, given, None, None, None, None, *common, stats, stats.clone(), torch.empty(0), q * 0)
    close(got[3], want.detach())
    made = client().call("aclnnFlashAttentionScoreGradV2", q, k, v, dy, given, None, None, None, got[0], got[1], None, got[3], None, *common,
                         q * 0, k * 0, v * 0, torch.empty(0))  # fmt: skip
    for mine, right in zip(made, wanted, strict=False):
        close(mine, right)
    client().expect_code(INVALID, "aclnnFlashAttentionScoreV2", q, k, v, given[..., :2].contiguous(), None, None, None, None, *common, stats,
                         stats.clone(), torch.empty(0), q * 0)  # fmt: skip


def test_dropout_reads_a_bit_an_item() -> None:
    keep = torch.rand(B, N, S, K) < 0.8
    bits = keep.flatten().view(-1, 8).to(torch.uint8)
    packed = (bits * torch.tensor([1 << i for i in range(8)], dtype=torch.uint8)).sum(-1).to(torch.uint8)
    qkv = heads(torch.float32, N, S, 0), heads(torch.float32, N, K, 1), heads(torch.float32, N, K, 2)
    check_both("BNSD", *qkv, {"keep": keep, "keep_prob": 0.8}, drop=packed, keep=0.8)


def test_packed_sequences() -> None:
    ends, key_ends = [3, 5], [4, 9]
    q, k, v = torch.randn(5, N, D), torch.randn(9, 2, D), torch.randn(9, 2, D)
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    parts = [
        attention(*(x[a:b].transpose(0, 1)[None] for x, (a, b) in zip(leaves, cut, strict=True)), 0.3)
        for cut in (((0, 3), (0, 4), (0, 4)), ((3, 5), (4, 9), (4, 9)))
    ]
    want = torch.cat([p[0][0].transpose(0, 1) for p in parts])
    stats = torch.empty(5, N, 8)
    got = client().call(
        "aclnnFlashAttentionVarLenScore", q, k, v, None, None, None, None, None, ends, key_ends, 0.3, 1.0, FAR, FAR, N,
        "TND", 0, 0, stats, stats.clone(), torch.empty(0), torch.empty_like(q),
    )  # fmt: skip
    close(got[3], want.detach())
    dy = torch.randn(5, N, D)
    wanted = torch.autograd.grad(want, leaves, dy)
    made = client().call(
        "aclnnFlashAttentionUnpaddingScoreGrad", q, k, v, dy, None, None, None, None, got[0], got[1], torch.empty(0), got[3],
        None,
        ends, key_ends, 0.3, 1.0, FAR, FAR, N, "TND", 0, 0, torch.empty_like(q), torch.empty_like(k),
        torch.empty_like(v),
        torch.empty(0),
    )  # fmt: skip
    for g, w in zip(made, wanted, strict=False):
        close(g, w)


# ---- inference --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("layout", ["BSH", "BSND", "BNSD"])
@pytest.mark.parametrize("dtype", FLOATS[1:], ids=str)
def test_prompt(dtype: torch.dtype, layout: str) -> None:
    q, k, v = heads(dtype, N, S, 0), heads(dtype, 2, K, 1), heads(dtype, 2, K, 2)
    hidden = torch.ones(S, K, dtype=torch.bool).triu(1)
    wide = q.float(), k.float(), v.float()
    args = [laid(x, layout) for x in (q, k, v)]
    out = torch.empty_like(args[0])
    got = client().call("aclnnPromptFlashAttention", *args, None, None, None, N, 0.3, FAR, FAR, layout, 2, out)
    close(got, laid(attention(*wide, 0.3)[0], layout).to(dtype))
    rest = [None] * 5
    got = client().call(
        "aclnnPromptFlashAttentionV3", *args, None, hidden, None, None, *rest, N, 0.3, FAR, FAR, layout, 2, 0, 1, out
    )
    close(got, laid(attention(*wide, 0.3, hidden=hidden)[0], layout).to(dtype))


def test_prompt_of_given_lengths() -> None:
    q, k, v = heads(torch.float16, N, S, 0), heads(torch.float16, N, K, 1), heads(torch.float16, N, K, 2)
    args = (None, None, [3, 5], [4, 7], *[None] * 5, N, 0.3, FAR, FAR, "BNSD", N, 0, 1)
    got = client().call("aclnnPromptFlashAttentionV3", q, k, v, *args, torch.empty_like(q))
    want = attention(q[:1, :, :3].float(), k[:1, :, :4].float(), v[:1, :, :4].float(), 0.3)[0].half()
    close(got[:1, :, :3], want)
    assert not got[0, :, 3:].any()


def test_incremental_and_fused() -> None:
    q, k, v = heads(torch.float16, N, 1, 0), heads(torch.float16, 2, K, 1), heads(torch.float16, 2, K, 2)
    want, top, total = attention(q.float(), k.float(), v.float(), 0.3)
    got = client().call(
        "aclnnIncreFlashAttention", q, [k], [v], None, None, None, N, 0.3, "BNSD", 2, torch.empty_like(q)
    )
    close(got, want.half())
    got = client().call(
        "aclnnIncreFlashAttention", q, [k], [v], None, None, [4, 4], N, 0.3, "BNSD", 2, torch.empty_like(q)
    )
    close(got, attention(q.float(), k[:, :, :4].float(), v[:, :, :4].float(), 0.3)[0].half())
    fused = (None, None, None, None, *[None] * 10, N, 0.3, FAR, FAR, "BNSD", 2, 0, 0, 0, 0, True)
    got = client().call(
        "aclnnFusedInferAttentionScore", q, [k], [v], *fused, torch.empty_like(q), torch.empty(B, N, 1, 1)
    )
    close(got[0], want.half())
    close(got[1], top + total.log())


@pytest.mark.parametrize("version", ["V2", "V3", "V4"])
def test_fused_over_views_without_lse(version: str) -> None:
    """Keys and values are views of a cache, the shift is one for all heads (stride 0), and softmaxLse is not requested."""
    q, cache = heads(torch.float16, N, S, 0), heads(torch.float16, 2, 2 * K, 1)
    k, v = cache[:, :, :K], cache[:, :, K:]
    shift = sample((B, 1, S, K), torch.float16).expand(B, N, S, K)
    want = attention(q.float(), k.float(), v.float(), 0.3, shift=shift.float(), shift_first=False)[0].half()
    row = rows()[f"aclnnFusedInferAttentionScore{version}"]
    values = {
        "query": q, "key": [k], "value": [v], "pseShiftOptional": shift, "numHeads": N, "scaleValue": 0.3, "preTokens": FAR,
        "nextTokens": FAR, "inputLayout": "BNSD", "numKeyValueHeads": 2, "attentionOut": torch.empty_like(q),
    }  # fmt: skip
    plain = {"int64": 0, "bool": False, "double": 0.0}
    args = [values.get(a.name, plain.get(a.kind)) for a in row.args]
    got = client().call(row.name, *args)
    close(got, want)
    beside = [torch.empty(1, dtype=torch.float16) if a.name == "softmaxLse" else x for a, x in zip(row.args, args, strict=True)]
    close(client().call(row.name, *beside)[0], want)
    asked = [True if a.name == "softmaxLseFlag" else x for a, x in zip(row.args, args, strict=True)]
    assert "softmaxLse" in client().expect_code(INVALID, row.name, *asked)


# ---- rotary embedding -------------------------------------------------------------------------------------------
def rotated(x: Tensor, mode: int) -> Tensor:
    if mode == 1:
        return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    parts = x.chunk(2 if mode == 0 else 4, -1)
    return torch.cat([y for a, b in zip(parts[::2], parts[1::2], strict=True) for y in (-b, a)], -1)


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_rotary(dtype: torch.dtype, mode: int) -> None:
    x, dy = torch.randn(2, 3, 4, 8).to(dtype), torch.randn(2, 3, 4, 8).to(dtype)
    cos, sin = torch.rand(1, 3, 1, 8).to(dtype), torch.rand(1, 3, 1, 8).to(dtype)

    def judge(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return x * cos + rotated(x, mode) * sin

    leaves = [t.float().requires_grad_() for t in (x, cos, sin)]
    want = judge(*leaves)
    close(
        client().call("aclnnRotaryPositionEmbedding", x, cos, sin, mode, torch.empty_like(x)), want.detach().to(dtype)
    )
    wanted = torch.autograd.grad(want, leaves, dy.float())
    outs = torch.empty_like(x), torch.empty_like(cos), torch.empty_like(sin)
    for got, w in zip(
        client().call("aclnnRotaryPositionEmbeddingGrad", dy, cos, sin, x, mode, *outs), wanted, strict=True
    ):
        close(got, w.to(dtype))
    key = torch.randn(2, 3, 1, 8).to(dtype)
    name = ["half", "interleave", "quarter"][mode]
    got = client().call("aclnnApplyRotaryPosEmbV2", x, key, cos, sin, 1, name)
    close(got[0], want.detach().to(dtype))
    close(got[1], judge(key.float(), cos.float(), sin.float()).to(dtype))


def test_rotary_refusals() -> None:
    x, cos = torch.ones(2, 3, 4, 8), torch.ones(1, 3, 1, 8)
    for bad_call in [
        (x, torch.ones(1, 2, 1, 8), torch.ones(1, 2, 1, 8), 0, x), (x, cos, torch.ones(1, 3, 1, 4), 0, x),
        (x, cos, cos, 5, x),
        (x, cos, cos, 0, torch.ones(2, 3, 4, 4)),
        (torch.ones(2, 3, 4, 7), torch.ones(1, 3, 1, 7), torch.ones(1, 3, 1, 7), 0, torch.ones(2, 3, 4, 7)),
    ]:  # fmt: skip
        client().expect_code(INVALID, "aclnnRotaryPositionEmbedding", *bad_call)


Q, KV, STATS = torch.ones(B, N, S, D), torch.ones(B, N, K, D), torch.ones(B, N, S, 8)


def bad(position: int, value: Any) -> tuple[Any, ...]:
    """A good call of aclnnFlashAttentionScore with one argument changed."""
    good = [
        Q,
        KV,
        KV,
        None,
        None,
        None,
        None,
        None,
        1.0,
        1.0,
        FAR,
        FAR,
        N,
        "BNSD",
        0,
        0,
        STATS,
        STATS,
        torch.ones(0),
        Q,
    ]
    good[position] = value
    return tuple(good)


BAD = [
    (NULL, bad(0, None)), (NULL, bad(1, None)), (NULL, bad(19, None)), (INVALID, bad(13, "")),
    (INVALID, bad(0, Q.half())), (INVALID, bad(0, Q.double())),
    (INVALID, bad(1, torch.ones(B, 3, K, D))), (INVALID, bad(1, torch.ones(B, N, K, D + 1))),
    (INVALID, bad(1, torch.ones(1, N, K, D))),
    (INVALID, bad(2, torch.ones(B, N, K + 1, D))), (INVALID, bad(9, 0.0)), (INVALID, bad(9, 1.5)),
    (INVALID, bad(9, 0.5)), (INVALID, bad(12, 0)),
    (INVALID, bad(12, 3)), (INVALID, bad(13, "XYZ")), (INVALID, bad(13, "BSH")), (INVALID, bad(13, "TND")),
    (INVALID, bad(15, 9)), (INVALID, bad(15, 2)),
    (INVALID, bad(16, torch.ones(B, N, S, 1))), (INVALID, bad(19, KV)), (INVALID, bad(3, torch.ones(B, N, S, 3))),
    (INVALID, bad(6, torch.ones(S, K - 1, dtype=torch.bool))), (INVALID, bad(0, torch.ones(N, D))),
]  # fmt: skip


@pytest.mark.parametrize("code, args", BAD, ids=[str(i) for i in range(len(BAD))])
def test_refusals(code: int, args: tuple[Any, ...]) -> None:
    client().expect_code(code, "aclnnFlashAttentionScore", *args)
