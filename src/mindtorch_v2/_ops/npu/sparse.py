"""Rows of torch_npu's attention to a few keys of long sequences, which an indexer chooses, and of attention over triples."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mindtorch_v2._ops.npu.rows import FLOAT32, INT32, INT64, grad_of, row, wide
from mindtorch_v2._ops.table import ops
from mindtorch_v2._tensor import Tensor

__all__: list[str] = []
_NONE = float("-inf")


def _pieces(op: str, query: Tensor, key: Tensor, q_lengths: Tensor | None, k_lengths: Tensor | None, table: Tensor | None,
            q_layout: str, k_layout: str, causal: bool) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """For every sequence: its queries' rows in (tokens, ...), the rows of its keys in (tokens, ...), and which of these each
    query sees. Lengths are ends in the layout TND; keys in pages (PA_BSND) are found by the table."""
    if q_layout not in ("BSND", "TND") or k_layout not in ("BSND", "TND", "PA_BSND"):
        raise RuntimeError(f"[{op}] expected the layouts BSND, TND or, of keys, PA_BSND, got {q_layout} and {k_layout}")
    counts = None if q_lengths is None else q_lengths.tolist()
    keys = None if k_lengths is None else k_lengths.tolist()
    if (counts is None and q_layout == "TND") or (keys is None and k_layout != "BSND") or (table is None and k_layout == "PA_BSND"):
        raise RuntimeError(f"[{op}] layouts {q_layout} and {k_layout} need lengths, and pages a block_table")
    for b in range(len(counts) if counts is not None and q_layout == "TND" else query.size(0)):
        first, n = _span(counts, b, q_layout, query)
        start, many = _span(keys, b, k_layout, key)
        places = ops.arange(many, device=query.device)
        rows = start + places
        if table is not None:
            page = key.size(1)
            rows = table[b].to(INT64)[places // page] * page + places % page
        lines = ops.arange(n, device=query.device).unsqueeze(1) + (many - n if causal else many)
        yield slice(first, first + n), rows, places <= lines


def _span(lengths: Any, b: int, layout: str, x: Tensor) -> tuple[int, int]:
    """Where sequence b begins among all rows, and how long it is."""
    if layout == "TND":
        start = lengths[b - 1] if b else 0
        return start, lengths[b] - start
    return b * x.size(1), x.size(1) if lengths is None else lengths[b]


def _flat(x: Tensor) -> Tensor:
    """(tokens, heads, depth) of any layout, in the dtype that CANN computes in."""
    return wide(x).reshape(-1, *x.shape[-2:])


@row()
def npu_lightning_indexer(query: Tensor, key: Tensor, weights: Tensor, actual_seq_lengths_query: Tensor | None,
                          actual_seq_lengths_key: Tensor | None, block_table: Tensor | None, layout_query: str,
                          layout_key: str, sparse_count: int, sparse_mode: int, pre_tokens: int, next_tokens: int,
                          return_value: bool) -> tuple[Tensor, Tensor]:
    """The keys that are best for each query by the sum over heads of weight * relu(query . key), the best first, -1 behind;
    and what they are worth, where that is asked for."""
    q, k, w = _flat(query), _flat(key), wide(weights).reshape(-1, weights.size(-1))
    chosen = ops.full([q.size(0), sparse_count], -1, dtype=INT32, device=query.device)
    values = ops.full([q.size(0), sparse_count], _NONE, device=query.device)
    for queries, rows, seen in _pieces("npu_lightning_indexer", query, key, actual_seq_lengths_query, actual_seq_lengths_key,
                                       block_table, layout_query, layout_key, sparse_mode == 3):
        heads = ops.einsum("tnd,sd->tns", [q[queries], k[rows][:, 0]]).clamp(min=0)
        worth = (heads * w[queries].unsqueeze(-1)).sum(1).masked_fill(~seen, _NONE)
        order = ops.argsort(worth, dim=-1, descending=True, stable=True)[:, :sparse_count]
        best = worth.gather(-1, order)
        count = order.size(1)
        chosen[queries, :count].copy_(ops.where(best == _NONE, -1, order).to(INT32))
        values[queries, :count].copy_(best)
    shape = [*query.shape[:-2], 1, sparse_count]
    kept = values.reshape(shape).to(query.dtype) if return_value else query.new_empty([0])
    return chosen.reshape(shape), kept


@row()
def npu_sparse_flash_attention(query: Tensor, key: Tensor, value: Tensor | None, sparse_indices: Tensor, scale_value: float,
                               block_table: Tensor | None, actual_seq_lengths_query: Tensor | None,
                               actual_seq_lengths_kv: Tensor | None, query_rope: Tensor | None, key_rope: Tensor | None,
                               sparse_block_size: int, layout_query: str, layout_kv: str, sparse_mode: int, pre_tokens: int,
                               next_tokens: int, attention_mode: int, return_softmax_lse: bool,
                               sinks: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Attention of every query to the blocks of keys that its indices name; the maxima and sums of its rows, where asked for."""
    if sinks is not None or attention_mode != 2:
        raise NotImplementedError("[npu_sparse_flash_attention] sinks, and an attention_mode other than 2, are not offered")
    q, k = _flat(query), _flat(key)[:, 0]
    v = k if value is None else _flat(value)[:, 0]
    if query_rope is not None and key_rope is not None:
        q, k = ops.cat([q, _flat(query_rope)], -1), ops.cat([k, _flat(key_rope)[:, 0]], -1)
    indices = sparse_indices.reshape(q.size(0), -1)
    out, top, total = q.new_zeros([q.size(0), q.size(1), v.size(1)]), q.new_zeros(q.shape[:2]), q.new_zeros(q.shape[:2])
    for queries, rows, seen in _pieces("npu_sparse_flash_attention", query, key, actual_seq_lengths_query, actual_seq_lengths_kv,
                                       block_table, layout_query, layout_kv, sparse_mode == 3):
        blocks = ops.arange(rows.size(0), device=query.device) // sparse_block_size
        named = (indices[queries].unsqueeze(-1) == blocks).any(1) & seen
        scores = ops.einsum("tnd,sd->tns", [q[queries], k[rows]]) * scale_value
        scores = scores.masked_fill(~named.unsqueeze(1), _NONE)
        most = scores.amax(-1, True)
        any_seen = most > _NONE
        most = ops.where(any_seen, most, 0.0)
        weights = (scores - most).exp()
        sums = weights.sum(-1, True)
        out[queries].copy_(ops.einsum("tns,sd->tnd", [ops.where(any_seen, weights / sums, 0.0), v[rows]]))
        top[queries].copy_(most.squeeze(-1))
        total[queries].copy_(sums.squeeze(-1))
    shape = [query.size(0), 1, *query.shape[1:-1]] if query.dim() == 4 else [1, *query.shape[:-1]]
    most, sums = (x.reshape(shape) if return_softmax_lse else x.new_empty([0]) for x in (top, total))
    return out.reshape(query.shape).to(query.dtype), most, sums


