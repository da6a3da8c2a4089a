"""Pipelines between processes, as programs that run unchanged on mindtorch_v2 and on PyTorch; run as dist_cases.py is."""

from __future__ import annotations

import sys
from typing import Any

import dist_cases
import dist_parallel
from dist_cases import World, case
from dist_parallel import part, text, transformer

dist_cases.CASES.clear()


@case
def alone(w: World) -> Any:
    return dist_parallel.plain_transformer(w)


def trained(w: World, schedule: Any, module: Any, steps: int, last: bool) -> Any:
    """The mean losses, the shape of the last output and the number of microbatches; last: whether this rank has the last stage."""
    optimizer = w.torch.optim.AdamW(module.parameters(), lr=0.02)
    losses_seen = []
    for step in range(steps):
        tokens, wanted = text(w, step)
        optimizer.zero_grad()
        losses: list[Any] = []
        out = schedule.step(*([tokens] if w.rank == 0 else []), **({"target": wanted, "losses": losses} if last else {}))
        optimizer.step()
        losses_seen.append(sum(losses) / len(losses) if losses else None)
    return losses_seen, None if out is None else list(out.shape), len(losses)


def piped(w: World, kind: str, microbatches: int, steps: int = 3) -> Any:
    """The transformer cut in the middle: a block and what is before it on the first rank, the rest on the last."""
    p, nn = part(w, "pipelining"), w.torch.nn
    model = transformer(w)
    stages = [nn.Sequential(model.tokens, model.blocks[0]), nn.Sequential(model.blocks[1], model.norm, model.logits)]
    module = stages[w.rank]
    stage = p.PipelineStage(module, w.rank, w.size, w.torch.device(w.device))
    schedule = getattr(p, kind)(stage, microbatches, loss_fn=lambda y, wanted: nn.functional.cross_entropy(
        y.flatten(0, 1), wanted.flatten()))
    return trained(w, schedule, module, steps, w.rank > 0)


def looped(w: World, kind: str, microbatches: int, steps: int = 3, folded: bool = False) -> Any:
    """Two stages a rank: 0 and 2 on the first, or 0 and 3 where they are folded."""
    p, nn = part(w, "pipelining"), w.torch.nn
    model = transformer(w)
    parts = [nn.Sequential(model.tokens), nn.Sequential(model.blocks[0]), nn.Sequential(model.blocks[1]),
             nn.Sequential(model.norm, model.logits)]
    mine = [0, 3] if folded and w.rank == 0 else [1, 2] if folded else [w.rank, w.rank + 2]
    module = nn.ModuleList([parts[i] for i in mine])
    stages = [p.PipelineStage(parts[i], i, 4, w.torch.device(w.device)) for i in mine]
    schedule = getattr(p, kind)(stages, microbatches, loss_fn=lambda y, wanted: nn.functional.cross_entropy(
        y.flatten(0, 1), wanted.flatten()))
    return trained(w, schedule, module, steps, 3 in mine)


@case
def pipeline_interleaved(w: World) -> Any:
    return looped(w, "ScheduleInterleaved1F1B", 2), looped(w, "ScheduleInterleaved1F1B", 4), looped(w, "ScheduleLoopedBFS", 4)


@case
def pipeline_zero_bubble(w: World) -> Any:
    return [looped(w, "ScheduleInterleavedZeroBubble", 4)] + [
        looped(w, kind, 4, folded=True) for kind in ("ScheduleZBVZeroBubble", "ScheduleDualPipeV")]


@case
def pipeline_traced(w: World) -> Any:
    """pipeline() cuts the model itself; what it gives is trained with either schedule."""
    p, nn = part(w, "pipelining"), w.torch.nn
    losses_seen = []
    for kind in ("ScheduleGPipe", "Schedule1F1B"):
        model, tokens = transformer(w), text(w, 0)[0]
        pipe = p.pipeline(model, (tokens[: len(tokens) // 2],), split_spec={"blocks.1": p.SplitPoint.BEGINNING})
        names = sorted(name for name, _ in pipe.get_stage_module(w.rank).named_parameters())
        stage = pipe.build_stage(w.rank, w.torch.device(w.device))
        schedule = getattr(p, kind)(stage, 2, loss_fn=lambda y, wanted: nn.functional.cross_entropy(
            y.flatten(0, 1), wanted.flatten()))
        optimizer = w.torch.optim.AdamW(stage.submod.parameters(), lr=0.02)
        for step in range(2):
            tokens, wanted = text(w, step)
            optimizer.zero_grad()
            losses: list[Any] = []
            schedule.step(*([tokens] if w.rank == 0 else []), **({"target": wanted, "losses": losses} if w.rank else {}))
            optimizer.step()
            losses_seen.append(sum(losses) / len(losses) if losses else None)
    return losses_seen, pipe.num_stages, names


@case
def pipeline_gpipe(w: World) -> Any:
    return piped(w, "ScheduleGPipe", 2), piped(w, "ScheduleGPipe", 4)


@case
def pipeline_1f1b(w: World) -> Any:
    return piped(w, "Schedule1F1B", 2), piped(w, "Schedule1F1B", 4)


if __name__ == "__main__":
    dist_cases.run(sys.argv[1:])
