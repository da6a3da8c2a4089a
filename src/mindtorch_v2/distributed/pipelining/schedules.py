"""Schedules of pipelines with one stage a rank: GPipe, and one forward one backward. Those with several are in _multi.py."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed import _collectives as collectives
from mindtorch_v2.distributed.pipelining.microbatch import merge_chunks, split_args_kwargs_into_chunks
from mindtorch_v2.distributed.pipelining.stage import PipelineStage

__all__ = ["PipelineSchedule", "PipelineScheduleSingle", "Schedule1F1B", "ScheduleGPipe"]

Tensor = Any


def _start(ops: list[Any]) -> list[Any]:
    return collectives.batch_isend_irecv(ops) if ops else []


def _finish(works: list[Any]) -> None:
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


class PipelineScheduleSingle(PipelineSchedule):
    """A schedule of one stage a rank."""

    def __init__(self, stage: PipelineStage, n_microbatches: int, loss_fn: Callable[..., Tensor] | None = None,
                 args_chunk_spec: Any = None, kwargs_chunk_spec: Any = None, output_merge_spec: Any = None,
                 scale_grads: bool = True) -> None:
        if stage.num_stages != stage.group_size:
            raise ValueError(f"{type(self).__name__} has one stage a rank, got {stage.num_stages} stages of {stage.group_size} "
                             "ranks")
        super().__init__([stage], n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec, output_merge_spec, scale_grads)
        self._stage = stage

    def _receive(self, number: int) -> list[Any]:
        """What forward of a microbatch needs, after what is told of it once."""
        _finish(_start(self._stage.hear_ops()))
        self._stage.hear()
        return self._stage.get_fwd_recv_ops(number)

    def _forward(self, number: int, parts: list[Any], named: list[Any], targets: list[Tensor] | None) -> None:
        self._forward_of(self._stage, number, parts, named, targets)
        _finish(_start(self._stage.tell_ops()))

    def _backward(self, number: int) -> None:
        loss = self._losses[number] if self._stage.is_last else None
        self._stage.backward_one_chunk(number, loss, last=number == self._n_microbatches - 1)


class ScheduleGPipe(PipelineScheduleSingle):
    """All microbatches forward, then all backward."""

    def _step_microbatches(self, parts: list[Any], named: list[Any], targets: list[Tensor] | None, backward: bool) -> None:
        stage, under_way = self._stage, []
        for i in range(self._n_microbatches):
            _finish(_start(self._receive(i)))
            self._forward(i, parts, named, targets)
            under_way += _start(stage.get_fwd_send_ops(i))
        _finish(under_way)
        under_way = []
        for i in range(self._n_microbatches if backward else 0):
            _finish(_start(stage.get_bwd_recv_ops(i)))
            self._backward(i)
            under_way += _start(stage.get_bwd_send_ops(i))
        _finish(under_way)


class Schedule1F1B(PipelineScheduleSingle):
    """As many microbatches forward as the stages behind hold, then one backward and one forward in turn: no more than that
    many are kept at a time."""

    def _step_microbatches(self, parts: list[Any], named: list[Any], targets: list[Tensor] | None, backward: bool) -> None:
        if not backward:
            ScheduleGPipe._step_microbatches(self, parts, named, targets, False)  # type: ignore[arg-type]
            return
        stage, n = self._stage, self._n_microbatches
        ahead = min(n, stage.num_stages - stage.stage_index)
        sends: list[Any] = []
        works: list[Any] = []
        for i in range(ahead):
            _finish(_start(self._receive(i)))
            self._forward(i, parts, named, targets)
            _finish(works)
            sends = stage.get_fwd_send_ops(i)
            works = _start(sends) if i < ahead - 1 else []
        forward, back = ahead, 0
        while True:
            # What goes to the next stage and what comes from it are one batch: both sides wait for each other's.
            _finish(_start(sends + stage.get_bwd_recv_ops(back)))
            self._backward(back)
            sends = stage.get_bwd_send_ops(back)
            back += 1
            if forward == n:
                break
            _finish(_start(sends + self._receive(forward)))
            self._forward(forward, parts, named, targets)
            sends = stage.get_fwd_send_ops(forward)
            forward += 1
        works = _start(sends)
        while back < n:
            _finish(_start(stage.get_bwd_recv_ops(back)))
            self._backward(back)
            _finish(works)
            works = _start(stage.get_bwd_send_ops(back))
            back += 1
        _finish(works)
