"""Cases of torch_npu's norms, activations, softmaxes and losses."""

from __future__ import annotations

from typing import Any

import numpy as np
from npu_op_case import R, case, f, grads_of, i32, i64, pair_grad, u


# ---- norms ----------------------------------------------------------------------------------------------------------
def rms(torch: Any, x: Any, gamma: Any, eps: float = 1e-6) -> Any:
    rstd = (x.square().mean(-1, True) + eps).rsqrt()
    return x * rstd * gamma, rstd.detach()


def layer(torch: Any, x: Any, gamma: Any, beta: Any, eps: float) -> Any:
    mean = x.mean(-1, True)
    rstd = ((x - mean).square().mean(-1, True) + eps).rsqrt()
    return (x - mean) * rstd * gamma + beta, mean.detach(), rstd.detach()


case("npu_rms_norm", f(3, 4, 8), f(8), ref=rms, grads=(0, 1))
case("npu_rms_norm_backward", f(4, 8), f(4, 8), f(8), u(4, 1),
     ref=lambda torch, dy, x, g, rstd: (
         rstd * (dy * g - x * rstd * (dy * g * x * rstd).mean(-1, True)), (dy * x * rstd).sum(0)))
case("npu_gemma_rms_norm", f(3, 8), f(8), ref=lambda torch, x, g: rms(torch, x, 1 + g))
case("npu_add_rms_norm", f(3, 8), f(3, 8), f(8),
     ref=lambda torch, a, b, g: (*rms(torch, a + b, g), a + b), grads=(0, 1, 2))
case("npu_add_rms_norm_cast", f(3, 8), f(3, 8), f(8),
     ref=lambda torch, a, b, g: (rms(torch, a + b, g)[0], *rms(torch, a + b, g), a + b))
case("npu_add_rms_norm_v2", f(3, 8), f(3, 8), f(8), ref=lambda torch, a, b, g: rms(torch, a + b, g)[1])
case("npu_add_rms_norm_v2_functional", f(3, 8), f(3, 8), f(8),
     ref=lambda torch, a, b, g: (rms(torch, a + b, g)[1], rms(torch, a + b, g)[0], a + b))
case("npu_layer_norm_eval", f(3, 8), [8], f(8), f(8),
     ref=lambda torch, x, shape, w, b: torch.nn.functional.layer_norm(x, shape, w, b), grads=(0, 2, 3))
_x = f(3, 8)
case("npu_layernorm_grad", f(3, 8), _x, [8], _x.mean(1, keepdims=True), 1 / np.sqrt(_x.var(1, keepdims=True) + 1e-5), f(8), f(8),
     ref=lambda torch, g, x, shape, mean, rstd, w, b: grads_of(
         torch, lambda x, w, b: torch.nn.functional.layer_norm(x, shape, w, b), (x, w, b), g))
case("npu_add_layer_norm", f(3, 8), f(3, 8), f(8), f(8), 1e-5, True,
     ref=lambda torch, a, b, g, c, eps, more: (*layer(torch, a + b, g, c, eps), a + b), grads=(0, 1, 2, 3))
case("npu_add_layer_norm_backward", f(3, 8), f(3, 8), f(3, 8), u(3, 1), f(3, 1), f(8), f(3, 8),
     ref=lambda torch, dy, a, b, rstd, mean, g, ds: layer_grads(torch, dy, a + b, rstd, mean, g, ds))
case("npu_deep_norm", f(3, 8), f(3, 8), f(8), f(8), 0.3, 1e-5,
     ref=lambda torch, x, gx, b, g, alpha, eps: (lambda y, m, r: (m, r, y))(*layer(torch, alpha * x + gx, g, b, eps)),
     grads=(0, 1, 2, 3))
case("npu_deep_norm_backward", f(3, 8), f(3, 8), f(3, 8), f(8), f(3, 1), u(3, 1), 0.3,
     ref=lambda torch, dy, x, gx, g, mean, rstd, alpha: (lambda dx, _, dg, db: (dx * alpha, dx, db, dg))(
         *layer_grads(torch, dy, alpha * x + gx, rstd, mean, g, None)))
