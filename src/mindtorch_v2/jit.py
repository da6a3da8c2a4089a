"""torch.jit in its eager form: functions and modules stay the Python they are, and nothing is traced."""
from __future__ import annotations

import contextlib
import types
import typing
import warnings
from collections.abc import Iterator
from typing import Any, Final, Optional, Union

from mindtorch_v2 import _C, _deferred, _facade, _named

__all__ = ["Attribute", "Error", "Final", "annotate", "export", "fork", "freeze", "ignore", "interface", "is_scripting",  # noqa: F822
           "is_tracing", "isinstance", "load", "onednn_fusion_enabled", "optimized_execution", "save", "script",
           "script_if_tracing", "script_method", "trace", "trace_module", "unused", "wait"]  # noqa: F822 (two are deferred)
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
    """Python's isinstance, also for containers of a type: each of their items is asked."""
    kind, inner = typing.get_origin(target_type), typing.get_args(target_type)
    if _is(target_type, tuple) or kind in (Union, types.UnionType):
        return any(isinstance(obj, t) for t in inner or target_type)
    if (kind or target_type) in (list, dict, tuple) and not inner:
        name = target_type.__name__
        raise RuntimeError(f"Attempted to use {name} without a contained type. Please add a contained type, e.g. {name}[int]")
    if kind not in (list, dict, tuple):
        return _is(obj, target_type)
    if _is(obj, kind) and not obj:
        warnings.warn("The inner type of a container is lost when calling torch.jit.isinstance in eager mode. For example, "
                      "List[int] would become list and therefore falsely return True for List[float] or List[str].", stacklevel=2)
    if not _is(obj, kind):
        return False
    if kind is dict:
        return all(isinstance(k, inner[0]) and isinstance(v, inner[1]) for k, v in obj.items())
    if kind is list:
        return all(isinstance(x, inner[0]) for x in obj)
    return len(obj) == len(inner) and all(isinstance(x, t) for x, t in zip(obj, inner))


class Attribute(typing.NamedTuple):
    """A value with the type TorchScript would give it."""
    value: Any
    type: Any


class ScriptFunction:
    """Only for isinstance: no object is one."""


class ScriptMethod(ScriptFunction):
    """Only for isinstance: no object is one."""


class ScriptWarning(Warning):
    """What torch warns with while it compiles."""


class TracingCheckError(Exception):
    """What torch raises where a trace gives other values than the Python; nothing is traced."""


class TracerWarning(Warning):
    """What torch warns with while it traces; nothing is traced."""

    @staticmethod
    def ignore_lib_warnings() -> None:
        """Nothing to ignore."""


def script_method(fn: Any) -> Any:
    """The method itself."""
    return fn


CompilationUnit: Any = _facade.absent("torch.jit.CompilationUnit", "mindtorch_v2 has no TorchScript")


@contextlib.contextmanager
def optimized_execution(should_optimize: bool) -> Iterator[None]:
    """Changes nothing."""
    yield


fuser = strict_fusion = optimized_execution


_fusion = [("STATIC", 2), ("DYNAMIC", 10)]


def set_fusion_strategy(strategy: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """The strategy from before; nothing is fused."""
    before, _fusion[:] = list(_fusion), strategy
    return before


def onednn_fusion_enabled() -> bool:
    """What enable_onednn_fusion was told; nothing is fused."""
    return _onednn[0]


def enable_onednn_fusion(enabled: bool) -> None:
    """Is remembered; nothing is fused."""
    _onednn[0] = enabled


_onednn = [False]


def run_frozen_optimizations(mod: Any, *args: Any, **kwargs: Any) -> None:
    """Changes nothing."""


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
annotations: Any = _facade.module(  # type: ignore[no-redef]
    __name__, "annotations", "Types that TorchScript reads.", Any=Any, List=list, Dict=dict,
                             Tuple=tuple, Optional=Optional, Union=Union,
                             **{f"BroadcastingList{n}": dict.fromkeys((int, float, bool), list) for n in range(1, 7)})
_MODULES = ("ScriptModule", "RecursiveScriptModule", "TopLevelTracedModule", "TracedModule", "ONNXTracedModule",
            "RecursiveScriptClass", "Future", "fork", "wait")
_deferred.defer(__name__, dict.fromkeys(_MODULES, "_jit_internal"))
for _name, _doc in (("_script", "The compiler of TorchScript: what it is given runs as Python."),
                    ("_trace", "The tracer of TorchScript: what it is given runs as Python."),
                    ("_freeze", "Frozen modules of TorchScript: they run as Python."),
                    ("_async", "fork and wait."), ("_fuser", "The fuser of TorchScript: nothing is fused.")):
    # Packages import single functions from where torch defines them.
    globals()[_name] = _facade.module(__name__, _name, _doc, script=script, trace=trace, trace_module=trace_module, freeze=freeze,
                                      is_tracing=is_tracing, optimize_for_inference=optimize_for_inference,
                                      ScriptFunction=ScriptFunction, TracerWarning=TracerWarning, Attribute=Attribute,
                                      script_method=script_method, interface=interface, script_if_tracing=script_if_tracing,
                                      set_fusion_strategy=set_fusion_strategy, fuser=fuser,
                                      run_frozen_optimizations=run_frozen_optimizations, optimized_execution=optimized_execution)
    _deferred.defer(f"{__name__}.{_name}", dict.fromkeys(_MODULES, "_jit_internal"))
last_executed_optimized_graph = _facade.refusal("torch.jit.last_executed_optimized_graph", _WHY)


def save(m: Any, f: Any, *args: Any, **kwargs: Any) -> None:
    """Refuses: there is no TorchScript to save."""
    raise NotImplementedError("[torch.jit.save] mindtorch_v2 has no TorchScript; save the state_dict with torch.save")


def load(f: Any, *args: Any, **kwargs: Any) -> Any:
    """Refuses: there is no TorchScript to run."""
    raise NotImplementedError("[torch.jit.load] mindtorch_v2 has no TorchScript; load a state_dict with torch.load")


__path__: list[str] = []       # modules that torch has below it are found by name
_named.complete(__name__, *(f"{__name__}.{_name}" for _name in ("_recursive", "_trace", "annotations", "frontend", "mobile")))
