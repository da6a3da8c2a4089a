"""What a loader's worker process does: fetch the batches it is told to, and send them back."""
from __future__ import annotations

import os
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.utils import _pytree

PARENT_CHECK_S = 1.0     # how often a worker looks whether its parent is alive


@dataclass
class WorkerInfo:
    """Which worker this process is: id, num_workers, seed, dataset."""
    id: int
    num_workers: int
    seed: int
    dataset: Any


_worker_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """In a worker process: who it is; None elsewhere."""
    return _worker_info


class Failure:
    """An exception on its way to the main process."""

    def __init__(self, where: str) -> None:
        kind, value, trace = sys.exc_info()
        self.kind, self.where = kind, where
        self.text = "".join(traceback.format_exception(kind, value, trace))

    def reraise(self) -> None:
        message = f"Caught {self.kind.__name__} {self.where}.\nOriginal {self.text}"   # type: ignore[union-attr]
        if self.kind is KeyError:
            message = _KeyErrorText(message)
        try:
            error = self.kind(message)   # type: ignore[misc]
        except Exception:
            raise RuntimeError(message) from None
        raise error


class _KeyErrorText(str):
    """KeyError shows its message quoted; this one shows as it is."""

    def __repr__(self) -> str:
        return str(self)


@dataclass
class Exhausted:
    """An IterableDataset's stream ended in this worker."""
    worker: int


class Fetcher:
    """Gets one batch, or one item when nothing is batched."""

    def __init__(self, dataset: Any, batched: bool, collate_fn: Callable[[Any], Any], drop_last: bool,
                 iterable: bool) -> None:
        self.dataset, self.batched, self.collate_fn, self.drop_last = dataset, batched, collate_fn, drop_last
        self.stream = iter(dataset) if iterable else None
        self.ended = False

    def __call__(self, index: Any) -> Any:
        if self.stream is not None:
            return self._from_stream(index)
        if not self.batched:
            return self.collate_fn(self.dataset[index])
        if callable(getattr(self.dataset, "__getitems__", None)):
            return self.collate_fn(self.dataset.__getitems__(index))
        return self.collate_fn([self.dataset[i] for i in index])

    def _from_stream(self, index: Any) -> Any:
        if self.ended:
            raise StopIteration
        if not self.batched:
            return self.collate_fn(next(self.stream))   # type: ignore[arg-type]
        items = []
        for _ in index:
            try:
                items.append(next(self.stream))   # type: ignore[arg-type]
            except StopIteration:
                self.ended = True
                break
        if not items or (self.drop_last and len(items) < len(index)):
            raise StopIteration
        return self.collate_fn(items)


def _compact(data: Any) -> Any:
    """Tensors that show part of a larger storage travel alone."""
    def own(t: Any) -> Any:
        if t.layout != torch.strided:            # its parts travel as they are
            return t
        return t.clone() if t.untyped_storage().nbytes() > t.nbytes else t
    return _pytree.tree_map_only(torch.Tensor, own, data)


def _end_with(parent: int) -> None:
    """Ends this process when its parent is gone. A thread of its own does that: the main thread may wait for ever, for a
    lock that the parent held, the rest of a task that it was writing, or room in a pipe that nobody reads. Not
    PR_SET_PDEATHSIG, which ends the worker together with the thread that made it, and that may be a short-lived one."""
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_S)
    os._exit(1)


def worker_loop(parent: int | None, kind: tuple, tasks: Any, results: Any, *args: Any) -> None:
    """What a worker process runs. Its parent says who it is, because it may be gone before the worker can ask; None where
    a fork server is the parent. A Ctrl-C goes to the main process too, which says so: a worker ends quietly, and does
    not wait until somebody has read its answers."""
    threading.Thread(target=_end_with, args=(os.getppid() if parent is None else parent,), daemon=True).start()
    try:
        _serve(kind, tasks, results, *args)
    except KeyboardInterrupt:
        results.cancel_join_thread()


def _serve(kind: tuple, tasks: Any, results: Any, seed: int, worker: int, count: int,
           init: Callable[[int], Any] | None, dataset: Any) -> None:
    """Answers (number, indices) with (number, batch); None ends it, an int begins another epoch with that seed."""
    global _worker_info
    torch.set_num_threads(1)
    _seed_all(seed + worker)
    _worker_info = WorkerInfo(worker, count, seed + worker, dataset)
    failed, fetch = None, None
    try:
        if init is not None:
            init(worker)
        fetch = Fetcher(dataset, *kind)
    except Exception:
        failed = Failure(f"in DataLoader worker process {worker}")
    while True:
        task = tasks.recv()
        if task is None:
            results.close()
            return
        number, index = task
        if number == "epoch":
            failed, fetch = None, Fetcher(dataset, *kind)
            results.put(("epoch", worker))
            continue
        answer: Any
        try:
            if failed is not None:
                answer, failed = failed, None
            else:
                answer = _compact(fetch(index))   # type: ignore[misc]
        except StopIteration:
            answer = Exhausted(worker) if kind[3] else Failure(f"in DataLoader worker process {worker}")
        except Exception:
            answer = Failure(f"in DataLoader worker process {worker}")
        results.put((number, answer))


def _seed_all(seed: int) -> None:
    random.seed(seed)
    torch.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed([(seed >> shift) & 0xFFFFFFFF for shift in (0, 32, 64, 96)])
