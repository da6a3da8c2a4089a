"""Rows of torch_npu's activations, gated and plain, and of its softmaxes with a mask."""
from __future__ import annotations

from typing import Any

from mindtorch_v2._ops.npu.rows import FLOAT32, UINT8, dtype_of, row, wide
from mindtorch_v2._ops.table import Spec, ops
from mindtorch_v2._tensor import Tensor

_MASKED = -10000.0                               # what CANN's softmax takes for a masked score
_GELU = ("none", "tanh")                         # by CANN's number


def _half(x: Tensor, dim: int) -> Spec:
    shape = list(x.shape)
    shape[dim] //= 2
    return shape, x.dtype


# ---- of one tensor --------------------------------------------------------------------------------------------------
@row(rule=lambda grad, input: (input.shape, input.dtype), npu="aclnnFastGeluBackward(grad, input, out)")
def npu_fast_gelu_backward(grad: Tensor, input: Tensor) -> Tensor:
    """The gradient of npu_fast_gelu."""
    x = wide(input)
    s = (x * 1.702).sigmoid()
    return (wide(grad) * s * (1 + 1.702 * x * (1 - s))).to(input.dtype)


def _fast_gelu(input: Tensor) -> Tensor:
    """x * sigmoid(1.702 x), an approximation of gelu."""
    x = wide(input)
    return (x * (x * 1.702).sigmoid()).to(input.dtype)


for _name in ("npu_fast_gelu", "fast_gelu"):
    row(_name, rule=lambda input: (input.shape, input.dtype), npu="aclnnFastGelu(input, out)",
        grad={"input": lambda g, input: npu_fast_gelu_backward(g, input)})(_fast_gelu)


@row()
def npu_gelu(input: Tensor, approximate: str) -> Tensor:
    """gelu."""
    return ops.gelu(input, approximate=approximate)


@row()
def npu_gelu_backward(grad_output: Tensor, input: Tensor, approximate: str) -> Tensor:
    """The gradient of npu_gelu."""
    return ops.gelu_backward(grad_output, input, approximate=approximate)


@row()
def npu_silu(input: Tensor) -> Tensor:
    """x * sigmoid(x)."""
    return ops.silu(input)


@row()
def npu_silu_(input: Tensor) -> Tensor:
    """npu_silu in place."""
    return ops.silu_(input)


@row()
def npu_silu_backward(grad_output: Tensor, x0: Tensor, x1: Tensor) -> Tensor:
    """The gradient of npu_silu; x0 is its argument, x1 its result."""
    return ops.silu_backward(grad_output, x0)


@row()
def npu_mish(input: Tensor) -> Tensor:
    """x * tanh(softplus(x))."""
    return ops.mish(input)


@row()
def npu_mish_backward(grad: Tensor, input: Tensor) -> Tensor:
    """The gradient of npu_mish."""
    return ops.mish_backward(grad, input)


# ---- gated ----------------------------------------------------------------------------------------------------------
@row(rule=lambda grad_output, input, dim: (input.shape, input.dtype), npu="aclnnSwiGluGrad(grad_output, input, dim, out)")
def npu_swiglu_backward(grad_output: Tensor, input: Tensor, dim: int) -> Tensor:
    """The gradient of npu_swiglu."""
    left, right = wide(input).chunk(2, dim)
    g = wide(grad_output)
    return ops.cat([ops.silu_backward(g * right, left), g * ops.silu(left)], dim).to(input.dtype)


@row(rule=lambda input, dim: _half(input, dim), npu="aclnnSwiGlu(input, dim, out)",
     grad={"input": lambda g, input, dim: npu_swiglu_backward(g, input, dim)})
def npu_swiglu(input: Tensor, dim: int) -> Tensor:
    """silu of the first half along dim, times the second."""
    left, right = wide(input).chunk(2, dim)
    return (ops.silu(left) * right).to(input.dtype)


@row(rule=lambda grad_output, input, gelu, dim, approximate, activate_left: (input.shape, input.dtype),
     npu="aclnnGeGluV3Backward(grad_output, input, gelu, dim, approximate, activate_left, out)")
def npu_geglu_grad(grad_output: Tensor, input: Tensor, gelu: Tensor, dim: int, approximate: int,
                   activate_left: bool) -> Tensor:
    """The gradient of npu_geglu's first result."""
    halves = wide(input).chunk(2, dim)
    plain, active = halves[activate_left], halves[not activate_left]
    g = wide(grad_output)
    grads = [g * wide(gelu), ops.gelu_backward(g * plain, active, approximate=_GELU[approximate])]
    return ops.cat(grads[::-1] if activate_left else grads, dim).to(input.dtype)


