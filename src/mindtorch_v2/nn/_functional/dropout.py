"""The dropout family."""

from __future__ import annotations

import warnings

import mindtorch_v2 as torch

Tensor = torch.Tensor

__all__ = [
    "alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout",
]  # fmt: skip


def _check(p: float) -> None:
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def dropout(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Zero elements with probability p and scale the rest, in training."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
        return torch.overrides.handle_torch_function(torch.nn.functional.dropout, (input,), input, p=p,
            training=training, inplace=inplace)
    _check(p)
    return (torch.dropout_ if inplace else torch.dropout)(input, p, training)


def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Dropout that keeps mean and variance under selu."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
        return torch.overrides.handle_torch_function(torch.nn.functional.alpha_dropout, (input,), input, p=p,
            training=training, inplace=inplace)
    _check(p)
    return (torch.alpha_dropout_ if inplace else torch.alpha_dropout)(input, p, training)


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Alpha dropout of whole channels."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
        return torch.overrides.handle_torch_function(torch.nn.functional.feature_alpha_dropout, (input,), input, p=p,
            training=training, inplace=inplace)
    _check(p)
    op = torch.feature_alpha_dropout_ if inplace else torch.feature_alpha_dropout
    return op(input, p, training)


def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Dropout of whole channels of (N, C, L) or (C, L)."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
        return torch.overrides.handle_torch_function(torch.nn.functional.dropout1d, (input,), input, p=p,
            training=training, inplace=inplace)
    _check(p)
    ndim = input.dim()
    if ndim not in (2, 3):
        raise RuntimeError(
            f"dropout1d: Expected 2D or 3D input, but received a {ndim}D input. "
            "Note that dropout1d exists to provide channel-wise dropout on inputs with 1 "
            "spatial dimension, a channel dimension, and an optional batch dimension "
            "(i.e. 2D or 3D inputs)."
        )
    if ndim == 2:
        input = input.unsqueeze_(0) if inplace else input.unsqueeze(0)
    op = torch.feature_dropout_ if inplace else torch.feature_dropout
    result = op(input, p, training)
    if ndim == 2:
        result = result.squeeze_(0) if inplace else result.squeeze(0)
    return result


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Dropout of whole channels of (N, C, H, W)."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
        return torch.overrides.handle_torch_function(torch.nn.functional.dropout2d, (input,), input, p=p,
            training=training, inplace=inplace)
    _check(p)
    ndim = input.dim()
    if ndim not in (3, 4):
        warnings.warn(
            f"dropout2d: Received a {ndim}-D input to dropout2d, which is deprecated "
            "and will result in an error in a future release. To retain the behavior "
            "and silence this warning, please use dropout instead. Note that dropout2d "
            "exists to provide channel-wise dropout on inputs with 2 spatial dimensions, "
            "a channel dimension, and an optional batch dimension (i.e. 3D or 4D inputs).",
            stacklevel=2,
        )
    if ndim == 3:
        warnings.warn(
            "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise "
            "1D dropout behavior is desired - input is interpreted as shape (N, C, L), where C "
            "is the channel dim. This behavior will change in a future release to interpret the "
            "input as one without a batch dimension, i.e. shape (C, H, W). To maintain the 1D "
            "channel-wise dropout behavior, please switch to using dropout1d instead.",
            stacklevel=2,
        )
    op = torch.feature_dropout_ if inplace else torch.feature_dropout
    return op(input, p, training)


def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Dropout of whole channels of (N, C, D, H, W) or (C, D, H, W)."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
        return torch.overrides.handle_torch_function(torch.nn.functional.dropout3d, (input,), input, p=p,
            training=training, inplace=inplace)
    _check(p)
    ndim = input.dim()
    if ndim not in (4, 5):
        warnings.warn(
            f"dropout3d: Received a {ndim}-D input to dropout3d, which is deprecated "
            "and will result in an error in a future release. To retain the behavior "
            "and silence this warning, please use dropout instead. Note that dropout3d "
            "exists to provide channel-wise dropout on inputs with 3 spatial dimensions, "
            "a channel dimension, and an optional batch dimension (i.e. 4D or 5D inputs).",
            stacklevel=2,
        )
    if ndim != 5:
        input = input.unsqueeze_(0) if inplace else input.unsqueeze(0)
    op = torch.feature_dropout_ if inplace else torch.feature_dropout
    result = op(input, p, training)
    if ndim != 5:
        result = result.squeeze_(0) if inplace else result.squeeze(0)
    return result
