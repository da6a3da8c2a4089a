"""Layers whose affine maps follow one another, as one layer."""

from __future__ import annotations

import copy
from typing import Any

import mindtorch_v2 as torch

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]


def _fused(weight: Any, bias: Any, mean: Any, var: Any, eps: float, scale: Any, shift: Any, shape: list[int]) -> tuple[Any, Any]:
    """Weight and bias of the layer that does both."""
    bias = torch.zeros_like(mean) if bias is None else bias
    scale = torch.ones_like(mean) if scale is None else scale
    shift = torch.zeros_like(mean) if shift is None else shift
    factor = scale * torch.rsqrt(var + eps)
    fused = ((weight * factor.reshape(shape)).to(weight.dtype), ((bias - mean) * factor + shift).to(bias.dtype))
    return tuple(torch.nn.Parameter(value, given.requires_grad) for value, given in zip(fused, (weight, bias)))   # type: ignore


def fuse_conv_bn_weights(conv_w: Any, conv_b: Any, bn_rm: Any, bn_rv: Any, bn_eps: float, bn_w: Any, bn_b: Any,
                         transpose: bool = False) -> tuple[Any, Any]:
    """Weight and bias of a convolution that normalises as well."""
    shape = [1, -1] if transpose else [-1, 1]
    return _fused(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, shape + [1] * (conv_w.dim() - 2))


def fuse_linear_bn_weights(linear_w: Any, linear_b: Any, bn_rm: Any, bn_rv: Any, bn_eps: float, bn_w: Any,
                           bn_b: Any) -> tuple[Any, Any]:
    """Weight and bias of a linear layer that normalises as well."""
    return _fused(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, [-1, 1])


def _check_eval(layer: Any, bn: Any) -> None:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A convolution followed by batch normalisation as one convolution; both must be in eval mode."""
    _check_eval(conv, bn)
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps,
                                                    bn.weight, bn.bias, transpose)
    return fused


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A linear layer followed by batch normalisation as one linear layer; both must be in eval mode."""
    _check_eval(linear, bn)
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError("To fuse, linear.out_features == bn.num_features or bn.num_features == 1")
    fused = copy.deepcopy(linear)
    fused.weight, fused.bias = fuse_linear_bn_weights(fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps,
                                                      bn.weight, bn.bias)
    return fused
