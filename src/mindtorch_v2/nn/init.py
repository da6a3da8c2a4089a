"""torch.nn.init: the ways to fill a tensor before training."""

from __future__ import annotations

import math
import warnings
from typing import Any, Callable

import mindtorch_v2 as torch

Tensor = torch.Tensor

_UNIT_GAINS = frozenset(
    "linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d sigmoid".split()
)


def calculate_gain(nonlinearity: str, param: Any = None) -> float:
    """The recommended gain of the weights before a nonlinearity."""
    if nonlinearity in _UNIT_GAINS:
        return 1
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        if param is None:
            slope = 0.01
        elif isinstance(param, (int, float)) and not isinstance(param, bool):
            slope = param
        else:
            raise ValueError(f"negative_slope {param} not a valid number")
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity == "selu":
        return 3.0 / 4
    raise ValueError(f"Unsupported nonlinearity {nonlinearity}")


@torch.overrides._overridable
def uniform_(
    tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None
) -> Tensor:
    """Fill from the uniform distribution on [a, b)."""
    with torch.no_grad():
        return tensor.uniform_(a, b, generator=generator)


_no_grad_uniform_ = uniform_


@torch.overrides._overridable
def normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None
) -> Tensor:
    """Fill from a normal distribution."""
    with torch.no_grad():
        return tensor.normal_(mean, std, generator=generator)


# Rounds after which a truncated normal has no values to draw. Redrawing hits in three rounds of ten, rejecting in one
# of 4000, or there are none that the dtype can hold.
_REDRAWS, _REJECTS = 1000, 100_000


def _no_values(mean: float, std: float, a: float, b: float) -> RuntimeError:
    return RuntimeError(f"no values of a normal distribution with mean {mean} and std {std} lie in [{a}, {b}]")


def _redraw_normal(tensor: Tensor, mean: float, std: float, a: float, b: float, g: Any) -> None:
    """Draw from the normal distribution and redraw what falls outside [a, b]."""
    low, high = (torch.tensor(x, dtype=tensor.dtype).item() for x in (a, b))
    result = tensor.normal_(mean, std, generator=g)
    for _ in range(_REDRAWS):
        outside = (result < low) | (result > high)
        if not outside.any():
            break
        fresh = torch.empty_like(result).normal_(mean, std, generator=g)
        result = torch.where(outside, fresh, result)
    else:
        raise _no_values(mean, std, a, b)
    if result is not tensor:
        tensor.copy_(result)


def _within_reach(mean: float, std: float, a: float, b: float) -> tuple[float, float]:
    """The part of [a, b] that draws can come from, where the rest would be rejected nearly for ever."""
    mode = max(a, min(mean, b))
    far = abs(mode - mean) / std
    reach = 80.0 / (far + math.sqrt(far * far + 80.0)) * std      # there the density is exp(-40) of its peak
    return (a, b) if b - a < 100 * reach else (max(a, mode - reach), min(b, mode + reach))


def _reject_uniform(tensor: Tensor, mean: float, std: float, a: float, b: float, g: Any) -> None:
    """Draw uniformly from [a, b] and keep each value in proportion to the normal density."""
    peak = -0.5 * ((max(a, min(mean, b)) - mean) / std) ** 2
    low, high = _within_reach(mean, std, a, b)

    def rejected(values: Tensor) -> Tensor:
        height = ((values - mean) / std).pow(2).mul(-0.5).sub(peak)
        return torch.empty_like(values).uniform_(generator=g).log().gt(height)

    result = tensor.uniform_(low, high, generator=g)
    pending = rejected(result)
    for _ in range(_REJECTS):
        if not pending.any():
            break
        fresh = torch.empty_like(result).uniform_(low, high, generator=g)
        result = torch.where(pending, fresh, result)
        pending = pending & rejected(fresh)
    else:
        raise _no_values(mean, std, a, b)
    if result is not tensor:
        tensor.copy_(result)


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Any = None,
) -> Tensor:
    """Fill from a normal distribution cut to [a, b]."""
    if tensor.is_meta:
        return tensor
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. "
            "The distribution of values may be incorrect.",
            stacklevel=2,
        )

    def cdf(x: float) -> float:
        return (1.0 + math.erf(x / math.sqrt(2.0))) / 2.0

    # Where enough of the normal lies inside, redrawing is cheap; else reject uniform draws.
    likely = cdf((b - mean) / std) - cdf((a - mean) / std) > 0.3
    with torch.no_grad():
        (_redraw_normal if likely else _reject_uniform)(tensor, mean, std, a, b, generator)
    return tensor


