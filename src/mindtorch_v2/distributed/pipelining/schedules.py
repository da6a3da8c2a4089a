"""torch.distributed.pipelining.schedules: the schedules by their names."""
from __future__ import annotations

from mindtorch_v2.distributed.pipelining._multi import (
    PipelineScheduleMulti,
    ScheduleDualPipeV,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
)
from mindtorch_v2.distributed.pipelining._schedule import PipelineSchedule
from mindtorch_v2.distributed.pipelining._single import PipelineScheduleSingle, Schedule1F1B, ScheduleGPipe

__all__ = ["PipelineSchedule", "PipelineScheduleMulti", "PipelineScheduleSingle", "Schedule1F1B", "ScheduleDualPipeV",
           "ScheduleGPipe", "ScheduleInterleaved1F1B", "ScheduleInterleavedZeroBubble", "ScheduleLoopedBFS",
           "ScheduleZBVZeroBubble", "get_schedule_class"]

_NAMED = {kind.__name__.removeprefix("Schedule"): kind for kind in (
    Schedule1F1B, ScheduleInterleaved1F1B, ScheduleGPipe, ScheduleLoopedBFS, ScheduleInterleavedZeroBubble,
    PipelineScheduleSingle, PipelineScheduleMulti, ScheduleZBVZeroBubble, ScheduleDualPipeV)}


def get_schedule_class(schedule_name: str) -> type[PipelineSchedule]:
    """The schedule of a name such as "1F1B", in any case."""
    found = {name.lower(): kind for name, kind in _NAMED.items()}.get(schedule_name.lower())
    if found is None:
        raise ValueError(f"Unknown schedule name '{schedule_name}'. The valid options are {list(_NAMED)}")
    return found
