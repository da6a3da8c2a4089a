"""Collectives that PyTorch's gloo does not have, and failures: cases for mindtorch_v2 alone, run as dist_cases.py is."""

from __future__ import annotations

import datetime
import os
import sys
import time
import warnings
import weakref
from typing import Any

import dist_cases
from dist_cases import World, case, failed

dist_cases.CASES.clear()


def say_over(w: World) -> None:
    open(f"{sys.argv[7]}.over.{w.rank}", "w").close()


def wait_until_over(w: World, rank: int) -> None:
    """This process stays while another rank is in a case: its end would be another failure than the one looked for."""
    while not os.path.exists(f"{sys.argv[7]}.over.{rank}"):
        time.sleep(0.01)


@case
def more_all_reduce(w: World) -> Any:
    premul, flags = w.mine(4), w.torch.tensor([w.rank == 0, False, True], device=w.device)
    w.dist.all_reduce(premul, w.dist._make_nccl_premul_sum(0.5))
    w.dist.all_reduce(flags)
    odd = w.mine(6, dtype="int16")[::2]
    w.dist.all_reduce(odd)
    return premul, flags, odd


@case
def more_gathers(w: World) -> Any:
    stacked = w.empty(w.size, 2)
    w.dist.all_gather_into_tensor(stacked, w.mine(2))
    uneven = [w.empty(rank + 1) for rank in range(w.size)]
    w.dist.all_gather(uneven, w.mine(w.rank + 1))
    mean = w.empty(2)
    w.dist.reduce_scatter_tensor(mean, w.mine(2 * w.size), w.dist.ReduceOp.AVG)
    part = w.empty(w.rank + 1)
    w.dist.reduce_scatter(part, [w.mine(rank + 1) for rank in range(w.size)])
    swapped = [w.empty(w.rank + 1) for _ in range(w.size)]
    w.dist.all_to_all(swapped, [w.mine(rank + 1) for rank in range(w.size)])
    return stacked, uneven, mean, part, swapped


@case
def coalesced(w: World) -> Any:
    tensors = [w.mine(3) + i for i in range(3)]
    with w.dist._coalescing_manager() as manager:
        for t in tensors:
            assert w.dist.all_reduce(t) is None
    later = [w.mine(2)]
    with w.dist._coalescing_manager(async_ops=True) as manager:
        w.dist.all_reduce(later[0])
    manager.wait()
    w.dist.all_reduce_coalesced(tensors)
    return tensors, later


