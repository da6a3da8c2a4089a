"""Placements: how a tensor lies on the ranks along one dimension of a mesh (Shard, Replicate, Partial), as values."""
from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import mindtorch_v2 as torch
from mindtorch_v2.distributed import _functional_collectives as functional
from mindtorch_v2.distributed.device_mesh import DeviceMesh

__all__ = ["DTensorSpec", "Partial", "Placement", "Replicate", "Shard", "TensorMeta"]

Tensor = Any


class Placement:
    """How a tensor lies along one dimension of a mesh; a value, like a shape."""

    def __reduce__(self) -> Any:
        """As a call, so that what a file says goes through __post_init__."""
        return type(self), tuple(getattr(self, field.name) for field in dataclasses.fields(self))   # type: ignore[arg-type]

    def __post_init__(self) -> None:
        for name, kind in (("dim", int), ("split_factor", int), ("reduce_op", str)):
            value = getattr(self, name, None)
            if value is not None and not isinstance(value, kind):
                raise TypeError(f"{type(self).__name__}.{name} is {kind.__name__}, got {type(value).__name__}")

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether each rank has a part of a dimension."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        """Whether each rank has the whole."""
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether ranks have summands of it, or what else is reduced."""
        return isinstance(self, Partial) and reduce_op in (None, self.reduce_op)


def chunk_size(length: int, parts: int) -> int:
    """How long all parts of a dimension are but the last ones, as torch.chunk cuts it."""
    return -(-length // parts)


@dataclass(frozen=True, repr=False)
class Shard(Placement):
    """Each rank has a part of a dimension; where it does not divide, the last ranks have less or nothing."""
    dim: int

    @staticmethod
    def local_shard_size_and_offset(curr_local_size: int, num_chunks: int, rank: int) -> tuple[int, int]:
        """(length, beginning) of a rank's part of a dimension."""
        full = chunk_size(curr_local_size, num_chunks)
        begin = min(rank * full, curr_local_size)
        return min(begin + full, curr_local_size) - begin, begin

    def _local_part(self, tensor: Tensor, parts: int, rank: int) -> Tensor:
        """A rank's part of a tensor that it has whole."""
        length, begin = self.local_shard_size_and_offset(tensor.shape[self.dim], parts, rank)
        return tensor.narrow(self.dim, begin, length).contiguous()

    def _split_tensor(self, tensor: Tensor, num_chunks: int, *, with_padding: bool = True,
                      contiguous: bool = True) -> tuple[list[Tensor], list[int]]:
        """All parts, the short ones padded if with_padding is set, and by how much."""
        parts = [self._local_part(tensor, num_chunks, rank) for rank in range(num_chunks)]
        full = chunk_size(tensor.shape[self.dim], num_chunks)
        missing = [full - part.shape[self.dim] for part in parts]
        return ([_padded(part, self.dim, full) for part in parts] if with_padding else parts), missing

    def _to_whole(self, local: Tensor, length: int, mesh: DeviceMesh, mesh_dim: int) -> Tensor:
        """The whole, of `length` along the dimension, of every rank's part."""
        parts = mesh.size(mesh_dim)
        full = chunk_size(length, parts)
        gathered = functional.all_gather_tensor(_padded(local, self.dim, full), self.dim, (mesh, mesh_dim))
        return gathered.narrow(self.dim, 0, length).contiguous() if full * parts != length else gathered

    def __repr__(self) -> str:
        return f"Shard(dim={self.dim})"

    def __str__(self) -> str:
        return f"S({self.dim})"


@dataclass(frozen=True, repr=False)
class _StridedShard(Shard):
    """A part of each of `split_factor` pieces of a dimension: what is left where another way of sharding came first."""
    split_factor: int = 1

    def _local_part(self, tensor: Tensor, parts: int, rank: int) -> Tensor:
        pieces = tensor.chunk(self.split_factor * parts, dim=self.dim)
        if len(pieces) != self.split_factor * parts or pieces[0].shape != pieces[-1].shape:
            raise NotImplementedError(f"[_StridedShard] dimension {self.dim} of {tuple(tensor.shape)} does not divide into "
                                      f"{self.split_factor * parts} equal pieces")
        return torch.cat(pieces[rank::parts], dim=self.dim)

    def _to_whole(self, local: Tensor, length: int, mesh: DeviceMesh, mesh_dim: int) -> Tensor:
        gathered = functional.all_gather_tensor(local.contiguous(), self.dim, (mesh, mesh_dim))
        pieces = gathered.chunk(self.split_factor * mesh.size(mesh_dim), dim=self.dim)
        order = [piece for first in range(self.split_factor) for piece in pieces[first::self.split_factor]]
        return torch.cat(order, dim=self.dim)

    def __repr__(self) -> str:
        return f"_StridedShard(dim={self.dim}, sf={self.split_factor})"

    def __str__(self) -> str:
        return f"_S({self.dim}, {self.split_factor})"


@dataclass(frozen=True)
class Replicate(Placement):
    """Each rank has the whole."""

    def __str__(self) -> str:
        return "R"


@dataclass(frozen=True, repr=False)
class Partial(Placement):
    """Ranks have summands, or what else is reduced."""
    reduce_op: str = "sum"

    def _reduce_value(self, tensor: Tensor, mesh: DeviceMesh, mesh_dim: int) -> Tensor:
        """The value, of what the ranks have."""
        return functional.all_reduce(tensor, self.reduce_op, (mesh, mesh_dim))

    def _reduce_shard_value(self, tensor: Tensor, mesh: DeviceMesh, mesh_dim: int, shard: Shard) -> Tensor:
        """This rank's part of the value."""
        parts, length = mesh.size(mesh_dim), tensor.shape[shard.dim]
        full = chunk_size(length, parts)
        given = _padded(tensor, shard.dim, full * parts)
        mine = functional.reduce_scatter_tensor(given, self.reduce_op, shard.dim, (mesh, mesh_dim))
        size, _ = shard.local_shard_size_and_offset(length, parts, mesh.get_local_rank(mesh_dim))
        return mine if size == full else mine.narrow(shard.dim, 0, size).contiguous()

    def _partition_value(self, tensor: Tensor, mesh: DeviceMesh, mesh_dim: int) -> Tensor:
        """This rank's part of a value that every rank has."""
        if self.reduce_op != "sum":
            return tensor
        if tensor.is_floating_point() or tensor.is_complex():
            return tensor / mesh.size(mesh_dim)
        return tensor if mesh.get_local_rank(mesh_dim) == 0 else torch.zeros_like(tensor)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.reduce_op})"

    def __str__(self) -> str:
        return f"P({self.reduce_op})"