case("npu_group_norm_silu", f(2, 4, 3), f(4), f(4), 2,
     ref=lambda torch, x, w, b, n: (torch.nn.functional.silu(torch.nn.functional.group_norm(x, n, w, b)), None, None))
case("npu_group_norm_swish", f(2, 4, 3), 2, f(4), f(4), 1e-5, 1.5,
     ref=lambda torch, x, n, w, b, eps, s: (swish(torch, torch.nn.functional.group_norm(x, n, w, b, eps), s), None, None),
     grads=(0, 2, 3), atol=1e-4)
case("batch_norm_reduce", f(2, 3, 4), 1e-5, ref=lambda torch, x, eps: (x.sum((0, 2)), x.square().sum((0, 2))))
case("npu_normalize_batch", f(2, 3, 5), i32(5, 3), 0, ref=lambda torch, x, n, kind: normalized(torch, x, n))
case("npu_rms_norm_quant", f(3, 8), f(8), f(8), f(1), f(1).round(),
     ref=lambda torch, x, g, b, s, o: quantized(torch, (rms(torch, x, g)[0] + b) * s + o))
case("npu_rms_norm_quant_v2", f(3, 8), f(8), u(1), offset=f(1), beta=f(8),
     ref=lambda torch, x, g, s, offset, beta: (quantized(torch, (rms(torch, x, g)[0] + beta) / s + offset), torch.empty(0)))
case("npu_add_rms_norm_quant", f(3, 8), f(3, 8), f(8), u(8), None,
     ref=lambda torch, a, b, g, s, z: (quantized(torch, rms(torch, a + b, g)[0] / s), None, a + b))
case("npu_add_rms_norm_dynamic_quant", f(3, 8), f(3, 8), f(8),
     ref=lambda torch, a, b, g: (by_rows(torch, rms(torch, a + b, g)[0])[0], None, a + b,
                                 by_rows(torch, rms(torch, a + b, g)[0])[1], None))


def layer_grads(torch: Any, dy: Any, x: Any, rstd: Any, mean: Any, gamma: Any, more: Any) -> Any:
    normal, slope = (x - mean) * rstd, dy * gamma
    dx = rstd * (slope - slope.mean(-1, True) - normal * (slope * normal).mean(-1, True))
    dx = dx if more is None else dx + more
    return dx, dx, (dy * normal).sum(0), dy.sum(0)


def swish(torch: Any, y: Any, scale: float) -> Any:
    return y * torch.sigmoid(scale * y)


def normalized(torch: Any, x: Any, lengths: Any) -> Any:
    rows = []
    for one, n in zip(x, lengths.tolist(), strict=True):
        mean, std = one[:, :n].mean(1, True), one[:, :n].std(1, keepdim=True)
        rows.append((one - mean) / (std + 1e-5))
    return torch.stack(rows)


def quantized(torch: Any, x: Any) -> Any:
    return x.round().clamp(-128, 127).to(torch.int8)


def by_rows(torch: Any, x: Any) -> Any:
    scale = x.abs().amax(-1, True) / 127
    return quantized(torch, x / scale), scale.squeeze(-1)


# ---- activations ------------------------------------------------------------------------------------------------------
def fast_gelu(torch: Any, x: Any) -> Any:
    return x * torch.sigmoid(1.702 * x)


def swiglu(torch: Any, x: Any, dim: int = -1) -> Any:
    a, b = x.chunk(2, dim)
    return torch.nn.functional.silu(a) * b


def geglu(torch: Any, x: Any, dim: int = -1, approximate: int = 1, left: bool = False) -> Any:
    a, b = x.chunk(2, dim)
    a, b = (b, a) if left else (a, b)
    gelu = torch.nn.functional.gelu(b, approximate=("none", "tanh")[approximate])
    return a * gelu, gelu.detach()


def masked_softmax(torch: Any, x: Any, mask: Any, scale: float = 1.0, triangle: bool = False) -> Any:
    return torch.softmax((x * scale).masked_fill(mask, -10000.0), -1)


