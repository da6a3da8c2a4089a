"""torch._jit_internal: classes and marks of TorchScript for code that is run as Python."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import mindtorch_v2 as torch

__all__ = ["Final", "Future", "RecursiveScriptModule", "ScriptModule", "TopLevelTracedModule", "boolean_dispatch"]
Future = torch.futures.Future
ignore, export, unused, is_scripting = torch.jit.ignore, torch.jit.export, torch.jit.unused, torch.jit.is_scripting
_overload = _overload_method = _copy_to_script_wrapper = torch.jit._overload


class ScriptModule(torch.nn.Module):
    """A module whose class says that TorchScript compiles it; here it runs as Python, as every module does."""

    def save(self, f: Any, *args: Any, **kwargs: Any) -> None:
        """Refuses: there is no TorchScript to save."""
        torch.jit.save(self, f)


class RecursiveScriptModule(ScriptModule):
    """What torch.jit.script makes of a module in torch; here it gives the module itself, so nothing is one."""


class TopLevelTracedModule(ScriptModule):
    """What torch.jit.trace makes of a module in torch; here it gives the module itself, so nothing is one."""


def boolean_dispatch(arg_name: str, arg_index: int, default: bool, if_true: Callable[..., Any],
                     if_false: Callable[..., Any], module_name: str, func_name: str) -> Callable[..., Any]:
    """A function that is one of two, by a bool among its arguments."""
    def choose(*args: Any, **kwargs: Any) -> Any:
        flag = kwargs[arg_name] if arg_name in kwargs else args[arg_index] if arg_index < len(args) else default
        return (if_true if flag else if_false)(*args, **kwargs)
    choose.__name__, choose.__module__, choose.__doc__ = func_name, module_name, if_true.__doc__ or if_false.__doc__
    return choose
