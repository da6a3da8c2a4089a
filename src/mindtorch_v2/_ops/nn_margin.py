"""Rows of distances and similarities, and of the losses of pairs and triples, by margins, and CTC."""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from mindtorch_v2 import _C
from mindtorch_v2._C import _core as core
from mindtorch_v2._ops import batching, batching_nn, forward
from mindtorch_v2._ops.nn_loss import pair_loss, pair_slope, reduced_loss, share
from mindtorch_v2._ops.reduce import INT64, _norm_grad, word
from mindtorch_v2._ops.table import Spec, composite, op, ops
from mindtorch_v2._shape import broadcast
from mindtorch_v2._tensor import Tensor


# ---- distances -------------------------------------------------------------------------------------------------------
@composite("cosine_similarity(Tensor x1, Tensor x2, int dim=1, float eps=1e-08) -> Tensor",
           autocast={"npu": "float32"}, out=False, variants="function")
def _cosine_similarity(x1: Tensor, x2: Tensor, dim: int, eps: float) -> Tensor:
    """The cosine of the angle between the vectors along dim."""
    if not (x1.is_floating_point() and x2.is_floating_point()):
        raise RuntimeError("expected common dtype to be floating point, yet common dtype is "
                           f"{word(x1.dtype if not x1.is_floating_point() else x2.dtype)}")
    if eps < 0:
        raise RuntimeError(f"eps must be non-negative, got: {eps}")
    x1, x2 = ops.broadcast_tensors(x1, x2)
    length1 = _at_least(ops.linalg_vector_norm(x1, 2, dim, True), eps)
    length2 = _at_least(ops.linalg_vector_norm(x2, 2, dim, True), eps)
    return ((x1 / length1) * (x2 / length2)).sum(dim)


def _at_least(x: Tensor, eps: float) -> Tensor:
    """x, raised to eps where it is less; the gradient is that of x all the same, as in torch."""
    return x + (eps - x.detach()).clamp_min(0)      # nothing is added to infinity


@composite("pairwise_distance(Tensor x1, Tensor x2, float p=2.0, float eps=1e-06, bool keepdim=False) -> Tensor",
           out=False,
           variants="function")
def _pairwise_distance(x1: Tensor, x2: Tensor, p: float, eps: float, keepdim: bool) -> Tensor:
    """The p-norm of the differences along the last dim."""
    return ops.linalg_vector_norm(x1 - x2 + eps, p, max(x1.dim(), x2.dim()) - 1, keepdim)


def _check_float(name: str, x: Tensor) -> None:
    if not x.is_floating_point():
        raise RuntimeError(f"{name} only supports floating-point dtypes, X1 got: {word(x.dtype)}")


_CDIST_MODES = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist",
                None, 1, 2)


def _check_cdist(x1: Tensor, x2: Tensor, p: float, compute_mode: str | None) -> None:
    if x1.dim() < 2 or x2.dim() < 2:
        which = x1 if x1.dim() < 2 else x2
        raise RuntimeError(f"cdist only supports at least 2D tensors, X{1 if which is x1 else 2} got: {which.dim()}D")
    _check_float("cdist", x1)
    _check_float("cdist", x2)
    if x1.dtype is not x2.dtype:
        raise RuntimeError(f"expected scalar type {_C.TYPE_WORDS[x1.dtype._id]} but found {_C.TYPE_WORDS[x2.dtype._id]}")
    if x1.size(-1) != x2.size(-1):
        raise RuntimeError(f"X1 and X2 must have the same number of columns. X1: {x1.size(-1)} X2: {x2.size(-1)}")
    if not p >= 0:                               # nor NaN
        raise RuntimeError("cdist only supports non-negative p values")
    if compute_mode not in _CDIST_MODES:
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode")


def _distances(x1: Tensor, x2: Tensor) -> Spec | None:
    """The shape of the distances, and their dtype; None where CANN has no op for it."""
    if x1.dtype is not x2.dtype or x1.dtype._name not in ("float16", "float32"):
        return None
    return (*broadcast(x1.shape[:-2], x2.shape[:-2]), x1.size(-2), x2.size(-2)), x1.dtype


def _cdist_rule(x1: Tensor, x2: Tensor, p: float, compute_mode: str) -> Spec | None:
    _check_cdist(x1, x2, p, compute_mode)
    return _distances(x1, x2)


def _cdist_slope(grad: Tensor, x1: Tensor, x2: Tensor, p: float, cdist: Tensor) -> Spec | None:
    """CANN's op does not broadcast."""
    found = _distances(x1, x2) if x1.shape[:-2] == x2.shape[:-2] else None
    return found and ((*found[0][:-1], x1.size(-1)), x1.dtype)


