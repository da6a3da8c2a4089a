"""torch.distributed.nn, functional collectives and device meshes, against PyTorch's gloo; a mesh of four ranks."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from test_distributed import Ranks, mine, names
from test_distributed_training import close


@pytest.fixture(scope="module")
def results(npu: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("functions")
    runs = {name: Ranks("dist_functions.py", library, backend, 2, folder / name, cases=cases) for name, library, backend, cases in (
        ("torch", "torch", "gloo", ()), ("gloo", "mindtorch_v2", "gloo", ()),
        ("hccl", "mindtorch_v2", "hccl", ("gradients", "functional")))}  # fmt: skip
    return {name: ranks.finish() for name, ranks in runs.items()}


@pytest.mark.parametrize("engine, name", [*(("gloo", name) for name in names("dist_functions.py")),
                                          ("hccl", "gradients"), ("hccl", "functional")])  # fmt: skip
def test_function_is_torchs(results: dict[str, list[dict[str, Any]]], engine: str, name: str) -> None:
    for rank, (ours, judge) in enumerate(zip(results[engine], results["torch"], strict=True)):
        assert "failed" not in str(judge[name])[:12], judge[name]
        if name == "gradients" and rank:          # reduce leaves the result unspecified on ranks other than the root
            ours[name]["reduce"][0] = judge[name]["reduce"][0]
        assert close(ours[name], judge[name], 1e-6), (ours[name], judge[name])


def test_a_mesh_of_four_ranks(tmp_path: Path) -> None:
    for rank, got in enumerate(Ranks("dist_ours.py", "mindtorch_v2", "gloo", 4, tmp_path, cases=("mesh", "mesh_moves")).finish()):
        rows, columns, coordinate, flat = got["mesh"]
        row, column = divmod(rank, 2)
        assert coordinate == [row, column] and flat == [0, 1, 2, 3]
        assert rows == [a + b for a, b in zip(mine(2 * row, 3), mine(2 * row + 1, 3))]
        assert columns == [a + b for a, b in zip(mine(column, 3), mine(2 + column, 3))]
        wrong, strided, doubled = got["mesh_moves"]
        begin = 4 * column + 2 * row  # the second dimension of the mesh cuts first
        assert wrong == [] and strided == [begin, begin + 1.0] and doubled == [2 * x for x in strided]
