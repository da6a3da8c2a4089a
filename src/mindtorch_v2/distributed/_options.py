"""The options that c10d's own methods of a group take, and small questions about backends and reductions."""
from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from enum import IntEnum
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed import _names
from mindtorch_v2.distributed._collectives import barrier
from mindtorch_v2.distributed._process_group import Backend
from mindtorch_v2.distributed._work import RedOpType, ReduceOp
from mindtorch_v2.distributed._world import _world, get_rank

_UNSET = timedelta(milliseconds=-1)               # the group's own timeout
GroupName = str
shrink_group = _names.refusal("shrink_group")
Logger, ProcessGroupGloo = _names.absent("Logger"), _names.absent("ProcessGroupGloo")


class _Options:
    """What all have."""

    def __init__(self) -> None:
        self.timeout, self.asyncOp = _UNSET, True


class AllToAllOptions(_Options):
    """Of alltoall."""


class AllgatherOptions(_Options):
    """Of allgather."""


class AllreduceOptions(_Options):
    """Of allreduce."""

    def __init__(self) -> None:
        super().__init__()
        self.reduceOp: Any = ReduceOp(RedOpType.SUM)


class AllreduceCoalescedOptions(AllreduceOptions):
    """Of allreduce_coalesced."""


class ReduceScatterOptions(AllreduceOptions):
    """Of reduce_scatter."""


class ReduceOptions(AllreduceOptions):
    """Of reduce."""

    def __init__(self) -> None:
        super().__init__()
        self.rootRank = self.rootTensor = 0


class BroadcastOptions(_Options):
    """Of broadcast."""

    def __init__(self) -> None:
        super().__init__()
        self.rootRank = self.rootTensor = 0


class GatherOptions(_Options):
    """Of gather."""

    def __init__(self) -> None:
        super().__init__()
        self.rootRank = 0


class ScatterOptions(GatherOptions):
    """Of scatter."""


class BarrierOptions(_Options):
    """Of barrier."""

    def __init__(self) -> None:
        super().__init__()
        self.device_ids: list[int] = []
        self.device: Any = None


class BuiltinCommHookType(IntEnum):
    """Hooks of DistributedDataParallel that torch has compiled in."""
    ALLREDUCE, FP16_COMPRESS = 1, 2


def get_default_backend_for_device(device: Any) -> str:
    """The backend that serves a device where none is named."""
    kind = torch.device(device).type
    backend = Backend.default_device_backend_map.get(kind)
    if backend is None:
        raise ValueError(f"Default backend not registered for device : {device}")
    return backend


def supports_complex(reduceOp: Any) -> bool:
    """Whether a reduction takes complex tensors."""
    return reduceOp not in (ReduceOp.MAX, ReduceOp.MIN, ReduceOp.PRODUCT, ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)


@contextmanager
def record_comm(name: str) -> Iterator[None]:
    """A with block whose collectives a profiler shows under a name."""
    with torch.profiler.record_function(name):
        yield


_skipped: dict[tuple[str, int], int] = {}


def breakpoint(rank: int = 0, skip: int = 0, timeout_s: float | None = 3600) -> None:
    """The debugger, on one rank; the others wait for it. skip: how many times this line is passed before."""
    caller = sys._getframe(1)
    place = caller.f_code.co_filename, caller.f_lineno
    _skipped[place] = _skipped.get(place, 0) + 1
    if _skipped[place] <= skip:
        return
    if timeout_s is not None:
        for group in _world.groups.values():
            group._timeout = timedelta(seconds=timeout_s)
            for engine in group._engines.values():
                _set_timeout(engine, timeout_s)
    if get_rank() == rank:
        print(f"\n!!! ATTENTION !!!\n\nType 'up' to get to the frame that called dist.breakpoint(rank={rank})\n", flush=True)
        sys.breakpointhook()                      # pdb, or what PYTHONBREAKPOINT names
    barrier()


def _set_timeout(engine: Any, seconds: float) -> None:
    queue = getattr(engine, "queue", None)        # of HCCL, whose watchdog reads it
    if queue is not None:
        queue.timeout = seconds
    else:
        engine.timeout = seconds
