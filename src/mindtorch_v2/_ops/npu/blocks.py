"""Rows of torch_npu's larger pieces of models: attention with its projections, sparse attention, hyper-connections."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mindtorch_v2._ops.npu.dropout import drawn_mask, kept_of
from mindtorch_v2._ops.npu.rows import FLOAT32, INT32, INT64, UINT8, grad_of, row, schemas, wide
from mindtorch_v2._ops.table import ops
from mindtorch_v2._tensor import Tensor


# ---- attention as BERT writes it ------------------------------------------------------------------------------------
def _scored(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float, kept: Tensor,
            keep_prob: float) -> tuple[Tensor, Tensor]:
    """(out (batch * length, heads * depth), weights)."""
    scores = ops.matmul(wide(query), wide(key).transpose(-2, -1)) * scale
    weights = ops.softmax(scores if mask is None else scores + wide(mask), -1)
    dropped = weights if kept is None else weights * kept / keep_prob
    out = ops.matmul(dropped, wide(value)).transpose(1, 2).reshape(query.size(0) * query.size(2), -1)
    return out.to(query.dtype), weights.to(query.dtype)


@row()
def npu_fused_attention_score_fwd(query_layer: Tensor, key_layer: Tensor, value_layer: Tensor, attention_mask: Tensor,
                                  scale: float, keep_prob: float, *_: object) -> tuple[Tensor, Tensor, Tensor]:
    """softmax(query key^T scale + mask) value as (batch * length, heads * depth), the softmax, and dropout's mask of bytes."""
    shape = [*query_layer.shape[:3], key_layer.size(2)]
    kept = (ops.rand(shape, device=query_layer.device) < keep_prob).to(UINT8)
    out, weights = _scored(query_layer, key_layer, value_layer, attention_mask, scale, kept, keep_prob)
    return out, weights, kept.reshape(-1)


@row()
def npu_fused_attention_score(query_layer: Tensor, key_layer: Tensor, value_layer: Tensor, attention_mask: Tensor,
                              scale: float, keep_prob: float, *_: object) -> Tensor:
    """softmax(query key^T scale + mask) value as (batch * length, heads * depth)."""
    return npu_fused_attention_score_fwd(query_layer, key_layer, value_layer, attention_mask, scale, keep_prob)[0]


@row()
def npu_fused_attention_score_backward(grad_output: Tensor, softmax_output: Tensor, query_layer: Tensor,
                                       key_layer: Tensor, value_layer: Tensor, drop_mask: Tensor, scale: float,
                                       keep_prob: float, *_: object) -> tuple[Tensor, ...]:
    """The gradients of npu_fused_attention_score: of query, key and value, in their shape."""
    q, k, v, p = (wide(x) for x in (query_layer, key_layer, value_layer, softmax_output))
    b, n, s, d = q.shape
    g = wide(grad_output).reshape(b, s, n, d).transpose(1, 2)
    kept = wide(drop_mask).reshape(p.shape) / keep_prob
    slope = ops._softmax_backward_data(ops.matmul(g, v.transpose(-2, -1)) * kept, p, -1, FLOAT32) * scale
    grads = ops.matmul(slope, k), ops.matmul(slope.transpose(-2, -1), q), ops.matmul((p * kept).transpose(-2, -1), g)
    return tuple(x.to(grad_output.dtype) for x in grads)


@row()
def npu_fused_attention_score_grad(grad_output: Tensor, softmax_output: Tensor, query_layer: Tensor, key_layer: Tensor,
                                   value_layer: Tensor, drop_mask: Tensor, scale: float, keep_prob: float,
                                   *_: object) -> tuple[Tensor, ...]:
    """The same gradients as (batch * length, heads * depth)."""
    grads = npu_fused_attention_score_backward(grad_output, softmax_output, query_layer, key_layer, value_layer, drop_mask,
                                               scale, keep_prob)
    return tuple(x.transpose(1, 2).reshape(grad_output.shape) for x in grads)


def _projected(x: Tensor, weight: Tensor, bias: Tensor | None, heads: int, depth: int, length: int) -> Tensor:
    y = ops.matmul(wide(x), wide(weight).t())
    y = y if bias is None else y + wide(bias)
    return y.reshape(-1, length, heads, depth).transpose(1, 2)


