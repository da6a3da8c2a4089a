"""Tensors in groups that one call over lists can take."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch


def _get_foreach_kernels_supported_devices() -> list[str]:
    """Accelerators with ops over lists; the CPU has them too."""
    return ["npu"]


def _get_fused_kernels_supported_devices() -> list[str]:
    """Devices with fused optimizers."""
    return ["cpu", "npu"]


def _has_foreach_support(tensors: list[Any], device: Any) -> bool:
    """Whether ops over lists take all of them."""
    return all(tensor is None or type(tensor) in (torch.Tensor, torch.nn.Parameter) for tensor in tensors)


def _device_has_foreach_support(device: Any) -> bool:
    """Whether a device has ops over lists."""
    return device.type in ("cpu", *_get_foreach_kernels_supported_devices())


_group_tensors_by_device_and_dtype: Any = torch._C._group_tensors_by_device_and_dtype
