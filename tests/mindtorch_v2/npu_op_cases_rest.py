"""Cases of torch_npu's ops that the other files leave: gradients by name, further forms, and forms that give room alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from npu_op_case import R, case, f, grads_of, h, i8, i32, i64, pair_grad, u
from npu_op_cases_layers import by_rows, quantized, rms, swiglu, swish
from npu_op_cases_models import CORNERS, NEAR, apart, attention, bsh, delta, diou, gru, lstm, lstm_step, overlap, rotary
from npu_op_cases_tensors import GROUPS, grouped


# ---- boxes ------------------------------------------------------------------------------------------------------------
def ciou(torch: Any, a: Any, b: Any, *_: Any) -> Any:
    slant = torch.atan((b[2] - b[0]) / (b[3] - b[1])) - torch.atan((a[2] - a[0]) / (a[3] - a[1]))
    v = 4 / math.pi**2 * slant.square()
    alpha = (v / (1 - overlap(torch, a, b)[0] + v)).detach()
    return diou(torch, a, b) - alpha * v


case("npu_ciou", CORNERS, NEAR, False, False, ref=ciou, grads=(0, 1), atol=1e-3)
case("_npu_ciou", CORNERS, CORNERS, False, False, ref=lambda torch, a, b, *_: (torch.ones(1, 5), torch.zeros(1, 5)), atol=1e-4)
case("npu_ciou_backward", f(1, 5), CORNERS, NEAR, None, False, False, ref=pair_grad(ciou, 0, (1, 2)), atol=1e-3)
case("npu_ps_roi_pooling_backward", np.ones((1, 2, 2, 2), np.float32), np.array([[[0], [0], [0], [3], [3]]], np.float32), 1.0, 2, 2,
     [4, 4], ref=lambda torch, *_: torch.kron(torch.eye(4), torch.full((1, 1), 0.25)).reshape(4, 2, 2).repeat_interleave(
         2, 1).repeat_interleave(2, 2).repeat(2, 1, 1)[None])

# ---- norms and softmaxes ----------------------------------------------------------------------------------------------------
_x, _w, _b = f(2, 4, 3), f(4), f(4)
_rows = _x.reshape(2, 2, 6)
case("npu_group_norm_swish_grad", f(2, 4, 3), _x, 2, _w, _b, _rows.mean(2), 1 / np.sqrt(_rows.var(2) + 1e-5), [True] * 3, 1.5, atol=1e-4,
     ref=lambda torch, g, x, n, w, b, mean, rstd, mask, s: grads_of(
         torch, lambda x, w, b: swish(torch, torch.nn.functional.group_norm(x, n, w, b), s), (x, w, b), g))
case("batch_norm_gather_stats_update", f(2, 3, 4), f(2, 3), u(2, 3) * 20 + 5, np.zeros(3, np.float32), np.ones(3, np.float32), 0.1,
     1e-5, np.array([4, 6], np.float32), atol=1e-4, ref=lambda torch, x, sums, squares, rm, rv, mom, eps, n: (lambda mean: (
         mean, (squares.sum(0) / n.sum() - mean.square() + eps).rsqrt()))(sums.sum(0) / n.sum()))
case("npu_dropout_with_add_softmax", f(2, 5), f(2, 5), 0.5, 0.0, -1, ref=lambda torch, x, y, a, p, dim: (
    None, torch.softmax(y + a * x, -1), torch.softmax(y + a * x, -1)))
KEPT = (R.rand(2, 5) < 0.5).astype(np.uint8)
case("npu_dropout_with_add_softmax_backward", f(2, 5), KEPT, u(2, 5), 0.5, 0.5, -1, ref=lambda torch, g, kept, y, a, p, dim: (
    lambda s: (s * a, s))((lambda h: y * (h - (h * y).sum(-1, True)))(g * kept / 0.5)))

# ---- integers -------------------------------------------------------------------------------------------------------------------
case("_quantize_per_tensor_impl", f(3, 4), u(1), i32(2), 12, result=i8(3, 4),
     ref=lambda torch, x, s, z, d, result: quantized(torch, x / s + z))
case("_quantize_per_channel_impl", f(3, 4), u(4), i32(1, 2, 3, 4), 1, 12, result=i8(3, 4),
     ref=lambda torch, x, s, z, axis, d, result: quantized(torch, x / s + z))
case("npu_grouped_matmul_swiglu_quant_v2", i8(3, 8), [i8(2, 8, 6)], [u(2, 6)], u(3), GROUPS, atol=1.0,
     ref=lambda torch, x, w, s, t, ends: by_rows(torch, swiglu(torch, grouped(torch, x.float(), w[0].float() * s[0][:, None]) * t[:, None])))
case("npu_transpose_quant_batchmatmul", i8(3, 2, 8), i8(2, 8, 5), 6, x1_scale=u(3), x2_scale=u(5), perm_x1=[1, 0, 2], atol=1e-1,
     ref=lambda torch, a, b, d, x1_scale, x2_scale, perm_x1: (
         (a.transpose(0, 1).float() @ b.float()) * x1_scale[None, :, None] * x2_scale).transpose(0, 1))

# ---- experts and attention ----------------------------------------------------------------------------------------------------------
ROUTES = np.array([[1, 0, 1], [1, 1, 0], [0, 1, 1]], dtype=bool)
case("_npu_moe_token_unpermute_with_routing_map", f(6, 4), i32(0, 4, 1, 2, 3, 5), [3, 4], probs=u(3, 3), routing_map=ROUTES,
     ref=lambda torch, rows, at, shape, probs, routing_map: (
         (rows[at.long()] * probs[routing_map][:, None]).reshape(3, 2, 4).sum(1), at, torch.tensor([0, 0, 1, 1, 2, 2], dtype=torch.int32),
         probs.t()[routing_map.t()]))


def scored(torch: Any, q: Any, k: Any, v: Any, mask: Any, scale: float) -> Any:
    soft = torch.softmax(q @ k.transpose(-2, -1) * scale + mask, -1)
    return (soft @ v).transpose(1, 2).reshape(q.shape[0] * q.shape[2], -1), soft


case("npu_fused_attention_score_fwd", f(2, 2, 3, 4), f(2, 2, 3, 4), f(2, 2, 3, 4), f(2, 1, 3, 3), 0.5, 1.0,
     ref=lambda torch, q, k, v, mask, scale, keep: (*scored(torch, q, k, v, mask, scale), torch.ones(36, dtype=torch.uint8)))
_q, _k, _v = f(2, 2, 3, 4), f(2, 2, 3, 4), f(2, 2, 3, 4)
_soft = np.exp(_q @ _k.transpose(0, 1, 3, 2) * 0.5)
_given = (f(6, 8), _soft / _soft.sum(-1, keepdims=True), _q, _k, _v, np.ones(36, np.uint8), 0.5, 1.0)


def scored_grads(torch: Any, g: Any, soft: Any, q: Any, k: Any, v: Any, mask: Any, scale: float, keep: float) -> Any:
    return grads_of(torch, lambda q, k, v: scored(torch, q, k, v, torch.zeros(1), scale)[0], (q, k, v), g)


case("npu_fused_attention_score_backward", *_given, ref=scored_grads, atol=1e-4)
case("npu_fused_attention_score_grad", *_given, atol=1e-4,
     ref=lambda torch, *a: tuple(x.transpose(1, 2).reshape(6, 8) for x in scored_grads(torch, *a)))
case("npu_nsa_compress_grad", f(2, 2, 4), f(6, 2, 4), f(3, 2), 3, 2, ref=lambda torch, g, x, w, size, step: grads_of(
    torch, lambda x, w: torch.stack([(x[a:a + 3] * w[..., None]).sum(0) for a in (0, 2)]), (x, w), g))


def selected(torch: Any, q: Any, k: Any, v: Any, at: Any, scale: float, causal: bool = False) -> Any:
    """Of one sequence with one head of keys and blocks of two."""
    blocks = torch.arange(k.shape[0]) // 2
    seen = (blocks[None, None] == at.long()[:, 0, :, None]).any(1)
    if causal:
        seen = seen & (torch.arange(k.shape[0])[None] <= torch.arange(q.shape[0])[:, None])
    scores = (torch.einsum("tnd,sd->tns", q, k[:, 0]) * scale).masked_fill(~seen[:, None], -torch.inf)
    return torch.einsum("tns,sd->tnd", torch.softmax(scores, -1), v[:, 0])


CHOSEN = i32([[0, 1]], [[0, 2]], [[2, 0]], [[1, 2]], [[2, 1]], [[0, 1]])
SELECT = {"actual_seq_qlen": [6], "actual_seq_kvlen": [6]}
SELECTED = (f(6, 2, 4), f(6, 1, 4), f(6, 1, 4))
case("npu_nsa_select_attention", *SELECTED, CHOSEN, 0.5, 2, 2, 2, **SELECT, grads=(0, 1, 2),
     ref=lambda torch, q, k, v, at, scale, *_, **kw: (selected(torch, q, k, v, at, scale), None, None))
EARLY = i32(*([[0, 0]],) * 2, *([[0, 1]],) * 2, *([[0, 2]],) * 2)
case("npu_nsa_select_attention", *SELECTED, EARLY, 0.5, 2, 2, 2, **SELECT, atten_mask=np.triu(np.ones((2048, 2048), bool), 1),
     ref=lambda torch, q, k, v, at, scale, *_, **kw: (selected(torch, q, k, v, at, scale, True), None, None))


def rows_of_selected(q: np.ndarray, k: np.ndarray, v: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, ...]:
    """The result, and the largest score and the sum of each row, eight times: what the gradient reads."""
    seen = (np.arange(6)[None, None] // 2 == at[:, 0, :, None]).any(1)
    scores = np.where(seen[:, None], np.einsum("tnd,sd->tns", q, k[:, 0]) * 0.5, -np.inf)
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    out = np.einsum("tns,sd->tnd", weights / total, v[:, 0])
    return tuple(x.astype(np.float32) for x in (out, np.repeat(top, 8, -1), np.repeat(total, 8, -1)))


case("npu_nsa_select_attention_grad", f(6, 2, 4), *SELECTED, *rows_of_selected(*SELECTED, CHOSEN), CHOSEN, 0.5, 2, 2, 2, **SELECT,
     atol=1e-4, ref=lambda torch, g, q, k, v, out, top, total, at, scale, *_, **kw: grads_of(
         torch, lambda q, k, v: selected(torch, q, k, v, at, scale), (q, k, v), g))

# ---- caches -----------------------------------------------------------------------------------------------------------------------------
KV = (f(2, 1, 3, 12), f(8), f(2, 1, 3, 4), f(2, 1, 3, 4), i64([0, 1, 2], [2, 3, 4]), np.zeros((2, 1, 5, 4), np.float32),
      np.zeros((2, 1, 5, 8), np.float32))


def kv_parts(torch: Any, kv: Any, g: Any, c: Any, s: Any) -> Any:
    return rotary(torch, apart(kv[..., 8:]), c, s), rms(torch, kv[..., :8], g, 1e-5)[0]


def in_cache(torch: Any, cache: Any, at: Any, rows: Any) -> Any:
    return torch.stack([cache[b, 0].index_copy(0, at[b], rows[b, 0])[None] for b in range(2)])


case("npu_kv_rmsnorm_rope_cache_v2", *KV, is_output_kv=True, atol=1e-4,
     ref=lambda torch, kv, g, c, s, at, kc, vc, is_output_kv: kv_parts(torch, kv, g, c, s))
case("npu_kv_rmsnorm_rope_cache_v2_functional", *KV, is_output_kv=True, atol=1e-4,
     ref=lambda torch, kv, g, c, s, at, kc, vc, is_output_kv: (lambda k, v: (
         k, v, in_cache(torch, kc, at, k), in_cache(torch, vc, at, v)))(*kv_parts(torch, kv, g, c, s)))
case("npu_scatter_pa_cache", f(3, 2, 4), i32(1, 6, 3), key_cache=f(4, 2, 2, 4),
     ref=lambda torch, k, at, key_cache: key_cache.reshape(8, 2, 4).index_copy(0, at.long(), k).reshape(4, 2, 2, 4))


def prolog(torch: Any, x: Any, dq: Any, uq: Any, uk: Any, dkv: Any, gq: Any, gkv: Any, sin: Any, cos: Any, at: Any, kv: Any, kr: Any) -> Any:
    """Two tokens, two heads of depth 3 with places of 4, latent keys of 6."""
    up = (rms(torch, x @ dq, gq, 1e-5)[0] @ uq).reshape(2, 2, 7)
    down = x @ dkv
    place = rotary(torch, apart(down[:, 6:]), cos, sin)
    return (torch.einsum("tnd,ndc->tnc", up[..., :3], uk), rotary(torch, apart(up[..., 3:]), cos[:, None], sin[:, None]),
            kv.reshape(8, 1, 6).index_copy(0, at, rms(torch, down[:, :6], gkv, 1e-5)[0][:, None]).reshape(4, 2, 1, 6),
            kr.reshape(8, 1, 4).index_copy(0, at, place[:, None]).reshape(4, 2, 1, 4))


MLA = (f(2, 8), f(8, 5), f(5, 14), f(2, 3, 6), f(8, 10), f(5), f(6), f(2, 4), f(2, 4), i64(5, 2), f(4, 2, 1, 6), f(4, 2, 1, 4))
case("npu_mla_prolog", *MLA, ref=prolog, atol=1e-3)
case("npu_mla_prolog_v2", *MLA, ref=lambda torch, *args: (*prolog(torch, *args), torch.ones(1)), atol=1e-3)

# ---- recurrent ------------------------------------------------------------------------------------------------------------------------------
def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def lstm_saved(x: Any, w: Any, b: Any, h: Any, c: Any) -> list[Any]:
    """What the forward op keeps of its steps: y, h, c, i, j, f, o, tanh(c)."""
    kept = []
    for one in x:
        i, g, j, o = np.split(np.concatenate([one, h], 1) @ w + b, 4, 1)
        i, g, j, o = sigmoid(i), sigmoid(g), np.tanh(j), sigmoid(o)
        c = g * c + i * j
        h = o * np.tanh(c)
        kept.append((h, h, c, i, j, g, o, np.tanh(c)))
    return [np.stack(k).astype(np.float32) for k in zip(*kept, strict=True)]


def gru_saved(x: Any, wi: Any, wh: Any, bi: Any, bh: Any, h: Any) -> list[Any]:
    """y, h, update, reset, new, and the hidden part of new."""
    kept = []
    for one in x:
        (r, z, n), (hr, hz, hn) = np.split(one @ wi + bi, 3, 1), np.split(h @ wh + bh, 3, 1)
        r, z = sigmoid(r + hr), sigmoid(z + hz)
        n = np.tanh(n + r * hn)
        h = (1 - z) * n + z * h
        kept.append((h, h, z, r, n, hn))
    return [np.stack(k).astype(np.float32) for k in zip(*kept, strict=True)]


_steps = (f(3, 2, 4), f(9, 20), f(20), f(2, 5), f(2, 5))
case("npu_lstm_backward", f(3, 2, 5), f(3, 2, 5), f(3, 2, 5), *_steps, *lstm_saved(*_steps), atol=1e-4,
     ref=lambda torch, gy, gh, gc, x, w, b, h, c, *_: grads_of(torch, lambda *a: (lambda m: (
         m[0] * gy).sum() + (m[1][-1] * gh[-1]).sum() + (m[2][-1] * gc[-1]).sum())(lstm(torch, *a[:3], None, *a[3:])), (x, w, b, h, c), None))
_one = (f(2, 4), f(4, 20), f(5, 20), f(2, 5), f(2, 5))
_kept = lstm_saved(_one[0][None], np.concatenate(_one[1:3]), 0, *_one[3:])
case("npu_lstm_cell_backward", f(1, 2, 5), f(2, 5), f(2, 5), *_one, _kept[0], _kept[1][0], _kept[2][0], *_kept[3:], atol=1e-4,
     ref=lambda torch, gy, gh, gc, x, wi, wh, h, c, *_: (lambda a, b, d, h, c, e: (a, b, d, e, e, h, c))(*grads_of(
         torch, lambda x, wi, wh, h, c, b: (lambda y, s: (y * (gy[0] + gh)).sum() + (s * gc).sum())(
             *lstm_step(torch, x, h, c, torch.cat([wi, wh]), b)), (x, wi, wh, h, c, torch.zeros(20)), None)))
_seq = (f(3, 2, 4), f(4, 15), f(5, 15), f(15), f(15))
_first = f(2, 5)
case("npu_gru_backward", f(3, 2, 5), f(3, 2, 5), *_seq, i32(3, 3), _first, *gru_saved(*_seq, _first), atol=1e-4,
     ref=lambda torch, gy, gh, x, wi, wh, bi, bh, n, h, *_: grads_of(torch, lambda wi, wh, x, bi, bh, h: (lambda m: (
         m[0] * gy).sum() + (m[0][-1] * gh[-1]).sum())(gru(torch, x, h, wi, wh, bi, bh)), (wi, wh, x, bi, bh, h), None))
STATE = f(3, 2, 5, 4)
case("npu_recurrent_gated_delta_rule_functional", f(2, 2, 4), f(2, 2, 4), f(2, 2, 5), STATE, beta=u(2, 2), scale=0.5, g=-u(2, 2),
     actual_seq_lengths=i32(2), ssm_state_indices=i32(1, 2), atol=1e-4,
     ref=lambda torch, q, k, v, s, beta, scale, g, **kw: (lambda one, two: (
         two[0], torch.stack([s[0], one[1], two[1]])))(delta(torch, q[:1], k[:1], v[:1], beta[:1], s[1], g[:1], scale),
                                                      delta(torch, q, k, v, beta, s[1], g, scale)))
case("npu_recurrent_gated_delta_rule", f(2, 2, 4), f(2, 2, 4), f(2, 2, 5), STATE, beta=u(2, 2), scale=0.5, g=-u(2, 2),
     actual_seq_lengths=i32(2), ssm_state_indices=i32(1, 2), atol=1e-4,
     ref=lambda torch, q, k, v, s, beta, scale, g, **kw: delta(torch, q, k, v, beta, s[1], g, scale)[0])

# ---- random, where there is nothing to choose ---------------------------------------------------------------------------------------------------
case("npu_random_choice_with_mask", np.array([1, 0, 1, 0], bool), 2, ref=lambda torch, x, n: (
    torch.tensor([[0], [2]], dtype=torch.int32), torch.tensor([True, True])))
case("dropout_with_byte_mask", f(3, 4), 0.5, False, ref=lambda torch, x, p, train: x)
case("_dropout_with_byte_mask_backward", f(2, 5), KEPT, 0.5, ref=lambda torch, g, kept, p: g * kept * 2)

# ---- in the dtypes and shapes that CANN takes alone ---------------------------------------------------------------------------
case("npu_slice", f(4, 5), [1, 2], [2, 3], ref=lambda torch, x, at, size: x[1:3, 2:5], grads=(0,))
case("npu_gather_sparse_index", f(5, 3), i64(0, 4, 2), ref=lambda torch, x, at: x[at], grads=(0,))
case("npu_gather_sparse_index_backward", f(3, 3), [5, 3], i64(0, 4, 2),
     ref=lambda torch, g, size, at: torch.zeros(size).index_add(0, at, g))
case("npu_anti_quant", i8(3, 4), u(4), offset=f(4), dst_dtype=5, atol=5e-2,
     ref=lambda torch, x, s, offset, dst_dtype: ((x + offset) * s).half())
case("npu_dequant_bias", i32([100, -200, 300], [5, 6, 7]), u(3), u(2), i32(1, 2, 3), output_dtype=5, atol=5e-1,
     ref=lambda torch, x, w, a, b, output_dtype: ((x + b) * w * a[:, None]).half())
case("npu_dynamic_quant_asymmetric", h(3, 8), atol=1.0, ref=lambda torch, given: (lambda x: (lambda s: (lambda o: (
    quantized(torch, x / s + o), s.squeeze(-1), o.squeeze(-1)))(127 - x.amax(-1, True) / s))(
        (x.amax(-1, True) - x.amin(-1, True)) / 255))(given.float()))
for _name in ("npu_quant_scatter", "npu_quant_scatter_"):
    case(_name, i8(2, 5, 32), i32(1, 3), h(2, 1, 32), u(1, 1, 32), atol=1.0, ref=lambda torch, x, at, v, s: torch.stack(
        [x[b].index_copy(0, at[b:b + 1].long(), quantized(torch, v[b].float() / s[0])) for b in range(2)]))
case("npu_quant_matmul_dequant", h(3, 8), i8(5, 8), u(5), atol=5e-1, ref=lambda torch, x, w, s: (
    lambda q, t: ((q.float() @ w.float().t()) * s * t[:, None]).half())(*by_rows(torch, x.float())))
case("npu_incre_flash_attention", h(2, 1, 32), h(2, 5, 32), h(2, 5, 32), num_heads=2, scale_value=0.5, atol=1e-2,
     ref=lambda torch, q, k, v, **kw: attention(torch, *(bsh(torch, x.float(), 2) for x in (q, k, v)), 0.5).transpose(
         1, 2).flatten(2).half())
