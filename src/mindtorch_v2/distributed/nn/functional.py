"""torch.distributed.nn.functional: each collective as a function of tensors; its backward is another collective."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed import _collectives as c
from mindtorch_v2.distributed._work import ReduceOp
from mindtorch_v2.distributed._world import _resolve, get_global_rank

Tensor = Any


def _root(group: Any, rank: int) -> tuple[Any, int]:
    """(group, rank in it) of a rank of the world."""
    pg = _resolve(group)
    return pg, c.group_rank(pg, rank, None)


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, src: int, group: Any) -> Tensor:
        ctx.pg, ctx.root = _root(group, src)
        out = tensor.detach().clone()
        c.broadcast(out, group=ctx.pg, group_src=ctx.root)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        grad = grad.contiguous().clone()
        c.reduce(grad, group=ctx.pg, group_dst=ctx.root)
        return grad if ctx.pg.rank() == ctx.root else torch.zeros_like(grad), None, None


class _Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, dst: int, op: Any, group: Any) -> Tensor:
        ctx.pg, ctx.root = _root(group, dst)
        out = tensor.detach().clone()
        c.reduce(out, op=op, group=ctx.pg, group_dst=ctx.root)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        grad = grad.contiguous().clone()
        c.broadcast(grad, group=ctx.pg, group_src=ctx.root)
        return grad, None, None, None


class _AllReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, op: Any, group: Any) -> Tensor:
        ctx.reduction, ctx.group = op, group
        out = tensor.detach().clone(memory_format=torch.contiguous_format)
        c.all_reduce(out, op, group)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _AllReduce.apply(grad, ctx.reduction, ctx.group), None, None


class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: Any) -> Any:
        ctx.pg = _resolve(group)
        tensor = tensor.detach().contiguous()
        outs = [torch.empty_like(tensor) for _ in range(ctx.pg.size())]
        c.all_gather(outs, tensor, ctx.pg)
        return tuple(outs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        mine = torch.empty_like(grads[ctx.pg.rank()])
        c.reduce_scatter(mine, [grad.contiguous() for grad in grads], ReduceOp.SUM, ctx.pg)
        return mine, None


class _ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, out: Tensor, op: Any, group: Any, *tensors: Tensor) -> Tensor:
        ctx.pg = _resolve(group)
        c.reduce_scatter(out, [t.detach().contiguous() for t in tensors], op, ctx.pg)
        ctx.mark_dirty(out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return (None, None, None, *_AllGather.apply(grad, ctx.pg))


class _AllToAllSingle(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, out: Tensor, out_splits: Any, in_splits: Any, group: Any, tensor: Tensor) -> Tensor:
        ctx.group, ctx.shape, ctx.splits = group, tensor.shape, (in_splits, out_splits)
        c.all_to_all_single(out, tensor.detach().contiguous(), out_splits, in_splits, group)
        ctx.mark_dirty(out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        back = torch.empty(ctx.shape, dtype=grad.dtype, device=grad.device)
        return None, None, None, None, _AllToAllSingle.apply(back, *ctx.splits, ctx.group, grad.contiguous())


class _AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, group: Any, outs: list[Tensor], *tensors: Tensor) -> Any:
        ctx.group, ctx.shapes = group, [t.shape for t in tensors]
        c.all_to_all(outs, [t.detach().contiguous() for t in tensors], group)
        return tuple(outs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        back = [torch.empty(shape, dtype=grads[0].dtype, device=grads[0].device) for shape in ctx.shapes]
        return None, None, *_AllToAll.apply(ctx.group, back, *(grad.contiguous() for grad in grads))


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dst: int, group: Any, tensor: Tensor) -> Any:
        ctx.pg, ctx.root = _root(group, dst)
        tensor = tensor.detach().contiguous()
        outs = [torch.zeros_like(tensor) for _ in range(ctx.pg.size())]
        c.gather(tensor, outs if ctx.pg.rank() == ctx.root else None, group=ctx.pg, group_dst=ctx.root)
        return tuple(outs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        mine = torch.empty_like(grads[0])
        c.scatter(mine, [g.contiguous() for g in grads] if ctx.pg.rank() == ctx.root else None, group=ctx.pg,
                  group_src=ctx.root)
        return None, None, mine


class _Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, src: int, group: Any, *tensors: Tensor) -> Tensor:
        ctx.pg, ctx.root = _root(group, src)
        out = torch.zeros_like(tensors[0])
        given = [t.detach().contiguous() for t in tensors] if ctx.pg.rank() == ctx.root else None
        c.scatter(out, given, group=ctx.pg, group_src=ctx.root)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return (None, None, *_Gather.apply(get_global_rank(ctx.pg, ctx.root), ctx.pg, grad))


def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
    """Every rank's result is the tensor of one."""
    return _Broadcast.apply(tensor, src, group)


def reduce(tensor: Tensor, dst: int, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    return _Reduce.apply(tensor, dst, op, group)


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    return _AllReduce.apply(tensor, op, group)


def all_gather(tensor: Tensor, group: Any = None) -> tuple[Tensor, ...]:
    return _AllGather.apply(tensor, group)


def gather(tensor: Tensor, dst: int = 0, group: Any = None) -> tuple[Tensor, ...]:
    return _Gather.apply(dst, group, tensor)


def scatter(tensors: list[Tensor], src: int = 0, group: Any = None) -> Tensor:
    return _Scatter.apply(src, group, *tensors)


def reduce_scatter(output: Tensor, input_list: list[Tensor], op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    return _ReduceScatter.apply(output, op, group, *input_list)


def all_to_all(output_tensor_list: list[Tensor], input_tensor_list: list[Tensor], group: Any = None) -> tuple[Tensor, ...]:
    return _AllToAll.apply(group, output_tensor_list, *input_tensor_list)


def all_to_all_single(output: Tensor, input: Tensor, output_split_sizes: list[int] | None = None,
                      input_split_sizes: list[int] | None = None, group: Any = None) -> Tensor:
    return _AllToAllSingle.apply(output, output_split_sizes, input_split_sizes, group, input)
