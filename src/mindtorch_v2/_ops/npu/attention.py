"""Rows of torch_npu's attention for training: fusion attention, versions 1 to 3, its gradients, and what CANN has to size it."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._ops.npu import heads
from mindtorch_v2._ops.npu.dropout import drawn_mask, kept_of
from mindtorch_v2._ops.npu.rows import FLOAT32, INT64, UINT8, call, grad_of, row
from mindtorch_v2._ops.table import Spec, ops
from mindtorch_v2._tensor import Tensor
from mindtorch_v2.autograd.function import Function

_SETTINGS = "float scale, float keep, int before, int after, int heads, str layout, int precise, int mode, int shift_type"
_TENSORS = "Tensor? shift, Tensor? drop, Tensor? mask"
_PACKED = "int[]? prefix, int[]? q_ends, int[]? k_ends"
_LAYOUT = 14                                     # which argument of the forward calls it is
_WORDS = "scale, keep, before, after, heads, layout, precise, mode, shift_type"


# ---- one call of CANN, or its parts ---------------------------------------------------------------------------------
def _sizes(query: Tensor, value: Tensor, layout: str, heads_: int) -> tuple[tuple[int, ...], ...]:
    """The result's shape, and that of its maxima and sums."""
    if layout == "TND":
        return (*query.shape[:2], value.size(2)), (*query.shape[:2], 8)
    shape = list(query.shape)
    lengths = {"BSH": (0, 1), "SBH": (1, 0), "BSND": (0, 1), "BNSD": (0, 2)}[layout]
    return tuple(shape), (shape[lengths[0]], heads_, shape[lengths[1]], 8)


def _rule(query: Tensor, key: Tensor, value: Tensor, shift: Tensor | None, drop: Tensor | None, mask: Tensor | None,
          prefix: Sequence[int] | None, q_ends: list[int] | None, k_ends: list[int] | None, scale: float, keep: float,
          before: int, after: int, heads_: int, layout: str, *_: object) -> Sequence[Spec] | None:
    if layout in ("BSH", "SBH"):
        if key.size(-1) != value.size(-1):       # CANN takes values of another depth with heads of their own
            return None
        out, stats = _sizes(query, value, layout, heads_)
    else:
        out, stats = _sizes(query, value, layout, heads_)
        out = (*out[:-1], value.size(-1))
    return [(out, query.dtype), (stats, FLOAT32), (stats, FLOAT32), ((0,), query.dtype)]


def _dense_rule(*args: Any) -> Sequence[Spec] | None:
    return None if args[_LAYOUT] == "TND" else _rule(*args)


def _packed_rule(*args: Any) -> Sequence[Spec] | None:
    return _rule(*args) if args[_LAYOUT] == "TND" else None


def _plain(query: Tensor, key: Tensor, value: Tensor, shift: Tensor | None, drop: Tensor | dict[str, Any] | None,
           mask: Tensor | None, prefix: Any, q_ends: Any, k_ends: Any, scale: float, keep: float, before: int,
           after: int, heads_: int, layout: str, precise: int, mode: int, shift_type: int,
           sink: Tensor | None = None) -> Any:
    """(out, maxima, sums, nothing) by the parts of heads.py."""
    how = heads.Settings(scale, keep, mode, before, after, prefix, shift_type == 1)
    kv = heads.key_heads(query, key, layout, heads_)
    q, k, v = (heads.split_heads(x, layout, n) for x, n in ((query, heads_), (key, kv), (value, kv)))
    pieces = [(q, k, v)]
    if layout == "TND":
        starts = zip([0, *q_ends], q_ends, [0, *k_ends], k_ends, strict=False)
        pieces = [(q[:, :, a:b], k[:, :, c:d], v[:, :, c:d]) for a, b, c, d in starts]
    made, at = [], 0
    for b, (q, k, v) in enumerate(pieces):
        count = q.size(0) * q.size(1) * q.size(2) * k.size(2)
        kept = None
        if drop is not None and keep < 1:
            kept = kept_of(drop, at + count)[at:].reshape(q.size(0), q.size(1), q.size(2), k.size(2))
        at += count
        own = how if how.prefix is None or layout != "TND" else how._replace(prefix=[how.prefix[b]])
        gone = heads.hidden(mask, own, q.size(2), k.size(2), q.device)
        bias = shift if shift is None or layout != "TND" or shift.size(0) == 1 else shift[b:b + 1]
        made.append(heads.attend(q, k, v, how, bias, gone, kept, sink))
    out, top, sums = (ops.cat(parts, 2) for parts in zip(*made, strict=True))
    if layout == "TND":
        top, sums = (x.squeeze(0).transpose(0, 1) for x in (top, sums))
    return heads.join_heads(out, layout).to(query.dtype), heads.stats(top), heads.stats(sums), query.new_empty([0])


