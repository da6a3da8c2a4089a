"""Rows of torch_npu's matrix products: plain, of integers with scales, with integer weights, grouped, and feed-forward layers."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._ops.npu.quant import by_rows, integers, quantized, scale_of, swiglu, unpacked
from mindtorch_v2._ops.npu.rows import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    INT8,
    INT32,
    INT64,
    call,
    dtype_of,
    grad_of,
    row,
    wide,
)
from mindtorch_v2._ops.table import ops
from mindtorch_v2._tensor import Tensor

_EXACT = 8192                                    # terms of 4 bits times 8 bits whose sum float32 holds exactly


def integer_matmul(a: Any, b: Any) -> Any:
    """The exact product of int8 matrices as int32; float32 alone would round sums beyond 2^24."""
    a, b = integers(a), integers(b)
    low = a.to(INT32) & 15
    high = (a.to(INT32) - low) >> 4
    total = None
    for start in range(0, max(a.size(-1), 1), _EXACT):
        rows = b.narrow(-2, start, min(_EXACT, b.size(-2) - start)).to(FLOAT32)
        parts = [ops.matmul(x.narrow(-1, start, rows.size(-2)).to(FLOAT32), rows).to(INT32) for x in (high, low)]
        part = parts[0] * 16 + parts[1]
        total = part if total is None else total + part
    return total


# ---- plain ----------------------------------------------------------------------------------------------------------
@row()
def npu_linear(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """linear."""
    return ops.linear(input, weight, bias)


@row()
def npu_linear_backward(grad: Tensor, input: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of npu_linear: of the input and the weight."""
    return ops.matmul(grad, weight), ops.matmul(grad.reshape(-1, grad.size(-1)).t(), input.reshape(-1, input.size(-1)))


@row()
def npu_bmmV2(input: Tensor, mat2: Tensor, output_sizes: Sequence[int]) -> Tensor:
    """matmul, in another shape where sizes are given."""
    made = ops.matmul(input, mat2)
    return made.reshape(output_sizes) if output_sizes else made


@row()
def npu_bmm_v2_mat1_backward(grad: Tensor, mat1: Tensor, mat2: Tensor, size: list[int]) -> Tensor:
    """The gradient of npu_bmmV2's first matrix."""
    shape = [*ops.broadcast_shapes(mat1.shape[:-2], mat2.shape[:-2]), mat1.size(-2), mat2.size(-1)]
    return ops.matmul(grad.reshape(shape), mat2.transpose(-2, -1)).sum_to_size(size)


@row()
def npu_bmm_v2_mat2_backward(grad: Tensor, mat1: Tensor, mat2: Tensor, size: list[int]) -> Tensor:
    """The gradient of npu_bmmV2's second matrix."""
    shape = [*ops.broadcast_shapes(mat1.shape[:-2], mat2.shape[:-2]), mat1.size(-2), mat2.size(-1)]
    return ops.matmul(mat1.transpose(-2, -1), grad.reshape(shape)).sum_to_size(size)


