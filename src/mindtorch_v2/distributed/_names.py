"""What torch.distributed has below it and this library does not: modules whose functions refuse and whose classes cannot
be made, so that packages can import them and ask isinstance. The names are in _names.txt; a file of the same name as a module
takes its place, and says itself what it lacks.
"""
from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import mindtorch_v2 as torch

_facade = torch._facade
WHY = "mindtorch_v2 does not offer this part of torch.distributed"
_ROOT = __package__


@functools.cache
def _table() -> dict[str, tuple[list[str], list[str]]]:
    """module -> (functions, classes), parents first."""
    found = {}
    for line in (Path(__file__).parent / "_names.txt").read_text().splitlines()[1:]:
        path, _, rest = line.partition(":")
        functions, _, classes = rest.partition("|")
        found[path] = functions.split(), classes.split()
    return found


def refusal(name: str) -> Any:
    """A function below torch.distributed that refuses."""
    return _facade.refusal(f"torch.distributed.{name}", WHY)


def absent(name: str) -> Any:
    """A class below torch.distributed that cannot be made."""
    return _facade.absent(f"torch.distributed.{name}", WHY)


def _require_initialized(func: Any) -> Any:
    """A decorator of what needs RPC, which is never started here."""
    why = "RPC has not been initialized. Call torch.distributed.rpc.init_rpc first."
    return functools.wraps(func)(_facade.refusal(f"torch.distributed.rpc.{func.__name__}", why, RuntimeError))


# What does the thing, in modules that do not exist otherwise: (module, name).
_REAL: dict[tuple[str, str], Any] = {
    ("rpc", "is_available"): lambda: False, ("rpc.api", "_require_initialized"): _require_initialized,
    ("autograd", "is_available"): lambda: False}


def _made(path: str, name: str) -> Any:
    """A name of a module: what refuses, or what cannot be made."""
    functions, classes = _table()[path]
    if (path, name) in _REAL:
        return _REAL[path, name]
    if name in functions:
        return refusal(f"{path}.{name}")
    if name in classes:
        return absent(f"{path}.{name}")
    raise AttributeError(f"module 'torch.distributed.{path}' has no attribute {name!r}")


def _names_of(path: str) -> list[str]:
    functions, classes = _table()[path]
    return [*functions, *classes, *(name for module, name in _REAL if module == path)]


def _on_demand(path: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """__getattr__ and __dir__ of a module; there are a hundred, of which a program uses few."""
    def find(name: str) -> Any:
        value = vars(sys.modules[f"{_ROOT}.{path}"])[name] = _made(path, name)
        return value
    return find, lambda: _names_of(path)


def add_to(package: str) -> None:
    """Adds the modules below a package that no file holds."""
    if package == _ROOT:
        _facade.settings(_ROOT, "config", "torch.distributed.config: settings that nothing reads here.",
                         compile_on_one_rank=False, use_torchcomms=False)
    for path in _table():
        full = f"{_ROOT}.{path}"
        if not full.startswith(package + ".") or full in sys.modules:
            continue
        parent, _, last = full.rpartition(".")
        if parent in sys.modules and not _is_file(sys.modules[parent], full):
            find, names = _on_demand(path)
            made = _facade.module(parent, last, f"torch.distributed.{path}: by name only.", __getattr__=find, __dir__=names)
            vars(sys.modules[parent])[last] = made


def _is_file(parent: ModuleType, full: str) -> bool:
    """Whether import would find a module that is not imported yet. It is not asked: that takes ten times as long."""
    last = full.rpartition(".")[2]
    places = [Path(folder, last) for folder in getattr(parent, "__path__", ())]
    return any(place.is_dir() or place.with_suffix(".py").exists() for place in places)
