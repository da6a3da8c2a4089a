"""torch._dynamo: nothing is captured, so marks are forgotten and functions stay themselves."""
from __future__ import annotations

import contextlib
from pathlib import PurePath
from typing import Any

import mindtorch_v2 as torch

for _name in ("allow_in_graph", "assume_constant_result", "disable", "disallow_in_graph", "forbid_in_graph",
              "is_compiling", "list_backends", "reset", "run", "set_stance", "substitute_in_graph"):
    globals()[_name] = getattr(torch.compiler, _name)

_facade = torch._facade
_WHY = "mindtorch_v2 captures no graphs: every op runs when it is called"


def _mark(t: Any, *args: Any, **kwargs: Any) -> None:
    """Nothing to mark."""


mark_static_address = mark_static = mark_dynamic = maybe_mark_dynamic = mark_unbacked = _mark
explain = _facade.refusal("torch._dynamo.explain", _WHY)
export = _facade.refusal("torch._dynamo.export", _WHY)


def optimize(*args: Any, **kwargs: Any) -> Any:
    """A decorator that gives the function itself."""
    return lambda fn: fn


optimize_assert = optimize


def graph_break(msg: str = "") -> None:
    """Nothing to break."""


class OptimizedModule(torch.nn.Module):   # type: ignore[name-defined]
    """What torch.compile makes of a module in torch; here nothing is ever one."""


class TransformGetItemToIndex(torch.overrides.TorchFunctionMode):   # type: ignore[name-defined]
    """A with block in which vmap's tensors may be indices; here they always may."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def _error(name: str, base: type[Exception] = RuntimeError) -> type[Exception]:
    return type(name, (base,), {"__doc__": "What torch._dynamo raises; nothing does here."})


_errors: dict[str, Any] = {"TorchDynamoException": _error("TorchDynamoException")}
_errors |= {name: _error(name, _errors["TorchDynamoException"]) for name in (
    "BackendCompilerFailed", "InternalTorchDynamoError", "ResetRequired", "RestartAnalysis", "Unsupported",
    "TorchRuntimeError", "UserError", "FailOnRecompileLimitHit", "RecompileError")}

config: Any = _facade.settings(
    __name__, "config", "Settings of graph capture: stored, and not read.", suppress_errors=False,
    compiled_autograd=False, cache_size_limit=8, recompile_limit=8, accumulated_recompile_limit=256,
    accumulated_cache_size_limit=256, capture_scalar_outputs=False, capture_dynamic_output_shape_ops=False,
    automatic_dynamic_shapes=True, assume_static_by_default=True, disable=False, verbose=False,
    inline_inbuilt_nn_modules=True, optimize_ddp=True, log_compilation_metrics=True, issue_3_13_0_warning=True)
exc: Any = _facade.module(__name__, "exc", "Errors of graph capture.", **_errors)
eval_frame: Any = _facade.module(__name__, "eval_frame", "Where torch has OptimizedModule.", OptimizedModule=OptimizedModule,
                                 is_dynamo_supported=lambda: False)


def clone_input(x: Any, *, dtype: Any = None) -> Any:
    """A leaf with the items, the strides and the gradient of a tensor, in a storage of its own."""
    with torch.no_grad():
        made = torch.empty_strided(x.shape, x.stride(), dtype=dtype or x.dtype, device=x.device).copy_(x)
        made.requires_grad_(x.requires_grad)
        if x.is_leaf and x.grad is not None:
            made.grad = clone_input(x.grad, dtype=dtype)
        return made


utils: Any = _facade.module(__name__, "utils", "What graph capture says of itself.", is_compile_supported=lambda device: False,
                       counters={}, clone_input=clone_input,
                       LazyString=torch._logging.LazyString,
                       CompileProfiler=_facade.absent("torch._dynamo.utils.CompileProfiler", _WHY))
compiled_autograd: Any = _facade.module(__name__, "compiled_autograd", "Backward passes are not compiled.",
                                   reset=torch.compiler.reset, _disable=contextlib.nullcontext)
trace_rules: Any = _facade.module(__name__, "trace_rules", "Which functions would be captured: none.",
                             _as_posix_path=lambda path: PurePath(path).as_posix())
_trace_wrapped_higher_order_op: Any = _facade.module(
    __name__, "_trace_wrapped_higher_order_op", "Indexing inside vmap, for flex_attention's masks.",
    TransformGetItemToIndex=TransformGetItemToIndex)
test_case: Any = _facade.module(__name__, "test_case", "The base class of tests: torch.testing._internal's.")
torch._deferred.defer(test_case.__name__, dict.fromkeys(("TestCase", "run_tests"), "testing._internal.common_utils"))
torch._deferred.defer(__name__, {"testing": "_dynamo.testing"})
torch._deferred.defer(utils.__name__, {"detect_fake_mode": "_guards", "same": "_dynamo.testing"})
torch._named.complete(__name__, eval_frame.__name__, utils.__name__, exc.__name__)
