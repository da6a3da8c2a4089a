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

    def __init__(self, stages: int) -> None:
        self.stages = stages
        self.done: set[Action] = set()

    def ready(self, action: Action) -> bool:
        stage, kind, number = action
        if kind == FORWARD:
            return stage == 0 or Action(stage - 1, FORWARD, number) in self.done
        if kind == WEIGHT:
            return Action(stage, INPUT, number) in self.done
        if Action(stage, FORWARD, number) not in self.done:
            return False
        later = (Action(stage + 1, back, number) in self.done for back in (BACKWARD, INPUT))
        return stage == self.stages - 1 or any(later)


def placed(plans: list[list[Action]], stages: int) -> list[Row]:
    """What each rank does at each step. plans: what it would do without gaps. A gap takes a WEIGHT of later in the plan; those
    that the plan does not name come behind it, or in gaps too."""
    clock, left = _Clock(stages), [list(plan) for plan in plans]
    for plan in left:
        named = set(plan)
        halves = (Action(a.stage_index, WEIGHT, a.microbatch_index) for a in plan if a.computation_type == INPUT)
        plan += [action for action in halves if action not in named]
    rows: list[Row] = [[] for _ in plans]
    while any(left):
        chosen = [_next(plan, clock) for plan in left]
        if not any(chosen):
            raise ValueError(f"a pipeline whose ranks all wait for each other: {plans}")
        _advance(clock, chosen, rows)
    return rows


def _next(plan: list[Action], clock: _Clock) -> Action | None:
    if plan and clock.ready(plan[0]):
        return plan.pop(0)
    action = next((a for a in plan if a.computation_type == WEIGHT and clock.ready(a)), None)
    if action is not None:
        plan.remove(action)
    return action


def _advance(clock: _Clock, chosen: Row, rows: list[Row]) -> None:
    for row, action in zip(rows, chosen, strict=True):
        row.append(action)
        if action is not None:
            clock.done.add(action)


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
    return placed(plans, stages)


def zero_bubble_v(ranks: int, stages: int, microbatches: int) -> list[Row]:
    """Two stages a rank, there and back again: backward before forward, the later stage before the earlier, and gradients of
    weights where there is nothing else to do. A rank that computes the first stage begins no microbatch while as many as two for
    each rank are under way."""
    rank_of, clock = folded(stages, ranks), _Clock(stages)
    in_turn = [(INPUT, range(stages)), (FORWARD, reversed(range(stages))), (WEIGHT, range(stages))]
    left: list[list[Action]] = [[] for _ in range(ranks)]
    for kind, order in in_turn:
        for stage in order:
            left[rank_of[stage]] += [Action(stage, kind, i) for i in range(microbatches)]
    rows: list[Row] = [[] for _ in range(ranks)]

    def may_begin(action: Action) -> bool:
        if action.stage_index or action.computation_type != FORWARD:
            return True
        begun = sum(Action(0, FORWARD, i) in clock.done and Action(0, INPUT, i) not in clock.done for i in range(microbatches))
        return begun < 2 * ranks

    while any(left):
        chosen: Row = []
        for mine in left:
            action = next((a for a in mine if clock.ready(a) and may_begin(a)), None)
            if action is not None:
                mine.remove(action)
            chosen.append(action)
        _advance(clock, chosen, rows)
    return rows


def dual_pipe_v(ranks: int, stages: int, microbatches: int) -> list[Row]:
    """Two stages a rank, there and back again: forwards of one alternate with backwards of the other, so that microbatches come
    from both ends. Backwards are divided at the beginning and at the end, where a rank would wait (DeepSeek's DualPipe, cut in
    half)."""
    plans = []
    for rank in range(ranks):
        behind, here = ranks - 1 - rank, rank + 1
        ends = "B1 B0 " * here
        words = ("F0 " * 2 * behind + "F0 F1 " * here + "I1 W F1 " * behind + "F0 B1 F1 B0 " * (microbatches - 2 * ranks + here) +
                 "B1 F1 B0 " * behind + ends[:3 * here] + ends[3 * here:].replace("B", "I") + "W I0 " * behind + "W " * here)
        plans.append(list(_numbered(words.split(), (rank, stages - 1 - rank))))
    return placed(plans, stages)


def _numbered(words: list[str], stages: tuple[int, int]) -> Iterator[Action]:
    """Actions of words such as F0, the next forward of the first stage, and W, the oldest half that is left."""
    count: dict[tuple[int, str], int] = {}
    halves: list[tuple[int, int]] = []
    for word in words:
        if word == WEIGHT:
            stage, number = halves.pop(0)
            yield Action(stage, WEIGHT, number)
            continue
        stage, kind = stages[int(word[1])], word[0]
        way = FORWARD if kind == FORWARD else BACKWARD
        number = count[stage, way] = count.get((stage, way), -1) + 1
        if kind == INPUT:
            halves.append((stage, number))
        yield Action(stage, kind, number)
