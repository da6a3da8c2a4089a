"""Cases of torch_npu's ops that arrange and write items, of convolutions and of matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np
from npu_op_case import case, f, grads_of, h, i8, i32, i64, u
from npu_op_cases_layers import by_rows, quantized, swiglu

# ---- arranging, picking, writing ----------------------------------------------------------------------------------------
case("npu_confusion_transpose", f(2, 3, 4), [0, 2, 1], [2, 12], True, grads=(0,),
     ref=lambda torch, x, perm, shape, first: x.permute(perm).reshape(shape))
case("npu_confusion_transpose", f(2, 12), [0, 2, 1], [2, 3, 4], False, grads=(0,),
     ref=lambda torch, x, perm, shape, first: x.reshape(shape).permute(perm))
case("npu_confusion_transpose_backward", f(2, 12), [0, 2, 1], [2, 3, 4], False,
     ref=lambda torch, g, perm, shape, first: g.reshape(2, 4, 3).permute(0, 2, 1))
case("npu_confusion_transpose_backward", f(2, 4, 3), [0, 2, 1], [2, 12], True,
     ref=lambda torch, g, perm, shape, first: g.permute(0, 2, 1).reshape(2, 12))
case("npu_transpose", f(2, 3, 4), [2, 0, 1], ref=lambda torch, x, perm: x.permute(perm), grads=(0,))
case("npu_reshape", f(2, 6), [3, 4], ref=lambda torch, x, shape: x.reshape(shape), grads=(0,))
case("npu_broadcast", f(2, 1), [3, 2, 4], ref=lambda torch, x, size: x.expand(size), grads=(0,))
case("npu_slice", f(4, 5), [1, 2], [2, -1], ref=lambda torch, x, at, size: x[1:3, 2:], grads=(0,))
case("npu_pad", f(2, 3), [1, 0, 2, 1], ref=lambda torch, x, p: torch.nn.functional.pad(x, (2, 1, 1, 0)), grads=(0,))
case("npu_stride_copy", f(3, 4), [2, 2], [4, 2], 1, ref=lambda torch, x, *s: torch.as_strided(x, *s))
case("npu_view_copy", f(3, 4), f(3, 4), False, ref=lambda torch, x, y, _: y)
case("copy_memory_", f(3), f(3), ref=lambda torch, x, y: y)
case("npu_indexing", f(4, 6), [1, 0], [3, 4], [1, 2], 0, 2, ref=lambda torch, x, *s: x[1:3, ::2])
case("npu_indexing", f(4, 6), [1, 0], [3, 4], [1, 1], 0, 0, 0, 0, 1, ref=lambda torch, x, *s: x[1, 0:4])
case("npu_sort_v2", f(3, 5), -1, True, ref=lambda torch, x, dim, down: x.sort(dim, down)[0])
case("npu_max", f(3, 5), 1, ref=lambda torch, x, dim: x.max(dim), grads=(0,))
case("npu_min", f(3, 5), 1, True, ref=lambda torch, x, dim, keep: x.min(dim, keep), grads=(0,))
for _name in ("npu_max_backward", "npu_min_backward"):
    case(_name, f(3), 1, i64(1, 0, 4), [3, 5], False,
         ref=lambda torch, g, dim, at, size, keep: torch.zeros(size).scatter(1, at[:, None], g[:, None]))
case("npu_one_hot", i32(5, 3, 2, 1), depth=5, ref=lambda torch, x, depth: torch.tensor(
    [[0, 0, 0, 0, 0], [0, 0, 0, 1, 0], [0, 0, 1, 0, 0], [0, 1, 0, 0, 0.0]]))
case("npu_gather_backward", f(2, 3), [4, 3], 0, i64([0, 3, 3], [0, 1, 3]), False,
     ref=lambda torch, g, size, dim, at, _: torch.zeros(size).scatter_add(0, at, g))
case("npu_gather_sparse_index", f(5, 3), i64([0, 4], [2, 2]), ref=lambda torch, x, at: x[at], grads=(0,))
case("npu_gather_sparse_index_backward", f(2, 2, 3), [5, 3], i64([0, 4], [2, 2]),
     ref=lambda torch, g, size, at: torch.zeros(size).index_add(0, at.reshape(-1), g.reshape(-1, 3)))
case("npu_scatter", f(2, 2), i32(0, 1), f(2), 0,
     ref=lambda torch, x, at, v, dim: x.scatter(0, at.long()[None], v[None]))
for _name in ("npu_scatter_nd_update", "npu_scatter_nd_update_"):
    case(_name, f(5, 3), i64([1], [4]), f(2, 3), ref=lambda torch, x, at, v: x.index_copy(0, at[:, 0], v))
for _name in ("scatter_update", "scatter_update_"):
    case(_name, f(2, 5, 3), i64(1, 3), f(2, 1, 3), 1, ref=lambda torch, x, at, v, axis: torch.stack(
        [x[b].index_copy(0, at[b:b + 1], v[b]) for b in range(2)]))
for _name in ("_npu_index_add", "_npu_index_add_"):
    case(_name, f(5, 3), i64(1, 1, 4), f(3, 3), ref=lambda torch, x, at, v: x.index_add(0, at, v))
case("npu_scatter_list", [f(5, 3), f(5, 3)], i64(1, 3), f(2, 1, 3),
     ref=lambda torch, xs, at, v: [x.index_copy(0, at[b:b + 1], v[b]) for b, x in enumerate(xs)])
case("npu_masked_fill_range", f(4, 4), i32([0, 1, 2]), i32([1, 2, 3]), np.ones(1, np.float32), 1,
     ref=lambda torch, x, a, b, v, axis: torch.where(torch.eye(4).bool() & (torch.arange(4)[:, None] < 3), v[0], x))
case("npu_sign_bits_pack", np.array([5, 4, 3, 2, 0, -1, -2, 4, 3, 2, 1, 0, -1, -2], np.float32), 2,
     ref=lambda torch, x, n: torch.tensor([[159], [15]], dtype=torch.uint8))
case("npu_sign_bits_unpack", np.array([159, 15], np.uint8), 2, 6,
     ref=lambda torch, x, n, d: torch.tensor([[1, 1, 1, 1, 1, -1, -1, 1], [1, 1, 1, 1, -1, -1, -1, -1.0]]))
case("one_", f(3), ref=lambda torch, x: torch.ones(3))
case("repeat_interleave_backward_int", f(6, 2), f(3, 2), 2, 0,
     ref=lambda torch, g, x, n, dim: g.reshape(3, 2, 2).sum(1))
case("repeat_interleave_backward_tensor", f(4, 2), f(2, 2), i64(1, 3), 0,
     ref=lambda torch, g, x, n, dim: torch.stack([g[0], g[1:].sum(0)]))
case("npu_renorm_backward", f(3, 4), f(3, 4), 2, 0, 1.0,
     ref=lambda torch, g, x, p, dim, most: grads_of(torch, lambda x: torch.renorm(x, p, dim, most), (x,), g)[0], atol=1e-4)
case("stft_backward", (f(5, 3) + 1j * f(5, 3)).astype(np.complex64), f(12), 8, 2, return_complex=True,
     ref=lambda torch, g, x, n, hop, return_complex: grads_of(torch, lambda x: torch.stft(
         x, n, hop, center=False, return_complex=True, window=torch.ones(n)), (x,), g)[0])
case("fft_r2c_backward", (f(3, 5) + 1j * f(3, 5)).astype(np.complex64), [1], 0, True, 8,
     ref=lambda torch, g, dim, norm, one, n: grads_of(torch, lambda x: torch.fft.rfft(x), (torch.zeros(3, 8),), g)[0])
case("fft_c2r_backward", f(3, 8), [1], 0, ref=lambda torch, g, dim, norm: grads_of(
    torch, lambda x: torch.fft.irfft(x, norm="forward"), (torch.zeros(3, 5, dtype=torch.complex64),), g)[0])

# ---- formats and the like: nothing changes but what is said ----------------------------------------------------------------
case("npu_format_cast", f(3, 4), 2, ref=lambda torch, x, fmt: x, grads=(0,))
case("_npu_format_cast", f(3, 4), 2, ref=lambda torch, x, fmt: x)
case("npu_format_cast_", f(3, 4), f(3, 4), ref=lambda torch, x, y: y)
case("get_npu_format", f(1, 2, 3, 4), ref=lambda torch, x: 0)
case("get_npu_format", f(3, 4), ref=lambda torch, x: 2)
case("get_storage_size", f(3, 4), ref=lambda torch, x: 12)
case("_amp_foreach_non_finite_check", [f(3), np.array([1, np.inf], np.float32)], ref=lambda torch, xs: True)
case("npu_alloc_float_status", f(3), ref=lambda torch, x: torch.zeros(8))
for _name in ("npu_get_float_status", "npu_clear_float_status"):
    case(_name, np.zeros(8, np.float32), ref=lambda torch, x: torch.zeros(8))
for _name in ("npu_dtype_cast_backward", "_npu_dtype_cast_backward", "_npu_dtype_cast"):
    case(_name, f(3), 5, ref=lambda torch, x, d: x.half())

# ---- convolutions -----------------------------------------------------------------------------------------------------------
def conv(torch: Any, x: Any, w: Any, b: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    run = {4: torch.nn.functional.conv2d, 5: torch.nn.functional.conv3d}[x.dim()]
    return run(x, w, b, stride, padding, dilation, groups)


def conv_t(torch: Any, x: Any, w: Any, b: Any, padding: Any, more: Any, stride: Any, dilation: Any, groups: int) -> Any:
    run = {4: torch.nn.functional.conv_transpose2d, 5: torch.nn.functional.conv_transpose3d}[x.dim()]
    return run(x, w, b, stride, padding, more, groups, dilation)


for _name in ("npu_conv2d", "npu_convolution"):
    case(_name, f(2, 4, 6, 5), f(6, 2, 3, 3), f(6), [2, 1], [1, 1], [1, 1], 2, ref=conv, grads=(0, 1, 2), atol=1e-4)
case("npu_conv3d", f(1, 2, 4, 4, 3), f(3, 2, 2, 2, 2), f(3), [1] * 3, [0] * 3, [1] * 3, 1, ref=conv, grads=(0, 1, 2), atol=1e-4)
for _name in ("npu_conv2d_backward", "npu_convolution_backward"):
    case(_name, f(2, 4, 6, 5), f(2, 6, 3, 5), f(6, 2, 3, 3), [2, 1], [1, 1], [1, 1], 2, [True] * 3, atol=1e-4,
         ref=lambda torch, x, g, w, s, p, d, n, mask: grads_of(
             torch, lambda x, w, b: conv(torch, x, w, b, s, p, d, n), (x, w, torch.zeros(6)), g))
case("npu_conv3d_backward", f(1, 2, 4, 4, 3), f(1, 3, 3, 3, 2), f(3, 2, 2, 2, 2), [1] * 3, [0] * 3, [1] * 3, 1, [True] * 3, atol=1e-4,
     ref=lambda torch, x, g, w, s, p, d, n, mask: grads_of(
         torch, lambda x, w, b: conv(torch, x, w, b, s, p, d, n), (x, w, torch.zeros(3)), g))
for _name in ("npu_conv_transpose2d", "npu_convolution_transpose"):
    case(_name, f(2, 4, 3, 3), f(4, 3, 2, 2), f(3), [0, 0], [1, 0], [2, 2], [1, 1], 1, ref=conv_t, grads=(0, 1, 2), atol=1e-4)
for _name in ("npu_conv_transpose2d_backward", "npu_convolution_transpose_backward"):
    case(_name, f(2, 4, 3, 3), f(2, 3, 7, 6), f(4, 3, 2, 2), [0, 0], [1, 0], [2, 2], [1, 1], 1, [True] * 3, atol=1e-4,
         ref=lambda torch, x, g, w, p, more, s, d, n, mask: grads_of(
             torch, lambda x, w, b: conv_t(torch, x, w, b, p, more, s, d, n), (x, w, torch.zeros(3)), g))
case("npu_conv_transpose3d_backward", f(1, 2, 2, 2, 2), f(1, 3, 3, 3, 3), f(2, 3, 2, 2, 2), [0] * 3, [0] * 3, [1] * 3, [1] * 3, 1,
     [True] * 3, atol=1e-4, ref=lambda torch, x, g, w, p, more, s, d, n, mask: grads_of(
         torch, lambda x, w, b: conv_t(torch, x, w, b, p, more, s, d, n), (x, w, torch.zeros(3)), g))
case("slow_conv_dilated2d_backward", f(2, 3, 2, 2), f(2, 2, 6, 6), f(3, 2, 3, 3), [3, 3], [1, 1], [0, 0], [2, 2], [True] * 3, atol=1e-4,
     ref=lambda torch, g, x, w, k, s, p, d, mask: grads_of(
         torch, lambda x, w, b: conv(torch, x, w, b, s, p, d, 1), (x, w, torch.zeros(3)), g))
case("slow_conv_transpose2d_backward", f(2, 3, 4, 4), f(2, 4, 3, 3), f(4, 3, 2, 2), [2, 2], [1, 1], [0, 0], [0, 0], [1, 1], [True] * 3,
     atol=1e-4, ref=lambda torch, g, x, w, k, s, p, more, d, mask: grads_of(
         torch, lambda x, w, b: conv_t(torch, x, w, b, p, more, s, d, 1), (x, w, torch.zeros(3)), g))
case("_conv_depthwise2d_backward", f(2, 3, 4, 4), f(2, 3, 6, 6), f(3, 1, 3, 3), [3, 3], [1, 1], [0, 0], [1, 1], [True] * 2, atol=1e-4,
     ref=lambda torch, g, x, w, k, s, p, d, mask: grads_of(
         torch, lambda x, w: conv(torch, x, w, None, s, p, d, 3), (x, w), g))
case("npu_quant_conv2d", i8(1, 3, 5, 5), i8(2, 3, 3, 3), u(2) * 1e-3, atol=2e-2, output_dtype=6,
     ref=lambda torch, x, w, s, output_dtype: torch.nn.functional.conv2d(x.double(), w.double()).float() * s[None, :, None, None])


def plain_offsets(torch: Any, n: int, kernel: int, size: int) -> Any:
    return torch.cat([torch.zeros(n, 2 * kernel, size, size), torch.ones(n, kernel, size, size)], 1)


_offset = np.concatenate([np.zeros((1, 18, 4, 4)), np.ones((1, 9, 4, 4))], 1).astype(np.float32)
case("npu_deformable_conv2d", f(1, 2, 4, 4), f(3, 2, 3, 3), _offset, f(3), [3, 3], [1] * 4, [1] * 4, grads=(0, 1, 3), atol=1e-4,
     ref=lambda torch, x, w, o, b, k, s, p: (torch.nn.functional.conv2d(x, w, b, padding=1), None))
_image = f(1, 2, 4, 4)
_met = np.lib.stride_tricks.sliding_window_view(np.pad(_image, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))    # what kernels cover
_met = np.ascontiguousarray(_met.transpose(0, 1, 2, 4, 3, 5).reshape(1, 2, 12, 12))
case("npu_deformable_conv2dbk", _image, f(1, 3, 4, 4), _met, f(3, 2, 3, 3), _offset, [3, 3], [1] * 4, [1] * 4, atol=1e-4,
     ref=lambda torch, x, g, met, w, o, k, s, p: (*grads_of(
         torch, lambda x, w: torch.nn.functional.conv2d(x, w, padding=1), (x, w), g), None, g.sum((0, 2, 3))))

# ---- matrix products -----------------------------------------------------------------------------------------------------------
case("npu_linear", f(3, 4), f(5, 4), f(5), ref=lambda torch, x, w, b: torch.nn.functional.linear(x, w, b), grads=(0, 1, 2))
case("npu_linear_backward", f(3, 5), f(3, 4), f(5, 4), ref=lambda torch, g, x, w: (g @ w, g.t() @ x))
case("npu_bmmV2", f(2, 3, 4), f(2, 4, 5), [], ref=lambda torch, a, b, s: a @ b, grads=(0, 1))
case("npu_bmm_v2_mat1_backward", f(2, 3, 5), f(2, 3, 4), f(2, 4, 5), [2, 3, 4],
     ref=lambda torch, g, a, b, s: g @ b.transpose(1, 2))
case("npu_bmm_v2_mat2_backward", f(2, 3, 5), f(2, 3, 4), f(2, 4, 5), [2, 4, 5],
     ref=lambda torch, g, a, b, s: a.transpose(1, 2) @ g)
case("matmul_double_backward", f(3, 4), f(4, 5), f(3, 5), f(3, 4), f(4, 5), [True] * 3,
     ref=lambda torch, ga, gb, g, a, b, mask: (ga @ b + a @ gb, g @ gb.t(), ga.t() @ g))
case("npu_fused_matmul", f(3, 4), f(4, 5), x3=f(3, 5), fused_op_type="add", ref=lambda torch, a, b, x3, fused_op_type: a @ b + x3)
case("npu_transpose_batchmatmul", f(3, 2, 4), f(2, 4, 5), perm_x1=[1, 0, 2], ref=lambda torch, a, b, perm_x1: (
    a.transpose(0, 1) @ b).transpose(0, 1))
for _name in ("npu_batch_gather_matmul", "npu_batch_gather_matmul_"):
    case(_name, f(3, 6), f(3, 4), f(2, 1, 5, 2), i32(0, 1, 0), f(2, 1, 2, 4), 0, 0.5, 1, 5,
         ref=lambda torch, y, x, wb, at, wa, layer, scale, start, n: torch.cat(
             [y[:, :1], y[:, 1:] + scale * torch.stack([wb[k, 0] @ (wa[k, 0] @ x[b]) for b, k in enumerate(at.tolist())])], 1))
case("npu_quant_matmul", i8(3, 64), i8(64, 5), u(5), output_dtype=6, pertoken_scale=u(3), bias=f(5), atol=1e-1,
     ref=lambda torch, a, b, s, output_dtype, pertoken_scale, bias:
     (a.double() @ b.double()).float() * s * pertoken_scale[:, None] + bias)
case("npu_quant_matmul", i8(3, 64), i8(64, 5), u(5) * 1e-3, atol=1.0,
     ref=lambda torch, a, b, s: quantized(torch, (a.double() @ b.double()).float() * s))
case("npu_quant_matmul_gelu", i8(3, 8), i8(8, 5), u(3) * 1e-2, u(5) * 1e-2, atol=2e-2,
     ref=lambda torch, a, b, s, t: torch.nn.functional.gelu((a.float() @ b.float()) * t * s[:, None]).half())
case("npu_quant_matmul_reduce_sum", i8(2, 3, 8), i8(2, 8, 5), x1_scale=u(2, 3) * 1e-2, x2_scale=u(5) * 1e-2, atol=5e-1,
     ref=lambda torch, a, b, x1_scale, x2_scale: ((a.float() @ b.float()) * x2_scale * x1_scale[..., None]).sum(0).bfloat16())
case("npu_quant_matmul_dequant", f(3, 8), i8(5, 8), u(5), atol=1e-2, ref=lambda torch, x, w, s: (
    lambda q, t: (q.float() @ w.float().t()) * s * t[:, None])(*by_rows(torch, x)))
case("npu_quant_grouped_matmul_dequant", f(3, 8), i8(2, 5, 8), u(2, 5), i64(1, 3), atol=1e-2,
     ref=lambda torch, x, w, s, ends: (lambda q, t: torch.cat([(q[:1].float() @ w[0].float().t()) * s[0] * t[:1, None],
                                                              (q[1:].float() @ w[1].float().t()) * s[1] * t[1:, None]]))(*by_rows(torch, x)))
case("npu_weight_quant_batchmatmul", f(3, 8), i8(8, 5), u(5), f(5), bias=f(5), atol=1e-2,
     ref=lambda torch, x, w, s, o, bias: x @ ((w + o) * s) + bias)
case("npu_weight_quant_batchmatmul", f(3, 8), i8(8, 5), u(2, 5), antiquant_group_size=4, atol=1e-2,
     ref=lambda torch, x, w, s, antiquant_group_size: x @ (w * s.repeat_interleave(4, 0)))
case("npu_quant_matmul", i8(3, 64), i8(64, 5), u(5) * 1e-3, output_dtype=5, atol=2e-1,
     ref=lambda torch, a, b, s, output_dtype: ((a.double() @ b.double()).float() * s).half())
case("npu_weight_quant_batchmatmul", h(3, 8), i8(8, 5), u(5).astype(np.float16), h(5), atol=5e-1,
     ref=lambda torch, x, w, s, o: (x.float() @ ((w + o.float()) * s.float())).half())
GROUPS = i64(1, 3)


def grouped(torch: Any, x: Any, w: Any, ends: Any = (1, 3)) -> Any:
    return torch.cat([x[a:b] @ w[k] for k, (a, b) in enumerate(zip([0, *ends], ends, strict=False))])


case("npu_grouped_matmul", [f(3, 4)], [f(2, 4, 5)], group_list=GROUPS, split_item=3, group_type=0,
     ref=lambda torch, x, w, group_list, split_item, group_type: [grouped(torch, x[0], w[0])])
case("npu_grouped_matmul", [f(2, 4), f(3, 6)], [f(4, 5), f(6, 5)], bias=[f(5), f(5)], group_type=-1,
     ref=lambda torch, x, w, bias, group_type: [a @ b + c for a, b, c in zip(x, w, bias, strict=True)])
case("npu_grouped_matmul", [i8(3, 8)], [i8(2, 8, 5)], scale=[u(2, 5)], per_token_scale=[u(3)], group_list=GROUPS, split_item=3,
     group_type=0, output_dtype=6, atol=1e-1,
     ref=lambda torch, x, w, scale, per_token_scale, group_list, split_item, group_type, output_dtype: [
         grouped(torch, x[0].float(), w[0].float() * scale[0][:, None]) * per_token_scale[0][:, None]])
case("npu_grouped_matmul_add", f(8, 5), f(3, 4), f(3, 5), GROUPS,
     ref=lambda torch, y, x, w, ends: y + torch.cat([x[:1].t() @ w[:1], x[1:].t() @ w[1:]]))
case("npu_grouped_matmul_add_", f(8, 5), f(3, 4), f(3, 5), GROUPS,
     ref=lambda torch, y, x, w, ends: y + torch.cat([x[:1].t() @ w[:1], x[1:].t() @ w[1:]]))
case("npu_grouped_matmul_finalize_routing", i8(3, 8), i8(2, 8, 5), i64(1, 2), scale=u(2, 5), pertoken_scale=u(3), logit=u(3),
     row_index=i64(1, 0, 1), output_bs=2, atol=1e-1,
     ref=lambda torch, x, w, n, scale, pertoken_scale, logit, row_index, output_bs: torch.zeros(2, 5).index_add(
         0, row_index, grouped(torch, x.float(), w.float() * scale[:, None]) * (pertoken_scale * logit)[:, None]))
case("npu_grouped_matmul_swiglu_quant", i8(3, 8), i8(2, 8, 6), GROUPS, u(2, 6), u(3), atol=1.0,
     ref=lambda torch, x, w, ends, s, t: (*by_rows(torch, swiglu(torch, grouped(
         torch, x.float(), w.float() * s[:, None]) * t[:, None])), None))
for _act in ("relu", "gelu", "silu"):
    case("npu_ffn", f(3, 4), f(4, 6), f(6, 4), _act, bias1=f(6), bias2=f(4),
         ref=lambda torch, x, a, b, act, bias1, bias2: getattr(torch.nn.functional, act)(x @ a + bias1) @ b + bias2, grads=(0, 1, 2))
case("npu_ffn", f(3, 4), f(2, 4, 6), f(2, 3, 4), "swiglu", expert_tokens=[1, 2],
     ref=lambda torch, x, a, b, act, expert_tokens: grouped(torch, swiglu(torch, grouped(torch, x, a)), b))
