"""Rows of table lookups (embedding, embedding_bag, one_hot) and of the dropouts."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._ops import batching, batching_nn, forward
from mindtorch_v2._ops.reduce import INT64, word
from mindtorch_v2._ops.table import Spec, composite, op, ops
from mindtorch_v2._tensor import Tensor

_INT32, _BOOL, _UINT8 = (_C._dtype_named(name) for name in ("int32", "bool", "uint8"))
_CANN_FLOATS = tuple(_C._dtype_named(name) for name in ("float32", "float16", "bfloat16"))


# ---- embedding -------------------------------------------------------------------------------------------------------
_OLD_TYPES = frozenset("Float Double Half Byte Char Short Int Long".split())     # that torch says by the name of a Python type


def _type_text(dtype: _C.dtype) -> str:
    said = _C.TYPE_WORDS[dtype._id]
    return f"torch.{said}Tensor" if said in _OLD_TYPES else f"CPU{said}Type"


def _check_indices(name: str, indices: Tensor, number: int = 1) -> None:
    if indices.dtype not in (INT64, _INT32):
        raise RuntimeError(f"Expected tensor for argument #{number} 'indices' to have one of the following scalar "
                           f"types: Long, Int; but got {_type_text(indices.dtype)} instead (while checking "
                           f"arguments for {name})")


def _embedding_rule(weight: Tensor, indices: Tensor, padding_idx: int, scale_grad_by_freq: bool, sparse: bool) -> Spec:
    if weight.dim() != 2:
        raise RuntimeError("'weight' must be 2-D")
    _check_indices("embedding", indices)
    return (*indices.shape, weight.size(1)), weight.dtype


def _dense_double(g: Tensor, indices: Any, padding_idx: Any, scale_grad_by_freq: bool) -> Any:
    if scale_grad_by_freq:
        raise RuntimeError("double backward for embedding with scale_grad_by_freq is not supported")
    rows = ops.embedding(g, indices)
    return rows.masked_fill((indices == padding_idx).unsqueeze(-1), 0) if padding_idx >= 0 else rows


def _sparse_rows(rows: Tensor, num_weights: int, indices: Tensor, padding_idx: int, scale_grad_by_freq: bool) -> Tensor:
    """The gradient of a weight as a sparse tensor: the rows that came, one for each index."""
    if scale_grad_by_freq:
        raise RuntimeError("embedding_backward: scale_grad_by_freq not supported with sparse gradients")
    rows, indices = rows.reshape((indices.numel(), rows.shape[-1])), indices.reshape(-1)
    if padding_idx >= 0:
        kept = (indices != padding_idx).nonzero().reshape(-1)
        rows, indices = rows.index_select(0, kept), indices.index_select(0, kept)
    return ops._sparse_coo_tensor_unsafe(indices.to(INT64).unsqueeze(0), rows, (num_weights, rows.shape[1]))


def _embedding_grad(g: Tensor, num_weights: int, indices: Tensor, padding_idx: int, scale_grad_by_freq: bool,
                    sparse: bool) -> Tensor:
    if sparse:
        return _sparse_rows(g, num_weights, indices, padding_idx, scale_grad_by_freq)
    if indices.dim() == 0:                                   # aclnn's gradient needs at least one dim of indices
        g, indices = g.unsqueeze(0), indices.unsqueeze(0)
    return ops.embedding_dense_backward(g, indices, num_weights, padding_idx, scale_grad_by_freq)


op("embedding_dense_backward(Tensor grad_output, Tensor indices, SymInt num_weights, SymInt padding_idx, "
   "bool scale_grad_by_freq) -> Tensor", variants="", batch=batching_nn.embedding_slope,
   rule=lambda grad_output, indices, num_weights, *_: ((num_weights, grad_output.size(-1)), grad_output.dtype),
   npu="aclnnEmbeddingDenseBackward(grad_output, indices, num_weights, padding_idx, scale_grad_by_freq, out)",
   grad={"grad_output": lambda g, indices, padding_idx, scale_grad_by_freq:
         _dense_double(g, indices, padding_idx, scale_grad_by_freq)})
op("embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False, bool sparse=False) "
   "-> Tensor",
   batch=batching_nn.embedded, forward=forward.embedded, out=False, rule=_embedding_rule, variants="function",
   npu="aclnnEmbedding(weight, indices, out)",
   grad={"weight": lambda g, weight_shape, indices, padding_idx, scale_grad_by_freq, sparse:
         _embedding_grad(g, weight_shape[0], indices, padding_idx, scale_grad_by_freq, sparse), "complex": "embedding"},
   doc="The rows of weight that the indices name.")


def _embedding_renorm_rule(self: Tensor, indices: Tensor, *_: object) -> Spec:
    _check_indices("embedding_renorm_", indices, 2)
    if self.dim() != 2:
        raise RuntimeError("embedding_renorm_: Expected 2-dimensional tensor for argument #1 'self'")
    return self.shape, self.dtype


@composite("embedding_renorm_(Tensor(a!) self, Tensor indices, float max_norm, float norm_type) -> Tensor(a!)",
           forward=forward.refused("embedding_renorm_"), variants="function", rule=_embedding_renorm_rule,
           npu="aclnnEmbeddingRenorm(self, indices, max_norm, norm_type)")
def _embedding_renorm(self: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """The rows that the indices name, scaled down to a norm of at most max_norm; in place."""
    _embedding_renorm_rule(self, indices)
    rows = indices.reshape(-1).to(INT64)
    old = self.detach().index_select(0, rows)
    norm = ops.linalg_vector_norm(old, norm_type, 1, True)
    scale = ops.where(norm > max_norm, max_norm / (norm + 1e-7), 1.0).to(self.dtype)
    self.index_copy_(0, rows, old * scale)
    return self


# ---- bags ------------------------------------------------------------------------------------------------------------
_SUM, _MEAN, _MAX = 0, 1, 2


def _bag_of(indices: Tensor, offsets: Tensor, include_last_offset: bool) -> Tensor:
    """The bag of each index."""
    last = offsets.numel() - include_last_offset
    starts = ops.zeros((indices.numel() + 1,), dtype=INT64, device=indices.device)
    starts = starts.index_add(0, offsets[:last].to(INT64), ops.ones((last,), dtype=INT64, device=indices.device))
    return starts.cumsum(0)[:indices.numel()] - 1


def _bag_rule(weight: Tensor, indices: Tensor, offsets: Tensor, per_sample_weights: Tensor | None, mode: int,
              padding_idx: int, include_last_offset: bool) -> Spec:
    return (offsets.numel() - bool(include_last_offset), weight.size(1)), weight.dtype


def _bag_rows(g: Tensor, indices: Tensor, offsets: Tensor, mode: int, padding_idx: int,
              include_last_offset: bool) -> Tensor:
    """The gradient that reaches each index, before per_sample_weights: that of its bag."""
    bags = _bag_of(indices, offsets, include_last_offset)
    rows = g.index_select(0, bags)
    if mode == _MEAN:
        counted = ops.ones_like(indices, dtype=g.dtype) if padding_idx < 0 else (indices != padding_idx).to(g.dtype)
        sizes = g.new_zeros((g.size(0),)).index_add(0, bags, counted).clamp_min(1)
        rows = rows / sizes.index_select(0, bags).unsqueeze(-1)
    return rows


def _bag_weight_grad(g: Tensor, weight_shape: tuple[int, ...], indices: Tensor, offsets: Tensor,
                     per_sample_weights: Tensor | None, mode: int, padding_idx: int,
                     include_last_offset: bool) -> Tensor:
    rows = _bag_rows(g, indices, offsets, mode, padding_idx, include_last_offset)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    return ops.embedding_dense_backward(rows, indices, weight_shape[0], padding_idx, False)


def _bag_sample_grad(g: Tensor, weight: Tensor, indices: Tensor, offsets: Tensor, mode: int, padding_idx: int,
                     include_last_offset: bool) -> Tensor:
    rows = _bag_rows(g, indices, offsets, mode, padding_idx, include_last_offset)
    grad = (rows * ops.embedding(weight, indices)).sum(-1)
    return grad.masked_fill(indices == padding_idx, 0) if padding_idx >= 0 else grad


op("_bag(Tensor weight, Tensor indices, Tensor offsets, Tensor? per_sample_weights, int mode, int padding_idx, "
   "bool include_last_offset) -> Tensor", kernel="embedding_bag", variants="", rule=_bag_rule,
   grad={"weight": lambda g, weight_shape, indices, offsets, per_sample_weights, mode, padding_idx, include_last_offset:
         _bag_weight_grad(g, weight_shape, indices, offsets, per_sample_weights, mode, padding_idx,
                          include_last_offset),
         "per_sample_weights": lambda g, weight, indices, offsets, mode, padding_idx, include_last_offset:
         _bag_sample_grad(g, weight, indices, offsets, mode, padding_idx, include_last_offset)})


op("_bag_layout(Tensor indices, Tensor offsets, int padding_idx, bool include_last_offset) -> (Tensor, Tensor)",
   kernel="embedding_bag_layout", variants="", rule=lambda indices, offsets, padding_idx, include_last_offset:
   [(indices.shape, INT64), ((offsets.numel() - bool(include_last_offset),), INT64)])
op("_bag_places(Tensor weight, Tensor indices, Tensor offsets, int padding_idx, bool include_last_offset) -> Tensor",
   kernel="embedding_bag_places", variants="", rule=lambda weight, indices, offsets, padding_idx, include_last_offset:
   ((offsets.numel() - bool(include_last_offset), weight.size(1)), INT64))


def _bag_maximum(weight: Tensor, indices: Tensor, offsets: Tensor, padding_idx: int,
                 include_last_offset: bool) -> tuple[Tensor, Tensor]:
    """The largest row of each bag, item by item, and which index it came from."""
    if weight.is_cpu and indices.numel():
        places = ops._bag_places(weight.detach(), indices, offsets, padding_idx, include_last_offset)
        rows = places.clamp_min(0)
        return weight.gather(0, rows).masked_fill(places < 0, 0), rows
    bags = _bag_of(indices, offsets, include_last_offset)
    best = ops._bag(weight.detach(), indices, offsets, None, _MAX, padding_idx, include_last_offset)
    rows, n = ops.embedding(weight, indices), indices.numel()
    wins = rows.detach() == best.index_select(0, bags)
    if padding_idx >= 0:
        wins = wins & (indices != padding_idx).unsqueeze(-1)
    places = ops.arange(n, device=indices.device).unsqueeze(-1).expand(n, weight.size(1)).masked_fill(~wins, n)
    first = ops.full(best.shape, n, dtype=INT64, device=indices.device)
    first = first.scatter_reduce(0, bags.unsqueeze(-1).expand(n, weight.size(1)), places, "amin")
    empty = first == n
    safe = first.masked_fill(empty, 0)
    if n == 0:
        return best + rows.sum(0), first.masked_fill(empty, 0)       # zeros, with a gradient of zeros
    out = rows.gather(0, safe).masked_fill(empty, 0)
    return out, indices.to(INT64)[safe].masked_fill(empty, 0)


def _all_bags_rule(weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool, mode: int, sparse: bool,
                   per_sample_weights: Tensor | None, include_last_offset: bool,
                   padding_idx: int) -> Sequence[Spec] | None:
    """Where CANN's op gives the bags, what each index belongs to, and the sizes: it looks at no offset."""
    if mode == _MAX or indices.dtype is not INT64 or offsets.dtype is not INT64:
        return None
    bags = offsets.numel() - bool(include_last_offset)
    return [((bags, weight.size(1)), weight.dtype), (indices.shape, INT64), ((bags,), INT64), ((bags,), INT64)]


