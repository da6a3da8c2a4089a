"""torch.jit in its eager form: functions and modules stay the Python they are, and nothing is traced."""
from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final, Optional, Union

from mindtorch_v2 import _C, _deferred, _facade

__all__ = ["Attribute", "Error", "Final", "annotate", "export", "fork", "freeze", "ignore", "interface", "is_scripting",
           "is_tracing", "isinstance", "load", "onednn_fusion_enabled", "optimized_execution", "save", "script",
           "script_if_tracing", "script_method", "trace", "trace_module", "unused", "wait"]
_is = isinstance


class Error(Exception):
    """What torch raises for an error inside TorchScript."""


def is_scripting() -> bool:
    """False: nothing is scripted."""
    return False


def is_tracing() -> bool:
    """False: nothing is traced."""
    return False


def script(obj: Any, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None, example_inputs: Any = None) -> Any:
    """The function, class or module itself, which runs as Python."""
    return obj


def script_if_tracing(fn: Any) -> Any:
    """The function itself."""
    return fn


def trace(func: Any, *args: Any, **kwargs: Any) -> Any:
    """The function or module itself: it runs anew at every call, so control flow is not frozen."""
    return func


def trace_module(mod: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
    """The module itself."""
    return mod


def freeze(mod: Any, *args: Any, **kwargs: Any) -> Any:
    """The module itself."""
    return mod


def optimize_for_inference(mod: Any, other_methods: Any = None) -> Any:
    """The module itself."""
    return mod


def export(fn: Any) -> Any:
    """The method itself."""
    return fn


def unused(fn: Any) -> Any:
    """The function itself."""
    return fn


def interface(obj: Any) -> Any:
    """The class itself."""
    return obj


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """The function itself, or a decorator that gives it."""
    return drop if callable(drop) else lambda fn: fn


def _overload(fn: Any) -> Any:
    """The declaration itself."""
    return fn


_overload_method = _script_if_tracing = _overload


def annotate(the_type: Any, the_value: Any) -> Any:
    """The value itself."""
    return the_value


def isinstance(obj: Any, target_type: Any) -> bool:  # noqa: A001
    """Python's isinstance."""
    return _is(obj, target_type)


class Attribute:
    """A value with the type TorchScript would give it."""

    def __init__(self, value: Any, type: Any) -> None:
        self.value, self.type = value, type


class ScriptFunction:
    """Only for isinstance: no object is one."""


class ScriptMethod(ScriptFunction):
    """Only for isinstance: no object is one."""


class ScriptWarning(Warning):
    """What torch warns with while it compiles."""


class TracerWarning(Warning):
    """What torch warns with while it traces; nothing is traced."""

    @staticmethod
    def ignore_lib_warnings() -> None:
        """Nothing to ignore."""


def script_method(fn: Any) -> Any:
    """The method itself."""
    return fn


CompilationUnit: Any = _facade.absent("torch.jit.CompilationUnit", "mindtorch_v2 has no TorchScript")


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Runs the function now; wait() gives its result."""
    return _Done(func(*args, **kwargs))


class _Done:
    def __init__(self, value: Any) -> None:
        self._value = value

    def wait(self) -> Any:
        return self._value


def wait(future: Any) -> Any:
    """The result of fork()."""
    return future.wait()


@contextlib.contextmanager
def optimized_execution(should_optimize: bool) -> Iterator[None]:
    """Changes nothing."""
    yield


fuser = strict_fusion = optimized_execution


def onednn_fusion_enabled() -> bool:
    """False."""
    return False


def enable_onednn_fusion(enabled: bool) -> None:
    """Changes nothing."""


def set_fusion_strategy(strategy: Any) -> Any:
    """Changes nothing."""
    return strategy


_WHY = "mindtorch_v2 has no TorchScript"
vars(_C).update(_get_tracing_state=lambda: None, _log_api_usage_once=lambda event: None,
                has_lapack=True, has_spectral=True, has_openmp=False, has_mkl=False, _has_mkldnn=False,
                ScriptFunction=ScriptFunction, ScriptMethod=ScriptMethod,
                **_facade.absents("ScriptDict ScriptList ScriptObject ScriptClass Graph", _WHY, "torch._C."))


def _stored(setting: str, value: Any) -> dict[str, Any]:
    """The two functions of a setting of a compiler that is not here: it is stored and given back."""
    kept = [value]

    def put(new: Any) -> Any:
        before, kept[0] = kept[0], new
        return before
    return {"_jit_set_" + setting: put, "_jit_get_" + setting: lambda: kept[0]}


_hooks: list[Any] = [None, None]
vars(_C).update(_jit_set_emit_hooks=lambda module, function: _hooks.__setitem__(slice(None), [module, function]),
                _jit_get_emit_hooks=lambda: tuple(_hooks), _jit_clear_class_registry=lambda: None)
for _setting, _value in (("inline_everything_mode", False), ("tracer_state_warn", True), ("profiling_executor", True),
                         ("te_must_use_llvm_cpu", False), ("num_profiled_runs", 1), ("bailout_depth", 20)):
    vars(_C).update(_stored(_setting, _value))
_logging: Any = _facade.module(__name__, "_logging", "Counters of TorchScript: none.")
frontend: Any = _facade.module(__name__, "frontend", "The reader of TorchScript.",
                               NotSupportedError=type("NotSupportedError", (RuntimeError,), {}),
                               **_facade.refusals("get_jit_def get_jit_class_def", _WHY, "torch.jit.frontend."))
quantized: Any = _facade.module(__name__, "quantized", "Modules of TorchScript in eight bits: none.")
_recursive: Any = _facade.module(__name__, "_recursive", "Types of modules that TorchScript compiled: none.",
                                 ConcreteTypeStore=type("ConcreteTypeStore", (), {}), concrete_type_store=None)
_state: Any = _facade.module(__name__, "_state", "Whether TorchScript compiles: it does not.", _enabled=False,
                             _clear_class_state=lambda: None, disable=lambda: None,
                             enable=_facade.refusal("torch.jit._state.enable", _WHY))
mobile: Any = _facade.module(__name__, "mobile", "TorchScript on phones.",
                             **_facade.refusals("_load_for_lite_interpreter", _WHY, "torch.jit.mobile."))
annotations: Any = _facade.module(__name__, "annotations", "Types that TorchScript reads.", Any=Any, List=list, Dict=dict,
                             Tuple=tuple, Optional=Optional, Union=Union,
                             **{f"BroadcastingList{n}": dict.fromkeys((int, float, bool), list) for n in range(1, 7)})
_deferred.defer(__name__, dict.fromkeys(("ScriptModule", "RecursiveScriptModule", "TopLevelTracedModule"), "_jit_internal"))


def save(m: Any, f: Any, *args: Any, **kwargs: Any) -> None:
    """Refuses: there is no TorchScript to save."""
    raise NotImplementedError("[torch.jit.save] mindtorch_v2 has no TorchScript; save the state_dict with torch.save")


def load(f: Any, *args: Any, **kwargs: Any) -> Any:
    """Refuses: there is no TorchScript to run."""
    raise NotImplementedError("[torch.jit.load] mindtorch_v2 has no TorchScript; load a state_dict with torch.load")
