"""torch.distributed.tensor: tensors of which every rank of a mesh has a part, with PyTorch's names."""
from __future__ import annotations

import mindtorch_v2 as torch
from mindtorch_v2.distributed import _names
from mindtorch_v2.distributed import device_mesh as _meshes
from mindtorch_v2.distributed.device_mesh import DeviceMesh, init_device_mesh
from mindtorch_v2.distributed.tensor import (
    _api,
    _dtensor_spec,
    _redistribute,
    _utils,
    device_mesh,
    experimental,
    parallel,
    placement_types,
)
from mindtorch_v2.distributed.tensor._api import (
    DTensor,
    distribute_module,
    distribute_tensor,
    empty,
    full,
    ones,
    rand,
    randn,
    zeros,
)
from mindtorch_v2.distributed.tensor.placement_types import (
    DTensorSpec,
    Partial,
    Placement,
    Replicate,
    Shard,
    _StridedShard,
)

# As in torch: who imports DTensors can load them with weights_only=True. Each of these checks its arguments.
torch.serialization.add_safe_globals([_api._rebuild, _meshes._rebuild, Partial, Replicate, Shard, _StridedShard])

__all__ = ["DTensor", "Partial", "Placement", "Replicate", "Shard", "distribute_module", "distribute_tensor", "empty", "full",
           "ones", "rand", "randn", "zeros"]

_names.add_to(__name__)
