"""Convolutions and transposed convolutions in one, two and three dimensions."""

from __future__ import annotations

import math
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.nn import functional as F
from mindtorch_v2.nn import init
from mindtorch_v2.nn.modules.lazy import LazyModuleMixin
from mindtorch_v2.nn.modules.module import Module
from mindtorch_v2.nn.modules.utils import _ntuple, _reverse_repeat_tuple
from mindtorch_v2.nn.parameter import Parameter, UninitializedParameter

Tensor = torch.Tensor

__all__ = [
    "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d",
    "LazyConv1d", "LazyConv2d", "LazyConv3d", "LazyConvTranspose1d", "LazyConvTranspose2d",
    "LazyConvTranspose3d",
]  # fmt: skip

_PADDING_MODES = {"zeros", "reflect", "replicate", "circular"}
_PADDING_WORDS = {"same", "valid"}


def _same_padding(kernel_size: tuple[Any, ...], dilation: tuple) -> list[int]:
    """What pad needs so that the output keeps the size, last dimension first."""
    amounts: list[int] = []
    for d, k in zip(reversed(dilation), reversed(kernel_size)):
        total = d * (k - 1)
        amounts += [total // 2, total - total // 2]
    return amounts


class _ConvNd(Module):
    """What all convolutions share: options, parameters, their initialisation and repr."""

    __constants__ = [
        "stride", "padding", "dilation", "groups", "padding_mode", "output_padding",
        "in_channels", "out_channels", "kernel_size",
    ]  # fmt: skip
    _ndim: int = 0

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: tuple[int, ...],
        stride: tuple[int, ...],
        padding: Any,
        dilation: tuple[int, ...],
        transposed: bool,
        output_padding: tuple[int, ...],
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        if in_channels % groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups != 0:
            raise ValueError("out_channels must be divisible by groups")
        if isinstance(padding, str):
            if padding not in _PADDING_WORDS:
                raise ValueError(
                    f"Invalid padding string {padding!r}, should be one of {_PADDING_WORDS}"
                )
            if padding == "same" and any(s != 1 for s in stride):
                raise ValueError("padding='same' is not supported for strided convolutions")
        if padding_mode not in _PADDING_MODES:
            raise ValueError(
                f"padding_mode must be one of {_PADDING_MODES}, "
                f"but got padding_mode='{padding_mode}'"
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.transposed = transposed
        self.output_padding = output_padding
        self.groups = groups
        self.padding_mode = padding_mode
        self._reversed_padding_repeated_twice: Any
        if padding == "same":
            self._reversed_padding_repeated_twice = _same_padding(kernel_size, dilation)
        elif padding == "valid":
            self._reversed_padding_repeated_twice = [0, 0] * len(kernel_size)
        else:
            self._reversed_padding_repeated_twice = _reverse_repeat_tuple(padding, 2)
        kw = {"device": device, "dtype": dtype}
        self.weight = Parameter(torch.empty(self._weight_shape(), **kw))
        if bias:
            self.bias = Parameter(torch.empty(out_channels, **kw))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def _weight_shape(self) -> tuple[int, ...]:
        first, second = self.out_channels, self.in_channels
        if self.transposed:
            first, second = second, first
        return (first, second // self.groups, *self.kernel_size)

    def reset_parameters(self) -> None:
        """Draw weight, then bias, uniformly from ±1/sqrt(fan_in)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            if fan_in != 0:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        parts = [
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}"
        ]
        for name, plain in (("padding", 0), ("dilation", 1), ("output_padding", 0)):
            value = getattr(self, name)
            if value != (plain,) * len(value):
                parts.append(f"{name}={value}")
        if self.groups != 1:
            parts.append(f"groups={self.groups}")
        if self.bias is None:
            parts.append("bias=False")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode}")
        return ", ".join(parts)

    def __setstate__(self, state: dict[Any, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("padding_mode", "zeros")


class _Conv(_ConvNd):
    """A convolution; the subclasses say how many dimensions it has."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        expand = _ntuple(self._ndim)
        super().__init__(
            in_channels, out_channels, expand(kernel_size), expand(stride),
            padding if isinstance(padding, str) else expand(padding), expand(dilation),
            False, expand(0), groups, bias, padding_mode, device, dtype,
        )  # fmt: skip

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = (0,) * self._ndim
        return self._op()(input, weight, bias, self.stride, padding, self.dilation, self.groups)

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)


class Conv1d(_Conv):
    """Convolution of (N, C, L)."""

    _ndim = 1

    def _op(self) -> Any:
        return torch.conv1d


class Conv2d(_Conv):
    """Convolution of (N, C, H, W)."""

    _ndim = 2

    def _op(self) -> Any:
        return torch.conv2d


class Conv3d(_Conv):
    """Convolution of (N, C, D, H, W)."""

    _ndim = 3

    def _op(self) -> Any:
        return torch.conv3d


class _ConvTransposeNd(_ConvNd):
    """A transposed convolution; the subclasses say how many dimensions it has."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if padding_mode != "zeros":
            name = type(self).__name__
            raise ValueError(f'Only "zeros" padding mode is supported for {name}')
        expand = _ntuple(self._ndim)
        super().__init__(
            in_channels, out_channels, expand(kernel_size), expand(stride), expand(padding),
            expand(dilation), True, expand(output_padding), groups, bias, padding_mode, device,
            dtype,
        )  # fmt: skip

    def _output_padding(
        self,
        input: Tensor,
        output_size: list[int] | None,
        stride: Any,
        padding: Any,
        kernel_size: Any,
        num_spatial_dims: int,
        dilation: Any = None,
    ) -> Any:
        """How much to add on one side to reach the requested output size."""
        if output_size is None:
            return self.output_padding
        n = num_spatial_dims
        lead = 2 if input.dim() == n + 2 else 1
        if len(output_size) == lead + n:
            output_size = output_size[lead:]
        if len(output_size) != n:
            raise ValueError(
                f"ConvTranspose{n}D: for {input.dim()}D input, output_size must have {n} or "
                f"{lead + n} elements (got {len(output_size)})"
            )
        low, high = [], []
        for d in range(n):
            spread = (1 if dilation is None else dilation[d]) * (kernel_size[d] - 1) + 1
            low.append((input.size(d + lead) - 1) * stride[d] - 2 * padding[d] + spread)
            high.append(low[d] + stride[d] - 1)
        if any(not a <= size <= b for a, size, b in zip(low, output_size, high)):
            raise ValueError(
                f"requested an output size of {output_size}, but valid sizes range from {low} "
                f"to {high} (for an input of {input.size()[2:]})"
            )
        return [size - a for size, a in zip(output_size, low)]

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        if self.padding_mode != "zeros":
            name = f"ConvTranspose{self._ndim}d"
            raise ValueError(f"Only `zeros` padding mode is supported for {name}")
        extra = self._output_padding(
            input, output_size, self.stride, self.padding, self.kernel_size, self._ndim,
            self.dilation,
        )  # fmt: skip
        return self._op()(
            input, self.weight, self.bias, self.stride, self.padding, extra, self.groups,
            self.dilation,
        )  # fmt: skip


class ConvTranspose1d(_ConvTransposeNd):
    """Transposed convolution of (N, C, L)."""

    _ndim = 1

    def _op(self) -> Any:
        return torch.conv_transpose1d


class ConvTranspose2d(_ConvTransposeNd):
    """Transposed convolution of (N, C, H, W)."""

    _ndim = 2

    def _op(self) -> Any:
        return torch.conv_transpose2d


class ConvTranspose3d(_ConvTransposeNd):
    """Transposed convolution of (N, C, D, H, W)."""

    _ndim = 3

    def _op(self) -> Any:
        return torch.conv_transpose3d


class _LazyConv(LazyModuleMixin):
    """Takes in_channels from the first input."""

    weight: Any
    bias: Any

    def _become_lazy(self, out_channels: int, bias: bool, device: Any, dtype: Any) -> None:
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_channels = out_channels
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        """Take the shape from the first input."""
        if not self.has_uninitialized_params():
            return
        self.in_channels = self._get_in_channels(input)
        if self.in_channels % self.groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        self.weight.materialize(self._weight_shape())
        if self.bias is not None:
            self.bias.materialize((self.out_channels,))
        self.reset_parameters()

    def _get_in_channels(self, input: Tensor) -> int:
        n = self._ndim
        if input.dim() not in (n + 1, n + 2):
            raise RuntimeError(
                f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to "
                f"{type(self).__name__}, but got input of size: {input.shape}"
            )
        return input.shape[1] if input.dim() == n + 2 else input.shape[0]


class _LazyForward(_LazyConv):
    """The constructor of the lazy convolutions."""

    def __init__(
        self,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode, device, dtype
        )
        self._become_lazy(out_channels, bias, device, dtype)


class _LazyTransposed(_LazyConv):
    """The constructor of the lazy transposed convolutions."""

    def __init__(
        self,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation,
            padding_mode, device, dtype,
        )  # fmt: skip
        self._become_lazy(out_channels, bias, device, dtype)


class LazyConv1d(_LazyForward, Conv1d):
    """A Conv1d that takes in_channels from its first input."""

    cls_to_become = Conv1d


class LazyConv2d(_LazyForward, Conv2d):
    """A Conv2d that takes in_channels from its first input."""

    cls_to_become = Conv2d


class LazyConv3d(_LazyForward, Conv3d):
    """A Conv3d that takes in_channels from its first input."""

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyTransposed, ConvTranspose1d):
    """A ConvTranspose1d that takes in_channels from its first input."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyTransposed, ConvTranspose2d):
    """A ConvTranspose2d that takes in_channels from its first input."""

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyTransposed, ConvTranspose3d):
    """A ConvTranspose3d that takes in_channels from its first input."""

    cls_to_become = ConvTranspose3d
