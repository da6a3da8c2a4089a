"""Rows of torch_npu's mixture of experts: which tokens go to which expert, gathered by expert and put back."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mindtorch_v2._ops.npu.quant import by_rows, quantized
from mindtorch_v2._ops.npu.rows import BOOL, FLOAT32, INT8, INT32, INT64, call, dtype_of, row, wide
from mindtorch_v2._ops.table import Spec, ops
from mindtorch_v2._tensor import Tensor


# ---- choosing experts -----------------------------------------------------------------------------------------------
def _past_last(indices: Tensor, finished: Tensor | None, experts: int) -> Tensor:
    """A finished row goes to no expert, which is the number past the last."""
    return indices if finished is None else indices.masked_fill(finished.bool().unsqueeze(-1), experts)


def _chosen_rule(x: Tensor, finished: Tensor | None, k: int) -> Sequence[Spec] | None:
    chosen = (*x.shape[:-1], k)
    return [(chosen, x.dtype), (chosen, INT32), (chosen, INT32)] if x.dim() > 1 else None


@row(rule=_chosen_rule, npu="aclnnMoeGatingTopKSoftmax(x, finished, k, out0, out1, out2)")
def npu_moe_gating_top_k_softmax(x: Tensor, finished: Tensor | None, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """The k largest of each row's softmax, whose they are, and the number of each choice: choice * rows + row."""
    values, experts = ops.topk(ops.softmax(wide(x), -1), k, -1)
    n = values.numel() // k
    rows = ops.arange(n, device=x.device).unsqueeze(1) + ops.arange(k, device=x.device) * n
    return (values.to(x.dtype), _past_last(experts, finished, x.size(-1)).to(INT32), rows.reshape(values.shape).to(INT32))


@row()
def npu_moe_gating_top_k_softmax_v2(x: Tensor, k: int, finished: Tensor | None, renorm: int | None,
                                    output_softmax: bool | None) -> tuple[Tensor, Tensor, Tensor]:
    """The k largest of each row's softmax (with renorm, the softmax of the k largest), whose they are; the softmax."""
    if renorm:
        values, experts = ops.topk(wide(x), k, -1)
        values, soft = ops.softmax(values, -1), ops.empty([0], dtype=FLOAT32, device=x.device)
    else:
        soft = ops.softmax(wide(x), -1)
        values, experts = ops.topk(soft, k, -1)
        soft = soft if output_softmax else ops.empty([0], dtype=FLOAT32, device=x.device)
    return values.to(x.dtype), _past_last(experts, finished, x.size(-1)).to(INT32), soft.to(FLOAT32)


def _gating_rule(x: Tensor, k: int, bias: Tensor | None, input_ids: Tensor | None, tid2eid: Tensor | None,
                 *_: object) -> Sequence[Spec] | None:
    chosen = (*x.shape[:-1], k)
    return None if tid2eid is not None or x.dim() != 2 else [(chosen, x.dtype), (chosen, INT32), (x.shape, FLOAT32)]


@row(rule=_gating_rule,
     npu="aclnnMoeGatingTopK(x, bias, k, k_group, group_count, group_select_mode, renorm, norm_type, out_flag, "
         "routed_scaling_factor, eps, out0, out1, out2)")
