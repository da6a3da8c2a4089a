"""Hyper-connections, gated delta rules and what routes tokens beside them in libopapi, against the formulas in torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from client import client, same
from client import same_roughly as close
from layouts import ints, like
from older import Older

I32, H, BF = torch.int32, torch.float16, torch.bfloat16
INVALID, NO_KERNEL = 161002, 561003


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(11)


# ---- hyper-connections ------------------------------------------------------------------------------------------------
def post(x: torch.Tensor, res: torch.Tensor | None, out: torch.Tensor, to: torch.Tensor) -> torch.Tensor:
    kept = x.float() if res is None else res.transpose(-2, -1) @ x.float()
    return kept + out.float().unsqueeze(-2) * to.unsqueeze(-1)


@pytest.mark.parametrize("mixed", [True, False])
def test_a_layer_gives_to_the_streams(mixed: bool) -> None:
    x, out, to = torch.randn(2, 3, 4, 16).to(H), torch.randn(2, 3, 16).to(H), torch.randn(2, 3, 4)
    res = torch.randn(2, 3, 4, 4) if mixed else None
    close(client().call("aclnnMhcPost", x, res, out, to, like(x)), post(x, res, out, to).to(H))
    leaves = [v.float().requires_grad_() for v in (x, torch.eye(4).expand(2, 3, 4, 4) if res is None else res, out, to)]
    grad = torch.randn(2, 3, 4, 16).to(H)
    want = torch.autograd.grad(post(*leaves), leaves, grad.float())
    got = client().call("aclnnMhcPostBackward", grad, x, res, out, to, like(x), torch.empty(2, 3, 4, 4), like(out), like(to))
    for mine, right, dtype in zip(got, want, (H, torch.float32, H, torch.float32), strict=True):
        close(mine, right.to(dtype), 5e-2)


def read(x: torch.Tensor, phi: torch.Tensor, alpha: torch.Tensor, bias: torch.Tensor, gamma: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
    flat = x.flatten(-2)
    inverse = (flat.square().mean(-1) + 1e-6).rsqrt()
    mix = (flat if gamma is None else flat * gamma.flatten()) @ phi.t()
    a, b, c = (mix * inverse.unsqueeze(-1)).split([4, 4, len(phi) - 8], -1)
    gate = torch.sigmoid(a * alpha[0] + bias[:4]) + 1e-3
    to = 2 * torch.sigmoid(b * alpha[1] + bias[4:8])
    res = torch.zeros(*x.shape[:-2], 4, 4)
    if len(alpha) == 3:
        res = (c * alpha[2] + bias[8:]).reshape(res.shape)
    else:
        to = to + 1e-3
    return (gate.unsqueeze(-1) * x).sum(-2), to, res, inverse, mix, gate


@pytest.mark.parametrize(("parts", "version"), [(3, ""), (2, ""), (3, "V2")])
def test_a_layer_reads_the_streams(parts: int, version: str) -> None:
    rows = 24 if parts == 3 else 8
    x, phi, alpha, bias = torch.randn(3, 4, 16).to(H), torch.randn(rows, 64) * 0.2, torch.randn(parts), torch.randn(rows)
    gamma = torch.randn(4, 16) if version == "" else None
    want = read(x.float(), phi, alpha, bias, gamma)
    more = (0,) if version else ()
    got = client().call("aclnnMhcPre" + version, x, phi, alpha, bias, gamma, 1e-6, 1e-3, *more, torch.empty(3, 16, dtype=H), torch.empty(3, 4),
                        torch.empty(3, 4, 4), torch.empty(3), torch.empty(3, rows), torch.empty(3, 4))
    close(got[0], want[0].to(H))
    for mine, right in zip(got[1:], want[1:], strict=True):
        close(mine, right, 1e-4)
    if version:
        client().expect_code(INVALID, "aclnnMhcPreV2", x, phi, alpha, bias, None, 1e-6, 1e-3, 2, torch.empty(3, 16, dtype=H), torch.empty(3, 4),
                             torch.empty(3, 4, 4), None, None, None)


@pytest.mark.parametrize("scaled", [True, False])
def test_the_gradient_of_what_a_layer_reads(scaled: bool) -> None:
    x, phi, alpha, bias = torch.randn(3, 4, 16).to(H), torch.randn(24, 64) * 0.2, torch.randn(3), torch.randn(24)
    gamma, more = torch.randn(4, 16) if scaled else torch.ones(4, 16), torch.randn(3, 4, 16).to(H)
    leaves = [v.float().requires_grad_() for v in (x, phi, alpha, bias, gamma)]
    made = read(*leaves)
    grads = torch.randn(3, 16).to(H), torch.randn(3, 4), torch.randn(3, 4, 4)
    want = torch.autograd.grad(made[:3], leaves, [g.float() for g in grads])
    got = client().call("aclnnMhcPreBackward", x, phi, alpha, *grads, *(v.detach() for v in (*made[3:], made[1])), gamma if scaled else None,
                        more, 1e-3, like(x), like(phi), like(alpha), like(bias), like(gamma) if scaled else None)
    close(got[0], (want[0] + more.float()).to(H), 5e-2)
    for mine, right in zip(got[1:], want[1:], strict=scaled):
        close(mine, right, 1e-3)


@pytest.mark.parametrize("n", [4, 6, 8])
def test_matrices_become_doubly_stochastic(n: int) -> None:
    x, steps = torch.randn(3, n, n, requires_grad=True), 5
    y = torch.softmax(x, -1) + 1e-6
    norm, sums = [y], [torch.zeros(3, n)]
    for k in range(1, 2 * steps):
        total = y.sum(-2 if k % 2 else -1, True) + 1e-6
        y = y / total
        norm.append(y)
        sums.append(total.reshape(3, n))
    got = client().call("aclnnMhcSinkhorn", x.detach(), 1e-6, steps, torch.empty(3, n, n), torch.empty(10 * 3 * n * 8), torch.empty(10 * 3 * 8))
    close(got[0], y.detach(), 1e-5)
    close(got[1].reshape(10, 3, n, 8)[..., :n], torch.stack(norm).detach(), 1e-5)
    close(got[2].reshape(10, 3, 8)[1:, :, :n], torch.stack(sums).detach()[1:], 1e-5)
    grad = torch.randn(3, n, n)
    (want,) = torch.autograd.grad(y, x, grad)
    close(client().call("aclnnMhcSinkhornBackward", grad, got[1], got[2], torch.empty(3, n, n)), want, 1e-4)
    client().expect_code(INVALID, "aclnnMhcSinkhorn", torch.randn(3, 5, 5), 1e-6, 2, torch.empty(3, 5, 5), None, None)


# ---- linear attention ----------------------------------------------------------------------------------------------------
def rule(state: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, beta: torch.Tensor, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """One token: heads of values share those of keys; g decays items of keys."""
    q, k = (x.float().repeat_interleave(len(v) // len(x), 0) for x in (q, k))
    state = state * g.exp().unsqueeze(1)
    found = (state @ k.unsqueeze(-1)).squeeze(-1)
    state = state + (beta.float().unsqueeze(-1) * (v.float() - found)).unsqueeze(-1) * k.unsqueeze(1)
    return (state @ q.unsqueeze(-1)).squeeze(-1) * 0.5, state


def tokens(n: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(n, 2, 8).to(BF) * 0.3, torch.randn(n, 2, 8).to(BF) * 0.3, torch.randn(n, 4, 6).to(BF), torch.rand(n, 4).to(BF))


@pytest.mark.parametrize("decays", [True, False])
def test_the_delta_rule_over_whole_sequences(decays: bool) -> None:
    q, k, v, beta = tokens(5)
    g, first = -torch.rand(5, 4), torch.randn(2, 4, 6, 8)
    want, states, at = [], [], 0
    for b, n in enumerate((3, 2)):
        state = first[b]
        for t in range(at, at + n):
            out, state = rule(state, q[t], k[t], v[t], beta[t], (g[t] if decays else torch.zeros(4)).unsqueeze(-1).expand(4, 8))
            want.append(out)
        states.append(state)
        at += n
    got = client().call("aclnnChunkGatedDeltaRule", q, k, v, beta, first, ints(3, 2), g if decays else None, 0.5, like(v), like(first))
    close(got[0], torch.stack(want).to(BF), 3e-2)
    close(got[1], torch.stack(states), 1e-3)
    client().expect_code(INVALID, "aclnnChunkGatedDeltaRule", q.float(), k, v, beta, first, ints(3, 2), None, 0.5, like(v), like(first))


def test_the_delta_rule_goes_on_from_what_was_accepted() -> None:
    q, k, v, beta = tokens(4)
    g, gk, states = -torch.rand(4, 4), -torch.rand(4, 4, 8), torch.randn(6, 4, 6, 8)
    where, taken = [4, 0, 2, 5], [2, 1]
    want, kept = [], states.clone()
    for b in range(2):
        state = states[where[2 * b + taken[b] - 1]]
        for t in (2 * b, 2 * b + 1):
            out, state = rule(state, q[t], k[t], v[t], beta[t], g[t].unsqueeze(-1) + gk[t])
            want.append(out)
            kept[where[t]] = state
    got = client().call("aclnnRecurrentGatedDeltaRule", q, k, v, beta, states, ints(2, 2), ints(*where), g, gk, ints(*taken), 0.5, like(v))
    close(got[0], kept, 1e-3)
    close(got[1], torch.stack(want).to(BF), 3e-2)


@pytest.mark.parametrize("masked", [True, False])
def test_causal_convolution(masked: bool) -> None:
    x, w = torch.randn(6, 2, 5).to(H).float().requires_grad_(), torch.randn(3, 5).to(H).float().requires_grad_()
    mask = torch.rand(2, 6) < 0.7 if masked else None
    padded = torch.nn.functional.pad(x, (0, 0, 0, 0, 2, 0))
    y = sum(padded[k:k + 6] * w[k] for k in range(3))
    y = y if mask is None else y * mask.t().unsqueeze(-1)
    low = [v.detach().to(H) for v in (x, w)]
    close(client().call("aclnnMaskedCausalConv1d", *low, mask, like(low[0])), y.detach().to(H))
    grad = torch.randn(6, 2, 5).to(H)
    want = torch.autograd.grad(y, (x, w), grad.float())
    got = client().call("aclnnMaskedCausalConv1dBackward", grad, *low, mask, like(low[0]), like(low[1]))
    for mine, right in zip(got, want, strict=True):
        close(mine, right.to(H))


# ---- latent attention ------------------------------------------------------------------------------------------------------
def turned(x: torch.Tensor, sin: torch.Tensor, cos: torch.Tensor) -> torch.Tensor:
    """Pairs of neighbours rotated, the first of all pairs before the second ones."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.cat([even, odd], -1) * cos + torch.cat([-odd, even], -1) * sin


