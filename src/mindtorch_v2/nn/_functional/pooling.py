"""Pooling: max, average, adaptive, power average, unpooling and fractional."""

from __future__ import annotations

import weakref
from typing import Any, Callable

import mindtorch_v2 as torch
from mindtorch_v2.nn.modules.utils import _list_with_default, _ntuple, _pair, _single, _triple

Tensor = torch.Tensor
Size = Any

__all__ = [
    "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d",
    "adaptive_max_pool2d_with_indices", "adaptive_max_pool3d",
    "adaptive_max_pool3d_with_indices", "boolean_dispatch", "fractional_max_pool2d",
    "fractional_max_pool2d_with_indices", "fractional_max_pool3d",
    "fractional_max_pool3d_with_indices", "lp_pool1d", "lp_pool2d", "lp_pool3d", "max_pool1d",
    "max_pool1d_with_indices", "max_pool2d", "max_pool2d_with_indices", "max_pool3d",
    "max_pool3d_with_indices", "max_unpool1d", "max_unpool2d", "max_unpool3d",
]  # fmt: skip


# What each function made by boolean_dispatch chooses from.
boolean_dispatched: weakref.WeakKeyDictionary[Callable[..., Any], dict[str, Any]] = weakref.WeakKeyDictionary()


def boolean_dispatch(arg_name: str, arg_index: int, default: bool, if_true: Callable[..., Any],
                     if_false: Callable[..., Any], module_name: str, func_name: str) -> Callable[..., Any]:
    """A function that is one of two, by a bool among its arguments."""
    def choose(*args: Any, **kwargs: Any) -> Any:
        flag = kwargs[arg_name] if arg_name in kwargs else args[arg_index] if arg_index < len(args) else default
        return (if_true if flag else if_false)(*args, **kwargs)
    choose.__name__, choose.__module__, choose.__doc__ = func_name, module_name, if_true.__doc__ or if_false.__doc__
    choose.__annotations__ = {}               # its signature says nothing, as in torch
    boolean_dispatched[choose] = {"if_true": if_true, "if_false": if_false, "index": arg_index, "default": default,
                                  "arg_name": arg_name}
    return choose


def avg_pool3d(input: Tensor, kernel_size: Size, stride: Size = None) -> Tensor:
    """Average pooling of volumes, for the functions here that need it."""
    return torch._C._nn.avg_pool3d(input, kernel_size, stride)


