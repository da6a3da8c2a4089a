"""Pipelines between processes: the losses of PyTorch's and of one process, and the order in which ranks compute."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from test_distributed import ENGINES, Ranks, names
from test_distributed_training import close

import mindtorch_v2 as mt
from mindtorch_v2.distributed.pipelining import _orders

SCRIPT = "dist_pipelines.py"
PIPELINES = [name for name in names(SCRIPT) if name != "alone"]
Runs = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def ran(npu: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    folder, cases = tmp_path_factory.mktemp("pipelines"), tuple(PIPELINES)
    runs = {"torch": Ranks(SCRIPT, "torch", "gloo", 2, folder / "torch", cases=cases)}
    runs |= {engine: Ranks(SCRIPT, "mindtorch_v2", engine, 2, folder / engine, cases=cases) for engine in ENGINES}
    runs["one"] = Ranks(SCRIPT, "mindtorch_v2", "gloo", 1, folder / "one", cases=("alone",))
    return {name: ranks.finish() for name, ranks in runs.items()}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", PIPELINES)
def test_a_pipeline_is_torchs(ran: Runs, engine: str, name: str) -> None:
    for ours, judge in zip(ran[engine], ran["torch"], strict=True):
        assert "failed" not in str(judge[name])[:12], judge[name]
        assert close(ours[name], judge[name], 2e-6 if engine == "gloo" else 1e-4), (ours[name], judge[name])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["pipeline_gpipe", "pipeline_1f1b", "pipeline_interleaved", "pipeline_zero_bubble"])
def test_a_pipeline_trains_as_one_process(ran: Runs, engine: str, name: str) -> None:
    alone = ran["one"][0]["alone"][1]
    for runs in zip(ran[engine][0][name], ran[engine][1][name], strict=True):
        losses = next(losses for losses, shape, _ in runs if shape is not None)  # of the rank with the last stage
        assert close(losses, alone, 1e-6 if engine == "gloo" else 1e-4), (losses, alone)


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("microbatches", [1, 4, 8])
def test_every_rank_computes_all_of_its_stages_once_and_in_time(ranks: int, microbatches: int) -> None:
    stages = 2 * ranks
    tables = {
        "breadth": (_orders.breadth_first(ranks, stages, microbatches), "FB"),
        "interleaved": (_orders.interleaved(ranks, stages, microbatches), "FB"),
        "halves": (_orders.interleaved(ranks, stages, microbatches, half=True), "FIW"),
        "folded": (_orders.zero_bubble_v(ranks, stages, microbatches), "FIW"),
    }
    for name, (rows, kinds) in tables.items():
        when = {action: step for row in rows for step, action in enumerate(row) if action is not None}
        wanted = {(stage, kind, i) for stage in range(stages) for kind in kinds for i in range(microbatches)}
        assert set(when) == wanted and len(when) == sum(action is not None for row in rows for action in row), name
        for (stage, kind, i), step in when.items():
            before = [(stage - 1, "F", i)] if kind == "F" else [(stage, "F", i), (stage + 1, kind, i)]
            before = [(stage, "I", i)] if kind == "W" else before
            assert all(when[one] < step for one in before if one in when), (name, stage, kind, i)


@pytest.mark.parametrize(("ranks", "microbatches"), [(1, 2), (2, 4), (2, 7), (4, 8), (4, 16)])
def test_dual_pipe_computes_what_pytorch_does(ranks: int, microbatches: int) -> None:
    """Every action once and in time; of each rank the same ones, whole and in halves, as PyTorch's."""
    import torch.distributed.pipelining.schedules as judge

    stages, rows = 2 * ranks, _orders.dual_pipe_v(ranks, 2 * ranks, microbatches)
    when = {action: step for row in rows for step, action in enumerate(row) if action is not None}
    assert len(when) == sum(action is not None for row in rows for action in row)
    for (stage, kind, i), step in when.items():
        before = [(stage - 1, "F", i)] if kind == "F" else [(stage, "I", i)] if kind == "W" else \
            [(stage, "F", i), (stage + 1, "B", i), (stage + 1, "I", i)]
        assert all(when[one] < step for one in before if one in when), (stage, kind, i)
    theirs = judge.ScheduleDualPipeV.__new__(judge.ScheduleDualPipeV)
    theirs.pp_group_size, theirs._n_microbatches, theirs._num_stages = ranks, microbatches, stages
    for rank, row in enumerate(rows):
        wanted = [one for action in theirs._calculate_single_rank_operations(rank) for one in (action.sub_actions or [action])]
        assert {str(action) for action in row if action is not None} == {str(action) for action in wanted}


def test_schedules_by_name() -> None:
    find = mt.distributed.pipelining.schedules.get_schedule_class
    assert find("dualpipev") is mt.distributed.pipelining.ScheduleDualPipeV
    with pytest.raises(ValueError, match="Unknown schedule name 'x'. The valid options are .*'DualPipeV'"):
        find("x")


def test_gradients_of_weights_fill_the_gaps() -> None:
    assert len(_orders.zero_bubble_v(4, 8, 8)[0]) == 8 * 6 + 3  # three steps until the last rank begins, and no gap after


def test_a_table_in_which_all_wait_is_refused() -> None:
    with pytest.raises(ValueError, match="wait for each other"):
        _orders.placed([[_orders.Action(1, "F", 0), _orders.Action(0, "F", 0)]], 2)
