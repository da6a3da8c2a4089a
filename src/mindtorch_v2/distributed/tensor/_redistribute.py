"""Moves this rank's part of a tensor from one list of placements to another: the collectives of each mesh dimension."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed import _functional_collectives as functional
from mindtorch_v2.distributed.device_mesh import DeviceMesh
from mindtorch_v2.distributed.tensor.placement_types import (
    DTensorSpec,
    Partial,
    Placement,
    Replicate,
    Shard,
    _StridedShard,
)

Tensor = Any


def redistribute_local_tensor(local_tensor: Tensor, current_spec: DTensorSpec, target_spec: DTensorSpec, *,
                              async_op: bool = False) -> Tensor:
    """This rank's part under other placements."""
    if current_spec.mesh != target_spec.mesh:
        raise NotImplementedError("Cross device mesh comm not supported yet!")
    return moved(local_tensor, current_spec.mesh, tuple(current_spec.shape), current_spec.placements, target_spec.placements)


def moved(local: Tensor, mesh: DeviceMesh, shape: tuple[int, ...], current: tuple[Placement, ...],
          target: tuple[Placement, ...]) -> Tensor:
    """The same as redistribute_local_tensor, of the tensor's whole shape.

    Where several mesh dimensions cut one dimension of the tensor, the inner cut has to be undone before the outer one and
    made after it; else each mesh dimension goes its way alone, by one collective."""
    if current == target:
        return local
    if mesh.get_coordinate() is None:
        return local
    now = list(current)
    cut_often = _nested_dims(current, target)
    for i in reversed(range(mesh.ndim)):
        here, there = now[i], target[i]
        redo = isinstance(here, Shard) and here.dim in cut_often
        if here == there and not redo:
            continue
        direct = isinstance(there, Shard) and there.dim not in cut_often and not redo
        length = None if not isinstance(here, Shard) else _length(shape, now, mesh, i, here.dim)
        if isinstance(here, Shard):
            assert length is not None
            if direct and not isinstance(here, _StridedShard) and not isinstance(there, _StridedShard):
                local, now[i] = _swap(local, here, there, length, mesh, i), there     # type: ignore[arg-type]
            else:
                local, now[i] = here._to_whole(local, length, mesh, i), Replicate()
        elif isinstance(here, Partial):
            if direct and not isinstance(there, _StridedShard):
                local, now[i] = here._reduce_shard_value(local, mesh, i, there), there  # type: ignore[arg-type]
            elif here != there:
                local, now[i] = here._reduce_value(local, mesh, i), Replicate()
    for i in range(mesh.ndim):
        there = target[i]
        if now[i] == there:
            continue
        if isinstance(there, Shard):
            local = there._local_part(local, mesh.size(i), mesh.get_local_rank(i))
        elif isinstance(there, Partial):
            local = there._partition_value(local, mesh, i)
        now[i] = there
    return local


def _nested_dims(current: tuple[Placement, ...], target: tuple[Placement, ...]) -> set[int]:
    """The tensor's dimensions that more than one mesh dimension cuts, and not in the same way before and after."""
    found = set()
    for dim in {p.dim for p in (*current, *target) if isinstance(p, Shard)}:
        before = [p if p.is_shard(dim) else None for p in current]
        after = [p if p.is_shard(dim) else None for p in target]
        cutters = {i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a or b}
        if before != after and len(cutters) > 1:
            found.add(dim)
    return found


def _length(shape: tuple[int, ...], now: list[Placement], mesh: DeviceMesh, upto: int, dim: int) -> int:
    """How long a dimension is for this rank once the mesh dimensions before `upto` have cut it."""
    length = shape[dim]
    for i in range(upto):
        if now[i].is_shard(dim):
            length = Shard.local_shard_size_and_offset(length, mesh.size(i), mesh.get_local_rank(i))[0]
    return length


def _swap(local: Tensor, here: Shard, there: Shard, length: int, mesh: DeviceMesh, mesh_dim: int) -> Tensor:
    """Parts of one dimension become parts of another: each rank sends to each a block."""
    parts, rank = mesh.size(mesh_dim), mesh.get_local_rank(mesh_dim)
    if length % parts or local.shape[there.dim] % parts:
        whole = here._to_whole(local, length, mesh, mesh_dim)
        return there._local_part(whole, parts, rank)
    blocks = torch.stack(local.chunk(parts, dim=there.dim))
    got = functional.all_to_all_single(blocks.contiguous(), None, None, (mesh, mesh_dim))
    return torch.cat(got.unbind(0), dim=here.dim)
