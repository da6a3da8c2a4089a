"""Rows of torch_npu's attention for inference: prompt, incremental and fused, with paged and quantised caches; and merging."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._ops.npu import heads
from mindtorch_v2._ops.npu.quant import quantized
from mindtorch_v2._ops.npu.rows import FLOAT16, FLOAT32, INT8, INT64, call, dtype_of, row, wide
from mindtorch_v2._ops.table import Spec, ops
from mindtorch_v2._tensor import Tensor

# Options of CANN that are not supported here; each is refused by its name.
_REFUSED = ("query_padding_size", "kv_padding_size", "key_rope_antiquant_scale")


# ---- one call of CANN for the plain form ----------------------------------------------------------------------------
_PLAIN = ("Tensor query, {key} key, {key} value, Tensor? shift, Tensor? mask, int[]? q_lengths, int[]? k_lengths, int heads, "
          "float scale, int before, int after, str layout, int key_heads, int mode, int precise")
_OUT = {"BSH": "BSH", "BSND": "BSND", "BNSD": "BNSD", "BNSD_BSND": "BSND"}


def _out_shape(query: Tensor, value: Tensor, layout: str, heads_: int, key_heads: int) -> tuple[int, ...]:
    depth = value.size(-1) // (key_heads or heads_) if layout == "BSH" else value.size(-1)
    if layout == "BSH":
        return *query.shape[:2], heads_ * depth
    b, n, s = query.shape[:3]
    return (b, s, n, depth) if layout == "BNSD_BSND" else (b, n, s, depth)


def _prompt_rule(query: Tensor, key: Tensor, value: Tensor, shift: Tensor | None, mask: Tensor | None,
                 q_lengths: Sequence[int] | None, k_lengths: Sequence[int] | None, heads_: int, scale: float,
                 before: int, after: int, layout: str, key_heads: int, *_: object) -> Spec | None:
    return (_out_shape(query, value, layout, heads_, key_heads), query.dtype) if layout in _OUT else None


def _fused_rule(query: Tensor, key: tuple[Tensor, ...], value: tuple[Tensor, ...], shift: Tensor | None,
                mask: Tensor | None, q_lengths: Sequence[int] | None, k_lengths: list[int] | None, heads_: int,
                scale: float, before: int, after: int, layout: str, key_heads: int, mode: int, precise: int,
                lse: bool) -> Sequence[Spec] | None:
    if layout not in _OUT or len(key) != 1:
        return None
    q = query.unflatten(-1, (heads_, -1)).transpose(1, 2) if layout == "BSH" else \
        query.transpose(1, 2) if layout == "BSND" else query
    return [(_out_shape(query, value[0], layout, heads_, key_heads), query.dtype),
            ((*q.shape[:3], 1) if lse else (0,), FLOAT32)]


def _parts(query: Tensor, key: Tensor, value: Tensor, shift: Any, mask: Any, q_lengths: Any,
           k_lengths: list[int] | None, heads_: int, scale: float, before: int, after: int, layout: str, key_heads: int,
           mode: int, precise: int, sink: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(out in the output's layout, log-sum-exp) by the parts of heads.py; lengths say which rows of a batch are real."""
    inner, outer = (layout.split("_") * 2)[:2]
    kv = key_heads or heads_
    how = heads.Settings(scale, 1.0, mode, before, after)
    q, k, v = (heads.split_heads(x, inner, n) for x, n in ((query, heads_), (key, kv), (value, kv)))
    made = [_piece(*args) for args in _batches(q, k, v, shift, mask, how, q_lengths, k_lengths, inner, sink)]
    packed = inner in ("TND", "NTD")
    out, lse = (ops.cat(parts, 2 if packed else 0) for parts in zip(*made, strict=True))
    if packed:
        lse = lse.squeeze(0).transpose(0, 1)
    return heads.join_heads(out, outer).to(query.dtype), lse.to(FLOAT32)


