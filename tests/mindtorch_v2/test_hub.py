"""torch.hub: weights by URL, kept in a folder, whole or not at all."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch

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
    with pytest.raises(NotImplementedError, match="load_state_dict_from_url"):
        mt.hub.load("owner/repository", "resnet")
