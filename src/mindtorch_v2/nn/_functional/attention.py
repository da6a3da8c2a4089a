"""Multi-head attention as one function; the fused attention op itself is torch._C._nn's."""

from __future__ import annotations

import math
import warnings
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.nn._functional.dropout import dropout
from mindtorch_v2.nn._functional.vision import pad

Tensor = torch.Tensor

__all__ = ["multi_head_attention_forward", "_canonical_mask", "_none_or_dtype"]


def _check_dim(word: str, query_dim: int, name: str, tensor: Tensor, allowed: tuple[Any, ...]) -> None:
    if tensor.dim() in allowed:
        return
    expected = ", ".join(["`None`", *(f"{d}-D" for d in allowed)])
    expected = " or ".join(expected.rsplit(", ", 1))
    raise AssertionError(
        f"For {word} ({query_dim}-D) `query`, expected `{name}` to be {expected} "
        f"but found {tensor.dim()}-D tensor instead"
    )


def _mha_shape_check(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    num_heads: int,
) -> bool:
    """Check the number of dimensions of all inputs; say whether there is a batch."""
    n = query.dim()
    if n not in (2, 3):
        raise AssertionError(
            f"query should be unbatched 2D or batched 3D tensor but received {n}-D query tensor"
        )
    word = "batched" if n == 3 else "unbatched"
    if key.dim() != n or value.dim() != n:
        raise AssertionError(
            f"For {word} ({n}-D) `query`, expected `key` and `value` to be {n}-D "
            f"but found {key.dim()}-D and {value.dim()}-D tensors respectively"
        )
    if key_padding_mask is not None:
        _check_dim(word, n, "key_padding_mask", key_padding_mask, (n - 1,))
    if attn_mask is not None:
        _check_dim(word, n, "attn_mask", attn_mask, (2, 3))
        expected = (num_heads, query.shape[0], key.shape[0])
        if n == 2 and attn_mask.dim() == 3 and tuple(attn_mask.shape) != expected:
            raise AssertionError(
                f"Expected `attn_mask` shape to be {expected} but got {attn_mask.shape}"
            )
    return n == 3


def _none_or_dtype(input: Tensor | None) -> Any:
    if input is None:
        return None
    if isinstance(input, torch.Tensor):
        return input.dtype
    raise RuntimeError("input to _none_or_dtype() must be None or torch.Tensor")


def _canonical_mask(
    mask: Tensor | None,
    mask_name: str,
    other_type: Any,
    other_name: str,
    target_type: Any,
    check_other: bool = True,
) -> Tensor | None:
    """Turn a bool mask into one to add: minus infinity where it was True."""
    if mask is None:
        return None
    floating = mask.is_floating_point()
    if mask.dtype != torch.bool and not floating:
        raise AssertionError(f"only bool and floating types of {mask_name} are supported")
    if check_other and other_type is not None and mask.dtype != other_type:
        warnings.warn(
            f"Support for mismatched {mask_name} and {other_name} is deprecated. "
            "Use same type for both instead.",
            stacklevel=3,
        )
    if floating:
        return mask
    return torch.zeros_like(mask, dtype=target_type).masked_fill_(mask, float("-inf"))


