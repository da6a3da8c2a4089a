"""Cases of torch_npu's quantisation and of its mixture of experts."""

from __future__ import annotations

from typing import Any

import numpy as np
from npu_op_case import case, f, grads_of, h, i8, i32, u
from npu_op_cases_layers import by_rows, quantized, swiglu

# ---- quantising -----------------------------------------------------------------------------------------------------------
case("npu_quantize", f(3, 4), u(4), i32(1, 2, 3, 4), 1, 1, ref=lambda torch, x, s, z, d, axis: quantized(torch, x / s + z))
case("npu_quantize", f(3, 4), u(1), None, 1, -1, False, ref=lambda torch, x, s, z, d, axis, div: quantized(torch, x * s))
case("npu_anti_quant", i8(3, 4), u(4), offset=f(4), dst_dtype=6, ref=lambda torch, x, s, offset, dst_dtype: (x + offset) * s)
case("npu_dequant_bias", i32([100, -200, 300], [5, 6, 7]), u(3), u(2), i32(1, 2, 3), output_dtype=6,
     ref=lambda torch, x, w, a, b, output_dtype: (x + b) * w * a[:, None])
case("npu_dynamic_quant", h(3, 8), atol=1.0, ref=lambda torch, x: by_rows(torch, x.float()))
case("npu_dynamic_quant", f(3, 8), smooth_scales=u(8), atol=1.0, ref=lambda torch, x, smooth_scales: by_rows(torch, x * smooth_scales))
case("npu_dynamic_quant_asymmetric", f(3, 8), ref=lambda torch, x: (lambda s: (lambda o: (
    quantized(torch, x / s + o), s.squeeze(-1), o.squeeze(-1)))(127 - x.amax(-1, True) / s))((x.amax(-1, True) - x.amin(-1, True)) / 255),
    atol=1.0)
case("npu_dynamic_block_quant", f(3, 256), atol=1.0, ref=lambda torch, x: (lambda s: (
    quantized(torch, (x.reshape(3, 2, 128) / s).reshape(3, 256)), s.squeeze(-1)))(x.reshape(3, 2, 128).abs().amax(-1, True) / 127))
case("npu_gelu_quant", f(3, 8), atol=1.0, ref=lambda torch, x: by_rows(torch, torch.nn.functional.gelu(x)))
case("npu_swiglu_quant", f(3, 8), quant_mode=1, activate_left=True, atol=1.0,
     ref=lambda torch, x, quant_mode, activate_left: (lambda q, s: (q, 1 / s))(*by_rows(torch, swiglu(torch, x))))
case("npu_dequant_swiglu_quant", (f(3, 8) * 100).astype(np.int32), weight_scale=u(1, 8), activation_scale=u(3), activate_left=True,
     quant_mode=1, atol=1.0, ref=lambda torch, x, weight_scale, activation_scale, activate_left, quant_mode: by_rows(
         torch, swiglu(torch, x * weight_scale * activation_scale[:, None])))
case("npu_group_quant", f(3, 4), u(2, 4), i32(1, 3), ref=lambda torch, x, s, ends: quantized(torch, x * s[[0, 1, 1]]))
for _name in ("npu_quant_scatter", "npu_quant_scatter_"):
    case(_name, i8(2, 5, 3), i32(1, 3), f(2, 1, 3), u(3), ref=lambda torch, x, at, v, s: torch.stack(
        [x[b].index_copy(0, at[b:b + 1].long(), quantized(torch, v[b] / s)) for b in range(2)]))
case("npu_trans_quant_param", np.array([1.0, 2.5], np.float32),
     ref=lambda torch, s: torch.tensor([0x3F800000, 0x40200000]) + (1 << 46))
case("npu_convert_weight_to_int4pack", i32([1, -1, 7, -8, 0, 2, 3, -2]), ref=lambda torch, x: torch.tensor(
    [[(1 | 15 << 4 | 7 << 8 | 8 << 12 | 2 << 20 | 3 << 24 | 14 << 28) - (1 << 32)]], dtype=torch.int32))
case("npu_kronecker_quant", f(2, 3, 8), f(3, 3), f(8, 8), ref=lambda torch, x, a, b: (
    None, (a @ x @ b).abs().amax((1, 2)) / 7), atol=1e-4)

# ---- mixture of experts ------------------------------------------------------------------------------------------------------
CHOICE = i32([0, 1], [1, 0], [0, 2], [2, 0])
_order = np.argsort(CHOICE.reshape(-1), kind="stable")
WHERE = np.argsort(_order, kind="stable").astype(np.int32)


