"""Rows of torch_npu's normalisations: RMS, layer, group and batch norm, fused with what stands before and after them."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._ops.npu.quant import quantized
from mindtorch_v2._ops.npu.rows import FLOAT32, INT8, call, dtype_of, row, wide
from mindtorch_v2._ops.table import Spec, ops
from mindtorch_v2._tensor import Tensor


def _last(x: Tensor, gamma: Tensor) -> list[int]:
    """The dims that gamma has, as x counts them."""
    return list(range(x.dim() - gamma.dim(), x.dim()))


def _stats(x: Tensor, gamma: Tensor) -> tuple[int, ...]:
    return (*x.shape[:x.dim() - gamma.dim()], *(1,) * gamma.dim())


# ---- RMS norm -------------------------------------------------------------------------------------------------------
def _rms(x: Tensor, gamma: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """(normal, rstd) in the dtype that is computed in."""
    rstd = (x.square().mean(_last(x, gamma), True) + epsilon).rsqrt()
    return x * rstd * gamma, rstd.detach()       # as CANN's: nothing comes back by way of the statistics


@row()
def npu_rms_norm(input: Tensor, gamma: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Divided by the root of the mean square over gamma's dims, times gamma; and that root's inverse."""
    if gamma.dtype is input.dtype:
        return ops._fused_rms_norm(input, gamma.shape, gamma, epsilon)
    y, rstd = _rms(wide(input), wide(gamma), epsilon)
    return y.to(input.dtype), rstd