def _no_second(name: str) -> Callable[..., Any]:
    def formula(g: Tensor) -> NoReturn:
        raise NotImplementedError(f"the derivative for '{name}' is not implemented.")
    return formula


def _apart(x1: Tensor, x2: Tensor, p: float) -> Spec:
    _check_cdist(x1, x2, p, None)
    return (*broadcast(x1.shape[:-2], x2.shape[:-2]), x1.size(-2), x2.size(-2)), x1.dtype


def _slopes(grad: Tensor, x1: Tensor, x2: Tensor, p: float, cdist: Tensor) -> Spec:
    shape, given = _apart(x1, x2, p)[0], tuple(grad.shape)                # what is given may have dims in front
    if given != tuple(cdist.shape) or given[-2:] != shape[-2:] or (*broadcast(given[:-2], shape[:-2]),) != given[:-2]:
        raise RuntimeError(f"[_cdist_backward] expected grad and cdist of {list(shape)}, got {list(given)} and "
                           f"{list(cdist.shape)}")
    return (*given[:-1], x1.size(-1)), x1.dtype


def _pairs(self: Tensor, p: float) -> Spec:
    if self.dim() < 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {self.dim()}D")
    return (*self.shape[:-2], self.size(-2) * (self.size(-2) - 1) // 2), self.dtype


def _pair_slopes(grad: Tensor, self: Tensor, p: float, pdist: Tensor) -> Spec:
    shape = _pairs(self, p)[0]
    if not tuple(grad.shape) == tuple(pdist.shape) == tuple(shape):
        raise RuntimeError(f"[_pdist_backward] expected grad and pdist of {list(shape)}, got {list(grad.shape)} and "
                           f"{list(pdist.shape)}")
    return self.shape, self.dtype


# Kernels that make the differences pair by pair. As in torch they have no second derivative.
op("_cdist_slopes(Tensor grad, Tensor x1, Tensor x2, float p, Tensor cdist) -> Tensor", variants="",
   batch=batching_nn.paired, rule=_slopes,
   grad=dict.fromkeys(("grad", "x1", "x2", "cdist"), _no_second("_cdist_backward")))
op("_cdist_apart(Tensor x1, Tensor x2, float p) -> Tensor", variants="", batch=batching_nn.paired, rule=_apart,
   forward=forward.refused("_cdist_forward"),
   grad={"x1": lambda g, x1, x2, p, result: ops._cdist_backward(g, x1, x2, p, result),
         "x2": lambda g, x1, x2, p, result: ops._cdist_backward(g.mT, x2, x1, p, result.mT)})
op("_pdist_slopes(Tensor grad, Tensor self, float p, Tensor pdist) -> Tensor", variants="", batch=batching.leading,
   rule=_pair_slopes, grad=dict.fromkeys(("grad", "self", "pdist"), _no_second("_pdist_backward")))
op("_pdist_apart(Tensor self, float p) -> Tensor", variants="", batch=batching.leading, rule=_pairs,
   forward=forward.refused("_pdist_forward"),
   grad={"self": lambda g, self, p, result: ops._pdist_backward(g, self, p, result)})


@composite("_cdist_backward(Tensor grad, Tensor x1, Tensor x2, float p, Tensor cdist) -> Tensor", variants="function",
           rule=_cdist_slope, npu="aclnnCdistBackward(grad, x1, x2, cdist, p, out)")
def _cdist_backward(grad: Tensor, x1: Tensor, x2: Tensor, p: float, cdist: Tensor) -> Tensor:
    """The gradient toward x1."""
    if x1.is_cpu and x1.dtype.itemsize >= 4 and grad.dtype is x1.dtype is x2.dtype is cdist.dtype:
        return ops._cdist_slopes(grad, x1, x2, p, cdist)
    differences = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    return _norm_grad(grad, differences, p, (-1,), False, cdist).sum(-2)


@composite("cdist(Tensor x1, Tensor x2, float p=2.0, any? compute_mode=None) -> Tensor",
           out=False, autocast="float32",
           variants="function",
           rule=_cdist_rule, npu="aclnnCdist(x1, x2, p, 0, out)",
           grad={"x1": lambda g, x1, x2, p, result: ops._cdist_backward(g, x1, x2, p, result),
                 "x2": lambda g, x1, x2, p, result: ops._cdist_backward(g.mT.contiguous(), x2, x1, p,
                                                                              result.mT.contiguous())})
def _cdist(x1: Tensor, x2: Tensor, p: float, compute_mode: str | None) -> Tensor:
    """The p-norm of every difference of a row of x1 and a row of x2."""
    _check_cdist(x1, x2, p, compute_mode)
    mode = _CDIST_MODES.index(compute_mode) % 3
    if p == 2 and (mode == 1 or mode == 0 and max(x1.size(-2), x2.size(-2)) > 25):
        of_x1, of_x2 = x1.square().sum(-1, True), x2.square().sum(-1, True)     # summed within the product, as torch does
        square = ops.matmul(ops.cat([x1 * -2, of_x1, ops.ones_like(of_x1)], -1),
                            ops.cat([x2, ops.ones_like(of_x2), of_x2], -1).transpose(-2, -1))
        near = square <= 0
        return square.masked_fill(near, 1).sqrt().masked_fill(near, 0)
    if x1.dtype.itemsize < 4 and x1.is_cpu:
        raise NotImplementedError(f'"cdist" not implemented for \'{word(x1.dtype)}\'')
    if x1.is_cpu and x1.dtype is x2.dtype:
        return ops._cdist_apart(x1, x2, p)
    if x1.size(-1) == 0 or x1.numel() == 0 or x2.numel() == 0:
        return (x1.sum(-1).unsqueeze(-1) + x2.sum(-1).unsqueeze(-2)) * 0
    return ops.linalg_vector_norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p, -1)


