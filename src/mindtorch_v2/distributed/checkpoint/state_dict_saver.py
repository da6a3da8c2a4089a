"""save and async_save: every rank writes its pieces, and the checkpoint is there when all have."""
from __future__ import annotations

import copy
import os
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed.checkpoint._steps import Alone, ByStore, Together, attempt, ranks_of
from mindtorch_v2.distributed.checkpoint.api import CheckpointException
from mindtorch_v2.distributed.checkpoint.default_planner import DefaultSavePlanner
from mindtorch_v2.distributed.checkpoint.filesystem import FileSystemWriter
from mindtorch_v2.distributed.checkpoint.metadata import Metadata
from mindtorch_v2.distributed.checkpoint.planner import SavePlan, SavePlanner
from mindtorch_v2.distributed.checkpoint.stateful import Stateful
from mindtorch_v2.distributed.checkpoint.storage import StorageWriter
from mindtorch_v2.distributed.tensor import DTensor

__all__ = ["AsyncCheckpointerType", "AsyncSaveResponse", "async_save", "save", "save_state_dict"]


class AsyncCheckpointerType(Enum):
    """Who writes an asynchronous checkpoint."""
    THREAD = "thread"
    PROCESS = "process"


@dataclass
class AsyncSaveResponse:
    """What an asynchronous save with its own stager gives."""
    staging_completion: Future
    upload_completion: Future


def _values(state_dict: dict[str, Any]) -> dict[str, Any]:
    """The state of the objects that have one."""
    return {key: value.state_dict() if isinstance(value, Stateful) else value for key, value in state_dict.items()}


def _writer(checkpoint_id: Any, storage_writer: StorageWriter | None) -> StorageWriter:
    if storage_writer is None:
        if checkpoint_id is None:
            raise RuntimeError("`checkpoint_id` must be specified if storage_reader/storage_writer is None.")
        return FileSystemWriter(checkpoint_id)
    storage_writer.reset(checkpoint_id)
    return storage_writer


def save(state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike | None = None,
         storage_writer: StorageWriter | None = None, planner: SavePlanner | None = None, process_group: Any = None,
         no_dist: bool = False, use_collectives: bool = True) -> Metadata:
    """Writes a state dict; every rank of the group calls it."""
    return _save(_values(state_dict), _writer(checkpoint_id, storage_writer), planner or DefaultSavePlanner(),
                 ranks_of(process_group, no_dist))


def _save(state_dict: dict[str, Any], writer: StorageWriter, planner: SavePlanner, ranks: Alone) -> Metadata:
    found: list[Metadata] = []

    def local_plan() -> SavePlan:
        planner.set_up_planner(state_dict, writer.storage_meta(), ranks.is_coordinator)
        writer.set_up_storage_writer(ranks.is_coordinator)
        return writer.prepare_local_plan(planner.create_local_plan())

    def global_plan(plans: list[SavePlan]) -> list[SavePlan]:
        plans, metadata = planner.create_global_plan(plans)
        found.append(metadata)
        return writer.prepare_global_plan(plans)

    def finish(results: list[Any]) -> list[Any]:
        writer.finish(found[0], results)
        return [found[0]] * ranks.size

    try:
        plan = ranks.exchange("plan", attempt(local_plan), global_plan)
        return ranks.exchange("write", attempt(lambda: writer.write_data(planner.finish_plan(plan), planner)), finish)
    except CheckpointException:
        writer.give_up()
        raise


def save_state_dict(state_dict: dict[str, Any], storage_writer: StorageWriter, process_group: Any = None,
                    coordinator_rank: int = 0, no_dist: bool = False, planner: SavePlanner | None = None) -> Metadata:
    """save, as older releases called it."""
    return save(state_dict, storage_writer=storage_writer, planner=planner, process_group=process_group, no_dist=no_dist)


def _staged(value: Any) -> Any:
    """A copy in the host's memory, which the program cannot change any more."""
    if isinstance(value, DTensor):
        return DTensor(value.to_local().detach().to("cpu", copy=True), value._spec)
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: _staged(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        made = [_staged(item) for item in value]
        return made if isinstance(value, list) else tuple(made)
    return copy.deepcopy(value)


def async_save(state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike | None = None,
               storage_writer: StorageWriter | None = None, planner: SavePlanner | None = None, process_group: Any = None,
               async_checkpointer_type: AsyncCheckpointerType = AsyncCheckpointerType.THREAD, async_stager: Any = None,
               no_dist: bool = False, use_collectives: bool = True) -> Future:
    """save of a copy, by a thread: the program goes on once the copy is made. The future has the metadata or the error.

    Ranks tell each other through the store of the group, so that the thread's messages and the program's collectives
    cannot be taken for each other."""
    if async_checkpointer_type is not AsyncCheckpointerType.THREAD:
        raise NotImplementedError("[async_save] only AsyncCheckpointerType.THREAD is there")
    staged = async_stager.stage(_values(state_dict)) if async_stager is not None else _staged(_values(state_dict))
    ranks = ranks_of(process_group, no_dist)
    if isinstance(ranks, Together):
        ranks = ByStore(process_group)
    writer = _writer(checkpoint_id, storage_writer)
    executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
    future = executor.submit(_save, staged, writer, planner or DefaultSavePlanner(), ranks)
    executor.shutdown(wait=False)
    return future
