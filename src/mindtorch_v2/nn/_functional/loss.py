"""Losses between a prediction and a target: classification and regression."""

from __future__ import annotations

import math
import warnings
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.nn import _reduction as _Reduction

Tensor = torch.Tensor

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "ctc_loss",
    "gaussian_nll_loss", "huber_loss", "kl_div", "l1_loss", "linear_cross_entropy", "mse_loss",
    "nll_loss", "poisson_nll_loss", "smooth_l1_loss",
]  # fmt: skip

_enum = _Reduction.get_enum


def _code(reduction: str, size_average: bool | None, reduce: bool | None) -> int:
    """The number of the reduction, where the old flags win if they are given."""
    if size_average is not None or reduce is not None:
        return _Reduction.legacy_get_enum(size_average, reduce)
    return _enum(reduction)


def _reduced(loss: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return loss
    if reduction == "sum":
        return loss.sum()
    if reduction == "mean":
        return loss.mean()
    raise ValueError(
        f"Invalid reduction mode: {reduction}. Expected one of 'none', 'mean', 'sum'."
    )


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Connectionist temporal classification."""
    if (type(log_probs) is not Tensor or type(targets) is not Tensor) and \
            torch.nn.functional.has_torch_function_variadic(log_probs, targets):
        return torch.overrides.handle_torch_function(torch.nn.functional.ctc_loss, (log_probs, targets), log_probs,
            targets, input_lengths, target_lengths, blank=blank, reduction=reduction, zero_infinity=zero_infinity)
    return torch.ctc_loss(
        log_probs, targets, input_lengths, target_lengths, blank, _enum(reduction), zero_infinity
    )


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Negative log likelihood of log-probabilities."""
    if (type(input) is not Tensor or type(target) is not Tensor) and \
            torch.nn.functional.has_torch_function_variadic(input, target, weight):
        return torch.overrides.handle_torch_function(torch.nn.functional.nll_loss, (input, target, weight), input,
            target, weight=weight, size_average=size_average, ignore_index=ignore_index, reduce=reduce,
            reduction=reduction)
    code = _code(reduction, size_average, reduce)
    return torch._C._nn.nll_loss_nd(input, target, weight, code, ignore_index)


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Cross entropy of logits against class indices or probabilities."""
    if (type(input) is not Tensor or type(target) is not Tensor) and \
            torch.nn.functional.has_torch_function_variadic(input, target, weight):
        return torch.overrides.handle_torch_function(torch.nn.functional.cross_entropy, (input, target, weight),
            input, target, weight=weight, size_average=size_average, ignore_index=ignore_index, reduce=reduce,
            reduction=reduction, label_smoothing=label_smoothing)
    return torch._C._nn.cross_entropy_loss(
        input, target, weight, _code(reduction, size_average, reduce), ignore_index,
        label_smoothing,
    )  # fmt: skip


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> Tensor:
    """Cross entropy of the logits of a linear layer whose weight is (classes, ..., features)."""
    if (type(input) is not Tensor or type(linear_weight) is not Tensor) and \
            torch.nn.functional.has_torch_function_variadic(input, linear_weight, target, linear_bias, weight):
        return torch.overrides.handle_torch_function(torch.nn.functional.linear_cross_entropy,
            (input, linear_weight, target, linear_bias, weight), input, linear_weight, target,
            linear_bias=linear_bias, weight=weight, reduction=reduction, ignore_index=ignore_index,
            label_smoothing=label_smoothing, options=options)
    _check_linear(input, linear_weight, linear_bias)
    if input.dim() == 2 and target.dim() and input.shape[0] != target.shape[0]:
        raise ValueError(f"Expected input batch_size ({input.shape[0]}) to match target batch_size ({target.shape[0]}).")
    if ignore_index is not None and target.is_floating_point():
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    if linear_weight.dim() > 2 and input.dim() == 1:
        raise RuntimeError(
            f"K-dimensional loss defined by linear_weight shape {tuple(linear_weight.shape)} requires "
            f"batched input, (N, {linear_weight.shape[-1]}), got unbatched input with shape "
            f"{tuple(input.shape)}"
        )
    if options is not None and linear_weight.dim() == 2 == input.dim() and not label_smoothing:
        return _in_pieces(input, linear_weight, target, linear_bias, weight, reduction, ignore_index, options)
    outputs = linear_weight.shape[:-1]
    bias = None if linear_bias is None else linear_bias.reshape(-1)
    logits = torch._C._nn.linear(input, linear_weight.reshape(-1, linear_weight.shape[-1]), bias)
    logits = logits.reshape(input.shape[:-1] + outputs)
    ignore_index = -100 if ignore_index is None else ignore_index
    return cross_entropy(
        logits, target, weight=weight, ignore_index=ignore_index, reduction=reduction,
        label_smoothing=label_smoothing,
    )  # fmt: skip


def _check_linear(input: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    if input.dim() not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.dim()}")
    if weight.dim() < 2:
        raise RuntimeError(f"expected linear_weight with dimensionality at least 2, got {weight.dim()}")
    if input.shape[-1] != weight.shape[-1]:
        raise RuntimeError("expected equal input and linear_weight last dimensions (in_features), got "
                           f"{input.shape[-1]} and {weight.shape[-1]}, respectively")
    if bias is not None and bias.shape != weight.shape[:-1]:
        raise RuntimeError(f"expected linear_bias shape {tuple(weight.shape[:-1])}, got {tuple(bias.shape)}")


def _in_pieces(input: Tensor, linear_weight: Tensor, target: Tensor, linear_bias: Tensor | None, weight: Tensor | None,
               reduction: str, ignore_index: int | None, options: Any) -> Tensor:
    """linear_cross_entropy() piece by piece: the logits of a piece live while its loss, or its gradient, is computed."""
    given = torch.nn.modules.linear_cross_entropy_options
    ignored, dtype = -100 if ignore_index is None else ignore_index, given.dtype_of(options, input.dtype)
    how = "none" if reduction == "none" else "sum"

    def piece(rows: Tensor, goal: Tensor) -> Tensor:
        bias = None if linear_bias is None else linear_bias.to(dtype)
        logits = torch._C._nn.linear(rows.to(dtype), linear_weight.to(dtype), bias)
        goal, scale = goal.to(dtype) if goal.is_floating_point() else goal, None if weight is None else weight.to(dtype)
        return cross_entropy(logits, goal, weight=scale, ignore_index=ignored, reduction=how)
    size = given.rows_of(options, *input.shape)
    parts = [torch.utils.checkpoint.checkpoint(piece, rows, goal, use_reentrant=False)
             for rows, goal in zip(input.split(size), target.split(size))]
    if reduction == "none":
        return torch.cat(parts).to(input.dtype)
    total = torch.stack(parts).sum()
    if reduction == "mean":
        if target.is_floating_point():
            total = total / input.shape[0]
        else:
            kept = target != ignored
            total = total / (kept.sum() if weight is None else
                             (weight.to(dtype)[target.masked_fill(~kept, 0)] * kept).sum())
    return total.to(input.dtype)


def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Negative log likelihood of a Poisson distribution."""
    if (type(input) is not Tensor or type(target) is not Tensor) and \
            torch.nn.functional.has_torch_function_variadic(input, target):
        return torch.overrides.handle_torch_function(torch.nn.functional.poisson_nll_loss, (input, target), input,
            target, log_input=log_input, full=full, size_average=size_average, eps=eps, reduce=reduce,
            reduction=reduction)
    reduction = _Reduction.resolve(reduction, size_average, reduce)
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(reduction + " is not a valid value for reduction")
    return torch.poisson_nll_loss(input, target, log_input, full, eps, _enum(reduction))


def _gaussian_variance(input: Tensor, var: Tensor | float) -> Tensor:
    """Check the variance and give it a shape that broadcasts to the input's."""
    if isinstance(var, float):
        if var < 0:
            raise ValueError("var has negative entry/entries")
        var = var * torch.ones_like(input)
    elif torch.any(var < 0):
        raise ValueError("var has negative entry/entries")
    if var.size() == input.size():
        return var
    if input.size()[:-1] == var.size():
        return var.unsqueeze(-1)
    if input.dim() == var.dim():
        odd = [v for i, v in zip(input.size(), var.size()) if i != v]
        if sum(odd) == 1:
            return var
    raise ValueError("var is of incorrect size")


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """Negative log likelihood of a Gaussian distribution."""
    if (type(input) is not Tensor or type(target) is not Tensor) and \
            torch.nn.functional.has_torch_function_variadic(input, target):
        return torch.overrides.handle_torch_function(torch.nn.functional.gaussian_nll_loss, (input, target), input,
            target, var, full=full, eps=eps, reduction=reduction)
    var = _gaussian_variance(input, var)
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(reduction + " is not valid")
    # Clamped without autograd: the gradient is that of the variance as given.
    var = var.clone()
    with torch.no_grad():
        var.clamp_(min=eps)
    loss = 0.5 * (var.log() + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return _reduced(loss, reduction)


def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """Kullback-Leibler divergence of log-probabilities from a target."""
    if (type(input) is not Tensor or type(target) is not Tensor) and \
            torch.nn.functional.has_torch_function_variadic(input, target):
        return torch.overrides.handle_torch_function(torch.nn.functional.kl_div, (input, target), input, target,
            size_average=size_average, reduce=reduce, reduction=reduction, log_target=log_target)
    if size_average is not None or reduce is not None:
        code = _Reduction.legacy_get_enum(size_average, reduce)
    else:
        if reduction == "mean":
            warnings.warn(
                "reduction: 'mean' divides the total loss by both the batch size and the "
                "support size.'batchmean' divides only by the batch size, and aligns with the "
                "KL div math definition.'mean' will be changed to behave the same as "
                "'batchmean' in the next major release.",
                stacklevel=2,
            )
        code = _enum("sum" if reduction == "batchmean" else reduction)
    loss = torch.kl_div(input, target, code, log_target=log_target)
    if reduction == "batchmean" and input.dim() != 0:
        loss = loss / input.size()[0]
    return loss


def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Cross entropy of probabilities against targets in [0, 1]."""
    if (type(input) is not Tensor or type(target) is not Tensor) and \
            torch.nn.functional.has_torch_function_variadic(input, target, weight):
        return torch.overrides.handle_torch_function(torch.nn.functional.binary_cross_entropy,
            (input, target, weight), input, target, weight=weight, size_average=size_average, reduce=reduce,
            reduction=reduction)
    code = _code(reduction, size_average, reduce)
    if target.size() != input.size():
        raise ValueError(
            f"Using a target size ({target.size()}) that is different to the input size "
            f"({input.size()}) is deprecated. Please ensure they have the same size."
        )
    if weight is not None:
        shape = torch.broadcast_shapes(target.size(), weight.size())
        if shape != target.size():
            raise RuntimeError(f"output with shape {list(target.shape)} doesn't match the broadcast shape {list(shape)}")
        weight = weight.expand(shape)
    return torch._C._nn.binary_cross_entropy(input, target, weight, code)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Cross entropy of logits against targets in [0, 1]."""
    if (type(input) is not Tensor or type(target) is not Tensor) and \
            torch.nn.functional.has_torch_function_variadic(input, target, weight, pos_weight):
        return torch.overrides.handle_torch_function(torch.nn.functional.binary_cross_entropy_with_logits,
            (input, target, weight, pos_weight), input, target, weight=weight, size_average=size_average,
            reduce=reduce, reduction=reduction, pos_weight=pos_weight)
    code = _code(reduction, size_average, reduce)
    if target.size() != input.size():
        raise ValueError(
            f"Target size ({target.size()}) must be the same as input size ({input.size()})"
        )
    return torch.binary_cross_entropy_with_logits(input, target, weight, pos_weight, code)


def _same_size(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Broadcast a pair that should have had one size, and say so."""
    if target.size() == input.size():
        return input, target
    warnings.warn(
        f"Using a target size ({target.size()}) that is different to the input size "
        f"({input.size()}). This will likely lead to incorrect results due to broadcasting. "
        "Please ensure they have the same size.",
        stacklevel=3,
    )
    first, second = torch.broadcast_tensors(input, target)
    return first, second


def _check_weight(weight: Tensor, input: Tensor) -> None:
    if weight.size() != input.size():
        raise ValueError("Weights and input must have the same size.")


def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """Squared below beta, absolute above."""
    if (type(input) is not Tensor or type(target) is not Tensor) and \
            torch.nn.functional.has_torch_function_variadic(input, target):
        return torch.overrides.handle_torch_function(torch.nn.functional.smooth_l1_loss, (input, target), input,
            target, size_average=size_average, reduce=reduce, reduction=reduction, beta=beta)
    a, b = _same_size(input, target)
    code = _code(reduction, size_average, reduce)
    if beta == 0.0:
        return torch._C._nn.l1_loss(a, b, code)
    return torch._C._nn.smooth_l1_loss(a, b, code, beta)


def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """Squared below delta, absolute times delta above."""
    if (type(input) is not Tensor or type(target) is not Tensor) and \
            torch.nn.functional.has_torch_function_variadic(input, target, weight):
        return torch.overrides.handle_torch_function(torch.nn.functional.huber_loss, (input, target, weight), input,
            target, reduction=reduction, delta=delta, weight=weight)
    a, b = _same_size(input, target)
    if weight is None:
        return torch._C._nn.huber_loss(a, b, _enum(reduction), delta)
    _check_weight(weight, input)
    return _reduced(torch._C._nn.huber_loss(a, b, 0, delta) * weight, reduction)


def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """Absolute error."""
    if (type(input) is not Tensor or type(target) is not Tensor) and \
            torch.nn.functional.has_torch_function_variadic(input, target, weight):
        return torch.overrides.handle_torch_function(torch.nn.functional.l1_loss, (input, target, weight), input,
            target, size_average=size_average, reduce=reduce, reduction=reduction, weight=weight)
    a, b = _same_size(input, target)
    reduction = _Reduction.resolve(reduction, size_average, reduce)
    if weight is None:
        return torch._C._nn.l1_loss(a, b, _enum(reduction))
    _check_weight(weight, input)
    weighted = (a - b).abs() * weight
    if reduction == "mean":
        return weighted.sum() / weight.sum()
    return _reduced(weighted, reduction)


def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """Squared error."""
    if (type(input) is not Tensor or type(target) is not Tensor) and \
            torch.nn.functional.has_torch_function_variadic(input, target, weight):
        return torch.overrides.handle_torch_function(torch.nn.functional.mse_loss, (input, target, weight), input,
            target, size_average=size_average, reduce=reduce, reduction=reduction, weight=weight)
    a, b = _same_size(input, target)
    reduction = _Reduction.resolve(reduction, size_average, reduce)
    if weight is None:
        return torch._C._nn.mse_loss(a, b, _enum(reduction))
    _check_weight(weight, input)
    weighted = (a - b).pow(2) * weight
    if reduction == "mean":
        return weighted.sum() / weight.sum()
    return _reduced(weighted, reduction)
