"""Normalisation functions."""

from __future__ import annotations

from collections.abc import Sequence

import mindtorch_v2 as torch
from mindtorch_v2.nn._functional.pooling import avg_pool3d
from mindtorch_v2.nn._functional.vision import pad

Tensor = torch.Tensor

__all__ = [
    "batch_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm",
    "normalize", "rms_norm",
]  # fmt: skip


def _verify_batch_size(size: Sequence[int]) -> None:
    """Statistics need more than one value a channel."""
    count = size[0]
    for n in size[2:]:
        count *= n
    if count == 1:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {size}"
        )


def _verify_spatial_size(size: Sequence[int]) -> None:
    """Instance statistics need more than one value a plane."""
    count = 1
    for n in size[2:]:
        count *= n
    if count == 1:
        raise ValueError(
            f"Expected more than 1 spatial element when training, got input size {size}"
        )


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel over the batch."""
    if type(input) is not Tensor and \
            torch.nn.functional.has_torch_function_variadic(input, running_mean, running_var, weight, bias):
        return torch.overrides.handle_torch_function(torch.nn.functional.batch_norm,
            (input, running_mean, running_var, weight, bias), input, running_mean, running_var, weight=weight,
            bias=bias, training=training, momentum=momentum, eps=eps)
    if training:
        _verify_batch_size(input.size())
        if eps <= 0.0:
            raise ValueError(f"batch_norm eps must be positive during training, but got {eps}")
    elif eps < 0.0:
        raise ValueError(f"batch_norm eps must be non-negative, but got {eps}")
    return torch.batch_norm(
        input, weight, bias, running_mean, running_var, training, momentum, eps, False
    )


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel of each sample."""
    if type(input) is not Tensor and \
            torch.nn.functional.has_torch_function_variadic(input, running_mean, running_var, weight, bias):
        return torch.overrides.handle_torch_function(torch.nn.functional.instance_norm,
            (input, running_mean, running_var, weight, bias), input, running_mean=running_mean,
            running_var=running_var, weight=weight, bias=bias, use_input_stats=use_input_stats, momentum=momentum,
            eps=eps)
    if use_input_stats:
        _verify_spatial_size(input.size())
    return torch.instance_norm(
        input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, False
    )


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise over the last dimensions."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_variadic(input, weight, bias):
        return torch.overrides.handle_torch_function(torch.nn.functional.layer_norm, (input, weight, bias), input,
            normalized_shape, weight=weight, bias=bias, eps=eps)
    return torch.layer_norm(input, normalized_shape, weight, bias, eps, False)


def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """Divide by the root mean square over the last dimensions."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_variadic(input, weight):
        return torch.overrides.handle_torch_function(torch.nn.functional.rms_norm, (input, weight), input,
            normalized_shape, weight=weight, eps=eps)
    return torch.rms_norm(input, normalized_shape, weight, eps)


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise groups of channels of each sample."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_variadic(input, weight, bias):
        return torch.overrides.handle_torch_function(torch.nn.functional.group_norm, (input, weight, bias), input,
            num_groups, weight=weight, bias=bias, eps=eps)
    if input.dim() < 2:
        raise RuntimeError(
            f"Expected at least 2 dimensions for input tensor but received {input.dim()}"
        )
    _verify_batch_size(
        [input.size(0) * input.size(1) // num_groups, num_groups, *input.size()[2:]]
    )
    return torch.group_norm(input, num_groups, weight, bias, eps, False)


def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """Divide by a power of the energy of neighbouring channels."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
        return torch.overrides.handle_torch_function(torch.nn.functional.local_response_norm, (input,), input, size,
            alpha=alpha, beta=beta, k=k)
    dim = input.dim()
    if dim < 3:
        raise ValueError(f"Expected 3D or higher dimensionality                          input (got {dim} dimensions)")
    if input.numel() == 0:
        return input
    energy = input.mul(input)
    n, c, rest = input.size(0), input.size(1), input.size()[2:]
    # Channels become one spatial axis of a volume, so that one average pool sums neighbours.
    if dim == 3:
        energy = pad(energy.unsqueeze(1), (0, 0, size // 2, (size - 1) // 2))
        energy = torch._C._nn.avg_pool2d(energy, (size, 1), 1).squeeze(1)
    else:
        energy = pad(energy.reshape(n, 1, c, rest[0], -1), (0, 0, 0, 0, size // 2, (size - 1) // 2))
        energy = avg_pool3d(energy, (size, 1, 1), stride=1).view(input.size())
    return input / energy.mul(alpha).add(k).pow(beta)


def normalize(
    input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Tensor | None = None
) -> Tensor:
    """Divide by the p-norm along a dimension."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_variadic(input, out):
        return torch.overrides.handle_torch_function(torch.nn.functional.normalize, (input, out), input, p=p, dim=dim,
            eps=eps, out=out)
    denominator = input.norm(p, dim, keepdim=True)
    if out is None:
        return input / denominator.clamp_min(eps).expand_as(input)
    denominator = denominator.clamp_min_(eps).expand_as(input)
    return torch.div(input, denominator, out=out)
