"""Layers of torch_npu.contrib.module with integer weights: linear ones in three ways, and a convolution."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch

_npu, nn = torch.ops.npu, torch.nn
Tensor = torch.Tensor


def _buffer(module: Any, name: str, wanted: bool, *shape: int, dtype: Any = torch.float32) -> None:
    """A parameter without a gradient, or None."""
    value = nn.Parameter(torch.zeros(shape, dtype=dtype), requires_grad=False) if wanted else None
    setattr(module, name, value)


class _Quantized(nn.Module):
    """A linear layer of int8 weights (out, in) with scales, whose input is int8."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, offset: bool = False, pertoken_scale: bool = False,
                 device: Any = None, dtype: Any = None, output_dtype: Any = None) -> None:
        super().__init__()
        self.in_features, self.out_features, self.output_dtype = in_features, out_features, output_dtype
        _buffer(self, "weight", True, out_features, in_features, dtype=torch.int8)
        _buffer(self, "scale", True, out_features)
        _buffer(self, "offset", offset, out_features)
        _buffer(self, "pertoken_scale", pertoken_scale, 1)
        _buffer(self, "bias", bias, out_features, dtype=torch.int32)
        if device is not None:
            self.to(device)

    def forward(self, linear_quant_input: Tensor) -> Tensor:
        return _npu.npu_quant_matmul(linear_quant_input, self.weight.t(), self.scale, offset=self.offset,
                                     pertoken_scale=self.pertoken_scale, bias=self.bias, output_dtype=self.output_dtype)


class LinearQuant(_Quantized):
    """A linear layer of int8 weights (out, in) with scales, whose input is int8."""


class LinearA8W8Quant(_Quantized):
    """A linear layer of int8 weights (out, in) with scales, whose input is int8."""


class LinearWeightQuant(nn.Module):
    """A linear layer of int8 weights (out, in) with scales, whose input is floats."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None,
                 antiquant_offset: bool = False, quant_scale: bool = False, quant_offset: bool = False,
                 antiquant_group_size: int = 0, inner_precise: int = 0) -> None:
        super().__init__()
        self.in_features, self.out_features, self.antiquant_group_size = in_features, out_features, antiquant_group_size
        groups = (in_features + antiquant_group_size - 1) // antiquant_group_size if antiquant_group_size else 0
        shape = (out_features, groups) if groups else (out_features,)
        _buffer(self, "weight", True, out_features, in_features, dtype=torch.int8)
        _buffer(self, "antiquant_scale", True, *shape)
        _buffer(self, "antiquant_offset", antiquant_offset, *shape)
        _buffer(self, "quant_scale", quant_scale, out_features)
        _buffer(self, "quant_offset", quant_offset, out_features)
        _buffer(self, "bias", bias, out_features)
        if device is not None:
            self.to(device)

    def forward(self, x: Tensor) -> Tensor:
        scale, offset = (v if v is None else v.t() for v in (self.antiquant_scale, self.antiquant_offset))
        return _npu.npu_weight_quant_batchmatmul(x, self.weight.t(), scale, offset, self.quant_scale, self.quant_offset, self.bias,
                                                 self.antiquant_group_size)


class QuantConv2d(nn.Module):
    """A convolution of int8 tensors with a scale for each output channel."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, output_dtype: Any, stride: Any = 1, padding: Any = 0,
                 dilation: Any = 1, groups: int = 1, bias: bool = True, offset: bool = False, round_mode: str = "rint",
                 device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        size = (kernel_size, kernel_size) if isinstance(kernel_size, int) else tuple(kernel_size)
        self.stride, self.padding, self.dilation = (
            [x, x] if isinstance(x, int) else list(x) for x in (stride, padding, dilation))
        self.groups, self.output_dtype = groups, output_dtype
        _buffer(self, "weight", True, out_channels, in_channels // groups, *size, dtype=torch.int8)
        _buffer(self, "scale", True, out_channels)
        _buffer(self, "bias", bias, out_channels, dtype=torch.int32)
        if device is not None:
            self.to(device)

    def forward(self, quant_conv2d_input: Tensor) -> Tensor:
        return _npu.npu_quant_conv2d(quant_conv2d_input, self.weight, self.scale, self.stride, self.padding, self.dilation,
                                     self.groups, output_dtype=self.output_dtype, bias=self.bias)
