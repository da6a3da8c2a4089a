"""Schedules of pipelines with several stages a rank: all ranks follow one table, step by step."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mindtorch_v2.distributed.pipelining import _orders
from mindtorch_v2.distributed.pipelining._orders import BACKWARD, FORWARD, INPUT, WEIGHT, Action
from mindtorch_v2.distributed.pipelining._schedule import PipelineSchedule, finish, start
from mindtorch_v2.distributed.pipelining.stage import PipelineStage

Tensor = Any


class PipelineScheduleMulti(PipelineSchedule):
    """A schedule of several stages a rank. The results of a step are sent and received at its end and used at a later step, so
    that no two ranks can wait for each other."""

    _place = staticmethod(_orders.looped)

    def __init__(self, stages: list[PipelineStage], n_microbatches: int, loss_fn: Callable[..., Tensor] | None = None,
                 args_chunk_spec: Any = None, kwargs_chunk_spec: Any = None, output_merge_spec: Any = None,
                 scale_grads: bool = True, backward_requires_autograd: bool = True, defer_pp_recv: bool = False) -> None:
        if not isinstance(stages, list | tuple) or not stages:
            raise ValueError(f"{type(self).__name__} has a list of stages, got {stages!r}")
        super().__init__(list(stages), n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec, output_merge_spec, scale_grads)
        first = stages[0]
        self._ranks, self._rank, self._count = first.group_size, first.group_rank, first.num_stages
        if self._count % self._ranks:
            raise ValueError(f"{type(self).__name__} has as many stages on each rank, got {self._count} stages of {self._ranks} "
                             "ranks")
        self._rank_of = self._place(self._count, self._ranks)
        wanted = [stage for stage, rank in enumerate(self._rank_of) if rank == self._rank]
        if [stage.stage_index for stage in stages] != wanted:
            raise ValueError(f"{type(self).__name__} has the stages {wanted} on rank {self._rank} of {self._ranks}, got "
                             f"{[stage.stage_index for stage in stages]}")
        for stage in stages:
            stage.stage_index_to_group_rank = dict(enumerate(self._rank_of))
        self._by_index = {stage.stage_index: stage for stage in stages}
        self.pipeline_order = dict(enumerate(self._order()))

    def _order(self) -> list[_orders.Row]:
        raise NotImplementedError

    def _step_microbatches(self, parts: list[Any], named: list[Any], targets: list[Tensor] | None, backward: bool) -> None:
        if backward:
            rows = list(self.pipeline_order.values())
        else:
            plans = [[Action(stage, FORWARD, i) for stage, at in enumerate(self._rank_of) if at == rank
                      for i in range(self._n_microbatches)] for rank in range(self._ranks)]
            rows = _orders.placed(plans, self._count)
        self._losses_of: dict[int, Tensor] = {}
        self._left = dict.fromkeys(self._by_index, self._n_microbatches)
        for step in zip(*rows, strict=True):
            action = step[self._rank]
            if action is not None:
                self._compute(action, parts, named, targets)
            self._exchange(step)
        self._losses = [self._losses_of[i] for i in sorted(self._losses_of)]

    def _compute(self, action: Action, parts: list[Any], named: list[Any], targets: list[Tensor] | None) -> None:
        number, stage = action.microbatch_index, self._by_index[action.stage_index]
        if action.computation_type == FORWARD:
            count = len(self._losses)
            self._forward_of(stage, number, parts, named, targets)
            if len(self._losses) > count:
                self._losses_of[number] = self._losses[-1]
            return
        last = self._left[stage.stage_index] == 1   # in this schedule's order, not by number
        loss = self._losses_of[number] if stage.is_last else None
        if action.computation_type == BACKWARD:
            stage.backward_one_chunk(number, loss, last)
        elif action.computation_type == INPUT:
            stage.backward_input_one_chunk(number, loss, last)
        else:
            stage.backward_weight_one_chunk(number, last)
        self._left[stage.stage_index] -= action.computation_type != INPUT

    def _exchange(self, step: tuple[Action | None, ...]) -> None:
        """Sends what this rank has computed, and receives what others have computed for it."""
        messages: list[Any] = []
        ops: list[Any] = []
        come: list[tuple[PipelineStage, Action]] = []
        for rank, action in enumerate(step):
            if action is None or action.computation_type == WEIGHT:
                continue
            ahead = action.computation_type == FORWARD
            to = action.stage_index + (1 if ahead else -1)
            if not 0 <= to < self._count:
                continue
            if rank == self._rank:
                messages += self._give(action, ahead, to, ops)
            elif self._rank_of[to] == self._rank:
                come.append((self._by_index[to], action))
                messages += self._by_index[to].receive_shape_ops() if ahead else []
        finish(start(messages))
        for stage, action in come:
            if action.computation_type == FORWARD:
                stage.read_shapes()
                ops += stage.get_fwd_recv_ops(action.microbatch_index)
            else:
                ops += stage.get_bwd_recv_ops(action.microbatch_index)
        finish(start(ops))

    def _give(self, action: Action, ahead: bool, to: int, ops: list[Any]) -> list[Any]:
        """Sends the outputs to a stage of this rank or of another; returns the messages that have to be sent first."""
        stage, number = self._by_index[action.stage_index], action.microbatch_index
        if self._rank_of[to] == self._rank:
            if ahead:
                self._by_index[to].take_inputs(number, stage.outputs[number])
            else:
                self._by_index[to].take_grads(number, stage.input_grads.pop(number))
            return []
        ops += stage.get_fwd_send_ops(number) if ahead else stage.get_bwd_send_ops(number)
        return stage.send_shape_ops() if ahead else []


class ScheduleLoopedBFS(PipelineScheduleMulti):
    """Breadth first: all microbatches through one stage of a rank, then through its next."""

    def __init__(self, stages: list[PipelineStage], n_microbatches: int, loss_fn: Callable[..., Tensor] | None = None,
                 output_merge_spec: Any = None, scale_grads: bool = True, backward_requires_autograd: bool = True,
                 defer_pp_recv: bool = False) -> None:
        super().__init__(stages, n_microbatches, loss_fn, output_merge_spec=output_merge_spec, scale_grads=scale_grads)

    def _order(self) -> list[_orders.Row]:
        return _orders.breadth_first(self._ranks, self._count, self._n_microbatches)


class ScheduleInterleaved1F1B(PipelineScheduleMulti):
    """One forward one backward, over several stages a rank: a smaller bubble for more messages."""

    def _order(self) -> list[_orders.Row]:
        return _orders.interleaved(self._ranks, self._count, self._n_microbatches)


class ScheduleInterleavedZeroBubble(PipelineScheduleMulti):
    """The same with a backward in two halves: gradients of weights fill the gaps."""

    def _order(self) -> list[_orders.Row]:
        return _orders.interleaved(self._ranks, self._count, self._n_microbatches, half=True)


class ScheduleZBVZeroBubble(PipelineScheduleMulti):
    """Two stages a rank, placed there and back again, with a backward in two halves."""

    _place = staticmethod(_orders.folded)

    def _order(self) -> list[_orders.Row]:
        if self._count != 2 * self._ranks:
            raise ValueError(f"ZBV has two stages a rank, got {self._count} stages of {self._ranks} ranks")
        return _orders.zero_bubble_v(self._ranks, self._count, self._n_microbatches)


class ScheduleDualPipeV(PipelineScheduleMulti):
    """Two stages a rank, placed there and back again; microbatches of both directions alternate."""

    _place = staticmethod(_orders.folded)

    def _order(self) -> list[_orders.Row]:
        if self._count != 2 * self._ranks:
            raise ValueError(f"ZBV requires exactly 2 stages per rank, but got {self._count // self._ranks}.")
        if self._n_microbatches < self._count:
            raise ValueError("DualPipeV requires at least as many microbatches as stages, but got "
                             f"{self._n_microbatches} microbatches and {self._count} stages.")
        return _orders.dual_pipe_v(self._ranks, self._count, self._n_microbatches)