MASK = R.rand(2, 1, 4, 6) < 0.3
for _name in ("fast_gelu", "npu_fast_gelu"):
    case(_name, f(3, 5), ref=fast_gelu, grads=(0,))
case("npu_fast_gelu_backward", f(3, 5), f(3, 5), ref=pair_grad(fast_gelu, 0, (1,)))
for _form in ("none", "tanh"):
    case("npu_gelu", f(3, 5), approximate=_form, grads=(0,),
         ref=lambda torch, x, approximate: torch.nn.functional.gelu(x, approximate=approximate))
    case("npu_gelu_backward", f(3, 5), f(3, 5), approximate=_form,
         ref=lambda torch, g, x, approximate: grads_of(
             torch, lambda x: torch.nn.functional.gelu(x, approximate=approximate), (x,), g)[0])
    case("npu_gelu_mul", f(3, 6), approximate=_form, ref=lambda torch, x, approximate: (
        torch.nn.functional.gelu(x[:, :3], approximate=approximate) * x[:, 3:]), grads=(0,))
case("npu_silu", f(3, 5), ref=lambda torch, x: torch.nn.functional.silu(x), grads=(0,))
case("npu_silu_", f(3, 5), ref=lambda torch, x: torch.nn.functional.silu(x))
case("npu_silu_backward", f(3, 5), f(3, 5), f(3, 5), ref=pair_grad(lambda torch, x: torch.nn.functional.silu(x), 0, (1,)))
case("npu_mish", f(3, 5), ref=lambda torch, x: torch.nn.functional.mish(x), grads=(0,))
case("npu_mish_backward", f(3, 5), f(3, 5), ref=pair_grad(lambda torch, x: torch.nn.functional.mish(x), 0, (1,)))
case("npu_swiglu", f(3, 6), ref=swiglu, grads=(0,))
case("npu_swiglu", f(2, 4, 3), 1, ref=swiglu, grads=(0,))
case("npu_swiglu_backward", f(3, 3), f(3, 6), ref=pair_grad(swiglu, 0, (1,)))
case("npu_geglu", f(3, 6), -1, 1, False, ref=geglu, grads=(0,))
case("npu_geglu", f(3, 6), -1, 0, True, ref=geglu, grads=(0,))
case("npu_geglu_grad", f(3, 3), f(3, 6), f(3, 3), -1, 1, False,
     ref=lambda torch, g, x, gelu, *rest: torch.cat([g * gelu, grads_of(
         torch, lambda b: torch.nn.functional.gelu(b, approximate="tanh"), (x[:, 3:],), g * x[:, :3])[0]], 1))
case("npu_clipped_swiglu", f(3, 6), interleaved=False, ref=lambda torch, x, interleaved: clipped(torch, x[:, :3], x[:, 3:]),
     grads=(0,))
case("npu_clipped_swiglu", f(3, 6), ref=lambda torch, x: clipped(torch, x[:, ::2], x[:, 1::2]), grads=(0,))
case("npu_scaled_masked_softmax", f(2, 3, 4, 6), MASK, 0.5, False, ref=masked_softmax, grads=(0,))
case("npu_scaled_masked_softmax_backward", f(2, 3, 4, 6), u(2, 3, 4, 6), MASK, 0.5, False,
     ref=lambda torch, g, y, mask, scale, _: (y * (g - (g * y).sum(-1, True)) * scale).masked_fill(mask, 0))
case("npu_masked_softmax_with_rel_pos_bias", f(2, 2, 3, 4, 4), f(2, 4, 4), f(1, 1, 3, 4, 4), 0.5,
     ref=lambda torch, x, mask, bias, scale: torch.softmax(x * scale + mask[None, :, None] + bias, -1), grads=(0,))
case("npu_attn_softmax_", f(2, 5), ref=lambda torch, x: torch.softmax(x, -1))
case("npu_attn_softmax_backward_", u(2, 3, 5), f(2, 3, 4), f(2, 5, 4),
     ref=lambda torch, y, g, v: (lambda s: y * (s - (s * y).sum(-1, True)))(g @ v.transpose(-2, -1)))