@row(rule=lambda input, dim, approximate, activate_left: [_half(input, dim), _half(input, dim)],
     npu="aclnnGeGluV3(input, dim, approximate, activate_left, out0, out1)",
     grad={"input": lambda g, input, dim, approximate, activate_left, result1:
           npu_geglu_grad(g, input, result1, dim, approximate, activate_left)})
def npu_geglu(input: Tensor, dim: int, approximate: int, activate_left: bool) -> tuple[Tensor, Tensor]:
    """One half along dim times gelu of the other, the second unless activate_left; and that gelu."""
    halves = wide(input).chunk(2, dim)
    gelu = ops.gelu(halves[not activate_left], approximate=_GELU[approximate])
    return (halves[activate_left] * gelu).to(input.dtype), gelu.detach().to(input.dtype)


@row(rule=lambda input, approximate: _half(input, -1) if input.dim() > 1 else None, npu="aclnnGeluMul(input, approximate, out)")
def npu_gelu_mul(input: Tensor, approximate: str) -> Tensor:
    """gelu of the first half of the last dim, times the second."""
    left, right = wide(input).chunk(2, -1)
    return (ops.gelu(left, approximate=approximate) * right).to(input.dtype)


@row()
def npu_clipped_swiglu(x: Tensor, group_index: Tensor | None, dim: int, alpha: float, limit: float, bias: float,
                       interleaved: bool) -> Tensor:
    """min(a, limit) * sigmoid(alpha a) * (b within limits + bias): a and b are neighbours, or halves along dim."""
    dim = dim % x.dim()
    rows = wide(x).flatten(dim).reshape(-1, x.shape[dim:].numel())
    if group_index is not None:                  # rows after the groups' are not computed
        count = min(int(group_index.sum()), rows.size(0))
        rows = ops.cat([rows[:count], ops.zeros_like(rows[count:])])
    a, b = (rows[:, 0::2], rows[:, 1::2]) if interleaved else rows.chunk(2, 1)
    a, b = a.clamp(max=limit), b.clamp(-limit, limit)
    return (a * (a * alpha).sigmoid() * (b + bias)).reshape(_half(x, dim)[0]).to(x.dtype)


# ---- softmax with a mask --------------------------------------------------------------------------------------------
def _fits_masked(x: Tensor, mask: Tensor) -> bool:
    """Whether CANN's op takes these: four dims, and no more than 4096 scores a row."""
    return x.dim() == 4 and mask.dim() == 4 and 0 < x.size(-1) <= 4096


@row(rule=lambda y_grad, y, mask, scale, fixed_triu_mask: (y.shape, y.dtype) if _fits_masked(y, mask) else None,
     npu="aclnnScaledMaskedSoftmaxBackward(y_grad, y, mask, scale, fixed_triu_mask, out)")
def npu_scaled_masked_softmax_backward(y_grad: Tensor, y: Tensor, mask: Tensor, scale: float,
                                       fixed_triu_mask: bool) -> Tensor:
    """The gradient of npu_scaled_masked_softmax."""
    mask = _mask_of(y, mask, fixed_triu_mask)
    slope = ops._softmax_backward_data(wide(y_grad), wide(y), -1, FLOAT32) * scale
    return slope.masked_fill(mask, 0).to(y.dtype)


def _mask_of(x: Tensor, mask: Tensor, triangle: bool) -> Tensor:
    return ops.ones(x.shape[-2:], device=x.device).triu(1).bool() if triangle else mask


@row(rule=lambda x, mask, scale, fixed_triu_mask: (x.shape, x.dtype) if _fits_masked(x, mask) else None,
     npu="aclnnScaledMaskedSoftmax(x, mask, scale, fixed_triu_mask, out)",
     grad={"x": lambda g, mask, scale, fixed_triu_mask, result:
           npu_scaled_masked_softmax_backward(g, result, mask, scale, fixed_triu_mask)})
def npu_scaled_masked_softmax(x: Tensor, mask: Tensor, scale: float, fixed_triu_mask: bool) -> Tensor:
    """softmax over the last dim of x * scale, -10000 where the mask is."""
    scores = (wide(x) * scale).masked_fill(_mask_of(x, mask, fixed_triu_mask), _MASKED)
    return ops.softmax(scores, -1).to(x.dtype)


