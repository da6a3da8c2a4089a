"""Cases of torch_npu's attention to chosen keys, and of attention over triples."""

from __future__ import annotations

from typing import Any

import numpy as np
from npu_op_case import R, b, case, f, h, i32


def chosen(torch: Any, q: Any, k: Any, w: Any, count: int, late: int | None = 0) -> Any:
    """Of one sequence: queries (T, N, D), keys (S, D); the best keys, -1 behind them. late: keys after the last of the queries."""
    worth = (torch.einsum("tnd,sd->tns", q.float(), k.float()).clamp(min=0) * w.float()[..., None]).sum(1)
    if late is not None:
        worth = worth.masked_fill(torch.arange(len(k)) > torch.arange(len(q))[:, None] + len(k) - len(q), -torch.inf)
    order = worth.argsort(dim=-1, descending=True, stable=True)[:, :count]
    values = worth.gather(1, order)
    pad = (0, count - order.shape[1])
    return (torch.nn.functional.pad(torch.where(values == -torch.inf, -1, order), pad, value=-1).int(),
            torch.nn.functional.pad(values, pad, value=-torch.inf))


QUERY, KEY, WEIGHT = b(f(2, 3, 4, 16)), b(f(2, 8, 1, 16)), b(f(2, 3, 4))


def in_batches(torch: Any, q: Any, k: Any, w: Any, sparse_count: int, sparse_mode: int = 3, return_value: bool = False) -> Any:
    parts = [chosen(torch, q[n], k[n, :, 0], w[n], sparse_count, 0 if sparse_mode == 3 else None) for n in range(len(q))]
    index, values = (torch.stack(x).unsqueeze(2) for x in zip(*parts, strict=True))
    return index, values.bfloat16() if return_value else torch.empty(0)


case("npu_lightning_indexer", QUERY, KEY, WEIGHT, sparse_count=7, ref=in_batches)
case("npu_lightning_indexer", QUERY, KEY, WEIGHT, sparse_count=10, sparse_mode=0, ref=in_batches)
case("npu_lightning_indexer", QUERY, KEY, WEIGHT, sparse_count=4, sparse_mode=0, return_value=True, atol=5e-2, ref=in_batches)
TABLE = i32([3, 1], [0, 2])
PAGES = {"layout_query": "TND", "layout_key": "PA_BSND", "actual_seq_lengths_query": i32(2, 5), "actual_seq_lengths_key": i32(7, 6),
         "block_table": TABLE}


def paged(torch: Any, q: Any, pages: Any, w: Any, sparse_count: int, block_table: Any, **kw: Any) -> Any:
    parts = []
    for n, (a, z, length) in enumerate(((0, 2, 7), (2, 5, 6))):
        keys = pages[block_table[n].long()].reshape(-1, pages.shape[-1])[:length]
        parts.append(chosen(torch, q[a:z], keys, w[a:z], sparse_count)[0])
    return torch.cat(parts).unsqueeze(1), torch.empty(0)


case("npu_lightning_indexer", b(f(5, 4, 16)), b(f(4, 4, 1, 16)), b(f(5, 4)), sparse_count=4, **PAGES, ref=paged)


