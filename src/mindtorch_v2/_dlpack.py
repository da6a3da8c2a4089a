"""Devices as DLPack counts them, and tensors on their way to one."""
from __future__ import annotations

from enum import IntEnum
from typing import Any

from mindtorch_v2 import _C


class DLDeviceType(IntEnum):
    """What __dlpack_device__ gives first; the numbers are DLPack's."""
    kDLCPU = 1
    kDLCUDA = 2
    kDLCUDAHost = 3
    kDLOpenCL = 4
    kDLVulkan = 7
    kDLMetal = 8
    kDLVPI = 9
    kDLROCM = 10
    kDLROCMHost = 11
    kDLExtDev = 12
    kDLCUDAManaged = 13
    kDLOneAPI = 14
    kDLWebGPU = 15
    kDLHexagon = 16
    kDLMAIA = 17


DLDeviceType.__module__ = "torch.utils.dlpack"


def capsule_device(device: Any) -> tuple[int, int]:
    """A device as DLPack says it."""
    if device.type not in ("cpu", "cuda"):
        raise BufferError(f"Cannot pack tensors on {device}")
    return int(DLDeviceType.kDLCPU if device.type == "cpu" else DLDeviceType.kDLCUDA), device.index or 0


def to_capsule_device(tensor: Any, place: Any, copy: bool | None) -> Any:
    """A tensor on a device that DLPack says; itself where it is there and no copy is asked for."""
    if place is not None and not isinstance(place, tuple):
        raise TypeError(f"_to_dlpack(): argument 'dl_device' must be tuple of ints, not {type(place).__name__}")
    if place is None or place[0] == DLDeviceType.kDLCPU:
        if place is None or tensor.device.type == "cpu":
            return tensor.clone() if copy else tensor
        target = _C.device("cpu")
    elif place[0] == DLDeviceType.kDLCUDA:
        target = _C.device("cuda", place[1])
    else:
        raise BufferError(f"Unsupported device_type: {int(place[0])}")
    if copy is False:
        raise ValueError(f"cannot move (i.e. copy=False) tensor from {tensor.device} to {target} without copying.")
    return tensor.to(target)