@row()
def npu_rms_norm_backward(dy: Tensor, input: Tensor, gamma: Tensor, rstd: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of npu_rms_norm's first result."""
    if gamma.dtype is input.dtype:
        dx, dgamma = ops._fused_rms_norm_backward(dy, input, gamma.shape, rstd, gamma, [True, True])
        return dx, dgamma.to(FLOAT32)
    g, x, w, dims = wide(dy), wide(input), wide(gamma), _last(input, gamma)
    normal, h = x * rstd, g * w
    dx = rstd * (h - normal * (h * normal).mean(dims, True))
    return dx.to(input.dtype), (g * normal).sum_to_size(gamma.shape)


@row(rule=lambda input, gamma, epsilon: [(input.shape, input.dtype), (_stats(input, gamma), FLOAT32)],
     npu="aclnnGemmaRmsNorm(input, gamma, epsilon, out0, out1)")
def npu_gemma_rms_norm(input: Tensor, gamma: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """RMS norm times 1 + gamma."""
    y, rstd = _rms(wide(input), wide(gamma) + 1, epsilon)
    return y.to(input.dtype), rstd


def _added_rule(x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float) -> Sequence[Spec]:
    return [(x1.shape, x1.dtype), (_stats(x1, gamma), FLOAT32), (x1.shape, x1.dtype)]


@row(rule=_added_rule, npu="aclnnAddRmsNorm(x1, x2, gamma, epsilon, out0, out1, out2)")
def npu_add_rms_norm(x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """RMS norm of x1 + x2, its rstd, and the sum."""
    total = wide(x1) + wide(x2)
    y, rstd = _rms(total, wide(gamma), epsilon)
    return y.to(x1.dtype), rstd, total.to(x1.dtype)


@row(rule=lambda x1, x2, gamma, epsilon: [(x1.shape, FLOAT32), *_added_rule(x1, x2, gamma, epsilon)],
     npu="aclnnAddRmsNormCast(x1, x2, gamma, epsilon, out0, out1, out2, out3)")
def npu_add_rms_norm_cast(x1: Tensor, x2: Tensor, gamma: Tensor,
                          epsilon: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """RMS norm of x1 + x2 in float32 and in x1's dtype, its rstd, and the sum."""
    total = wide(x1) + wide(x2)
    y, rstd = _rms(total, wide(gamma), epsilon)
    return y.to(FLOAT32), y.to(x1.dtype), rstd, total.to(x1.dtype)


@row()
def npu_add_rms_norm_v2(x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float) -> Tensor:
    """npu_add_rms_norm written over x1 (the norm) and x2 (the sum); gives rstd."""
    y, rstd, total = npu_add_rms_norm(x1, x2, gamma, epsilon)
    x1.copy_(y)
    x2.copy_(total)
    return rstd


@row()
def npu_add_rms_norm_v2_functional(x1: Tensor, x2: Tensor, gamma: Tensor,
                                   epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """The rstd of npu_add_rms_norm_v2, and what it writes to x1 and x2."""
    y, rstd, total = npu_add_rms_norm(x1, x2, gamma, epsilon)
    return rstd, y, total


# ---- RMS norm, then integers ----------------------------------------------------------------------------------------
def _shifted(y: Tensor, beta: Tensor | None) -> Tensor:
    return y if beta is None else y + wide(beta)


@row()
def npu_rms_norm_quant(x: Tensor, gamma: Tensor, beta: Tensor, scale: Tensor, offset: Tensor, epsilon: float,
                       dst_dtype: Any) -> Tensor:
    """RMS norm plus beta, times scale, plus offset, as integers."""
    y = _shifted(_rms(wide(x), wide(gamma), epsilon)[0], beta)
    return quantized(y * wide(scale) + wide(offset), dtype_of(dst_dtype, INT8))


@row()
def npu_rms_norm_quant_v2(x: Tensor, gamma: Tensor, scale: Tensor, offset: Tensor | None, beta: Tensor | None,
                          epsilon: float, div_mode: bool, dst_dtype: Any) -> tuple[Tensor, Tensor]:
    """RMS norm as integers; the other result is for a second scale, which the op does not take, and stays empty."""
    y = _shifted(_rms(wide(x), wide(gamma), epsilon)[0], beta)
    return (_by_scale(y, scale, offset, div_mode, dtype_of(dst_dtype, INT8)),
            ops.empty([0], dtype=FLOAT32, device=x.device))


def _by_scale(y: Tensor, scale: Tensor, zero: Tensor | None, div_mode: bool, dtype: _C.dtype) -> Tensor:
    """round(y / scale + zero), or times the scale; nothing where no scale is given."""
    if scale is None:
        return ops.empty([0], dtype=dtype, device=y.device)
    q = y / wide(scale) if div_mode else y * wide(scale)
    return quantized(q if zero is None else q + wide(zero), dtype)


@row()
def npu_add_rms_norm_quant(x1: Tensor, x2: Tensor, gamma: Tensor, scales1: Tensor, zero_points1: Tensor | None,
                           beta: Tensor | None, scales2: Tensor | None, zero_points2: Tensor | None, axis: int,
                           epsilon: float, div_mode: bool, dst_type: Any) -> tuple[Tensor, Tensor, Tensor]:
    """RMS norm of x1 + x2 as integers by two scales, and the sum."""
    total, dtype = wide(x1) + wide(x2), dtype_of(dst_type, INT8)
    y = _shifted(_rms(total, wide(gamma), epsilon)[0], beta)
    second = ops.empty([1], dtype=dtype, device=x1.device) if scales2 is None else \
        _by_scale(y, scales2, zero_points2, div_mode, dtype)
    return _by_scale(y, scales1, zero_points1, div_mode, dtype), second, total.to(x1.dtype)


@row()
def npu_add_rms_norm_dynamic_quant(x1: Tensor, x2: Tensor, gamma: Tensor, smooth_scale1: Tensor | None,
                                   smooth_scale2: Tensor | None, beta: Tensor | None, epsilon: float,
                                   output_mask: Sequence[bool] | None, y_dtype: Any) -> tuple[Tensor, ...]:
    """RMS norm of x1 + x2 as integers by scales found in each row, after one or two smoothing scales; the sum between."""
    total, dtype = wide(x1) + wide(x2), dtype_of(y_dtype, INT8)
    y = _shifted(_rms(total, wide(gamma), epsilon)[0], beta)
    first, scale1 = _by_row(y, smooth_scale1, dtype)
    if smooth_scale2 is None and not (output_mask and output_mask[1]):
        second, scale2 = (ops.empty([0], dtype=t, device=x1.device) for t in (dtype, FLOAT32))
    else:
        second, scale2 = _by_row(y, smooth_scale2, dtype)
    return first, second, total.to(x1.dtype), scale1, scale2


def _by_row(y: Tensor, smooth: Any, dtype: _C.dtype) -> tuple[Tensor, Tensor]:
    y = y if smooth is None else y * wide(smooth)
    scale = y.abs().amax(-1, True) / 127
    return quantized(y / scale, dtype), scale.squeeze(-1)


# ---- layer norm -----------------------------------------------------------------------------------------------------
@row()
def npu_layer_norm_eval(input: Tensor, normalized_shape: list[int], weight: Tensor | None, bias: Tensor | None,
                        eps: float) -> Tensor:
    """layer_norm."""
    return ops.layer_norm(input, normalized_shape, weight, bias, eps)


@row()
def npu_layernorm_grad(grad_out: Tensor, input: Tensor, normalized_shape: list[int], mean: Tensor, rstd: Tensor,
                       weight: Tensor | None, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of layer_norm, of its weight and of its bias."""
    return ops.native_layer_norm_backward(grad_out, input, normalized_shape, mean, rstd, weight, bias, [True, True, True])


def _layer_stats(x: Tensor, gamma: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """(normal, mean, rstd) of x over gamma's dims."""
    dims = _last(x, gamma)
    mean = x.mean(dims, True)
    rstd = ((x - mean).square().mean(dims, True) + epsilon).rsqrt()
    return (x - mean) * rstd, mean.detach(), rstd.detach()


def _layer_grad(dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of a layer norm, its weight and its bias, from its statistics."""
    dims, normal, h = _last(x, gamma), (x - mean) * rstd, dy * gamma
    dx = rstd * (h - h.mean(dims, True) - normal * (h * normal).mean(dims, True))
    return dx, (dy * normal).sum_to_size(gamma.shape), dy.sum_to_size(gamma.shape)


def _add_layer_rule(x1: Tensor, x2: Tensor, gamma: Tensor, beta: Tensor, epsilon: float,
                    additional_output: bool) -> Sequence[Spec]:
    stats = _stats(x1, gamma), FLOAT32
    return [(x1.shape, x1.dtype), stats, stats, (x1.shape, x1.dtype)]


def _add_layer_grad(g: Tensor, g3: Tensor, x1: Tensor, x2: Tensor, gamma: Tensor, additional_output: bool, mean: Tensor,
                    rstd: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dx, dgamma, dbeta = npu_add_layer_norm_backward(g, x1, x2, rstd, mean, gamma, g3 if additional_output else None)[1:]
    return dx, dx, dgamma, dbeta


@row(rule=_add_layer_rule, npu="aclnnAddLayerNorm(x1, x2, gamma, beta, None, epsilon, additional_output, out0, out1, out2, out3)",
     grad={"x1, x2, gamma, beta": lambda g, g3, x1, x2, gamma, additional_output, result1, result2:
           _add_layer_grad(g, g3, x1, x2, gamma, additional_output, result1, result2)})
def npu_add_layer_norm(x1: Tensor, x2: Tensor, gamma: Tensor, beta: Tensor, epsilon: float,
                       additional_output: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Layer norm of x1 + x2, its mean and rstd, and the sum where it is asked for."""
    total = wide(x1) + wide(x2)
    normal, mean, rstd = _layer_stats(total, gamma, epsilon)
    kept = total.to(x1.dtype) if additional_output else ops.empty_like(x1)
    return (normal * wide(gamma) + wide(beta)).to(x1.dtype), mean, rstd, kept


@call("add_layer_norm_grad(Tensor dy, Tensor x1, Tensor x2, Tensor rstd, Tensor mean, Tensor gamma, Tensor? dsum) "
      "-> (Tensor, Tensor, Tensor)",
      rule=lambda dy, x1, x2, rstd, mean, gamma, dsum: [(x1.shape, x1.dtype), (gamma.shape, FLOAT32), (gamma.shape, FLOAT32)],
      npu="aclnnAddLayerNormGrad(dy, x1, x2, rstd, mean, gamma, dsum, out0, out1, out2)")
def _cann_add_layer_grad(dy: Tensor, x1: Tensor, x2: Tensor, rstd: Tensor, mean: Tensor, gamma: Tensor,
                         dsum: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    dx, dgamma, dbeta = _layer_grad(wide(dy), wide(x1) + wide(x2), mean, rstd, wide(gamma))
    return (dx if dsum is None else dx + dsum).to(x1.dtype), dgamma, dbeta


@row()
def npu_add_layer_norm_backward(dy_opt: Tensor | None, x1: Tensor, x2: Tensor, rstd: Tensor, mean: Tensor,
                                gamma: Tensor, dsum_opt: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of npu_add_layer_norm: of the sum (twice), gamma and beta."""
    dy = ops.zeros_like(x1) if dy_opt is None else dy_opt
    dx, dgamma, dbeta = _cann_add_layer_grad(dy, x1, x2, rstd, mean, gamma, dsum_opt)
    return dx, dx, dgamma, dbeta


@row(rule=lambda dy, x, gx, gamma, mean, rstd, alpha: [(x.shape, x.dtype), (x.shape, x.dtype), (gamma.shape, FLOAT32),
                                                       (gamma.shape, FLOAT32)],
     npu="aclnnDeepNormGrad(dy, x, gx, gamma, mean, rstd, alpha, out0, out1, out2, out3)")
def npu_deep_norm_backward(dy: Tensor, x: Tensor, gx: Tensor, gamma: Tensor, mean: Tensor, rstd: Tensor,
                           alpha: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of npu_deep_norm: of x, gx, beta and gamma."""
    total, dgamma, dbeta = _layer_grad(wide(dy), wide(x) * alpha + wide(gx), mean, rstd, wide(gamma))
    return (total * alpha).to(x.dtype), total.to(x.dtype), dbeta, dgamma


@row(rule=lambda x, gx, beta, gamma, alpha, epsilon: [(_stats(x, gamma), FLOAT32), (_stats(x, gamma), FLOAT32), (x.shape, x.dtype)],
     npu="aclnnDeepNorm(x, gx, beta, gamma, alpha, epsilon, out0, out1, out2)",
     grad={"x, gx, beta, gamma": lambda g2, x, gx, gamma, alpha, result0, result1:
           npu_deep_norm_backward(g2, x, gx, gamma, result0, result1, alpha)})
def npu_deep_norm(x: Tensor, gx: Tensor, beta: Tensor, gamma: Tensor, alpha: float,
                  epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """The mean and rstd of alpha * x + gx, and its layer norm."""
    normal, mean, rstd = _layer_stats(wide(x) * alpha + wide(gx), gamma, epsilon)
    return mean, rstd, (normal * wide(gamma) + wide(beta)).to(x.dtype)


# ---- group and batch norm -------------------------------------------------------------------------------------------
def _grouped(input: Tensor, group: int, weight: Tensor | None, bias: Tensor | None, eps: float) -> tuple[Tensor, ...]:
    """(y, mean, rstd) of group norm."""
    n, c = input.shape[:2]
    hxw = input.numel() // max(n * c, 1)
    return ops.native_group_norm(input.contiguous(), weight, bias, n, c, hxw, group, eps)


@row()
def npu_group_norm_silu(input: Tensor, weight: Tensor | None, bias: Tensor | None, group: int,
                        eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """silu of group norm, and its mean and rstd."""
    y, mean, rstd = _grouped(input, group, weight, bias, eps)
    return ops.silu(y), mean, rstd


def _swish(y: Tensor, scale: float) -> Tensor:
    return y * (y * scale).sigmoid()


@row()
def npu_group_norm_swish(input: Tensor, num_groups: int, weight: Tensor, bias: Tensor, eps: float | None,
                         swish_scale: float | None) -> tuple[Tensor, Tensor, Tensor]:
    """y * sigmoid(scale * y) of group norm y, and its mean and rstd."""
    y, mean, rstd = _grouped(input, num_groups, weight, bias, 1e-5 if eps is None else eps)
    return _swish(y, 1.0 if swish_scale is None else swish_scale), mean, rstd


@row()
def npu_group_norm_swish_grad(grad: Tensor, input: Tensor, num_groups: int, weight: Tensor, bias: Tensor, mean: Tensor,
                              rstd: Tensor, grad_input_mask: tuple[bool, ...],
                              swish_scale: float | None) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of npu_group_norm_swish's first result."""
    n, c = input.shape[:2]
    rows = [n, num_groups, -1]
    scale = 1.0 if swish_scale is None else swish_scale
    normal = ((wide(input).reshape(rows) - mean.reshape(n, -1, 1)) * rstd.reshape(n, -1, 1)).reshape(input.shape)
    by_channel = [1, c, *(1,) * (input.dim() - 2)]
    y = normal * wide(weight).reshape(by_channel) + wide(bias).reshape(by_channel)
    s = (y * scale).sigmoid()
    slope = (wide(grad) * s * (1 + scale * y * (1 - s))).to(input.dtype)
    return ops.native_group_norm_backward(slope, input, mean, rstd, weight, n, c, input.numel() // max(n * c, 1), num_groups,
                                          grad_input_mask)


@row()
def batch_norm_reduce(input: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The sum and the sum of squares of every channel."""
    dims = [d for d in range(input.dim()) if d != 1]
    x = wide(input)
    return x.sum(dims), x.square().sum(dims)


@row()
def batch_norm_gather_stats_update(input: Tensor, mean: Tensor, invstd: Tensor, running_mean: Tensor | None,
                                   running_var: Tensor | None, momentum: float, eps: float,
                                   counts: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and invstd of all ranks' rows; the running ones move towards them. What is named mean and invstd are each
    rank's sums and sums of squares, as batch_norm_reduce gives them: torch_npu hands them to aclnnSyncBatchNormGatherStats."""
    total = wide(counts).sum()
    whole = wide(mean).sum(0) / total
    var = wide(invstd).sum(0) / total - whole.square()
    if running_mean is not None:
        running_mean.copy_(running_mean * (1 - momentum) + whole * momentum)
    if running_var is not None:
        running_var.copy_(running_var * (1 - momentum) + var * (total / (total - 1)) * momentum)
    return whole, (var + eps).rsqrt()


@row()
def npu_normalize_batch(input: Tensor, seq_len: Tensor, normalize_type: int) -> Tensor:
    """The first seq_len frames of (batch, features, frames) give mean and deviation: of each feature (0) or of all (1)."""
    x, frames = wide(input), input.size(2)
    within = (ops.arange(frames, device=input.device).unsqueeze(0) < seq_len.unsqueeze(1)).unsqueeze(1)
    dims = [2] if normalize_type == 0 else [1, 2]
    count = seq_len.to(x.dtype).reshape(-1, 1, 1) * (1 if normalize_type == 0 else input.size(1))
    mean = (x * within).sum(dims, True) / count
    var = ((x - mean) * within).square().sum(dims, True) / (count - 1)
    return ((x - mean) / (var.sqrt() + 1e-5)).to(input.dtype)