# ---- attention to them ------------------------------------------------------------------------------------------------
def attended(torch: Any, q: Any, k: Any, v: Any, index: Any, scale: float, block: int, causal: bool) -> Any:
    """Of one sequence: queries (T, N, D), keys and values (S, D), indices (T, blocks)."""
    seen = (torch.arange(len(k)) // block == index.long()[..., None]).any(1)
    if causal:
        seen = seen & (torch.arange(len(k)) <= torch.arange(len(q))[:, None] + len(k) - len(q))
    scores = (torch.einsum("tnd,sd->tns", q, k) * scale).masked_fill(~seen[:, None], -torch.inf)
    top = scores.amax(-1)
    weights = (scores - top[..., None]).exp()
    return torch.einsum("tns,sd->tnd", weights / weights.sum(-1, True), v), top, weights.sum(-1)


def sparse(torch: Any, q: Any, k: Any, v: Any, index: Any, scale: float, query_rope: Any, key_rope: Any, attention_mode: int,
           sparse_block_size: int = 1, sparse_mode: int = 3, return_softmax_lse: bool = False) -> Any:
    parts = [attended(torch, torch.cat([q[n], query_rope[n]], -1).float(), torch.cat([k[n], key_rope[n]], -1)[:, 0].float(), v[n, :, 0].float(),
                      index[n, :, 0], scale, sparse_block_size, sparse_mode == 3) for n in range(len(q))]
    out, top, total = (torch.stack(x) for x in zip(*parts, strict=True))
    rest = (top.unsqueeze(1), total.unsqueeze(1)) if return_softmax_lse else (torch.empty(0),) * 2
    return out.bfloat16(), *rest


ROPES = {"query_rope": b(f(2, 3, 4, 8)), "key_rope": b(f(2, 8, 1, 8)), "attention_mode": 2}
INDEX = np.array([[[[0, 3, 5, -1]], [[1, 2, 6, 0]], [[4, 7, -1, -1]]]] * 2, np.int32)
case("npu_sparse_flash_attention", QUERY, KEY, b(f(2, 8, 1, 16)), INDEX, 0.25, **ROPES, atol=2e-2, ref=sparse)
case("npu_sparse_flash_attention", QUERY, KEY, b(f(2, 8, 1, 16)), np.array([[[[0, 2]], [[1, -1]], [[2, 3]]]] * 2, np.int32), 0.25, **ROPES,
     sparse_block_size=2, sparse_mode=0, return_softmax_lse=True, atol=2e-2, ref=sparse)


# ---- triples ------------------------------------------------------------------------------------------------------------
def triples(torch: Any, q: Any, k1: Any, v1: Any, k2: Any, v2: Any, mask: Any, scale: float) -> Any:
    scores = (torch.einsum("bhimd,bhijd->bhimj", q, k1) + torch.einsum("bhimd,bhjmd->bhimj", q, k2)) * scale
    scores = scores if mask is None else scores.masked_fill(mask, -torch.inf)
    top = scores.amax(-1, True).detach()
    weights = (scores - top).exp()
    total = weights.sum(-1, True)
    p = weights / total
    return torch.einsum("bhimj,bhijd->bhimd", p, v1) + torch.einsum("bhimj,bhjmd->bhimd", p, v2), top, total


TRIPLES = (h(2, 2, 3, 4, 8), h(2, 2, 3, 5, 8), h(2, 2, 3, 5, 8), h(2, 2, 5, 4, 8), h(2, 2, 5, 4, 8))
HIDES = R.rand(2, 1, 3, 1, 5) < 0.3
HIDES[..., 0] = False


def floyd(torch: Any, *args: Any, scale_value: float, atten_mask: Any = None) -> Any:
    out, top, total = triples(torch, *(x.float() for x in args), atten_mask, scale_value)
    return top.expand(-1, -1, -1, -1, 8), total.detach().expand(-1, -1, -1, -1, 8), out.half()


case("npu_fused_floyd_attention", *TRIPLES, scale_value=0.3, atol=2e-2, ref=floyd)
case("npu_fused_floyd_attention", *TRIPLES, scale_value=0.3, atten_mask=HIDES, atol=2e-2, ref=floyd)


def rows_of_triples() -> tuple[np.ndarray, ...]:
    """What the gradient reads: the result, and the maxima and sums of rows."""
    q, k1, v1, k2, v2 = (x.astype(np.float32) for x in TRIPLES)
    scores = (np.einsum("bhimd,bhijd->bhimj", q, k1) + np.einsum("bhimd,bhjmd->bhimj", q, k2)) * 0.3
    scores = np.where(HIDES, -np.inf, scores)
    top = scores.max(-1, keepdims=True)
    total = np.exp(scores - top).sum(-1, keepdims=True)
    p = np.exp(scores - top) / total
    out = np.einsum("bhimj,bhijd->bhimd", p, v1) + np.einsum("bhimj,bhjmd->bhimd", p, v2)
    return out.astype(np.float16), np.repeat(top, 8, -1).astype(np.float32), np.repeat(total, 8, -1).astype(np.float32)


def floyd_grads(torch: Any, g: Any, *args: Any, atten_mask: Any, scale_value: float) -> Any:
    leaves = [x.float().requires_grad_() for x in args[:5]]
    made = torch.autograd.grad(triples(torch, *leaves, atten_mask, scale_value)[0], leaves, g.float())
    return tuple(x.half() for x in made)


case("npu_fused_floyd_attention_backward", h(2, 2, 3, 4, 8), *TRIPLES, *rows_of_triples(), atten_mask=HIDES, scale_value=0.3, atol=5e-2,
     ref=floyd_grads)
