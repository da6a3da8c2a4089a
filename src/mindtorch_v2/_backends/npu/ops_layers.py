"""Activations, layer norm, embeddings, losses of classes and their gradients in dtypes that CANN does not take: float64,
so that gradcheck runs. Each is the aclnn op's own formula."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._backends.npu.body import Args, Body, Outs
from mindtorch_v2._backends.npu.torch_ops import ops

_INT64 = _C._dtype_named("int64")


# ---- rectifiers ------------------------------------------------------------------------------------------------------
def _threshold(x: Any, threshold: Any, value: Any) -> Any:
    return ops.where(x <= threshold, value, x)


def _threshold_backward(g: Any, x: Any, threshold: Any) -> Any:
    return ops.where(x <= threshold, 0, g)


def _leaky_relu(x: Any, slope: Any) -> Any:
    return ops.where(x > 0, x, x * slope)


def _elu(x: Any, alpha: Any, scale: Any, input_scale: Any) -> Any:
    return ops.where(x > 0, x * scale, (x * input_scale).expm1() * (alpha * scale))


def _elu_backward(g: Any, x: Any, alpha: Any, scale: Any, input_scale: Any) -> Any:
    below = (x * input_scale).exp() * (alpha * scale)
    return g * ops.where(x <= 0, below * input_scale, scale)


def _celu(x: Any, alpha: Any) -> Any:
    return ops.where(x > 0, x, (x / alpha).expm1() * alpha)


# ---- with exponentials -----------------------------------------------------------------------------------------------
def _silu(x: Any) -> Any:
    return x * x.sigmoid()


def _silu_backward(g: Any, x: Any) -> Any:
    s = x.sigmoid()
    return g * s * (1 + x * (1 - s))


def _softplus(x: Any, beta: Any, threshold: Any) -> Any:
    bent = x * beta
    return ops.where(bent > threshold, x, bent.clamp(max=threshold).exp().log1p() / beta)


def _log_sigmoid(x: Any) -> Any:
    return x.clamp(max=0) - (-x.abs()).exp().log1p()


def _mish(x: Any) -> Any:
    return x * _softplus(x, 1, 40).tanh()


def _mish_backward(g: Any, x: Any) -> Any:
    t = _softplus(x, 1, 40).tanh()
    return g * (t + x * x.sigmoid() * (1 - t * t))


_TANH = math.sqrt(2 / math.pi), 0.044715                     # of the approximation of gelu


def _gelu(x: Any, approximate: str) -> Any:
    if approximate == "tanh":
        return x * (1 + (_TANH[0] * (x + _TANH[1] * x * x * x)).tanh()) / 2
    return x * (-x * math.sqrt(0.5)).erfc() / 2


def _gelu_backward(g: Any, x: Any, approximate: str) -> Any:
    if approximate == "tanh":
        t = (_TANH[0] * (x + _TANH[1] * x * x * x)).tanh()
        return g * (1 + t + x * (1 - t * t) * _TANH[0] * (1 + 3 * _TANH[1] * x * x)) / 2
    return g * ((-x * math.sqrt(0.5)).erfc() / 2 + x * (-x * x / 2).exp() / math.sqrt(2 * math.pi))


# ---- of straight pieces ----------------------------------------------------------------------------------------------
def _hardsigmoid(x: Any) -> Any:
    return (x / 6 + 0.5).clamp(0, 1)


def _hardsigmoid_backward(g: Any, x: Any) -> Any:
    return ops.where(x.abs() < 3, g / 6, 0)


def _hardswish(x: Any) -> Any:
    return x * _hardsigmoid(x)


def _hardswish_backward(g: Any, x: Any) -> Any:
    return g * ops.where(x.abs() < 3, x / 3 + 0.5, (x > 0).to(x.dtype))


def _hardtanh_backward(g: Any, x: Any, least: Any, most: Any) -> Any:
    return ops.where((x <= least) | (x >= most), 0, g)


def _hardshrink(x: Any, lambd: Any) -> Any:
    return ops.where(x.abs() <= lambd, 0, x)


def _softshrink(x: Any, lambd: Any) -> Any:
    return x - x.clamp(-lambd, lambd)


def _shrink_backward(g: Any, x: Any, lambd: Any) -> Any:
    return ops.where(x.abs() <= lambd, 0, g)


# ---- layer norm ------------------------------------------------------------------------------------------------------
def _layer_norm(x: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> tuple[Any, Any, Any]:
    dims = tuple(range(-len(shape), 0))
    mean = x.mean(dims, True)
    rstd = ((x - mean).square().mean(dims, True) + eps).rsqrt()
    made = (x - mean) * rstd
    made = made if weight is None else made * weight
    return made if bias is None else made + bias, mean, rstd


def _layer_norm_backward(g: Any, x: Any, shape: Sequence[int], mean: Any, rstd: Any, weight: Any, _bias: Any,
                         _mask: Any) -> tuple[Any, Any, Any]:
    dims = tuple(range(-len(shape), 0))
    normal = (x - mean) * rstd
    inner = g if weight is None else g * weight
    back = (inner - inner.mean(dims, True) - normal * (inner * normal).mean(dims, True)) * rstd
    return back, (g * normal).sum_to_size(shape), g.sum_to_size(shape)


# ---- embeddings ------------------------------------------------------------------------------------------------------
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


def _nll_forward(x: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> tuple[Any, Any]:
    counts, place, dim = _class_weights(x, target, weight, ignore_index)
    losses, total = -x.gather(dim, place).squeeze(dim) * counts, counts.sum()
    return losses if reduction == 0 else losses.sum() / total if reduction == 1 else losses.sum(), total


def _no_losses(outs: Outs, args: Args) -> None:
    """Nothing to count: the sum is 0, the mean 0 / 0."""
    outs[0].fill_(math.nan if args[3] == 1 else 0)
    outs[1].fill_(0)


def _nll_backward(g: Any, x: Any, target: Any, weight: Any, reduction: int, ignore_index: int, total: Any) -> Any:
    counts, place, dim = _class_weights(x, target, weight, ignore_index)
    slope = -g * counts / total if reduction == 1 else -g * counts
    return ops.zeros_like(x).scatter(dim, place, slope.unsqueeze(dim))


_NLL, _NLL_BACKWARD = Body(fallback=_nll_forward, on_empty=_no_losses), Body(fallback=_nll_backward)
BODIES = {
    "nll_loss2d_backward": _NLL_BACKWARD, "nll_loss2d_forward": _NLL,
    "nll_loss_backward": _NLL_BACKWARD, "nll_loss_forward": _NLL,
    **{name: Body(fallback=function) for name, function in {   # type: ignore[arg-type]
        "_softshrink": _softshrink, "celu": _celu, "elu": _elu, "_elu_backward": _elu_backward,
        "embedding_dense_backward": _embedding_backward, "gelu": _gelu, "gelu_backward": _gelu_backward,
        "hardshrink": _hardshrink, "hardshrink_backward": _shrink_backward, "hardsigmoid": _hardsigmoid,
        "hardsigmoid_backward": _hardsigmoid_backward, "hardswish": _hardswish,
        "hardswish_backward": _hardswish_backward, "hardtanh_backward": _hardtanh_backward, "leaky_relu": _leaky_relu,
        "log_sigmoid": _log_sigmoid, "mish": _mish, "mish_backward": _mish_backward, "native_layer_norm": _layer_norm,
        "native_layer_norm_backward": _layer_norm_backward, "silu": _silu, "silu_backward": _silu_backward,
        "softplus": _softplus, "softshrink_backward": _shrink_backward, "threshold": _threshold,
        "threshold_backward": _threshold_backward,
    }.items()},
}
