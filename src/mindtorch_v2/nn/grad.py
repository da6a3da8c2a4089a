"""torch.nn.grad: gradients of convolutions, given sizes or tensors instead of a graph."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch

Tensor = torch.Tensor


def _gradient(n: int, input: Tensor, weight: Tensor, grad_output: Tensor, of_input: bool, options: tuple[Any, ...]) -> Tensor:
    """Of an n-dim convolution with respect to its input or its weight."""
    stride, padding, dilation, groups = options
    with torch.enable_grad():
        input, weight = input.detach().requires_grad_(of_input), weight.detach().requires_grad_(not of_input)
        conv = (torch.conv1d, torch.conv2d, torch.conv3d)[n - 1]
        made = conv(input, weight, None, stride, padding, dilation, groups)
    return torch.autograd.grad(made, input if of_input else weight, grad_output)[0]


def _pair(n: int) -> tuple[Any, Any]:
    def conv_input(input_size: Any, weight: Tensor, grad_output: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
                   groups: int = 1) -> Tensor:
        start = grad_output.new_zeros(tuple(input_size))
        return _gradient(n, start, weight, grad_output, True, (stride, padding, dilation, groups))

    def conv_weight(input: Tensor, weight_size: Any, grad_output: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
                    groups: int = 1) -> Tensor:
        start = grad_output.new_zeros(tuple(weight_size))
        return _gradient(n, input, start, grad_output, False, (stride, padding, dilation, groups))
    for function, end, of in ((conv_input, "input", "input"), (conv_weight, "weight", "weight")):
        function.__name__ = function.__qualname__ = f"conv{n}d_{end}"
        function.__doc__ = f"The gradient of conv{n}d with respect to its {of}, of which only the size matters."
    return conv_input, conv_weight


conv1d_input, conv1d_weight = _pair(1)
conv2d_input, conv2d_weight = _pair(2)
conv3d_input, conv3d_weight = _pair(3)