@case
def split(w: World) -> Any:
    half = w.dist.split_group(split_ranks=[list(range(w.size // 2)), list(range(w.size // 2, w.size))])
    t = w.mine(2)
    w.dist.all_reduce(t, group=half)
    only = w.dist.new_group([0])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        w.dist.all_reduce(w.mine(1), group=only)
    w.dist.destroy_process_group(half)
    return t, [str(one.message) for one in told], w.dist.get_rank(only)


@case
def object_messages(w: World) -> Any:
    if w.rank == 0:
        w.dist.send_object_list([{"a": 1}, "text"], dst=1)
    elif w.rank == 1:
        got: list[Any] = [None, None]
        return w.dist.recv_object_list(got, src=0), got
    return None


@case
def from_any(w: World) -> Any:
    if w.rank == 0:
        got = [w.empty(1) for _ in range(w.size - 1)]
        sources = [w.dist.recv(t) for t in got]
        return sorted(sources), sorted(float(t) for t in got)
    w.dist.send(w.tensor([10.0 * w.rank]), 0)
    return None


@case
def monitored(w: World) -> Any:
    w.dist.monitored_barrier(timeout=datetime.timedelta(seconds=600))
    if w.rank:
        return wait_until_over(w, 0)
    try:
        w.dist.monitored_barrier(timeout=datetime.timedelta(seconds=0.3))
    except RuntimeError as error:
        return str(error)
    finally:
        say_over(w)


@case
def again(w: World) -> Any:
    """The default group ends and is made again."""
    w.dist.destroy_process_group()
    os.environ.update(RANK=str(w.rank), WORLD_SIZE=str(w.size))
    store = w.dist.FileStore(sys.argv[6] + ".again", w.size)
    w.dist.init_process_group(sys.argv[2], store=store, rank=w.rank, world_size=w.size)
    t = w.mine(3)
    w.dist.all_reduce(t)
    return t


@case
def mesh(w: World) -> Any:
    table = w.dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    rows, columns = w.mine(3), w.mine(3)
    w.dist.all_reduce(rows, group=table["tp"].get_group())
    w.dist.all_reduce(columns, group=table.get_group("dp"))
    return rows, columns, table.get_coordinate(), table._flatten().mesh


@case
def mesh_moves(w: World) -> Any:
    """Tensors that both dimensions of a mesh cut, from every pair of placements to every other: what came out wrong."""
    t, table = w.dist.tensor, w.dist.init_device_mesh("cpu", (2, 2))
    places = [t.Shard(0), t.Shard(1), t.Replicate()]
    pairs, wrong = [[a, b] for a in places for b in places], []
    for shape in ((8, 4), (5, 3)):
        x = w.torch.arange(float(shape[0] * shape[1])).view(shape)
        if shape[0] == 8:
            pairs.append([t._StridedShard(0, split_factor=2), t.Shard(0)])
        for before in pairs:
            one = t.distribute_tensor(x, table, before)
            for after in pairs:
                if not one.redistribute(placements=after).full_tensor().equal(x):
                    wrong.append(f"{shape} {before} {after}")
            for a, b in ((one @ one.t(), x @ x.t()), (one.softmax(0), x.softmax(0)), (one.sum(0), x.sum(0))):
                if not w.torch.allclose(a.full_tensor(), b):
                    wrong.append(f"{shape} {before} op")
        pairs = pairs[:9]
    strided = t.distribute_tensor(w.torch.arange(8.0), table, [t._StridedShard(0, split_factor=2), t.Shard(0)])
    return wrong, strided.to_local(), (strided + strided).to_local()


@case
def captured(w: World) -> Any:
    """Collectives that a graph has recorded, on the current stream and on their own, replayed with other values."""
    x, out, found = w.mine(2), w.empty(2 * w.size), []
    w.dist.all_reduce(x.clone())                  # the communicator is made before, on another stream
    w.torch.npu.synchronize()
    graph = w.torch.npu.NPUGraph()
    with w.torch.npu.graph(graph):
        total = x * 2
        w.dist.all_reduce(total)
        work = w.dist.all_gather_into_tensor(out, x, async_op=True)
        work.wait()
        total += 1
    for step in range(2):
        x.fill_(w.rank + 1 + step)
        graph.replay()
        found.append((total.tolist(), out.tolist()))
    y = w.mine(2)
    w.dist.all_reduce(y)
    return found, y


@case
def reductions_of_hccl(w: World) -> Any:
    """Bits are refused with torch_npu's words, and a mean of integers is rounded towards zero, as there."""
    told = []
    for name in ("BAND", "BOR", "BXOR"):
        for dtype in ("int32", "float32", "bool"):
            try:
                w.dist.all_reduce(w.torch.ones(2, device=w.device, dtype=getattr(w.torch, dtype)), w.dist.ReduceOp.__dict__[name])
            except RuntimeError as error:
                told.append(str(error))
    mean = w.torch.tensor([1 + w.rank, -1 - w.rank, -3 * w.rank, 7], device=w.device)
    part = w.torch.empty(2, dtype=w.torch.int64, device=w.device)
    w.dist.reduce_scatter_tensor(part, mean, w.dist.ReduceOp.AVG)
    w.dist.all_reduce(mean, w.dist.ReduceOp.AVG)
    return told, mean, part


@case
def queued(w: World) -> Any:
    """Collectives in turn on the current stream, on their own and on another one: the records of few are left, and none keeps
    its tensor or an event."""
    queue, other = w.dist.group.WORLD._engines["npu"].queue, w.torch.npu.Stream()
    x = w.torch.ones(2, 2, device=w.device)
    for _ in range(20):
        w.dist.all_reduce(x)
        w.dist.all_reduce(x, w.dist.ReduceOp.MAX, async_op=True).wait()
        other.wait_stream(w.torch.npu.current_stream())
        with w.torch.npu.stream(other):
            x /= w.size
            work = w.dist.broadcast(x, 0, async_op=True)
            work.wait()
        w.torch.npu.current_stream().wait_stream(other)
    spare, began = [], queue.sequence
    for _ in range(100):
        y = w.torch.ones(3, device=w.device)
        w.dist.all_reduce(y)
        spare.append(weakref.ref(y))
    del y
    w.torch.npu.synchronize()
    alive, said = [ref for ref in spare if ref() is not None], str(work.record)
    events = len(w.torch.npu._hccl.runtime.get_runtime(w.rank).made_events)
    return x, len(queue.left()), queue.sequence - began, len(alive), said, work.result()[0] is x, events < 200


# ---- what must fail, as the last case of a run --------------------------------------------------------------------
@case
def _killed(w: World) -> Any:
    w.dist.all_reduce(w.mine(1))
    w.dist.barrier()
    if w.rank == w.size - 1:
        os.kill(os.getpid(), 9)
    t = w.mine(100)
    w.dist.all_reduce(t)
    return t.cpu()                                # an npu tells it when the host waits


def hurried(w: World) -> Any:
    w.dist.barrier()                              # all are there: what is late later is late on purpose
    return w.dist.new_group(timeout=datetime.timedelta(seconds=1.5))


@case
def _late(w: World) -> Any:
    group = hurried(w)
    if w.rank == w.size - 1:
        return wait_until_over(w, 0)
    try:
        return w.dist.all_reduce(w.mine(4), group=group)
    finally:
        say_over(w)


@case
def _stalled(w: World) -> Any:
    """A rank that was there and then does something else: the device waits, and the host for the device."""
    group = hurried(w)
    for _ in range(100):                          # more than the watchdog queues without a query
        w.dist.all_reduce(w.mine(1), group=group)
    if w.rank == w.size - 1:
        return wait_until_over(w, 0)
    t = w.mine(4)
    try:
        w.dist.all_reduce(t, group=group)
        return t.cpu()
    finally:
        say_over(w)


@case
def _killed_before_barrier(w: World) -> Any:
    w.dist.all_reduce(w.mine(1))
    if w.rank == w.size - 1:
        if w.device != "cpu":
            w.torch.npu.synchronize()             # what it has sent must not be lost with it
        os.kill(os.getpid(), 9)
    w.dist.barrier()


@case
def _killed_before_new_group(w: World) -> Any:
    w.dist.barrier()
    if w.rank == w.size - 1:
        os.kill(os.getpid(), 9)
    w.dist.new_group([w.size - 1, 0])


@case
def _killed_before_monitored(w: World) -> Any:
    w.dist.barrier()
    if w.rank == w.size - 1:
        os.kill(os.getpid(), 9)
    w.dist.monitored_barrier(timeout=datetime.timedelta(seconds=1))


@case
def _killed_while_connecting(w: World) -> Any:
    """A rank that has come to the store, but not to the engine."""
    if w.rank == w.size - 1:
        w.torch.npu._hccl.Communicator = lambda *_: os.kill(os.getpid(), 9)
    w.dist.all_reduce(w.mine(4))


@case
def _waits_on_the_host(w: World) -> Any:
    """HCCL_BLOCKING_WAIT=1: the call itself fails, not a later one."""
    w.dist.all_reduce(w.mine(1))
    if w.rank == w.size - 1:
        os.kill(os.getpid(), 9)
    w.dist.all_reduce(w.mine(4))


@case
def _another_collective(w: World) -> Any:
    group = hurried(w)
    try:
        if w.rank == 0:
            w.dist.all_reduce(w.mine(4), group=group)
        else:
            w.dist.recv(w.empty(4), 0, group)
    finally:
        say_over(w)
        wait_until_over(w, 1 - w.rank)


@case
def _aborted(w: World) -> Any:
    """A rank that waits for one that will not come, and another of its threads that gives up."""
    import threading

    group = w.dist.new_group()
    w.dist.all_reduce(w.mine(1), group=group)
    w.dist.barrier()
    if w.rank == w.size - 1:
        return wait_until_over(w, 0)
    work = w.dist.all_reduce(w.mine(4), group=group, async_op=True)
    abort = threading.Timer(0.5, group.abort)
    abort.start()
    try:
        work.wait()
        abort.join()
        w.dist.all_reduce(w.mine(4), group=group)  # where the wait is a stream's, the next call raises
    finally:
        say_over(w)


def expect_failure(name: str) -> None:
    dist_cases.CASES[name] = lambda w: failed(w, "_" + name)


for _name in [name for name in dist_cases.CASES if name.startswith("_")]:
    expect_failure(_name[1:])


if __name__ == "__main__":
    dist_cases.run(sys.argv[1:])
