"""The names under which generated code finds functions and types: torch's own, wherever they are defined here."""
from __future__ import annotations

import builtins
import inspect
import types
from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch

_PACKAGE = torch.__name__
# Where torch keeps functions, in the order in which they are looked for.
_SPACES = ("torch.functional", "torch", "torch._C._nn", "torch._C._fft", "torch._C._linalg", "torch._C._special",
           "torch.nn.functional", "torch.linalg", "torch.fft", "torch.special", "torch.Tensor")


def public_module(name: str) -> str:
    """The name of a module as torch says it."""
    head, dot, rest = name.partition(".")
    return f"torch{dot}{rest}" if head == _PACKAGE else name


def _space(path: str) -> Any:
    found: Any = torch
    for word in path.split(".")[1:]:
        found = getattr(found, word, None)
    return found


def _name_of(func: Any) -> str:
    return getattr(func, "__name__", "") or ""


def torch_path(func: Any) -> str | None:
    """Where torch has a function of this package, or None where it has it at no public place."""
    name = _name_of(func)
    if not name or name == "<lambda>":
        return None
    for path in _SPACES[1:] if isinstance(func, type) else _SPACES:      # torch.Tensor, though torch.functional imports it
        space = _space(path)
        for word in (name, name.removeprefix(path.rpartition(".")[2].lstrip("_") + "_")):
            if space is not None and getattr(space, word, None) is func:
                return f"{path}.{word}"
    return None


def find_module_of_method(orig_method: Callable[..., Any]) -> str:
    """The module of a function that does not say it."""
    path = torch_path(orig_method)
    if path is None:
        raise RuntimeError(f"cannot find module for {orig_method}")
    return path.rpartition(".")[0]


def qualified_name(func: Callable[..., Any]) -> str:
    """The dotted name of a function, as generated code writes it."""
    if getattr(builtins, _name_of(func), None) is func:
        return _name_of(func)
    if isinstance(func, (torch._C.OpOverload, torch._C.OpOverloadPacket)):
        return f"torch.ops.{func}"
    own = (getattr(func, "__module__", None) or "").partition(".")[0] == _PACKAGE
    if own or isinstance(func, torch._C.Op):
        path = torch_path(func)
        if path is not None:
            return path
    if isinstance(func, (types.MethodDescriptorType, types.WrapperDescriptorType)) and \
            func is getattr(torch.Tensor, func.__name__, None):
        return f"torch.Tensor.{func.__name__}"
    name = _name_of(func)
    if name == "<lambda>":                      # the name that it was given where it was made
        try:
            name = inspect.getsource(func).partition("=")[0].strip()
        except (OSError, TypeError) as error:
            raise RuntimeError("Unable to represent lambda") from error
    module = public_module(getattr(func, "__module__", None) or find_module_of_method(func))
    if module == "torch" and hasattr(torch, name) is False and hasattr(func, "__qualname__"):
        name = func.__qualname__
    return f"{module.replace('torch._ops', 'torch.ops')}.{name}"


def is_from_torch(obj: Any) -> bool:
    """Whether generated code reaches an object through `torch`."""
    if isinstance(obj, (torch._C.OpOverload, torch._C.OpOverloadPacket)):
        return True
    module = getattr(obj, "__module__", None)
    if module is not None:
        base = public_module(module).partition(".")[0]
        return base == "torch" and not public_module(module).startswith(("torch._dynamo.", "torch._inductor."))
    name = getattr(obj, "__name__", None)
    # torch.fx._symbolic_trace.wrap("torch.f"): exclude torch itself, whose name "torch" is its own global
    if name is not None and name not in ("torch", _PACKAGE):
        return torch_path(obj) is not None
    return False
