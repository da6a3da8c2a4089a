"""DataLoader: batches of a dataset, made here or by worker processes."""
from __future__ import annotations

import functools
import itertools
import multiprocessing
import os
import queue
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import connection, reduction
from operator import attrgetter
from typing import Any, Generic, TypeVar

import mindtorch_v2 as torch
from mindtorch_v2.utils.data import _utils
from mindtorch_v2.utils.data._utils import MP_STATUS_CHECK_INTERVAL
from mindtorch_v2.utils.data._utils import worker as _worker
from mindtorch_v2.utils.data._utils.collate import default_collate, default_convert
from mindtorch_v2.utils.data._utils.fetch import fetcher
from mindtorch_v2.utils.data._utils.worker import get_worker_info
from mindtorch_v2.utils.data.datapipes.datapipe import (
    IterDataPipe,
    MapDataPipe,
    _IterDataPipeSerializationWrapper,
    _MapDataPipeSerializationWrapper,
)
from mindtorch_v2.utils.data.dataset import Dataset, IterableDataset
from mindtorch_v2.utils.data.graph_settings import apply_random_seed, apply_sharding, apply_shuffle_settings
from mindtorch_v2.utils.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler

ExceptionWrapper: Any = torch._utils.ExceptionWrapper
POLL_S = MP_STATUS_CHECK_INTERVAL
__all__ = ["DataLoader", "get_worker_info", "default_collate", "default_convert"]
_T_co = TypeVar("_T_co", covariant=True)
_collate_fn_t = Callable[[list[Any]], Any]
_worker_init_fn_t = Callable[[int], None]


class _DatasetKind:
    """Two kinds of datasets: by index, and streams."""
    Map, Iterable = 0, 1

    @staticmethod
    def create_fetcher(kind: int, dataset: Any, auto_collation: bool, collate_fn: _collate_fn_t, drop_last: bool) -> Any:
        """What gets the batches of a dataset of a kind."""
        return fetcher(dataset, auto_collation, collate_fn, drop_last, kind == _DatasetKind.Iterable)


class _InfiniteConstantSampler(Sampler[Any]):
    """None for ever: the sampler of a stream."""

    def __iter__(self) -> Iterator[None]:
        yield from itertools.repeat(None)


def _sharding_worker_init_fn(worker_init_fn: Callable[[int], None] | None, world_size: int, rank_id: int, worker_id: int) -> None:
    """What a worker calls first whose dataset is a datapipe: the pipe gives the share of this worker of this process."""
    info = get_worker_info()
    if info is not None:
        apply_sharding(info.dataset, world_size * info.num_workers,
                       info.num_workers * rank_id + worker_id)
    if worker_init_fn is not None:
        worker_init_fn(worker_id)


def _share_dist_seed(generator: torch.Generator | None, group: Any = None) -> int:
    """A seed for the datapipes of all workers; with a group, of all its processes."""
    seed = torch.empty((), dtype=torch.int64).random_(generator=generator)
    if group is not None:
        torch.distributed.broadcast(seed, src=0, group=group)
    return int(seed.item())


