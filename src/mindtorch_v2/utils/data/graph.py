"""torch.utils.data.graph: which datapipes a datapipe reads from."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mindtorch_v2.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe

__all__ = ["traverse", "traverse_dps"]
DataPipeGraph = dict[int, tuple[Any, Any]]


def _pipes(value: Any) -> Iterator[Any]:
    """The datapipes that a value is or holds."""
    if isinstance(value, (IterDataPipe, MapDataPipe)):
        yield value
    elif isinstance(value, (list, tuple, set, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _pipes(item)


def traverse_dps(datapipe: Any) -> DataPipeGraph:
    """{id: (the datapipe, the same of those it reads from)}."""
    below: DataPipeGraph = {}
    for source in _pipes(vars(datapipe)):
        below |= traverse_dps(source)
    return {id(datapipe): (datapipe, below)}


def traverse(datapipe: Any, only_datapipe: bool | None = None) -> DataPipeGraph:
    """As traverse_dps."""
    return traverse_dps(datapipe)