def _sample_rows(g: Tensor, mode: Any, bags: Any, sizes: Any) -> Any:
    """The gradient that reaches each index, before per_sample_weights."""
    rows = g.index_select(0, bags)
    return rows if mode == _SUM else rows / sizes.clamp_min(1).to(g.dtype).index_select(0, bags).unsqueeze(-1)


def _all_bags_grad(g: Tensor, weight: Any, indices: Any, mode: Any, per_sample_weights: Tensor | None,
                   scale_grad_by_freq: bool, sparse: bool, padding_idx: Any, bags: Any, sizes: Any,
                   needs: tuple[bool, ...]) -> Any:
    rows, of_weight, of_samples = _sample_rows(g, mode, bags, sizes), None, None
    if needs[1]:
        of_samples = (rows * ops.embedding(weight, indices)).sum(-1)
        of_samples = of_samples.masked_fill(indices == padding_idx, 0) if padding_idx >= 0 else of_samples
    if needs[0]:
        rows = rows if per_sample_weights is None else rows * per_sample_weights.unsqueeze(-1)
        of_weight = _embedding_grad(rows, weight.size(0), indices, padding_idx, scale_grad_by_freq, sparse)
    return of_weight, of_samples


@composite("_embedding_bag(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0, "
           "bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False, int padding_idx=-1) "
           "-> (Tensor, Tensor, Tensor, Tensor)", forward=forward.refused("_embedding_bag"),
           variants="function", rule=_all_bags_rule,
           npu="aclnnEmbeddingBag(weight, indices, offsets, False, mode, False, per_sample_weights, "
           "include_last_offset, padding_idx, out0, out1, out2, out3)",
           grad={"weight, per_sample_weights": lambda g, weight, indices, mode, per_sample_weights, scale_grad_by_freq,
                 sparse, padding_idx, result1, result2, needs:
                 _all_bags_grad(g, weight, indices, mode, per_sample_weights, scale_grad_by_freq, sparse, padding_idx,
                                result1, result2, needs)})