def _get_distributed_settings() -> tuple[int, int]:
    """The number of processes, and which this is."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size(), distributed.get_rank()
    return 1, 0


class DataLoader(Generic[_T_co]):
    """An iterable of batches over a dataset."""
    _iterator: _MultiProcessingDataLoaderIter | None = None
    dataset: Any
    _made = False
    _IterableDataset_len_called: int | None = None      # what the stream said of its length when len(loader) was asked

    def __init__(self, dataset: Dataset[_T_co], batch_size: int | None = 1, shuffle: bool | None = None, sampler: Any = None,
                 batch_sampler: Any = None, num_workers: int = 0, collate_fn: Callable[[list[Any]], Any] | None = None,
                 pin_memory: bool = False, drop_last: bool = False, timeout: float = 0,
                 worker_init_fn: Callable[[int], None] | None = None, multiprocessing_context: Any = None,
                 generator: Any = None, *, prefetch_factor: int | None = None, persistent_workers: bool = False,
                 pin_memory_device: str = "", in_order: bool = True) -> None:
        if num_workers < 0:
            raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
        if timeout < 0:
            raise ValueError("timeout option should be non-negative")
        if num_workers == 0 and prefetch_factor is not None:
            raise ValueError("prefetch_factor option could only be specified in multiprocessing.let num_workers > 0 to "
                             "enable multiprocessing, otherwise set prefetch_factor to None.")
        if prefetch_factor is not None and prefetch_factor < 0:
            raise ValueError("prefetch_factor option should be non-negative")
        if persistent_workers and num_workers == 0:
            raise ValueError("persistent_workers option needs num_workers > 0")
        if isinstance(dataset, IterDataPipe):
            dataset = _IterDataPipeSerializationWrapper(apply_shuffle_settings(dataset, shuffle))
            shuffle = None
        elif isinstance(dataset, MapDataPipe):
            dataset = _MapDataPipeSerializationWrapper(dataset)
        self.dataset, self.num_workers, self.pin_memory, self.timeout = dataset, num_workers, pin_memory, timeout
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.worker_init_fn, self.persistent_workers = worker_init_fn, persistent_workers
        self.pin_memory_device, self.in_order, self.generator = pin_memory_device, in_order, generator
        self.multiprocessing_context = multiprocessing_context
        self._dataset_kind = _DatasetKind.Iterable if isinstance(dataset, IterableDataset) else _DatasetKind.Map
        self._choose_sampler(batch_size, shuffle, sampler, batch_sampler, drop_last)
        self.collate_fn = collate_fn or (default_collate if self._batched else default_convert)
        self._made = True
        self.check_worker_number_rationality()

    def check_worker_number_rationality(self) -> None:
        """Warns of more workers than this process has processors."""
        most = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        if most is not None and self.num_workers > most:
            warnings.warn(f"This DataLoader will create {self.num_workers} worker processes in total. Our suggested max number of "
                          f"worker in current system is {most}, which is smaller than what this DataLoader is going to create. "
                          "Please be aware that excessive worker creation might get DataLoader running slow or even freeze, "
                          "lower the worker number to avoid potential slowness/freeze if necessary.", stacklevel=3)

    def __setattr__(self, name: str, value: Any) -> None:
        if self._made and name in ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"):
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    @property
    def multiprocessing_context(self) -> Any:
        """How workers are started: a context of multiprocessing, or None for Python's own way."""
        return self._context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context: Any) -> None:
        if context is not None and not self.num_workers > 0:
            raise ValueError("multiprocessing_context can only be used with multi-process loading (num_workers > 0), but got "
                             f"num_workers={self.num_workers}")
        if isinstance(context, str):
            known = multiprocessing.get_all_start_methods()
            if context not in known:
                raise ValueError(f"multiprocessing_context option should specify a valid start method in {known!r}, but got "
                                 f"multiprocessing_context={context!r}")
            context = multiprocessing.get_context(context)
        elif context is not None and not isinstance(context, multiprocessing.context.BaseContext):
            raise TypeError("multiprocessing_context option should be a valid context object or a string specifying the start "
                            f"method, but got multiprocessing_context={context}")
        self._context = context

    def _choose_sampler(self, batch_size: Any, shuffle: Any, sampler: Any, batch_sampler: Any, drop_last: bool) -> None:
        if self._iterable:
            if shuffle not in (False, None):
                raise ValueError("DataLoader with IterableDataset: expected unspecified shuffle option, "
                                 f"but got shuffle={shuffle}")
            for option, value in (("sampler", sampler), ("batch_sampler", batch_sampler)):
                if value is not None:
                    raise ValueError(f"DataLoader with IterableDataset: expected unspecified {option} option, but got "
                                     f"{option}={value}")
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and "
                                 "drop_last")
            batch_size, drop_last = None, False
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
        if sampler is None:
            if self._iterable:
                sampler = _InfiniteConstantSampler()
            else:
                sampler = RandomSampler(self.dataset, generator=self.generator) if shuffle else \
                    SequentialSampler(self.dataset)
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size, self.drop_last, self.sampler, self.batch_sampler = batch_size, drop_last, sampler, batch_sampler
        self._batched = batch_sampler is not None

    @property
    def _index_sampler(self) -> Iterable[Any]:
        return self.batch_sampler if self._batched else self.sampler

    @property
    def _auto_collation(self) -> bool:
        return self._batched

    @property
    def _iterable(self) -> bool:
        return self._dataset_kind == _DatasetKind.Iterable

    def _get_iterator(self) -> _BaseDataLoaderIter:
        return _SingleProcessDataLoaderIter(self) if self.num_workers == 0 else _MultiProcessingDataLoaderIter(self)

    @property
    def _kind(self) -> tuple[Any, ...]:
        return self._batched, self.collate_fn, self.drop_last, self._iterable

    def __iter__(self) -> Any:
        if self.num_workers == 0 or not self.persistent_workers:
            return self._get_iterator()
        if self._iterator is None:
            self._iterator = _MultiProcessingDataLoaderIter(self)
        else:
            self._iterator.begin_again()
        return self._iterator

    def __len__(self) -> int:
        if not self._iterable:
            return len(self._index_sampler)   # type: ignore[arg-type]
        n = self._IterableDataset_len_called = len(self.dataset)
        if self.batch_size is None:
            return n
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)


