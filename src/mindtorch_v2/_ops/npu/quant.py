"""Rows of torch_npu's quantisation: to integers by given scales and by scales found in the data, and back."""
from __future__ import annotations

from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._ops.npu.rows import (
    FLOAT16,
    FLOAT32,
    INT8,
    INT32,
    INT64,
    acl_number,
    call,
    dtype_of,
    is_int4,
    row,
    wide,
)
from mindtorch_v2._ops.npu.shape import scatter_update_
from mindtorch_v2._ops.table import ops
from mindtorch_v2._tensor import Tensor

_LIMITS = {"int8": (-128, 127), "uint8": (0, 255), "int32": (-2147483648, 2147483520)}    # what float32 holds of it
_INT4 = (-8, 7)


def quantized(x: Tensor, dtype: _C.dtype) -> Tensor:
    """Rounded to even, limited to what the dtype holds, and cast; floats of 8 bits are only cast."""
    if dtype._name not in _LIMITS:
        return x.to(dtype)
    return x.round().clamp(*_LIMITS[dtype._name]).to(dtype)


# ---- integers of four bits, eight in an int32 -----------------------------------------------------------------------
def packed(x: Tensor) -> Tensor:
    """Numbers from -8 to 7 along the last dim as an eighth as many int32, the first in the lowest bits."""
    if x.size(-1) % 8:
        raise RuntimeError(f"If dtype is quint4x2, the last dim of input must be divided by 8, got {list(x.shape)}")
    bits = x.to(INT64).bitwise_and(15).unflatten(-1, (-1, 8))
    word = (bits << ops.arange(0, 32, 4, device=x.device)).sum(-1)
    return ops.where(word >= 1 << 31, word - (1 << 32), word).to(INT32)


def unpacked(x: Any) -> Any:
    """The numbers of four bits in every int32 along the last dim."""
    nibbles = x.to(INT64).unsqueeze(-1) >> ops.arange(0, 32, 4, device=x.device) & 15
    return ops.where(nibbles > 7, nibbles - 16, nibbles).flatten(-2).to(INT8)


def _stored(x: Tensor, dst: int | _C.dtype | None) -> Tensor:
    """Scaled numbers as the dtype that an argument names."""
    if is_int4(dst):
        return packed(x.round().clamp(*_INT4))
    return quantized(x, dtype_of(dst, INT8))


def _most(dst: int | None) -> float:
    """The largest number of the dtype that an argument names."""
    if is_int4(dst):
        return _INT4[1]
    name = dtype_of(dst, INT8)._name
    return {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}.get(name) or _LIMITS[name][1]


def integers(x: Any) -> Tensor | None:
    """The integers that a tensor holds: itself, or those of four bits in an int32."""
    return unpacked(x) if x.dtype is INT32 else x


# ---- by given scales ------------------------------------------------------------------------------------------------
def along(v: Tensor, x: Tensor, axis: int) -> Tensor:
    """A vector under dim `axis` of x; anything else as it is."""
    if v is None or v.dim() != 1 or v.numel() == 1:
        return v
    shape = [1] * x.dim()
    shape[axis] = -1
    return v.reshape(shape)


@row()
def npu_quantize(input: Tensor, scales: Tensor, zero_points: Tensor | None, dtype: int | _C.dtype, axis: int,
                 div_mode: bool) -> Tensor:
    """round(x / scale + zero), one scale or one for each index of the axis; without div_mode round(x * scale + zero)."""
    x, scale = wide(input), wide(along(scales, input, axis))
    q = x / scale if div_mode else x * scale
    if zero_points is not None:
        q = q + wide(along(zero_points, input, axis))
    return _stored(q, dtype)


@row("_quantize_per_tensor_impl.out")
def _quantize_per_tensor_impl(inputs: Tensor, scales: Tensor, zero_points: Tensor, dtype: int,
                              result: Tensor) -> Tensor:
    """round(x / scale) + zero, written to result."""
    return result.copy_(npu_quantize(inputs, scales, zero_points, dtype, 0, True))