def _all_bags(weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool, mode: int, sparse: bool,
              per_sample_weights: Tensor | None, include_last_offset: bool,
              padding: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    _check_offsets(indices, offsets)
    if indices.is_cpu and offsets.is_cpu:
        bags, sizes = ops._bag_layout(indices, offsets, padding, include_last_offset)
    else:
        bags = _bag_of(indices, offsets, include_last_offset)
        counted = ops.ones_like(bags) if padding < 0 else (indices != padding).to(INT64)
        sizes = ops.zeros((offsets.numel() - include_last_offset,), dtype=INT64, device=weight.device)
        sizes = sizes.index_add(0, bags, counted)
    if mode == _MAX:
        out, best = _bag_maximum(weight, indices, offsets, padding, include_last_offset)
        return out, bags, sizes, best
    out = ops._bag(weight, indices, offsets, per_sample_weights, mode, padding, include_last_offset)
    if (scale_grad_by_freq or sparse) and weight.requires_grad and _C._is_grad_enabled():
        rows = ops.embedding(weight, indices, padding, scale_grad_by_freq, sparse)
        out = _bags_of_rows(rows, indices, bags, sizes, per_sample_weights, mode, padding)
    return out, bags, sizes, ops.zeros_like(sizes)


def _embedding_bag(weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool, mode: int, sparse: bool,
                   per_sample_weights: Tensor | None, include_last_offset: bool,
                   padding_idx: int | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows of weight summed (mode 0), averaged (1) or maximised (2) over bags of indices that begin at the offsets."""
    _check_bag(weight, indices, offsets, mode, per_sample_weights, include_last_offset)
    padding = -1 if padding_idx is None else padding_idx + (weight.size(0) if padding_idx < 0 else 0)
    if padding_idx is not None and not 0 <= padding < weight.size(0):
        raise RuntimeError(f"padding_idx must be within the number of embeddings, -{weight.size(0)} through "
                           f"{weight.size(0) - 1}, but got {padding_idx}")
    used = 0 if not offsets.numel() else offsets[-1]._known() if include_last_offset else None
    if used is not None and 0 <= used < indices.numel():     # indices behind the last bag are not looked at
        indices = indices.narrow(0, 0, used)
        per_sample_weights = None if per_sample_weights is None else per_sample_weights.narrow(0, 0, used)
    return tuple(ops._embedding_bag(weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights,
                                    include_last_offset, padding))


def _bags_of_rows(rows: Tensor, indices: Any, bags: Any, sizes: Any, per_sample_weights: Tensor | None, mode: Any,
                  padding: Any) -> Any:
    """The bags through embedding, whose gradient knows frequencies and may be sparse."""
    if padding >= 0:
        rows = rows.masked_fill((indices == padding).unsqueeze(-1), 0)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    out = rows.new_zeros((sizes.numel(), rows.size(1))).index_add(0, bags, rows)
    return out / sizes.clamp_min(1).to(out.dtype).unsqueeze(-1) if mode == _MEAN else out


def _check_offsets(indices: Tensor, offsets: Tensor) -> None:
    first, last = (offsets[0]._known(), offsets[-1]._known()) if offsets.numel() else (None, None)
    if first:
        raise RuntimeError("offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from "
                           f"position 0. However, got {first}")
    if last is not None and last > indices.numel():
        raise RuntimeError(f"offsets[-1] can not be greater than input's length {indices.numel()} but got offsets[-1] "
                           f"of {last}")


def _check_bag(weight: Tensor, indices: Tensor, offsets: Tensor, mode: int, per_sample_weights: Tensor | None,
               include_last_offset: bool) -> None:
    _check_indices("embedding_bag", indices)
    _check_indices("embedding_bag", offsets)
    if weight.dim() != 2:
        raise RuntimeError("embedding_bag: expected weight to have 2 dimensions")
    if indices.dim() != 1:
        raise RuntimeError(f"input has to be a 1D or 2D Tensor, but got Tensor of dimension {indices.dim()}")
    if offsets.dim() != 1:
        raise RuntimeError(f"offsets has to be a 1D Tensor, but got Tensor of dimension {offsets.dim()}")
    if include_last_offset and offsets.numel() < 1:
        raise RuntimeError("include_last_offset: number of offset should be at least 1")
    if per_sample_weights is not None:
        if per_sample_weights.dtype is not weight.dtype:
            raise RuntimeError("Expected tensor for argument #1 'weight' to have the same type as tensor for argument #1 "
                               f"'per_sample_weights'; but type torch.{word(weight.dtype)}Tensor does not equal "
                               f"torch.{word(per_sample_weights.dtype)}Tensor (while checking arguments for embedding_bag)")
        if mode != _SUM:
            raise RuntimeError("embedding_bag: per_sample_weights was not None. per_sample_weights is only supported "
                               "for mode='sum'")
        if per_sample_weights.numel() != indices.numel():
            raise RuntimeError("expected per_sample_weights to have the same number of elements as indices")


_BAG = "(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq"
op(f"embedding_bag{_BAG}=False, int mode=0, bool sparse=False, Tensor? per_sample_weights=None, "
   "bool include_last_offset=False) -> (Tensor, Tensor, Tensor, Tensor)", body=_embedding_bag, variants="function",
   out=False)
op(f"embedding_bag.padding_idx{_BAG}, int mode, bool sparse, Tensor? per_sample_weights, bool include_last_offset, "
   "int? padding_idx) -> (Tensor, Tensor, Tensor, Tensor)", body=_embedding_bag, variants="function", out=False)


def _one_hot_rule(self: Tensor, num_classes: int) -> Spec | None:
    """Where the number of classes is given, one op of CANN serves: as torch on a device, it looks at no class."""
    known = self.dtype is INT64 and num_classes > 0
    return ((*self.shape, num_classes), INT64) if known else None


def _one_hot_of_samples(self: Tensor, num_classes: int) -> Tensor:
    """one_hot of a batch: how many classes there are cannot depend on the sample."""
    if num_classes == -1:
        raise RuntimeError("When vmap-ing torch.nn.functional.one_hot, please provide an explicit positive num_classes argument.")
    return ops.eq(self.unsqueeze(-1), ops.arange(num_classes, device=self.device)).to(INT64)


@composite("one_hot(Tensor self, int num_classes=-1) -> Tensor", variants="nn", rule=_one_hot_rule,
           batch=batching.Rewrite(_one_hot_of_samples))
def _one_hot(self: Tensor, num_classes: int) -> Tensor:
    """A row for each class index: 1 at the index, 0 elsewhere."""
    if self.dtype is not INT64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    if self.numel() == 0:
        if num_classes <= 0:
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        return ops.zeros((*self.shape, num_classes), dtype=INT64, device=self.device)
    if int(self.min()) < 0:
        raise RuntimeError("Class values must be non-negative.")
    if num_classes == -1:
        num_classes = int(self.max()) + 1
    elif num_classes <= int(self.max()):
        raise RuntimeError("Class values must be smaller than num_classes.")
    out = ops.zeros((*self.shape, num_classes), dtype=INT64, device=self.device)
    return out.scatter_(-1, self.unsqueeze(-1), 1)


# ---- dropout: on the CPU the same draws from the generator as torch's, on an npu one op of CANN's and its bits -----
_ALPHA = 1.7580993408473766


def _dropout_rule(input: Tensor, p: float, generator: _C.GeneratorBase | None) -> Sequence[Spec]:
    bits = -(-input.numel() // 128) * 128        # one an item, in whole blocks of CANN's
    return [(input.shape, input.dtype), ((bits // 8,), _UINT8)]


op("_dropout_backward(Tensor grad_output, Tensor mask, float scale) -> Tensor", batch=batching.leading, variants="",
   rule=lambda grad_output, mask, scale: (grad_output.shape, grad_output.dtype),
   npu="aclnnDropoutBackward(grad_output, mask, scale, out)",
   grad={"grad_output": lambda g, mask, scale: ops._dropout_backward(g, mask, scale)})
op("_dropout(Tensor input, float p, Generator? generator=None) -> (Tensor, Tensor)", variants="", rule=_dropout_rule,
   npu="aclnnDropout(input, p, True, seed, offset, out0, out1)",
   grad={"input": lambda g, p, result1: ops._dropout_backward(g, result1, 1 / (1 - p))})


def _dropped(input: Tensor, p: float, train: bool, feature: bool, alpha: bool) -> Tensor:
    if not 0 <= p <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p}")
    if p == 0 or not train or input.numel() == 0:
        return input
    if p == 1:
        return input * ops.zeros((), dtype=input.dtype, device=input.device)
    if input.is_npu and not feature and not alpha and input.dtype in _CANN_FLOATS:
        return ops._dropout(input, p)[0]
    like = input
    if feature:
        if input.dim() < 2:
            raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
        like = input.new_empty((*input.shape[:2], *(1 for _ in input.shape[2:])))
    if not alpha:
        return input * ops._bernoulli_like(like, 1 - p).div_(1 - p)
    noise = ops.empty_like(like.detach()).bernoulli_(1 - p)
    a = 1 / math.sqrt((_ALPHA * _ALPHA * p + 1) * (1 - p))
    shift = (noise - 1) * (_ALPHA * a) + _ALPHA * a * p
    return input * noise.mul_(a) + shift


def _dropout_row(name: str, feature: bool, alpha: bool, doc: str) -> None:
    op(f"{name}(Tensor input, float p, bool train) -> Tensor", variants="function", inplace="function", out=False,
       doc=doc, body=lambda input, p, train: _dropped(input, p, train, feature, alpha))


_dropout_row("dropout", False, False, "Items zeroed with probability p, the others divided by 1 - p.")
_dropout_row("feature_dropout", True, False, "Channels zeroed with probability p, the others divided by 1 - p.")
_dropout_row("alpha_dropout", False, True, "Dropout that keeps the mean and variance of selu's outputs.")
_dropout_row("feature_alpha_dropout", True, True, "alpha_dropout of whole channels.")


@composite("native_dropout_backward(Tensor grad_output, Tensor mask, float scale) -> Tensor",
           lacks="complex32 complex", variants="function")
def _native_dropout_backward(grad_output: Tensor, mask: Tensor, scale: float) -> Tensor:
    """The gradient of native_dropout."""
    return grad_output * mask * scale


@composite("native_dropout(Tensor input, float p, bool? train) -> (Tensor, Tensor)", out=False, variants="function")
def _native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """(dropout, the mask of what was kept)."""
    if input.numel() == 0 or train is False:
        return input.clone(), ops.ones_like(input, dtype=_BOOL)
    mask = ops._bernoulli_like(ops.empty_like(input.detach(), dtype=_BOOL), 1 - p)
    return input * mask * (0.0 if p == 1 else 1 / (1 - p)), mask