case("npu_top_k_top_p", f(2, 9), u(2) * 0.5 + 0.4, i32(4, 6), ref=lambda torch, x, p, k: filtered(torch, x, p, k))
case("npu_dtype_cast", f(3), 5, ref=lambda torch, x, d: x.half())
case("npu_dtype_cast_", f(3), i32(1, 2, 3), ref=lambda torch, x, y: y.float())


def clipped(torch: Any, a: Any, b: Any) -> Any:
    a, b = a.clamp(max=7.0), b.clamp(-7.0, 7.0)
    return a * torch.sigmoid(1.702 * a) * (b + 1)


def filtered(torch: Any, x: Any, p: Any, k: Any) -> Any:
    rows = []
    for one, share, n in zip(x, p.tolist(), k.tolist(), strict=True):
        order = one.argsort()
        one = one.clone()
        one[order[: len(one) - n]] = -torch.inf
        gone = torch.softmax(one[order], -1).cumsum(0) <= 1 - share
        gone[-1] = False
        one[order[gone]] = -torch.inf
        rows.append(one)
    return torch.stack(rows)


# ---- losses -----------------------------------------------------------------------------------------------------------
TARGET = i64(1, 4, 0)
for _how in ("mean", "sum", "none"):
    case("npu_cross_entropy_loss", f(3, 5), TARGET, u(5), _how, -100, 0.1, grads=(0,),
         ref=lambda torch, x, t, w, how, ignore, smooth: (
             torch.nn.functional.cross_entropy(x, t, w, reduction=how, label_smoothing=smooth).reshape(-1),
             torch.log_softmax(x, 1).detach(), None, None))
case("npu_cross_entropy_loss_backward", f(1), np.log(u(3, 5)), TARGET, u(5), reduction="mean",
     ref=lambda torch, g, logs, t, w, reduction: (logs.exp() - torch.nn.functional.one_hot(t, 5)) * (w[t] / w[t].sum())[:, None] * g)
SHARES = u(3, 5)
SHARES /= SHARES.sum(-1, keepdims=True)  # of other labels CANN's op does not give the gradient
case("npu_softmax_cross_entropy_with_logits", f(3, 5), SHARES, grads=(0,),
     ref=lambda torch, x, y: -(y * torch.log_softmax(x, -1)).sum(-1))
case("npu_softmax_cross_entropy_with_logits_backward", f(3), f(3, 5), SHARES,
     ref=lambda torch, g, x, y: grads_of(torch, lambda x: -(y * torch.log_softmax(x, -1)).sum(-1), (x,), g)[0])
case("l1_loss_backward", f(3, 4), f(3, 4), f(3, 4), 0, ref=lambda torch, g, x, t, how: g * torch.sign(x - t))
case("kl_div_backward", f(3, 4), f(3, 4), u(3, 4), 0, ref=lambda torch, g, x, t, how: -g * t)
case("kl_div_target_backward", f(3, 4), f(3, 4), u(3, 4), 0, ref=lambda torch, g, x, t, how: g * (t.log() + 1 - x))
case("npu_binary_cross_entropy_with_logits_backward", f(3, 4), f(3, 4), u(3, 4), None, None, 0,
     ref=lambda torch, g, x, t, *rest: g * (torch.sigmoid(x) - t))
case("npu_fused_linear_online_max_sum", f(3, 4), f(6, 4), i64(2, 9, 0), 0, 5, True,
     ref=lambda torch, x, w, t, a, b, more: (lambda z: (
         z.amax(1), (z - z.amax(1, True)).exp().sum(1),
         torch.where(t > 5, torch.zeros(3), z.gather(1, t.clamp(max=5)[:, None])[:, 0] - z.amax(1)),
         torch.tensor([0b01011111], dtype=torch.uint8), torch.where(t > 5, 0, t), z))(x @ w.t()))
case("npu_fused_cross_entropy_loss_with_max_sum", f(3), u(3), f(3), vocab_parallel_logits=f(3, 4),
     ref=lambda torch, m, s, p, vocab_parallel_logits: (s.log() - p, (vocab_parallel_logits - m[:, None]).exp() / s[:, None]))
