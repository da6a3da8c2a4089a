"""Rows of the normalisations: layer, rms, group, batch and instance norm. Every backward has a fused kernel; where a
gradient is itself recorded, the same formula is written with ops, so that it can be differentiated again."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._ops import batching_nn
from mindtorch_v2._ops.table import Spec, composite, op, ops
from mindtorch_v2._tensor import Tensor


def _wants(spec: Sequence[Spec], mask: tuple[bool, ...]) -> Sequence[Spec | None]:
    """The outputs of a backward: None where its gradient is not needed."""
    return [s if m else None for s, m in zip(spec, mask, strict=True)]


def _type_of_stats(input: Tensor, weight: Tensor | None) -> _C.dtype:
    """Statistics are kept in the type of the parameters (float32 beside half inputs)."""
    return weight.dtype if weight is not None else input.dtype


def _whitened(input: Tensor, dims: tuple[int, ...], eps: float, mean: Any = None,
              var: Any = None) -> tuple[Tensor, Tensor]:
    """(normal, rstd): the input less its mean over dims, times rstd."""
    if mean is None:
        mean = input.mean(dims, True)
        var = (input - mean).square().mean(dims, True)
    rstd = (var + eps).rsqrt()
    return (input - mean) * rstd, rstd


def _normal_grad(h: Tensor, normal: Tensor, rstd: Tensor, dims: tuple[int, ...]) -> Tensor:
    """The gradient that comes through normal = (x - mean) * rstd, mean and rstd included."""
    return rstd * (h - h.mean(dims, True) - normal * (h * normal).mean(dims, True))


def _has_kernel(*tensors: Tensor | None) -> bool:
    """Whether a kernel gives the gradient: of tensors with memory, where no graph of it is wanted."""
    return not _C._is_grad_enabled() and all(t is None or t._readable for t in tensors)


def _fit_sum(x: Tensor, shape: Sequence[int]) -> Tensor:
    return x.sum_to_size(shape) if tuple(x.shape) != tuple(shape) else x


# ---- layer norm ----------------------------------------------------------------------------------------------------
def _stats_shape(input: Tensor, n: int) -> tuple[int, ...]:
    rank = input.dim() - n
    return tuple(input.shape[:rank]) + (1,) * n


def _layer_grad(g: Tensor, input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None,
                eps: float, mean: Tensor, rstd: Tensor,
                needs: tuple[bool, ...]) -> tuple[Tensor, Tensor | None, Tensor | None]:
    if _has_kernel(g, input, weight):
        return ops.native_layer_norm_backward(g, input, normalized_shape, mean, rstd, weight, bias, needs)
    dims = tuple(range(input.dim() - len(normalized_shape), input.dim()))
    normal, scale = _whitened(input, dims, eps)
    through = _normal_grad(g if weight is None else g * weight, normal, scale, dims)
    return through, _fit_sum(g * normal, normalized_shape), _fit_sum(g, normalized_shape)


op("native_layer_norm_backward(Tensor grad_out, Tensor input, SymInt[] normalized_shape, Tensor mean, Tensor rstd, "
   "Tensor? weight, Tensor? bias, bool[3] output_mask) -> (Tensor, Tensor, Tensor)", variants="",
   rule=lambda grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask: _wants(
       [(input.shape, input.dtype), (normalized_shape, _type_of_stats(input, weight)),
        (normalized_shape, _type_of_stats(input, weight))], output_mask),
   npu="aclnnLayerNormBackward(grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask, out0, "
       "out1, out2)")
op("native_layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps) "
   "-> (Tensor, Tensor, Tensor)",
   batch=batching_nn.layer_normalized, autocast={"npu": "float32"}, out=False, rule="layer_norm", variants="function",
   npu="aclnnLayerNorm(input, normalized_shape, weight, bias, eps, out0, out1, out2)",
   grad={"input, weight, bias": lambda g, input, normalized_shape, weight, bias, eps, result1, result2, needs:
         _layer_grad(g, input, normalized_shape, weight, bias, eps, result1, result2, needs)})


@composite("layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None, "
           "float eps=1e-05, bool cudnn_enable=True) -> Tensor", autocast={"npu": "float32"}, out=False,
           variants="function")
def _layer_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float,
                cudnn_enable: bool) -> Tensor:
    """Mean 0 and variance 1 over the last dims, then weight and bias."""
    return ops.native_layer_norm(input, normalized_shape, weight, bias, eps)[0]


# ---- rms norm ------------------------------------------------------------------------------------------------------
def _check_rms(input: Tensor, normalized_shape: tuple[int, ...], weight: Tensor | None) -> tuple[int, ...]:
    if input.dim() < len(normalized_shape):
        raise ValueError(f"Input tensor must have at least {len(normalized_shape)} dimensions, but got {input.dim()}")
    _C._check_normalized(input, normalized_shape, weight)
    return tuple(normalized_shape)


def _rms_rule(input: Tensor, normalized_shape: tuple[int, ...], weight: Tensor | None,
              eps: float | None) -> Sequence[Spec]:
    shape = _check_rms(input, normalized_shape, weight)
    kept = input.dtype if input.dtype.itemsize > 2 else _C._dtype_named("float32")
    return [(input.shape, input.dtype), (_stats_shape(input, len(shape)), kept)]


def _rms_grad(g: Tensor, input: Tensor, normalized_shape: tuple[int, ...], weight: Tensor | None, eps: float | None,
              rstd: Tensor, needs: tuple[bool, ...]) -> tuple[Tensor, Tensor | None]:
    if _has_kernel(g, input, weight):
        return ops._fused_rms_norm_backward(g, input, normalized_shape, rstd, weight, needs)
    dims = tuple(range(input.dim() - len(normalized_shape), input.dim()))
    if eps is None:
        eps = 2.0 ** (-52 if rstd.dtype is _C._dtype_named("float64") else -23)
    scale = (input.square().mean(dims, True) + eps).rsqrt()
    normal, h = input * scale, g if weight is None else g * weight
    return scale * (h - normal * (h * normal).mean(dims, True)), _fit_sum(g * normal, normalized_shape)


op("_fused_rms_norm_backward(Tensor grad_out, Tensor input, int[] normalized_shape, Tensor rstd, Tensor? weight, "
   "bool[2] output_mask) -> (Tensor, Tensor)", variants="",
   rule=lambda grad_out, input, normalized_shape, rstd, weight, output_mask: _wants(
       [(input.shape, input.dtype), (normalized_shape, _type_of_stats(input, weight))], output_mask),
   npu="aclnnRmsNormGrad(grad_out, input, rstd, weight=ones(normalized_shape), out0=scratch(input), "
       "out1=scratch(normalized_shape))")
op("_fused_rms_norm(Tensor input, int[] normalized_shape, Tensor? weight, float? eps) -> (Tensor, Tensor)",
   batch=batching_nn.rms_normalized,
   rule=_rms_rule, variants="function",
   npu="aclnnRmsNorm(input, weight=ones(normalized_shape), eps=1.1920928955078125e-07, out0, out1)",
   grad={"input, weight": lambda g, input, normalized_shape, weight, eps, result1, needs:
         _rms_grad(g, input, normalized_shape, weight, eps, result1, needs)})


@composite("rms_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, float? eps=None) -> Tensor",
           autocast={"npu": "float32"}, out=False,
           variants="function")
def _rms_norm(input: Tensor, normalized_shape: tuple[int, ...], weight: Tensor | None, eps: float | None) -> Tensor:
    """Divided by the root of the mean square over the last dims, times weight."""
    if weight is not None and weight.dtype is not input.dtype:
        wide = _C.promote_types(input.dtype, weight.dtype)
        return ops.rms_norm(input.to(wide), normalized_shape, weight.to(wide), eps).to(input.dtype)
    if input.is_complex():
        shape = _check_rms(input, normalized_shape, weight)
        dims = list(range(-len(shape), 0))
        limit = 2.0 ** (-23 if input.dtype.itemsize == 8 else -52) if eps is None else eps
        normed = input * ((input * input).mean(dims, True) + limit).rsqrt()    # torch squares, without conj
        return normed if weight is None else normed * weight
    return ops._fused_rms_norm(input, normalized_shape, weight, eps)[0]


# ---- group norm ----------------------------------------------------------------------------------------------------
def _group_rule(input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int, group: int,
                eps: float) -> Sequence[Spec]:
    for param in (weight, bias):
        if param is not None and not param.is_floating_point():
            raise RuntimeError("mixed dtype (CPU): expect parameter to have scalar type of Float")
    _C._check_mixed(input, weight, bias)
    stats = ((N, group), _type_of_stats(input, weight))
    return [(input.shape, input.dtype), stats, stats]


def _group_grad(g: Tensor, input: Tensor, weight: Tensor | None, N: int, C: int, HxW: int, group: int, eps: float,
                mean: Tensor, rstd: Tensor, needs: tuple[bool, ...]) -> tuple[Tensor, Tensor | None, Tensor | None]:
    if _has_kernel(g, input, weight):
        return ops.native_group_norm_backward(g, input, mean, rstd, weight, N, C, HxW, group, needs)
    normal, scale = _whitened(input.reshape(N, group, C // group * HxW), (2,), eps)
    by_channel, normal_c = g.reshape(N, C, HxW), normal.reshape(N, C, HxW)
    h = by_channel if weight is None else by_channel * weight.reshape(1, C, 1)
    through = _normal_grad(h.reshape(N, group, C // group * HxW), normal, scale, (2,)).reshape(input.shape)
    return through, (by_channel * normal_c).sum((0, 2)), by_channel.sum((0, 2))


def _group_grad_of_all(g: Tensor, g1: Tensor, g2: Tensor, input: Tensor, weight: Tensor, N: int, C: int, HxW: int,
                       group: int, eps: float, mean: Tensor, rstd: Tensor,
                       needs: tuple[bool, ...]) -> tuple[Tensor | None, ...]:
    """The same with what comes by way of the mean and rstd of each group."""
    through, *params = _group_grad(g, input, weight, N, C, HxW, group, eps, mean, rstd, needs)
    if needs[0]:
        rows = input.reshape(N, group, C // group * HxW)
        centred = rows - rows.mean(2, True)
        scale = (centred.square().mean(2, True) + eps).rsqrt()
        of_stats = g1.reshape(N, group, 1) - g2.reshape(N, group, 1) * scale * scale * scale * centred
        through = through + (of_stats / max(rows.size(2), 1)).reshape(input.shape)
    return through, *params


op("native_group_norm_backward(Tensor grad_out, Tensor input, Tensor mean, Tensor rstd, Tensor? weight, SymInt N, "
   "SymInt C, SymInt HxW, int group, bool[3] output_mask) -> (Tensor, Tensor, Tensor)", variants="", format="input",
   rule=lambda grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask: _wants(
       [(input.shape, input.dtype), ((C,), _type_of_stats(input, weight)), ((C,), _type_of_stats(input, weight))],
       output_mask),
   npu="aclnnGroupNormBackward(grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask, out0, out1, out2)")
# For group_norm, which gives no statistics, and with gradients of those, which cost another pass.
for _name, _grad in (
    ("_native_group_norm", lambda g, input, weight, N, C, HxW, group, eps, result1, result2, needs:
     _group_grad(g, input, weight, N, C, HxW, group, eps, result1, result2, needs)),
    ("native_group_norm", lambda g, g1, g2, input, weight, N, C, HxW, group, eps, result1, result2, needs:
     _group_grad_of_all(g, g1, g2, input, weight, N, C, HxW, group, eps, result1, result2, needs)),
):
    op(f"{_name}(Tensor input, Tensor? weight, Tensor? bias, SymInt N, SymInt C, SymInt HxW, int group, float eps) "
       "-> (Tensor, Tensor, Tensor)",
       batch=batching_nn.group_normalized, rule=_group_rule, kernel="native_group_norm",
       variants="" if _name[0] == "_" else "function", out=False, format="input",
       npu="aclnnGroupNorm(input, weight, bias, N, C, HxW, group, eps, out0, out1, out2)",
       grad={"input, weight, bias": _grad})


@composite("group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, "
           "bool cudnn_enabled=True) -> Tensor", autocast={"npu": "float32"}, out=False, variants="function")
def _group_norm(input: Tensor, num_groups: int, weight: Tensor | None, bias: Tensor | None, eps: float,
                cudnn_enabled: bool) -> Tensor:
    """Mean 0 and variance 1 over groups of channels of each sample, then weight and bias by channel."""
    n, channels = input.size(0), input.size(1)
    if num_groups <= 0:
        raise RuntimeError(f"Expected num groups to be greater than 0, got {num_groups}")
    if channels % num_groups:
        raise RuntimeError(f"Expected number of channels in input to be divisible by num_groups, but got input of "
                           f"shape {list(input.shape)} and num_groups={num_groups}")
    for name, value in (("weight", weight), ("bias", bias)):
        if value is not None and (value.dim() != 1 or value.numel() != channels):
            raise RuntimeError(f"Expected {name} to be a vector of size equal to the number of channels in input, but "
                               f"got {name} of shape {list(value.shape)} and input of shape {list(input.shape)}")
    positions = 1
    for size in input.shape[2:]:
        positions *= size
    return ops._native_group_norm(input, weight, bias, n, channels, positions, num_groups, eps)[0]


# ---- batch norm ----------------------------------------------------------------------------------------------------
def _batch_rule(input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
                running_var: Tensor | None, training: bool, momentum: float, eps: float) -> Sequence[Spec]:
    _C._check_mixed(input, weight, bias, running_mean, running_var)
    stats = ((input.size(1) if training else 0,), _type_of_stats(input, weight))
    return [(input.shape, input.dtype), stats, stats]


def _batch_grad(g: Tensor, input: Tensor, weight: Tensor | None, running_mean: Any, running_var: Any, training: bool,
                eps: float, mean: Tensor, invstd: Tensor,
                needs: tuple[bool, ...]) -> tuple[Tensor, Tensor | None, Tensor | None]:
    if not _C._is_grad_enabled():
        return ops.native_batch_norm_backward(g, input, weight, running_mean, running_var, mean, invstd, training, eps,
                                              needs)
    dims = tuple(d for d in range(input.dim()) if d != 1)
    shape = [-1 if d == 1 else 1 for d in range(input.dim())]
    h = g if weight is None else g * weight.reshape(shape)
    if training:
        normal, scale = _whitened(input, dims, eps)
        through = _normal_grad(h, normal, scale, dims)
    else:
        normal, scale = _whitened(input, dims, eps, running_mean.reshape(shape), running_var.reshape(shape))
        through = h * scale
    return through, (g * normal).sum(dims), g.sum(dims)


op("native_batch_norm_backward(Tensor grad_out, Tensor input, Tensor? weight, Tensor? running_mean, "
   "Tensor? running_var, Tensor? save_mean, Tensor? save_invstd, bool train, float eps, bool[3] output_mask) "
   "-> (Tensor, Tensor, Tensor)", variants="", format="input", batch=batching_nn.batch_normalized_slope,
   rule=lambda grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, output_mask:
   _wants([(input.shape, input.dtype)] + [((input.size(1),), _type_of_stats(input, weight))] * 2, output_mask),
   npu="aclnnBatchNormBackward(grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, "
       "output_mask, out0, out1, out2)")
op("native_batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, "
   "bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
   batch=batching_nn.batch_normalized, rule=_batch_rule, variants="function", format="input", writes="running_mean running_var",
   npu="aclnnBatchNorm(input, weight, bias, running_mean, running_var, training, momentum, eps, out0, out1, out2)",
   grad={"running_mean, running_var": "native_batch_norm", "input, weight, bias":
         lambda g, input, weight, running_mean, running_var, training, eps, result1, result2, needs:
         _batch_grad(g, input, weight, running_mean, running_var, training, eps, result1, result2, needs)})


@composite("batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, "
           "bool training, float momentum, float eps, bool cudnn_enabled) -> Tensor", out=False, variants="function")
def _batch_norm(input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
                running_var: Tensor | None, training: bool, momentum: float, eps: float, cudnn_enabled: bool) -> Tensor:
    """Mean 0 and variance 1 of every channel over the batch (or by the running statistics), then weight and bias."""
    if input.numel() == 0:
        out = input.clone() if weight is None else input * weight[0]
        return out if bias is None else out + bias[0]
    if input.dim() < 2:
        raise RuntimeError(f"batch_norm expected input with at least 2 dims, got {list(input.shape)}")
    channels = input.size(1)
    if not training and (running_mean is None or running_var is None):
        missing = "running_mean" if running_mean is None else "running_var"
        raise RuntimeError(f"{missing} must be defined in evaluation mode")
    for name, value in (("running_mean", running_mean), ("running_var", running_var), ("weight", weight),
                        ("bias", bias)):
        if value is not None and value.numel() != channels:
            raise RuntimeError(f"{name} should contain {channels} elements not {value.numel()}")
    if training and input.numel() == channels:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {list(input.shape)}")
    return ops.native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)[0]


@composite("_native_batch_norm_legit(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!) running_mean, "
           "Tensor(b!) running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
           variants="function")
def _native_batch_norm_legit(input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor,
                             running_var: Tensor, training: bool, momentum: float,
                             eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """native_batch_norm whose schema says that it changes the running statistics."""
    return ops.native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)


@composite("_native_batch_norm_legit.no_stats(Tensor input, Tensor? weight, Tensor? bias, bool training, float momentum, "
           "float eps) -> (Tensor, Tensor, Tensor)", variants="function")
def _native_batch_norm_without_stats(input: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool,
                                     momentum: float, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    return ops.native_batch_norm(input, weight, bias, None, None, training, momentum, eps)


@composite("_batch_norm_with_update(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!) running_mean, "
           "Tensor(b!) running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor)", out=False,
           variants="function")
def _batch_norm_with_update(input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor,
                            running_var: Tensor, momentum: float, eps: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """native_batch_norm in training, and the bytes that a library would keep for backward: none."""
    found = ops.native_batch_norm(input, weight, bias, running_mean, running_var, True, momentum, eps)
    return (*found, ops.empty((0,), dtype=_C._dtype_named("uint8"), device=input.device))


@composite("instance_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, "
           "bool use_input_stats, float momentum, float eps, bool cudnn_enabled) -> Tensor", out=False,
           variants="function")
def _instance_norm(input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
                   running_var: Tensor | None, use_input_stats: bool, momentum: float, eps: float,
                   cudnn_enabled: bool) -> Tensor:
    """Mean 0 and variance 1 of every channel of every sample: batch norm with samples and channels as one."""
    if not use_input_stats and (running_mean is None or running_var is None):
        raise RuntimeError("Expected running_mean and running_var to be defined when use_input_stats is false")
    n, channels = input.size(0), input.size(1)
    flat = input.contiguous().view(1, n * channels, *input.shape[2:])
    mean, var, weight, bias = (None if value is None else value.repeat(n)
                               for value in (running_mean, running_var, weight, bias))
    out = ops.batch_norm(flat, weight, bias, mean, var, use_input_stats, momentum, eps, cudnn_enabled)
    if use_input_stats:
        for kept, every in ((running_mean, mean), (running_var, var)):
            if kept is not None and every is not None:
                # a view, as in torch: torch.func refuses to change what a function captured
                ops.alias(kept).copy_(every.view(n, channels).mean(0))
    return out.view(input.shape)
