"""The collectives of torch.distributed: arguments checked as torch does, then given to the engine of the tensor's device."""
from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed._errors import DistError, DistStoreError
from mindtorch_v2.distributed._process_group import ProcessGroup
from mindtorch_v2.distributed._work import ManyWorks, ReduceOp, Work
from mindtorch_v2.distributed._world import (
    GroupMember,
    _get_default_group,
    _rank_not_in_group,
    _resolve,
    _warn_not_in_group,
    get_global_rank,
    get_group_rank,
)

Tensor = Any


def _check_single_tensor(param: Any, param_name: str) -> None:
    if not isinstance(param, torch.Tensor):
        raise TypeError(f"Invalid function argument. Expected parameter `{param_name}` of type torch.Tensor\n"
                        f"             but got {type(param)} instead.")


def _check_tensor_list(param: Any, param_name: str) -> None:
    if not isinstance(param, list):
        raise TypeError(f"Invalid function argument. Expected parameter `{param_name}` of type List[torch.Tensor]\n"
                        f"             but got {type(param)} instead.")
    for p in param:
        if not isinstance(p, torch.Tensor):
            raise TypeError(f"Invalid function argument. Expected parameter `{param_name}` of type List[torch.Tensor]\n"
                            f"             but got {type(param)} with elements of type {type(p)}.")


def _same_dtype(*given: Any) -> None:
    flat = [t for part in given for t in (part if isinstance(part, list | tuple) else [part])]
    for t in flat:
        if t.dtype != flat[0].dtype:
            raise ValueError(f"Invalid usage of tensors with different dtypesFound {flat[0].dtype} and  {t.dtype}")


def group_rank(pg: ProcessGroup, rank: int | None, in_group: int | None, needed: bool = True) -> int:
    """The rank in the group of what was given as a rank of the world (src) or of the group (group_src)."""
    if rank is not None and in_group is not None:
        raise ValueError("Can't specify both group_rank and global_rank")
    if in_group is not None:
        return in_group
    if rank is None:
        if needed:
            raise ValueError("Must specify global_rank or group_rank")
        return 0
    return rank if pg is GroupMember.WORLD else get_group_rank(pg, rank)


def _member(group: Any, name: str) -> ProcessGroup | None:
    """The group that a user means; None, with a warning, where this rank is not in it."""
    if group is None:
        return _get_default_group()
    if isinstance(group, ProcessGroup):
        return group
    if _rank_not_in_group(group):
        _warn_not_in_group(name, 4)
        return None
    return _resolve(group)


def _done(pg: ProcessGroup, work: Work, async_op: bool) -> Work | None:
    """What a collective returns: it is waited for unless it is async or part of a coalesced call."""
    if pg._coalesced is not None:
        pg._coalesced.append(work)
        return None
    if async_op:
        return work
    work.wait()
    return None


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """Combines the tensors of all ranks; every rank gets the result."""
    _check_single_tensor(tensor, "tensor")
    pg = _member(group, "all_reduce")
    if pg is None:
        return None
    later = async_op or pg._coalesced is not None
    return _done(pg, pg._engine_of(tensor).all_reduce(tensor, op, later), async_op)


def broadcast(tensor: Tensor, src: int | None = None, group: Any = None, async_op: bool = False,
              group_src: int | None = None) -> Work | None:
    """Every rank gets the tensor of one."""
    _check_single_tensor(tensor, "tensor")
    pg = _member(group, "broadcast")
    if pg is None:
        return None
    root = group_rank(pg, src, group_src)
    later = async_op or pg._coalesced is not None
    return _done(pg, pg._engine_of(tensor).broadcast(tensor, root, later), async_op)


def reduce(tensor: Tensor, dst: int | None = None, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False,
           group_dst: int | None = None) -> Work | None:
    """Combines the tensors of all ranks; one rank gets the result."""
    _check_single_tensor(tensor, "tensor")
    pg = _member(group, "reduce")
    if pg is None:
        return None
    root = group_rank(pg, dst, group_dst)
    later = async_op or pg._coalesced is not None
    return _done(pg, pg._engine_of(tensor).reduce(tensor, root, op, later), async_op)