def _batches(q: Tensor, k: Tensor, v: Tensor, shift: Any, mask: Any, how: Any, q_lengths: Any, k_lengths: Any,
             layout: str, sink: Any) -> Iterator[Any]:
    """The arguments of each piece: a packed sequence, a batch with lengths of its own, or all batches at once."""
    if layout in ("TND", "NTD"):
        for a, b, c, d in zip([0, *q_lengths], q_lengths, [0, *k_lengths], k_lengths, strict=False):
            yield q[:, :, a:b], k[:, :, c:d], v[:, :, c:d], shift, mask, how, b - a, d - c, sink
        return
    lengths = [list(x) if x else [] for x in (q_lengths, k_lengths)]
    if not any(lengths):
        yield q, k, v, shift, mask, how, q.size(2), k.size(2), sink
        return
    for b in range(q.size(0)):
        own = [x[0 if len(x) == 1 else b] if x else t.size(2) for x, t in zip(lengths, (q, k), strict=True)]
        bias, bits = (x if x is None or x.dim() < 4 or x.size(0) == 1 else x[b:b + 1] for x in (shift, _batched(mask)))
        yield q[b:b + 1], k[b:b + 1], v[b:b + 1], bias, bits, how, *own, sink


def _batched(mask: Any) -> Any:
    """A mask of three dims has one for each batch."""
    return mask.unsqueeze(1) if mask is not None and mask.dim() == 3 else mask


def _piece(q: Tensor, k: Tensor, v: Tensor, shift: Any, mask: Any, how: tuple[float | None, ...], queries: int,
           keys: int, sink: Tensor | None) -> tuple[Tensor, Tensor]:
    """(out, log-sum-exp) of the first queries and keys; rows after them are zeros."""
    gone = heads.hidden(_batched(mask), how, queries, keys, q.device)
    bias = None if shift is None else shift[..., :queries if shift.size(-2) > 1 else 1, :keys]
    out, top, sums = heads.attend(q[:, :, :queries], k[:, :, :keys], v[:, :, :keys], how, bias, gone, None, sink)
    missing = q.size(2) - queries
    return (ops.constant_pad_nd(out, [0, 0, 0, missing], 0),
            ops.constant_pad_nd(heads.lse_of(top, sums), [0, 0, 0, missing], float("inf")))


_prompt = call(
    f"prompt_attention({_PLAIN.format(key='Tensor')}) -> Tensor", rule=_prompt_rule,
    npu="aclnnPromptFlashAttentionV3(query, key, value, shift, mask, q_lengths, k_lengths, None, None, None, None, None, heads, "
        "scale, before, after, layout, key_heads, mode, precise, out)")(lambda *args: _parts(*args)[0])
_incre = call(
    f"incre_attention({_PLAIN.format(key='Tensor[]')}) -> Tensor",
    rule=lambda query, key, value, *rest: _prompt_rule(query, key[0], value[0], *rest) if len(key) == 1 else None,
    npu="aclnnIncreFlashAttentionV4(query, key, value, shift, mask, k_lengths, None, None, None, None, None, None, None, None, "
        "None, heads, scale, layout, key_heads, 0, precise, out)")(
    lambda query, key, value, *rest: _parts(query, key[0], value[0], *rest)[0])
_fused = call(
    f"fused_attention({_PLAIN.format(key='Tensor[]')}, bool lse) -> (Tensor, Tensor)", rule=_fused_rule,
    npu="aclnnFusedInferAttentionScoreV2(query, key, value, shift, mask, q_lengths, k_lengths" + ", None" * 17 +
        ", heads, scale, before, after, layout, key_heads, mode, precise, 0, 0, lse, 0, 0, out0, out1)")(
    lambda query, key, value, *rest: _fused_parts(query, key[0], value[0], *rest))


