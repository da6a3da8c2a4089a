"""One parameter of a module that fully_shard divides: its part, the whole while it is needed, and how they become each other."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed.device_mesh import DeviceMesh
from mindtorch_v2.distributed.tensor import DTensor, DTensorSpec, Placement, Replicate, Shard, _StridedShard
from mindtorch_v2.distributed.tensor.placement_types import TensorMeta, _padded, chunk_size

Tensor = Any


class ShardedParam:
    """A parameter in all places of the module where it is; `whole` keeps its identity, its memory comes and goes."""

    def __init__(self, places: list[tuple[Any, str]], mesh: DeviceMesh, shard_dim: int, offload: bool, device: Any) -> None:
        module, name = places[0]
        param = module._parameters[name]
        self.places, self.mesh, self.dim, self.offload = places, mesh, shard_dim, offload
        self.group_dim = mesh.ndim - 1            # of a mesh of two dimensions the first one replicates
        self.inner = param._spec if isinstance(param, DTensor) else None      # how tensor parallelism has divided it
        data = param.to_local().detach() if isinstance(param, DTensor) else param.detach()
        self.data_device = data.device if data.is_meta else device
        data = data.to(self.data_device)
        self.shape, self.dtype = data.shape, data.dtype
        self.parts, self.rank = mesh.size(self.group_dim), mesh.get_local_rank(self.group_dim)
        self.length = self.shape[self.dim] if data.dim() else 1
        self.full = chunk_size(self.length, self.parts)
        if not data.dim():
            raise ValueError(f"fully_shard doesn't support scalar parameters. Change {name} to a 1D tensor with numel equal to 1.")
        local = Shard(self.dim)._local_part(data, self.parts, self.rank).clone()
        self.spec = self._spec_of(param)
        made = DTensor(local.cpu() if offload else local, self.spec)
        self.sharded: Any = torch.nn.Parameter(made, requires_grad=param.requires_grad)
        for key, value in vars(param).items():    # what a program has noted on its parameter
            if key not in ("_local_tensor", "_spec", "_is_param"):
                setattr(self.sharded, key, value)
        self.whole: Any = None
        self.memory: Any = None                   # what `whole` lies in
        self.is_whole = False
        self.copied: Any = None                   # a copy of `whole` in the host's memory, while a program looks at it
        self.show(self.sharded)

    def _spec_of(self, param: Any) -> DTensorSpec:
        """Where the part lies among all ranks: of the mesh of fully_shard, and of tensor parallelism within it."""
        outer: list[Placement] = [Replicate()] * (self.mesh.ndim - 1)
        if self.inner is None:
            meta = TensorMeta(param.shape, tuple(param.stride()), param.dtype)
            return DTensorSpec(self.mesh, (*outer, Shard(self.dim)), meta)
        cut = [i for i, p in enumerate(self.inner.placements) if p.is_shard(self.dim)]
        factor = 1
        for i in cut:
            factor *= self.inner.mesh.size(i)
        mine = _StridedShard(self.dim, factor) if cut else Shard(self.dim)
        root = self.mesh._root
        names = (*(self.mesh.mesh_dim_names or ()), *(self.inner.mesh.mesh_dim_names or ()))
        if root is not self.inner.mesh._root or len(names) != self.mesh.ndim + self.inner.mesh.ndim:
            raise ValueError("fully_shard of a DTensor needs its mesh and that of the DTensor to be parts of one mesh with names, "
                             f"got {self.mesh} and {self.inner.mesh}")
        return DTensorSpec(root[names], (*outer, mine, *self.inner.placements), self.inner.tensor_meta)

    def show(self, param: Any) -> None:
        """What the module has in its places."""
        for module, name in self.places:
            module._parameters[name] = param

    def take_changes(self) -> None:
        """A program may have put another parameter into its place (to_empty, load_state_dict with assign)."""
        module, name = self.places[0]
        now = module._parameters[name]
        if now is not self.sharded and now is not self.whole:
            if not isinstance(now, DTensor):
                raise RuntimeError(f"fully_shard: {name} of {type(module).__name__} was replaced by a {type(now).__name__} that "
                                   "is no DTensor")
            self.sharded = now
            self.dtype = now.dtype

    def memory_row(self) -> int:
        """Items beside the divided dimension."""
        number = 1
        for dim, size in enumerate(self.shape):
            number *= 1 if dim == self.dim else size
        return number

    # ---- to the whole
    def packed(self, dtype: Any, device: Any) -> Tensor:
        """This rank's part as it is sent: flat, filled up to the length of the longest."""
        local = self.sharded._local_tensor.detach()
        return _padded(local.to(device, dtype), self.dim, self.full).reshape(-1)

    def unpack(self, rows: Tensor, dtype: Any) -> None:
        """The whole, of one row a rank."""
        shape = list(self.shape)
        shape[self.dim] = self.full
        pieces = rows.reshape(self.parts, *shape)
        if self.memory is None or self.memory.dtype != dtype or self.memory.device != rows.device:
            self.memory = torch.empty(self.shape, dtype=dtype, device=rows.device)
            whole: Any = self.memory
            if self.inner is not None:
                meta = TensorMeta(self.inner.shape, self.inner.stride, dtype)
                whole = DTensor(self.memory, DTensorSpec(self.inner.mesh, self.inner.placements, meta))
            self.whole = torch.nn.Parameter(whole, requires_grad=self.sharded.requires_grad)
        else:
            self.memory.untyped_storage().resize_(self.memory.numel() * self.memory.element_size())
        joined = pieces.reshape(-1, *self.shape[1:]) if self.dim == 0 else torch.cat(pieces.unbind(0), dim=self.dim)
        # Through .data, which has a version of its own: what backward has saved is this memory, filled again.
        self.memory.data.copy_(joined.narrow(self.dim, 0, self.length))
        self.is_whole = True
        self.show(self.whole)

    # ---- to the part
    def write_back(self) -> None:
        """What was written to the whole, into the part."""
        with torch.no_grad():
            part = Shard(self.dim)._local_part(self.memory, self.parts, self.rank)
            self.sharded._local_tensor.copy_(part)

    def begin_whole_use(self, shown: bool, in_host_memory: bool, grad: Tensor | None) -> None:
        """For a program that looks at whole parameters: shows the whole, or a copy of it in the host's memory, with a gradient;
        or the part."""
        self.copied = None
        if not shown:
            self.show(self.sharded)
            return
        used = self.whole
        if in_host_memory and self.memory.device.type != "cpu":
            if self.inner is not None:
                raise NotImplementedError("[summon_full_params] offload_to_cpu of parameters that tensor parallelism divides")
            used = self.copied = torch.nn.Parameter(self.memory.detach().cpu(), requires_grad=self.sharded.requires_grad)
            self.show(used)
        if grad is not None:
            used.grad = grad.to(used.device, used.dtype)

    def end_whole_use(self, writeback: bool) -> None:
        """What was written stays, if wanted: values, and gradients where they were shown."""
        used = self.whole if self.copied is None else self.copied
        if writeback:
            if self.copied is not None:
                self.memory.data.copy_(self.copied.detach())
            self.write_back()
            if used.grad is not None and self.sharded.grad is not None:
                part = Shard(self.dim)._local_part(used.grad, self.parts, self.rank)
                self.sharded.grad._local_tensor.copy_(part)
        self.whole.grad = self.copied = None

    def drop(self) -> None:
        """The whole goes; its identity and gradient stay."""
        if self.is_whole:
            self.memory.untyped_storage().resize_(0)
            self.is_whole = False
        self.show(self.sharded)

    def packed_grad(self, dtype: Any) -> Tensor:
        """The gradient of the whole, one row a rank."""
        grad = self.whole.grad
        if isinstance(grad, DTensor):
            assert self.inner is not None
            grad = grad.redistribute(placements=self.inner.placements)._local_tensor
        if grad is None:                          # not used on this rank, but elsewhere perhaps
            grad = torch.zeros(self.shape, dtype=self.memory.dtype, device=self.memory.device)
        grad = _padded(grad.to(dtype), self.dim, self.full * self.parts)
        if self.dim == 0:
            return grad.reshape(self.parts, -1)
        return torch.stack(grad.chunk(self.parts, dim=self.dim)).reshape(self.parts, -1)

    def take_grad(self, flat: Tensor) -> None:
        """This rank's part of the reduced gradient."""
        shape = list(self.shape)
        shape[self.dim] = self.full
        size, _ = Shard.local_shard_size_and_offset(self.length, self.parts, self.rank)
        part = flat.view(shape).narrow(self.dim, 0, size).to(self.dtype)
        part = part.cpu() if self.offload else part.contiguous()
        if self.sharded.grad is None:
            self.sharded.grad = DTensor(part, self.spec)
        else:
            self.sharded.grad._local_tensor.add_(part)
        self.whole.grad = None