# ---- triples --------------------------------------------------------------------------------------------------------
def _triples(q: Tensor, k1: Tensor, v1: Tensor, k2: Tensor, v2: Tensor, mask: Tensor | None,
             scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """(out, maxima, sums) of queries (B, H, N, M, D) with keys (B, H, N, K, D) and (B, H, K, M, D)."""
    q, k1, v1, k2, v2 = (wide(x) for x in (q, k1, v1, k2, v2))
    scores = (ops.einsum("bhimd,bhijd->bhimj", [q, k1]) + ops.einsum("bhimd,bhjmd->bhimj", [q, k2])) * scale
    if mask is not None:
        scores = scores.masked_fill(mask.bool(), _NONE)
    top = scores.amax(-1, True).detach()
    seen = top > _NONE
    top = ops.where(seen, top, 0.0)
    weights = (scores - top).exp()
    total = weights.sum(-1, True)
    weights = ops.where(seen, weights / total, 0.0)
    out = ops.einsum("bhimj,bhijd->bhimd", [weights, v1]) + ops.einsum("bhimj,bhjmd->bhimd", [weights, v2])
    return out, top, total


@row()
def npu_fused_floyd_attention(query_ik: Tensor, key_ij: Tensor, value_ij: Tensor, key_jk: Tensor, value_jk: Tensor,
                              atten_mask: Tensor | None, scale_value: float) -> tuple[Tensor, Tensor, Tensor]:
    """The maxima and sums of rows, eight times each, and attention of pairs (i, k) to all j by what (i, j) and (j, k) say."""
    out, top, total = _triples(query_ik, key_ij, value_ij, key_jk, value_jk, atten_mask, scale_value)
    most, sums = (x.expand(-1, -1, -1, -1, 8).contiguous().to(FLOAT32) for x in (top, total))
    return most, sums, out.to(query_ik.dtype)


@row()
def npu_fused_floyd_attention_backward(grad_output: Tensor, query_ik: Tensor, key_ij: Tensor, value_ij: Tensor,
                                       key_jk: Tensor, value_jk: Tensor, attention_out: Tensor, softmax_max: Tensor,
                                       softmax_sum: Tensor, atten_mask: Tensor | None,
                                       scale_value: float) -> tuple[Tensor, ...]:
    """The gradients of npu_fused_floyd_attention: of the query, and of both keys and values as they are given."""
    def forward(q: Tensor, k1: Tensor, v1: Tensor, k2: Tensor, v2: Tensor) -> Tensor:
        return _triples(q, k1, v1, k2, v2, atten_mask, scale_value)[0]
    return grad_of(forward, (query_ik, key_ij, value_ij, key_jk, value_jk), (grad_output,))
