"""What every schedule of a pipeline does with a batch."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed import _collectives as collectives
from mindtorch_v2.distributed.pipelining.microbatch import merge_chunks, split_args_kwargs_into_chunks
from mindtorch_v2.distributed.pipelining.stage import PipelineStage

Tensor = Any


def start(ops: list[Any]) -> list[Any]:
    return collectives.batch_isend_irecv(ops) if ops else []


def finish(works: list[Any]) -> None:
    for work in works:
        work.wait()


class PipelineSchedule:
    """What every schedule does with a batch: cuts it, has its stages compute the parts, and joins what they give."""

    def __init__(self, stages: list[PipelineStage], n_microbatches: int, loss_fn: Callable[..., Tensor] | None,
                 args_chunk_spec: Any, kwargs_chunk_spec: Any, output_merge_spec: Any, scale_grads: bool) -> None:
        self._stages, self._n_microbatches, self._loss_fn = stages, n_microbatches, loss_fn
        self._args_spec, self._kwargs_spec, self._merge_spec = args_chunk_spec, kwargs_chunk_spec, output_merge_spec
        self.scale_grads = scale_grads
        self._losses: list[Tensor] = []

    def step(self, *args: Any, target: Tensor | None = None, losses: list[Tensor] | None = None, return_outputs: bool = True,
             loss_kwargs: dict[str, Any] | None = None, **kwargs: Any) -> Any:
        """One batch forward and backward: the first rank gives the arguments, the last one the target; it gets the output."""
        return self._run(args, kwargs, target, losses, return_outputs, loss_kwargs, self._loss_fn is not None)

    def eval(self, *args: Any, target: Tensor | None = None, losses: list[Tensor] | None = None, **kwargs: Any) -> Any:
        """One batch forward only."""
        return self._run(args, kwargs, target, losses, True, None, False)

    def _run(self, args: tuple, kwargs: dict[str, Any], target: Any, losses: Any, return_outputs: bool, loss_kwargs: Any,
             backward: bool) -> Any:
        n = self._n_microbatches
        for stage in self._stages:
            stage.begin(backward)
        parts, named = split_args_kwargs_into_chunks(args, kwargs, n, self._args_spec, self._kwargs_spec) \
            if args or kwargs else ([()] * n, [{}] * n)
        targets = None if target is None else list(torch.tensor_split(target, n))
        self._losses, self._loss_kwargs = [], loss_kwargs or {}
        self._step_microbatches(parts, named, targets, backward)
        last = next((stage for stage in self._stages if stage.is_last), None)
        if losses is not None and last is not None:
            losses[:] = self._losses
        made = merge_chunks(last.whole_outputs, self._merge_spec) if last is not None and return_outputs else None
        for stage in self._stages:
            if backward and self.scale_grads:
                stage.scale_grads(n)
            stage.clear()
        return made

    def _forward_of(self, stage: PipelineStage, number: int, parts: list[Any], named: list[Any],
                    targets: list[Tensor] | None) -> None:
        output = stage.forward_one_chunk(number, parts[number], named[number])
        if stage.is_last and self._loss_fn is not None and targets is not None:
            self._losses.append(self._loss_fn(output, targets[number], **self._loss_kwargs))
        elif stage.is_last and stage.has_backward:
            raise RuntimeError("target_mbs must be passed to the last stage")

    def _step_microbatches(self, parts: list[Any], named: list[Any], targets: list[Tensor] | None, backward: bool) -> None:
        raise NotImplementedError
