"""Cases of torch_npu's attention, rotary embedding, caches, boxes, recurrent layers and optimizers."""

from __future__ import annotations

from typing import Any

import numpy as np
from npu_op_case import R, case, f, grads_of, h, i32, i64, pair_grad, u
from npu_op_cases_layers import rms


# ---- attention ----------------------------------------------------------------------------------------------------------------
def attention(torch: Any, q: Any, k: Any, v: Any, scale: float, gone: Any = None, shift: Any = None) -> Any:
    """Of (batch, heads, length, depth); shift comes before the scale."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(-2, -1)
    scores = (scores if shift is None else scores + shift) * scale
    scores = scores if gone is None else scores.masked_fill(gone, -torch.inf)
    return torch.softmax(scores, -1) @ v


def bsh(torch: Any, x: Any, n: int) -> Any:
    return x.unflatten(-1, (n, -1)).transpose(1, 2)


def joined(x: Any) -> Any:
    return x.transpose(1, 2).flatten(2)


HIDDEN = np.triu(np.ones((3, 5), dtype=bool), 2)
FLASH = (None,) * 6
case("npu_fusion_attention", f(2, 3, 8), f(2, 5, 8), f(2, 5, 8), 2, "BSH", scale=0.5, grads=(0, 1, 2), atol=1e-4,
     ref=lambda torch, q, k, v, n, layout, scale: (joined(attention(torch, *(bsh(torch, x, n) for x in (q, k, v)), scale)), *FLASH))
case("npu_fusion_attention", f(2, 2, 3, 4), f(2, 1, 5, 4), f(2, 1, 5, 4), 2, "BNSD", scale=0.5, grads=(0, 1, 2), atol=1e-4,
     atten_mask=HIDDEN, pse=f(2, 2, 3, 5), ref=lambda torch, q, k, v, n, layout, scale, atten_mask, pse: (
         attention(torch, q, k, v, scale, atten_mask, pse), *FLASH))
case("npu_fusion_attention", f(3, 2, 8), f(5, 2, 8), f(5, 2, 8), 2, "SBH", scale=0.5, grads=(0, 1, 2), atol=1e-4,
     ref=lambda torch, q, k, v, n, layout, scale: (joined(attention(
         torch, *(bsh(torch, x.transpose(0, 1), n) for x in (q, k, v)), scale)).transpose(0, 1), *FLASH))
case("npu_fusion_attention", f(2, 3, 2, 4), f(2, 3, 2, 4), f(2, 3, 2, 4), 2, "BSND", scale=0.5, sparse_mode=2, grads=(0, 1, 2), atol=1e-4,
     atten_mask=np.triu(np.ones((2048, 2048), dtype=bool), 1), ref=lambda torch, q, k, v, n, layout, scale, sparse_mode, atten_mask: (
         attention(torch, *(x.transpose(1, 2) for x in (q, k, v)), scale, torch.ones(3, 3).triu(1).bool()).transpose(1, 2), *FLASH))


def packed(torch: Any, q: Any, k: Any, v: Any, scale: float) -> Any:
    parts = [attention(torch, *(x[a:b].transpose(0, 1)[None] for x in (q, k, v)), scale)[0].transpose(0, 1) for a, b in ((0, 2), (2, 5))]
    return torch.cat(parts)


case("npu_fusion_attention", f(5, 2, 4), f(5, 2, 4), f(5, 2, 4), 2, "TND", scale=0.5, actual_seq_qlen=[2, 5], actual_seq_kvlen=[2, 5],
     grads=(0, 1, 2), atol=1e-4, ref=lambda torch, q, k, v, n, layout, scale, **rest: (packed(torch, q, k, v, scale), *FLASH))
case("npu_fusion_attention_v2", f(2, 2, 3, 4), f(2, 2, 5, 4), f(2, 2, 5, 4), 2, "BNSD", scale=0.5, pse=f(2, 2, 3, 5), pse_type=0,
     grads=(0, 1, 2), atol=1e-4, ref=lambda torch, q, k, v, n, layout, scale, pse, pse_type: (
         attention(torch, q, k, v, scale, None, pse / scale), *FLASH))
case("npu_fusion_attention_v3", f(2, 2, 3, 4), f(2, 2, 5, 4), f(2, 2, 5, 4), 2, "BNSD", scale=0.5, grads=(0, 1, 2), atol=1e-4,
     ref=lambda torch, q, k, v, n, layout, scale: (attention(torch, q, k, v, scale), *FLASH[:5]))


def statistics(q: np.ndarray, k: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray]:
    scores = q @ k.transpose(0, 1, 3, 2) * scale
    top = scores.max(-1, keepdims=True)
    total = np.exp(scores - top).sum(-1, keepdims=True)
    return tuple(np.broadcast_to(x, (*x.shape[:-1], 8)).astype(np.float32).copy() for x in (top, total))


Q, K, V, DY = f(2, 2, 3, 4), f(2, 2, 5, 4), f(2, 2, 5, 4), f(2, 2, 3, 4)
_scores = np.exp(Q @ K.transpose(0, 1, 3, 2) * 0.5)
_out = (_scores / _scores.sum(-1, keepdims=True)) @ V
for _name, _more, _rest in (("npu_fusion_attention_grad", {}, 2), ("npu_fusion_attention_grad_v2", {}, 4),
                            ("npu_fusion_attention_grad_v3", {}, 2)):
    case(_name, Q, K, V, DY, 2, "BNSD", scale_value=0.5, softmax_max=statistics(Q, K, 0.5)[0], softmax_sum=statistics(Q, K, 0.5)[1],
         attention_in=_out, atol=1e-4, ref=lambda torch, q, k, v, g, *_, rest=_rest, **kw: (*grads_of(
             torch, lambda q, k, v: attention(torch, q, k, v, 0.5), (q, k, v), g), *(None,) * rest))
case("npu_prompt_flash_attention", f(2, 3, 8), f(2, 5, 8), f(2, 5, 8), num_heads=2, scale_value=0.5, next_tokens=65535, atol=1e-4,
     ref=lambda torch, q, k, v, **kw: joined(attention(torch, *(bsh(torch, x, 2) for x in (q, k, v)), 0.5)))
case("npu_prompt_flash_attention", h(2, 2, 3, 16), h(2, 1, 5, 16), h(2, 1, 5, 16), num_heads=2, num_key_value_heads=1, scale_value=0.25,
     input_layout="BNSD", next_tokens=65535, atol=4e-3,
     ref=lambda torch, q, k, v, **kw: attention(torch, q.float(), k.float(), v.float(), 0.25).half())
case("npu_incre_flash_attention", f(2, 1, 8), f(2, 5, 8), f(2, 5, 8), num_heads=2, scale_value=0.5, atol=1e-4,
     ref=lambda torch, q, k, v, **kw: joined(attention(torch, *(bsh(torch, x, 2) for x in (q, k, v)), 0.5)))
case("npu_fused_infer_attention_score", f(2, 3, 8), f(2, 5, 8), f(2, 5, 8), num_heads=2, scale=0.5, atol=1e-4,
     ref=lambda torch, q, k, v, **kw: (joined(attention(torch, *(bsh(torch, x, 2) for x in (q, k, v)), 0.5)), None))
case("npu_fused_infer_attention_score", h(2, 2, 3, 16), h(2, 2, 5, 16), h(2, 2, 5, 16), num_heads=2, scale=0.25, input_layout="BNSD",
     softmax_lse_flag=True, actual_seq_lengths_kv=[5, 3], atol=4e-3, ref=lambda torch, q, k, v, **kw: (lambda gone: (
         attention(torch, q.float(), k.float(), v.float(), 0.25, gone).half(),
         torch.logsumexp((q.float() @ k.float().transpose(-2, -1) * 0.25).masked_fill(gone, -torch.inf), -1, True)))(
             torch.arange(5)[None] >= torch.tensor([5, 3])[:, None, None, None]))
BLOCKS, TABLE = f(4, 2, 8), i32([0, 2, 3], [1, 3, 0])
case("npu_fused_infer_attention_score", f(2, 1, 8), BLOCKS, BLOCKS, num_heads=2, scale=0.5, block_table=TABLE, block_size=2,
     actual_seq_lengths_kv=[5, 3], atol=1e-4, ref=lambda torch, q, k, v, block_table, **kw: (torch.cat([joined(attention(
         torch, bsh(torch, q[b:b + 1], 2), *(bsh(torch, k[block_table[b].long()].reshape(1, 6, 8)[:, :n], 2) for _ in "kv"), 0.5))
         for b, n in ((0, 5), (1, 3))]), None))
case("npu_fused_infer_attention_score_v2", f(2, 2, 3, 4), f(2, 2, 5, 4), f(2, 2, 5, 4), num_query_heads=2, softmax_scale=0.5,
     input_layout="BNSD", atol=1e-4, ref=lambda torch, q, k, v, **kw: (attention(torch, q, k, v, 0.5), None))
case("npu_ring_attention_update", f(3, 2, 8), f(2, 2, 3, 1).repeat(8, 3), u(2, 2, 3, 1).repeat(8, 3), f(3, 2, 8),
     f(2, 2, 3, 1).repeat(8, 3), u(2, 2, 3, 1).repeat(8, 3), atol=1e-4,
     ref=lambda torch, a, m, s, b, n, t: (lambda top, p, q: (
         (a.reshape(3, 2, 2, 4) * (p / (p + q))[..., :1].permute(2, 0, 1, 3) +
          b.reshape(3, 2, 2, 4) * (q / (p + q))[..., :1].permute(2, 0, 1, 3)).reshape(3, 2, 8), top, p + q))(
              torch.maximum(m, n), s * (m - torch.maximum(m, n)).exp(), t * (n - torch.maximum(m, n)).exp()))
case("npu_attention_update", [f(4), f(4)], [f(4, 8), f(4, 8)], 1, ref=lambda torch, lse, outs, kind: (
    lambda total: (sum(o * (x - total).exp()[:, None] for x, o in zip(lse, outs, strict=True)), total))(
        torch.logsumexp(torch.stack(lse), 0)))
case("npu_fused_attention_score", f(2, 2, 3, 4), f(2, 2, 3, 4), f(2, 2, 3, 4), f(2, 1, 3, 3), 0.5, 1.0, grads=(0, 1, 2),
     ref=lambda torch, q, k, v, mask, scale, keep: (torch.softmax(q @ k.transpose(-2, -1) * scale + mask, -1) @ v).transpose(
         1, 2).reshape(6, 8))
case("npu_multi_head_attention", f(6, 8), f(6, 8), f(6, 8), f(8, 8), f(8, 8), f(8, 8), f(2, 2, 3, 3), f(8, 8), f(8), f(8), f(8), f(8),
     None, 2, 4, 3, 3, 0.0, True, atol=1e-4, ref=lambda torch, q, k, v, wq, wk, wv, mask, wo, bq, bk, bv, bo, *rest: (
         (lambda p, r, s: torch.softmax(p @ r.transpose(-2, -1) / 2 + mask, -1) @ s)(*(
             (x @ w.t() + b).reshape(2, 3, 2, 4).transpose(1, 2) for x, w, b in ((q, wq, bq), (k, wk, bk), (v, wv, bv))))
         .transpose(1, 2).reshape(6, 8) @ wo.t() + bo, *(None,) * 7))
case("npu_nsa_compress", f(6, 2, 4), f(3, 2), 3, 2, ref=lambda torch, x, w, size, step: torch.stack(
    [(x[a:a + 3] * w[..., None]).sum(0) for a in (0, 2)]), grads=(0, 1))
case("npu_mhc_post", f(3, 4, 5), f(3, 4, 4), f(3, 5), f(3, 4), grads=(0, 1, 2, 3),
     ref=lambda torch, x, r, o, p: r.transpose(1, 2) @ x + o[:, None] * p[..., None])
case("npu_mhc_post_backward", f(3, 4, 5), f(3, 4, 5), f(3, 4, 4), f(3, 5), f(3, 4), ref=lambda torch, g, *args: grads_of(
    torch, lambda x, r, o, p: r.transpose(1, 2) @ x + o[:, None] * p[..., None], args, g))

# ---- rotary embedding and caches -------------------------------------------------------------------------------------------------
def turned(torch: Any, x: Any, mode: str = "half") -> Any:
    if mode == "half":
        a, b = x.chunk(2, -1)
        return torch.cat([-b, a], -1)
    return torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)


def rotary(torch: Any, x: Any, cos: Any, sin: Any, mode: str = "half") -> Any:
    return x * cos + turned(torch, x, mode) * sin


def apart(x: Any) -> Any:
    return x.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)


for _mode in ("half", "interleave"):
    case("npu_rotary_mul", f(2, 3, 2, 8), f(1, 3, 1, 8), f(1, 3, 1, 8), _mode, ref=rotary, grads=(0, 1, 2))
    case("npu_rotary_mul_backward", f(2, 3, 2, 8), f(2, 3, 2, 8), f(1, 3, 1, 8), f(1, 3, 1, 8), _mode,
         ref=lambda torch, g, x, c, s, mode: grads_of(torch, lambda x, c, s: rotary(torch, x, c, s, mode), (x, c, s), g))
case("npu_apply_rotary_pos_emb", f(2, 3, 2, 8), f(2, 3, 1, 8), f(2, 3, 1, 8), f(2, 3, 1, 8),
     ref=lambda torch, q, k, c, s: (rotary(torch, q, c, s), rotary(torch, k, c, s)))
case("npu_interleave_rope", f(2, 3, 4, 8), f(2, 1, 4, 8), f(2, 1, 4, 8), ref=lambda torch, x, c, s: rotary(torch, apart(x), c, s))
case("npu_mrope", i64(0, 2, 1), f(3, 16), f(3, 8), f(4, 8), 8, ref=lambda torch, at, q, k, cache, n: tuple(rotary(
    torch, x.reshape(3, -1, 8), *(torch.cat([c, c], -1)[:, None] for c in cache[at].chunk(2, -1))).reshape(3, -1) for x in (q, k)))
case("npu_scatter_pa_kv_cache_functional", f(3, 2, 4), f(3, 2, 4), f(4, 2, 2, 4), f(4, 2, 2, 4), i32(1, 6, 3), cache_mode="Norm",
     ref=lambda torch, k, v, kc, vc, at, cache_mode: tuple(
         c.reshape(8, 2, 4).index_copy(0, at.long(), x).reshape(4, 2, 2, 4) for x, c in ((k, kc), (v, vc))))
case("npu_gather_pa_kv_cache_functional", f(4, 2, 2, 4), f(4, 2, 2, 4), i32([0, 2], [3, 1]), i32(3, 2), f(5, 2, 4), f(5, 2, 4),
     ref=lambda torch, kc, vc, table, n, k, v: tuple(c.reshape(8, 2, 4)[[0, 1, 4, 6, 7]] for c in (kc, vc)))
case("npu_kv_rmsnorm_rope_cache", f(2, 1, 3, 12), f(8), f(2, 1, 3, 4), f(2, 1, 3, 4), i64([0, 1, 2], [2, 3, 4]), np.zeros((2, 1, 5, 4), np.float32),
     np.zeros((2, 1, 5, 8), np.float32), epsilon=1e-5, is_output_kv=True, atol=1e-4,
     ref=lambda torch, kv, g, c, s, at, kc, vc, epsilon, is_output_kv: (lambda k, v: (
         *(torch.stack([t[b, 0].index_copy(0, at[b], x[b, 0])[None] for b in range(2)]) for t, x in ((kc, k), (vc, v))), k, v))(
             rotary(torch, apart(kv[..., 8:]), c, s), rms(torch, kv[..., :8], g, epsilon)[0]))

# ---- boxes --------------------------------------------------------------------------------------------------------------------------
BOXES = np.array([[0, 0, 10, 10], [10, 10, 20, 20], [32, 32, 38, 42]], np.float32)
OTHERS = np.array([[0, 0, 10, 20], [0, 10, 10, 10], [10, 10, 20, 20]], np.float32)
for _name in ("npu_iou", "npu_ptiou"):
    case(_name, BOXES, OTHERS, atol=5e-3,  # CANN's areas are of edges that are 0.01 longer
         ref=lambda torch, a, b: torch.tensor([[0.5, 0, 0], [0, 0, 0], [0, 1, 0]]))
CORNERS = np.sort(R.rand(2, 2, 5), 0).reshape(4, 5).astype(np.float32)
NEAR = np.sort(R.rand(2, 2, 5), 0).reshape(4, 5).astype(np.float32)


def overlap(torch: Any, a: Any, b: Any) -> Any:
    """(iou, union, width and height around both) of boxes (4, N)."""
    size = (torch.minimum(a[2:], b[2:]) - torch.maximum(a[:2], b[:2])).clamp(min=0)
    inter = size[0] * size[1]
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inter
    return inter / union, union, torch.maximum(a[2:], b[2:]) - torch.minimum(a[:2], b[:2])


def giou(torch: Any, a: Any, b: Any) -> Any:
    iou, union, around = overlap(torch, a, b)
    return (iou - (around[0] * around[1] - union) / (around[0] * around[1]))[:, None]


def diou(torch: Any, a: Any, b: Any, *_: Any) -> Any:
    iou, _, around = overlap(torch, a, b)
    apart = ((a[:2] + a[2:] - b[:2] - b[2:]) / 2).square().sum(0)
    return (iou - apart / around.square().sum(0))[None]


case("npu_giou", CORNERS, NEAR, ref=giou, grads=(0, 1), atol=1e-3)
case("npu_giou_backward", f(5, 1), CORNERS, NEAR, atol=1e-3, ref=pair_grad(giou, 0, (1, 2)))
case("npu_diou", CORNERS, NEAR, ref=diou, grads=(0, 1), atol=1e-3)
case("npu_diou_backward", f(1, 5), CORNERS, NEAR, atol=1e-3, ref=pair_grad(diou, 0, (1, 2)))
case("npu_ciou", CORNERS, CORNERS, False, False, ref=lambda torch, a, b, *_: torch.ones(1, 5), atol=1e-4)
case("npu_bounding_box_encode", np.array([[1, 2, 3, 4], [3, 4, 5, 6]], np.float32), np.array([[5, 6, 7, 8], [7, 8, 9, 6]], np.float32),
     0, 0, 0, 0, 0.1, 0.1, 0.2, 0.2, ref=lambda torch, *_: torch.tensor([[40 / 3, 40 / 3, 0, 0], [40 / 3, 20 / 3, 0, -5.4931]]), atol=1e-3)
case("npu_bounding_box_decode", np.array([[1, 2, 3, 4], [3, 4, 5, 6]], np.float32), np.array([[5, 6, 7, 8], [7, 8, 9, 6]], np.float32),
     0, 0, 0, 0, 1, 1, 1, 1, [10, 10], 0.1, ref=lambda torch, *_: torch.tensor([[2.5, 6.5, 9, 9], [9, 9, 9, 9.0]]))
case("npu_rotated_box_encode", np.array([[[30.69], [32.6], [45.94], [59.88], [-44.53]]], np.float32),
     np.array([[[30.44], [18.72], [33.22], [45.56], [8.5]]], np.float32), np.ones(5, np.float32), atol=2e-3,
     ref=lambda torch, *_: torch.tensor([[[-0.4253], [-0.5166], [-1.7021], [-0.0162], [1.1328]]]))
case("npu_rotated_box_decode", np.array([[[4.137], [33.72], [29.4], [54.06], [41.28]]], np.float32),
     np.array([[[0.0244], [-1.992], [0.2109], [0.315], [-37.25]]], np.float32), np.ones(5, np.float32), atol=4e-2,
     ref=lambda torch, *_: torch.tensor([[[1.7861], [-10.5781], [33.0], [17.2969], [-88.4375]]]))
case("npu_yolo_boxes_encode", BOXES[:2], BOXES[:2], i32(4, 4), ref=lambda torch, *_: torch.tensor([[0.5, 0.5, 0, 0]] * 2))
case("npu_anchor_response_flags", np.array([[0, 0, 2, 2]], np.float32), [2, 2], [2, 2], 3,
     ref=lambda torch, *_: torch.tensor([1] * 3 + [0] * 9, dtype=torch.uint8))
case("npu_nms_v4", BOXES, u(3), 3, np.array(0.5, np.float32), np.array(0.0, np.float32), ref=lambda torch, b, s, *_: (
    s.argsort(descending=True).int(), torch.tensor(3, dtype=torch.int32)))
PLANE = np.arange(1, 37, dtype=np.float32).reshape(1, 1, 6, 6)
case("npu_roi_align", PLANE, np.array([[0, -2, -2, 22, 22]], np.float32), 0.25, 3, 3, 2, 0, ref=lambda torch, *_: torch.tensor(
    [[[[4.5, 6.5, 8.5], [16.5, 18.5, 20.5], [28.5, 30.5, 32.5]]]]))
case("npu_roi_alignbk", np.ones((1, 1, 3, 3), np.float32), np.array([[0, -2, -2, 22, 22]], np.float32), [1, 1, 6, 6], 3, 3, 0.25, 2, 0,
     ref=lambda torch, *_: torch.full((1, 1, 6, 6), 0.25))
case("npu_ps_roi_pooling", np.ones((1, 8, 4, 4), np.float32), np.array([[[0], [0], [0], [3], [3]]], np.float32), 1.0, 2, 2,
     ref=lambda torch, *_: torch.ones(1, 2, 2, 2))

# ---- recurrent ------------------------------------------------------------------------------------------------------------------------
def lstm_step(torch: Any, x: Any, h: Any, c: Any, w: Any, b: Any) -> Any:
    i, g, j, o = (torch.cat([x, h], 1) @ w + b).chunk(4, 1)
    c = torch.sigmoid(g) * c + torch.sigmoid(i) * torch.tanh(j)
    return torch.sigmoid(o) * torch.tanh(c), c


def lstm(torch: Any, x: Any, w: Any, b: Any, mask: Any, h: Any, c: Any, *_: Any) -> Any:
    ys, cs = [], []
    for one in x:
        h, c = lstm_step(torch, one, h, c, w, b)
        ys.append(h)
        cs.append(c)
    return torch.stack(ys), torch.stack(ys), torch.stack(cs), *(None,) * 5


def gru(torch: Any, x: Any, h: Any, wi: Any, wh: Any, bi: Any, bh: Any, *_: Any) -> Any:
    ys = []
    for one in x:
        (r, z, n), (hr, hz, hn) = (one @ wi + bi).chunk(3, 1), (h @ wh + bh).chunk(3, 1)
        z = torch.sigmoid(z + hz)
        h = (1 - z) * torch.tanh(n + torch.sigmoid(r + hr) * hn) + z * h
        ys.append(h)
    return torch.stack(ys), torch.stack(ys), *(None,) * 4


ONE_LAYER = (True, 1, 0.0, True, False, False)
_lstm = (f(3, 2, 4), f(9, 20), f(20), i32(3, 3), f(2, 5), f(2, 5), *ONE_LAYER, False, False)
case("npu_lstm", *_lstm, ref=lstm)
# Of gradients of states CANN takes those of the last step: the others would differ from a reference.
case("npu_lstm", *_lstm, ref=lambda torch, *a: (lstm(torch, *a)[0], *(None,) * 7), grads=(0, 1, 2))
case("npu_lstm_cell", f(2, 4), f(4, 20), f(5, 20), f(2, 5), f(2, 5), f(20), f(20), grads=(0, 1, 2),
     ref=lambda torch, x, wi, wh, h, c, bi, bh: (lambda y, s: (y[None], y, s, *(None,) * 5))(
         *lstm_step(torch, x, h, c, torch.cat([wi, wh]), bi + bh)))
_gru = (f(3, 2, 4), f(2, 5), f(4, 15), f(5, 15), f(15), f(15), i32(3, 3), *ONE_LAYER)
case("npu_gru", *_gru, ref=gru)
case("npu_gru", *_gru, ref=lambda torch, *a: (gru(torch, *a)[0], *(None,) * 5), grads=(0, 2, 3))
case("npu_masked_causal_conv1d", f(4, 2, 3), f(3, 3), mask=np.array([[1, 1, 0, 1], [1, 1, 1, 1]], bool), grads=(0, 1),
     ref=lambda torch, x, w, mask: sum(torch.nn.functional.pad(x, (0, 0, 0, 0, 2, 0))[k:k + 4] * w[k] for k in range(3)) * mask.t()[..., None])
case("npu_masked_causal_conv1d_backward", f(4, 2, 3), f(4, 2, 3), f(3, 3), ref=pair_grad(
    lambda torch, x, w: sum(torch.nn.functional.pad(x, (0, 0, 0, 0, 2, 0))[k:k + 4] * w[k] for k in range(3)), 0, (1, 2)))


def delta(torch: Any, q: Any, k: Any, v: Any, beta: Any, state: Any, g: Any, scale: float) -> Any:
    outs = []
    for t in range(q.shape[0]):
        state = state * g[t].exp()[:, None, None]
        state = state + torch.einsum("nv,nk->nvk", (v[t] - torch.einsum("nvk,nk->nv", state, k[t])) * beta[t][:, None], k[t])
        outs.append(torch.einsum("nvk,nk->nv", state, q[t]) * scale)
    return torch.stack(outs), state


case("npu_chunk_gated_delta_rule", f(3, 2, 4), f(3, 2, 4), f(3, 2, 5), beta=u(3, 2), initial_state=f(1, 2, 5, 4), g=-u(3, 2), scale=0.5,
     actual_seq_lengths=i32(3), atol=1e-4, ref=lambda torch, q, k, v, beta, initial_state, g, scale, actual_seq_lengths: (
         lambda o, s: (o, s[None]))(*delta(torch, q, k, v, beta, initial_state[0], g, scale)))

# ---- steps of optimizers -----------------------------------------------------------------------------------------------------------------
case("npu_apply_adam", 0.9, 0.999, 0.1, 0.9, 0.999, 1e-8, f(4), False, False, out=[f(4), f(4), u(4)],
     ref=lambda torch, p1, p2, lr, b1, b2, eps, g, _, __, out: (lambda m, v: (
         out[0] - lr * (1 - p2) ** 0.5 / (1 - p1) * m / (v.sqrt() + eps), m, v))(
             out[1] * b1 + g * (1 - b1), out[2] * b2 + g * g * (1 - b2)))
case("npu_apply_adam_w", 0.9, 0.999, 0.1, 0.01, 0.9, 0.999, 1e-8, f(4), None, False, False, out=[f(4), f(4), u(4)],
     ref=lambda torch, p1, p2, lr, wd, b1, b2, eps, g, _, __, ___, out: (lambda m, v: (
         out[0] * (1 - lr * wd) - lr * m / (1 - p1 * b1) / ((v / (1 - p2 * b2)).sqrt() + eps), m, v))(
             out[1] * b1 + g * (1 - b1), out[2] * b2 + g * g * (1 - b2)), atol=1e-4)
case("npu_bert_apply_adam", 0.1, 0.9, 0.99, 1e-6, f(4), -1.0, 0.0, 0.01, out=[f(4), f(4), u(4)],
     ref=lambda torch, lr, b1, b2, eps, g, _, __, wd, out: (lambda m, v: (
         out[0] - lr * (m / (v.sqrt() + eps) + wd * out[0]), m, v))(out[1] * b1 + g * (1 - b1), out[2] * b2 + g * g * (1 - b2)))
