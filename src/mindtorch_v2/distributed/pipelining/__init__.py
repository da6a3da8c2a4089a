"""torch.distributed.pipelining: a model divided by its depth, computed in microbatches."""
from __future__ import annotations

from mindtorch_v2.distributed.pipelining import microbatch, schedules, stage
from mindtorch_v2.distributed.pipelining._tracing import Pipe, SplitPoint, build_stage, pipe_split, pipeline
from mindtorch_v2.distributed.pipelining.schedules import (
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
)
from mindtorch_v2.distributed.pipelining.stage import PipelineStage

__all__ = ["Pipe", "PipelineStage", "Schedule1F1B", "ScheduleDualPipeV", "ScheduleGPipe", "ScheduleInterleaved1F1B",
           "ScheduleInterleavedZeroBubble", "ScheduleLoopedBFS", "ScheduleZBVZeroBubble", "SplitPoint", "build_stage",
           "pipe_split", "pipeline"]
