"""Cases of ops that CANN added after 8.1, and of older ones in the dtypes and shapes that CANN takes alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from npu_op_case import b, case, e4m3, f, grads_of, h, i8, i32, nz, u
from npu_op_cases_layers import quantized
from npu_op_cases_models import delta
from npu_op_cases_rest import MLA, prolog
from npu_op_cases_tensors import conv_t

# ---- hyper-connections ------------------------------------------------------------------------------------------------


def half(results: Any, *at: int) -> Any:
    """The results at these places in float16, as the ops give them."""
    return tuple(x.half() if k in at else x for k, x in enumerate(results))


def post(torch: Any, x: Any, r: Any, o: Any, p: Any) -> Any:
    return r.transpose(1, 2) @ x.float() + o.float()[:, None] * p[..., None]


case("npu_mhc_post", h(3, 4, 16), f(3, 4, 4), h(3, 16), f(3, 4), atol=2e-2, ref=lambda torch, *args: post(torch, *args).half())
case("npu_mhc_post_backward", h(3, 4, 16), h(3, 4, 16), f(3, 4, 4), h(3, 16), f(3, 4), atol=5e-2,
     ref=lambda torch, g, x, r, o, p: half(grads_of(torch, lambda *a: post(torch, *a), (x.float(), r, o.float(), p), g.float()), 0, 2))


def pre(torch: Any, x: Any, phi: Any, alpha: Any, bias: Any, gamma: Any = None, hc: float = 1e-6) -> Any:
    """hIn, hPost, hRes, invRms, hMix and hPre of (tokens, 4, depth)."""
    x = x.float()
    flat = x.flatten(1)
    inv = (flat.square().mean(1) + 1e-6).rsqrt()
    mix = (flat if gamma is None else flat * gamma.reshape(-1)) @ phi.t()
    a, c, d = (mix * inv[:, None]).split([4, 4, phi.shape[0] - 8], 1)
    gate = torch.sigmoid(a * alpha[0] + bias[:4]) + hc
    out = 2 * torch.sigmoid(c * alpha[1] + bias[4:8])
    return (gate[..., None] * x).sum(1), out, (d * alpha[2] + bias[8:]).reshape(-1, 4, 4), inv, mix, gate


PRE = (h(3, 4, 16), f(24, 64) * 0.2, f(3), f(24))
GAMMA = f(4, 16)
case("npu_mhc_pre", *PRE, gamma=GAMMA, out_flag=1, atol=2e-2,
     ref=lambda torch, x, phi, alpha, bias, gamma, out_flag: half(pre(torch, x, phi, alpha, bias, gamma), 0))
case("npu_mhc_pre", *PRE, atol=2e-2, ref=lambda torch, *args: (*half(pre(torch, *args), 0)[:3], None, None, None))


def saved() -> tuple[np.ndarray, ...]:
    """What npu_mhc_pre gives of PRE and GAMMA: invRms, hMix, hPre, hPost."""
    x, phi, alpha, bias = (v.astype(np.float32) for v in PRE)
    flat = x.reshape(3, 64)
    inv = 1 / np.sqrt((flat * flat).mean(1) + 1e-6)
    mix = (flat * GAMMA.reshape(-1)) @ phi.T
    at = mix * inv[:, None]
    gate = 1 / (1 + np.exp(-(at[:, :4] * alpha[0] + bias[:4]))) + 1e-6
    return tuple(v.astype(np.float32) for v in (inv, mix, gate, 2 / (1 + np.exp(-(at[:, 4:8] * alpha[1] + bias[4:8])))))


def pre_grads(torch: Any, x: Any, phi: Any, alpha: Any, gi: Any, gp: Any, gr: Any, *rest: Any, gamma: Any) -> Any:
    bias = torch.from_numpy(PRE[3].copy())
    return half(grads_of(torch, lambda *a: (lambda m: (m[0] * gi.float()).sum() + (m[1] * gp).sum() + (m[2] * gr).sum())(
        pre(torch, *a)), (x.float(), phi, alpha, bias, gamma), None), 0)


case("npu_mhc_pre_backward", *PRE[:3], h(3, 16), f(3, 4), f(3, 4, 4), *saved(), gamma=GAMMA, ref=pre_grads, atol=5e-2)


def sinkhorn(torch: Any, x: Any, steps: int) -> Any:
    """The result, and what the gradient reads: (2 * steps, tokens, 4, 8) and (2 * steps, tokens, 8), of which 4 count."""
    y = torch.softmax(x, -1) + 1e-6
    norm, sums = [y], [torch.zeros(x.shape[0], 4)]
    for k in range(1, 2 * steps):
        total = y.sum(-2 if k % 2 else -1, True) + 1e-6
        y = y / total
        norm.append(y)
        sums.append(total.reshape(-1, 4))
    pad = torch.nn.functional.pad
    return y, pad(torch.stack(norm), (0, 4)).reshape(-1), pad(torch.stack(sums), (0, 4)).reshape(-1)


SQUARE = f(3, 4, 4)
case("npu_mhc_sinkhorn", SQUARE, num_iters=5, ref=lambda torch, x, num_iters: (sinkhorn(torch, x, 5)[0], None, None))
case("npu_mhc_sinkhorn", SQUARE, num_iters=2, out_flag=1, ref=lambda torch, x, num_iters, out_flag: sinkhorn(torch, x, 2))


def rows_of_eight() -> tuple[np.ndarray, np.ndarray]:
    """What npu_mhc_sinkhorn keeps of SQUARE after two rounds."""
    y = np.exp(SQUARE) / np.exp(SQUARE).sum(-1, keepdims=True) + 1e-6
    norm, sums = [y], [np.zeros((3, 4))]
    for k in range(1, 4):
        total = y.sum(-2 if k % 2 else -1, keepdims=True) + 1e-6
        y = y / total
        norm.append(y)
        sums.append(total.reshape(3, 4))
    wide = [np.concatenate([v, np.zeros_like(v)], -1).astype(np.float32).reshape(-1) for v in (np.stack(norm), np.stack(sums))]
    return wide[0], wide[1]


case("npu_mhc_sinkhorn_backward", f(3, 4, 4), *rows_of_eight(), atol=1e-4, ref=lambda torch, g, norm, total: grads_of(
    torch, lambda x: sinkhorn(torch, x, 2)[0], (torch.from_numpy(SQUARE.copy()),), g)[0])

# ---- linear attention ---------------------------------------------------------------------------------------------------


def causal(torch: Any, x: Any, w: Any, mask: Any = None) -> Any:
    padded = torch.nn.functional.pad(x.float(), (0, 0, 0, 0, 2, 0))
    made = sum(padded[k:k + x.shape[0]] * w.float()[k] for k in range(3))
    return made if mask is None else made * mask.t()[..., None]


CAUSAL_MASK = np.array([[1, 1, 0, 1], [1, 1, 1, 1]], bool)
case("npu_masked_causal_conv1d", h(4, 2, 3), h(3, 3), mask=CAUSAL_MASK, atol=2e-2,
     ref=lambda torch, x, w, mask: causal(torch, x, w, mask).half())
case("npu_masked_causal_conv1d_backward", h(4, 2, 3), h(4, 2, 3), h(3, 3), mask=CAUSAL_MASK, atol=5e-2,
     ref=lambda torch, g, x, w, mask: half(grads_of(
         torch, lambda x, w: causal(torch, x, w, mask), (x.float(), w.float()), g.float()), 0, 1))


def wide_delta(torch: Any, q: Any, k: Any, v: Any, beta: Any, state: Any, g: Any, scale: float) -> Any:
    out, last = delta(torch, q.float(), k.float(), v.float(), beta.float(), state.float(), g, scale)
    return out.bfloat16(), last.bfloat16()


QKV = (b(f(2, 2, 4)), b(f(2, 2, 4)), b(f(2, 2, 5)))
RULE = {"beta": b(u(2, 2)), "scale": 0.5, "g": -u(2, 2), "actual_seq_lengths": i32(2)}
NEW = {"ssm_state_indices": i32(1, 2), "num_accepted_tokens": i32(1)}
case("npu_chunk_gated_delta_rule", *QKV, **RULE, initial_state=b(f(1, 2, 5, 4)), atol=3e-2,
     ref=lambda torch, q, k, v, beta, scale, g, actual_seq_lengths, initial_state: (lambda o, s: (o, s[None]))(
         *wide_delta(torch, q, k, v, beta, initial_state[0], g, scale)))
STATES = b(f(3, 2, 5, 4))
case("npu_recurrent_gated_delta_rule", *QKV, STATES, **RULE, **NEW, atol=3e-2,
     ref=lambda torch, q, k, v, s, beta, scale, g, **kw: wide_delta(torch, q, k, v, beta, s[1], g, scale)[0])
case("npu_recurrent_gated_delta_rule_functional", *QKV, STATES, **RULE, **NEW, atol=3e-2,
     ref=lambda torch, q, k, v, s, beta, scale, g, **kw: (lambda one, two: (two[0], torch.stack([s[0], one[1], two[1]])))(
         wide_delta(torch, q[:1], k[:1], v[:1], beta[:1], s[1], g[:1], scale), wide_delta(torch, q, k, v, beta, s[1], g, scale)))

# ---- experts --------------------------------------------------------------------------------------------------------------
_scores = 1 / (1 + np.exp(-f(4, 6)))


def gated(torch: Any, x: Any, at: Any) -> Any:
    s = torch.sigmoid(x).gather(1, at)
    return 2.5 * s / (s.sum(1, True) + 1e-20)


case("npu_moe_gating_top_k_backward", _scores, f(4, 2), i32([0, 3], [5, 1], [2, 4], [1, 0]), norm_type=1, routed_scaling_factor=2.5,
     ref=lambda torch, s, g, at, norm_type, routed_scaling_factor: grads_of(
         torch, lambda x: gated(torch, x, at.long()), (torch.logit(s),), g)[0])
case("npu_moe_finalize_routing", f(4, 3), None, None, None, None, i32(2, 0, 3, 1), None, 2, 2,
     ref=lambda torch, rows, a, c, bias, s, at, expert, mode, k: rows[at.long()].reshape(2, 2, 3).sum(1))

# ---- older ones as CANN takes them ------------------------------------------------------------------------------------------


def lora(torch: Any, y: Any, x: Any, wb: Any, at: Any, wa: Any, layer: int, scale: float, start: int, n: int) -> Any:
    made = torch.stack([wb[k, 0].float() @ (wa[k, 0].float() @ x[r].float()) for r, k in enumerate(at.tolist())])
    return torch.cat([y[:, :start], (y[:, start:].float() + scale * made).half()], 1)


for _name in ("npu_batch_gather_matmul", "npu_batch_gather_matmul_"):
    case(_name, h(3, 32), h(3, 16), h(2, 1, 16, 16), i32(0, 1, 0), h(2, 1, 16, 16), 0, 0.5, 16, 16, ref=lora, atol=1e-1)
case("npu_quant_conv2d", i8(1, 3, 5, 5), i8(2, 3, 3, 3), u(2) * 1e-3, atol=5e-2, output_dtype=5,
     ref=lambda torch, x, w, s, output_dtype: (
         torch.nn.functional.conv2d(x.double(), w.double()).float() * s[None, :, None, None]).half())
COMPRESS = {"actual_seq_len": [6]}


def compressed(torch: Any, x: Any, w: Any) -> Any:
    return torch.stack([(x.float()[a:a + 3] * w.float()[..., None]).sum(0) for a in (0, 2)])


case("npu_nsa_compress", h(6, 2, 4), h(3, 2), 3, 2, **COMPRESS, atol=2e-2,
     ref=lambda torch, x, w, size, step, actual_seq_len: compressed(torch, x, w).half())
case("npu_nsa_compress_grad", h(2, 2, 4), h(6, 2, 4), h(3, 2), 3, 2, **COMPRESS, atol=5e-2,
     ref=lambda torch, g, x, w, size, step, actual_seq_len: half(grads_of(
         torch, lambda x, w: compressed(torch, x, w), (x.float(), w.float()), g.float()), 0, 1))
case("slow_conv_transpose2d_backward", f(2, 3, 4, 4), f(2, 4, 3, 3), f(4, 3, 2, 2), [2, 2], [1, 1], [0, 0], [0, 0], [1, 1],
     [True, True, False], atol=1e-4, ref=lambda torch, g, x, w, k, s, p, more, d, mask: (*grads_of(
         torch, lambda x, w: conv_t(torch, x, w, None, p, more, s, d, 1), (x, w), g), None))
case("npu_transpose_quant_batchmatmul", e4m3(f(3, 2, 32)), e4m3(f(2, 32, 5)), 15, x1_scale=u(3), x2_scale=u(5), perm_x1=[1, 0, 2],
     perm_x2=[0, 1, 2], perm_y=[1, 0, 2], atol=2e-1, ref=lambda torch, a, c, d, x1_scale, x2_scale, **kw: (
         (a.transpose(0, 1).float() @ c.float()).transpose(0, 1) * x1_scale[:, None, None] * x2_scale).bfloat16())
case("npu_quant_matmul_reduce_sum", i8(2, 3, 64), nz(i8(2, 64, 64)), x1_scale=u(2, 3) * 1e-2, x2_scale=b(u(64) * 1e-2), atol=5e-1,
     ref=lambda torch, a, c, x1_scale, x2_scale: (
         (a.double() @ c.double()) * x2_scale.double() * x1_scale[..., None]).sum(0).bfloat16())

# ---- latent attention ---------------------------------------------------------------------------------------------------
LATENT = tuple(v if v.dtype == np.int64 else b(v) for v in MLA)


def wide_prolog(torch: Any, *args: Any) -> Any:
    return tuple(x.bfloat16() for x in prolog(torch, *(x if x.dtype is torch.int64 else x.float() for x in args)))


def in_v3(torch: Any, *args: Any, cache_index: Any) -> Any:
    return wide_prolog(torch, *args[:9], cache_index, *args[9:])


case("npu_mla_prolog_v2", *LATENT, atol=6e-2, ref=lambda torch, *args: (*wide_prolog(torch, *args), None))
V3 = (*LATENT[:9], *LATENT[10:])
case("npu_mla_prolog_v3", *V3, cache_index=LATENT[9], atol=6e-2,
     ref=lambda torch, *args, **kw: (*in_v3(torch, *args, **kw)[:2], *(torch.empty(0),) * 3))
case("npu_mla_prolog_v3_functional", *V3, cache_index=LATENT[9], atol=6e-2, ref=lambda torch, *args, **kw: (lambda q, r, kv, kr: (
    q, r, *(torch.empty(0),) * 3, kv, kr))(*in_v3(torch, *args, **kw)))

# ---- native sparse attention --------------------------------------------------------------------------------------------


def compressed_attention(torch: Any, q: Any, k: Any, v: Any, scale: float, *_: Any, atten_mask: Any = None, **kw: Any) -> Any:
    """Of one sequence; windows of 32 rows at 16 and blocks of 64: block j is worth the windows 4 j - m - w."""
    scores = torch.einsum("tnd,snd->tns", q.float(), k.float()) * scale
    scores = scores if atten_mask is None else scores.masked_fill(atten_mask[:, None], -torch.inf)
    weights = torch.softmax(scores, -1)
    worth = torch.zeros(*weights.shape[:2], 2)
    for j in range(2):
        for m in range(4):
            for w in range(2):
                if 0 <= 4 * j - m - w < 8:
                    worth[..., j] += weights[..., 4 * j - m - w]
    return torch.einsum("tns,snd->tnd", weights, v.float()).half(), worth.argsort(dim=-1, descending=True, stable=True).int(), None, None


ENDS = {"actual_seq_qlen": [6], "actual_cmp_seq_kvlen": [8], "actual_sel_seq_kvlen": [2]}
case("npu_nsa_compress_attention", h(6, 2, 16), h(8, 2, 16), h(8, 2, 16), 0.25, 2, 32, 16, 64, 2, **ENDS, atol=1e-2,
     ref=compressed_attention)
case("npu_nsa_compress_attention", h(6, 2, 16), h(8, 2, 16), h(8, 2, 16), 0.25, 2, 32, 16, 64, 2, **ENDS, atol=1e-2,
     atten_mask=np.triu(np.ones((6, 8), bool), 2), ref=compressed_attention)
case("npu_nsa_compress_infer", h(3, 8, 2, 4), h(4, 2), i32(2, 0), 4, 2, 8, block_table=i32([2, 0], [1, 0]), actual_seq_len=[10, 7],
     cache=h(4, 2, 4), atol=2e-2, ref=lambda torch, x, w, at, size, step, page, block_table, actual_seq_len, cache: torch.cat([
         cache[:2], (torch.cat([x[2, 6:], x[0, :2]]).float() * w.float()[..., None]).sum(0).half()[None], cache[3:]]))

# ---- routing --------------------------------------------------------------------------------------------------------------
ROUTED = [1, 2, 0, 1, 0, 2]                                            # the tokens of the experts 0, 0, 1, 1, 2, 2


def dynamic(torch: Any, x: Any, expert: Any, **kw: Any) -> Any:
    scale = x[ROUTED].abs().amax(1) / 127
    return (quantized(torch, x[ROUTED] / scale[:, None]), torch.tensor([2, 4, 0, 3, 1, 5], dtype=torch.int32),
            torch.tensor([2, 2, 2], dtype=torch.int32), None, scale)


case("npu_moe_init_routing_quant", f(3, 4), i32([1, 2], [0, 1], [0, 2]), active_num=6, expert_num=3, expert_tokens_num_mode=2, atol=1.0,
     ref=dynamic)
case("npu_moe_init_routing_quant", f(3, 4), i32([1, 2], [0, 1], [0, 2]), scale=u(1) * 20, offset=f(1), active_num=6, expert_num=3,
     quant_mode=0, ref=lambda torch, x, expert, scale, offset, **kw: (
         quantized(torch, x[ROUTED] * scale + offset), torch.tensor([2, 4, 0, 3, 1, 5], dtype=torch.int32), None, None, None))