def _fused_parts(query: Any, key: Any, value: Any, *rest: Any) -> tuple[Tensor, Tensor]:
    *others, lse = rest
    out, found = _parts(query, key, value, *others)
    return out, found if lse else ops.empty([0], dtype=FLOAT32, device=query.device)


# ---- caches ---------------------------------------------------------------------------------------------------------
def _paged(cache: Tensor, table: Tensor, lengths: list[int], kv: int, layout: str) -> Tensor:
    """Keys or values of every batch from a cache of blocks, (blocks, size, heads * depth) or (blocks, heads, size, depth)."""
    if cache.dim() == 5:
        raise NotImplementedError("[npu attention] a cache in the NZ form is not offered; use blocks of 3 or 4 dims")
    blocks = cache[table.to(INT64).clamp(min=0)]             # (batch, blocks of it, ...)
    if cache.dim() == 3:
        x = blocks.flatten(1, 2).unflatten(-1, (kv, -1)).transpose(1, 2)
    else:
        x = blocks.transpose(1, 2).flatten(2, 3)
    x = x[:, :, :max(lengths)]
    if layout in ("TND", "NTD"):
        return ops.cat([x[b, :, :n] for b, n in enumerate(lengths)], 1).unsqueeze(0)
    return x


def _scaled_back(x: Tensor, scale: Any, offset: Any, mode: int, layout: str, kv: int, like: _C.dtype) -> Tensor:
    """Integer keys or values as floats: a scale for each channel of each head (mode 0), or for each token (1)."""
    if scale is None:
        return x.to(like) if x.dtype is INT8 else x
    x, s, o = wide(x), wide(scale), None if offset is None else wide(offset)
    if mode == 0 and s.numel() > 1:
        shape = [kv, -1] if layout in ("BSH", "SBH") else [1, kv, 1, -1] if layout == "BNSD" else [kv, -1]
        flat = layout in ("BSH", "SBH")
        s, o = (v if v is None else v.reshape(-1) if flat else v.reshape(shape) for v in (s, o))
    elif mode == 1:
        shape = [*x.shape[:2], 1] if x.dim() == 3 else [x.size(0), 1, x.size(2), 1] if layout == "BNSD" else [*x.shape[:2], 1, 1]
        s, o = (v if v is None else v.reshape(shape) for v in (s, o))
    elif mode not in (0, 1):
        raise NotImplementedError(f"[npu attention] antiquant_mode {mode} is not offered; 0 and 1 are")
    return ((x if o is None else x + o) * s).to(like)


def _refuse(name: str, given: dict[str, Any]) -> None:
    for word in _REFUSED:
        if given.get(word) is not None:
            raise NotImplementedError(f"[{name}] {word} is not offered")


def _as_integers(out: Tensor, scale: Any, offset: Any, dtype: _C.dtype = INT8) -> Tensor:
    if scale is None:
        return out
    q = wide(out) * wide(scale)
    return quantized(q if offset is None else q + wide(offset), dtype)


# ---- the rows -------------------------------------------------------------------------------------------------------
@row()
def npu_prompt_flash_attention(query: Tensor, key: Tensor, value: Tensor, padding_mask: Tensor | None,
                               atten_mask: Tensor | None, pse_shift: Tensor | None,
                               actual_seq_lengths: Sequence[int] | None, deq_scale1: Tensor | None,
                               quant_scale1: Tensor | None, deq_scale2: Tensor | None, quant_scale2: Tensor | None,
                               quant_offset2: Tensor | None, num_heads: int, scale_value: float, pre_tokens: int,
                               next_tokens: int, input_layout: str, num_key_value_heads: int,
                               actual_seq_lengths_kv: Sequence[int] | None, sparse_mode: int) -> Tensor:
    """Attention of whole prompts; lengths say which rows of a batch are real."""
    if query.dtype is INT8:
        raise NotImplementedError("[npu_prompt_flash_attention] int8 queries are not offered")
    out = _prompt(query, key, value, pse_shift, atten_mask, actual_seq_lengths, actual_seq_lengths_kv, num_heads, scale_value,
                  pre_tokens, next_tokens, input_layout, num_key_value_heads, sparse_mode, 1)
    return _as_integers(out, quant_scale2, quant_offset2)


