"""torch._functorch.aot_autograd: the compiler of forward and backward is not here; its small parts are."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch

_WHY = "forward and backward are not compiled ahead; torch.fx.experimental.proxy_tensor.make_fx records a program"
globals().update(torch._facade.refusals(
    "aot_function aot_module aot_module_simplified compiled_function compiled_module create_joint aot_export_module "
    "aot_export_joint_simple get_aot_compilation_context get_aot_graph_name get_graph_being_compiled", _WHY,
    "torch._functorch.aot_autograd."))


def make_boxed_func(f: Callable[..., Any]) -> Callable[..., Any]:
    """f as a function of one list of arguments."""
    def boxed(args: Any) -> Any:
        return f(*args)
    boxed._boxed_call = True     # type: ignore[attr-defined]
    return boxed


def make_boxed_compiler(compiler: Callable[..., Any]) -> Callable[..., Any]:
    """A compiler whose results take one list of arguments."""
    def boxed(fx_g: Any, inps: Any) -> Any:
        return make_boxed_func(compiler(fx_g, inps))
    return boxed

torch._named.complete(__name__)
