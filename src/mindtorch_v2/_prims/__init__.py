"""torch._prims: the primitives of PyTorch's compiler, which are not here. `utils` is torch._prims_common."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch

_facade = torch._facade
utils = torch._prims_common

_WHY = "the primitives of PyTorch's compiler are not offered"
__getattr__ = _facade.refuse_all("torch._prims", _WHY)


class TorchRefsMode(torch.overrides.TorchFunctionMode):
    """A with block in which an op is its reference; those are the ops themselves (torch._refs), so nothing changes."""

    def __init__(self, strict: bool = False, should_fallback_fn: Callable[..., bool] = lambda *x: False,
                 prims_mode_cls: Any = None) -> None:
        super().__init__()
        self.strict, self.should_fallback_fn, self.prims_mode_cls = strict, should_fallback_fn, prims_mode_cls

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def execute(gm: Any, *args: Any, executor: str = "aten", executor_parameters: dict[str, Any] | None = None) -> Any:
    """What a recorded graph computes."""
    if executor != "aten":
        raise ValueError(f"Received unexpected value for 'executor': {executor}. Allowed values are: aten.")
    return gm.forward(*args)


def make_traced(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function that records what fn does with its arguments as a graph, and gives what that computes."""
    def traced(*args: Any, executor: str = "aten", **kwargs: Any) -> Any:
        recording = torch.fx.experimental.proxy_tensor
        wrapped, everything = recording.wrapper_and_args_for_make_fx(fn, args, kwargs)
        return execute(recording.make_fx(wrapped)(everything), everything, executor=executor)
    return traced


executor: Any = _facade.module(__name__, "executor", "Functions that run as recorded graphs.", execute=execute,
                               make_traced=make_traced)
context: Any = _facade.module(__name__, "context", "Modes that swap ops for references.", TorchRefsMode=TorchRefsMode)