_FLASH = f"Tensor query, Tensor key, Tensor value, {_TENSORS}, {_PACKED}, {_SETTINGS}) -> (Tensor, Tensor, Tensor, Tensor)"
_flash_dense = call(
    f"flash({_FLASH}", rule=_dense_rule,
    npu=f"aclnnFlashAttentionScoreV2(query, key, value, shift, drop, None, mask, prefix, None, None, {_WORDS}, out1, out2, out3, "
        "out0)")(_plain)
_flash_packed = call(
    f"flash_packed({_FLASH}", rule=_packed_rule,
    npu="aclnnFlashAttentionVarLenScoreV2(query, key, value, shift, drop, None, mask, prefix, q_ends, k_ends, None, None, "
        f"{_WORDS}, out1, out2, out3, out0)")(_plain)


def _grad_rule(query: Tensor, key: Tensor, value: Tensor, dy: Tensor, top: Tensor, sums: Tensor, out: Tensor,
               shift: Tensor | None, *_: object) -> Sequence[Spec]:
    return [*((x.shape, x.dtype) for x in (query, key, value)), ((0,) if shift is None else shift.shape, query.dtype)]


def _plain_grad(query: Tensor, key: Tensor, value: Tensor, dy: Tensor, top: Tensor, sums: Tensor, out: Tensor,
                shift: Tensor | None, drop: Tensor | None, mask: Tensor | None, prefix: Sequence[int] | None,
                *rest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients by autograd over the parts."""
    def forward(q: Tensor, k: Tensor, v: Tensor, s: Any) -> Tensor:
        return _plain(q, k, v, s, drop, mask, prefix, *rest)[0]
    dq, dk, dv, ds = grad_of(forward, (query, key, value, shift), (dy,))
    return dq, dk, dv, query.new_empty([0]) if ds is None else ds


_GRAD = (f"Tensor query, Tensor key, Tensor value, Tensor dy, Tensor top, Tensor sums, Tensor out, {_TENSORS}, {_PACKED}, "
         f"{_SETTINGS}) -> (Tensor, Tensor, Tensor, Tensor)")
_GRAD_WORDS = "query, key, value, dy, shift, drop, None, mask, top, sums, None, out, prefix"
_grad_dense = call(
    f"flash_grad({_GRAD}", rule=_grad_rule,
    npu=f"aclnnFlashAttentionScoreGradV2({_GRAD_WORDS}, None, None, {_WORDS}, out0, out1, out2, out3)")(_plain_grad)
_grad_packed = call(
    f"flash_packed_grad({_GRAD}", rule=_grad_rule,
    npu=f"aclnnFlashAttentionUnpaddingScoreGradV2({_GRAD_WORDS}, q_ends, k_ends, None, None, {_WORDS}, out0, out1, out2, "
        "out3)")(_plain_grad)


class _Flash(Function):
    """CANN's fused attention with CANN's gradient: an op's formula saves fewer values than this needs."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, shift: Tensor | None, drop: Tensor | None,
                mask: Tensor | None,
                rest: tuple[float | str | list[int] | None, ...]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        out, top, sums, nothing = _flash(query, key, value, shift, drop, mask, *rest)
        ctx.save_for_backward(query, key, value, shift, drop, mask, out, top, sums)
        ctx.rest = rest
        ctx.mark_non_differentiable(top, sums, nothing)
        return out, top, sums, nothing

    @staticmethod
    def backward(ctx: Any, g: Tensor, *_: object) -> tuple[Tensor | None, ...]:
        query, key, value, shift, drop, mask, out, top, sums = ctx.saved_tensors
        dq, dk, dv, ds = _flash_grad(query, key, value, g, top, sums, out, shift, drop, mask, *ctx.rest)
        return dq, dk, dv, None if shift is None else ds, None, None, None


def _flash(query: Tensor, *args: Any) -> Any:
    return (_flash_packed if args[_LAYOUT - 1] == "TND" else _flash_dense)(query, *args)


def _flash_grad(query: Tensor, key: Tensor, value: Tensor, dy: Tensor, top: Tensor | None, sums: Tensor | None,
                out: Tensor | None, shift: Tensor | None, drop: Tensor | dict[str, Any] | None, mask: Tensor | None,
                *rest: float | str | list[int] | None) -> tuple[Tensor, ...]:
    packed = rest[8] == "TND"
    return (_grad_packed if packed else _grad_dense)(query, key, value, dy, top, sums, out, shift, drop, mask, *rest)


# ---- the rows -------------------------------------------------------------------------------------------------------
def _items(query: Tensor, key: Tensor, layout: str, heads_: int, q_ends: Any, k_ends: Any) -> int:
    """How many weights attention has: what dropout draws for."""
    if layout == "TND":
        pairs = zip([0, *q_ends], q_ends, [0, *k_ends], k_ends, strict=False)
        return heads_ * sum((b - a) * (d - c) for a, b, c, d in pairs)
    batch, length = {"BSH": (0, 1), "SBH": (1, 0), "BSND": (0, 1), "BNSD": (0, 2)}[layout]
    return query.size(batch) * heads_ * query.size(length) * key.size(length)


def _with_rope(query: Tensor, key: Tensor, query_rope: Any, key_rope: Any) -> tuple[Tensor, Tensor]:
    """Vectors with the part that carries the place behind them; they have heads of their own, so that layouts stay."""
    if query_rope is None:
        return query, key
    return ops.cat([query, query_rope], -1), ops.cat([key, key_rope.expand([*key.shape[:-1], key_rope.size(-1)])], -1)


def _seeded(count: int, keep: float, seed: int, given: Tensor | dict[str, Any] | None,
            device: _C.device) -> tuple[Tensor | dict[str, Any] | None, int]:
    """(dropout's bits, the seed that they were drawn from)."""
    if keep >= 1:
        return None, seed
    if given is not None:
        return given, seed
    seed = seed or int(ops.randint(1, 1 << 31, [1], dtype=INT64))
    return drawn_mask(count, 1 - keep, device, seed), seed


def _forward(query: Any, key: Any, value: Any, heads_: int, layout: str, shift: Any, mask: Any, scale: float,
             keep: float, before: int, after: int, precise: int, prefix: Sequence[int] | None,
             q_ends: Sequence[int] | None, k_ends: Sequence[int] | None, mode: int, shift_type: int,
             sink: Tensor | None, dropout_mask: Tensor | None,
             seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor, int, int]:
    """(out, maxima, sums, nothing, seed, number of weights) for every version of the op."""
    if not 0 < keep <= 1:
        raise RuntimeError(f"The keep_prob value must be in range of [0, 1], but got {keep}")
    q_ends, k_ends = (None if x is None else [int(n) for n in x] for x in (q_ends, k_ends))
    count = _items(query, key, layout, heads_, q_ends, k_ends)
    drop, seed = _seeded(count, keep, seed, dropout_mask, query.device)
    rest = (None if prefix is None else list(prefix), q_ends, k_ends, scale, keep, before, after, heads_, layout, precise, mode,
            shift_type)
    if sink is not None:
        made = _plain(query, key, value, shift, drop, mask, *rest, sink)
    elif query.is_npu and _C._is_grad_enabled() and any(x is not None and x.requires_grad for x in (query, key, value, shift)):
        made = _Flash.apply(query, key, value, shift, drop, mask, rest)
    else:
        made = _flash(query, key, value, shift, drop, mask, *rest)
    return *made, seed if drop is not None else 0, count if drop is not None else 0


@row()
def npu_fusion_attention(query: Tensor, key: Tensor, value: Tensor, head_num: int, input_layout: str,
                         pse: Tensor | None, padding_mask: Tensor | None, atten_mask: Tensor | None, scale: float,
                         keep_prob: float, pre_tockens: int, next_tockens: int, inner_precise: int,
                         prefix: Sequence[int] | None, actual_seq_qlen: list[int] | None,
                         actual_seq_kvlen: list[int] | None, sparse_mode: int, gen_mask_parallel: bool, sync: bool,
                         softmax_layout: str, sink: Tensor | None, dropout_mask: Tensor | None, seed: int,
                         offset: int) -> tuple[Tensor | int, ...]:
    """softmax(query key^T + pse, masked) value; the maxima and sums of its rows; seed, offset and count of dropout's bits."""
    *made, seed, count = _forward(query, key, value, head_num, input_layout, pse, atten_mask, scale, keep_prob, pre_tockens,
                                  next_tockens, inner_precise, prefix, actual_seq_qlen, actual_seq_kvlen, sparse_mode, 1, sink,
                                  dropout_mask, seed)
    return *made, seed, 0, count


@row()
def npu_fusion_attention_v2(query: Tensor, key: Tensor, value: Tensor, head_num: int, input_layout: str,
                            pse: Tensor | None, padding_mask: Tensor | None, atten_mask: Tensor | None,
                            query_rope: Tensor | None, key_rope: Tensor | None, scale: float, keep_prob: float,
                            pre_tokens: int, next_tokens: int, inner_precise: int, prefix: Sequence[int] | None,
                            actual_seq_qlen: Sequence[int] | None, actual_seq_kvlen: Sequence[int] | None,
                            sparse_mode: int, gen_mask_parallel: bool, sync: bool, pse_type: int,
                            q_start_idx: Sequence[int] | None, kv_start_idx: Sequence[int] | None, softmax_layout: str,
                            sink: Tensor | None, dropout_mask: Tensor | None, seed: int,
                            offset: int) -> tuple[Tensor | int, ...]:
    """npu_fusion_attention with the shift after the scale (pse_type 0) or before it (1), and vectors that carry the place."""
    if pse_type not in (0, 1):
        raise NotImplementedError(f"[npu_fusion_attention_v2] pse_type {pse_type} is not offered; 0 and 1 are")
    query, key = _with_rope(query, key, query_rope, key_rope)
    *made, seed, count = _forward(query, key, value, head_num, input_layout, pse, atten_mask, scale, keep_prob, pre_tokens,
                                  next_tokens, inner_precise, prefix, actual_seq_qlen, actual_seq_kvlen, sparse_mode, pse_type,
                                  sink, dropout_mask, seed)
    return *made, seed, 0, count


@row()
def npu_fusion_attention_v3(query: Tensor, key: Tensor, value: Tensor, head_num: int, input_layout: str,
                            pse: Tensor | None, padding_mask: Tensor | None, atten_mask: Tensor | None, scale: float,
                            keep_prob: float, pre_tockens: int, next_tockens: int, inner_precise: int,
                            prefix: Sequence[int] | None, actual_seq_qlen: Tensor | None,
                            actual_seq_kvlen: Tensor | None, sparse_mode: int, gen_mask_parallel: bool, sync: bool,
                            softmax_layout: str, sink: Tensor | None) -> tuple[Tensor, ...]:
    """npu_fusion_attention whose ends of sequences, seed and offset are tensors, so that a graph can hold it."""
    q_ends, k_ends = (None if x is None else x.tolist() for x in (actual_seq_qlen, actual_seq_kvlen))
    *made, seed, count = _forward(query, key, value, head_num, input_layout, pse, atten_mask, scale, keep_prob, pre_tockens,
                                  next_tockens, inner_precise, prefix, q_ends, k_ends, sparse_mode, 1, sink, None, 0)
    return *made, ops.full([1], seed, dtype=INT64), ops.zeros([1], dtype=INT64)


def _backward(query: Tensor, key: Tensor, value: Tensor, dy: Tensor, heads_: int, layout: str, shift: Any, mask: Any,
              top: Tensor | None, sums: Tensor | None, out: Tensor | None, scale: float, keep: float, before: int,
              after: int, precise: int, seed: int, prefix: Sequence[int] | None, q_ends: Any, k_ends: Any, mode: int,
              shift_type: int, sink: Tensor | None) -> tuple[Tensor, ...]:
    """(dq, dk, dv, dshift, dsink) for every version of the op."""
    q_ends, k_ends = (None if x is None else [int(n) for n in x] for x in (q_ends, k_ends))
    drop, _ = _seeded(_items(query, key, layout, heads_, q_ends, k_ends), keep, seed, None, query.device)
    rest = (None if prefix is None else list(prefix), q_ends, k_ends, scale, keep, before, after, heads_, layout, precise, mode,
            shift_type)
    if sink is None:
        return *_flash_grad(query, key, value, dy, top, sums, out, shift, drop, mask, *rest), query.new_empty([0])
    def forward(q: Any, k: Any, v: Any, s: Any, k0: Any) -> Any:
        return _plain(q, k, v, s, drop, mask, *rest, k0)[0]
    dq, dk, dv, ds, dsink = grad_of(forward, (query, key, value, shift, sink), (dy,))
    return dq, dk, dv, query.new_empty([0]) if ds is None else ds, dsink


@row()
def npu_fusion_attention_grad(query: Tensor, key: Tensor, value: Tensor, dy: Tensor, head_num: int, input_layout: str,
                              pse: Tensor | None, padding_mask: Tensor | None, atten_mask: Tensor | None,
                              softmax_max: Tensor | None, softmax_sum: Tensor | None, softmax_in: Tensor | None,
                              attention_in: Tensor | None, scale_value: float, keep_prob: float, pre_tockens: int,
                              next_tockens: int, inner_precise: int, seed: int, offset: int, numels: int,
                              prefix: Sequence[int] | None, actual_seq_qlen: Sequence[int] | None,
                              actual_seq_kvlen: Sequence[int] | None, sparse_mode: int, gen_mask_parallel: bool,
                              sync: bool, softmax_layout: str, sink: Tensor | None) -> tuple[Tensor, ...]:
    """The gradients of npu_fusion_attention: of query, key, value, pse and sink."""
    return _backward(query, key, value, dy, head_num, input_layout, pse, atten_mask, softmax_max, softmax_sum, attention_in,
                     scale_value, keep_prob, pre_tockens, next_tockens, inner_precise, seed, prefix, actual_seq_qlen,
                     actual_seq_kvlen, sparse_mode, 1, sink)


@row()
def npu_fusion_attention_grad_v2(query: Tensor, key: Tensor, value: Tensor, dy: Tensor, head_num: int,
                                 input_layout: str, pse: Tensor | None, padding_mask: Tensor | None,
                                 atten_mask: Tensor | None, softmax_max: Tensor | None, softmax_sum: Tensor | None,
                                 softmax_in: Tensor | None, attention_in: Tensor | None, query_rope: Tensor | None,
                                 key_rope: Any, scale_value: float, keep_prob: float, pre_tokens: int, next_tokens: int,
                                 inner_precise: int, seed: int, offset: int, numels: int, prefix: Sequence[int] | None,
                                 actual_seq_qlen: Sequence[int] | None, actual_seq_kvlen: Sequence[int] | None,
                                 sparse_mode: int, gen_mask_parallel: bool, sync: bool, pse_type: int,
                                 q_start_idx: Sequence[int] | None, kv_start_idx: Sequence[int] | None,
                                 softmax_layout: str, sink: Tensor | None) -> tuple[Tensor, ...]:
    """The gradients of npu_fusion_attention_v2: of query, key, value, pse, query_rope, key_rope and sink."""
    depth = query.size(-1)
    query, key = _with_rope(query, key, query_rope, key_rope)
    dq, dk, dv, ds, dsink = _backward(query, key, value, dy, head_num, input_layout, pse, atten_mask, softmax_max, softmax_sum,
                                      attention_in, scale_value, keep_prob, pre_tokens, next_tokens, inner_precise, seed, prefix,
                                      actual_seq_qlen, actual_seq_kvlen, sparse_mode, pse_type, sink)
    nothing = query.new_empty([0])
    if query_rope is None:
        return dq, dk, dv, ds, nothing, nothing, dsink
    return (dq[..., :depth], dk[..., :depth], dv, ds, dq[..., depth:], dk[..., depth:].sum_to_size(key_rope.shape), dsink)


@row()
def npu_fusion_attention_grad_v3(query: Tensor, key: Tensor, value: Tensor, dy: Tensor, head_num: int,
                                 input_layout: str, pse: Tensor | None, padding_mask: Tensor | None,
                                 atten_mask: Tensor | None, softmax_max: Tensor | None, softmax_sum: Tensor | None,
                                 softmax_in: Tensor | None, attention_in: Tensor | None, scale_value: float,
                                 keep_prob: float, pre_tockens: int, next_tockens: int, inner_precise: int,
                                 seed: Tensor | None, offset: Tensor | None, prefix: Sequence[int] | None,
                                 actual_seq_qlen: Tensor | None, actual_seq_kvlen: Tensor | None, sparse_mode: int,
                                 gen_mask_parallel: bool, sync: bool, softmax_layout: str,
                                 sink: Tensor | None) -> tuple[Tensor, ...]:
    """The gradients of npu_fusion_attention_v3."""
    q_ends, k_ends = (None if x is None else x.tolist() for x in (actual_seq_qlen, actual_seq_kvlen))
    drawn = 0 if seed is None else int(seed.reshape(-1)[0])
    return _backward(query, key, value, dy, head_num, input_layout, pse, atten_mask, softmax_max, softmax_sum, attention_in,
                     scale_value, keep_prob, pre_tockens, next_tockens, inner_precise, drawn, prefix, q_ends, k_ends,
                     sparse_mode, 1, sink)


# ---- room for results and workspaces, which graphs ask for ahead ----------------------------------------------------
# CANN's workspace comes from the allocator at the launch: none has to be given.
for _name in ("_npu_fusion_attention_v3_get_max_workspace", "_npu_fusion_attention_grad_v3_get_max_workspace",
              "_npu_fused_infer_attention_score_get_max_workspace", "_npu_fused_infer_attention_score_v2_get_max_workspace"):
    @row(_name)
    def _workspace(query: Tensor, *_: object) -> Tensor:
        """A workspace of no bytes."""
        return ops.empty([0], dtype=UINT8, device=query.device)


@row()
def _npu_fusion_attention_v3_infer_output(query: Tensor, key: Tensor, value: Tensor, head_num: int,
                                          input_layout: str) -> tuple[Tensor, Tensor, Tensor]:
    """Room for the result, the maxima and the sums of npu_fusion_attention_v3."""
    out, stats = _sizes(query, value, input_layout, head_num)
    return query.new_empty(out), *(ops.empty(stats, dtype=FLOAT32, device=query.device) for _ in range(2))


@row()
def _npu_fusion_attention_grad_v3_infer_output(query: Tensor, key: Tensor, value: Tensor, pse: Tensor | None,
                                               sink: Tensor | None) -> tuple[Tensor, ...]:
    """Room for the gradients of npu_fusion_attention_v3."""
    return *(ops.empty_like(x) for x in (query, key, value)), *(
        query.new_empty([0]) if x is None else ops.empty_like(x) for x in (pse, sink))