def permuted(torch: Any, x: Any, at: Any) -> Any:
    order = torch.argsort(at.reshape(-1), stable=True)
    return x[order // at.shape[1]], torch.argsort(order, stable=True).int()


def unpermuted(torch: Any, rows: Any, where: Any, probs: Any) -> Any:
    return (rows[where.long()] * probs.reshape(-1, 1)).reshape(*probs.shape, -1).sum(1)


case("npu_moe_token_permute", f(4, 3), CHOICE, ref=permuted, grads=(0,))
case("npu_moe_token_permute_grad", f(4, 3), f(8, 3), CHOICE, WHERE,
     ref=lambda torch, x, g, at, where: g[where.long()].reshape(4, 2, 3).sum(1))
case("npu_moe_token_permute_grad_v2", f(8, 3), WHERE, 4, 6, 2,
     ref=lambda torch, g, where, n, d, k: g[where.long()].reshape(4, 2, 3).sum(1))
case("npu_moe_token_unpermute", f(8, 3), WHERE, u(4, 2), ref=unpermuted, grads=(0, 2))
case("_npu_moe_token_unpermute", f(8, 3), WHERE, u(4, 2),
     ref=lambda torch, rows, where, p: (unpermuted(torch, rows, where, p), rows))
case("npu_moe_token_unpermute_grad", f(8, 3), f(4, 3), WHERE, u(4, 2), ref=lambda torch, rows, g, where, p: grads_of(
    torch, lambda r, q: unpermuted(torch, r, where, q), (rows, p), g))
case("npu_moe_token_unpermute_grad_v2", f(4, 3), WHERE, 8, 6, u(4, 2), permuted_tokens=f(8, 3),
     ref=lambda torch, g, where, n, d, p, permuted_tokens: grads_of(
         torch, lambda r, q: unpermuted(torch, r, where, q), (permuted_tokens, p), g))
case("npu_moe_gating_top_k_softmax", f(4, 6), None, 2, ref=lambda torch, x, done, k: (
    *(lambda v, i: (v, i.int()))(*torch.softmax(x, -1).topk(2)), (torch.arange(4)[:, None] + torch.arange(2) * 4).int()))
case("npu_moe_gating_top_k_softmax_v2", f(4, 6), k=2, output_softmax=True, ref=lambda torch, x, k, output_softmax: (
    *(lambda v, i: (v, i.int()))(*torch.softmax(x, -1).topk(2)), torch.softmax(x, -1)))
case("npu_moe_gating_top_k", f(4, 6), 2, bias=f(6), norm_type=1, out_flag=True,
     ref=lambda torch, x, k, bias, norm_type, out_flag: (lambda s: (lambda i: (
         s.gather(1, i) / s.gather(1, i).sum(1, True), i.int(), s))((s + bias).topk(k)[1]))(torch.sigmoid(x)))
case("npu_moe_compute_expert_tokens", i32(0, 0, 1, 3), 4, ref=lambda torch, x, n: torch.tensor([2, 3, 3, 4], dtype=torch.int32))
case("npu_moe_init_routing", f(3, 4), i32([0, 3], [1, 4], [2, 5]), i32([1, 2], [0, 1], [0, 2]), 3,
     ref=lambda torch, x, row, expert, n: (x[[1, 2, 0, 1, 0, 2]], torch.tensor([2, 0, 1, 4, 3, 5], dtype=torch.int32),
                                           torch.tensor([0, 0, 1, 1, 2, 2], dtype=torch.int32)))
case("npu_moe_init_routing_v2", f(3, 4), i32([1, 2], [0, 1], [0, 2]), expert_num=3, expert_tokens_num_type=1,
     expert_tokens_num_flag=True, ref=lambda torch, x, expert, **k: (
         x[[1, 2, 0, 1, 0, 2]], torch.tensor([2, 4, 0, 3, 1, 5], dtype=torch.int32), torch.tensor([2, 2, 2]), None))
case("npu_moe_finalize_routing", f(8, 3), f(4, 3), f(4, 3), f(3, 3), u(4, 2), WHERE.reshape(4, 2).T.reshape(-1).copy(), CHOICE,
     ref=lambda torch, rows, a, b, bias, s, at, expert: a + b + (
         (rows[at.long().reshape(2, 4).t()] + bias[expert.long()]) * s[..., None]).sum(1))
case("npu_moe_re_routing", f(5, 3), i32([1, 2], [2, 0]), ref=lambda torch, x, n: (
    x[[0, 3, 4, 1, 2]], None, torch.tensor([0, 3, 4, 1, 2], dtype=torch.int32), torch.tensor([3, 2], dtype=torch.int32)))
case("npu_moe_update_expert", i32([0, 1], [1, 0]), i32([2, 3, 4], [1, 5, 0]), local_rank_id=1, world_size=2,
     ref=lambda torch, at, table, local_rank_id, world_size: (torch.tensor([[4, 5], [5, 4]], dtype=torch.int32), None))
ROUTES = np.array([[1, 0, 1], [1, 1, 0], [0, 1, 1]], dtype=bool)
case("npu_moe_token_permute_with_routing_map", f(3, 4), ROUTES, probs=u(3, 3), num_out_tokens=6,
     ref=lambda torch, x, routes, probs, num_out_tokens: (
         x[[0, 1, 1, 2, 0, 2]], probs[[0, 1, 1, 2, 0, 2], [0, 0, 1, 1, 2, 2]], torch.tensor([0, 4, 1, 2, 3, 5], dtype=torch.int32)))
case("npu_moe_token_permute_with_routing_map_grad", f(6, 4), f(6), i32(0, 4, 1, 2, 3, 5), ROUTES, 3, 3, False,
     ref=lambda torch, g, gp, at, routes, *rest: (torch.zeros(3, 4).index_add(0, torch.tensor([0, 1, 1, 2, 0, 2]), g),
                                                  torch.zeros(3, 3).index_put((torch.tensor([0, 1, 1, 2, 0, 2]), torch.tensor([0, 0, 1, 1, 2, 2])), gp)))
case("npu_moe_token_unpermute_with_routing_map", f(6, 4), i32(0, 4, 1, 2, 3, 5), [3, 4], probs=u(3, 3), routing_map=ROUTES,
     ref=lambda torch, rows, at, shape, probs, routing_map: (
         rows[at.long()] * probs[routing_map][:, None]).reshape(3, 2, 4).sum(1), grads=(0,))
case("npu_moe_token_unpermute_with_routing_map_grad", f(3, 4), i32(0, 4, 1, 2, 3, 5), i32(0, 0, 1, 1, 2, 2), ROUTES, f(6, 4), u(3, 3),
     False, [3, 4], ref=lambda torch, g, at, own, routes, rows, probs, *rest: grads_of(
         torch, lambda r, p: (r[at.long()] * p[routes][:, None]).reshape(3, 2, 4).sum(1), (rows, probs), g))
