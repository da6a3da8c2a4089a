"""The worker process of a loader: fetches the batches of its index queue and sends them back."""
from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.utils import _pytree
from mindtorch_v2.utils.data._utils.fetch import fetcher

ExceptionWrapper: Any = torch._utils.ExceptionWrapper
PARENT_CHECK_S = 1.0     # how often a worker looks whether its parent is alive


@dataclass(frozen=True)
class WorkerInfo:
    """Which worker this process is: id, num_workers, seed, dataset."""
    id: int
    num_workers: int
    seed: int
    dataset: Any
    rng: Any = None
    worker_method: str = "multiprocessing"


_worker_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """In a worker process: who it is; None elsewhere."""
    return _worker_info


@dataclass
class Exhausted:
    """An IterableDataset's stream ended in this worker."""
    worker: int


_MOST_SHARED = 64        # tensors of a batch that go through shared memory, each as a descriptor of its own


def _compact(data: Any) -> Any:
    """Tensors that show part of a larger storage travel alone; the first ones in shared memory."""
    count = 0

    def own(t: Any) -> Any:
        nonlocal count
        if t.layout != torch.strided:            # its parts travel as they are
            return t
        if t.untyped_storage().nbytes() > t.nbytes:
            t = t.clone()
        count += 1
        if count <= _MOST_SHARED and t.device.type == "cpu":
            torch.multiprocessing.reductions._shared(t.untyped_storage())
        return t
    return _pytree.tree_map_only(torch.Tensor, own, data)


def _end_with(parent: int) -> None:
    """Ends this process when its parent is gone. A thread of its own does that: the main thread may wait for ever, for a
    lock that the parent held, the rest of a task that it was writing, or space in a pipe that is not read. Not
    PR_SET_PDEATHSIG, which ends the worker together with the thread that made it, and that may be a short-lived one."""
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_S)
    os._exit(1)


def worker_loop(parent: int | None, kind: tuple, tasks: Any, results: Any, *args: Any) -> None:
    """What a worker process runs. Its parent says who it is, because it may be gone before the worker can ask; None where
    a fork server is the parent. A Ctrl-C goes to the main process too, which reports it: a worker ends quietly, and does
    not wait until its answers have been read."""
    threading.Thread(target=_end_with, args=(os.getppid() if parent is None else parent,), daemon=True).start()
    try:
        _serve(kind, tasks, results, *args)
    except KeyboardInterrupt:
        results.cancel_join_thread()


def _serve(kind: tuple, tasks: Any, results: Any, seed: int, worker: int, count: int,
           init: Callable[[int], Any] | None, dataset: Any, shared_seed: int | None, channel: tuple[int, Any]) -> None:
    """Answers (number, indices) with (number, batch); None ends it, ("epoch", seed) begins another."""
    global _worker_info
    torch.set_num_threads(1)
    torch.multiprocessing.reductions.enter_worker(*channel)
    _seed_all(seed, worker)
    if shared_seed is not None:
        dataset = _seed_pipes(dataset, shared_seed)
    _worker_info = WorkerInfo(worker, count, seed + worker, dataset)
    failed: ExceptionWrapper | None = None
    fetch: Any = None
    try:
        if init is not None:
            init(worker)
        fetch = fetcher(dataset, *kind)
    except Exception:
        failed = ExceptionWrapper(where=f"in DataLoader worker process {worker}")
    while True:
        task = tasks.recv()
        if task is None:
            results.close()
            return
        number, index = task
        if number == "epoch":
            if index is not None:
                dataset = _seed_pipes(dataset, index)
            failed, fetch = None, fetcher(dataset, *kind)
            results.put(("epoch", worker))
            continue
        answer: Any
        try:
            if failed is not None:
                answer, failed = failed, None
            else:
                answer = _compact(fetch.fetch(index))
        except StopIteration:
            answer = Exhausted(worker) if kind[3] else ExceptionWrapper(where=f"in DataLoader worker process {worker}")
        except Exception:
            answer = ExceptionWrapper(where=f"in DataLoader worker process {worker}")
        results.put((number, answer))


def _seed_pipes(dataset: Any, seed: int) -> Any:
    """A datapipe whose random parts begin with the seed that all workers share."""
    return torch.utils.data.graph_settings.apply_random_seed(dataset, torch.Generator().manual_seed(seed))


def _seed_all(base_seed: int, worker: int) -> None:
    random.seed(base_seed + worker)
    torch.manual_seed(base_seed + worker)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(_generate_state(base_seed, worker))


def _generate_state(base_seed: int, worker_id: int) -> list[int]:
    """Four numbers for NumPy's generator, which mixes the seeds of neighbours badly: M. E. O'Neill's seed_seq, as in
    numpy.random.SeedSequence."""
    mask = 0xFFFFFFFF
    factor = 0x43B0D7E5

    def hashed(value: int) -> int:
        nonlocal factor
        value = (value ^ factor) & mask
        factor = factor * 0x931E8875 & mask
        value = value * factor & mask
        return value ^ value >> 16

    def mixed(x: int, y: int) -> int:
        value = (x * 0xCA01F9DD - y * 0x4973F715) & mask
        return value ^ value >> 16

    pool = [hashed(value) for value in (worker_id & mask, base_seed & mask, base_seed >> 32 & mask, 0)]
    for source in range(4):
        for target in range(4):
            if source != target:
                pool[target] = mixed(pool[target], hashed(pool[source]))
    factor, made = 0x8B51F9DD, []
    for value in pool:
        value = (value ^ factor) & mask
        factor = factor * 0x58F38DED & mask
        value = value * factor & mask
        made.append(value ^ value >> 16)
    return made


_worker_loop = worker_loop       # torch's name; its arguments are this library's own


# ---- for loaders of packages ----------------------------------------------------------------------------------------
class _IterableDatasetStopIteration:
    """What a worker sends when its share of an iterable dataset has ended."""

    def __init__(self, worker_id: int) -> None:
        self.worker_id = worker_id


class _ResumeIteration:
    """What a loader sends to workers that stay, when the next pass begins."""

    def __init__(self, seed: int | None = None) -> None:
        self.seed = seed


class ManagerWatchdog:
    """A worker's question whether the process that started it is still there."""

    def __init__(self) -> None:
        self.manager_pid, self.manager_dead = os.getppid(), False

    def is_alive(self) -> bool:
        """Whether it is."""
        self.manager_dead = self.manager_dead or os.getppid() != self.manager_pid
        return not self.manager_dead
