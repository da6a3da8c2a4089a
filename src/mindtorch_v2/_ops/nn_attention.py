"""Rows of attention and of bilinear maps."""
from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

from mindtorch_v2 import _C, _config
from mindtorch_v2._ops import batching_nn
from mindtorch_v2._ops.attention_ways import FLASH, choose, with_causal
from mindtorch_v2._ops.table import Spec, composite, op, ops
from mindtorch_v2._row import Npu
from mindtorch_v2._tensor import Tensor

_LARGEST_HEAD = 512                              # of CANN's fused attention
_LEFT_UP_CAUSAL = 2                              # its sparse mode
_BOOL, _FLOAT32 = _C._dtype_named("bool"), _C._dtype_named("float32")


# ---- scaled dot product attention ------------------------------------------------------------------------------------
def _attention_rule(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, dropout_p: float,
                    is_causal: bool, scale: float | None, enable_gqa: bool) -> Sequence[Spec]:
    wide = query.dtype if query.dtype.itemsize > 2 else _FLOAT32
    return [((*query.shape[:-1], value.size(-1)), query.dtype), (query.shape[:-1], wide)]


def _attention_grad(g: Tensor, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, is_causal: bool,
                    scale: Any, enable_gqa: bool, out: Tensor, logsumexp: Tensor) -> tuple[Tensor, ...]:
    if not _C._is_grad_enabled():
        return ops._attention_backward(g, query, key, value, attn_mask, out, logsumexp, is_causal, scale=scale,
                                       enable_gqa=enable_gqa)
    return _attention_formula(g, query, key, value, attn_mask, is_causal, scale, enable_gqa)


def _attention_formula(g: Tensor, query: Tensor, key: Tensor, value: Any, attn_mask: Any, is_causal: bool, scale: Any,
                       enable_gqa: bool) -> Any:
    """The gradient written with ops, to be differentiated again."""
    scale = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    group = _group(query, key) if enable_gqa else 1
    keys, values = (x.repeat_interleave(group, -3) if group > 1 else x for x in (key, value))
    weights = _weights(query, keys, attn_mask, is_causal, scale)
    through = ops.matmul(g, values.transpose(-2, -1))
    slopes = weights * (through - (through * weights).sum(-1, True)) * scale
    grads = [ops.matmul(slopes, keys), ops.matmul(slopes.transpose(-2, -1), query),
             ops.matmul(weights.transpose(-2, -1), g)]
    if group > 1:
        grads[1:] = [x.unflatten(-3, (-1, group)).sum(-3) for x in grads[1:]]
    return tuple(grads)


def _group(query: Tensor, key: Tensor) -> Any:
    """How many heads of the query each head of the key serves."""
    heads, own = query.size(-3), key.size(-3)
    if own == 0 or heads % own:
        raise RuntimeError("Number of heads in key and value must divide the number of heads in query")
    return heads // own


def _weights(query: Tensor, key: Tensor, attn_mask: Any, is_causal: bool, scale: float) -> Tensor:
    """softmax(query key^T scale + mask); zeros where a row is masked throughout."""
    scores = ops.matmul(query, key.transpose(-2, -1)) * scale
    if is_causal:
        attn_mask = ops.ones(scores.shape[-2:], dtype=_BOOL, device=query.device).tril()
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype is _BOOL else scores + attn_mask
        return ops._safe_softmax(scores, -1)
    return ops.softmax(scores, -1)


_ATTENTION = "bool is_causal{}, *, float? scale=None, bool enable_gqa=False) -> "
op("_attention_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor? attn_mask, Tensor out, "
   "Tensor logsumexp, " + _ATTENTION.format("") + "(Tensor, Tensor, Tensor)", variants="",
   kernel="scaled_dot_product_attention_backward", batch=batching_nn.attended,
   rule=lambda grad_out, query, key, value, *_: [(x.shape, x.dtype) for x in (query, key, value)])
op("_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0.0, "
   + _ATTENTION.format("=False") + "(Tensor, Tensor)", variants="", kernel="scaled_dot_product_attention",
   batch=batching_nn.attended, rule=_attention_rule, grad={"query, key, value":
   lambda g, query, key, value, attn_mask, is_causal, scale, enable_gqa, result0, result1:
   _attention_grad(g, query, key, value, attn_mask, is_causal, scale, enable_gqa, result0, result1)})


