"""torch.utils.dlpack: tensors to and from other libraries without a copy."""
from typing import Any

import mindtorch_v2 as torch

from_dlpack = torch.from_dlpack
DLDeviceType = type(torch.empty(0).__dlpack_device__()[0])


def to_dlpack(tensor: Any) -> Any:
    """A DLPack capsule over the tensor's memory, whatever the tensor needs gradients for and marks say of its items."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"_to_dlpack(): argument 'data' (position 1) must be Tensor, not {torch._C._said_type(tensor)}")
    if tensor.layout is not torch.strided:
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")
    return torch._C._to_dlpack(tensor)
