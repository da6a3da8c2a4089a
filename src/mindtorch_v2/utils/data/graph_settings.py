"""torch.utils.data.graph_settings: shares, shuffling and seeds of all datapipes that a datapipe reads from."""
from __future__ import annotations

import inspect
from enum import IntEnum
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.utils.data.graph import DataPipeGraph, traverse_dps

__all__ = ["apply_random_seed", "apply_sharding", "apply_shuffle_seed", "apply_shuffle_settings", "get_all_graph_pipes"]


class SHARDING_PRIORITIES(IntEnum):
    """Among whom a datapipe is shared out: all, processes, or workers of one process."""
    DEFAULT, DISTRIBUTED, MULTIPROCESSING = 1, 2, 3


def get_all_graph_pipes(graph: DataPipeGraph) -> list[Any]:
    """Every datapipe of a graph, once."""
    found: dict[int, Any] = {}

    def visit(below: DataPipeGraph) -> None:
        for number, (pipe, further) in below.items():
            if number not in found:
                found[number] = pipe
                visit(further)
    visit(graph)
    return list(found.values())


def apply_sharding(datapipe: Any, num_of_instances: int, instance_id: int,
                   sharding_group: Any = SHARDING_PRIORITIES.DEFAULT) -> Any:
    """Let each datapipe that can give a share of its items give that one."""
    for pipe in get_all_graph_pipes(traverse_dps(datapipe)):
        if callable(getattr(pipe, "apply_sharding", None)):
            if len(inspect.signature(pipe.apply_sharding).parameters) < 3:        # a class of the user's, from before groups
                pipe.apply_sharding(num_of_instances, instance_id)
            else:
                pipe.apply_sharding(num_of_instances, instance_id, sharding_group=sharding_group)
    return datapipe


def apply_shuffle_settings(datapipe: Any, shuffle: bool | None = None) -> Any:
    """Switch the shuffling of each datapipe that shuffles; None changes nothing. Without any, `shuffle` appends one."""
    if shuffle is None:
        return datapipe
    shufflers = [pipe for pipe in get_all_graph_pipes(traverse_dps(datapipe)) if hasattr(pipe, "set_shuffle")]
    if shuffle and not shufflers:
        datapipe = datapipe.shuffle()
        shufflers = [datapipe]
    for pipe in shufflers:
        pipe.set_shuffle(shuffle)
    return datapipe


def apply_shuffle_seed(datapipe: Any, rng: Any) -> Any:
    """As apply_random_seed."""
    return apply_random_seed(datapipe, rng)


def apply_random_seed(datapipe: Any, rng: torch.Generator) -> Any:
    """Give each datapipe that draws a seed from the generator."""
    for pipe in get_all_graph_pipes(traverse_dps(datapipe)):
        if callable(getattr(pipe, "set_seed", None)):
            pipe.set_seed(int(torch.empty((), dtype=torch.int64).random_(generator=rng).item()))
    return datapipe