# ---- CANN's fused attention: (batch, heads, length, size), its softmax kept as eight maxima and sums of each row ------
def _flash_rule(query: Tensor, key: Tensor, value: Tensor, scale: float, sparse_mode: int) -> Sequence[Spec]:
    stats = (*query.shape[:3], 8), _FLOAT32
    return [(query.shape, query.dtype), stats, stats, ((0,), query.dtype)]


def _flash_grad(g: Tensor, query: Tensor, key: Tensor, value: Any, scale: Any, sparse_mode: int, out: Any, maxima: Any,
                sums: Tensor) -> Any:
    if not _C._is_grad_enabled():
        return ops._flash_attention_backward(g, query, key, value, out, maxima, sums, scale, sparse_mode)[:3]
    return _attention_formula(g, query, key, value, None, bool(sparse_mode), scale, query.size(1) != key.size(1))


_BAND = "1.0, 2147483647, 2147483647, query.size(1), 'BNSD', 0, sparse_mode"     # no dropout, all tokens
op("_flash_attention_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor attention, Tensor maxima, "
   "Tensor sums, float scale, int sparse_mode) -> (Tensor, Tensor, Tensor, Tensor)", variants="",
   rule=lambda grad_out, query, key, value, *_: [*((x.shape, x.dtype) for x in (query, key, value)), ((0,), query.dtype)],
   npu="aclnnFlashAttentionScoreGrad(query, key, value, grad_out, None, None, None, causal(sparse_mode), maxima, sums, None, "
       f"attention, None, scale, {_BAND}, out0, out1, out2, out3)")
op("_flash_attention(Tensor query, Tensor key, Tensor value, float scale, int sparse_mode) "
   "-> (Tensor, Tensor, Tensor, Tensor)", variants="", rule=_flash_rule,
   npu=Npu("aclnnFlashAttentionScore(query, key, value, None, None, None, causal(sparse_mode), None, scale, "
           f"{_BAND}, out1, out2, out3, out0)"),
   grad={"query, key, value": lambda g, query, key, value, scale, sparse_mode, result0, result1, result2:
         _flash_grad(g, query, key, value, scale, sparse_mode, result0, result1, result2)})


def _flash(query: Tensor, key: Tensor, value: Any, is_causal: bool, scale: Any) -> Any:
    """Attention of tensors with any leading dims by the fused op."""
    shape = query.shape
    if len(shape) != 4:
        query, key, value = (x.reshape((-1, *x.shape[-3:]) if len(shape) > 4 else (1,) * (4 - len(shape)) + tuple(x.shape))
                             for x in (query, key, value))
    scale = 1 / math.sqrt(shape[-1]) if scale is None else scale
    out = ops._flash_attention(query, key, value, scale, _LEFT_UP_CAUSAL if is_causal else 0)[0]
    return out if len(shape) == 4 else out.reshape(shape)


def c_name(x: Tensor) -> str:
    """The dtype as C++ names it, in which torch's messages of attention have it."""
    return {"float32": "float", "float64": "double", "int64": "long int", "int32": "int", "int16": "short int",
            "int8": "signed char", "uint8": "unsigned char", "float16": "c10::Half",
            "bfloat16": "c10::BFloat16"}.get(x.dtype._name, x.dtype._name)


def _check_native_heads(query: Tensor, embed_dim: int, num_head: int, qkv_weight: Tensor, qkv_bias: Tensor,
                        mask: Tensor | None, mask_type: int | None) -> None:
    if query.dim() != 3:
        raise RuntimeError(f"expected 3-D `query`, got {query.dim()}-D tensor")
    if query.size(2) != embed_dim:
        raise RuntimeError(f"passed-in embed_dim {embed_dim} didn't match last dim of query {query.size(2)}")
    if embed_dim % num_head:
        raise RuntimeError("`embed_dim` must divide evenly by `num_heads`")
    if qkv_weight.size(0) != 3 * embed_dim:
        raise RuntimeError("expected `qkv_weight` first dim to be 3x embed_dim")
    if qkv_bias.size(0) != qkv_weight.size(0):
        raise RuntimeError("expected `qkv_bias` first dim and first dim of query to be equal")
    if mask is not None and mask_type is None:
        raise RuntimeError("Mask Type should be defined")


@composite("_native_multi_head_attention(Tensor query, Tensor key, Tensor value, int embed_dim, int num_head, Tensor "
           "qkv_weight, Tensor qkv_bias, Tensor proj_weight, Tensor proj_bias, Tensor? mask=None, bool need_weights=True, "
           "bool average_attn_weights=True, int? mask_type=None) -> (Tensor, Tensor)", variants="function", out=False)