def _max_pools(n: int) -> tuple[Callable[..., Any], Callable]:
    """Make max_pool{n}d and max_pool{n}d_with_indices."""
    name = f"max_pool{n}d"

    def with_indices(
        input: Tensor,
        kernel_size: Size,
        stride: Size = None,
        padding: Size = 0,
        dilation: Size = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> tuple[Tensor, Tensor]:
        if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
            return torch.overrides.handle_torch_function(
                getattr(torch.nn.functional, name + "_with_indices"), (input,), input, kernel_size, stride=stride, padding=padding,
                dilation=dilation, ceil_mode=ceil_mode, return_indices=return_indices)
        home = torch if n == 1 else torch._C._nn
        op = getattr(home, name + "_with_indices")
        stride = [] if stride is None else stride
        return op(input, kernel_size, stride, padding, dilation, ceil_mode)

    def plain(
        input: Tensor,
        kernel_size: Size,
        stride: Size = None,
        padding: Size = 0,
        dilation: Size = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
            return torch.overrides.handle_torch_function(
                getattr(torch.nn.functional, name), (input,), input, kernel_size, stride=stride, padding=padding,
                dilation=dilation, ceil_mode=ceil_mode, return_indices=return_indices)
        stride = [] if stride is None else stride
        return getattr(torch, name)(input, kernel_size, stride, padding, dilation, ceil_mode)

    plain.__name__ = plain.__qualname__ = "_" + name
    with_indices.__name__ = with_indices.__qualname__ = name + "_with_indices"
    plain.__doc__ = f"The largest value of each window over {n} dimensions."
    with_indices.__doc__ = f"{plain.__doc__[:-1]}, and where it was."
    return boolean_dispatch("return_indices", 6, False, with_indices, plain, __name__, name), with_indices


max_pool1d, max_pool1d_with_indices = _max_pools(1)
max_pool2d, max_pool2d_with_indices = _max_pools(2)
max_pool3d, max_pool3d_with_indices = _max_pools(3)


def _adaptive_max_pools(n: int) -> tuple[Callable[..., Any], Callable]:
    """Make adaptive_max_pool{n}d and its form with indices."""
    name = f"adaptive_max_pool{n}d"

    def with_indices(
        input: Tensor, output_size: Size, return_indices: bool = False
    ) -> tuple[Tensor, Tensor]:
        if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
            return torch.overrides.handle_torch_function(
                getattr(torch.nn.functional, name + "_with_indices"), (input,), input, output_size, return_indices=return_indices)
        if n == 1:
            return torch.adaptive_max_pool1d(input, output_size)
        return getattr(torch._C._nn, name)(input, _list_with_default(output_size, input.size()))

    def plain(input: Tensor, output_size: Size, return_indices: bool = False) -> Any:
        if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
            return torch.overrides.handle_torch_function(
                getattr(torch.nn.functional, name), (input,), input, output_size, return_indices=return_indices)
        return with_indices(input, output_size)[0]

    plain.__name__ = plain.__qualname__ = "_" + name
    with_indices.__name__ = with_indices.__qualname__ = name + "_with_indices"
    plain.__doc__ = f"Max pooling over {n} dimensions to a given output size."
    with_indices.__doc__ = f"{plain.__doc__[:-1]}, with the places of the maxima."
    return boolean_dispatch("return_indices", 2, False, with_indices, plain, __name__, name), with_indices


adaptive_max_pool1d, adaptive_max_pool1d_with_indices = _adaptive_max_pools(1)
adaptive_max_pool2d, adaptive_max_pool2d_with_indices = _adaptive_max_pools(2)
adaptive_max_pool3d, adaptive_max_pool3d_with_indices = _adaptive_max_pools(3)


def adaptive_avg_pool2d(input: Tensor, output_size: Size) -> Tensor:
    """Average pooling of planes to a given output size."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
        return torch.overrides.handle_torch_function(torch.nn.functional.adaptive_avg_pool2d, (input,), input,
            output_size)
    return torch._C._nn.adaptive_avg_pool2d(input, _list_with_default(output_size, input.size()))


def adaptive_avg_pool3d(input: Tensor, output_size: Size) -> Tensor:
    """Average pooling of volumes to a given output size."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
        return torch.overrides.handle_torch_function(torch.nn.functional.adaptive_avg_pool3d, (input,), input,
            output_size)
    return torch._C._nn.adaptive_avg_pool3d(input, _list_with_default(output_size, input.size()))


def _lp_pool(
    n: int, input: Tensor, norm_type: float, kernel_size: Size, stride: Size, ceil_mode: bool
) -> Tensor:
    max_pool = (max_pool1d, max_pool2d, max_pool3d)[n - 1]
    if norm_type == float("inf"):
        return max_pool(input.abs(), kernel_size, stride, 0, 1, ceil_mode)
    if norm_type == -float("inf"):
        return -max_pool(-input.abs(), kernel_size, stride, 0, 1, ceil_mode)
    count = 1
    for k in _ntuple(n)(kernel_size):
        count *= k
    pool = torch.avg_pool1d if n == 1 else getattr(torch._C._nn, f"avg_pool{n}d")
    stride = kernel_size if stride is None else stride
    mean = pool(input.pow(norm_type), kernel_size, stride, 0, ceil_mode)
    return (mean.sign() * mean.abs().relu()).mul(count).pow(1.0 / norm_type)


def lp_pool1d(
    input: Tensor, norm_type: float, kernel_size: int, stride: Size = None, ceil_mode: bool = False
) -> Tensor:
    """The p-norm of each window of a line."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
        return torch.overrides.handle_torch_function(torch.nn.functional.lp_pool1d, (input,), input, norm_type,
            kernel_size, stride=stride, ceil_mode=ceil_mode)
    return _lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(
    input: Tensor, norm_type: float, kernel_size: Size, stride: Size = None, ceil_mode: bool = False
) -> Tensor:
    """The p-norm of each window of a plane."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
        return torch.overrides.handle_torch_function(torch.nn.functional.lp_pool2d, (input,), input, norm_type,
            kernel_size, stride=stride, ceil_mode=ceil_mode)
    return _lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(
    input: Tensor, norm_type: float, kernel_size: Size, stride: Size = None, ceil_mode: bool = False
) -> Tensor:
    """The p-norm of each window of a volume."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
        return torch.overrides.handle_torch_function(torch.nn.functional.lp_pool3d, (input,), input, norm_type,
            kernel_size, stride=stride, ceil_mode=ceil_mode)
    return _lp_pool(3, input, norm_type, kernel_size, stride, ceil_mode)


def _unpool_output_size(
    input: Tensor,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    output_size: list[int] | None,
) -> list[int]:
    """The size before pooling: the smallest one, or the given one if it is possible."""
    n = len(kernel_size)
    spatial = input.size()[-n:]
    default = [(s - 1) * t + k - 2 * p for s, t, k, p in zip(spatial, stride, kernel_size, padding)]
    if output_size is None:
        size = default
    else:
        size = list(output_size)
        if len(size) == n + 2:
            size = size[2:]
        if len(size) != n:
            raise ValueError(
                f"output_size should be a sequence containing {n} or {n + 2} elements, "
                f"but it has a length of '{len(size)}'"
            )
        for d in range(n):
            low, high = default[d] - stride[d], default[d] + stride[d]
            if not low < size[d] < high:
                raise ValueError(
                    f'invalid output_size "{output_size}" '
                    f"(dim {d} must be between {low} and {high})"
                )
    for d, value in enumerate(size):
        if value < 0:
            raise ValueError(
                "max_unpooling: output_size must contain non-negative spatial dimensions, "
                f"but got output_size[{d}]={value}"
            )
    return size


def _unpool_args(
    n: int, input: Tensor, kernel: Size, stride: Size, padding: Size, out: Size
) -> list[Any]:
    expand = (_single, _pair, _triple)[n - 1]
    kernel = expand(kernel)
    stride = kernel if stride is None else expand(stride)
    padding = expand(padding)
    return [_unpool_output_size(input, kernel, stride, padding, out), stride, padding]


def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Size,
    stride: Size = None,
    padding: Size = 0,
    output_size: Size = None,
) -> Tensor:
    """Put pooled maxima back where they came from, zeros elsewhere."""
    if (type(input) is not Tensor or type(indices) is not Tensor) and \
            torch.nn.functional.has_torch_function_variadic(input, indices):
        return torch.overrides.handle_torch_function(torch.nn.functional.max_unpool1d, (input, indices), input,
            indices, kernel_size, stride=stride, padding=padding, output_size=output_size)
    size, _, _ = _unpool_args(1, input, kernel_size, stride, padding, output_size)
    planes, places = input.unsqueeze(-1), indices.unsqueeze(-1)
    return torch._C._nn.max_unpool2d(planes, places, [*size, 1]).squeeze(-1)


def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Size,
    stride: Size = None,
    padding: Size = 0,
    output_size: Size = None,
) -> Tensor:
    """Put pooled maxima back where they came from, zeros elsewhere."""
    if (type(input) is not Tensor or type(indices) is not Tensor) and \
            torch.nn.functional.has_torch_function_variadic(input, indices):
        return torch.overrides.handle_torch_function(torch.nn.functional.max_unpool2d, (input, indices), input,
            indices, kernel_size, stride=stride, padding=padding, output_size=output_size)
    size, _, _ = _unpool_args(2, input, kernel_size, stride, padding, output_size)
    return torch._C._nn.max_unpool2d(input, indices, size)


def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Size,
    stride: Size = None,
    padding: Size = 0,
    output_size: Size = None,
) -> Tensor:
    """Put pooled maxima back where they came from, zeros elsewhere."""
    if (type(input) is not Tensor or type(indices) is not Tensor) and \
            torch.nn.functional.has_torch_function_variadic(input, indices):
        return torch.overrides.handle_torch_function(torch.nn.functional.max_unpool3d, (input, indices), input,
            indices, kernel_size, stride=stride, padding=padding, output_size=output_size)
    args = _unpool_args(3, input, kernel_size, stride, padding, output_size)
    return torch._C._nn.max_unpool3d(input, indices, *args)


def _fractional_pools(n: int) -> tuple[Callable[..., Any], Callable]:
    """Make fractional_max_pool{n}d and its form with indices."""
    name = f"fractional_max_pool{n}d"
    expand = _ntuple(n)

    def with_indices(
        input: Tensor,
        kernel_size: Size,
        output_size: Size = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
            return torch.overrides.handle_torch_function(
                getattr(torch.nn.functional, name + "_with_indices"), (input,), input, kernel_size,
                output_size=output_size, output_ratio=output_ratio, return_indices=return_indices,
                _random_samples=_random_samples)
        if output_size is None and output_ratio is None:
            raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
        if output_size is None:
            ratios = expand(output_ratio)
            if len(ratios) > n:
                raise ValueError(
                    f"{name} requires output_ratio to either be a single Int or tuple of Ints."
                )
            output_size = [int(input.size(d - n) * ratios[d]) for d in range(n)]
        if _random_samples is None:
            batch = 1 if input.dim() == n + 1 else input.size(0)
            _random_samples = torch.rand(
                batch, input.size(-n - 1), n, dtype=input.dtype, device=input.device
            )
        if _random_samples.dtype != input.dtype:
            raise RuntimeError("Expect _random_samples to have the same dtype as input")
        op = getattr(torch._C._nn, name)
        return op(input, expand(kernel_size), expand(output_size), _random_samples)

    def plain(
        input: Tensor,
        kernel_size: Size,
        output_size: Size = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> Any:
        if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
            return torch.overrides.handle_torch_function(
                getattr(torch.nn.functional, name), (input,), input, kernel_size,
                output_size=output_size, output_ratio=output_ratio, return_indices=return_indices,
                _random_samples=_random_samples)
        return with_indices(input, kernel_size, output_size, output_ratio, False, _random_samples)[0]

    plain.__name__ = plain.__qualname__ = "_" + name
    with_indices.__name__ = with_indices.__qualname__ = name + "_with_indices"
    plain.__doc__ = f"Max pooling over {n} dimensions with windows at random steps."
    with_indices.__doc__ = f"{plain.__doc__[:-1]}, with the places of the maxima."
    return boolean_dispatch("return_indices", 4, False, with_indices, plain, __name__, name), with_indices


fractional_max_pool2d, fractional_max_pool2d_with_indices = _fractional_pools(2)
fractional_max_pool3d, fractional_max_pool3d_with_indices = _fractional_pools(3)