@row()
def npu_incre_flash_attention(query: Tensor, key: Tensor, value: Tensor, padding_mask: Tensor | None,
                              atten_mask: Tensor | None, pse_shift: Tensor | None,
                              actual_seq_lengths: Sequence[int] | None, antiquant_scale: Tensor | None,
                              antiquant_offset: Tensor | None, block_table: Tensor | None,
                              dequant_scale1: Tensor | None, quant_scale1: Tensor | None, dequant_scale2: Tensor | None,
                              quant_scale2: Tensor | None, quant_offset2: Tensor | None, kv_padding_size: Tensor | None,
                              num_heads: int, scale_value: float, input_layout: str, num_key_value_heads: int,
                              block_size: int, inner_precise: int) -> Tensor:
    """Attention of one new query a batch; actual_seq_lengths are those of the keys, which may lie in blocks."""
    _refuse("npu_incre_flash_attention", {"kv_padding_size": kv_padding_size})
    out = _with_cache(query, key, value, pse_shift, atten_mask, None, actual_seq_lengths, block_table,
                      _both(antiquant_scale), _both(antiquant_offset), 0, num_heads, scale_value, heads.MOST, heads.MOST,
                      input_layout, num_key_value_heads, 0, inner_precise, False, None)[0]
    return _as_integers(out, quant_scale2, quant_offset2)


def _both(x: Any) -> tuple[None, ...]:
    """The halves for keys and for values of one tensor."""
    return (None, None) if x is None else (x[0], x[1])


def _with_cache(query: Tensor, key: Tensor, value: Tensor, shift: Any, mask: Any, q_lengths: Any,
                k_lengths: Sequence[int] | None, table: Tensor | None, scales: tuple[Tensor | None, ...],
                offsets: tuple[Tensor | None, ...], antiquant: int, heads_: int, scale: float, before: int, after: int,
                layout: str, key_heads: int, mode: int, precise: int, lse: bool,
                sink: Tensor | None) -> tuple[Tensor, ...]:
    """(out, log-sum-exp): keys and values fetched from their blocks and made floats, then plain attention."""
    kv, inner = key_heads or heads_, layout.split("_")[0]
    lengths = None if k_lengths is None else [int(n) for n in k_lengths]
    like = query.dtype if query.dtype is not INT8 else FLOAT16
    if table is None:
        key, value = (_scaled_back(x, s, o, antiquant, inner, kv, like)
                      for x, s, o in zip((key, value), scales, offsets, strict=True))
    else:
        if lengths is None:
            raise RuntimeError("[npu attention] keys in blocks need their lengths: actual_seq_lengths_kv")
        each = lengths
        if inner in ("TND", "NTD"):              # with blocks the keys' lengths are each batch's own
            lengths = [sum(each[:b + 1]) for b in range(len(each))]
        key, value = (_scaled_back(_paged(x, table, each, kv, inner), s, o, antiquant, "BNSD", kv, like)
                      for x, s, o in zip((key, value), scales, offsets, strict=True))
        key, value = (heads.join_heads(x, inner) for x in (key, value))
    args = (shift, mask, None if q_lengths is None else [int(n) for n in q_lengths], lengths, heads_, scale, before, after,
            layout, key_heads, mode, precise)
    if sink is None:
        return _fused(query, [key], [value], *args, lse)
    return _fused_parts(query, key, value, *args, sink, lse)


def _with_rope(query: Tensor, key: Tensor, query_rope: Tensor | None, key_rope: Tensor | None,
               layout: str) -> tuple[Tensor, Tensor]:
    """Vectors with the part that carries the place behind them."""
    if query_rope is None:
        return query, key
    if layout == "BSH":
        raise NotImplementedError("[npu attention] query_rope in the layout BSH is not offered; use BSND or BNSD")
    return ops.cat([query, query_rope], -1), ops.cat([key, key_rope], -1)