def _native_multi_head_attention(query: Tensor, key: Tensor, value: Tensor, embed_dim: int, num_head: int, qkv_weight: Tensor,
                                 qkv_bias: Tensor, proj_weight: Tensor, proj_bias: Tensor, mask: Tensor | None,
                                 need_weights: bool, average_attn_weights: bool,
                                 mask_type: int | None) -> tuple[Tensor, Tensor | None]:
    """Attention in several heads, batch first, with its projections; mask_type: 0 attention, 1 padding, 2 both."""
    _check_native_heads(query, embed_dim, num_head, qkv_weight, qkv_bias, mask, mask_type)
    if query is key and key is value:
        q, k, v = ops.linear(query, qkv_weight, qkv_bias).chunk(3, -1)
    else:
        q, k, v = (ops.linear(x, w, b) for x, w, b in zip((query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3)))
    q, k, v = (x.unflatten(-1, (num_head, -1)).transpose(1, 2) for x in (q, k, v))
    if mask is not None and mask.dtype is _BOOL:
        mask = ops.zeros_like(mask, dtype=query.dtype).masked_fill(mask, -math.inf)
    if mask is not None and mask_type == 1:
        mask = mask[:, None, None]
    if not need_weights:
        out = ops.scaled_dot_product_attention(q, k, v, mask)
        return ops.linear(out.transpose(1, 2).flatten(-2), proj_weight, proj_bias), None
    scores = ops.matmul(q * math.sqrt(num_head / embed_dim), k.transpose(-2, -1))
    weights = (scores if mask is None else scores + mask).softmax(-1)
    out = ops.matmul(weights, v).transpose(1, 2).flatten(-2)
    return ops.linear(out, proj_weight, proj_bias), weights.mean(1) if average_attn_weights else weights


def _check_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, is_causal: bool,
                     fused: bool) -> None:
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.dim() < 2:
            raise RuntimeError(f"Expected query, key, and value to all be  at least 2 dimensional, but got query.dim: "
                               f"{query.dim()} key.dim: {key.dim()} and value.dim: {value.dim()} instead.")
        if x.dtype is not query.dtype:
            raise RuntimeError(f"Expected query, key, and value to have the same dtype, but got query.dtype: "
                               f"{c_name(query)} key.dtype: {c_name(key)} and value.dtype: {c_name(value)} instead.")
    if not query.is_floating_point() and not query.is_complex():
        raise RuntimeError(f"expected scalar type Float but found {_C.TYPE_WORDS[query.dtype._id]}")
    if attn_mask is not None:
        if is_causal and not fused:
            raise RuntimeError("_scaled_dot_product_attention: Explicit attn_mask should not be set when "
                               "is_causal=True")
        if attn_mask.dtype is not _BOOL and attn_mask.dtype is not query.dtype and attn_mask.dtype is not _FLOAT32:
            raise RuntimeError(f"Expected attn_mask dtype to be bool or float or to match query dtype, but got "
                               f"attn_mask.dtype: {c_name(attn_mask)} and  query.dtype: {c_name(query)} instead.")
        if attn_mask.dim() < 2:
            raise RuntimeError("attn_mask must have at least 2 dimensions")


def _same_batch(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> bool:
    """Whether the kernel's layout holds: equal leading dims, but for the heads under grouped-query attention."""
    heads = -3 if enable_gqa else -2
    return query.dim() == key.dim() == value.dim() and query.shape[:heads] == key.shape[:heads] == value.shape[:heads] \
        and key.shape[:-2] == value.shape[:-2]


def _has_kernel(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, dropout_p: float,
                enable_gqa: bool) -> int:
    """Whether one kernel does it all: CANN's takes neither masks as torch means them nor float64, on some SoCs only."""
    if query.is_npu and (attn_mask is not None or query.dtype.itemsize > 4 or query.size(-1) != value.size(-1)
                         or query.size(-1) > _LARGEST_HEAD or not _C._has_kernel(ops._flash_attention, "npu")):
        return False
    return dropout_p == 0 and query.is_floating_point() and _same_batch(query, key, value, enable_gqa) \
        and query.numel() and key.numel() and value.numel() and not (attn_mask is not None and attn_mask.requires_grad)


@composite("scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, "
           "float dropout_p=0.0, bool is_causal=False, *, float? scale=None, bool enable_gqa=False) -> Tensor",
           out=False,
           autocast="lower",
           variants="nn")
def _scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, dropout_p: float,
                                  is_causal: bool, scale: float | None, enable_gqa: bool) -> Tensor:
    """softmax(query key^T scale + mask) value; a bool mask says what takes part."""
    fused = True
    if query.is_cpu and query.numel() and key.numel() and (
            is_causal and attn_mask is not None or not all(_config.attention_ways.values())):
        fused = choose(query, key, value, attn_mask, dropout_p, enable_gqa) == FLASH
    _check_attention(query, key, value, attn_mask, is_causal, fused and query.is_cpu)
    if is_causal and attn_mask is not None:
        attn_mask, is_causal = with_causal(attn_mask, query, key), False
    if fused and _has_kernel(query, key, value, attn_mask, dropout_p, enable_gqa):
        if query.is_npu:
            return _flash(query, key, value, is_causal, scale)
        return ops._attention(query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa)[0]
    return ops._scaled_dot_product_attention_math(query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale,
                                                  enable_gqa=enable_gqa)[0]


