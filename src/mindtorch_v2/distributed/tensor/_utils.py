"""What a rank's part looks like: its shape and where it begins in the whole."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mindtorch_v2.distributed.device_mesh import DeviceMesh
from mindtorch_v2.distributed.tensor._op_dispatch import local_shape
from mindtorch_v2.distributed.tensor.placement_types import Placement, Shard, _StridedShard


def compute_local_shape_and_global_offset(global_shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement],
                                          skip_offset: bool = False) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(shape, beginning) of this rank's part."""
    if mesh.get_coordinate() is None:
        return (0,), ()
    sizes, begins = list(global_shape), [0] * len(global_shape)
    # A strided cut comes after the cuts that follow it in the list.
    for i in sorted(range(mesh.ndim), key=lambda i: isinstance(placements[i], _StridedShard)):
        placement = placements[i]
        if isinstance(placement, Shard):
            sizes[placement.dim], begin = Shard.local_shard_size_and_offset(sizes[placement.dim], mesh.size(i),
                                                                            mesh.get_local_rank(i))
            begins[placement.dim] += begin
    return tuple(sizes), tuple(begins)


def compute_local_shape(global_shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement]) -> tuple[int, ...]:
    """The shape of this rank's part."""
    return tuple(local_shape(tuple(global_shape), mesh, tuple(placements))) if mesh.get_coordinate() is not None else (0,)


def compute_global_tensor_info(tensor: Any, mesh: DeviceMesh, placements: Sequence[Placement]) -> tuple[list[int], list[int]]:
    """(shape, strides) of the whole, of which every rank has such a part."""
    shape, stride = list(tensor.shape), list(tensor.stride())
    for i, placement in enumerate(placements):
        if isinstance(placement, Shard):
            size = mesh.size(i)
            step = stride[placement.dim]
            shape[placement.dim] *= size
            stride = [s * size if d != placement.dim and s > step else s for d, s in enumerate(stride)]
        elif not isinstance(placement, Placement):
            raise RuntimeError(f"placement type {type(placement)} not supported!")
    return shape, stride


