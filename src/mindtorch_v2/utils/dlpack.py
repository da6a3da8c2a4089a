"""torch.utils.dlpack: tensors to and from other libraries without a copy."""
from typing import Any

import mindtorch_v2 as torch

from_dlpack = torch.from_dlpack
DLDeviceType = type(torch.empty(0).__dlpack_device__()[0])


def to_dlpack(tensor: Any) -> Any:
    """A DLPack capsule over the tensor's memory."""
    return tensor.__dlpack__()