@row()
def npu_masked_softmax_with_rel_pos_bias(x: Tensor, atten_mask: Tensor | None, relative_pos_bias: Tensor,
                                         scale_value: float, inner_precision_mode: int) -> Tensor:
    """softmax over the last dim of x * scale + mask + bias."""
    scores = wide(x) * scale_value
    if atten_mask is not None:
        mask = wide(atten_mask)
        while mask.dim() < x.dim():              # (windows, S, S) under (batch, windows, heads, S, S)
            mask = mask.unsqueeze(-3 if mask.dim() == 3 else 0)
        scores = scores + mask
    return ops.softmax(scores + wide(relative_pos_bias), -1).to(x.dtype)


@row()
def npu_attn_softmax_(input: Tensor) -> Tensor:
    """softmax over the last dim, in place."""
    return input.copy_(ops.softmax(input, -1))


@row()
def npu_attn_softmax_backward_(input: Tensor, grad_output: Tensor, values: Tensor) -> Tensor:
    """The gradient that comes to scores through softmax(scores) @ values, written over the softmax."""
    through = ops.matmul(grad_output, values.transpose(-2, -1))
    return input.copy_(ops._softmax_backward_data(through, input, -1, input.dtype))


# ---- choosing the next token ----------------------------------------------------------------------------------------
def _filtered(logits: Tensor, p: Tensor | None, k: Tensor | None) -> Tensor:
    """Logits whose token is among neither the k best nor the best of probability p become -inf."""
    x, order = wide(logits).sort(-1)             # rising: what goes is the beginning
    if k is not None:
        at = (logits.size(-1) - k.to(order.dtype)).clamp(min=0).reshape(-1, 1)
        x = x.masked_fill(x < x.gather(-1, at.clamp(max=logits.size(-1) - 1)), float("-inf"))
    if p is not None:
        dropped = ops.softmax(x, -1).cumsum(-1) <= 1 - wide(p).reshape(-1, 1)
        dropped[..., -1] = False
        x = x.masked_fill(dropped, float("-inf"))
    return ops.empty_like(x).scatter_(-1, order, x).to(logits.dtype)


@row(rule=lambda logits, p, k: (logits.shape, logits.dtype) if logits.dim() == 2 else None,
     npu="aclnnApplyTopKTopP(logits, p, k, out)")
def npu_top_k_top_p(logits: Tensor, p: Tensor | None, k: Tensor | None) -> Tensor:
    """Logits (batch, vocabulary), -inf but for each row's k best, and of those the best with probability p together."""
    return _filtered(logits, p, k)


@row()
def npu_dtype_cast(input: Tensor, dtype: int, input_dtype: Any) -> Tensor:
    """The input in another dtype."""
    return input.to(dtype_of(dtype))


@row()
def npu_dtype_cast_(input: Tensor, src: Tensor) -> Tensor:
    """The items of src, cast to the input's dtype, written over the input."""
    return input.copy_(src)


for _name in ("npu_dtype_cast_backward", "_npu_dtype_cast_backward", "_npu_dtype_cast"):
    @row(_name)
    def _cast(grad: Tensor, dtype: int, *_: object) -> Tensor:
        """The tensor in another dtype."""
        return grad.to(dtype_of(dtype))


@row()
def npu_dropout_with_add_softmax_backward(grad: Tensor, mask: Tensor, softmax_out: Tensor, alpha: float, prob: float,
                                          dim: int) -> tuple[Tensor, Tensor]:
    """The gradients of npu_dropout_with_add_softmax: of its first argument, and of the second."""
    kept = mask.reshape(softmax_out.shape).to(FLOAT32) / (1 - prob)
    slope = ops._softmax_backward_data(wide(grad) * kept, wide(softmax_out), dim, FLOAT32)
    return (slope * alpha).to(grad.dtype), slope.to(grad.dtype)


@row()
def npu_dropout_with_add_softmax(input: Tensor, x1: Tensor, alpha: float, prob: float,
                                 dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """A mask (one byte an item), softmax(x1 + alpha * input), and that softmax with items dropped."""
    soft = ops.softmax(wide(x1) + wide(input) * alpha, dim)
    mask = ops.rand_like(soft) >= prob
    dropped = soft * mask / (1 - prob) if prob < 1 else soft * 0
    return mask.to(UINT8), soft.to(input.dtype), dropped.to(input.dtype)
