"""Rows of torch_npu's floats of 8 and 4 bits whose blocks share a scale: the MX formats, and blocks of rows and columns."""
from __future__ import annotations

from typing import Any, NamedTuple

from mindtorch_v2 import _C
from mindtorch_v2._ops.npu.quant import quantized
from mindtorch_v2._ops.npu.rows import BFLOAT16, FLOAT32, INT8, INT32, INT64, UINT8, dtype_of, row, wide
from mindtorch_v2._ops.table import ops
from mindtorch_v2._tensor import Tensor

__all__: list[str] = []


class _Low(NamedTuple):
    """A type: the exponent and the value of its largest number; those of 4 bits have no dtype, and lie two in a byte."""

    dtype: _C.dtype | None
    emax: int
    most: float


_FOUR_BITS = _Low(None, 2, 6.0)
_LOW = {"float8_e4m3fn": _Low(_C._dtype_named("float8_e4m3fn"), 8, 448.0),
        "float8_e5m2": _Low(_C._dtype_named("float8_e5m2"), 15, 57344.0)}


def _low(op: str, dst: Any) -> _Low:
    """The type that an argument names: a dtype, torch's number of one or torch_npu's (296 is FLOAT4_E2M1)."""
    if dst == 296 or getattr(dst, "_name", "") == "float4_e2m1fn_x2":
        return _FOUR_BITS
    name = dtype_of(dst)._name
    if name not in _LOW:
        raise RuntimeError(f"[{op}] expected float8_e4m3fn, float8_e5m2 or float4_e2m1fn_x2, got {name}")
    return _LOW[name]


def _whole(x: Tensor, mode: str) -> Tensor:
    if mode in ("", "rint"):
        return x.round()
    if mode == "floor":
        return x.floor()
    if mode == "round":                                  # ties away from zero
        return (x.abs() + 0.5).floor() * x.sign()
    raise RuntimeError(f"[torch_npu] round_mode {mode} is none of rint, round and floor")


def _four_bits(x: Tensor, mode: str) -> Tensor:
    """The numbers 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives by their codes, two in a byte, the first in the low bits."""
    size = x.abs().clamp(max=6.0)
    unit = ops.where(size < 2, 0.5, ops.where(size < 4, 1.0, 2.0))
    value = (_whole(x.clamp(-6.0, 6.0) / unit, mode) * unit).abs().clamp(max=6.0)
    code = ops.where(value <= 2, value * 2, ops.where(value < 4, 5.0, ops.where(value < 6, 6.0, 7.0)))
    code = code.to(INT32) + 8 * ops.signbit(x).to(INT32)
    return (code[..., 0::2] + 16 * code[..., 1::2]).to(UINT8)


def _store(x: Tensor, low: _Low, mode: str) -> Tensor:
    """Rounded to the type; what lies beyond its range becomes its largest number."""
    return _four_bits(x, mode) if low.dtype is None else x.clamp(-low.most, low.most).to(low.dtype)


# ---- MX: a power of two for every block, as an exponent of 8 bits ------------------------------------------------------
class _Mx(NamedTuple):
    low: _Low
    alg: int = 0           # 0: the exponent of the largest item, less that of the type's; 1, 2: of largest / most, rounded up
    most: float = 0.0
    least: float = 0.0     # of a block's largest item
    block: int = 32


def _exponents(largest: Tensor, mx: _Mx) -> Tensor:
    """The exponents, with a bias of 127, as int32; 255 is no number."""
    base = largest if mx.alg == 0 else largest.clamp(min=mx.least) / (mx.most or mx.low.most)
    bits = base.contiguous().view(INT32)
    exponent, fraction = bits >> 23, bits & 0x7FFFFF
    if mx.alg == 0:
        made = (exponent - mx.low.emax).clamp(min=0)
    else:
        tiny = fraction > 0x400000 if mx.alg == 1 else fraction < 0
        made = exponent + ops.where(exponent == 0, tiny, (fraction > 0) & (exponent < 254)).to(INT32)
    return ops.where(exponent >= 255, 255, made)


def _power(exponent: Tensor) -> Tensor:
    """2 ** (exponent - 127) without rounding; no number for 255."""
    bits = ops.where(exponent == 0, 0x400000, exponent << 23)
    return ops.where(exponent == 255, float("nan"), bits.to(INT32).view(FLOAT32))


