"""What importlib.metadata says of torch and torch_npu where mindtorch_v2 stands in for them."""
from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import Distribution
from os import PathLike
from pathlib import Path
from typing import Any

from mindtorch_dropin.finder import PACKAGE_FOLDER

NAMES = ("torch", "torch_npu")


def torch_version() -> str:
    """The release whose API this is, read without importing the package."""
    found = re.search(r'^__version__ = "(.*)"$', (Path(PACKAGE_FOLDER) / "version.py").read_text(), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"no __version__ in {PACKAGE_FOLDER}/version.py")
    return found[1]


def metadata_text(name: str) -> str:
    """The METADATA file of a package that mindtorch_v2 stands in for."""
    return (f"Metadata-Version: 2.1\nName: {name}\nVersion: {torch_version()}\n"
            "Summary: mindtorch_v2 under the name of this package\nRequires-Dist: mindtorch_v2\n")


class _StandIn(Distribution):
    def __init__(self, name: str) -> None:
        self._texts = {"METADATA": metadata_text(name), "top_level.txt": f"{name}\n", "INSTALLER": "mindtorch_v2\n"}

    def read_text(self, filename: str) -> str | None:
        return self._texts.get(filename)

    def locate_file(self, path: Any) -> Path | PathLike[str]:  # type: ignore[override]
        return Path(PACKAGE_FOLDER).parent / path


def distributions(name: str | None) -> Iterator[Distribution]:
    """Those of a name, or all of them."""
    wanted = None if name is None else re.sub(r"[-_.]+", "_", name).lower()
    return (_StandIn(known) for known in NAMES if wanted in (None, known))
