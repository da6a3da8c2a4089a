"""Which way scaled dot product attention takes on the cpu: what torch's fused kernel serves, and what is permitted."""
from __future__ import annotations

import warnings
from typing import Any, NoReturn

from mindtorch_v2 import _C, _config
from mindtorch_v2._ops.table import composite, op, ops
from mindtorch_v2._tensor import Tensor

MATH, FLASH = 0, 1                               # torch.nn.attention.SDPBackend
_FUSED_DTYPES = ("float32", "float64", "bfloat16", "float16")
_MASK_SHAPES = ("Please use the following attn mask shapes: 2d - ({Q_seq_len, 1}  x {KV_seq_len, 1}); 4d - ({Batch, 1} x "
                "{Num_heads, 1} x {Q_seq_len, 1}  x {KV_seq_len, 1})")


def _sizes(*given: Tensor) -> list[list[int]]:
    return [list(x.shape) for x in given]


def _differing_heads(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> str | None:
    q, k, v = _sizes(query, key, value)
    apart = " instead. To broadcast dense inputs, try using unsqueeze and expand_to before passing them into the kernel."
    if not q[0] == k[0] == v[0]:
        return ("For dense inputs, both fused kernels require query, key and value to have the same batch_size. "
                f"Query.sizes(): {q}, Key.sizes(): {k}, Value.sizes(): {v}{apart}")
    if enable_gqa and (k[1] != v[1] or not k[1] or q[1] % k[1]):
        return ("The number of heads in key/value must divide number of heads in query."
                f"Got input Key sizes(): {k[1]}, Value sizes(): {v[1]}, Query sizes(): {q[1]} instead.")
    if not enable_gqa and not q[1] == k[1] == v[1]:
        return ("For dense input, both fused kernels require query, key and value to have the same num_heads. "
                f"Query.sizes(): {q}, Key sizes(): {k}, Value sizes(): {v}{apart}")
    return None


def _unserved_mask(mask: Tensor | None, query: Tensor, key: Tensor) -> str | None:
    if mask is None:
        return None
    if mask.requires_grad:
        return ""
    if mask.dim() not in (2, 4):
        return _MASK_SHAPES
    wanted = (query.size(0), query.size(1), query.size(2), key.size(2))[-mask.dim():]
    return None if all(n in (1, m) for n, m in zip(mask.shape, wanted)) else ""


def unserved(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, dropout_p: float,
             enable_gqa: bool) -> str | None:
    """Why torch's fused kernel does not serve a call; None where it does. Some reasons have no text."""
    dims = query.dim(), key.dim(), value.dim()
    if query.dtype._name not in _FUSED_DTYPES:
        kinds = [_C.TYPE_WORDS[x.dtype._id].lower() for x in (query, key, value)]
        return ("Expected query, key and value to all be of dtype: {Float, Double, BFloat16, Half}. Got Query dtype: "
                f"{kinds[0]}, Key dtype: {kinds[1]}, and Value dtype: {kinds[2]} instead.")
    if dropout_p > 0:
        return "Both fused kernels do not support non-zero dropout."
    if dims != (4, 4, 4):
        return ("All fused kernels requires query, key and value to be 4 dimensional, but got Query dim: "
                f"{dims[0]}, Key dim: {dims[1]}, Value dim: {dims[2]} instead.")
    heads = _differing_heads(query, key, value, enable_gqa)
    masked = _unserved_mask(attn_mask, query, key) if heads is None else heads
    if masked is not None:
        return masked
    if not query.size(-1) == key.size(-1) == value.size(-1):
        return (f"Flash attention requires q,k,v to have the same last dimension. Got Query.size(-1): {query.size(-1)}, "
                f"Key.size(-1): {key.size(-1)}, Value.size(-1): {value.size(-1)} instead.")
    if not (query.size(-2) and key.size(-2) and value.size(-2)):
        return ""
    if any(x.size(-1) != 1 and x.stride(-1) != 1 for x in (query, key, value)):
        return ("All fused kernels require the last dimension of the input to have stride 1. Got Query.stride(-1): "
                f"{query.stride(-1)}, Key.stride(-1): {key.stride(-1)}, Value.stride(-1): {value.stride(-1)}")
    return None


def _no_way(reason: str | None) -> NoReturn:
    if not _config.attention_ways["flash_sdp"]:
        raise RuntimeError("No viable backend for scaled_dot_product_attention was found. This is likely due to turning off both "
                           "the math kernel and the fused kernels.")
    warnings.warn("Flash attention kernel not used because:", stacklevel=4)
    if reason:
        warnings.warn(reason, stacklevel=4)
    raise RuntimeError("No available kernel.  Aborting execution.")


def choose(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, dropout_p: float, enable_gqa: bool) -> int:
    """FLASH or MATH; what is permitted may leave neither."""
    permitted = _config.attention_ways
    if not (permitted["flash_sdp"] or permitted["math_sdp"]):
        _no_way(None)
    reason = unserved(query, key, value, attn_mask, dropout_p, enable_gqa)
    if permitted["flash_sdp"] and reason is None:
        return FLASH
    if not permitted["math_sdp"]:
        _no_way(reason)
    return MATH


def with_causal(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """A mask under which no query sees a later key."""
    earlier = ops.ones((query.size(-2), key.size(-2)), dtype=_C._dtype_named("bool"), device=mask.device).tril()
    return mask & earlier if mask.dtype._name == "bool" else mask.masked_fill(~earlier, -float("inf"))


op("_fused_sdp_choice(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0.0, "
   "bool is_causal=False, *, float? scale=None, bool enable_gqa=False) -> int", variants="function",
   body=lambda query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa:
   choose(query, key, value, attn_mask, dropout_p, enable_gqa), doc="Which way attention takes: 1 fused, 0 step by step.")


@composite("_scaled_dot_product_flash_attention_for_cpu(Tensor query, Tensor key, Tensor value, float dropout_p=0.0, "
           "bool is_causal=False, *, Tensor? attn_mask=None, float? scale=None) -> (Tensor, Tensor)", variants="function")
def _flash_for_cpu(query: Tensor, key: Tensor, value: Tensor, dropout_p: float, is_causal: bool, attn_mask: Tensor | None,
                   scale: float | None) -> Any:
    """(attention, the logarithm of its sums), by one kernel."""
    if dropout_p > 0:
        raise RuntimeError("scaled_dot_product_attention_flash_attention: Currently do not support dropout > 0")
    if attn_mask is not None and is_causal:
        attn_mask, is_causal = with_causal(attn_mask, query, key), False
    return ops._attention(query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=key.size(1) != query.size(1))