class _BaseDataLoaderIter:
    """One pass over a loader."""

    def __init__(self, loader: DataLoader) -> None:
        self.loader = loader
        self.pin = loader.pin_memory and torch.accelerator.is_available()
        if loader.pin_memory and not self.pin:
            warnings.warn("'pin_memory' argument is set as true but no accelerator is found, then device pinned memory "
                          "won't be used.", stacklevel=3)
        self.shared_seed: int | None = None
        self._share_seed()
        # Drawn before the sampler draws, and once for workers that stay: the order of shuffled epochs depends on it.
        self.seed = int(torch.empty((), dtype=torch.int64).random_(generator=loader.generator).item())
        self.begin()

    def _share_seed(self) -> None:
        """A datapipe's random parts get one seed a pass."""
        if not isinstance(self.loader.dataset, IterDataPipe):
            return
        distributed = torch.distributed
        group = distributed.group.WORLD if distributed.is_available() and distributed.is_initialized() else None
        self.shared_seed = _share_dist_seed(self.loader.generator, group)
        apply_random_seed(self.loader.dataset, torch.Generator().manual_seed(self.shared_seed))

    def begin(self) -> None:
        self.indices = iter(self.loader._index_sampler)
        self.given = 0
        self.promised = self.loader._IterableDataset_len_called      # what len(loader) had been told before this pass

    def __iter__(self) -> _BaseDataLoaderIter:
        return self

    def __getstate__(self) -> Any:
        """Refuses: what a pass has taken so far is no state to send."""
        raise NotImplementedError("{} cannot be pickled", type(self).__name__)

    def __len__(self) -> int:
        return len(self.loader._index_sampler)   # type: ignore[arg-type]

    def __next__(self) -> Any:
        batch = self.next_batch()
        self.given += 1
        loader = self.loader
        if self.promised is not None and self.given > self.promised:
            more = "" if loader.num_workers == 0 else (
                "For multiprocessing data-loading, this could be caused by not properly configuring the IterableDataset replica "
                "at each worker. Please see https://pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset for "
                "examples.")
            warnings.warn(f"Length of IterableDataset {loader.dataset} was reported to be {self.promised} (when accessing "
                          f"len(dataloader)), but {self.given} samples have been fetched. {more}", stacklevel=2)
        return _utils.pin_memory.pin_memory(batch, loader.pin_memory_device) if self.pin else batch

    def next_batch(self) -> Any:
        raise NotImplementedError


_ITERATOR_NAMES = {"_workers": "processes", "_num_yielded": "given", "_sampler_iter": "indices", "_pin_memory": "pin",
                   "_base_seed": "seed", "_worker_result_queue": "results", "_IterableDataset_len_called": "promised",
                   "_data_queue": "results", "_index_queues": "tasks", "_next_data": "next_batch",
                   "_rcvd_idx": "taken", "_send_idx": "sent", "_workers_status": "active", "_shutdown": "closed",
                   "_shutdown_workers": "close"}
_LOADER_NAMES = {"_timeout": "timeout", "_collate_fn": "collate_fn", "_drop_last": "drop_last", "_dataset": "dataset",
                 "_persistent_workers": "persistent_workers", "_num_workers": "num_workers", "_dataset_kind": "_dataset_kind",
                 "_prefetch_factor": "prefetch_factor", "_index_sampler": "_index_sampler", "_in_order": "in_order",
                 "_auto_collation": "_auto_collation"}
