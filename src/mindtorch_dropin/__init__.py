"""mindtorch_v2 under the name torch: `import torch` finds it, in this process and in those that it starts.

Python may import this package at its start, by a .pth file, so it imports nothing but the finder, and that nothing of
mindtorch_v2. `install()` is what programs call, as mindtorch_v2.install().
"""
from __future__ import annotations

import os
import sys
from importlib import import_module
from types import ModuleType

from mindtorch_dropin.finder import OURS, PACKAGE_FOLDER, TESTING_INTERNAL, TorchFinder

VARIABLE = "MINDTORCH_AS_TORCH"      # 1: a Python that starts finds mindtorch_v2 under the name torch


def is_installed() -> bool:
    """Whether `import torch` finds mindtorch_v2 in this process."""
    return any(isinstance(finder, TorchFinder) for finder in sys.meta_path)


def start() -> None:
    """What the .pth file calls: from now on `import torch` finds mindtorch_v2. Nothing of it is imported here."""
    if not is_installed():
        sys.meta_path.insert(0, TorchFinder())


def install(testing_internal: str | os.PathLike[str] | None = None) -> ModuleType:
    """Make `import torch` and `import torch_npu` find this library, here and in processes started from here.

    Returns the module. PyTorch need not be installed, and is not touched where it is. What was imported as mindtorch_v2
    stays the same module and gets torch's name. `testing_internal` is for tests: a folder that holds the
    torch/testing/_internal of a PyTorch, which is then imported over this library, in processes started from here too;
    without it, that of the PyTorch on sys.path is taken, if there is one.
    """
    _refuse_pytorch()
    os.environ[VARIABLE] = "1"
    start()
    if testing_internal is not None:
        os.environ[TESTING_INTERNAL] = os.path.abspath(testing_internal)
    if OURS in sys.modules and "torch" not in sys.modules:
        from mindtorch_dropin import names  # needed by programs that call install() late, not by every Python
        names.rename_loaded()
    return import_module("torch")


def _refuse_pytorch() -> None:
    """One process has one torch: two would have two Tensor classes under one name."""
    loaded = sys.modules.get("torch")
    place = getattr(loaded, "__path__", None) or [getattr(loaded, "__file__", None)]
    if loaded is not None and list(place)[0] != PACKAGE_FOLDER:
        raise RuntimeError(
            f"[install] torch is already imported from {list(place)[0]}: call mindtorch_v2.install() before anything "
            f"imports torch, or start the program with `python -m mindtorch_v2` or with {VARIABLE}=1")
