"""torch.distributed.pipelining: a model divided by its depth, computed in microbatches."""
from __future__ import annotations

import mindtorch_v2 as torch
from mindtorch_v2.distributed.pipelining import microbatch, schedules, stage
from mindtorch_v2.distributed.pipelining.schedules import Schedule1F1B, ScheduleGPipe
from mindtorch_v2.distributed.pipelining.stage import PipelineStage

_WHY = "mindtorch_v2 has stages that a program makes itself, one a rank: PipelineStage, ScheduleGPipe and Schedule1F1B"
_PREFIX = "torch.distributed.pipelining."
pipeline = torch._facade.refusal(_PREFIX + "pipeline", _WHY)
pipe_split = torch._facade.refusal(_PREFIX + "pipe_split", _WHY)
build_stage = torch._facade.refusal(_PREFIX + "build_stage", _WHY)
Pipe = torch._facade.absent(_PREFIX + "Pipe", _WHY)
SplitPoint = torch._facade.absent(_PREFIX + "SplitPoint", _WHY)
ScheduleInterleaved1F1B = torch._facade.absent(_PREFIX + "ScheduleInterleaved1F1B", _WHY)
ScheduleLoopedBFS = torch._facade.absent(_PREFIX + "ScheduleLoopedBFS", _WHY)
ScheduleInterleavedZeroBubble = torch._facade.absent(_PREFIX + "ScheduleInterleavedZeroBubble", _WHY)
ScheduleZBVZeroBubble = torch._facade.absent(_PREFIX + "ScheduleZBVZeroBubble", _WHY)
ScheduleDualPipeV = torch._facade.absent(_PREFIX + "ScheduleDualPipeV", _WHY)

__all__ = ["Pipe", "PipelineStage", "Schedule1F1B", "ScheduleDualPipeV", "ScheduleGPipe", "ScheduleInterleaved1F1B",
           "ScheduleInterleavedZeroBubble", "ScheduleLoopedBFS", "ScheduleZBVZeroBubble", "SplitPoint", "build_stage",
           "pipe_split", "pipeline"]
