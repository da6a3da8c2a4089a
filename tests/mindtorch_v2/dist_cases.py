"""Collectives as programs that run unchanged on mindtorch_v2 and on PyTorch: every case returns numbers of its rank.

    python dist_cases.py LIBRARY BACKEND DEVICE RANK SIZE STORE OUT SECONDS [CASE…]
"""

from __future__ import annotations

import datetime
import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

CASES: dict[str, Callable[..., Any]] = {}
DTYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "int8", "uint8")


def case(function: Callable[..., Any]) -> Callable[..., Any]:
    CASES[function.__name__] = function
    return function


class World:
    """What a case needs: the library, its torch.distributed, who we are and where tensors live."""

    def __init__(self, torch: Any, rank: int, size: int, device: str) -> None:
        self.torch, self.dist, self.rank, self.size, self.device = torch, torch.distributed, rank, size, device

    def tensor(self, values: Any, dtype: str = "float32") -> Any:
        return self.torch.tensor(values, device=self.device).to(getattr(self.torch, dtype))

    def mine(self, *shape: int, dtype: str = "float32") -> Any:
        """Small whole numbers that differ by rank and place: exact in every dtype."""
        count = 1
        for n in shape:
            count *= n
        return ((self.torch.arange(count) * (self.rank + 1) + self.rank) % 5 + 1).view(*shape).to(getattr(self.torch, dtype)).to(self.device)

    def empty(self, *shape: int, dtype: str = "float32") -> Any:
        return self.torch.zeros(*shape, dtype=getattr(self.torch, dtype), device=self.device)


def failed(world: World, name: str) -> dict[str, Any]:
    """What a case that must fail says."""
    try:
        CASES[name](world)
    except Exception as error:
        return {"error": [type(error).__name__, str(error)]}
    return {"error": None}


def numbers(value: Any) -> Any:
    """Tensors as lists."""
    if isinstance(value, (list, tuple)):
        return [numbers(v) for v in value]
    if isinstance(value, dict):
        return {k: numbers(v) for k, v in value.items()}
    if hasattr(value, "tolist"):
        value = value.detach().cpu()
        if value.is_complex():
            return [[v.real, v.imag] for v in value.flatten().tolist()]
        return (value.float() if value.is_floating_point() else value).tolist()
    return value


@case
def all_reduce(w: World) -> Any:
    out = {}
    for dtype in DTYPES:
        for op in ("SUM", "PRODUCT", "MIN", "MAX"):
            t = w.mine(3, 4, dtype=dtype)
            w.dist.all_reduce(t, getattr(w.dist.ReduceOp, op))
            out[f"{dtype} {op}"] = t
    return out


@case
def all_reduce_sparse(w: World) -> Any:
    """On the cpu, whatever the engine of the run is."""
    if w.device != "cpu":
        return None
    found = []
    for coalesced, dense in ((True, False), (False, False), (False, True)):
        places, values = w.torch.tensor([[0, 2 + w.rank, 0]]), w.torch.tensor([1.0, 2.0, 3.0]) + w.rank
        values = w.torch.stack([values, 2 * values], 1) if dense else values
        t = w.torch.sparse_coo_tensor(places, values, (5, 2) if dense else (5,))
        t = t.coalesce() if coalesced else t
        w.dist.all_reduce(t)
        found.append((t.is_coalesced(), t.indices(), t.values(), t.to_dense()))
    nothing = w.torch.sparse_coo_tensor(w.torch.empty((1, 0), dtype=w.torch.int64), w.torch.empty(0), (3,))
    w.dist.all_reduce(nothing)
    later = w.torch.sparse_coo_tensor(w.torch.tensor([[w.rank]]), w.torch.tensor([2]), (3,))
    w.dist.all_reduce(later, async_op=True).wait()
    told = []
    for sizes, op in (((3,), w.dist.ReduceOp.MAX), ((3 + w.rank,), w.dist.ReduceOp.SUM)):
        try:
            w.dist.all_reduce(w.torch.sparse_coo_tensor(w.torch.tensor([[0]]), w.torch.tensor([1.0]), sizes), op)
        except RuntimeError as error:
            told.append(str(error))
    return found, nothing.to_dense(), later.to_dense(), told


@case
def all_reduce_bits(w: World) -> Any:
    out = {}
    for op in ("BAND", "BOR", "BXOR"):
        out[op] = w.mine(6, dtype="int32")
        w.dist.all_reduce(out[op], getattr(w.dist.ReduceOp, op))
    return out


