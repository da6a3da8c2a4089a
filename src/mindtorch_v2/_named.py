"""Modules that PyTorch has and this library does not: `import` finds them, their functions refuse, their classes have no objects.

_named.txt has them, each below the reason that its refusals give. A file or a module of the same name goes before.
"""
from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from mindtorch_v2 import _facade


class _Row(NamedTuple):
    """What one module has."""

    why: str
    functions: frozenset[str]
    classes: frozenset[str]
    elsewhere: list[str]        # modules whose names are this one's as well


@functools.cache
def _table() -> dict[str, _Row]:
    """The rows, by the path below the package; what is above a row is there too, without names."""
    rows: dict[str, _Row] = {}
    why = ""
    text = (Path(__file__).parent / "_named.txt").read_text().replace("\n  ", " ")      # lines that go on
    for line in text.splitlines():
        if line.startswith("= "):
            why = line[2:]
        elif not line.startswith("#"):
            path, _, rest = line.partition(":")
            functions, _, classes = rest.partition("|")
            words = functions.split()
            rows[path] = _Row(why, frozenset(word for word in words if word[0] != "@"), frozenset(classes.split()),
                              [word[1:] for word in words if word[0] == "@"])
    for path, row in list(rows.items()):
        parts = path.split(".")
        for end in range(1, len(parts)):
            rows.setdefault(".".join(parts[:end]), _Row(row.why, frozenset(), frozenset(), []))
    return rows


def _package() -> str:
    """torch in the drop-in."""
    return __name__.partition(".")[0]


def _make(path: str, name: str) -> Any:
    """One name of a row."""
    row = _table()[path]
    if name in row.functions:
        return _facade.refusal(f"torch.{path}.{name}", row.why)
    if name in row.classes:
        bases = (RuntimeError,) if name.endswith(("Error", "Exception")) else ()
        return _facade.absent(f"torch.{path}.{name}", row.why, *bases)
    if f"{path}.{name}" in _table():
        return import_module(f"{_package()}.{path}.{name}")
    for place in row.elsewhere:
        found = getattr(import_module(f"{_package()}.{place}"), name, None)
        if found is not None:
            return found
    raise AttributeError(f"module 'torch.{path}' has no attribute {name!r}")


def _names(path: str) -> list[str]:
    row = _table()[path]
    names = {*row.functions, *row.classes}
    for place in row.elsewhere:
        found = import_module(f"{_package()}.{place}")
        names.update(name for name in dir(found) if not name.startswith("_"))
    return sorted(names)


def complete(*modules: str) -> None:
    """Lets modules that exist find what the table has for them and they lack."""
    for name in modules:
        module = sys.modules[name]
        module.__class__ = type(name, (type(module),), {"__getattr__": _find})


def _find(module: ModuleType, name: str) -> Any:
    """A name that a module lacks; it stays there."""
    if name.startswith("__"):
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
    made = vars(module)[name] = _make(module.__name__.partition(".")[2], name)
    return made


def of(path: str) -> Callable[[str], Any]:
    """The same for a part of the core, name by name: reading the table takes longer than importing the core."""
    return functools.partial(_make, path)


class _NamedModule(ModuleType):
    """A module whose names are made at their first use."""

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            return [found for found in dir(self) if not found.startswith("_")]
        return _find(self, name)

    def __dir__(self) -> list[str]:
        return sorted({*_names(self.__name__.partition(".")[2]), *vars(self)})


class _NamedFinder:
    """Finds what no other finder found; it also loads it."""

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """The module of a row."""
        package, _, below = fullname.partition(".")
        if package == _package() and below in _table():
            return ModuleSpec(fullname, self, is_package=True)      # type: ignore[arg-type]
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """An empty one."""
        why = _table()[spec.name.partition(".")[2]].why
        return _NamedModule(spec.name, f"torch.{spec.name.partition('.')[2]}, by name only: {why}.")

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


sys.meta_path.append(_NamedFinder())