_BaseDataLoaderIter._worker_pids_set = True       # type: ignore[attr-defined]  # workers are looked at by the loader itself
for _names, _path in ((_ITERATOR_NAMES, "{}"), (_LOADER_NAMES, "loader.{}")):
    for _theirs, _ours in _names.items():        # what torch calls the parts of a pass
        setattr(_BaseDataLoaderIter, _theirs, property(attrgetter(_path.format(_ours))))


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    """Batches made in this process."""

    def __init__(self, loader: DataLoader) -> None:
        if loader.timeout != 0:
            raise AssertionError("_SingleProcessDataLoaderIter requires timeout == 0")
        if isinstance(loader.dataset, (IterDataPipe, MapDataPipe)):
            apply_sharding(loader.dataset, *_get_distributed_settings())
        super().__init__(loader)

    def begin(self) -> None:
        super().begin()
        self.fetcher = fetcher(self.loader.dataset, *self.loader._kind)

    def next_batch(self) -> Any:
        return self.fetcher.fetch(next(self.indices))


def _deliver(outbox: queue.SimpleQueue[tuple[Any, Any] | None]) -> None:
    """Writes tasks into the workers' pipes until None comes. multiprocessing.Queue would do the same, but a
    KeyboardInterrupt inside its `put` can leave its lock held, and then the process waits for that lock at exit."""
    for tasks, message in iter(outbox.get, None):
        try:
            tasks.send_bytes(message)
        except OSError:                          # that worker has died: the wait for its batch finds out
            continue


