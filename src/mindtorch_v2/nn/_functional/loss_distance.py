"""Losses and measures of distance: margins, triplets, embeddings."""

from __future__ import annotations

from typing import Callable

import mindtorch_v2 as torch
from mindtorch_v2.nn._functional.loss import _code, _reduced

Tensor = torch.Tensor

__all__ = [
    "cosine_embedding_loss", "hinge_embedding_loss", "margin_ranking_loss", "multi_margin_loss",
    "multilabel_margin_loss", "multilabel_soft_margin_loss",
    "soft_margin_loss", "triplet_margin_loss", "triplet_margin_with_distance_loss",
]  # fmt: skip


def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Penalise a pair that is ranked against its target."""
    if (type(input1) is not Tensor or type(input2) is not Tensor) and \
            torch.nn.functional.has_torch_function_variadic(input1, input2, target):
        return torch.overrides.handle_torch_function(torch.nn.functional.margin_ranking_loss,
            (input1, input2, target), input1, input2, target, margin=margin, size_average=size_average, reduce=reduce,
            reduction=reduction)
    code = _code(reduction, size_average, reduce)
    if not input1.dim() == input2.dim() == target.dim():
        raise RuntimeError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: "
            f"input1: {input1.size()}, input2: {input2.size()}, target: {target.size()} "
        )
    return torch.margin_ranking_loss(input1, input2, target, margin, code)


def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """A distance for similar pairs, a hinge for dissimilar ones."""
    if (type(input) is not Tensor or type(target) is not Tensor) and \
            torch.nn.functional.has_torch_function_variadic(input, target):
        return torch.overrides.handle_torch_function(torch.nn.functional.hinge_embedding_loss, (input, target), input,
            target, margin=margin, size_average=size_average, reduce=reduce, reduction=reduction)
    code = _code(reduction, size_average, reduce)
    return torch.hinge_embedding_loss(input, target, margin, code)


def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """A hinge over all pairs of a target class and another."""
    if (type(input) is not Tensor or type(target) is not Tensor) and \
            torch.nn.functional.has_torch_function_variadic(input, target):
        return torch.overrides.handle_torch_function(torch.nn.functional.multilabel_margin_loss, (input, target),
            input, target, size_average=size_average, reduce=reduce, reduction=reduction)
    code = _code(reduction, size_average, reduce)
    return torch._C._nn.multilabel_margin_loss(input, target, code)


def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The logistic loss of targets 1 and -1."""
    if (type(input) is not Tensor or type(target) is not Tensor) and \
            torch.nn.functional.has_torch_function_variadic(input, target):
        return torch.overrides.handle_torch_function(torch.nn.functional.soft_margin_loss, (input, target), input,
            target, size_average=size_average, reduce=reduce, reduction=reduction)
    code = _code(reduction, size_average, reduce)
    return torch._C._nn.soft_margin_loss(input, target, code)


def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Binary cross entropy with logits averaged over the classes."""
    if (type(input) is not Tensor or type(target) is not Tensor) and \
            torch.nn.functional.has_torch_function_variadic(input, target, weight):
        return torch.overrides.handle_torch_function(torch.nn.functional.multilabel_soft_margin_loss,
            (input, target, weight), input, target, weight=weight, size_average=size_average, reduce=reduce,
            reduction=reduction)
    if size_average is reduce is None and reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{reduction} is not valid")
    code = _code(reduction, size_average, reduce)
    log_sigmoid = torch._C._nn.log_sigmoid
    loss = -(target * log_sigmoid(input) + (1 - target) * log_sigmoid(-input))
    if weight is not None:
        loss = loss * weight
    return _reduced(loss.mean(-1), ("none", "mean", "sum")[code])


def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Pull pairs together or apart by the angle between them."""
    if (type(input1) is not Tensor or type(input2) is not Tensor) and \
            torch.nn.functional.has_torch_function_variadic(input1, input2, target):
        return torch.overrides.handle_torch_function(torch.nn.functional.cosine_embedding_loss,
            (input1, input2, target), input1, input2, target, margin=margin, size_average=size_average, reduce=reduce,
            reduction=reduction)
    code = _code(reduction, size_average, reduce)
    return torch.cosine_embedding_loss(input1, input2, target, margin, code)


def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """A hinge between the target class and every other."""
    if (type(input) is not Tensor or type(target) is not Tensor) and \
            torch.nn.functional.has_torch_function_variadic(input, target, weight):
        return torch.overrides.handle_torch_function(torch.nn.functional.multi_margin_loss, (input, target, weight),
            input, target, p=p, margin=margin, weight=weight, size_average=size_average, reduce=reduce,
            reduction=reduction)
    code = _code(reduction, size_average, reduce)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    if weight is not None and weight.dim() != 1:
        raise ValueError("weight must be one-dimensional")
    return torch._C._nn.multi_margin_loss(input, target, p, margin, weight, code)


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The positive should be nearer to the anchor than the negative, by a margin."""
    if (type(anchor) is not Tensor or type(positive) is not Tensor) and \
            torch.nn.functional.has_torch_function_variadic(anchor, positive, negative):
        return torch.overrides.handle_torch_function(torch.nn.functional.triplet_margin_loss,
            (anchor, positive, negative), anchor, positive, negative, margin=margin, p=p, eps=eps, swap=swap,
            size_average=size_average, reduce=reduce, reduction=reduction)
    code = _code(reduction, size_average, reduce)
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    return torch.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, code)


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """Triplet margin loss with a distance of one's own."""
    if (type(anchor) is not Tensor or type(positive) is not Tensor) and \
            torch.nn.functional.has_torch_function_variadic(anchor, positive, negative):
        return torch.overrides.handle_torch_function(torch.nn.functional.triplet_margin_with_distance_loss,
            (anchor, positive, negative), anchor, positive, negative, distance_function=distance_function,
            margin=margin, swap=swap, reduction=reduction)
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    if not anchor.dim() == positive.dim() == negative.dim():
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of "
            f"dimensions, but got: anchor {anchor.dim()}D, positive {positive.dim()}D, and "
            f"negative {negative.dim()}D inputs"
        )
    distance = torch.pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = torch.minimum(far, distance(positive, negative))
    return _reduced(torch.clamp_min(margin + near - far, 0), reduction)
