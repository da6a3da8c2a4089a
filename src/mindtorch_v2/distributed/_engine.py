"""What the engines have in common: a collective over lists or odd layouts becomes one over dense tensors.

An engine has the primitives (`_all_reduce` and so on), which take contiguous tensors and say what is to be called, and
`_launch`, which starts that: `after` runs when the data is there, on the cpu in the thread that sees it, on an npu in the
stream of the collective.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed._work import Call, DoneWork, RedOpType, Work, op_type

Tensor = Any
After = Callable[[], Any] | None
_MOST_DIMS = 64                                   # of a tensor
_BITWISE = (RedOpType.BAND, RedOpType.BOR, RedOpType.BXOR)


def flat_like(tensors: list[Tensor]) -> Tensor:
    """One row that holds what all of them hold."""
    return torch.empty(sum(t.numel() for t in tensors), dtype=tensors[0].dtype, device=tensors[0].device)


def flattened(tensors: list[Tensor]) -> Tensor:
    with torch.no_grad():
        return torch.cat([t.detach().reshape(-1) for t in tensors])


def unflattened(flat: Tensor, into: list[Tensor]) -> Callable[[], None]:
    """Copies the parts of a row to where they belong."""
    def copy() -> None:
        at = 0
        with torch.no_grad():
            for t in into:
                t.detach().copy_(flat[at:at + t.numel()].view(t.shape))
                at += t.numel()
    return copy


def neighbours(tensors: list[Tensor]) -> Tensor | None:
    """One tensor over all of them, where they lie side by side in one memory already (torch.chunk of a row)."""
    first, at = tensors[0], tensors[0].data_ptr()
    for t in tensors:
        if not t.is_contiguous() or t.data_ptr() != at or t.dtype != first.dtype:
            return None
        at += t.numel() * t.element_size()
    storage = first.untyped_storage()
    if any(t.untyped_storage().data_ptr() != storage.data_ptr() for t in tensors[1:]):
        return None
    return first.detach().as_strided((sum(t.numel() for t in tensors),), (1,))


def refuse_sparse(name: str, tensor: Tensor | None) -> None:
    if tensor is not None and tensor.layout != torch.strided:
        raise NotImplementedError(f"[{name}] of a tensor with layout {tensor.layout}: only all_reduce takes one, "
                                  "torch.sparse_coo on the cpu")


class Engine:
    """One group on one kind of device."""

    name = ""

    def __init__(self, group: Any) -> None:
        self.group = group                        # the ProcessGroup
        self.rank, self.size = group.rank(), group.size()
        self.sequence = 0

    # ---- what an engine has to have ----
    def _launch(self, call: Any, start: Any, keep: list[Tensor], after: After, result: list[Tensor],
                async_op: bool) -> Work:
        raise NotImplementedError

    def _all_reduce(self, data: Tensor, op: RedOpType) -> Any:
        raise NotImplementedError

    def _reduce(self, data: Tensor, root: int, op: RedOpType) -> Any:
        raise NotImplementedError

    def _reduce_scatter(self, out: Tensor, data: Tensor, op: RedOpType) -> Any:
        raise NotImplementedError

    def _broadcast(self, data: Tensor, root: int) -> Any:
        raise NotImplementedError

    def _all_gather(self, out: Tensor, data: Tensor) -> Any:
        raise NotImplementedError

    def _gather(self, out: Tensor | None, data: Tensor, root: int) -> Any:
        raise NotImplementedError

    def _scatter(self, out: Tensor, data: Tensor | None, root: int) -> Any:
        raise NotImplementedError

    def _all_to_all(self, out: Tensor, data: Tensor, received: list[int], sent: list[int]) -> Any:
        raise NotImplementedError

    def _barrier(self) -> Any:
        raise NotImplementedError

    def send(self, data: Tensor, to: int, tag: int, async_op: bool) -> Work:
        raise NotImplementedError

    def recv(self, data: Tensor, source: int | None, tag: int, async_op: bool) -> Work:
        raise NotImplementedError

    def abort(self) -> None:
        """Gives up what is under way."""

    def close(self) -> None:
        """Gives back what the group has of the engine."""

    # ---- reductions ----
    def call(self, name: str, tensor: Tensor | None) -> Any:
        """What messages say of a collective that begins."""
        refuse_sparse(name, tensor)
        self.sequence += 1
        if tensor is None:
            return Call(name, self.sequence, self.group, None, None)
        return Call(name, self.sequence, self.group, tensor.shape, tensor.dtype)

    def _check_op(self, op: RedOpType, dtype: Any) -> None:
        if op in _BITWISE and (dtype.is_floating_point or dtype.is_complex):
            raise RuntimeError(f"Cannot use ReduceOp.{op.name} with non-integral dtype")
        if op == RedOpType.AVG and not (dtype.is_floating_point or dtype.is_complex):
            raise RuntimeError(f"Cannot use ReduceOp.AVG with {dtype}: the mean of integers is no integer")

    def _reducible(self, tensor: Tensor, op: Any) -> tuple[Tensor, RedOpType, Callable[[], None] | None]:
        """(dense real data, the engine's op, what to do to the data afterwards)."""
        kind, factor = op_type(op)
        self._check_op(kind, tensor.dtype)
        data = tensor.detach()
        if not data.is_contiguous():
            data = data.contiguous()
        if data.is_complex():
            if kind not in (RedOpType.SUM, RedOpType.AVG, RedOpType.PREMUL_SUM):
                raise ValueError(f"all_reduce does not support {op_type(op)[0]!s} on complex tensors")
            data = torch.view_as_real(data)
        if kind == RedOpType.PREMUL_SUM:
            data = data * factor
            return data, RedOpType.SUM, None
        if kind == RedOpType.AVG:
            return data, RedOpType.SUM, lambda: self._average(data)
        return data, kind, None

    def _average(self, data: Tensor) -> None:
        """A sum as a mean; of integers it is rounded towards zero, as torch_npu does."""
        data.div_(self.size, rounding_mode=None if data.is_floating_point() else "trunc")

    def all_reduce(self, tensor: Tensor, op: Any, async_op: bool) -> Work:
        if tensor.layout == torch.sparse_coo and tensor.device.type == "cpu":
            return self._all_reduce_sparse(tensor, op)
        call = self.call("all_reduce", tensor)
        data, kind, scale = self._reducible(tensor, op)
        return self._launch(call, self._all_reduce(data, kind), [tensor, data], self._put_back(tensor, data, scale), [tensor],
                            async_op)

    def _all_reduce_sparse(self, tensor: Tensor, op: Any) -> Work:
        """The sum of tensors whose items lie in different places, as gloo has it: places and values are gathered."""
        if op_type(op)[0] != RedOpType.SUM:
            raise RuntimeError("ProcessGroupGloo::allreduce: unsupported reduction operation (allreduce of sparse tensors only "
                               "works with ReduceOp.SUM)")
        own = tensor.detach().coalesce()
        places, values = own.indices(), own.values()
        said = [own.sparse_dim(), *own.shape, *[-1] * (_MOST_DIMS - own.dim()), values.shape[0]]
        about = self._gathered(torch.tensor(said), [(len(said),)] * self.size)
        if any((other[:-1] != about[0][:-1]).any() for other in about):
            raise RuntimeError("Sparse dimensions do not match")
        counts = [int(other[-1]) for other in about]
        places = torch.cat(self._gathered(places.contiguous(), [(places.shape[0], count) for count in counts]), 1)
        values = torch.cat(self._gathered(values.contiguous(), [(count, *values.shape[1:]) for count in counts]))
        with torch.no_grad():
            tensor.copy_(torch.sparse_coo_tensor(places, values, own.shape).coalesce())
        return DoneWork(None, [tensor])

    def _gathered(self, tensor: Tensor, shapes: list[tuple[int, ...]]) -> list[Tensor]:
        """The tensors of all ranks, which are of these shapes."""
        outs = [torch.empty(shape, dtype=tensor.dtype) for shape in shapes]
        self.all_gather(outs, tensor, False).wait()
        return outs

    def reduce(self, tensor: Tensor, root: int, op: Any, async_op: bool) -> Work:
        self._check_root("reduce", root)
        call = self.call("reduce", tensor)
        data, kind, scale = self._reducible(tensor, op)
        after = self._put_back(tensor, data, scale) if self.rank == root else None
        return self._launch(call, self._reduce(data, root, kind), [tensor, data], after, [tensor], async_op)

    def _put_back(self, tensor: Tensor, data: Tensor, scale: After) -> After:
        if data.data_ptr() == tensor.data_ptr():
            return scale

        def copy() -> None:
            if scale:
                scale()
            with torch.no_grad():
                tensor.detach().copy_(torch.view_as_complex(data) if tensor.is_complex() else data)
        return copy

    def reduce_scatter_tensor(self, out: Tensor, tensor: Tensor, op: Any, async_op: bool) -> Work:
        if out.dtype != tensor.dtype:
            raise TypeError("input tensor must be the same type as the output tensor.")
        if out.numel() * self.size != tensor.numel():
            raise ValueError("input tensor must be the same size as output size times world size")
        return self._reduce_scatter_into(self.call("reduce_scatter_tensor", tensor), out, tensor, op, None, async_op)

    def reduce_scatter(self, out: Tensor, tensors: list[Tensor], op: Any, async_op: bool) -> Work:
        if len(tensors) != self.size:
            raise RuntimeError("invalid input tensor list size, must be world size")
        if any(t.numel() != out.numel() for t in tensors):
            return self._reduce_scatter_uneven(out, tensors, op, async_op)
        together = neighbours(tensors)
        call = self.call("reduce_scatter", out)
        return self._reduce_scatter_into(call, out, flattened(tensors) if together is None else together, op, None, async_op)

    def _reduce_scatter_into(self, call: Any, out: Tensor, tensor: Tensor, op: Any, after: After, async_op: bool) -> Work:
        data, kind, _ = self._reducible(tensor, op)
        dense = out.detach() if out.is_contiguous() else torch.empty(out.shape, dtype=out.dtype, device=out.device)
        real = torch.view_as_real(dense) if dense.is_complex() else dense
        average = op_type(op)[0] == RedOpType.AVG

        def finish() -> None:
            with torch.no_grad():
                if average:
                    self._average(real)
                if dense.data_ptr() != out.data_ptr():
                    out.detach().copy_(dense)
        needed = average or dense.data_ptr() != out.data_ptr()
        return self._launch(call, self._reduce_scatter(real, data, kind), [out, dense, data], finish if needed else None, [out],
                            async_op)

    def _reduce_scatter_uneven(self, out: Tensor, tensors: list[Tensor], op: Any, async_op: bool) -> Work:
        """Parts of several sizes: one reduction to each rank."""
        if tensors[self.rank].numel() != out.numel():
            raise RuntimeError("invalid tensor size: output and the input of this rank differ")
        mine = None
        for root, tensor in enumerate(tensors):
            copy = tensor.detach().clone()
            work = self.reduce(copy, root, op, False)
            work.wait()
            if root == self.rank:
                mine = copy
        with torch.no_grad():
            out.detach().copy_(mine.view(out.shape))   # type: ignore[union-attr]
        return DoneWork(None, [out])

    # ---- moving ----
    def _check_root(self, name: str, root: int) -> None:
        if not 0 <= root < self.size:
            raise RuntimeError(f"ProcessGroup{self.name.capitalize()}::{name}: invalid root rank: {root}")

    def _dense(self, tensor: Tensor) -> Tensor:
        return tensor.detach() if tensor.is_contiguous() else tensor.detach().contiguous()

    def broadcast(self, tensor: Tensor, root: int, async_op: bool) -> Work:
        self._check_root("broadcast", root)
        call, data = self.call("broadcast", tensor), self._dense(tensor)
        after = self._put_back_plain(tensor, data) if self.rank != root else None
        return self._launch(call, self._broadcast(data, root), [tensor, data], after, [tensor], async_op)

    def _put_back_plain(self, tensor: Tensor, data: Tensor) -> After:
        if data.data_ptr() == tensor.data_ptr():
            return None
        return unflattened(data.view(-1), [tensor])

    def all_gather_into_tensor(self, out: Tensor, tensor: Tensor, async_op: bool) -> Work:
        if out.dtype != tensor.dtype:
            raise TypeError("output tensor must have the same type as input tensor")
        if out.numel() != tensor.numel() * self.size:
            raise ValueError("output tensor size must be equal to world_size times input tensor size")
        call, data = self.call("all_gather_into_tensor", tensor), self._dense(tensor)
        dense = out.detach() if out.is_contiguous() else torch.empty(out.shape, dtype=out.dtype, device=out.device)
        return self._launch(call, self._all_gather(dense, data), [out, dense, data], self._put_back_plain(out, dense), [out],
                            async_op)

    def all_gather(self, outs: list[Tensor], tensor: Tensor, async_op: bool) -> Work:
        self._check_list("allgather", "output", outs)
        if any(out.numel() != tensor.numel() for out in outs):
            return self._all_gather_uneven(outs, tensor, async_op)
        call, data, flat = self.call("all_gather", tensor), self._dense(tensor), neighbours(outs)
        after = None
        if flat is None:
            flat = flat_like(outs)
            after = unflattened(flat, outs)
        return self._launch(call, self._all_gather(flat, data), [*outs, flat, data], after, outs, async_op)

    def _all_gather_uneven(self, outs: list[Tensor], tensor: Tensor, async_op: bool) -> Work:
        if outs[self.rank].numel() != tensor.numel():
            index = next(i for i, out in enumerate(outs) if out.numel() != tensor.numel())
            raise RuntimeError(f"ProcessGroup{self.name.capitalize()}::allgather: invalid tensor size at index {index} (expected "
                               f"{tuple(tensor.shape)}, got {tuple(outs[index].shape)})".replace(",)", ")"))
        data, flat, n = self._dense(tensor).view(-1), flat_like(outs), tensor.numel()
        call, sent = self.call("all_gather", tensor), torch.cat([data] * self.size)
        start = self._all_to_all(flat, sent, [out.numel() for out in outs], [n] * self.size)
        return self._launch(call, start, [*outs, flat, sent], unflattened(flat, outs), outs, async_op)

    def _check_list(self, name: str, what: str, tensors: list[Tensor]) -> None:
        if len(tensors) != self.size:
            raise RuntimeError(f"ProcessGroup{self.name.capitalize()}::{name}: invalid {what} tensor list at index 0 "
                               f"(expected length {self.size}, got {len(tensors)})")

    def gather(self, outs: list[Tensor] | None, tensor: Tensor, root: int, async_op: bool) -> Work:
        self._check_root("gather", root)
        call, data = self.call("gather", tensor), self._dense(tensor)
        if self.rank != root or outs is None:
            return self._launch(call, self._gather(None, data, root), [data], None, [], async_op)
        self._check_list("gather", "output", outs)
        self._check_sizes("gather", outs, tensor)
        flat, after = neighbours(outs), None
        if flat is None:
            flat = flat_like(outs)
            after = unflattened(flat, outs)
        return self._launch(call, self._gather(flat, data, root), [*outs, flat, data], after, outs, async_op)

    def _check_sizes(self, name: str, tensors: list[Tensor], like: Tensor) -> None:
        for index, t in enumerate(tensors):
            if t.numel() != like.numel():
                raise RuntimeError(f"ProcessGroup{self.name.capitalize()}::{name}: invalid tensor size at index {index} "
                                   f"(expected {tuple(like.shape)}, got {tuple(t.shape)})".replace(",)", ")"))

    def scatter(self, out: Tensor, tensors: list[Tensor] | None, root: int, async_op: bool) -> Work:
        self._check_root("scatter", root)
        call = self.call("scatter", out)
        data = None
        if self.rank == root:
            assert tensors is not None
            self._check_list("scatter", "input", tensors)
            self._check_sizes("scatter", tensors, out)
            data = neighbours(tensors)
            data = flattened(tensors) if data is None else data
        dense = self._dense(out)
        keep = [out, dense] if data is None else [out, dense, data]
        return self._launch(call, self._scatter(dense, data, root), keep, self._put_back_plain(out, dense), [out], async_op)

    def all_to_all_single(self, out: Tensor, tensor: Tensor, out_splits: list[int] | None, in_splits: list[int] | None,
                          async_op: bool) -> Work:
        received, sent = self._split(out, out_splits), self._split(tensor, in_splits)
        call, data, dense = self.call("all_to_all_single", tensor), self._dense(tensor), self._dense(out)
        return self._launch(call, self._all_to_all(dense, data, received, sent), [out, dense, data],
                            self._put_back_plain(out, dense), [out], async_op)

    def _split(self, tensor: Tensor, splits: list[int] | None) -> list[int]:
        """How many elements go to or come from each rank."""
        length = tensor.shape[0] if tensor.dim() else 1
        row = math.prod(tensor.shape[1:])
        if not splits:
            if length % self.size:
                raise RuntimeError("Tensor's dim 0 does not divide equally across group size")
            return [length // self.size * row] * self.size
        if len(splits) != self.size:
            raise RuntimeError("Number of tensor splits not equal to group size")
        if sum(splits) != length:
            raise RuntimeError("Split sizes doesn't match total dim 0 size")
        return [int(part) * row for part in splits]

    def all_to_all(self, outs: list[Tensor], tensors: list[Tensor], async_op: bool) -> Work:
        for what, given in (("input", tensors), ("output", outs)):
            if len(given) != self.size:
                raise RuntimeError(f"ProcessGroup{self.name.capitalize()}::alltoall: {what} tensor list size {len(given)} does "
                                   f"not match world size {self.size}")
        call, data, flat = self.call("all_to_all", tensors[0]), flattened(tensors), flat_like(outs)
        start = self._all_to_all(flat, data, [t.numel() for t in outs], [t.numel() for t in tensors])
        return self._launch(call, start, [*outs, flat, data], unflattened(flat, outs), outs, async_op)

    def barrier(self, async_op: bool) -> Work:
        return self._launch(self.call("barrier", None), self._barrier(), [], None, [], async_op)
