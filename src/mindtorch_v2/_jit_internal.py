"""torch._jit_internal: classes and marks of TorchScript for code that is run as Python."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import mindtorch_v2 as torch

__all__ = ["Final", "Future", "ONNXTracedModule", "RecursiveScriptClass", "RecursiveScriptModule", "ScriptModule",
           "TopLevelTracedModule", "TracedModule", "boolean_dispatch", "fork", "wait"]
Future = torch.futures.Future
ignore, export, unused, is_scripting = torch.jit.ignore, torch.jit.export, torch.jit.unused, torch.jit.is_scripting
_overload = _overload_method = _copy_to_script_wrapper = torch.jit._overload


class ScriptModule(torch.nn.Module):
    """A module whose class says that TorchScript compiles it; here it runs as Python, as every module does."""

    def save(self, f: Any, *args: Any, **kwargs: Any) -> None:
        """Refuses: there is no TorchScript to save."""
        torch.jit.save(self, f)


ScriptObject: Any = torch._facade.absent("torch.ScriptObject", "there is no TorchScript whose classes it would hold objects of")


class RecursiveScriptModule(ScriptModule):
    """What torch.jit.script makes of a module in torch; here it gives the module itself, so nothing is one."""


class TopLevelTracedModule(ScriptModule):
    """What torch.jit.trace makes of a module in torch; here it gives the module itself, so nothing is one."""


class TracedModule(ScriptModule):
    """What torch makes of the parts of a module that it traces; nothing is one."""


class ONNXTracedModule(TracedModule):
    """What torch's older exporter traced; nothing is one."""


class RecursiveScriptClass:
    """What torch makes of a class that it compiles; nothing is one."""


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Runs the function now; wait() gives its result."""
    future = torch.futures.Future()
    try:
        future.set_result(func(*args, **kwargs))
    except Exception as error:
        future.set_exception(error)
    return future


def wait(future: Any) -> Any:
    """The result of fork()."""
    return future.wait()


boolean_dispatch = torch.nn.functional.boolean_dispatch
boolean_dispatched = torch.nn._functional.pooling.boolean_dispatched

torch._named.complete(__name__)