@row("_quantize_per_channel_impl.out")
def _quantize_per_channel_impl(inputs: Tensor, scales: Tensor, zero_points: Tensor, axis: int, dtype: int,
                               result: Tensor) -> Tensor:
    """round(x / scale) + zero with scales along an axis, written to result."""
    return result.copy_(npu_quantize(inputs, scales, zero_points, dtype, axis, True))


@row()
def npu_group_quant(x: Tensor, scale: Tensor, group_index: Tensor, offset: Tensor | None, dst_dtype: Any) -> Tensor:
    """round(x * scale + offset), the scale of the group that ends at or after the row: ends in group_index."""
    rows = ops.arange(x.size(0), device=x.device)
    group = (rows.unsqueeze(1) >= group_index.to(INT64).unsqueeze(0)).sum(1).clamp(max=scale.size(0) - 1)
    q = wide(x) * wide(scale)[group]
    if offset is not None:
        q = q + wide(offset)
    return _stored(q, dst_dtype)


@row()
def npu_quant_scatter(input: Tensor, indices: Tensor, updates: Tensor, quant_scales: Tensor,
                      quant_zero_points: Tensor | None, axis: int, quant_axis: int, reduce: str, dst_type: Any,
                      round_mode: str | None) -> Tensor:
    """scatter_update with updates that are quantised first."""
    return npu_quant_scatter_(input.clone(), indices, updates, quant_scales, quant_zero_points, axis, quant_axis, reduce,
                              dst_type, round_mode)


@row()
def npu_quant_scatter_(input: Tensor, indices: Tensor, updates: Tensor, quant_scales: Tensor,
                       quant_zero_points: Tensor | None, axis: int, quant_axis: int, reduce: str, dst_type: Any,
                       round_mode: str | None) -> Tensor:
    """scatter_update_ with updates that are quantised first."""
    q = wide(updates) / wide(along(quant_scales, updates, quant_axis))
    if quant_zero_points is not None:
        q = q + wide(along(quant_zero_points, updates, quant_axis))
    return scatter_update_(input, indices, quantized(q, input.dtype), axis)


# ---- back -----------------------------------------------------------------------------------------------------------
@call("anti_quant(Tensor x, Tensor scale, Tensor? offset, ScalarType dtype, int number) -> Tensor",
      rule=lambda x, scale, offset, dtype, number: ((*x.shape[:-1], x.size(-1) * (8 if x.dtype is INT32 else 1)), dtype),
      npu="aclnnAscendAntiQuant(x, scale, offset, number, False, out)")
def _anti_quant(x: Tensor, scale: Tensor, offset: Tensor | None, dtype: _C.dtype, number: int) -> Tensor:
    y = wide(integers(x))
    y = y if offset is None else y + wide(along(offset, y, -1))
    return (y * wide(along(scale, y, -1))).to(dtype)


@row()
def npu_anti_quant(x: Tensor, scale: Tensor, offset: Tensor | None, dst_dtype: int, src_dtype: Any) -> Tensor:
    """(x + offset) * scale in float16, or in the dtype that is asked for; an int32 holds eight integers of four bits."""
    dtype = dtype_of(dst_dtype, FLOAT16)
    return _anti_quant(x, scale, offset, dtype, acl_number(dtype))


@row()
def npu_dequant_bias(x: Tensor, weight_scale: Tensor, activation_scale: Tensor | None, bias: Tensor | None,
                     output_dtype: int) -> Tensor:
    """x * weight_scale * activation_scale of int32 x; an int32 bias is added before, any other after."""
    y = x if bias is None or bias.dtype is not INT32 else x + bias
    y = y.to(FLOAT32) * wide(weight_scale)
    if activation_scale is not None:
        y = y * activation_scale.unsqueeze(1)
    if bias is not None and bias.dtype is not INT32:
        y = y + wide(bias)
    return y.to(dtype_of(output_dtype, FLOAT16))