@dataclass(frozen=True, repr=False)
class _NormPartial(Partial):
    """Ranks have norms of parts."""
    norm_type: float = 2.0

    def _reduce_value(self, tensor: Tensor, mesh: DeviceMesh, mesh_dim: int) -> Tensor:
        if self.norm_type in (float("inf"), float("-inf")):
            return functional.all_reduce(tensor, "max" if self.norm_type > 0 else "min", (mesh, mesh_dim))
        if self.norm_type == 0:
            return functional.all_reduce(tensor, "sum", (mesh, mesh_dim))
        return functional.all_reduce(tensor ** self.norm_type, "sum", (mesh, mesh_dim)) ** (1.0 / self.norm_type)

    def _reduce_shard_value(self, tensor: Tensor, mesh: DeviceMesh, mesh_dim: int, shard: Shard) -> Tensor:
        whole = self._reduce_value(tensor, mesh, mesh_dim)
        return shard._local_part(whole, mesh.size(mesh_dim), mesh.get_local_rank(mesh_dim))

    def _partition_value(self, tensor: Tensor, mesh: DeviceMesh, mesh_dim: int) -> Tensor:
        raise NotImplementedError("[_NormPartial] a norm is not divided again")

    def __repr__(self) -> str:
        return f"_NormPartial({self.norm_type:g})"


def _padded(tensor: Tensor, dim: int, length: int) -> Tensor:
    """The tensor filled up with zeros along a dimension."""
    missing = length - tensor.shape[dim]
    if not missing:
        return tensor.contiguous()
    shape = list(tensor.shape)
    shape[dim] = missing
    return torch.cat([tensor, torch.zeros(shape, dtype=tensor.dtype, device=tensor.device)], dim=dim)


class TensorMeta(NamedTuple):
    """Shape, strides and dtype of the whole tensor."""
    shape: torch.Size
    stride: tuple[int, ...]
    dtype: Any


@dataclass(frozen=True)
class DTensorSpec:
    """Where a distributed tensor lies: a mesh, a placement for each of its dimensions, and what the whole looks like."""
    mesh: DeviceMesh
    placements: tuple[Placement, ...]
    tensor_meta: TensorMeta | None = None

    @property
    def device_mesh(self) -> DeviceMesh:
        return self.mesh

    @property
    def shape(self) -> torch.Size:
        return self._meta().shape

    @property
    def stride(self) -> tuple[int, ...]:
        return self._meta().stride

    @property
    def ndim(self) -> int:
        return len(self._meta().shape)

    @property
    def num_shards(self) -> int:
        """In how many parts the tensor lies."""
        number = 1
        for i, placement in enumerate(self.placements):
            number *= self.mesh.size(i) if placement.is_shard() else 1
        return number

    @property
    def dim_map(self) -> list[int]:
        """For each dimension of the tensor the mesh dimension that it is sharded over; -1: none."""
        found = [-1] * self.ndim
        for i, placement in enumerate(self.placements):
            if isinstance(placement, Shard):
                found[placement.dim] = i
        return found

    @property
    def sums(self) -> list[int]:
        """The mesh dimensions over which it is still to be reduced."""
        return [i for i, placement in enumerate(self.placements) if placement.is_partial()]

    def is_replicated(self) -> bool:
        return all(placement.is_replicate() for placement in self.placements)

    def is_sharded(self) -> bool:
        return any(placement.is_shard() for placement in self.placements)

    def _meta(self) -> TensorMeta:
        if self.tensor_meta is None:
            raise ValueError("tensor_meta is not set")
        return self.tensor_meta

    def __str__(self) -> str:
        shown = "".join(str(placement) for placement in self.placements)
        return f"Spec({shown} on {tuple(self.shape) if self.tensor_meta else 'unknown'})"
