"""torch.hub: weights by URL, kept in a folder, whole or not at all; models of a folder with a hubconf.py."""
from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch
from twin import error, twin

import mindtorch_v2 as mt


def test_weights_are_fetched_once_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    torch.save({"w": torch.arange(3.0)}, tmp_path / "net.pth")
    digest = hashlib.sha256((tmp_path / "net.pth").read_bytes()).hexdigest()
    for name in (f"net-{digest[:8]}.pth", "net-00000000.pth"):
        (tmp_path / name).write_bytes((tmp_path / "net.pth").read_bytes())
    good = (tmp_path / f"net-{digest[:8]}.pth").as_uri()
    assert mt.hub.load_state_dict_from_url(good, check_hash=True, map_location="cpu")["w"].tolist() == [0, 1, 2]
    kept = tmp_path / "home" / "hub" / "checkpoints"
    assert mt.hub.get_dir() == str(kept.parent) and [p.name for p in kept.iterdir()] == [f"net-{digest[:8]}.pth"]
    (tmp_path / f"net-{digest[:8]}.pth").unlink()
    assert list(mt.hub.load_state_dict_from_url(good)) == ["w"]
    with pytest.raises(RuntimeError, match="invalid hash value"):
        mt.hub.load_state_dict_from_url((tmp_path / "net-00000000.pth").as_uri(), check_hash=True)
    assert len(list(kept.iterdir())) == 1
    whole = (tmp_path / "net.pth").read_bytes()
    where = whole.index(b"PK\1\2")
    (tmp_path / "broken.pth").write_bytes(whole[:where] + b"PK\1\3" + whole[where + 4 :])
    with pytest.raises(RuntimeError, match="broken.pth is damaged"):
        mt.hub.load_state_dict_from_url((tmp_path / "broken.pth").as_uri())


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