@composite("_scaled_dot_product_attention_math(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, "
           "float dropout_p=0.0, bool is_causal=False, Tensor? dropout_mask=None, *, float? scale=None, "
           "bool enable_gqa=False) -> (Tensor, Tensor)", variants="function")
def _attention_math(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, dropout_p: float,
                    is_causal: bool, dropout_mask: Tensor | None, scale: float | None,
                    enable_gqa: bool) -> tuple[Tensor, Tensor]:
    """(attention, its weights), step by step; 16-bit floats are computed in float32."""
    if query.dtype.itemsize <= 2:
        mask = attn_mask if attn_mask is None or attn_mask.dtype is _BOOL else attn_mask.to(_FLOAT32)
        wide = ops._scaled_dot_product_attention_math(
            query.to(_FLOAT32), key.to(_FLOAT32), value.to(_FLOAT32), mask, dropout_p, is_causal, dropout_mask,
            scale=scale, enable_gqa=enable_gqa)
        return wide[0].to(query.dtype), wide[1].to(query.dtype)
    if enable_gqa and query.dim() > 2 and key.size(-3) != query.size(-3):
        key = key.repeat_interleave(_group(query, key), -3)
        value = value.repeat_interleave(_group(query, value), -3)
    scale = 1 / math.sqrt(query.size(-1)) if scale is None and query.size(-1) else 1.0 if scale is None else scale
    weights = _weights(query, key, attn_mask, is_causal, scale)
    if dropout_p > 0:
        if dropout_mask is not None:
            warnings.warn("Dropout mask should only be used for testing purposes.", stacklevel=2)
            return ops.matmul(weights.masked_fill(~dropout_mask, 0), value / (1 - dropout_p)), weights
        weights = ops.dropout(weights, dropout_p, True)
    return ops.matmul(weights, value), weights


# ---- bilinear --------------------------------------------------------------------------------------------------------
@composite("bilinear(Tensor input1, Tensor input2, Tensor weight, Tensor? bias=None) -> Tensor", lacks="complex",
           autocast={"npu": "widest"}, out=False, variants="function")
def _bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """input1^T weight[k] input2 for every k, plus bias."""
    if input1.dim() != input2.dim():
        raise RuntimeError(f"bilinear(): input dimensions do not match: got {input1.dim()} and {input2.dim()}")
    if input1.shape[:-1] != input2.shape[:-1]:
        d = next(d for d, (a, b) in enumerate(zip(input1.shape, input2.shape)) if a != b)
        raise RuntimeError(f"bilinear(): input batch dimensions do not match at dim {d}: got {input1.size(d)} and "
                           f"{input2.size(d)}")
    for i, x in ((1, input1), (2, input2)):
        if x.size(-1) != weight.size(i):
            raise RuntimeError(f"bilinear(): input{i} size does not match weight size: got {x.size(-1)} but expected "
                               f"{weight.size(i)}")
    if bias is not None and bias.size(0) != weight.size(0):
        raise RuntimeError(f"bilinear(): bias size does not match weight size: got {bias.size(0)} but expected "
                           f"{weight.size(0)}")
    outer, left, right = weight.shape
    batch = tuple(input1.shape[:-1])
    rows = ops.matmul(input1.reshape(math.prod(batch), left), weight.permute(1, 0, 2).reshape(left, outer * right))
    out = (rows.reshape(*batch, outer, right) * input2.unsqueeze(-2)).sum(-1, dtype=input2.dtype)
    return out if bias is None else out + bias