@row()
def npu_fused_infer_attention_score(query: Tensor, key: Tensor, value: Tensor, pse_shift: Tensor | None,
                                    atten_mask: Tensor | None, actual_seq_lengths: Sequence[int] | None,
                                    actual_seq_lengths_kv: list[int] | None, dequant_scale1: Tensor | None,
                                    quant_scale1: Tensor | None, dequant_scale2: Tensor | None,
                                    quant_scale2: Tensor | None, quant_offset2: Tensor | None,
                                    antiquant_scale: Tensor | None, antiquant_offset: Tensor | None,
                                    key_antiquant_scale: Tensor | None, key_antiquant_offset: Tensor | None,
                                    value_antiquant_scale: Tensor | None, value_antiquant_offset: Tensor | None,
                                    block_table: Tensor | None, query_padding_size: Tensor | None,
                                    kv_padding_size: Tensor | None, key_shared_prefix: Tensor | None,
                                    value_shared_prefix: Tensor | None, actual_shared_prefix_len: Sequence[int] | None,
                                    query_rope: Tensor | None, key_rope: Tensor | None,
                                    key_rope_antiquant_scale: Tensor | None, num_heads: int, scale: float,
                                    pre_tokens: int, next_tokens: int, input_layout: str, num_key_value_heads: int,
                                    sparse_mode: int, inner_precise: int, block_size: int, antiquant_mode: int,
                                    key_antiquant_mode: int, value_antiquant_mode: int,
                                    softmax_lse_flag: bool) -> tuple[Tensor, Tensor]:
    """Attention for inference in every layout, with keys in blocks, as integers or behind a shared prefix; log-sum-exp."""
    _refuse("npu_fused_infer_attention_score", {"query_padding_size": query_padding_size, "kv_padding_size": kv_padding_size,
                                                "key_rope_antiquant_scale": key_rope_antiquant_scale})
    if dequant_scale1 is not None or query.dtype is INT8:
        raise NotImplementedError("[npu_fused_infer_attention_score] int8 queries are not offered")
    query, key = _with_rope(query, key, query_rope, key_rope, input_layout.split("_")[0])
    if key_shared_prefix is not None:
        key, value = (_behind_prefix(x, p, input_layout, actual_shared_prefix_len)
                      for x, p in ((key, key_shared_prefix), (value, value_shared_prefix)))
        front = actual_shared_prefix_len[0] if actual_shared_prefix_len else None
        if actual_seq_lengths_kv is not None:
            shift = front if front is not None else key_shared_prefix.size(2 if "BNSD" in input_layout else 1)
            actual_seq_lengths_kv = [n + shift for n in actual_seq_lengths_kv]
    scales = (key_antiquant_scale, value_antiquant_scale) if key_antiquant_scale is not None else _both(antiquant_scale)
    offsets = (key_antiquant_offset, value_antiquant_offset) if key_antiquant_scale is not None else _both(antiquant_offset)
    mode = key_antiquant_mode if key_antiquant_scale is not None else antiquant_mode
    out, lse = _with_cache(query, key, value, pse_shift, atten_mask, actual_seq_lengths, actual_seq_lengths_kv, block_table, scales,
                           offsets, mode, num_heads, scale, pre_tokens, next_tokens, input_layout, num_key_value_heads,
                           sparse_mode, inner_precise, softmax_lse_flag, None)
    return _as_integers(out, quant_scale2, quant_offset2), lse


def _behind_prefix(x: Tensor, prefix: Any, layout: str, length: Sequence[int] | None) -> Tensor:
    """Keys or values with those of a prefix that every batch shares in front."""
    dim = 2 if layout.split("_")[0] == "BNSD" else 1
    front = prefix if not length else prefix.narrow(dim, 0, length[0])
    return ops.cat([front.expand([x.size(0), *front.shape[1:]]), x], dim)


