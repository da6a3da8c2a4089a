"""Torch's name for what was made under this package's: modules, classes and functions, so that pickles say torch."""
from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType
from typing import Any

from mindtorch_dropin.finder import OURS, alias_target

_COMPILED = {                       # types of the compiled core that torch shows elsewhere, or under another name
    ("torch._C._graph", "Node"): "torch.autograd.graph.Node",
    ("torch._C._graph", "SavedTensor"): "torch._C._autograd.SavedTensor",
    ("torch._C._methods", "TensorMethods"): "torch._C.TensorBase",
}


def rename_loaded() -> None:
    """Give every module of mindtorch_v2 that is loaded torch's name, and what is in it; once, at a late install()."""
    for name, module in list(sys.modules.items()):
        canonical = alias_target(name)
        if canonical is not None and name.partition(".")[0] == OURS:
            sys.modules[canonical] = module
            _rename_module(module, canonical)
    for function in gc.get_objects():
        if type(function) is FunctionType:
            _rename_function(function)
    settle(sys.modules["torch"])


def settle(torch: Any) -> None:
    """Name what is compiled, and the classes that the front door shows; once it is loaded."""
    torch._C._rename_package("torch")
    for compiled in [found for name, found in sys.modules.items() if name.startswith("torch._C")]:
        for value in vars(compiled).values():
            if type(value) is BuiltinFunctionType:
                _rename_function(value)
    for cls in list(_classes(object, set())):
        module = getattr(cls, "__module__", None)
        if isinstance(module, str) and module.partition(".")[0] in (OURS, "torch"):
            _rename_class(cls, module, torch)
    torch.torch = torch      # programs that say `from torch import torch`


def _rename_module(module: Any, canonical: str) -> None:
    module.__name__ = canonical
    spec = getattr(module, "__spec__", None)
    if spec is None:         # made by hand, such as torch.backends.cudnn
        return
    spec.name = canonical
    module.__package__ = spec.parent
    if hasattr(spec.loader, "name"):
        spec.loader.name = canonical


def _rename_function(function: Any) -> None:
    module = function.__module__
    canonical = alias_target(module) if isinstance(module, str) else None
    if canonical is not None:
        function.__module__ = canonical


def _rename_class(cls: Any, module: str, torch: Any) -> None:
    """torch.Tensor and its like live in torch itself where ours live in a private module of it."""
    place = alias_target(module) or module
    if (place, cls.__name__) in _COMPILED:
        torch._C._rename_type(cls, _COMPILED[place, cls.__name__])
        return
    if vars(torch).get(cls.__name__) is cls and place.rpartition(".")[2].startswith("_"):
        place = "torch"
    if place == module:
        return
    try:
        cls.__module__ = place
    except TypeError:        # a type of the compiled core, which Python does not let change
        torch._C._rename_type(cls, f"{place}.{cls.__name__}")


def _classes(cls: type, seen: set[type]) -> Iterator[type]:
    below: list[type] = type.__subclasses__(cls)
    for found in below:
        if found not in seen:
            seen.add(found)
            yield found
            yield from _classes(found, seen)
