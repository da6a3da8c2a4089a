"""How indexing and the ops of neural networks run over a batch for vmap; the other rules are in batching.py."""
from __future__ import annotations

import functools
from typing import Any

from mindtorch_v2._C import TensorBase
from mindtorch_v2._ops.batching import Call, Recall, Rule, _map, _shift
from mindtorch_v2._ops.table import ops


# ---- indexing -------------------------------------------------------------------------------------------------------
def indexed(call: Call) -> Any:
    """self[indices]: a batched index also picks the sample."""
    flags = call.batched[call.names.index("indices")]
    if not any(flags):
        at = _named(call)
        made = ops.index(call.full("self"), [None, *call["indices"]])
        return made if _adjacent(at) else made.movedim(_indexed_rank(call), 0)
    return ops.index(call.full("self"), _with_samples(call, flags))


def _named(call: Call) -> list[int]:
    """The dims that are indexed."""
    return [i for i, t in enumerate(call["indices"]) if t is not None]


def _adjacent(at: list[int]) -> bool:
    return at == list(range(at[0], at[0] + len(at)))


def _indexed_rank(call: Call) -> int:
    return max(t.dim() for t in call.shown[call.names.index("indices")] if t is not None)


def _with_samples(call: Call, flags: list[bool]) -> list[Any]:
    """The indices into a batched tensor: first the number of the sample. Dims in front of those that are indexed are
    indexed too, so that the result has its dims in their order."""
    given, at, top = list(call["indices"]), _named(call), _indexed_rank(call)
    front = at[0] if _adjacent(at) else 0
    device, shape = call["self"].device, call.full("self").shape
    whole = []
    for i in range(front + 1):
        numbers = ops.arange(shape[i], device=device)
        whole.append(numbers.view(*(1,) * i, shape[i], *(1,) * (front - i + top)))
    for i in range(front, len(given)):
        t = given[i]
        if t is not None and flags[i]:
            t = t.reshape(call.size, *(1,) * (front + top + 1 - t.dim()), *t.shape[1:])
        whole.append(t)
    return whole


def index_assigned(call: Call) -> Any:
    """In place: self has the batch."""
    flags, values, rank = call.batched[call.names.index("indices")], call["values"], call.rank("self")
    if not _named(call):
        return NotImplemented
    if call.is_batched("values"):
        full = rank - len(_named(call)) + _indexed_rank(call)
        missing = full + 1 - values.dim()
        values = values.reshape(call.size, *(1,) * missing, *values.shape[1:]) if missing > 0 else values
    ops._index_put_list_(call["self"], _with_samples(call, flags), values, call["accumulate"])
    return call["self"]


def selected(call: Call) -> Any:
    """With an index of its own for each sample it is a gather."""
    if not call.is_batched("index"):
        call["self"] = call.full("self")
        rank = call.rank("self")
        call["dim"] = _shift(call["dim"], rank)
        if rank == 0:
            call["self"] = call["self"].unsqueeze(1)
            return call.run().squeeze(1)
        return call.run()
    x, picked, rank = call.full("self"), call["index"], call.rank("self")
    if rank == 0:
        return x
    picked = picked.unsqueeze(1) if picked.dim() == 1 else picked       # an index without dims picks one
    dim = _shift(call["dim"], rank)
    shape = [call.size, *(1,) * rank]
    shape[dim] = picked.shape[-1]
    wide = list(x.shape)
    wide[dim] = picked.shape[-1]
    return ops.gather(x, dim, picked.reshape(shape).expand(wide))


def selected_by_mask(call: Call) -> Any:
    """masked_select by a mask that the samples share: else they would differ in how many items they have."""
    if call.is_batched("mask"):
        raise RuntimeError("vmap: Attempted to vmap over `mask` in torch.masked_select(self, mask) We cannot support this because "
                           "for each batch this would return a differently shaped Tensor. Please file an issue at "
                           "https://github.com/pytorch/pytorch/issues if you need this feature.")
    x, mask = _beside_mask(call)
    return ops.index_select(x.reshape(call.size, -1), 1, ops._nonzero(mask.reshape(-1)).reshape(-1))