def _start_process(process: Any, forked: bool) -> None:
    """process.start(), with a Ctrl-C handled after a fork: Python drops an exception that comes in what it calls on either
    side of one (logging's locks), so that the program would go on, perhaps with that lock held."""
    before = signal.getsignal(signal.SIGINT)
    if not forked or not callable(before) or threading.current_thread() is not threading.main_thread():
        process.start()
        return
    here, came = os.getpid(), False

    def note(number: int, frame: Any) -> None:
        nonlocal came
        if os.getpid() != here:                  # in the worker
            before(number, frame)
        came = True

    try:
        signal.signal(signal.SIGINT, note)
        process.start()
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            before(signal.SIGINT, sys._getframe())


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """Batches made by worker processes, handed out in the order of the sampler."""

    def __init__(self, loader: DataLoader) -> None:
        super().__init__(loader)
        context: Any = loader.multiprocessing_context or multiprocessing.get_context()
        parent = None if context.get_start_method() == "forkserver" else os.getpid()
        self.results = context.Queue()
        self.tasks: list[Any] = []                # one pipe a worker, written by the thread of _deliver alone
        self.processes: list[Any] = []
        self.worker_ends: list[Any] = []
        self.channels: list[int] = []             # by which tensors come in shared memory, one a worker
        init = loader.worker_init_fn
        if isinstance(loader.dataset, (IterDataPipe, MapDataPipe)):
            init = functools.partial(_sharding_worker_init_fn, init, *_get_distributed_settings())
        for worker in range(loader.num_workers):
            tasks, pipe = context.Pipe(duplex=False)
            here, there = context.Pipe()
            self.channels.append(torch.multiprocessing.reductions.open_channel(here))
            process = context.Process(target=_worker.worker_loop, daemon=True, args=(
                parent, loader._kind, tasks, self.results, self.seed, worker, loader.num_workers,
                init, loader.dataset, self.shared_seed, (self.channels[-1], there)))
            _start_process(process, context.get_start_method() == "fork")
            for end in (tasks, here, there):
                end.close()
            self.worker_ends += tasks, here, there     # kept: a Ctrl-C inside their __del__ would be lost
            self.tasks.append(pipe)
            self.processes.append(process)
        self.outbox: queue.SimpleQueue[tuple[Any, Any] | None] = queue.SimpleQueue()
        threading.Thread(target=_deliver, args=(self.outbox,), daemon=True).start()
        self.closed, self.owner = False, os.getpid()
        self._start()

    def _start(self) -> None:
        self.sent = self.taken = 0
        self.waiting: dict[int, Any] = {}       # number -> its batch, or the worker that makes it
        self.active = [True] * len(self.tasks)
        self.turn = itertools.cycle(range(len(self.tasks)))
        for _ in range(max(1, self.loader.prefetch_factor or 0) * len(self.tasks)):
            self._send()

    def begin_again(self) -> None:
        """Another epoch with the same workers."""
        self._share_seed()
        self.begin()
        for tasks in self.tasks:
            self._post(tasks, ("epoch", self.shared_seed))
        left = len(self.tasks)
        while left:
            number, _ = self._receive()
            left -= number == "epoch"            # what the epoch before had left over is dropped
        self._start()

    def _send(self) -> None:
        """Gives the next indices to the next worker that is not at its end."""
        if not any(self.active):
            return
        try:
            index = next(self.indices)
        except StopIteration:
            return
        worker = next(w for w in self.turn if self.active[w])
        self._post(self.tasks[worker], (self.sent, index))
        self.waiting[self.sent] = worker
        self.sent += 1

    def _post(self, tasks: Any, task: Any) -> None:
        self.outbox.put((tasks, reduction.ForkingPickler.dumps(task)))

    def _receive(self) -> tuple[Any, ...]:
        """The next answer of any worker. The end of a worker wakes this process too: a Ctrl-C that comes just before it
        begins to wait is seen only when the wait is over, and the workers that it has ended answer no more."""
        waited = 0.0
        step = min(POLL_S, self.loader.timeout) if self.loader.timeout else POLL_S
        while True:
            ends = [] if self.closed else [p.sentinel for p in self.processes]
            ready = connection.wait([self.results._reader, *ends], step)
            if self.results._reader in ready:
                return self.results.get()
            # A process that a worker has made may hold its sentinel open: so is_alive, where nothing has come.
            dead = [p for p in self.processes if p.sentinel in ready or not ready and not p.is_alive()]
            if dead and not self.closed:
                pids = ", ".join(str(p.pid) for p in dead)
                self.close()
                raise RuntimeError(f"DataLoader worker (pid(s) {pids}) exited unexpectedly")
            waited += step
            if self.loader.timeout and waited >= self.loader.timeout:
                raise RuntimeError(f"DataLoader timed out after {self.loader.timeout} seconds")

    def _next_answer(self) -> Any:
        """The batch whose turn it is, or with in_order=False the first to come."""
        while True:
            ready = self.waiting.get(self.taken)
            if isinstance(ready, tuple):
                del self.waiting[self.taken]
                return ready[0]
            if ready is None:                    # already handed out, out of order
                self.taken += 1
                continue
            number, answer = self._receive()
            if not self.loader.in_order and number != self.taken:
                del self.waiting[number]
                return answer
            self.waiting[number] = (answer,)

    def next_batch(self) -> Any:
        while self.waiting:
            answer = self._next_answer()
            if isinstance(answer, _worker.Exhausted):
                self.active[answer.worker] = False
                self._send()
                continue
            self._send()
            if isinstance(answer, ExceptionWrapper):
                self.close()
                answer.reraise()
            return answer
        if not self.loader.persistent_workers:
            self.close()
        raise StopIteration

    def close(self) -> None:
        """Ends the workers, if this process made them: a forked copy of this object owns none."""
        if getattr(self, "closed", True) or self.owner != os.getpid():
            return
        self.closed = True
        for tasks in self.tasks:
            self._post(tasks, None)
        self.outbox.put(None)
        threading.Thread(target=self._drain, daemon=True).start()
        for process in self.processes:
            process.join(POLL_S)
            if process.is_alive():
                process.terminate()
        for channel in self.channels:
            torch.multiprocessing.reductions.close_channel(channel)
        self.results.close()
        self.results.cancel_join_thread()

    def _drain(self) -> None:
        """Takes what is left, so that a worker can finish sending it."""
        while any(p.is_alive() for p in self.processes):
            try:
                self.results.get(timeout=0.05)
            except (queue.Empty, OSError, EOFError, ValueError):
                continue

    def __del__(self) -> None:
        if not sys.is_finalizing():              # then multiprocessing has ended the workers, and no thread can start
            self.close()
