"""Schedules of pipelines with one stage a rank: GPipe, and one forward one backward."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mindtorch_v2.distributed.pipelining._schedule import PipelineSchedule, finish, start
from mindtorch_v2.distributed.pipelining.stage import PipelineStage

Tensor = Any


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
        """The inputs of a microbatch's forward; their shapes are received once, before the first."""
        finish(start(self._stage.receive_shape_ops()))
        self._stage.read_shapes()
        return self._stage.get_fwd_recv_ops(number)

    def _forward(self, number: int, parts: list[Any], named: list[Any], targets: list[Tensor] | None) -> None:
        self._forward_of(self._stage, number, parts, named, targets)
        finish(start(self._stage.send_shape_ops()))

    def _backward(self, number: int) -> None:
        loss = self._losses[number] if self._stage.is_last else None
        self._stage.backward_one_chunk(number, loss, last=number == self._n_microbatches - 1)


class ScheduleGPipe(PipelineScheduleSingle):
    """All microbatches forward, then all backward."""

    def _step_microbatches(self, parts: list[Any], named: list[Any], targets: list[Tensor] | None, backward: bool) -> None:
        stage, under_way = self._stage, []
        for i in range(self._n_microbatches):
            finish(start(self._receive(i)))
            self._forward(i, parts, named, targets)
            under_way += start(stage.get_fwd_send_ops(i))
        finish(under_way)
        under_way = []
        for i in range(self._n_microbatches if backward else 0):
            finish(start(stage.get_bwd_recv_ops(i)))
            self._backward(i)
            under_way += start(stage.get_bwd_send_ops(i))
        finish(under_way)


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
            finish(start(self._receive(i)))
            self._forward(i, parts, named, targets)
            finish(works)
            sends = stage.get_fwd_send_ops(i)
            works = start(sends) if i < ahead - 1 else []
        forward, back = ahead, 0
        while True:
            # What goes to the next stage and what comes from it are one batch: both sides wait for each other's.
            finish(start(sends + stage.get_bwd_recv_ops(back)))
            self._backward(back)
            sends = stage.get_bwd_send_ops(back)
            back += 1
            if forward == n:
                break
            finish(start(sends + self._receive(forward)))
            self._forward(forward, parts, named, targets)
            sends = stage.get_fwd_send_ops(forward)
            forward += 1
        works = start(sends)
        while back < n:
            finish(start(stage.get_bwd_recv_ops(back)))
            self._backward(back)
            finish(works)
            works = start(stage.get_bwd_send_ops(back))
            back += 1
        finish(works)
