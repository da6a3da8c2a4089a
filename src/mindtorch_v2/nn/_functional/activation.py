"""Activation functions: thin calls of ops, with the in-place and dtype options of torch."""

from __future__ import annotations

import warnings
from typing import Any

import mindtorch_v2 as torch

Tensor = torch.Tensor

__all__ = [
    "celu", "elu", "glu", "gumbel_softmax", "hardsigmoid", "hardswish", "hardtanh",
    "leaky_relu", "log_softmax", "mish", "relu", "relu6", "rrelu", "selu", "sigmoid", "silu",
    "softmax", "softmin", "softsign", "tanh", "tanhshrink", "threshold",
]  # fmt: skip


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """Replace what is not above the threshold by a value."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
        return torch.overrides.handle_torch_function(torch.nn.functional.threshold, (input,), input, threshold, value,
            inplace=inplace)
    op = torch.threshold_ if inplace else torch.threshold
    return op(input, threshold, value)


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """The positive part."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
        return torch.overrides.handle_torch_function(torch.nn.functional.relu, (input,), input, inplace=inplace)
    return torch.relu_(input) if inplace else torch.relu(input)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """One half gated by the sigmoid of the other."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
        return torch.overrides.handle_torch_function(torch.nn.functional.glu, (input,), input, dim=dim)
    if input.dim() == 0:
        raise RuntimeError(
            "glu does not support scalars because halving size must be even"
        )
    return torch._C._nn.glu(input, dim)


def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """Clamp to an interval."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
        return torch.overrides.handle_torch_function(torch.nn.functional.hardtanh, (input,), input, min_val=min_val,
            max_val=max_val, inplace=inplace)
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    op = torch._C._nn.hardtanh_ if inplace else torch._C._nn.hardtanh
    return op(input, min_val, max_val)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """Clamp to [0, 6]."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
        return torch.overrides.handle_torch_function(torch.nn.functional.relu6, (input,), input, inplace=inplace)
    return torch._C._nn.relu6_(input) if inplace else torch._C._nn.relu6(input)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Identity above zero, a scaled exponential below."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
        return torch.overrides.handle_torch_function(torch.nn.functional.elu, (input,), input, alpha=alpha,
            inplace=inplace)
    return torch._C._nn.elu_(input, alpha) if inplace else torch._C._nn.elu(input, alpha)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """The self-normalising exponential unit."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
        return torch.overrides.handle_torch_function(torch.nn.functional.selu, (input,), input, inplace=inplace)
    return torch.selu_(input) if inplace else torch.selu(input)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """The continuously differentiable exponential unit."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
        return torch.overrides.handle_torch_function(torch.nn.functional.celu, (input,), input, alpha=alpha,
            inplace=inplace)
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    return torch.celu_(input, alpha) if inplace else torch.celu(input, alpha)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """Identity above zero, a small slope below."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
        return torch.overrides.handle_torch_function(torch.nn.functional.leaky_relu, (input,), input,
            negative_slope=negative_slope, inplace=inplace)
    op = torch._C._nn.leaky_relu_ if inplace else torch._C._nn.leaky_relu
    return op(input, negative_slope)


def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """Leaky relu with a random slope in training."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
        return torch.overrides.handle_torch_function(torch.nn.functional.rrelu, (input,), input, lower=lower,
            upper=upper, training=training, inplace=inplace)
    op = torch.rrelu_ if inplace else torch.rrelu
    return op(input, lower, upper, training)


def tanhshrink(input: Tensor) -> Tensor:
    """The input less its tanh."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
        return torch.overrides.handle_torch_function(torch.nn.functional.tanhshrink, (input,), input)
    return input - input.tanh()


def softsign(input: Tensor) -> Tensor:
    """x / (1 + |x|)."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
        return torch.overrides.handle_torch_function(torch.nn.functional.softsign, (input,), input)
    return input / (input.abs() + 1)


def tanh(input: Tensor) -> Tensor:
    """Hyperbolic tangent."""
    return input.tanh()


def sigmoid(input: Tensor) -> Tensor:
    """The logistic function."""
    return input.sigmoid()


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """The piecewise linear sigmoid."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
        return torch.overrides.handle_torch_function(torch.nn.functional.hardsigmoid, (input,), input,
            inplace=inplace)
    return torch._C._nn.hardsigmoid_(input) if inplace else torch._C._nn.hardsigmoid(input)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """x times the piecewise linear sigmoid."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
        return torch.overrides.handle_torch_function(torch.nn.functional.hardswish, (input,), input, inplace=inplace)
    return torch._C._nn.hardswish_(input) if inplace else torch._C._nn.hardswish(input)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x times its sigmoid."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
        return torch.overrides.handle_torch_function(torch.nn.functional.silu, (input,), input, inplace=inplace)
    return torch._C._nn.silu_(input) if inplace else torch._C._nn.silu(input)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """x times the tanh of its softplus."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
        return torch.overrides.handle_torch_function(torch.nn.functional.mish, (input,), input, inplace=inplace)
    return torch._C._nn.mish_(input) if inplace else torch._C._nn.mish(input)


def _get_softmax_dim(name: str, ndim: int, stacklevel: int) -> int:
    """The dimension that old code left to us: warn, then 0 for 0, 1 and 3 dimensions, else 1."""
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. "
        "Change the call to include dim=X as an argument.",
        stacklevel=stacklevel,
    )
    return 0 if ndim in (0, 1, 3) else 1


def softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """Exponentials that sum to one along a dimension."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
        return torch.overrides.handle_torch_function(torch.nn.functional.softmax, (input,), input, dim=dim,
            _stacklevel=_stacklevel, dtype=dtype)
    if dim is None:
        dim = _get_softmax_dim("softmax", input.dim(), _stacklevel)
    return input.softmax(dim) if dtype is None else input.softmax(dim, dtype=dtype)


def softmin(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """Softmax of the negated input."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
        return torch.overrides.handle_torch_function(torch.nn.functional.softmin, (input,), input, dim=dim,
            _stacklevel=_stacklevel, dtype=dtype)
    if dim is None:
        dim = _get_softmax_dim("softmin", input.dim(), _stacklevel)
    return softmax(-input, dim, dtype=dtype)


def log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """The logarithm of softmax, computed stably."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
        return torch.overrides.handle_torch_function(torch.nn.functional.log_softmax, (input,), input, dim=dim,
            _stacklevel=_stacklevel, dtype=dtype)
    if dim is None:
        dim = _get_softmax_dim("log_softmax", input.dim(), _stacklevel)
    return input.log_softmax(dim) if dtype is None else input.log_softmax(dim, dtype=dtype)


def gumbel_softmax(
    logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """A differentiable sample from a categorical distribution, one-hot if hard."""
    if type(logits) is not Tensor and torch.nn.functional.has_torch_function_unary(logits):
        return torch.overrides.handle_torch_function(torch.nn.functional.gumbel_softmax, (logits,), logits, tau=tau,
            hard=hard, eps=eps, dim=dim)
    if eps != 1e-10:
        warnings.warn("`eps` parameter is deprecated and has no effect.", stacklevel=2)
    noise = torch.empty_like(logits, memory_format=torch.contiguous_format)
    gumbels = -noise.exponential_().log()
    soft = ((logits + gumbels) / tau).softmax(dim)
    if not hard:
        return soft
    index = soft.max(dim, keepdim=True)[1]
    zeros = torch.zeros_like(logits, memory_format=torch.contiguous_format)
    # The value of the one-hot sample with the gradient of the soft one.
    return zeros.scatter_(dim, index, 1.0) - soft.detach() + soft