@torch.overrides._overridable
def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with one value."""
    with torch.no_grad():
        return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """Fill with ones."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Fill with zeros."""
    with torch.no_grad():
        return tensor.zero_()


def eye_(tensor: Tensor) -> Tensor:
    """Fill a matrix with the identity."""
    if tensor.dim() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    with torch.no_grad():
        torch.eye(*tensor.shape, out=tensor, requires_grad=tensor.requires_grad)
    return tensor


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Fill a convolution weight so that it passes its channels through."""
    dims = tensor.dim()
    if dims not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    sizes = tensor.size()
    if sizes[0] % groups != 0:
        raise ValueError("dim 0 must be divisible by groups")
    per_group = sizes[0] // groups
    centre = tuple(n // 2 for n in sizes[2:])
    with torch.no_grad():
        tensor.zero_()
        for g in range(groups):
            for d in range(min(per_group, sizes[1])):
                tensor[(g * per_group + d, d, *centre)] = 1
    return tensor


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    if tensor.dim() < 2:
        raise ValueError(
            "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions"
        )
    field = math.prod(tensor.shape[2:])
    return tensor.size(1) * field, tensor.size(0) * field


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    return _calculate_fan_in_and_fan_out(tensor)[mode == "fan_out"]


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform, scaled by both fans."""
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    std = gain * math.sqrt(2.0 / float(fan_in + fan_out))
    bound = math.sqrt(3.0) * std
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Normal, scaled by both fans."""
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    std = gain * math.sqrt(2.0 / float(fan_in + fan_out))
    return normal_(tensor, 0.0, std, generator)


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float | None:
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=3)
        return None
    fan = _calculate_correct_fan(tensor, mode)
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


@torch.overrides._overridable
def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """Uniform, scaled by one fan and the gain of the nonlinearity."""
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    if std is None:
        return tensor
    bound = math.sqrt(3.0) * std
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """Normal, scaled by one fan and the gain of the nonlinearity."""
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    return tensor if std is None else normal_(tensor, 0.0, std, generator)


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """Fill with a (semi-)orthogonal matrix."""
    if tensor.dim() < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0:
        return tensor
    rows, cols = tensor.size(0), tensor.numel() // tensor.size(0)
    with torch.no_grad():
        flat = tensor.new_empty((rows, cols)).normal_(0, 1, generator=generator)
        q, r = torch.linalg.qr(flat.t() if rows < cols else flat)
        # The signs of the diagonal make the result uniform over orthogonal matrices.
        q = q * r.diagonal().sign()
        q = q.t() if rows < cols else q
        tensor.view_as(q).copy_(q)
        tensor.mul_(gain)
    return tensor


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Normal, with a share of each column set to zero."""
    if tensor.dim() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, cols = tensor.shape
    zeros = math.ceil(sparsity * rows)
    with torch.no_grad():
        tensor.normal_(0, std, generator=generator)
        for col in range(cols):
            tensor[torch.randperm(rows)[:zeros], col] = 0
    return tensor


def _old_name(new: Callable[..., Any]) -> Callable:
    """Make the deprecated name without the underscore."""
    name = new.__name__[:-1]

    def old(*args: Any, **kwargs: Any) -> Tensor:
        warnings.warn(
            f"`nn.init.{name}` is now deprecated in favor of `nn.init.{name}_`.",
            FutureWarning,
            stacklevel=2,
        )
        return new(*args, **kwargs)

    old.__name__ = old.__qualname__ = name
    old.__doc__ = f"The deprecated name of {name}_."
    return old


uniform = _old_name(uniform_)
normal = _old_name(normal_)
constant = _old_name(constant_)
eye = _old_name(eye_)
dirac = _old_name(dirac_)
xavier_uniform = _old_name(xavier_uniform_)
xavier_normal = _old_name(xavier_normal_)
kaiming_uniform = _old_name(kaiming_uniform_)
kaiming_normal = _old_name(kaiming_normal_)
orthogonal = _old_name(orthogonal_)
sparse = _old_name(sparse_)