def _multi_head(query: Tensor, key: Tensor, value: Tensor, weights: tuple[Tensor, ...],
                biases: tuple[Tensor | None, ...], mask: Tensor, out_weight: Tensor, out_bias: Tensor | None, kept: Any,
                heads: int, depth: int, src_len: int, tgt_len: int, prob: float) -> tuple[Tensor, ...]:
    """y, the three projections, the softmax, what dropout leaves of it, and the context."""
    q, k, v = (_projected(x, w, b, heads, depth, n) for x, w, b, n in
               zip((query, key, value), weights, biases, (tgt_len, src_len, src_len), strict=True))
    scores = ops.matmul(q * depth ** -0.5, k.transpose(-2, -1))
    soft = ops.softmax(scores if mask is None else scores + wide(mask), -1)
    left = soft if kept is None else soft * kept.reshape(soft.shape) / (1 - prob)
    context = ops.matmul(left, v).transpose(1, 2).reshape(query.size(0), -1)
    y = ops.matmul(context, wide(out_weight).t())
    return y if out_bias is None else y + wide(out_bias), q, k, v, soft, left, context


@row()
def npu_multi_head_attention(query: Tensor, key: Tensor, value: Tensor, query_weight: Tensor, key_weight: Tensor,
                             value_weight: Tensor, attn_mask: Tensor, out_proj_weight: Tensor,
                             query_bias: Tensor | None, key_bias: Tensor | None, value_bias: Tensor | None,
                             out_proj_bias: Tensor | None, dropout_mask: Tensor | None, attn_head_num: int,
                             attn_dim_per_head: int, src_len: int, tgt_len: int, dropout_prob: float,
                             softmax_use_float: bool) -> tuple[Tensor, ...]:
    """Multi-head attention with its projections: y, dropout's bits, the projections, the softmax, its rest, the context."""
    count = query.size(0) // tgt_len * attn_head_num * tgt_len * src_len
    bits = dropout_mask
    if bits is None or not bits.numel():
        bits = drawn_mask(count, dropout_prob, query.device)
    kept = kept_of(bits, count) if dropout_prob > 0 else None
    y, q, k, v, soft, left, context = _multi_head(
        query, key, value, (query_weight, key_weight, value_weight), (query_bias, key_bias, value_bias), attn_mask,
        out_proj_weight, out_proj_bias, kept, attn_head_num, attn_dim_per_head, src_len, tgt_len, dropout_prob)
    like = query.dtype
    return (y.to(like), bits, q.to(like), k.to(like), v.to(like), soft.to(FLOAT32 if softmax_use_float else like), left.to(like),
            context.to(like))


# ---- hyper-connections ----------------------------------------------------------------------------------------------
def _post(x: Tensor, h_res: Tensor | None, h_out: Tensor, h_post: Tensor) -> Tensor:
    kept = wide(x) if h_res is None else ops.matmul(wide(h_res).transpose(-2, -1), wide(x))
    return (kept + wide(h_out).unsqueeze(-2) * wide(h_post).unsqueeze(-1)).to(x.dtype)


@row()
def npu_mhc_post(x: Tensor, h_res: Tensor | None, h_out: Tensor, h_post: Tensor) -> Tensor:
    """h_res^T x plus h_out times each of h_post: what a layer gives to the streams of (tokens, streams, depth)."""
    return _post(x, h_res, h_out, h_post)


@row()
def npu_mhc_post_backward(grad_y: Tensor, x: Tensor, h_res: Tensor | None, h_out: Tensor,
                          h_post: Tensor) -> tuple[Tensor, ...]:
    """The gradients of npu_mhc_post: of x, h_res, h_out and h_post."""
    made = grad_of(_post, (x, h_res, h_out, h_post), (grad_y,))
    return tuple(x.new_empty([0]) if g is None else g for g in made)


def _sized(shape: Sequence[int], asked: int, made: Tensor) -> Tensor:
    """An optional result: an empty tensor unless it was requested."""
    return made.reshape(list(shape)) if asked else made.new_empty([0])


@row()
def npu_mhc_pre(x: Tensor, phi: Tensor, alpha: Tensor, bias: Tensor, gamma: Tensor | None, norm_eps: float, hc_eps: float,
                out_flag: int, inner_precise: int) -> tuple[Tensor, ...]:
    """What a layer reads of the streams of (tokens, streams, depth), the weights by which it gives back and by which the
    streams mix; and for the gradient the inverse root mean square, the product with phi and the weights of the reading.
    With two of alpha streams do not mix."""
    rows = wide(x)
    streams, flat = x.size(-2), rows.flatten(-2)
    inverse = (flat.square().mean(-1) + norm_eps).rsqrt()
    mix = ops.matmul(flat if gamma is None else flat * gamma.reshape(-1), phi.t())
    parts = (mix * inverse.unsqueeze(-1)).split([streams, streams, phi.size(0) - 2 * streams], -1)
    gate = (parts[0] * alpha[0] + bias[:streams]).sigmoid() + hc_eps
    post = 2 * (parts[1] * alpha[1] + bias[streams:2 * streams]).sigmoid()
    square = [*x.shape[:-1], streams]
    if alpha.numel() == 2:
        post, res = post + hc_eps, rows.new_zeros(square)
    else:
        res = (parts[2] * alpha[2] + bias[2 * streams:]).reshape(square)
    h_in = (gate.unsqueeze(-1) * rows).sum(-2).to(x.dtype)
    return (h_in, post, res, _sized(inverse.shape, out_flag, inverse), _sized(mix.shape, out_flag, mix),
            _sized(gate.shape, out_flag, gate))


