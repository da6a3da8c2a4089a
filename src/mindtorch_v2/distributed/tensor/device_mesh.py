"""torch.distributed.tensor.device_mesh: an older place of DeviceMesh; names only."""
from __future__ import annotations

from mindtorch_v2.distributed.device_mesh import DeviceMesh, init_device_mesh

__all__ = ["DeviceMesh", "init_device_mesh"]