@row()
def npu_fused_infer_attention_score_v2(query: Tensor, key: Tensor, value: Tensor, query_rope: Tensor | None,
                                       key_rope: Tensor | None, pse_shift: Tensor | None, atten_mask: Tensor | None,
                                       actual_seq_qlen: Sequence[int] | None, actual_seq_kvlen: Sequence[int] | None,
                                       block_table: Tensor | None, dequant_scale_query: Tensor | None,
                                       dequant_scale_key: Tensor | None, dequant_offset_key: Tensor | None,
                                       dequant_scale_value: Tensor | None, dequant_offset_value: Tensor | None,
                                       dequant_scale_key_rope: Tensor | None, quant_scale_out: Tensor | None,
                                       quant_offset_out: Tensor | None, quant_scale_p: Tensor | None,
                                       learnable_sink: Tensor | None, num_query_heads: int, num_key_value_heads: int,
                                       softmax_scale: float, pre_tokens: int, next_tokens: int, input_layout: str,
                                       sparse_mode: int, block_size: int, query_quant_mode: int, key_quant_mode: int,
                                       value_quant_mode: int, inner_precise: int, return_softmax_lse: bool,
                                       query_dtype: Any, key_dtype: Any, value_dtype: Any, query_rope_dtype: Any,
                                       key_rope_dtype: Any, key_shared_prefix_dtype: Any,
                                       value_shared_prefix_dtype: Any, dequant_scale_query_dtype: Any,
                                       dequant_scale_key_dtype: Any, dequant_scale_value_dtype: Any,
                                       dequant_scale_key_rope_dtype: Any, out_dtype: Any) -> tuple[Tensor, Tensor]:
    """npu_fused_infer_attention_score with other names, and a score that is learnt and belongs to no key."""
    if dequant_scale_query is not None or query.dtype is INT8:
        raise NotImplementedError("[npu_fused_infer_attention_score_v2] int8 queries are not offered")
    query, key = _with_rope(query, key, query_rope, key_rope, input_layout.split("_")[0])
    out, lse = _with_cache(query, key, value, pse_shift, atten_mask, actual_seq_qlen, actual_seq_kvlen, block_table,
                           (dequant_scale_key, dequant_scale_value), (dequant_offset_key, dequant_offset_value), key_quant_mode,
                           num_query_heads, softmax_scale, pre_tokens, next_tokens, input_layout, num_key_value_heads,
                           sparse_mode, inner_precise, return_softmax_lse, learnable_sink)
    return _as_integers(out, quant_scale_out, quant_offset_out, dtype_of(out_dtype, INT8)), lse


def _room(query: Tensor, value: Tensor, layout: str, heads_: int, kv: int, lse: bool,
          quant: Any) -> tuple[Tensor, Tensor]:
    inner, outer = (layout.split("_") * 2)[:2]
    q = heads.split_heads(query, inner, heads_)
    depth = value.size(-1) // (kv or heads_) if inner == "BSH" or value.dim() == 3 and query.dim() == 4 else value.size(-1)
    out = heads.join_heads(q.new_empty([*q.shape[:3], depth]), outer)
    shape = [q.size(2), q.size(1), 1] if inner in ("TND", "NTD") else [*q.shape[:3], 1]
    return (out if quant is None else out.to(INT8), ops.empty(shape if lse else [0], dtype=FLOAT32, device=query.device))


@row()
def _npu_fused_infer_attention_score_infer_output(query: Tensor, value: Tensor, input_layout: str,
                                                  quant_scale2: Tensor | None, block_table: Tensor | None,
                                                  num_heads: int, num_key_value_heads: int, softmax_lse_flag: bool,
                                                  query_rope: Tensor | None) -> tuple[Tensor, Tensor]:
    """Room for the results of npu_fused_infer_attention_score."""
    return _room(query, value, input_layout, num_heads, num_key_value_heads, softmax_lse_flag, quant_scale2)


