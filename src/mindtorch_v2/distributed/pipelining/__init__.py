"""torch.distributed.pipelining: a model divided by its depth, computed in microbatches."""
from __future__ import annotations

import mindtorch_v2 as torch
from mindtorch_v2.distributed.pipelining import microbatch, schedules, stage
from mindtorch_v2.distributed.pipelining._tracing import Pipe, SplitPoint, build_stage, pipe_split, pipeline
from mindtorch_v2.distributed.pipelining.schedules import (
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
)
from mindtorch_v2.distributed.pipelining.stage import PipelineStage

ScheduleDualPipeV = torch._facade.absent("torch.distributed.pipelining.ScheduleDualPipeV", "mindtorch_v2 computes one thing at a "
                                         "time on a rank; ScheduleZBVZeroBubble places stages in the same way")

__all__ = ["Pipe", "PipelineStage", "Schedule1F1B", "ScheduleDualPipeV", "ScheduleGPipe", "ScheduleInterleaved1F1B",
           "ScheduleInterleavedZeroBubble", "ScheduleLoopedBFS", "ScheduleZBVZeroBubble", "SplitPoint", "build_stage",
           "pipe_split", "pipeline"]
