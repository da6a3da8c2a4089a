"""The choice for a whole environment: files that make every Python in it find mindtorch_v2 under the name torch.

A torch-VERSION.dist-info tells pip and others that torch is there, and a .pth file starts the finder. Its RECORD names
both, so that `pip uninstall torch` takes them away as well.
"""
from __future__ import annotations

import sysconfig
from importlib.metadata import Distribution, MetadataPathFinder
from pathlib import Path

from mindtorch_dropin.metadata import NAMES, metadata_text, torch_version

INSTALLER = "mindtorch_v2\n"
PTH = "mindtorch_as_torch.pth"
PTH_TEXT = "import mindtorch_dropin; mindtorch_dropin.start()\n"


def _installed(name: str, folder: Path) -> Distribution | None:
    """A package's entry in one folder, whether the finder of this process stands in for it or not."""
    context = MetadataPathFinder.Context(name=name, path=[str(folder)])
    return next(iter(MetadataPathFinder.find_distributions(context)), None)


def site_packages() -> Path:
    """Where this environment keeps its packages."""
    return Path(sysconfig.get_path("purelib"))


def add(folder: Path) -> list[Path]:
    """Write the files; refuses where PyTorch or torch_npu are installed."""
    for name in NAMES:
        found = _installed(name, folder)
        if found is not None and found.read_text("INSTALLER") != INSTALLER:
            raise RuntimeError(f"[as-torch] {name} {found.version} is installed in {folder}: remove it first, with "
                               f"`pip uninstall {name}`")
    written = [folder / PTH]
    written[0].write_text(PTH_TEXT)
    for name in NAMES:
        info = folder / f"{name}-{torch_version()}.dist-info"
        info.mkdir(exist_ok=True)
        texts = {"METADATA": metadata_text(name), "INSTALLER": INSTALLER, "top_level.txt": f"{name}\n"}
        owned = [PTH] if name == "torch" else []
        texts["RECORD"] = "".join(f"{path},,\n" for path in (*owned, *(f"{info.name}/{file}" for file in (*texts, "RECORD"))))
        for file, text in texts.items():
            (info / file).write_text(text)
            written.append(info / file)
    return written


def remove(folder: Path) -> list[Path]:
    """Take the files away again; what others installed stays."""
    gone = [folder / PTH] if (folder / PTH).exists() else []
    for name in NAMES:
        found = _installed(name, folder)
        if found is not None and found.read_text("INSTALLER") == INSTALLER:
            info = folder / f"{name}-{found.version}.dist-info"
            gone += sorted(info.iterdir())
    for file in gone:
        file.unlink()
    for info in {file.parent for file in gone} - {folder}:
        info.rmdir()
    return gone