# ---- by scales found in the data ------------------------------------------------------------------------------------
def _smoothed(x: Tensor, smooth: Tensor | None, group_index: Any) -> Tensor:
    """x times a smoothing scale for each feature: one vector, or one for each group of rows by their ends."""
    if smooth is None:
        return wide(x)
    if group_index is None:
        return wide(x) * wide(smooth)
    rows = ops.arange(x.numel() // x.size(-1), device=x.device)
    group = (rows.unsqueeze(1) >= group_index.to(INT64).unsqueeze(0)).sum(1).clamp(max=smooth.size(0) - 1)
    return wide(x) * wide(smooth)[group].reshape(x.shape)


def _span(quant_mode: str) -> list[int] | None:
    """The dims that share a scale."""
    return {"pertoken": [-1], "perchannel": [-2], "pertensor": None}[quant_mode]


def _reduced(reduce: _C.Op, x: Tensor, dims: list[int] | None) -> Tensor:
    return reduce(x, [*range(x.dim())] if dims is None else dims, True)


def _scale_shape(found: Tensor, dims: list[int] | None) -> Tensor:
    return found.reshape(1) if dims is None else found.squeeze(dims[0])


@call("dynamic_quant(Tensor x, Tensor? smooth) -> (Tensor, Tensor)",
      rule=lambda x, smooth: [(x.shape, INT8), (x.shape[:-1], FLOAT32)] if x.dtype.itemsize == 2 and x.dim() > 1 else None,
      npu="aclnnDynamicQuant(x, smooth, out0, out1)")
def _dynamic_quant(x: Tensor, smooth: Tensor | None) -> tuple[Tensor, Tensor]:
    return by_rows(_smoothed(x, smooth, None))


def by_rows(x: Tensor, dst: int | None = None) -> tuple[Tensor, Tensor]:
    """Integers with a scale for each row of the last dim, and those scales; a row of zeros stays zeros."""
    scale = x.abs().amax(-1, True) / _most(dst)
    q = ops.where(scale == 0, ops.zeros_like(x), x / scale)
    return _stored(q, dst), scale.squeeze(-1)


@row()
def npu_dynamic_quant(input: Tensor, smooth_scales: Tensor | None, group_index: Tensor | None, dst_type: Any,
                      quant_mode: str, dst_type_max: float) -> tuple[Tensor, Tensor]:
    """Integers with a scale for each row (or column, or for all), and those scales."""
    if quant_mode == "pertoken" and group_index is None and not is_int4(dst_type) and dtype_of(dst_type, INT8) is INT8:
        return _dynamic_quant(input, smooth_scales)
    x, dims = _smoothed(input, smooth_scales, group_index), _span(quant_mode)
    scale = _reduced(ops.amax, x.abs(), dims) / (dst_type_max or _most(dst_type))
    q = ops.where(scale == 0, ops.zeros_like(x), x / scale)
    return _stored(q, dst_type), _scale_shape(scale, dims)


@row()
def npu_dynamic_quant_asymmetric(input: Tensor, smooth_scales: Tensor | None, group_index: Tensor | None, dst_type: Any,
                                 quant_mode: str, dst_type_max: float) -> tuple[Tensor, Tensor, Tensor]:
    """Integers with a scale and an offset for each row (or column, or for all), those scales, and those offsets."""
    x, dims = _smoothed(input, smooth_scales, group_index), _span(quant_mode)
    low, high = _INT4 if is_int4(dst_type) else _LIMITS[dtype_of(dst_type, INT8)._name]
    most, least = _reduced(ops.amax, x, dims), _reduced(ops.amin, x, dims)
    scale = (most - least) / (high - low)
    offset = high - most / scale
    return _stored(x / scale + offset, dst_type), _scale_shape(scale, dims), _scale_shape(offset, dims)


@row()
def npu_dynamic_block_quant(x: Tensor, min_scale: float, round_mode: str, dst_type: int, row_block_size: int,
                            col_block_size: int, dst_type_max: float) -> tuple[Tensor, Tensor]:
    """Numbers with a scale for each block of rows and columns, and those scales."""
    *lead, rows, cols = x.shape
    pad = [0, -cols % col_block_size, 0, -rows % row_block_size]
    blocks = ops.constant_pad_nd(wide(x), pad, 0).unflatten(-1, (-1, col_block_size)).unflatten(-3, (-1, row_block_size))
    scale = (blocks.abs().amax([-3, -1], True) / (dst_type_max or _most(dst_type))).clamp(min=min_scale)
    q = ops.where(scale == 0, ops.zeros_like(blocks), blocks / scale)
    q = q.flatten(-4, -3).flatten(-2)[..., :rows, :cols]
    return _stored(q, dst_type), scale.squeeze(-1).squeeze(-2)


@row()
def npu_gelu_quant(input: Tensor, input_scale: Tensor | None, input_offset: Tensor | None, approximate: str,
                   quant_mode: str, dst_type: Any, round_mode: str) -> tuple[Tensor, Tensor]:
    """gelu as integers: by scales of each row, after a smoothing scale, or by a given scale; and the scales."""
    y = ops.gelu(wide(input), approximate=approximate)
    if quant_mode == "dynamic":
        return by_rows(y if input_scale is None else y * wide(input_scale), dst_type)
    q = y * wide(input_scale)
    q = q if input_offset is None else q + wide(input_offset)
    return _stored(q, dst_type), ops.empty([1], dtype=FLOAT32, device=input.device)


def _row_groups(count: int, group_index: Any, is_count: Any, device: Any) -> Any:
    """The group of each of `count` rows; rows beyond the last group count as its own."""
    ends = group_index.to(INT64).cumsum(0) if is_count else group_index.to(INT64)
    return (ops.arange(count, device=device).unsqueeze(1) >= ends.unsqueeze(0)).sum(1).clamp(max=ends.numel() - 1)


def swiglu(x: Tensor, activate_left: bool, dim: int = -1) -> Tensor:
    """silu of one half, times the other: of the second unless activate_left."""
    left, right = x.chunk(2, dim)
    return ops.silu(left) * right if activate_left else ops.silu(right) * left


@row()
def npu_swiglu_quant(x: Tensor, smooth_scales: Tensor | None, offsets: Tensor | None, group_index: Tensor | None,
                     activate_left: bool, quant_mode: int, group_list_type: int,
                     dst_type: Any) -> tuple[Tensor, Tensor]:
    """swiglu as integers: by scales of each row after smoothing (1) or by given scales (0), by group; and the scales."""
    y = swiglu(wide(x), activate_left)
    if group_index is None or smooth_scales is None:
        group = slice(0, 1)
    else:
        group = _row_groups(y.numel() // y.size(-1), group_index, group_list_type == 1, x.device)
    if smooth_scales is not None:
        smooth = wide(smooth_scales)
        smooth = smooth.unsqueeze(-1) if smooth.dim() == 1 and smooth.numel() != y.size(-1) else smooth
        smooth = (smooth if smooth.dim() == 2 else smooth.unsqueeze(0))[group]
        y = (y.reshape(-1, y.size(-1)) * smooth).reshape(y.shape)
    if quant_mode == 1:
        made, scales = by_rows(y, dst_type)
        return made, scales.reciprocal()         # CANN's kernel writes what it multiplies by, unlike that of npu_dynamic_quant
    if offsets is not None:
        zero = wide(offsets)
        zero = zero.unsqueeze(-1) if zero.dim() == 1 and zero.numel() != y.size(-1) else zero
        y = (y.reshape(-1, y.size(-1)) + (zero if zero.dim() == 2 else zero.unsqueeze(0))[group]).reshape(y.shape)
    return _stored(y, dst_type), ops.empty(x.shape[:-1], dtype=FLOAT32, device=x.device)


@row()
def npu_dequant_swiglu_quant(x: Tensor, weight_scale: Tensor | None, activation_scale: Tensor | None,
                             bias: Tensor | None, quant_scale: Tensor | None, quant_offset: Tensor | None,
                             group_index: Tensor | None, activate_left: bool, quant_mode: int, dst_type: Any,
                             round_mode: int | None, activate_dim: int | None, swiglu_mode: int, clamp_limit: float,
                             glu_alpha: float, glu_bias: float) -> tuple[Tensor, Tensor]:
    """int32 x scaled back to floats (or floats as they are), swiglu, then integers; and their scales."""
    y = x if bias is None or bias.dtype is not INT32 else x + bias
    group = None if group_index is None else _row_groups(x.size(0), group_index, True, x.device)

    def of_group(v: Tensor) -> Tensor:
        return wide(v) if v.dim() < 2 else wide(v)[group] if group is not None else wide(v)[0]
    y = wide(y)
    if weight_scale is not None:
        y = y * of_group(weight_scale)
    if activation_scale is not None:
        y = y * activation_scale.reshape(-1, 1)
    if bias is not None and bias.dtype is not INT32:
        y = y + wide(bias)
    dim = -1 if activate_dim is None else activate_dim
    if swiglu_mode == 1:
        parts = y.unflatten(-1, (-1, 2)).unbind(-1)
        gate, up = parts[0].clamp(max=clamp_limit), parts[1].clamp(-clamp_limit, clamp_limit)
        y = gate * (gate * glu_alpha).sigmoid() * (up + glu_bias)
    else:
        y = swiglu(y, activate_left, dim)
    if quant_mode == 1:
        return by_rows(y if quant_scale is None else y * of_group(quant_scale), dst_type)
    q = y if quant_scale is None else y / of_group(quant_scale)
    q = q if quant_offset is None else q + of_group(quant_offset)
    return _stored(q, dst_type), ops.empty(y.shape[:-1], dtype=FLOAT32, device=x.device)


# ---- the scale that a quantised product takes as an integer ---------------------------------------------------------
@row(rule=lambda scale, offset, round_mode: None if round_mode or offset is not None and offset.numel() > scale.numel() else
     (scale.shape, INT64), npu="aclnnTransQuantParamV2(scale, offset, out)")
def npu_trans_quant_param(scale: Tensor, offset: Tensor | None, round_mode: int | None) -> Tensor:
    """The bits of float32 scales, cut to 19 of them (or rounded), with offsets of 9 bits, as int64."""
    bits = scale.view(INT32).to(INT64) & 0xFFFFFFFF
    if round_mode:
        bits = bits + 0xFFF + (bits >> 13 & 1)
    made = bits & 0xFFFFE000
    if offset is not None:
        made = made | (offset.round().clamp(-256, 255).to(INT64) & 0x1FF) << 37
    return made | 1 << 46


def scale_of(scale: Tensor) -> Tensor:
    """The scales that a product takes: floats, or the integers of npu_trans_quant_param."""
    if scale.dtype is not INT64:
        return wide(scale)
    low = scale & 0xFFFFFFFF
    return ops.where(low >= 1 << 31, low - (1 << 32), low).to(INT32).view(FLOAT32)


@row()
def npu_convert_weight_to_int4pack(weight: Tensor, inner_k_tiles: int) -> Tensor:
    """int32 numbers from -8 to 7 as an eighth as many int32."""
    return packed(weight)


@row()
def npu_kronecker_quant(x: Tensor, kronecker_p1: Tensor, kronecker_p2: Tensor, clip_ratio: float | None, dst_dtype: Any,
                        dst_type_max: float | None) -> tuple[Tensor, Tensor]:
    """p1 @ x @ p2 of each matrix, as integers of four bits with one scale a matrix, and those scales."""
    y = ops.matmul(ops.matmul(wide(kronecker_p1), wide(x)), wide(kronecker_p2))
    scale = y.abs().amax([-2, -1], True) / (dst_type_max or _INT4[1]) * (1.0 if clip_ratio is None else clip_ratio)
    return packed((y / scale).round().clamp(*_INT4)), scale.reshape(-1)