def _in_projection_packed(
    q: Tensor, k: Tensor, v: Tensor, w: Tensor, b: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Project with one stacked weight: a single product where the inputs are the same tensor."""
    linear = torch._C._nn.linear
    if q is k and k is v:
        q, k, v = linear(q, w, b).chunk(3, -1)
        return q, k, v
    e = q.size(-1)
    if k is v:
        w_q, w_kv = w.split([e, 2 * e])
        b_q, b_kv = (None, None) if b is None else b.split([e, 2 * e])
        k, v = linear(k, w_kv, b_kv).chunk(2, -1)
        return linear(q, w_q, b_q), k, v
    biases = (None,) * 3 if b is None else b.chunk(3)
    q, k, v = (linear(x, wx, bx) for x, wx, bx in zip((q, k, v), w.chunk(3), biases))
    return q, k, v


def _in_projection(
    q: Tensor, k: Tensor, v: Tensor, weights: tuple[Any, ...], bias: Tensor | None, embed_dim: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Project with three weights of their own."""
    for name, weight in zip("qkv", weights):
        if weight is None:
            raise AssertionError(
                f"use_separate_proj_weight is True but {name}_proj_weight is None"
            )
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    inputs = zip("QKV", (q, k, v), weights, biases)
    out = []
    for name, x, w, b in inputs:
        expected = (embed_dim, x.size(-1))
        if tuple(w.shape) != expected:
            low = {"Q": "query", "K": "key", "V": "value"}[name]
            raise AssertionError(
                f"expecting {low} weights shape of {expected}, but got {w.shape}"
            )
        out.append(torch._C._nn.linear(x, w, b))
    q, k, v = out
    return q, k, v


def _check_attn_mask(mask: Tensor, bsz: int, heads: int, tgt_len: int, src_len: int) -> Tensor:
    """Check an attention mask and give it three dimensions."""
    if mask.dim() not in (2, 3):
        raise RuntimeError(f"attn_mask's dimension {mask.dim()} is not supported")
    expected = (tgt_len, src_len) if mask.dim() == 2 else (bsz * heads, tgt_len, src_len)
    if tuple(mask.shape) != expected:
        raise RuntimeError(
            f"The shape of the {mask.dim()}D attn_mask is {mask.shape}, but should be {expected}."
        )
    return mask.unsqueeze(0) if mask.dim() == 2 else mask


def _to_heads(
    x: Tensor, static: Tensor | None, name: str, bsz: int, heads: int, head_dim: int
) -> Tensor:
    """(length, batch, embed) as (batch * heads, length, head_dim), or the static one given."""
    if static is None:
        return x.reshape(x.shape[0], bsz * heads, head_dim).transpose(0, 1)
    for dim, expected in ((0, bsz * heads), (2, head_dim)):
        if static.size(dim) != expected:
            raise AssertionError(
                f"expecting static_{name}.size({dim}) of {expected}, but got {static.size(dim)}"
            )
    return static


def _check_mha_sizes(
    query: Tensor, key: Tensor, value: Tensor, embed_dim: int, heads: int, separate: bool
) -> None:
    if query.size(-1) != embed_dim:
        raise AssertionError(
            f"was expecting embedding dimension of {embed_dim}, but got {query.size(-1)}"
        )
    if embed_dim // heads * heads != embed_dim:
        raise AssertionError(f"embed_dim {embed_dim} not divisible by num_heads {heads}")
    if separate and key.shape[:2] != value.shape[:2]:
        raise AssertionError(
            f"key's sequence and batch dims {key.shape[:2]} do not match value's "
            f"{value.shape[:2]}"
        )
    if not separate and key.shape != value.shape:
        raise AssertionError(f"key shape {key.shape} does not match value shape {value.shape}")


def _merge_masks(
    attn_mask: Tensor | None, padding: Tensor | None, bsz: int, heads: int, src_len: int
) -> Tensor | None:
    """Add the key padding mask to the attention mask."""
    if padding is None:
        return attn_mask
    for dim, expected in enumerate((bsz, src_len)):
        if padding.size(dim) != expected:
            raise AssertionError(f"Expected key_padded_mask.shape[{dim}] to be {expected}, but got {padding.size(dim)}")
    padding = padding.view(bsz, 1, 1, src_len).expand(-1, heads, -1, -1)
    padding = padding.reshape(bsz * heads, 1, src_len)
    return padding if attn_mask is None else attn_mask + padding


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Project, attend in every head, project back; (length, batch, embed) in and out."""
    if (type(query) is not Tensor or type(key) is not Tensor) and \
            torch.nn.functional.has_torch_function_variadic(query, key, value, in_proj_weight):
        return torch.overrides.handle_torch_function(torch.nn.functional.multi_head_attention_forward,
            (query, key, value, in_proj_weight),
            query, key, value, embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v,
            add_zero_attn, dropout_p, out_proj_weight, out_proj_bias, training=training,
            key_padding_mask=key_padding_mask, need_weights=need_weights, attn_mask=attn_mask,
            use_separate_proj_weight=use_separate_proj_weight, q_proj_weight=q_proj_weight,
            k_proj_weight=k_proj_weight, v_proj_weight=v_proj_weight, static_k=static_k, static_v=static_v,
            average_attn_weights=average_attn_weights, is_causal=is_causal)
    batched = _mha_shape_check(query, key, value, key_padding_mask, attn_mask, num_heads)
    padding = key_padding_mask
    if not batched:
        one = query.unsqueeze(1)
        # Keep shared tensors shared: the packed projection looks at identity.
        two = one if key is query else key.unsqueeze(1)
        value = two if value is key else value.unsqueeze(1)
        query, key = one, two
        padding = None if padding is None else padding.unsqueeze(0)
    tgt_len, bsz, embed_dim = query.shape
    src_len = key.shape[0]
    dtype = query.dtype
    mask_type = _none_or_dtype(attn_mask)
    padding = _canonical_mask(padding, "key_padding_mask", mask_type, "attn_mask", dtype)
    if is_causal and attn_mask is None:
        raise RuntimeError(
            "Need attn_mask if specifying the is_causal hint. You may use the Transformer "
            "module method `generate_square_subsequent_mask` to create this mask."
        )
    if is_causal and padding is None and not need_weights:
        attn_mask = None
    else:
        attn_mask = _canonical_mask(attn_mask, "attn_mask", None, "", dtype, False)
        is_causal = is_causal and padding is None
    separate = use_separate_proj_weight
    _check_mha_sizes(query, key, value, embed_dim_to_check, num_heads, separate)
    head_dim = embed_dim // num_heads
    if separate:
        three = (q_proj_weight, k_proj_weight, v_proj_weight)
        q, k, v = _in_projection(query, key, value, three, in_proj_bias, embed_dim)
    else:
        if in_proj_weight is None:
            raise AssertionError("use_separate_proj_weight is False but in_proj_weight is None")
        q, k, v = _in_projection_packed(query, key, value, in_proj_weight, in_proj_bias)
    if attn_mask is not None:
        attn_mask = _check_attn_mask(attn_mask, bsz, num_heads, tgt_len, src_len)

    if (bias_k is None) != (bias_v is None):
        given, lacking = ("v", "k") if bias_k is None else ("k", "v")
        raise AssertionError(f"bias_{given} is set but bias_{lacking} is None")
    extra = 0
    if bias_k is not None and bias_v is not None:
        for name, static in (("key", static_k), ("value", static_v)):
            if static is not None:
                raise AssertionError(f"bias cannot be added to static {name}.")
        k = torch.cat([k, bias_k.repeat(1, bsz, 1)])
        v = torch.cat([v, bias_v.repeat(1, bsz, 1)])
        extra += 1
    q = _to_heads(q, None, "q", bsz, num_heads, head_dim)
    k = _to_heads(k, static_k, "k", bsz, num_heads, head_dim)
    v = _to_heads(v, static_v, "v", bsz, num_heads, head_dim)
    if add_zero_attn:
        zero = torch.zeros(bsz * num_heads, 1, head_dim, dtype=k.dtype, device=k.device)
        k, v = torch.cat([k, zero], 1), torch.cat([v, zero], 1)
        extra += 1
    if extra:
        attn_mask = None if attn_mask is None else pad(attn_mask, (0, extra))
        padding = None if padding is None else pad(padding, (0, extra))
    src_len = k.size(1)
    attn_mask = _merge_masks(attn_mask, padding, bsz, num_heads, src_len)
    dropout_p = dropout_p if training else 0.0

    weights: Any = None
    if need_weights:
        if is_causal and attn_mask is None:
            raise AssertionError("is_causal needs attn_mask when need_weights is set")
        q = q * math.sqrt(1.0 / head_dim)
        scores = torch.bmm(q, k.transpose(-2, -1))
        if attn_mask is not None:
            scores = scores + attn_mask
        weights = scores.softmax(-1)
        if dropout_p > 0.0:
            weights = dropout(weights, dropout_p)
        out = torch.bmm(weights, v).transpose(0, 1).reshape(tgt_len, bsz, embed_dim)
        weights = weights.view(bsz, num_heads, tgt_len, src_len)
        weights = weights.mean(1) if average_attn_weights else weights
    else:
        if attn_mask is not None:
            shared = attn_mask.size(0) == 1
            shape = (1, 1, -1, src_len) if shared else (bsz, num_heads, attn_mask.size(-2), src_len)
            attn_mask = attn_mask.view(shape)
        q, k, v = (t.reshape(bsz, num_heads, t.shape[1], head_dim) for t in (q, k, v))
        attend = torch._C._nn.scaled_dot_product_attention
        out = attend(q, k, v, attn_mask, dropout_p, is_causal)
        out = out.permute(2, 0, 1, 3).reshape(tgt_len, bsz, embed_dim)
    out = torch._C._nn.linear(out, out_proj_weight, out_proj_bias)
    if not batched:
        out = out.squeeze(1)
        weights = None if weights is None else weights.squeeze(0)
    return out, weights