def _beside_mask(call: Call) -> tuple[Any, Any]:
    """self and a shared mask, broadcast; self with the batch."""
    x, mask = call.full("self"), call["mask"]
    missing = mask.dim() - call.rank("self")
    x = x[(slice(None), *(None,) * missing)] if missing > 0 else x
    x, mask = ops.broadcast_tensors(x, mask)
    return x, mask[0] if call.size else mask.reshape(mask.shape[1:])


def scattered_by_mask(call: Call) -> Any:
    """masked_scatter by a mask that the samples share; with one for each sample, sample by sample."""
    if call.is_batched("mask"):
        return NotImplemented
    x, mask = _beside_mask(call)
    at = ops._nonzero(mask.reshape(-1)).reshape(-1)
    source = call.full("source").reshape(call.size, -1)
    if source.shape[1] < at.numel():
        return NotImplemented
    made = x.reshape(call.size, -1).index_copy(1, at, source.narrow(1, 0, at.numel())).reshape(x.shape)
    return call["self"].copy_(made) if call.row.mutates else made


def embedded(call: Call) -> Any:
    if not call.is_batched("weight"):
        return call.run()
    weight, indices = call["weight"], call.full("indices")
    n = weight.shape[1]
    offsets = ops.arange(call.size, device=weight.device).view(call.size, *(1,) * (indices.dim() - 1)) * n
    if call["padding_idx"] >= 0 and weight.requires_grad:        # its gradient leaves out one row, not one of each sample
        return NotImplemented
    return ops.embedding(weight.reshape(call.size * n, weight.shape[-1]), indices + offsets)


def embedding_slope(call: Call) -> Any:
    """embedding_dense_backward: every sample has rows of its own, one beside another."""
    if call["scale_grad_by_freq"]:
        return NotImplemented
    g, indices, n, pad = call.full("grad_output"), call.full("indices"), call["num_weights"], call["padding_idx"]
    if pad >= 0:
        g = g.masked_fill((indices == pad).unsqueeze(-1), 0)
    offsets = ops.arange(call.size, device=g.device).view(call.size, *(1,) * (indices.dim() - 1)) * n
    made = ops.embedding_dense_backward(g, indices + offsets, call.size * n, -1, False)
    return made.reshape(call.size, n, g.shape[-1])


def paired(call: Call) -> Any:
    """Rows beside rows, whose dims in front broadcast; what has the shape of the result has all of them."""
    rank = max(x.dim() for x in call.shown if isinstance(x, TensorBase))
    for name in call.names:
        value = call[name]
        if name in ("grad", "cdist"):
            call[name] = call.full(name)
        elif isinstance(value, TensorBase) and call.is_batched(name):
            call[name] = value[(slice(None), *(None,) * (rank - call.rank(name)))]
    return call.run()


# ---- layers over (N, C, ...) ----------------------------------------------------------------------------------------
def folded(rank: int, *names: str) -> Rule:
    """Ops whose tensors may have a dim N in front of `rank` others: the batch becomes that dim, or is joined with it."""
    def rule(call: Call) -> Any:
        joined = 0
        for name in names:
            value = call.full(name)
            if value is None:
                continue
            if call.rank(name) == rank + 1:
                joined = value.shape[1]
                value = value.reshape(call.size * joined, *value.shape[2:])
            call[name] = value
        if any(flag is True and n not in names for n, flag in zip(call.names, call.batched)):
            return NotImplemented
        result = call.run()
        if not joined and any(call.rank(n) == rank + 1 for n in names if call[n] is not None):
            return _map(result, lambda t: t.reshape(call.size, 0, *t.shape[1:]))
        return _map(result, lambda t: t.reshape(call.size, joined, *t.shape[1:])) if joined else result
    return rule