@row()
def npu_mhc_pre_backward(x: Tensor, phi: Tensor, alpha: Tensor, grad_h_in: Tensor, grad_h_post: Tensor, grad_h_res: Tensor,
                         inv_rms: Tensor, h_mix: Tensor, h_pre: Tensor, h_post: Tensor, gamma: Tensor | None, hc_eps: float,
                         grad_x_post: Tensor | None, inner_precise: int) -> tuple[Tensor, ...]:
    """The gradients of npu_mhc_pre: of x (plus that of npu_mhc_post), phi, alpha, bias and gamma."""
    rows, into = wide(x), wide(grad_h_in)
    flat, streams, lead = rows.flatten(-2), x.size(-2), tuple(range(x.dim() - 2))
    gate = h_pre - hc_eps
    slopes = [(into.unsqueeze(-2) * rows).sum(-1) * gate * (1 - gate), grad_h_post * h_post * (1 - h_post / 2),
              grad_h_res.reshape([*h_mix.shape[:-1], -1])]
    inverse = inv_rms.unsqueeze(-1)
    mixes = (h_mix * inverse).split([streams, streams, h_mix.size(-1) - 2 * streams], -1)
    grad_alpha = ops.stack([(a * b).sum() for a, b in zip(slopes, mixes, strict=True)])
    grad_w = ops.cat([slope * alpha[k] for k, slope in enumerate(slopes)], -1)
    grad_mix, grad_inverse = grad_w * inverse, (grad_w * h_mix).sum(-1, True)
    back = ops.matmul(grad_mix, phi)
    scale = 1.0 if gamma is None else gamma.reshape(-1)
    grad_x = back * scale - grad_inverse * inverse.pow(3) / flat.size(-1) * flat
    grad_x = grad_x.reshape(x.shape) + into.unsqueeze(-2) * h_pre.unsqueeze(-1)
    grad_x = grad_x if grad_x_post is None else grad_x + wide(grad_x_post)
    grad_phi = ops.matmul(grad_mix.flatten(0, -2).t(), (flat * scale).flatten(0, -2))
    grad_gamma = rows.new_empty([0]) if gamma is None else (flat * back).sum(lead).reshape(gamma.shape)
    return grad_x.to(x.dtype), grad_phi, grad_alpha, ops.cat(slopes, -1).sum(lead), grad_gamma


_SINKHORN_ROW = 8                      # of the matrices that the gradient reads, whatever their size is


@row()
def npu_mhc_sinkhorn(x: Tensor, eps: float, num_iters: int, out_flag: int) -> tuple[Tensor, Tensor, Tensor]:
    """Matrices whose rows and columns are divided by their sums in turn; what the gradient reads: all of them, and the sums."""
    y = ops._softmax(x, -1, False) + eps
    norm, sums = [y], [ops.zeros_like(y[..., 0])]
    for k in range(1, 2 * num_iters):
        total = y.sum(-2 if k % 2 else -1, True) + eps
        y = y / total
        norm.append(y)
        sums.append(total.reshape(y.shape[:-1]))
    pad = [0, _SINKHORN_ROW - x.size(-1)]
    kept = [ops.constant_pad_nd(ops.stack(v), pad, 0) if out_flag else x for v in (norm, sums)]
    return y, _sized([-1], out_flag, kept[0]), _sized([-1], out_flag, kept[1])


@row()
def npu_mhc_sinkhorn_backward(grad_y: Tensor, norm: Tensor, sum: Tensor) -> Tensor:
    """The gradient of npu_mhc_sinkhorn."""
    n = grad_y.size(-1)
    sums = sum.reshape([-1, *grad_y.shape[:-2], _SINKHORN_ROW])[..., :n]
    steps = norm.reshape([sums.size(0), *grad_y.shape[:-1], _SINKHORN_ROW])[..., :n]
    grad = grad_y
    for k in range(steps.size(0) - 1, 0, -1):
        dim = -2 if k % 2 else -1
        grad = (grad - (grad * steps[k]).sum(dim, True)) / sums[k].unsqueeze(dim)
    return (grad - (grad * steps[0]).sum(-1, True)) * steps[0]


