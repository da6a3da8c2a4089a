"""Activations, layer norm, embeddings, losses of classes and their gradients in dtypes that CANN does not take: float64,
so that gradcheck runs. Each is the aclnn op's own formula, arguments in CANN's order, or the row's own."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._backends.npu.ops import OTHERS, composed, ops
from mindtorch_v2._backends.npu.ops_dtypes import substitute

_INT64 = _C._dtype_named("int64")


# ---- rectifiers ------------------------------------------------------------------------------------------------------
@substitute("aclnnThreshold")
def _threshold(x: Any, threshold: Any, value: Any) -> Any:
    return ops.where(x <= threshold, value, x)


@substitute("aclnnThresholdBackward")
def _threshold_backward(g: Any, x: Any, threshold: Any) -> Any:
    return ops.where(x <= threshold, 0, g)


@substitute("aclnnLeakyRelu")
def _leaky_relu(x: Any, slope: Any) -> Any:
    return ops.where(x > 0, x, x * slope)


@substitute("aclnnElu")
def _elu(x: Any, alpha: Any, scale: Any, input_scale: Any) -> Any:
    return ops.where(x > 0, x * scale, (x * input_scale).expm1() * (alpha * scale))


@substitute("aclnnEluBackward")
def _elu_backward(g: Any, alpha: Any, scale: Any, input_scale: Any, is_result: bool, x: Any) -> Any:
    below = x + alpha * scale if is_result else (x * input_scale).exp() * (alpha * scale)
    return g * ops.where(x <= 0, below * input_scale, scale)


@substitute("aclnnCelu")
def _celu(x: Any, alpha: Any) -> Any:
    return ops.where(x > 0, x, (x / alpha).expm1() * alpha)


# ---- with exponentials -----------------------------------------------------------------------------------------------
@substitute("aclnnSilu")
def _silu(x: Any) -> Any:
    return x * x.sigmoid()


@substitute("aclnnSiluBackward")
def _silu_backward(g: Any, x: Any) -> Any:
    s = x.sigmoid()
    return g * s * (1 + x * (1 - s))


@substitute("aclnnSoftplus")
def _softplus(x: Any, beta: Any, threshold: Any) -> Any:
    bent = x * beta
    return ops.where(bent > threshold, x, bent.clamp(max=threshold).exp().log1p() / beta)


@substitute("aclnnLogSigmoid")
def _log_sigmoid(x: Any) -> Any:
    return x.clamp(max=0) - (-x.abs()).exp().log1p()


@substitute("aclnnMish")
def _mish(x: Any) -> Any:
    return x * _softplus(x, 1, 40).tanh()


@substitute("aclnnMishBackward")
def _mish_backward(g: Any, x: Any) -> Any:
    t = _softplus(x, 1, 40).tanh()
    return g * (t + x * x.sigmoid() * (1 - t * t))


_TANH = math.sqrt(2 / math.pi), 0.044715                     # of the approximation of gelu


@composed("gelu", registry=OTHERS)
def _gelu(x: Any, approximate: str) -> Any:
    if approximate == "tanh":
        return x * (1 + (_TANH[0] * (x + _TANH[1] * x * x * x)).tanh()) / 2
    return x * (-x * math.sqrt(0.5)).erfc() / 2


@composed("gelu_backward", registry=OTHERS)
def _gelu_backward(g: Any, x: Any, approximate: str) -> Any:
    if approximate == "tanh":
        t = (_TANH[0] * (x + _TANH[1] * x * x * x)).tanh()
        return g * (1 + t + x * (1 - t * t) * _TANH[0] * (1 + 3 * _TANH[1] * x * x)) / 2
    return g * ((-x * math.sqrt(0.5)).erfc() / 2 + x * (-x * x / 2).exp() / math.sqrt(2 * math.pi))


# ---- of straight pieces ----------------------------------------------------------------------------------------------
@substitute("aclnnHardsigmoid")
def _hardsigmoid(x: Any) -> Any:
    return (x / 6 + 0.5).clamp(0, 1)


@substitute("aclnnHardsigmoidBackward")
def _hardsigmoid_backward(g: Any, x: Any) -> Any:
    return ops.where(x.abs() < 3, g / 6, 0)


@substitute("aclnnHardswish")
def _hardswish(x: Any) -> Any:
    return x * _hardsigmoid(x)


@substitute("aclnnHardswishBackward")
def _hardswish_backward(g: Any, x: Any) -> Any:
    return g * ops.where(x.abs() < 3, x / 3 + 0.5, (x > 0).to(x.dtype))


@substitute("aclnnHardtanhBackward")
def _hardtanh_backward(g: Any, x: Any, least: Any, most: Any) -> Any:
    return ops.where((x <= least) | (x >= most), 0, g)


@substitute("aclnnHardshrink")
def _hardshrink(x: Any, lambd: Any) -> Any:
    return ops.where(x.abs() <= lambd, 0, x)


@substitute("aclnnSoftshrink")
def _softshrink(x: Any, lambd: Any) -> Any:
    return x - x.clamp(-lambd, lambd)


@substitute("aclnnHardshrinkBackward", "aclnnSoftshrinkBackward")
def _shrink_backward(g: Any, x: Any, lambd: Any) -> Any:
    return ops.where(x.abs() <= lambd, 0, g)


# ---- layer norm ------------------------------------------------------------------------------------------------------
@substitute("aclnnLayerNorm")
def _layer_norm(x: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> tuple[Any, Any, Any]:
    dims = tuple(range(-len(shape), 0))
    mean = x.mean(dims, True)
    rstd = ((x - mean).square().mean(dims, True) + eps).rsqrt()
    made = (x - mean) * rstd
    made = made if weight is None else made * weight
    return made if bias is None else made + bias, mean, rstd


@substitute("aclnnLayerNormBackward")
def _layer_norm_backward(g: Any, x: Any, shape: Sequence[int], mean: Any, rstd: Any, weight: Any, _bias: Any,
                         _mask: Any) -> tuple[Any, Any, Any]:
    dims = tuple(range(-len(shape), 0))
    normal = (x - mean) * rstd
    inner = g if weight is None else g * weight
    back = (inner - inner.mean(dims, True) - normal * (inner * normal).mean(dims, True)) * rstd
    return back, (g * normal).sum_to_size(shape), g.sum_to_size(shape)


# ---- embeddings ------------------------------------------------------------------------------------------------------
@substitute("aclnnEmbeddingDenseBackward")
def _embedding_backward(g: Any, indices: Any, rows: int, padding_idx: int, scale_by_count: bool) -> Any:
    indices, g = indices.reshape(-1), g.reshape(-1, g.size(-1))
    if scale_by_count:
        g = g / indices.bincount(minlength=rows)[indices].unsqueeze(-1)
    g = ops.where((indices == padding_idx).unsqueeze(-1), 0, g)
    return ops.zeros((rows, g.size(-1)), dtype=g.dtype, device=g.device).index_add(0, indices, g)


# ---- minus the log-probability of a class ----------------------------------------------------------------------------
def _class_weights(x: Any, target: Any, weight: Any, ignore_index: int) -> tuple[Any, Any, int]:
    """What each target counts, where its class stands, and the dim of classes."""
    dim = 1 if x.dim() > 1 else 0
    kept = target != ignore_index
    place = ops.where(kept, target, 0).to(_INT64)
    counts = kept.to(x.dtype)
    return counts if weight is None else counts * weight[place], place.unsqueeze(dim), dim


def _nll_forward(outs: tuple[Any, ...], args: tuple[Any, ...]) -> None:
    (out, total), (x, target, weight, reduction, ignore_index) = outs, args
    counts, place, dim = _class_weights(x.detach(), target, weight, ignore_index)
    losses = -x.detach().gather(dim, place).squeeze(dim) * counts
    total.copy_(counts.sum())
    out.copy_(losses if reduction == 0 else losses.sum() / total if reduction == 1 else losses.sum())


def _nll_backward(g: Any, x: Any, target: Any, weight: Any, reduction: int, ignore_index: int, total: Any) -> Any:
    counts, place, dim = _class_weights(x, target, weight, ignore_index)
    slope = -g * counts / total if reduction == 1 else -g * counts
    return ops.zeros_like(x).scatter(dim, place, slope.unsqueeze(dim))


for _name in ("nll_loss", "nll_loss2d"):
    OTHERS[_name + "_forward"] = _nll_forward
    composed(_name + "_backward", registry=OTHERS)(_nll_backward)