def _scaled(x: Tensor, dim: int, mx: _Mx) -> tuple[Tensor, Tensor]:
    """x over the powers of its blocks along a dim, and their exponents: pairs of blocks along the dim, 2 at the end."""
    dim = dim % x.dim()
    rows = wide(x).movedim(dim, -1)
    n = rows.size(-1)
    used = -(-n // mx.block)
    blocks = ops.constant_pad_nd(rows, [0, -n % (2 * mx.block)], 0).unflatten(-1, (-1, mx.block))
    exponents = _exponents(blocks.abs().amax(-1), mx)
    exponents = ops.constant_pad_nd(exponents[..., :used], [0, used % 2], 0)
    q = (blocks / _power(exponents).unsqueeze(-1)).flatten(-2)[..., :n].movedim(-1, dim)
    return q, exponents.unflatten(-1, (-1, 2)).movedim(-2, dim).to(UINT8).contiguous()


def _stored(x: Tensor, dim: int, mx: _Mx, mode: str) -> tuple[Tensor, Tensor]:
    q, exponents = _scaled(x, dim, mx)
    return _store(q, mx.low, mode), exponents


def _ends(groups: Tensor, counts: bool, rows: int) -> list[int]:
    ends = groups.to(INT64).cumsum(0) if counts else groups
    return [min(end, rows) for end in ends.tolist()]


def _stored_in_groups(x: Tensor, ends: list[int], mx: _Mx, mode: str) -> tuple[Tensor, Tensor]:
    """Along the rows of a matrix, each group on its own; group g begins at pair start // (2 * block) + g."""
    pair = 2 * mx.block
    exponents = ops.zeros([x.size(0) // pair + len(ends), x.size(1), 2], dtype=UINT8, device=x.device)
    parts, start = [], 0
    for g, end in enumerate(ends):
        q, own = _scaled(x[start:end], 0, mx)
        parts.append(q)
        exponents[start // pair + g:start // pair + g + own.size(0)].copy_(own)
        start = end
    return _store(ops.cat([*parts, wide(x[start:])]), mx.low, mode), exponents


def _two_dims(x: Tensor, mx: _Mx, mode: str, groups: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Along the last dim, and along the one before it, where groups of rows are scaled on their own."""
    first = _stored(x, -1, mx, mode)
    return *first, *(_stored(x, -2, mx, mode) if groups is None
                     else _stored_in_groups(x, _ends(groups, False, x.size(0)), mx, mode))


@row()
def npu_dynamic_mx_quant(input: Tensor, axis: int, round_mode: str, dst_type: Any, block_size: int, scale_alg: int | None,
                         dst_type_max: float, max_low_bound: float) -> tuple[Tensor, Tensor]:
    """The input over powers of two, one for every block along the axis; and their exponents as bytes."""
    low = _low("npu_dynamic_mx_quant", dst_type)
    return _stored(input, axis, _Mx(low, scale_alg or 0, dst_type_max, max_low_bound, block_size), round_mode)


@row()
def npu_dynamic_mx_quant_with_dual_axis(input: Tensor, round_mode: str, dst_type: Any, scale_alg: int,
                                        dst_type_max: float | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """npu_dynamic_mx_quant along the last dim, and along the one before it."""
    low = _low("npu_dynamic_mx_quant_with_dual_axis", dst_type)
    return _two_dims(input, _Mx(low, scale_alg, dst_type_max or 0.0), round_mode)


@row()
def npu_grouped_dynamic_mx_quant(x: Tensor, group_index: Tensor, round_mode: str, dst_type: Any, blocksize: int,
                                 scale_alg: int | None, dst_type_max: float | None) -> tuple[Tensor, Tensor]:
    """npu_dynamic_mx_quant along the rows of a matrix, each group on its own: ends in group_index."""
    mx = _Mx(_low("npu_grouped_dynamic_mx_quant", dst_type), scale_alg or 0, dst_type_max or 0.0, 0.0, blocksize)
    return _stored_in_groups(x, _ends(group_index, False, x.size(0)), mx, round_mode)


@row()
def npu_dynamic_block_mx_quant(input: Tensor, round_mode: str, dst_type: Any, scale_alg: int,
                               dst_type_max: float) -> tuple[Tensor, Tensor, Tensor]:
    """The input over powers of two, one for every square of 32; and their exponents along both of the last dims."""
    mx = _Mx(_low("npu_dynamic_block_mx_quant", dst_type), scale_alg, dst_type_max)
    rows, columns = input.shape[-2:]
    x = ops.constant_pad_nd(wide(input), [0, -columns % 64, 0, -rows % 64], 0)
    largest = x.abs().unflatten(-1, (-1, 32)).unflatten(-3, (-1, 32)).amax(-1).amax(-2)
    exponents = _exponents(largest, mx)
    by_row = exponents.repeat_interleave(32, -2)                 # (rows, squares across)
    by_column = exponents.repeat_interleave(32, -1)              # (squares down, columns)
    q = (x / _power(by_row).repeat_interleave(32, -1))[..., :rows, :columns]
    across = by_row[..., :rows, :].unflatten(-1, (-1, 2))
    down = by_column[..., :columns].unflatten(-2, (-1, 2)).movedim(-2, -1)
    return _store(q, mx.low, round_mode), across.to(UINT8).contiguous(), down.to(UINT8).contiguous()


@row()
def npu_dynamic_dual_level_mx_quant(input: Tensor, smooth_scale: Tensor | None,
                                    round_mode: str) -> tuple[Tensor, Tensor, Tensor]:
    """Blocks of 512 over their largest item as floats, then blocks of 32 over powers of two, in 4 bits."""
    x = wide(input if smooth_scale is None else (wide(input) * wide(smooth_scale)).to(input.dtype))
    n = x.size(-1)
    blocks = ops.constant_pad_nd(x, [0, -n % 512], 0).unflatten(-1, (-1, 512))
    scale = blocks.abs().amax(-1) / _FOUR_BITS.most
    part = ops.where(scale.unsqueeze(-1) == 0, 0.0, blocks / scale.unsqueeze(-1)).flatten(-2)[..., :n]
    y, exponents = _stored(part.to(input.dtype), -1, _Mx(_FOUR_BITS), round_mode)
    return y, scale, exponents


@row()
def npu_anti_mx_quant(x: Tensor, mxscale: Tensor, axis: int | None, dst_type: Any, src_type: Any) -> Tensor:
    """What npu_dynamic_mx_quant took: 8-bit floats times the powers of their blocks."""
    return _times_powers(x, mxscale, (-1 if axis is None else axis) % x.dim()).to(dtype_of(dst_type, BFLOAT16))


def _times_powers(x: Tensor, exponents: Tensor, dim: int) -> Tensor:
    """8-bit floats times the powers of their blocks along a dim."""
    rows = wide(x).movedim(dim, -1)
    powers = _power(exponents.view(UINT8).to(INT32).movedim(dim, -2).flatten(-2)).repeat_interleave(32, -1)
    return (rows * powers[..., :rows.size(-1)]).movedim(-1, dim)


@row()
def npu_add_quant_matmul_(input: Tensor, x1: Tensor, x2: Tensor, x2_scale: Tensor, x1_scale: Tensor | None,
                          group_sizes: Any, *dtypes: Any) -> Tensor:
    """Adds the product of two matrices in MX formats, both scaled along the dim that is added up, to the input."""
    if x1_scale is None:
        raise RuntimeError("[npu_add_quant_matmul] expected x1_scale, got None")
    return input.add_(ops.matmul(_times_powers(x1, x1_scale, 1), _times_powers(x2, x2_scale, 0)).to(input.dtype))


@row()
def npu_add_quant_matmul(input: Tensor, x1: Tensor, x2: Tensor, x2_scale: Tensor, x1_scale: Tensor | None,
                         group_sizes: Any, *dtypes: Any) -> Tensor:
    """The input plus the product of two matrices in MX formats."""
    return npu_add_quant_matmul_(input.clone(), x1, x2, x2_scale, x1_scale=x1_scale)


# ---- norms and gated activations before it ------------------------------------------------------------------------------
def _normed(x: Tensor, gamma: Tensor, beta: Tensor | None, epsilon: float) -> Tensor:
    y = x * (x.square().mean(-1, True) + epsilon).rsqrt() * wide(gamma)
    return y if beta is None else y + wide(beta)


@row()
def npu_rms_norm_dynamic_mx_quant(x: Tensor, gamma: Tensor, beta: Tensor | None, epsilon: float, scale_alg: int,
                                  round_mode: str, dst_type: Any) -> tuple[Tensor, Tensor, Tensor]:
    """npu_dynamic_mx_quant of a norm by the root of the mean square, along the last dim; no rstd."""
    mx = _Mx(_low("npu_rms_norm_dynamic_mx_quant", dst_type), scale_alg)
    return *_stored(_normed(wide(x), gamma, beta, epsilon), -1, mx, round_mode), ops.empty([0], device=x.device)


@row()
def npu_add_rms_norm_dynamic_mx_quant(x1: Tensor, x2: Tensor, gamma: Tensor, beta: Tensor | None, epsilon: float,
                                      scale_alg: int, round_mode: str,
                                      dst_type: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """npu_rms_norm_dynamic_mx_quant of a sum; the sum, the exponents and no rstd."""
    mx = _Mx(_low("npu_add_rms_norm_dynamic_mx_quant", dst_type), scale_alg)
    total = wide(x1) + wide(x2)
    y, exponents = _stored(_normed(total, gamma, beta, epsilon), -1, mx, round_mode)
    return y, total.to(x1.dtype), exponents, ops.empty([0], device=x1.device)


def _gated(x: Tensor, dim: int = -1, left: bool = True, mode: int = 0, limit: float = 0.0, alpha: float = 1.0,
           bias: float = 0.0) -> Tensor:
    """silu(a) * b of halves along a dim; modes 1 (neighbours) and 2: both limited, a * sigmoid(alpha a) * (b + bias)."""
    x = wide(x)
    if mode == 1:
        pairs = x.unflatten(dim % x.dim(), (-1, 2))
        a, b = pairs.select(dim % x.dim() + 1, 0), pairs.select(dim % x.dim() + 1, 1)
    else:
        a, b = x.chunk(2, dim) if left else x.chunk(2, dim)[::-1]
    if mode == 0:
        return ops.silu(a) * b
    a, b = a.clamp(max=limit), b.clamp(-limit, limit)
    return a * (a * alpha).sigmoid() * (b + bias)


@row()
def npu_swiglu_mx_quant(x: Tensor, group_index: Tensor | None, activate_dim: int, activate_left: bool, swiglu_mode: int,
                        clamp_limit: float, glu_alpha: float, glu_bias: float, group_mode: int, axis: int, dst_type: Any,
                        round_mode: str, scale_alg: int, max_dtype_value: float) -> tuple[Tensor, Tensor]:
    """npu_dynamic_mx_quant of silu(a) * b; groups of rows, given as counts, are scaled on their own along dim 0."""
    if swiglu_mode not in (0, 1, 2):
        raise NotImplementedError(f"[npu_swiglu_mx_quant] swiglu_mode {swiglu_mode} is not offered")
    mx = _Mx(_low("npu_swiglu_mx_quant", dst_type), scale_alg, max_dtype_value)
    y = _gated(x, activate_dim, activate_left, swiglu_mode, clamp_limit, glu_alpha, glu_bias)
    if group_index is not None and axis % y.dim() == 0:
        return _stored_in_groups(y, _ends(group_index, True, y.size(0)), mx, round_mode)
    return _stored(y, axis, mx, round_mode)


@row()
def npu_swiglu_mx_quant_with_dual_axis(x: Tensor, group_index: Tensor | None, activate_left: bool, round_mode: str,
                                       scale_alg: int, dst_type: Any,
                                       dst_type_max: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """npu_dynamic_mx_quant_with_dual_axis of silu(a) * b, the halves of the last dim."""
    mx = _Mx(_low("npu_swiglu_mx_quant_with_dual_axis", dst_type), scale_alg, dst_type_max)
    return _two_dims(_gated(x, -1, activate_left), mx, round_mode, group_index)


def _gated_slope(g: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    s = a.sigmoid()
    return g * b * s * (1 + a * (1 - s)), g * a * s


@row()
def _npu_swiglu_backward_mx_quant_with_dual_axis(x: Tensor, y_grad: Tensor, group_index: Tensor | None, activate_left: bool,
                                                 round_mode: str, scale_alg: int, dst_type: Any,
                                                 dst_type_max: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """npu_dynamic_mx_quant_with_dual_axis of the gradient of silu(a) * b."""
    mx = _Mx(_low("_npu_swiglu_backward_mx_quant_with_dual_axis", dst_type), scale_alg, dst_type_max)
    halves = wide(x).chunk(2, -1)
    slopes = _gated_slope(wide(y_grad), *(halves if activate_left else halves[::-1]))
    return _two_dims(ops.cat(slopes if activate_left else slopes[::-1], -1), mx, round_mode, group_index)


@row()
def npu_swiglu_group_quant_backward(grad_y: Tensor, x: Tensor, weight: Tensor | None, y_origin: Tensor | None,
                                    group_index: Tensor | None, clamp_limit: float) -> tuple[Tensor, Tensor]:
    """The gradient of silu(a) * b times a weight of each row, both limited where a limit is given; and of the weights."""
    rows = grad_y.numel() // grad_y.size(-1)
    counted = rows if group_index is None else min(int(group_index.sum()), rows)
    kept = (ops.arange(rows, device=x.device) < counted).reshape([*grad_y.shape[:-1], 1])
    g = ops.where(kept, wide(grad_y), 0.0)
    weighted = g if weight is None else g * wide(weight).reshape([*grad_y.shape[:-1], 1])
    a, b = wide(x).chunk(2, -1)
    limit = clamp_limit if clamp_limit > 0 else float("inf")
    da, db = _gated_slope(weighted, a.clamp(max=limit), b.clamp(-limit, limit))
    made = ops.cat([da * (a < limit), db * (b.abs() < limit)], -1).to(x.dtype)
    if weight is None:
        return made, ops.empty([0], device=x.device)
    return made, (g * wide(y_origin)).sum(-1).reshape(weight.shape)


# ---- scales that are floats --------------------------------------------------------------------------------------------
@row()
def npu_grouped_dynamic_block_quant(x: Tensor, group_list: Tensor, min_scale: float, round_mode: str, dst_type: Any,
                                    row_block_size: int, col_block_size: int, group_list_type: int,
                                    dst_type_max: float) -> tuple[Tensor, Tensor]:
    """Blocks of rows by columns over their largest item, groups of rows on their own; group g begins at start // rows + g."""
    low = _low("npu_grouped_dynamic_block_quant", dst_type)
    rows, columns = x.shape
    ends = _ends(group_list, group_list_type == 1, rows)
    scales = ops.zeros([rows // row_block_size + len(ends), -(-columns // col_block_size)], device=x.device)
    parts, start = [], 0
    for g, end in enumerate(ends):
        own = ops.constant_pad_nd(wide(x[start:end]), [0, -columns % col_block_size, 0, -(end - start) % row_block_size], 0)
        blocks = own.unflatten(1, (-1, col_block_size)).unflatten(0, (-1, row_block_size))
        scale = blocks.abs().amax((1, 3)) / low.most
        scale = scale if min_scale == 0 else scale.clamp(max=1 / min_scale)
        q = ops.where(scale[:, None, :, None] == 0, 0.0, blocks / scale[:, None, :, None])
        parts.append(q.flatten(2).flatten(0, 1)[:end - start, :columns])
        scales[start // row_block_size + g:start // row_block_size + g + scale.size(0)].copy_(scale)
        start = end
    return _store(ops.cat([*parts, wide(x[start:])]), low, round_mode), scales


@row()
def npu_quant_max(x: Tensor, scale: Tensor, round_mode: str, dst_dtype: Any,
                  group_list: Tensor | None) -> tuple[Tensor, Tensor]:
    """x times a scale, as 8-bit floats, and the largest |x|; in groups of rows where their ends are given."""
    low = _low("npu_quant_max", dst_dtype)
    ends = [x.size(0)] if group_list is None else _ends(group_list, False, x.size(0))
    parts, most, start = [], [], 0
    for g, end in enumerate(ends):
        parts.append(wide(x[start:end]) * wide(scale)[g])
        most.append(wide(x[start:end]).abs().amax())
        start = end
    return _store(ops.cat(parts), low, round_mode), ops.stack(most).to(x.dtype)


@row()
def npu_rotate_quant(x: Tensor, rotation: Tensor, alpha: Tensor | None, dst_dtype: Any, axis: int | None,
                     round_mode: str | None, scale_alg: int | None, dst_type_max: float | None,
                     transpose_y: bool | None) -> tuple[Tensor, Tensor]:
    """Pieces of rows by a square matrix, then quantised: to int8 by the largest item of each row, or by MX blocks."""
    if alpha is not None or transpose_y or (axis is not None and axis != -1):
        raise NotImplementedError("[npu_rotate_quant] alpha, transpose_y and an axis other than -1 are not offered")
    size = rotation.size(0)
    y = ops.matmul(wide(x).reshape(-1, size), wide(rotation)).reshape(x.shape)
    if dst_dtype is not None and dst_dtype != 296 and dtype_of(dst_dtype) is INT8:
        dst_dtype = None
    if dst_dtype is not None:
        return _stored(y, -1, _Mx(_low("npu_rotate_quant", dst_dtype), scale_alg or 0, dst_type_max or 0.0), round_mode or "")
    scale = y.abs().amax(-1) / 127
    return quantized(ops.where(scale.unsqueeze(-1) == 0, 0.0, y / scale.unsqueeze(-1)), INT8), scale
