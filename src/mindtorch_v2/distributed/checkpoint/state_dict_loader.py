"""load: every rank reads the pieces that its own tensors consist of, however many ranks had written them."""
from __future__ import annotations

import os
from typing import Any

from mindtorch_v2.distributed.checkpoint._steps import Alone, attempt, ranks_of
from mindtorch_v2.distributed.checkpoint.default_planner import DefaultLoadPlanner, _EmptyStateDictLoadPlanner
from mindtorch_v2.distributed.checkpoint.filesystem import FileSystemReader
from mindtorch_v2.distributed.checkpoint.planner import LoadPlan, LoadPlanner
from mindtorch_v2.distributed.checkpoint.stateful import Stateful
from mindtorch_v2.distributed.checkpoint.storage import StorageReader

__all__ = ["load", "load_state_dict"]


def _reader(checkpoint_id: Any, storage_reader: StorageReader | None) -> StorageReader:
    if storage_reader is None:
        if checkpoint_id is None:
            raise RuntimeError("`checkpoint_id` must be specified if storage_reader/storage_writer is None.")
        return FileSystemReader(checkpoint_id)
    storage_reader.reset(checkpoint_id)
    return storage_reader


def load(state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike | None = None,
         storage_reader: StorageReader | None = None, planner: LoadPlanner | None = None, process_group: Any = None,
         no_dist: bool = False) -> None:
    """Fills a state dict: tensors in place, other values by new ones; every rank of the group calls it."""
    values = {key: value.state_dict() if isinstance(value, Stateful) else value for key, value in state_dict.items()}
    _load(values, _reader(checkpoint_id, storage_reader), planner or DefaultLoadPlanner(), ranks_of(process_group, no_dist))
    for key, value in state_dict.items():
        if isinstance(value, Stateful):
            value.load_state_dict(values[key])
        else:
            state_dict[key] = values[key]


def _load(state_dict: dict[str, Any], reader: StorageReader, planner: LoadPlanner, ranks: Alone) -> None:
    def local_plan() -> LoadPlan:
        metadata = reader.read_metadata()
        planner.set_up_planner(state_dict, metadata, ranks.is_coordinator)
        reader.set_up_storage_reader(metadata, ranks.is_coordinator)
        return reader.prepare_local_plan(planner.create_local_plan())

    plan = ranks.exchange("plan", attempt(local_plan), lambda plans: reader.prepare_global_plan(planner.create_global_plan(plans)))
    done = attempt(lambda: reader.read_data(planner.finish_plan(plan), planner))
    ranks.exchange("read", done, lambda results: results)


def load_state_dict(state_dict: dict[str, Any], storage_reader: StorageReader, process_group: Any = None,
                    coordinator_rank: int = 0, no_dist: bool = False, planner: LoadPlanner | None = None) -> None:
    """load, as older releases called it."""
    load(state_dict, storage_reader=storage_reader, planner=planner, process_group=process_group, no_dist=no_dist)


def _load_state_dict_from_keys(keys: set[str] | str | None = None, *, checkpoint_id: str | os.PathLike | None = None,
                               storage_reader: StorageReader | None = None, process_group: Any = None) -> dict[str, Any]:
    """A state dict made of what the checkpoint has below some names; without names all of it."""
    made: dict[str, Any] = {}
    wanted = {keys} if isinstance(keys, str) else keys
    _load(made, _reader(checkpoint_id, storage_reader), _EmptyStateDictLoadPlanner(wanted), ranks_of(process_group, False))
    return made
