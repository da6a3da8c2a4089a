"""torch.hub: models of a folder with a hubconf.py, as PyTorch loads them; other places are refused by name."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from twin import error, twin

import mindtorch_v2 as mt

HUBCONF = '''
dependencies = ["{needs}"]
from helper import double

def model(size, scale=1):
    """A model of some size."""
    return [size, double(scale)]

def _hidden():
    pass

number = 3
'''


@pytest.fixture
def folder(tmp_path: Path) -> str:
    (tmp_path / "hubconf.py").write_text(HUBCONF.format(needs="math"))
    (tmp_path / "helper.py").write_text("def double(x):\n    return 2 * x\n")
    return str(tmp_path)


def test_a_folder(folder: str) -> None:
    def body(side: Any) -> Any:
        return (side.hub.load(folder, "model", 3, scale=4, source="local"),
                error(lambda: side.hub.load(folder, "other", source="local"), 60),
                error(lambda: side.hub.load(folder, 3, source="local"), 60),
                error(lambda: side.hub.load(folder, "model", source="ftp"), 60))
    twin(body)
    assert mt.hub.list(folder) == ["double", "model"]
    assert mt.hub.help(folder, "model") == "A model of some size."


def test_what_a_folder_needs_is_named(tmp_path: Path) -> None:
    (tmp_path / "hubconf.py").write_text(HUBCONF.format(needs="a_package_that_is_not_here").replace("from helper import double", ""))
    twin(lambda side: error(lambda: side.hub.load(str(tmp_path), "model", 1, source="local"), 80))


def test_repositories_are_refused() -> None:
    with pytest.raises(NotImplementedError, match=r"\[hub.load\] .* clone pytorch/vision .*source='local'"):
        mt.hub.load("pytorch/vision", "resnet18")
