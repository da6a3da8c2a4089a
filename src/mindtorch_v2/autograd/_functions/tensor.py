"""A tensor in another dtype and in another shape, as custom functions."""
from __future__ import annotations

import functools
import operator
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2.autograd.function import Function


class Type(Function):
    """x.type(dest); the gradient comes back in the type of x."""

    @staticmethod
    def forward(ctx: Any, i: Any, dest_type: Any) -> Any:
        ctx.input_type = i.type()
        return i.type(dest_type)

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        return grad_output.type(ctx.input_type), None


class Resize(Function):
    """A tensor of other sizes over the same memory; its number of items must stay."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, sizes: Any) -> Any:
        wanted = functools.reduce(operator.mul, sizes, 1)
        if wanted != tensor.numel():
            raise RuntimeError(f"requested resize to {'x'.join(map(str, sizes))} ({wanted} elements in total), but the given "
                               f"tensor has a size of {'x'.join(map(str, tensor.size()))} ({tensor.numel()} elements). "
                               f"autograd's resize can only change the shape of a given tensor, while preserving the number "
                               f"of elements. ")
        ctx.input_sizes = tensor.size()
        if tensor.is_contiguous():
            return _C._op_named("alias")(tensor).view(*sizes)
        return tensor.contiguous().view(*sizes)

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        return grad_output.contiguous().view(ctx.input_sizes), None