def all_gather(tensor_list: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    """Every rank gets the tensors of all, in a list."""
    _check_tensor_list(tensor_list, "tensor_list")
    _check_single_tensor(tensor, "tensor")
    _same_dtype(tensor_list, tensor)
    pg = _member(group, "all_gather")
    if pg is None:
        return None
    later = async_op or pg._coalesced is not None
    return _done(pg, pg._engine_of(tensor).all_gather(tensor_list, tensor, later), async_op)


def all_gather_into_tensor(output_tensor: Tensor, input_tensor: Tensor, group: Any = None,
                           async_op: bool = False) -> Work | None:
    """Every rank gets the tensors of all, one behind the other in one tensor."""
    _check_single_tensor(input_tensor, "input_tensor")
    _check_single_tensor(output_tensor, "output_tensor")
    pg = _member(group, "all_gather_into_tensor")
    if pg is None:
        return None
    later = async_op or pg._coalesced is not None
    return _done(pg, pg._engine_of(input_tensor).all_gather_into_tensor(output_tensor, input_tensor, later), async_op)


def _check_root_list(tensors: list[Tensor] | None, name: str, role: str, is_root: bool) -> None:
    """The root gives the list of tensors, the other ranks give none."""
    if is_root and not tensors:
        raise ValueError(f"Argument ``{name}`` must be specified on {role} rank.")
    if not is_root and tensors:
        raise ValueError(f"Argument ``{name}`` must NOT be specified on non-{role} ranks.")


def gather(tensor: Tensor, gather_list: list[Tensor] | None = None, dst: int | None = None, group: Any = None,
           async_op: bool = False, group_dst: int | None = None) -> Work | None:
    """One rank gets the tensors of all."""
    _check_single_tensor(tensor, "tensor")
    if gather_list:
        _check_tensor_list(gather_list, "gather_list")
        _same_dtype(tensor, gather_list)
    pg = _member(group, "gather")
    if pg is None:
        return None
    root = group_rank(pg, dst, group_dst, needed=False)
    _check_root_list(gather_list, "gather_list", "destination", pg.rank() == root)
    later = async_op or pg._coalesced is not None
    return _done(pg, pg._engine_of(tensor).gather(gather_list, tensor, root, later), async_op)


def scatter(tensor: Tensor, scatter_list: list[Tensor] | None = None, src: int | None = None, group: Any = None,
            async_op: bool = False, group_src: int | None = None) -> Work | None:
    """Every rank gets its tensor of one rank's list."""
    _check_single_tensor(tensor, "tensor")
    if scatter_list:
        _check_tensor_list(scatter_list, "scatter_list")
        _same_dtype(tensor, scatter_list)
    pg = _member(group, "scatter")
    if pg is None:
        return None
    root = group_rank(pg, src, group_src, needed=False)
    _check_root_list(scatter_list, "scatter_list", "source", pg.rank() == root)
    later = async_op or pg._coalesced is not None
    return _done(pg, pg._engine_of(tensor).scatter(tensor, scatter_list, root, later), async_op)


def reduce_scatter(output: Tensor, input_list: list[Tensor], op: Any = ReduceOp.SUM, group: Any = None,
                   async_op: bool = False) -> Work | None:
    """Combines the lists of all ranks item by item; a rank gets the item of its number."""
    _check_single_tensor(output, "output")
    _check_tensor_list(input_list, "input_list")
    _same_dtype(output, input_list)
    pg = _member(group, "reduce_scatter")
    if pg is None:
        return None
    later = async_op or pg._coalesced is not None
    return _done(pg, pg._engine_of(output).reduce_scatter(output, input_list, op, later), async_op)


def reduce_scatter_tensor(output: Tensor, input: Tensor, op: Any = ReduceOp.SUM, group: Any = None,
                          async_op: bool = False) -> Work | None:
    """Combines the tensors of all ranks; a rank gets its part of the result."""
    _check_single_tensor(output, "output")
    _check_single_tensor(input, "input")
    pg = _member(group, "reduce_scatter_tensor")
    if pg is None:
        return None
    later = async_op or pg._coalesced is not None
    return _done(pg, pg._engine_of(output).reduce_scatter_tensor(output, input, op, later), async_op)


def all_to_all_single(output: Tensor, input: Tensor, output_split_sizes: list[int] | None = None,
                      input_split_sizes: list[int] | None = None, group: Any = None, async_op: bool = False) -> Work | None:
    """Every rank sends each rank a part of its tensor."""
    _check_single_tensor(output, "output")
    _check_single_tensor(input, "input")
    _same_dtype(output, input)
    pg = _member(group, "all_to_all_single")
    if pg is None:
        return None
    later = async_op or pg._coalesced is not None
    return _done(pg, pg._engine_of(input).all_to_all_single(output, input, output_split_sizes, input_split_sizes, later), async_op)


def all_to_all(output_tensor_list: list[Tensor], input_tensor_list: list[Tensor], group: Any = None,
               async_op: bool = False) -> Work | None:
    """Every rank sends each rank a tensor of its list."""
    _check_tensor_list(output_tensor_list, "output_tensor_list")
    _check_tensor_list(input_tensor_list, "input_tensor_list")
    _same_dtype(output_tensor_list, input_tensor_list)
    pg = _member(group, "all_to_all")
    if pg is None:
        return None
    engine = pg._engine_of(input_tensor_list[0]) if input_tensor_list else pg._engine("cpu")
    later = async_op or pg._coalesced is not None
    return _done(pg, engine.all_to_all(output_tensor_list, input_tensor_list, later), async_op)


def barrier(group: Any = None, async_op: bool = False, device_ids: list[int] | None = None) -> Work | None:
    """Waits until all ranks have come here."""
    pg = _member(group, "barrier")
    if pg is None:
        return None
    if device_ids is not None and not isinstance(device_ids, list):
        raise TypeError("Invalid function argument: device_ids type should be List[int]")
    work = pg._any_engine().barrier(async_op)
    if async_op:
        return work
    work.wait()
    return None


def monitored_barrier(group: Any = None, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
    """A barrier that says which rank did not come; it goes through the store, so it works where the engine is stuck."""
    if _rank_not_in_group(group):
        return _warn_not_in_group("monitored_barrier")
    pg = _resolve(group)
    if "cpu" not in pg._engines:
        raise ValueError("monitored_barrier is only implemented for GLOO backend.")
    limit = timeout or pg._timeout
    milliseconds = int(limit.total_seconds() * 1000)
    pg._monitored = getattr(pg, "_monitored", 0) + 1   # type: ignore[attr-defined]
    store, key = pg._store, f"monitored/{pg._monitored}"   # type: ignore[attr-defined]
    if pg.rank():
        store.set(f"{key}/{pg.rank()}", b"1")
        try:
            store.wait([f"{key}/go"], limit)
        except DistError as error:
            raise RuntimeError(f"Rank {pg.rank()} successfully reached monitoredBarrier, but received errors while waiting for "
                               f"send/recv from rank 0. Please check rank 0 logs for faulty rank. {error}") from error
        return None
    deadline, missing = time.monotonic() + limit.total_seconds(), []
    for rank in range(1, pg.size()):
        try:
            store.wait([f"{key}/{rank}"], timedelta(seconds=max(deadline - time.monotonic(), 0.001)))
        except DistStoreError:
            missing.append(rank)
            if not wait_all_ranks:
                raise RuntimeError(f"[Rank 0]: Rank {rank} failed to pass monitoredBarrier in {milliseconds} ms") from None
    if missing:
        raise RuntimeError(f"[Rank 0]: Ranks {', '.join(map(str, missing))} failed to pass monitoredBarrier in {milliseconds} ms")
    store.set(f"{key}/go", b"1")
    return None


# ---- point to point ---------------------------------------------------------------------------------------------------
def isend(tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> Any:
    """Starts to send a tensor to a rank."""
    return _send(tensor, dst, group, tag, group_dst, True, "isend")


def send(tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> None:
    """Sends a tensor to a rank."""
    work = _send(tensor, dst, group, tag, group_dst, False, "send")
    if work is not None:
        work.wait()


def _send(tensor: Tensor, dst: int | None, group: Any, tag: int, group_dst: int | None, async_op: bool,
          name: str) -> Work | None:
    _check_single_tensor(tensor, "tensor")
    if _rank_not_in_group(group):
        _warn_not_in_group(name)
        return None
    pg = _resolve(group)
    to = group_rank(pg, dst, group_dst)
    if to == pg.rank():
        raise ValueError("Invalid destination rank: destination rank should not be the same as the rank of the current process.")
    _check_peer(pg, to)
    return pg._engine_of(tensor).send(tensor, to, tag, async_op)


def _check_peer(pg: ProcessGroup, peer: int) -> None:
    if not 0 <= peer < pg.size():
        raise ValueError(f"Invalid rank {peer}: the group has ranks 0 to {pg.size() - 1}")


def irecv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> Any:
    """Starts to receive a tensor from a rank; from any where none is given."""
    _check_single_tensor(tensor, "tensor")
    if _rank_not_in_group(group):
        return _warn_not_in_group("irecv")
    pg = _resolve(group)
    return _recv(pg, tensor, src, tag, group_src, True)


def _recv(pg: ProcessGroup, tensor: Tensor, src: int | None, tag: int, group_src: int | None, async_op: bool) -> Work:
    source = None
    if src is not None or group_src is not None:
        source = group_rank(pg, src, group_src)
        if source == pg.rank():
            raise ValueError("Invalid source rank: source rank should not be the same as the rank of the current process.")
        _check_peer(pg, source)
    return pg._engine_of(tensor).recv(tensor, source, tag, async_op)


def recv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> int:
    """Receives a tensor; returns the sender's rank in the world, -1 where this rank is not in the group."""
    _check_single_tensor(tensor, "tensor")
    if _rank_not_in_group(group):
        _warn_not_in_group("recv")
        return -1
    pg = _resolve(group)
    work = _recv(pg, tensor, src, tag, group_src, False)
    work.wait()
    if src is None and group_src is None:
        return get_global_rank(pg, work.source_rank())
    return src if src is not None else get_global_rank(pg, group_src)   # type: ignore[arg-type]


class P2POp:
    """One isend or irecv of batch_isend_irecv."""

    def __init__(self, op: Callable[..., Any], tensor: Tensor, peer: int | None = None, group: Any = None, tag: int = 0,
                 group_peer: int | None = None) -> None:
        if op not in (isend, irecv):
            raise ValueError("Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or "
                             "``torch.distributed.irecv``.")
        _check_single_tensor(tensor, "tensor")
        self.op, self.tensor, self.tag = op, tensor, tag
        self.group = _resolve(group)
        self.group_peer = group_rank(self.group, peer, group_peer)
        self.peer = get_global_rank(self.group, self.group_peer)

    def __repr__(self) -> str:
        return f"P2POp({self.op.__name__} pg={self.group.group_name}, peer={self.peer}, {tuple(self.tensor.shape)})"


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Work]:
    """Starts sends and receives that may depend on each other, all at once."""
    if not all(isinstance(op, P2POp) for op in p2p_op_list):
        raise ValueError("Invalid ``p2p_op_list``. Each op is expected to to be of type ``torch.distributed.P2POp``.")
    pg, device = p2p_op_list[0].group, p2p_op_list[0].tensor.device
    if any(op.group is not pg for op in p2p_op_list):
        raise ValueError("All ops need to use the same group.")
    engine = pg._engine(device.type)
    batch = getattr(engine, "batch", None)
    if batch is not None:
        return [batch([(op.op is isend, op.tensor, op.group_peer) for op in p2p_op_list])]
    return [op.op(op.tensor, group=op.group, tag=op.tag, **{"group_dst" if op.op is isend else "group_src": op.group_peer})
            for op in p2p_op_list]


# ---- several at once --------------------------------------------------------------------------------------------------
class _CoalescingManager:
    """What _coalescing_manager gives: the works of the calls inside it."""

    def __init__(self) -> None:
        self.works: list[Work] = []

    def append(self, work: Work | None = None) -> None:
        if work is not None:
            self.works.append(work)

    def wait(self) -> None:
        for work in self.works:
            work.wait()


@contextmanager
def _coalescing_manager(group: Any = None, device: Any = None, async_ops: bool = False) -> Iterator[_CoalescingManager]:
    """Collectives inside run together; they are waited for at the end, or by the manager's wait() where async_ops is set."""
    pg = _resolve(group)
    if pg._coalesced:
        raise ValueError("ProcessGroup has non-empty op list at the start of coalescing")
    pg._coalesced, manager = [], _CoalescingManager()
    try:
        yield manager
    finally:
        works, pg._coalesced = pg._coalesced, None
    if works:
        manager.append(ManyWorks(works))
    if not async_ops:
        manager.wait()


def all_reduce_coalesced(tensors: list[Tensor], op: Any = ReduceOp.SUM, group: Any = None,
                         async_op: bool = False) -> Work | None:
    """all_reduce of several tensors."""
    _check_tensor_list(tensors, "tensor")
    _same_dtype(tensors)
    pg = _member(group, "all_reduce_coalesced")
    if pg is None:
        return None
    work = ManyWorks([pg._engine_of(t).all_reduce(t, op, True) for t in tensors])
    return work if async_op else (work.wait(), None)[1]


def all_gather_coalesced(output_tensor_lists: list[list[Tensor]], input_tensor_list: list[Tensor], group: Any = None,
                         async_op: bool = False) -> Work | None:
    """all_gather of several tensors; output_tensor_lists has a list for each rank."""
    pg = _member(group, "all_gather_coalesced")
    if pg is None:
        return None
    _check_tensor_list(input_tensor_list, "input_tensor_list")
    works = [pg._engine_of(t).all_gather([outs[i] for outs in output_tensor_lists], t, True)
             for i, t in enumerate(input_tensor_list)]
    work = ManyWorks(works)
    return work if async_op else (work.wait(), None)[1]


all_gather_single, reduce_scatter_single = all_gather_into_tensor, reduce_scatter_tensor   # their newer names


def _all_gather_base(output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    """The old name of all_gather_into_tensor."""
    warnings.warn("torch.distributed._all_gather_base is a private function and will be deprecated. Please use "
                  "torch.distributed.all_gather_into_tensor instead.", FutureWarning, stacklevel=2)
    return all_gather_into_tensor(output_tensor, input_tensor, group, async_op)


def _reduce_scatter_base(output: Tensor, input: Tensor, op: Any = ReduceOp.SUM, group: Any = None,
                         async_op: bool = False) -> Work | None:
    """The old name of reduce_scatter_tensor."""
    warnings.warn("torch.distributed._reduce_scatter_base is a private function and will be deprecated. Please use "
                  "torch.distributed.reduce_scatter_tensor instead.", FutureWarning, stacklevel=2)
    return reduce_scatter_tensor(output, input, op, group, async_op)