def npu_moe_gating_top_k(x: Tensor, k: int, bias: Tensor | None, input_ids: Tensor | None, tid2eid: Tensor | None,
                         k_group: int, group_count: int, group_select_mode: int, renorm: int, norm_type: int,
                         out_flag: bool, routed_scaling_factor: float, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """The k best experts among those of the k_group best groups; their scores, scaled; and all scores, for out_flag only.

    The bias counts for the choice only; sigmoid scores (norm_type 1) and renormed ones are divided by their sum."""
    norm = wide(x).sigmoid() if norm_type == 1 else ops.softmax(wide(x), -1)
    if tid2eid is not None and input_ids is not None:
        experts = tid2eid[input_ids.to(INT64)].to(INT64)
    else:
        score = norm if bias is None else norm + wide(bias)
        if group_count > 1:
            grouped = score.unflatten(-1, (group_count, -1))
            best = grouped.amax(-1) if group_select_mode == 0 else ops.topk(grouped, 2, -1)[0].sum(-1)
            kept = ops.zeros_like(best, dtype=BOOL).scatter_(-1, ops.topk(best, k_group, -1)[1], True)
            score = grouped.masked_fill(~kept.unsqueeze(-1), float("-inf")).flatten(-2)
        experts = ops.topk(score, k, -1)[1]
    y = norm.gather(-1, experts)
    if norm_type == 1 or renorm == 1:
        y = y / (y.sum(-1, True) + eps)
    return (y * routed_scaling_factor).to(x.dtype), experts.to(INT32), norm.to(FLOAT32)


@row()
def npu_moe_gating_top_k_backward(x_norm: Tensor, grad_y: Tensor, expertIdx: Tensor, renorm: int, norm_type: int,
                                  routed_scaling_factor: float, eps: float) -> Tensor:
    """The gradient of npu_moe_gating_top_k of sigmoid scores: the chosen ones were divided by their sum."""
    if norm_type != 1:
        raise NotImplementedError(f"[npu_moe_gating_top_k_backward] norm_type {norm_type} is not offered, as in CANN")
    chosen = expertIdx.to(INT64)
    scores, grad = x_norm.gather(-1, chosen), wide(grad_y) * routed_scaling_factor
    total = scores.sum(-1, True) + eps
    slope = (grad - (scores / total * grad).sum(-1, True)) / total
    return (ops.scatter_add(ops.zeros_like(x_norm), -1, chosen, slope) * x_norm * (1 - x_norm)).to(grad_y.dtype)


@row()
def npu_moe_compute_expert_tokens(sorted_expert_for_source_row: Tensor, num_expert: int) -> Tensor:
    """How many of the sorted rows end at or before each expert."""
    experts = ops.arange(num_expert, device=sorted_expert_for_source_row.device)
    return (sorted_expert_for_source_row.reshape(1, -1) <= experts.unsqueeze(1)).sum(1).to(INT32)


# ---- gathering by expert --------------------------------------------------------------------------------------------
def _where_to(order: Tensor) -> Tensor:
    """Where each item goes, of the order that sorts them."""
    return ops.empty_like(order).scatter_(0, order, ops.arange(order.numel(), device=order.device))


@row()
def npu_moe_init_routing(x: Tensor, row_idx: Tensor, expert_idx: Tensor,
                         active_num: int) -> tuple[Tensor, Tensor, Tensor]:
    """The rows of x by the expert of each choice; where each choice went; the experts, sorted."""
    n, k = expert_idx.shape
    order = ops.argsort(expert_idx.reshape(-1), stable=True)
    rows = row_idx.reshape(-1).to(INT64)[order]
    expanded = ops.index_select(x, 0, rows[:min(n, active_num) * k] % n)
    return expanded, _where_to(rows).to(INT32), expert_idx.reshape(-1)[order].to(INT32)


def _init_routing(x: Tensor, expert_idx: Tensor, active: int, first: int,
                  last: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of choices whose expert is in the range: the rows of x by expert, the choices in that order, and where each went."""
    k, flat = expert_idx.size(1), expert_idx.reshape(-1).to(INT64)
    inside = (flat >= first) & (flat < last)
    order = ops.argsort(ops.where(inside, flat, flat.new_full([], last)), stable=True)
    count = int(inside.sum())
    count = min(count, active) if active > 0 else count
    chosen = order[:count]
    return ops.index_select(x, 0, chosen // k), chosen, order, flat[chosen]


@row()
def npu_moe_init_routing_v2(x: Tensor, expert_idx: Tensor, scale: Tensor | None, offset: Tensor | None, active_num: int,
                            expert_capacity: int, expert_num: int, drop_pad_mode: int, expert_tokens_num_type: int,
                            expert_tokens_num_flag: bool, quant_mode: int, active_expert_range: Sequence[int],
                            row_idx_type: int, x_dtype: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The rows of x by expert, as integers where asked for; where each choice went (or came from); rows of each expert; scales."""
    if drop_pad_mode:
        raise NotImplementedError("[npu_moe_init_routing_v2] drop_pad_mode 1 is not offered")
    first, last = active_expert_range or (0, expert_num if expert_num > 0 else int(expert_idx.max()) + 1)
    rows, chosen, order, experts = _init_routing(x, expert_idx, active_num, first, last)
    total, k = expert_idx.numel(), expert_idx.size(1)
    scales = ops.empty([total], dtype=FLOAT32, device=x.device)
    if quant_mode == 1:
        smooth = wide(rows) if scale is None else wide(rows) * wide(scale)[(experts - first) % scale.size(0)]
        rows, found = by_rows(smooth)
        scales[:chosen.numel()] = found
    elif quant_mode == 0:
        q = wide(rows) * wide(scale)
        rows = quantized(q if offset is None else q + wide(offset), INT8)
    elif scale is not None:
        scales[:chosen.numel()] = scale.reshape(-1)[chosen // k]
    index = order.to(INT32)
    if row_idx_type == 0:
        at = ops.arange(chosen.numel(), device=x.device)
        index = ops.full([total], -1, dtype=INT64, device=x.device).scatter_(0, chosen, at).to(INT32)
    expanded = ops.constant_pad_nd(rows, [0, 0, 0, total - rows.size(0)], 0)
    return expanded, index, _tokens(experts, first, last, expert_tokens_num_type, expert_num), scales


@row()
def npu_moe_init_routing_quant(x: Tensor, expert_idx: Tensor, scale: Tensor | None, offset: Tensor | None, active_num: int,
                               expert_capacity: int, expert_num: int, drop_pad_mode: int, expert_tokens_num_mode: int,
                               expert_tokens_before_capacity_flag: bool,
                               quant_mode: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The rows of x by expert as integers; where each choice went; rows of each expert, added up (1) or counted (2); scales."""
    made, index, tokens, scales = npu_moe_init_routing_v2(
        x, expert_idx, scale=scale, offset=offset, active_num=active_num, expert_capacity=expert_capacity, expert_num=expert_num,
        drop_pad_mode=drop_pad_mode, expert_tokens_num_type=int(expert_tokens_num_mode == 2), expert_tokens_num_flag=True,
        quant_mode=quant_mode, active_expert_range=[0, expert_num], row_idx_type=0)
    none = scales.new_empty([0])
    tokens = tokens if expert_tokens_num_mode else none
    return made, index, tokens.to(INT32), none.to(INT32), scales if quant_mode == 1 else none


def _tokens(experts: Tensor, first: int, last: int, kind: int, expert_num: int) -> Tensor:
    """Rows of each expert: added up (0), counted (1), or as pairs with the experts that have some (2)."""
    counts = ops.bincount(experts - first, minlength=last - first)
    if kind != 2:
        return counts.cumsum(0) if kind == 0 else counts
    some = ops.nonzero(counts).reshape(-1)
    pairs = ops.stack([some + first, counts[some]], 1)
    return ops.constant_pad_nd(pairs, [0, 0, 0, max(expert_num, last - first) - pairs.size(0)], 0)


@row()
def npu_moe_token_permute_grad_v2(grad_permuted_tokens: Tensor, sorted_indices: Tensor, tokens_size_0: int,
                                  tokens_dtype: int, num_topK: int, padded_mode: bool) -> Tensor:
    """The gradient of npu_moe_token_permute: the rows of each token's choices, added up."""
    return _gathered(grad_permuted_tokens, sorted_indices, None, num_topK).to(dtype_of(tokens_dtype))


@row()
def npu_moe_token_permute_grad(tokens: Tensor, grad_permuted_tokens: Tensor, indices: Tensor, sorted_indices: Tensor,
                               padded_mode: bool) -> Tensor:
    """The gradient of npu_moe_token_permute."""
    choices = indices.size(1) if indices.dim() == 2 else 1
    return _cann_gathered(grad_permuted_tokens, sorted_indices, choices).to(tokens.dtype)


@call("permute_grad(Tensor grad, Tensor sorted_indices, int choices) -> Tensor",
      rule=lambda grad, sorted_indices, choices: ((sorted_indices.numel() // choices, grad.size(1)), grad.dtype),
      npu="aclnnMoeTokenPermuteGrad(grad, sorted_indices, choices, False, out)")
def _cann_gathered(grad: Tensor, sorted_indices: Tensor, choices: int) -> Tensor:
    return _gathered(grad, sorted_indices, None, choices)


def _gathered(rows: Tensor, sorted_indices: Tensor, probs: Tensor | None, choices: int) -> Tensor:
    """The rows of each token's choices, times their probabilities, added up; dropped rows count as zeros."""
    index = sorted_indices.to(INT64)
    kept = index < rows.size(0)
    found = wide(ops.index_select(rows, 0, index.clamp(max=max(rows.size(0) - 1, 0)))) * kept.unsqueeze(1)
    found = found if probs is None else found * wide(probs).reshape(-1, 1)
    return found.unflatten(0, (-1, choices)).sum(1).to(rows.dtype)


@row(rule=lambda tokens, indices, num_out_tokens, padded_mode:
     None if padded_mode or num_out_tokens else [((indices.numel(), tokens.size(1)), tokens.dtype), ((indices.numel(),), INT32)],
     npu="aclnnMoeTokenPermute(tokens, indices, num_out_tokens=0, padded_mode, out0, out1)",
     grad={"tokens": lambda g, tokens, indices, padded_mode, result1:
           npu_moe_token_permute_grad(tokens, g, indices, result1, padded_mode)})
def npu_moe_token_permute(tokens: Tensor, indices: Tensor, num_out_tokens: int | None,
                          padded_mode: bool) -> tuple[Tensor, Tensor]:
    """The tokens by the expert of each choice, and where each choice went; rows beyond num_out_tokens are dropped."""
    if padded_mode:
        raise RuntimeError("current version only support padded_mode is false")
    choices = indices.size(1) if indices.dim() == 2 else 1
    order = ops.argsort(indices.reshape(-1), stable=True)
    count = order.numel()
    if num_out_tokens:
        count = min(num_out_tokens, count) if num_out_tokens > 0 else max(count + num_out_tokens, 0)
    return ops.index_select(tokens, 0, order[:count] // choices), _where_to(order).to(INT32)


def _choices(probs: Tensor | None) -> int:
    return probs.size(1) if probs is not None and probs.dim() == 2 else 1


def _unpermute_grads(rows: Tensor, grad: Tensor, sorted_indices: Tensor, probs: Tensor | None) -> tuple[Tensor, Tensor]:
    """The gradients of the permuted rows and of the probabilities."""
    index, choices = sorted_indices.to(INT64), _choices(probs)
    each = wide(grad).repeat_interleave(choices, 0)
    kept = index < rows.size(0)
    weighted = (each if probs is None else each * wide(probs).reshape(-1, 1)) * kept.unsqueeze(1)
    at = index.clamp(max=max(rows.size(0) - 1, 0))
    drows = ops.zeros(rows.shape, dtype=weighted.dtype, device=rows.device).index_add(0, at, weighted)
    if probs is None:
        return drows.to(rows.dtype), ops.empty([0], dtype=rows.dtype, device=rows.device)
    dprobs = (wide(ops.index_select(rows, 0, at)) * each * kept.unsqueeze(1)).sum(1)
    return drows.to(rows.dtype), dprobs.reshape(probs.shape).to(probs.dtype)


@call("unpermute_grad(Tensor rows, Tensor grad, Tensor sorted_indices, Tensor probs) -> (Tensor, Tensor)",
      rule=lambda rows, grad, sorted_indices, probs: [(rows.shape, rows.dtype), (probs.shape, probs.dtype)],
      npu="aclnnMoeTokenUnpermuteGrad(rows, grad, sorted_indices, probs, False, None, out0, out1)")
def _cann_unpermute_grad(rows: Tensor, grad: Tensor, sorted_indices: Tensor, probs: Tensor) -> tuple[Tensor, Tensor]:
    return _unpermute_grads(rows, grad, sorted_indices, probs)


@row()
def npu_moe_token_unpermute_grad(permuted_tokens: Tensor, grad_unpermuted_tokens: Tensor, sorted_indices: Tensor,
                                 probs: Tensor | None, padded_mode: bool,
                                 restore_shape: Sequence[int] | None) -> tuple[Tensor, Tensor]:
    """The gradients of npu_moe_token_unpermute: of the permuted tokens and of the probabilities."""
    if probs is not None and not padded_mode:
        return _cann_unpermute_grad(permuted_tokens, grad_unpermuted_tokens, sorted_indices, probs)
    return _unpermute_grads(permuted_tokens, grad_unpermuted_tokens, sorted_indices, probs)


@row()
def npu_moe_token_unpermute_grad_v2(grad_unpermuted_tokens: Tensor, sorted_indices: Tensor, permuted_tokens_size_0: int,
                                    permuted_tokens_dtype: int, probs: Tensor | None, padded_mode: bool,
                                    restore_shape: Sequence[int] | None,
                                    permuted_tokens: Tensor | None) -> tuple[Tensor, Tensor]:
    """The gradients of npu_moe_token_unpermute, of tokens that need not be at hand where there are no probabilities."""
    rows = permuted_tokens
    if rows is None:
        rows = ops.zeros([permuted_tokens_size_0, grad_unpermuted_tokens.size(1)], dtype=dtype_of(permuted_tokens_dtype),
                         device=grad_unpermuted_tokens.device)
    return _unpermute_grads(rows, grad_unpermuted_tokens, sorted_indices, probs)


def _unpermute_rule(permuted_tokens: Tensor, sorted_indices: Tensor, probs: Tensor | None, padded_mode: bool,
                    restore_shape: Sequence[int] | None) -> Spec | None:
    if padded_mode or sorted_indices.numel() % _choices(probs):
        return None
    return (sorted_indices.numel() // _choices(probs), permuted_tokens.size(1)), permuted_tokens.dtype


@row(rule=_unpermute_rule,
     npu="aclnnMoeTokenUnpermute(permuted_tokens, sorted_indices, probs, padded_mode, restore_shape, out)",
     grad={"permuted_tokens, probs": lambda g, permuted_tokens, sorted_indices, probs, padded_mode, restore_shape:
           npu_moe_token_unpermute_grad(permuted_tokens, g, sorted_indices, probs, padded_mode, restore_shape)})
def npu_moe_token_unpermute(permuted_tokens: Tensor, sorted_indices: Tensor, probs: Tensor | None, padded_mode: bool,
                            restore_shape: Sequence[int] | None) -> Tensor:
    """The rows of each token's choices, times their probabilities, added up."""
    if padded_mode:
        raise RuntimeError("current version only support padded_mode is false")
    return _gathered(permuted_tokens, sorted_indices, probs, _choices(probs))


@row()
def _npu_moe_token_unpermute(permuted_tokens: Tensor, sorted_indices: Tensor, probs: Tensor | None, padded_mode: bool,
                             restore_shape: Sequence[int] | None) -> tuple[Tensor, Tensor]:
    """npu_moe_token_unpermute, and the permuted tokens, which its gradient needs."""
    return npu_moe_token_unpermute(permuted_tokens, sorted_indices, probs, padded_mode, restore_shape), permuted_tokens


# ---- by a map of tokens and experts ---------------------------------------------------------------------------------
def _mapped(routing_map: Tensor, num_out_tokens: int | None) -> tuple[Tensor, Tensor, int]:
    """(expert, token) of each place of the permuted rows, and the number of choices that each token has."""
    experts, tokens = ops.nonzero(routing_map.bool().t()).unbind(1)
    topk = (num_out_tokens or experts.numel()) // max(routing_map.size(0), 1)
    return experts, tokens, topk


@row()
def npu_moe_token_permute_with_routing_map(tokens: Tensor, routing_map: Tensor, probs: Tensor | None,
                                           num_out_tokens: int | None,
                                           drop_and_pad: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The tokens by expert, their probabilities, and where each token's choices went, by token (or the token of each row,
    where every expert takes as many as its capacity)."""
    if drop_and_pad:
        capacity = (num_out_tokens or tokens.size(0)) // routing_map.size(1)
        order = ops.argsort(routing_map.bool().to(INT8).t(), dim=-1, descending=True, stable=True)[:, :capacity]
        index = order.reshape(-1)
        own = ops.arange(routing_map.size(1), device=tokens.device).repeat_interleave(capacity)
        found = ops.empty([0], device=tokens.device) if probs is None else probs[index, own]
        return ops.index_select(tokens, 0, index), found, index.to(INT32)
    experts, own, _ = _mapped(routing_map, num_out_tokens)
    found = ops.empty([0], device=tokens.device) if probs is None else probs[own, experts]
    return ops.index_select(tokens, 0, own), found, ops.argsort(own, stable=True).to(INT32)


@row()
def npu_moe_token_permute_with_routing_map_grad(permuted_token_out_grad: Tensor, probs_grad: Tensor | None,
                                                sorted_indices: Tensor, routing_map: Tensor, experts_num: int,
                                                tokens_num: int, drop_and_pad: bool) -> tuple[Tensor, Tensor]:
    """The gradients of npu_moe_token_permute_with_routing_map: of the tokens and of the probabilities."""
    g, index = wide(permuted_token_out_grad), sorted_indices.to(INT64)
    if drop_and_pad:
        own = index
        experts = ops.arange(experts_num, device=g.device).repeat_interleave(index.numel() // experts_num)
    else:
        experts, own, _ = _mapped(routing_map, None)
    tokens = ops.zeros([tokens_num, g.size(1)], dtype=g.dtype, device=g.device).index_add(0, own, g)
    if probs_grad is None:
        return tokens.to(permuted_token_out_grad.dtype), ops.empty([0], device=g.device)
    probs = ops.zeros([tokens_num, experts_num], dtype=probs_grad.dtype, device=g.device)
    return tokens.to(permuted_token_out_grad.dtype), ops.index_put(probs, [own, experts], probs_grad)


def _by_map(permuted_tokens: Tensor, sorted_indices: Tensor, restore_shape: list[int], probs: Tensor | None,
            routing_map: Tensor | None, drop_and_pad: bool) -> tuple[Tensor, Tensor]:
    index = sorted_indices.to(INT64)
    if drop_and_pad:
        own, rows = index, permuted_tokens
    else:
        topk = index.numel() // max(restore_shape[0], 1)
        own = ops.arange(restore_shape[0], device=index.device).repeat_interleave(topk)
        rows = ops.index_select(permuted_tokens, 0, index)
    rows = wide(rows)
    if probs is not None:
        rows = rows * wide(_own_probs(probs, routing_map, sorted_indices, own, drop_and_pad)).unsqueeze(1)
    made = ops.zeros(restore_shape, dtype=rows.dtype, device=rows.device).index_add(0, own, rows)
    return made.to(permuted_tokens.dtype), own


@row()
def npu_moe_token_unpermute_with_routing_map(permuted_tokens: Tensor, sorted_indices: Tensor, restore_shape: list[int],
                                             probs: Tensor | None, routing_map: Tensor | None,
                                             drop_and_pad: bool) -> Tensor:
    """The rows of each token, times their probabilities, added up at its place."""
    return _by_map(permuted_tokens, sorted_indices, restore_shape, probs, routing_map, drop_and_pad)[0]


@row()
def _npu_moe_token_unpermute_with_routing_map(permuted_tokens: Tensor, sorted_indices: Tensor, restore_shape: list[int],
                                              probs: Tensor | None, routing_map: Tensor | None,
                                              drop_and_pad: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The rows of each token added up; where each row is, whose it is, and its probability, which the gradient needs."""
    made, own = _by_map(permuted_tokens, sorted_indices, restore_shape, probs, routing_map, drop_and_pad)
    if probs is None or routing_map is None or drop_and_pad:
        weights = _own_probs(probs, routing_map, sorted_indices, own, drop_and_pad)
    else:                                                       # by expert, and of one expert by token
        weights = ops.masked_select(probs.t(), routing_map.bool().t())
    return made, sorted_indices, own.to(INT32), weights


def _own_probs(probs: Tensor | None, routing_map: Tensor | None, sorted_indices: Tensor, own: Tensor,
               drop_and_pad: bool) -> Tensor:
    if probs is None:
        return ops.empty([0], device=sorted_indices.device)
    return probs[own, _own_experts(routing_map, sorted_indices, drop_and_pad)]


def _own_experts(routing_map: Any, sorted_indices: Tensor, drop_and_pad: bool) -> Tensor:
    """The expert of each row."""
    if not drop_and_pad:
        return ops.nonzero(routing_map.bool())[:, 1]
    each = sorted_indices.numel() // routing_map.size(1)
    return ops.arange(routing_map.size(1), device=routing_map.device).repeat_interleave(each)


@row()
def npu_moe_token_unpermute_with_routing_map_grad(unpermuted_tokens_grad: Tensor, out_index: Tensor,
                                                  permuted_token_id: Tensor, routing_map: Tensor | None,
                                                  permuted_tokens: Tensor | None, probs: Tensor | None,
                                                  drop_and_pad: bool,
                                                  restore_shape: list[int]) -> tuple[Tensor, Tensor]:
    """The gradients of npu_moe_token_unpermute_with_routing_map: of the permuted tokens and of the probabilities."""
    own, index = permuted_token_id.to(INT64), out_index.to(INT64)
    each = wide(ops.index_select(unpermuted_tokens_grad, 0, own))
    weighted = each
    if probs is not None:
        experts = _own_experts(routing_map, out_index, drop_and_pad)
        weighted = each * wide(probs)[own, experts].unsqueeze(1)
    if not drop_and_pad:
        weighted = ops.empty_like(weighted).index_copy(0, index, weighted)
    grad = weighted.to(unpermuted_tokens_grad.dtype)
    if probs is None:
        return grad, ops.empty([0], device=grad.device)
    rows = permuted_tokens if drop_and_pad else ops.index_select(permuted_tokens, 0, index)
    dprobs = (wide(rows) * each).sum(1).to(probs.dtype)
    return grad, ops.index_put(ops.zeros_like(probs), [own, experts], dprobs)


# ---- putting back ---------------------------------------------------------------------------------------------------
def _finalize_rule(rows: Tensor, skip1: Tensor | None, skip2: Tensor | None, bias: Tensor | None, scales: Tensor | None,
                   where: Tensor, expert: Tensor | None, drop_pad_mode: int | None, k: int | None) -> Spec | None:
    if rows.dim() != 2 or scales is None:
        return None
    return (where.numel() // scales.size(1), rows.size(1)), rows.dtype


@row(rule=_finalize_rule,
     npu="aclnnMoeFinalizeRoutingV2(expanded_permuted_rows, expanded_src_to_dst_row, skip1, skip2, bias, scales, "
         "export_for_source_row, drop_pad_mode=0, out)")
def npu_moe_finalize_routing(expanded_permuted_rows: Tensor, skip1: Tensor | None, skip2: Tensor | None, bias: Any,
                             scales: Tensor | None, expanded_src_to_dst_row: Tensor, export_for_source_row: Any,
                             drop_pad_mode: int | None, k: Any) -> Tensor:
    """skip1 + skip2 + the rows of each token's choices, with the bias of their expert, times their scales."""
    choices = scales.size(1) if scales is not None else k
    where = expanded_src_to_dst_row.to(INT64)
    n = where.numel() // choices
    by_choice = (drop_pad_mode or 0) in (0, 1)   # choice * rows + row; else row * choices + choice
    index = where.reshape(choices, n).t() if by_choice else where.reshape(n, choices)
    flat = wide(expanded_permuted_rows).reshape(-1, expanded_permuted_rows.size(-1))
    kept = (index >= 0) & (index < flat.size(0))
    rows = flat[index.clamp(0, max(flat.size(0) - 1, 0))] * kept.unsqueeze(-1)
    if bias is not None:
        rows = rows + wide(bias)[export_for_source_row.to(INT64)]
    rows = rows if scales is None else rows * wide(scales).unsqueeze(-1)
    total = rows.sum(1)
    for skip in (skip1, skip2):
        total = total if skip is None else total + wide(skip)
    return total.to(expanded_permuted_rows.dtype)


@row()
def npu_moe_re_routing(tokens: Tensor, expert_token_num_per_rank: Tensor, per_token_scales: Tensor | None,
                       expert_token_num_type: int, idx_type: int,
                       tokens_dtype: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Tokens that came by rank and expert, by expert and rank; their scales; where they came from; tokens of each expert."""
    ranks, experts = expert_token_num_per_rank.shape
    counts = expert_token_num_per_rank.to(INT64)
    starts = (counts.reshape(-1).cumsum(0) - counts.reshape(-1)).reshape(ranks, experts)
    pieces = [ops.arange(start, start + count, device=tokens.device)
              for start, count in zip(starts.t().reshape(-1).tolist(), counts.t().reshape(-1).tolist(), strict=True)]
    index = ops.cat(pieces)
    scales = ops.empty([0], dtype=FLOAT32, device=tokens.device) if per_token_scales is None else per_token_scales[index]
    total = counts.sum(0)
    shown = index if idx_type == 0 else _where_to(index)
    return (ops.index_select(tokens, 0, index), scales, shown.to(INT32),
            (total if expert_token_num_type == 1 else total.cumsum(0)).to(expert_token_num_per_rank.dtype))


@row()
def npu_moe_update_expert(expert_ids: Tensor, eplb_table: Tensor, expert_scales: Tensor | None,
                          pruning_threshold: Tensor | None, active_mask: Tensor | None, local_rank_id: int,
                          world_size: int, balance_mode: int) -> tuple[Tensor, Tensor]:
    """The card of one of the instances of each chosen expert, by rank or by token; and which choices are kept."""
    ids = expert_ids.to(INT64)
    counts = eplb_table[:, 0].to(INT64)[ids]
    if balance_mode == 0:
        span = (world_size + counts - 1) // counts
        place = local_rank_id // span
    else:
        place = ops.arange(ids.size(0), device=ids.device).unsqueeze(1) % counts
    cards = eplb_table.to(INT64)[ids, place + 1]
    if expert_scales is None or pruning_threshold is None:
        return cards.to(expert_ids.dtype), ops.empty([0], dtype=BOOL, device=ids.device)
    kept = wide(expert_scales) >= wide(pruning_threshold).reshape(1, -1)
    return cards.to(expert_ids.dtype), kept if active_mask is None else kept & active_mask.unsqueeze(1)