def _pdist_rule(self: Tensor, p: float) -> Spec:
    if self.dim() != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {self.dim()}D")
    if not self.is_floating_point():
        raise RuntimeError("pdist only supports floating-point dtypes")
    if not p >= 0:                               # nor NaN
        raise RuntimeError("pdist only supports non-negative p values")
    return (self.size(0) * (self.size(0) - 1) // 2,), self.dtype


@composite("pdist(Tensor self, float p=2.0) -> Tensor", autocast={"npu": "float32"}, out=False,
           variants="function", rule=_pdist_rule,
           npu="aclnnPdist(self, p, out)")
def _pdist(self: Tensor, p: float) -> Tensor:
    """The p-norm of the difference of every two rows."""
    _pdist_rule(self, p)
    if self.is_cpu and self.dtype.itemsize >= 4:
        return ops._pdist_apart(self, p)
    n = self.size(0)
    if n < 2 or self.size(1) == 0:
        return self.sum() * 0 + self.new_zeros((n * (n - 1) // 2,))
    first, second = ops.triu_indices(n, n, 1, device=self.device)
    return ops.linalg_vector_norm(self.index_select(0, first) - self.index_select(0, second), p, -1)


# ---- margins ---------------------------------------------------------------------------------------------------------
@composite("margin_ranking_loss(Tensor input1, Tensor input2, Tensor target, float margin=0.0, int reduction=0) "
           "-> Tensor", autocast="float32", out=False, variants="function")
def _margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float, reduction: int) -> Tensor:
    """max(0, margin - target * (input1 - input2))."""
    if not input1.dim() == input2.dim() == target.dim():
        raise RuntimeError("margin_ranking_loss : All input tensors should have same dimension but got sizes: input1: "
                           f"{list(input1.shape)}, input2: {list(input2.shape)}, target: {list(target.shape)}")
    return reduced_loss((-target * (input1 - input2) + margin).clamp_min(0), reduction)


@composite("hinge_embedding_loss(Tensor self, Tensor target, float margin=1.0, int reduction=0) -> Tensor",
           autocast="float32", out=False,
           variants="function")
def _hinge_embedding_loss(self: Tensor, target: Tensor, margin: float, reduction: int) -> Tensor:
    """self where target is 1, max(0, margin - self) where it is -1."""
    zero = ops.zeros_like(self)
    loss = ops.where(target != 1, (margin - self).clamp_min(0), zero) + ops.where(target != -1, self, zero)
    return reduced_loss(loss, reduction)


@composite("cosine_embedding_loss(Tensor input1, Tensor input2, Tensor target, float margin=0.0, int reduction=0) "
           "-> Tensor", autocast="float32", out=False, variants="function")
def _cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float, reduction: int) -> Tensor:
    """1 - cos where target is 1, max(0, cos - margin) where it is -1."""
    if target.dim() > 1:
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    rank = target.dim() + 1
    if input1.dim() != rank or input2.dim() != rank:
        raise RuntimeError(f"{target.dim()}D target tensor expects {rank}D input tensors, but found inputs with sizes "
                           f"{list(input1.shape)} and {list(input2.shape)}.")
    dim, eps = target.dim(), 1e-12
    product = (input1 * input2).sum(dim)
    sizes = (input1.square().sum(dim) + eps) * (input2.square().sum(dim) + eps)
    cos = product / sizes.sqrt()
    zero = ops.zeros_like(cos)
    loss = ops.where(target == 1, 1 - cos, zero) + ops.where(target == -1, (cos - margin).clamp_min(0), zero)
    return reduced_loss(loss, reduction)


@composite("triplet_margin_loss(Tensor anchor, Tensor positive, Tensor negative, float margin=1.0, float p=2.0, "
           "float eps=1e-06, bool swap=False, int reduction=0) -> Tensor", autocast="float32", out=False,
           variants="function")
def _triplet_margin_loss(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float, p: float, eps: float,
                         swap: bool, reduction: int) -> Tensor:
    """max(0, margin + distance to the positive - distance to the negative)."""
    if not anchor.dim() == positive.dim() == negative.dim():
        raise RuntimeError(f"The anchor, positive, and negative tensors are expected to have the same number of "
                           f"dimensions, but got: anchor {anchor.dim()}D, positive {positive.dim()}D, and negative "
                           f"{negative.dim()}D inputs")
    near, far = ops.pairwise_distance(anchor, positive, p, eps), ops.pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = ops.minimum(far, ops.pairwise_distance(positive, negative, p, eps))
    return reduced_loss((margin + near - far).clamp_min(0), reduction)


@composite("soft_margin_loss_backward(Tensor grad_output, Tensor self, Tensor target, int reduction) -> Tensor",
           variants="", rule=pair_slope, npu="aclnnSoftMarginLossBackward(grad_output, self, target, reduction, out)")
def _soft_margin_loss_backward(grad_output: Tensor, self: Tensor, target: Tensor, reduction: int) -> Tensor:
    return -share(grad_output, self, target, reduction) * target * (-target * self).sigmoid()


@composite("soft_margin_loss(Tensor self, Tensor target, int reduction=0) -> Tensor",
           lacks="int complex", autocast="float32",
           variants="nn", rule=pair_loss, node=True,
           npu="aclnnSoftMarginLoss(self, target, reduction, out)",
           grad={"target": "soft_margin_loss",
                 "self": lambda g, self, target, reduction: ops.soft_margin_loss_backward(g, self, target, reduction)})
def _soft_margin_loss(self: Tensor, target: Tensor, reduction: int) -> Tensor:
    """log(1 + exp(-target * self))."""
    return reduced_loss((self * -target).exp().log1p(), reduction)


_MULTI_MARGIN = "(Tensor rows, Tensor target, Tensor? weight, int p, float margin) -> Tensor"
op(f"_multi_margin_slopes{_MULTI_MARGIN}", kernel="multi_margin_slopes", variants="",
   rule=lambda rows, *_: (rows.shape, rows.dtype))
op(f"_multi_margin{_MULTI_MARGIN}", kernel="multi_margin", variants="", forward=forward.refused("multi_margin_loss"),
   rule=lambda rows, *_: (rows.shape[:1], rows.dtype),
   grad={"rows": lambda g, rows, target, weight, p, margin:
         g.unsqueeze(1) * ops._multi_margin_slopes(rows, target, weight, p, margin)})


@composite("multi_margin_loss(Tensor self, Tensor target, Scalar p=1, Scalar margin=1, Tensor? weight=None, "
           "int reduction=0) -> Tensor", autocast="float32", variants="nn", forward=forward.refused("multi_margin_loss"), node=True,
           grad={"weight": "multi_margin_loss", "self": lambda g, self, target, p, margin, weight, reduction:
                 ops.multi_margin_loss_backward(g, self, target, p, margin, weight, reduction)})
def _multi_margin_loss(self: Tensor, target: Tensor, p: float, margin: float, weight: Tensor | None,
                       reduction: int) -> Tensor:
    """The mean over the other classes of max(0, margin - self[target] + self[class]) ** p."""
    if p not in (1, 2):
        raise RuntimeError(f"only p == 1 and p == 2 supported, but got {p}")
    if self.dim() > 2 or self.dim() == 2 and self.size(1) == 0 or self.dim() == 1 and self.size(0) == 0:
        raise RuntimeError(f"Expected non-empty vector or matrix with optional 0-dim batch size, but got: "
                           f"{list(self.shape)}")
    classes = self.size(-1) if self.dim() else 1
    rows = self.reshape(-1, classes)
    if target.dim() > 1 or target.numel() != rows.size(0):
        raise RuntimeError("multi_margin_loss: target tensor should be 1-D with size equal to the number of input samples (batch "
                           f"size). Expected target size [{rows.size(0)}], but got {list(target.shape)}. Input has shape "
                           f"{list(self.shape)}.")
    if weight is not None and (weight.dim() > 1 or weight.numel() != classes):
        raise RuntimeError(f"inconsistent weight size, expected {classes} but got {list(weight.shape)}")
    if not self.is_floating_point() or self.dtype.itemsize < 4 and self.is_cpu:
        raise NotImplementedError(f'"multi_margin_loss_cpu_kernel" not implemented for \'{word(self.dtype)}\'')
    if target.dtype is not INT64:
        raise RuntimeError(f"expected scalar type Long but found {word(target.dtype)}")
    core._check_fits(margin, self.dtype)
    index, margin = target.reshape(-1, 1), margin.real + 0.0
    if self.is_cpu and (weight is None or weight.dtype is self.dtype):
        loss = ops._multi_margin(rows, target.reshape(-1), weight, int(p.real), margin)
        return reduced_loss(loss.reshape(()) if target.dim() == 0 else loss, reduction)
    if index.numel() and ((index < 0) | (index >= classes)).any()._known():
        raise RuntimeError("target out of range")
    over = (margin - rows.gather(1, index) + rows).relu()
    over = over if p == 1 else over * over
    if weight is not None:
        over = over * weight.reshape(-1)[index]
    loss = over.scatter(1, index, 0.0).sum(1) / classes
    return reduced_loss(loss.reshape(()) if target.dim() == 0 else loss, reduction)


def _multilabel_rule(self: Tensor, target: Tensor, reduction: int) -> Sequence[Spec] | None:
    if self.dim() > 2 or self.dim() and self.size(-1) == 0:
        raise RuntimeError(f"Expected non-empty vector or matrix with optional 0-dim batch size, but got: "
                           f"{list(self.shape)}")
    if target.shape != self.shape and not (self.dim() <= 1 and target.numel() == self.numel()):
        raise RuntimeError(f"inconsistent target size: {list(target.shape)} for input of size: {list(self.shape)}")
    if target.numel() and target.dtype is not INT64:
        raise RuntimeError(f"expected scalar type Long but found {word(target.dtype)}")
    if target.shape != self.shape or reduction not in (0, 1, 2):
        return None
    return [(self.shape[:1] if reduction == 0 and self.dim() == 2 else (), self.dtype), (self.shape, self.dtype)]


op("_multilabel_margin_slopes(Tensor rows, Tensor target) -> Tensor", kernel="multilabel_margin_slopes", variants="",
   rule=lambda rows, target: (rows.shape, rows.dtype))
op("_multilabel_margin(Tensor rows, Tensor target) -> (Tensor, Tensor)", kernel="multilabel_margin", variants="",
   forward=forward.refused("multilabel_margin_loss_forward"),
   rule=lambda rows, target: [(rows.shape[:1], rows.dtype), (rows.shape, rows.dtype)],
   grad={"rows": lambda g, rows, target: g.unsqueeze(1) * ops._multilabel_margin_slopes(rows, target)})


@composite("multilabel_margin_loss_forward(Tensor self, Tensor target, int reduction) "
           "-> (Tensor output, Tensor is_target)", variants="",
           forward=forward.refused("multilabel_margin_loss_forward"), rule=_multilabel_rule, node=True,
           grad={"self": lambda g, self, target, reduction, result1:
                 ops.multilabel_margin_loss_backward(g, self, target, reduction, result1)},
           npu="aclnnMultilabelMarginLoss(self, target, reduction, output, is_target)")
def _multilabel_margin_loss(self: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    _multilabel_rule(self, target, reduction)
    classes = self.size(-1) if self.dim() else 1
    if self.is_cpu and self.dtype.itemsize >= 4 and self.is_floating_point():
        loss, is_target = ops._multilabel_margin(self.reshape(-1, classes), target.reshape(-1, classes))
        return reduced_loss(loss.reshape(()) if self.dim() < 2 else loss, reduction), is_target.reshape(target.shape)
    if target.numel() and ((target < -1) | (target >= classes)).any()._known():
        raise RuntimeError("argument #2 'target' is out of range")
    rows, index = self.reshape(-1, classes), target.reshape(-1, classes)
    kept = (index < 0).to(INT64).cumsum(1) == 0
    places = index.masked_fill(~kept, 0)
    is_target = ops.zeros_like(rows).detach().scatter_add(1, places, kept.to(rows.dtype)) > 0
    # (sample, target, other class)
    over = (1 - rows.gather(1, places).unsqueeze(2) + rows.unsqueeze(1)).relu()
    counted = kept.unsqueeze(2) & ~is_target.unsqueeze(1)
    loss = over.masked_fill(~counted, 0).sum((1, 2)) / classes
    loss = reduced_loss(loss.reshape(()) if self.dim() < 2 else loss, reduction)
    return loss, is_target.to(self.dtype).reshape(target.shape)


op("multilabel_margin_loss(Tensor self, Tensor target, int reduction=0) -> Tensor",
   lacks="int half", autocast="float32", variants="nn",
   body=lambda self, target, reduction: ops.multilabel_margin_loss_forward(self, target, reduction)[0],
   doc="Over the targets up to the first -1: the mean of max(0, 1 - (self[target] - self[other])).")


# ---- CTC -------------------------------------------------------------------------------------------------------------
def _ctc_labels(targets: Tensor, target_lengths: list[int], blank: int) -> Tensor:
    """(batch, 2 S + 1): every target with blanks before, between and after; short ones end in blanks."""
    longest = max(target_lengths, default=0)
    labels = ops.full((len(target_lengths), 2 * longest + 1), blank, dtype=INT64, device=targets.device)
    start = 0
    for b, length in enumerate(target_lengths):
        row = targets[b, :length] if targets.dim() == 2 else targets[start:start + length]
        start += length
        labels[b, 1:2 * length:2] = row.to(INT64)
    return labels


def _step(states: Tensor, skip: Tensor) -> Tensor:
    """From every state: stay, one on, or two on where `skip` allows."""
    one = ops.constant_pad_nd(states[:, :-1], [1, 0], -math.inf)
    two = ops.constant_pad_nd(states[:, :-2], [2, 0], -math.inf)[:, :states.size(1)] if states.size(1) > 1 else one
    return ops.stack([states, one, two.masked_fill(~skip, -math.inf)])


def _log_add(stacked: Tensor) -> Tensor:
    """logsumexp over the first dim that gives -inf for nothing but -inf."""
    top = stacked.amax(0)
    safe = top.masked_fill(top == -math.inf, 0)
    return (stacked - safe).exp().sum(0).log() + safe


def _ctc_states(log_probs: Tensor, labels: Tensor, input_lengths: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """(time, batch, state): log of the probability of all ways to each state."""
    time, batch, _ = log_probs.shape
    scores = log_probs.gather(2, labels.expand(time, -1, -1))
    skip = ops.zeros_like(labels, dtype=_C._dtype_named("bool"))
    if labels.size(1) > 2:
        skip[:, 3::2] = labels[:, 3::2] != labels[:, 1:-2:2]
    now = ops.full_like(scores[0], -math.inf)
    now[:, :2] = scores[0, :, :2]
    all_states = [now]
    for t in range(1, time):
        now = _log_add(_step(now, skip)) + scores[t]
        all_states.append(now)
    return ops.stack(all_states), scores, skip


def _ctc_rule(log_probs: Tensor, targets: Tensor, input_lengths: Sequence[int], target_lengths: Sequence[int],
              *_: object) -> Sequence[Spec] | None:
    """CANN's op needs a target of each sample, no more targets than steps, and keeps states in whole blocks of 8."""
    if min(target_lengths) == 0 or any(t > n for t, n in zip(target_lengths, input_lengths, strict=True)):
        return None
    batch, states = log_probs.size(1), (2 * max(target_lengths) + 8) // 8 * 8
    return [((batch,), log_probs.dtype), ((batch, log_probs.size(0), states), log_probs.dtype)]


_CTC_ARGS = "Tensor log_probs, Tensor targets, int[] input_lengths, int[] target_lengths"
op(f"_ctc_ways({_CTC_ARGS}, int blank) -> (Tensor, Tensor)", kernel="ctc_forward", variants="",
   rule=lambda log_probs, targets, input_lengths, target_lengths, blank:
   [((log_probs.size(1),), log_probs.dtype),
    ((log_probs.size(1), log_probs.size(0), 2 * max(target_lengths, default=0) + 1), log_probs.dtype)])
op("_ctc_slopes(Tensor grad, Tensor log_probs, Tensor targets, Tensor losses, Tensor log_alpha, int[] input_lengths, "
   "int[] target_lengths, int blank, bool zero_infinity) -> Tensor", kernel="ctc_backward", variants="",
   rule=lambda grad, log_probs, *_: (log_probs.shape, log_probs.dtype))


@composite(f"_ctc_forward({_CTC_ARGS}, int blank, bool zero_infinity) -> (Tensor, Tensor)", variants="", rule=_ctc_rule,
           npu="aclnnCtcLoss(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity, out0, out1)")
def _ctc_forward(log_probs: Tensor, targets: Tensor, input_lengths: list[int], target_lengths: list[int], blank: int,
                 zero_infinity: bool) -> tuple[Tensor, Tensor]:
    """The loss of each sample, and the states that its gradient needs: (batch, time, state)."""
    if log_probs.is_cpu:
        return ops._ctc_ways(log_probs, targets, input_lengths, target_lengths, blank)
    labels = _ctc_labels(targets, target_lengths, blank)
    alpha, _, _ = _ctc_states(log_probs, labels, input_lengths)
    losses = []
    for b, (steps, length) in enumerate(zip(input_lengths, target_lengths, strict=True)):
        if steps == 0:
            losses.append(log_probs.new_full((), 0.0 if length == 0 else math.inf))
            continue
        ends = alpha[steps - 1, b, max(2 * length - 1, 0):2 * length + 1]
        losses.append(-_log_add(ends.unsqueeze(1)).squeeze(0) if length else -alpha[steps - 1, b, 0])
    return ops.stack(losses), alpha.transpose(0, 1).contiguous()


@composite(f"_ctc_loss_backward(Tensor grad, {_CTC_ARGS}, Tensor neg_log_likelihood, Tensor log_alpha, int blank, "
           "bool zero_infinity=False) -> Tensor", variants="", whole=True,
           rule=lambda grad, log_probs, targets, input_lengths, target_lengths, *_:
           _ctc_rule(log_probs, targets, input_lengths, target_lengths) and (log_probs.shape, log_probs.dtype),
           npu="aclnnCtcLossBackward(grad, log_probs, targets, input_lengths, target_lengths, neg_log_likelihood, "
           "log_alpha, blank, zero_infinity, out)")
def _ctc_backward(g: Tensor, log_probs: Tensor, targets: Tensor, input_lengths: list[int], target_lengths: list[int],
                  losses: Tensor, alpha: Tensor, blank: int, zero_infinity: bool) -> Tensor:
    """Toward log_probs, which are taken to be normalised, as torch does."""
    if log_probs.is_cpu and g.dtype is losses.dtype is alpha.dtype is log_probs.dtype:
        return ops._ctc_slopes(g, log_probs, targets, losses, alpha, input_lengths, target_lengths, blank, zero_infinity)
    labels, time = _ctc_labels(targets, target_lengths, blank), log_probs.size(0)
    grad = ops.zeros_like(log_probs)
    for b, (steps, length) in enumerate(zip(input_lengths, target_lengths, strict=True)):
        if steps == 0:
            continue
        row, states = labels[b, :2 * length + 1], 2 * length + 1
        scores = log_probs[:steps, b].index_select(1, row)
        flipped, _, _ = _ctc_states(log_probs[:steps, b:b + 1].flip(0), row.flip(0).unsqueeze(0), [steps])
        both = alpha[b, :steps, :states] + flipped[:, 0].flip((0, 1)) - scores
        top = both.amax(1, True)
        top = top.masked_fill(top == -math.inf, 0)
        seen = ops.zeros_like(log_probs[:steps, b]).index_add(1, row, (both - top).exp()).log() + top
        part = log_probs[:steps, b].exp() - (seen + losses[b]).exp()
        grad[:steps, b] = part * g[b]
    if zero_infinity:
        grad = grad.masked_fill((losses == math.inf).reshape(1, -1, 1), 0)
    return grad if time else ops.zeros_like(log_probs)


op(f"_ctc_loss({_CTC_ARGS}, int blank=0, bool zero_infinity=False) -> (Tensor, Tensor)", variants="function",
   forward=forward.refused("_ctc_loss"),
   kernel=lambda log_probs, *rest: tuple(ops._ctc_forward(log_probs.detach(), *rest)),
   grad={"log_probs": lambda g, log_probs, targets, input_lengths, target_lengths, blank, zero_infinity, result0,
         result1: ops._ctc_loss_backward(g, log_probs, targets, input_lengths, target_lengths, result0, result1, blank,
                                         zero_infinity)})
_CTC_TENSORS = _CTC_ARGS.replace("int[]", "Tensor")
op(f"_ctc_loss_backward.Tensor(Tensor grad, {_CTC_TENSORS}, Tensor neg_log_likelihood, Tensor log_alpha, int blank, "
   "bool zero_infinity=False) -> Tensor", variants="", whole=True,
   body=lambda grad, log_probs, targets, input_lengths, target_lengths, *rest:
   ops._ctc_loss_backward(grad, log_probs, targets, _lengths(input_lengths), _lengths(target_lengths), *rest))
op(f"_ctc_loss.Tensor({_CTC_TENSORS}, int blank=0, bool zero_infinity=False) -> (Tensor, Tensor)", variants="function",
   forward=forward.refused("_ctc_loss"), kernel=lambda log_probs, targets, input_lengths, target_lengths, *rest:
   tuple(ops._ctc_forward(log_probs.detach(), targets, _lengths(input_lengths), _lengths(target_lengths), *rest)),
   grad={"log_probs": lambda g, log_probs, targets, input_lengths, target_lengths, blank, zero_infinity, result0,
         result1: ops._ctc_loss_backward(g, log_probs, targets, input_lengths, target_lengths, result0, result1, blank,
                                         zero_infinity)})


def _check_ctc(log_probs: Tensor, targets: Tensor, input_lengths: list[int], target_lengths: list[int], batch: int,
               blank: int) -> None:
    where = "(while checking arguments for ctc_loss_allocate_outputs)"
    if log_probs.numel() == 0:
        raise RuntimeError("log_probs tensor must not be empty")
    if not 0 <= blank < log_probs.size(2):
        raise RuntimeError("blank must be in label range")
    for name, lengths in (("input_lengths", input_lengths), ("target_lengths", target_lengths)):
        if len(lengths) != batch:
            raise RuntimeError(f"{name} must be of size batch_size")
    if targets.dim() not in (1, 2):
        raise RuntimeError(f"Expected 1 to 2 dimensions, but got {targets.dim()}-dimensional tensor for argument #2 "
                           f"'targets' {where}")
    for name, lengths in (("target_lengths", target_lengths), ("input_lengths", input_lengths)):
        if min(lengths) < 0:
            raise RuntimeError(f"Expected {name} to have value at least 0, but got value {min(lengths)} {where}")
    rows, longest = (sum(target_lengths), 0) if targets.dim() == 1 else (batch, max(target_lengths))
    if targets.size(0) != rows:
        raise RuntimeError(f"Expected tensor to have size {rows} at dimension 0, but got size {targets.size(0)} for argument "
                           f"#2 'targets' {where}")
    if targets.dim() == 2 and targets.size(1) < longest:
        raise RuntimeError(f"Expected tensor to have size at least {longest} at dimension 1, but got size {targets.size(1)} "
                           f"for argument #2 'targets' {where}")
    if max(input_lengths) > log_probs.size(0):
        raise RuntimeError(f"Expected input_lengths to have value at most {log_probs.size(0)}, but got value "
                           f"{max(input_lengths)} {where}")


def _ctc_loss(log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int, reduction: int,
              zero_infinity: bool) -> Tensor:
    """Minus the log of the probability of all alignments of the targets with the inputs."""
    known = all(x._readable for x in (input_lengths, target_lengths) if isinstance(x, Tensor))
    if known:
        input_lengths, target_lengths = _lengths(input_lengths), _lengths(target_lengths)
    batched = log_probs.dim() == 3
    if not batched:
        log_probs = log_probs.unsqueeze(1)
        targets = targets.unsqueeze(0) if targets.dim() == 1 else targets
    batch = log_probs.size(1)
    if known:
        _check_ctc(log_probs, targets, input_lengths, target_lengths, batch, blank)
    losses = ops._ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity)[0]
    if zero_infinity:
        losses = ops.where(losses == math.inf, 0.0, losses)
    if reduction == 1:
        return (losses / (losses.new_tensor([max(n, 1) for n in target_lengths]) if known else
                          target_lengths.to(losses).clamp_min(1))).mean()
    return losses.sum() if reduction == 2 else losses if batched else losses.squeeze(0)


def _lengths(value: Any) -> list[int]:
    if hasattr(value, "tolist"):
        value = value.tolist()
    return [value] if isinstance(value, int) else list(value)


_CTC = "int blank=0, int reduction=0, bool zero_infinity=False) -> Tensor"
op(f"ctc_loss(Tensor log_probs, Tensor targets, int[] input_lengths, int[] target_lengths, {_CTC}",
   autocast={"cpu": "float32"}, out=False, variants="function", lacks="half",
   body=_ctc_loss)
op(f"ctc_loss.Tensor(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, {_CTC}", out=False,
   variants="function", lacks="half", body=_ctc_loss)