def convolved(call: Call) -> Any:
    """A shared weight: the batch joins N. A weight for each sample: the samples are groups."""
    x, weight, bias = call.values[:3]
    spatial = len(call["stride"])
    if call.rank("input") != spatial + 2:
        return NotImplemented
    if not call.is_batched("weight"):
        call["bias"] = None if call.is_batched("bias") else bias
        if call.is_batched("input"):
            n = x.shape[1]
            call["input"] = x.reshape(call.size * n, *x.shape[2:])
            made = call.run()
            made = made.reshape(call.size, n, *made.shape[1:])
        else:
            made = call.run().unsqueeze(0)
    else:
        x = call.full("input")
        n, groups = x.shape[1], call["groups"]
        call["input"] = x.transpose(0, 1).reshape(n, call.size * x.shape[2], *x.shape[3:])
        call["weight"] = weight.reshape(call.size * weight.shape[1], *weight.shape[2:])
        call["groups"] = groups * call.size
        call["bias"] = None if bias is None else call.full("bias").reshape(-1)
        made = call.run()
        return made.reshape(n, call.size, made.shape[1] // call.size, *made.shape[2:]).transpose(0, 1)
    if call.is_batched("bias"):
        made = made + bias.reshape(call.size, 1, -1, *(1,) * spatial)
    return made


def convolution_slopes(call: Call) -> Any:
    """_convolution_backward: the samples are groups, and each has its own gradients."""
    x, weight, g = call.full("input"), call.full("weight"), call.full("grad_output")
    n, size = x.shape[1], call.size

    def joined(t: Any) -> Any:
        return t.transpose(0, 1).reshape(n, size * t.shape[2], *t.shape[3:])
    call["input"], call["grad_output"] = joined(x), joined(g)
    call["weight"], call["groups"] = weight.reshape(size * weight.shape[1], *weight.shape[2:]), call["groups"] * size
    to_input, to_weight, to_bias = call.run()
    if to_input is not None:
        to_input = to_input.reshape(n, size, *x.shape[2:]).transpose(0, 1)
    return (to_input, None if to_weight is None else to_weight.reshape(weight.shape),
            None if to_bias is None else to_bias.reshape(size, g.shape[2]))


def resize_slope(call: Call) -> Any:
    """upsample_*_backward: the batch is joined with N, in the size that is wanted too."""
    g, wanted = call["grad_output"], list(call["input_size"])
    call["grad_output"] = g.reshape(-1, *g.shape[2:])
    call["input_size"] = [call.size * wanted[0], *wanted[1:]]
    return call.run().reshape(call.size, *wanted)


def unfold_slope(call: Call) -> Any:
    """unfold_backward: one dim further to the right, in the sizes too."""
    sizes = list(call["input_sizes"])
    call["input_sizes"], call["dim"] = [call.size, *sizes], _shift(call["dim"], len(sizes))
    if sizes:
        return call.run()
    call["input_sizes"], call["grad_in"] = [call.size, 1], call["grad_in"].unsqueeze(1)
    return call.run().squeeze(1)


def layer_normalized(call: Call) -> Any:
    """Weights of each sample's own are applied afterwards."""
    if not call.is_batched("weight") and not call.is_batched("bias"):
        return call.run()
    x, shape, weight, bias, eps = call.shown

    def body() -> Any:
        made, mean, rstd = ops.native_layer_norm(x, shape, None, None, eps)
        made = made if weight is None else made * weight
        return (made if bias is None else made + bias), mean, rstd
    return Recall(body)


def rms_normalized(call: Call) -> Any:
    if not call.is_batched("weight"):
        return call.run()
    x, shape, weight, eps = call.shown

    def body() -> Any:
        made, rstd = ops._fused_rms_norm(x, shape, None, eps)
        return made * weight, rstd
    return Recall(body)


def batch_normalized(call: Call) -> Any:
    """Statistics are each sample's own: the batch joins the channels."""
    running = any(call[n] is not None for n in ("running_mean", "running_var"))
    own_statistics = call.is_batched("running_mean") and call.is_batched("running_var")
    if running and call["training"] and call.is_batched("input") and not own_statistics:
        raise RuntimeError("Batch norm got a batched tensor as input while the running_mean or running_var, which will be "
                           "updated in place, were not batched.\nIf you are using a module and do not need eval mode, "
                           "please set `track_running_stats` to be False.If you are using a prebuilt module and do not "
                           "need eval mode, please see the functorch website for resources on how to patch your module "
                           "to work with vmap")
    if not any(call.is_batched(n) for n in ("input", "running_mean", "running_var")):
        return Recall(functools.partial(_scaled_norm, *call.shown))
    x = call.full("input")
    n, c = x.shape[1], x.shape[2]
    call["input"] = x.transpose(0, 1).reshape(n, call.size * c, *x.shape[3:])
    for name in ("weight", "bias", "running_mean", "running_var"):
        value = call.full(name)
        call[name] = None if value is None else value.reshape(-1)
    out, mean, rstd = call.run()
    return (out.reshape(n, call.size, c, *x.shape[3:]).transpose(0, 1), *(
        t.reshape(call.size, -1) for t in (mean, rstd)))


def _scaled_norm(input: Any, weight: Any, bias: Any, *rest: Any) -> Any:
    """Only weight and bias are each sample's own."""
    out, mean, rstd = ops.native_batch_norm(input, None, None, *rest)
    shape = (1, -1, *(1,) * (input.dim() - 2))
    out = out if weight is None else out * weight.view(shape)
    return (out if bias is None else out + bias.view(shape)), mean, rstd


def batch_normalized_slope(call: Call) -> Any:
    """The same of the gradients: one of a channel is one sample's."""
    x = call.full("input")
    n, c = x.shape[1], x.shape[2]
    for name in ("grad_out", "input"):
        call[name] = call.full(name).transpose(0, 1).reshape(n, call.size * c, *x.shape[3:])
    for name in ("weight", "running_mean", "running_var", "save_mean", "save_invstd"):
        value = call.full(name)
        call[name] = None if value is None else value.reshape(-1)
    slope, *of_channels = call.run()
    return (None if slope is None else slope.reshape(n, call.size, c, *x.shape[3:]).transpose(0, 1),
            *(None if t is None else t.reshape(call.size, -1) for t in of_channels))


def group_normalized(call: Call) -> Any:
    if any(call.is_batched(n) for n in ("weight", "bias")):
        x, weight, bias, n, c, hw, groups, eps = call.shown

        def body() -> Any:
            made, mean, rstd = ops.native_group_norm(x, None, None, n, c, hw, groups, eps)
            shape = (1, c, *(1,) * (x.dim() - 2))
            made = made if weight is None else made * weight.view(shape)
            return (made if bias is None else made + bias.view(shape)), mean, rstd
        return Recall(body)
    x = call["input"]
    call["input"] = x.reshape(-1, *x.shape[2:])
    call["N"] = call.size * call["N"]
    return _map(call.run(), lambda t: t.reshape(call.size, -1, *t.shape[1:]))


# ---- losses ---------------------------------------------------------------------------------------------------------
def likelihood(call: Call) -> Any:
    """Each sample's own mean or sum, in terms of gather."""
    x, target, weight, reduction, ignored = call.shown

    def body() -> Any:
        at = 1 if x.dim() > 1 else 0
        kept = target != ignored
        picked = ops.where(kept, target, 0).unsqueeze(at)
        loss = -ops.gather(x, at, picked).squeeze(at)
        scale = kept.to(x.dtype) if weight is None else ops.where(
            kept, ops.index_select(weight, 0, ops.where(kept, target, 0).reshape(-1)).view_as(target), 0)
        loss, total = loss * scale if weight is not None else ops.where(kept, loss, 0), scale.sum()
        if reduction == 0:
            return loss, total * 0
        return (loss.sum() / total if reduction == 1 else loss.sum()), total
    return Recall(body)


def likelihood_slope(call: Call) -> Any:
    """nll_loss_backward, in terms of scatter."""
    g, x, target, weight, reduction, ignored, total = call.shown

    def body() -> Any:
        at = 1 if x.dim() > 1 else 0
        kept = target != ignored
        picked = ops.where(kept, target, 0)
        scale = kept.to(x.dtype) if weight is None else \
            ops.index_select(weight, 0, picked.reshape(-1)).view(target.shape) * kept
        share = scale * (g / total if reduction == 1 else g)
        return ops.zeros_like(x).scatter(at, picked.unsqueeze(at), -share.unsqueeze(at))
    return Recall(body)


def entropy(call: Call) -> Any:
    """_cross_entropy: the rows of all samples are rows of one call; what is reduced is reduced by sample."""
    if call.is_batched("weight"):
        return NotImplemented
    x, target, weight = call.full("self"), call.full("target"), call["weight"]
    rows, labels = x.reshape(-1, x.size(-1)), target.reshape(-1)
    loss, total, powers = ops._cross_entropy(rows, labels, weight, 0, call["ignore_index"], call["label_smoothing"])
    powers = powers.view(*target.shape, 2)
    if call["reduction"] == 0:
        return loss.view(target.shape), total.expand(call.size), powers
    kept = target != call["ignore_index"]
    if weight is not None:
        kept = weight[target.masked_fill(~kept, 0)] * kept
    kept = kept.reshape(call.size, -1)
    total = kept.sum(1, dtype=powers.dtype)
    loss = loss.view(kept.shape).sum(1)
    return (loss / total).to(x.dtype) if call["reduction"] == 1 else loss, total, powers


def entropy_slope(call: Call) -> Any:
    """_cross_entropy_backward: as entropy; a row's share of its sample's gradient is the row's own."""
    if call.is_batched("weight"):
        return NotImplemented
    x, target = call.full("self"), call.full("target")
    g = call.full("grad_output")
    if call["reduction"] != 0:
        g = g / call.full("total_weight").to(g.dtype) if call["reduction"] == 1 else g
        g = g.view(call.size, *(1,) * (target.dim() - 1)).expand(target.shape)
    powers = call.full("powers").reshape(-1, 2)
    total = powers.new_ones(())
    made = ops._cross_entropy_backward(g.reshape(-1), x.reshape(-1, x.size(-1)), target.reshape(-1), call["weight"], total,
                                       powers, 0, call["ignore_index"], call["label_smoothing"])
    return made.view(x.shape)


# ---- in place -------------------------------------------------------------------------------------------------------
def copied(call: Call) -> Any:
    self, src = call["self"], call["src"]
    if call.is_batched("src"):
        missing = call.rank("self") - call.shown[1].dim()
        src = src[(slice(None), *(None,) * missing)] if missing > 0 else src
    self.copy_(src, call["non_blocking"])
    return self


def new_like(call: Call) -> Any:
    """new_zeros and its like: a tensor for each sample, so that samples may be written to it."""
    size = call["size"]
    call["size"] = (call.size, *([size] if isinstance(size, int) else size))
    return call.run()


def new_strided(call: Call) -> Any:
    size, stride = list(call["size"]), list(call["stride"])
    room = 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if 0 not in size else 0
    call["size"], call["stride"] = (call.size, *size), (room, *stride)
    return call.run()


def repeated(call: Call) -> Any:
    x, times = call["self"], list(call["repeats"])
    missing = len(times) - call.rank("self")
    x = x[(slice(None), *(None,) * missing)] if missing > 0 else x
    return x.repeat(1, *times)


def stacked(call: Call) -> Any:
    """cat: one dim further to the right."""
    tensors, flags = call["tensors"], call.batched[call.names.index("tensors")]
    whole = [t if b else t.expand(call.size, *t.shape) for t, b in zip(tensors, flags)]
    rank = max(t.dim() for t in call.shown[call.names.index("tensors")])
    whole = [t for t in whole if t.dim() == rank + 1]            # what is left out has the shape (0,)
    return ops.cat(whole, _shift(call["dim"], rank))


def searched(call: Call) -> Any:
    if call["sorter"] is not None and not call.is_batched("sorter"):
        call["sorter"] = call.full("sorter")
    sequence, values = call.full("sorted_sequence"), call.full("values")
    shape = values.shape
    if call.rank("sorted_sequence") == 1:
        values = values.reshape(call.size, -1)
    call["sorted_sequence"], call["values"] = sequence, values
    return call.run().reshape(shape)




def attended(call: Call) -> Any:
    """Samples as further heads: a mask of its own gets the dims between the batch and it."""
    if call["enable_gqa"]:
        return NotImplemented
    call.fill()
    mask = call["attn_mask"]
    if mask is not None:
        call["attn_mask"] = mask[(slice(None), *(None,) * (call["query"].dim() - mask.dim()))]
    return call.run()