# ---- native sparse attention ----------------------------------------------------------------------------------------
def _compressed(input: Tensor, weight: Tensor, size: int, stride: int, ends: Any) -> Tensor:
    """Weighted sums of blocks of `size` rows, `stride` apart, of each sequence of (tokens, heads, depth)."""
    ends = [input.size(0)] if not ends else list(ends)
    rows = []
    for start, end in zip([0, *ends], ends, strict=False):
        for at in range(start, end - size + 1, stride):
            rows.append((wide(input[at:at + size]) * wide(weight).unsqueeze(-1)).sum(0))
    return (ops.stack(rows) if rows else input.new_zeros([0, *input.shape[1:]])).to(input.dtype)


@row()
def npu_nsa_compress(input: Tensor, weight: Tensor, compress_block_size: int, compress_stride: int,
                     actual_seq_len: Sequence[int] | None) -> Tensor:
    """Blocks of keys or values as one row each, by learnt weights (block size, heads)."""
    return _compressed(input, weight, compress_block_size, compress_stride, actual_seq_len)


@row()
def npu_nsa_compress_grad(grad: Tensor, input: Tensor, weight: Tensor, compress_block_size: int, compress_stride: int,
                          actual_seq_len: Sequence[int] | None) -> tuple[Tensor, Tensor]:
    """The gradients of npu_nsa_compress: of the input and the weight."""
    return grad_of(lambda x, w: _compressed(x, w, compress_block_size, compress_stride, actual_seq_len), (input, weight), (grad,))


