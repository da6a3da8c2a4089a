"""DataLoader and datasets against torch: options that are refused, what collate makes, names of old."""
from __future__ import annotations

import collections
import os
import sys
import warnings
from typing import Any

import pytest
import torch.utils.data
from twin import error, twin

import mindtorch_v2 as mt

Pair = collections.namedtuple("Pair", "a b")
CALLS = [
    "DataLoader(rows, multiprocessing_context='fork')", "DataLoader(rows, num_workers=1, multiprocessing_context='bad')",
    "DataLoader(rows, num_workers=1, multiprocessing_context=5)", "setattr(DataLoader(rows), 'batch_size', 3)",
    "setattr(DataLoader(rows), 'dataset', rows)", "setattr(DataLoader(rows), 'multiprocessing_context', 'fork')",
    "DataLoader(stream(), sampler=[1])", "DataLoader(stream(), batch_sampler=[[1]])", "IterableDataset()",
    "StackDataset(rows, a=rows)", "default_collate([sparse, sparse])", "DataLoader(rows, batch_size=0)"]
BATCHES = ["[(1, 'x'), (2, 'y')]", "[[1, 'x'], [2, 'y']]", "['x', 'y']", "[Pair(1, 'x'), Pair(2, 'y')]", "[{'a': 'x'}, {'a': 'y'}]",
           "[(b'x', 1.5), (b'y', 2)]"]


def scope(t: Any) -> dict[str, Any]:
    data = t.utils.data

    class Stream(data.IterableDataset):
        def __iter__(self) -> Any:
            return iter(range(3))
    names = ("DataLoader", "IterableDataset", "StackDataset", "ConcatDataset", "default_collate")
    return {"rows": [1, 2, 3], "stream": Stream, "sparse": t.eye(2).to_sparse(), "Pair": Pair} | {n: getattr(data, n) for n in names}


@pytest.mark.parametrize("call", CALLS)
@twin
def test_what_is_refused(t, call):
    return error(lambda: eval(call, scope(t)), 150)


@pytest.mark.parametrize("batch", BATCHES)
def test_texts_in_batches_stay_in_tuples(batch: str) -> None:
    def shown(side: Any) -> str:
        return str(side.utils.data.default_collate(eval(batch)))
    assert shown(mt) == shown(torch)


@twin
def test_workers_of_a_context_and_sizes_by_their_old_name(t):
    made = scope(t)
    loader = made["DataLoader"]([1, 2, 3], batch_size=2, num_workers=1, multiprocessing_context="fork")
    joined = made["ConcatDataset"]([[1, 2], [3]])
    with pytest.warns(FutureWarning, match="cumulative_sizes"):
        sizes = joined.cummulative_sizes
    return list(loader), loader.multiprocessing_context.get_start_method(), sizes


class Stream(mt.utils.data.IterableDataset):
    """Says 3 and gives 6."""

    def __iter__(self) -> Any:
        return iter(range(6))

    def __len__(self) -> int:
        return 3


def test_a_stream_longer_than_it_said() -> None:
    loader = mt.utils.data.DataLoader(Stream())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(iter(loader))) == 6              # nobody has asked for the length
    assert len(loader) == 3
    with pytest.warns(UserWarning, match="was reported to be 3 .when accessing len.dataloader.., but 4 samples have been fetched"):
        list(iter(loader))


def test_more_workers_than_processors() -> None:
    with pytest.warns(UserWarning, match="This DataLoader will create 4000 worker processes in total. Our suggested max"):
        mt.utils.data.DataLoader([1, 2], num_workers=4000)


def test_parts_of_a_pass_have_the_names_of_torch() -> None:
    loader = torch.utils.data.DataLoader(list(range(4)), batch_size=2)
    ours = mt.utils.data.DataLoader(list(range(4)), batch_size=2)
    theirs, found = iter(loader), iter(ours)
    next(theirs), next(found)
    for name in ("_num_yielded", "_timeout", "_drop_last", "_dataset_kind", "_auto_collation", "_num_workers"):
        assert getattr(found, name) == getattr(theirs, name), name


class Tracked(mt.utils.data.Dataset):
    """Items with a graph, which cannot leave the process that made them."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, i: int) -> Any:
        return mt.ones(2, requires_grad=True) * i


def test_a_worker_refuses_batches_with_a_graph() -> None:
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        list(mt.utils.data.DataLoader(Tracked(), 2, num_workers=1))
    assert next(iter(mt.utils.data.DataLoader(Tracked(), 2))).requires_grad


@twin
def test_a_timeout_needs_workers(t):
    return error(lambda: iter(t.utils.data.DataLoader([1, 2], timeout=2)), 99)


def test_batches_of_workers_lie_in_shared_memory() -> None:
    loader = mt.utils.data.DataLoader(mt.utils.data.TensorDataset(mt.arange(6.0), mt.arange(6)), 4, num_workers=2)
    batches = list(loader)
    assert [b.tolist() for b in batches[0]] == [[0, 1, 2, 3], [0, 1, 2, 3]] and all(x.is_shared() for b in batches for x in b)
    received = batches[0][0].untyped_storage()
    received.fill_(0)
    assert batches[0][0].tolist() == [0] * 4, "writable after its worker has ended"


def test_more_batches_than_descriptors_are_copied() -> None:
    held = mt.multiprocessing.reductions._MOST_HELD
    batches = list(mt.utils.data.DataLoader(range(held + 20), num_workers=1))
    assert [int(b) for b in batches] == list(range(held + 20)) and batches[0].is_shared() and not batches[-1].is_shared()


class _ManyAtOnce:
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int:
        raise AssertionError("items come all at once")

    def __getitems__(self, indices: list[int]) -> list[int]:
        return [10 * i for i in indices]


@twin
def test_stacked_datasets_fetch_their_items_at_once(t):
    stack = t.utils.data.StackDataset
    short = type("Short", (_ManyAtOnce,), {"__getitems__": lambda self, indices: []})
    return (stack(_ManyAtOnce(), range(3)).__getitems__([2, 0]), stack(a=_ManyAtOnce(), b="xyz").__getitems__([1]),
            error(lambda: stack(short(), short()).__getitems__([1, 2])))


@twin
def test_pipes_are_shuffled_and_shared_out(t):
    wrap, loader = t.utils.data.datapipes.iter.IterableWrapper, t.utils.data.DataLoader
    t.manual_seed(1)
    mixed = [list(loader(wrap(range(20)).shuffle(), batch_size=None, shuffle=s)) for s in (True, False, None)]
    shares = loader(wrap(range(10)).sharding_filter(), num_workers=2, batch_size=None, multiprocessing_context="fork")
    return [sorted(m) for m in mixed], mixed[1] == list(range(20)), mixed[0] != mixed[1], sorted(shares)


def test_a_dead_process_is_named() -> None:
    handling = mt.utils.data._utils.signal_handling
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", "raise SystemExit(3)"], os.environ)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    handling._set_worker_pids(1, (pid,))
    with pytest.raises(RuntimeError, match=rf"pid {pid}\) exited unexpectedly with exit code 3"):
        handling._error_if_any_worker_fails()
    with pytest.raises(ValueError, match="only once"):
        handling._set_worker_pids(1, ())
    handling._remove_worker_pids(1)
    os.waitpid(pid, 0)
