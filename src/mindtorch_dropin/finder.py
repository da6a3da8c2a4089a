"""The finder behind `import torch`: one module object under torch's name and this package's, and torch's metadata.

The files of mindtorch_v2 are run under the name torch, so that classes, functions and pickles say torch; the name
mindtorch_v2, which they use among themselves, leads to the same modules. A Python that finds MINDTORCH_AS_TORCH=1 imports
this file at its start: it needs next to nothing that Python does not load anyway, hence no typing, no importlib.abc.
"""
from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.metadata import Distribution, DistributionFinder

OURS = "mindtorch_v2"
PACKAGE_FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), OURS)
NPU_FOLDER = os.path.join(PACKAGE_FOLDER, "_torch_npu")
TESTING_INTERNAL = "MINDTORCH_TESTING_INTERNAL"      # a folder with torch/testing/_internal of a PyTorch
ALIASES = {OURS: "torch", "torch_npu.npu": "torch.npu"}      # a name, and the name under which its module lives


def alias_target(name: str) -> str | None:
    """The name of the module that a name stands for, None where it is no alias."""
    for alias, target in ALIASES.items():
        if name == alias or name.startswith(alias + "."):
            return target + name[len(alias):]
    return None


class TorchFinder:
    """Answers for torch, torch_npu and mindtorch_v2; below torch, Python's own finder reads torch.__path__."""

    def find_spec(self, fullname: str, path: Sequence[str] | None = None,
                  target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname == "torch":
            return _package_spec("torch", PACKAGE_FOLDER, FrontDoorLoader)
        if fullname == "torch_npu":
            return _package_spec("torch_npu", NPU_FOLDER, SourceFileLoader)
        if fullname == "torch.testing._internal":
            return _testing_internal()
        # runpy runs __main__ itself; the module of an alias would be torch.__main__.
        canonical = alias_target(fullname) if not fullname.endswith(".__main__") else None
        known = _spec_of(canonical) if canonical else None
        if known is None:
            return None
        spec = ModuleSpec(fullname, AliasLoader(known.name), origin=known.origin)   # type: ignore[arg-type]
        spec.submodule_search_locations = known.submodule_search_locations
        return spec

    @staticmethod
    def find_distributions(context: DistributionFinder.Context) -> Iterable[Distribution]:
        """torch and torch_npu as installed packages; nothing in the folders that a caller names, such as pip's."""
        if vars(context).get("path", sys.path) is not sys.path:
            return ()
        from mindtorch_dropin.metadata import distributions  # importlib.metadata is slow to import, and then it is
        return distributions(context.name)


def _testing_internal() -> ModuleSpec | None:
    """The helpers of PyTorch's own tests: of the folder that is named, or of the PyTorch that is installed."""
    named = os.environ.get(TESTING_INTERNAL)
    for folder in sys.path if named is None else (named,):
        package = os.path.join(folder, "torch", "testing", "_internal")
        if os.path.isfile(os.path.join(package, "__init__.py")):
            return _package_spec("torch.testing._internal", package, SourceFileLoader)
    return None


def _spec_of(name: str) -> ModuleSpec | None:
    """The spec of a module; a namespace that a package put among the modules itself has none to find."""
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__spec__", None) is None:
        return ModuleSpec(name, None)
    return find_spec(name)


def _package_spec(name: str, folder: str, loader: type[SourceFileLoader]) -> ModuleSpec:
    file = os.path.join(folder, "__init__.py")
    spec = ModuleSpec(name, loader(name, file), origin=file, is_package=True)
    spec.submodule_search_locations = [folder]
    spec.has_location = True
    return spec


class FrontDoorLoader(SourceFileLoader):
    """Runs the front door; afterwards the types of the compiled core say torch too."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        from mindtorch_dropin.names import settle
        settle(module)


class AliasLoader:
    """Gives the module of another name, imported now if it was not."""

    def __init__(self, canonical: str) -> None:
        self.canonical = canonical

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self.canonical)
        self.spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec      # Python has just set the alias's: the module's own name must stay
