"""Weights of convolutions in another memory format, so that layers between them need no conversion."""

from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.nn.modules.conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d
from mindtorch_v2.nn.modules.module import Module

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]


def _convert(module: Module, kinds: tuple[type[Module], ...], memory_format: Any) -> Module:
    for layer in module.modules():
        if isinstance(layer, kinds):
            weight: Any = layer.weight
            weight.data = weight.detach().clone(memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module: Module, memory_format: torch.memory_format) -> Module:
    """Give the weights of all 2-d convolutions inside a module a memory format, in place."""
    return _convert(module, (Conv2d, ConvTranspose2d), memory_format)


def convert_conv3d_weight_memory_format(module: Module, memory_format: torch.memory_format) -> Module:
    """Give the weights of all 3-d convolutions inside a module a memory format, in place."""
    return _convert(module, (Conv3d, ConvTranspose3d), memory_format)