def _selected(query: Tensor, key: Tensor, value: Tensor, indices: Tensor, scale: float, size: int, q_ends: list[int],
              k_ends: list[int], causal: bool) -> tuple[Tensor, ...]:
    """(out, maxima, sums) of queries (tokens, heads, depth) that see only the blocks that indices name."""
    heads, kv = query.size(1), key.size(1)
    outs, tops, sums = [], [], []
    for b, (a, z) in enumerate(zip([0, *q_ends], q_ends, strict=False)):
        first, last = ([0, *k_ends])[b], k_ends[b]
        keys, values = (wide(x[first:last]).repeat_interleave(heads // kv, 1) for x in (key, value))
        chosen = indices[a:z].to(INT64)
        places = ops.arange(last - first, device=query.device)
        seen = ((places // size).reshape(1, 1, 1, -1) == chosen.unsqueeze(-1)).any(2)
        seen = seen.repeat_interleave(heads // kv, 1)
        if causal:                           # aligned at the first query and the first key
            seen = seen & (places <= ops.arange(z - a, device=query.device).reshape(-1, 1, 1))
        scores = ops.einsum("tnd,snd->tns", [wide(query[a:z]), keys]) * scale
        scores = scores.masked_fill(~seen, float("-inf"))
        top = scores.amax(-1, True).detach()
        weights = (scores - top).exp()
        total = weights.sum(-1, True)
        outs.append(ops.einsum("tns,snd->tnd", [weights / total, values]))
        tops.append(top)
        sums.append(total)
    return ops.cat(outs).to(query.dtype), *(ops.cat(x).expand(-1, -1, 8).contiguous().to(FLOAT32) for x in (tops, sums))


@row()
def npu_nsa_select_attention(query: Tensor, key: Tensor, value: Tensor, topk_indices: Tensor, scale_value: float,
                             head_num: int, select_block_size: int, select_block_count: int, atten_mask: Tensor | None,
                             actual_seq_qlen: Any, actual_seq_kvlen: Any) -> tuple[Tensor, ...]:
    """Attention over the blocks of keys that were chosen for each query, causal where there is a mask (CANN's sparseMode 2
    does not read it otherwise); the maxima and sums of its rows."""
    return _selected(query, key, value, topk_indices, scale_value, select_block_size, list(actual_seq_qlen), list(actual_seq_kvlen),
                     atten_mask is not None)


@row()
def npu_nsa_select_attention_grad(grad: Tensor, query: Tensor, key: Tensor, value: Tensor, attention_out: Tensor,
                                  softmax_max: Tensor, softmax_sum: Tensor, topk_indices: Tensor, scale_value: float,
                                  head_num: int, select_block_size: int, select_block_count: int,
                                  atten_mask: Tensor | None, actual_seq_qlen: Any,
                                  actual_seq_kvlen: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of npu_nsa_select_attention: of query, key and value."""
    def forward(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return _selected(q, k, v, topk_indices, scale_value, select_block_size, list(actual_seq_qlen), list(actual_seq_kvlen),
                         atten_mask is not None)[0]
    return grad_of(forward, (query, key, value), (grad,))


def _block_scores(weights: Tensor, size: int, stride: int, select: int) -> Tensor:
    """What every block of `select` rows is worth: of all windows that begin in it or reach into it, as often as they do."""
    each, reach, n = select // stride, size // stride, weights.size(-1)
    blocks = ops.arange(-(-n // each), device=weights.device).unsqueeze(1) * each
    steps = blocks - ops.arange(n, device=weights.device)
    often = ops.minimum((steps + 1).clamp(max=min(each, reach)), each + reach - 1 - steps).clamp(min=0)
    return ops.matmul(weights, often.to(FLOAT32).t())


@row()
def npu_nsa_compress_attention(query: Tensor, key: Tensor, value: Tensor, scale_value: float, head_num: int,
                               compress_block_size: int, compress_stride: int, select_block_size: int,
                               select_block_count: int, topk_mask: Tensor | None, atten_mask: Tensor | None,
                               actual_seq_qlen: Any, actual_cmp_seq_kvlen: Any,
                               actual_sel_seq_kvlen: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Attention to compressed keys; the blocks that its weights choose for each query, the maxima and sums of its rows."""
    if topk_mask is not None:
        raise NotImplementedError("[npu_nsa_compress_attention] topk_mask is not offered")
    heads, kv = query.size(1), key.size(1)
    outs, chosen, tops, sums = [], [], [], []
    for (a, z), (first, last) in zip(_spans(actual_seq_qlen), _spans(actual_cmp_seq_kvlen), strict=True):
        keys, values = (wide(x[first:last]).repeat_interleave(heads // kv, 1) for x in (key, value))
        scores = ops.einsum("tnd,snd->tns", [wide(query[a:z]), keys]) * scale_value
        if atten_mask is not None:
            scores = scores.masked_fill(atten_mask[:z - a, :last - first].bool().unsqueeze(1), float("-inf"))
        top = scores.amax(-1, True)
        seen = top > float("-inf")                       # a query that sees nothing gives nothing
        top = ops.where(seen, top, 0.0)
        weights = (scores - top).exp()
        total = weights.sum(-1, True)
        weights = ops.where(seen, weights / total, 0.0)
        outs.append(ops.einsum("tns,snd->tnd", [weights, values]))
        worth = _block_scores(weights.unflatten(1, (kv, -1)).sum(2), compress_block_size, compress_stride, select_block_size)
        best = ops.argsort(worth, dim=-1, descending=True, stable=True)[..., :select_block_count]
        chosen.append(ops.constant_pad_nd(best, [0, select_block_count - best.size(-1)], -1))
        tops.append(top)
        sums.append(total)
    return (ops.cat(outs).to(query.dtype), ops.cat(chosen).to(INT32),
            *(ops.cat(x).expand(-1, -1, 8).contiguous().to(FLOAT32) for x in (tops, sums)))


def _spans(ends: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip([0, *ends], ends, strict=False))


@row("npu_nsa_compress_infer.cache")
def npu_nsa_compress_infer(input: Tensor, weight: Tensor, slot_mapping: Tensor, compress_block_size: int, compress_stride: int,
                           page_block_size: int, block_table: Tensor | None, actual_seq_len: Any, cache: Tensor) -> Tensor:
    """Writes the newest window of every sequence that has just become full, compressed, to its slot of the cache."""
    if block_table is None or actual_seq_len is None:
        raise RuntimeError("[npu_nsa_compress_infer] expected block_table and actual_seq_len, got None")
    rows = cache.reshape(-1, *cache.shape[-2:])
    for b, (length, slot) in enumerate(zip(actual_seq_len, slot_mapping.tolist(), strict=True)):
        if length < compress_block_size or (length - compress_block_size) % compress_stride:
            continue
        places = ops.arange(length - compress_block_size, length, device=input.device)
        pages = block_table[b].to(INT64)[places // page_block_size]
        window = wide(input[pages, places % page_block_size])
        rows[slot].copy_((window * wide(weight).unsqueeze(-1)).sum(0))
    return cache


# ---- the rest -------------------------------------------------------------------------------------------------------
@row(next(name for name in schemas if name.endswith("_exponential_")))
def _exponential_(input: Tensor, lambd: float, generator: Any) -> Tensor:
    """Every item becomes a random number of the exponential distribution."""
    return input.exponential_(lambd, generator=generator)


@row()
def print_npugraph_tensor(input: Tensor, tensor_name: str | None) -> None:
    """Prints a tensor."""
    print(f"{tensor_name}: {input}" if tensor_name else input)
