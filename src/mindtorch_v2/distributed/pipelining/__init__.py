"""torch.distributed.pipelining: a model divided by its depth, computed in microbatches."""
from __future__ import annotations

import mindtorch_v2 as torch
from mindtorch_v2.distributed.pipelining import microbatch, schedules, stage
from mindtorch_v2.distributed.pipelining._multi import (
    PipelineScheduleMulti,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
)
from mindtorch_v2.distributed.pipelining._tracing import Pipe, SplitPoint, build_stage, pipe_split, pipeline
from mindtorch_v2.distributed.pipelining.schedules import Schedule1F1B, ScheduleGPipe
from mindtorch_v2.distributed.pipelining.stage import PipelineStage

ScheduleDualPipeV = torch._facade.absent("torch.distributed.pipelining.ScheduleDualPipeV", "mindtorch_v2 computes one thing at a "
                                         "time on a rank; ScheduleZBVZeroBubble places stages in the same way")

__all__ = ["Pipe", "PipelineStage", "Schedule1F1B", "ScheduleDualPipeV", "ScheduleGPipe", "ScheduleInterleaved1F1B",
           "ScheduleInterleavedZeroBubble", "ScheduleLoopedBFS", "ScheduleZBVZeroBubble", "SplitPoint", "build_stage",
           "pipe_split", "pipeline"]


def _get_schedule_class(schedule_name: str) -> type:
    """The schedule of a name such as "1F1B", in any case."""
    known = {kind.__name__.removeprefix("Schedule").lower(): kind for kind in (
        ScheduleGPipe, Schedule1F1B, ScheduleLoopedBFS, ScheduleInterleaved1F1B, ScheduleInterleavedZeroBubble,
        ScheduleZBVZeroBubble)}
    if schedule_name.lower() not in known:
        raise ValueError(f"Unknown schedule name: {schedule_name}. The valid options are "
                         f"{[kind.__name__.removeprefix('Schedule') for kind in known.values()]}")
    return known[schedule_name.lower()]


# Where torch has them.
schedules.get_schedule_class = _get_schedule_class   # type: ignore[attr-defined]
for _kind in (PipelineScheduleMulti, ScheduleInterleaved1F1B, ScheduleInterleavedZeroBubble, ScheduleLoopedBFS, ScheduleZBVZeroBubble):
    setattr(schedules, _kind.__name__, _kind)
    _kind.__module__ = schedules.__name__
