"""context_parallel: a long sequence divided over ranks; attention of a rank's queries to the keys of all."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed import _functional_collectives as functional
from mindtorch_v2.distributed.device_mesh import DeviceMesh
from mindtorch_v2.distributed.tensor.experimental._ring import ring_attention

__all__ = ["context_parallel", "context_parallel_unshard", "set_rotate_method"]

Tensor = Any
_SEQUENCE = 2                                     # the dimension of positions in queries, keys and values


@dataclass
class _ContextParallelOptions:
    enable_load_balance: bool = True
    rotate_method: str = "allgather"


_cp_options = _ContextParallelOptions()


def set_rotate_method(rotate_method: str) -> None:
    """How keys and values come to the other ranks: gathered ("allgather"), or passed round a ring ("alltoall"), which holds those
    of one other rank at a time."""
    if rotate_method not in ("allgather", "alltoall"):
        raise NotImplementedError(f"Context Parallel does not support using {rotate_method} for kv shards rotation")
    _cp_options.rotate_method = rotate_method


class _Pieces:
    """Which positions each rank has. With the balance, which equalizes the work of a causal mask, a rank has a piece from the
    front and the one as far from the end; without it, one piece."""

    def __init__(self, length: int, ranks: int, balanced: bool) -> None:
        count = 2 * ranks if balanced else ranks
        if length % count:
            raise ValueError(f"[context_parallel] a sequence of {length} does not divide into {count} pieces, for {ranks} ranks"
                             f"{' with the balance of a causal mask' if balanced else ''}")
        self.size, self.ranks = length // count, ranks
        self.of_rank = [[rank, count - 1 - rank] if balanced else [rank] for rank in range(ranks)]
        order = [piece for pieces in self.of_rank for piece in pieces]
        self.place = [order.index(piece) for piece in range(count)]   # where a piece is when the ranks' parts lie side by side

    def part(self, x: Tensor, dim: int, rank: int) -> Tensor:
        """What a rank has of a whole tensor."""
        return torch.cat([x.narrow(dim, piece * self.size, self.size) for piece in self.of_rank[rank]], dim)

    def positions(self, rank: int, device: Any) -> Tensor:
        """Of what a rank has."""
        return torch.cat([torch.arange(piece * self.size, (piece + 1) * self.size, device=device)
                          for piece in self.of_rank[rank]])

    def whole(self, x: Tensor, dim: int) -> Tensor:
        """The ranks' parts, side by side, in the order of positions."""
        if self.place == sorted(self.place):
            return x
        return torch.cat([x.narrow(dim, place * self.size, self.size) for place in self.place], dim)


class _Attention(torch.overrides.TorchFunctionMode):
    """Answers scaled_dot_product_attention within context_parallel."""

    def __init__(self, mesh: DeviceMesh, balanced: bool) -> None:
        super().__init__()
        self.mesh, self.balanced = mesh, balanced

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.nn.functional.scaled_dot_product_attention:
            return self._attend(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
                is_causal: bool = False, **kwargs: Any) -> Tensor:
        if attn_mask is not None:
            raise NotImplementedError("[context_parallel] attention with attn_mask: only is_causal is known to hold for a part of "
                                      "a sequence")
        attend, group = torch.nn.functional.scaled_dot_product_attention, (self.mesh, 0)
        ranks, rank = self.mesh.size(), self.mesh.get_local_rank()
        pieces = _Pieces(query.shape[_SEQUENCE] * ranks, ranks, self.balanced)
        if _cp_options.rotate_method == "alltoall":
            return ring_attention(query, key, value, self.mesh, pieces, dropout_p, is_causal, **kwargs)
        keys, values = (pieces.whole(functional.all_gather_tensor_autograd(x.contiguous(), _SEQUENCE, group), _SEQUENCE)
                        for x in (key, value))
        if not is_causal:
            return attend(query, keys, values, None, dropout_p, False, **kwargs)
        made, rows = [], torch.arange(pieces.size, device=query.device)
        for part, piece in zip(query.split(pieces.size, _SEQUENCE), pieces.of_rank[rank], strict=True):
            first, end = piece * pieces.size, (piece + 1) * pieces.size   # later keys are masked for all of the piece
            seen = torch.arange(end, device=query.device) <= (first + rows)[:, None]
            made.append(attend(part, keys.narrow(_SEQUENCE, 0, end), values.narrow(_SEQUENCE, 0, end), seen, dropout_p, False,
                               **kwargs))
        return torch.cat(made, _SEQUENCE)


@contextmanager
def context_parallel(mesh: DeviceMesh, *, buffers: list[Tensor] | None = None, buffer_seq_dims: list[int] | None = None,
                     no_restore_buffers: set[Tensor] | None = None) -> Iterator[None]:
    """A with block in which buffers (inputs, labels, positions) are this rank's part along their sequence dimensions, and
    scaled_dot_product_attention attends to the keys of all ranks. Gradients of parameters are those of a part: add them up, as
    with data parallelism. Buffers are whole again afterwards, but for those of no_restore_buffers."""
    buffers, dims = buffers or [], buffer_seq_dims or []
    if len(buffers) != len(dims):
        raise ValueError("`seq_dims` must have the same number of elements as `buffers`.")
    kept = {id(buffer) for buffer in no_restore_buffers or ()}
    if kept - {id(buffer) for buffer in buffers}:
        raise ValueError("`no_restore_buffers` must be a subset of `buffers`.")
    balanced = _cp_options.enable_load_balance
    with torch.no_grad():
        before = [None if id(buffer) in kept else buffer.clone() for buffer in buffers]
        for buffer, dim in zip(buffers, dims, strict=True):
            pieces = _Pieces(buffer.shape[dim], mesh.size(), balanced)
            part = pieces.part(buffer, dim, mesh.get_local_rank())
            buffer.resize_(part.shape).copy_(part)
    try:
        with _Attention(mesh, balanced):
            yield
    finally:
        with torch.no_grad():
            for buffer, whole in zip(buffers, before, strict=True):
                if whole is not None:
                    buffer.resize_(whole.shape).copy_(whole)


def context_parallel_unshard(mesh: DeviceMesh, buffers: list[Tensor], seq_dims: list[int],
                             load_balancer: Any = None) -> list[Tensor]:
    """Whole tensors, of the parts that ranks have within context_parallel."""
    if load_balancer is not None:
        raise NotImplementedError("[context_parallel_unshard] a load_balancer of the program's own")
    made = []
    for buffer, dim in zip(buffers, seq_dims, strict=True):
        together = functional.all_gather_tensor(buffer.contiguous(), dim, (mesh, 0))
        pieces = _Pieces(together.shape[dim], mesh.size(), _cp_options.enable_load_balance)
        made.append(pieces.whole(functional.wait_tensor(together), dim).contiguous())
    return made