@row()
def _npu_fused_infer_attention_score_v2_infer_output(query: Tensor, value: Tensor, query_dtype: Any, value_dtype: Any,
                                                     input_layout: str, quant_scale_out: Tensor | None,
                                                     block_table: Tensor | None, num_query_heads: int,
                                                     num_key_value_heads: int, return_softmax_lse: bool,
                                                     query_rope: Tensor | None,
                                                     out_dtype: Any) -> tuple[Tensor, Tensor]:
    """Room for the results of npu_fused_infer_attention_score_v2."""
    return _room(query, value, input_layout, num_query_heads, num_key_value_heads, return_softmax_lse, quant_scale_out)


# ---- merging the attention of parts of the keys ---------------------------------------------------------------------
@row()
def npu_ring_attention_update(prev_attn_out: Tensor, prev_softmax_max: Tensor, prev_softmax_sum: Tensor,
                              cur_attn_out: Tensor, cur_softmax_max: Tensor, cur_softmax_sum: Tensor,
                              actual_seq_qlen: Tensor | None, input_layout: str,
                              input_softmax_layout: str) -> tuple[Tensor, Tensor, Tensor]:
    """Two results of attention over different keys as the one over all of them, with its maxima and sums."""
    top = ops.maximum(prev_softmax_max, cur_softmax_max)
    before, now = (s * (m - top).exp() for s, m in ((prev_softmax_sum, prev_softmax_max), (cur_softmax_sum, cur_softmax_max)))
    total = before + now

    def weight(x: Tensor) -> Tensor:
        share = (x / total)[..., :1]             # (B, N, S, 1), packed (T, N, 1)
        return share if input_layout == "TND" else share.permute(2, 0, 1, 3)
    out = sum(wide(x).unflatten(-1, (top.size(1), -1)) * weight(s) if input_layout != "TND" else wide(x) * weight(s)
              for x, s in ((prev_attn_out, before), (cur_attn_out, now)))
    return out.reshape(prev_attn_out.shape).to(prev_attn_out.dtype), top, total


@row()
def npu_attention_update(lse: tuple[Tensor, ...], local_out: tuple[Tensor, ...],
                         update_type: int) -> tuple[Tensor, Tensor]:
    """Results of attention over different keys, with their log-sum-exps, as the one over all keys."""
    each = ops.stack([wide(x) for x in lse])
    total = ops.logsumexp(each, 0)
    out = sum(wide(o) * (x - total).exp().unsqueeze(-1) for x, o in zip(each.unbind(0), local_out, strict=True))
    return out.to(local_out[0].dtype), total


# ---- the next step of a batch ---------------------------------------------------------------------------------------
@row()
def npu_advance_step_flashattn(input_tokens: Tensor, sampled_token_ids: Tensor, input_positions: Tensor,
                               seq_lens: Tensor, slot_mapping: Tensor, block_tables: Tensor, num_seqs: int,
                               num_queries: int, block_size: int, spec_token: Tensor | None,
                               accepted_num: Tensor | None) -> None:
    """Tokens, positions, lengths and slots of the next step, in place, for the first num_queries sequences."""
    if spec_token is not None or accepted_num is not None:
        raise NotImplementedError("[npu_advance_step_flashattn] spec_token and accepted_num are not offered")
    n = num_queries
    input_tokens[:n].copy_(sampled_token_ids[:n].reshape(-1))
    place = seq_lens[:n].clone()                 # the length so far is the next place
    seq_lens[:n].copy_(place + 1)
    input_positions[:n].copy_(place.reshape(input_positions[:n].shape))
    block = block_tables[:n].gather(1, (place // block_size).to(INT64).unsqueeze(1)).squeeze(1)
    slot_mapping[:n].copy_(block * block_size + place % block_size)
