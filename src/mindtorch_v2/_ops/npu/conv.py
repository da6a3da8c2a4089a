"""Rows of torch_npu's convolutions, their gradients, and the deformable one."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._ops.npu.quant import quantized
from mindtorch_v2._ops.npu.rows import FLOAT16, FLOAT32, INT32, INT64, dtype_of, grad_of, row, wide
from mindtorch_v2._ops.table import ops
from mindtorch_v2._tensor import Tensor


def _zeros(n: int) -> list[int]:
    return [0] * n


def _each(value: int | Sequence[int], n: int) -> Sequence[int]:
    """A number as a list of n of it."""
    return [value] * n if isinstance(value, int) else value


# ---- forward --------------------------------------------------------------------------------------------------------
for _name in ("npu_conv2d", "npu_conv3d", "npu_convolution"):
    @row(_name)
    def _conv(input: Tensor, weight: Tensor, bias: Tensor | None, stride: list[int], padding: list[int],
              dilation: list[int], groups: int) -> Tensor:
        """convolution."""
        return ops.convolution(input, weight, bias, stride, padding, dilation, False, _zeros(weight.dim() - 2), groups)

for _name in ("npu_conv_transpose2d", "npu_convolution_transpose"):
    @row(_name)
    def _transposed(input: Tensor, weight: Tensor, bias: Tensor | None, padding: list[int], output_padding: list[int],
                    stride: list[int], dilation: list[int], groups: int) -> Tensor:
        """Transposed convolution."""
        return ops.convolution(input, weight, bias, stride, padding, dilation, True, output_padding, groups)


# ---- gradients ------------------------------------------------------------------------------------------------------
def _grads(grad: Tensor, input: Tensor, weight: Tensor, stride: list[int], padding: list[int], dilation: list[int],
           transposed: bool, output_padding: list[int], groups: int,
           mask: Sequence[bool]) -> tuple[Tensor, Tensor, Tensor | None]:
    return ops._convolution_backward(grad, input, weight, stride, padding, dilation, transposed, output_padding, groups, mask)


for _name in ("npu_conv2d_backward", "npu_conv3d_backward", "npu_convolution_backward"):
    @row(_name)
    def _conv_backward(input: Tensor, grad_output: Tensor, weight: Tensor, stride: list[int], padding: list[int],
                       dilation: list[int], groups: int,
                       output_mask: tuple[bool, ...]) -> tuple[Tensor, Tensor, Tensor | None]:
        """The gradients of a convolution: of the input, the weight and the bias, where the mask requests them."""
        return _grads(grad_output, input, weight, stride, padding, dilation, False, _zeros(weight.dim() - 2), groups, output_mask)

for _name in ("npu_conv_transpose2d_backward", "npu_conv_transpose3d_backward", "npu_convolution_transpose_backward"):
    @row(_name)
    def _transposed_backward(input: Tensor, grad_output: Tensor, weight: Tensor, padding: list[int],
                             output_padding: list[int], stride: list[int], dilation: list[int], groups: int,
                             output_mask: tuple[bool, ...]) -> tuple[Tensor, Tensor, Tensor | None]:
        """The gradients of a transposed convolution: of the input, the weight and the bias."""
        return _grads(grad_output, input, weight, stride, padding, dilation, True, output_padding, groups, output_mask)


@row()
def slow_conv_dilated2d_backward(grad_output: Tensor, input: Tensor, weight: Tensor, kernel_size: list[int],
                                 stride: list[int], padding: list[int], dilation: list[int],
                                 output_mask: tuple[bool, ...]) -> tuple[Tensor, Tensor, Tensor | None]:
    """The gradients of a dilated convolution."""
    return _grads(grad_output, input, weight, stride, padding, dilation, False, [0, 0], 1, output_mask)


@row()
def slow_conv_transpose2d_backward(grad_output: Tensor, input: Tensor, weight: Tensor, kernel_size: list[int],
                                   stride: list[int], padding: list[int], output_padding: list[int],
                                   dilation: list[int],
                                   output_mask: tuple[bool, ...]) -> tuple[Tensor, Tensor, Tensor | None]:
    """The gradients of a transposed convolution."""
    return _grads(grad_output, input, weight, stride, padding, dilation, True, output_padding, 1, output_mask)


@row()
def _conv_depthwise2d_backward(grad_output: Tensor, input: Tensor, weight: Tensor, kernel_size: list[int],
                               stride: list[int], padding: list[int], dilation: list[int],
                               output_mask: tuple[bool, ...]) -> tuple[Tensor, Tensor]:
    """The gradients of a convolution of each channel alone: of the input and the weight."""
    return _grads(grad_output, input, weight, stride, padding, dilation, False, [0, 0], input.size(1), [*output_mask, False])[:2]


# ---- integers -------------------------------------------------------------------------------------------------------
@row()
def npu_quant_conv2d(input: Tensor, weight: Tensor, scale: Tensor, strides: Any, pads: Any, dilations: Any, groups: int,
                     offset_x: int, round_mode: str, output_dtype: int | _C.dtype, bias: Tensor | None,
                     offset: Tensor | None, input_dtype: Any, weight_dtype: Any) -> Tensor:
    """A convolution of int8 tensors, exactly, times a scale for each output channel, in float16 unless asked."""
    from_scale = scale if scale.is_floating_point() else (scale & 0xFFFFFFFF).to(INT32).view(FLOAT32)
    low = input.to(INT32) & 15
    high = (input.to(INT32) - low) >> 4          # float32 holds the sums of either part exactly, of whole int8 it does not

    strides, pads, dilations = (_each(v, 2) for v in (strides, pads, dilations))

    def part(x: Tensor) -> Tensor:
        return ops.convolution(x.to(FLOAT32), weight.to(FLOAT32), None, strides, pads, dilations, False, [0, 0], groups).to(INT32)
    total = part(high) * 16 + part(low)
    if bias is not None:
        total = total + bias.reshape(1, -1, 1, 1)
    y = total.to(FLOAT32) * wide(from_scale).reshape(1, -1, 1, 1)
    return quantized(y, dtype_of(output_dtype, FLOAT16))


# ---- deformable -----------------------------------------------------------------------------------------------------
def _sampled(input: Tensor, offset: Tensor, kernel: Sequence[int], stride: list[int], padding: list[int],
             dilation: int | Sequence[int], groups: int) -> Tensor:
    """(batch, channels, out height * kernel height, out width * kernel width): the items that the kernel covers."""
    n, c, height, width = input.shape
    kh, kw = kernel
    dilation = _each(dilation, 4)
    oh = (height + padding[0] + padding[1] - (kh - 1) * dilation[2] - 1) // stride[2] + 1
    ow = (width + padding[2] + padding[3] - (kw - 1) * dilation[3] - 1) // stride[3] + 1
    parts = wide(offset).reshape(n, 3, groups, kh, kw, oh, ow)
    lines = ops.arange(oh, device=input.device).reshape(1, 1, oh, 1) * stride[2] - padding[0] + \
        (ops.arange(kh, device=input.device) * dilation[2]).reshape(kh, 1, 1, 1)
    columns = ops.arange(ow, device=input.device).reshape(1, 1, 1, ow) * stride[3] - padding[2] + \
        (ops.arange(kw, device=input.device) * dilation[3]).reshape(1, kw, 1, 1)
    x, y = columns + parts[:, 0], lines + parts[:, 1]          # (n, groups, kh, kw, oh, ow)
    planes = wide(input).reshape(n, groups, c // groups, height * width)
    found = 0
    for dy in (0, 1):
        for dx in (0, 1):
            top, left = y.floor() + dy, x.floor() + dx
            share = (1 - (y - top).abs()) * (1 - (x - left).abs())
            inside = (top >= 0) & (top < height) & (left >= 0) & (left < width)
            place = (top.clamp(0, height - 1) * width + left.clamp(0, width - 1)).to(INT64)
            flat = place.reshape(n, groups, 1, -1).expand(-1, -1, c // groups, -1)
            found = found + planes.gather(-1, flat).reshape(n, groups, c // groups, kh, kw, oh, ow) * (share * inside).unsqueeze(2)
    found = found * parts[:, 2].unsqueeze(2)
    return found.reshape(n, c, kh, kw, oh, ow).permute(0, 1, 4, 2, 5, 3).reshape(n, c, oh * kh, ow * kw)


def _deformed(input: Tensor, weight: Tensor, offset: Tensor, bias: Tensor | None, kernel: Sequence[int],
              stride: list[int], padding: list[int], dilation: int | Sequence[int], groups: int,
              deformable_groups: int) -> tuple[Tensor, Tensor]:
    met = _sampled(input, offset, kernel, stride, padding, dilation, deformable_groups)
    out = ops.convolution(met, wide(weight), None if bias is None else wide(bias), kernel, [0, 0], [1, 1], False, [0, 0], groups)
    return out.to(input.dtype), met.to(input.dtype)


@row()
def npu_deformable_conv2d(input: Tensor, weight: Tensor, offset: Tensor, bias: Tensor | None,
                          kernel_size: Sequence[int], stride: list[int], padding: list[int], dilation: int | list[int],
                          groups: int, deformable_groups: int, modulated: bool) -> tuple[Tensor, Tensor]:
    """A convolution whose places are moved by offset (x, y, and a factor for each); and the items that the kernel met."""
    return _deformed(input, weight, offset, bias, kernel_size, stride, padding, dilation, groups, deformable_groups)


@row()
def npu_deformable_conv2dbk(input: Tensor, grad_output: Tensor, offset_out: Tensor, weight: Tensor, offset: Tensor,
                            kernel_size: list[int], stride: list[int], padding: list[int],
                            dilation: int | Sequence[int], groups: int, deformable_groups: int,
                            modulated: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of npu_deformable_conv2d: of the input, the weight, the offset and the bias."""
    def forward(x: Tensor, w: Tensor, o: Tensor) -> Tensor:
        return _deformed(x, w, o, None, kernel_size, stride, padding, dilation, groups, deformable_groups)[0]
    return *grad_of(forward, (input, weight, offset), (grad_output,)), grad_output.sum([0, 2, 3])
