"""Functional collectives: they return a new tensor and leave their input alone; those ending in _autograd have gradients."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed import _collectives as c
from mindtorch_v2.distributed._process_group import ProcessGroup
from mindtorch_v2.distributed._work import ReduceOp
from mindtorch_v2.distributed._world import _resolve, _resolve_process_group
from mindtorch_v2.distributed.device_mesh import DeviceMesh
from mindtorch_v2.distributed.nn import functional as with_gradients

Tensor = Any
_OPS = {"sum": ReduceOp.SUM, "avg": ReduceOp.AVG, "product": ReduceOp.PRODUCT, "min": ReduceOp.MIN, "max": ReduceOp.MAX,
        "band": ReduceOp.BAND, "bor": ReduceOp.BOR, "bxor": ReduceOp.BXOR}


def _group(group: Any) -> ProcessGroup:
    """The group of what a caller may give: a group, its name, a mesh of one dimension, or a mesh and a dimension."""
    if isinstance(group, str):
        return _resolve_process_group(group)
    if isinstance(group, DeviceMesh):
        if group.ndim != 1:
            raise AssertionError("Only 1D mesh is supported, pass in (DeviceMesh, int) together")
        return group.get_group()
    if isinstance(group, tuple) and len(group) == 2 and isinstance(group[0], DeviceMesh):
        return group[0].get_group(group[1])
    if group is None or isinstance(group, ProcessGroup):
        return _resolve(group)
    raise ValueError(f"Invalid type for group: {type(group)}. Must be one of List, Processgroup, DeviceMesh or (DeviceMesh, int).")


def _op(name: str) -> Any:
    op = _OPS.get(name.lower())
    if op is None:
        raise ValueError(f"Unsupported reduce operation {name}")
    return op


def wait_tensor(tensor: Tensor) -> Tensor:
    """The tensor when it is complete: here a functional collective has waited already."""
    return tensor


def broadcast(self: Tensor, src: int, group: Any, tag: str = "") -> Tensor:
    """The tensor of one rank of the group's."""
    out = self.detach().clone(memory_format=torch.contiguous_format)
    c.broadcast(out, src, _group(group))
    return out


def all_reduce(self: Tensor, reduceOp: str, group: Any, tag: str = "") -> Tensor:
    """The tensors of all ranks, combined."""
    out = self.detach().clone(memory_format=torch.contiguous_format)
    c.all_reduce(out, _op(reduceOp), _group(group))
    return out


def _joined(out: Tensor, dim: int, size: int) -> Tensor:
    """What lies rank by rank along the first dimension, along another one."""
    return out if dim == 0 else torch.cat(out.chunk(size, dim=0), dim=dim)


def all_gather_tensor(self: Tensor, gather_dim: int, group: Any, tag: str = "") -> Tensor:
    """The tensors of all ranks, joined along a dimension."""
    pg = _group(group)
    out = torch.empty(pg.size() * self.shape[0], *self.shape[1:], dtype=self.dtype, device=self.device)
    c.all_gather_into_tensor(out, self.detach().contiguous(), pg)
    return _joined(out, gather_dim, pg.size())


def reduce_scatter_tensor(self: Tensor, reduceOp: str, scatter_dim: int, group: Any, tag: str = "") -> Tensor:
    """This rank's part, along a dimension, of the tensors of all ranks combined."""
    pg = _group(group)
    if self.shape[scatter_dim] % pg.size():
        raise AssertionError(f"input dimension {scatter_dim} ({self.shape[scatter_dim]} must be a multiple of group_size "
                             f"{pg.size()})")
    given = self.detach()
    if scatter_dim:
        given = torch.cat(given.chunk(pg.size(), dim=scatter_dim))
    out = torch.empty(given.shape[0] // pg.size(), *given.shape[1:], dtype=self.dtype, device=self.device)
    c.reduce_scatter_tensor(out, given.contiguous(), _op(reduceOp), pg)
    return out


def all_to_all_single(self: Tensor, output_split_sizes: list[int] | None, input_split_sizes: list[int] | None, group: Any,
                      tag: str = "") -> Tensor:
    """The parts that all ranks have sent to this one."""
    rows = self.shape[0] if output_split_sizes is None else sum(output_split_sizes)
    out = torch.empty(rows, *self.shape[1:], dtype=self.dtype, device=self.device)
    c.all_to_all_single(out, self.detach().contiguous(), output_split_sizes, input_split_sizes, _group(group))
    return out


def all_reduce_coalesced(self: list[Tensor], reduceOp: str, group: Any, tag: str = "") -> list[Tensor]:
    return [all_reduce(tensor, reduceOp, group) for tensor in self]


def all_gather_into_tensor_coalesced(self: list[Tensor], group: Any, tag: str = "") -> list[Tensor]:
    return [all_gather_tensor(tensor, 0, group) for tensor in self]


def permute_tensor(self: Tensor, src_dst: list[int], group: Any, tag: str = "") -> Tensor:
    """Rank i's tensor goes to rank src_dst[i]."""
    pg = _group(group)
    sent, received = [0] * pg.size(), [0] * pg.size()
    sent[src_dst[pg.rank()]] = received[src_dst.index(pg.rank())] = self.numel()
    return all_to_all_single(self.reshape(-1), received, sent, pg).view(self.shape)


# ---- with gradients ---------------------------------------------------------------------------------------------------
def all_gather_tensor_autograd(self: Tensor, gather_dim: int, group: Any, tag: str = "") -> Tensor:
    return torch.cat(with_gradients.all_gather(self, _group(group)), dim=gather_dim)


def reduce_scatter_tensor_autograd(self: Tensor, reduceOp: str, scatter_dim: int, group: Any, tag: str = "") -> Tensor:
    pg = _group(group)
    parts = list(self.chunk(pg.size(), dim=scatter_dim))
    out = torch.empty(parts[0].shape, dtype=self.dtype, device=self.device)
    return with_gradients.reduce_scatter(out, parts, _op(reduceOp), pg)


def all_to_all_single_autograd(self: Tensor, output_split_sizes: list[int] | None, input_split_sizes: list[int] | None,
                               group: Any, tag: str = "") -> Tensor:
    rows = self.shape[0] if output_split_sizes is None else sum(output_split_sizes)
    out = torch.empty(rows, *self.shape[1:], dtype=self.dtype, device=self.device)
    return with_gradients.all_to_all_single(out, self, output_split_sizes, input_split_sizes, _group(group))
