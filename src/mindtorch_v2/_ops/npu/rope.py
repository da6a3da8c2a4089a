"""Rows of torch_npu's rotary position embedding, and of the caches of keys and values that it writes into."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mindtorch_v2._ops.npu.matmul import integer_matmul
from mindtorch_v2._ops.npu.quant import by_rows, quantized
from mindtorch_v2._ops.npu.rows import FLOAT32, INT8, INT64, call, row, wide
from mindtorch_v2._ops.table import ops
from mindtorch_v2._tensor import Tensor

_MODES = "rotary_mode[half|interleave|quarter]"


def turned(x: Tensor, mode: str | None) -> Tensor:
    """Every pair of items by a right angle: halves of the vector, neighbours, or halves of each half."""
    if mode == "interleave":
        return ops.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
    if mode == "half":
        left, right = x.chunk(2, -1)
        return ops.cat([-right, left], -1)
    if mode == "quarter":
        a, b, c, d = x.chunk(4, -1)
        return ops.cat([-b, a, -d, c], -1)
    raise ValueError(f"[npu_rotary_mul] expected rotary_mode half, interleave or quarter, got {mode!r}")


@call("rotary_grad(Tensor grad, Tensor input, Tensor r1, Tensor r2, str rotary_mode) -> (Tensor, Tensor, Tensor)",
      rule=lambda grad, input, r1, r2, rotary_mode: [(x.shape, x.dtype) for x in (input, r1, r2)],
      npu=f"aclnnRotaryPositionEmbeddingGrad(grad, r1, r2, input, {_MODES}, out0, out1, out2)")
def _rotary_grad(grad: Tensor, input: Tensor, r1: Tensor, r2: Tensor,
                 rotary_mode: str) -> tuple[Tensor, Tensor, Tensor]:
    g, x = wide(grad), wide(input)
    dx = g * wide(r1) - turned(g * wide(r2), rotary_mode)
    return (dx.to(input.dtype), (g * x).sum_to_size(r1.shape).to(r1.dtype),
            (g * turned(x, rotary_mode)).sum_to_size(r2.shape).to(r2.dtype))


@row()
def npu_rotary_mul_backward(grad: Tensor, input: Tensor, r1: Tensor, r2: Tensor,
                            rotary_mode: str) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of npu_rotary_mul: of the input, the cosines and the sines."""
    return _rotary_grad(grad, input, r1, r2, rotary_mode)


@row(rule=lambda input, r1, r2, rotary_mode, rotate: (input.shape, input.dtype) if rotate is None else None,
     npu=f"aclnnRotaryPositionEmbedding(input, r1, r2, {_MODES}, out)",
     grad={"input, r1, r2": lambda g, input, r1, r2, rotary_mode: _rotary_grad(g, input, r1, r2, rotary_mode)})
def npu_rotary_mul(input: Tensor, r1: Tensor, r2: Tensor, rotary_mode: str, rotate: Tensor | None) -> Tensor:
    """input * r1 + turned(input) * r2, cosines and sines; the turn may be given as a matrix."""
    x = wide(input)
    other = turned(x, rotary_mode) if rotate is None else ops.matmul(x, wide(rotate))
    return (x * wide(r1) + other * wide(r2)).to(input.dtype)


@row()
def npu_apply_rotary_pos_emb(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, layout: str,
                             rotary_mode: str) -> tuple[Tensor, Tensor]:
    """Query and key with their places turned in, written over both."""
    if layout not in ("BSND", "BSH", "SBND", "BNSD", "TND"):
        raise ValueError(f"[npu_apply_rotary_pos_emb] expected layout BSND, SBND, BNSD or TND, got {layout!r}")
    made = tuple((wide(x) * wide(cos) + turned(wide(x), rotary_mode) * wide(sin)).to(x.dtype) for x in (query, key))
    return query.copy_(made[0]), key.copy_(made[1])


def _apart(x: Tensor) -> Tensor:
    """Neighbours sorted into halves, as DeepSeek's places are laid out."""
    return x.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)


