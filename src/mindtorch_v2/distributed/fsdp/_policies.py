"""Options of fully_shard: precision, and where parameters are kept."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["CPUOffloadPolicy", "DataParallelMeshDims", "MixedPrecisionPolicy", "OffloadPolicy"]


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """Dtypes of the whole parameters, of the reduction of gradients and of outputs; parts keep their own."""
    param_dtype: Any = None
    reduce_dtype: Any = None
    output_dtype: Any = None
    cast_forward_inputs: bool = True

    def __post_init__(self) -> None:
        if self.param_dtype == self.reduce_dtype:
            object.__setattr__(self, "reduce_dtype", None)


@dataclass
class OffloadPolicy:
    """Parts stay on the device."""


@dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Parts, their gradients and the optimizer's state are in the host's memory."""
    pin_memory: bool = True


@dataclass
class DataParallelMeshDims:
    """Which dimensions of a mesh shard and replicate."""
    shard: str | tuple[str, ...] | None = None
    replicate: str | tuple[str, ...] | None = None