@row()
def matmul_double_backward(grad_self: Tensor | None, grad_other: Tensor | None, grad_out: Tensor, input: Tensor,
                           other: Tensor, mask: tuple[bool, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of matmul's gradients: of the result's gradient, of the input and of the other matrix."""
    def backward(g: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        return grad_of(ops.matmul, (a, b), (g,))
    dg = ops.zeros_like(grad_out)
    for given, make in ((grad_self, lambda v: ops.matmul(v, other)), (grad_other, lambda v: ops.matmul(input, v))):
        dg = dg if given is None else dg + make(given)
    da = ops.zeros_like(input) if grad_other is None else backward(grad_out, input, grad_other)[0]
    db = ops.zeros_like(other) if grad_self is None else backward(grad_out, grad_self, other)[1]
    return tuple(x if wanted else ops.zeros_like(x) for x, wanted in zip((dg, da, db), mask, strict=True))


@row()
def npu_fused_matmul(x1: Tensor, x2: Tensor, bias: Tensor | None, x3: Tensor | None, fused_op_type: str) -> Tensor:
    """matmul plus bias, then add, mul, relu or a gelu."""
    y = ops.matmul(x1, x2)
    y = y if bias is None else y + bias
    if fused_op_type in ("add", "mul"):
        return y + x3 if fused_op_type == "add" else y * x3
    if fused_op_type in ("gelu_erf", "gelu_tanh"):
        return ops.gelu(y, approximate="none" if fused_op_type == "gelu_erf" else "tanh")
    if fused_op_type == "relu":
        return ops.relu(y)
    if fused_op_type:
        raise ValueError(f"[npu_fused_matmul] expected fused_op_type add, mul, relu, gelu_erf or gelu_tanh, got {fused_op_type!r}")
    return y


def _transposed(x1: Tensor, x2: Tensor, perm_x1: list[int] | None, perm_x2: Any, perm_y: Any,
                product: Callable[..., Any]) -> Tensor:
    """product(a, b) of three-dim matrices whose dims are exchanged before and after."""
    y = product(x1.permute(perm_x1 or [0, 1, 2]), x2.permute(perm_x2 or [0, 1, 2]))
    return y.permute(perm_y or [1, 0, 2])


def _split_batches(y: Tensor, factor: int | None) -> Tensor:
    """(M, batch, N) as (M, batch * N) in `factor` pieces, as CANN lays it out for the next collective."""
    if factor in (None, 1):
        return y
    m, batch, n = y.shape
    return y.reshape(m, factor, batch // factor * n).permute(1, 0, 2).contiguous()


@row()
def npu_transpose_batchmatmul(input: Tensor, weight: Tensor, bias: Tensor | None, scale: Tensor | None,
                              perm_x1: list[int] | None, perm_x2: Sequence[int] | None, perm_y: Sequence[int] | None,
                              batch_split_factor: int | None) -> Tensor:
    """bmm of permuted matrices, the result permuted; as int8 where a scale is given."""
    def product(a: Tensor, b: Tensor) -> Tensor:
        y = ops.bmm(a, b)
        return y if bias is None else y + bias
    y = _transposed(input, weight, perm_x1, perm_x2, perm_y, product)
    if scale is not None:
        flat = y.reshape(y.size(0), 1, -1)
        return quantized(wide(flat) * scale_of(scale), INT8)
    return _split_batches(y, batch_split_factor).contiguous()


@row()
def npu_batch_gather_matmul_(input: Tensor, x: Tensor, weight_b: Tensor, indices: Tensor, weight_a: Tensor | None,
                             layer_idx: int, scale: float, y_offset: int, y_slice_size: int) -> Tensor:
    """Adds to a slice of the input's columns each row of x times the weights that its index names (low-rank adapters)."""
    width = input.size(1) if y_slice_size == -1 else y_slice_size
    own = indices.to(INT64)
    rows = wide(x).unsqueeze(-1)
    if weight_a is not None:
        rows = ops.matmul(wide(weight_a)[own, layer_idx], rows)
    made = ops.matmul(wide(weight_b)[own, layer_idx], rows).squeeze(-1)
    into = input.narrow(1, y_offset, width)
    into.copy_(wide(into) + made * scale)
    return input


@row()
def npu_batch_gather_matmul(input: Tensor, x: Tensor, weight_b: Tensor, indices: Tensor, weight_a: Tensor | None,
                            layer_idx: int, scale: float, y_offset: int, y_slice_size: int) -> Tensor:
    """A copy of the input to which npu_batch_gather_matmul_ has added."""
    return npu_batch_gather_matmul_(input.clone(), x, weight_b, indices, weight_a, layer_idx, scale, y_offset, y_slice_size)


# ---- integers with scales -------------------------------------------------------------------------------------------
def _scaled(total: Any, scale: Tensor | None, pertoken: Tensor | None, bias: Tensor | None,
            offset: Any = None) -> Tensor:
    """A product of integers as floats: an int32 bias before the scales, any other after them."""
    if bias is not None and bias.dtype is INT32:
        total = total + bias
    y = total.to(FLOAT32)
    if scale is not None:
        y = y * scale_of(scale)
    if pertoken is not None:
        y = y * wide(pertoken).unsqueeze(-1)
    if bias is not None and bias.dtype is not INT32:
        y = y + wide(bias)
    return y if offset is None else y + wide(offset)


@call("quant_matmul(Tensor x1, Tensor x2, Tensor scale, Tensor? offset, Tensor? pertoken, Tensor? bias, ScalarType dtype) "
      "-> Tensor",
      rule=lambda x1, x2, scale, offset, pertoken, bias, dtype: ((*ops.broadcast_shapes(x1.shape[:-2], x2.shape[:-2]), x1.size(-2),
                                                                   x2.size(-1)), dtype)
      if x1.dtype is INT8 and dtype is not FLOAT32 and x1.dim() > 1 and x2.dim() > 1 else None,
      npu="aclnnQuantMatmulV4(x1, x2, scale, offset, pertoken, bias, False, False, out)")
def _quant_matmul(x1: Tensor, x2: Tensor, scale: Tensor, offset: Tensor | None, pertoken: Tensor | None,
                  bias: Tensor | None, dtype: _C.dtype) -> Tensor | None:
    total = integer_matmul(x1, x2)
    if dtype is INT32:
        return total if bias is None else total + bias
    return quantized(_scaled(total, scale, pertoken, bias, offset if dtype is INT8 else None), dtype)


@row()
def npu_quant_matmul(x1: Tensor, x2: Tensor, scale: Tensor, offset: Tensor | None, pertoken_scale: Tensor | None,
                     bias: Tensor | None, output_dtype: int | _C.dtype | None, x1_dtype: Any, x2_dtype: Any,
                     pertoken_scale_dtype: Any, scale_dtype: Any, group_sizes: Sequence[int] | None,
                     y_scale: Tensor | None) -> Tensor:
    """A product of int8 matrices (or of int32 that hold eight integers of four bits) with scales, as int8 unless asked."""
    return _quant_matmul(x1, x2, scale, offset, pertoken_scale, bias, dtype_of(output_dtype, INT8))


@row()
def npu_quant_matmul_gelu(x1: Tensor, x2: Tensor, x1_scale: Tensor, x2_scale: Tensor, bias: Tensor | None,
                          approximate: str | None) -> Tensor:
    """gelu of a product of integers with scales."""
    y = _scaled(integer_matmul(x1, x2), x2_scale, x1_scale, bias)
    y = ops.gelu(y, approximate="tanh" if approximate == "gelu_tanh" else "none")
    return y.to(BFLOAT16 if x2_scale.dtype is BFLOAT16 else FLOAT16)


@row()
def npu_quant_matmul_reduce_sum(x1: Tensor, x2: Tensor, x1_scale: Tensor | None, x2_scale: Tensor | None) -> Tensor:
    """Products of integers with scales, added up over the batch."""
    return _scaled(integer_matmul(x1, x2), x2_scale, x1_scale, None).sum(0).to(BFLOAT16)


@row()
def npu_quant_matmul_dequant(x: Tensor, quantized_weight: Tensor, weight_scale: Tensor, bias: Tensor | None,
                             x_scale: Tensor | None, x_offset: Tensor | None, smooth_scale: Tensor | None,
                             quant_mode: str | None) -> Tensor:
    """x as integers (with a scale for each row, or a given one) times an integer weight, (N, K), scaled back."""
    y = wide(x) if smooth_scale is None else wide(x) * wide(smooth_scale)
    q, scale = by_rows(y) if x_scale is None else (quantized(y / wide(x_scale), INT8), wide(x_scale).expand(x.shape[:-1]))
    return _scaled(integer_matmul(q, quantized_weight.t()), weight_scale, scale, bias).to(x.dtype)


@row()
def npu_quant_grouped_matmul_dequant(x: Tensor, quantized_weight: Tensor, weight_scale: Tensor, group_list: Tensor,
                                     bias: Tensor | None, x_scale: Tensor | None, x_offset: Tensor | None,
                                     smooth_scale: Tensor | None, quant_mode: str | None) -> Tensor:
    """npu_quant_matmul_dequant with a weight for each group of rows, by their ends."""
    parts = []
    for e, rows in enumerate(_pieces(x, group_list, 0)):
        own = None if smooth_scale is None else smooth_scale[e] if smooth_scale.dim() == 2 else smooth_scale
        parts.append(npu_quant_matmul_dequant(rows, quantized_weight[e], weight_scale[e], bias=None if bias is None else bias[e],
                                              smooth_scale=own))
    return _padded(ops.cat(parts), x.size(0))


@row()
def npu_transpose_quant_batchmatmul(x1: Tensor, x2: Tensor, dtype: int, bias: Tensor | None, x1_scale: Tensor | None,
                                    x2_scale: Tensor | None, group_sizes: Sequence[int] | None,
                                    perm_x1: list[int] | None, perm_x2: Sequence[int] | None,
                                    perm_y: Sequence[int] | None, batch_split_factor: int | None, x1_dtype: Any,
                                    x2_dtype: Any) -> Tensor:
    """bmm of permuted matrices of 8-bit floats or integers with scales, the result permuted."""
    exact = x1.dtype is INT8
    y = _transposed(x1, x2, perm_x1, perm_x2, None, integer_matmul if exact else lambda a, b: ops.bmm(wide(a), wide(b)))
    y = y.to(FLOAT32)                            # (M, batch, N)
    y = y if x1_scale is None else y * wide(x1_scale).reshape(-1, 1, 1)
    y = y if x2_scale is None else y * wide(x2_scale)
    y = y if bias is None else y + wide(bias)
    return _split_batches(y, batch_split_factor).to(dtype_of(dtype))


# ---- floats times integer weights -----------------------------------------------------------------------------------
def _grown(v: Tensor | None, size: int, group: int) -> Tensor | None:
    """A scale for every `group` rows of a weight as one for each row."""
    return v if v is None or not group or v.dim() < 2 else wide(v).repeat_interleave(group, -2).narrow(-2, 0, size)


def dequantized(weight: Any, scale: Any, offset: Any, group: Any = 0) -> Tensor:
    """(weight + offset) * scale, of int8 or of an int32 that holds eight integers of four bits."""
    w = wide(unpacked(weight) if weight.dtype is INT32 else weight)
    scale, offset = (_grown(v, w.size(-2), group) for v in (scale, offset))
    w = w if offset is None else w + wide(offset)
    return w * (scale_of(scale) if scale.dtype is INT64 else wide(scale))


@call("weight_quant(Tensor x, Tensor weight, Tensor scale, Tensor? offset, Tensor? bias, int group) -> Tensor",
      rule=lambda x, weight, scale, offset, bias, group: ((x.size(0), weight.size(1)), x.dtype)
      if x.dim() == 2 and weight.dim() == 2 and weight.dtype is INT8 else None,
      npu="aclnnWeightQuantBatchMatmulV2(x, weight, scale, offset, None, None, bias, group, out)")
def _weight_quant(x: Tensor, weight: Tensor, scale: Tensor, offset: Tensor | None, bias: Tensor | None,
                  group: int) -> Tensor:
    y = ops.matmul(wide(x), dequantized(weight, scale, offset, group))
    return (y if bias is None else y + wide(bias)).to(x.dtype)


@row()
def npu_weight_quant_batchmatmul(x: Tensor, weight: Tensor, antiquant_scale: Tensor, antiquant_offset: Tensor | None,
                                 quant_scale: Tensor | None, quant_offset: Tensor | None, bias: Tensor | None,
                                 antiquant_group_size: int, inner_precise: int, weight_dtype: Any) -> Tensor:
    """x @ ((weight + offset) * scale) + bias; as int8 where quant_scale is given."""
    if quant_scale is None:
        return _weight_quant(x, weight, antiquant_scale, antiquant_offset, bias, antiquant_group_size)
    y = ops.matmul(wide(x), dequantized(weight, antiquant_scale, antiquant_offset, antiquant_group_size))
    y = (y if bias is None else y + wide(bias)) * scale_of(quant_scale)
    return quantized(y if quant_offset is None else y + wide(quant_offset), INT8)


# ---- grouped --------------------------------------------------------------------------------------------------------
def _pieces(x: Tensor, group_list: Any, group_list_type: int | None) -> list[Tensor]:
    """The rows of each group: by their ends (0), by their counts (1), or by (group, count) pairs (2)."""
    numbers = group_list.tolist() if hasattr(group_list, "tolist") else list(group_list)
    if group_list_type == 2:
        counts = [0] * len(numbers)
        for group, count in numbers:
            if count:
                counts[group] = count
    else:
        counts = numbers if group_list_type == 1 else [b - a for a, b in zip([0, *numbers], numbers, strict=False)]
    pieces, start = [], 0
    for count in counts:
        pieces.append(x.narrow(0, start, count))
        start += count
    return pieces


def _padded(rows: Tensor, count: int) -> Tensor:
    """Rows beyond those of the groups, which no group computes, as zeros."""
    return ops.constant_pad_nd(rows, [0, 0, 0, count - rows.size(0)], 0) if rows.size(0) < count else rows


def _activated(y: Tensor, act_type: int | None) -> Tensor:
    if act_type in (0, None):
        return y
    if act_type == 1:
        return ops.relu(y)
    if act_type in (2, 3):
        return ops.gelu(y, approximate="tanh" if act_type == 2 else "none")
    return y * (y * 1.702).sigmoid() if act_type == 4 else ops.silu(y)


def _of(values: Sequence[Tensor] | None, at: int, single: bool) -> Any:
    """What belongs to one product: an item of a list, or a row of the only tensor in it."""
    if not values:
        return None
    return values[0][at] if single and len(values) == 1 else values[at]


def _product(x: Any, at: Any, weights: Sequence[Tensor], single: Any, given: Any, act_type: int | None,
             dtype: Any) -> Tensor | None:
    """One of a grouped matmul's products."""
    weight, bias, scale, pertoken = _of(weights, at, single), *(_of(given[k], at, single) for k in ("bias", "scale", "token"))
    if x.dtype is INT8 and weight.dtype is INT8:
        total = integer_matmul(x, weight)
        if dtype is INT32:
            return total if bias is None else total + bias
        y = _scaled(total, scale, pertoken, bias)
    else:
        if given["antiquant_scale"]:
            weight = dequantized(weight, *(_of(given[k], at, single) for k in ("antiquant_scale", "antiquant_offset")))
        y = ops.matmul(wide(x), wide(weight))
        y = y if bias is None else y + wide(bias)
    return quantized(_activated(y, act_type), dtype) if dtype is INT8 else _activated(y, act_type).to(dtype)


def _grouped(x: Sequence[Tensor], weight: Sequence[Tensor], given: dict[str, Any],
             group_list: Tensor | Sequence[int] | None, split_item: int | None, group_type: int | None,
             group_list_type: int | None, act_type: int | None, output_dtype: int | _C.dtype | None) -> list[Tensor]:
    dtype = dtype_of(output_dtype, x[0].dtype if x[0].dtype is not INT8 or not given["scale"] else FLOAT16)
    if group_type == 2:                          # groups of columns: x^T of each times its rows
        lefts, rights = _pieces(x[0].transpose(0, 1), group_list, group_list_type), _pieces(weight[0], group_list, group_list_type)
        products = [ops.matmul(wide(a).t(), wide(b)).to(dtype) for a, b in zip(lefts, rights, strict=True)]
        return [ops.stack(products)] if split_item in (2, 3) else products
    single = len(weight) == 1 and weight[0].dim() == 3
    pieces = x if len(x) > 1 or group_list is None or (len(weight) == 1 and not single) else \
        _pieces(x[0], group_list, group_list_type)
    if len(x) == 1 and given["token"]:           # a scale for each row of the one tensor is cut as its rows are
        given = given | {"token": _pieces(given["token"][0], group_list, group_list_type)}
    products = [_product(piece, at, weight, single, given, act_type, dtype) for at, piece in enumerate(pieces)]
    if split_item in (2, 3):
        return [_padded(ops.cat(products), sum(t.size(0) for t in x))]
    return products


@row()
def npu_grouped_matmul(x: tuple[Tensor, ...], weight: tuple[Tensor, ...], bias: tuple[Tensor, ...] | None,
                       scale: tuple[Tensor, ...] | None, offset: Sequence[Tensor] | None,
                       antiquant_scale: Sequence[Tensor] | None, antiquant_offset: Sequence[Tensor] | None,
                       per_token_scale: tuple[Tensor, ...] | None, group_list: Tensor | None,
                       activation_input: Sequence[Tensor] | None, activation_quant_scale: Sequence[Tensor] | None,
                       activation_quant_offset: Sequence[Tensor] | None, split_item: int | None, group_type: int | None,
                       group_list_type: int | None, act_type: int | None, tuning_config: Sequence[int] | None,
                       output_dtype: int | None, x_dtype: Any, weight_dtype: Any, scale_dtype: Any,
                       per_token_scale_dtype: Any) -> list[Tensor]:
    """Several products at once: of lists, or of the rows of one tensor with a weight for each group of them."""
    given = {"bias": bias, "scale": scale, "token": per_token_scale, "antiquant_scale": antiquant_scale,
             "antiquant_offset": antiquant_offset}
    return _grouped(x, weight, given, group_list, split_item, group_type, group_list_type, act_type, output_dtype)


@row("npu_grouped_matmul.List")
def _grouped_by_list(x: Sequence[Tensor], weight: Sequence[Tensor], bias: Sequence[Tensor] | None,
                     scale: Sequence[Tensor] | None, offset: Sequence[Tensor] | None,
                     antiquant_scale: Sequence[Tensor] | None, antiquant_offset: Sequence[Tensor] | None,
                     per_token_scale: Sequence[Tensor] | None, group_list: Sequence[int] | None,
                     activation_input: Sequence[Tensor] | None, activation_quant_scale: Sequence[Tensor] | None,
                     activation_quant_offset: Sequence[Tensor] | None, split_item: int | None, group_type: int | None,
                     group_list_type: int | None, act_type: int | None, output_dtype: Any) -> Sequence[Tensor]:
    """npu_grouped_matmul with the ends of the groups as a list."""
    given = {"bias": bias, "scale": scale, "token": per_token_scale, "antiquant_scale": antiquant_scale,
             "antiquant_offset": antiquant_offset}
    return _grouped(x, weight, given, group_list, split_item, group_type, group_list_type, act_type, output_dtype)


@row()
def npu_grouped_matmul_add_(input: Tensor, x: Tensor, weight: Tensor, group_list: Tensor, transpose_x: bool,
                            transpose_weight: bool, group_type: int, group_list_type: int | None) -> Tensor:
    """Adds to row block g of the input x^T @ weight over the rows of group g."""
    made = [ops.matmul(wide(a).t(), wide(b)) for a, b in
            zip(_pieces(x, group_list, group_list_type), _pieces(weight, group_list, group_list_type), strict=True)]
    return input.add_(ops.stack(made).reshape(input.shape))


@row()
def npu_grouped_matmul_add(input: Tensor, x: Tensor, weight: Tensor, group_list: Tensor, transpose_x: bool,
                           transpose_weight: bool, group_type: int, group_list_type: int | None) -> Tensor:
    """A copy of the input to which npu_grouped_matmul_add_ has added."""
    return npu_grouped_matmul_add_(input.clone(), x, weight, group_list, transpose_x=transpose_x,
                                   transpose_weight=transpose_weight, group_type=group_type, group_list_type=group_list_type)


@row()
def npu_grouped_matmul_finalize_routing(x: Tensor, w: Tensor, group_list: Tensor, scale: Tensor | None,
                                        bias: Tensor | None, offset: Tensor | None, pertoken_scale: Tensor | None,
                                        shared_input: Tensor | None, logit: Tensor | None, row_index: Tensor | None,
                                        dtype: Any, shared_input_weight: float | None, shared_input_offset: int | None,
                                        output_bs: int | None, group_list_type: int | None,
                                        tuning_config: Sequence[int] | None, x_dtype: Any, w_dtype: Any,
                                        scale_dtype: Any, pertoken_scale_dtype: Any) -> Tensor:
    """A grouped product of integers; its rows times their logits, added up where row_index says, to the shared expert's."""
    given = {"bias": None if bias is None else [bias], "scale": None if scale is None else [scale.reshape(scale.size(0), -1)],
             "token": None if pertoken_scale is None else [pertoken_scale], "antiquant_scale": None, "antiquant_offset": None}
    rows = _grouped([x], [w], given, group_list, 3, 0, group_list_type, 0, FLOAT32)[0]
    rows = rows if logit is None else rows * wide(logit).unsqueeze(1)
    out = ops.zeros([output_bs or x.size(0), rows.size(1)], dtype=FLOAT32, device=x.device)
    if shared_input is not None:
        part = out.narrow(0, shared_input_offset or 0, shared_input.size(0))
        part.copy_(wide(shared_input) * (1.0 if shared_input_weight is None else shared_input_weight))
    own = ops.arange(rows.size(0), device=x.device) if row_index is None else row_index.to(INT64)
    return out.index_add(0, own, rows)


@row()
def npu_grouped_matmul_swiglu_quant(x: Tensor, weight: Tensor, group_list: Tensor, weight_scale: Tensor,
                                    x_scale: Tensor, bias: Tensor | None,
                                    offset: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """A grouped product of integers with scales, swiglu, integers again with a scale for each row; no offsets."""
    y = _grouped([x], [weight], {"bias": None, "scale": [weight_scale], "token": [x_scale], "antiquant_scale": None,
                                 "antiquant_offset": None}, group_list, 3, 0, 0, 0, FLOAT32)[0]
    q, scale = by_rows(swiglu(y, True))
    return q, scale, ops.empty([0], dtype=FLOAT32, device=x.device)


@row()
def npu_grouped_matmul_swiglu_quant_v2(x: Tensor, weight: tuple[Tensor, ...], weight_scale: tuple[Tensor, ...],
                                       x_scale: Tensor, group_list: Tensor, smooth_scale: Tensor | None,
                                       weight_assist_matrix: Sequence[Tensor] | None, bias: Tensor | None,
                                       dequant_mode: int | None, dequant_dtype: int, quant_mode: int | None,
                                       quant_dtype: int, group_list_type: int | None,
                                       tuning_config: Sequence[int] | None, x_dtype: Any, weight_dtype: Any,
                                       weight_scale_dtype: Any, x_scale_dtype: Any) -> tuple[Tensor, Tensor]:
    """A grouped product of integers with scales, swiglu, integers again with a scale for each row."""
    y = _grouped([x], weight, {"bias": None, "scale": weight_scale, "token": [x_scale], "antiquant_scale": None,
                               "antiquant_offset": None}, group_list, 3, 0, group_list_type, 0, FLOAT32)[0]
    y = swiglu(y, True)
    return by_rows(y if smooth_scale is None else y * wide(smooth_scale), quant_dtype)


# ---- feed-forward layers --------------------------------------------------------------------------------------------
_PLAIN = {act.name: act for act in (ops.relu, ops.gelu, ops.silu)} | {"fastgelu": lambda y: y * (y * 1.702).sigmoid()}
_GATED = {"geglu": ops.gelu, "swiglu": ops.silu, "reglu": ops.relu}


def _gate(y: Tensor, activation: str) -> Tensor:
    if activation in _PLAIN:
        return _PLAIN[activation](y)
    if activation not in _GATED:
        raise ValueError(f"[npu_ffn] expected activation {', '.join([*_PLAIN, *_GATED])}, got {activation!r}")
    left, right = y.chunk(2, -1)
    return _GATED[activation](left) * right


@row()
def npu_ffn(x: Tensor, weight1: Tensor, weight2: Tensor, activation: str, expert_tokens: list[int] | None,
            expert_tokens_index: Sequence[int] | None, bias1: Tensor | None, bias2: Tensor | None, scale: Tensor | None,
            offset: Tensor | None, deq_scale1: Tensor | None, deq_scale2: Tensor | None,
            antiquant_scale1: Tensor | None, antiquant_scale2: Tensor | None, antiquant_offset1: Tensor | None,
            antiquant_offset2: Tensor | None, inner_precise: int | None, output_dtype: Any) -> Tensor:
    """activation(x W1 + b1) W2 + b2, with weights of their own for the rows of each expert where their counts are given."""
    dtype = dtype_of(output_dtype, FLOAT16) if x.dtype is INT8 else x.dtype

    def layer(rows: Tensor, at: int | None) -> Tensor:
        w1, w2, b1, b2, s, o, d1, d2, a1, a2, o1, o2 = (
            v if v is None or at is None else v[at] for v in (
                weight1, weight2, bias1, bias2, scale, offset, deq_scale1, deq_scale2, antiquant_scale1, antiquant_scale2,
                antiquant_offset1, antiquant_offset2))
        if rows.dtype is INT8:
            y = _gate(_scaled(integer_matmul(rows, w1), d1, None, b1), activation)
            q = y * wide(s)
            y = _scaled(integer_matmul(quantized(q if o is None else q + wide(o), INT8), w2), d2, None, b2)
            return y.to(dtype)
        w1, w2 = (wide(w) if a is None else dequantized(w, a, z) for w, a, z in ((w1, a1, o1), (w2, a2, o2)))
        y = ops.matmul(wide(rows), w1)
        y = ops.matmul(_gate(y if b1 is None else y + wide(b1), activation), w2)
        return (y if b2 is None else y + wide(b2)).to(dtype)
    counts = expert_tokens or expert_tokens_index
    if not counts:
        return layer(x, None)
    pieces = _pieces(x.reshape(-1, x.size(-1)), counts, 1 if expert_tokens else 0)
    made = ops.cat([layer(rows, at) for at, rows in enumerate(pieces)])
    return made.reshape([*x.shape[:-1], made.size(-1)])
