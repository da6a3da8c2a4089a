"""In which order the ranks of a pipeline with several stages each compute: what at which step of a common clock.

A schedule says in which order a rank would do its work if it never had to wait. `placed` puts that on the clock: a rank that
has to wait has a gap, or computes gradients of weights there, on which no other stage depends.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

FORWARD, BACKWARD, INPUT, WEIGHT = "F", "B", "I", "W"     # INPUT and WEIGHT are the two halves of BACKWARD


class Action(NamedTuple):
    """One computation of one stage."""
    stage_index: int
    computation_type: str
    microbatch_index: int

    def __repr__(self) -> str:
        return f"{self.stage_index}{self.computation_type}{self.microbatch_index}"


Row = list[Action | None]


def looped(stages: int, ranks: int) -> list[int]:
    """The rank of each stage: round and round."""
    return [stage % ranks for stage in range(stages)]


def folded(stages: int, ranks: int) -> list[int]:
    """The rank of each stage: there and back again, so that the first rank has the last stage too."""
    return [ranks - 1 - stage % ranks if stage // ranks % 2 else stage % ranks for stage in range(stages)]


class _Clock:
    """Which actions are done; what an action needs is what was done at an earlier step."""

    def __init__(self, stages: int, half: bool) -> None:
        self.stages, self.back = stages, INPUT if half else BACKWARD
        self.done: set[Action] = set()

    def ready(self, action: Action) -> bool:
        stage, kind, number = action
        if kind == FORWARD:
            return stage == 0 or Action(stage - 1, FORWARD, number) in self.done
        if kind == WEIGHT:
            return Action(stage, INPUT, number) in self.done
        needed = Action(stage, FORWARD, number) if stage == self.stages - 1 else Action(stage + 1, self.back, number)
        return needed in self.done and Action(stage, FORWARD, number) in self.done


def placed(plans: list[list[Action]], stages: int, half: bool = False) -> list[Row]:
    """What each rank does at each step. plans: without gaps and without WEIGHT; half: backward is divided."""
    clock, at = _Clock(stages, half), [0] * len(plans)
    late: list[list[Action]] = [[] for _ in plans]         # WEIGHT of what was computed
    rows: list[Row] = [[] for _ in plans]
    while any(i < len(plan) for i, plan in zip(at, plans, strict=True)) or any(late):
        chosen: Row = []
        for rank, plan in enumerate(plans):
            action = plan[at[rank]] if at[rank] < len(plan) else None
            if action is not None and clock.ready(action):
                at[rank] += 1
            else:
                action = late[rank].pop(0) if late[rank] else None
            chosen.append(action)
        if not any(chosen):
            raise ValueError(f"a pipeline whose ranks all wait for each other: {plans}")
        _advance(clock, chosen, rows, late)
    return rows


def _advance(clock: _Clock, chosen: Row, rows: list[Row], late: list[list[Action]]) -> None:
    for rank, action in enumerate(chosen):
        rows[rank].append(action)
        if action is not None:
            clock.done.add(action)
            if action.computation_type == INPUT:
                late[rank].append(Action(action.stage_index, WEIGHT, action.microbatch_index))


def breadth_first(ranks: int, stages: int, microbatches: int) -> list[Row]:
    """All microbatches through a stage, stage by stage, and back in the other direction."""
    plans = []
    for rank in range(ranks):
        mine = range(rank, stages, ranks)
        plans.append([Action(stage, FORWARD, i) for stage in mine for i in range(microbatches)] +
                     [Action(stage, BACKWARD, i) for stage in reversed(mine) for i in reversed(range(microbatches))])
    return placed(plans, stages)


def interleaved(ranks: int, stages: int, microbatches: int, half: bool = False) -> list[Row]:
    """One forward, one backward, over the stages of a rank in rounds of as many microbatches as there are ranks."""
    local, rounds = stages // ranks, max(1, microbatches // ranks)
    if microbatches % rounds:
        raise ValueError(f"Interleaved 1F1B requires the number of microbatches to be a multiple of the number of rounds "
                         f"({rounds}), but got {microbatches}.")
    together, total = microbatches // rounds, local * microbatches

    def order(rank: int, stages_in_turn: list[int], kind: str) -> Iterator[Action]:
        for first in range(0, microbatches, together):
            for stage in stages_in_turn:
                for i in range(first, first + together):
                    yield Action(stage * ranks + rank, kind, i)

    plans = []
    for rank in range(ranks):
        ahead = min((local - 1) * together + (1 if half else 2) * (ranks - 1 - rank), total)
        forward = list(order(rank, list(range(local)), FORWARD))
        backward = list(order(rank, list(reversed(range(local))), INPUT if half else BACKWARD))
        plan = forward[:ahead]
        for i in range(total - ahead):
            plan += [forward[ahead + i], backward[i]]
        plans.append(plan + backward[total - ahead:])
    return placed(plans, stages, half)


def zero_bubble_v(ranks: int, stages: int, microbatches: int) -> list[Row]:
    """Two stages a rank, there and back again: backward before forward, the later stage before the earlier, and gradients of
    weights where there is nothing else to do. A rank that computes the first stage begins no microbatch while as many as two for
    each rank are under way."""
    rank_of, clock = folded(stages, ranks), _Clock(stages, True)
    left = {rank: [Action(stage, kind, i) for kind, in_turn in ((INPUT, range(stages)), (FORWARD, reversed(range(stages))))
                   for stage in in_turn if rank_of[stage] == rank for i in range(microbatches)] for rank in range(ranks)}
    late: list[list[Action]] = [[] for _ in range(ranks)]
    rows: list[Row] = [[] for _ in range(ranks)]

    def may_begin(action: Action) -> bool:
        if action.stage_index or action.computation_type != FORWARD:
            return True
        begun = sum(Action(0, FORWARD, i) in clock.done and Action(0, INPUT, i) not in clock.done for i in range(microbatches))
        return begun < 2 * ranks

    while any(left.values()) or any(late):
        chosen: Row = []
        for rank in range(ranks):
            action = next((a for a in left[rank] if clock.ready(a) and may_begin(a)), None)
            if action is not None:
                left[rank].remove(action)
            elif late[rank]:
                action = late[rank].pop(0)
            chosen.append(action)
        _advance(clock, chosen, rows, late)
    return rows


