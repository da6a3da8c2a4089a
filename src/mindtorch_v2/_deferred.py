"""Names of a module that are imported when they are first read: `import mindtorch_v2` does not wait for them.

The front door keeps nothing of Python's own: what it imported would be reachable as torch.<name>.
"""
from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any


class _AtFirstUse:
    """A name whose module is imported when it is first read; from then on it is a plain attribute."""

    def __init__(self, name: str, source: str) -> None:
        self.name, self.source = name, source

    def __get__(self, owner: Any, cls: Any = None) -> Any:
        found = import_module(f"{__package__}.{self.source}")      # torch.… where the package goes by that name
        whole = self.name == self.source.rpartition(".")[2]
        # A module that imports itself while it is imported gets it partly initialized; other threads wait until it is complete.
        complete = not getattr(found.__spec__, "_initializing", False)
        found = found if whole else getattr(found, self.name)
        if complete:
            owner.__dict__[self.name] = found
        return found


def defer(name: str, sources: dict[str, str], plain_lookup: bool = False, otherwise: Callable[[str], Any] | None = None) -> None:
    """Let the module of a name read each name from the module below mindtorch_v2 that `sources` says.

    A __getattr__ of the module would keep the interpreter from caching torch.f: three times the cost of reading it. With
    the plain lookup of an object, the class is used only for what the module does not have; `otherwise` finds what that lacks.
    """
    members: dict[str, Any] = {word: _AtFirstUse(word, source) for word, source in sources.items()}
    if plain_lookup:
        members["__getattribute__"] = object.__getattribute__
    if otherwise is not None:
        members["__getattr__"] = lambda module, word: otherwise(word)
    sys.modules[name].__class__ = type(name, (ModuleType,), members)