@case
def all_reduce_average(w: World) -> Any:
    t = w.mine(5)
    w.dist.all_reduce(t, w.dist.ReduceOp.AVG)
    return t


@case
def all_reduce_complex(w: World) -> Any:
    t = w.torch.complex(w.mine(4), w.mine(4) * 2)
    w.dist.all_reduce(t)
    return t


@case
def all_reduce_empty_and_scalar(w: World) -> Any:
    empty, scalar = w.empty(0), w.tensor(1.5 + w.rank)
    w.dist.all_reduce(empty)
    w.dist.all_reduce(scalar)
    return empty, scalar


@case
def all_reduce_transposed(w: World) -> Any:
    t = w.mine(3, 4).t()
    w.dist.all_reduce(t)
    return t


@case
def all_reduce_leaf(w: World) -> Any:
    t = w.mine(3).requires_grad_()
    w.dist.all_reduce(t)
    return t, t.requires_grad, t.is_leaf


@case
def async_works(w: World) -> Any:
    tensors = [w.mine(1000) + i for i in range(8)]
    works = [w.dist.all_reduce(t, async_op=True) for t in tensors]
    waited = [work.wait() for work in reversed(works)]
    return [t.sum() for t in tensors], waited


@case
def futures(w: World) -> Any:
    t = w.mine(4)
    future = w.dist.all_reduce(t, async_op=True).get_future()
    doubled = future.then(lambda f: f.value()[0] * 2)
    return doubled.wait(), future.done()


@case
def broadcast(w: World) -> Any:
    out = []
    for root in range(w.size):
        for dtype in (*DTYPES, "bool"):
            t = w.mine(2, 3, dtype=dtype)
            w.dist.broadcast(t, root)
            out.append(t.int())
    t = w.mine(4, 6).t()
    w.dist.broadcast(t, src=w.size - 1)
    return out, t


@case
def reduce(w: World) -> Any:
    out = []
    for root in range(w.size):
        t = w.mine(7)
        w.dist.reduce(t, root)
        out.append(t if w.rank == root else None)
    return out


@case
def all_gather(w: World) -> Any:
    outs = [w.empty(2, 3) for _ in range(w.size)]
    w.dist.all_gather(outs, w.mine(2, 3))
    row = w.empty(w.size * 4)
    w.dist.all_gather(list(row.chunk(w.size)), w.mine(4))
    ints = [w.empty(3, dtype="int64") for _ in range(w.size)]
    w.dist.all_gather(ints, w.mine(3, dtype="int64"), async_op=True).wait()
    return outs, row, ints


@case
def all_gather_into_tensor(w: World) -> Any:
    out = w.empty(w.size * 2, 3)
    w.dist.all_gather_into_tensor(out, w.mine(2, 3))
    return out


@case
def gather_and_scatter(w: World) -> Any:
    out = []
    for root in range(w.size):
        outs = [w.empty(3) for _ in range(w.size)] if w.rank == root else None
        w.dist.gather(w.mine(3), outs, dst=root)
        part = w.empty(2, 2)
        parts = [w.mine(2, 2) + i for i in range(w.size)] if w.rank == root else None
        w.dist.scatter(part, parts, src=root)
        out += [outs, part]
    return out


@case
def reduce_scatter(w: World) -> Any:
    out, row = w.empty(3), w.empty(2, 3)
    w.dist.reduce_scatter(out, [w.mine(3) + i for i in range(w.size)])
    w.dist.reduce_scatter_tensor(row, w.mine(2 * w.size, 3))
    return out, row


@case
def all_to_all_single(w: World) -> Any:
    out = w.empty(2 * w.size)
    w.dist.all_to_all_single(out, w.mine(2 * w.size))
    sent = [w.rank + i + 1 for i in range(w.size)]
    received = [w.rank + i + 1 for i in range(w.size)]
    uneven = w.empty(sum(received), 2)
    w.dist.all_to_all_single(uneven, w.mine(sum(sent), 2), received, sent)
    return out, uneven


@case
def send_and_recv(w: World) -> Any:
    after, before = (w.rank + 1) % w.size, (w.rank - 1) % w.size
    t, got = w.mine(5), w.empty(5)
    if w.rank % 2 == 0:
        w.dist.send(t, after)
        source = w.dist.recv(got, before)
    else:
        source = w.dist.recv(got, before)
        w.dist.send(t, after)
    ops = [w.dist.P2POp(w.dist.isend, t * 2, after), w.dist.P2POp(w.dist.irecv, ring := w.empty(5), before)]
    for work in w.dist.batch_isend_irecv(ops):
        work.wait()
    return got, source, ring


