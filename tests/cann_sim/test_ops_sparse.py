"""Native sparse attention, and flash attention with rotated parts and a sink, in libopapi against torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from client import client, same


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(11)


def rand(*shape: int) -> torch.Tensor:
    return (torch.randn(shape) / 2).half()


def windows(x: torch.Tensor, size: int, step: int) -> torch.Tensor:
    """[windows, size, ...] of the rows."""
    return torch.stack([x[i : i + size] for i in range(0, len(x) - size + 1, step)])


def compressed(x: torch.Tensor, weight: torch.Tensor, ends: list[int], size: int, step: int) -> torch.Tensor:
    parts = [x[a:b] for a, b in zip([0, *ends], ends)]
    return torch.cat([(windows(p, size, step) * weight[None, :, :, None]).sum(1) for p in parts if len(p) >= size])


def test_compress() -> None:
    x, weight, ends = torch.randn(100, 2, 16, requires_grad=True), torch.randn(32, 2, requires_grad=True), [48, 60, 100]
    y = compressed(x, weight, ends, 32, 16)
    got = client().call("aclnnNsaCompress", x.detach().half(), weight.detach().half(), ends, "TND", 32, 16, 0, torch.empty(y.shape).half())
    same(got.float(), y.detach(), rtol=2e-2, atol=3e-2)
    grad = torch.randn_like(y)
    got = client().call("aclnnNsaCompressGrad", grad, x.detach(), weight.detach(), ends, 32, 16, 0, "TND", torch.empty(x.shape), torch.empty(weight.shape))
    for part, want in zip(got, torch.autograd.grad(y, (x, weight), grad), strict=True):
        same(part, want, rtol=1e-4, atol=1e-4)


def test_compress_with_cache() -> None:
    """Only the sequences that have just filled a window write to their slot."""
    pages, weight, table = torch.randn(6, 64, 2, 16), torch.randn(32, 2), torch.tensor([[3, 1], [0, 2], [5, 4]], dtype=torch.int32)
    lengths, slots = [80, 81, 32], torch.tensor([2, 0, 4], dtype=torch.int32)
    cache = torch.full((6, 2, 16), 7.0)
    want = cache.clone()
    for b, length in enumerate(lengths):
        if (length - 32) % 16 == 0:
            rows = torch.cat([pages[i] for i in table[b]])[length - 32 : length]
            want[slots[b]] = (rows * weight[:, :, None]).sum(0)
    same(client().call("aclnnNsaCompressWithCache", pages, weight, slots, lengths, table, "TND", 32, 16, 1, 64, cache), want, rtol=1e-4, atol=1e-4)


def chosen_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, blocks: torch.Tensor, ends: list[int], size: int, scale: float, causal: bool) -> torch.Tensor:
    out = torch.zeros(q.shape[0], q.shape[1], v.shape[2])
    shared = q.shape[1] // k.shape[1]
    for a, b in zip([0, *ends], ends):
        for i in range(b - a):
            for h in range(q.shape[1]):
                seen = [j for block in blocks[a + i, h // shared].tolist() for j in range(block * size, min((block + 1) * size, b - a)) if not causal or j <= i]
                rows = [a + j for j in seen]
                scores = (k[rows, h // shared] @ q[a + i, h]) * scale
                out[a + i, h] = torch.softmax(scores, 0) @ v[rows, h // shared]
    return out


@pytest.mark.parametrize("causal", [False, True])
def test_selected_attention(causal: bool) -> None:
    ends, size, count = [48, 80], 16, 2
    q, k, v = (torch.randn(80, n, d, requires_grad=True) for n, d in ((4, 8), (2, 8), (2, 6)))
    blocks = torch.stack([torch.stack([torch.randperm(2)[:count] for _ in range(2)]) for _ in range(80)]).int()
    if causal:
        blocks[..., 0] = 0  # every query sees something
        blocks[..., 1] = 1
    mask = torch.ones(2048, 2048).triu(1).bool() if causal else None
    want = chosen_attention(q, k, v, blocks, ends, size, 0.4, causal)
    plain = [t.detach() for t in (q, k, v)]
    mode = 2 if causal else 0
    max_, sum_, out = client().call("aclnnNsaSelectedAttention", *plain, blocks, mask, ends, ends, 0.4, 4, "TND", mode, size, count,
                                    torch.empty(80, 4, 8), torch.empty(80, 4, 8), torch.empty(80, 4, 6))  # fmt: skip
    same(out, want.detach(), rtol=1e-4, atol=1e-5)
    grad = torch.randn(80, 4, 6)
    got = client().call("aclnnNsaSelectedAttentionGrad", *plain, out, grad, max_, sum_, blocks, ends, ends, mask, 0.4, size, count, 4, "TND", mode,
                        *(torch.empty(t.shape) for t in plain))  # fmt: skip
    for part, expected in zip(got, torch.autograd.grad(want, (q, k, v), grad), strict=True):
        same(part, expected, rtol=1e-4, atol=1e-4)


def test_compressed_attention_chooses_blocks() -> None:
    size, step, select, count = 32, 16, 64, 2
    q, k, v = torch.randn(3, 4, 8), torch.randn(20, 2, 8), torch.randn(20, 2, 6)
    mask = torch.zeros(3, 20, dtype=torch.bool)
    mask[0, 15:] = True
    scores = torch.einsum("qhd,khd->hqk", q, k.repeat_interleave(2, 1)) * 0.3
    p = torch.softmax(scores.masked_fill(mask, -torch.inf), -1)
    out = torch.einsum("hqk,khd->qhd", p, v.repeat_interleave(2, 1))
    total = p.view(2, 2, 3, 20).sum(1)                                          # over the heads that share keys
    blocks = torch.zeros(2, 3, 5)
    for j in range(5):
        for m in range(select // step):
            for n in range(size // step):
                i = select // step * j - m - n
                if 0 <= i < 20:
                    blocks[:, :, j] += total[:, :, i]
    own = torch.zeros(3, 5, dtype=torch.bool)
    own[[0, 1, 2], [4, 0, 3]] = True
    for always in (None, own):
        got = client().call("aclnnNsaCompressAttention", q, k, v, mask, always, [3], [20], [5], 0.3, 4, "TND", 1, size, step, select, count,
                            torch.empty(3, 4, 8), torch.empty(3, 4, 8), torch.empty(3, 4, 6), torch.empty(3, 2, count, dtype=torch.int32))  # fmt: skip
        same(got[2], out, rtol=1e-4, atol=1e-5)
        scores = blocks if always is None else blocks.masked_fill(always, torch.inf)
        assert torch.equal(got[3], scores.topk(count).indices.permute(1, 0, 2).int())


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, sink: torch.Tensor | None = None) -> torch.Tensor:
    """[S, N, D] each; the sink is a logit a head that has no value."""
    scores = torch.einsum("qhd,khd->hqk", q, k) * scale
    if sink is not None:
        scores = torch.cat([scores, sink.view(-1, 1, 1).expand(-1, scores.shape[1], 1)], -1)
    return torch.einsum("hqk,khd->qhd", torch.softmax(scores, -1)[..., : k.shape[0]], v)


@pytest.mark.parametrize("version", ["V3", "V5"])
def test_parts_that_are_rotated_stand_alone(version: str) -> None:
    ends = [3, 8]
    q, k, v = (rand(8, 2, d).float().requires_grad_() for d in (16, 16, 12))
    qr, kr = (rand(8, 2, 8).float().requires_grad_() for _ in range(2))
    sink = torch.randn(2) if version == "V5" else None
    want = torch.cat([attention(torch.cat([q, qr], -1)[a:b], torch.cat([k, kr], -1)[a:b], v[a:b], 0.3, sink) for a, b in zip([0, *ends], ends)])
    inputs = [t.detach() for t in (q, qr, k, kr, v)]
    sinks, layout = ((sink,), ("",)) if version == "V5" else ((), ())
    outs = (torch.empty(8, 2, 8), torch.empty(8, 2, 8), None, torch.empty(8, 2, 12))
    max_, sum_, out = client().call(f"aclnnFlashAttentionVarLenScore{version}", *inputs, None, None, None, None, *sinks, None, ends, ends, None, None,
                                    0.3, 1.0, 65535, 65535, 2, "TND", 0, 0, 1, *layout, *outs)  # fmt: skip
    same(out, want.detach(), rtol=1e-4, atol=1e-5)
    grad = torch.randn(8, 2, 12)
    spare = (torch.empty(0), torch.empty(2)) if sink is not None else (torch.empty(0),)
    got = client().call(f"aclnnFlashAttentionUnpaddingScoreGrad{version}", *inputs, grad, None, None, None, None, max_, sum_, None, out, *sinks, None, ends, ends,
                        None, None, 0.3, 1.0, 65535, 65535, 2, "TND", 0, 0, 1, *layout, *(torch.empty(t.shape) for t in inputs), *spare)  # fmt: skip
    for part, expected in zip(got, torch.autograd.grad(want, (q, qr, k, kr, v), grad)):
        same(part, expected, rtol=1e-4, atol=1e-4)


def test_a_sink_takes_part_in_the_softmax() -> None:
    q, k, v, sink = rand(1, 2, 4, 8), rand(1, 2, 6, 8), rand(1, 2, 6, 8), torch.randn(2)
    want = attention(q[0].transpose(0, 1).float(), k[0].transpose(0, 1).float(), v[0].transpose(0, 1).float(), 0.5, sink).transpose(0, 1)[None]
    got = client().call("aclnnFlashAttentionScoreV3", q, k, v, None, None, None, None, sink, None, None, None, 0.5, 1.0, 65535, 65535, 2, "BNSD", 0, 0, 1,
                        torch.empty(1, 2, 4, 8), torch.empty(1, 2, 4, 8), None, torch.empty(1, 2, 4, 8).half())  # fmt: skip
    same(got[2].float(), want, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("layout", ["BNSD", "BSND"])
def test_the_gradient_of_a_sink(layout: str) -> None:
    q, k, v = (torch.randn(2, 5, 2, d).requires_grad_() for d in (8, 8, 6))
    sink = torch.randn(2).requires_grad_()
    want = torch.stack([attention(q[b], k[b], v[b], 0.5, sink) for b in range(2)])
    laid = lambda t: t.detach().transpose(1, 2).contiguous() if layout == "BNSD" else t.detach()
    inputs, stats = [laid(t) for t in (q, k, v)], [torch.empty(2, 2, 5, 8) for _ in range(2)]
    top, total, out = client().call("aclnnFlashAttentionScoreV3", *inputs, None, None, None, None, sink.detach(), None, None, None, 0.5, 1.0, 65535, 65535, 2,
                                    layout, 0, 0, 1, *stats, None, laid(torch.empty(want.shape)))  # fmt: skip
    same(out, laid(want), rtol=1e-4, atol=1e-5)
    grad = torch.randn(want.shape)
    got = client().call("aclnnFlashAttentionScoreGradV3", *inputs, laid(grad), None, None, None, None, top, total, None, out, sink.detach(), None, None, None,
                        0.5, 1.0, 65535, 65535, 2, layout, 0, 0, 1, *(torch.empty_like(t) for t in inputs), torch.empty(0), torch.empty(2))  # fmt: skip
    *parts, wanted = torch.autograd.grad(want, (q, k, v, sink), grad)
    for part, expected in zip(got, parts):
        same(part, laid(expected), rtol=1e-4, atol=1e-5)
    same(got[-1], wanted, rtol=1e-4, atol=1e-5)


def attend(layout: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rope: list[torch.Tensor | None], keep: float = 1.0, seed: int = 0,
           offset: int = 0, ends: list[int] | None = None, mask: torch.Tensor | None = None) -> list[torch.Tensor]:  # fmt: skip
    """aclnnFlashAttentionScoreV4: the largest scores, their sums and the result."""
    rows = (q.shape[0], 2, 8) if ends else (q.shape[0], 2, q.shape[1], 8)
    out = torch.empty((*q.shape[:-1], v.shape[-1]))
    given = (q, k, v, None, mask, None, None, *rope, None, None, None, None, None, ends, ends, None, None)
    return client().call("aclnnFlashAttentionScoreV4", *given, 0.3, keep, 65535, 65535, 2, layout, 0, 0, 0, 1, None, seed, offset,
                         torch.empty(rows), torch.empty(rows), None, out)  # fmt: skip


def only_on_a_950() -> None:
    """Flash attention that takes every layout, rotated parts, and makes its masks of dropout; CANN has it for a 950."""
    for layout, ends in (("BSND", None), ("TND", [3, 8])):
        shape = (8, 2) if ends else (2, 4, 2)
        q, k, v, qr, kr = (torch.randn(*shape, d).requires_grad_() for d in (16, 16, 12, 8, 8))
        whole_q, whole_k = torch.cat([q, qr], -1), torch.cat([k, kr], -1)
        pieces = [slice(a, b) for a, b in zip([0, *ends], ends)] if ends else [0, 1]
        parts = [attention(whole_q[p], whole_k[p], v[p], 0.3) for p in pieces]
        want = torch.cat(parts) if ends else torch.stack(parts)
        inputs = [t.detach() for t in (q, k, v)]
        top, total, out = attend(layout, *inputs, [qr.detach(), kr.detach()], ends=ends)
        same(out, want.detach(), rtol=1e-4, atol=1e-5)
        grad = torch.randn(want.shape)
        given = (*inputs, grad, None, None, None, None, top, total, None, out, None, qr.detach(), kr.detach(), *[None] * 6, ends, ends, None, None)
        outs = [torch.empty(t.shape) for t in (q, k, v, qr, kr)]
        got = client().call("aclnnFlashAttentionScoreGradV4", *given, 0.3, 1.0, 65535, 65535, 2, layout, None, 0, 0, 1, 0, 0, 0, *outs, None, None)
        for part, expected in zip(got, torch.autograd.grad(want, (q, k, v, qr, kr), grad)):
            same(part, expected, rtol=1e-4, atol=1e-4)

    q, k = torch.randn(2, 30, 2, 16), torch.randn(2, 30, 2, 16)
    one = torch.eye(30).view(1, 30, 1, 30).expand(2, 30, 2, 30).contiguous()  # the result is the weights themselves
    plain, dropped, again, other, later = (attend("BSND", q, k, one, [None, None], *to)[-1] for to in ((), (0.75, 7), (0.75, 7), (0.75, 8), (0.75, 7, 4)))
    kept = dropped != 0
    assert torch.equal(dropped, again) and not torch.equal(kept, other != 0) and not torch.equal(kept, later != 0)
    assert abs(kept.double().mean() - 0.75) < 0.03
    same(dropped, torch.where(kept, plain / 0.75, 0), rtol=1e-5, atol=1e-6)
    none = attend("BSND", q, k, one, [None, None], 0.75, 7, mask=torch.zeros(450, dtype=torch.uint8))[-1]
    assert not none.any()                                                         # a mask that is given counts
    top, total, out = attend("BSND", q, k, one, [None, None], 0.75, 7)
    grad = torch.randn(out.shape)
    given = (q, k, one, grad, None, None, None, None, top, total, None, out, *[None] * 13)
    got = client().call("aclnnFlashAttentionScoreGradV4", *given, 0.3, 0.75, 65535, 65535, 2, "BSND", None, 0, 0, 1, 7, 0, 0,
                        *(torch.empty_like(t) for t in (q, k, one)), None, None, None, None)  # fmt: skip
    same(got[2], torch.einsum("bqhk,bqhd->bkhd", dropped, grad), rtol=1e-4, atol=1e-4)
    client().expect_code(561003, "aclnnFlashAttentionScoreV4", q, k, one, *[None] * 6, torch.ones(2, 2, 1, 1), *[None] * 8, 0.3, 1.0, 65535, 65535, 2, "BSND",
                         0, 0, 0, 1, None, 0, 0, top, total, None, out)  # fmt: skip


def test_ops_that_one_generation_has() -> None:
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import test_ops_sparse; test_ops_sparse.only_on_a_950()"
    subprocess.run([sys.executable, "-c", code], env=os.environ | {"CANN_SIM_SOC": "Ascend910_95"}, check=True)