def normed(x: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
    return x * (x.square().mean(-1, True) + 1e-5).rsqrt() * gamma.float()


@pytest.mark.parametrize("version", ["", "V2WeightNz", "V3WeightNz"])
def test_what_stands_before_latent_attention(version: str) -> None:
    x, dq, uq, uk, dkv, gq, gkv, sin, cos = (torch.randn(*s).to(BF) for s in (
        (2, 8), (8, 5), (5, 14), (2, 3, 6), (8, 10), (5,), (6,), (2, 4), (2, 4)))
    kv, kr, at = torch.randn(4, 2, 1, 6).to(BF), torch.randn(4, 2, 1, 4).to(BF), torch.tensor([5, -1])
    third = version == "V3WeightNz"
    q_scale, k_scale = (0.5, 2.0) if third else (1.0, 1.0)
    cq = normed(x.float() @ dq.float(), gq) * q_scale
    up, down = (cq @ uq.float()).reshape(2, 2, 7), x.float() @ dkv.float()
    query = torch.einsum("tnd,ndc->tnc", up[..., :3], uk.float())
    rope = turned(up[..., 3:], sin.float()[:, None], cos.float()[:, None])
    want_kv, want_kr = kv.clone(), kr.clone()
    want_kv.view(8, 6)[5] = (normed(down[:, :6], gkv) * k_scale)[0].to(BF)
    want_kr.view(8, 4)[5] = turned(down[:, 6:], sin.float(), cos.float())[0].to(BF)
    weights = x, dq, uq, uk, dkv, gq, gkv, sin, cos
    outs: tuple[Any, ...] = torch.empty(2, 2, 6).to(BF), torch.empty(2, 2, 4).to(BF)
    if third:
        args = (*weights, kv, kr, at, *[None] * 9, 1e-5, 1e-5, "PA_BSND", 0, 0, 0, 0, 0, 128, 0.5, 2.0, *outs, None, torch.empty(2, 5).to(BF), None)
    else:
        args = (*weights, at, kv, kr, *[None] * 7, 1e-5, 1e-5, None, *outs, *((None,) if version else ()))
    got = client().call("aclnnMlaProlog" + version, *args)
    for mine, right in zip(got, (want_kv, want_kr, query.to(BF), rope.to(BF), cq.to(BF)), strict=third):
        close(mine, right, 6e-2)
    if third:
        client().expect_code(NO_KERNEL, "aclnnMlaPrologV3WeightNz", *args[:23], "TND", *args[24:])


def rows_to_int8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = x.abs().amax(-1, True) / 127
    return (x / scale).round(), scale


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("mode", ["PA_BSND", "PA_NZ"])
@pytest.mark.parametrize("whole", [False, True])
def test_latent_attention_of_integers(whole: bool, mode: str, older: bool) -> None:
    """Weights of int8 after the first norm, or everywhere; then queries too. Caches of int8 in rows, or pieces of 32 bytes."""
    integers = lambda *s: torch.randint(-9, 9, s, dtype=torch.int8)
    floats = lambda *s: torch.randn(*s).to(BF)
    make = integers if whole else floats
    x, dq, uq, uk, dkv = make(2, 8), make(8, 6), integers(6, 2 * 35), floats(2, 3, 32), make(8, 64)
    gq, gkv, sin, cos, at = floats(6), floats(32), floats(2, 32), floats(2, 32), torch.tensor([5, 2])
    scales = [torch.rand(n) / 9 if n else None for n in ((2, 6, 70, 64) if whole else (0, 0, 70, 0))]
    scale_kv, scale_kr, smooth = torch.rand(1 if whole else 32) * 9, torch.rand(32) * 9, torch.rand(6)
    kv, kr = torch.zeros(4, 2, 1, 32, dtype=torch.int8), torch.zeros(4, 2, 1, 32, dtype=BF if whole else torch.int8)
    by = lambda y, rows, columns: y * rows[:, None] * columns if whole else y
    cq = normed(by(x.float() @ dq.float(), scales[0], scales[1]), gq)
    low, row = rows_to_int8(cq * smooth)
    up = (low @ uq.float() * row * scales[2]).view(2, 2, 35)
    down = by(x.float() @ dkv.float(), scales[0], scales[3])
    query = torch.einsum("tnd,ndc->tnc", up[..., :3], uk.float())
    rope = turned(up[..., 3:], sin.float()[:, None], cos.float()[:, None])
    to = lambda y, scale: (y * scale).round().clamp(-128, 127)
    parts = [to(normed(down[:, :32], gkv), scale_kv), turned(down[:, 32:], sin.float(), cos.float())]
    parts[1] = parts[1] if whole else to(parts[1], scale_kr)
    wants = [kv.float(), kr.float()]
    for want, cache, part in zip(wants, (kv, kr), parts, strict=True):
        piece = 32 // cache.element_size() if mode == "PA_NZ" else 32
        for t, slot in enumerate(at.tolist()):
            block = want[slot // 2].view(32 // piece, 2, piece) if mode == "PA_NZ" else want[slot // 2].view(1, 2, 32)
            block[:, slot % 2] = part[t].view(-1, piece)
    given = (*scales, scale_kv, None if whole else scale_kr, smooth)
    weights = x, dq, uq, uk, dkv, gq, gkv, sin, cos
    outs = torch.empty(2, 2, 32, dtype=torch.int8 if whole and not older else BF), torch.empty(2, 2, 32).to(BF)
    if older:
        caches = torch.empty_like(kv), torch.empty_like(kr)
        got = Older()("MlaProlog", [*weights, at, kv, kr, *given], [*outs, *caches], cache_mode=mode)
        got = [*got[2:], *got[:2]]
    else:
        found = torch.empty(2, 2, 1)
        got = list(client().call("aclnnMlaPrologV2WeightNz", *weights, at, kv, kr, *given, 1e-5, 1e-5, mode, *outs, found))
        if whole:
            query, factors = rows_to_int8(query)
            torch.testing.assert_close(got[4], factors, rtol=5e-2, atol=1e-4)
            query, got[2] = query * factors, got[2].float() * got[4]
    for mine, right, loose in zip(got, (*wants, query, rope), (1.01, 5e-2 if whole else 1.01, 6e-2, 6e-2), strict=False):
        torch.testing.assert_close(mine.float(), right, rtol=5e-2, atol=loose * (1 if loose > 1 else max(1, float(right.abs().max()) / 8)))


# ---- convolutions that move ------------------------------------------------------------------------------------------------
def covered(x: torch.Tensor, offset: torch.Tensor, groups: int) -> torch.Tensor:
    """The items that kernels of 3 by 3 at stride 2 meet in x, padded by 1: places are moved by x, y, and weighted."""
    n, c, height, width = x.shape
    oh, ow = (height - 1) // 2 + 1, (width - 1) // 2 + 1
    dx, dy, factor = offset.reshape(n, 3, groups, 3, 3, oh, ow).unbind(1)
    px = dx + (torch.arange(ow) * 2 - 1) + torch.arange(3).reshape(1, 3, 1, 1)
    py = dy + (torch.arange(oh) * 2 - 1).reshape(-1, 1) + torch.arange(3).reshape(3, 1, 1, 1)
    grid = torch.stack([(2 * px + 1) / width - 1, (2 * py + 1) / height - 1], -1).reshape(n * groups, 9 * oh, ow, 2)
    met = torch.nn.functional.grid_sample(x.reshape(n * groups, c // groups, height, width), grid, align_corners=False)
    met = met.reshape(n, groups, c // groups, 3, 3, oh, ow) * factor.unsqueeze(2)
    return met.reshape(n, c, 3, 3, oh, ow).permute(0, 1, 4, 2, 5, 3).reshape(n, c, 3 * oh, 3 * ow)


@pytest.mark.parametrize("groups", [1, 2])
def test_convolution_whose_places_move(groups: int) -> None:
    x, weight, bias = torch.randn(2, 4, 5, 7), torch.randn(6, 4 // groups, 3, 3), torch.randn(6)
    offset = torch.cat([torch.randn(2, 2 * groups * 9, 3, 4), torch.rand(2, groups * 9, 3, 4)], 1)
    leaves = [v.requires_grad_() for v in (x, weight, offset, bias)]
    met = covered(x, offset, groups)
    y = torch.nn.functional.conv2d(met, weight, bias, stride=3, groups=groups)
    plain, shape = [v.detach() for v in leaves], ([3, 3], [1, 1, 2, 2], [1, 1, 1, 1], [1, 1, 1, 1], groups, groups, True)
    got = client().call("aclnnDeformableConv2d", *plain, *shape, torch.empty(y.shape), torch.empty(met.shape))
    close(got[0], y.detach(), 1e-3)
    close(got[1], met.detach(), 1e-4)
    grad = torch.randn(y.shape)
    want = torch.autograd.grad(y, leaves, grad)
    got = client().call("aclnnDeformableConv2dBackward", plain[0], grad, met.detach(), plain[1], plain[2], *shape, *(torch.empty(v.shape) for v in leaves))
    for mine, right in zip(got, want, strict=True):
        close(mine, right, 2e-3)
    client().expect_code(NO_KERNEL, "aclnnDeformableConv2d", *plain, *shape[:-1], False, torch.empty(y.shape), None)


# ---- experts, caches, lists ------------------------------------------------------------------------------------------------
def test_tokens_put_back_with_experts_that_need_no_rows() -> None:
    rows, x, scales = torch.randn(6, 4), torch.randn(3, 4), torch.rand(3, 2)
    expert, where = ints((0, 2), (3, 1), (4, 0)), ints(0, 3, 5, 2, 1, 4)
    a, b, v = (torch.randn(2, 4) for _ in range(3))
    each = rows[where.long()].reshape(3, 2, 4).clone()
    each[0, 1] = 0                                                  # expert 2 gives nothing
    each[1, 0] = x[1]                                               # 3 gives the token
    each[2, 0] = a[0] * x[2] + b[0] * v[0]                          # 4 is the first of the constant ones
    got = client().call("aclnnMoeFinalizeRoutingV4", rows, where, None, None, None, scales, expert, x, a, b, v, 2, [2, 3], [3, 4], [4, 6], 2,
                        torch.empty(3, 4))
    same(got, (each * scales.unsqueeze(-1)).sum(1))
    got = client().call("aclnnMoeFinalizeRoutingV4", rows, where, None, None, None, None, None, None, None, None, None, 2, None, None, None, 2,
                        torch.empty(3, 4))
    same(got, rows[where.long()].reshape(3, 2, 4).sum(1))
    client().expect_code(INVALID, "aclnnMoeFinalizeRoutingV4", rows, where, None, None, None, scales, None, x, None, None, None, 2, [2, 3], None,
                         None, 2, torch.empty(3, 4))


@pytest.mark.parametrize(("totals", "scatter"), [(1, 0), (0, 1)])
def test_rows_by_expert_and_rank(totals: int, scatter: int) -> None:
    x, scales, counts = torch.randn(7, 3).to(H), torch.rand(7), torch.tensor([[1, 2], [3, 1]])
    order = torch.tensor([0, 3, 4, 5, 1, 2, 6])
    got = client().call("aclnnMoeReRouting", x, counts, scales, totals, scatter, like(x), like(scales), torch.empty(7, dtype=I32), like(counts[0]))
    same(got[0], x[order])
    same(got[1], scales[order])
    same(got[2], (order.argsort() if scatter else order).to(I32))
    same(got[3], counts.sum(0) if totals else counts.sum(0).cumsum(0))


def test_instances_of_experts() -> None:
    ids, table = ints((0, 1), (1, 0)), ints((2, 3, 4), (1, 5, 0))
    got = client().call("aclnnMoeUpdateExpert", ids, table, None, None, None, 1, 2, 0, like(ids), torch.empty(2, 2, dtype=torch.bool))
    assert got[0].tolist() == [[4, 5], [5, 4]]
    client().expect_code(NO_KERNEL, "aclnnMoeUpdateExpert", ids, table, None, None, None, 1, 2, 1, like(ids), torch.empty(2, 2, dtype=torch.bool))


def test_the_gradient_of_chosen_scores() -> None:
    x, at = torch.randn(4, 6, requires_grad=True), ints((0, 3), (5, 1), (2, 4), (1, 0))
    chosen = torch.sigmoid(x).gather(1, at.long())
    grad = torch.randn(4, 2)
    (want,) = torch.autograd.grad(2.5 * chosen / (chosen.sum(1, True) + 1e-20), x, grad)
    close(client().call("aclnnMoeGatingTopKBackward", torch.sigmoid(x).detach(), grad, at, 0, 1, 2.5, 1e-20, torch.empty(4, 6)), want, 1e-5)
    client().expect_code(NO_KERNEL, "aclnnMoeGatingTopKBackward", torch.rand(4, 6), grad, at, 0, 0, 2.5, 1e-20, torch.empty(4, 6))


def test_the_gradient_of_putting_back_by_a_map() -> None:
    routes = torch.tensor([[1, 0, 1], [1, 1, 0], [0, 1, 1]], dtype=torch.bool)
    rows, probs = torch.randn(6, 4, requires_grad=True), torch.rand(3, 3, requires_grad=True)
    where, grad = ints(0, 4, 1, 2, 3, 5), torch.randn(3, 4)
    y = (rows[where.long()] * probs[routes].unsqueeze(1)).reshape(3, 2, 4).sum(1)
    want = torch.autograd.grad(y, (rows, probs), grad)
    made = client().call("aclnnMoeTokenUnpermuteWithRoutingMap", rows.detach(), where, routes, probs.detach(), False, [3, 4], torch.empty(3, 4),
                         like(where), like(where), torch.empty(6))
    same(made[0], y.detach())
    same(made[1], where)
    same(made[2], ints(0, 0, 1, 1, 2, 2))
    same(made[3], probs.detach().t()[routes.t()])
    for token in (made[2], where):
        got = client().call("aclnnMoeTokenUnpermuteWithRoutingMapGrad", grad, made[1], token, routes, rows.detach(), probs.detach(), False, [3, 4],
                            torch.empty(6, 4), torch.empty(3, 3))
        for mine, right in zip(got, want, strict=True):
            same(mine, right)


def test_keys_into_blocks_of_a_cache() -> None:
    key, cache, slots = torch.randn(3, 2, 4), torch.randn(4, 2, 2, 4), ints(1, -1, 6)
    want = cache.clone()
    want.view(8, 2, 4)[1], want.view(8, 2, 4)[6] = key[0], key[2]
    same(client().call("aclnnScatterPaCache", key, cache, slots, None, None, None, None), want)
    client().expect_code(NO_KERNEL, "aclnnScatterPaCache", key, cache, slots, ints(1, 1), None, ints(1), "Norm")


def test_updates_of_a_list() -> None:
    tensors, updates = [torch.randn(5, 3) for _ in range(3)], torch.randn(3, 2, 3)
    want = [t.clone() for t in tensors]
    want[0][1:3], want[2][3:5] = updates[0], updates[2]
    mask = torch.tensor([1, 0, 1], dtype=torch.uint8)
    got = client().call("aclnnScatterList", tensors, ints(1, 0, 3), updates, mask, "update", -2)
    for mine, right in zip(got, want, strict=True):
        same(mine, right)
    want[0][4:5] = updates[0][:1]
    got = client().call("aclnnScatterList", tensors, ints((4, 1), (0, 0), (3, 2)), updates, mask, None, 1)
    want[0][1:3] = tensors[0][1:3]
    for mine, right in zip(got, want, strict=True):
        same(mine, right)
    client().expect_code(INVALID, "aclnnScatterList", tensors, ints(1, 0, 3), updates, None, "add", -2)


@pytest.mark.parametrize(("lists", "version"), [(1, "V2"), (2, "V2"), (1, "WeightNzV2")])
def test_gated_products_of_experts(lists: int, version: str) -> None:
    x, w = (torch.randint(-20, 20, s, dtype=torch.int8) for s in ((5, 8), (2, 8, 6)))
    scale, rows, counts = torch.rand(2, 6) * 0.1, torch.rand(5), torch.tensor([2, 3])
    y = torch.cat([x[:2].double() @ w[0].double() * scale[0], x[2:].double() @ w[1].double() * scale[1]]) * rows[:, None]
    half = torch.nn.functional.silu(y[:, :3]) * y[:, 3:]
    found = half.abs().amax(1) / 127
    weights, scales = ([w], [scale]) if lists == 1 else ([w[0], w[1]], [scale[0], scale[1]])
    got = client().call("aclnnGroupedMatmulSwigluQuant" + version, x, weights, scales, None, None, rows, None, counts, 0, 0, 0, 1, None,
                        torch.empty(5, 3, dtype=torch.int8), torch.empty(5))
    assert (got[0].double() - (half / found[:, None]).round()).abs().max() <= 1
    close(got[1], found.float(), 1e-5)
    client().expect_code(NO_KERNEL, "aclnnGroupedMatmulSwigluQuant" + version, x, weights, scales, None, None, rows, None, counts, 1, 0, 0, 1, None,
                         torch.empty(5, 3, dtype=torch.int8), torch.empty(5))