def _interleaved(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    y = _apart(wide(x))
    return y * wide(cos) + turned(y, "half") * wide(sin)


@row()
def npu_interleave_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Neighbours sorted into halves, then the places turned in."""
    return _interleaved(x, cos, sin).to(x.dtype)


@row()
def npu_mrope(positions: Tensor, query: Tensor, key: Tensor, cos_sin_cache: Tensor, head_size: int,
              mrope_section: Sequence[int] | None, rotary_mode: str | None,
              cache_mode: str | None) -> tuple[Tensor, Tensor]:
    """Query and key (tokens, heads * size) turned by the cosines and sines of their places, which may be of three kinds."""
    cos, sin = wide(cos_sin_cache)[positions.to(INT64)].chunk(2, -1)
    if positions.dim() == 2:
        cos, sin = (_sections(x, mrope_section, cache_mode) for x in (cos, sin))

    def applied(x: Tensor) -> Tensor:
        heads = wide(x).unflatten(-1, (-1, head_size))
        size = cos.size(-1) * 2
        part, rest = heads[..., :size], heads[..., size:]
        c, s = (ops.cat([t, t], -1) if rotary_mode == "half" else t.repeat_interleave(2, -1) for t in (cos, sin))
        part = part * c.unsqueeze(1) + turned(part, rotary_mode) * s.unsqueeze(1)
        return ops.cat([part, rest], -1).flatten(1).to(x.dtype)
    return applied(query), applied(key)


def _sections(x: Any, sections: Any, cache_mode: Any) -> Any:
    """Of (kinds, tokens, half) angles those of the kind that each section, or every third angle, belongs to."""
    if cache_mode != "interleave":
        return ops.cat([part[i] for i, part in enumerate(x.split(list(sections), -1))], -1)
    made = x[0].clone()
    for kind in (1, 2):
        places = slice(kind, sections[kind] * 3, 3)
        made[..., places] = x[kind][..., places]
    return made


# ---- caches ---------------------------------------------------------------------------------------------------------
def _write_slots(cache: Tensor, rows: Tensor, slots: Tensor) -> None:
    """Rows into a cache of blocks, (blocks, size, ...), at slots block * size + place; negative slots are left out."""
    index = slots.reshape(-1).to(INT64)
    flat = cache.view(-1, *cache.shape[2:])
    kept = index >= 0
    ops.index_put_(flat, [index[kept]], rows.reshape(-1, *flat.shape[1:]).to(cache.dtype)[kept])


def _scatter_blocks(rows: Tensor, cache: Tensor, slots: Tensor, cache_mode: str | None) -> None:
    """Rows (tokens, heads, depth) into blocks (blocks, size, heads, depth), or in the NZ form into
    (blocks, heads * depth / 16, size, 16)."""
    if cache_mode in (None, "Norm"):
        _write_slots(cache, rows, slots)
        return
    blocks, parts, size, last = cache.shape
    plain = cache.permute(0, 2, 1, 3).reshape(blocks, size, parts * last).clone()      # a reshape may be a view
    _write_slots(plain, rows.reshape(rows.size(0), -1), slots)
    cache.copy_(plain.reshape(blocks, size, parts, last).permute(0, 2, 1, 3))


def _refuse_compressed(name: str, *given: Tensor | None) -> None:
    if any(x is not None for x in given):
        raise NotImplementedError(f"[{name}] compress_lens, compress_seq_offsets and seq_lens are not offered")


@row()
def npu_scatter_pa_kv_cache(key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor,
                            compress_lens: Tensor | None, compress_seq_offsets: Tensor | None, seq_lens: Tensor | None,
                            cache_mode: str | None) -> None:
    """Writes keys and values of new tokens into the blocks of their caches, at the slots that slot_mapping says."""
    _refuse_compressed("npu_scatter_pa_kv_cache", compress_lens, compress_seq_offsets, seq_lens)
    _scatter_blocks(key, key_cache, slot_mapping, cache_mode)
    _scatter_blocks(value, value_cache, slot_mapping, cache_mode)


@row()
def npu_scatter_pa_kv_cache_functional(key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor,
                                       slot_mapping: Tensor, compress_lens: Tensor | None,
                                       compress_seq_offsets: Tensor | None, seq_lens: Tensor | None,
                                       cache_mode: str | None) -> tuple[Tensor, Tensor]:
    """Copies of the caches with keys and values of new tokens in them."""
    made = key_cache.clone(), value_cache.clone()
    npu_scatter_pa_kv_cache(key, value, *made, slot_mapping, compress_lens=compress_lens,
                            compress_seq_offsets=compress_seq_offsets, seq_lens=seq_lens, cache_mode=cache_mode)
    return made


@row("npu_scatter_pa_cache.value")
def npu_scatter_pa_cache(key: Tensor, slot_mapping: Tensor, compress_lens: Tensor | None,
                         compress_seq_offsets: Tensor | None, seq_lens: Tensor | None, key_cache: Tensor) -> Tensor:
    """Writes keys of new tokens into the blocks of a cache."""
    _refuse_compressed("npu_scatter_pa_cache", compress_lens, compress_seq_offsets, seq_lens)
    _scatter_blocks(key, key_cache, slot_mapping, "Norm")
    return key_cache


def _gather_rows(cache: Tensor, table: Tensor, lengths: list[int], starts: list[int]) -> Tensor:
    """The rows of every sequence, one after another, from a cache of blocks."""
    size, rows = cache.size(1), []
    flat = cache.reshape(-1, *cache.shape[2:])
    for b, length in enumerate(lengths):
        places = ops.arange(starts[b], starts[b] + length, device=cache.device)
        slots = table[b].to(INT64)[places // size] * size + places % size
        rows.append(ops.index_select(flat, 0, slots))
    return ops.cat(rows)


@row()
def npu_gather_pa_kv_cache(key_cache: Tensor, value_cache: Tensor, block_tables: Tensor, seq_lens: Tensor, key: Tensor,
                           value: Tensor, seq_offset: Tensor | None, is_seq_lens_cumsum: bool) -> None:
    """Keys and values of every sequence from the blocks of their caches, written into key and value."""
    lengths = seq_lens.tolist()
    if is_seq_lens_cumsum:
        lengths = [b - a for a, b in zip(lengths, lengths[1:], strict=False)]
    starts = [0] * len(lengths) if seq_offset is None else seq_offset.tolist()
    for into, cache in ((key, key_cache), (value, value_cache)):
        rows = _gather_rows(cache, block_tables, lengths, starts)
        into[:rows.size(0)].copy_(rows.reshape([rows.size(0), *into.shape[1:]]))


@row()
def npu_gather_pa_kv_cache_functional(key_cache: Tensor, value_cache: Tensor, block_tables: Tensor, seq_lens: Tensor,
                                      key: Tensor, value: Tensor, seq_offset: Tensor | None,
                                      is_seq_lens_cumsum: bool) -> tuple[Tensor, Tensor]:
    """Copies of key and value with the rows of every sequence in them."""
    made = key.clone(), value.clone()
    npu_gather_pa_kv_cache(key_cache, value_cache, block_tables, seq_lens, *made, seq_offset=seq_offset,
                           is_seq_lens_cumsum=is_seq_lens_cumsum)
    return made


# ---- norm, turn, write ----------------------------------------------------------------------------------------------
def _rms(x: Tensor, gamma: Tensor, epsilon: float) -> Tensor:
    x = wide(x)
    return x * (x.square().mean(-1, True) + epsilon).rsqrt() * wide(gamma)


def _into_cache(cache: Tensor, rows: Tensor, index: Tensor, cache_mode: str, name: str) -> None:
    """Rows (batch, heads, length, depth) into a cache: by place of each batch (Norm) or by slot of its blocks (PA)."""
    if cache_mode == "Norm":
        places = index.to(INT64)
        batch = ops.arange(rows.size(0), device=rows.device).unsqueeze(1).expand(places.shape)
        ops.index_put_(cache.transpose(1, 2), [batch, places], rows.transpose(1, 2).to(cache.dtype))
    elif cache_mode in ("PA", "PA_BNSD", "PA_BSND"):
        _write_slots(cache, rows.transpose(1, 2).reshape(-1, *cache.shape[2:]), index)
    else:
        raise NotImplementedError(f"[{name}] cache_mode {cache_mode} is not offered; Norm, PA and PA_BNSD are")


def _in_dtype(x: Tensor, scale: Any, offset: Any, cache: Tensor) -> Tensor:
    """As the cache has them: integers by a scale, or floats."""
    if scale is None:
        return x
    q = x * wide(scale)
    return quantized(q if offset is None else q + wide(offset), cache.dtype)


def _kv_written(name: str, kv: Tensor, gamma: Tensor, cos: Tensor, sin: Tensor, index: Tensor, k_cache: Tensor,
                ckv_cache: Tensor, scales: tuple[Tensor | None, ...], offsets: tuple[Tensor | None, ...], v: Any,
                epsilon: float, cache_mode: str) -> tuple[Tensor, Tensor]:
    """(turned keys, normed values), written into both caches."""
    width = gamma.size(0)
    if v is None:
        normed, place = _rms(kv[..., :width], gamma, epsilon), _interleaved(kv[..., width:], cos, sin)
    else:                                        # keys and values apart: the keys are normed, and part of them turned
        keys = _rms(kv, gamma, epsilon)
        size = cos.size(-1)
        part = keys[..., :size]
        turned_part = part * wide(cos) + turned(part, "half") * wide(sin)
        place, normed = ops.cat([turned_part, keys[..., size:]], -1), wide(v)
    for cache, rows, scale, offset in zip((k_cache, ckv_cache), (place, normed), scales, offsets, strict=True):
        _into_cache(cache, _in_dtype(rows, scale, offset, cache), index, cache_mode, name)
    return place.to(kv.dtype), normed.to(kv.dtype)


@row()
def npu_kv_rmsnorm_rope_cache(kv: Tensor, gamma: Tensor, cos: Tensor, sin: Tensor, index: Tensor, k_cache: Tensor,
                              ckv_cache: Tensor, k_rope_scale: Tensor | None, c_kv_scale: Tensor | None,
                              k_rope_offset: Tensor | None, c_kv_offset: Tensor | None, v: Tensor | None,
                              epsilon: float, cache_mode: str,
                              is_output_kv: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The first part of kv normed, the rest turned by its place, both written into their caches; those, and both parts."""
    parts = _kv_written("npu_kv_rmsnorm_rope_cache", kv, gamma, cos, sin, index, k_cache, ckv_cache,
                        (k_rope_scale, c_kv_scale), (k_rope_offset, c_kv_offset), v, epsilon, cache_mode)
    shown = parts if is_output_kv else tuple(ops.empty_like(x) for x in parts)
    return k_cache, ckv_cache, *shown


@row()
def npu_kv_rmsnorm_rope_cache_v2(kv: Tensor, gamma: Tensor, cos: Tensor, sin: Tensor, index: Tensor, k_cache: Tensor,
                                 ckv_cache: Tensor, k_rope_scale: Tensor | None, c_kv_scale: Tensor | None,
                                 k_rope_offset: Tensor | None, c_kv_offset: Tensor | None, v: Tensor | None,
                                 epsilon: float, cache_mode: str, is_output_kv: bool, k_cache_dtype: Any,
                                 ckv_cache_dtype: Any) -> tuple[Tensor, Tensor]:
    """npu_kv_rmsnorm_rope_cache that gives the two parts alone."""
    parts = _kv_written("npu_kv_rmsnorm_rope_cache_v2", kv, gamma, cos, sin, index, k_cache, ckv_cache,
                        (k_rope_scale, c_kv_scale), (k_rope_offset, c_kv_offset), v, epsilon, cache_mode)
    return parts if is_output_kv else tuple(ops.empty_like(x) for x in parts)


@row()
def npu_kv_rmsnorm_rope_cache_v2_functional(kv: Tensor, gamma: Tensor, cos: Tensor, sin: Tensor, index: Tensor,
                                            k_cache: Tensor, ckv_cache: Tensor,
                                            *rest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The two parts, and copies of the caches with them in it."""
    made = k_cache.clone(), ckv_cache.clone()
    k_scale, c_scale, k_offset, c_offset, v, epsilon, cache_mode, is_output_kv = rest[:8]
    parts = _kv_written("npu_kv_rmsnorm_rope_cache_v2_functional", kv, gamma, cos, sin, index, *made, (k_scale, c_scale),
                        (k_offset, c_offset), v, epsilon, cache_mode)
    return *(parts if is_output_kv else (ops.empty_like(x) for x in parts)), *made


# ---- the beginning of multi-head latent attention -------------------------------------------------------------------
def _product(x: Any, weight: Any, x_scale: Any = None, w_scale: Any = None) -> Tensor:
    """x @ weight; of int8 matrices exactly, then with their scales."""
    if weight.dtype is not INT8:
        return ops.matmul(wide(x), wide(weight))
    y = integer_matmul(x, weight).to(FLOAT32)
    y = y if w_scale is None else y * wide(w_scale).reshape(1, -1)
    return y if x_scale is None else y * wide(x_scale).reshape(-1, 1)


def _prolog(name: str, token_x: Tensor, weight_dq: Tensor, weight_uq_qr: Tensor, weight_uk: Tensor,
            weight_dkv_kr: Tensor, gamma_cq: Tensor, gamma_ckv: Tensor, rope_sin: Tensor, rope_cos: Tensor,
            index: Tensor, kv_cache: Tensor, kr_cache: Tensor, scale_x: Any, scale_dq: Any, scale_uq: Any,
            scale_dkv: Any, quant_ckv: Any, quant_ckr: Any, smooth: Any, eps_cq: float, eps_ckv: float,
            cache_mode: str, cq_factor: float = 1.0, ckv_factor: float = 1.0) -> tuple[Tensor, ...]:
    """(query, query's place) of (tokens, heads, ...), and the normed query that both are made of; keys go into the caches."""
    lead = token_x.shape[:-1]
    x = token_x.reshape(-1, token_x.size(-1))
    heads, depth = weight_uk.shape[:2]
    cq = _rms(_product(x, weight_dq, scale_x, scale_dq), gamma_cq, eps_cq) * cq_factor
    if weight_uq_qr.dtype is INT8:
        q, q_scale = by_rows(cq if smooth is None else cq * wide(smooth))
        up = _product(q, weight_uq_qr, q_scale, scale_uq)
    else:
        up = _product(cq, weight_uq_qr)
    up = up.unflatten(-1, (heads, -1))
    query = ops.matmul(up[..., :depth].transpose(0, 1), wide(weight_uk)).transpose(0, 1)
    cos, sin = (wide(t).reshape(-1, 1, t.size(-1)) for t in (rope_cos, rope_sin))
    place = _interleaved(up[..., depth:], cos, sin)
    down = _product(x, weight_dkv_kr, scale_x, scale_dkv)
    width = gamma_ckv.size(0)
    ckv = _rms(down[..., :width], gamma_ckv, eps_ckv) * ckv_factor
    kr = _interleaved(down[..., width:].unsqueeze(1), cos, sin).squeeze(1)
    if cache_mode not in ("PA_BSND", "PA"):
        raise NotImplementedError(f"[{name}] cache_mode {cache_mode} is not offered; PA_BSND is")
    for cache, rows, scale in ((kv_cache, ckv, quant_ckv), (kr_cache, kr, quant_ckr)):
        rows = _in_dtype(rows, scale, None, cache)
        _write_slots(cache, rows.reshape(-1, *cache.shape[2:]), index)
    like = rope_sin.dtype
    return tuple(t.reshape([*lead, *t.shape[1:]]).to(like) for t in (query, place, cq))


@row()
def npu_mla_prolog(token_x: Tensor, weight_dq: Tensor, weight_uq_qr: Tensor, weight_uk: Tensor, weight_dkv_kr: Tensor,
                   rmsnorm_gamma_cq: Tensor, rmsnorm_gamma_ckv: Tensor, rope_sin: Tensor, rope_cos: Tensor,
                   cache_index: Tensor, kv_cache: Tensor, kr_cache: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    """Query, the query's place, and both caches with the new tokens in them, of multi-head latent attention."""
    made = _prolog("npu_mla_prolog", token_x, weight_dq, weight_uq_qr, weight_uk, weight_dkv_kr, rmsnorm_gamma_cq,
                   rmsnorm_gamma_ckv, rope_sin, rope_cos, cache_index, kv_cache, kr_cache, *rest)
    return *made[:2], kv_cache, kr_cache


@row()
def npu_mla_prolog_v2(token_x: Tensor, weight_dq: Tensor, weight_uq_qr: Tensor, weight_uk: Tensor,
                      weight_dkv_kr: Tensor, rmsnorm_gamma_cq: Tensor, rmsnorm_gamma_ckv: Tensor, rope_sin: Tensor,
                      rope_cos: Tensor, cache_index: Tensor, kv_cache: Tensor, kr_cache: Tensor,
                      *rest: Any) -> tuple[Tensor, ...]:
    """npu_mla_prolog of weights that are not quantised, whose query needs no scale."""
    if weight_dq.dtype is INT8:
        raise NotImplementedError("[npu_mla_prolog_v2] an int8 weight_dq, which makes an int8 query, is not offered")
    made = _prolog("npu_mla_prolog_v2", token_x, weight_dq, weight_uq_qr, weight_uk, weight_dkv_kr, rmsnorm_gamma_cq,
                   rmsnorm_gamma_ckv, rope_sin, rope_cos, cache_index, kv_cache, kr_cache, *rest)
    return *made[:2], kv_cache, kr_cache, ops.ones([1], dtype=FLOAT32, device=token_x.device)


def _prolog_v3(token_x: Tensor, weight_dq: Tensor, weight_uq_qr: Tensor, weight_uk: Tensor, weight_dkv_kr: Tensor,
               rmsnorm_gamma_cq: Tensor, rmsnorm_gamma_ckv: Tensor, rope_sin: Tensor, rope_cos: Tensor, kv_cache: Tensor,
               kr_cache: Tensor, cache_index: Tensor | None, dequant_scale_x: Tensor | None,
               dequant_scale_w_dq: Tensor | None, dequant_scale_w_uq_qr: Tensor | None,
               dequant_scale_w_dkv_kr: Tensor | None, quant_scale_ckv: Tensor | None, quant_scale_ckr: Tensor | None,
               smooth_scales_cq: Tensor | None, actual_seq_len: Tensor | None, k_nope_clip_alpha: Tensor | None,
               rmsnorm_epsilon_cq: float, rmsnorm_epsilon_ckv: float, cache_mode: str, query_norm_flag: bool,
               weight_quant_mode: int, kv_cache_quant_mode: int, query_quant_mode: int, ckvkr_repo_mode: int,
               quant_scale_repo_mode: int, tile_size: int, qc_qr_scale: float, kc_scale: float,
               *dtypes: Any) -> tuple[Tensor, ...]:
    modes = weight_quant_mode, kv_cache_quant_mode, query_quant_mode, ckvkr_repo_mode, quant_scale_repo_mode
    if any(modes) or cache_index is None or k_nope_clip_alpha is not None or actual_seq_len is not None:
        raise NotImplementedError("[npu_mla_prolog_v3] quantised weights and caches, and caches without an index, are not offered")
    made = _prolog("npu_mla_prolog_v3", token_x, weight_dq, weight_uq_qr, weight_uk, weight_dkv_kr, rmsnorm_gamma_cq,
                   rmsnorm_gamma_ckv, rope_sin, rope_cos, cache_index, kv_cache, kr_cache, dequant_scale_x, dequant_scale_w_dq,
                   dequant_scale_w_uq_qr, dequant_scale_w_dkv_kr, quant_scale_ckv, quant_scale_ckr, smooth_scales_cq,
                   rmsnorm_epsilon_cq, rmsnorm_epsilon_ckv, cache_mode, qc_qr_scale, kc_scale)
    none = ops.empty([0], dtype=FLOAT32, device=token_x.device)
    return *made[:2], none, made[2] if query_norm_flag else none.to(made[2].dtype), none


@row()
def npu_mla_prolog_v3(*args: Any) -> tuple[Tensor, ...]:
    """Latent attention: the query, its rotated part and, on request, the normalised query that both come from."""
    return _prolog_v3(*args)


@row()
def npu_mla_prolog_v3_functional(*args: Any) -> tuple[Tensor, ...]:
    """npu_mla_prolog_v3, and copies of both caches with the new tokens in them."""
    caches = [cache.clone() for cache in args[9:11]]
    return *_prolog_v3(*args[:9], *caches, *args[11:]), *caches