@case
def isend_and_irecv(w: World) -> Any:
    if w.rank == 0:
        works = [w.dist.isend(w.mine(3) + peer, peer) for peer in range(1, w.size)]
        [work.wait() for work in works]
        return None
    got = w.empty(3)
    w.dist.irecv(got, 0).wait()
    return got


@case
def barriers(w: World) -> Any:
    w.dist.barrier()
    w.dist.barrier(async_op=True).wait()
    return True


@case
def groups(w: World) -> Any:
    out: list[Any] = []
    for ranks in ([0], [w.size - 1], list(range(w.size)), [0, w.size - 1]):
        group = w.dist.new_group(ranks)
        if w.rank in ranks:
            t = w.mine(3)
            w.dist.all_reduce(t, group=group)
            out += [t, w.dist.get_rank(group), w.dist.get_world_size(group), w.dist.get_process_group_ranks(group)]
            last = w.mine(2)
            w.dist.broadcast(last, ranks[-1], group)
            out.append(last)
        w.dist.barrier()
    return out


@case
def subgroups(w: World) -> Any:
    mine, every = w.dist.new_subgroups(group_size=w.size // 2)
    t = w.mine(2)
    w.dist.all_reduce(t, group=mine)
    return t, len(every), w.dist.get_process_group_ranks(mine)


@case
def objects(w: World) -> Any:
    got: list[Any] = [None] * w.size
    w.dist.all_gather_object(got, {"rank": w.rank, "text": "x" * (3 * w.rank + 1)})
    shared = ["a", {"b": [1, 2]}] if w.rank == 0 else [None, None]
    w.dist.broadcast_object_list(shared, src=0)
    at_last = [None] * w.size if w.rank == w.size - 1 else None
    w.dist.gather_object((w.rank, "y"), at_last, dst=w.size - 1)
    mine: list[Any] = [None]
    w.dist.scatter_object_list(mine, [f"for {i}" * (i + 1) for i in range(w.size)] if w.rank == 0 else None, src=0)
    return got, shared, at_last, mine


@case
def refusals(w: World) -> Any:
    """What every rank refuses before anything is exchanged: (type, message)."""
    t, n = w.torch.ones(3), w.size
    calls = {
        "not a tensor": lambda: w.dist.all_reduce(3),
        "bitwise of floats": lambda: w.dist.all_reduce(t, w.dist.ReduceOp.BAND),
        "root": lambda: w.dist.broadcast(t, n + 3),
        "list length": lambda: w.dist.all_gather([t], t),
        "dtypes": lambda: w.dist.all_gather([t.int()] * n, t),
        "split sizes": lambda: w.dist.all_to_all_single(w.torch.ones(9), w.torch.ones(9), [1] * n, [1] * n),
        "to itself": lambda: w.dist.send(t, w.rank),
        "group": lambda: w.dist.new_group([0, n + 5]),
        "twice": lambda: w.dist.init_process_group("gloo"),
        "no op": lambda: w.dist.batch_isend_irecv([3]),
        "src": lambda: w.dist.broadcast(t),
        "both": lambda: w.dist.broadcast(t, 0, group_src=0),
    }
    out = {}
    for name, call in calls.items():
        try:
            call()
            out[name] = "no error"
        except Exception as error:
            out[name] = [type(error).__name__, str(error).strip()]
    return out


def run(given: list[str]) -> None:
    library, backend, device, rank, size, store, out, seconds, *names = given
    torch = importlib.import_module(library)
    if device == "npu":
        torch.npu.set_device(int(rank))
        device = f"npu:{rank}"
    torch.distributed.init_process_group(backend, init_method=f"file://{store}", rank=int(rank), world_size=int(size),
                                         timeout=datetime.timedelta(seconds=float(seconds)))
    world = World(torch, int(rank), int(size), device)
    results = {}
    for name in names or list(CASES):
        try:
            results[name] = numbers(CASES[name](world))
        except Exception:
            results[name] = {"failed": traceback.format_exc()}
        with open(f"{out}.{rank}", "w") as file:
            json.dump(results, file)
    if any(isinstance(value, dict) and "error" in value for value in results.values()):
        os._exit(0)                               # the others may be gone: nothing can be exchanged any more
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    run(sys.argv[1:])
